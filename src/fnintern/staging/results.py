"""The tree of a result, with the objects of the call that gets it (S3, S4).

What a result holds beside arrays (an optimizer, a config object, the function of a ``Partial``)
are the user's own objects. A program serves many calls, each with its own. So of the tree of its
first result it keeps a template that says of each object where a call has it, among all that its
functions see. Imports jax.
"""

from __future__ import annotations

import copy
import enum
import types
from collections.abc import Callable
from typing import Any, Final

import jax
import numpy as np

from fnintern.captures.freezing import Frozen
from fnintern.captures.values import CONSTANTS
from fnintern.keys.callables import is_partial
from fnintern.keys.objects import hides_state, importable, namespace_of, slots_of
from fnintern.keys.tokens import ATOMIC
from fnintern.libraries.ownership import is_held_by_library, is_library_class
from fnintern.staging.structures import holds_text_only

__all__ = ["Template", "Unlocated", "object_maker", "tree_maker"]

#: Makes an object, or a tree structure, for a call.
Maker = Callable[["_Making"], Any]

_registry: Final = jax.tree_util.default_registry
_make_structure: Final = jax.tree_util.PyTreeDef.from_node_data_and_children


class Unlocated(Exception):
    """A result holds an object that its trace made: only another trace could make another."""


def tree_maker(structure: Any, frozen: Frozen) -> Any:
    """How the structure of a result is made for each call.

    Args:
        structure: of the result of the call that was traced.
        frozen: all that this call saw.

    Returns:
        The structure itself where it serves any call, else a :class:`Template`.

    Raises:
        Unlocated: it holds an object that cannot be found in another call.
    """
    if holds_text_only(structure):
        return structure
    locator = _Locator(frozen)
    maker = locator.structure(structure)
    return structure if maker is None else Template(maker)


def object_maker(value: Any, frozen: Frozen) -> Callable[[Frozen], Any]:
    """How an object that a trace has put somewhere is found, or made, for each call.

    Raises:
        Unlocated: it is one that cannot be found in another call.
    """
    if isinstance(value, np.ndarray):
        raise Unlocated("ndarray")
    maker = _Locator(frozen).item(value)
    if maker is None:
        return lambda frozen: value
    return lambda frozen: maker(_Making(frozen))


class Template:
    """Makes the structure of a result for one call."""

    __slots__ = ("_maker",)

    def __init__(self, maker: Maker) -> None:
        self._maker = maker

    def structure(self, frozen: Frozen) -> Any:
        """The structure, with the objects that a call of the same key saw."""
        return self._maker(_Making(frozen))


class _Making:
    """A structure that is being made for a call.

    Attributes:
        frozen: all that the call saw.
        made: the objects made so far, by the ids of those in the example.
    """

    __slots__ = ("frozen", "made")

    def __init__(self, frozen: Frozen) -> None:
        self.frozen = frozen
        self.made: dict[int, Any] = {}


_NOTHING_SEEN: Final = Frozen((), [], [], None)


class _Locator:
    """Finds the objects in a structure among those that a call saw. A maker of None stands for an
    object that serves any call."""

    def __init__(self, frozen: Frozen) -> None:
        #: Of the objects that the call saw: among which, and where.
        self._places: dict[int, tuple[str, int]] = {}
        for among in ("targets", "leaves", "holders"):
            items = enumerate(getattr(frozen, among))
            self._places.update({id(item): (among, i) for i, item in items})
        self._under_way: set[int] = set()
        #: Objects that the trace made and that are made again for each call, one for all places.
        self._made_again: dict[int, Maker] = {}

    def structure(self, structure: Any) -> Maker | None:
        node = structure.node_data()
        if node is None or holds_text_only(structure):
            return None
        children = structure.children()
        if isinstance(node[0], type) and issubclass(node[0], tuple) and node[1] is not None:
            return self._registered_tuple(structure, node[1], children)
        parts = [self.item(node[0]), self.item(node[1]), *map(self.structure, children)]
        if not any(parts):
            return None
        kind, data, *makers = (
            part or _constant(item) for part, item in zip(parts, (*node, *children), strict=True)
        )

        def make(making: _Making) -> Any:
            own = (kind(making), data(making))
            return _make_structure(_registry, own, [maker(making) for maker in makers])

        return make

    def _registered_tuple(self, structure: Any, data: Any, children: list[Any]) -> Maker | None:
        """A named tuple that is registered as a node with data. JAX makes no structure of it from
        node and data, so it has to be one by example."""
        if _Locator(_NOTHING_SEEN).item(data) is not None:
            raise Unlocated(type(data).__qualname__)
        parts = list(map(self.structure, children))
        if not any(parts):
            return None
        makers = [part or _constant(child) for part, child in zip(parts, children, strict=True)]
        example = structure.unflatten(range(structure.num_leaves))
        level = jax.tree_util.tree_structure(example, is_leaf=lambda x: x is not example)

        def make(making: _Making) -> Any:
            made = [maker(making) for maker in makers]
            parts = [child.unflatten(range(child.num_leaves)) for child in made]
            return jax.tree_util.tree_structure(level.unflatten(parts))

        return make

    def item(self, value: Any) -> Maker | None:
        kind = type(value)
        if kind in ATOMIC or kind in (float, complex) or isinstance(value, CONSTANTS):
            return None
        if (
            (isinstance(value, enum.Enum) and importable(kind))
            or value is type(None)
            or (
                (isinstance(value, type | types.ModuleType) or callable(value))
                and importable(value)
            )
        ):
            return None
        found = self._places.get(id(value))
        if found is not None:
            among, place = found
            return lambda making: getattr(making.frozen, among)[place]
        if kind is jax.tree_util.PyTreeDef:
            return self.structure(value)
        if id(value) in self._made_again:
            return self._made_again[id(value)]
        if id(value) in self._under_way:
            raise Unlocated(type(value).__qualname__)  # it holds itself
        self._under_way.add(id(value))
        try:
            maker = self._made(value, kind)
        finally:
            self._under_way.discard(id(value))
        if maker is None or kind in (tuple, frozenset):
            return maker
        self._made_again[id(value)] = once = _once(id(value), maker)
        return once

    def _made(self, value: Any, kind: type) -> Maker | None:
        """An object that the trace made: built again, where it is a container or a library's."""
        if isinstance(value, tuple) and (kind is tuple or hasattr(kind, "_make")):
            make: Any = kind if kind is tuple else kind._make
            return self._collection(value, make)
        if kind is types.MethodType:
            return self._collection([value.__func__, value.__self__], _bound)
        if kind in (list, set):
            return self._collection(value, kind) or _fresh(value)
        if kind is frozenset:
            return self._collection(value, kind)
        if kind is dict:
            return self._collection([*value.items()], dict) or _fresh(value)
        if is_partial(value):
            return self._partial(value)
        if kind is types.SimpleNamespace:
            items = list(vars(value).items())
            return self._collection(items, lambda parts: kind(**dict(parts))) or _fresh_copy(value)
        if kind is slice:
            parts = [value.start, value.stop, value.step]
            return self._collection(parts, lambda parts: slice(*parts))
        if kind.__module__.partition(".")[0] in ("jax", "jaxlib", "numpy"):
            if isinstance(value, jax.Array):
                raise Unlocated(kind.__qualname__)
            return None
        if isinstance(value, type) and is_held_by_library(value):
            return None
        if (
            not is_library_class(kind)
            or hides_state(kind)
            or hasattr(kind, "__del__")
            or kind.__new__ is not object.__new__  # type: ignore[comparison-overlap]
        ):
            raise Unlocated(kind.__qualname__)
        return self._instance(value, kind)

    def _partial(self, value: Any) -> Maker | None:
        """A partial: its function, its arguments, its keywords."""
        if vars(value):
            raise Unlocated(type(value).__qualname__)
        kind, names, count = type(value), list(value.keywords), len(value.args)

        def make(parts: list[Any]) -> Any:
            function, args, rest = parts[0], parts[1 : count + 1], parts[count + 1 :]
            return kind(function, *args, **dict(zip(names, rest, strict=True)))

        return self._collection([value.func, *value.args, *value.keywords.values()], make)

    def _collection(self, value: Any, make: Callable[[Any], Any]) -> Maker | None:
        items = list(value)
        parts = list(map(self.item, items))
        if not any(parts):
            return None
        makers = [part or _constant(item) for part, item in zip(parts, items, strict=True)]
        return lambda making: make([maker(making) for maker in makers])

    def _instance(self, value: Any, kind: type) -> Maker | None:
        contents = dict(namespace_of(value) or {})
        for name in slots_of(kind):
            try:
                contents[name] = object.__getattribute__(value, name)
            except AttributeError:
                continue
        parts = {name: self.item(item) for name, item in contents.items()}
        if not any(parts.values()):
            return None
        makers = {name: part or _constant(contents[name]) for name, part in parts.items()}

        def make(making: _Making) -> Any:
            new: Any = object.__new__(kind)
            for name, maker in makers.items():
                object.__setattr__(new, name, maker(making))
            return new

        return make


def _once(key: int, maker: Maker) -> Maker:
    def make(making: _Making) -> Any:
        if key not in making.made:
            making.made[key] = maker(making)
        return making.made[key]

    return make


def _constant(value: Any) -> Maker:
    return lambda making: value


def _bound(parts: list[Any]) -> Any:
    function, instance = parts
    return types.MethodType(function, instance)


def _fresh_copy(value: Any) -> Maker:
    return lambda making: copy.copy(value)


def _fresh(value: Any) -> Maker:
    """A mutable container of constants: another one for each call, as each trace makes one."""
    return lambda making: value.copy()

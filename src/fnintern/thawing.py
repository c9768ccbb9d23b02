"""``thaw``: an equal function with other arrays in it, and nothing in common that can change.

What :func:`fnintern.captures.freeze` has split, this puts together again: a copy of the function
with cells, namespaces and containers of its own, in which each captured array is replaced. Calling
the copy changes nothing that the user holds. Never imports jax or flax.
"""

from __future__ import annotations

import collections
import enum
import functools
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final

from fnintern.captures import CONSTANTS, Frozen, Refused, freeze
from fnintern.code import facts_of, is_library_code, is_library_module
from fnintern.declarations import is_stateless, key_function
from fnintern.forwards import Forward, callable_of
from fnintern.keys import ATOMIC, STORE_ATTRIBUTE, importable, is_partial
from fnintern.recognition import (
    hides_state,
    is_held_by_its_module,
    is_identifier,
    is_library_class,
    is_pytree_node,
    is_trace_state,
    is_users,
    namespace_of,
    slots_of,
    unread_attributes,
)

__all__ = ["thaw"]


def thaw(value: Any, frozen: Frozen, leaves: Sequence[Any]) -> Any:
    """Rebuilds a function around other leaves.

    Args:
        value: what was frozen: a function, or anything else that :func:`freeze` takes.
        frozen: what ``freeze(value)`` found.
        leaves: what takes the place of ``frozen.leaves``, one for each, for instance tracers of
            the same shapes and dtypes.

    Returns:
        The copy. It shares with ``value`` only what cannot change.

    Raises:
        ValueError: ``leaves`` has another length than ``frozen.leaves``.
        Refused: an array sits where a copy cannot reach it, in an attribute of a class.

    Example:
        >>> import jax.numpy as jnp
        >>> from fnintern.captures import freeze
        >>> def make(w):
        ...     return lambda x: w * x
        >>> double = make(jnp.float32(2.0))
        >>> triple = thaw(double, freeze(double), [jnp.float32(3.0)])
        >>> float(triple(5.0)), float(double(5.0))
        (15.0, 10.0)
    """
    if len(leaves) != len(frozen.leaves):
        raise ValueError(
            f"thaw got {len(leaves)} leaves for a value with {len(frozen.leaves)}; give one for "
            f"each of frozen.leaves, in their order"
        )
    replacements = {id(old): new for old, new in zip(frozen.leaves, leaves, strict=True)}
    copier = _Copier(replacements, frozen)
    copy = copier.copy(value)
    for old in frozen.leaves:
        if id(old) not in copier.replaced:
            raise Refused("f", old, "a class holds it as an attribute, which a copy cannot replace")
    return copy


class _Copier:
    """One pass that copies what may change, and replaces the leaves."""

    def __init__(self, replacements: dict[int, Any], frozen: Frozen) -> None:
        self._replacements = replacements
        self.replaced: set[int] = set()
        self._met = {id(holder) for holder in frozen.holders}
        # What a class holds under a name stays that object: code may compare by `is`.
        self._held = {
            id(item)
            for kind in frozen.targets
            if isinstance(kind, type)
            for base in kind.__mro__
            if not is_library_class(base)
            for item in vars(base).values()
            if not isinstance(item, types.FunctionType)
        }
        # By id, with the original, whose id must stay its own meanwhile.
        self._copies: dict[int, tuple[Any, Any]] = {}
        self._namespaces: dict[int, dict[str, Any]] = {}

    def copy(self, value: Any) -> Any:
        number = id(value)
        if number in self._replacements:
            self.replaced.add(number)
            return self._replacements[number]
        kind = type(value)
        if kind in ATOMIC or kind is float or isinstance(value, type) or is_stateless(value):
            return value
        if number in self._copies:
            return self._copies[number][1]
        if number in self._held:
            return value
        if issubclass(kind, Forward):
            return self.copy(callable_of(value))
        copier = _COPIERS.get(kind)
        if copier is not None:
            return copier(self, value)
        if isinstance(value, functools.partial) and is_partial(value):
            return self._partial(value)
        if isinstance(value, tuple) and hasattr(kind, "_make"):
            return self._note(value, kind._make(map(self.copy, value)))
        return self._instance(value, kind)

    def _note(self, value: Any, copy: Any) -> Any:
        self._copies[id(value)] = value, copy
        return copy

    def _function(self, value: types.FunctionType) -> Any:
        code, namespace = value.__code__, value.__globals__
        facts = facts_of(code)
        library = is_library_code(facts, namespace)
        if library and importable(value):
            return value
        closure = value.__closure__ or ()
        # One for each, so that functions which share a variable go on sharing one.
        new = [cell for cell in closure if id(cell) not in self._copies]
        cells = tuple(self._copies.get(id(c), (c, None))[1] or self._cell(c) for c in closure)
        own = namespace if library else self._namespace(namespace)
        copy = types.FunctionType(code, own, value.__name__, None, cells)
        self._note(value, copy)
        for name in ("__qualname__", "__module__", "__doc__"):
            setattr(copy, name, getattr(value, name))
        for cell in new:
            self._fill(cell)
        copy.__defaults__ = self.copy(value.__defaults__)
        copy.__kwdefaults__ = self.copy(value.__kwdefaults__)
        for name, item in value.__dict__.items():
            if name != STORE_ATTRIBUTE:
                copy.__dict__[name] = self.copy(item)
        if not library:
            for name in (*facts.names, *facts.builtins):
                if name in namespace:
                    own[name] = self.copy(namespace[name])
        return copy

    def _cell(self, cell: types.CellType) -> types.CellType:
        copy: types.CellType = self._note(cell, types.CellType())
        return copy

    def _fill(self, cell: types.CellType) -> None:
        try:
            content = cell.cell_contents
        except ValueError:  # not filled in the original either
            return
        self._copies[id(cell)][1].cell_contents = self.copy(content)

    def _namespace(self, namespace: dict[str, Any]) -> dict[str, Any]:
        if id(namespace) not in self._namespaces:
            self._namespaces[id(namespace)] = dict(namespace)
        return self._namespaces[id(namespace)]

    def _module(self, value: types.ModuleType) -> types.ModuleType:
        if is_library_module(value):
            return value
        copy = types.ModuleType(value.__name__, value.__doc__)
        self._note(value, copy)
        for name, item in list(vars(value).items()):
            # What code reads off a module is not known here, but that freezing has met it.
            copied = id(item) in self._replacements or is_users(item) or id(item) in self._met
            vars(copy)[name] = self.copy(item) if copied else item
        return copy

    def _method(self, value: types.MethodType) -> Any:
        return types.MethodType(self.copy(value.__func__), self.copy(value.__self__))

    def _builtin(self, value: Any) -> Any:
        """A method of an object made in C, such as ``list.append`` of one list."""
        owner = value.__self__
        if owner is None or isinstance(owner, types.ModuleType | type):
            return value
        return getattr(self.copy(owner), value.__name__)

    def _partial(self, value: functools.partial[Any]) -> Any:
        copy = type(value)(
            self.copy(value.func),
            *map(self.copy, value.args),
            **{name: self.copy(item) for name, item in value.keywords.items()},
        )
        vars(copy).update({n: self.copy(x) for n, x in vars(value).items() if n != STORE_ATTRIBUTE})
        return copy

    def _tuple(self, value: tuple[Any, ...]) -> Any:
        items = tuple(map(self.copy, value))
        # A tuple may hold itself through a list, which has then made the copy already.
        found = self._copies.get(id(value))
        if found is not None:
            return found[1]
        same = all(new is old for new, old in zip(items, value, strict=True))
        return self._note(value, value if same else items)

    def _list(self, value: Any) -> Any:
        new = type(value)() if type(value) is list else collections.deque(maxlen=value.maxlen)
        copy = self._note(value, new)
        copy.extend(map(self.copy, value))
        return copy

    def _dict(self, value: Any) -> Any:
        factory = getattr(value, "default_factory", None)
        copy = self._note(value, type(value)() if factory is None else type(value)(factory))
        for name, item in value.items():
            copy[self.copy(name)] = self.copy(item)
        return copy

    def _proxy(self, value: Any) -> Any:
        return self._note(value, types.MappingProxyType(self._dict(dict(value))))

    def _namespace_object(self, value: types.SimpleNamespace) -> Any:
        copy = self._note(value, types.SimpleNamespace())
        vars(copy).update({name: self.copy(item) for name, item in vars(value).items()})
        return copy

    def _weak(self, value: weakref.ref[Any]) -> Any:
        referent = value()
        # Held by what has been copied with it, as the original is.
        return value if referent is None else self._note(value, weakref.ref(self.copy(referent)))

    def _weak_values(self, value: Any) -> Any:
        copy = self._note(value, type(value)())
        # Nothing else needs to hold what has been copied only for this.
        copy._copies = items = {self.copy(name): self.copy(item) for name, item in value.items()}
        copy.update(items)
        return copy

    def _same(self, value: Any) -> Any:
        return value

    def _set(self, value: Any) -> Any:
        return self._note(value, type(value)(map(self.copy, value)))

    def _instance(self, value: Any, kind: type) -> Any:
        """An instance of a Python class, attribute by attribute; anything else is a constant."""
        if is_identifier(kind):
            return value
        if is_trace_state(kind):
            return value  # as in a fresh trace: what was made outside is not to be changed inside
        rebuild = getattr(kind, "_thawed", None)
        if rebuild is not None and is_library_class(kind):
            return self._note(value, rebuild(value, self.copy))
        if key_function(kind) is not None and _is_constant(value):
            return value  # what it is made of is not looked at either
        namespace = namespace_of(value)
        slots = slots_of(kind)
        if not _is_plain(value, kind) or not (namespace or slots or issubclass(kind, _CONTAINERS)):
            return value  # an object without any attribute is compared by `is`, if at all
        if is_library_class(kind) and is_held_by_its_module(value):
            return value
        if hasattr(kind, "__del__"):
            raise Refused("f", value, "the end of a copy of it would do something (__del__)")
        content = [base for base in _CONTAINERS if issubclass(kind, base)]
        copy: Any = content[0].__new__(kind) if content else object.__new__(kind)
        self._note(value, copy)
        if content and content[0] is dict:
            dict.update(copy, {self.copy(k): self.copy(v) for k, v in dict.items(value)})
        elif content:
            list.extend(copy, map(self.copy, list.__iter__(value)))
        for name in slots:
            try:
                item = object.__getattribute__(value, name)
            except AttributeError:
                continue
            object.__setattr__(copy, name, self.copy(item))
        if namespace is not None:
            own = object.__getattribute__(copy, "__dict__")
            unread = unread_attributes(value)
            for name, item in namespace.items():
                own[name] = item if name in unread else self.copy(item)
        return copy


_CONTAINERS: Final = (dict, list)


def _is_constant(value: Any) -> bool:
    """Whether a declared object has no array in its key, and no state of ``flax.nnx``."""
    try:
        return not freeze(value).leaves
    except Refused:
        return False


def _is_plain(value: Any, kind: type) -> bool:
    """Whether an instance is made of nothing but its attributes, and is no constant."""
    new: Any = kind.__new__
    if new is object.__new__ or issubclass(kind, _CONTAINERS):
        return True
    if hides_state(kind) or isinstance(value, enum.Enum):
        return False
    # Of a library's classes that make their instances in a way of their own (meshes, which are
    # unique), only those that JAX takes apart and puts together itself (eqx.Module).
    return not is_library_class(kind) or is_pytree_node(value)


_COPIERS: Final[dict[type, Callable[[_Copier, Any], Any]]] = {
    types.FunctionType: _Copier._function,
    types.MethodType: _Copier._method,
    types.BuiltinFunctionType: _Copier._builtin,
    types.MethodWrapperType: _Copier._builtin,
    types.ModuleType: _Copier._module,
    functools.partial: _Copier._partial,
    tuple: _Copier._tuple,
    list: _Copier._list,
    collections.deque: _Copier._list,
    dict: _Copier._dict,
    collections.OrderedDict: _Copier._dict,
    collections.defaultdict: _Copier._dict,
    types.MappingProxyType: _Copier._proxy,
    weakref.ref: _Copier._weak,
    weakref.WeakValueDictionary: _Copier._weak_values,
    types.SimpleNamespace: _Copier._namespace_object,
    set: _Copier._set,
    frozenset: _Copier._set,
    **dict.fromkeys(CONSTANTS, _Copier._same),
}

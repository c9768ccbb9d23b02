"""When two arguments are the same (laws I2, I3, I5).

A call's arguments become a flat tuple, its *key*, and a list of *targets*: the callables in it,
which are keyed by identity and referred to weakly. Nothing here calls the ``__eq__`` or
``__hash__`` of a callable. Never imports jax, flax or numpy; it only recognises their types where
the user's program has imported them.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import numbers
import struct
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import attrs

from fnintern.keys.callables import is_bound_method, is_function_like, is_partial
from fnintern.keys.objects import importable
from fnintern.keys.tokens import (
    ATOMIC,
    NO_REFERENCE,
    STORE_ATTRIBUTE,
    Identity,
    Key,
    Marker,
    Unkeyable,
    weakref_remedy,
)

__all__ = ["key_of", "rebuild", "walk"]

_MUTABLE: Final = (list, dict, set, bytearray, memoryview)

#: What functools.update_wrapper writes: a name for people, not part of what a partial does (I3).
_METADATA: Final = frozenset({*functools.WRAPPER_ASSIGNMENTS, "__wrapped__"})


class _Walk:
    """One pass over the arguments of a call; see :func:`key_of`."""

    __slots__ = ("in_partial", "owner", "targets", "tokens")

    def __init__(self, in_partial: bool = False) -> None:
        self.tokens: list[Any] = []
        self.targets: list[Any] = []
        self.owner: types.FunctionType | None = None
        self.in_partial = in_partial

    def add(self, value: Any, path: str) -> None:
        kind = type(value)
        tokens = self.tokens
        if kind in ATOMIC:
            tokens += (kind, value)
        elif kind is types.FunctionType:
            if self.owner is None:
                self.owner = value
            self._target(Marker.CALLABLE, value)
        elif kind is types.MethodType:
            self._method(value, path)
        elif kind is tuple:
            tokens += (tuple, len(value))
            for i, item in enumerate(value):
                self.add(item, f"{path}[{i}]")
        elif kind is float:
            # By its bits: 0.0 == -0.0 and nan != nan, and JAX compiles what the bits say.
            tokens += (float, struct.pack("d", value))
        elif isinstance(value, functools.partial) and is_partial(value):
            self._partial(value, path)
        elif is_bound_method(value):
            tokens.append(kind)
            self._method(value, path)
        elif is_function_like(value):
            self._callable(value, path)
        else:
            self._value(value, kind, path)

    def _target(self, marker: Marker, value: object) -> None:
        self.tokens += (marker, id(value))
        self.targets.append(value)

    def _callable(self, value: object, path: str) -> None:
        try:
            weakref.ref(value)
        except TypeError:
            # A ufunc takes no weak reference, and its module keeps it alive.
            if not importable(value):
                remedy = weakref_remedy(value)
                raise Unkeyable(path, value, NO_REFERENCE, remedy) from None
            self.tokens += (Marker.CALLABLE, Identity(value))
        else:
            self._target(Marker.CALLABLE, value)

    def _method(self, value: Any, path: str) -> None:
        for name, part in (("__self__", value.__self__), ("__func__", value.__func__)):
            try:
                weakref.ref(part)
            except TypeError:
                remedy = weakref_remedy(part)
                raise Unkeyable(f"{path}.{name}", part, NO_REFERENCE, remedy) from None
        self._target(Marker.METHOD, value.__self__)
        self._target(Marker.OBJECT, value.__func__)

    def _partial(self, value: functools.partial[Any], path: str) -> None:
        # Plain attributes of the instance, never through a subclass's __getattr__.
        keywords = value.keywords
        outer, self.in_partial = self.in_partial, True
        self.tokens += (type(value), len(value.args), len(keywords))
        self.add(value.func, f"{path}.func")
        for i, item in enumerate(value.args):
            self.add(item, f"{path}.args[{i}]")
        for name in sorted(keywords):
            self.tokens.append(name)
            self.add(keywords[name], f"{path}.keywords[{name!r}]")
        extra = {
            name: item
            for name, item in vars(value).items()
            if name not in _METADATA and name != STORE_ATTRIBUTE
        }
        if extra:
            self.tokens.append(Marker.OBJECT)
            self._named(extra, path)
        self.in_partial = outer

    def _named(self, items: Mapping[str, Any], path: str) -> None:
        self.tokens.append(len(items))
        for name in sorted(items):
            self.tokens.append(name)
            self.add(items[name], f"{path}.{name}")

    def _value(self, value: Any, kind: type, path: str) -> None:
        tokens = self.tokens
        if kind is complex:
            tokens += (complex, struct.pack("dd", value.real, value.imag))
        elif isinstance(value, (type, enum.Enum)):
            tokens += (Marker.OBJECT, Identity(value))
        elif isinstance(value, _MUTABLE):
            raise Unkeyable(path, value, "it can change under the key")
        elif kind is frozenset:
            self._frozenset(value, path)
        elif isinstance(value, tuple) and not hasattr(value, "__dict__"):
            tokens += (kind, len(value))
            names = getattr(kind, "_fields", range(len(value)))
            for name, item in zip(names, value, strict=False):
                self.add(item, f"{path}.{name}" if isinstance(name, str) else f"{path}[{name}]")
        elif _is_numpy_scalar(value):
            if isinstance(value, sys.modules["numpy"].void):  # a record can be assigned to
                raise Unkeyable(path, value, "it can change under the key")
            tokens += (kind, value.dtype.str, value.tobytes())
        elif kind.__hash__ is None:
            raise Unkeyable(path, value, "it is unhashable")
        elif hasattr(kind, "__array__") or hasattr(kind, "__jax_array__"):
            raise Unkeyable(path, value, "an array is not hashed by its contents")
        elif kind.__eq__ is object.__eq__:  # type: ignore[comparison-overlap]
            if self.in_partial and not isinstance(value, types.ModuleType):
                # The partial is a callable, and nothing it holds may be kept alive (L1).
                raise Unkeyable(path, value, "only itself is equal to it, and it may be changed")
            self._object(value, kind)
        else:
            self._hashable(value, kind, path)

    def _object(self, value: Any, kind: type) -> None:
        """What only itself is equal to, and a key must not keep alive: the ``self`` of a method."""
        try:
            weakref.ref(value)
        except TypeError:
            self.tokens += (kind, Identity(value))
        else:
            self.tokens.append(kind)
            self._target(Marker.OBJECT, value)

    def _frozenset(self, value: frozenset[Any], path: str) -> None:
        parts = []
        for item in value:
            walk = _Walk(self.in_partial)
            walk.add(item, f"{path}{{...}}")
            parts.append((tuple(walk.tokens), walk))
        # In the order of the keys' hashes, since equal sets iterate in any order.
        parts.sort(key=lambda part: hash(part[0]))
        self.tokens += (frozenset, frozenset(key for key, _ in parts))
        for _, walk in parts:
            self.targets += walk.targets
            self.owner = self.owner or walk.owner

    def _hashable(self, value: Any, kind: type, path: str) -> None:
        """A value with an equality of its own: that equality decides, and then its state has to
        agree in type all the way down, since ``Spec(1) == Spec(1.0)``."""
        try:
            hash(value)
        except Exception as error:  # a tuple subclass with a list inside, a tracer, ...
            raise Unkeyable(path, value, f"hash() failed: {type(error).__name__}") from None
        self.tokens += (kind, value)
        # A subclass of a builtin hides a value that its attributes do not show.
        if isinstance(value, float):
            self.tokens.append(struct.pack("d", value))
        elif isinstance(value, complex):
            self.tokens.append(struct.pack("dd", value.real, value.imag))
        elif isinstance(value, tuple):
            self.add(tuple(value), path)
        elif isinstance(value, frozenset):
            self._frozenset(value, path)
        elif isinstance(value, numbers.Number):
            self._repr(value, path)
        state = _state(value, kind)
        if state is None:  # implemented in C: its repr tells Decimal("1.0") from Decimal("1")
            self._repr(value, path)
            return
        mark, targets = len(self.tokens), len(self.targets)
        try:
            self._named(state, path)
        except Unkeyable:
            # It holds what can change. Of a library's own types (meshes, shardings, filters), the
            # equality is to be trusted; of any other, only the same object is the same.
            del self.tokens[mark:], self.targets[targets:]
            if kind.__module__.partition(".")[0] not in _TRUSTED:
                self.tokens.append(Identity(value))

    def _repr(self, value: Any, path: str) -> None:
        try:
            self.tokens.append(repr(value))
        except Exception as error:
            reason = f"repr() failed: {type(error).__name__}"
            raise Unkeyable(path, value, reason) from None


_TRUSTED: Final = frozenset({"jax", "jaxlib", "numpy", "pathlib"})


def _is_numpy_scalar(value: object) -> bool:
    numpy = sys.modules.get("numpy")
    generic = getattr(numpy, "generic", None)
    return generic is not None and isinstance(value, generic)


def _state(value: object, kind: type) -> dict[str, Any] | None:
    """The attributes of an instance by name, or None where Python code cannot list them."""
    if attrs.has(kind):
        # eq=False fields are left out by the class itself: they do not make it another value.
        names = [a.name for a in attrs.fields(kind) if a.eq]
    elif dataclasses.is_dataclass(kind):
        names = [f.name for f in dataclasses.fields(kind) if f.compare]
    else:
        names = []
        for base in kind.__mro__:
            slots = base.__dict__.get("__slots__", ())
            names += [slots] if isinstance(slots, str) else list(slots)
        names = [name for name in names if name not in ("__dict__", "__weakref__")]
        namespace = getattr(value, "__dict__", None)
        if namespace is None and not names:
            return None
        # What a cached_property has computed is no part of the value, and comes in its own time.
        names += [
            name
            for name in namespace or ()
            if not isinstance(getattr(kind, name, None), functools.cached_property)
        ]
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


def key_of(items: Iterable[tuple[str, Any]]) -> tuple[Key, list[Any]]:
    """The key of named arguments, and the callables in it.

    Args:
        items: pairs of a parameter's name and the argument bound to it, in a fixed order.

    Returns:
        The key, and the targets in the order of their tokens. A target's token is its ``id``, so
        whoever compares keys must also compare the targets with ``is``.

    Raises:
        Unkeyable: one of the arguments cannot be part of a key.

    Example:
        >>> one, _ = key_of([("x", 1), ("y", (True, None))])
        >>> other, _ = key_of([("x", 1.0), ("y", (True, None))])
        >>> one == other
        False
    """
    tokens, targets, _ = walk(items)
    return tokens, targets


def walk(items: Iterable[tuple[str, Any]]) -> tuple[Key, list[Any], Any]:
    """:func:`key_of`, and the owner: the callable whose store is to hold an entry for all of them.

    That is the first plain function, which carries its store itself, or else the first target. The
    function of a bound method is none: it is shared by all instances, and the bound (L3) is not.
    """
    found = _Walk()
    for path, value in items:
        found.add(value, path)
    targets = found.targets
    owner = found.owner or (targets[0] if targets else None)
    return tuple(found.tokens), targets, owner


def rebuild(value: Any, substitute: Callable[[Any], Any]) -> Any:
    """A copy of an argument, with each callable in it replaced by ``substitute(callable)``.

    Partials are always copied: JAX may have seen the user's own, and a table must not keep it
    alive (L5). Tuples and frozensets are copied only where a callable in them changed.
    """
    kind = type(value)
    if isinstance(value, functools.partial) and is_partial(value):
        copy = kind(
            rebuild(value.func, substitute),
            *(rebuild(item, substitute) for item in value.args),
            **{name: rebuild(item, substitute) for name, item in value.keywords.items()},
        )
        for name, item in vars(value).items():
            if name != STORE_ATTRIBUTE:
                # __wrapped__ too: functools.update_wrapper leaves the user's callable there.
                vars(copy)[name] = rebuild(item, substitute)
        return copy
    if kind is tuple or (isinstance(value, tuple) and hasattr(kind, "_make")):
        items = [rebuild(item, substitute) for item in value]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value
        return tuple(items) if kind is tuple else kind._make(items)
    if kind is frozenset:
        items = [rebuild(item, substitute) for item in value]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value
        return frozenset(items)
    if is_function_like(value):
        return substitute(value)
    return value

"""How an object is read, whatever its class would answer: attributes, slots, contents."""

from __future__ import annotations

import collections
import contextlib
import functools
import struct
import sys
import types
import weakref
from typing import Any, Final

__all__ = [
    "CONTAINERS",
    "content_of",
    "has_value_equality",
    "hides_state",
    "importable",
    "is_ndarray",
    "is_protocol",
    "namespace_of",
    "slots_of",
]

#: Builtin types whose subclasses are read by a copy of the contents.
CONTAINERS: Final = (dict, list, tuple, set, frozenset, str, bytes, int, float, complex)


def is_protocol(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def has_value_equality(kind: type) -> bool:
    return (
        kind.__hash__ is not None
        and vars(object)["__eq__"] is not kind.__eq__
        and not hasattr(kind, "__array__")
        and not hasattr(kind, "__jax_array__")
        and (
            issubclass(kind, contextlib.ContextDecorator)
            or not any("__call__" in vars(base) for base in kind.__mro__)
        )
    )


def content_of(value: Any, base: Any) -> Any:
    """What the builtin part of an instance holds, whatever its class says when it is asked."""
    if base is dict:
        if isinstance(value, collections.OrderedDict):  # it has an order of its own
            return dict(collections.OrderedDict.items(value))
        return dict(dict.items(value))
    if base in (list, tuple, set, frozenset):
        return base(base.__iter__(value))
    if base is complex:
        return complex(float.__pos__(value.real), float.__pos__(value.imag))
    if base is str:
        return str.__str__(value)
    if base is bytes:
        return bytes.__getitem__(value, slice(None))
    return base.__pos__(value)


def namespace_of(value: Any) -> dict[str, Any] | None:
    """The instance's own attributes, whatever its class would answer."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return found if type(found) is dict else None


@functools.lru_cache(maxsize=4096)
def _layout_of(ref: weakref.ref[type]) -> tuple[tuple[str, ...], bool]:
    """The slots of a class, and whether instances hide state. Neither changes."""
    kind = ref()
    assert kind is not None
    slots = tuple(
        name
        for base in kind.__mro__
        for name, member in vars(base).items()
        if isinstance(member, types.MemberDescriptorType)
    )
    known = object.__basicsize__ + struct.calcsize("P") * (
        len(slots) + (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0)
    )
    return slots, kind.__basicsize__ > known or kind.__itemsize__ > 0 or kind is object


def slots_of(kind: type) -> tuple[str, ...]:
    return _layout_of(weakref.ref(kind))[0]


def hides_state(kind: type) -> bool:
    """Whether instances have more in them than Python attributes: anything made in C."""
    return _layout_of(weakref.ref(kind))[1]


def importable(value: Any) -> bool:
    """Whether ``value`` is what its module holds under its own name, and so lives anyway."""
    try:
        found: Any = sys.modules[value.__module__]
        name = getattr(value, "__qualname__", None) or value.__name__
        for part in name.split("."):
            found = getattr(found, part)
    except Exception:  # any __getattr__ may have run
        return False
    return found is value


def is_ndarray(value: Any) -> bool:
    """Whether it is an array of NumPy, and of no subclass."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray

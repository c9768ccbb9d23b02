"""What is remembered of an object under its identity, and forgotten with it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["WeakIds"]

V = TypeVar("V")


class WeakIds(Generic[V]):
    """Values under objects that are compared by ``is``, and that it does not keep alive.

    A ``WeakKeyDictionary`` would call their ``__hash__`` and ``__eq__``. An id is used again once
    its object is gone: the weak reference beside it tells.

    Example:
        >>> class Thing:
        ...     pass
        >>> names, thing = WeakIds(), Thing()
        >>> names.set(thing, "a thing")
        >>> names.get(thing), names.get(Thing())
        ('a thing', None)
    """

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[int, tuple[weakref.ref[Any], V]] = {}

    def get(self, item: object) -> V | None:
        """The value of an object, or None."""
        found = self._found.get(id(item))
        return found[1] if found is not None and found[0]() is item else None

    def set(self, item: object, value: V) -> None:
        """Remembers a value. Raises TypeError where the object takes no weak reference."""
        number = id(item)
        self._found[number] = weakref.ref(item, _forgetter(self._found, number)), value


def _forgetter(found: dict[int, Any], number: int) -> Callable[[weakref.ref[Any]], None]:
    def forget(ref: weakref.ref[Any]) -> None:
        # In one step: another thread may remember another object of this id meanwhile.
        known = found.get(number)
        if known is not None and known[0] is ref:
            found.pop(number, None)

    return forget

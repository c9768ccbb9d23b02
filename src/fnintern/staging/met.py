"""Which code a transformation has met before.

A function that is made once keeps what JAX makes of it. Where code comes again in another function,
what is made of it is shared.
"""

from __future__ import annotations

import types
import weakref
from typing import Any, Final

from fnintern.keys.callables import is_partial
from fnintern.keys.weakids import WeakIds

__all__ = ["Met", "Seen"]


class Seen:
    """What is known of the first function of a code that was jitted.

    Attributes:
        again: whether this is another one.
        given: whether it was given a static argument that equality does not say all of.
    """

    __slots__ = ("_first", "again", "given")

    def __init__(self, first: weakref.ref[Any] | None, again: bool = False) -> None:
        self._first = first
        self.again = again
        self.given = False

    def is_of(self, fun: Any) -> bool:
        return self._first is not None and self._first() is fun


_ANOTHER: Final = Seen(None, again=True)


class Met:
    """The code of the functions that were jitted, each with the first of them."""

    def __init__(self) -> None:
        self._first: WeakIds[dict[tuple[Any, ...], Seen]] = WeakIds()

    def seen(self, fun: Any) -> Seen:
        """What is known of a function that is about to be jitted."""
        path, code = _code_of(fun)
        try:
            seen = Seen(weakref.ref(fun))
            known = self._first.get(code)
            if known is None:
                self._first.set(code, known := {})
        except TypeError:  # no weak reference
            return Seen(None)
        seen = known.setdefault(path, seen)
        return seen if seen.is_of(fun) else _ANOTHER


def _code_of(fun: Any) -> tuple[tuple[Any, ...], Any]:
    """The innermost code of a function, or the class of an object, and the way there: through
    partials, methods, and what names what it wraps."""
    path: list[Any] = []
    while len(path) < 64:
        if isinstance(fun, types.MethodType):
            path.append("method")
            fun = fun.__func__
        elif is_partial(fun):
            path.append("partial")
            fun = fun.func
        else:
            inner = getattr(fun, "__wrapped__", None)
            code = fun.__code__ if type(fun) is types.FunctionType else type(fun)
            if not callable(inner):
                return tuple(path), code
            path.append(id(code))
            fun = inner
    return tuple(path), code

"""One stand-in for all functions that are equal by value (laws S1, S3).

A wrapper that is shared must not hold any one of its functions: it would keep alive what the
function refers to, and go stale when the function's state changes. It gets a :class:`SharedForward`
instead, which forwards to the function of whoever is calling now. Never imports jax or flax.
"""

from __future__ import annotations

import contextlib
import enum
import inspect
import sys
import weakref
from collections.abc import Callable, Iterator
from threading import get_ident
from types import FunctionType
from typing import Any, Final

from fnintern.captures.freezing import freeze
from fnintern.keys import strict
from fnintern.keys.callables import annotations_of
from fnintern.keys.tokens import Key, Marker
from fnintern.lifetime.entries import Entry
from fnintern.lifetime.standins import FREED, Forward

__all__ = [
    "Changed",
    "SharedForward",
    "Terms",
    "belongs_to",
    "has_tracer",
    "key_now",
    "lend",
    "lent",
]

_GET: Final = object.__getattribute__
_SET: Final = object.__setattr__


def key_now(function: Any) -> Key | None:
    """The key of a function as it is now, or None where it is refused."""
    try:
        return freeze(function).key
    except Exception as error:  # refused, or code of the user's that reading ran into failed
        strict.check(error)
        return None


def has_tracer(leaves: list[Any]) -> bool:
    """Whether one of the arrays belongs to a trace under way, which nothing may outlive (S3)."""
    jax = sys.modules.get("jax")
    return jax is not None and any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)


class Changed(BaseException):
    """A shared result is about to be traced for a function that is not equal any more.

    Raised before any code of the user's runs, and caught by the :class:`Handle` that lent the
    function; a BaseException, so that nobody on the way takes it for an error.
    """

    def __init__(self, forward: SharedForward) -> None:
        self.forward = forward


class Terms(enum.Enum):
    """On what terms a function is lent, should JAX trace it."""

    #: Its key was computed just now.
    EQUAL = "equal"
    #: It may have changed; then nobody shall get to share what comes of it.
    UNSHARE = "unshare"
    #: It may have changed; then it must not be traced, since others share already.
    REFUSE = "refuse"


_EQUAL: Final = Terms.EQUAL

_ABSENT: Final = Marker.EMPTY
#: What functions of one key have in common, and keeps nothing of them alive.
_ALIKE: Final = ("__class__", "__name__", "__qualname__", "__module__")


class SharedForward(Forward):
    """Stands in for every function of one key: it forwards to the one lent in this thread."""

    __slots__ = ("_alike", "_code", "_context", "_entry", "_key", "_lent")

    def __init__(self, function: Any, context: Callable[[], Key] | None = None) -> None:
        """Args: one of the functions that will be lent, all of one key, and what a trace reads
        besides, for an operation that may trace long after the function was lent."""
        _SET(self, "_key", freeze(function).key)
        # JAX asks a wrapper for these some thirty times a call, for its messages.
        alike = {}
        _SET(self, "_code", None)
        if type(function) is FunctionType:
            alike = {name: getattr(function, name) for name in _ALIKE}
            alike["__wrapped__"] = _ABSENT if "__wrapped__" not in function.__dict__ else None
            defaults = function.__defaults__ or function.__kwdefaults__
            if not defaults and only_names(function):
                alike["__signature__"] = inspect.signature(function)  # of nothing but names
            _SET(self, "_code", weakref.ref(function.__code__))
        _SET(self, "_alike", {name: x for name, x in alike.items() if x is not None})
        _SET(self, "_context", (context, context()) if context is not None else None)
        #: Thread -> the function that it has lent, and on what terms.
        _SET(self, "_lent", {})
        _SET(self, "_entry", None)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        # JAX is tracing. The result will serve all equal functions, so it has to come from one.
        function, terms = SharedForward._current(self)
        if terms is not _EQUAL:
            context = _GET(self, "_context")
            if key_now(function) != _GET(self, "_key") or (
                context is not None and context[0]() != context[1]
            ):
                if terms is not Terms.UNSHARE:
                    raise Changed(self)
                SharedForward._unshare(self)
        result = function(*args, **kwargs)
        # One whose trace changes what it sees (a counter, a list) is shared with nobody.
        if key_now(function) != _GET(self, "_key"):
            SharedForward._unshare(self)
        return result

    def __getattribute__(self, name: str) -> Any:
        alike = _GET(self, "_alike")
        if name in alike:
            if alike[name] is _ABSENT:
                raise AttributeError(name)
            return alike[name]
        if name == "__code__":
            code = _GET(self, "_code")
            code = None if code is None else code()  # weakly: the code's store holds this forward
            if code is not None:
                return code
        return Forward.__getattribute__(self, name)

    def _current(self) -> tuple[Any, Terms]:
        lent = _GET(self, "_lent")
        loan = lent.get(get_ident())
        if loan is not None:
            return loan[0], loan[1]
        # Last, what was lent in other threads: this one did not ask for the wrapper.
        others = list(lent.values())
        if others:
            return others[-1][0], Terms.UNSHARE
        raise ReferenceError(FREED)

    def _unshare(self) -> None:
        entry = _GET(self, "_entry")
        entry = entry() if entry is not None else None
        if entry is not None:
            entry.discard()

    def __standin_for__(self) -> Any:
        return SharedForward._current(self)[0]

    def _renew(self) -> None:
        pass  # lending has done it

    def _release(self) -> Any:
        kept = dict(_GET(self, "_lent"))
        _GET(self, "_lent").clear()
        return kept

    def _restore(self, kept: Any) -> None:
        for thread, function in kept.items():
            _GET(self, "_lent").setdefault(thread, function)


def only_names(function: FunctionType) -> bool:
    """Whether its annotations are text, as ``from __future__ import annotations`` makes them."""
    annotations = annotations_of(function)
    if isinstance(annotations, dict):
        return {str}.issuperset(map(type, annotations.values()))
    return annotations is None


def belongs_to(forward: SharedForward, entry: Entry) -> None:
    """Tells a forward which entry to discard when its function turns out not to be shared."""
    _SET(forward, "_entry", weakref.ref(entry))


def lend(forward: SharedForward, function: Any, *, terms: Terms = _EQUAL) -> Any:
    """Makes ``forward`` stand for ``function`` in this thread.

    Args:
        forward: the stand-in.
        function: one whose key was that of ``forward`` when the wrapper was asked for.
        terms: what may have happened since.

    Returns:
        What :func:`take_back` needs.
    """
    lent = _GET(forward, "_lent")
    thread = get_ident()
    before = lent.get(thread)
    lent[thread] = (function, terms)
    return before


def take_back(forward: SharedForward, before: Any) -> None:
    """Makes ``forward`` stand for what it stood for before :func:`lend`."""
    lent = _GET(forward, "_lent")
    if before is None:
        lent.pop(get_ident(), None)
    else:
        lent[get_ident()] = before


@contextlib.contextmanager
def lent(forward: SharedForward, function: Any, terms: Terms = _EQUAL) -> Iterator[None]:
    """Makes ``forward`` stand for ``function`` in this thread, for the time of the block."""
    before = lend(forward, function, terms=terms)
    try:
        yield
    finally:
        take_back(forward, before)

"""``interned``: memoizes a wrapper factory, a function or a class, by what its arguments are.

The public face of :mod:`fnintern.interning.by_object`. Never imports jax or flax.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Final, Literal, ParamSpec, Protocol, TypeVar, cast, overload

from fnintern.interning.by_object import MISSING, Interner
from fnintern.interning.by_value import ValueInterner
from fnintern.interning.classes import (
    INTERNER,
    InternedMeta,
    given,
    hit_as_given,
    intern_class,
    interner_of,
)
from fnintern.keys.reasons import Cached, CacheInfo, Explanation
from fnintern.keys.tokens import STORE_ATTRIBUTE

__all__ = ["By", "Cache", "cache_clear", "cache_info", "cache_of", "intern_as", "interned"]

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
T = TypeVar("T")


class Cache(Protocol):
    """What counts the calls of one factory."""

    def cache_info(self) -> CacheInfo: ...
    def cache_clear(self) -> None: ...
    def explain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Explanation: ...


class Decorator(Protocol):
    """:func:`interned` with its options."""

    @overload
    def __call__(self, factory: type[T], /) -> type[T]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, factory: Callable[P, R], /) -> Cached[P, R]: ...


def _intern_function(factory: Callable[P, R], pattern: Interner) -> Cached[P, R]:
    interner = pattern.like(factory)
    hit, find = interner.hit, interner.find

    def interned_factory(
        function: Any = MISSING, other: Any = MISSING, /, *rest: Any, **kwargs: Any
    ) -> Any:
        wrapper = (
            hit_as_given(interner, function, other, rest, kwargs)
            if rest or kwargs
            else hit(function, other)
        )
        if wrapper is not None:
            return wrapper
        return find(given(function, other, rest), kwargs)

    functools.update_wrapper(interned_factory, factory)
    interned_factory.__dict__.pop(STORE_ATTRIBUTE, None)
    for name, value in (
        (INTERNER, interner),
        ("cache_info", interner.cache_info),
        ("cache_clear", interner.cache_clear),
        ("explain", lambda *args, **kwargs: interner.explain(args, kwargs)),
    ):
        setattr(interned_factory, name, value)
    return cast("Cached[P, R]", interned_factory)


By = Literal["object", "value"]

#: What a function makes that can be gone through once, and how such a function is told.
_USED_ONCE: Final = (
    ("a generator", inspect.isgeneratorfunction),
    ("an asynchronous generator", inspect.isasyncgenfunction),
    ("a coroutine", inspect.iscoroutinefunction),
)


@overload
def interned(  # type: ignore[overload-overlap]
    factory: type[T], /, *, by: By = ..., maxsize: int | None = ...
) -> type[T]: ...
@overload
def interned(
    factory: Callable[P, R], /, *, by: By = ..., maxsize: int | None = ...
) -> Cached[P, R]: ...
@overload
def interned(factory: None = None, /, *, by: By = ..., maxsize: int | None = ...) -> Decorator: ...
def interned(factory: Any = None, /, *, by: By = "object", maxsize: int | None = 128) -> Any:
    """Makes a factory return the same object for the same arguments.

    Args:
        factory: a function, a class or another callable that makes a wrapper from a callable. A
            class is made anew under a metaclass of ours and stays that class in all else.
        by: how callable arguments are compared. ``"object"``: by identity, bound methods by
            ``(__self__, __func__)``, partials by function, arguments and keywords (law I3).
            ``"value"``: by all that a trace of them could see (laws S1 to S3), so that a lambda
            made again at each call hits, and a changed capture misses.
        maxsize: how many wrappers to keep for each callable argument, the oldest going first, or
            None for no bound (L3).

    Returns:
        The decorated factory, with ``cache_info()``, ``cache_clear()`` and ``explain(...)``.
        A decorated function also has ``__wrapped__``.

    Raises:
        TypeError: ``factory`` is not callable, or is a class that cannot be made anew.
        ValueError: ``by`` or ``maxsize`` is none of the above.

    Calls with an argument that cannot be keyed (a list, an array) run as if undecorated (I5). The
    tables keep no callable alive (L1).

    Example:
        >>> import fnintern
        >>> @fnintern.interned
        ... def wrap(f, scale=1):
        ...     return lambda x: scale * f(x)
        >>> wrap(abs) is wrap(f=abs, scale=1)
        True
        >>> wrap(abs, 1.0) is wrap(abs, 1)
        False
        >>> wrap.cache_info()
        CacheInfo(hits=2, misses=2, bypassed=0, currsize=2, maxsize=128)
    """
    if maxsize is not None and (type(maxsize) is not int or maxsize < 1):
        raise ValueError(
            f"maxsize={maxsize!r} is not a bound; expected a positive int, or None for no bound"
        )
    kind = interner_of_kind(by)
    if factory is None:
        return lambda factory: interned(factory, by=by, maxsize=maxsize)
    return intern_as(factory, kind(factory, maxsize))


def interner_of_kind(by: str) -> type[Interner]:
    """The kind of interner that compares callables as ``by`` says."""
    if by == "object":
        return Interner
    if by == "value":
        return ValueInterner
    raise ValueError(f"by={by!r} is not known; expected 'object' or 'value'")


def intern_as(factory: Any, pattern: Interner) -> Any:
    """``interned`` with an interner like ``pattern``."""
    if isinstance(factory, type):
        return intern_class(factory, pattern)
    for made, is_one in _USED_ONCE:
        if is_one(factory):
            raise TypeError(
                f"interned cannot be used on {factory!r}, which makes {made}: its second caller "
                f"would get the one that the first has used up. Return a list, a tuple or a "
                f"function instead"
            )
    if not callable(factory):
        raise TypeError(
            f"interned expects a function, a class or another callable, got {factory!r} of type "
            f"{type(factory).__qualname__}"
        )
    return _intern_function(factory, pattern)


def cache_of(factory: Any) -> Cache:
    """The cache of what :func:`interned`, ``staged`` or ``jit`` has made."""
    found = None if isinstance(factory, InternedMeta) else getattr(factory, INTERNER, None)
    return interner_of(factory) if found is None else cast(Cache, found)


def cache_info(factory: Callable[..., Any]) -> CacheInfo:
    """The counts of a factory; for a class, whose own methods a type checker sees alone.

    Args:
        factory: what :func:`interned`, ``staged`` or ``jit`` has made, or an operation of
            ``fnintern.lax``.

    Returns:
        The counts since it was decorated or cleared.

    Raises:
        TypeError: ``factory`` is none of these.

    Example:
        >>> import fnintern
        >>> @fnintern.interned
        ... class Wrapper:
        ...     cache_info = "mine"
        >>> fnintern.cache_info(Wrapper).currsize
        0
    """
    return cache_of(factory).cache_info()


def cache_clear(factory: Callable[..., Any]) -> None:
    """Forgets all wrappers of a decorated factory, and sets its counts to 0.

    Args:
        factory: as for :func:`cache_info`.

    Raises:
        TypeError: ``factory`` is not decorated.

    Example:
        >>> import fnintern
        >>> wrap = fnintern.interned(lambda f: [f])
        >>> first = wrap(abs)
        >>> fnintern.cache_clear(wrap)
        >>> wrap(abs) is first
        False
    """
    cache_of(factory).cache_clear()

"""``interned``: memoizes a wrapper factory, a function or a class, by what its arguments are.

The public face of :mod:`fnintern.interning.by_object`. Never imports jax or flax.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Generic, Literal, ParamSpec, Protocol, TypeVar, cast, overload

from fnintern.interning.by_object import MISSING, Interner
from fnintern.interning.by_value import ValueInterner
from fnintern.interning.classes import INTERNER, given, hit_as_given, intern_class, interner_of
from fnintern.keys.reasons import CacheInfo, Explanation
from fnintern.keys.tokens import STORE_ATTRIBUTE

__all__ = ["By", "InternedFunction", "cache_clear", "cache_info", "intern_as", "interned"]

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
T = TypeVar("T")


class InternedFunction(Protocol, Generic[P, R]):
    """A function or other callable decorated by :func:`interned`."""

    __wrapped__: Callable[..., Any]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def cache_info(self) -> CacheInfo:
        """The counts; see :class:`CacheInfo`."""
        ...

    def cache_clear(self) -> None:
        """Forgets all wrappers and sets the counts to 0."""
        ...

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """How this call would be keyed, without making it."""
        ...


def _intern_function(factory: Callable[P, R], pattern: Interner) -> InternedFunction[P, R]:
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
    return cast("InternedFunction[P, R]", interned_factory)


By = Literal["object", "value"]


@overload
def interned(  # type: ignore[overload-overlap]
    factory: type[T], /, *, by: By = ..., maxsize: int | None = ...
) -> type[T]: ...
@overload
def interned(
    factory: Callable[P, R], /, *, by: By = ..., maxsize: int | None = ...
) -> InternedFunction[P, R]: ...
@overload
def interned(
    factory: None = None, /, *, by: By = ..., maxsize: int | None = ...
) -> Callable[[Callable[P, R]], InternedFunction[P, R]]: ...
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
    if not callable(factory):
        raise TypeError(
            f"interned expects a function, a class or another callable, got {factory!r} of type "
            f"{type(factory).__qualname__}"
        )
    return _intern_function(factory, pattern)


def cache_info(factory: Callable[..., Any]) -> CacheInfo:
    """The counts of a decorated factory, also of a class that uses the name itself.

    Args:
        factory: a function or class decorated by :func:`interned`.

    Returns:
        The counts since it was decorated or cleared.

    Raises:
        TypeError: ``factory`` is not decorated.

    Example:
        >>> import fnintern
        >>> @fnintern.interned
        ... class Wrapper:
        ...     cache_info = "mine"
        >>> fnintern.cache_info(Wrapper).currsize
        0
    """
    return interner_of(factory).cache_info()


def cache_clear(factory: Callable[..., Any]) -> None:
    """Forgets all wrappers of a decorated factory, and sets its counts to 0.

    Args:
        factory: a function or class decorated by :func:`interned`.

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
    interner_of(factory).cache_clear()

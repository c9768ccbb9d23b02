"""What a user declares about objects that freezing would refuse: ``stateless`` and ``keyed``."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Final, TypeVar

from fnintern.keys.weakids import WeakIds

__all__ = ["is_stateless", "key_function", "keyed", "stateless"]

T = TypeVar("T")

#: Objects declared free of state.
_stateless: WeakIds[bool] = WeakIds()
#: Type -> what makes two of its instances the same.
_keys: weakref.WeakKeyDictionary[type, Callable[[Any], Any]] = weakref.WeakKeyDictionary()


def is_stateless(value: object) -> bool:
    return _stateless.get(value) is not None


def key_function(kind: type) -> Callable[[Any], Any] | None:
    """What makes two instances of a class the same, if it has been declared."""
    return _keys.get(kind) or next((_keys[base] for base in kind.__mro__ if base in _keys), None)


def stateless(x: T) -> T:
    """Declares ``x`` free of state that matters to a trace: it is what it is, by identity.

    Args:
        x: a function, class or other object that takes weak references. What it reads, and what
            its attributes hold, will not be looked at.

    Returns:
        ``x`` itself, so that it can be used as a decorator.

    Raises:
        TypeError: ``x`` takes no weak reference.

    Example:
        >>> import fnintern
        >>> @fnintern.stateless
        ... class Tables:
        ...     pass
        >>> tables = fnintern.stateless(Tables())
    """
    try:
        _stateless.set(x, True)
    except TypeError:
        raise TypeError(
            f"stateless expects an object that takes weak references, got {x!r} of type "
            f"{type(x).__qualname__}; declare its type with fnintern.keyed instead"
        ) from None
    return x


def keyed(type: type[T], key: Callable[[T], Any]) -> None:
    """Says what makes two instances of a class the same to a trace.

    Args:
        type: the class; subclasses are meant too, unless they are declared themselves.
        key: called with an instance at each look-up; two are the same if it returns the same, by
            law I3. Immutable or not, what it returns is read completely.

    Raises:
        TypeError: ``type`` is no class, or a builtin one; or ``key`` is not callable.

    Example:
        >>> import fnintern
        >>> class Tokenizer:
        ...     def __init__(self, name):
        ...         self.name, self.cache = name, open
        >>> fnintern.keyed(Tokenizer, lambda tokenizer: tokenizer.name)
    """
    if not isinstance(type, _type):
        raise TypeError(
            f"keyed expects a class, got {type!r} of type {_type(type).__qualname__}; "
            f"for one object there is fnintern.stateless"
        )
    if type.__module__ == "builtins":
        raise TypeError(
            f"keyed cannot say when two values of the builtin {type.__qualname__} are the same: "
            f"that is fixed (law I3); declare a class of your own"
        )
    if not callable(key):
        raise TypeError(
            f"keyed expects a function of an instance as key, got {key!r} of type "
            f"{_type(key).__qualname__}; give it one, such as lambda x: x.name"
        )
    _keys[type] = key


_type: Final = type

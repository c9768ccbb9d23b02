"""Which arguments are callables, and of what kind (law I3)."""

from __future__ import annotations

import contextlib
import functools
import sys
import types

__all__ = ["is_bound_method", "is_function_like", "is_partial", "is_standin"]


def is_partial(value: object) -> bool:
    """Whether ``value`` is a ``functools.partial`` or a ``jax.tree_util.Partial``, and no subclass
    of theirs that could hold more than a function and its arguments."""
    kind = type(value)
    if kind is functools.partial:
        return True
    if not issubclass(kind, functools.partial):
        return False
    tree_util = sys.modules.get("jax.tree_util")
    return kind is getattr(tree_util, "Partial", None)


def is_function_like(value: object) -> bool:
    """Whether ``value`` is keyed as a callable: by identity, never by its own equality.

    A class is a value here: factories ask ``issubclass`` of it, so it has to stay what it is. An
    object that is callable only because it can decorate (``jax.sharding.Mesh`` is a
    ``ContextDecorator``) is a value too.
    """
    return (
        callable(value)
        and not isinstance(value, type)
        and not isinstance(value, contextlib.ContextDecorator)
    )


def is_bound_method(value: object) -> bool:
    """Whether ``value`` is a bound method: Python's, or Equinox's, which is a pytree that
    ``module.method`` makes anew at each access, as Python's is."""
    kind = type(value)
    return kind is types.MethodType or (
        kind.__name__ == "BoundMethod" and kind.__module__.partition(".")[0] == "equinox"
    )


def is_standin(kind: type) -> bool:
    """Whether instances stand for a callable: ``__standin_for__`` of their class says for which."""
    return any("__standin_for__" in vars(base) for base in kind.__mro__)

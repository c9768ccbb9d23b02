"""What else memoizes a wrapper factory, on the same two-field dataclass."""

from __future__ import annotations

import dataclasses
import functools
import weakref
from collections.abc import Callable
from typing import Any

from fnintern import interned

__all__ = [
    "Interned",
    "InternedByValue",
    "Plain",
    "lru_cached",
    "weak_dict_memo",
    "weak_value_interned",
    "weakref_lru_cached",
]


@dataclasses.dataclass(eq=False)
class Plain:
    """The factory: flax's SimpleCondFn without its ``update_wrapper``."""

    f: Callable[..., Any]
    graph: bool


@interned
@dataclasses.dataclass(eq=False)
class Interned:
    """The same, interned."""

    f: Callable[..., Any]
    graph: bool


@interned(by="value")
@dataclasses.dataclass(eq=False)
class InternedByValue:
    """The same, interned by value."""

    f: Callable[..., Any]
    graph: bool


def lru_cached() -> Callable[..., Any]:
    """``functools.lru_cache``: in C, keeps every function alive."""
    return functools.lru_cache(maxsize=None, typed=True)(Plain)


def weakref_lru_cached() -> Callable[..., Any] | None:
    """jax's own cache, in C++, or None where this jax has it elsewhere. Private to jax."""
    try:
        from jax._src.util import weakref_lru_cache
    except ImportError:
        return None

    def make(f: Any, graph: bool) -> Plain:
        return Plain(f, graph)

    cached: Callable[..., Any] = weakref_lru_cache(make, maxsize=None)
    return cached


def weak_value_interned() -> Callable[..., Any] | None:
    """jax's interner, in C++, which forgets what nobody holds; or None. Private to jax."""
    try:
        from jax._src.util import weak_value_interner
    except ImportError:
        return None
    interner: Callable[..., Any] = weak_value_interner(Plain)
    return interner


def weak_dict_memo(factory: Callable[..., Any] = Plain) -> Callable[..., Any]:
    """A ``WeakKeyDictionary`` memo as flax 0.12.12 has it, leak and all.

    Two functions, as there: ``_get_simple_cond_fn``, which ``nnx.cond`` calls, and
    ``_get_cached_wrapper``, which it shares with the loops.
    """
    simple_cond_fn_cache: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def get_cached_wrapper(cache: Any, wrapper_type: Any, f: Any, graph: bool) -> Any:
        try:
            weakref.ref(f)
            hash(f)
        except TypeError:
            return wrapper_type(f, graph=graph)

        by_graph = cache.get(f)
        if by_graph is None:
            by_graph = {}
            cache[f] = by_graph
        wrapper = by_graph.get(graph)
        if wrapper is None:
            wrapper = wrapper_type(f, graph=graph)
            by_graph[graph] = wrapper
        return wrapper

    def get_simple_cond_fn(f: Any, graph: bool) -> Any:
        return get_cached_wrapper(simple_cond_fn_cache, factory, f, graph)

    return get_simple_cond_fn

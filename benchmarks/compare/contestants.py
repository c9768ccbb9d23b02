"""What memoizes a wrapper factory, each behind the same two calls."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import attrs
import jax
from flax import nnx
from flax.nnx.transforms import transforms

from benchmarks.rivals import weak_dict_memo
from fnintern import interned

__all__ = ["FLAX", "Contestant", "Wrapper", "contestants"]

#: The column of the flax that is installed.
FLAX = "flax"


@dataclasses.dataclass(eq=False)
class Wrapper:
    """The wrapper: flax's ``SimpleCondFn`` without what that does to modules."""

    f: Callable[..., Any]
    graph: Any

    def __post_init__(self) -> None:
        functools.update_wrapper(self, self.f, updated=())

    def __call__(self, *operands: Any) -> Any:
        return self.f(*operands)


def make(f: Callable[..., Any], graph: Any = True) -> Wrapper:
    """The factory that all but flax memoize."""
    return Wrapper(f, graph)


@attrs.frozen
class Contestant:
    """One column.

    Attributes:
        name: its head.
        memo: ``memo(f, graph)`` gives the wrapper; None where this release has none.
        cond: ``jax.lax.cond`` of two wrapped functions, as its user would write it.
    """

    name: str
    memo: Callable[..., Any] | None
    cond: Callable[..., Any]


def _through(memo: Callable[..., Any] | None) -> Callable[..., Any]:
    def cond(predicate: Any, t: Any, f: Any, *operands: Any) -> Any:
        assert memo is not None
        return jax.lax.cond(predicate, memo(t, True), memo(f, True), *operands)

    return cond


def _nnx_cond(predicate: Any, t: Any, f: Any, *operands: Any) -> Any:
    return nnx.cond(predicate, t, f, *operands, graph_updates=False)


def _of_jax(name: str, **options: Any) -> Callable[..., Any] | None:
    """A cache of jax's own, private to it, on the factory; None where this jax lacks it."""
    from jax._src import util

    decorator = getattr(util, name, None)
    return None if decorator is None else decorator(make, **options)


def contestants() -> list[Contestant]:
    """All columns, each with an empty store."""
    flax_memo = getattr(transforms, "_get_simple_cond_fn", transforms.SimpleCondFn)
    memos: dict[str, Callable[..., Any] | None] = {
        "functools.lru_cache": functools.lru_cache(maxsize=None, typed=True)(make),
        "jax weakref_lru_cache": _of_jax("weakref_lru_cache", maxsize=None),
        "jax weak_value_interner": _of_jax("weak_value_interner"),
        "WeakKeyDictionary": weak_dict_memo(make),
        "fnintern, by object": interned(make),
        "fnintern, by value": interned(make, by="value"),
    }
    return [
        Contestant(FLAX, flax_memo, _nnx_cond),
        *(Contestant(name, memo, _through(memo)) for name, memo in memos.items()),
    ]

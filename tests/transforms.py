"""The transforms of flax.nnx, each as one eager call of a function of one scalar; and its modes."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
from flax import nnx

__all__ = ["MODES", "TRANSFORMS", "without_memo"]

MODES: dict[str, dict[str, bool]] = {
    "default": {},
    "no_updates": {"graph_updates": False},
    "tree": {"graph": False},
}

X = jnp.float32(3.0)
XS = jnp.arange(3.0)


def _other(x: Any) -> Any:
    return x * 1.0


def _scan(f: Any, mode: dict[str, bool]) -> Any:
    body = lambda carry, x: (f(carry), x)
    return nnx.scan(body, in_axes=(nnx.Carry, 0), out_axes=(nnx.Carry, 0), **mode)(X, XS)[0]


def _while(f: Any, mode: dict[str, bool]) -> Any:
    return nnx.while_loop(lambda v: v[1] < 1, lambda v: (f(v[0]), v[1] + 1), (X, 0), **mode)[0]


#: Name -> how to call it on ``f`` in a mode.
TRANSFORMS: dict[str, Callable[[Any, dict[str, bool]], Any]] = {
    "cond": lambda f, mode: nnx.cond(True, f, _other, X, **mode),
    "switch": lambda f, mode: nnx.switch(0, [f, _other], X, **mode),
    "while_loop": _while,
    "fori_loop": lambda f, mode: nnx.fori_loop(0, 1, lambda i, v: f(v), X, **mode),
    "scan": _scan,
    "jit": lambda f, mode: nnx.jit(f, **mode)(X),
    "jit_inline": lambda f, mode: nnx.jit(lambda x: f(x), **mode)(X),
    "pmap": lambda f, mode: nnx.pmap(lambda x: f(x), **mode)(X[None]),
    "vmap": lambda f, mode: nnx.vmap(lambda x: f(x), **mode)(XS),
    "remat": lambda f, mode: nnx.remat(f, **mode)(X),
    "grad": lambda f, mode: nnx.grad(lambda x: f(x) + 0.0, **mode)(X),
    "jit_grad": lambda f, mode: nnx.jit(nnx.grad(lambda x: f(x) + 0.0, **mode), **mode)(X),
    "eval_shape": lambda f, mode: str(nnx.eval_shape(f, X, **mode)),
}


@contextlib.contextmanager
def without_memo() -> Iterator[None]:
    """flax as it was before 0.12.9, whose memo goes stale: every call traces afresh."""
    modules = [sys.modules[f"flax.nnx.transforms.{name}"] for name in ("transforms", "iteration")]
    memos = [(module, vars(module).get("_get_cached_wrapper")) for module in modules]
    for module, memo in memos:
        if memo is not None:
            module._get_cached_wrapper = (  # type: ignore[attr-defined]
                lambda cache, wrapper, f, graph: wrapper(f, graph=graph)
            )
    try:
        yield
    finally:
        for module, memo in memos:
            if memo is not None:
                module._get_cached_wrapper = memo  # type: ignore[attr-defined]

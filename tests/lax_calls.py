"""One call of each operation of jax.lax on functions, and how two results are compared.

Every call makes its functions anew. ``lax`` is ``jax.lax`` or ``fnintern.lax``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import test_util

import fnintern
from fnintern import lax as _lax

__all__ = ["CALLS", "XS", "Node", "assert_same", "counted", "described", "jit", "lax", "outcome"]

#: As their users see them: mypy would want the types of functions that tests give them.
lax: Any = _lax
jit: Any = fnintern.jit

XS = jnp.arange(1.0, 4.0)


def _newton(f: Any, guess: Any) -> Any:
    def step(state: Any) -> Any:
        x, i = state
        return x - f(x) / jax.jvp(f, (x,), (jnp.ones_like(x),))[1], i + 1

    return jax.lax.while_loop(lambda state: state[1] < 12, step, (guess, 0))[0]


#: Operation -> a call over a captured scalar and a vector of three, which can be differentiated
#: with respect to both, forwards at least.
CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "cond": lambda lax, w, x: lax.cond(x.sum() > 0, lambda v: w * v, lambda v: v - w, x),
    "cond over nothing": lambda lax, w, x: lax.cond(True, lambda: w * x, lambda: x - w),
    "switch": lambda lax, w, x: lax.switch(
        1, [lambda v: v, lambda v: jnp.sin(w * v), lambda v: -v], x
    ),
    "while_loop": lambda lax, w, x: lax.while_loop(
        lambda s: s[1] < 3, lambda s: (s[0] * w, s[1] + 1), (x, 0)
    )[0],
    "fori_loop": lambda lax, w, x: lax.fori_loop(0, 3, lambda i, v: v * w + i, x),
    "scan": lambda lax, w, x: lax.scan(lambda c, v: (c * w + v, c * v), 1.0, x),
    "map": lambda lax, w, x: lax.map(lambda v: jnp.sin(w * v), x),
    "associative_scan": lambda lax, w, x: lax.associative_scan(lambda a, b: a * b * w, x),
    "reduce": lambda lax, w, x: lax.reduce(x * w, 0.0, lambda a, b: a + b, (0,)),
    "custom_root": lambda lax, w, x: lax.custom_root(
        lambda y: y**2 - w * x.sum(), 2.0, _newton, lambda g, y: y / g(1.0)
    ),
    "custom_linear_solve": lambda lax, w, x: lax.custom_linear_solve(
        lambda v: w * v, x, lambda _, b: b / w, symmetric=True
    ),
}


@jax.tree_util.register_pytree_node_class
class Node:
    """A pytree with an array and data."""

    def __init__(self, array: Any, data: Any = "data") -> None:
        self.array = array
        self.data = data

    def tree_flatten(self) -> Any:
        return (self.array,), self.data

    @classmethod
    def tree_unflatten(cls, data: Any, children: Any) -> Node:
        return cls(children[0], data)

    def __repr__(self) -> str:
        return f"Node({self.array!r}, {self.data!r})"


def counted(call: Callable[[], Any], calls: int = 3) -> tuple[int, int, int]:
    """Tracing cache misses, lowerings and compilations of some calls."""
    with (
        test_util.count_jit_tracing_cache_miss() as traced,
        test_util.count_jit_and_pmap_lowerings() as lowered,
        test_util.count_jit_compilation_cache_miss() as compiled,
    ):
        for _ in range(calls):
            jax.block_until_ready(call())
    return traced(), lowered(), compiled()


def described(leaf: Any) -> tuple[Any, ...]:
    """Everything about a leaf but its values."""
    if not isinstance(leaf, jax.Array):
        return type(leaf), getattr(leaf, "dtype", None), np.shape(leaf)
    weak = getattr(leaf, "weak_type", None)  # a PRNG key has none
    return type(leaf), leaf.dtype, leaf.shape, weak, leaf.committed


def _keys(tree: Any) -> Any:
    """A tree structure as text, in which 1, 1.0 and True are three keys."""
    return str(jax.tree.structure(tree))


def assert_same(found: Any, expected: Any) -> None:
    """Both are the same, types and all (S4): bit for bit, but for rounding of floats."""
    assert _keys(found) == _keys(expected)
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    for one, other in pairs:
        assert described(one) == described(other)
        if not hasattr(one, "dtype"):  # a number of Python
            assert repr(one) == repr(other)
            continue
        if isinstance(one, jax.Array):
            assert one.sharding.is_equivalent_to(other.sharding, one.ndim)
            if jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
                one, other = jax.random.key_data(one), jax.random.key_data(other)
        if jnp.issubdtype(one.dtype, jnp.inexact):
            tolerance = {1: 1e-1, 2: 1e-2, 4: 1e-5, 8: 1e-12, 16: 1e-12}[one.dtype.itemsize]
            if one.dtype == jnp.complex64:
                tolerance = 1e-5
            wide = np.complex128 if jnp.issubdtype(one.dtype, jnp.complexfloating) else np.float64
            one, other = np.asarray(one).astype(wide), np.asarray(other).astype(wide)
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def outcome(call: Callable[[], Any]) -> tuple[Any, type[Exception] | None]:
    """What a call returns, or the type of what it raises."""
    try:
        return call(), None
    except Exception as error:
        return None, type(error)

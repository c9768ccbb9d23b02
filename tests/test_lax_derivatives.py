"""fnintern.lax under JAX's transformations: what jax.lax returns, or traces, under the same."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import fnintern
from lax_calls import CALLS, XS, assert_same, counted, lax, outcome

W = jnp.float32(1.25)


def total(tree: Any) -> Any:
    return sum(leaf.sum() for leaf in jax.tree.leaves(tree))


def of(lax: Any, name: str) -> Callable[[Any, Any], Any]:
    """A function of the captured scalar and the vector."""
    return lambda w, x: total(CALLS[name](lax, w, x))


#: Transformation -> what it makes of a function of a scalar and a vector.
TRANSFORMS: dict[str, Callable[[Callable[[Any, Any], Any]], Any]] = {
    "grad": lambda f: jax.grad(f, argnums=(0, 1))(W, XS),
    "second derivative": lambda f: jax.jacfwd(jax.grad(f, argnums=(0, 1)))(W, XS),
    "jvp": lambda f: jax.jvp(f, (W, XS), (W, XS)),
    "jvp of jvp": lambda f: jax.jvp(
        lambda w: jax.jvp(lambda w: f(w, XS), (w,), (W,))[1], (W,), (W,)
    ),
    "linearize": lambda f: jax.linearize(f, W, XS)[1](W, XS),
    "vmap": lambda f: jax.vmap(f)(XS, jnp.stack([XS, XS + 1, XS * 2])),
    "vmap of grad": lambda f: jax.vmap(jax.grad(f))(XS, jnp.stack([XS, XS + 1, XS * 2])),
    "checkpoint": lambda f: jax.grad(jax.checkpoint(f))(W, XS),
    "jit": lambda f: jax.jit(f)(W, XS),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_agrees(name: str, transform: str) -> None:
    apply = TRANSFORMS[transform]
    expected, error = outcome(lambda: apply(of(jax.lax, name)))
    found, own = outcome(lambda: apply(of(lax, name)))
    assert own is error
    assert_same(found, expected)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("wrap", [lambda f: f, jax.grad, jax.vmap], ids=["", "grad", "vmap"])
def test_inside_of_a_trace_it_is_jax_lax(name: str, wrap: Any) -> None:
    """The same jaxpr, so the same program."""
    args = (XS, jnp.stack([XS] * 3)) if wrap is jax.vmap else (W, XS)
    trace: Any = lambda module: str(jax.make_jaxpr(wrap(of(module, name)))(*args))
    assert outcome(lambda: trace(lax)) == outcome(lambda: trace(jax.lax))


def test_steps_aside_in_other_traces() -> None:
    before = lax.scan.cache_info()
    f: Any = lambda w: lax.scan(lambda c, x: (c * w + x, None), 1.0, XS)[0]
    jax.jit(f)(W)
    jax.eval_shape(f, W)
    jax.checkpoint(f)(W)
    jax.jit(jax.vmap(jax.grad(f)))(XS)
    lax.map(lambda w: f(w), XS)
    assert lax.scan.cache_info() == before


def test_fori_loop_with_python_bounds_is_differentiable_in_reverse() -> None:
    for bounds in [(0, 3), (jnp.int32(0), jnp.int32(3)), (jnp.asarray(0), 3)]:
        f: Any = lambda lax, x: lax.fori_loop(*bounds, lambda i, c: c * W + x, x)
        assert_same(jax.grad(lambda x: f(lax, x))(2.0), jax.grad(lambda x: f(jax.lax, x))(2.0))


def test_while_loop_is_not_differentiable_in_reverse_either() -> None:
    f: Any = lambda lax, x: lax.while_loop(lambda c: c < 9, lambda c: c * W + 1, x)
    for module in (jax.lax, lax):
        with pytest.raises(ValueError, match="Reverse-mode differentiation") as caught:
            jax.grad(lambda x: f(module, x))(2.0)
        assert caught.value.__context__ is None
    assert_same(
        jax.jvp(lambda x: f(lax, x), (2.0,), (1.0,)),
        jax.jvp(lambda x: f(jax.lax, x), (2.0,), (1.0,)),
    )


class TestAxes:
    """Collectives see the axis of a vmap around the call."""

    @pytest.mark.parametrize(
        "call",
        [
            lambda lax, w: lax.scan(lambda c, x: (c * w + jax.lax.psum(c, "i"), None), 1.0, XS)[0],
            lambda lax, w: lax.cond(True, lambda: w + jax.lax.axis_index("i"), lambda: w),
            lambda lax, w: lax.map(lambda x: x + jax.lax.pmean(w, "i"), XS),
            lambda lax, w: lax.cond(w > 0, lambda: jax.lax.psum(w, "i"), lambda: w),
            lambda lax, w: lax.fori_loop(0, 2, lambda i, c: jax.lax.pmax(c + w, "i"), w),
        ],
    )
    def test_collectives(self, call: Any) -> None:
        for scale in (1.0, -2.0):
            for size in (3, 2):
                w = XS[:size] * scale
                expected, error = outcome(
                    lambda: jax.vmap(lambda w: call(jax.lax, w), axis_name="i")(w)
                )
                found, own = outcome(lambda: jax.vmap(lambda w: call(lax, w), axis_name="i")(w))
                assert own is error
                assert_same(found, expected)

    def test_without_the_axis_it_raises(self) -> None:
        for module in (jax.lax, lax):
            with pytest.raises(NameError, match="unbound axis name"):
                module.map(lambda x: jax.lax.psum(x, "i"), XS)


class TestRules:
    """Functions with derivative rules of their own, which JAX calls after the trace."""

    def grads(self, lax: Any, make: Callable[[Any], Any]) -> Any:
        found = []
        for w in (W, W + 1):
            g = make(w)
            functions: list[Any] = [
                lambda x: lax.scan(lambda c, t: (g(c) + t, None), x, XS)[0],
                lambda x: lax.cond(x > 1, lambda: g(x), lambda: x),
            ]
            for f in functions:
                found.append(f(2.0))
                found.append(jax.vjp(f, 2.0)[1](3.0))
                found.append(jax.vmap(jax.grad(f))(XS))
        return found

    def forward_captures(self, w: Any) -> Any:
        g = jax.custom_vjp(lambda x: x * w)
        g.defvjp(lambda x: (x * w, None), lambda _, t: (t * 7,))
        return g

    def backward_captures(self, w: Any) -> Any:
        g = jax.custom_vjp(lambda x: x * 2)
        g.defvjp(lambda x: (x * 2, None), lambda _, t: (t * w * 10,))
        return g

    def neither_captures(self, w: Any) -> Any:
        g = jax.custom_vjp(lambda x, w: x * w)
        g.defvjp(lambda x, w: (x * w, w), lambda w, t: (t * w * 10, t))
        return lambda x: g(x, w)

    def jvp_captures(self, w: Any) -> Any:
        g = jax.custom_jvp(lambda x: x * 2)
        g.defjvp(lambda p, t: (p[0] * 2, t[0] * w * 10))
        return g

    def jvp_reads_an_object(self, w: Any) -> Any:
        class Held:
            scale = w

        held = Held()
        g = jax.custom_jvp(lambda x: x * 2)
        g.defjvp(lambda p, t: (p[0] * 2, t[0] * held.scale))
        return g

    def vmap_captures(self, w: Any) -> Any:
        g = jax.custom_batching.custom_vmap(lambda x: jnp.sin(x))
        g.def_vmap(lambda size, batched, x: (x * w, True))
        return g

    def local(self, w: Any) -> Any:
        def g(x: Any) -> Any:
            h = jax.custom_vjp(lambda x: x * 2)
            h.defvjp(lambda x: (x * 2, None), lambda _, t: (t * w * 10,))
            return h(x)

        return g

    @pytest.mark.parametrize(
        "make",
        [forward_captures, backward_captures, neither_captures, jvp_captures, jvp_reads_an_object,
         local],
    )  # fmt: skip
    def test_custom_rules(self, make: Any) -> None:
        expected = self.grads(jax.lax, lambda w: make(self, w))
        assert_same(self.grads(lax, lambda w: make(self, w)), expected)

    def test_custom_batching(self) -> None:
        f: Any = lambda lax, w: jax.vmap(
            lambda x: lax.cond(True, lambda: self.vmap_captures(w)(x), lambda: x)
        )(XS)
        for w in (W, W + 1):
            assert_same(f(lax, w), f(jax.lax, w))

    def test_a_rule_that_captures_no_array_is_converted(self) -> None:
        lax.scan.cache_clear()
        for w in (W, W + 1):
            g = self.neither_captures(w)
            jax.grad(lambda x: lax.scan(lambda c, t: (g(c) + t, None), x, XS)[0])(2.0)
        info = lax.scan.cache_info()
        assert (info.misses, info.hits, info.bypassed) == (1, 1, 0)

    def test_libraries_rules_are_converted(self) -> None:
        lax.map.cache_clear()
        for w in (W, W + 1):
            jax.grad(lambda v: lax.map(lambda x: jax.nn.relu(x * v) + jax.nn.silu(x), XS).sum())(w)
        info = lax.map.cache_info()
        assert (info.misses, info.hits, info.bypassed) == (1, 1, 0)

    def test_a_captured_array_in_a_rule_is_explained(self) -> None:
        g = self.local(W + 0)  # not a constant of a module

        def body(c: Any, t: Any) -> Any:
            return g(c) + t, None

        lax.scan(body, 1.0, XS)
        found = fnintern.explain(body).unconverted
        assert found is not None
        assert "derivative rule captures an array" in found.reason


def test_checkpoint_policies_inside() -> None:
    def f(lax: Any, w: Any) -> Any:
        policy = jax.checkpoint_policies.dots_saveable
        body = jax.checkpoint(lambda c, x: (jnp.sin(c * w) + x, None), policy=policy)
        return jax.grad(lambda c: lax.scan(body, c, XS)[0])(1.0)

    for w in (W, W + 1):
        assert_same(f(lax, w), f(jax.lax, w))


def test_a_thousand_steps_compile_once_and_free_their_arrays() -> None:
    alive: list[weakref.ref[Any]] = []

    def step(w: Any, x: Any) -> Any:
        def loss(w: Any) -> Any:
            return lax.scan(lambda c, x: (c * w + x, None), 1.0, x)[0]

        alive.extend(map(weakref.ref, (w, x)))
        return w - 1e-4 * jax.grad(loss)(w)

    w = step(jnp.float32(0.5), XS + 0)
    w = step(w, XS + 0)
    before = lax.scan.cache_info()

    def steps() -> None:
        nonlocal w
        for _ in range(1000):
            w = step(w, XS + 0)

    assert counted(steps, 1) == (0, 0, 0)
    assert lax.scan.cache_info().hits == before.hits + 1000
    gc.collect()
    assert [ref for ref in alive if ref() is not None] == []

"""The counts are jax's: every miss that ``jax._src.test_util`` counts, once."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax  # type: ignore[import-untyped, unused-ignore]
import pytest
from flax import nnx
from jax._src import test_util as jtu

from fnintern import Retraces, retraces

Program = Callable[[], Any]
PROGRAMS: dict[str, Program] = {}


def program(run: Program) -> Program:
    PROGRAMS[run.__name__] = run
    return run


def square(x: Any) -> Any:
    return jnp.sum(x * x)


clipped = jax.custom_vjp(jnp.sin)
clipped.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (jnp.clip(g * jnp.cos(x), -1, 1),))


smooth = jax.custom_jvp(jnp.tanh)
smooth.defjvp(lambda primals, tangents: (jnp.tanh(primals[0]), tangents[0]))


class Scale:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def apply(self, x: Any) -> Any:
        return x * self.factor

    __call__ = apply


X = jnp.arange(4.0)


@program
def nothing_at_all() -> None:
    pass


@program
def eager_operations() -> None:
    for n in (2, 3):
        jnp.dot(X[:n], X[:n]) + jnp.zeros(n)


@program
def jit_of_a_stable_function() -> None:
    for _ in range(3):
        jax.jit(square)(X)


@program
def jit_of_a_lambda() -> None:
    for _ in range(3):
        jax.jit(lambda x: x + 1)(X)


@program
def nested_jit() -> None:
    inner = jax.jit(lambda x: x * 2)
    outer = jax.jit(lambda x: inner(x) + inner(x + 1))
    for n in (3, 4):
        outer(jnp.ones(n))
        inner(jnp.ones(n))


@program
def nested_jit_made_inside() -> None:
    outer = jax.jit(lambda x: jax.jit(lambda y: y * 2)(x) + 1)
    for n in (3, 4):
        outer(jnp.ones(n))


@program
def cond_of_lambdas() -> None:
    for _ in range(2):
        jax.lax.cond(True, lambda x: x + 1, lambda x: x - 1, X)


@program
def cond_under_jit() -> None:
    step = jax.jit(lambda p, x: jax.lax.cond(p, lambda y: y + 1, lambda y: y - 1, x))
    for p in (True, False, 1):
        step(p, X)


@program
def scan_in_cond() -> None:
    def loop(x: Any) -> Any:
        return jax.lax.scan(lambda c, v: (c + v, c), 0.0, x)[0]

    for _ in range(2):
        jax.lax.cond(True, loop, square, X)


@program
def scan_with_weak_carry() -> None:
    jax.lax.scan(lambda c, v: (c + v, c), 0, X)


@program
def while_loop() -> None:
    for _ in range(2):
        jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, X))


@program
def fori_loop_of_a_closure() -> None:
    for k in range(3):
        jax.lax.fori_loop(0, 3, lambda i, x: x + k, X)


@program
def map_of_a_stable_function() -> None:
    for _ in range(3):
        jax.lax.map(square, X[:, None])


@program
def switch() -> None:
    for i in range(3):
        jax.lax.switch(i, [lambda x: x, lambda x: x + 1, lambda x: x + 2], X)


@program
def associative_scan() -> None:
    for _ in range(2):
        jax.lax.associative_scan(jnp.add, X)


@program
def grad_of_jit() -> None:
    loss = jax.jit(square)
    for n in (3, 4):
        jax.grad(loss)(jnp.ones(n))


@program
def jit_of_grad() -> None:
    for _ in range(3):
        jax.jit(jax.grad(square))(X)


@program
def value_and_grad_of_scan() -> None:
    def loss(x: Any) -> Any:
        return jax.lax.scan(lambda c, v: (c * v, c), 1.0, x)[0]

    for _ in range(2):
        jax.value_and_grad(loss)(X)


@program
def hessian() -> None:
    for _ in range(2):
        jax.jit(jax.hessian(square))(X)


@program
def vmap() -> None:
    for _ in range(2):
        jax.vmap(square)(X[:, None])
        jax.jit(jax.vmap(square))(X[:, None])


@program
def vmap_of_cond() -> None:
    f = jax.vmap(lambda x: jax.lax.cond(x > 0, jnp.sin, jnp.cos, x))
    for _ in range(2):
        f(X)


@program
def jvp_and_linearize() -> None:
    for _ in range(2):
        jax.jvp(square, (X,), (X,))
        jax.linearize(square, X)[1](X)


@program
def remat() -> None:
    for _ in range(2):
        jax.remat(lambda x: jnp.sin(jnp.sin(x)))(X)
        jax.grad(jax.remat(square))(X)


@program
def custom_vjp() -> None:
    for _ in range(2):
        jax.jit(jax.grad(lambda x: jnp.sum(clipped(x))))(X)
        clipped(X)


@program
def custom_jvp() -> None:
    for n in (2, 3):
        jax.grad(lambda x: jnp.sum(smooth(x)))(jnp.ones(n))


@program
def pmap() -> None:
    for _ in range(2):
        jax.pmap(lambda x: x + 1)(X[None])


@program
def shapes_dtypes_and_statics() -> None:
    power = jax.jit(lambda x, n: x**n, static_argnums=1)
    for n in (2, 3):
        for x in (jnp.ones(n), jnp.ones(n, jnp.int32), 1.0):
            power(x, n)


@program
def partials_and_methods() -> None:
    scale = Scale(2.0)
    for k in range(3):
        jax.jit(functools.partial(jnp.add, k))(X)
        jax.jit(scale.apply)(X)
        jax.jit(Scale(3.0))(X)


@program
def another_context() -> None:
    f = jax.jit(lambda x: x @ x)
    for precision in ("float32", "bfloat16"):
        with jax.default_matmul_precision(precision):
            f(X)


@program
def ahead_of_time() -> None:
    for _ in range(2):
        jax.jit(square).lower(X).compile()(X)


@program
def make_jaxpr_and_eval_shape() -> None:
    for _ in range(2):
        jax.make_jaxpr(square)(X)
        jax.eval_shape(lambda x: x * 2, X)


@program
def conjugate_gradients() -> None:
    for _ in range(2):
        jax.scipy.sparse.linalg.cg(lambda x: 3 * x, X)


@program
def random_numbers() -> None:
    key = jax.random.key(0)
    for n in (2, 3):
        jax.random.normal(key, (n,))
        jax.random.permutation(key, n)


@program
def disabled_jit() -> None:
    with jax.disable_jit():
        jax.jit(square)(X)


@program
def cleared_caches() -> None:
    f = jax.jit(lambda x: x + 2)
    for _ in range(2):
        f(X)
        f.clear_cache()


@program
def failing_trace() -> None:
    def fails(x: Any) -> Any:
        raise ValueError("no")

    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            jax.jit(fails)(X)


@program
def optax_steps() -> None:
    params = {"a": X, "b": jnp.ones(2)}
    for _ in range(2):
        opt = optax.adam(0.1)
        state = opt.init(params)
        jax.jit(opt.update)(params, state)


@program
def nnx_cond_in_both_modes() -> None:
    model = nnx.Linear(4, 4, rngs=nnx.Rngs(0))
    for updates in (True, False, True):
        kwargs = {} if updates else {"graph_updates": False}
        nnx.cond(True, lambda m, x: m(x), lambda m, x: x, model, X, **kwargs)


@program
def nnx_transforms() -> None:
    model = nnx.Linear(4, 4, rngs=nnx.Rngs(0))
    for _ in range(2):
        nnx.jit(lambda m, x: m(x))(model, X)
        nnx.grad(lambda m, x: jnp.sum(m(x)))(model, X)


@program
def equinox_filter_jit() -> None:
    model = eqx.nn.Linear(4, 3, key=jax.random.key(0))
    for _ in range(2):
        eqx.filter_jit(lambda m, x: m(x))(model, X)


def counted(run: Program) -> tuple[tuple[int, int], Retraces]:
    with (
        jtu.count_jit_tracing_cache_miss() as traces,
        jtu.count_jit_compilation_cache_miss() as compiles,
        retraces() as seen,
    ):
        run()
    return (traces(), compiles()), seen


def test_there_are_enough_programs() -> None:
    assert len(PROGRAMS) >= 30


@pytest.mark.parametrize("name", PROGRAMS)
def test_counts_agree_with_jax(name: str) -> None:
    expected, seen = counted(PROGRAMS[name])
    assert (seen.traces, seen.compiles) == expected
    assert seen.problems == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_hold_no_more_than_was_counted(name: str) -> None:
    _, seen = counted(PROGRAMS[name])
    assert 0 <= seen.retraced <= seen.traces
    assert 0 <= seen.recompiled <= seen.compiles
    assert all(row.file == __file__ for row in seen.rows)


def test_threads_are_counted_together() -> None:
    def work() -> None:
        for _ in range(3):
            jax.jit(lambda x: x + 1)(X)

    work()  # what is traced once in a process, whichever test comes first
    expected, _ = counted(work)
    with retraces() as seen:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert (seen.traces, seen.compiles) == (4 * expected[0], 4 * expected[1])
    (row,) = seen.rows
    assert row.calls == row.traces == 4 * 3 - 1


def test_a_program_without_a_retrace_reports_none() -> None:
    step = jax.jit(lambda x: x * 2 + 1)

    def run() -> None:
        for _ in range(3):
            total = step(X)
            total = total + jax.jit(square)(X)

    expected, seen = counted(run)
    assert expected[0] > 0
    assert seen.rows == []
    assert str(seen).startswith("no re-traces")
    seen.assert_none()

"""Programs over equinox."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.libraries.jax_itself import KEY, X, numbers, same
from benchmarks.libraries.program import Call, program
from fnintern import interned

FILTER_JIT = "`filter_jit = interned(eqx.filter_jit, by='value')`"


def _net() -> Any:
    import equinox as eqx

    return eqx.nn.MLP(4, 2, 4, 2, key=KEY)


@program("equinox", "filter_jit(lambda)", modules="equinox", recipe=FILTER_JIT)
def filter_jit(recipe: bool) -> Call:
    import equinox as eqx

    net = _net()
    jit: Any = interned(eqx.filter_jit, by="value") if recipe else eqx.filter_jit
    return lambda i: jit(lambda n, v: n(v))(net, numbers(i))


@program(
    "equinox",
    "filter_jit(filter_grad(lambda))",
    modules="equinox",
    recipe=FILTER_JIT + ", and `filter_grad` likewise",
)
def filter_jit_grad(recipe: bool) -> Call:
    import equinox as eqx

    net = _net()
    jit: Any = interned(eqx.filter_jit, by="value") if recipe else eqx.filter_jit
    grad: Any = interned(eqx.filter_grad, by="value") if recipe else eqx.filter_grad
    return lambda i: jit(grad(lambda n, v: n(v).sum()))(net, numbers(i)).layers[0].bias


@program(
    "equinox",
    "filter_checkpoint(lambda)",
    modules="equinox",
    recipe="`checkpoint = interned(jax.checkpoint, by='value')`, for arguments that are arrays",
    why="jax.checkpoint makes a function for its static arguments at each call, and equinox "
    "another around it; even one that is kept traces each time, and compiles nothing",
)
def filter_checkpoint(recipe: bool) -> Call:
    import equinox as eqx

    checkpoint: Any = eqx.filter_checkpoint
    if recipe:
        checkpoint = interned(jax.checkpoint, by="value")
    return lambda i: checkpoint(lambda v: jnp.sin(v))(numbers(i))


@program(
    "equinox",
    "a model made again, with jit(f) in a field",
    modules="equinox",
    report="patrick-kidger/equinox#686",
    recipe="`jit = interned(jax.jit)`, for the field",
)
def jit_in_field(recipe: bool) -> Call:
    import equinox as eqx

    jit: Any = interned(jax.jit) if recipe else jax.jit

    class Net(eqx.Module):
        weight: Any
        forward: Any

        def __init__(self, weight: Any) -> None:
            self.weight = weight
            self.forward = jit(_tanh)

        def __call__(self, x: Any) -> Any:
            return self.forward(self.weight * x)

    step = eqx.filter_jit(lambda net, x: jnp.mean(jax.vmap(net)(x)))
    return lambda i: step(Net(numbers(i)[0]), X)


def _tanh(v: Any) -> Any:
    return jnp.tanh(v)


@program(
    "equinox",
    "internal.while_loop(lambdas)",
    modules="equinox",
    recipe="`interned(eqx.filter_jit)(while_loop)(same(...), same(...), x)`",
)
def while_loop(recipe: bool) -> Call:
    import equinox as eqx
    import equinox.internal as eqxi

    given = same(recipe)
    loop: Any = interned(eqx.filter_jit)(eqxi.while_loop) if recipe else eqxi.while_loop
    return lambda i: loop(
        given(lambda c: c[0] < 5),
        given(lambda c: (c[0] + 1, c[1] * 2.0)),
        (0, numbers(i)),
        kind="lax",
    )[1]


@program(
    "equinox",
    "internal.while_loop(lambda over an array)",
    modules="equinox",
    recipe="`filter_jit` one function that takes the array",
)
def while_loop_closure(recipe: bool) -> Call:
    import equinox as eqx
    import equinox.internal as eqxi

    def run(w: Any, x: Any) -> Any:
        return eqxi.while_loop(
            lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * w), (0, x), kind="lax"
        )[1]

    call: Any = eqx.filter_jit(run) if recipe else run
    return lambda i: call(numbers(i), X)


@program(
    "equinox",
    "a GRUCell in lax.scan(lambda)",
    modules="equinox",
    recipe=FILTER_JIT + "; `filter_jit(lambda cell, xs: scan(...))(cell, xs)`",
)
def gru(recipe: bool) -> Call:
    import equinox as eqx

    cell = eqx.nn.GRUCell(4, 3, key=KEY)
    jit: Any = interned(eqx.filter_jit, by="value") if recipe else lambda f: f

    def call(i: int) -> Any:
        xs = jnp.ones((5, 4)) * i
        return jit(
            lambda cell, xs: jax.lax.scan(lambda c, v: (cell(v, c), None), jnp.zeros(3), xs)[0]
        )(cell, xs)

    return call

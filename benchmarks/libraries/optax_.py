"""Programs over optax."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax

from benchmarks.libraries.jax_itself import X, loss, numbers
from benchmarks.libraries.program import Call, program
from fnintern import interned

OPTAX = "optax"
REBUILT: dict[str, Any] = {"modules": "optax", "recipe": "`adam = interned(optax.adam)`"}
JIT_UPDATE: dict[str, Any] = {
    "modules": "optax",
    "report": "google-deepmind/optax#1298",
    "recipe": "`jit = interned(jax.jit); jit(opt.update, static_argnames='value_fn')(...)`",
}


@program(
    "optax", "jit with a static adam made again", report="google-deepmind/optax#353", **REBUILT
)
def static_optimizer(recipe: bool) -> Call:
    import optax

    @partial(jax.jit, static_argnames="opt")
    def step(opt: Any, state: Any, p: Any) -> Any:
        return opt.update(p, state, p)[0]

    adam: Any = interned(optax.adam) if recipe else optax.adam

    def call(i: int) -> Any:
        opt = adam(1e-2)
        return step(opt, opt.init(X), numbers(i))

    return call


@program(
    "optax",
    "equinox.filter_jit with an adam made again",
    report="patrick-kidger/equinox#940",
    **{**REBUILT, "modules": "optax equinox"},
)
def filtered_optimizer(recipe: bool) -> Call:
    import equinox as eqx
    import optax

    step = eqx.filter_jit(lambda opt, state, p: opt.update(p, state, p)[0])
    adam: Any = interned(optax.adam) if recipe else optax.adam

    def call(i: int) -> Any:
        opt = adam(1e-2)
        return step(opt, opt.init(X), numbers(i))

    return call


@program(
    "optax",
    "jit with a static chain made again",
    modules="optax",
    report="google-deepmind/optax#197",
    recipe="`chain, clip, adam = map(interned, (optax.chain, optax.clip, optax.adam))`",
)
def static_chain(recipe: bool) -> Call:
    import optax

    @partial(jax.jit, static_argnames="opt")
    def step(opt: Any, state: Any, p: Any) -> Any:
        return opt.update(p, state, p)[0]

    chain, clip, adam = optax.chain, optax.clip, optax.adam
    if recipe:
        chain, clip, adam = map(interned, (chain, clip, adam))

    def call(i: int) -> Any:
        opt = chain(clip(1.0), adam(1e-2))
        return step(opt, opt.init(X), numbers(i))

    return call


def _updates(opt: Any, recipe: bool) -> Call:
    value_and_grad = jax.jit(jax.value_and_grad(loss))
    state = opt.init(X)
    jit: Any = interned(jax.jit) if recipe else lambda f, **options: f

    def call(i: int) -> Any:
        p = numbers(i)
        value, grad = value_and_grad(p)
        update = jit(opt.update, static_argnames="value_fn")
        return update(grad, state, p, value=value, grad=grad, value_fn=loss)[0]

    return call


@program("optax", "lbfgs, update called eagerly", **JIT_UPDATE)
def lbfgs(recipe: bool) -> Call:
    import optax

    return _updates(optax.lbfgs(), recipe)


@program("optax", "backtracking line search, update called eagerly", **JIT_UPDATE)
def backtracking(recipe: bool) -> Call:
    import optax

    search = optax.scale_by_backtracking_linesearch(5)
    return _updates(optax.chain(optax.sgd(0.1), search), recipe)


def _plain(opt: Any, recipe: bool) -> Call:
    state = opt.init(X)
    jit: Any = interned(jax.jit) if recipe else lambda f: f
    return lambda i: jit(opt.update)(numbers(i), state, numbers(i))[0]


@program(
    "optax",
    "MultiSteps, update called eagerly",
    modules="optax",
    recipe="`jit = interned(jax.jit); jit(opt.update)(...)`",
)
def multi_steps(recipe: bool) -> Call:
    import optax

    return _plain(optax.MultiSteps(optax.adam(1e-3), 2), recipe)


@program(
    "optax",
    "apply_if_finite, update called eagerly",
    modules="optax",
    recipe="`jit = interned(jax.jit); jit(opt.update)(...)`",
)
def apply_if_finite(recipe: bool) -> Call:
    import optax

    return _plain(optax.apply_if_finite(optax.adam(1e-3), 3), recipe)

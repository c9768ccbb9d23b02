"""Programs over dm-haiku, whose transformed functions are applied eagerly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.libraries.jax_itself import KEY
from benchmarks.libraries.program import Call, program
from fnintern import interned

WHY = "the body reads parameters and names from haiku's frame, which no capture shows"
RECIPE: dict[str, Any] = {
    "modules": "haiku",
    "recipe": "`jit = interned(jax.jit); jit(f.apply)(params, rng, x)`",
    "why": WHY,
}


def _applied(net: Callable[[Any], Any], recipe: bool) -> Call:
    import haiku as hk

    f = hk.transform(net)
    x = jnp.ones((3, 4))
    params = f.init(KEY, x)
    jit: Any = interned(jax.jit) if recipe else lambda g: g
    return lambda i: jit(f.apply)(jax.tree.map(lambda v: v * (1.0 + i), params), None, x)


@program("dm-haiku", "hk.cond", **RECIPE)
def haiku_cond(recipe: bool) -> Call:
    import haiku as hk

    def net(x: Any) -> Any:
        linear = hk.Linear(4)
        if hk.running_init():
            return linear(x)
        return hk.cond(True, linear, lambda v: v, x)

    return _applied(net, recipe)


@program("dm-haiku", "hk.scan", **RECIPE)
def haiku_scan(recipe: bool) -> Call:
    import haiku as hk

    def net(x: Any) -> Any:
        linear = hk.Linear(4)
        return hk.scan(lambda c, v: (linear(c + v), c), jnp.zeros(4), x)[0]

    return _applied(net, recipe)


@program("dm-haiku", "hk.fori_loop", **RECIPE)
def haiku_fori_loop(recipe: bool) -> Call:
    import haiku as hk

    def net(x: Any) -> Any:
        linear = hk.Linear(4)
        return hk.fori_loop(0, 3, lambda _, c: linear(c), x)

    return _applied(net, recipe)


@program("dm-haiku", "hk.dynamic_unroll of an LSTM", **RECIPE)
def haiku_unroll(recipe: bool) -> Call:
    import haiku as hk

    def net(x: Any) -> Any:
        core = hk.LSTM(4)
        return hk.dynamic_unroll(core, x, core.initial_state(None))[0]

    return _applied(net, recipe)


@program("dm-haiku", "hk.layer_stack", **RECIPE)
def haiku_layer_stack(recipe: bool) -> Call:
    import haiku as hk

    def net(x: Any) -> Any:
        return hk.experimental.layer_stack(2)(lambda v: hk.Linear(4)(v))(x)

    return _applied(net, recipe)


@program("dm-haiku", "two modules that each make a layer in hk.cond", **RECIPE)
def haiku_names(recipe: bool) -> Call:
    import haiku as hk

    class Layer(hk.Module):
        def __call__(self, x: Any) -> Any:
            if hk.running_init():
                return hk.Linear(4)(x)
            return hk.cond(True, lambda v: hk.Linear(4)(v), lambda v: v, x)

    return _applied(lambda x: Layer("a")(Layer("b")(x)), recipe)


@program(
    "dm-haiku",
    "jit(hk.transform(lambda).apply)",
    modules="haiku",
    recipe="`jit, transform = interned(jax.jit), interned(hk.transform, by='value')`",
)
def haiku_transform(recipe: bool) -> Call:
    import haiku as hk

    transform: Any = interned(hk.transform, by="value") if recipe else hk.transform
    jit: Any = interned(jax.jit) if recipe else jax.jit
    x = jnp.ones((3, 4))

    def make() -> Any:
        return transform(lambda v: hk.nets.MLP([4, 4])(v))

    params = make().init(KEY, x)
    return lambda i: jit(make().apply)(params, None, x * i)

"""Programs over blackjax, whose samplers are used in an outer loop of Python."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.libraries.jax_itself import KEY, X
from benchmarks.libraries.program import Call, program
from fnintern import interned

BLACKJAX: dict[str, Any] = {"modules": "blackjax", "report": "blackjax-devs/blackjax#486"}


def _logp(p: Any) -> Any:
    return -0.5 * jnp.sum(p**2)


def _nuts() -> Any:
    import blackjax

    return blackjax.nuts(_logp, 0.5, jnp.ones(4))


def _key(i: int) -> Any:
    return jax.random.fold_in(KEY, i)


@program(
    "blackjax",
    "nuts.step",
    recipe="`jit = interned(jax.jit); jit(nuts.step)(key, state)`",
    **BLACKJAX,
)
def nuts_step(recipe: bool) -> Call:
    nuts = _nuts()
    state = nuts.init(X)
    jit: Any = interned(jax.jit) if recipe else lambda f: f
    return lambda i: jit(nuts.step)(_key(i), state)[0].position


@program(
    "blackjax",
    "hmc.step",
    recipe="`jit = interned(jax.jit); jit(hmc.step)(key, state)`",
    **BLACKJAX,
)
def hmc_step(recipe: bool) -> Call:
    import blackjax

    hmc = blackjax.hmc(_logp, 0.5, jnp.ones(4), 3)
    state = hmc.init(X)
    jit: Any = interned(jax.jit) if recipe else lambda f: f
    return lambda i: jit(hmc.step)(_key(i), state)[0].position


@program(
    "blackjax",
    "jit(nuts(...).step), the sampler made again",
    recipe="`@interned` on a function that makes the sampler, and `jit = interned(jax.jit)`",
    **BLACKJAX,
)
def nuts_remade(recipe: bool) -> Call:
    nuts: Any = interned(_nuts) if recipe else _nuts
    jit: Any = interned(jax.jit) if recipe else jax.jit
    state = nuts().init(X)
    return lambda i: jit(nuts().step)(_key(i), state)[0].position


@program(
    "blackjax",
    "lax.scan of nuts.step",
    recipe="`jit = interned(jax.jit)`, on the function that scans",
    **BLACKJAX,
)
def nuts_loop(recipe: bool) -> Call:
    nuts = _nuts()
    state = nuts.init(X)

    def loop(key: Any) -> Any:
        keys = jax.random.split(key, 3)
        return jax.lax.scan(lambda s, k: (nuts.step(k, s)[0], None), state, keys)[0].position

    run: Any = interned(jax.jit)(loop) if recipe else loop
    return lambda i: run(_key(i))


@program(
    "blackjax",
    "util.run_inference_algorithm",
    recipe="`jit = interned(jax.jit)`, on a function of the key and the position",
    why="it jits the scan of a function made at each call, by a name bound before the patch",
    **BLACKJAX,
)
def inference(recipe: bool) -> Call:
    from blackjax.util import run_inference_algorithm

    nuts = _nuts()

    def infer(key: Any, x: Any) -> Any:
        return run_inference_algorithm(key, nuts, 3, initial_position=x)[1][0].position

    run: Any = interned(jax.jit)(infer) if recipe else infer
    return lambda i: run(_key(i), X)


@program(
    "blackjax",
    "window_adaptation.run",
    recipe="`jit = interned(jax.jit)`, on a function of the key and the position",
    why="it jits the scan of a function made at each call",
    **BLACKJAX,
)
def warmup(recipe: bool) -> Call:
    import blackjax

    adaptation = blackjax.window_adaptation(blackjax.nuts, _logp)

    def adapt(key: Any, x: Any) -> Any:
        return adaptation.run(key, x, num_steps=10)[0].state.position

    run: Any = interned(jax.jit)(adapt) if recipe else adapt
    return lambda i: run(_key(i), X)

"""Models called eagerly, whose own calls contain ``nnx.scan``, ``nnx.cond`` and ``nnx.RNN``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from benchmarks.counting import count
from benchmarks.tables import Bars, Result, Table
from benchmarks.transforms import HEADS, Case, compared

__all__ = ["Block", "Transformer", "run"]

NOTES = """\
Models called eagerly, as in a notebook: a transformer of four blocks, gone through by `nnx.scan`,
with an `nnx.cond` of two lambdas at its end; the gradient of a loss of it; and an `nnx.RNN` over
an `LSTMCell`. The limit is the same call under one `nnx.jit` that is kept, which no memo reaches:
what is outside of a transform runs operation by operation. The columns are those of the table of
transforms. An eager gradient through a `scan` or a `cond` is traced anew by jax itself, whatever
the function, as the second table has it for functions that stay; a converted call is not. Still,
one `nnx.jit` around the whole step is best."""

LAYERS, WIDTH, HEADS_, LENGTH, BATCH = 4, 32, 4, 16, 2


class Block(nnx.Module):  # type: ignore[misc]
    """Attention and a perceptron, each after a norm and beside a residual."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(HEADS_, WIDTH, decode=False, rngs=rngs)
        self.norm_after = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.up = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs)
        self.down = nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = x + self.attention(self.norm(x))
        return x + self.down(jax.nn.gelu(self.up(self.norm_after(x))))


def _through(x: Any, block: Any) -> Any:
    return block(x)


class Transformer(nnx.Module):  # type: ignore[misc]
    """Blocks whose weights are stacked, so that one scan goes through them."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        # One set of weights for each layer, along a new first axis.
        keys = rngs.fork(split=LAYERS)
        self.blocks = nnx.vmap(Block, in_axes=(0,), out_axes=0)(keys)
        self.head = nnx.Linear(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        scan = nnx.scan(_through, in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
        x = scan(x, self.blocks)
        return nnx.cond(
            jnp.mean(x) > 0,
            lambda head, x: head(x),
            lambda head, x: head(-x),
            self.head,
            x,
        )


def _step(carry: Any, x: Any) -> Any:
    return carry * x, None


def _scanned(x: Any) -> Any:
    return jax.lax.scan(_step, x, jnp.arange(4.0))[0]


def _branched(x: Any) -> Any:
    return jax.lax.cond(x > 0, jnp.sin, jnp.cos, x)


#: What no identity of a function changes: jax makes new programs for the parts of a gradient.
GRADIENTS: dict[str, Callable[[], Any]] = {
    "jax.lax.scan": lambda: jax.grad(_scanned)(1.0),
    "jax.lax.cond": lambda: jax.grad(_branched)(1.0),
}


def _loss(model: Any, x: Any) -> Any:
    return jnp.mean(model(x) ** 2)


def _forward(model: Any, x: Any) -> Any:
    return model(x)


def _gradient(model: Any, x: Any) -> Any:
    return nnx.value_and_grad(_loss)(model, x)


def _cases() -> dict[str, tuple[Callable[..., Any], Any, Any]]:
    """Name -> a function of a model and an input, and both."""
    transformer = Transformer(nnx.Rngs(0))
    rnn = nnx.RNN(nnx.LSTMCell(WIDTH, WIDTH, rngs=nnx.Rngs(0)))
    x = jax.random.normal(jax.random.key(0), (BATCH, LENGTH, WIDTH))
    return {
        "transformer": (_forward, transformer, x),
        "transformer, loss and gradient": (_gradient, transformer, x),
        "nnx.RNN(LSTMCell)": (_forward, rnn, x),
    }


def run(rounds: int, number: int, show: Callable[[str], None]) -> Result:
    """A row for each model."""
    cases = []
    for name, (function, model, x) in _cases().items():

        def call(function: Any = function, model: Any = model, x: Any = x) -> Any:
            return function(model, x)

        jitted = nnx.jit(function)

        def limit(jitted: Any = jitted, model: Any = model, x: Any = x) -> Any:
            return jitted(model, x)

        cases.append(Case((name,), call, limit))
    rows, milliseconds = compared(cases, rounds, number, show)
    plot = Bars(
        "models",
        "One eager call of a model",
        "ms a call",
        [case.names[0] for case in cases],
        milliseconds,
    )
    by_jax = [
        [f"jax.grad through {name}", *(f"{figure:g}" for figure in count(call))]
        for name, call in GRADIENTS.items()
    ]
    tables = [
        Table(["model", *HEADS], rows),
        Table(["jax itself, functions that stay", "misses", "compiled"], by_jax),
    ]
    return Result("Models", NOTES, tables, plots=[plot])

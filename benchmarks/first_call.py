"""The first call of a program: trace, conversion and compilation, against ``jax.lax`` alone."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.tables import Check, Result, Table
from benchmarks.timing import Spread, race, ratios
from fnintern import lax

__all__ = ["run"]

NOTES = """\
The first eager call of functions that were never seen, which traces and compiles, in such calls of
`jax.lax`: median (quartiles). Each call has code of its own, over arrays that it captures."""

#: The most that a first call may take, in first calls of jax.lax.
BOUND = 1.3

WIDTH = 32
X = jnp.ones((4, WIDTH))
LAYERS = [{"w": jnp.full((WIDTH, WIDTH), 0.1), "b": jnp.zeros(WIDTH)} for _ in range(12)]
W = LAYERS[0]["w"]

#: Name -> the source of a call; {number} makes its code another one each time.
CALLS = {
    "cond over an array": "ops.cond(True, lambda x: x @ w + {number}, lambda x: x - w.sum(), x)",
    "scan over an array": "ops.scan(lambda c, y: (jnp.tanh(c @ w) + {number}, y), x, jnp.ones(9))",
    "while_loop over an array": (
        "ops.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] @ w + {number}), (0, x))"
    ),
    "fori_loop without a capture": "ops.fori_loop(0, 3, lambda i, c: jnp.sin(c) + {number}, x)",
    "map over an array": "ops.map(lambda y: jnp.cos(y) * w[0] + {number}, x)",
    "scan over 12 layers": (
        "ops.scan(lambda c, y: (through(layers, c) + {number}, y), x, jnp.ones(3))"
    ),
}


def _through(layers: Sequence[dict[str, Any]], x: Any) -> Any:
    for layer in layers:
        x = x + jax.nn.gelu(x @ layer["w"] + layer["b"])
    return x


def _first(source: str, ops: Any, numbers: itertools.count[int], calls: int) -> float:
    """Seconds of the processor a first call."""
    names = {"ops": ops, "x": X, "w": W, "layers": LAYERS, "through": _through, "jnp": jnp}
    new = [eval("lambda: " + source.format(number=next(numbers)), names) for _ in range(calls)]
    start = time.process_time()
    for call in new:
        jax.block_until_ready(call())
    return (time.process_time() - start) / calls


def run(rounds: int, number: int, show: Callable[[str], None]) -> Result:
    """A row for each operation."""
    rows: list[Sequence[str]] = []
    checks = []
    numbers = itertools.count(2)
    for name, source in CALLS.items():
        seconds = race(
            {
                "fnintern.lax": functools.partial(_first, source, lax, numbers, number),
                "jax.lax": functools.partial(_first, source, jax.lax, numbers, number),
            },
            rounds,
            functools.partial(_shown, show, name),
        )
        ratio = ratios(seconds["fnintern.lax"], seconds["jax.lax"])
        ms = [f"{Spread.of(figures).median * 1e3:.1f}" for figures in seconds.values()]
        rows.append([name, str(ratio), *ms])
        checks.append(Check(f"first call, {name}, fnintern.lax / jax.lax", ratio.median, BOUND))
    heads = ["call", "fnintern.lax / jax.lax", "fnintern.lax, ms", "jax.lax, ms"]
    return Result("The first call", NOTES, [Table(heads, rows)], checks)


def _shown(show: Callable[[str], None], name: str, line: str) -> None:
    show(f"{name}: {line}")

"""What a report costs a traced call: the same calls with and without one, interleaved.

Run as ``python benchmarks/retraces_overhead.py``. Prints a ratio, median and quartiles over rounds;
1.05 is five percent. Only calls that trace pay anything, so all of these do.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from fnintern import retraces

ROUNDS = 15
CALLS = 8
X = jnp.arange(8.0)
MODEL = nnx.Linear(8, 8, rngs=nnx.Rngs(0))


def forward(model: Any, x: Any) -> Any:
    return model(x)


def loss(x: Any) -> Any:
    for _ in range(20):
        x = jnp.sin(x) + jnp.tanh(x)
    return jnp.sum(x)


PROGRAMS: dict[str, Callable[[], Any]] = {
    "jit(lambda), one operation": lambda: jax.jit(lambda x: x + 1)(X),
    "jit(grad(loss)), 40 operations": lambda: jax.jit(jax.grad(loss))(X),
    "lax.map": lambda: jax.lax.map(lambda x: x + 1, X),
    "nnx.cond": lambda: nnx.cond(True, forward, forward, MODEL, X),
    "make_jaxpr, traced but not compiled": lambda: jax.make_jaxpr(lambda x: loss(x) + 1)(X),
}


def seconds(call: Callable[[], Any], watched: bool) -> float:
    with retraces() if watched else nullcontext():
        start = time.perf_counter()
        for _ in range(CALLS):
            jax.block_until_ready(call())
        return (time.perf_counter() - start) / CALLS


def main() -> None:
    for name, call in PROGRAMS.items():
        call()
        ratios, plain = [], []
        for _ in range(ROUNDS):
            off, on = seconds(call, False), seconds(call, True)
            ratios.append(on / off)
            plain.append(off)
        low, middle, high = statistics.quantiles(ratios, n=4)
        off_ms = statistics.median(plain) * 1e3
        print(f"{name:<38} {middle:.3f} ({low:.3f} to {high:.3f})   {off_ms:.2f} ms a call")


if __name__ == "__main__":
    main()

"""What a converted call costs against how much it captures: straight lines (law S7)."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

import fnintern
from benchmarks.costs import WIDTH, Transformer
from benchmarks.tables import Check, Lines, Result, Table
from benchmarks.timing import Spread, race, time_once
from fnintern import lax

__all__ = ["run"]

NOTES = """\
Microseconds a call for each thing captured, at several sizes: flat, where the cost grows as the
size does. *objects* are plain objects of which a number is read; *blocks* those of a transformer
that `nnx.cond` gets as operand; *live functions* other functions that have programs."""

XS = jnp.arange(3.0)
#: By how many times a thing may cost more at the largest size than at the one in the middle.
BOUND = 1.5


class Thing:
    def __init__(self, number: int) -> None:
        self.number = number


def _arrays(size: int) -> Callable[[], Any]:
    held = [jnp.float32(i) for i in range(size)]
    return lambda: lax.map(lambda x: x * held[0] + len(held), XS)


def _objects(size: int) -> Callable[[], Any]:
    held = [Thing(i) for i in range(size)]
    return lambda: lax.map(lambda x: x * sum(thing.number for thing in held), XS)


def _blocks(size: int) -> Callable[[], Any]:
    model, x = Transformer(size, nnx.Rngs(0)), jnp.ones((1, 4, WIDTH))
    return lambda: nnx.cond(True, lambda m, x: x + len(m.blocks), lambda m, x: x, model, x)


def _live(size: int) -> Callable[[], Any]:
    made = [lambda x, n=n: x * 2 + n for n in range(size)]
    wrap = fnintern.interned(lambda f: [f])
    held = list(map(wrap, made))
    order = itertools.cycle(made)
    return lambda: (wrap(next(order)), held)[0]


SIZES: dict[str, tuple[Callable[[int], Callable[[], Any]], tuple[int, ...]]] = {
    "arrays": (_arrays, (10, 100, 1000, 10000)),
    "objects": (_objects, (10, 100, 1000, 10000)),
    "blocks": (_blocks, (1, 4, 16, 64)),
    "live functions": (_live, (10, 100, 1000, 10000)),
}


def run(rounds: int, number: int, show: Callable[[str], None]) -> Result:
    """A row for each kind and size."""
    rows: list[Sequence[str]] = []
    checks: list[Check] = []
    lines: dict[str, list[tuple[float, float]]] = {}
    with fnintern.patch_flax():
        for name, (make, sizes) in SIZES.items():
            calls = {str(size): make(size) for size in sizes}
            for call in calls.values():
                for _ in range(3):
                    jax.block_until_ready(call())
            rivals = {
                size: functools.partial(_timed, call, max(2, number * 10 // int(size)))
                for size, call in calls.items()
            }
            seconds = race(rivals, rounds, functools.partial(_shown, show, name))
            us = {int(size): Spread.of(figures).median * 1e6 for size, figures in seconds.items()}
            lines[name] = [(float(size), figure) for size, figure in us.items()]
            # A hit of one of many live functions is one thing, however many there are.
            each = {s: f if name == "live functions" else f / s for s, f in us.items()}
            rows += [[name, f"{size:,}", f"{us[size]:.1f}", f"{each[size]:.2f}"] for size in sizes]
            what = f"{name}, one of {sizes[-1]:,} / one of {sizes[1]:,}"
            checks.append(Check(what, each[sizes[-1]] / each[sizes[1]], BOUND))
    plot = Lines("sizes", "A converted call", "captured", "us a call", lines, log="xy")
    heads = ["captured", "size", "us a call", "us for each"]
    return Result("Cost and size", NOTES, [Table(heads, rows)], checks, [plot])


def _shown(show: Callable[[str], None], name: str, line: str) -> None:
    show(f"{name}: {line}")


def _timed(call: Callable[[], Any], number: int) -> float:
    return time_once("wait(call())", {"call": call, "wait": jax.block_until_ready}, number)

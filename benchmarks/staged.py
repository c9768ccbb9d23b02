"""``fnintern.lax`` against ``jax.lax``: eager calls with fresh lambdas over fresh arrays."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.counting import count
from benchmarks.tables import Bars, Check, Result, Table
from benchmarks.timing import Spread, race, ratios, time_once
from fnintern import lax

__all__ = ["run"]

NOTES = """\
One eager call with lambdas that are written in it, over an array that is another one each time:
tracing cache misses and compilations after the first two, with `jax.lax` and with `fnintern.lax`;
how many times faster it is, and how it compares with functions that stay the same, in `jax.lax`:
median (quartiles)."""

X = jnp.arange(3.0)
ARRAYS = [jnp.full(3, i + 0.5) for i in range(1000)]

#: Operation -> a call of it over an array ``w``, and the same with functions that stay.
CALLS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any], Any] | None]] = {
    "cond": (
        lambda ops, w: ops.cond(True, lambda x: w * x, lambda x: w - x, X),
        lambda w: jax.lax.cond(True, _twice, _square, w),
    ),
    "switch": (
        lambda ops, w: ops.switch(1, [lambda x: w * x, lambda x: w - x], X),
        lambda w: jax.lax.switch(1, [_twice, _square], w),
    ),
    "scan": (
        lambda ops, w: ops.scan(lambda c, x: (c + w * x, c), w, X),
        lambda w: jax.lax.scan(_carried, w, X),
    ),
    "while_loop": (
        lambda ops, w: ops.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * w), (0, X)),
        lambda w: jax.lax.while_loop(_below, _counted, (0, w)),
    ),
    "fori_loop": (
        lambda ops, w: ops.fori_loop(0, 3, lambda i, c: c * w, X),
        lambda w: jax.lax.fori_loop(0, 3, _numbered, w),
    ),
    "map": (lambda ops, w: ops.map(lambda x: w * x, X), lambda w: jax.lax.map(_twice, w)),
    "grad of scan": (
        lambda ops, w: jax.grad(
            lambda w: ops.scan(lambda c, x: (jnp.sin(c) + w * x, None), w, X)[0].sum()
        )(w),
        None,
    ),
}
#: How many times faster it has to be; others 200 times.
AIMED = {"grad of scan": 30.0}


def _twice(x: Any) -> Any:
    return 2 * x


def _square(x: Any) -> Any:
    return x * x


def _carried(c: Any, x: Any) -> Any:
    return c + x, c


def _below(c: Any) -> Any:
    return c[0] < 3


def _counted(c: Any) -> Any:
    return c[0] + 1, c[1] * c[1]


def _numbered(i: Any, c: Any) -> Any:
    return c * c


def run(rounds: int, number: int, show: Callable[[str], None]) -> Result:
    """A row for each operation."""
    rows: list[Sequence[str]] = []
    medians: dict[str, list[float]] = {"jax.lax": [], "fnintern.lax": []}
    checks = []
    for name, (call, stable) in CALLS.items():
        arrays = itertools.cycle(ARRAYS)
        programs: dict[str, Callable[[], Any]] = {
            "jax.lax": functools.partial(_call, call, jax.lax, arrays),
            "fnintern.lax": functools.partial(_call, call, lax, arrays),
        }
        counts = [count(program) for program in programs.values()]
        rivals = {
            "jax.lax": functools.partial(_timed, programs["jax.lax"], max(2, number // 100)),
            "fnintern.lax": functools.partial(_timed, programs["fnintern.lax"], number),
        }
        if stable is not None:
            limit = functools.partial(_call, _alone(stable), None, arrays)
            limit()
            # jax.lax.map makes a function of its own at each call, whatever it is given.
            calls = max(2, number // 100) if name == "map" else number
            rivals["limit"] = functools.partial(_timed, limit, calls)
        seconds = race(rivals, rounds, functools.partial(_shown, show, name))
        ms = {rival: Spread.of(figures).median * 1e3 for rival, figures in seconds.items()}
        for rival, figures in medians.items():
            figures.append(ms[rival])
        faster = ratios(seconds["jax.lax"], seconds["fnintern.lax"])
        checks.append(
            Check(
                f"{name}, fnintern.lax / jax.lax",
                ms["fnintern.lax"] / ms["jax.lax"],
                1 / AIMED.get(name, 200.0),
            )
        )
        slower = "" if stable is None else str(ratios(seconds["fnintern.lax"], seconds["limit"]))
        rows.append(
            [
                name,
                *(f"{b:g} → {a:g}" for b, a in zip(*counts, strict=True)),
                str(faster),
                slower,
                f"{ms['jax.lax']:.2f}",
                f"{ms['fnintern.lax']:.3f}",
            ]
        )
    heads = [
        "operation", "misses", "compiled", "jax.lax / fnintern.lax", "fnintern.lax / limit",
        "jax.lax, ms", "fnintern.lax, ms",
    ]  # fmt: skip
    plot = Bars("staged", "One eager call over another array", "ms a call", list(CALLS), medians)
    return Result(
        "Closure conversion", NOTES, [Table(heads, rows, words=1)], checks=checks, plots=[plot]
    )


def _call(call: Callable[[Any, Any], Any], ops: Any, arrays: Iterator[Any]) -> Any:
    return call(ops, next(arrays))


def _alone(stable: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda ops, w: stable(w)


def _shown(show: Callable[[str], None], name: str, line: str) -> None:
    show(f"{name}: {line}")


def _timed(call: Callable[[], Any], number: int) -> float:
    return time_once("wait(call())", {"call": call, "wait": jax.block_until_ready}, number)

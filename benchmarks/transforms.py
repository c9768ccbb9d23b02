"""The eager transforms of flax before and after ``patch_flax()``: what they trace, and the time."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from flax import nnx

from benchmarks import coverage
from benchmarks.counting import count
from benchmarks.tables import Bars, Result, Table
from benchmarks.timing import Spread, race, ratios, time_once
from fnintern import patch_flax

__all__ = ["Case", "compared", "run"]

NOTES = """\
One eager call in the default mode: tracing cache misses and compilations after the first two,
before and after `patch_flax()`; how many times faster it is (before / after), and how it compares
with a function that stays the same (after / limit), in the operation of `jax.lax`, or for `jit`
and `remat` in the transform applied once: median (quartiles)."""

X = coverage.X
_jitted, _remat = nnx.jit(coverage._true), nnx.remat(coverage._true)

#: Transform -> the same with functions that stay.
LIMITS: dict[str, Callable[[], Any]] = {
    "cond": lambda: jax.lax.cond(True, coverage._true, coverage._false, X),
    "switch": lambda: jax.lax.switch(1, [coverage._true, coverage._false], X),
    "while_loop": lambda: jax.lax.while_loop(coverage._wanted, coverage._step, (X, 0)),
    "fori_loop": lambda: jax.lax.fori_loop(0, 3, coverage._numbered, X),
    "scan": lambda: jax.lax.scan(coverage._carried, X[0], X),
    "jit": lambda: _jitted(X),
    "remat": lambda: _remat(X),
    "eval_shape": lambda: jax.eval_shape(coverage._true, X),
}
#: What the caller writes: a function of a module, and a lambda in the call.
KINDS = ("function", "lambda")


class Case:
    """One eager call, and how it is named."""

    def __init__(self, names: Sequence[str], call: Callable[[], Any], limit: Callable[[], Any]):
        self.names = names
        self.call = call
        self.limit = limit


def run(rounds: int, number: int, show: Callable[[str], None]) -> Result:
    """A row for each transform and kind of function."""
    cases = []
    for transform in LIMITS:
        functions, call = coverage.TRANSFORMS[transform]
        for kind in KINDS:
            make = coverage.KINDS[kind]
            cases.append(
                Case(
                    (transform, kind),
                    functools.partial(_called, call, functions, make),
                    LIMITS[transform],
                )
            )
    rows, milliseconds = compared(cases, rounds, number, show)
    shown = [number for number, case in enumerate(cases) if case.names[1] == KINDS[0]]
    plot = Bars(
        "transforms",
        "One eager call, functions of a module",
        "ms a call",
        [f"nnx.{cases[number].names[0]}" for number in shown],
        {name: [figures[number] for number in shown] for name, figures in milliseconds.items()},
    )
    heads = ["nnx", "function", *HEADS]
    return Result("Transforms of flax", NOTES, [Table(heads, rows, words=2)], plots=[plot])


def _called(call: Any, functions: Any, make: Any) -> Any:
    return call({}, *map(make, functions))


#: The columns of :func:`compared` after the names.
HEADS = ("misses", "compiled", "before / after", "after / limit", "before, ms", "after, ms")


def compared(
    cases: Sequence[Case], rounds: int, number: int, show: Callable[[str], None]
) -> tuple[list[list[str]], dict[str, list[float]]]:
    """Rows under the names of each case and :data:`HEADS`; and the medians in milliseconds."""
    for case in cases:
        case.limit()
    rows = []
    medians: dict[str, list[float]] = {"before": [], "after": [], "limit": []}
    for case in cases:
        title = ", ".join(case.names)
        before = count(case.call)
        with patch_flax():
            after = count(case.call)
        # Where it compiles at every call, a few calls tell.
        calls = [max(1, number // 100) if any(traced) else number for traced in (before, after)]
        rivals = {
            "before": functools.partial(_timed, case.call, calls[0]),  # warm, by counting
            "after": functools.partial(_patched, case.call, calls[1]),
            "limit": functools.partial(_timed, case.limit, number),
        }
        seconds = race(rivals, rounds, lambda line: show(f"{title}: {line}"))
        ms = {name: Spread.of(figures).median * 1e3 for name, figures in seconds.items()}
        for name, figure in ms.items():
            medians[name].append(figure)
        rows.append(
            [
                *case.names,
                *(f"{b:g} → {a:g}" for b, a in zip(before, after, strict=True)),
                str(ratios(seconds["before"], seconds["after"])),
                str(ratios(seconds["after"], seconds["limit"])),
                f"{ms['before']:.2f}",
                f"{ms['after']:.2f}",
            ]
        )
    return rows, medians


def _timed(call: Callable[[], Any], number: int) -> float:
    names = {"call": call, "wait": jax.block_until_ready}
    return time_once("wait(call())", names, number)


def _patched(call: Callable[[], Any], number: int) -> float:
    with patch_flax():
        jax.block_until_ready(call())  # each patch has wrappers of its own, and traces them once
        return _timed(call, number)

"""Loops as people write them, with and without the patches: none may be slower (law S7)."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import fnintern
from benchmarks.tables import Check, Result, Table
from benchmarks.timing import Spread, race, ratios, time_once

__all__ = ["LOOPS", "run"]

NOTES = """\
One step of a loop as people write it, under `patch_flax()` and `patch_jax()`, in such steps
without: median (quartiles), after twelve. Where a step traces at each call, a few are timed."""

#: The most that a step may take, in steps without the patches.
BOUND = 1.1


@dataclasses.dataclass(frozen=True)
class Config:
    steps: int = 5
    rate: float = 0.1


CONFIG = Config()
TABLE = np.linspace(0.0, 1.0, 4096, dtype=np.float32)
X = jnp.ones((4, 8))
XS = jnp.arange(3.0)


class Trainer:
    """With a counter, a history and metrics, which its step does not read."""

    def __init__(self) -> None:
        self.model = nnx.Linear(8, 8, rngs=nnx.Rngs(0))
        self.rate = 0.1
        self.steps = 0
        self.history: list[float] = []
        self.weight = jnp.float32(2.0)

    def up(self, model: Any, x: Any) -> Any:
        return model(x) * self.rate

    def down(self, model: Any, x: Any) -> Any:
        return model(x) - self.rate

    def count(self) -> None:
        self.steps += 1
        self.history.append(0.5)

    def body(self, carry: Any, x: Any) -> Any:
        return carry + x * self.weight, None


def _below(c: Any) -> Any:
    return c[0] < CONFIG.steps


def _next(c: Any) -> Any:
    return c[0] + 1, c[1] * CONFIG.rate


def _plus(x: Any) -> Any:
    return x + 1


def _minus(x: Any) -> Any:
    return x - 1


def _looked_up(x: Any) -> Any:
    return x * jnp.asarray(TABLE)[1]


def _trainer(mode: dict[str, bool]) -> Callable[[], Any]:
    trainer = Trainer()

    def step() -> Any:
        trainer.count()
        return nnx.cond(True, trainer.up, trainer.down, trainer.model, X, **mode)

    return step


def _scan() -> Callable[[], Any]:
    trainer = Trainer()
    body = trainer.body

    def step() -> Any:
        trainer.count()
        return jax.lax.scan(body, X[0, 0], XS)

    return step


def _new_number() -> Callable[[], Any]:
    trainer = Trainer()

    def step() -> Any:
        trainer.count()
        number = trainer.steps
        return jax.lax.cond(True, lambda x: x * number, lambda x: x, X)

    return step


def _held() -> Callable[[], Any]:
    model = nnx.Linear(8, 8, rngs=nnx.Rngs(0))
    step = nnx.jit(lambda model, x: model(x))
    return lambda: step(model, X)


def _fails() -> Callable[[], Any]:
    def branch(x: Any) -> Any:
        raise ValueError("no")

    def step() -> Any:
        with contextlib.suppress(ValueError):
            jax.lax.cond(True, branch, branch, X)

    return step


#: Name -> what makes its step.
LOOPS: dict[str, Callable[[], Callable[[], Any]]] = {
    "trainer, nnx.cond": lambda: _trainer({}),
    "trainer, nnx.cond, graph_updates=False": lambda: _trainer({"graph_updates": False}),
    "trainer, nnx.cond, graph=False": lambda: _trainer({"graph": False}),
    "trainer, lax.scan of a body that stays": _scan,
    "lambda over a number that is new at each call": _new_number,
    "lax.cond of two functions": lambda: lambda: jax.lax.cond(True, _plus, _minus, X),
    "lax.while_loop with a frozen dataclass": lambda: (
        lambda: jax.lax.while_loop(_below, _next, (0, X))
    ),
    "lax.map over a NumPy table": lambda: lambda: jax.lax.map(_looked_up, XS),
    "nnx.jit that is held": _held,
    "a branch that raises an error": _fails,
}


def run(rounds: int, number: int, show: Callable[[str], None]) -> Result:
    """A row for each loop."""
    rows: list[Sequence[str]] = []
    checks = []
    for name, make in LOOPS.items():
        step = make()
        calls = {"plain": _times(step, number), "patched": 0}
        with fnintern.patch_flax(), fnintern.patch_jax():
            calls["patched"] = _times(step, number)
        rivals = {
            "plain": functools.partial(_timed, step, calls["plain"]),
            "patched": functools.partial(_patched, step, calls["patched"]),
        }
        seconds = race(rivals, rounds, functools.partial(_shown, show, name))
        ratio = ratios(seconds["patched"], seconds["plain"])
        ms = [f"{Spread.of(seconds[key]).median * 1e3:.3f}" for key in ("plain", "patched")]
        rows.append([name, str(ratio), *ms])
        checks.append(Check(f"{name}, patched / plain", ratio.median, BOUND))
    heads = ["step", "patched / plain", "plain, ms", "patched, ms"]
    return Result("Everyday loops", NOTES, [Table(heads, rows)], checks)


def _times(step: Callable[[], Any], number: int) -> int:
    """How many steps a round has: few where each traces and compiles."""
    for _ in range(12):
        jax.block_until_ready(step())
    return number if _timed(step, 2) < 5e-3 else max(2, number // 50)


def _timed(step: Callable[[], Any], number: int) -> float:
    return time_once("wait(step())", {"step": step, "wait": jax.block_until_ready}, number)


def _patched(step: Callable[[], Any], number: int) -> float:
    with fnintern.patch_flax(), fnintern.patch_jax():
        for _ in range(12):  # each patch has programs of its own
            jax.block_until_ready(step())
        return _timed(step, number)


def _shown(show: Callable[[str], None], name: str, line: str) -> None:
    show(f"{name}: {line}")

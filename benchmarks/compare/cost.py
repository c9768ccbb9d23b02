"""What a hit costs each contestant, in hits of ``functools.lru_cache`` in the same rounds."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.compare.contestants import Contestant, contestants
from benchmarks.compare.probes import ABSENT
from benchmarks.counting import count
from benchmarks.timing import race, ratios, time_once

__all__ = ["QUESTIONS", "TABLE", "costs"]

TABLE = "What does a hit cost?"
POSITIONAL = "`memo(f, True)`, in hits of `lru_cache`"
KEYWORD = "`memo(f, graph=True)`, in hits of `lru_cache`"
METHOD = "`memo(o.method, True)`, in hits of `lru_cache`"
CALL = "a `cond` of two wrapped functions, in `jax.lax.cond` without a wrapper"

#: What is timed of the memo alone: the question, and the statement.
HITS = {
    POSITIONAL: "memo(f, True)",
    KEYWORD: "memo(f, graph=True)",
    METHOD: "memo(o.method, True)",
}
QUESTIONS = (*HITS, CALL)
PEER = "functools.lru_cache"


def true_fn(x: Any) -> Any:
    return x + 1


def false_fn(x: Any) -> Any:
    return x - 1


class Owner:
    def method(self, x: Any) -> Any:
        return x


def costs(rounds: int, number: int) -> dict[str, dict[str, str]]:
    """Question -> contestant -> the ratio, median and quartiles over the rounds."""
    found = {question: _hits(statement, rounds, number) for question, statement in HITS.items()}
    found[CALL] = _calls(rounds, max(1, number // 200))
    return found


def _hits(statement: str, rounds: int, number: int) -> dict[str, str]:
    rivals: dict[str, Callable[[], float]] = {}
    cells = {}
    for contestant in contestants():
        memo = contestant.memo
        if memo is None:
            cells[contestant.name] = ABSENT
            continue
        names: dict[str, Any] = {"memo": memo, "f": true_fn, "o": Owner()}
        # Held, since weak_value_interner forgets what nobody holds.
        names["wrapper"] = eval(statement, names)
        if eval(statement, names) is not names["wrapper"]:
            cells[contestant.name] = "never hits"
            continue
        names.pop("__builtins__")
        rivals[contestant.name] = functools.partial(time_once, statement, names, number)
    seconds = race(rivals, rounds, lambda line: None)
    ours = {name: str(ratios(figures, seconds[PEER])) for name, figures in seconds.items()}
    return cells | ours


def _calls(rounds: int, number: int) -> dict[str, str]:
    x = jnp.float32(3.0)
    stable = Contestant("jax.lax.cond", None, jax.lax.cond)
    rivals = {}
    absent = {}
    for contestant in [stable, *contestants()]:
        if contestant.memo is None and contestant is not stable:
            absent[contestant.name] = ABSENT
            continue

        def call(cond: Any = contestant.cond) -> Any:
            return jax.block_until_ready(cond(True, true_fn, false_fn, x))

        # Where it traces at every call, a few calls tell.
        calls = number if count(call) == (0, 0) else max(1, number // 100)
        rivals[contestant.name] = functools.partial(time_once, "call()", {"call": call}, calls)
    seconds = race(rivals, rounds, lambda line: None)
    limit = seconds.pop(stable.name)
    return absent | {name: str(ratios(figures, limit)) for name, figures in seconds.items()}

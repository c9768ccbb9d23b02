"""Interleaved timing: in each round every rival runs once, and ratios are taken within a round.

A machine that slows down for a second slows all of a round, so ratios stay where times do not. All
times are of the processor, over all threads of the process: other programs disturb them less than
the clock, and alone on a machine an eager call takes about the same by both.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
import timeit
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

__all__ = ["Spread", "digits", "machine", "race", "ratios", "time_once"]


def digits(figure: float) -> str:
    """About three digits, and no exponent: ``0.0118``, ``2.31``, ``61.2``, ``2041``."""
    if figure >= 10:
        return f"{figure:.0f}" if figure >= 100 else f"{figure:.1f}"
    return f"{figure:.2f}" if figure >= 0.1 else f"{figure:#.2g}"


@attrs.frozen
class Spread:
    """The middle of some figures, and the quarter of them on each side.

    Attributes:
        median, low, high: the second, first and third quartile.
        least: the smallest.
    """

    median: float
    low: float
    high: float
    least: float

    @classmethod
    def of(cls, figures: Sequence[float]) -> Spread:
        low, median, high = statistics.quantiles(figures, n=4, method="inclusive")
        return cls(median, low, high, min(figures))

    def __str__(self) -> str:
        return f"{digits(self.median)} ({digits(self.low)} to {digits(self.high)})"


def time_once(statement: str, names: Mapping[str, Any], number: int) -> float:
    """Seconds of the processor a run of a statement, with the collector off as in ``timeit``.

    The names are local variables of the loop: a function around the call, or a look-up among the
    globals, would cost as much as half of ``lru_cache``'s hit, and bring all ratios nearer to 1.
    """
    setup = "\n".join(f"{name} = names[{name!r}]" for name in names)
    timer = timeit.Timer(statement, setup, time.process_time, {"names": names})
    return timer.timeit(number) / number


def race(
    rivals: Mapping[str, Callable[[], float]], rounds: int, show: Callable[[str], None]
) -> dict[str, list[float]]:
    """The seconds a call of each rival in each round.

    Args:
        rivals: a function for each that measures it once.
        rounds: how often each is measured.
        show: gets a line of progress.
    """
    names = list(rivals)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds + 1):
        show(f"round {number} of {rounds}")
        # Another order in each round: what ran before leaves caches as it likes them.
        for name in names[number % len(names) :] + names[: number % len(names)]:
            figure = rivals[name]()
            if number:  # the first round warms up
                seconds[name].append(figure)
    return seconds


def ratios(of: Sequence[float], to: Sequence[float]) -> Spread:
    """How many times ``to`` each of ``of`` took, round by round."""
    return Spread.of([a / b for a, b in zip(of, to, strict=True)])


def machine() -> str:
    """Processor and number of cores, in words."""
    model = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return f"{model}, {os.cpu_count()} cores, {platform.system()}"

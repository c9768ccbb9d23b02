"""How a hit and the memory of an entry behave with 100 to 100,000 live functions.

Each round grows to the largest number and starts again, so that all sizes see the same machine.
"""

from __future__ import annotations

import gc
import math
import random
import tracemalloc
from collections.abc import Callable
from typing import Any

from benchmarks.rivals import Interned, lru_cached
from benchmarks.tables import Check, Lines, Result, Table
from benchmarks.timing import Spread, ratios, time_once
from fnintern import cache_clear

__all__ = ["run"]

SIZES = (100, 1_000, 10_000, 100_000)
#: How many functions the "few" columns go round: as many as the smallest size has.
FEW = 100


class Owner:
    def method(self, x: Any) -> Any:
        return x


def _function(number: int) -> Callable[[Any], Any]:
    return lambda x: x + number


def _method(number: int) -> Any:
    return Owner().method


KINDS: dict[str, Callable[[int], Any]] = {"function": _function, "bound method": _method}


def _pass(memo: Callable[..., Any], callables: list[Any], hits: int) -> float:
    """Seconds a hit, going round the callables until there were about ``hits`` hits."""
    names = {"memo": memo, "callables": callables}
    statement = "for f in callables: memo(f, True)"
    time_once(statement, names, 1)
    return time_once(statement, names, max(1, hits // len(callables))) / len(callables)


def _spread_out(callables: list[Any]) -> list[Any]:
    """Few of them, from everywhere, in no order that memory has."""
    return random.Random(0).sample(callables, FEW)


def _measure(kind: str, memo: Any, size: int, hits: int) -> tuple[float, float]:
    """Seconds a hit of few, and of all; infinity where a call misses, and there is none to time."""
    callables = [KINDS[kind](i) for i in range(size)]
    for f in callables:
        memo(f, True)
    misses = memo.cache_info().misses
    for f in _spread_out(callables):
        memo(f, True)
    if memo.cache_info().misses != misses:
        return math.inf, math.inf
    few = _pass(memo, _spread_out(callables), hits)
    random.Random(1).shuffle(callables)
    return few, _pass(memo, callables, hits)


def _memory(kind: str, memo: Callable[..., Any], size: int) -> float:
    """Bytes an entry, with the wrapper and all that fnintern adds to its callable."""
    callables = [KINDS[kind](i) for i in range(size)]
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for f in callables:
        memo(f, True)
    gc.collect()
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return used / size


NOTES = """\
A hit with many live functions, in hits with 100 of them: median (quartiles). *few*: going round
100 of them, taken from everywhere. *all*: each of them once, in random order, which from 10,000
on asks of memory what no cache of the processor holds, of `lru_cache` too. *bytes*: what one
entry takes, with its wrapper."""

CASES: list[tuple[str, str, Callable[[], Callable[..., Any]]]] = [
    ("interned", "function", lambda: Interned),
    ("interned", "bound method", lambda: Interned),
    ("lru_cache", "function", lru_cached),
]


def run(rounds: int, hits: int, show: Callable[[str], None]) -> Result:
    """A row for each memo, kind of callable and number of them."""
    figures: dict[tuple[str, str, int], list[tuple[float, float]]] = {}
    for number in range(rounds):
        for name, kind, make in CASES:
            for size in SIZES:
                show(f"{name}, {size} of a {kind}: round {number + 1} of {rounds}")
                memo = make()
                figures.setdefault((name, kind, size), []).append(_measure(kind, memo, size, hits))
                _clear(memo)
    rows, checks = [], []
    lines: dict[str, list[tuple[float, float]]] = {}
    for name, kind, make in CASES:
        for size in SIZES:
            few, every = zip(*figures[name, kind, size], strict=True)
            few_at_100, every_at_100 = zip(*figures[name, kind, SIZES[0]], strict=True)
            what = f"{name}, {kind}"
            if math.inf in few:
                rows.append([what, f"{size:,}", "misses", "misses", "", "", ""])
                ratio = Spread(math.inf, math.inf, math.inf, math.inf)
                continue
            memo = make()
            memory = _memory(kind, memo, size)
            _clear(memo)
            ratio = ratios(few, few_at_100)
            ns = [Spread.of(seconds).median * 1e9 for seconds in (few, every)]
            cells = [str(ratio), str(ratios(every, every_at_100)), *(f"{x:.0f}" for x in ns)]
            rows.append([what, f"{size:,}", *cells, f"{memory:.0f}"])
            for order, figure in zip(("few", "all"), ns, strict=True):
                lines.setdefault(f"{what}, {order}", []).append((size, figure))
        if name == "interned":
            what = f"hit of a {kind} with {SIZES[-1]} live / with {SIZES[0]}"
            checks.append(Check(what, ratio.median, 1.3))
    heads = ["memo", "live", "few", "all", "few, ns", "all, ns", "bytes"]
    plot = Lines("growth", "A hit with many live functions", "live", "ns a hit", lines, log="xy")
    return Result("Many live functions", NOTES, [Table(heads, rows)], checks, [plot])


def _clear(memo: Any) -> None:
    if memo is Interned:
        cache_clear(memo)
    else:
        memo.cache_clear()
    gc.collect()

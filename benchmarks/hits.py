"""A hit of ``interned``, against other memos, for each way to spell a call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from benchmarks.rivals import (
    Interned,
    InternedByValue,
    lru_cached,
    weak_dict_memo,
    weak_value_interned,
    weakref_lru_cached,
)
from benchmarks.tables import Check, Result, Table
from benchmarks.timing import Spread, race, ratios, time_once

__all__ = ["run"]

NOTES = """\
A hit of `@interned` on a two-field dataclass, in hits of each rival: median (quartiles). The last
two columns are `by="value"`, which looks at all that the function can see, in hits of by object.
What is called with is kept, but for the partial made anew and the method, which is looked up at
each call."""


def branch(x: Any) -> Any:
    return x


class Owner:
    def method(self, x: Any) -> Any:
        return x


#: Spelling -> the statement to time.
CALLS = {
    "positional": "memo(f, True)",
    "one by keyword": "memo(f, graph=True)",  # as flax spells it
    "both by keyword": "memo(f=f, graph=True)",
    "one partial, kept": "memo(kept, True)",
    "partial made anew": "memo(partial(f, 1), True)",
    "bound method": "memo(owner.method, True)",
}
OURS, BY_VALUE = "interned", "by value"


def run(rounds: int, number: int, show: Callable[[str], None]) -> Result:
    """A row for each spelling."""
    memos = {
        "lru_cache": lru_cached(),
        "weakref_lru_cache": weakref_lru_cached(),
        "weak_value_interner": weak_value_interned(),
        "WeakKeyDictionary": weak_dict_memo(),
    }
    #: What a rival cannot do.
    unable = {
        ("weakref_lru_cache", "both by keyword"): "f by position only",
        **{(name, "partial made anew"): "always misses" for name in memos},
    }
    names = {
        "f": branch,
        "kept": functools.partial(branch, 1),
        "owner": Owner(),
        "partial": functools.partial,
    }
    rows, checks = [], []
    for spelling, statement in CALLS.items():
        rivals: dict[str, Callable[[], float]] = {}
        for name, memo in {OURS: Interned, BY_VALUE: InternedByValue, **memos}.items():
            if memo is not None and (name, spelling) not in unable:
                case = {**names, "memo": memo}
                case["held"] = eval(statement, dict(case))  # else weak_value_interner forgets it
                # By value a hit takes some ten times as long.
                times = number // 5 if name == BY_VALUE else number
                rivals[name] = functools.partial(time_once, statement, case, times)
        seconds = race(rivals, rounds, lambda line: show(f"{spelling}: {line}"))
        ours = seconds[OURS]
        cells = []
        for name, memo in memos.items():
            if name not in seconds:
                cells.append("absent" if memo is None else unable[name, spelling])
                continue
            ratio = ratios(ours, seconds[name])
            cells.append(str(ratio))
            if spelling == "positional" and name != "weak_value_interner":
                bound, strict = (3.0, False) if name == "lru_cache" else (1.0, True)
                checks.append(Check(f"positional hit / {name}", ratio.median, bound, strict))
        ns, value_ns = (Spread.of(seconds[name]).median * 1e9 for name in (OURS, BY_VALUE))
        value = ratios(seconds[BY_VALUE], ours)
        rows.append([spelling, *cells, f"{ns:.0f}", str(value), f"{value_ns:.0f}"])
    heads = ["call", *memos, "interned, ns", "by value / by object", "by value, ns"]
    return Result("A hit", NOTES, [Table(heads, rows)], checks)

"""A hit of ``interned``, against other memos, for each way to spell a call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from benchmarks.rivals import Interned, lru_cached, weak_dict_memo, weakref_lru_cached
from benchmarks.timing import Check, Result, Spread, race, ratios, time_once

__all__ = ["run"]


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


def run(rounds: int, number: int, show: Callable[[str], None]) -> Result:
    """A line for each spelling."""
    memos = {
        "lru_cache": lru_cached(),
        "weakref_lru_cache": weakref_lru_cached(),
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
    lines = [
        "A hit of interned on a two-field dataclass, in hits of each rival: median (quartiles).",
        f"{'call':18}" + "".join(f"{name:>24}" for name in memos) + f"{'interned, ns':>14}",
    ]
    checks = []
    for spelling, statement in CALLS.items():
        rivals: dict[str, Callable[[], float]] = {}
        for name, memo in {"interned": Interned, **memos}.items():
            if memo is not None and (name, spelling) not in unable:
                case = {**names, "memo": memo}
                rivals[name] = functools.partial(time_once, statement, case, number)
        seconds = race(rivals, rounds, lambda line: show(f"{spelling}: {line}"))
        ours = seconds["interned"]
        cells = []
        for name, memo in memos.items():
            if name not in seconds:
                cells.append("absent" if memo is None else unable[name, spelling])
                continue
            ratio = ratios(ours, seconds[name])
            cells.append(str(ratio))
            if spelling == "positional":
                bound, strict = (3.0, False) if name == "lru_cache" else (1.0, True)
                checks.append(Check(f"positional hit / {name}", ratio.median, bound, strict))
        ns = Spread.of(ours).median * 1e9
        lines.append(f"{spelling:18}" + "".join(f"{c:>24}" for c in cells) + f"{ns:>14.0f}")
    return Result(lines, checks)

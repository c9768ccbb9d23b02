"""Hits, misses and bypasses of each operation since the program started, and why they bypassed.

A hit adds one to a number. A bypass is logged under the name ``fnintern``: at INFO when an
operation has a reason for the first time, at DEBUG from then on, with the user's line.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from typing import Final

import attrs

from fnintern.counting.lines import user_line
from fnintern.keys.reasons import Obstacle

__all__ = ["Counts", "OperationCounts", "Summary", "summary"]

_log: Final = logging.getLogger("fnintern")

#: Reasons that are told apart for one operation.
_MAX_REASONS: Final = 64
_OTHERS: Final = Obstacle("f", "function", "one of many other reasons")


class Counts:
    """What became of the calls of one operation. Its owner adds to the numbers."""

    __slots__ = ("__weakref__", "bypassed", "hits", "misses", "operation", "reasons")

    def __init__(self, operation: str) -> None:
        self.operation = operation
        self.hits = 0
        self.misses = 0
        self.bypassed = 0
        self.reasons: dict[Obstacle, int] = {}
        if len(_past) > _MAX_PAST:
            _add_up_past()
        _live[id(self)] = weakref.ref(self)

    def __del__(self) -> None:
        # At any bytecode of any thread: nothing is asked for here.
        _live.pop(id(self), None)
        if self.hits or self.misses or self.bypassed:
            _past.append(self._as_row())

    def again(self) -> Counts:
        """New counts of the same operation."""
        return Counts(self.operation)

    def miss(self) -> None:
        self.misses += 1
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("%s: nothing to share yet at %s", self.operation, user_line())

    def bypass(self, reason: Obstacle) -> None:
        self.bypassed += 1
        count = self.reasons.get(reason, 0)
        if not count and len(self.reasons) >= _MAX_REASONS:
            reason = _OTHERS
            count = self.reasons.get(reason, 0)
        self.reasons[reason] = count + 1
        level = logging.DEBUG if count else logging.INFO
        if _log.isEnabledFor(level):
            text = "%s: made as without fnintern at %s: %s"
            _log.log(level, text, self.operation, user_line(), reason)

    def _as_row(self) -> tuple[str, OperationCounts]:
        reasons = {str(reason): count for reason, count in list(self.reasons.items())}
        row = OperationCounts(self.hits, self.misses, self.bypassed, reasons)
        return self.operation, row


#: Those in use, by their ids.
_live: Final[dict[int, weakref.ref[Counts]]] = {}
#: What those have counted that are gone, by parts.
_past: Final[list[tuple[str, OperationCounts]]] = []
_MAX_PAST: Final = 1000
_adding = threading.Lock()


def _renew_lock() -> None:
    global _adding
    _adding = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


@attrs.frozen
class OperationCounts:
    """What became of the calls of one operation.

    Attributes:
        hits: calls that found what was traced before.
        misses: calls that traced, for others to find.
        bypassed: calls that were made as without fnintern.
        reasons: why, each with the number of calls.
    """

    hits: int = 0
    misses: int = 0
    bypassed: int = 0
    reasons: dict[str, int] = attrs.field(factory=dict)

    def _plus(self, other: OperationCounts, sign: int = 1) -> OperationCounts:
        reasons = dict(self.reasons)
        for reason, count in other.reasons.items():
            reasons[reason] = reasons.get(reason, 0) + sign * count
        return OperationCounts(
            self.hits + sign * other.hits,
            self.misses + sign * other.misses,
            self.bypassed + sign * other.bypassed,
            {reason: count for reason, count in reasons.items() if count},
        )


@attrs.frozen(repr=False)
class Summary:
    """What became of calls, by operation; its text is a table.

    Attributes:
        operations: name of the operation -> :class:`OperationCounts`. Those without a call are left
            out.
    """

    operations: dict[str, OperationCounts]

    @property
    def total(self) -> OperationCounts:
        """The same for all operations together."""
        total = OperationCounts()
        for counts in self.operations.values():
            total = total._plus(counts)
        return total

    def since(self, earlier: Summary) -> Summary:
        """What was counted since another summary was made."""
        rows = {
            name: counts._plus(earlier.operations.get(name, OperationCounts()), -1)
            for name, counts in self.operations.items()
        }
        return Summary({n: c for n, c in rows.items() if c.hits or c.misses or c.bypassed})

    def __repr__(self) -> str:
        if not self.operations:
            return "no calls of operations that fnintern shares"
        width = max(len("operation"), *map(len, self.operations))
        lines = [f"{'operation':{width}}  {'hits':>8}  {'misses':>8}  {'bypassed':>8}"]
        for name, counts in sorted(self.operations.items()):
            numbers = (counts.hits, counts.misses, counts.bypassed)
            lines.append(f"{name:{width}}  " + "  ".join(f"{number:8}" for number in numbers))
            worst = sorted(counts.reasons.items(), key=lambda item: -item[1])
            lines += [f"  {count} times: {reason}" for reason, count in worst]
        return "\n".join(lines)


def summary() -> Summary:
    """Hits, misses and bypasses since the program started, by operation and by reason.

    It counts the calls of operations that a patch replaced and of :func:`staged`, :func:`jit` and
    :mod:`fnintern.lax`, and those of factories that :func:`interned` decorates. What JAX finds
    again by itself is not counted.

    Returns:
        The counts, as data; ``str()`` is a table.

    Example:
        >>> import fnintern
        >>> @fnintern.interned
        ... def wrap_in_list(f):
        ...     return [f]
        >>> _ = wrap_in_list(abs), wrap_in_list(abs), wrap_in_list([1])
        >>> fnintern.summary().operations["wrap_in_list"]  # doctest: +ELLIPSIS
        OperationCounts(hits=1, misses=1, bypassed=1, reasons={'f is a list: ...': 1})
    """
    found = (ref() for ref in list(_live.values()))
    now = [counts._as_row() for counts in found if counts is not None]
    return Summary(_added_up([*_past, *now]))


def _added_up(rows: list[tuple[str, OperationCounts]]) -> dict[str, OperationCounts]:
    found: dict[str, OperationCounts] = {}
    for name, row in rows:
        if row.hits or row.misses or row.bypassed:
            found[name] = found.get(name, OperationCounts())._plus(row)
    return found


def _add_up_past() -> None:
    if _adding.acquire(blocking=False):  # else another thread does it, or this one
        try:
            count = len(_past)  # more may be appended meanwhile
            _past[:count] = _added_up(_past[:count]).items()
        finally:
            _adding.release()

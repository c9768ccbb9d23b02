"""What was traced again, where, why, and at what cost.

:func:`retraces` watches any code, without a change to it::

    with fnintern.retraces() as seen:
        train()
    print(seen)
    seen.assert_none()

Nothing is hooked or patched unless such a block is running, and importing this module imports no
jax. The counts are jax's own: each event that ``jax._src.test_util`` counts is counted here once.

What is a re-trace? A trace of a function that had been traced before, during an earlier run of a
user's line. The first one is not, nor is what it traces inside itself; and one run of a line is one
trace, however many passes jax makes over the function. A trace inside a re-trace is its consequence
and counts in its row, and so is what a library does in the same call after it.
"""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, TypeVar

import attrs

from fnintern.libraries.importing import check_installed
from fnintern.running import around

from .recorder import Recorder, Span, Tally, lock
from .table import plain

__all__ = ["Retrace", "Retraces", "Span", "retraces"]

F = TypeVar("F", bound=Callable[..., Any])

_EXAMPLES: Final = 3


@attrs.frozen
class Retrace:
    """One cause of re-tracing at one of the user's lines. Holds text and numbers only.

    Attributes:
        kind: ``wrapper``, ``function``, ``partial``, ``method``, ``transform``, ``shape``,
            ``structure``, ``static``, ``context``, ``compile`` or ``other``.
        cause: the cause in a sentence, with names and values.
        remedy: what to change.
        functions: the functions that were traced again at this line for this cause.
        defined: where the first of them is defined, ``file:line``.
        file: the file of the user's line.
        line: its number.
        source: its text, if it can be read.
        calls: how often the line was run with such a re-trace.
        traces: tracing cache misses, those within the function included.
        compiles: compilations that followed.
        tracing: seconds spent tracing; and `lowering`, `compiling` likewise.
        examples: further causes in this row that differ in their values.
    """

    kind: str
    cause: str
    remedy: str
    functions: tuple[str, ...]
    defined: str
    file: str
    line: int
    source: str
    calls: int
    traces: int
    compiles: int
    tracing: float
    lowering: float
    compiling: float
    examples: tuple[str, ...] = ()

    @property
    def function(self) -> str:
        """The functions' names, as one text."""
        return ", ".join(self.functions)

    @property
    def seconds(self) -> float:
        """All that this cause cost."""
        return self.tracing + self.lowering + self.compiling


class Retraces:
    """A report of re-traces: made by :func:`retraces`, and filled while its block runs."""

    def __init__(self) -> None:
        self._seen = Recorder()

    def __enter__(self) -> Retraces:
        if self._seen.started is not None:
            raise RuntimeError("this report was made already; call fnintern.retraces() for another")
        self._seen.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def __call__(self, function: F) -> F:
        """As a decorator: makes a report for each call, the latest as ``function.retraces``."""

        def begin() -> Retraces:
            decorated.retraces = Retraces()  # type: ignore[attr-defined]
            return decorated.retraces  # type: ignore[attr-defined,no-any-return]

        decorated = around(function, begin)
        decorated.retraces = self  # type: ignore[attr-defined]
        return decorated

    def stop(self) -> None:
        """End the report, as the end of its block does. Once is enough, more do no harm."""
        self._seen.stop()

    @property
    def traces(self) -> int:
        """Every tracing cache miss in the block, first traces too, as jax counts them."""
        return self._seen.traces

    @property
    def compiles(self) -> int:
        """Every compilation in the block, as jax counts them."""
        return self._seen.compiles

    @property
    def elapsed(self) -> float:
        """Seconds that the block took; while it runs, those until now."""
        return self._seen.elapsed

    @property
    def problems(self) -> list[str]:
        """What was counted but not explained, as on a jax whose internals are new to us."""
        return self._seen.problems

    @property
    def rows(self) -> list[Retrace]:
        """The re-traces, those that cost the most seconds first.

        Example:
            >>> from fnintern import retraces
            >>> with retraces() as seen:
            ...     pass
            >>> seen.rows
            []
        """
        return [_row(tally) for tally in self._sorted()]

    @property
    def spans(self) -> list[Span]:
        """Where the time went, for a timeline; the earliest 20,000 stretches."""
        index = {id(tally): i for i, tally in enumerate(self._sorted())}
        with lock:
            spans = list(self._seen.spans)
        return [attrs.evolve(span, row=index.get(id(tally), -1)) for tally, span in spans]

    @property
    def retraced(self) -> int:
        """How often one of the user's lines was run with a re-trace, whatever that traced inside.

        A new shape is one. This is the number that a test can put a bound on.
        """
        with lock:
            return len(set[int]().union(*(t.executions for t in self._seen.tallies.values())))

    @property
    def recompiled(self) -> int:
        """How many of :attr:`compiles` followed from re-traces."""
        return sum(row.compiles for row in self.rows)

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of tracing, lowering and compiling in the block, first traces too."""
        with lock:
            tallies = [self._seen.first, *self._seen.tallies.values()]
            return {
                kind: sum(t.seconds[kind] for t in tallies) for kind in self._seen.first.seconds
            }

    @property
    def first_seconds(self) -> float:
        """Seconds that first traces, and what follows from them, took."""
        return sum(self._seen.first.seconds.values())

    def assert_none(self) -> None:
        """Raise unless nothing was traced again.

        Raises:
            AssertionError: there was a re-trace, or something that could not be explained and may
                have been one. The message is the table.
            RuntimeError: no block was run under this report.

        Example:
            >>> from fnintern import retraces
            >>> with retraces() as seen:
            ...     pass
            >>> seen.assert_none()
        """
        if self._seen.started is None:
            raise RuntimeError(
                "this report has watched nothing; write `with fnintern.retraces() as seen:` around "
                "the code, and call seen.assert_none() after it"
            )
        if self._seen.tallies or self.problems:
            raise AssertionError(str(self))

    def __str__(self) -> str:
        return plain(self)

    def __repr__(self) -> str:
        if self._seen.started is None:
            return "<Retraces: not begun; use it in a `with` statement>"
        return f"<Retraces: {self.retraced} re-traces by {len(self._seen.tallies)} causes>"

    def _sorted(self) -> list[Tally]:
        with lock:
            tallies = list(self._seen.tallies.values())
        return sorted(tallies, key=lambda t: (-sum(t.seconds.values()), -t.traces))


def retraces() -> Retraces:
    """Watch a block of code for what jax traces again.

    Works across threads; blocks may be nested, each makes a report of its own. A report begins
    fresh: what was traced before it is known only where jax still holds the very function.

    Returns:
        A context manager that gives a :class:`Retraces`. As a decorator it makes one for each call
        of the function; the latest is its attribute ``retraces``.

    Raises:
        ImportError: jax is not installed; the message says what to install.

    Example:
        >>> from fnintern import retraces
        >>> with retraces() as seen:
        ...     pass
        >>> print(seen)
        no re-traces (0 first traces, 0 compilations)
        >>> @retraces()
        ... def train():
        ...     pass
        >>> train()
        >>> train.retraces.assert_none()
    """
    check_installed("retraces()", "jax")
    return Retraces()


def _row(tally: Tally) -> Retrace:
    cause, place = tally.cause, tally.place
    assert cause is not None
    assert place is not None
    texts = list(tally.texts)
    return Retrace(
        kind=cause.kind,
        cause=texts[0],
        remedy=cause.remedy,
        functions=tuple(tally.functions),
        defined=next(iter(tally.functions.values()), ""),
        file=place.file,
        line=place.line,
        source=linecache.getline(place.file, place.line).strip(),
        calls=len(tally.executions),
        traces=tally.traces,
        compiles=tally.compiles,
        tracing=tally.seconds["tracing"],
        lowering=tally.seconds["lowering"],
        compiling=tally.seconds["compiling"],
        examples=tuple(itertools.islice(texts, 1, _EXAMPLES + 1)),
    )

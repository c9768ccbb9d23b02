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
import sys
import threading
import time
from collections.abc import Sequence
from types import CodeType, FrameType, TracebackType
from typing import Any, Final

import attrs

from . import _jaxprobe
from ._described import Function, describe
from ._frames import Place, locate, mark
from .causes import Cause, compiled_again, tell_apart

__all__ = ["Retrace", "Retraces", "Span", "retraces"]

_EARLIER: Final = 16  # traces of one definition that a new one is compared with
_SPANS: Final = 20_000  # a page with more than that is of no use to anyone
_EXAMPLES: Final = 3
_WORK: Final = {
    _jaxprobe.LOWERING_SECONDS: "lowering",
    _jaxprobe.COMPILE_SECONDS: "compiling",
}


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


@attrs.frozen
class Span:
    """A stretch of time spent by jax on one thing. `row` is an index into the rows, or -1."""

    kind: str  # tracing, lowering, compiling
    start: float  # seconds since the report began
    seconds: float
    name: str
    where: str
    thread: str
    row: int


class _Tally:
    """Counts and seconds of one row while they grow; one more holds all that is no re-trace."""

    def __init__(self, cause: Cause | None = None, place: Place | None = None) -> None:
        self.cause = cause
        self.place = place
        self.functions: dict[str, str] = {}
        self.executions: set[int] = set()
        self.texts: dict[str, None] = {}
        self.traces = self.compiles = 0
        self.seconds = {"tracing": 0.0, "lowering": 0.0, "compiling": 0.0}


@attrs.define(eq=False)
class _Trace:
    """A trace under way. The mark on its frame in jax holds it, and ends it."""

    place: Place
    name: str
    started: float
    tallies: list[tuple[Retraces, _Tally]]
    enclosing: _Trace | None
    inside: float = 0.0  # seconds of what is counted by itself

    def end(self) -> None:
        now = time.perf_counter()
        if self.enclosing is not None:
            self.enclosing.inside += now - self.started
        else:
            _local.finished.append((self.started, now))
        own = max(0.0, now - self.started - self.inside)
        for report, tally in self.tallies:
            report._spent(self, tally, "tracing", self.started, now - self.started, own)


class _Local(threading.local):
    def __init__(self) -> None:
        #: The outermost traces that ended since the last lowering.
        self.finished: list[tuple[float, float]] = []
        #: Seconds of lowering of which it is not known yet to which row they belong.
        self.waiting: tuple[_Work, str, float, float, float] | None = None
        #: Is a function being described? Should that run jax, it is counted but not judged.
        self.busy = False


_local = _Local()
_lock = threading.RLock()  # reentrant: a collection in it may end a trace whose frame was garbage
_active: tuple[Retraces, ...] = ()
_uninstall: Any = None
_trace_code: CodeType | None = None


class Retraces:
    """A report of re-traces: made by :func:`retraces`, and filled while its block runs.

    Attributes:
        traces: every tracing cache miss in the block, first traces too, as jax counts them.
        compiles: every compilation, likewise.
        elapsed: seconds that the block took.
        problems: what could not be explained, though it was counted; as on a jax whose internals
            are not those that this release knows.
    """

    def __init__(self) -> None:
        self.traces = 0
        self.compiles = 0
        self.elapsed = 0.0
        self.problems: list[str] = []
        self._started: float | None = None
        self._running = False
        self._first = _Tally()
        self._tallies: dict[Any, _Tally] = {}
        self._functions: dict[Any, list[tuple[int, Function]]] = {}
        self._latest: dict[int, _Tally] = {}
        self._compiled: dict[Any, tuple[int, _jaxprobe.Key]] = {}
        self._spans: list[tuple[_Tally, Span]] = []
        self._call_off: Any = None

    # --- the block ---------------------------------------------------------------------------

    def __enter__(self) -> Retraces:
        global _active
        if self._started is not None:
            raise RuntimeError("this report was made already; call fnintern.retraces() for another")
        self._started = time.perf_counter()
        self._running = True
        with _lock:
            _active = (*_active, self)
        self._call_off = _jaxprobe.when_imported("jax", _hook)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        global _active
        assert self._started is not None
        self._call_off()
        with _lock:
            self.elapsed = time.perf_counter() - self._started
            if "jax" in sys.modules and not _jaxprobe.counts():
                self.problems.append("this jax does not say what it traces: nothing was counted")
            self._running = False
            _active = tuple(report for report in _active if report is not self)
            if not _active:
                _unhook()
            # All that refers to the user's functions goes here.
            self._functions.clear()
            self._latest.clear()
            self._compiled.clear()
            self._call_off = None

    # --- results -----------------------------------------------------------------------------

    @property
    def rows(self) -> list[Retrace]:
        """The re-traces, those that cost the most seconds first.

        Example:
            >>> import fnintern.retraces
            >>> with fnintern.retraces.retraces() as seen:
            ...     pass
            >>> seen.rows
            []
        """
        return [_row(tally) for tally in self._sorted()]

    @property
    def spans(self) -> list[Span]:
        """Where the time went, for a timeline; the earliest 20,000 stretches."""
        index = {id(tally): i for i, tally in enumerate(self._sorted())}
        with _lock:
            spans = list(self._spans)
        return [attrs.evolve(span, row=index.get(id(tally), -1)) for tally, span in spans]

    @property
    def retraced(self) -> int:
        """How many of :attr:`traces` are re-traces."""
        return sum(row.traces for row in self.rows)

    @property
    def recompiled(self) -> int:
        """How many of :attr:`compiles` followed from re-traces."""
        return sum(row.compiles for row in self.rows)

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of tracing, lowering and compiling in the block, first traces too."""
        with _lock:
            tallies = [self._first, *self._tallies.values()]
            return {kind: sum(t.seconds[kind] for t in tallies) for kind in self._first.seconds}

    @property
    def first_seconds(self) -> float:
        """Seconds that first traces, and what follows from them, took."""
        return sum(self._first.seconds.values())

    def assert_none(self) -> None:
        """Raise unless nothing was traced again.

        Raises:
            AssertionError: there was a re-trace, or something that could not be explained and may
                have been one. The message is the table.

        Example:
            >>> import fnintern.retraces
            >>> with fnintern.retraces.retraces() as seen:
            ...     pass
            >>> seen.assert_none()
        """
        if self._tallies or self.problems:
            raise AssertionError(str(self))

    def __str__(self) -> str:
        from .retraces_table import plain

        return plain(self)

    def __repr__(self) -> str:
        return f"<Retraces: {len(self._tallies)} causes, {self.retraced} of {self.traces} traces>"

    def _sorted(self) -> list[_Tally]:
        with _lock:
            tallies = list(self._tallies.values())
        return sorted(tallies, key=lambda t: (-sum(t.seconds.values()), -t.traces))

    # --- events ------------------------------------------------------------------------------

    def _traced(self, place: Place, miss: _jaxprobe.Miss | None, new: Function | None) -> _Tally:
        """Count a trace that no other trace encloses, and say where it belongs."""
        with _lock:
            inherited = self._latest.get(place.execution)
        tally = inherited or self._first
        if miss is not None and new is not None and (new.users or inherited is None):
            try:
                tally = self._judge(place, miss, new)
            except Exception as error:
                self._problem(error)
        with _lock:
            self.traces += 1
            tally.traces += 1
            self._latest[place.execution] = tally
        return tally

    def _judge(self, place: Place, miss: _jaxprobe.Miss, new: Function) -> _Tally:
        definition = _definition(place, new)
        with _lock:
            known = self._functions.setdefault(definition, [])
            earlier = [old for run, old in known if run != place.execution]
            known.append((place.execution, new))
            del known[:-_EARLIER]
        if not earlier and new.users and not new.layers:
            earlier = _held_by_jax(miss, new)
        if not earlier:
            return self._first
        cause = tell_apart(new, earlier)
        if cause is None and (held := _held_by_jax(miss, new)):
            cause = tell_apart(new, held)  # jax has dropped some of what we have seen
        if cause is None:
            words = _jaxprobe.explain_miss(miss)
            cause = Cause("other", words, words, "see what jax says; clear no caches in a loop")
        # One wrapper around several functions, as both branches of a cond, is one cause.
        name = f"{new.name} of {new.library}" if new.library else new.name
        one = "" if cause.kind == "wrapper" else (name, new.defined)
        row = (place.file, place.line, cause.kind, cause.topic, one)
        return self._charge(row, cause, place, name, new.defined)

    def _compiled_at(self, place: Place, name: str, avals: tuple[Any, ...]) -> _Tally:
        """Where a compilation belongs: to the traces of the same run of the line, if any."""
        key = _jaxprobe.Key(avals, (), None, {}, ())
        with _lock:
            before, was = self._compiled.get((place.path, name), (place.execution, key))
            self._compiled[place.path, name] = place.execution, key
            tally = self._latest.get(place.execution)
            if tally is not None:
                return tally
        if before == place.execution:
            return self._first
        cause = compiled_again(name, key, was)
        return self._charge((place.file, place.line, cause.kind, cause.topic), cause, place, name)

    def _problem(self, error: Exception) -> None:
        # The user's program goes on; the report says that it is not whole.
        self.problems.append(f"{type(error).__name__}: {error}")

    def _charge(self, row: Any, cause: Cause, place: Place, name: str, defined: str = "") -> _Tally:
        with _lock:
            tally = self._tallies.setdefault(row, _Tally(cause, place))
            tally.functions.setdefault(name, defined)
            tally.executions.add(place.execution)
            tally.texts.setdefault(cause.text)
            self._latest[place.execution] = tally
            return tally

    def _spent(
        self,
        what: _Trace | _Work,
        tally: _Tally,
        kind: str,
        start: float,
        seconds: float,
        own: float,
    ) -> None:
        """Add `own` seconds to a row, of a stretch of `seconds` on the timeline."""
        with _lock:
            if not self._running or self._started is None:
                return
            tally.seconds[kind] += own
            if len(self._spans) < _SPANS:
                place = what.place
                self._spans.append(
                    (
                        tally,
                        Span(
                            kind=kind,
                            start=start - self._started,
                            seconds=seconds,
                            name=what.name,
                            where=f"{place.file}:{place.line}",
                            thread=threading.current_thread().name,
                            row=-1,
                        ),
                    )
                )


def retraces() -> Retraces:
    """Watch a block of code for what jax traces again.

    Works across threads; blocks may be nested, each makes a report of its own. A report begins
    fresh: what was traced before it is known only where jax still holds the very function.

    Returns:
        A context manager that gives a :class:`Retraces`.

    Example:
        >>> import fnintern.retraces
        >>> with fnintern.retraces.retraces() as seen:
        ...     pass
        >>> print(seen)
        no re-traces (0 first traces, 0 compilations)
    """
    return Retraces()


def _held_by_jax(miss: _jaxprobe.Miss, new: Function) -> list[Function]:
    """The traces of this very function that jax still has, those of before the report too."""
    held = [describe(miss, key) for key in _jaxprobe.live_keys(miss)]
    # jax may have entered the key that it is about to fill.
    return [old for old in held if tell_apart(new, [old]) is not None]


def _definition(place: Place, new: Function) -> Any:
    """What makes two traces traces of the same function."""
    if not new.users:
        # A library's function is shared by every line; each line has its own first trace of it.
        return (place.path, new.name, new.code, new.traced_for)
    layers = tuple((layer.kind, layer.name, layer.module) for layer in new.layers)
    # A wrapper or a partial has no line of its own: it is told by the line that uses it.
    return (new.code, new.file, new.traced_for, layers, place.spot if layers else None)


def _row(tally: _Tally) -> Retrace:
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


# --- jax's events ------------------------------------------------------------------------------


def _hook() -> None:
    global _uninstall
    with _lock:
        if _active and _uninstall is None:
            _uninstall = _jaxprobe.install(_on_event, _on_seconds)


def _unhook() -> None:
    global _uninstall
    if _uninstall is not None:
        _uninstall()
        _uninstall = None


def _on_event(event: str, frame: FrameType) -> None:
    if event == _jaxprobe.TRACE_EVENT:
        _on_trace(frame)
    else:
        _on_compile(frame)


def _on_trace(frame: FrameType) -> None:
    global _trace_code
    _trace_code = frame.f_code
    place = locate(frame.f_back, frame.f_code)
    miss = _jaxprobe.read_miss(frame)
    name = miss.func_name if miss is not None else "<unknown>"
    enclosing: _Trace | None = place.enclosing
    trace = _Trace(place, name, time.perf_counter(), [], enclosing)
    if enclosing is not None:
        for report, tally in enclosing.tallies:
            with _lock:
                report.traces += 1
                tally.traces += 1
            trace.tallies.append((report, tally))
    else:
        new = None
        if miss is not None and not _local.busy:
            _local.busy = True
            try:
                new = describe(miss)
            except Exception as error:
                for report in _active:
                    report._problem(error)
            finally:
                _local.busy = False
        for report in _active:
            trace.tallies.append((report, report._traced(place, miss, new)))
    mark(frame, trace, trace.end)


def _on_compile(frame: FrameType) -> None:
    place = locate(frame, _trace_code)
    name, avals = _jaxprobe.read_compile(frame)
    enclosing: _Trace | None = place.enclosing
    if enclosing is not None:
        tallies = enclosing.tallies
    else:
        tallies = [(report, report._compiled_at(place, name, avals)) for report in _active]
    for report, tally in tallies:
        with _lock:
            report.compiles += 1
            tally.compiles += 1
    waiting, _local.waiting = _local.waiting, None
    if waiting is not None and enclosing is None and waiting[0].place.execution == place.execution:
        _spend(tallies, *waiting)


@attrs.frozen
class _Work:
    place: Place
    name: str


def _on_seconds(event: str, seconds: float, name: str) -> None:
    if event not in _WORK:
        return
    now = time.perf_counter()
    place = locate(sys._getframe(2), _trace_code)
    started, own = now - seconds, seconds
    if event == _jaxprobe.LOWERING_SECONDS:
        # Lowering traces too, and those seconds are counted as tracing.
        own -= sum(end - start for start, end in _local.finished if start >= started)
        _local.finished.clear()
    spent = (_Work(place, name), _WORK[event], started, seconds, max(0.0, own))
    if place.enclosing is not None:
        place.enclosing.inside += seconds
        _spend(place.enclosing.tallies, *spent)
        return
    with _lock:
        tallies = [(report, report._latest.get(place.execution)) for report in _active]
    if event == _jaxprobe.LOWERING_SECONDS and None in (tally for _, tally in tallies):
        # Lowered without a trace: the compilation that follows will tell where it belongs.
        _local.waiting = spent
        return
    _spend([(report, tally or report._first) for report, tally in tallies], *spent)


def _spend(tallies: Sequence[tuple[Retraces, _Tally]], work: _Work, *spent: Any) -> None:
    for report, tally in tallies:
        report._spent(work, tally, *spent)

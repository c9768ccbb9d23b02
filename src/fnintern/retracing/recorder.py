"""Follows jax's events while a report is being made, and says to which row each belongs.

One :class:`Recorder` for each report. An event is handled in the thread that it happens in, and no
code of the user's runs under the lock.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from types import CodeType, FrameType
from typing import Any, Final

import attrs

from fnintern.libraries.importing import when_imported

from . import jaxprobe
from .causes import Cause, compiled_again, tell_apart
from .described import Function, describe
from .frames import Place, locate, mark

__all__ = ["Recorder", "Span", "Tally", "lock"]

_EARLIER: Final = 16  # traces of one definition that a new one is compared with
_SPANS: Final = 20_000  # a page with more than that is of no use to anyone
_WORK: Final = {
    jaxprobe.LOWERING_SECONDS: "lowering",
    jaxprobe.COMPILE_SECONDS: "compiling",
}


@attrs.frozen
class Span:
    """A stretch of time spent by jax on one thing.

    Attributes:
        kind: ``tracing``, ``lowering`` or ``compiling``.
        start: when it began, in seconds from the begin of the report.
        seconds: how long it took.
        name: of the function.
        where: where the function is defined.
        thread: the name of the thread.
        row: an index into the rows, or -1 where it belongs to none.
    """

    kind: str
    start: float
    seconds: float
    name: str
    where: str
    thread: str
    row: int


class Tally:
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
    tallies: list[tuple[Recorder, Tally]]
    enclosing: _Trace | None
    inside: float = 0.0  # seconds of what is counted by itself

    def end(self) -> None:
        now = time.perf_counter()
        if self.enclosing is not None:
            self.enclosing.inside += now - self.started
        else:
            _local.finished.append((self.started, now))
        own = max(0.0, now - self.started - self.inside)
        for recorder, tally in self.tallies:
            recorder.spent(self, tally, "tracing", self.started, now - self.started, own)


class _Local(threading.local):
    def __init__(self) -> None:
        #: The outermost traces that ended since the last lowering.
        self.finished: deque[tuple[float, float]] = deque(maxlen=4096)
        #: Seconds of lowering of which it is not known yet to which row they belong.
        self.waiting: tuple[_Work, str, float, float, float] | None = None
        #: Is a function being described? Should that run jax, it is counted but not judged.
        self.busy = False


_local = _Local()
lock = threading.RLock()  # reentrant: a collection in it may end a trace whose frame was garbage
_active: tuple[Recorder, ...] = ()
_uninstall: Any = None
_trace_code: CodeType | None = None


class Recorder:
    """What one report has seen so far."""

    def __init__(self) -> None:
        self.traces = 0
        self.compiles = 0
        self.problems: list[str] = []
        self.first = Tally()
        self.tallies: dict[Any, Tally] = {}
        self.spans: list[tuple[Tally, Span]] = []
        self.started: float | None = None
        self._running = False
        self._ended = 0.0
        self._functions: dict[Any, list[tuple[int, Function]]] = {}
        self._latest: dict[int, Tally] = {}
        self._compiled: dict[Any, tuple[int, jaxprobe.Key]] = {}
        self._call_off: Any = None

    def start(self) -> None:
        """Follow jax's events; from its import on, if it is not imported yet."""
        global _active
        self.started = time.perf_counter()
        self._running = True
        with lock:
            _active = (*_active, self)
        self._call_off = when_imported("jax", _hook)

    def stop(self) -> None:
        """Follow no more, and let go of all that refers to the user's functions."""
        global _active
        if self.started is None or not self._running:
            return
        self._call_off()
        with lock:
            self._ended = time.perf_counter()
            if "jax" in sys.modules and not jaxprobe.counts():
                self.problems.append("this jax does not say what it traces: nothing was counted")
            self._running = False
            _active = tuple(recorder for recorder in _active if recorder is not self)
            if not _active:
                _unhook()
            self._functions.clear()
            self._latest.clear()
            self._compiled.clear()
            self._call_off = None

    @property
    def elapsed(self) -> float:
        """Seconds from the begin to the end, or until now."""
        if self.started is None:
            return 0.0
        return (time.perf_counter() if self._running else self._ended) - self.started

    def traced(self, place: Place, miss: jaxprobe.Miss | None, new: Function | None) -> Tally:
        """Count a trace that no other trace encloses, and say where it belongs."""
        with lock:
            inherited = self.latest(place)
        tally = inherited or self.first
        if miss is not None and new is not None and (new.users or inherited is None):
            try:
                tally = self._judge(place, miss, new)
            except Exception as error:
                self.problem(error)
        with lock:
            self.traces += 1
            tally.traces += 1
            self._latest[place.execution] = tally
        return tally

    def latest(self, place: Place) -> Tally | None:
        """Where the latest trace of this same run of the user's line belongs, if there was one."""
        return self._latest.get(place.execution)

    def _judge(self, place: Place, miss: jaxprobe.Miss, new: Function) -> Tally:
        definition = _definition(place, new)
        with lock:
            if not self._running:  # stopped by another thread: nothing is to be kept
                return self.first
            known = self._functions.setdefault(definition, [])
            earlier = [old for run, old in known if run != place.execution]
            known.append((place.execution, new))
            del known[:-_EARLIER]
        if not earlier and new.users and not new.layers:
            earlier = _held_by_jax(miss, new)
        if not earlier:
            return self.first
        cause = tell_apart(new, earlier)
        if cause is None and (held := _held_by_jax(miss, new)):
            cause = tell_apart(new, held)  # jax has dropped some of what we have seen
        if cause is None:
            words = jaxprobe.explain_miss(miss)
            cause = Cause("other", words, words, "see what jax says; clear no caches in a loop")
        # One wrapper around several functions, as both branches of a cond, is one cause.
        name = f"{new.name} of {new.library}" if new.library else new.name
        one = "" if cause.kind == "wrapper" else (name, new.defined)
        row = (place.file, place.line, cause.kind, cause.topic, one)
        return self._charge(row, cause, place, name, new.defined)

    def compiled_at(self, place: Place, name: str, avals: tuple[Any, ...]) -> Tally:
        """Where a compilation belongs: to the traces of the same run of the line, if any."""
        key = jaxprobe.Key(avals, (), {}, ())
        with lock:
            before, was = self._compiled.get((place.path, name), (place.execution, key))
            self._compiled[place.path, name] = place.execution, key
            tally = self.latest(place)
            if tally is not None:
                return tally
        if before == place.execution:
            return self.first
        cause = compiled_again(name, key, was)
        return self._charge((place.file, place.line, cause.kind, cause.topic), cause, place, name)

    def problem(self, error: Exception) -> None:
        """Note that something could not be explained."""
        self.problems.append(f"{type(error).__name__}: {error}")

    def _charge(self, row: Any, cause: Cause, place: Place, name: str, defined: str = "") -> Tally:
        with lock:
            tally = self.tallies.setdefault(row, Tally(cause, place))
            tally.functions.setdefault(name, defined)
            tally.executions.add(place.execution)
            tally.texts.setdefault(cause.text)
            self._latest[place.execution] = tally
            return tally

    def spent(
        self,
        what: _Trace | _Work,
        tally: Tally,
        kind: str,
        start: float,
        seconds: float,
        own: float,
    ) -> None:
        """Add `own` seconds to a row, of a stretch of `seconds` on the timeline."""
        with lock:
            if not self._running or self.started is None:
                return
            tally.seconds[kind] += own
            if len(self.spans) < _SPANS:
                place = what.place
                self.spans.append(
                    (
                        tally,
                        Span(
                            kind=kind,
                            start=start - self.started,
                            seconds=seconds,
                            name=what.name,
                            where=f"{place.file}:{place.line}",
                            thread=threading.current_thread().name,
                            row=-1,
                        ),
                    )
                )


def _held_by_jax(miss: jaxprobe.Miss, new: Function) -> list[Function]:
    """The traces of this very function that jax still has, those of before the report too."""
    held = [describe(miss, key) for key in jaxprobe.live_keys(miss)]
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


# --- jax's events ------------------------------------------------------------------------------


def _hook() -> None:
    global _uninstall
    with lock:
        if _active and _uninstall is None:
            _uninstall = jaxprobe.install(_on_event, _on_seconds)


def _unhook() -> None:
    global _uninstall
    if _uninstall is not None:
        _uninstall()
        _uninstall = None


def _on_event(event: str, frame: FrameType) -> None:
    try:
        if event == jaxprobe.TRACE_EVENT:
            _on_trace(frame)
        else:
            _on_compile(frame)
    except Exception as error:
        _problem(error)


def _on_seconds(event: str, seconds: float, name: str) -> None:
    try:
        if event in _WORK:
            _on_work(event, seconds, name)
    except Exception as error:
        _problem(error)


def _problem(error: Exception) -> None:
    # Whatever goes wrong here, the program goes on, and the report says that it is not whole.
    for recorder in _active:
        recorder.problem(error)


def _on_trace(frame: FrameType) -> None:
    global _trace_code
    _trace_code = frame.f_code
    place = locate(frame.f_back, frame.f_code)
    miss = jaxprobe.read_miss(frame)
    name = miss.func_name if miss is not None else "<unknown>"
    enclosing: _Trace | None = place.enclosing
    trace = _Trace(place, name, time.perf_counter(), [], enclosing)
    if enclosing is not None:
        trace.tallies = _inside(enclosing)
        with lock:
            for recorder, tally in trace.tallies:
                recorder.traces += 1
                tally.traces += 1
    else:
        new = _described(miss)
        trace.tallies = [(each, each.traced(place, miss, new)) for each in _active]
    mark(frame, trace, trace.end)


def _described(miss: jaxprobe.Miss | None) -> Function | None:
    if miss is None or _local.busy:
        return None
    _local.busy = True
    try:
        return describe(miss)
    except Exception as error:
        _problem(error)
        return None
    finally:
        _local.busy = False


def _inside(enclosing: _Trace) -> list[tuple[Recorder, Tally]]:
    """Where what happens inside a trace belongs: to its row, or to first traces in a report that
    began after it."""
    known = dict(enclosing.tallies)
    return [(recorder, known.get(recorder, recorder.first)) for recorder in _active]


def _on_compile(frame: FrameType) -> None:
    place = locate(frame, _trace_code)
    name, avals = jaxprobe.read_compile(frame)
    if place.enclosing is not None:
        tallies = _inside(place.enclosing)
    else:
        tallies = [(each, each.compiled_at(place, name, avals)) for each in _active]
    with lock:
        for recorder, tally in tallies:
            recorder.compiles += 1
            tally.compiles += 1
    waiting, _local.waiting = _local.waiting, None
    if waiting is not None and waiting[0].place.execution == place.execution:
        _spend(tallies, *waiting)


@attrs.frozen
class _Work:
    place: Place
    name: str


def _on_work(event: str, seconds: float, name: str) -> None:
    """Lowering or compiling has ended, after so many seconds."""
    now = time.perf_counter()
    place = locate(sys._getframe(3), _trace_code)
    started, own = now - seconds, seconds
    if event == jaxprobe.LOWERING_SECONDS:
        # Lowering traces too, and those seconds are counted as tracing.
        own -= sum(end - start for start, end in _local.finished if start >= started)
        _local.finished.clear()
    spent = (_Work(place, name), _WORK[event], started, seconds, max(0.0, own))
    if place.enclosing is not None:
        place.enclosing.inside += seconds
        _spend(_inside(place.enclosing), *spent)
        return
    with lock:
        tallies = [(recorder, recorder.latest(place)) for recorder in _active]
    if event == jaxprobe.LOWERING_SECONDS and None in (tally for _, tally in tallies):
        # Lowered without a trace: the compilation that follows will tell where it belongs.
        _local.waiting = spent
        return
    _spend([(recorder, tally or recorder.first) for recorder, tally in tallies], *spent)


def _spend(tallies: Sequence[tuple[Recorder, Tally]], work: _Work, *spent: Any) -> None:
    for recorder, tally in tallies:
        recorder.spent(work, tally, *spent)

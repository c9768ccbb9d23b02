"""Closure conversion: a higher-order call becomes one jitted function of all it reads (S1, S3, S4).

What the functions in a call *are*, by :func:`fnintern.captures.freezing.freeze`, finds the program;
the arrays that they capture are passed to it at each call. The call that makes a program traces the
user's own functions over the user's own objects and arrays, once. JAX then holds each captured
array as a constant that is that very object, and the program takes it as an operand instead. A
program is used again only if nothing else of the trace depended on the array. Imports jax.
"""

from __future__ import annotations

import threading
import types
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Final

import jax.monitoring

from fnintern.captures.freezing import Frozen
from fnintern.counting.counts import Counts
from fnintern.counting.lines import functions_in, missed
from fnintern.keys import strict
from fnintern.keys.callables import is_partial
from fnintern.keys.reasons import CacheInfo, Explanation, Obstacle, reason_for
from fnintern.keys.tokens import Marker
from fnintern.libraries.settings import ambient_key
from fnintern.lifetime.entries import Entry
from fnintern.lifetime.stores import Token, store_of
from fnintern.staging.arguments import Parameters
from fnintern.staging.call import CHANGED, Call, unkeyable
from fnintern.staging.checks import speaks_of_operands
from fnintern.staging.programs import (
    MAX_UNUSED,
    MAXSIZE,
    History,
    Program,
    jax_jit,
    once_for_shapes,
)
from fnintern.staging.traces import HandsThrough, Plain, traced_shapes

__all__ = ["Conversion", "reason_unconverted"]

#: Programs kept for one key, each for an array whose value its trace has read.
_MAX_PINNED: Final = 8


class Conversion:
    """The programs of one operation.

    Args:
        plain: how a call is traced.
        name: of the operation, for messages and profiles.
        parameters: which of its arguments are special.
        options: for ``wrap``.
        hands_through: which results that are arguments untouched are the very objects.
        wrap: what makes a program of a function of arrays.
    """

    def __init__(
        self,
        plain: Plain,
        name: str,
        parameters: Parameters,
        options: Mapping[str, Any] = types.MappingProxyType({}),
        hands_through: HandsThrough = HandsThrough.ARRAYS,
        wrap: Callable[..., Any] = jax_jit,
    ) -> None:
        self.wrap = once_for_shapes if plain is traced_shapes else wrap
        self.plain = plain
        self.name = name
        self.parameters = parameters
        self.options = options
        self.hands_through = hands_through
        self.counts = Counts(name)
        self.cache_clear()
        _all.add(self)

    def cache_info(self) -> CacheInfo:
        return CacheInfo(
            self.counts.hits,
            self.counts.misses,
            self.counts.bypassed,
            len(self._programs),
            self._programs.maxsize,
        )

    def cache_clear(self) -> None:
        """Forgets all programs, and what was found unfit for conversion."""
        self._programs = Token(MAXSIZE)
        self.counts = self.counts.again()

    def explain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Explanation:
        """How a call would be converted, without making it."""
        try:
            call = Call(self, args, kwargs)
            obstacle = self.why_not(call.frozen) if call.arguments.values else _NOTHING
        except Exception as error:
            obstacle = Obstacle.of(error)
        if obstacle is not None:
            return Explanation(self.name, interned=False, obstacles=(obstacle,))
        keyed_by = "the value of all that its functions capture, and arrays are operands"
        return Explanation(self.name, interned=True, keyed_by=keyed_by, converted=True)

    def run(
        self,
        unconverted: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        keep: Callable[[Call, Any], None] | None = None,
    ) -> Any:
        """Makes the call by its program; by ``unconverted`` where it cannot be converted.

        ``keep`` is told of a call by a program, and of its jitted function.
        """
        call = None
        try:
            call = Call(self, args, kwargs)
            program, hit = self._find(call)
        except Exception as error:  # refused, or code of the user's that reading ran into failed
            strict.check(error)
            return self._run_unconverted(unconverted, args, kwargs, call, reason_for(error))
        if program is None:
            return self._run_unconverted(unconverted, args, kwargs, call, _NOTHING)
        jitted = program.jitted  # another thread may find an obstacle meanwhile
        if program.obstacle is not None or jitted is None:
            reason = program.obstacle or CHANGED
            return self._run_unconverted(unconverted, args, kwargs, call, reason)
        if program.failed:
            result = self._run_unconverted(unconverted, args, kwargs, call, _RAISED)
            program.failed = False
            return result
        try:
            result = call.run(program, jitted)
        except BaseException as error:
            program.failed = call.is_tracing and isinstance(error, Exception)
            # JAX words errors another way for what it has compiled already.
            if not (speaks_of_operands(error) if call.is_tracing else call.has_deleted_arrays()):
                raise
            reason = reason_for(error)
            if call.is_tracing:
                program.obstacle = reason
            result = _FAILED
        if result is _FAILED:  # outside of the handler: what it raises now is its own error
            return self._run_unconverted(unconverted, args, kwargs, call, reason)
        if keep is not None:
            keep(call, jitted)
        if program.obstacle is not None:  # it turned out just now: the result is the plain one
            self.counts.bypass(program.obstacle)
            self._missed(args, kwargs, call, program.obstacle)
        elif hit:
            self.counts.hits += 1
        else:
            self.counts.miss()
            self._missed(args, kwargs, call, None)
        return result

    def _run_unconverted(
        self,
        unconverted: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        call: Call | None,
        reason: Obstacle,
    ) -> Any:
        self.counts.bypass(reason)
        before = _compiled.count
        result = unconverted(*args, **kwargs)
        if _compiled.count != before:  # else JAX has found it again
            self._missed(args, kwargs, call, reason)
        return result

    def _missed(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        call: Call | None,
        reason: Obstacle | None,
    ) -> None:
        """Tells of a call that found no program, once it has returned."""
        functions = functions_in((*args, *kwargs.values()))
        missed(self.counts.operation, functions, reason, None if call is None else call.unused)

    def _find(self, call: Call) -> tuple[Program | None, bool]:
        """The program of a call, and whether it was there; None where nothing identifies the
        call."""
        if not call.arguments.values:
            return None, False
        frozen = call.frozen
        key = (
            self._programs.mark, *call.arguments.spec, Marker.OBJECT, *call.aliases,
            *ambient_key(), *frozen.key,
        )  # fmt: skip
        owner = frozen.owner.__code__ if frozen.owner is not None else None
        store = store_of(owner) if owner is not None else self._programs.constants
        history = store.notes.get(self._programs.mark)
        if history is None:
            history = store.notes.setdefault(self._programs.mark, History())
        entry = store.entries.get(key)
        programs: list[Program] = []
        if entry is not None and entry.matches(frozen.targets):
            for program in entry.wrapper:
                if program.is_for(call.arrays):
                    history.unused = 0
                    return program, bool(program.variants)
            programs = list(entry.wrapper)
        places = {place for program in programs for place in program.pinned}
        is_new = history.is_new(hash(key), [call.arrays[place] for place in places])
        call.unused = history.unused
        if is_new:
            raise unkeyable(_CHANGES)
        programs = [program for program in programs if program.is_alive()]
        if entry is not None:
            entry.discard()
        name = self.name
        if self.hands_through is HandsThrough.NOTHING:  # jax.jit names it after its function
            function = call.arguments.values[0]
            while is_partial(function):
                function = function.func
            name = getattr(function, "__name__", name)
        program = Program(name, self.wrap, self.options, call.arguments.donated)
        entry = Entry((program, *programs[: _MAX_PINNED - 1]), frozen.targets, owner, ())
        entry = self._programs.install(store, key, entry)
        return next((p for p in entry.wrapper if p.is_for(call.arrays)), program), False

    def why_not(self, frozen: Frozen) -> Obstacle | None:
        """What made a call of functions of this code run unconverted, if one did; among other
        functions too."""
        codes = {id(target) for target in frozen.targets if type(target) is types.CodeType}
        for entry in self._programs.entries() if codes else ():
            obstacle: Obstacle | None = entry.wrapper[0].obstacle
            if obstacle is not None and codes <= {id(ref()) for ref in entry.refs}:
                return obstacle
        return None


def reason_unconverted(frozen: Frozen) -> Obstacle | None:
    """What made any operation run unconverted for functions of this code, if one did."""
    reasons = (conversion.why_not(frozen) for conversion in list(_all))
    return next((reason for reason in reasons if reason is not None), None)


class _Compiled(threading.local):
    """How often JAX has compiled in this thread. That it has traced, it tells of a hit, too."""

    count = 0


_compiled: Final = _Compiled()


def _count(event: str, seconds: float, **more: Any) -> None:
    if event == "/jax/core/compile/backend_compile_duration":
        _compiled.count += 1


jax.monitoring.register_event_duration_secs_listener(_count)

_all: weakref.WeakSet[Conversion] = weakref.WeakSet()

_FAILED: Final = object()

_NOTHING: Final = Obstacle("argument", "argument", "none is a function: it has no identity")

_RAISED: Final = Obstacle("f", "function", "its last trace raised an error")
_CHANGES: Final = Obstacle(
    "f",
    "function",
    f"what it reads was different in each of its last {MAX_UNUSED} calls or more",
    "pass what changes as an operand",
)

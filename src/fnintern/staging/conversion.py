"""Closure conversion: a higher-order call becomes one jitted function of all it reads (S1, S3, S4).

What the functions in a call *are* (:func:`fnintern.captures.freeze`) finds the program; the arrays
that they capture are passed to it at each call. The call that makes a program traces the user's own
functions over the user's own objects and arrays, once. JAX then holds each captured array as a
constant that is that very object, and the program takes it as an operand instead. A program is used
again only if nothing else of the trace depended on the array. Imports jax.
"""

from __future__ import annotations

import enum
import itertools
import threading
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

import attrs
import jax
import numpy as np

from fnintern.captures.freezing import Frozen, freeze
from fnintern.captures.walk import References
from fnintern.keys.reasons import CacheInfo, Obstacle
from fnintern.keys.tokens import Marker, Unkeyable
from fnintern.libraries.settings import ambient_key, carried
from fnintern.lifetime.entries import Entry
from fnintern.lifetime.stores import Token, store_of
from fnintern.staging.arguments import Arguments, Parameters
from fnintern.staging.checks import in_rules, obstacle_in, speaks_of_operands
from fnintern.staging.hoisting import evaluate
from fnintern.staging.results import Template, Unlocated, tree_maker
from fnintern.staging.watching import watching

__all__ = [
    "Conversion",
    "HandsThrough",
    "Plain",
    "PlainTrace",
    "reason_unconverted",
    "traced_operation",
]

#: Programs kept for each piece of code (L3).
_MAXSIZE: Final = 128
#: Programs kept for one key, each for an array whose value its trace has read.
_MAX_PINNED: Final = 8
#: Programs that one piece of code may have made in a row without a use of any. From then on a
#: call is converted when it comes for the second time.
_MAX_UNUSED: Final = 8


@attrs.frozen
class PlainTrace:
    """What comes of tracing a call.

    Attributes:
        closed: the jaxpr with its constants: what it has taken from outside.
        structure: of the result.
        outer: what it has taken from outside and has as its first operands, instead.
    """

    closed: Any
    structure: Any
    outer: tuple[Any, ...] = ()

    @property
    def constants(self) -> list[tuple[Any, Any]]:
        """All that it has taken from outside, each with its variable."""
        jaxpr = self.closed.jaxpr
        pairs = list(zip(jaxpr.invars, self.outer, strict=False))
        return pairs + list(zip(jaxpr.constvars, self.closed.consts, strict=True))

    def evaluate(self, operands: Sequence[Any], arrays: Mapping[int, Any]) -> list[Any]:
        """The results, with other values in the place of the arrays with these ids."""
        values = [arrays.get(id(constant), constant) for _, constant in self.constants]
        count = len(self.outer)
        operands = (*values[:count], *operands)
        return evaluate(self.closed.jaxpr, values[count:], operands, arrays)


#: Traces a call around operands that stand for those of the call.
Plain = Callable[[Arguments, Sequence[Any]], PlainTrace]


def traced_operation(op: Callable[..., Any]) -> Plain:
    """The plain trace of a call of ``op``."""

    def plain(arguments: Arguments, operands: Sequence[Any]) -> PlainTrace:
        structure: Any = None

        def call(*operands: Any) -> Any:
            nonlocal structure
            args, kwargs = arguments.put_together(iter(operands))
            results, structure = jax.tree_util.tree_flatten(op(*args, **kwargs))
            return results

        return PlainTrace(jax.make_jaxpr(call)(*operands), structure)

    return plain


class HandsThrough(enum.Enum):
    """Which arguments an operation returns as the objects that they are, if it returns them
    untouched."""

    #: None: all results are computed, as by ``jax.jit``.
    NOTHING = "nothing"
    #: Arrays of JAX. Of anything else they make one.
    ARRAYS = "arrays"
    #: Whatever they are, as ``while_loop`` does: a number of Python, an array of NumPy.
    OBJECTS = "objects"
    #: In the first part of the result whatever they are, and arrays in the second: ``scan``.
    CARRY = "carry"


class Conversion:
    """The programs of one operation.

    Args:
        plain: how a call is traced.
        name: of the operation, for messages and profiles.
        parameters: which of its arguments are special.
        options: for ``jax.jit``.
        hands_through: which results that are arguments untouched are the very objects.
    """

    #: Told of each call that ran unconverted and raised nothing, and why. For those who count.
    watcher: ClassVar[Callable[[Conversion, Obstacle], None] | None] = None

    def __init__(
        self,
        plain: Plain,
        name: str,
        parameters: Parameters,
        options: Mapping[str, Any] = types.MappingProxyType({}),
        hands_through: HandsThrough = HandsThrough.ARRAYS,
    ) -> None:
        self.plain = plain
        self.name = name
        self.parameters = parameters
        self.options = options
        self.hands_through = hands_through
        self.cache_clear()
        _all.add(self)

    def cache_info(self) -> CacheInfo:
        return CacheInfo(
            self._hits, self._misses, self._bypassed, len(self._programs), self._programs.maxsize
        )

    def cache_clear(self) -> None:
        """Forgets all programs, and what was found unfit for conversion."""
        self._programs = Token(_MAXSIZE)
        self._hits = self._misses = self._bypassed = 0

    def run(
        self, unconverted: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Makes the call by its program; by ``unconverted`` where it cannot be converted."""
        try:
            call = _Call(self, args, kwargs)
            program, hit = self._find(call)
        except Exception as error:  # refused, or code of the user's that reading ran into failed
            return self._run_unconverted(unconverted, args, kwargs, _reason_for(error))
        if program is None:
            return self._run_unconverted(unconverted, args, kwargs, _NOTHING)
        jitted = program.jitted  # another thread may find an obstacle meanwhile
        if program.obstacle is not None or jitted is None:
            reason = program.obstacle or _CHANGED
            return self._run_unconverted(unconverted, args, kwargs, reason)
        try:
            result = call.run(program, jitted)
        except BaseException as error:
            # JAX words errors another way for what it has compiled already.
            if not (speaks_of_operands(error) if call.is_tracing else call.has_deleted_arrays()):
                raise
            reason = _reason_for(error)
            if call.is_tracing:
                program.obstacle = reason
            result = _FAILED
        if result is _FAILED:  # outside of the handler: what it raises now is its own error
            return self._run_unconverted(unconverted, args, kwargs, reason)
        if program.obstacle is not None:  # it turned out just now: the result is the plain one
            self._bypassed += 1
            self._tell(program.obstacle)
        elif hit:
            self._hits += 1
        else:
            self._misses += 1
        return result

    def _run_unconverted(
        self,
        unconverted: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        reason: Obstacle,
    ) -> Any:
        self._bypassed += 1
        result = unconverted(*args, **kwargs)
        self._tell(reason)
        return result

    def _tell(self, reason: Obstacle) -> None:
        watcher = Conversion.watcher
        if watcher is not None:
            watcher(self, reason)

    def _find(self, call: _Call) -> tuple[_Program | None, bool]:
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
            history = store.notes.setdefault(self._programs.mark, _History())
        entry = store.entries.get(key)
        programs: list[_Program] = []
        if entry is not None and entry.matches(frozen.targets):
            for program in entry.wrapper:
                if program.is_for(call.arrays):
                    history.unused = 0
                    return program, bool(program.variants)
            programs = list(entry.wrapper)
        places = {place for program in programs for place in program.pinned}
        if history.is_new(hash(key), [call.arrays[place] for place in places]):
            raise _unkeyable(_CHANGES)
        programs = [program for program in programs if program.is_alive()]
        if entry is not None:
            entry.discard()
        program = _Program(self, call.arguments.donated)
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


class _History:
    """Whether the programs of a piece of code are used again. One that reads what is different at
    each call would pay for a program each time, and use none."""

    __slots__ = ("_arrays", "_seen", "unused")

    def __init__(self) -> None:
        #: Programs made since one was used.
        self.unused = 0
        #: Hashes of the keys that came since, oldest first.
        self._seen: dict[int, None] = {}
        #: Arrays whose values were to be read since, under their ids.
        self._arrays: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def is_new(self, number: int, pinned: Sequence[Any]) -> bool:
        """Whether a call is better not converted: it may be one more that never comes again.

        Args:
            number: the hash of its key.
            pinned: captured arrays whose values are read.
        """
        self.unused += 1
        if self.unused <= _MAX_UNUSED:
            return False
        known = number in self._seen and all(self._arrays.get(id(a)) is a for a in pinned)
        self._seen[number] = None
        self._arrays.update((id(array), array) for array in pinned)
        while len(self._seen) > _MAXSIZE:
            self._seen.pop(next(iter(self._seen)), None)
        return not known


def reason_unconverted(frozen: Frozen) -> Obstacle | None:
    """What made any operation run unconverted for functions of this code, if one did."""
    reasons = (conversion.why_not(frozen) for conversion in list(_all))
    return next((reason for reason in reasons if reason is not None), None)


_all: weakref.WeakSet[Conversion] = weakref.WeakSet()

_under_way = threading.local()
#: Of variants. Threads may trace for one program at a time.
_numbers = itertools.count()

_FAILED: Final = object()
_NOTHING: Final = Obstacle("argument", "argument", "none is a function: it has no identity")
_CHANGED: Final = Obstacle(
    "f", "function", "its trace changed what it sees", "return the value instead"
)
_CHANGES: Final = Obstacle(
    "f",
    "function",
    f"what it reads was different in each of its last {_MAX_UNUSED} calls or more",
    "pass what changes as an operand",
)
_UNWATCHED: Final = Obstacle("f", "function", "this release of jax cannot be watched")
#: Modes in which calls captured NumPy arrays of 64 bits. JAX keeps such a constant as it was in the
#: other mode, and fails to lower the program.
_x64_modes: set[bool] = set()
_SWITCHED: Final = Obstacle(
    "f",
    "ndarray",
    "jax_enable_x64 was switched, and JAX keeps arrays of 64 bits as they were",
    "make it a jax.Array",
)
_COMMITTED: Final = Obstacle(
    "f",
    "jax.Array",
    "it is committed to a device, and jax.jit takes it as a constant, which is not",
    "pass it",
)
_DONATED: Final = Obstacle(
    "argument", "jax.Array", "it is donated, and captured too", "pass it, and do not capture it"
)


def _reason_for(error: BaseException) -> Obstacle:
    if isinstance(error, Unkeyable):
        return Obstacle.of(error)
    lines = str(error).splitlines() or [""]
    return Obstacle("f", "function", f"it failed ({type(error).__name__}: {lines[0]})")


@attrs.frozen
class _Variant:
    """How the result of a program is put together, for arrays of one set of shapes and dtypes.

    Attributes:
        places: for each leaf of the result the array or operand that it is, as a pair of what the
            call has and a position there; or None for one that the program computes.
        tree: the structure of the result, or how it is made.
    """

    places: tuple[tuple[str, int] | None, ...] | None
    tree: Any


class _Program:
    """One jitted function for all calls of one key.

    JAX calls :meth:`_trace` for each new set of shapes and dtypes, within the call that it traces
    for. The program holds no function and no array of that call.
    """

    __slots__ = ("conversion", "jitted", "obstacle", "pinned", "variants")

    def __init__(self, conversion: Conversion, donated: Sequence[int]) -> None:
        self.conversion = conversion
        #: Why the program must not be used again, if it must not.
        self.obstacle: Obstacle | None = None
        #: The positions of arrays whose values the trace has read, with weak references to them:
        #: the program is right for those alone.
        self.pinned: dict[int, weakref.ref[Any]] = {}
        self.variants: dict[int, _Variant] = {}

        def run(arrays: list[Any], *operands: Any) -> Any:
            return _under_way.call.trace(arrays, operands)

        run.__name__ = run.__qualname__ = conversion.name
        self.jitted: Any = jax.jit(
            run, donate_argnums=tuple(1 + i for i in donated), **conversion.options
        )

    def is_for(self, arrays: Sequence[Any]) -> bool:
        """Whether the arrays whose values the trace has read are still the same objects."""
        return all(arrays[place] is ref() for place, ref in self.pinned.items())

    def is_alive(self) -> bool:
        """Whether the arrays whose values the trace has read are still there."""
        return all(ref() is not None for ref in self.pinned.values())


class _Call:
    """One converted call.

    Attributes:
        arguments: those of the call, taken apart.
        frozen: all that its functions see.
        arrays: the captured arrays, each once: those of JAX, then those of NumPy.
        aliases: which of them stands at which place, where one stands at several.
        is_tracing: whether the operation is being traced.
    """

    __slots__ = (
        "_tracing", "aliases", "arguments", "arrays", "conversion", "frozen", "is_tracing",
    )  # fmt: skip

    def __init__(
        self, conversion: Conversion, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.conversion = conversion
        self.arguments = Arguments(args, kwargs, conversion.parameters)
        self.aliases: tuple[int, ...] = ()
        self._tracing: _Program | None = None
        self.is_tracing = False
        if not self.arguments.values:
            return
        self.frozen = frozen = self._freeze()
        leaves = frozen.leaves
        if len(leaves) > 1:
            number: dict[int, int] = {}
            places = [number.setdefault(id(leaf), len(number)) for leaf in leaves]
            if len(number) < len(leaves):
                self.aliases = tuple(places)
                unique = {id(leaf): leaf for leaf in leaves}
                leaves = [unique[i] for i in number]
        if conversion.hands_through is HandsThrough.NOTHING and any(map(_is_committed, leaves)):
            raise _unkeyable(_COMMITTED)
        self.arrays: list[Any] = [*leaves, *filter(_is_numeric, frozen.buffers)]
        if len(self.arrays) < len(leaves) + len(frozen.buffers):
            _x64_modes.add(jax.config.jax_enable_x64)
            if len(_x64_modes) > 1:
                raise _unkeyable(_SWITCHED)
        if self.arguments.donated:
            captured = set(map(id, self.arrays))
            if any(id(self.arguments.operands[i]) in captured for i in self.arguments.donated):
                raise _unkeyable(_DONATED)

    def _freeze(self) -> Frozen:
        arguments = self.arguments
        states = carried(arguments.values)
        values = (*arguments.values, *arguments.structures, *states)
        names = ("f",) * len(values)
        return freeze(*values, names=names, references=References.READ)

    def run(self, program: _Program, jitted: Any) -> Any:
        outer = getattr(_under_way, "call", None)
        _under_way.call = self
        self._tracing = program
        variants = program.variants
        known = len(variants)
        try:
            returned = jitted(self.arrays, *self.arguments.operands)
        finally:
            _under_way.call = outer
        # Asked here, outside of the trace, where objects of libraries answer as they did before.
        if len(variants) > known and not self._is_unchanged():
            program.obstacle = program.obstacle or _CHANGED
        if program.obstacle is not None:
            program.jitted = None  # it may hold arrays
            program.variants = {}
        ((number, results),) = returned.items()
        variant = variants[number]
        if variant.places is not None:
            computed = iter(results)
            results = [
                next(computed)
                if place is None
                else (self.arguments.operands if place[0] == "operand" else self.arrays)[place[1]]
                for place in variant.places
            ]
        tree = variant.tree
        if type(tree) is Template:
            tree = tree.structure(self.frozen)
        return tree.unflatten(results)

    def trace(self, arrays: Sequence[Any], operands: Sequence[Any]) -> Any:
        """Traces the call, for JAX. Returns the results that are computed, under the number of
        their variant."""
        program = self._tracing
        assert program is not None
        self.is_tracing = True
        with watching() as reads:
            plain = self.conversion.plain(self.arguments, operands)
        self.is_tracing = False
        constants = plain.constants
        place_of = {id(array): i for i, array in enumerate(self.arrays)}
        unknown = [constant for _, constant in constants if id(constant) not in place_of]
        obstacle = obstacle_in(plain.closed.jaxpr, unknown, place_of)
        if reads is not None:
            reads.update(in_rules(plain.closed.jaxpr, place_of))
        obstacle = obstacle or self._pin(program, reads)
        tree = plain.structure
        places = self._places(plain, place_of)
        try:
            tree = tree_maker(tree, self.frozen)
        except Unlocated as error:
            made = Obstacle("f", str(error), "the result holds one that the trace made")
            obstacle = obstacle or made
        if obstacle is not None:
            program.obstacle = obstacle
        # The program of a call that is not kept may have the arrays as they are.
        instead = {} if obstacle else {number: arrays[i] for number, i in place_of.items()}
        results = plain.evaluate(operands, instead)
        number = next(_numbers)
        if any(places):
            results = [x for x, place in zip(results, places, strict=True) if place is None]
        program.variants[number] = _Variant(tuple(places) if any(places) else None, tree)
        return {number: results}

    def has_deleted_arrays(self) -> bool:
        """Whether an array that the call needs has been given away."""
        arrays = (*self.arrays, *self.arguments.operands)
        return any(
            isinstance(array, jax.Array)
            and not isinstance(array, jax.core.Tracer)
            and array.is_deleted()
            for array in arrays
        )

    def _is_unchanged(self) -> bool:
        """Whether the functions see what they saw before the trace."""
        try:
            after = self._freeze()
        except Exception:
            return False
        before = self.frozen
        return after.key == before.key and all(
            a is b for a, b in zip(after.leaves, before.leaves, strict=True)
        )

    def _pin(self, program: _Program, reads: dict[int, Any] | None) -> Obstacle | None:
        """Notes the arrays whose values the trace has read."""
        asks_placement = self.frozen.asks_placement
        if not self.arrays or (reads == {} and not asks_placement):
            return None
        if reads is None:
            return _UNWATCHED
        places = [i for i, array in enumerate(self.arrays) if id(array) in reads]
        known = {id(array) for array in self.arrays}
        if asks_placement or not known.issuperset(reads):  # what was computed from any of them
            places = [i for i, array in enumerate(self.arrays) if isinstance(array, jax.Array)]
        for place in places:
            program.pinned[place] = weakref.ref(self.arrays[place])
        return None

    def _places(self, plain: PlainTrace, place_of: dict[int, int]) -> list[tuple[str, int] | None]:
        """What the operation hands through, for each leaf of the result."""
        jaxpr = plain.closed.jaxpr
        count = len(jaxpr.outvars)
        how = self.conversion.hands_through
        if how is HandsThrough.NOTHING:
            return [None] * count
        objects = count if how is HandsThrough.OBJECTS else 0
        if how is HandsThrough.CARRY:
            objects = plain.structure.children()[0].num_leaves
        operands = {id(var): i for i, var in enumerate(jaxpr.invars[len(plain.outer) :])}
        captured = {id(var): place_of.get(id(constant)) for var, constant in plain.constants}
        places: list[tuple[str, int] | None] = []
        for position, var in enumerate(jaxpr.outvars):
            i, j = operands.get(id(var)), captured.get(id(var))
            if i is not None and (
                position < objects or isinstance(self.arguments.operands[i], jax.Array)
            ):
                places.append(("operand", i))
            elif j is not None and isinstance(self.arrays[j], jax.Array):
                places.append(("array", j))
            else:
                places.append(None)
        return places


def _is_numeric(array: Any) -> bool:
    """Whether an array of NumPy is the same array to JAX in each mode of ``jax_enable_x64``."""
    return array.dtype in _NUMERIC


_NUMERIC: Final = frozenset(
    map(
        np.dtype,
        ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "f2", "f4", "complex64"),
    )
)


def _is_committed(array: Any) -> bool:
    return not isinstance(array, jax.core.Tracer) and bool(getattr(array, "committed", False))


def _unkeyable(obstacle: Obstacle) -> Unkeyable:
    error = Unkeyable(obstacle.path, None, obstacle.reason)
    error.type_name = obstacle.type_name
    return error

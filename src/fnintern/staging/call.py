"""One converted call: what its functions see, its trace, and its result.

Imports jax.
"""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import jax
import numpy as np

from fnintern.captures.freezing import Frozen, freeze
from fnintern.captures.walk import References
from fnintern.keys import strict
from fnintern.keys.reasons import Obstacle
from fnintern.keys.tokens import Unkeyable
from fnintern.libraries.settings import carried
from fnintern.staging.arguments import Arguments
from fnintern.staging.assignments import Assigned, Assignments, repeat
from fnintern.staging.checks import in_rules, obstacle_in
from fnintern.staging.numpy_arrays import as_constant, is_numeric, on_device
from fnintern.staging.programs import Program, Variant, under_way
from fnintern.staging.results import Template, Unlocated, tree_maker
from fnintern.staging.traces import HandsThrough, PlainTrace
from fnintern.staging.watching import Watch, watching

if TYPE_CHECKING:
    from fnintern.staging.conversion import Conversion

__all__ = ["CHANGED", "Call", "unkeyable"]

#: Of variants. Threads may trace for one program at a time.
_numbers = itertools.count()

CHANGED: Final = Obstacle(
    "f", "function", "its trace changed what it sees", "return the value instead"
)

_UNWATCHED: Final = Obstacle("f", "function", "this release of jax cannot be watched")

_COMMITTED: Final = Obstacle(
    "f",
    "jax.Array",
    "it is committed to a device, and jax.jit takes it as a constant, which is not",
    "pass it",
)

_ENDED: Final = Obstacle(
    "f", "Tracer", "its trace has ended", "return it from the function that is traced"
)
_DONATED: Final = Obstacle(
    "argument", "jax.Array", "it is donated, and captured too", "pass it, and do not capture it"
)


class Call:
    """One converted call.

    Attributes:
        arguments: those of the call, taken apart.
        frozen: all that its functions see.
        arrays: the captured arrays, each once: those of JAX, then those of NumPy.
        aliases: which of them stands at which place, where one stands at several.
        is_tracing: whether the operation is being traced.
        passed: the arrays as the program got them, once it has run.
        unused: how many programs of its code were made in a row without a use of any.
        variants: those of the program that it was made by.
    """

    __slots__ = (
        "_assignments", "_tracing", "aliases", "arguments", "arrays", "conversion", "frozen",
        "is_tracing", "passed", "unused", "variants",
    )  # fmt: skip

    def __init__(
        self, conversion: Conversion, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.conversion = conversion
        self.arguments = Arguments(args, kwargs, conversion.parameters)
        self.aliases: tuple[int, ...] = ()
        self._tracing: Program | None = None
        self._assignments: Assignments | None = None
        self.is_tracing = False
        self.unused: int | None = None
        if not self.arguments.values:
            return
        self.frozen = frozen = self._freeze()
        leaves = frozen.leaves
        if any(kind.__name__ == "DynamicJaxprTracer" for kind in set(map(type, leaves))):
            raise unkeyable(_ENDED)  # no trace that records is under way in an eager call
        if len(leaves) > 1:
            number: dict[int, int] = {}
            places = [number.setdefault(id(leaf), len(number)) for leaf in leaves]
            if len(number) < len(leaves):
                self.aliases = tuple(places)
                unique = {id(leaf): leaf for leaf in leaves}
                leaves = [unique[i] for i in number]
        if conversion.hands_through is HandsThrough.NOTHING and any(map(_is_committed, leaves)):
            raise unkeyable(_COMMITTED)
        self.arrays: list[Any] = [
            *leaves,
            *(array for array, _ in frozen.buffers if is_numeric(array)),
        ]
        if self.arguments.donated:
            captured = set(map(id, self.arrays))
            if any(id(self.arguments.operands[i]) in captured for i in self.arguments.donated):
                raise unkeyable(_DONATED)

    def _freeze(self) -> Frozen:
        arguments = self.arguments
        states = carried(arguments.values)
        values = (*arguments.values, *arguments.structures, *states)
        names = ("f",) * len(values)
        return freeze(*values, names=names, references=References.READ)

    def run(self, program: Program, jitted: Any) -> Any:
        outer = getattr(under_way, "call", None)
        under_way.call = self
        self._tracing = program
        self.variants = variants = program.variants
        self.passed = self._passed()
        self._assignments = None
        try:
            returned = jitted(self.passed, *self.arguments.operands)
        finally:
            under_way.call = outer
        is_new = self._assignments is not None  # it was traced, and for this call
        # Asked here, outside of the trace, where objects of libraries answer as they did before.
        if is_new and not self._is_unchanged():
            program.obstacle = program.obstacle or CHANGED
        if program.obstacle is not None:
            program.jitted = None  # it may hold arrays
            program.variants = {}
        ((number, results),) = returned.items()
        variant = variants[number]
        if variant.assigned and not is_new:
            repeat(variant.assigned, self.frozen)
        if variant.shapes is not None:
            results = variant.shapes
        elif variant.places is not None:
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

    def _passed(self) -> list[Any]:
        """The captured arrays as the program gets them."""
        if not self.frozen.buffers:
            return self.arrays
        on_devices = [
            on_device(array, contents)
            for array, contents in self.frozen.buffers
            if is_numeric(array)
        ]
        return [*self.arrays[: len(self.arrays) - len(on_devices)], *on_devices]

    def trace(self, arrays: Sequence[Any], operands: Sequence[Any]) -> Any:
        """Traces the call, for JAX. Returns the results that are computed, under the number of
        their variant."""
        program = self._tracing
        assert program is not None
        self.is_tracing = True
        self._assignments = assignments = Assignments(self.frozen)
        with watching() as watch:
            plain = self.conversion.plain(self.arguments, operands)
        self.is_tracing = False
        constants = plain.constants
        place_of = {id(array): i for i, array in enumerate(self.arrays)}
        # Held until the end: their ids are in use.
        converted = [
            (i, as_constant(array))
            for i, array in enumerate(self.arrays)
            if isinstance(array, np.ndarray)
        ]
        place_of.update((id(constant), i) for i, constant in converted)
        computed = {} if watch is None else watch.made
        unknown = [
            constant
            for _, constant in constants
            if id(constant) not in place_of and id(constant) not in computed
        ]
        if watch is not None and computed:  # from nothing but what the key and the pins show
            unknown += [array for i, array in watch.reads.items() if i not in place_of]
        obstacle = obstacle_in(plain.closed.jaxpr, unknown, place_of)
        if watch is not None:
            watch.reads.update(in_rules(plain.closed.jaxpr, place_of))
        obstacle = obstacle or self._pin(program, watch)
        tree = plain.structure
        places = self._places(plain, place_of)
        assigned: tuple[Assigned, ...] = ()
        try:
            tree = tree_maker(tree, self.frozen)
            assigned = assignments.made()
        except Unlocated as error:
            made = Obstacle("f", str(error), "the result holds one that the trace made")
            obstacle = obstacle or made
        if obstacle is not None:
            program.obstacle = obstacle
        if plain.shapes is not None:
            number = next(_numbers)
            program.variants[number] = Variant(None, tree, plain.shapes, assigned)
            return {number: []}
        # The program of a call that is not kept may have the arrays as they are.
        instead = {} if obstacle else {number: arrays[i] for number, i in place_of.items()}
        results = plain.evaluate(operands, instead)
        number = next(_numbers)
        if any(places):
            results = [x for x, place in zip(results, places, strict=True) if place is None]
        where = tuple(places) if any(places) else None
        program.variants[number] = Variant(where, tree, None, assigned)
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
            with self._assignments.undone() if self._assignments else contextlib.nullcontext():
                after = self._freeze()
        except Exception as error:
            strict.check(error)
            return False
        before = self.frozen
        return after.key == before.key and all(
            a is b for a, b in zip(after.leaves, before.leaves, strict=True)
        )

    def _pin(self, program: Program, watch: Watch | None) -> Obstacle | None:
        """Notes the arrays whose values the trace has read."""
        reads = None if watch is None else watch.reads
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


def _is_committed(array: Any) -> bool:
    return not isinstance(array, jax.core.Tracer) and bool(getattr(array, "committed", False))


def unkeyable(obstacle: Obstacle) -> Unkeyable:
    error = Unkeyable(obstacle.path, None, obstacle.reason)
    error.type_name = obstacle.type_name
    return error

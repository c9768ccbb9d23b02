"""Closure conversion: a higher-order call becomes one jitted function of all it reads (S1, S3).

What the functions in a call *are* (:func:`fnintern.captures.freeze`) finds the program; the arrays
they capture are passed in as operands, and inside the trace :func:`fnintern.thawing.thaw` rebuilds
the functions around them. So nothing captured becomes a constant of a cached program: nothing goes
stale, and nothing is kept alive. A call that cannot be carried across runs as without fnintern.
Imports jax and numpy when the first call is made.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Final, Generic, TypeVar

import attrs

from fnintern.ambient import ambient_key, carried, entered
from fnintern.captures import Frozen, References, Refused, freeze
from fnintern.code import facts_of
from fnintern.explanations import Obstacle
from fnintern.interner import CacheInfo
from fnintern.keys import Key, Marker, Unkeyable
from fnintern.lifetime import Entry
from fnintern.snapshot import Snapshot
from fnintern.stores import Token, registered, store_of
from fnintern.structures import number_types
from fnintern.thawing import thaw
from fnintern.tracing import live_arrays, obstacle_in

__all__ = ["CodeNotes", "Conversion", "Parameters", "why_unconverted"]

T = TypeVar("T")

#: How an argument, or a leaf of one, gets into the program.
_OPERAND: Final = Marker.LEAF
_FROZEN: Final = Marker.OBJECT

#: Programs kept for each piece of code (L3).
_MAXSIZE: Final = 128


@attrs.frozen
class Parameters:
    """Which arguments of an operation are special, each by its position and by its name.

    Attributes:
        static: needed as Python values.
        hashed: whether those must have a hash.
        donated: their buffers may be used for results.
        functions: where functions are looked for, in containers too; None for everywhere. What is
            no array elsewhere is not converted.
    """

    static: frozenset[int | str] = frozenset()
    donated: frozenset[int | str] = frozenset()
    functions: frozenset[int | str] | None = None
    hashed: bool = False


class CodeNotes(Generic[T]):
    """What was found out about functions, by their code: what they capture may differ."""

    def __init__(self) -> None:
        self._token = Token(_MAXSIZE)

    def __bool__(self) -> bool:
        return len(self._token) > 0

    def note(self, frozen: Frozen, found: T) -> None:
        key, codes = self._key(frozen)
        if codes:
            self._token.install(store_of(codes[0]), key, Entry(found, codes, codes[0], ()))

    def of(self, frozen: Frozen) -> T | None:
        key, codes = self._key(frozen)
        store = registered(codes[0]) if codes else None
        entry = store.entries.get(key) if store is not None else None
        return entry.wrapper if entry is not None and entry.matches(codes) else None

    def about(self, frozen: Frozen) -> T | None:
        """What was found out about these functions among others, such as one branch of two."""
        _, codes = self._key(frozen)
        for entry in self._token.entries() if codes else ():
            if {*map(id, codes)} <= {id(ref()) for ref in entry.refs}:
                return entry.wrapper  # type: ignore[no-any-return]
        return None

    def _key(self, frozen: Frozen) -> tuple[Key, list[Any]]:
        codes = [target for target in frozen.targets if type(target) is types.CodeType]
        return (self._token.mark, *map(id, codes)), codes


class Conversion:
    """The programs of one operation.

    Args:
        op: what is traced: a function of functions and arrays.
        parameters: which of its arguments are special.
        options: for ``jax.jit``.
    """

    #: Told of each call that ran unconverted and raised nothing, and why. For those who count.
    watcher: ClassVar[Callable[[Conversion, Obstacle], None] | None] = None

    def __init__(
        self,
        op: Callable[..., Any],
        parameters: Parameters = Parameters(),
        options: Mapping[str, Any] = types.MappingProxyType({}),
    ) -> None:
        self.op = op
        self.parameters = parameters
        self.options = options
        self.cache_clear()
        _all.add(self)

    def cache_info(self) -> CacheInfo:
        return CacheInfo(
            self._hits, self._misses, self._bypassed, len(self._programs), self._programs.maxsize
        )

    def cache_clear(self) -> None:
        self._programs = Token(_MAXSIZE)
        self._unfit: CodeNotes[Obstacle] = CodeNotes()
        self._hits = self._misses = self._bypassed = 0

    def run(
        self, unconverted: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Makes the call by its program; by ``unconverted`` where it cannot be carried across."""
        call, hit = self._find(args, kwargs)
        if isinstance(call, Obstacle):
            self._bypassed += 1
            result = unconverted(*args, **kwargs)
            self._tell(call)
            return result
        try:
            result = call.run()
        except BaseException as error:
            if not call.failed_before_running(error):
                raise
            reason = _reason_for(error)
        else:
            if hit:
                self._hits += 1
            else:
                self._misses += 1
            return result
        # Outside of the handler: what is raised now has nothing to do with that error.
        self._bypassed += 1
        if not hit:
            call.entry.discard()
        result = unconverted(*args, **kwargs)
        call.entry.discard()
        self._unfit.note(call.frozen, reason)
        self._tell(reason)
        return result

    def _tell(self, reason: Obstacle) -> None:
        watcher = Conversion.watcher
        if watcher is not None:
            watcher(self, reason)

    def _find(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[_Call | Obstacle, bool]:
        """The call with its program, and whether the program was there; or why there is none."""
        call = _Call(self.op)
        try:
            call.take(args, kwargs, self.parameters)
            if not call.values:
                return _NOTHING, False
            call.freeze()
            frozen = call.frozen
            situation = (*call.strict, *call.aliases, *call.carried, *ambient_key())
            key = (self._programs.mark, *call.spec, _FROZEN, *situation, *frozen.key)
            owner = frozen.owner.__code__ if frozen.owner is not None else None
            store = store_of(owner) if owner is not None else self._programs.constants
            entry = store.entries.get(key)
        except Exception as error:  # refused, or code of the user's that reading ran into failed
            return _reason_for(error, "reading what it captures failed"), False
        if call.donated and call.donates_what_is_captured():
            return _DONATED, False
        if entry is not None:
            if entry.matches(frozen.targets):
                call.entry = entry
                return call, True
            entry.discard()
        unfit = self._unfit.of(frozen)
        if unfit is not None:
            return unfit, False
        if call.keeps_arrays():
            return _KEEPING, False
        if call.leaves and any(map(_asks, frozen.targets)):
            self._unfit.note(frozen, _ASKS)
            return _ASKS, False
        name = getattr(self.op, "__name__", "staged")
        entry = Entry(_program(name, call.donated, self.options), frozen.targets, owner, ())
        call.entry = self._programs.install(store, key, entry)
        return call, False

    def why_not(self, frozen: Frozen) -> Obstacle | None:
        """What made a call of functions of this code run unconverted, if one did; among other
        functions too."""
        return self._unfit.about(frozen)


def why_unconverted(frozen: Frozen) -> Obstacle | None:
    """What made any operation run unconverted for functions of this code, if one did."""
    reasons = (conversion.why_not(frozen) for conversion in list(_all))
    return next((reason for reason in reasons if reason is not None), None)


_all: weakref.WeakSet[Conversion] = weakref.WeakSet()

_under_way = threading.local()


def _program(name: str, donated: list[int], options: Mapping[str, Any]) -> Any:
    import jax

    def run(leaves: list[Any], *operands: Any) -> Any:
        # Called by JAX within the call that it traces for; the program itself holds no function.
        return _under_way.call.trace(leaves, operands)

    run.__name__ = run.__qualname__ = name
    return jax.jit(run, donate_argnums=tuple(donated), **options)


class _Unfit(Exception):
    """The call was traced, and its program must not be used."""

    def __init__(self, obstacle: Obstacle) -> None:
        self.obstacle = obstacle


_CHANGED: Final = Obstacle(
    "f", "function", "its trace changed what it captures", "return the value instead"
)
_NOTHING: Final = Obstacle("argument", "argument", "none is a function: it has no identity")
_KEEPING: Final = Obstacle(
    "argument", "PyTreeDef", "the data of a pytree's node holds an array, or cannot be read"
)
_DONATED: Final = Obstacle(
    "argument", "jax.Array", "it is donated, and captured too", "pass it, and do not capture it"
)
_ASKS: Final = Obstacle(
    "f",
    "function",
    "it may tell a tracer from a captured array: it catches errors, or names Tracer",
    "pass the array as an operand",
)


def _asks(target: Any) -> bool:
    if type(target) is not types.CodeType:
        return False
    facts = facts_of(target)
    return facts.asks and not facts.library


def _reason_for(
    error: BaseException, what: str = "it failed with its captured arrays as operands"
) -> Obstacle:
    if isinstance(error, _Unfit):
        return error.obstacle
    if isinstance(error, Unkeyable):
        return Obstacle.of(error)
    lines = str(error).splitlines() or [""]
    return Obstacle(
        "f",
        "function",
        f"{what} ({type(error).__name__}: {lines[0]})",
        "capture as Python or NumPy values what it needs as such",
    )


class _Call:
    """One converted call: its arguments taken apart, and put together again inside the trace."""

    # fmt: off
    __slots__ = (
        "_jax", "_numpy", "_places", "_tracing", "aliases", "carried", "donated", "entry", "frozen",
        "leaves", "op", "operands", "spec", "strict", "values",
    )
    # fmt: on

    frozen: Frozen
    entry: Entry

    def __init__(self, op: Callable[..., Any]) -> None:
        import jax
        import numpy

        self._jax: Any = jax
        self._numpy: Any = numpy
        self.op = op
        #: How each argument is put together, and the name of each that was given by name.
        self.spec: list[Any] = []
        #: What the structures in it leave open.
        self.strict: list[Any] = []
        self.operands: list[Any] = []
        #: The positions of donated operands in the program.
        self.donated: list[int] = []
        #: Functions, and whatever else is part of the key.
        self.values: list[Any] = []
        #: The arrays that the values hold, each once, and which of them stands at which place.
        self.leaves: list[Any] = []
        self._places: list[int] = []
        self.aliases: tuple[int, ...] = ()
        #: Names of libraries whose state goes along; the state itself is the last of the values.
        self.carried: list[str] = []
        self._tracing = False

    def take(self, args: tuple[Any, ...], kwargs: dict[str, Any], parameters: Parameters) -> None:
        """Takes the arguments apart.

        Raises:
            Refused: one is neither function nor array, where only these are taken.
        """
        static, donated = parameters.static, parameters.donated
        functions = parameters.functions or frozenset()
        everywhere = parameters.functions is None
        if parameters.hashed:
            for place in static:
                hash(kwargs.get(place) if isinstance(place, str) else (*args[place : place + 1],))
        for i, value in enumerate(args):
            self._take(value, i in static, i in donated, everywhere or i in functions)
        for name, value in kwargs.items():
            self.spec.append(name)
            self._take(value, name in static, name in donated, everywhere or name in functions)

    def _take(self, value: Any, static: bool, donated: bool, functions: bool) -> None:
        if static:
            value = self._as_python(value)
            if not isinstance(value, self._jax.Array):  # a tracer
                self.spec.append(_FROZEN)
                self.values.append(value)
                return
        elif functions and type(value) is types.FunctionType:
            self.spec.append(_FROZEN)
            self.values.append(value)
            return
        first = len(self.operands)
        if isinstance(value, self._jax.Array):
            self.spec.append(_OPERAND)
            self.operands.append(value)
        else:
            tree = self._jax.tree_util
            leaves, structure = tree.tree_flatten(value, is_leaf=callable if functions else None)
            kinds = []
            for leaf in leaves:
                if self._is_operand(leaf):
                    kinds.append(_OPERAND)
                    self.operands.append(leaf)
                elif functions:
                    kinds.append(_FROZEN)
                    self.values.append(leaf)
                else:
                    raise Refused("argument", leaf, "it is no array")
            self.spec.append((structure, *kinds))
            self.strict += number_types(structure)
        if donated:
            self.donated += range(1 + first, 1 + len(self.operands))

    def _as_python(self, value: Any) -> Any:
        """A static argument as a Python value, or the tracer that it is."""
        jax = self._jax
        if not isinstance(value, jax.Array) or isinstance(value, jax.core.Tracer):
            return value
        if value.ndim:
            raise Refused("argument", value, "a static argument holds an array")
        # The operation would read it.
        return value.item() if value.weak_type else self._numpy.asarray(value)[()]

    def _is_operand(self, leaf: Any) -> bool:
        return type(leaf) in (int, float, bool, complex) or isinstance(
            leaf, self._jax.Array | self._numpy.ndarray | self._numpy.generic
        )

    def freeze(self) -> None:
        """Finds what identifies the call, and each captured array once, whoever holds it."""
        for name, state in carried(self.values):
            self.carried.append(name)
            self.values.append(state)
        self.frozen = _freeze(self.values)
        leaves = self.frozen.leaves
        if len(leaves) < 2:
            self.leaves, self._places = leaves, [0] * len(leaves)
            return
        number: dict[int, int] = {}
        for leaf in leaves:
            place = number.setdefault(id(leaf), len(number))
            if place == len(self.leaves):
                self.leaves.append(leaf)
            self._places.append(place)
        if len(number) < len(leaves):
            self.aliases = tuple(self._places)

    def donates_what_is_captured(self) -> bool:
        """Whether one array is to be read and given away at once."""
        donated = {id(self.operands[position - 1]) for position in self.donated}
        return any(id(leaf) in donated for leaf in self.leaves)

    def keeps_arrays(self) -> bool:
        """Whether the data of a pytree's node holds an array, or cannot be read: the program would
        keep it."""
        try:
            return any(freeze(part[0]).leaves for part in self.spec if type(part) is tuple)
        except Unkeyable:
            return True

    def run(self) -> Any:
        outer = getattr(_under_way, "call", None)
        _under_way.call = self
        try:
            return self.entry.wrapper(self.leaves, *self.operands)
        finally:
            _under_way.call = outer

    def failed_before_running(self, error: BaseException) -> bool:
        """Whether nothing has been computed yet, so that the call can be made another way."""
        if not isinstance(error, Exception):
            return False
        return self._tracing or not isinstance(error, self._jax.errors.JaxRuntimeError)

    def trace(self, leaves: list[Any], operands: tuple[Any, ...]) -> Any:
        """Makes the call where JAX traces it, with tracers in the place of arrays.

        Raises:
            _Unfit: it has been traced, and must not be run.
        """
        self._tracing = True
        before = live_arrays()
        # A trace of its own, so that it can be looked at before anything runs. It gets all that it
        # reads as arguments: what it would close over, JAX keeps should the trace fail.
        traced = self._jax.jit(lambda *inputs: self._make(*inputs), inline=True)
        obstacle = obstacle_in(traced.trace(leaves, operands).jaxpr, self.frozen, before)
        if obstacle is not None:
            raise _Unfit(obstacle)
        result = traced(leaves, operands)
        self._tracing = False
        return result

    def _make(self, leaves: list[Any], operands: tuple[Any, ...]) -> Any:
        values = thaw(self.values, self.frozen, [leaves[place] for place in self._places])
        before = _freeze(values)
        classes = [target for target in before.targets if isinstance(target, type)]
        snapshot = Snapshot((*before.holders, *classes))
        try:
            result = self._apply(values, operands)
            self._check_unchanged(values, before)
        except Exception:  # the call will be made again
            snapshot.restore()  # what no copy has taken the place of
            raise
        return result

    def _apply(self, values: list[Any], operands: tuple[Any, ...]) -> Any:
        args, kwargs = self._put_together(iter(values), iter(operands))
        with contextlib.ExitStack() as stack:
            count = len(self.carried)
            for name, state in zip(self.carried, values[len(values) - count :], strict=True):
                stack.enter_context(entered(name, state))
            return self.op(*args, **kwargs)

    def _check_unchanged(self, values: list[Any], before: Frozen) -> None:
        try:
            after = _freeze(values)
        except Refused:
            raise _Unfit(_CHANGED) from None
        if after.key != before.key or list(map(id, after.leaves)) != list(map(id, before.leaves)):
            raise _Unfit(_CHANGED)

    def _put_together(
        self, values: Iterator[Any], operands: Iterator[Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        name = None
        for part in self.spec:
            if type(part) is str:
                name = part
                continue
            if type(part) is tuple:
                leaves = [next(operands if kind is _OPERAND else values) for kind in part[1:]]
                value = self._jax.tree_util.tree_unflatten(part[0], leaves)
            else:
                value = next(operands if part is _OPERAND else values)
            if name is None:
                args.append(value)
            else:
                kwargs[name] = value
        return args, kwargs


def _freeze(values: list[Any]) -> Frozen:
    return freeze(*values, names=_names(len(values)), references=References.READ)


@functools.lru_cache(maxsize=64)
def _names(count: int) -> tuple[str, ...]:
    return ("f",) * count

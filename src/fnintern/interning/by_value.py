"""One factory's memory by value: functions are the same if a trace could not tell them apart.

Never imports jax or flax.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fnintern.captures.freezing import Frozen, freeze
from fnintern.interning.by_object import Interner
from fnintern.interning.shared import SharedForward, belongs_to, has_tracer, lend
from fnintern.keys import strict
from fnintern.keys.arguments import key_of
from fnintern.keys.callables import is_bound_method, is_function_like, is_only_called
from fnintern.keys.objects import importable
from fnintern.keys.reasons import Explanation, Obstacle, reason_for
from fnintern.keys.tokens import ATOMIC, Key, Marker, Unkeyable
from fnintern.lifetime.entries import LOST, Entry
from fnintern.lifetime.stores import store_of

__all__ = ["ValueInterner", "place"]


def place(
    mark: object, context: Key, options: Callable[[], Frozen], frozen: Frozen
) -> tuple[Key, list[Any], Any]:
    """Where the entry for a function goes.

    Args:
        mark: of the token.
        context: what a trace reads besides the function.
        options: freezes the arguments beside the function; asked only where they are needed alone.
        frozen: the function, and all arguments beside it.

    Returns:
        The key, what is verified against it with ``is``, and the owner of the store.

    Raises:
        Unkeyable: the function is to be on its own.
    """
    frozen.check_shareable()
    if not frozen.leaves:
        code = frozen.owner.__code__ if frozen.owner is not None else None
        return (mark, *context, *frozen.key), frozen.targets, code
    # With arrays by object, and one entry for each function: a past array goes as soon as the
    # function has got another one. A tracer's function is made anew in the next trace (S3).
    if frozen.owner is None or has_tracer(frozen.leaves):
        raise Unkeyable("f", frozen.leaves[0], "no function of yours can keep it")
    # What holds the arrays is compared too, so that the entry dies with it: the program that the
    # wrapper keeps alive keeps the arrays alive.
    holders = [holder for holder in frozen.holders if weakly_held(holder)]
    targets = [*frozen.targets, *frozen.leaves, *holders, frozen.owner]
    return (mark, Marker.LEAF, *context, *options().key), targets, frozen.owner


def weakly_held(value: Any) -> bool:
    """Whether ``value`` takes weak references, and is not made anew at each access."""
    return bool(type(value).__weakrefoffset__) and not is_bound_method(value)


class ValueInterner(Interner):
    """Finds or builds the wrapper for a call whose functions are compared by value."""

    __slots__ = ()

    def hit(self, function: Any, other: Any) -> Any:
        return None  # looks at no value

    def _find(
        self, names: Any, values: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        token = self._token
        try:
            functions, frozen, key, targets, owner = self._placed(names, values)
        except Exception as error:
            strict.check(error)
            self.tally.bypass(reason_for(error))
            return self._factory(*args, **kwargs)
        store = store_of(owner) if owner is not None else token.constants
        entry = store.entries.get(key)
        if entry is not None:
            wrapper = entry.take() if entry.matches(targets) else LOST
            made_for: tuple[Key, tuple[SharedForward, ...]] = entry.note
            if wrapper is not LOST and made_for[0] == frozen.key:
                self._hand_out(entry, functions)
                self.tally.hits += 1
                return wrapper
            entry.discard()
        self.tally.miss()
        forwards = tuple(SharedForward(function) for function in functions)
        _lend(forwards, functions)
        by_id = {id(f): forward for f, forward in zip(functions, forwards, strict=True)}
        wrapper = self._factory(
            *(by_id.get(id(value), value) for value in args),
            **{name: by_id.get(id(value), value) for name, value in kwargs.items()},
        )
        entry = Entry(wrapper, targets, owner, forwards)
        entry.note = (frozen.key, forwards)
        del wrapper, by_id, forwards
        for forward in entry.note[1]:
            belongs_to(forward, entry)
            del forward
        return self._keep(token, store, key, entry, functions)

    def _hand_out(self, entry: Entry, functions: Sequence[Any]) -> None:
        _lend(entry.note[1], functions)
        entry.hold()

    def _placed(
        self, names: Any, values: tuple[Any, ...]
    ) -> tuple[list[Any], Frozen, Key, list[Any], Any]:
        """The functions that get a stand-in, what all arguments are, and where their entry goes;
        see :func:`place`."""
        functions: list[Any] = []
        named: list[Any] = []
        for value in filter(is_function_like, values):
            # A function that its module holds is what a table or an `is` asks for.
            (named if importable(value) else functions).append(value)
        for function in functions:
            if not is_only_called(function):
                raise Unkeyable("f", function, "it is more than a function")
        frozen = freeze(*values, names=tuple(names))
        key, targets, owner = place(
            self._token.mark, (), lambda: self._options(names, values), frozen
        )
        if not self._self_contained(names, values):
            raise Unkeyable("arguments", values, "one holds a function or an array")
        return functions, frozen, (*key, *map(id, named)), [*targets, *named], owner

    def _options(self, names: Any, values: tuple[Any, ...]) -> Frozen:
        rest = [(n, v) for n, v in zip(names, values, strict=True) if not is_function_like(v)]
        return freeze(*(v for _, v in rest), names=tuple(n for n, _ in rest))

    def _self_contained(self, names: Any, values: tuple[Any, ...]) -> bool:
        """Whether no argument but the functions themselves holds a function or an array, which the
        wrapper would keep alive, or anything that may change under its key.

        Raises:
            Unkeyable: one may change.
        """
        if all(type(value) in ATOMIC or is_function_like(value) for value in values):
            return True
        options = self._options(names, values)
        if options.owner is not None or options.leaves:
            return False
        key_of((n, v) for n, v in zip(names, values, strict=True) if not is_function_like(v))
        return True

    def explain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Explanation:
        name, bound = self._bound(args, kwargs)
        try:
            frozen = self._placed(*bound)[1]
        except Exception as error:  # of an argument's own code, too
            strict.check(error)
            obstacle = Obstacle.of(error, "arguments", "tuple")
            return Explanation(name, interned=False, obstacles=(obstacle,))
        return Explanation(name, interned=True, keyed_by=frozen.keyed_by())


def _lend(forwards: tuple[SharedForward, ...], functions: Sequence[Any]) -> None:
    for forward, function in zip(forwards, functions, strict=False):
        lend(forward, function)

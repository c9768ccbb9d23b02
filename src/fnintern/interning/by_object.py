"""One factory's memory: finds the wrapper for a call, or builds it (laws I1 to I6).

Knows nothing of decorators. Never imports jax or flax.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from fnintern.counting.counts import Counts
from fnintern.keys import strict
from fnintern.keys.arguments import key_of, walk
from fnintern.keys.binding import Binder
from fnintern.keys.reasons import CacheInfo, Explanation, Obstacle, reason_for
from fnintern.keys.tokens import ATOMIC, Key, Marker
from fnintern.lifetime.building import build
from fnintern.lifetime.entries import LOST, Entry
from fnintern.lifetime.stores import Store, Token, registry, store_of

__all__ = ["MISSING", "Interner"]

_FunctionType: Final = types.FunctionType
_MethodType: Final = types.MethodType
_partial: Final = functools.partial
#: An argument that was not given.
MISSING: Final = Marker.EMPTY


class Interner:
    """Finds or builds the wrapper for a call of one factory."""

    __slots__ = (
        "_arity", "_binder", "_factory", "_maxsize", "_names",
        "_of_class", "_own_mark", "_rest", "_signature_of", "_token", "aliases", "mark", "second",
        "tally",
    )  # fmt: skip

    def __init__(
        self,
        factory: Callable[..., Any],
        maxsize: int | None,
        signature_of: Callable[[], inspect.Signature | None] | None = None,
        mark: object = None,
    ) -> None:
        """
        Args:
            factory: what makes the wrapper.
            maxsize: how many to keep for each callable, or None.
            signature_of: reads the signature of a class at its first call.
            mark: stands for the interner in keys; made up where there is none.
        """
        #: Of a generic class: ``G[int]`` -> its interner.
        self.aliases: dict[Any, Interner] | None = None
        self._own_mark = mark
        self._factory = factory
        self._maxsize = maxsize
        self._of_class = signature_of is not None
        # Read at the first call: decorators above may still give a class its __init__.
        self._signature_of = signature_of or functools.partial(_signature_of, factory)
        self._binder: Binder | None = None
        self._arity = -1
        self._names: tuple[str, ...] | None = None
        #: The tokens of a call with the first argument alone, if they are known.
        self._rest: tuple[Any, ...] | None = None
        #: The name of the second parameter of two.
        self.second = ""
        named = mark if isinstance(mark, type) else factory
        # The entries refer to it, and must not keep the factory alive.
        self.tally = Counts(getattr(named, "__qualname__", type(factory).__qualname__))
        self.cache_clear()

    @property
    def factory(self) -> Callable[..., Any]:
        return self._factory

    @property
    def signature_of(self) -> Callable[[], inspect.Signature | None]:
        return self._signature_of

    def like(
        self,
        factory: Callable[..., Any],
        signature_of: Callable[[], inspect.Signature | None] | None = None,
        mark: object = None,
    ) -> Interner:
        """An empty interner of the same kind for another factory."""
        return type(self)(factory, self._maxsize, signature_of, mark)

    def __reduce__(self) -> tuple[Any, ...]:
        # cloudpickle takes apart what it cannot import: a copy starts with empty tables (L4).
        return type(self), (None if self._of_class else self._factory, self._maxsize)

    def hit(self, function: Any, other: Any) -> Any:
        """The wrapper for the usual calls: a plain function, a bound method or a partial of plain
        constants, and one plain constant or :data:`MISSING`; or None.

        It spells the key as :meth:`_find` does, by the shortest way. A look in vain costs its time.
        """
        kind = type(function)
        if kind is _FunctionType:
            try:
                store = function.__fnintern__
                if store.owner() is function:
                    mark, constant, entry = store.last
                    if mark is not self.mark or constant is not other:
                        entry = store.entries[self.mark, *self._tokens_of(other)]
                        store.last = (self.mark, other, entry)
                    self.tally.hits += 1
                    return entry.wrapper
            except (AttributeError, KeyError, TypeError):
                pass
        elif kind is _MethodType or kind is _partial:
            try:
                return self._hit_compound(function, kind, other)
            except (AttributeError, KeyError, TypeError):
                pass
        return None

    def _tokens_of(self, other: Any) -> Any:
        """The tokens of the second argument; None where they are not known here."""
        if other is MISSING:
            return self._rest
        return (type(other), other) if type(other) in ATOMIC else None

    def _hit_compound(self, function: Any, kind: type, other: Any) -> Any:
        target: Any
        if kind is _MethodType:
            target, code = function.__self__, function.__func__
            store: Any = registry.get(id(target))
            if store is None or store.owner() is not target:
                return None
            mark, constant, entry = store.last
            if mark is not self.mark or constant is not other or entry.refs[1]() is not code:
                tokens = (Marker.METHOD, id(target), Marker.OBJECT, id(code))
                entry = store.entries[self.mark, *tokens, *self._tokens_of(other)]
                if not entry.matches([target, code]):
                    return None
                store.last = (self.mark, other, entry)
        else:
            target, args = function.func, function.args
            if function.keywords or function.__dict__ or type(target) is not _FunctionType:
                return None
            store = function.func.__fnintern__
            if store.owner() is not target:
                return None
            constants: list[Any] = []
            for item in args:
                if type(item) not in ATOMIC:
                    return None
                constants += (type(item), item)
            entry = store.entries[
                self.mark, kind, len(args), 0, Marker.CALLABLE, id(target), *constants,
                *self._tokens_of(other),
            ]  # fmt: skip
            if entry.refs[0]() is not target:
                return None
        wrapper = entry.take()
        if wrapper is LOST:
            return None
        entry.hold()
        self.tally.hits += 1
        return wrapper

    def find(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The wrapper for a call, from a table or built now."""
        names: Iterable[str] | None
        if kwargs or len(args) != self._arity:
            bound = self._bind(args, kwargs)
            if bound is None:  # Python's own TypeError, from where it belongs
                self.tally.bypass(_NOT_BOUND)
                return self._factory(*args, **kwargs)
            names, values = bound
            if len(values) == 2:
                wrapper = self.hit(*values)
                if wrapper is not None:
                    return wrapper
        else:
            names, values = self._names, args
        return self._find(names, values, args, kwargs)

    def _bind(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Iterable[str], tuple[Any, ...]] | None:
        if self._binder is None:
            self._binder = Binder(self._signature_of())
            self._arity, self._names = self._binder.arity, self._binder.names
            self._rest, self.second = self._binder.after_first()
        return self._binder.bind(args, kwargs)

    def _find(
        self, names: Any, values: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        token = self._token
        try:
            tokens, targets, owner = walk(zip(names, values, strict=True))
            store = store_of(owner) if targets else token.constants
            if (
                len(targets) == 1
                and values[0] is owner
                and len(values) == self._arity  # keyword-only, say, must not answer to hit()
                and not store.lent
            ):
                tokens = tokens[2:]  # it says nothing that the store does not
            key = (token.mark, *tokens)
            entry = store.entries.get(key)
        except Exception as error:
            # Unkeyable, or the __eq__, __hash__ or __repr__ of an argument failed (I5).
            strict.check(error)
            self.tally.bypass(reason_for(error))
            return self._factory(*args, **kwargs)
        if entry is not None:
            wrapper = entry.take() if entry.matches(targets) else LOST
            if wrapper is not LOST:
                entry.hold()
                self.tally.hits += 1
                return wrapper
            entry.discard()
        self.tally.miss()
        entry = build(self._factory, args, kwargs, targets, owner)
        entry.note = self.tally
        return self._keep(token, store, key, entry)

    def _keep(
        self, token: Token, store: Store, key: Key, entry: Entry, functions: Sequence[Any] = ()
    ) -> Any:
        """Puts a new entry into its store; returns the wrapper, or that of another thread which was
        first. To be called where no local variable holds the wrapper or a forward."""
        entry.settle()
        built = entry.wrapper
        entry = token.install(store, key, entry)
        wrapper = entry.take()
        if wrapper is LOST:  # by a collection in another thread, just now
            return built
        self._hand_out(entry, functions)
        return wrapper

    def _hand_out(self, entry: Entry, functions: Sequence[Any]) -> None:
        """What is to be done before a wrapper goes to the caller, who holds it by now.

        Args:
            entry: that of the wrapper.
            functions: those of the call, for a wrapper that is shared.
        """
        entry.hold()

    def cache_info(self) -> CacheInfo:
        return CacheInfo(
            self.tally.hits,
            self.tally.misses,
            self.tally.bypassed,
            len(self._token),
            self._maxsize,
        )

    def cache_clear(self) -> None:
        self._token = Token(self._maxsize, self._own_mark)
        self.mark = self._token.mark
        self.tally = self.tally.again()

    def _bound(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[str, tuple[Iterable[str], tuple[Any, ...]]]:
        """The factory's name and its bound arguments, for :meth:`explain`."""
        # The factory of a class is a call of its metaclass; the class is its mark.
        named = self._own_mark if isinstance(self._own_mark, type) else self._factory
        name = getattr(named, "__qualname__", None) or "the class"
        bound = self._bind(args, kwargs)
        if bound is None:
            signature = self._signature_of()
            if signature is not None:
                signature.bind(*args, **kwargs)  # raises Python's own TypeError
            raise TypeError(f"{name} does not take these arguments")
        return name, bound

    def explain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Explanation:
        name, bound = self._bound(args, kwargs)
        try:
            key_of(zip(*bound, strict=True))
        except Exception as error:  # of an argument's own code, or too deep a recursion
            strict.check(error)
            obstacle = Obstacle.of(error, "arguments", "tuple")
            return Explanation(name, interned=False, obstacles=(obstacle,))
        return Explanation(name, interned=True, keyed_by="the identity of the callables")


_NOT_BOUND: Final = Obstacle("arguments", "tuple", "the factory does not take them")


def _signature_of(factory: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(factory)
    except (TypeError, ValueError):  # some builtins have none
        return None

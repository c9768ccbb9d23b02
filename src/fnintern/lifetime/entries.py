"""Who keeps a wrapper alive (laws L1, L2, L5, C2).

A wrapper refers to its callable, so no table may refer to the wrapper for longer than the callable
lives. CPython has no ephemerons; two mechanisms take their place:

- A plain Python function carries its wrappers itself (:mod:`fnintern.lifetime.stores`): a cycle,
  which the collector frees as a whole.
- Anything else is replaced inside its wrapper by a stand-in (:mod:`fnintern.lifetime.standins`),
  which lets go of it from the next collection on once only the table holds the wrapper.

Of several callables in one call, the first plain function carries the store and is given as it
is; the others are forwarded, and the entry goes with the first of them that dies.
Never imports jax or flax.
"""

from __future__ import annotations

import gc
import operator
import sys
import time
import types
import weakref
from typing import Any, Final

from fnintern.keys.tokens import Key
from fnintern.lifetime.standins import Forward, hold, strengthen, weaken
from fnintern.lifetime.stores import Store, store_of

__all__ = ["LOST", "Entry", "demote", "handed_out"]


#: What is not looked into for references from a wrapper to itself. A function that it holds has its
#: store, and in it the table's own reference to the wrapper.
OUTSIDE: Final = (type, types.ModuleType, types.CodeType, Forward, Store)

#: What an entry has in place of its wrapper while it refers to it weakly.
LOST: Final = object()


class Entry:
    """A wrapper in a table, with weak references to what it was made for.

    Who holds whom: table -> entry -> wrapper -> forwards; forwards -> targets weakly at rest.
    """

    __slots__ = (
        "__weakref__", "_counts", "_lent", "_seen", "_weak",
        "forwards", "key", "note", "refs", "store", "temporary", "wrapper",
    )  # fmt: skip

    def __init__(
        self, wrapper: Any, targets: list[Any], owner: Any, forwards: tuple[Forward, ...]
    ) -> None:
        self.wrapper = wrapper
        self.forwards = forwards
        self.store: weakref.ref[Store] | None = None
        self.key: Key = ()
        #: Whether the wrapper holds an object that the table must not keep alive, and that no
        #: forward can stand in for. The entry goes at the next full collection at which nobody
        #: holds the wrapper.
        self.temporary = False
        #: What whoever stored the entry wants to compare at a look-up.
        self.note: Any = None
        # The owner's death takes the whole store along; the others need a callback each.
        self.refs = tuple(weakref.ref(t) if t is owner else _TargetRef(t, self) for t in targets)
        self._counts: tuple[int, list[int]] = _NO_COUNTS
        self._seen = -1
        self._weak: weakref.ref[Any] | None = None
        self._lent: tuple[weakref.ref[Forward], ...] = ()

    def settle(self) -> None:
        """Notes how many references there are while nobody but the table holds the wrapper.

        To be called where no local variable holds the wrapper or a forward.
        """
        if self.forwards or self.temporary:
            self_held = _references_inside(self.wrapper)
            self_held += sum(forward is self.wrapper for forward in self.forwards)
            self._counts = (_ONE_SLOT + self_held, _counts_of(self.forwards))
            # Made by the factory just now, and not one that somebody had before.
            made = sys.getrefcount(self.wrapper) <= self._counts[0]
            if made and type(self.wrapper) is types.FunctionType:
                store_of(self.wrapper).lent = True
            _fresh[id(self)] = self
            _watch_collections()

    def matches(self, targets: list[Any]) -> bool:
        """Whether the callables are still, object by object, the ones of this entry (I4)."""
        # A generator would take three times as long.
        for ref, target in zip(self.refs, targets, strict=True):  # noqa: SIM110
            if ref() is not target:
                return False
        return True

    def take(self) -> Any:
        """The wrapper, or :data:`LOST` if it died while a collection had made the table weak."""
        wrapper = self.wrapper
        if wrapper is LOST and self._weak is not None:
            wrapper = self._weak()
            return LOST if wrapper is None else wrapper
        return wrapper

    def discard(self) -> None:
        """Removes the entry from its store, unless another one has taken its place."""
        store = self.store() if self.store is not None else None
        if store is not None and store.entries.get(self.key) is self:
            store.pop(self.key)

    def hold(self) -> None:
        """Makes the forwards strong, since the wrapper is about to be handed out (L2).

        The caller must already hold the wrapper, and the callables, in local variables:
        :func:`demote` looks at reference counts, and may run between any two bytecodes.
        """
        if self.forwards or self.temporary:
            for forward in self.forwards:
                hold(forward)
            handed_out(self)

    def idle(self) -> bool:
        """Whether nobody but the table holds the wrapper, or one of its forwards."""
        if self.wrapper is LOST:
            return False
        wrapper_count, forward_counts = self._counts
        now = _counts_of(self.forwards)
        if now and all(count <= _ONE_FORWARD for count in now):  # not even the wrapper does
            return True
        return sys.getrefcount(self.wrapper) <= wrapper_count and all(
            map(operator.le, now, forward_counts)
        )

    def demote(self) -> bool:
        """Makes the forwards weak if the wrapper is idle; says whether it was."""
        if not self.idle():
            return False
        if self.temporary:
            self.discard()
            return True
        # Another thread may take a hit at any bytecode here: it holds the wrapper before it makes
        # the forwards strong, so a second look at the counts sees it, and undoes this.
        # (The loops are in functions of their own: their variables count as references.)
        kept = list(map(weaken, self.forwards))
        if self.idle():
            return True
        list(map(strengthen, self.forwards, kept))
        return False

    def recount(self) -> bool:
        """Whether the wrapper has come to refer to itself since it was made (a cached property);
        if so, notes it. Looks inside once for each number of references."""
        now = sys.getrefcount(self.wrapper)
        # One that holds its owner refers to itself through the owner's store.
        if self.wrapper is LOST or now == self._seen or self.temporary:
            return False
        self._seen = now
        count = _ONE_SLOT + _references_inside(self.wrapper)
        if count <= self._counts[0]:
            return False
        self._counts = (count, self._counts[1])
        return True

    def lend(self) -> bool:
        """Refers weakly to the wrapper and its strong forwards, until :meth:`retrieve`. Says
        whether it could: for a wrapper that somebody else holds too, so that it stays."""
        if self.wrapper is LOST:  # it is lent already
            return False
        try:
            if self._weak is None:
                self._weak = weakref.ref(self.wrapper)
        except TypeError:
            return False
        self._lent = tuple(map(weakref.ref, self.forwards))
        self.wrapper = LOST
        self.forwards = ()
        return True

    def retrieve(self) -> None:
        wrapper = self.take()
        if wrapper is LOST:
            self.discard()
            _old.pop(id(self), None)
        else:
            counted = zip(map(operator.call, self._lent), self._counts[1], strict=True)
            alive = [pair for pair in counted if pair[0] is not None]  # the wrapper may drop one
            self._counts = (self._counts[0], [count for _, count in alive])
            self.forwards = tuple(forward for forward, _ in alive if forward is not None)
            self.wrapper = wrapper


_NO_COUNTS: Final[tuple[int, list[int]]] = (0, [])


class _TargetRef(weakref.ref[Any]):
    """Weak reference to a callable of an entry; takes the entry along when the callable dies."""

    __slots__ = ("entry",)
    entry: weakref.ref[Entry]

    def __new__(cls, target: Any, entry: Entry) -> _TargetRef:
        self = super().__new__(cls, target, _drop_entry)
        self.entry = weakref.ref(entry)
        return self

    def __init__(self, target: Any, entry: Entry) -> None:
        super().__init__(target, _drop_entry)  # type: ignore[call-arg]


def _drop_entry(ref: weakref.ref[Any]) -> None:
    # Module-level: a callback that closes over nothing keeps nothing alive.
    entry = ref.entry()  # type: ignore[attr-defined]
    if entry is not None:
        entry.discard()


def _counts_of(forwards: tuple[Forward, ...]) -> list[int]:
    return [sys.getrefcount(forward) for forward in forwards]


def _one_slot() -> int:
    class Slot:
        __slots__ = ("wrapper",)
        wrapper: object

    slot = Slot()
    slot.wrapper = object()
    return sys.getrefcount(slot.wrapper)


#: What sys.getrefcount says, on this interpreter, of an object that one slot holds,
_ONE_SLOT: Final = _one_slot()

#: and what _counts_of says of a forward that only its entry holds.
_ONE_FORWARD: Final = _counts_of((object(),))[0]  # type: ignore[arg-type]


def _references_inside(wrapper: Any, limit: int = 200) -> int:
    """How often the wrapper is referred to from within itself (a closure over itself, a cycle).

    Bounded: in a wrapper with more than ``limit`` objects inside a reference may be missed, which
    at worst keeps its callable alive for longer.
    """
    if sys.getrefcount(wrapper) <= _ONE_SLOT + 1:  # one more for the parameter
        return 0
    count = 0
    todo: list[Any] = [wrapper]
    seen = {id(wrapper)}
    while todo and len(seen) < limit:
        current = todo.pop()
        skipped = id(current.__globals__) if type(current) is types.FunctionType else None
        for item in gc.get_referents(current):
            if item is wrapper:
                count += 1
            elif (
                id(item) not in seen and id(item) != skipped and not issubclass(type(item), OUTSIDE)
            ):
                seen.add(id(item))
                todo.append(item)
    return count


#: Entries whose forwards are strong: handed out since the last collection, and before it.
_fresh: dict[int, Entry] = {}

_old: dict[int, Entry] = {}


def handed_out(entry: Entry) -> None:
    """Notes that the forwards of an entry are strong; see :meth:`Entry.hold`."""
    _fresh[id(entry)] = entry


def demote(everything: bool = True, temporary: bool = True) -> None:
    """Lets go of the callables of all wrappers that nobody holds any more (L1).

    Args:
        everything: whether wrappers that were held the last time are looked at, too.
        temporary: whether entries are looked at that have to be made again once they have gone.
    """
    held = list(_fresh.items())
    if everything:
        held += list(_old.items())
    if not temporary:
        held = [item for item in held if not item[1].temporary]
    for number, _ in held:
        # Out of the lists first: a hit in another thread puts it back in.
        _fresh.pop(number, None)
        _old.pop(number, None)
    looked_at = None
    while looked_at != len(held):  # one that lets go may have held the wrapper of another
        looked_at = len(held)
        held = [(number, entry) for number, entry in held if not entry.demote()]
    if everything:
        held = [item for item in held if not (item[1].recount() and item[1].demote())]
    _old.update(held)


#: Entries that a full collection, while it runs, has made to refer weakly to their wrappers.
_lent: list[Entry] = []


class _Due:
    """When some entries are to be looked at again: after a while, or when there are many more. So
    seldom that it takes a twentieth of the time.

    Which generation a collection says it is of means something else in each interpreter. Without
    the global lock automatic ones say 0, and those of Python 3.14.0 say 1; only a collection that
    the program asks for is of generation 2 everywhere.
    """

    def __init__(self, entries: dict[int, Entry], seconds: float) -> None:
        self._entries = entries
        self._least = seconds
        self._time = 0.0
        self._many = _MANY

    def __call__(self) -> bool:
        return time.monotonic() >= self._time or len(self._entries) >= self._many

    def done(self, start: float) -> None:
        """Notes that it was done just now, from ``start`` on."""
        now = time.monotonic()
        self._time = now + max(self._least, 20 * (now - start))
        self._many = _MANY + 2 * len(self._entries)


_MANY: Final = 512
_look_at_fresh: Final = _Due(_fresh, 0.1)
_look_at_all: Final = _Due(_old, 2.0)
#: To make an entry again costs a trace.
_look_at_temporary: Final = _Due({}, 60.0)


def _around_collection(phase: str, info: dict[str, int]) -> None:
    if phase == "stop":
        while _lent:
            _lent.pop().retrieve()
        return
    everything = info["generation"] > 1 or _look_at_all()
    if not everything and not _look_at_fresh():
        return
    start = time.monotonic()
    temporary = info["generation"] > 1 or _look_at_temporary()
    demote(everything, temporary)
    if temporary:
        _look_at_temporary.done(start)
    _look_at_fresh.done(start)
    if everything:
        # One that is held only by a cycle that goes with this collection must not be kept by us.
        _lent.extend(entry for entry in list(_old.values()) if entry.lend())
        _look_at_all.done(start)


def _watch_collections() -> None:
    # Two threads may both add it, which costs a second look.
    if _around_collection not in gc.callbacks:
        gc.callbacks.append(_around_collection)

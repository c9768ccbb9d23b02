"""Where the entries of a callable sit, and how long (laws L1, L3, L4, C1).

A plain Python function carries its :class:`Store` itself, in one private attribute. Function,
store, entry and wrapper form a cycle, which the collector frees as a whole. Anything else has no
safe place for an attribute: its store sits in a registry under its ``id``, and dies by a weakref
callback.
No foreign code runs under a lock here. Never imports jax or flax.
"""

from __future__ import annotations

import itertools
import os
import threading
import types
import weakref
from typing import TYPE_CHECKING, Any, Final

from fnintern.keys.tokens import STORE_ATTRIBUTE, Key

if TYPE_CHECKING:
    from fnintern.lifetime.entries import Entry

__all__ = ["Store", "Token", "drop_copied_store", "owns", "registry", "store_of"]

_FunctionType: Final = types.FunctionType


class Token:
    """One generation of one factory's entries. Its end removes them, wherever they sit."""

    __slots__ = ("__weakref__", "_stores", "constants", "mark", "maxsize")

    #: Numbers are never used twice, unlike ids.
    _numbers = itertools.count()

    def __init__(self, maxsize: int | None, mark: object = None) -> None:
        self.maxsize = maxsize
        #: What the keys of its entries start with, and no other token's.
        self.mark = next(self._numbers) if mark is None else mark
        self._stores: weakref.WeakValueDictionary[int, Store] = weakref.WeakValueDictionary()
        #: For calls without a callable argument.
        self.constants = Store(None)

    def install(self, store: Store, key: Key, entry: Entry) -> Entry:
        """Puts ``entry`` into ``store``, or returns the one another thread put first (C1)."""
        winner = store.entries.setdefault(key, entry)
        if winner is entry:
            entry.key = key
            entry.store = weakref.ref(store)
            self._stores[id(store)] = store
            if self.maxsize is not None:
                keys = self._keys_in(store)
                for oldest in keys[: max(0, len(keys) - self.maxsize)]:
                    store.pop(oldest)
        return winner

    def _keys_in(self, store: Store) -> list[Key]:
        return [key for key in list(store.entries) if key[0] is self.mark]

    def _keys(self) -> list[tuple[Store, Key]]:
        # valuerefs() copies in one step, so that other threads may add stores meanwhile.
        stores = [store for ref in self._stores.valuerefs() if (store := ref()) is not None]
        return [(store, key) for store in stores for key in self._keys_in(store)]

    def entries(self) -> list[Entry]:
        """All entries there are at the moment."""
        found = [store.entries.get(key) for store, key in self._keys()]
        return [entry for entry in found if entry is not None]

    def __len__(self) -> int:
        return len(self._keys())

    def __del__(self) -> None:
        for store, key in self._keys():
            store.pop(key)
            store.notes.pop(self.mark, None)


class Store:
    """The entries of all factories for one callable, which carries it or has it in the registry."""

    __slots__ = ("__weakref__", "entries", "last", "lent", "notes", "owner")

    def __init__(self, owner: Any) -> None:
        #: Whether the owner is itself a wrapper around forwards. A wrapper of it then gets a
        #: forward too: what its own store holds must not count as somebody holding it.
        self.lent = False
        #: Checked at every look-up: functools.wraps copies the attribute into other functions.
        self.owner: weakref.ref[Any] | None
        if owner is None:
            self.owner = None
        else:
            kind = weakref.ref if type(owner) is _FunctionType else _OwnerRef
            self.owner = kind(owner)
        #: Oldest first. A key starts with the mark of its factory's token.
        self.entries: dict[Key, Entry] = {}
        #: The usual call's last hit: mark, constant and entry. Comparing two objects with `is`
        #: costs a third of looking up a tuple of them.
        self.last: tuple[Any, Any, Any] = (None, None, None)
        #: What factories note of the owner, by their tokens' marks.
        self.notes: dict[Any, Any] = {}

    def pop(self, key: Key) -> None:
        self.entries.pop(key, None)
        self.last = (None, None, None)

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        # A pickle or a copy carries nothing along, and needs no fnintern to be read (L4).
        return type(None), ()


#: Stores of what cannot carry one, under the id of the owner.
registry: dict[int, Store] = {}


class _OwnerRef(weakref.ref[Any]):
    """Weak reference to a callable that has a store in the registry."""

    __slots__ = ("number",)
    number: int

    def __new__(cls, owner: Any) -> _OwnerRef:
        self = super().__new__(cls, owner, _drop_store)
        self.number = id(owner)
        return self

    def __init__(self, owner: Any) -> None:
        super().__init__(owner, _drop_store)  # type: ignore[call-arg]


def _drop_store(ref: weakref.ref[Any], registry: dict[int, Store] = registry) -> None:
    # The registry is a default, since at the end of the interpreter globals go before code does.
    number = ref.number  # type: ignore[attr-defined]
    store = registry.get(number)
    if store is not None and store.owner is ref:
        registry.pop(number, None)


#: Only for replacing a store that was copied from another function. Reentrant, since dropping the
#: old store may run destructors that come back here.
_replacing = threading.RLock()


def _renew_lock() -> None:
    global _replacing
    _replacing = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def store_of(owner: Any) -> Store:
    """The store of a callable, made where there is none.

    Args:
        owner: a callable that takes weak references.

    Returns:
        The store. Threads that race get the same one.
    """
    namespace: dict[Any, Any]
    key: Any
    namespace, key = registry, id(owner)
    if type(owner) is _FunctionType:
        namespace, key = owner.__dict__, STORE_ATTRIBUTE
    store = namespace.get(key)
    if store is None:
        store = namespace.setdefault(key, Store(owner))
    if not owns(store, owner):
        fresh = Store(owner)
        with _replacing:
            store = namespace[key]
            foreign = store  # dropped after the lock
            if not owns(store, owner):
                namespace[key] = store = fresh
        del foreign
    return store


def owns(store: Any, owner: Any) -> bool:
    """Whether a store was made for ``owner``, and not copied along from another function."""
    return type(store) is Store and store.owner is not None and store.owner() is owner


def drop_copied_store(wrapper: Any) -> None:
    """Takes out of a wrapper the store that ``functools.update_wrapper`` copied into it.

    Without this, each wrapper of a wrapper would keep all wrappers of the first function alive.
    """
    try:
        namespace = wrapper.__dict__
    except Exception:  # any __getattribute__ may have run
        return
    if type(namespace) is dict:
        store = namespace.get(STORE_ATTRIBUTE)
        if type(store) is Store and not owns(store, wrapper):
            namespace.pop(STORE_ATTRIBUTE, None)

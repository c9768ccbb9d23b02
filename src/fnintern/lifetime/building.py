"""Calls a factory with stand-ins in place of the callables that an entry must not hold."""

from __future__ import annotations

import gc
import types
from collections.abc import Callable, Sequence
from typing import Any

from fnintern.keys.arguments import rebuild
from fnintern.keys.callables import is_bound_method
from fnintern.keys.objects import importable
from fnintern.lifetime.entries import OUTSIDE, Entry
from fnintern.lifetime.standins import Forward, standin_for
from fnintern.lifetime.stores import drop_copied_store, store_of

__all__ = ["build", "holds_one_of"]


def holds_one_of(wrapper: Any, objects: Sequence[Any], limit: int = 1000) -> bool:
    """Whether the wrapper refers to one of some objects, but for what stands in for them. True as
    well where it has too much inside to tell."""
    wanted = set(map(id, objects))
    todo: list[Any] = [wrapper]
    seen = {id(wrapper)}
    while todo:
        current = todo.pop()
        skipped = id(current.__globals__) if type(current) is types.FunctionType else None
        for item in gc.get_referents(current):
            if id(item) in wanted:
                return True
            if id(item) in seen or id(item) == skipped or issubclass(type(item), OUTSIDE):
                continue
            seen.add(id(item))
            if len(seen) > limit:
                return True
            todo.append(item)
    return False


def build(
    factory: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    targets: list[Any],
    owner: Any,
) -> Entry:
    """Calls the factory, with forwards in place of the callables that an entry must not hold.

    Args:
        factory: what makes the wrapper.
        args, kwargs: its arguments, spelled as the caller did.
        targets: the callables in them, as :func:`fnintern.keys.arguments.key_of` lists them.
        owner: the one of them whose store will hold the entry, or None.

    Returns:
        The entry, not yet in any table.

    Raises:
        Whatever the factory raises; nothing is stored then (I6).
    """
    forwards: dict[tuple[int, ...], Forward] = {}

    def substitute(target: Any) -> Any:
        if is_bound_method(target):
            parts: tuple[Any, ...] = (target.__self__, target.__func__)
        elif target is owner and type(target) is types.FunctionType and not store_of(target).lent:
            return target  # in a cycle through its own store
        elif type(target) is types.BuiltinFunctionType and importable(target):
            return target  # its module keeps it alive
        else:
            parts = (target,)
        key = tuple(map(id, parts))
        if key not in forwards:
            try:
                forwards[key] = standin_for(*parts)
            except TypeError:  # a ufunc takes no weak reference; see fnintern.keys.arguments
                return target
        return forwards[key]

    wrapper = factory(
        *(rebuild(value, substitute) for value in args),
        **{name: rebuild(value, substitute) for name, value in kwargs.items()},
    )
    drop_copied_store(wrapper)
    entry = Entry(wrapper, targets, owner, tuple(forwards.values()))
    objects = [target for target in targets if not callable(target)]
    entry.temporary = bool(objects) and holds_one_of(wrapper, objects)
    return entry

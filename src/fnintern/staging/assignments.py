"""What a trace assigns to the attributes of objects that live for one call (S3).

A module of haiku notes the size of its input when it is first called, and each call of the
transformed function makes it again. JAX would trace each of these calls, so a hit assigns the same.
Imports jax.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

from fnintern.captures.freezing import Frozen
from fnintern.keys.objects import namespace_of
from fnintern.libraries.settings import is_module_of_call
from fnintern.staging.results import Unlocated, object_maker

__all__ = ["Assigned", "Assignments", "repeat"]

#: The place of an object among the holders of a call, an attribute, and what makes its value.
Assigned = tuple[int, str, Callable[[Frozen], Any]]


class Assignments:
    """Notes what a trace assigns to the attributes of such objects.

    Args:
        frozen: what the call sees. Its trace has not begun.
    """

    __slots__ = ("_before", "_frozen")

    def __init__(self, frozen: Frozen) -> None:
        self._frozen = frozen
        #: Place, namespace, and what it held; of a container what it contained.
        self._before = [
            (place, namespace, {name: _copy(value) for name, value in namespace.items()})
            for place, holder in enumerate(frozen.holders)
            if is_module_of_call(holder) and (namespace := namespace_of(holder)) is not None
        ]

    def made(self) -> tuple[Assigned, ...]:
        """What was assigned.

        Raises:
            Unlocated: it is an object that cannot be found in another call, or an attribute was
                deleted.
        """
        for _, namespace, before in self._before:
            for name in before.keys() - namespace.keys():
                raise Unlocated(name)
        return tuple(
            [
                (place, name, object_maker(value, self._frozen))
                for place, namespace, before in self._before
                for name, value in namespace.items()
                if name not in before or not _is_same(before[name], value)
            ]
        )

    @contextlib.contextmanager
    def undone(self) -> Iterator[None]:
        """The attributes are as before the trace, for the time of the block."""
        after = [dict(namespace) for _, namespace, _ in self._before]
        for _, namespace, before in self._before:
            _replace(namespace, before)
        try:
            yield
        finally:
            for (_, namespace, _), contents in zip(self._before, after, strict=True):
                _replace(namespace, contents)


def repeat(assigned: tuple[Assigned, ...], frozen: Frozen) -> None:
    """Assigns to the objects of a call what the trace of another one has assigned."""
    for place, name, make in assigned:
        namespace = namespace_of(frozen.holders[place])
        if namespace is not None:
            namespace[name] = make(frozen)


def _copy(value: Any) -> Any:
    return value.copy() if type(value) in _CONTAINERS else value


def _is_same(before: Any, after: Any) -> bool:
    if type(after) not in _CONTAINERS or type(before) is not type(after):
        return before is after
    if len(before) != len(after):
        return False
    if type(after) is set:
        return bool(before == after)
    items = zip(*map(_items, (before, after)), strict=True)
    return all(a is b for a, b in items)


def _items(container: Any) -> list[Any]:
    if type(container) is list:
        return container
    return [part for item in container.items() for part in item]


_CONTAINERS: Final = (list, dict, set)


def _replace(namespace: dict[str, Any], contents: dict[str, Any]) -> None:
    namespace.clear()
    namespace.update(contents)

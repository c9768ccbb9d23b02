"""What some objects hold, shallowly, and the way back: for a trace that changed what it sees.

Never imports jax, flax or numpy.
"""

from __future__ import annotations

import collections
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from fnintern.recognition import namespace_of, slots_of

__all__ = ["Snapshot"]


class Snapshot:
    """The contents of some objects at one moment.

    Args:
        objects: containers, instances and classes; what holds nothing that can change is ignored.

    Example:
        >>> log = [1]
        >>> snapshot = Snapshot([log])
        >>> log.append(2)
        >>> snapshot.restore()
        >>> log
        [1]
    """

    def __init__(self, objects: Iterable[Any]) -> None:
        self._saved = [
            (holder, read, write, read(holder))
            for value in objects
            for holder, read, write in _parts_of(value)
        ]

    def restore(self) -> None:
        """Makes the objects hold what they held. One that still does is left alone."""
        for holder, read, write, before in self._saved:
            now = read(holder)
            if len(now) != len(before) or any(a is not b for a, b in zip(now, before, strict=True)):
                write(holder, before)


_Read = Callable[[Any], Any]
_Write = Callable[[Any, Any], None]


def _parts_of(value: Any) -> Iterator[tuple[Any, _Read, _Write]]:
    """What can change of an object: who holds it, how it is read, and how it is put back."""
    if isinstance(value, type):
        yield value, _read_class, _write_class
        return
    numpy = sys.modules.get("numpy")
    kinds = (*_CONTAINERS, numpy.ndarray) if numpy is not None else tuple(_CONTAINERS)
    for kind in kinds:
        if isinstance(value, kind):
            yield value, *_CONTAINERS.get(kind, (_read_array, _write_array))
    namespace = namespace_of(value)
    if namespace is not None:
        yield namespace, _read_dict, _write_dict
    names = slots_of(type(value))
    if isinstance(value, types.FunctionType):
        names = ["__defaults__", "__kwdefaults__"]
    for name in names:
        yield (value, name), _read_slot, _write_slot


def _read_dict(value: Any) -> list[Any]:
    return [part for item in list(dict.items(value)) for part in item]


def _write_dict(value: Any, parts: list[Any]) -> None:
    dict.clear(value)
    dict.update(value, zip(parts[::2], parts[1::2], strict=True))


def _read_class(value: type) -> list[Any]:
    return [part for item in list(vars(value).items()) for part in item]


def _write_class(value: type, parts: list[Any]) -> None:
    before = dict(zip(parts[::2], parts[1::2], strict=True))
    for name, item in list(vars(value).items()):
        if name not in before:
            type.__delattr__(value, name)
        elif item is not before[name]:
            type.__setattr__(value, name, before.pop(name))
    for name in before.keys() - vars(value).keys():
        type.__setattr__(value, name, before[name])


def _read_slot(place: tuple[Any, str]) -> list[Any]:
    try:
        return [object.__getattribute__(*place)]
    except AttributeError:
        return []


def _write_slot(place: tuple[Any, str], content: list[Any]) -> None:
    try:
        if content:
            object.__setattr__(*place, content[0])
        else:
            object.__delattr__(*place)
    except (AttributeError, TypeError):
        pass  # read-only, of a class made in C: a number, which is another object at each read


def _read_array(value: Any) -> bytes:
    return bytes(value.tobytes())


def _write_array(value: Any, content: bytes) -> None:
    numpy = sys.modules["numpy"]
    value[...] = numpy.frombuffer(content, value.dtype).reshape(value.shape)


def _write_list(value: Any, items: Any) -> None:
    value[:] = items


def _write_set(value: Any, items: Any) -> None:
    value.clear()
    value.update(items)


def _write_deque(value: Any, items: Any) -> None:
    value.clear()
    value.extend(items)


_CONTAINERS: Final[dict[type, tuple[_Read, _Write]]] = {
    dict: (_read_dict, _write_dict),
    list: (list.copy, _write_list),
    bytearray: (bytes, _write_list),
    set: (list, _write_set),
    collections.deque: (list, _write_deque),
}

"""What JAX's equality of tree structures leaves open: ``{1: x}`` and ``{True: x}`` are equal (I3).

Never imports jax.
"""

from __future__ import annotations

import dataclasses
import numbers
import struct
from collections.abc import Iterator
from typing import Any, Final

__all__ = ["number_types"]

#: Hashes of structures with no number in them, as most are. The structures themselves would keep
#: what their nodes refer to alive.
_plain: set[int] = set()
_MAX_PLAIN: Final = 4096


def number_types(structure: Any) -> tuple[Any, ...]:
    """Tokens that differ for two equal tree structures where the keys of dictionaries, or the data
    of custom nodes, are numbers of different types.

    Example:
        >>> import jax
        >>> one, other = (jax.tree.structure({key: 0.5}) for key in (1, True))
        >>> one == other, number_types(one) == number_types(other)
        (True, False)
    """
    number = hash(structure)
    if number in _plain:
        return ()
    tokens = tuple(_of_nodes(structure))
    if not tokens:
        if len(_plain) >= _MAX_PLAIN:
            _plain.clear()
        _plain.add(number)
    return tokens


def _of_nodes(structure: Any) -> Iterator[Any]:
    node = structure.node_data()
    if node is not None:
        yield from _of_data(node[1])
        for child in structure.children():
            yield from _of_nodes(child)


def _of_data(data: Any) -> Iterator[Any]:
    if isinstance(data, numbers.Number):
        yield type(data)
        if isinstance(data, float):  # 0.0 == -0.0
            yield struct.pack("d", data)
    elif isinstance(data, tuple | list | set | frozenset):
        for item in data:
            yield from _of_data(item)
    elif isinstance(data, dict):
        for item in data.items():
            yield from _of_data(item)
    elif dataclasses.is_dataclass(data) and not isinstance(data, type):
        for field in dataclasses.fields(data):
            yield from _of_data(getattr(data, field.name, None))

"""What JAX's equality of tree structures leaves open: ``{1: x}`` and ``{True: x}`` are equal (I3).

Never imports jax.
"""

from __future__ import annotations

import dataclasses
import numbers
import struct
from typing import Any, Final

__all__ = ["number_types"]

#: Structures with nothing but text in them, as most are: what is equal to one is the same.
_texts: dict[Any, None] = {}
_MAX_TEXTS: Final = 1024


def number_types(structure: Any) -> tuple[Any, ...]:
    """Tokens that differ for two equal tree structures where the keys of dictionaries, or the data
    of custom nodes, are numbers of different types.

    Example:
        >>> import jax
        >>> one, other = (jax.tree.structure({key: 0.5}) for key in (1, True))
        >>> one == other, number_types(one) == number_types(other)
        (True, False)
    """
    if structure in _texts:
        return ()
    tokens: list[Any] = []
    if _walk_nodes(structure, tokens):
        if len(_texts) >= _MAX_TEXTS:
            _texts.clear()
        _texts[structure] = None
    return tuple(tokens)


def _walk_nodes(structure: Any, tokens: list[Any]) -> bool:
    """Adds the tokens of a structure; returns whether it holds nothing but text."""
    node = structure.node_data()
    if node is None:
        return True
    kind, data = node
    # A named tuple has its class there, which the program keeps anyway.
    text = data is kind or _walk_data(data, tokens)
    for child in structure.children():
        text &= _walk_nodes(child, tokens)
    return text


def _walk_data(data: Any, tokens: list[Any]) -> bool:
    kind = type(data)
    if kind is str or data is None:
        return True
    if isinstance(data, numbers.Number):
        tokens.append(kind)
        if isinstance(data, float):  # 0.0 == -0.0
            tokens.append(struct.pack("d", data))
        return False
    if isinstance(data, tuple | list | set | frozenset):
        text = [_walk_data(item, tokens) for item in data]  # all of them, for their tokens
        return all(text) and kind in (tuple, list)
    if isinstance(data, dict):
        for item in data.items():
            _walk_data(item, tokens)
    elif dataclasses.is_dataclass(data) and not isinstance(data, type):
        for field in dataclasses.fields(data):
            _walk_data(getattr(data, field.name, None), tokens)
    return False

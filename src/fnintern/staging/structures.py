"""Tree structures that say all they are by JAX's own equality, and those that do not (I3).

Never imports jax.
"""

from __future__ import annotations

import collections
from typing import Any, Final

__all__ = ["holds_text_only"]

#: Structures with nothing but text in them, as most are: what is equal to one is the same.
_texts: dict[Any, None] = {}
_MAX_TEXTS: Final = 4096

#: Nodes without code of the user's; their data are the keys, if any.
_KINDS: Final = frozenset({tuple, list, dict, type(None), collections.OrderedDict})


def holds_text_only(structure: Any) -> bool:
    """Whether a structure is made of plain containers, and the keys in it are text.

    Such a structure is a key as it is. Of others JAX's equality says too little: ``{1: x}`` and
    ``{True: x}`` are equal to it, and the data of a custom node are compared by their own ``==``.

    Example:
        >>> import jax
        >>> [holds_text_only(jax.tree.structure({key: 0.5})) for key in ("a", 1)]
        [True, False]
    """
    try:
        if structure in _texts:
            return True
    except Exception:  # the data of a node cannot be hashed or compared
        return False
    if not _walk(structure):
        return False
    if len(_texts) >= _MAX_TEXTS:
        _texts.clear()
    _texts[structure] = None
    return True


def _walk(structure: Any) -> bool:
    node = structure.node_data()
    if node is None:
        return True
    kind, data = node
    if kind not in _KINDS:
        return False
    if kind in (dict, collections.OrderedDict) and not all(type(name) is str for name in data):
        return False
    return all(map(_walk, structure.children()))

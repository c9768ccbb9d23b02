"""Containers, arrays, and values of the standard library, of numpy and of jax."""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import logging
import pathlib
import re
import struct
import sys
import types
import uuid
import weakref
from typing import Any, Final

from fnintern.captures.functions import add_attributes
from fnintern.captures.reading import ReadObject
from fnintern.captures.walk import MAX_KEPT, References, Walk, short
from fnintern.keys.tokens import ATOMIC, Marker, Refused
from fnintern.keys.weakids import WeakIds
from fnintern.libraries.purity import ASKING_LOCKS, READING_FILES

__all__ = [
    "CONSTANTS",
    "MAX_ARRAY_BYTES",
    "MAX_KEPT",
    "add_array",
    "add_bytearray",
    "add_complex",
    "add_float",
    "add_leaf",
    "add_lock",
    "add_logger",
    "add_mapping",
    "add_namespace",
    "add_sequence",
    "add_set",
    "add_slice",
    "add_tree_definition",
    "add_trusted",
    "add_weak",
    "add_weak_values",
    "is_array",
]

#: The largest NumPy array that becomes part of a key, in bytes. It is compared by a digest of its
#: contents, which costs a millisecond for each MiB.
MAX_ARRAY_BYTES: Final = 1 << 24


#: From so many parts on a container is looked at as a whole first.
_MANY: Final = 8


_PLAIN: Final = frozenset({int, str, bool, type(None)})


#: Immutable values of the standard library, which hold no array.
CONSTANTS: Final = (
    range, re.Pattern, pathlib.PosixPath, pathlib.WindowsPath, pathlib.PurePosixPath,
    pathlib.PureWindowsPath, decimal.Decimal, fractions.Fraction, datetime.date, datetime.time,
    datetime.datetime, datetime.timedelta, uuid.UUID, types.GenericAlias, types.UnionType,
)  # fmt: skip


def add_float(walk: Walk, value: float, path: str) -> None:
    walk.tokens += (float, struct.pack("d", value))


def add_complex(walk: Walk, value: complex, path: str) -> None:
    walk.tokens += (complex, struct.pack("dd", value.real, value.imag))


def add_sequence(walk: Walk, value: Any, path: str) -> None:
    if walk.met(value):
        return
    walk.sized(value, path)
    if type(value) is collections.deque:
        walk.tokens.append(value.maxlen)
    if len(value) > _MANY and _plain(walk, value):
        return
    walk.deeper(value, path)
    tokens = walk.tokens
    for i, item in enumerate(value):
        kind = type(item)
        # The usual items, without a call for each.
        if (kind is str and len(item) <= MAX_KEPT) or kind is bool or item is None:
            tokens += (kind, item)
        else:
            walk.add(item, f"{path}[{i}]")
    walk.depth -= 1


def _plain(walk: Walk, value: Any) -> bool:
    """Adds many arrays, or numbers and short texts, at once; says whether there is nothing
    else."""
    items = tuple(value)
    kinds = tuple(map(type, items))
    if walk.handlers.get(kinds[0]) is add_leaf and len(set(kinds)) == 1 and not walk.fixed:
        walk.tokens += (Marker.LEAF, len(items))
        walk.leaves += items
        return True
    if not _PLAIN.issuperset(kinds):
        return False
    if str in kinds and sum(len(x) for x in items if type(x) is str) > MAX_KEPT * len(items):
        return False
    if int in kinds and max(x for x in items if type(x) is int) >> 512:
        return False
    walk.tokens += (kinds[0] if len(set(kinds)) == 1 else kinds, items)
    return True


def add_mapping(walk: Walk, value: Any, path: str) -> None:
    if walk.met(value):
        return
    walk.sized(value, path)
    walk.deeper(value, path)
    if type(value) is collections.defaultdict:
        walk.add(value.default_factory, f"{path}.default_factory")
    if len(value) > _MANY and _plain(walk, value):
        items = list(value.values())
        if _plain(walk, items):
            walk.depth -= 1
            return
    for name, item in list(value.items()):
        walk.add(name, f"{path} key")
        walk.add(item, f"{path}[{name!r}]" if type(name) in ATOMIC else f"{path}[...]")
    walk.depth -= 1


def add_set(walk: Walk, value: Any, path: str) -> None:
    if walk.met(value):
        return
    walk.sized(value, path)
    for item in list(value):  # in the order in which code would meet them
        walk.add(item, f"{path}{{...}}")


def add_bytearray(walk: Walk, value: bytearray, path: str) -> None:
    if not walk.met(value):
        walk.tokens += (bytearray, short(bytes(value)))


def add_slice(walk: Walk, value: slice, path: str) -> None:
    walk.tokens.append(slice)
    for name in ("start", "stop", "step"):
        walk.add(getattr(value, name), f"{path}.{name}")


def add_weak(walk: Walk, value: weakref.ref[Any], path: str) -> None:
    if walk.references is not References.READ:
        raise Refused(path, value, "what it refers to may go")
    walk.tokens.append(weakref.ref)
    walk.add(value(), f"{path}()")


def add_weak_values(walk: Walk, value: Any, path: str) -> None:
    if walk.references is not References.READ:
        raise Refused(path, value, "what it refers to may go")
    add_mapping(walk, value, path)


def add_namespace(walk: Walk, value: Any, path: str) -> None:
    if not walk.met(value):
        walk.tokens.append(types.SimpleNamespace)
        if walk.whole:
            add_attributes(walk, vars(value), path)
        else:
            walk.objects.append(ReadObject(vars(value), (), path))


def add_trusted(walk: Walk, value: Any, path: str) -> None:
    """An immutable value of the standard library, of numpy or of jax, by its own equality."""
    try:
        hash(value)
    except Exception as error:
        raise Refused(path, value, f"hash() failed: {type(error).__name__}") from None
    walk.tokens += (type(value), value, repr(value))
    if isinstance(value, pathlib.Path):
        walk.doubtful += ((READING_FILES, value, path, "it reads a file"),)


def add_tree_definition(walk: Walk, value: Any, path: str) -> None:
    """A tree structure of jax, node by node: a node's data may change, and hold arrays."""
    node = value.node_data()
    walk.tokens += (type(value), value.num_leaves)
    if node is None:
        return
    walk.add(node[0], f"{path} node")
    walk.add(node[1], f"{path} data")
    for i, child in enumerate(value.children()):
        add_tree_definition(walk, child, f"{path}.children()[{i}]")


def add_logger(walk: Walk, value: logging.Logger, path: str) -> None:
    """A logger is written to. Code may ask it which messages it takes."""
    walk.target(Marker.OBJECT, value, path)
    walk.tokens += (value.getEffectiveLevel(), value.disabled, value.manager.disable)


def add_lock(walk: Walk, value: Any, path: str) -> None:
    """A lock decides when code runs, and nothing else."""
    walk.tokens.append(type(value))
    walk.doubtful += ((ASKING_LOCKS, value, path, "it asks whether a lock is held"),)


def add_leaf(walk: Walk, value: Any, path: str) -> None:
    if walk.fixed:
        walk.target(Marker.OBJECT, value, path)
        return
    walk.tokens.append(Marker.LEAF)
    walk.leaves.append(value)


def is_array(value: Any) -> bool:
    """Whether it is an array of JAX, or a tracer."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(value, getattr(jax, "Array", ()))


def add_array(walk: Walk, value: Any, kind: type, path: str) -> bool:
    """Arrays of jax are leaves, small ones of numpy are part of the key."""
    if is_array(value):
        add_leaf(walk, value, path)
        if kind.__module__.partition(".")[0] == "jaxlib":
            walk.handlers.setdefault(kind, add_leaf)  # the usual one, the short way from now on
        else:
            walk.tokens.append(kind)  # code may tell tracers apart
        return True
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return False
    if isinstance(value, numpy.generic) and kind.__module__.partition(".")[0] != "jax":
        _dtype(walk, value.dtype)
        walk.tokens += (kind, value.tobytes())
    elif kind is numpy.ndarray:
        if value.nbytes > MAX_ARRAY_BYTES or value.dtype.hasobject:
            reason = f"a NumPy array of {value.nbytes} bytes, which may be edited in place"
            raise Refused(path, value, reason, "make it a jax.Array, or an operand")
        if not walk.met(value):
            _dtype(walk, value.dtype)
            contents = _contents_of(value)
            walk.tokens += (kind, value.shape, value.strides, contents)
            walk.tokens += (value.flags.writeable, value.base is None)
            walk.buffers += ((value, contents),)
    elif isinstance(value, numpy.dtype):
        _dtype(walk, value)
    else:
        return False
    return True


#: The bytes of an array of NumPy, and their digest.
_known_contents: WeakIds[tuple[bytes, Any]] = WeakIds()


def _contents_of(array: Any) -> Any:
    """What stands for the contents of an array of NumPy. A digest takes ten times as long as to
    compare the bytes with those of the last time."""
    data = array.tobytes()
    if len(data) <= MAX_KEPT:
        return data
    found = _known_contents.get(array)
    if found is not None and found[0] == data:
        return found[1]
    digest = short(data)
    _known_contents.set(array, (data, digest))
    return digest


def _dtype(walk: Walk, dtype: Any) -> None:
    if dtype.metadata:
        raise Refused("dtype", dtype, "its metadata may change")
    walk.tokens += (type(dtype), dtype.str, repr(dtype), id(dtype.type))
    walk.targets.append(dtype.type)

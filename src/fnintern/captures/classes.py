"""What is read off objects and classes of the user's: by any code met (S5)."""

from __future__ import annotations

import abc
import collections
import functools
import inspect
import types
from typing import Any, Final

from fnintern.captures.declared import key_function
from fnintern.captures.functions import UNREAD_NAMES, add_attributes, decides_on_items, parts_of
from fnintern.captures.instructions import Key as ConstantKey
from fnintern.captures.modules import KEYED_TYPES, READ_OUTSIDE, add_items
from fnintern.captures.reading import WHOLE_ONLY, ReadClass, Reading, ReadObject, reading_of
from fnintern.captures.walk import EMPTY, MISSING, Walk, slot_of
from fnintern.keys.callables import is_pytree_node
from fnintern.keys.objects import CONTAINERS, content_of, hides_state, namespace_of, slots_of
from fnintern.keys.tokens import STORE_ATTRIBUTE, Marker, Refused
from fnintern.keys.weakids import WeakIds
from fnintern.libraries.flax import unread_attributes
from fnintern.libraries.ownership import calls_back, is_library_class
from fnintern.libraries.purity import CLOCKS, IMPURE_METHODS

__all__ = [
    "add_another_object",
    "add_class",
    "add_descriptor",
    "add_object",
    "plain_kinds",
    "visit_read_sets",
]

#: Classes whose instances are made of attributes and nothing else is known of.
plain_kinds: WeakIds[bool] = WeakIds()


_READ: Final = "read"
#: Types of attributes that are tokens as they are.
_SHORT: Final = frozenset({bool, type(None)})


#: What a class holds about itself, for the interpreter or for the decorator that made it.
_NOT_MEMBERS: Final = frozenset(
    {
        STORE_ATTRIBUTE, "__module__", "__qualname__", "__doc__", "__dict__", "__weakref__",
        "__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__",
        "__type_params__", "__firstlineno__", "__static_attributes__", "__dataclass_fields__",
        "__dataclass_params__", "__attrs_attrs__", "__orig_bases__", "__parameters__",
        "__abstractmethods__", "_abc_impl", "__fnintern_interner__", "__signature__",
    }
)  # fmt: skip


#: Attributes in which functions and classes describe themselves. Code hardly ever asks for them.
_DESCRIPTIVE: Final = frozenset(
    {"__name__", "__qualname__", "__module__", "__doc__", "__annotations__", "__subclasses__"}
)


_DESCRIPTORS: Final = (
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
    types.WrapperDescriptorType,
    type(collections.namedtuple("_", "field").field),  # type: ignore[attr-defined]
)


def add_class(walk: Walk, value: type, path: str, *, of_instance: bool = False) -> None:
    known = walk.classes.get(id(value)) if walk.classes else None
    if known is not None:
        walk.tokens.append(id(value))
        known.called |= not of_instance
        return
    walk.target(Marker.OBJECT, value, path)
    if not is_library_class(value):
        walk.tokens.append(tuple(map(id, value.__mro__)))
    if value in CLOCKS:
        walk.doubtful += ((IMPURE_METHODS, value, path, "it reads the clock"),)
    for kind in (value, type(value)):  # a metaclass may hold properties
        if not is_library_class(kind):
            walk.classes = walk.classes or {}
            record = walk.classes.setdefault(id(kind), ReadClass(kind, path))
            record.called |= not of_instance


def _check_doubtful(walk: Walk, reading: Reading) -> None:
    """Refuses what is harmless only as long as nobody asks it for the time, or for chance."""
    for names, value, path, reason in walk.doubtful:
        if not names.isdisjoint(reading.names):
            raise Refused(path, value, reason, READ_OUTSIDE)


def visit_read_sets(walk: Walk) -> None:
    """Adds what the code met may read off the objects and classes met, until nothing new turns
    up (S5).

    Which attribute is read off which object is not known, so every name that any code reads
    counts for every object and class of the user's.
    """
    if walk.classes:
        walk.tokens.append(abc.get_cache_token())  # another one after each ABC.register()
    seen: Any = None
    reading = reading_of(tuple(walk.facts))
    while True:
        everything = walk.introspects or reading.introspects
        for number, record in enumerate(walk.objects):  # it grows meanwhile
            if record.seen_by is not reading or everything is not record.everything:
                record.seen_by, record.everything = reading, everything
                _visit_object(walk, number, record, reading, everything)
        for kind in list((walk.classes or {}).values()):
            called = kind.called or reading.constructs
            if kind.seen_by is not reading or (everything, called) != kind.seen_as:
                kind.seen_by, kind.seen_as = reading, (everything, called)
                _visit_class(walk, kind, reading, everything, called)
        reading = reading_of(tuple(walk.facts))
        size = (len(walk.facts), len(walk.objects), len(walk.classes or ()), walk.introspects)
        if size == seen:
            break
        seen = size
    if reading.assigned or reading.filled:
        _note_written(walk, reading)
    _visit_descriptions(walk, reading)
    _check_doubtful(walk, reading)


def _note_written(walk: Walk, reading: Reading) -> None:
    """What is in the attributes that code assigns to, off whatever object."""
    for record in walk.objects:
        walk.written += tuple(record.value_of(name) for name in reading.assigned)
        for name in reading.filled:
            walk.written += parts_of(record.value_of(name))


def _visit_object(
    walk: Walk, number: int, record: ReadObject, reading: Reading, everything: bool
) -> None:
    namespace, done, reads = record.namespace, record.done, reading.reads
    names = list(namespace) if namespace else []
    if not everything:
        filled = reading.filled
        names = [
            name
            for name in names
            if name in reads or (name in filled and decides_on_items(record.value_of(name)))
        ]
    for name in names:
        how = WHOLE_ONLY if everything else reads.get(name, WHOLE_ONLY)
        before = done.get(name)
        if before == how or name in UNREAD_NAMES:
            continue
        item = namespace.get(name, MISSING)
        done[name] = how
        if type(item) in _SHORT:
            walk.tokens += (_READ, number, name, type(item), item)
        else:
            walk.tokens += (_READ, number, name)
            _member(walk, item, how - before if before else how, f"{record.path}.{name}")
    for name, item in record.slots:
        counts = everything or name in reads or (name in reading.filled and decides_on_items(item))
        if counts and name not in done:
            done[name] = WHOLE_ONLY
            walk.tokens += (_READ, number, name)
            _member(walk, item, WHOLE_ONLY, f"{record.path}.{name}")


def _member(walk: Walk, item: Any, how: frozenset[Any], path: str) -> None:
    if item is MISSING:
        walk.tokens.append(EMPTY)
    elif type(item) in KEYED_TYPES and all(type(key) is ConstantKey for key in how):
        add_items(walk, item, sorted(how, key=repr), path)
    elif type(item) is inspect.Signature:  # of annotations too, by their text
        walk.tokens += (str(item), tuple(item.parameters))
    else:
        walk.add(item, path)


def _visit_class(
    walk: Walk, record: ReadClass, reading: Reading, everything: bool, called: bool
) -> None:
    kind, done = record.kind, record.done
    # What the library's base class calls is known to the library alone.
    every = everything or any(map(calls_back, kind.__mro__))
    for base in kind.__mro__:
        if is_library_class(base):
            continue
        for name, content in list(vars(base).items()):
            if (
                (every or reading.uses(name, content, called))
                and (id(base), name) not in done
                and name not in _NOT_MEMBERS
                and not _is_attrs_repr(content)
            ):
                done.add((id(base), name))
                walk.tokens += (id(base), name)
                _class_member(walk, content, f"{record.path}.{name}")


def _visit_descriptions(walk: Walk, reading: Reading) -> None:
    """Adds what functions and classes say of themselves, where any code asks for it."""
    if _DESCRIPTIVE.isdisjoint(reading.names):
        return
    described: list[Any] = [x for x in walk.holders if type(x) is types.FunctionType]
    described += [record.kind for record in (walk.classes or {}).values()]
    for value in described:
        walk.tokens += (value.__name__, value.__qualname__, value.__module__)
        walk.tokens += (repr(value.__doc__), repr(value.__annotations__))
        if isinstance(value, type):
            walk.tokens.append(tuple(map(id, type.__subclasses__(value))))


def _class_member(walk: Walk, content: Any, path: str) -> None:
    if isinstance(content, staticmethod | classmethod):
        walk.tokens.append(type(content))
        content = content.__func__
    if type(content) is property:
        for part in (content.fget, content.fset, content.fdel):
            walk.add(part, path)
    elif type(content) is functools.cached_property:
        walk.add(content.func, path)
    elif isinstance(content, _DESCRIPTORS):
        walk.tokens.append(Marker.OBJECT)  # a slot or field: what it holds is the instance's
    else:
        walk.add(content, path)


def add_descriptor(walk: Walk, value: Any, path: str) -> None:
    """``str.upper``, ``object.__setattr__``: a method of a class made in C."""
    walk.tokens += (type(value), value.__name__)
    add_class(walk, value.__objclass__, path)


def add_object(walk: Walk, value: Any, kind: type, path: str) -> None:
    """An instance of a Python class: its attributes, and what its class adds to them."""
    if walk.met(value):
        return
    walk.tokens.append(Marker.OBJECT)
    add_class(walk, kind, path, of_instance=True)
    base = None
    if not plain_kinds.get(kind):
        base = next((b for b in CONTAINERS if issubclass(kind, b)), None)
    if base is None and hides_state(kind):
        raise Refused(path, value, "its contents cannot be read completely")
    names = slots_of(kind)
    # JAX takes it apart, or code of a library may read any of it.
    whole = (
        base is not None
        or walk.whole
        or is_pytree_node(value)
        or any(map(calls_back, kind.__mro__))
    )
    if (
        plain_kinds.get(kind)
        and not walk.whole
        and key_function(kind) is None
        and not unread_attributes(value)
    ):
        walk.known[id(kind)] = names, whole
    if not whole:
        walk.objects.append(ReadObject(namespace_of(value), _slots(value, names), path))
        return
    if base is not None:
        walk.add(content_of(value, base), path)
    _add_contents(walk, value, names, path)


def _slots(value: Any, names: tuple[str, ...]) -> tuple[tuple[str, Any], ...]:
    return tuple([(name, slot_of(value, name)) for name in names]) if names else ()


def _add_contents(walk: Walk, value: Any, names: tuple[str, ...], path: str) -> None:
    """All attributes and slots of an object."""
    walk.deeper(value, path)
    namespace = namespace_of(value)
    if namespace is not None:
        unread = unread_attributes(value)
        if unread:
            namespace = {name: item for name, item in namespace.items() if name not in unread}
        walk.tokens.append(len(namespace))
        add_attributes(walk, namespace, path)
    for name in names:
        item = slot_of(value, name)
        walk.tokens.append(name)
        if item is MISSING:
            walk.tokens.append(EMPTY)
        else:
            walk.add(item, f"{path}.{name}")
    walk.depth -= 1


def add_another_object(
    walk: Walk, value: Any, kind: type, names: tuple[str, ...], whole: bool, path: str
) -> None:
    """What :func:`add_object` does where another object of the class was met before.

    Args:
        names: the slots of the class.
        whole: whether all of the object is read.
    """
    place = walk.seen.setdefault(id(value), len(walk.holders))
    if place < len(walk.holders):
        walk.tokens += (Marker.AGAIN, place)
        return
    walk.holders.append(value)
    walk.tokens += (Marker.OBJECT, id(kind))
    if whole or walk.whole:
        _add_contents(walk, value, names, path)
    else:
        walk.objects.append(ReadObject(namespace_of(value), _slots(value, names), path))


def _is_attrs_repr(value: object) -> bool:
    """What attrs prints an instance with: it uses a thread-local against endless recursion."""
    return (
        isinstance(value, types.FunctionType)
        and value.__name__ == "__repr__"
        and value.__code__.co_filename.startswith("<attrs generated")
    )

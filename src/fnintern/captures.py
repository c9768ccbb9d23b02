"""What a function can see, split into a strict key and leaves, or refused (laws S1, S2).

:func:`freeze` walks everything a fresh trace of a function could read: its code, closure cells,
defaults, attributes, ``__self__``, partial arguments, the globals that its code loads, attributes
read off modules and classes, and the same again for each Python function of the user's reached
that way. The key holds plain tokens and ids; the objects behind the ids are *targets*, which who
stores the key refers to weakly and compares with ``is``. So a stored key keeps nothing alive.

The key is computed anew at every call and cannot go stale; only what depends on a code object
alone is remembered, in :mod:`fnintern.code`. Code of installed libraries is not followed: a
library function is what it is, closed over what it is closed over.
Never imports jax or flax; it recognises their types where the user's program has imported them.
"""

from __future__ import annotations

import abc
import collections
import contextlib
import datetime
import decimal
import enum
import fractions
import functools
import hashlib
import inspect
import logging
import os
import pathlib
import re
import struct
import sys
import threading
import types
import uuid
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from fnintern.code import BLIND_BUILTINS, BUILTIN_NAMES, CodeFacts, facts_of, is_library_code
from fnintern.code import Key as ConstantKey
from fnintern.declarations import is_stateless, key_function
from fnintern.forwards import Forward, callable_of
from fnintern.keys.callables import is_partial
from fnintern.keys.objects import (
    CONTAINERS,
    content_of,
    has_value_equality,
    hides_state,
    importable,
    is_protocol,
    namespace_of,
    slots_of,
)
from fnintern.keys.tokens import ATOMIC, STORE_ATTRIBUTE, Identity, Key, Marker, Refused
from fnintern.libraries.flax import (
    is_identifier,
    is_readable_state,
    is_reference_state,
    is_trace_state,
    unread_attributes,
)
from fnintern.libraries.jax import JITTED, is_pytree_node
from fnintern.libraries.ownership import (
    calls_back,
    is_library_class,
    is_library_module,
    is_library_object,
)
from fnintern.libraries.purity import IMPURE_MODULES
from fnintern.reading import (
    INTROSPECTING,
    PLACEMENT,
    WHOLE_ONLY,
    ReadClass,
    Reading,
    ReadObject,
    reading_of,
)
from fnintern.recognition import is_attrs_repr, is_users

__all__ = ["Frozen", "References", "Refused", "freeze"]

#: How deep captures may nest before freezing gives up.
MAX_DEPTH: Final = 40
#: How many tokens a key may have.
MAX_TOKENS: Final = 2_000_000
#: The largest NumPy array that becomes part of a key, in bytes. It is compared by a digest of its
#: contents, which costs a millisecond for each MiB.
MAX_ARRAY_BYTES: Final = 1 << 24
#: What is longer than this, in bytes or characters, is represented in a key by a digest (S3).
MAX_KEPT: Final = 256

OPERAND: Final = "pass it as an operand"
READ_OUTSIDE: Final = "read it outside, pass the result"
CHANCE: Final = "it returns something else at each call"
MODULE_OPERAND: Final = "pass the module as an operand"

_IMPURE_METHODS: Final = frozenset({"now", "utcnow", "today"})
_CLOCKS: Final = (datetime.datetime, datetime.date)
_RANDOM: Final = frozenset({"random"})
#: Functions of ``os`` whose answer depends on what surrounds the program.
_ASKING: Final = frozenset(
    {"getenv", "getenvb", "getcwd", "getcwdb", "getpid", "urandom", "getrandom", "listdir",
     "scandir", "stat", "times", "getloadavg", "cpu_count", "sched_getaffinity", "read"}
)  # fmt: skip
#: Libraries whose functions do.
_SURROUNDINGS: Final = frozenset(
    {"glob", "shutil", "tempfile", "subprocess", "socket", "platform", "configparser", "sqlite3",
     "urllib", "http", "fileinput", "linecache", "mmap", "select"}
)  # fmt: skip
#: Functions of other libraries that do, by the root of the module.
_READING_NAMES: Final = {
    "genericpath": frozenset(
        {"exists", "lexists", "isfile", "isdir", "getsize", "getmtime", "getatime", "getctime",
         "samefile"}
    ),
    "posixpath": frozenset({"lexists", "islink", "ismount", "realpath"}),
    "numpy": frozenset(
        {"load", "loadtxt", "genfromtxt", "fromfile", "memmap", "get_printoptions", "geterr"}
    ),
    "threading": frozenset({"current_thread", "get_ident", "active_count", "enumerate"}),
    "_thread": frozenset({"get_ident"}),
    "decimal": frozenset({"getcontext", "localcontext"}),
}  # fmt: skip
#: Methods of a path that read files.
_READING_FILES: Final = frozenset(
    {"read_text", "read_bytes", "open", "exists", "is_file", "is_dir", "glob", "rglob", "iterdir",
     "stat", "lstat", "resolve", "walk"}
)  # fmt: skip
#: Functions that read any attribute of what they get, by whatever module.
_INTROSPECTING_NAMES: Final = frozenset({"asdict", "astuple", "evolve", "replace"})
_ModuleType: Final = types.ModuleType
_CODE: Final = Marker.CODE
_EMPTY: Final = Marker.EMPTY
_MISSING: Final = object()
#: The code of every function made by ``functools.singledispatch``.
_DISPATCH: Final[object] = getattr(functools.singledispatch(lambda x: x), "__code__", None)


class References(enum.Enum):
    """What becomes of objects that are there to be changed: modules and variables of ``flax.nnx``,
    scopes of ``flax.core``. What weak references refer to is read along with them."""

    #: The key is to outlive the moment.
    REFUSED = "refused"
    #: They are read like any object; what is found counts for this moment.
    READ = "read"


class Frozen:
    """What :func:`freeze` found.

    Attributes:
        key: tokens, hashable and strict; equal for functions that a trace cannot tell apart.
        targets: the objects whose ids are in the key, in the order of the key.
        leaves: the arrays and tracers, in the order in which they are met.
        owner: the first plain function of the user's that was met, or None.
        holders: the functions, containers and objects met.
        buffers: the NumPy arrays met, which are part of the key by their contents.
        asks_placement: whether code may ask an array where it is.
        objects: those of which some attributes are read, with what is.
    """

    __slots__ = (
        "asks_placement", "buffers", "holders", "key", "leaves", "objects", "owner", "targets",
    )  # fmt: skip

    def __init__(
        self,
        key: Key,
        targets: list[Any],
        leaves: list[Any],
        owner: Any,
        holders: Sequence[Any] = (),
        buffers: Sequence[Any] = (),
        asks_placement: bool = False,
        objects: Sequence[ReadObject] = (),
    ) -> None:
        self.asks_placement = asks_placement
        self.objects = objects
        self.buffers = buffers
        self.holders = holders
        self.key = key
        self.targets = targets
        self.leaves = leaves
        self.owner = owner


def freeze(
    *values: Any,
    names: tuple[str, ...] = ("f",),
    references: References = References.REFUSED,
) -> Frozen:
    """Splits all that functions can see into a key and leaves.

    Args:
        *values: functions, and whatever else is to be part of the key.
        names: what to call the values in the path of a refused capture.
        references: what becomes of modules and variables of ``flax.nnx``, which may change at
            any time.

    Returns:
        The key, its targets and the leaves.

    Raises:
        Refused: a capture is neither constant nor array; it names the capture by its path.

    Example:
        >>> def make(scale):
        ...     return lambda x: scale * x
        >>> freeze(make(2)).key == freeze(make(2)).key
        True
        >>> freeze(make(2)).key == freeze(make(2.0)).key
        False
    """
    walk = _Walk()
    walk.references = references
    try:
        for value, name in zip(values, names, strict=True):
            # What is no function goes to code that is not known here, such as a factory's.
            walk.whole = references is References.REFUSED and not callable(value)
            walk.add(value, name)
        walk.whole = False
        if walk.facts or walk.classes or walk.objects:
            walk.visit_read_sets()
    except RecursionError:
        raise Refused(names[0], values[0], "its captures nest too deeply") from None
    return Frozen(
        tuple(walk.tokens),
        walk.targets,
        walk.leaves,
        walk.owner,
        walk.holders,
        walk.buffers,
        not PLACEMENT.isdisjoint(reading_of(tuple(walk.facts)).names),
        walk.objects,
    )


_Handler = Callable[["_Walk", Any, str], None]


#: Attributes that say nothing of what an object does: our own, and the number that haiku gives to
#: each module, which functools.wraps copies along.
_NUMBERS: Final = frozenset({STORE_ATTRIBUTE, "_creation_frame_id"})


class _Walk:
    """One pass over what some values can see. Paths are spelled as Python would."""

    # Defaults on the class: most walks need few of these, and a walk is part of every hit.
    leaves: list[Any]
    buffers: tuple[Any, ...] = ()
    owner: Any = None
    #: Whether arrays are keyed by identity: a jitted function has them as constants.
    fixed = False
    depth = 0
    references = References.REFUSED
    classes: dict[int, ReadClass] | None = None
    #: Whether code of a library was met that may read any attribute of what it gets.
    introspects = False
    #: Whether all of the objects met now is read.
    whole = False
    #: What is refused if any code met loads one of these attributes, off whatever object.
    doubtful: tuple[tuple[frozenset[str], object, str, str], ...] = ()

    def __init__(self) -> None:
        self.tokens: list[Any] = []
        self.targets: list[Any] = []
        #: Ids, each with its place among the holders, which are kept: what is made for the moment
        #: must not lend its id to another.
        self.seen: dict[int, int] = {}
        self.holders: list[Any] = []
        self.leaves = []
        #: Of the code of the user's that was met.
        self.facts: dict[CodeFacts, None] = {}
        #: Objects of which is read what that code reads.
        self.objects: list[ReadObject] = []

    def add(self, value: Any, path: str) -> None:
        kind = type(value)
        if kind in ATOMIC:
            self.tokens += (kind, value) if kind not in _LONG else (kind, _short(value))
            return
        handler = _HANDLERS.get(kind)
        if handler is not None:
            handler(self, value, path)
        else:
            self._other(value, kind, path)

    # -- identity ---------------------------------------------------------------------------

    def _target(self, marker: Any, value: object, path: str) -> None:
        """Keys ``value`` by what it is. Whoever stores the key compares the target with `is`."""
        try:
            weakref.ref(value)
        except TypeError:
            if not importable(value):
                raise Refused(path, value, "it takes no weak reference") from None
            self.tokens += (marker, Identity(value))  # its module keeps it alive anyway
        else:
            self.tokens += (marker, id(value))
            self.targets.append(value)

    def _met(self, value: object) -> bool:
        """Whether ``value`` was met before; aliasing and cycles become tokens of their own."""
        place = self.seen.setdefault(id(value), len(self.holders))
        if place < len(self.holders):
            self.tokens += (Marker.AGAIN, place)
            return True
        self.holders.append(value)
        if len(self.tokens) > MAX_TOKENS:
            raise Refused("f", value, f"its captures have more than {MAX_TOKENS} parts", OPERAND)
        return False

    def _sized(self, value: Any, path: str) -> None:
        self.tokens += (type(value), len(value))
        if len(self.tokens) + len(value) > MAX_TOKENS:
            raise Refused(path, value, f"it has more than {MAX_TOKENS} parts", OPERAND)

    def _deeper(self, value: object, path: str) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Refused(path, value, f"captures nest deeper than {MAX_DEPTH}", OPERAND)

    # -- functions --------------------------------------------------------------------------

    def _function(self, value: types.FunctionType, path: str) -> None:
        if is_stateless(value):
            self._target(Marker.CALLABLE, value, path)
            return
        if self._met(value):
            return
        code = value.__code__
        facts = facts_of(code)
        namespace = value.__globals__
        library = is_library_code(facts, namespace)
        # What a library's decorator made of a function of the user's has the user's name.
        if library and is_library_object(value):
            self._check_pure(value, path)
            self._target(Marker.CALLABLE, value, path)
            return
        tokens = self.tokens
        if facts.writes and not library and self.references is References.REFUSED:
            raise Refused(
                path, value, f"it assigns to {facts.writes}", "return the value, and assign outside"
            )
        if code is _DISPATCH:  # its caches are no state
            self._target(Marker.CALLABLE, value, path)
            self.add(value.__dict__["registry"], f"{path}.registry")
            return
        # The id of the namespace only tells equal functions of two modules apart; equal contents
        # of a namespace that took over a freed one's id would be the same in all that counts.
        tokens += (_CODE, id(code), id(namespace))
        self.targets.append(code)
        if value.__name__ != code.co_name:
            tokens.append(value.__name__)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Refused(path, value, f"captures nest deeper than {MAX_DEPTH}", OPERAND)
        if value.__closure__ is not None:
            self._cells(value, facts, path)
        if value.__defaults__ is not None:
            tokens += ("defaults", len(value.__defaults__))
            for i, item in enumerate(value.__defaults__):
                self.add(item, f"{path}.__defaults__[{i}]")
        if value.__kwdefaults__ is not None:
            tokens += ("kwdefaults", len(value.__kwdefaults__))
            for name, item in value.__kwdefaults__.items():
                tokens.append(name)
                self.add(item, f"{path}.__kwdefaults__[{name!r}]")
        if value.__dict__:
            attributes = _own_attributes(value, library)
            if not library:
                self.objects.append(ReadObject(attributes, (), path))
                attributes = {n: item for n, item in attributes.items() if is_protocol(n)}
            self._attributes(attributes, path)
        if not library:
            self._annotations(value.__annotations__, path)
            tokens += (value.__qualname__, value.__doc__)
            if self.owner is None:
                self.owner = value
            self.facts[facts] = None
            if facts.identifies:
                raise Refused(path, value, "it asks for the id() of an object", "name the object")
            self._globals(value, facts, namespace, path)
        self.depth -= 1

    def _attributes(self, namespace: dict[str, Any], path: str) -> None:
        # In their own order, which code may go by.
        for name, item in list(namespace.items()):
            if name in _NUMBERS:
                continue
            self.tokens.append(name)
            if name == "__annotations__" and type(item) is dict:  # by functools.wraps
                self._annotations(item, path)
            elif type(item) is inspect.Signature:  # of annotations too, by their text
                self.tokens += (str(item), tuple(item.parameters))
            else:
                self.add(item, f"{path}.{name}")

    def _annotations(self, annotations: dict[str, Any], path: str) -> None:
        """What decorators may make something of; of a type's alias its text is enough."""
        for name, item in annotations.items():
            if isinstance(item, type):
                self._target(name, item, path)
            else:
                self.tokens += (name, repr(item))

    def _cells(self, value: types.FunctionType, facts: CodeFacts, path: str) -> None:
        cells: tuple[types.CellType, ...] = value.__closure__ or ()
        for name, cell in zip(value.__code__.co_freevars, cells, strict=True):
            try:
                content = cell.cell_contents
            except ValueError:
                self.tokens.append(_EMPTY)
                continue
            chains = facts.chains.get(name)
            if chains is None and not facts.library and name != "__class__":
                self.tokens.append(_EMPTY)  # only updated
            elif type(content) is _ModuleType:
                self._module(content, chains or _ESCAPES, f"{path}→{name}")
            else:
                self._read_by(content, chains or _ESCAPES, f"{path}→{name}")

    def _globals(
        self, value: types.FunctionType, facts: CodeFacts, namespace: dict[str, Any], path: str
    ) -> None:
        tokens = self.tokens
        for name, chains in facts.globals:
            content = namespace.get(name, _MISSING)
            kind = type(content)
            tokens.append(name)
            if kind is _ModuleType:
                self._module(content, chains, name)
            elif content is not _MISSING:
                self._read_by(content, chains, name)
            elif name in BLIND_BUILTINS:
                raise Refused(path, value, f"it calls {name}()", "name what it reads")
            else:
                builtin: dict[str, Any] = getattr(value, "__builtins__")  # noqa: B009
                found = builtin.get(name, _EMPTY)
                if found is _EMPTY or name in BUILTIN_NAMES:
                    tokens.append(_EMPTY)  # a builtin, or a NameError to come
                else:
                    self.add(found, name)
        for module, chains in facts.imports:
            self._import(value, namespace, module, chains, path)

    def _import(
        self,
        value: Any,
        namespace: dict[str, Any],
        name: tuple[str, int],
        chains: tuple[Any, ...],
        path: str,
    ) -> None:
        """An import statement inside a function reads modules as they are when it runs."""
        full, level = name
        if level:
            package = str(namespace.get("__package__") or "").split(".")
            full = ".".join([*package[: len(package) - level + 1], *([full] if full else [])])
        if full in IMPURE_MODULES:
            raise Refused(path, value, f"it imports {full}", READ_OUTSIDE)
        root = full.partition(".")[0]
        for found in dict.fromkeys((root, full)) if chains == _ESCAPES else (full,):
            module = sys.modules.get(found)
            self.tokens += ("import", found, module is None)
            if module is None or module.__name__ == "__future__":
                continue
            if is_library_module(module):
                self._loose(module, path)
            self._module(module, chains, found)

    def _read_by(self, value: Any, chains: tuple[Any, ...], path: str) -> None:
        """A variable, by what is read off it: of a dictionary perhaps some constant keys alone."""
        if (
            type(value) in _KEYED_TYPES
            and chains
            and all(chain and type(chain[0]) is ConstantKey for chain in chains)
        ):
            self._items(value, [chain[0] for chain in chains], path)
        else:
            self.add(value, path)

    def _items(self, value: Any, keys: Iterable[ConstantKey], path: str) -> None:
        """What a dictionary holds under constant keys. What else it holds does not count (S5)."""
        for key in keys:
            self.tokens += (_ITEM, type(key.value), key.value)
            found = dict.get(value, key.value, _MISSING)
            if found is _MISSING:
                self.tokens.append(_EMPTY)
            else:
                self.add(found, f"{path}[{key.value!r}]")

    # -- modules and classes ----------------------------------------------------------------

    def _module(self, module: types.ModuleType, chains: tuple[Any, ...], path: str) -> None:
        """A module, and what is read straight off it: ``config.scale``, ``np.random.normal``."""
        tokens = self.tokens
        tokens.append(id(module))
        self.targets.append(module)
        library = is_library_module(module)
        if library and module.__name__ in IMPURE_MODULES:
            raise Refused(path, module, CHANCE, READ_OUTSIDE)
        for chain in chains:
            if not chain or chain[0] == "__dict__":
                if library:
                    self._loose(module, path)
                elif not self._met(module):
                    self.objects.append(ReadObject(vars(module), (), path))
                    if "__getattr__" in vars(module):
                        self.add(vars(module)["__getattr__"], f"{path}.__getattr__")
                continue
            content = module.__dict__.get(chain[0], _MISSING)
            kind = type(content)
            # jnp.sin: the usual case, the short way.
            if (
                library
                and kind is types.BuiltinFunctionType
                and module is not os
                and (module.__name__ not in INTROSPECTING)
            ):
                tokens += (chain, id(content))
                self.targets.append(content)
            else:
                self._chain(module, chain, path)

    def _chain(self, module: types.ModuleType, chain: tuple[Any, ...], path: str) -> None:
        """What one chain of attributes finds, up to the first that is no module."""
        for depth, name in enumerate(chain, 1):
            path = f"{path}.{name}"
            content = module.__dict__.get(name, _MISSING)
            library = is_library_module(module)
            if type(content) is _ModuleType and depth < len(chain):
                if content.__name__ in IMPURE_MODULES:
                    raise Refused(path, content, CHANCE, READ_OUTSIDE)
                module = content
                continue
            rest = chain[depth:]
            self.tokens.append(chain)
            if content is _MISSING:
                if not library and "__getattr__" in module.__dict__:
                    raise Refused(path, module, "the module computes it", OPERAND)
                self.tokens.append(_EMPTY)
            elif library and callable(content) and not is_users(content):
                if _IMPURE_METHODS.intersection(part for part in rest if type(part) is str):
                    raise Refused(path, content, "it reads the clock", READ_OUTSIDE)
                self._check_pure(content, path)
                self._target(Marker.CALLABLE, content, path)
            else:
                self._read_by(content, (rest,), path)
            return

    def _bare_module(self, module: types.ModuleType, path: str) -> None:
        self._module(module, _ESCAPES, path)

    def _class(self, value: type, path: str, *, of_instance: bool = False) -> None:
        known = self.classes.get(id(value)) if self.classes else None
        if known is not None:
            self.tokens.append(id(value))
            known.called |= not of_instance
            return
        self._target(Marker.OBJECT, value, path)
        if not is_library_class(value):
            self.tokens.append(tuple(map(id, value.__mro__)))
        if value in _CLOCKS:
            self.doubtful += ((_IMPURE_METHODS, value, path, "it reads the clock"),)
        for kind in (value, type(value)):  # a metaclass may hold properties
            if not is_library_class(kind):
                self.classes = self.classes or {}
                record = self.classes.setdefault(id(kind), ReadClass(kind, path))
                record.called |= not of_instance

    def _check_doubtful(self, reading: Reading) -> None:
        """Refuses what is harmless only as long as nobody asks it for the time, or for chance."""
        for names, value, path, reason in self.doubtful:
            if not names.isdisjoint(reading.names):
                raise Refused(path, value, reason, READ_OUTSIDE)

    def _loose(self, module: types.ModuleType, path: str) -> None:
        """A library's module in a variable: what is read off it there cannot be told."""
        if module is os:
            raise Refused(path, module, "the module is used as a value", OPERAND)
        if "random" in module.__dict__ and module.__name__ == "numpy":
            self.doubtful += ((_RANDOM, module, path, CHANCE),)

    # -- read sets --------------------------------------------------------------------------

    def visit_read_sets(self) -> None:
        """Adds what the code met may read off the objects and classes met, until nothing new turns
        up (S5).

        Which attribute is read off which object is not known, so every name that any code reads
        counts for every object and class of the user's.
        """
        if self.classes:
            self.tokens.append(abc.get_cache_token())  # another one after each ABC.register()
        seen: Any = None
        reading = reading_of(tuple(self.facts))
        while True:
            everything = self.introspects or reading.introspects
            for number, record in enumerate(self.objects):  # it grows meanwhile
                if record.seen_by is not reading or everything is not record.everything:
                    record.seen_by, record.everything = reading, everything
                    self._visit_object(number, record, reading, everything)
            for kind in list((self.classes or {}).values()):
                called = kind.called or reading.constructs
                if kind.seen_by is not reading or (everything, called) != kind.seen_as:
                    kind.seen_by, kind.seen_as = reading, (everything, called)
                    self._visit_class(kind, reading, everything, called)
            reading = reading_of(tuple(self.facts))
            size = (len(self.facts), len(self.objects), len(self.classes or ()), self.introspects)
            if size == seen:
                break
            seen = size
        self._visit_descriptions(reading)
        self._check_doubtful(reading)

    def _visit_object(
        self, number: int, record: ReadObject, reading: Reading, everything: bool
    ) -> None:
        namespace, done = record.namespace, record.done
        for name in list(namespace) if namespace else ():
            how = reading.reads.get(name)
            if (how is None and not everything) or name in _NUMBERS:
                continue
            if everything or how is None:
                how = WHOLE_ONLY
            if done.get(name) != how:
                item = namespace.get(name, _MISSING)
                before = done.get(name, frozenset())
                done[name] = how
                self.tokens += (_READ, number, name)
                self._member(item, how - before, f"{record.path}.{name}")
        for name, item in record.slots:
            if (everything or name in reading.reads) and name not in done:
                done[name] = WHOLE_ONLY
                self.tokens += (_READ, number, name)
                self._member(item, WHOLE_ONLY, f"{record.path}.{name}")

    def _member(self, item: Any, how: frozenset[Any], path: str) -> None:
        if item is _MISSING:
            self.tokens.append(_EMPTY)
        elif type(item) in _KEYED_TYPES and all(type(key) is ConstantKey for key in how):
            self._items(item, sorted(how, key=repr), path)
        elif type(item) is inspect.Signature:  # of annotations too, by their text
            self.tokens += (str(item), tuple(item.parameters))
        else:
            self.add(item, path)

    def _visit_class(
        self, record: ReadClass, reading: Reading, everything: bool, called: bool
    ) -> None:
        kind, done = record.kind, record.done
        # What the library's base class calls is known to the library alone.
        every = everything or any(map(calls_back, kind.__mro__))
        for base in kind.__mro__:
            if is_library_class(base):
                continue
            for name, content in list(vars(base).items()):
                if (
                    (every or reading.uses(name, content) or reading.calls(name, called))
                    and (id(base), name) not in done
                    and name not in _NOT_MEMBERS
                    and not is_attrs_repr(content)
                ):
                    done.add((id(base), name))
                    self.tokens += (id(base), name)
                    self._class_member(content, f"{record.path}.{name}")

    def _visit_descriptions(self, reading: Reading) -> None:
        """Adds what functions and classes say of themselves, where any code asks for it."""
        if _DESCRIPTIVE.isdisjoint(reading.names):
            return
        described: list[Any] = [x for x in self.holders if type(x) is types.FunctionType]
        described += [record.kind for record in (self.classes or {}).values()]
        for value in described:
            self.tokens += (value.__name__, value.__qualname__, value.__module__)
            self.tokens += (repr(value.__doc__), repr(value.__annotations__))
            if isinstance(value, type):
                self.tokens.append(tuple(map(id, type.__subclasses__(value))))

    def _class_member(self, content: Any, path: str) -> None:
        if isinstance(content, staticmethod | classmethod):
            self.tokens.append(type(content))
            content = content.__func__
        if type(content) is property:
            for part in (content.fget, content.fset, content.fdel):
                self.add(part, path)
        elif type(content) is functools.cached_property:
            self.add(content.func, path)
        elif isinstance(content, _DESCRIPTORS):
            self.tokens.append(Marker.OBJECT)  # a slot or field: what it holds is the instance's
        else:
            self.add(content, path)

    # -- other callables --------------------------------------------------------------------

    def _method(self, value: types.MethodType, path: str) -> None:
        self.tokens.append(Marker.METHOD)
        self.add(value.__func__, f"{path}.__func__")
        self.add(value.__self__, f"{path}.__self__")

    def _partial(self, value: functools.partial[Any], path: str) -> None:
        if self._met(value):
            return
        self.tokens += (type(value), len(value.args), len(value.keywords))
        self.add(value.func, f"{path}.func")
        for i, item in enumerate(value.args):
            self.add(item, f"{path}.args[{i}]")
        for name, item in value.keywords.items():  # **kwargs of the function has their order
            self.tokens.append(name)
            self.add(item, f"{path}.keywords[{name!r}]")
        if vars(value):
            self._attributes(vars(value), path)

    def _builtin(self, value: types.BuiltinFunctionType, path: str) -> None:
        owner = value.__self__
        if owner is None or isinstance(owner, types.ModuleType | type):
            self._check_pure(value, path)
            self._target(Marker.CALLABLE, value, path)
        else:
            self.tokens += (Marker.METHOD, value.__name__)
            self.add(owner, f"{path}.__self__")

    def _descriptor(self, value: Any, path: str) -> None:
        """``str.upper``, ``object.__setattr__``: a method of a class made in C."""
        self.tokens += (type(value), value.__name__)
        self._class(value.__objclass__, path)

    def _method_wrapper(self, value: types.MethodWrapperType, path: str) -> None:
        self.tokens += (Marker.METHOD, value.__name__)
        self.add(value.__self__, f"{path}.__self__")

    def _check_pure(self, value: Any, path: str) -> None:
        module = getattr(value, "__module__", None)
        if type(module) is str:
            root = module.partition(".")[0]
            if root in INTROSPECTING or getattr(value, "__name__", "") in _INTROSPECTING_NAMES:
                self.introspects = True
            if root in _SURROUNDINGS or getattr(value, "__name__", "") in _READING_NAMES.get(
                root, ()
            ):
                raise Refused(path, value, "it asks what surrounds the program", READ_OUTSIDE)
        if module in IMPURE_MODULES:
            raise Refused(path, value, f"it belongs to {module}", READ_OUTSIDE)
        if module in ("os", "posix", "nt") and value.__name__ in _ASKING:
            raise Refused(path, value, "it asks the operating system", READ_OUTSIDE)

    def _lru_cache(self, value: Any, path: str) -> None:
        self._target(Marker.CALLABLE, value, path)
        info = value.cache_info()
        self.tokens += (info.misses, info.currsize)  # what it has kept, it returns
        if not self._met(value):
            self.add(value.__wrapped__, f"{path}.__wrapped__")

    # -- values -----------------------------------------------------------------------------

    def _float(self, value: float, path: str) -> None:
        self.tokens += (float, struct.pack("d", value))

    def _complex(self, value: complex, path: str) -> None:
        self.tokens += (complex, struct.pack("dd", value.real, value.imag))

    def _sequence(self, value: Any, path: str) -> None:
        if self._met(value):
            return
        self._sized(value, path)
        if type(value) is collections.deque:
            self.tokens.append(value.maxlen)
        if len(value) > _MANY and self._plain(value):
            return
        self._deeper(value, path)
        for i, item in enumerate(value):
            self.add(item, f"{path}[{i}]")
        self.depth -= 1

    def _plain(self, value: Any) -> bool:
        """Adds many arrays, or numbers and short texts, at once; says whether there is nothing
        else."""
        items = tuple(value)
        kinds = tuple(map(type, items))
        if _HANDLERS.get(kinds[0]) is _Walk._leaf and len(set(kinds)) == 1 and not self.fixed:
            self.tokens += (Marker.LEAF, len(items))
            self.leaves += items
            return True
        if not _PLAIN.issuperset(kinds):
            return False
        if str in kinds and sum(len(x) for x in items if type(x) is str) > MAX_KEPT * len(items):
            return False
        if int in kinds and max(x for x in items if type(x) is int) >> 512:
            return False
        self.tokens += (kinds[0] if len(set(kinds)) == 1 else kinds, items)
        return True

    def _mapping(self, value: Any, path: str) -> None:
        if self._met(value):
            return
        self._sized(value, path)
        self._deeper(value, path)
        if type(value) is collections.defaultdict:
            self.add(value.default_factory, f"{path}.default_factory")
        if len(value) > _MANY and self._plain(value):
            items = list(value.values())
            if self._plain(items):
                self.depth -= 1
                return
        for name, item in list(value.items()):
            self.add(name, f"{path} key")
            self.add(item, f"{path}[{name!r}]" if type(name) in ATOMIC else f"{path}[...]")
        self.depth -= 1

    def _set(self, value: Any, path: str) -> None:
        if self._met(value):
            return
        self._sized(value, path)
        for item in list(value):  # in the order in which code would meet them
            self.add(item, f"{path}{{...}}")

    def _bytearray(self, value: bytearray, path: str) -> None:
        if not self._met(value):
            self.tokens += (bytearray, _short(bytes(value)))

    def _slice(self, value: slice, path: str) -> None:
        self.tokens.append(slice)
        for name in ("start", "stop", "step"):
            self.add(getattr(value, name), f"{path}.{name}")

    def _weak(self, value: weakref.ref[Any], path: str) -> None:
        if self.references is not References.READ:
            raise Refused(path, value, "what it refers to may go")
        self.tokens.append(weakref.ref)
        self.add(value(), f"{path}()")

    def _weak_values(self, value: Any, path: str) -> None:
        if self.references is not References.READ:
            raise Refused(path, value, "what it refers to may go")
        self._mapping(value, path)

    def _namespace(self, value: Any, path: str) -> None:
        if not self._met(value):
            self.tokens.append(types.SimpleNamespace)
            if self.whole:
                self._attributes(vars(value), path)
            else:
                self.objects.append(ReadObject(vars(value), (), path))

    def _trusted(self, value: Any, path: str) -> None:
        """An immutable value of the standard library, of numpy or of jax, by its own equality."""
        try:
            hash(value)
        except Exception as error:
            raise Refused(path, value, f"hash() failed: {type(error).__name__}") from None
        self.tokens += (type(value), value, repr(value))
        if isinstance(value, pathlib.Path):
            self.doubtful += ((_READING_FILES, value, path, "it reads a file"),)

    def _tree_definition(self, value: Any, path: str) -> None:
        """A tree structure of jax, node by node: a node's data may change, and hold arrays."""
        node = value.node_data()
        self.tokens += (type(value), value.num_leaves)
        if node is None:
            return
        self.add(node[0], f"{path} node")
        self.add(node[1], f"{path} data")
        for i, child in enumerate(value.children()):
            self._tree_definition(child, f"{path}.children()[{i}]")

    def _logger(self, value: logging.Logger, path: str) -> None:
        """A logger is written to. Code may ask it which messages it takes."""
        self._target(Marker.OBJECT, value, path)
        self.tokens += (value.getEffectiveLevel(), value.disabled, value.manager.disable)

    def _lock(self, value: Any, path: str) -> None:
        """A lock decides when code runs, and nothing else."""
        self.tokens.append(type(value))

    def _other(self, value: Any, kind: type, path: str) -> None:
        """What has no handler by its exact type."""
        plain = _plain_kinds.get(id(kind))
        if (
            plain is not None
            and plain() is kind
            and not is_stateless(value)
            and key_function(kind) is None
        ):
            self._object(value, kind, path)
            return
        if issubclass(kind, Forward):  # what it stands for is what counts
            self.tokens.append(Marker.CALLABLE)
            self.add(callable_of(value), path)
            return
        key = key_function(kind)
        if key is not None:
            self.tokens.append(Marker.OBJECT)
            self._class(kind, path)
            self.add(key(value), f"key({path})")
        elif is_stateless(value):
            self._target(Marker.OBJECT, value, path)
        elif isinstance(value, type):
            self._class(value, path)
        elif isinstance(value, types.ModuleType):
            self._bare_module(value, path)
        elif isinstance(value, functools.partial) and is_partial(value):
            self._partial(value, path)
        elif isinstance(value, enum.Enum):
            self.tokens += (Marker.OBJECT, value.name)  # None for flags put together
            self._class(kind, path)
            if not self._met(value):
                self.add(value._value_, f"{path}.value")
                if not is_library_class(kind):
                    self._attributes(vars(value), path)
        elif not self._array(value, kind, path):
            self._foreign(value, kind, path)

    def _leaf(self, value: Any, path: str) -> None:
        if self.fixed:
            self._target(Marker.OBJECT, value, path)
            return
        self.tokens.append(Marker.LEAF)
        self.leaves.append(value)

    def _jitted(self, value: Any, path: str) -> None:
        """A jitted function is what it is, and has what it captures as constants. JAX may trace it
        again, which shows what it sees now."""
        self._target(Marker.CALLABLE, value, path)
        function = getattr(value, "__wrapped__", None)
        if self.fixed or function is None or is_library_object(value) or self._met(value):
            return
        tokens, targets = len(self.tokens), len(self.targets)
        self.fixed = True
        try:
            self.add(function, f"{path}.__wrapped__")
        except Refused:  # its own cache decides, as without fnintern
            del self.tokens[tokens:], self.targets[targets:]
        finally:
            self.fixed = False

    def _array(self, value: Any, kind: type, path: str) -> bool:
        """Arrays of jax are leaves, small ones of numpy are part of the key."""
        jax = sys.modules.get("jax")
        if jax is not None and isinstance(value, getattr(jax, "Array", ())):
            self._leaf(value, path)
            if kind.__module__.partition(".")[0] == "jaxlib":
                _HANDLERS.setdefault(kind, _Walk._leaf)  # the usual one, the short way from now on
            else:
                self.tokens.append(kind)  # code may tell tracers apart
            return True
        numpy = sys.modules.get("numpy")
        if numpy is None:
            return False
        if isinstance(value, numpy.generic) and kind.__module__.partition(".")[0] != "jax":
            self._dtype(value.dtype)
            self.tokens += (kind, value.tobytes())
        elif kind is numpy.ndarray:
            if value.nbytes > MAX_ARRAY_BYTES or value.dtype.hasobject:
                reason = f"a NumPy array of {value.nbytes} bytes, which may be edited in place"
                raise Refused(path, value, reason, "make it a jax.Array, or an operand")
            if not self._met(value):
                self._dtype(value.dtype)
                self.tokens += (kind, value.shape, value.strides, _short(value.tobytes()))
                self.tokens += (value.flags.writeable, value.base is None)
                self.buffers += (value,)
        elif isinstance(value, numpy.dtype):
            self._dtype(value)
        else:
            return False
        return True

    def _dtype(self, dtype: Any) -> None:
        if dtype.metadata:
            raise Refused("dtype", dtype, "its metadata may change")
        self.tokens += (type(dtype), dtype.str, repr(dtype), id(dtype.type))
        self.targets.append(dtype.type)

    def _foreign(self, value: Any, kind: type, path: str) -> None:
        root = kind.__module__.partition(".")[0]
        if root in ("jax", "jaxlib") and kind.__name__ in JITTED:
            self._jitted(value, path)
        elif is_reference_state(value):
            if self.references is References.REFUSED or not is_readable_state(value):
                raise Refused(path, value, "it holds state that may change", MODULE_OPERAND)
            self._object(value, kind, path)
        elif callable(value) and is_library_object(value):
            self._check_pure(value, path)
            self._target(Marker.CALLABLE, value, path)  # jax.nn.relu, jnp.add
        elif root == "jaxlib" and kind.__name__ == "PyTreeDef":
            self._tree_definition(value, path)
        elif root in ("jax", "jaxlib", "numpy") and has_value_equality(kind):
            self._trusted(value, path)
        elif root == "jaxlib" or kind is object:  # devices; sentinels
            self.tokens += (Marker.OBJECT, Identity(value))
        elif root == "jax" and issubclass(kind, contextlib.ContextDecorator):  # meshes are unique
            self._target(Marker.OBJECT, value, path)
        elif is_identifier(kind):
            if not self._met(value):
                self.tokens.append(kind)
        elif is_trace_state(kind):
            self.tokens.append(value.is_valid())  # all that flax asks it
        else:
            if not issubclass(kind, CONTAINERS) and not (
                callable(value) and is_library_class(kind)
            ):
                _plain_kinds[id(kind)] = weakref.ref(kind, _forget_kind(id(kind)))
            self._object(value, kind, path)

    def _object(self, value: Any, kind: type, path: str) -> None:
        """An instance of a Python class: its attributes, and what its class adds to them."""
        if self._met(value):
            return
        self.tokens.append(Marker.OBJECT)
        self._class(kind, path, of_instance=True)
        base = None
        if id(kind) not in _plain_kinds:
            base = next((b for b in CONTAINERS if issubclass(kind, b)), None)
        if base is None and hides_state(kind):
            raise Refused(path, value, "its contents cannot be read completely")
        namespace = namespace_of(value)
        names = slots_of(kind)
        slots = tuple([(name, _slot(value, name)) for name in names]) if names else ()
        if (
            base is None
            and not self.whole
            and not is_pytree_node(value)
            and not any(map(calls_back, kind.__mro__))
        ):
            self.objects.append(ReadObject(namespace, slots, path))
            return
        # JAX takes it apart, or code of a library may read any of it.
        self._deeper(value, path)
        if base is not None:
            self.add(content_of(value, base), path)
        if namespace is not None:
            unread = unread_attributes(value)
            if unread:
                namespace = {name: item for name, item in namespace.items() if name not in unread}
            self.tokens.append(len(namespace))
            self._attributes(namespace, path)
        for name, item in slots:
            self.tokens.append(name)
            if item is _MISSING:
                self.tokens.append(_EMPTY)
            else:
                self.add(item, f"{path}.{name}")
        self.depth -= 1


def _own_attributes(function: types.FunctionType, library: bool) -> dict[str, Any]:
    """The attributes of a function, without those that ``functools.wraps`` has copied from what it
    wraps: they are read there, and a library's wrapper makes nothing of its copies."""
    attributes = function.__dict__
    wrapped = namespace_of(attributes.get("__wrapped__"))
    if not wrapped:
        return attributes
    return {
        name: item
        for name, item in attributes.items()
        if name not in wrapped or not (library or wrapped[name] is item)
    }


#: Classes whose instances are made of attributes and nothing else is known of, under their ids.
_plain_kinds: dict[int, weakref.ref[type]] = {}


def _forget_kind(number: int) -> Callable[[Any], None]:
    kinds = _plain_kinds  # at the end of the interpreter globals go first

    def forget(ref: Any) -> None:
        if kinds.get(number) is ref:
            del kinds[number]

    return forget


def _slot(value: Any, name: str) -> Any:
    try:
        return object.__getattribute__(value, name)
    except AttributeError:
        return _MISSING


_READ: Final = "read"
_ITEM: Final = "item"
_KEYED_TYPES: Final = (dict, collections.OrderedDict)

#: From so many parts on a container is looked at as a whole first.
_MANY: Final = 8
_PLAIN: Final = frozenset({int, str, bool, type(None)})


#: Atomic types whose values may be large.
_LONG: Final = frozenset({str, bytes, int})


def _short(value: Any) -> Any:
    """A value, or a digest where it is large: a key must not keep it alive (S3)."""
    if type(value) is int:
        if value.bit_length() <= 8 * MAX_KEPT:
            return value
        text = hex(value).encode()
    elif len(value) <= MAX_KEPT:
        return value
    else:
        text = value if type(value) is bytes else value.encode("utf-8", "surrogatepass")
    return len(text), hashlib.blake2b(text, digest_size=16).digest()


#: A module that is used as a value: nothing is read straight off it.
_ESCAPES: Final[tuple[tuple[str, ...], ...]] = ((),)

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

_LOCKS: Final = (type(threading.Lock()), type(threading.RLock()))

#: Immutable values of the standard library, which hold no array.
CONSTANTS: Final = (
    range, re.Pattern, pathlib.PosixPath, pathlib.WindowsPath, pathlib.PurePosixPath,
    pathlib.PureWindowsPath, decimal.Decimal, fractions.Fraction, datetime.date, datetime.time,
    datetime.datetime, datetime.timedelta, uuid.UUID, types.GenericAlias, types.UnionType,
)  # fmt: skip

_HANDLERS: Final[dict[type, _Handler]] = {
    types.FunctionType: _Walk._function,
    types.MethodType: _Walk._method,
    functools.partial: _Walk._partial,
    types.BuiltinFunctionType: _Walk._builtin,
    types.MethodDescriptorType: _Walk._descriptor,
    types.ClassMethodDescriptorType: _Walk._descriptor,
    types.WrapperDescriptorType: _Walk._descriptor,
    types.MethodWrapperType: _Walk._method_wrapper,
    type(functools.lru_cache(lambda: None)): _Walk._lru_cache,
    float: _Walk._float,
    complex: _Walk._complex,
    tuple: _Walk._sequence,
    list: _Walk._sequence,
    collections.deque: _Walk._sequence,
    dict: _Walk._mapping,
    collections.OrderedDict: _Walk._mapping,
    collections.defaultdict: _Walk._mapping,
    types.MappingProxyType: _Walk._mapping,
    set: _Walk._set,
    frozenset: _Walk._set,
    bytearray: _Walk._bytearray,
    slice: _Walk._slice,
    types.SimpleNamespace: _Walk._namespace,
    weakref.ref: _Walk._weak,
    weakref.WeakValueDictionary: _Walk._weak_values,
    type: _Walk._class,
    Identity: lambda walk, value, path: walk.tokens.append(value),
    types.ModuleType: _Walk._bare_module,
    logging.Logger: _Walk._logger,
    **dict.fromkeys(_LOCKS, _Walk._lock),
    **dict.fromkeys(CONSTANTS, _Walk._trusted),
}

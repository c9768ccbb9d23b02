"""One pass over what some values can see: its tokens, its targets, and the objects met."""

from __future__ import annotations

import enum
import hashlib
import weakref
from collections.abc import Callable
from typing import Any, ClassVar, Final

from fnintern.captures.code import CodeFacts
from fnintern.captures.reading import ReadClass, ReadObject
from fnintern.keys.objects import importable
from fnintern.keys.tokens import (
    ATOMIC,
    DECLARE,
    NO_REFERENCE,
    Identity,
    Marker,
    Refused,
    weakref_remedy,
)

__all__ = [
    "EMPTY",
    "MAX_DEPTH",
    "MAX_KEPT",
    "MAX_TOKENS",
    "MISSING",
    "OPERAND",
    "Handler",
    "References",
    "Walk",
    "short",
    "slot_of",
]

#: How deep captures may nest before freezing gives up.
MAX_DEPTH: Final = 40


#: How many tokens a key may have.
MAX_TOKENS: Final = 2_000_000


Handler = Callable[[Any, Any, str], None]


class References(enum.Enum):
    """What becomes of objects that are there to be changed: modules and variables of ``flax.nnx``,
    scopes of ``flax.core``. What weak references refer to is read along with them."""

    #: The key is to outlive the moment.
    REFUSED = "refused"
    #: They are read like any object; what is found counts for this moment.
    READ = "read"


OPERAND: Final = "pass it as an operand"


#: What stands for a value that is not there.
MISSING: Final = object()
#: What says so in a key.
EMPTY: Final = Marker.EMPTY


#: What is longer than this, in bytes or characters, is represented in a key by a digest (S3).
MAX_KEPT: Final = 256

#: Atomic types whose values may be large.
_LONG: Final = frozenset({str, bytes, int})


def short(value: Any) -> Any:
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


class Walk:
    """One pass over what some values can see. Paths are spelled as Python would."""

    #: What adds a value of each type, by the exact type; see :mod:`fnintern.captures.kinds`.
    handlers: ClassVar[dict[type, Handler]]

    # Defaults on the class: most walks need few of these, and a walk is part of every hit.
    leaves: list[Any]
    buffers: tuple[tuple[Any, Any], ...] = ()
    #: What is found where code only writes.
    written: tuple[Any, ...] = ()
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
        #: Under the ids of their classes the slots of objects that were met, and whether all of
        #: such an object is read: for the next one of a class.
        self.known: dict[int, tuple[tuple[str, ...], bool]] = {}

    def add(self, value: Any, path: str) -> None:
        """Adds all that there is to see in a value to the tokens and the leaves."""
        kind = type(value)
        if kind in ATOMIC:
            self.tokens += (kind, value) if kind not in _LONG else (kind, short(value))
            return
        handler = self.handlers.get(kind)
        if handler is not None:
            handler(self, value, path)
        else:
            self.add_other(value, kind, path)

    def add_other(self, value: Any, kind: type, path: str) -> None:
        """Adds what has no handler by its exact type."""
        raise NotImplementedError

    def target(self, marker: Any, value: object, path: str) -> None:
        """Keys ``value`` by what it is. Whoever stores the key compares the target with `is`."""
        try:
            weakref.ref(value)
        except TypeError:
            if not importable(value):
                remedy = weakref_remedy(value) or DECLARE
                raise Refused(path, value, NO_REFERENCE, remedy) from None
            self.tokens += (marker, Identity(value))  # its module keeps it alive anyway
        else:
            self.tokens += (marker, id(value))
            self.targets.append(value)

    def met(self, value: object) -> bool:
        """Whether ``value`` was met before; aliasing and cycles become tokens of their own."""
        place = self.seen.setdefault(id(value), len(self.holders))
        if place < len(self.holders):
            self.tokens += (Marker.AGAIN, place)
            return True
        self.holders.append(value)
        if len(self.tokens) > MAX_TOKENS:
            raise Refused("f", value, f"its captures have more than {MAX_TOKENS} parts", OPERAND)
        return False

    def sized(self, value: Any, path: str) -> None:
        self.tokens += (type(value), len(value))
        if len(self.tokens) + len(value) > MAX_TOKENS:
            raise Refused(path, value, f"it has more than {MAX_TOKENS} parts", OPERAND)

    def deeper(self, value: object, path: str) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Refused(path, value, f"captures nest deeper than {MAX_DEPTH}", OPERAND)


def slot_of(value: Any, name: str) -> Any:
    """What is in a slot of an object, whatever its class would answer."""
    try:
        return object.__getattribute__(value, name)
    except AttributeError:
        return MISSING

"""What a key is made of: markers, identities, and what cannot be keyed (laws I3, I5)."""

from __future__ import annotations

import enum
from typing import Any, Final

__all__ = [
    "ATOMIC",
    "DECLARE",
    "NO_REFERENCE",
    "STORE_ATTRIBUTE",
    "Identity",
    "Key",
    "Marker",
    "Refused",
    "Unkeyable",
    "weakref_remedy",
]

Key = tuple[Any, ...]

#: Types whose values are equal exactly where ``==`` says so and nothing hides inside.
ATOMIC: Final = frozenset({bool, int, str, bytes, type(None), type(Ellipsis), type(NotImplemented)})

#: The one private attribute that fnintern writes on plain Python functions (L4).
STORE_ATTRIBUTE: Final = "__fnintern__"


class Marker(enum.Enum):
    """Tokens of a key that stand for something other than an equal value."""

    CALLABLE = "callable"
    METHOD = "method"
    OBJECT = "object"
    CODE = "code"
    LEAF = "leaf"
    EMPTY = "empty"
    AGAIN = "again"

    # Enum hashes by name in Python code, which a hit would pay for several times.
    __hash__ = object.__hash__


class Identity:
    """Keys an object by ``is`` and keeps it alive, whatever its ``__eq__`` does."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return type(other) is Identity and other.value is self.value


class Unkeyable(Exception):
    """An argument that cannot be part of a key: the call is bypassed (I5).

    Attributes:
        path: where the value sits, as Python would spell it (``f.args[0]``).
        type_name: the type of the value. The value itself is not kept.
        reason: what stands in the way.
        remedy: what usually helps, or an empty string.
    """

    def __init__(self, path: str, value: object, reason: str, remedy: str = "") -> None:
        self.path = path
        self.type_name = type(value).__qualname__
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"{path} is a {self.type_name}: {reason}")


NO_REFERENCE: Final = "it takes no weak reference"
DECLARE: Final = "pass it as an operand, or declare it with fnintern.keyed or fnintern.stateless"


def weakref_remedy(value: object) -> str:
    """What lets a value take weak references, where its class can be made to."""
    slotted = any("__slots__" in vars(kind) for kind in type(value).__mro__)
    return f'add "__weakref__" to the __slots__ of {type(value).__qualname__}' if slotted else ""


class Refused(Unkeyable):
    """A capture that cannot be split into key and leaves (S2)."""

    def __init__(self, path: str, value: object, reason: str, remedy: str = DECLARE) -> None:
        super().__init__(path, value, reason, remedy)

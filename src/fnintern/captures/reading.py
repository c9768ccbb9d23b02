"""What code reads of objects and classes of the user's, and what of them does not count (S5).

Which attribute is read off which object cannot be told from the code. So every name that any code
met reads counts for every object and class met. Never imports jax.
"""

from __future__ import annotations

import functools
from typing import Any, Final

from fnintern.captures.code import CodeFacts
from fnintern.captures.instructions import WHOLE
from fnintern.keys.objects import is_protocol
from fnintern.libraries.jax import CALLBACKS, PLACEMENT, PYTREE

__all__ = [
    "WHOLE_ONLY", "ReadClass", "ReadObject", "Reading", "reading_of",
]  # fmt: skip


WHOLE_ONLY: Final = frozenset({WHOLE})

#: Special methods by when they are called: for the text of an object, for comparing it,
_TEXTS: Final = frozenset({"__repr__", "__str__", "__format__"})
_COMPARISONS: Final = frozenset(
    {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__"}
)
#: for making one, and for copying it.
_MAKING: Final = frozenset(
    {"__init__", "__new__", "__post_init__", "__attrs_post_init__", "__attrs_pre_init__",
     "__init_subclass__", "__set_name__", "__class_getitem__"}
)  # fmt: skip
_STORING: Final = frozenset({"__setattr__", "__delattr__"})
_COPYING: Final = frozenset(
    {"__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__copy__", "__deepcopy__",
     "__getnewargs__", "__del__", "__dir__", "__sizeof__", "__replace__"}
)  # fmt: skip


class ReadObject:
    """An object of which some attributes are read."""

    __slots__ = ("done", "everything", "namespace", "path", "seen_by", "slots")

    def __init__(self, namespace: Any, slots: tuple[tuple[str, Any], ...], path: str) -> None:
        self.namespace = namespace
        self.slots = slots
        self.path = path
        #: What it was last looked at for.
        self.seen_by: Reading | None = None
        self.everything = False
        #: Name -> how it has been read so far.
        self.done: dict[str, frozenset[Any]] = {}

    def value_of(self, name: str) -> Any:
        """What the object holds under a name, or None."""
        if self.namespace and name in self.namespace:
            return self.namespace[name]
        return dict(self.slots).get(name)

    def unread(self) -> list[str]:
        """The paths of attributes that no code reads."""
        if self.namespace is not None and "__builtins__" in self.namespace:  # a module
            return []
        names = [*(self.namespace or ()), *dict(self.slots)]
        return [f"{self.path}.{name}" for name in names if name not in self.done]


class ReadClass:
    """A class of the user's of which some members are read."""

    __slots__ = ("called", "done", "kind", "path", "seen_as", "seen_by")

    def __init__(self, kind: type, path: str) -> None:
        self.kind = kind
        self.path = path
        #: Whether code has the class itself, and may make instances.
        self.called = False
        self.seen_by: Reading | None = None
        self.seen_as = (False, False)
        self.done: set[tuple[int, str]] = set()


class Reading:
    """What several pieces of code read."""

    def __init__(self, facts: tuple[CodeFacts, ...]) -> None:
        reads: dict[str, frozenset[Any]] = {}
        for fact in facts:
            for name, how in fact.reads.items():
                reads[name] = reads[name] | how if name in reads else how
        #: Names of attributes, each with how its values are read.
        self.reads = reads
        #: Names that a class may be asked for.
        self.names = frozenset(reads).union(*(fact.stores for fact in facts))
        #: Attributes that are assigned to, and those whose items are.
        self.assigned = sorted(frozenset().union(*(f.assigned_attributes for f in facts)))
        self.filled = sorted(frozenset().union(*(f.filled_attributes for f in facts)))
        spoken = self.names.union(*(fact.names for fact in facts))
        #: Whether it may ask an array where it is, or have JAX call back to Python.
        self.asks_placement = not PLACEMENT.isdisjoint(spoken)
        self.calls_host = not CALLBACKS.isdisjoint(spoken)
        self.introspects = any(fact.introspects for fact in facts)
        self.constructs = any(fact.constructs for fact in facts)
        self._quiet = _COPYING if not self.introspects else frozenset()
        if not any(fact.formats for fact in facts):
            self._quiet |= _TEXTS
        if not any(fact.stores for fact in facts):
            self._quiet |= _STORING
        self._stores = frozenset().union(*(fact.stores for fact in facts))
        if not any(fact.compares for fact in facts):
            self._quiet |= _COMPARISONS
        #: What is known of names of members, for classes whose instances may be made, and others.
        self._uses: tuple[dict[str, bool | None], dict[str, bool | None]] = {}, {}

    def uses(self, name: str, member: Any, called: bool) -> bool:
        """Whether a member of a class is read, is called when an attribute is assigned to, or may
        be called by the syntax of the code.

        Args:
            called: whether the code may make instances of the class.
        """
        found = self._uses[called].get(name, self)
        if found is self:
            found = self._uses[called][name] = self._is_used(name, called)
        return hasattr(type(member), "__set__") if found is None else bool(found)

    def _is_used(self, name: str, called: bool) -> bool | None:
        """None says that it depends on the member."""
        if name in self.reads or name in PYTREE:
            return True
        if is_protocol(name) and name not in self._quiet and (called or name not in _MAKING):
            return True
        return None if name in self._stores else False


@functools.lru_cache(maxsize=1024)
def reading_of(facts: tuple[CodeFacts, ...]) -> Reading:
    return Reading(facts)

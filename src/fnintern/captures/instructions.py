"""Reads of globals, closure variables and attributes, found in the instructions of code.

Knows a few patterns; what it does not recognise counts as reading the whole object.
"""

from __future__ import annotations

import dis
import re
import types
from typing import Any, Final

import attrs

__all__ = ["ATTRIBUTES", "LOCAL_VARIABLES", "WHOLE", "Chain", "Key", "Scan"]

#: Attributes, and constant keys, that are read one off the other: ``config.model.rates["lr"]``.
Chain = tuple["str | Key", ...]


@attrs.frozen
class Key:
    """A constant by which a container is read: ``state["scale"]``."""

    value: Any


#: How an object is read that is used for itself: passed on, compared, iterated over,
WHOLE: Final = "whole"

#: and one of which only attributes are read.
ATTRIBUTES: Final = "attributes"

_GLOBAL: Final = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}

_DEREF: Final = {"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}

_ATTRIBUTE: Final = {"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"}

_SILENT: Final = {
    "PUSH_NULL", "NOP", "CACHE", "EXTENDED_ARG", "COPY_FREE_VARS", "PRECALL", "RESUME",
    "NOT_TAKEN",
}  # fmt: skip

#: Instructions that put one value onto the stack and take none.
_SIMPLE: Final = {
    "LOAD_CONST", "LOAD_SMALL_INT", "LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW",
    *_GLOBAL, *_DEREF,
}  # fmt: skip

#: Methods of containers that only write, where what they return is not used.
_WRITING: Final = frozenset(
    {"append", "extend", "appendleft", "extendleft", "add", "update", "insert", "write", "info",
     "debug", "warning", "error", "critical", "log", "exception"}
)  # fmt: skip

#: Names through which code may read attributes that its text does not show.
_INTROSPECTING: Final = frozenset(
    {"vars", "dir", "__dict__", "__slots__", "__getstate__", "__reduce__", "__reduce_ex__",
     "__getattribute__", "attrgetter", "methodcaller", "getmembers", "f_locals", "f_globals"}
)  # fmt: skip

#: What ``vars()`` of nothing reads, as the name of a global that no module has.
LOCAL_VARIABLES: Final = "vars()"
#: Of these a constant name is recognised.
_BY_NAME: Final = frozenset({"getattr", "hasattr"})

_FORMATTING: Final = frozenset(
    {"str", "repr", "format", "ascii", "print", "__str__", "__repr__", "__format__", "info",
     "debug", "warning", "error", "critical", "log", "exception", "pformat", "pprint"}
)  # fmt: skip

_COMPARING: Final = frozenset(
    {"set", "frozenset", "dict", "sorted", "min", "max", "index", "count", "remove", "get",
     "setdefault", "pop", "lru_cache", "cache", "__eq__", "__hash__", "union", "intersection",
     "difference", "issubset", "issuperset", "add", "discard", "fromkeys", "eq", "ne", "lt", "le",
     "gt", "ge", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "sort", "heappush"}
)  # fmt: skip


class Scan:
    """One pass over the instructions of a code object."""

    def __init__(self) -> None:
        self.globals: dict[str, dict[Chain, None]] = {}
        self.closure: dict[str, dict[Chain, None]] = {}
        self.imports: dict[tuple[str, int], dict[Chain, None]] = {}
        self.reads: dict[str, set[Any]] = {}
        self.stores: set[str] = set()
        self.assigned: dict[str, None] = {}
        self.filled: dict[str, None] = {}
        self.assigned_on: dict[tuple[str, ...], None] = {}
        self.assigned_attributes: set[str] = set()
        self.filled_attributes: set[str] = set()
        self.names: dict[str, None] = {}
        self.introspects = self.formats = self.compares = False
        self.identifies = self.constructs = False

    def code(self, code: types.CodeType) -> None:
        self.all_steps = list(dis.get_instructions(code))
        self.steps = [step for step in self.all_steps if step.opname not in _SILENT]
        # Names that chains start at: closure variables of this code are no outer ones.
        own = set(code.co_cellvars)
        i = 0
        while i < len(self.steps):
            step = self.steps[i]
            name = step.opname
            if name in _GLOBAL:
                self.names.setdefault(step.argval)
                self._words(step.argval)
                if step.argval in _BY_NAME:
                    self._by_name(i)
                if step.argval == "vars" and self._is_call_of_nothing(i + 1):
                    self.globals.setdefault(LOCAL_VARIABLES, {})[()] = None
                i = self._variable(i, self.globals, step.argval)
            elif name in _DEREF:
                chains = self.closure if step.argval not in own else {}
                i = self._variable(i, chains, step.argval)
            elif name in _ATTRIBUTE:
                i = self._attribute(i)
            elif name == "COPY" and self._update(i):
                i = self._update(i)
            else:
                self._other(i, step)
                i += 1

    def _is_call_of_nothing(self, i: int) -> bool:
        return self._name(i) == "CALL" and not self.steps[i].arg

    def _words(self, word: str) -> None:
        self.introspects |= word in _INTROSPECTING
        self.formats |= word in _FORMATTING
        self.compares |= word in _COMPARING
        self.identifies |= word == "id"
        self.constructs |= word in ("type", "__class__", "replace", "_replace", "evolve")

    def _name(self, i: int) -> str:
        return self.steps[i].opname if i < len(self.steps) else ""

    def _other(self, i: int, step: dis.Instruction) -> None:
        name = step.opname
        if name == "STORE_ATTR":
            self.stores.add(step.argval)
            self.assigned_attributes.add(step.argval)
        elif name in ("STORE_GLOBAL", "STORE_DEREF"):
            self.assigned[step.argval] = None
        elif name in ("FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "CONVERT_VALUE") or (
            name == "BINARY_OP" and step.argrepr in ("%", "%=")
        ):
            self.formats = True
        elif name == "COMPARE_OP":
            # With a constant, no class that comes with an `==` of its own reads its fields.
            if self._name(i - 1) != "LOAD_CONST":
                self.compares = True
        elif name in ("CONTAINS_OP", "DICT_MERGE", "BUILD_SET", "SET_ADD", "STORE_SUBSCR"):
            self.compares = True
        elif name == "MATCH_CLASS":
            names = self.steps[i - 1].argval
            for word in names if isinstance(names, tuple) else ():
                self._read(word, WHOLE)
            if step.argval:  # positional patterns go by the class's list of names
                self._read("__match_args__", WHOLE)
                self.introspects = True
        elif name == "IMPORT_NAME":
            self._import(i, step)

    def _import(self, i: int, step: dis.Instruction) -> None:
        level = self.steps[i - 2].argval if i >= 2 else 0
        level = level if type(level) is int else 0
        chains = self.imports.setdefault((step.argval, level), {})
        j = i + 1
        if i and self.steps[i - 1].argval is None:
            chains[()] = None  # `import a.b`, or `import a.b as c`
            return
        found = False
        while self._name(j) == "IMPORT_FROM":
            chains[(self.steps[j].argval,)] = None
            found = True
            j += 2
        if not found:
            chains[()] = None

    def _read(self, name: str, how: Any) -> None:
        self._words(name)
        self.reads.setdefault(name, set()).add(how)

    def _by_name(self, i: int) -> None:
        """``getattr(x, "name")`` reads that name; of any other call nothing is known."""
        j = i + 1
        while self._name(j) in _SIMPLE | _ATTRIBUTE and self._name(j) != "LOAD_CONST":
            j += 1
        found = self.steps[j].argval if self._name(j) == "LOAD_CONST" else None
        if type(found) is str:
            self._read(found, WHOLE)
        else:
            self.introspects = True

    def _variable(self, i: int, found: dict[str, dict[Chain, None]], name: str) -> int:
        """A variable at ``i``, and what is read off it; returns where to go on."""
        after = self._updated(i, name)
        if after:
            return after
        chain, after, written = self._chain(i + 1)
        for step in self.steps[i + 1 : after]:
            if step.opname in _ATTRIBUTE:
                self._words(step.argval)
        if "format" in chain or "format_map" in chain:
            self.introspects = True  # of a template that is not in the code
        if not written:
            self._note_attributes(chain)
            found.setdefault(name, {})[chain] = None
        elif self._is_item(after):
            self._note_filled(chain, name)
        elif self._name(after) == "STORE_ATTR":
            parts = [part for part in chain if isinstance(part, str)]
            self.assigned_on[name, *parts, self.steps[after].argval] = None
        return after

    def _is_item(self, i: int) -> bool:
        """Whether an item is assigned to the value on the stack before ``i``."""
        return self._name(i) in _SIMPLE and self._name(i + 1) == "STORE_SUBSCR"

    def _note_filled(self, chain: Chain, name: str = "") -> None:
        last = chain[-1] if chain else None
        if isinstance(last, str):
            self.filled_attributes.add(last)
        elif name:
            self.filled[name] = None

    def _attribute(self, i: int) -> int:
        """An attribute read off a local variable or another value; returns where to go on."""
        if self.steps[i].argval in ("format", "format_map"):
            # "{0.rate}".format(config) reads an attribute by its text.
            template = self.steps[i - 1].argval if i and self._name(i - 1) == "LOAD_CONST" else None
            if type(template) is not str or re.search(r"\{[^{}]*[.\[]", template):
                self.introspects = True
        chain, after, written = self._chain(i)
        if not written:
            self._note_attributes(chain)
        elif self._is_item(after):
            self._note_filled(chain)
        return after

    def _note_attributes(self, chain: Chain) -> None:
        for position, part in enumerate(chain):
            if not isinstance(part, str):
                continue
            following = chain[position + 1] if position + 1 < len(chain) else None
            if following is None:
                self._read(part, WHOLE)
            else:
                self._read(part, following if isinstance(following, Key) else ATTRIBUTES)

    def _chain(self, i: int) -> tuple[Chain, int, bool]:
        """The attributes and constant keys read from ``i`` on; where they end; and whether what
        they lead to is only written to."""
        chain: list[str | Key] = []
        while True:
            name = self._name(i)
            if self._is_write(i):
                return tuple(chain), self._after_write(i), True
            if name in _ATTRIBUTE:
                argval = self.steps[i].argval
                chain.append(argval)
                i += 1
            elif (
                name == "LOAD_CONST" and _is_subscript(self.steps, i + 1) and _is_key(self.steps[i])
            ):
                chain.append(Key(self.steps[i].argval))
                i += 2
            else:
                return tuple(chain), i, False

    def _is_write(self, i: int) -> bool:
        """Whether the value on the stack before ``i`` is only written to by what comes."""
        name = self._name(i)
        if name == "STORE_ATTR":
            return True
        if self._is_item(i):
            return True
        if self._update(i):
            return True
        return name in ("LOAD_ATTR", "LOAD_METHOD") and self._is_writing_call(i)

    def _after_write(self, i: int) -> int:
        # What follows is looked at for itself: arguments, keys, STORE_ATTR.
        return self._update(i) or i + (self._name(i) in _ATTRIBUTE)

    def _update(self, i: int) -> int:
        """``x.n += v`` and ``x[k] += v`` from after ``x`` on: where they end, or 0."""
        # COPY, LOAD_ATTR n, v, BINARY_OP, SWAP, STORE_ATTR n
        if (
            self._name(i) == "COPY"
            and self._name(i + 1) == "LOAD_ATTR"
            and self._name(i + 2) in _SIMPLE
            and self._is_inplace(i + 3)
            and self._name(i + 4) == "SWAP"
            and self._name(i + 5) == "STORE_ATTR"
            and self.steps[i + 1].argval == self.steps[i + 5].argval
        ):
            self.stores.add(self.steps[i + 1].argval)
            self._note_simple(i + 2)
            return i + 6
        # k, COPY, COPY, BINARY_SUBSCR, v, BINARY_OP, SWAP, SWAP, STORE_SUBSCR
        if (
            self._name(i) in _SIMPLE
            and self._name(i + 1) == "COPY"
            and self._name(i + 2) == "COPY"
            and _is_subscript(self.steps, i + 3)
            and self._name(i + 4) in _SIMPLE
            and self._is_inplace(i + 5)
            and self._name(i + 6) == "SWAP"
            and self._name(i + 7) == "SWAP"
            and self._name(i + 8) == "STORE_SUBSCR"
        ):
            self._note_simple(i)
            self._note_simple(i + 4)
            return i + 9
        return 0

    def _updated(self, i: int, name: str) -> int:
        """``name += v`` of a variable outside: where it ends, or 0."""
        if (
            self._name(i + 1) in _SIMPLE
            and self._is_inplace(i + 2)
            and self._name(i + 3) in ("STORE_GLOBAL", "STORE_DEREF", "STORE_NAME")
            and self.steps[i + 3].argval == name
        ):
            self._note_simple(i + 1)
            return i + 4
        return 0

    def _note_simple(self, i: int) -> None:
        step = self.steps[i]
        if step.opname in _GLOBAL:
            self.names.setdefault(step.argval)
            self.globals.setdefault(step.argval, {})[()] = None
        elif step.opname in _DEREF:
            self.closure.setdefault(step.argval, {})[()] = None

    def _is_inplace(self, i: int) -> bool:
        return self._name(i) == "BINARY_OP" and self.steps[i].argrepr.endswith("=")

    def _is_writing_call(self, i: int) -> bool:
        """Whether a method that only writes is called, and what it returns is dropped."""
        if self.steps[i].argval not in _WRITING:
            return False
        steps = self.all_steps
        first = steps.index(self.steps[i])
        # One value for the method, and one for its object or a NULL.
        depth = 2
        for j in range(first + 1, min(first + 200, len(steps) - 1)):
            step = steps[j]
            if step.opcode in _JUMPS or step.opname.startswith(("RETURN", "RAISE")):
                return False
            if step.opname in _CALLS:
                taken = (step.arg or 0) + (step.opname == "CALL_KW")
                if depth - taken == 2:
                    return steps[j + 1].opname == "POP_TOP"
                depth -= taken + 1
            elif step.opname != "PRECALL":
                has_argument = step.opcode >= dis.HAVE_ARGUMENT
                depth += dis.stack_effect(step.opcode, step.arg if has_argument else None)
            if depth < 2:
                return False
        return False


_JUMPS: Final = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)

_CALLS: Final = frozenset({"CALL", "CALL_KW"})


def _is_subscript(steps: list[dis.Instruction], i: int) -> bool:
    if i >= len(steps):
        return False
    name = steps[i].opname
    return name == "BINARY_SUBSCR" or (name == "BINARY_OP" and steps[i].argrepr == "[]")


def _is_key(step: dis.Instruction) -> bool:
    return type(step.argval) in (str, int, bool)

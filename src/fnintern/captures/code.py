"""What a code object reads: globals, closure variables, attributes, imports. Nothing of its values.

The analysis goes by the instructions, in their order, and knows a few patterns: what it does not
recognise counts as reading the whole object. It is done once for each code object and released
with it.
"""

from __future__ import annotations

import builtins
import dis
import sys
import types
from collections.abc import Iterator
from typing import Any, Final

import attrs

from fnintern.captures.instructions import LOCAL_VARIABLES, Chain, Scan
from fnintern.keys.weakids import WeakIds
from fnintern.libraries.ownership import is_library_module, is_library_path

__all__ = [
    "BLIND_BUILTINS",
    "BUILTIN_NAMES",
    "CodeFacts",
    "facts_of",
    "is_library_code",
    "is_users",
]

#: Builtins through which code sees what nobody can tell from its text.
BLIND_BUILTINS: Final = frozenset(
    {"globals", "locals", LOCAL_VARIABLES, "eval", "exec", "open", "input", "__import__"}
)


@attrs.frozen(eq=False)
class CodeFacts:
    """What one code object, and all code nested in it, reads.

    Attributes:
        globals: names of globals, each with the chains read off it. An empty chain says that the
            object itself is used. A name that is only updated (``count += 1``, ``log.append(x)``)
            is not among them.
        chains: the same for closure variables.
        imports: modules imported when the code runs, with their relative level, and the chains
            read off each.
        reads: names of attributes that are read, off whatever object, each with how its value is
            read: by constant keys alone, or as a :data:`WHOLE`.
        stores: names of attributes that are assigned to.
        assigned: names of variables outside that get another value, which does not depend on the
            one they have; with what nested code assigns to variables of this code.
        filled: names of variables outside whose items are assigned to.
        assigned_on: names of variables outside, each with the attributes that lead to one which is
            assigned to.
        assigned_attributes: the same for attributes of any object.
        filled_attributes: those whose items are assigned to.
        introspects: whether it may read attributes by names that are made when it runs.
        formats: whether it may take the text of an object.
        compares: whether it may ask objects whether they are equal.
        identifies: whether it asks for the ``id`` of an object.
        constructs: whether it may make an instance of a class that it does not name.
        writes: the first global or outer variable that it assigns to, or an empty string.
        names: all names of globals that are no builtins.
        library: whether the file belongs to a library.
        generated: whether there is no file (``exec``), so that only the namespace can tell.
    """

    globals: tuple[tuple[str, tuple[Chain, ...]], ...]
    chains: dict[str, tuple[Chain, ...]]
    imports: tuple[tuple[tuple[str, int], tuple[Chain, ...]], ...]
    reads: dict[str, frozenset[Any]]
    stores: frozenset[str]
    assigned: tuple[str, ...]
    filled: tuple[str, ...]
    assigned_on: tuple[tuple[str, ...], ...]
    assigned_attributes: frozenset[str]
    filled_attributes: frozenset[str]
    introspects: bool
    formats: bool
    compares: bool
    identifies: bool
    constructs: bool
    writes: str
    names: tuple[str, ...]
    library: bool
    generated: bool


_facts: WeakIds[CodeFacts] = WeakIds()


def facts_of(code: types.CodeType) -> CodeFacts:
    """The facts of a code object, from memory where it was analysed before."""
    facts = _facts.get(code)
    if facts is None:
        facts = _analyse(code)
        _facts.set(code, facts)
    return facts


#: Of the interpreter, before anybody adds to them.
BUILTIN_NAMES: Final = frozenset(dir(builtins))


def _analyse(code: types.CodeType) -> CodeFacts:
    scan = Scan()
    for part in _nested(code):
        scan.code(part)
    # What these assign to is an object that is being made.
    making = code.co_name in ("__init__", "__new__", "__post_init__", "__setstate__")
    return CodeFacts(
        globals=tuple((name, tuple(chains)) for name, chains in scan.globals.items()),
        chains={name: tuple(chains) for name, chains in scan.closure.items()},
        imports=tuple((name, tuple(chains)) for name, chains in scan.imports.items()),
        reads={name: frozenset(how) for name, how in scan.reads.items()},
        stores=frozenset(scan.stores),
        assigned=tuple(scan.assigned),
        filled=tuple(scan.filled),
        assigned_on=tuple(scan.assigned_on),
        assigned_attributes=frozenset(() if making else scan.assigned_attributes),
        filled_attributes=frozenset(() if making else scan.filled_attributes),
        introspects=scan.introspects,
        formats=scan.formats,
        compares=scan.compares,
        identifies=scan.identifies,
        # What dataclasses makes asks for classes to compare them.
        constructs=scan.constructs and not code.co_qualname.startswith("__create_fn__"),
        writes=_written(code),
        names=tuple(name for name in scan.names if name not in BUILTIN_NAMES),
        library=is_library_path(code.co_filename),
        generated=code.co_filename.startswith("<"),
    )


def _written(code: types.CodeType) -> str:
    """The first variable outside of ``code`` that it, or code nested in it, assigns to."""
    for part in _nested(code):
        for instruction in dis.get_instructions(part):
            name = instruction.opname
            if name in ("STORE_GLOBAL", "DELETE_GLOBAL") or (
                name in ("STORE_DEREF", "DELETE_DEREF") and instruction.argval in code.co_freevars
            ):
                return str(instruction.argval)
    return ""


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


def is_library_code(facts: CodeFacts, namespace: dict[str, Any]) -> bool:
    """Whether code with these facts, run in this namespace, belongs to a library."""
    if not facts.generated:
        return facts.library
    # Made by exec: only the namespace can tell.
    module = sys.modules.get(str(namespace.get("__name__")))
    return facts.library or (
        module is not None and vars(module) is namespace and is_library_module(module)
    )


def is_users(value: object) -> bool:
    """Whether ``value`` is a Python function of the user's, wherever it is held."""
    if type(value) is not types.FunctionType:
        return False
    return not is_library_code(facts_of(value.__code__), value.__globals__)

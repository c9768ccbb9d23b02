"""What a code object loads: globals, attributes straight off them, imports. Nothing of its values.

The analysis is done once for each code object and released with it.
"""

from __future__ import annotations

import builtins
import dis
import functools
import operator
import site
import sys
import sysconfig
import types
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import attrs

__all__ = [
    "BLIND_BUILTINS",
    "BUILTIN_NAMES",
    "CodeFacts",
    "facts_of",
    "is_library_code",
    "is_library_module",
]

Chains = tuple[tuple[str, ...], ...]

#: Builtins through which code sees what nobody can tell from its text.
BLIND_BUILTINS: Final = frozenset(
    {"globals", "locals", "vars", "eval", "exec", "open", "input", "__import__"}
)


@attrs.frozen
class CodeFacts:
    """What one code object, and all code nested in it, loads.

    Attributes:
        globals: names of globals, each with the attribute chains read straight off it. An empty
            chain says that the object itself is used.
        dotted: which of ``names`` an attribute is read off, each by its place and its chains.
        chains: the same for closure variables.
        imports: modules imported when the code runs, with their relative level, and the names
            taken from each.
        attributes: all attribute names loaded, off whatever object.
        asks: whether it may do another thing for a tracer than for an array: it catches errors, of
            ``float(array)`` say, or names ``Tracer``.
        writes: the first global or outer variable that it assigns to, or an empty string.
        names: of the globals that are no builtins, and
        get: reads them all from a namespace, raising KeyError where one is missing.
        builtins: names of the globals that are builtins unless the namespace has them.
        short: whether there is nothing but globals, closure and defaults to look at.
        library: whether the file belongs to an installed library.
        generated: whether there is no file (``exec``), so that only the namespace can tell.
    """

    globals: tuple[tuple[str, Chains], ...]
    dotted: tuple[tuple[int, Chains], ...]
    chains: dict[str, Chains]
    imports: tuple[tuple[tuple[str, int], tuple[str, ...]], ...]
    attributes: frozenset[str]
    asks: bool
    writes: str
    names: tuple[str, ...]
    get: Callable[[dict[str, Any]], tuple[Any, ...]]
    builtins: tuple[str, ...]
    short: bool
    library: bool
    generated: bool


#: Under the id of a code object, with the weak reference that keeps it truthful. A dictionary
#: keyed by code would hash and compare all constants at each look-up.
_facts: dict[int, tuple[weakref.ref[types.CodeType], CodeFacts]] = {}


def facts_of(code: types.CodeType) -> CodeFacts:
    """The facts of a code object, from memory where it was analysed before."""
    found = _facts.get(id(code))
    if found is not None and found[0]() is code:
        return found[1]
    facts = _analyse(code)
    _facts[id(code)] = (_CodeRef(code), facts)
    return facts


class _CodeRef(weakref.ref[types.CodeType]):
    __slots__ = ("number",)
    number: int

    def __new__(cls, code: types.CodeType) -> _CodeRef:
        self = super().__new__(cls, code, _forget)
        self.number = id(code)
        return self

    def __init__(self, code: types.CodeType) -> None:
        super().__init__(code, _forget)  # type: ignore[call-arg]


def _forget(
    ref: weakref.ref[types.CodeType],
    facts: dict[int, tuple[weakref.ref[types.CodeType], CodeFacts]] = _facts,
) -> None:
    # A default, since at the end of the interpreter globals go before code does.
    number = ref.number  # type: ignore[attr-defined]
    found = facts.get(number)
    if found is not None and found[0] is ref:
        facts.pop(number, None)


#: Of the interpreter, before anybody adds to them.
BUILTIN_NAMES: Final = frozenset(dir(builtins))

_GLOBAL: Final = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_DEREF: Final = {"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}
_ATTRIBUTE: Final = {"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"}
_SILENT: Final = {"PUSH_NULL", "NOP", "CACHE", "EXTENDED_ARG", "COPY_FREE_VARS"}


def _analyse(code: types.CodeType) -> CodeFacts:
    global_chains: dict[str, dict[tuple[str, ...], None]] = {}
    closure_chains: dict[str, dict[tuple[str, ...], None]] = {}
    imports: dict[tuple[str, int], dict[str, None]] = {}
    attributes: set[str] = set()
    for part in _nested(code):
        _scan(part, global_chains, closure_chains, imports, attributes)
    library = _is_library_path(code.co_filename)
    writes = _written(code)
    names = tuple(name for name in global_chains if name not in BUILTIN_NAMES)
    return CodeFacts(
        globals=tuple((name, tuple(chains)) for name, chains in global_chains.items()),
        dotted=tuple(
            (i, tuple(global_chains[name]))
            for i, name in enumerate(names)
            if any(global_chains[name])
        ),
        chains={name: tuple(chains) for name, chains in closure_chains.items()},
        imports=tuple((name, tuple(names)) for name, names in imports.items()),
        attributes=frozenset(attributes),
        asks=_catches(code) or not _ASKING.isdisjoint([*attributes, *global_chains]),
        names=names,
        get=_getter(names),
        builtins=tuple(name for name in global_chains if name in BUILTIN_NAMES),
        writes=writes,
        short=not library
        and not writes
        and not imports
        and not BLIND_BUILTINS.intersection(global_chains),
        library=library,
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


#: Names through which code tells tracers from arrays, or catches errors without ``except``.
_ASKING: Final = frozenset({"Tracer", "is_concrete", "suppress"})


def _catches(code: types.CodeType) -> bool:
    """Whether ``code``, or code nested in it, has an ``except`` clause."""
    before = ""
    for part in _nested(code):
        for instruction in dis.get_instructions(part):
            name = instruction.opname
            if name == "CHECK_EXC_MATCH" or (name == "POP_TOP" and before == "PUSH_EXC_INFO"):
                return True
            before = name
    return False


def _getter(names: tuple[str, ...]) -> Callable[[dict[str, Any]], tuple[Any, ...]]:
    if len(names) > 1:
        return operator.itemgetter(*names)
    return lambda namespace: tuple([namespace[name] for name in names])


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


def _scan(
    code: types.CodeType,
    global_chains: dict[str, dict[tuple[str, ...], None]],
    closure_chains: dict[str, dict[tuple[str, ...], None]],
    imports: dict[tuple[str, int], dict[str, None]],
    attributes: set[str],
) -> None:
    root: dict[tuple[str, ...], None] | None = None
    chain: tuple[str, ...] = ()
    imported: dict[str, None] | None = None
    constants: list[Any] = []
    for instruction in dis.get_instructions(code):
        name = instruction.opname
        if name in _SILENT:
            continue
        if name in _ATTRIBUTE:
            attributes.add(instruction.argval)
            if root is not None:
                chain = (*chain, instruction.argval)
                continue
        if root is not None:
            root[chain] = None
            root, chain = None, ()
        if name in _GLOBAL:
            root = global_chains.setdefault(instruction.argval, {})
        elif name in _DEREF:
            root = closure_chains.setdefault(instruction.argval, {})
        elif name == "STORE_ATTR":
            attributes.add(instruction.argval)
        elif name in ("LOAD_CONST", "LOAD_SMALL_INT"):
            constants.append(instruction.argval)
        elif name == "MATCH_CLASS" and constants and isinstance(constants[-1], tuple):
            attributes.update(constants[-1])  # names of keyword patterns
        elif name == "IMPORT_NAME":
            level = constants[-2] if len(constants) >= 2 else 0
            imported = imports.setdefault((instruction.argval, level), {})
        elif name == "IMPORT_FROM" and imported is not None:
            imported[instruction.argval] = None
    if root is not None:
        root[chain] = None


@functools.cache
def _library_roots() -> tuple[str, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    paths = {sysconfig.get_path(name) for name in names}
    paths |= {*site.getsitepackages(), site.getusersitepackages(), str(Path(__file__).parent)}
    return tuple({f"{variant}/" for p in paths if p for variant in (p, str(Path(p).resolve()))})


def _is_library_path(path: str) -> bool:
    return path.startswith(("<frozen ", *_library_roots()))


def is_library_code(facts: CodeFacts, namespace: dict[str, Any]) -> bool:
    """Whether code with these facts, run in this namespace, belongs to an installed library."""
    if not facts.generated:
        return facts.library
    # Made by exec: only the namespace can tell.
    module = sys.modules.get(str(namespace.get("__name__")))
    return facts.library or (
        module is not None and vars(module) is namespace and is_library_module(module)
    )


#: Under the id of a module, with the weak reference that keeps it truthful.
_library_modules: dict[int, tuple[weakref.ref[types.ModuleType], bool]] = {}


def is_library_module(module: types.ModuleType) -> bool:
    """Whether a module belongs to the standard library or to an installed package."""
    found = _library_modules.get(id(module))
    if found is not None and found[0]() is module:
        return found[1]
    path = getattr(module, "__file__", None)
    if path is None:
        # Built into the interpreter, a namespace package, or made by hand: the user's.
        library = module.__name__ in sys.builtin_module_names
    else:
        library = _is_library_path(str(path))
    _library_modules[id(module)] = (weakref.ref(module), library)
    return library

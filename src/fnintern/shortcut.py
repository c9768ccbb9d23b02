"""The key of a function that sees only constants and library functions, by the shortest way."""

from __future__ import annotations

import types
from typing import Any, Final

from fnintern.code import CodeFacts
from fnintern.keys import ATOMIC, STORE_ATTRIBUTE, Key, Marker
from fnintern.recognition import JITTED, is_pure_library, is_users

__all__ = ["only_names", "short_key"]

_CODE: Final = Marker.CODE
_ModuleType: Final = types.ModuleType

#: Types that compare by ``==`` and hide nothing, but for some floats.
_SHORT: Final = ATOMIC | {float}
_SHORT_OR_IDS: Final = _SHORT | {tuple}


def short_key(
    function: types.FunctionType, code: types.CodeType, facts: CodeFacts
) -> tuple[Key, list[Any]] | None:
    """The key of a function that sees only constants and library functions, and its targets.

    The same for most functions as the long way would find, at a third of its price; None for all
    others. ``facts.short`` must hold.
    """
    namespace = function.__globals__
    cells = function.__closure__
    try:
        values: Any = facts.get(namespace)
        if cells is not None:
            values += tuple([cell.cell_contents for cell in cells])
    except (KeyError, ValueError):  # a missing global, an empty cell
        return None
    if facts.builtins and not namespace.keys().isdisjoint(facts.builtins):
        return None  # one of them is shadowed
    if function.__defaults__ is not None:
        values += function.__defaults__
    if function.__kwdefaults__ is not None or function.__name__ != code.co_name:
        return None
    annotations: Any = function.__annotations__
    if annotations:
        annotations = tuple(annotations.items())
        if not only_names(function):
            return None  # keyed by what they are, the long way
    attributes = function.__dict__
    if attributes and (len(attributes) > 1 or STORE_ATTRIBUTE not in attributes):
        return None
    targets: list[Any] = [code]
    modules = 0
    if facts.dotted:
        values = list(values)
        for i, chains in facts.dotted:
            if type(values[i]) is _ModuleType:
                ids = _library_functions(values[i], chains, targets)
                if ids is None:
                    return None
                values[i] = ids
                modules += 1
    kinds = tuple(map(type, values))
    # Tuples are those of ids; a tuple of the program's goes the long way.
    if not _SHORT.issuperset(kinds) and (
        kinds.count(tuple) != modules or not _SHORT_OR_IDS.issuperset(kinds)
    ):
        return None
    if type(values) is list:
        values = tuple(values)
    if float in kinds:
        for value in values:
            # 0.0 == -0.0 and nan != nan: those go by their bits, the long way.
            if type(value) is float and (not value or value != value):
                return None
    if annotations:
        return (_CODE, id(code), id(namespace), kinds, values, annotations), targets
    return (_CODE, id(code), id(namespace), kinds, values), targets


def only_names(function: types.FunctionType) -> bool:
    """Whether its annotations are text, as ``from __future__ import annotations`` makes them."""
    return {str}.issuperset(map(type, function.__annotations__.values()))


def _library_functions(
    module: types.ModuleType, chains: tuple[tuple[str, ...], ...], targets: list[Any]
) -> tuple[int, ...] | None:
    """The ids of a library module and of the functions read straight off it."""
    if not is_pure_library(module):
        return None
    targets.append(module)
    ids = [id(module)]
    contents = module.__dict__
    for chain in chains:
        if len(chain) != 1:
            return None
        content = contents.get(chain[0])
        kind = type(content)
        if kind not in _function_kinds:
            if kind.__name__ not in JITTED:
                return None
            _function_kinds.add(kind)
        if kind is types.FunctionType and is_users(content):
            return None
        targets.append(content)
        ids.append(id(content))
    return tuple(ids)


#: Types of what a library module may hold as a function; jax's own are added as they turn up.
_function_kinds: set[type] = {types.FunctionType, types.BuiltinFunctionType}

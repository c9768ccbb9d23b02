"""What a trace has taken in that a program must not keep (S1, S3, S4).

A program is used again for other arrays and other objects, and its jaxpr lives as long as it does.
So it must hold no array but those of libraries, and no function that is called later, by a callback
or a rule of a derivative, and sees an array or anything that changes.
"""

from __future__ import annotations

import gc
import sys
import traceback
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from fnintern.captures.code import facts_of
from fnintern.keys.objects import importable
from fnintern.keys.reasons import Obstacle
from fnintern.keys.tokens import ATOMIC, STORE_ATTRIBUTE
from fnintern.libraries.jax import JITTED
from fnintern.libraries.ownership import KNOWN, is_held_by_library, is_library_path
from fnintern.staging.hoisting import parameters, stuck

__all__ = ["in_rules", "obstacle_in", "speaks_of_operands"]

_HIDDEN: Final = Obstacle(
    "f",
    "function",
    "its trace reads an array that no capture shows",
    "capture the array, or pass it",
)
_INSIDE: Final = Obstacle(
    "f",
    "function",
    "a jitted function inside of it captures an array",
    "pass the array to the jitted function",
)
_CALLBACK: Final = Obstacle(
    "f",
    "function",
    "it calls back a Python function, which may see what changes",
    "make it a jax.debug.print, or a function of a module",
)
_RULE: Final = Obstacle(
    "f",
    "function",
    "a derivative rule captures an array",
    "pass it as an argument of the rule's function",
)


def obstacle_in(
    jaxpr: Any, constants: Sequence[Any], captured: Mapping[int, Any]
) -> Obstacle | None:
    """Why a jaxpr must not be used again, if it must not.

    Args:
        jaxpr: of a call of functions.
        constants: what it has taken from outside and does not get as an operand.
        captured: the arrays that are operands, by their ids.
    """
    array_type, tracer = sys.modules["jax"].Array, sys.modules["jax"].core.Tracer
    for constant in constants:
        if isinstance(constant, tracer) or (
            isinstance(constant, array_type) and not is_held_by_library(constant)
        ):
            return _HIDDEN
    if stuck(jaxpr, captured):
        return _INSIDE
    for name, found in _called_later(jaxpr):
        if "callback" in name:
            if callable(found) and not _is_harmless(found) and not _is_constant(found):
                return _CALLBACK
        elif isinstance(found, tracer) or (
            id(found) in captured and not _is_a_constant_of_a_module(found)
        ):
            return _RULE
    return None


def in_rules(jaxpr: Any, captured: Mapping[int, Any]) -> dict[int, Any]:
    """The captured arrays that rules of derivatives see: the program is right for those alone."""
    return {
        id(found): found
        for name, found in _called_later(jaxpr)
        if "callback" not in name and id(found) in captured
    }


def _is_a_constant_of_a_module(array: Any) -> bool:
    """Whether a module holds the array under a name, so that a program may refer to it."""
    return any(
        item is array
        for module in list(sys.modules.values())
        if isinstance(module, types.ModuleType)
        for item in list(vars(module).values())
    )


def _called_later(jaxpr: Any) -> Iterator[tuple[str, Any]]:
    """What callbacks and rules of derivatives refer to, callables and arrays, each with the name of
    the primitive."""
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        for part in parameters(equation):
            if hasattr(part, "eqns"):
                yield from _called_later(getattr(part, "jaxpr", part))
            elif "callback" in name or name.startswith("custom_"):
                for found in _reachable(part):
                    yield name, found


#: What is not looked into: it is shared by everybody, or it is the trace itself.
_OPAQUE: Final = (type, types.ModuleType, types.CodeType, str, bytes, int, float)
_OPAQUE_NAMES: Final = JITTED | {"PyTreeDef", "PyTreeRegistry"}


def _reachable(value: Any) -> Iterator[Any]:
    """All callables, arrays and tracers that an object refers to."""
    array_type = sys.modules["jax"].Array
    todo = [value]
    seen: dict[int, Any] = {}
    while todo:
        item = todo.pop()
        if id(item) in seen or isinstance(item, _OPAQUE):
            continue
        seen[id(item)] = item
        if isinstance(item, array_type):
            yield item
            continue
        if type(item).__name__ in _OPAQUE_NAMES or hasattr(item, "eqns"):
            continue
        if callable(item):
            yield item
        if isinstance(item, types.FunctionType):
            if not _is_harmless(item):
                names = facts_of(item.__code__).names
                todo += [item.__globals__[name] for name in names if name in item.__globals__]
            todo += (item.__closure__, item.__defaults__, item.__kwdefaults__, item.__dict__)
        else:
            todo += gc.get_referents(item)


def _is_harmless(value: Any) -> bool:
    """Whether a callable is one of jax's or numpy's own, or only holds others."""
    if isinstance(value, types.BuiltinFunctionType):
        return value.__self__ is None or isinstance(value.__self__, types.ModuleType)
    owner = value if isinstance(value, types.FunctionType) else type(value)
    return str(owner.__module__).partition(".")[0] in ("jax", "jaxlib", "numpy", "functools")


def _is_constant(value: Any, in_library: bool = False, depth: int = 0) -> bool:
    """Whether a function of the user's captures nothing that changes, so that any equal one is as
    good: a print of a progress bar, say. Globals it looks up when it runs.

    A library does not edit the lists that a callback of its own gets, of messages, say.
    """
    if depth > _MAX_NESTED:
        return False
    if isinstance(value, types.FunctionType):
        if set(vars(value)) - {STORE_ATTRIBUTE}:
            return False
        in_library = is_library_path(value.__code__.co_filename)
        try:
            items = [cell.cell_contents for cell in value.__closure__ or ()]
        except ValueError:  # not filled yet
            return False
        items += [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    elif type(value) in (tuple, frozenset) or (in_library and type(value) is list):
        items = list(value)
    elif in_library and type(value) is dict:
        items = [*value, *value.values()]
    else:
        return (
            type(value) in ATOMIC
            or type(value) is float
            or isinstance(value, sys.modules["jax"].ShapeDtypeStruct)
            or importable(value)
        )
    return all(item is value or _is_constant(item, in_library, depth + 1) for item in items)


_MAX_NESTED: Final = 16


#: In the texts of errors that JAX raises for tracers and not for arrays. The last two, of jax 0.12
#: and 0.10, are about arrays among static data, which it compares.
_OF_OPERANDS: Final = (
    "Tracer",
    "Cache keys should be comparable",
    "checking equality of metadata fields",
)


def speaks_of_operands(error: BaseException) -> bool:
    """Whether JAX itself has raised an error that is another one for arrays than for the tracers in
    their place: it shows a tracer, or is none of the errors by which JAX refuses a call.

    The call is made again plainly, which runs no code of the user's or of another library before
    it fails.
    """
    if not isinstance(error, Exception):
        return False
    text = str(error)
    if type(error) in (TypeError, ValueError) and not any(word in text for word in _OF_OPERANDS):
        return False
    inside = False
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_globals.get("__name__") == "fnintern.staging.conversion":
            inside = True  # what comes now was called by the operation
        elif inside and not _keeps_no_state(frame):
            return False
    return inside


#: Libraries that keep no state of a call.
_STATELESS: Final = frozenset({"jax", "jaxlib", "fnintern", "numpy", "ml_dtypes", "opt_einsum"})


def _keeps_no_state(frame: types.FrameType) -> bool:
    """Whether the code that runs keeps no state of the call, as flax does of a module that it has
    taken apart: JAX, NumPy, fnintern, the standard library."""
    root = str(frame.f_globals.get("__name__")).partition(".")[0]
    if root in KNOWN:
        return root in _STATELESS
    return is_library_path(frame.f_code.co_filename)

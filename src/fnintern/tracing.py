"""What a trace has taken in that its program must not keep (S1, S3).

A program is used again for other arrays, and its jaxpr for as long as it lives. So it must not hold
an array that no capture shows, nor a function that somebody calls after the trace, with the tracers
or the copies in it that were made for the trace.
"""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Iterator
from typing import Any, Final

from fnintern.captures import Frozen, freeze
from fnintern.code import facts_of, is_library_module
from fnintern.explanations import Obstacle
from fnintern.recognition import JITTED

__all__ = ["live_arrays", "obstacle_in"]


def live_arrays() -> set[int]:
    """The ids of all arrays that exist, as :func:`obstacle_in` needs them."""
    return {id(array) for array in sys.modules["jax"].live_arrays()}


def obstacle_in(jaxpr: Any, frozen: Frozen, before: set[int]) -> Obstacle | None:
    """Why a jaxpr must not be used again, if it must not.

    Args:
        jaxpr: of a call of functions,
        frozen: which are these.
        before: the ids of all arrays that existed before it was traced.
    """
    jax = sys.modules["jax"]
    hidden = [
        array
        for array in _constants(jaxpr)
        if isinstance(array, jax.Array)
        and not isinstance(array, jax.core.Tracer)
        and id(_data(array)) in before
    ]
    if hidden:
        expected = {id(leaf) for leaf in _taken_as_cached(frozen)}
        hidden = [a for a in hidden if id(a) not in expected and not _is_a_librarys(a)]
    if hidden:
        reason = "its trace reads an array that no capture shows"
        return Obstacle("f", "function", reason, "capture the array, or pass it")
    for name, found in _called_later(jaxpr):
        if "callback" in name:
            if _is_harmless(found):
                continue
            reason = "it calls back a Python function, which may see what changes"
            return Obstacle("f", "function", reason, "make it a jax.debug.print, or leave it")
        if isinstance(found, jax.core.Tracer):
            reason = "a derivative rule captures an array"
            return Obstacle(
                "f", "function", reason, "pass it as an argument of the rule's function"
            )
    return None


def _data(array: Any) -> Any:
    """The array itself; that of a PRNG key, which is no array of its own."""
    return getattr(array, "_base_array", array)


def _constants(jaxpr: Any) -> Iterator[Any]:
    """What a jaxpr holds from outside, but for what jitted functions in it do."""
    yield from getattr(jaxpr, "consts", ())
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield from (var.val for var in equation.invars if hasattr(var, "val"))
        if equation.primitive.name in ("jit", "pjit"):
            continue
        for part in _parameters(equation):
            if hasattr(part, "eqns"):
                yield from _constants(part)


def _parameters(equation: Any) -> Iterator[Any]:
    for value in equation.params.values():
        yield from value if isinstance(value, tuple | list) else (value,)


def _taken_as_cached(frozen: Frozen) -> Iterator[Any]:
    """The arrays of jitted functions, which JAX takes as they were when it traced those."""
    for target in frozen.targets:
        if type(target).__name__ in JITTED:
            try:
                yield from freeze(target.__wrapped__).leaves
            except Exception:  # refused: then its arrays are not known
                continue


def _is_a_librarys(array: Any) -> bool:
    """Whether a module of a library holds the array, as a constant of its own."""
    return any(
        item is array
        for module in list(sys.modules.values())
        if isinstance(module, types.ModuleType) and is_library_module(module)
        for item in list(vars(module).values())
    )


def _called_later(jaxpr: Any) -> Iterator[tuple[str, Any]]:
    """The callables and tracers that callbacks and rules of derivatives refer to, each with the
    name of the primitive."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        name = equation.primitive.name
        for part in _parameters(equation):
            if hasattr(part, "eqns"):
                yield from _called_later(part)
            elif "callback" in name or name.startswith("custom_"):
                for found in _reachable(part):
                    yield name, found


#: What is not looked into: it is shared by everybody, or it is the trace itself.
_OPAQUE: Final = (type, types.ModuleType, types.CodeType, str, bytes, int, float)
_OPAQUE_NAMES: Final = JITTED | {"PyTreeDef", "PyTreeRegistry"}


def _reachable(value: Any) -> Iterator[Any]:
    """All callables and tracers that an object refers to."""
    jax = sys.modules["jax"]
    todo = [value]
    seen: dict[int, Any] = {}
    while todo:
        item = todo.pop()
        if id(item) in seen or isinstance(item, _OPAQUE):
            continue
        seen[id(item)] = item
        if isinstance(item, jax.core.Tracer):
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

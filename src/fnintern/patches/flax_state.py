"""State of ``flax.nnx`` that a branch or body captures and changes: it is passed as an operand.

Without fnintern flax refuses such a change, since the module belongs to an outer trace. Where a
transform has refused it, the same call is made with the captured modules among the operands, so
that what changes in them reaches them as if they had been passed.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

from fnintern.captures import References, freeze
from fnintern.conversion import CodeNotes
from fnintern.declarations import keyed
from fnintern.recognition import is_readable_state
from fnintern.thawing import thaw

__all__ = ["TRANSFORMS", "passing_state"]


class _Captured:
    """What the functions of one call capture: their state of flax, each object once."""

    def __init__(self, functions: Sequence[Any]) -> None:
        self.functions = tuple(functions)
        self.frozen = freeze(self.functions, references=References.LEAVES)
        unique = {id(leaf): leaf for leaf in self.frozen.leaves if is_readable_state(leaf)}
        self.state = tuple(unique.values())

    def around(self, state: Sequence[Any]) -> Any:
        """The functions around other objects in the place of :attr:`state`."""
        new = {id(old): item for old, item in zip(self.state, state, strict=True)}
        leaves = [new.get(id(leaf), leaf) for leaf in self.frozen.leaves]
        return thaw(self.functions, self.frozen, leaves)


class _Passed:
    """One function of a call, which gets the state beside its own argument."""

    # No attributes that functools.wraps would copy to a wrapper.
    __slots__ = ("__weakref__", "captured", "index")

    def __init__(self, captured: _Captured, index: int) -> None:
        self.captured = captured
        self.index = index


class _Branch(_Passed):
    __slots__ = ()

    def __call__(self, state: Any, *operands: Any) -> Any:
        return self.captured.around(state)[self.index](*operands)


class _Test(_Passed):
    __slots__ = ()

    def __call__(self, value: Any) -> Any:
        return self.captured.around(value[0])[self.index](value[1])


class _Body(_Passed):
    __slots__ = ()

    def __call__(self, value: Any) -> Any:
        return value[0], self.captured.around(value[0])[self.index](value[1])


class _Step(_Passed):
    __slots__ = ()

    def __call__(self, i: Any, value: Any) -> Any:
        return value[0], self.captured.around(value[0])[self.index](i, value[1])


keyed(_Passed, lambda passed: (type(passed).__name__, passed.index, passed.captured.functions))

#: Transform -> its parameters that are functions, with what takes the place of each, and the one
#: that the state goes along with.
TRANSFORMS: Final[dict[str, tuple[dict[str, type[_Passed]], str]]] = {
    "cond": ({"true_fun": _Branch, "false_fun": _Branch}, "operands"),
    "switch": ({"branches": _Branch}, "operands"),
    "while_loop": ({"cond_fun": _Test, "body_fun": _Body}, "init_val"),
    "fori_loop": ({"body_fun": _Step}, "init_val"),
}

#: Functions that were seen to change what they capture.
_changing: CodeNotes[bool] = CodeNotes()


def passing_state(name: str, transform: Callable[..., Any]) -> Callable[..., Any]:
    """The transform of this name, with captured state that its functions change as an operand."""
    parameters, along = TRANSFORMS[name]
    signature = inspect.signature(transform)

    def find(args: Any, kwargs: Any) -> tuple[_Captured, inspect.BoundArguments] | None:
        try:
            bound = signature.bind(*args, **kwargs)
            functions: list[Any] = []
            for parameter in parameters:
                value = bound.arguments[parameter]
                functions += value if parameter == "branches" else [value]
            captured = _Captured(functions)
        except Exception:  # refused, or no such arguments
            return None
        return (captured, bound) if captured.state else None

    def make(captured: _Captured, bound: inspect.BoundArguments) -> Any:
        arguments = bound.arguments
        count = itertools.count()
        for parameter, passed in parameters.items():
            if parameter == "branches":
                arguments[parameter] = [passed(captured, next(count)) for _ in captured.functions]
            else:
                arguments[parameter] = passed(captured, next(count))
        if along == "operands":
            arguments[along] = (captured.state, *arguments.get(along, ()))
            return transform(*bound.args, **bound.kwargs)
        arguments[along] = (captured.state, arguments[along])
        return transform(*bound.args, **bound.kwargs)[1]

    @functools.wraps(transform)
    def call(*args: Any, **kwargs: Any) -> Any:
        found = find(args, kwargs) if _changing else None
        if found is not None and _changing.of(found[0].frozen):
            with contextlib.suppress(Exception):  # what it raises as it is, is raised below
                return make(*found)
            return transform(*args, **kwargs)
        try:
            return transform(*args, **kwargs)
        except importlib.import_module("flax.errors").TraceContextError as error:
            found = find(args, kwargs)
            if found is None:
                raise
            try:
                result = make(*found)
            except Exception:
                raise error from None
        _changing.note(found[0].frozen, True)
        return result

    return call

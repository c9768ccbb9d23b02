"""The arguments of a call taken apart into functions, static values and arrays, and put together.

Imports jax.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs
import jax
import numpy as np

from fnintern.keys.callables import copy_annotations, is_partial
from fnintern.keys.tokens import STORE_ATTRIBUTE, Marker, Refused, Unkeyable
from fnintern.staging.structures import holds_text_only

__all__ = ["Arguments", "Parameters"]

#: How an argument, or a leaf of one, gets into the program: an array of JAX; a number or an array
#: of NumPy, which an operation may hand through as it is; a value.
_OPERAND: Final = Marker.LEAF
_HOST: Final = Marker.EMPTY
_VALUE: Final = Marker.OBJECT
#: A tree structure that is frozen with the values, since equality does not say all of it.
_STRUCTURE: Final = Marker.CODE

_NUMBERS: Final = frozenset({int, float, bool, complex})
_flatten: Final = jax.tree_util.tree_flatten
_Array: Final = jax.Array


@attrs.frozen
class Parameters:
    """Which arguments of an operation are special, each by its position and by its name.

    Attributes:
        static: needed as Python values.
        hashed: whether those must have a hash.
        donated: their buffers may be used for results.
        functions: where functions are looked for, in containers too; None for everywhere. What is
            no array elsewhere is not converted.
    """

    static: frozenset[int | str] = frozenset()
    donated: frozenset[int | str] = frozenset()
    functions: frozenset[int | str] | None = None
    hashed: bool = False


class Arguments:
    """The arguments of one call.

    Attributes:
        spec: how each argument is put together, and the name of each that was given by name; part
            of the call's key.
        operands: the arrays and numbers, flat.
        donated: the positions of donated operands.
        values: functions, and whatever else is no operand.
        structures: of arguments with data in their nodes that count.
    """

    __slots__ = ("donated", "operands", "spec", "structures", "values")

    def __init__(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], parameters: Parameters
    ) -> None:
        """
        Raises:
            Refused: one is neither function nor array, where only these are taken.
        """
        self.spec: list[Any] = []
        self.operands: list[Any] = []
        self.donated: list[int] = []
        self.values: list[Any] = []
        self.structures: list[Any] = []
        static, donated = parameters.static, parameters.donated
        functions = parameters.functions or frozenset()
        everywhere = parameters.functions is None
        if parameters.hashed:
            for place in static:
                value = kwargs.get(place) if isinstance(place, str) else args[place : place + 1]
                try:
                    hash(value)
                except Exception as error:
                    reason = f"it is static, and hash() failed: {type(error).__name__}"
                    raise Unkeyable("argument", value, reason) from None
        for i, value in enumerate(args):
            self._take(value, i in static, i in donated, everywhere or i in functions)
        for name, value in kwargs.items():
            self.spec.append(name)
            self._take(value, name in static, name in donated, everywhere or name in functions)

    def _take(self, value: Any, static: bool, donated: bool, functions: bool) -> None:
        if static:
            value = _as_python(value)
            if not isinstance(value, _Array):  # a tracer
                self.spec.append(_VALUE)
                self.values.append(value)
                return
        elif functions and type(value) is types.FunctionType:
            self.spec.append(_VALUE)
            self.values.append(value)
            return
        first = len(self.operands)
        if isinstance(value, _Array):
            self.spec.append(_OPERAND)
            self.operands.append(value)
        else:
            leaves, structure = _flatten(value, is_leaf=callable if functions else None)
            kinds = []
            for leaf in leaves:
                if isinstance(leaf, _Array):
                    kinds.append(_OPERAND)
                    self.operands.append(leaf)
                elif _is_number(leaf):
                    kinds.append(_HOST)
                    self.operands.append(leaf)
                elif functions:
                    kinds.append(_VALUE)
                    self.values.append(leaf)
                else:
                    raise Refused("argument", leaf, "it is no array")
            if holds_text_only(structure):
                self.spec.append((structure, *kinds))
            else:
                self.spec.append((_STRUCTURE, *kinds))
                self.structures.append(structure)
        if donated:
            self.donated += range(first, len(self.operands))

    def put_together(self, operands: Iterator[Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments around other operands, with a twin of each function."""
        made: dict[tuple[int, ...], Any] = {}
        values = iter([twin(value, made) for value in self.values])
        structures = iter(self.structures)
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        name = None
        for part in self.spec:
            if type(part) is str:
                name = part
                continue
            if type(part) is tuple:
                structure = next(structures) if part[0] is _STRUCTURE else part[0]
                leaves = [next(values if kind is _VALUE else operands) for kind in part[1:]]
                value = structure.unflatten(leaves)
            else:
                value = next(operands if part is _OPERAND else values)
            if name is None:
                args.append(value)
            else:
                kwargs[name] = value
        return args, kwargs


def _as_python(value: Any) -> Any:
    """A static argument as a Python value, or the tracer that it is."""
    if not isinstance(value, _Array) or isinstance(value, jax.core.Tracer):
        return value
    if value.ndim:
        raise Refused("argument", value, "a static argument holds an array")
    # The operation would read it.
    return value.item() if value.weak_type else np.asarray(value)[()]


def _is_number(leaf: Any) -> bool:
    if type(leaf) is int and not -(1 << 31) <= leaf < 1 << 31:
        raise Refused("argument", leaf, "it may not fit into 32 bits")
    return type(leaf) in _NUMBERS or isinstance(leaf, np.ndarray | np.generic)


def twin(value: Any, made: dict[tuple[int, ...], Any]) -> Any:
    """The same function under another identity: same code, cells, globals and defaults.

    JAX finds what it has traced by the function object, and would answer from an earlier trace,
    made when the function saw something else.

    Args:
        value: a function; what is none is returned as it is.
        made: the twins made for one call, so that equal functions have one.
    """
    kind = type(value)
    number: tuple[int, ...] = (id(value),)
    if kind is types.MethodType:
        number = (id(value.__self__), id(value.__func__))
    found = made.get(number)
    if found is not None:
        return found
    if kind is types.FunctionType:
        new: Any = _twin_function(value)
    elif kind is types.MethodType and type(value.__func__) is types.FunctionType:
        new = types.MethodType(_twin_function(value.__func__), value.__self__)
    elif is_partial(value):
        new = kind(value.func, *value.args, **value.keywords)
        vars(new).update(_attributes(value))
    elif callable(value) and not isinstance(value, type):
        new = _forwarding(value)
    else:
        return value
    made[number] = new
    return new


def _twin_function(function: types.FunctionType) -> types.FunctionType:
    new = types.FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    new.__kwdefaults__ = function.__kwdefaults__
    new.__qualname__ = function.__qualname__
    new.__module__ = function.__module__
    new.__doc__ = function.__doc__
    copy_annotations(new, function)
    new.__dict__.update(_attributes(function))
    return new


def _attributes(value: Any) -> dict[str, Any]:
    return {name: item for name, item in vars(value).items() if name != STORE_ATTRIBUTE}


def _forwarding(value: Callable[..., Any]) -> Callable[..., Any]:
    def forward(*args: Any, **kwargs: Any) -> Any:
        return value(*args, **kwargs)

    functools.update_wrapper(forward, value, updated=())
    return forward

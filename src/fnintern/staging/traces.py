"""The plain trace of a call: the user's functions over the user's objects and arrays (S4).

Imports jax.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import jax

from fnintern.staging.arguments import Arguments
from fnintern.staging.hoisting import evaluate
from fnintern.staging.programs import jax_jit

__all__ = ["HandsThrough", "Plain", "PlainTrace", "traced_operation", "traced_shapes"]


@attrs.frozen
class PlainTrace:
    """What comes of tracing a call.

    Attributes:
        closed: the jaxpr with its constants: what it has taken from outside.
        structure: of the result.
        outer: what it has taken from outside and has as its first operands, instead.
        shapes: the leaves of the result, where the call computes shapes alone.
    """

    closed: Any
    structure: Any
    outer: tuple[Any, ...] = ()
    shapes: tuple[Any, ...] | None = None

    @property
    def constants(self) -> list[tuple[Any, Any]]:
        """All that it has taken from outside, each with its variable."""
        jaxpr = self.closed.jaxpr
        pairs = list(zip(jaxpr.invars, self.outer, strict=False))
        return pairs + list(zip(jaxpr.constvars, self.closed.consts, strict=True))

    def evaluate(self, operands: Sequence[Any], arrays: Mapping[int, Any]) -> list[Any]:
        """The results, with other values in the place of the arrays with these ids."""
        values = [arrays.get(id(constant), constant) for _, constant in self.constants]
        count = len(self.outer)
        operands = (*values[:count], *operands)
        return evaluate(self.closed.jaxpr, values[count:], operands, arrays)


#: Traces a call around operands that stand for those of the call.
Plain = Callable[[Arguments, Sequence[Any]], PlainTrace]


def traced_operation(op: Callable[..., Any]) -> Plain:
    """The plain trace of a call of ``op``."""

    def plain(arguments: Arguments, operands: Sequence[Any]) -> PlainTrace:
        structure: Any = None

        def call(*operands: Any) -> Any:
            nonlocal structure
            args, kwargs = arguments.put_together(iter(operands))
            results, structure = jax.tree_util.tree_flatten(op(*args, **kwargs))
            return results

        return PlainTrace(jax.make_jaxpr(call)(*operands), structure)

    return plain


def traced_shapes(arguments: Arguments, operands: Sequence[Any]) -> PlainTrace:
    """The plain trace of a call of ``jax.eval_shape``."""
    (fun, *args), kwargs = arguments.put_together(iter(operands))
    traced: Any = jax_jit(fun).trace(*args, **kwargs)
    shapes, structure = jax.tree_util.tree_flatten(traced.out_info)
    outer = tuple(getattr(traced, "_consts", ()))
    return PlainTrace(traced.jaxpr, structure, outer, tuple(shapes))


class HandsThrough(enum.Enum):
    """Which arguments an operation returns as the objects that they are, if it returns them
    untouched."""

    #: None: all results are computed, as by ``jax.jit``.
    NOTHING = "nothing"
    #: Arrays of JAX. Of anything else they make one.
    ARRAYS = "arrays"
    #: Whatever they are, as ``while_loop`` does: a number of Python, an array of NumPy.
    OBJECTS = "objects"
    #: In the first part of the result whatever they are, and arrays in the second: ``scan``.
    CARRY = "carry"

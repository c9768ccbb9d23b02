"""The operations of ``jax.lax`` on functions, and all that is known of each. Imports jax."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

import attrs
import jax

from fnintern.staging.traces import HandsThrough, traced_shapes
from fnintern.staging.wrapping import Staged

__all__ = ["OPERATIONS", "Operation", "original", "stage"]


def _one_branch(index: Any = None, branches: Any = (), *operands: Any, **kwargs: Any) -> bool:
    """Of one branch, ``switch`` returns what it returns, whatever that is."""
    return len(branches) < 2


@attrs.frozen
class Operation:
    """What is known of an operation.

    Attributes:
        functions: its parameters that are functions, or sequences of them. Whatever else is
            callable, such as a model in the carry, is an operand.
        static: its parameters that it needs as Python values. With the bounds of ``fori_loop``
            among them it is a scan, which can be differentiated in reverse.
        hands_through: which arguments it returns as they are if it returns them untouched.
        aside: says of the arguments of a call whether it is to run as it is.
        internal: whether jax's own code, such as ``jax.scipy``, looks it up in ``jax._src.lax``.
    """

    functions: tuple[str, ...]
    static: tuple[str, ...] = ()
    hands_through: HandsThrough = HandsThrough.ARRAYS
    aside: Callable[..., bool] | None = None
    internal: bool = True


#: ``associative_scan`` is left out: an eager call of it applies its function to the arrays
#: themselves, and traces nothing.
OPERATIONS: Final[dict[str, Operation]] = {
    "cond": Operation(("true_fun", "false_fun")),
    "switch": Operation(("branches",), aside=_one_branch),
    "while_loop": Operation(("cond_fun", "body_fun"), hands_through=HandsThrough.OBJECTS),
    "fori_loop": Operation(
        ("body_fun",), ("lower", "upper", "unroll"), hands_through=HandsThrough.OBJECTS
    ),
    "scan": Operation(
        ("f",),
        ("length", "reverse", "unroll", "_split_transpose"),
        hands_through=HandsThrough.CARRY,
    ),
    "map": Operation(("f",), ("batch_size",), internal=False),
    "reduce": Operation(("computation",), ("dimensions", "out_sharding")),
    "custom_root": Operation(("f", "solve", "tangent_solve"), ("has_aux",), internal=False),
    "custom_linear_solve": Operation(
        ("matvec", "solve", "transpose_solve"), ("symmetric", "has_aux")
    ),
}

#: The same in ``jax`` itself.
CALLBACKS: Final[dict[str, Operation]] = {
    "pure_callback": Operation(
        ("callback", "result_shape_dtypes"), ("sharding", "vmap_method"), internal=False
    ),
}


def stage(name: str, op: Callable[..., Any]) -> Staged:
    """The operation of ``jax.lax`` of this name, or ``jax.eval_shape``, staged; see
    :class:`Staged`."""
    if name == "eval_shape":  # it traces at once and computes nothing
        return Staged(op, functions=("fun",), plain=traced_shapes)
    known = inspect.signature(op).parameters  # releases differ
    operation = OPERATIONS.get(name) or CALLBACKS[name]
    return Staged(
        op,
        tuple(parameter for parameter in operation.static if parameter in known),
        functions=tuple(parameter for parameter in operation.functions if parameter in known),
        aside=operation.aside,
        hands_through=operation.hands_through,
    )


def original(op: Callable[..., Any]) -> Callable[..., Any]:
    """What is under an operation that ``patch_jax()`` has staged."""
    return op.__wrapped__ if isinstance(op, Staged) else op


def operation(name: str) -> Staged:
    """A new staged operation for the one that is in ``jax.lax`` now, or under a patch of it."""
    return stage(name, original(getattr(jax.lax, name)))

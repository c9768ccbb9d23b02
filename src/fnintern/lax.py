"""``jax.lax``'s operations on functions, staged: ``from fnintern import lax``.

Each has the signature and the meaning of its namesake, and compiles once for what its functions
are; see :func:`fnintern.staged`. All other names are those of ``jax.lax``. Imports jax.

Example:
    >>> import jax.numpy as jnp
    >>> from fnintern import lax
    >>> def clipped(x, limit):
    ...     return lax.cond(x > limit, lambda: limit, lambda: x)
    >>> [float(clipped(jnp.float32(x), jnp.float32(2.0))) for x in (1.0, 3.0)]
    [1.0, 2.0]
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import jax

from fnintern.staged import Staged

__all__ = [
    "associative_scan", "cond", "custom_linear_solve", "custom_root", "fori_loop", "map", "reduce",
    "scan", "switch", "while_loop",
]  # fmt: skip

#: Operation -> its parameters that it needs as Python values. With the bounds of fori_loop among
#: them it is a scan, which can be differentiated in reverse.
STATIC: Final[dict[str, tuple[str, ...]]] = {
    "cond": (),
    "switch": (),
    "while_loop": (),
    "fori_loop": ("lower", "upper", "unroll"),
    "scan": ("length", "reverse", "unroll", "_split_transpose"),
    "map": ("batch_size",),
    "associative_scan": ("reverse", "axis"),
    "reduce": ("dimensions", "out_sharding"),
    "custom_root": ("has_aux",),
    "custom_linear_solve": ("symmetric", "has_aux"),
}

#: Operation -> its parameters that are functions, or sequences of them. Whatever else is callable,
#: such as a model in the carry, is an operand.
FUNCTIONS: Final[dict[str, tuple[str, ...]]] = {
    "cond": ("true_fun", "false_fun"),
    "switch": ("branches",),
    "while_loop": ("cond_fun", "body_fun"),
    "fori_loop": ("body_fun",),
    "scan": ("f",),
    "map": ("f",),
    "associative_scan": ("fn",),
    "reduce": ("computation",),
    "custom_root": ("f", "solve", "tangent_solve"),
    "custom_linear_solve": ("matvec", "solve", "transpose_solve"),
}


def stage(name: str, op: Callable[..., Any], *, traced: Callable[..., Any] | None = None) -> Staged:
    """The operation of ``jax.lax`` of this name, staged; see :class:`fnintern.staged.Staged`."""
    known = inspect.signature(op).parameters  # releases differ
    static, functions = (
        tuple(parameter for parameter in table[name] if parameter in known)
        for table in (STATIC, FUNCTIONS)
    )
    return Staged(op, static, functions=functions, aside=_ASIDE.get(name), traced=traced)


def original(op: Callable[..., Any]) -> Callable[..., Any]:
    """What is under an operation that ``patch_jax()`` has staged."""
    return op.__wrapped__ if isinstance(op, Staged) else op


def _one_branch(index: Any = None, branches: Any = (), *operands: Any, **kwargs: Any) -> bool:
    """Of one branch, ``switch`` returns what it returns, whatever that is."""
    return len(branches) < 2


def _one_element(fn: Any = None, elems: Any = (), reverse: Any = False, axis: Any = 0) -> bool:
    """Of less than two elements, ``associative_scan`` returns them, whatever they are."""
    leaves = jax.tree_util.tree_leaves(elems)
    try:
        return not leaves or leaves[0].shape[axis] < 2
    except (AttributeError, IndexError, TypeError):  # an error that it is left to raise
        return True


#: Operation -> says of the arguments of a call whether it is to run as it is.
_ASIDE: Final[dict[str, Callable[..., bool]]] = {
    "switch": _one_branch,
    "associative_scan": _one_element,
}


def __getattr__(name: str) -> Any:
    """All else of ``jax.lax`` is what it is there."""
    return getattr(jax.lax, name)


if TYPE_CHECKING:
    from jax.lax import *  # noqa: F403
    from jax.lax import associative_scan as associative_scan
    from jax.lax import cond as cond
    from jax.lax import custom_linear_solve as custom_linear_solve
    from jax.lax import custom_root as custom_root
    from jax.lax import fori_loop as fori_loop
    from jax.lax import map as map
    from jax.lax import reduce as reduce
    from jax.lax import scan as scan
    from jax.lax import switch as switch
    from jax.lax import while_loop as while_loop
else:
    for _name in STATIC:
        globals()[_name] = stage(_name, original(getattr(jax.lax, _name)))

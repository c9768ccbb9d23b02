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

from typing import TYPE_CHECKING, Any

import jax

from fnintern.staging.operations import OPERATIONS, operation

__all__ = [
    "cond", "custom_linear_solve", "custom_root", "fori_loop", "map", "reduce", "scan", "switch",
    "while_loop",
]  # fmt: skip


if TYPE_CHECKING:
    from jax.lax import *  # noqa: F403
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

    def __getattr__(name: str) -> Any:
        """All else of ``jax.lax`` is what it is there."""
        return getattr(jax.lax, name)

    for _name in OPERATIONS:
        globals()[_name] = operation(_name)

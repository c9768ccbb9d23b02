"""Whether JAX would run a call now, operation by operation, or stage it into a trace under way.

The one place that asks JAX for its current trace, which no public name tells. Imports jax.
"""

from __future__ import annotations

import warnings
from typing import Any, Final

import jax

__all__ = ["is_eager", "runs_programs"]

#: Traces that transform a call and hand it on. Any other one records it.
_TRANSFORMING: Final = frozenset({"JVPTrace", "LinearizeTrace", "BatchTrace"})


def _context() -> Any:
    try:
        from jax._src.core import trace_ctx
    except ImportError:
        return None
    return trace_ctx if hasattr(trace_ctx, "trace") else None


_trace_context: Final = _context()
if _trace_context is None:
    warnings.warn(
        f"fnintern does not find the current trace in jax {jax.__version__}, so staged calls run "
        f"as without fnintern. Use a release of jax that is listed as supported",
        stacklevel=2,
    )


def is_eager() -> bool:
    """Whether a call runs now, if need be under ``grad``, ``jvp`` or ``vmap``, in a mode in which
    one program may stand for many operations.

    Returns:
        False inside ``jit`` and whatever else records what it calls; and under
        ``jax.disable_jit()``, ``jax.checking_leaks()``, ``jax.debug_nans`` and ``debug_infs``.

    Example:
        >>> import jax
        >>> seen = []
        >>> _ = jax.grad(lambda x: seen.append(is_eager()) or x)(1.0)
        >>> _ = jax.jit(lambda x: seen.append(is_eager()) or x)(1.0)
        >>> seen
        [True, False]
    """
    if _trace_context is None:
        return False
    trace = _trace_context.trace
    parent = getattr(trace, "parent_trace", None)
    while parent is not None:
        if type(trace).__name__ not in _TRANSFORMING:
            return False
        trace = parent
        parent = getattr(trace, "parent_trace", None)
    return type(trace).__name__ == "EvalTrace" and runs_programs()


def runs_programs() -> bool:
    """Whether one program may stand for many operations in the present mode of JAX."""
    config: Any = jax.config
    return not (
        config.jax_disable_jit
        or config.jax_check_tracer_leaks
        or config.jax_debug_nans
        or config.jax_debug_infs
    )

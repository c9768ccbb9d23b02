"""Captured arrays of NumPy as operands. Imports jax.

They may be edited in place at any time, so their contents are part of the key. JAX gets a copy of
an array that stays as it is as long as the contents do, so that a call copies nothing.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from fnintern.keys.weakids import WeakIds

__all__ = ["as_constant", "is_numeric", "on_device"]


def is_numeric(array: Any) -> bool:
    """Whether JAX takes an array of NumPy as an operand."""
    return array.dtype.kind in "biufc" and array.dtype.isnative and array.dtype != np.longdouble


def as_constant(array: Any) -> Any:
    """What JAX has in a jaxpr in the place of an array of NumPy: another object, of its own dtype,
    which it finds again by the array for as long as any jaxpr holds it. (So an edit of the array in
    place is not seen as long as one does.)"""
    closed = jax.make_jaxpr(lambda: jax.lax.reshape(array, (array.size,)))()
    if closed.consts:
        return closed.consts[0]
    return getattr(closed.jaxpr.eqns[0].invars[0], "val", None)


#: What the copy of an array depends on, and the copy.
_copies: WeakIds[tuple[Any, Any]] = WeakIds()


def on_device(array: Any, contents: Any) -> Any:
    """An array of JAX with the contents of an array of NumPy.

    Args:
        array: of any numeric dtype. JAX makes 32 bits of 64 where ``jax_enable_x64`` is off.
        contents: what stands for its contents in a key.

    Returns:
        The same array of JAX as long as the contents are the same. It goes with ``array``.
    """
    settings = (contents, jax.config.jax_enable_x64, jax.config.jax_default_device)
    found = _copies.get(array)
    if found is not None and found[0] == settings:
        return found[1]
    # Of a copy of NumPy's: JAX may use the memory as it is, and remembers what it has converted.
    copy = jax.device_put(np.array(array))
    _copies.set(array, (settings, copy))
    return copy

"""``patch_jax``: the operations of ``jax.lax`` on functions, staged for every library."""

from __future__ import annotations

import functools
import importlib
import types
from typing import Any

from fnintern.libraries.missing import missing
from fnintern.patches.patching import Patch, Site, apply

__all__ = ["patch_jax"]


def patch_jax() -> Patch:
    """Makes eager calls of ``jax.lax``'s control flow compile once for the same functions.

    It replaces ``cond``, ``switch``, ``while_loop``, ``fori_loop``, ``scan``, ``map``, ``reduce``,
    ``custom_root`` and ``custom_linear_solve`` in ``jax.lax``, and where ``jax.scipy`` looks them
    up: libraries profit unchanged. Code that ran ``from jax.lax import scan`` before keeps the
    original.

    Returns:
        The patch, in force: a context manager with ``revert()`` and ``report``. While it is in
        force the same call returns the same patch.

    Raises:
        ImportError: jax is not installed.

    Example:
        >>> import jax, jax.numpy as jnp, fnintern
        >>> with fnintern.patch_jax():
        ...     for w in (1.0, 2.0, 3.0):
        ...         w = jnp.float32(w)
        ...         _ = jax.lax.map(lambda x: w * x, jnp.arange(3.0))
        ...     print(jax.lax.map.cache_info().misses)
        1
    """
    try:
        operations = importlib.import_module("fnintern.staging.operations")
    except ModuleNotFoundError as error:
        raise missing("patch_jax()", error) from error
    table = operations.OPERATIONS

    @functools.cache
    def stage(name: str, op: Any) -> Any:
        return operations.stage(name, op)

    # Where code looks them up: all of them in jax.lax; and, in a module of its own, what jax's own
    # code such as jax.scipy uses.
    internal = [name for name, operation in table.items() if operation.internal]
    sites = []
    for module_name, names in (("jax.lax", table), ("jax._src.lax", internal)):
        try:
            module = importlib.import_module(module_name)
        except ImportError:
            if module_name == "jax.lax":
                raise
            module = types.ModuleType(module_name)  # all its names are reported as absent
        sites += [Site(module, name, functools.partial(stage, name)) for name in names]
    return apply("jax", sites)

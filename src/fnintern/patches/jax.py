"""``patch_jax``: the operations of ``jax.lax`` on functions, staged for every library."""

from __future__ import annotations

import functools
import importlib
import types
from collections.abc import Callable
from typing import Any

from fnintern.captures.declared import stateless
from fnintern.interning.held import Handle, Operation
from fnintern.libraries.importing import import_for
from fnintern.libraries.jax import jax_settings
from fnintern.patches.patching import Patch, Site, apply

__all__ = ["patch_jax"]


def patch_jax() -> Patch:
    """Makes eager calls of ``jax.lax``'s control flow compile once for the same functions.

    It replaces ``cond``, ``switch``, ``while_loop``, ``fori_loop``, ``scan``, ``map``, ``reduce``,
    ``custom_root`` and ``custom_linear_solve`` in ``jax.lax``, and where ``jax.scipy`` looks them
    up: libraries profit unchanged. Modules that ran ``from jax.lax import scan`` before get it,
    too. ``jax.jit``, ``checkpoint``, ``pmap``, ``eval_shape`` and ``pure_callback`` of a function
    whose code they have met before share what was traced.

    Returns:
        The patch, in force: a context manager with ``revert()`` and ``report``. While it is in
        force the same call returns the same patch.

    Raises:
        ImportError: jax is not installed; the message says what to install.

    Example:
        >>> import jax, jax.numpy as jnp, fnintern
        >>> with fnintern.patch_jax():
        ...     for w in (1.0, 2.0, 3.0):
        ...         w = jnp.float32(w)
        ...         _ = jax.lax.map(lambda x: w * x, jnp.arange(3.0))
        ...     print(jax.lax.map.cache_info().misses)
        1
    """
    jax = import_for("patch_jax()", "jax")
    operations = importlib.import_module("fnintern.staging.operations")
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
    names = ("eval_shape", *operations.CALLBACKS)
    sites += [Site(jax, name, functools.partial(stage, name)) for name in names]
    again = importlib.import_module("fnintern.staging.jit_again")
    sites.append(Site(jax, "jit", again.share_jit))
    checkpointing = importlib.import_module("fnintern.staging.checkpointing")
    checkpoint = functools.cache(checkpointing.share_checkpoint)
    sites += [Site(jax, name, checkpoint) for name in ("checkpoint", "remat")]
    sites.append(Site(jax, "pmap", _share_pmap))
    return apply("jax", sites, imported=True)


def _share_pmap(pmap: Callable[..., Any]) -> Callable[..., Any]:
    """``jax.pmap``, whose results are shared by functions of the same code that capture equal
    values: an array that one captures is not passed to another's program."""
    from fnintern.staging.met import Met

    met = Met()
    operation = Operation(pmap, jax_settings(), name="pmap")

    @stateless
    @functools.wraps(pmap)
    def shared(fun: Any, *args: Any, **options: Any) -> Any:
        own = pmap(fun, *args, **options)
        if not met.seen(fun).again:
            return own
        return Handle(operation, fun, own, args, options)

    shared.__module__ = "jax"  # where it is found under its name, by pickle
    return shared

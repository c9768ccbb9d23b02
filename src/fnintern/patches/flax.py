"""The wrappers of flax.nnx, in one table, with the releases in which they exist."""

from __future__ import annotations

import importlib
from typing import Any

from fnintern.interned import By
from fnintern.patches.patching import Patch, Site, apply, intern_attribute

__all__ = ["patch_flax"]

#: Module of flax.nnx.transforms, the global its code looks up, and the releases that have it.
WRAPPERS = (
    ("transforms", "SimpleCondFn", "0.12.6 and later"),
    ("general", "merge_inputs", "all"),
)

#: flax's own memo, which keeps every function alive and goes stale: its callers get what they
#: would have had without it. Since 0.12.9.
MEMOS = (("transforms", "_get_cached_wrapper"),)


def _without_memo(memo: Any) -> Any:
    def _get_cached_wrapper(cache: Any, wrapper_type: Any, f: Any, graph: Any) -> Any:
        return wrapper_type(f, graph=graph)

    return _get_cached_wrapper


def patch_flax(*, by: By = "object") -> Patch:
    """Makes the eager transforms of ``flax.nnx`` trace once for the same functions.

    Args:
        by: how functions are compared; see :func:`fnintern.interned`.

    Returns:
        The patch, in force: a context manager with ``revert()`` and ``report``. While it is in
        force the same call returns the same patch.

    Raises:
        ImportError: flax is not installed.

    Example:
        >>> import fnintern
        >>> with fnintern.patch_flax() as patched:
        ...     print(patched.report["flax.nnx.transforms.general.merge_inputs"])
        patched
    """
    try:
        importlib.import_module("flax.nnx")
    except ImportError as error:
        raise ImportError(
            "patch_flax() needs flax, which could not be imported "
            f"({error}). Install it with: pip install 'fnintern[flax]'"
        ) from error
    sites = []
    for module, name, _ in WRAPPERS:
        sites.append(Site(_transforms(module), name, intern_attribute(by)))
    for module, name in MEMOS:
        sites.append(Site(_transforms(module), name, _without_memo))
    return apply(("flax", by), sites)


def _transforms(name: str) -> Any:
    return importlib.import_module(f"flax.nnx.transforms.{name}")

"""A stable function identity for JAX. Importing it imports neither jax nor flax."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from fnintern.captures.declared import keyed, stateless
from fnintern.counting.counts import OperationCounts, Summary, summary
from fnintern.counting.lines import RetraceWarning
from fnintern.explaining import explain
from fnintern.interning.decorator import cache_clear, cache_info, interned
from fnintern.keys.reasons import CacheInfo, Capture, Explanation, Obstacle
from fnintern.patches.everything import patch_all
from fnintern.patches.flax import patch_flax
from fnintern.patches.jax import patch_jax
from fnintern.patches.patching import Patch, patch
from fnintern.retracing.report import Retrace, Retraces, retraces

if TYPE_CHECKING:
    from fnintern import lax as lax
    from fnintern.staging.jitting import jit as jit
    from fnintern.staging.wrapping import staged as staged

    __version__: str

#: What needs no jax: ``from fnintern import *`` imports none.
__all__ = [
    "CacheInfo", "Capture", "Explanation", "Obstacle", "OperationCounts", "Patch", "Retrace",
    "RetraceWarning", "Retraces", "Summary",
    "cache_clear", "cache_info", "explain", "interned", "keyed", "patch", "patch_all",
    "patch_flax", "patch_jax", "retraces", "stateless", "summary",
]  # fmt: skip

#: What imports jax, by the module that has it.
_LAZY: Final = {"jit": "fnintern.staging.jitting", "staged": "fnintern.staging.wrapping"}


def __getattr__(name: str) -> Any:
    if name == "lax":
        return importlib.import_module("fnintern.lax")
    if name == "__version__":
        from importlib.metadata import version

        return version("fnintern")
    if name in _LAZY:
        found = globals()[name] = getattr(importlib.import_module(_LAZY[name]), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_LAZY, "lax", "__all__", "__version__"])

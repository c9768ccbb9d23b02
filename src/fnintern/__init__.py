"""A stable function identity for JAX. Importing it imports neither jax nor flax."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fnintern.captures.declared import keyed as keyed
from fnintern.captures.declared import stateless as stateless
from fnintern.explaining import explain as explain
from fnintern.interning.decorator import cache_clear as cache_clear
from fnintern.interning.decorator import cache_info as cache_info
from fnintern.interning.decorator import interned as interned
from fnintern.keys.reasons import CacheInfo as CacheInfo
from fnintern.keys.reasons import Capture as Capture
from fnintern.keys.reasons import Explanation as Explanation
from fnintern.keys.reasons import Obstacle as Obstacle
from fnintern.patches import Patch as Patch
from fnintern.patches import patch as patch
from fnintern.patches import patch_flax as patch_flax
from fnintern.patches import patch_jax as patch_jax
from fnintern.retracing.report import Retrace as Retrace
from fnintern.retracing.report import Retraces as Retraces
from fnintern.retracing.report import retraces as retraces

if TYPE_CHECKING:
    from fnintern import lax as lax
    from fnintern.staging.jitting import jit as jit
    from fnintern.staging.staged import staged as staged

#: What imports jax, by the module that has it.
_LAZY = {"jit": "fnintern.staging.jitting", "staged": "fnintern.staging.staged"}


def __getattr__(name: str) -> object:
    import importlib

    if name == "lax":
        return importlib.import_module("fnintern.lax")
    if name in _LAZY:
        found: object = getattr(importlib.import_module(_LAZY[name]), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

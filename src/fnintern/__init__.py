"""A stable function identity for JAX. Importing it imports neither jax nor flax."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from fnintern.captures.declared import keyed, stateless
from fnintern.counting.counts import OperationCounts, Summary, summary
from fnintern.counting.lines import RetraceWarning
from fnintern.interning.decorator import cache_clear, cache_info, interned
from fnintern.keys.reasons import Cached, CacheInfo, Capture, Explanation, Obstacle
from fnintern.libraries.importing import import_for
from fnintern.patches.everything import patch_all
from fnintern.patches.flax import patch_flax
from fnintern.patches.jax import patch_jax
from fnintern.patches.patching import Patch, patch

if TYPE_CHECKING:
    from fnintern import lax as lax
    from fnintern.explaining import explain as explain
    from fnintern.retracing.report import Retrace as Retrace
    from fnintern.retracing.report import Retraces as Retraces
    from fnintern.retracing.report import retraces as retraces
    from fnintern.staging.jitting import jit as jit
    from fnintern.staging.wrapping import staged as staged

    __version__: str

#: What needs no jax: ``from fnintern import *`` imports none.
__all__ = [
    "CacheInfo", "Cached", "Capture", "Explanation", "Obstacle", "OperationCounts", "Patch",
    "Retrace", "RetraceWarning", "Retraces", "Summary",
    "cache_clear", "cache_info", "explain", "interned", "keyed", "patch", "patch_all",
    "patch_flax", "patch_jax", "retraces", "stateless", "summary",
]  # fmt: skip

#: What is imported at its first use, by the module that has it.
_LAZY: Final = {
    "Retrace": "fnintern.retracing.report",
    "Retraces": "fnintern.retracing.report",
    "explain": "fnintern.explaining",
    "jit": "fnintern.staging.jitting",
    "retraces": "fnintern.retracing.report",
    "staged": "fnintern.staging.wrapping",
}


if not TYPE_CHECKING:  # for a type checker, what is not listed above is not there

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from importlib.metadata import version

            return version("fnintern")
        if name != "lax" and name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            module = importlib.import_module(_LAZY.get(name, "fnintern.lax"))
        except ModuleNotFoundError as error:
            import_for(f"fnintern.{name}", error.name or "jax")  # says what to install
            raise
        found = globals()[name] = module if name == "lax" else getattr(module, name)
        return found


def __dir__() -> list[str]:
    return sorted({*__all__, *_LAZY, "lax", "__all__", "__version__"})

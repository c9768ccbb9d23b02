"""What is known of numpyro: the effect handlers in force.

Never imports it.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from typing import Any, Final

__all__ = ["PARTS_READ", "PRIVATE", "handlers_in_force"]


#: Private names, each with the first release that has it, or "all" of the supported ones.
PRIVATE: Final = {"numpyro.primitives:_PYRO_STACK": "all"}


#: A function of numpyro, and what it reads of an object that it closes over. ``MCMC`` keeps there
#: what its runs have returned, too.
PARTS_READ: Final = {
    ("numpyro.infer.mcmc", "MCMC._get_cached_fns.<locals>._postprocess_fn", "self"): (
        "postprocess_fn", "sampler", "chain_method", "num_chains",
    ),
}  # fmt: skip


def handlers_in_force(values: Sequence[Any]) -> Any:
    """The effect handlers that act on what functions sample, to be frozen with them; None where
    there are none, and for the bodies of numpyro's own control flow, which carry what they need of
    them and hide the rest."""
    stack = getattr(sys.modules.get("numpyro.primitives"), "_PYRO_STACK", None)
    if not stack or all(
        isinstance(value, types.FunctionType)
        and str(value.__globals__.get("__name__")).startswith("numpyro.contrib.control_flow")
        for value in values
        if callable(value)
    ):
        return None
    return list(stack)

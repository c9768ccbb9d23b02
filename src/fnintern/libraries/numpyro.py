"""What is known of numpyro: the effect handlers in force.

Never imports it.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from typing import Any, Final

from fnintern.keys.tokens import Refused

__all__ = ["PRIVATE", "check_handlers"]


#: Private names, each with the first release that has it, or "all" of the supported ones.
PRIVATE: Final = {"numpyro.primitives:_PYRO_STACK": "all"}


def check_handlers(values: Sequence[Any]) -> None:
    """Effect handlers act on what a function samples; but for the bodies of numpyro's own control
    flow, which carry what they need of them and hide the rest."""
    stack = getattr(sys.modules.get("numpyro.primitives"), "_PYRO_STACK", None)
    if stack and not all(
        isinstance(value, types.FunctionType)
        and value.__globals__.get("__name__") == "numpyro.contrib.control_flow"
        for value in values
        if callable(value)
    ):
        raise Refused("numpyro", None, "effect handlers are in force", "jit the whole program")

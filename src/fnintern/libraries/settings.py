"""What a trace reads besides its functions: the settings of libraries that are loaded (S1).

A function of a library may look at a stack or a setting of that library, which no capture shows.
Here is what is known of each. Never imports any of them; private names of theirs that are absent
in a release are taken as empty.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from fnintern.keys.tokens import Key, Refused
from fnintern.libraries.flax import flax_settings, has_interceptors
from fnintern.libraries.haiku import frame_state, is_module_of_call
from fnintern.libraries.jax import jax_settings
from fnintern.libraries.numpyro import handlers_in_force

__all__ = ["ambient_key", "carried", "is_module_of_call"]


def ambient_key() -> Key:
    """The state of the libraries that are loaded, as part of a key.

    Raises:
        Refused: it cannot be part of a key, or a trace would change it.
    """
    if has_interceptors():
        raise Refused("flax.linen", None, "a method interceptor may do anything", "leave it")
    settings = flax_settings if "flax.nnx" in sys.modules else jax_settings
    return settings()()


def carried(values: Sequence[Any]) -> list[Any]:
    """State of libraries that the functions of a call read and no capture shows, to be frozen.

    Args:
        values: the functions of the call.

    Raises:
        Refused: there is state that a trace would change, or that may do anything.
    """
    states = (handlers_in_force(values), frame_state())
    return [state for state in states if state is not None]

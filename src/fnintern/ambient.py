"""What a trace reads besides its functions: the settings of libraries that are loaded (S1).

A function of a library may look at a stack or a setting of that library, which no capture shows.
Here is what is known of each. Never imports any of them; private names of theirs that are absent
in a release are taken as empty.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, Final

from fnintern.captures import Refused
from fnintern.keys import Key

__all__ = ["ambient_key", "flax_settings"]


def ambient_key() -> Key:
    """The state of the libraries that are loaded, as part of a key.

    Raises:
        Refused: it cannot be part of a key, or a trace would change it.
    """
    key: Key = ()
    for name, reader in _READERS.items():
        if name in sys.modules:
            key += (name, *reader()())
    return key


@functools.cache
def flax_settings() -> Callable[[], Key]:
    """Reads what a trace reads of ``flax.nnx``, and JAX does not have in its key."""
    variablelib = sys.modules["flax.nnx.variablelib"]
    graphlib = sys.modules["flax.nnx.graphlib"]
    readers = [
        setting.current_value
        for setting in (
            getattr(graphlib, "set_graph_mode", None),
            getattr(graphlib, "set_graph_updates", None),
            getattr(variablelib, "use_eager_sharding", None),
        )
        if setting is not None
    ]
    variables = getattr(variablelib, "VARIABLE_CONTEXT", None)
    axis_rules = getattr(sys.modules.get("flax.core.spmd"), "get_logical_axis_rules", tuple)
    config = getattr(sys.modules["flax.configurations"].config, "_values", {})

    def read() -> Key:
        hijax = getattr(variables, "variable_hijax_stack", None)
        ref = getattr(variables, "variable_ref_stack", None)
        rules: Any = axis_rules()
        return (
            *[value() for value in readers],
            hijax[-1] if hijax else None,
            ref[-1] if ref else None,
            repr(rules) if rules else None,
            # A method interceptor may do anything: nothing is equal to this.
            object() if _has_interceptors() else None,
            *config.values(),
        )

    return read


def _has_interceptors() -> bool:
    linen = sys.modules.get("flax.linen.module")
    return bool(getattr(linen, "_global_interceptor_stack", None))


def _flax_linen() -> Callable[[], Key]:
    def read() -> Key:
        if _has_interceptors():
            raise Refused("flax.linen", None, "a method interceptor may do anything", "leave it")
        return ()

    return read


def _haiku() -> Callable[[], Key]:
    base = sys.modules["haiku._src.base"]

    def read() -> Key:
        if getattr(base, "frame_stack", None):
            raise Refused("haiku", None, "a transformed function is running", "jit its apply")
        return ()

    return read


def _numpyro() -> Callable[[], Key]:
    primitives = sys.modules["numpyro.primitives"]

    def read() -> Key:
        if getattr(primitives, "_PYRO_STACK", None):
            raise Refused("numpyro", None, "effect handlers are in force", "jit the whole")
        return ()

    return read


#: Module -> what makes its reader, once it is loaded.
_READERS: Final[dict[str, Callable[[], Callable[[], Key]]]] = {
    "flax.nnx": flax_settings,
    "flax.linen": functools.cache(_flax_linen),
    "haiku": functools.cache(_haiku),
    "numpyro": functools.cache(_numpyro),
}

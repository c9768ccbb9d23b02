"""What a trace reads besides its functions: the settings of libraries that are loaded (S1).

A function of a library may look at a stack or a setting of that library, which no capture shows.
Here is what is known of each. Never imports any of them; private names of theirs that are absent
in a release are taken as empty.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any, Final

from fnintern.captures import Refused
from fnintern.keys import Key

__all__ = ["ambient_key", "carried", "flax_settings"]


def ambient_key() -> Key:
    """The state of the libraries that are loaded, as part of a key.

    Raises:
        Refused: it cannot be part of a key, or a trace would change it.
    """
    if _has_interceptors():
        raise Refused("flax.linen", None, "a method interceptor may do anything", "leave it")
    settings = flax_settings if "flax.nnx" in sys.modules else jax_settings
    return settings()()


@functools.cache
def jax_settings() -> Callable[[], Key]:
    """Reads what a trace reads of ``jax.config``, and JAX does not have in its key."""
    names = ("jax_default_prng_impl", "jax_enable_custom_prng", "jax_legacy_prng_key")
    config: Any = sys.modules["jax"].config
    present = [name for name in names if hasattr(config, name)]
    return lambda: tuple([getattr(config, name) for name in present])


@functools.cache
def flax_settings() -> Callable[[], Key]:
    """Reads what a trace reads of ``flax.nnx`` and of JAX, and JAX does not have in its key."""
    of_jax = jax_settings()
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
            *of_jax(),
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


def carried(values: Sequence[Any]) -> list[Any]:
    """State of libraries that the functions of a call read and no capture shows, to be frozen.

    Args:
        values: the functions of the call.

    Raises:
        Refused: there is state that a trace would change, or that may do anything.
    """
    _check_numpyro(values)
    frame = _haiku_frame()
    return [] if frame is None else [frame]


#: Functions of haiku's users, which may do anything: module, stack.
_HAIKU_HOOKS: Final = (
    ("haiku._src.base", "param_creator_stack"),
    ("haiku._src.base", "state_creator_stack"),
    ("haiku._src.base", "param_getter_stack"),
    ("haiku._src.base", "state_getter_stack"),
    ("haiku._src.base", "state_setter_stack"),
    ("haiku._src.base", "closure_boundary_stack"),
    ("haiku._src.module", "interceptor_stack"),
    ("haiku._src.module", "method_hook_stack"),
    ("haiku._src.dot", "graph_stack"),
)


def _haiku_frame() -> Any:
    """What ``haiku`` functions read of the transformed function in which they run: parameters,
    state, random keys, and the names that modules made inside would get."""
    base = sys.modules.get("haiku._src.base")
    if base is None or not base.frame_stack:
        return None
    for module, name in _HAIKU_HOOKS:
        if getattr(sys.modules.get(module), name, None):
            raise Refused("haiku", None, f"its {name} is in use", "leave it")
    frame = base.current_frame()
    if not frame.freeze_params:
        raise Refused("haiku", None, "parameters are being made", "jit the init function")
    return {
        "params": frame.params,
        "state": frame.state,
        "rng": frame.rng_stack.peek(),
        "modules": [(m.module.module_name, m.method_name) for m in frame.module_stack],
        "counters": [dict(counter) for counter in frame.counter_stack],
        "names": [sorted(names) for names in frame.used_names_stack],
    }


def _check_numpyro(values: Sequence[Any]) -> None:
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

"""What is known of flax: what it changes in place, and what a trace of it reads.

Never imports it; private names that a release lacks are taken as empty.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, Final

from fnintern.keys.objects import slots_of
from fnintern.keys.tokens import Key
from fnintern.libraries.jax import jax_settings

__all__ = [
    "PRIVATE",
    "flax_settings",
    "has_interceptors",
    "is_identifier",
    "is_readable_state",
    "is_reference_state",
    "is_trace_state",
    "unread_attributes",
]


#: Private names, each with the first release that has it, or "all" of the supported ones.
PRIVATE: Final = {
    "flax.nnx.graphlib:set_graph_mode": "0.12.6",
    "flax.nnx.graphlib:set_graph_updates": "0.12.6",
    "flax.nnx.variablelib:use_eager_sharding": "all",
    "flax.nnx.variablelib:VARIABLE_CONTEXT": "all",
    "flax.core.spmd:get_logical_axis_rules": "all",
    "flax.configurations:config._values": "all",
    "flax.linen.module:_global_interceptor_stack": "all",
    "flax.nnx.tracers:TraceState": "all",
    "flax.core.scope:Scope": "all",
    "flax.ids:FlaxId": "all",
}


def is_reference_state(value: Any) -> bool:
    """Whether flax or jax change it in place: modules, variables, their states, references."""
    for module, names in _REFERENCE_STATE:
        loaded = sys.modules.get(module)
        for name in names:
            if loaded is not None and isinstance(value, getattr(loaded, name, ())):
                return True
    return False


_REFERENCE_STATE: Final = (
    ("flax.nnx", ("Module", "Pytree", "Object", "Variable", "State")),
    ("flax.core.scope", ("Scope",)),
    ("jax", ("Ref",)),
)


def is_readable_state(value: Any) -> bool:
    """Whether it holds its state in attributes: a module or a variable of ``flax.nnx``, a scope of
    ``flax.core``."""
    scope = sys.modules.get("flax.core.scope")
    if scope is not None and isinstance(value, getattr(scope, "Scope", ())):
        return True
    nnx = sys.modules.get("flax.nnx")
    if nnx is None or not isinstance(value, nnx.Pytree | nnx.Variable | nnx.State):
        return False
    return not isinstance(value, nnx.Variable) or "_raw_value" in slots_of(type(value))


def is_trace_state(kind: type) -> bool:
    """Whether instances say of a variable of ``flax.nnx`` in which trace it was made."""
    tracers = sys.modules.get("flax.nnx.tracers")
    return tracers is not None and kind is getattr(tracers, "TraceState", None)


def is_identifier(kind: type) -> bool:
    """Whether instances are numbers that ``flax.linen`` gives to its modules: all that counts is
    where the same one occurs."""
    return kind.__module__ == "flax.ids" and kind.__name__ == "FlaxId"


def unread_attributes(value: Any) -> frozenset[str]:
    """Attributes that a trace makes nothing of: the trace to which a scope of ``flax.core``
    belongs."""
    for module, name, attributes in _UNREAD:
        loaded = sys.modules.get(module)
        if loaded is not None and isinstance(value, getattr(loaded, name, ())):
            return attributes
    return frozenset()


_UNREAD: Final = (("flax.core.scope", "Scope", frozenset({"trace_level"})),)


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
            object() if has_interceptors() else None,
            *config.values(),
        )

    return read


def has_interceptors() -> bool:
    linen = sys.modules.get("flax.linen.module")
    return bool(getattr(linen, "_global_interceptor_stack", None))

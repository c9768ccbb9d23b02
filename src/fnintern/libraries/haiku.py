"""What is known of dm-haiku: the frame that its functions read.

Never imports it.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from fnintern.keys.tokens import Refused

__all__ = ["PRIVATE", "frame_state", "is_module_of_call"]

#: Functions of haiku's users, which may do anything: module, stack.
_HOOKS: Final = (
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


#: Private names, each with the first release that has it, or "all" of the supported ones.
PRIVATE: Final = {
    "haiku._src.base:frame_stack": "all",
    "haiku._src.base:current_frame": "all",
    "haiku._src.module:Module": "all",
    **{f"{module}:{name}": "all" for module, name in _HOOKS},
}


def frame_state() -> Any:
    """What ``haiku`` functions read of the transformed function in which they run: parameters,
    state, random keys, and the names that modules made inside would get."""
    base = sys.modules.get("haiku._src.base")
    if base is None or not base.frame_stack:
        return None
    for module, name in _HOOKS:
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


def is_module_of_call(value: object) -> bool:
    """Whether an object is a module that a transformed function has made in the call under way."""
    module = sys.modules.get("haiku._src.module")
    return module is not None and isinstance(value, getattr(module, "Module", ()))

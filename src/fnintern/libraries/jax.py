"""What is known of jax: its jitted functions, its pytrees, and the settings that a trace reads."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, Final

from fnintern.keys.tokens import Key

__all__ = [
    "CALLBACKS", "JITTED", "PLACEMENT", "PRIVATE", "PYTREE", "jax_settings", "jitted_options",
]  # fmt: skip

#: Functions that have JAX call back to Python.
CALLBACKS: Final = frozenset({"pure_callback", "io_callback", "callback"})

#: Members that jax calls of a class which is registered as a pytree.
PYTREE: Final = frozenset({"tree_flatten", "tree_unflatten", "tree_flatten_with_keys"})

#: Attributes by which an array says where it is.
PLACEMENT: Final = frozenset(
    {"sharding", "devices", "device", "committed", "addressable_data", "addressable_shards",
     "global_shards", "is_fully_replicated", "is_fully_addressable", "device_set",
     "unsafe_buffer_pointer"}
)  # fmt: skip

#: Private names, each with the first release that has it, or "all" of the supported ones.
PRIVATE: Final = {
    "jax._src.api:_post_hook_state": "all",  # by staging/watching.py
    "jax._src.array:ArrayImpl": "all",  # by staging/watching.py
    "jax._src.core:EvalTrace.process_primitive": "all",  # by staging/watching.py
    "jax._src.core:trace_ctx": "all",  # by staging/eager.py
    "jax._src.pjit:PjitInfo": "all",  # of _jit_info, by jitted_options
    "jax.config:jax_default_prng_impl": "all",
    "jax.config:jax_enable_custom_prng": "all",
    "jax.config:jax_legacy_prng_key": "all",
}

#: Names of jax's own callables that cache what they wrap by identity.
JITTED: Final = frozenset({"PjitFunction", "PmapFunction", "CompiledFunction"})

#: What a jitted function says of the options that it was made with.
_OPTIONS: Final = (
    "static_argnums", "static_argnames", "donate_argnums", "donate_argnames", "keep_unused",
    "inline", "compiler_options_kvs", "device", "backend",
)  # fmt: skip
_SHARDINGS: Final = ("in_shardings_leaves", "out_shardings_leaves")


def jitted_options(jitted: object) -> Key | None:
    """The options that ``jax.jit`` got, for a function jitted without shardings; None where this
    release does not tell. Two of one function and equal options share all that JAX traces."""
    info = getattr(jitted, "_jit_info", None)
    try:
        leaves = [leaf for name in _SHARDINGS for leaf in getattr(info, name)]
        if any(type(leaf).__name__ != "UnspecifiedValue" for leaf in leaves):
            return None
        options = tuple([getattr(info, name) for name in _OPTIONS])
        hash(options)
    except (AttributeError, TypeError):
        return None
    return options


@functools.cache
def jax_settings() -> Callable[[], Key]:
    """Reads what a trace reads of ``jax.config``, and JAX does not have in its key."""
    names = ("jax_default_prng_impl", "jax_enable_custom_prng", "jax_legacy_prng_key")
    config: Any = sys.modules["jax"].config
    present = [name for name in names if hasattr(config, name)]
    return lambda: tuple([getattr(config, name) for name in present])

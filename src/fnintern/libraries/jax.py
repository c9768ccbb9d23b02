"""What is known of jax: its jitted functions, its pytrees, and the settings that a trace reads."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, Final

from fnintern.keys.tokens import Key

__all__ = ["CALLBACKS", "JITTED", "PLACEMENT", "PRIVATE", "PYTREE", "jax_settings"]

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
    "jax._src.array:ArrayImpl": "all",  # by staging/watching.py
    "jax._src.core:trace_ctx": "all",  # by staging/eager.py
    "jax.config:jax_default_prng_impl": "all",
    "jax.config:jax_enable_custom_prng": "all",
    "jax.config:jax_legacy_prng_key": "all",
}

#: Names of jax's own callables that cache what they wrap by identity.
JITTED: Final = frozenset({"PjitFunction", "PmapFunction", "CompiledFunction"})


@functools.cache
def jax_settings() -> Callable[[], Key]:
    """Reads what a trace reads of ``jax.config``, and JAX does not have in its key."""
    names = ("jax_default_prng_impl", "jax_enable_custom_prng", "jax_legacy_prng_key")
    config: Any = sys.modules["jax"].config
    present = [name for name in names if hasattr(config, name)]
    return lambda: tuple([getattr(config, name) for name in present])

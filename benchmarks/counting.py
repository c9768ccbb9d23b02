"""What an eager call traces and compiles, by jax's own counters. Private to jax, and only here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax._src import test_util

__all__ = ["count"]


def count(call: Callable[[], Any], calls: int = 3) -> tuple[float, float]:
    """Tracing cache misses and compilations a call, after two calls to warm up."""
    for _ in range(2):
        call()
    with (
        test_util.count_jit_tracing_cache_miss() as traced,
        test_util.count_jit_compilation_cache_miss() as compiled,
    ):
        for _ in range(calls):
            call()
    return traced() / calls, compiled() / calls

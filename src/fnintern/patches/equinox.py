"""equinox: ``filter_jit``, and what optimistix, diffrax and lineax build on it."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from fnintern.patches.patching import Site

__all__ = ["sites"]

#: How ``filter_jit`` has jax jit what it wraps.
_OPTIONS = {"donate_argnums": 0, "static_argnums": 2}

_ATTRIBUTE = "__fnintern_again__"


def sites() -> list[Site]:
    """What to replace in equinox: the function that makes the calls of all that ``filter_jit`` has
    made, before the patch too."""
    return [Site(importlib.import_module("equinox._jit"), "_call", _replace)]


def _replace(call: Callable[..., Any]) -> Callable[..., Any]:
    share = importlib.import_module("fnintern.staging.jit_again").share_jitted

    @functools.wraps(call)
    def _call(jit_wrapper: Any, is_lower: bool, args: Any, kwargs: Any) -> Any:
        __tracebackhide__ = True
        if is_lower:
            return call(jit_wrapper, is_lower, args, kwargs)
        jitted = jit_wrapper._cached
        again = vars(jitted).get(_ATTRIBUTE)  # there it goes when the jitted function goes
        if again is None:
            again = vars(jitted).setdefault(_ATTRIBUTE, share(jitted, _OPTIONS))
        return call(_Wrapper(jit_wrapper, again), is_lower, args, kwargs)

    return _call


class _Wrapper:
    """A wrapper of ``filter_jit``, with another jitted function."""

    def __init__(self, wrapper: Any, cached: Any) -> None:
        self._wrapper = wrapper
        self._cached = cached

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapper, name)

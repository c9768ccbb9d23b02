"""Factories under test: two mechanisms hold wrappers, and both pass the same tests."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import pytest

from fnintern import interned

__all__ = ["factories", "make_class_factory", "make_function_factory"]


def make_function_factory(maxsize: int | None = 128) -> Any:
    """A factory that is a function, as flax's ``merge_inputs`` is."""

    @interned(maxsize=maxsize)
    def wrap(f: Callable[..., Any], scale: float = 1.0) -> Any:
        @functools.wraps(f, updated=())
        def wrapper(x: Any) -> Any:
            return scale * f(x)

        return wrapper

    return wrap


def make_class_factory(maxsize: int | None = 128) -> Any:
    """A factory that is a class, as flax's ``SimpleCondFn`` is."""

    @interned(maxsize=maxsize)
    @dataclasses.dataclass(eq=False)
    class Wrapper:
        f: Callable[..., Any]
        scale: float = 1.0

        def __post_init__(self) -> None:
            if not isinstance(self.f, type):
                functools.update_wrapper(self, self.f, updated=())

        def __call__(self, x: Any) -> Any:
            return self.scale * self.f(x)

    return Wrapper


factories = pytest.mark.parametrize(
    "make_factory", [make_function_factory, make_class_factory], ids=["function", "class"]
)

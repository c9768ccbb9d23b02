"""A program of a library's user: one eager call, made again and again with other numbers."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import attrs

__all__ = ["Build", "Call", "Program", "program", "programs"]

#: The i-th call. What it computes depends on ``i``, so that a stale answer shows.
Call = Callable[[int], Any]
#: Makes the call, with or without the recipe.
Build = Callable[[bool], Call]


@attrs.frozen
class Program:
    """One row of the table.

    Attributes:
        name: what the call does.
        library: the distribution that it is about.
        build: makes the call; its argument says whether to follow the recipe.
        modules: what has to be installed.
        report: the public report of what it shows, or an empty string.
        recipe: the line that the user writes, or an empty string where none helps.
        patch: what is in force around a call with the recipe, where the recipe is a patch.
        why: why ``patch_jax()`` does not help, or what remains; shown where it applies.
    """

    name: str
    library: str
    build: Build = attrs.field(repr=False)
    modules: tuple[str, ...] = ()
    report: str = ""
    recipe: str = ""
    patch: Callable[[], AbstractContextManager[Any]] = attrs.field(
        default=contextlib.nullcontext, repr=False
    )
    why: str = ""

    @property
    def id(self) -> str:
        return f"{self.library}: {self.name}"


_programs: list[Program] = []


def program(library: str, name: str, modules: str = "", **details: Any) -> Callable[[Build], Build]:
    """Registers what it decorates, the ``build`` of a :class:`Program`."""

    def register(build: Build) -> Build:
        _programs.append(Program(name, library, build, tuple(modules.split()), **details))
        return build

    return register


#: The modules that register programs, in the order of the table.
MODULES = (
    "jax_itself",
    "flax_",
    "haiku_",
    "numpyro_",
    "equinox_",
    "optax_",
    "solvers",
    "blackjax_",
)


def programs() -> tuple[Program, ...]:
    """All programs, in the order of the table."""
    for name in MODULES:
        importlib.import_module(f"benchmarks.libraries.{name}")
    return tuple(_programs)

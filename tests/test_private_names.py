"""Each private name of a library that is read is there in the releases that are said to have it."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
from typing import Any

import pytest

from fnintern.libraries import equinox, flax, haiku, jax, numpyro

#: Sheet -> the distribution.
SHEETS: dict[Any, str] = {
    equinox: "equinox", flax: "flax", haiku: "dm-haiku", jax: "jax", numpyro: "numpyro"
}  # fmt: skip
NAMES = [
    (distribution, name, since)
    for sheet, distribution in SHEETS.items()
    for name, since in sheet.PRIVATE.items()
]


def found(name: str) -> Any:
    """What stands under ``module:attribute``. Raises AttributeError where nothing does."""
    module, _, path = name.partition(":")
    if module == "jax.config":
        owner: Any = importlib.import_module("jax").config
    else:
        owner = importlib.import_module(module)
    return functools.reduce(getattr, path.split("."), owner)


def numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split(".")[:3] if part.isdigit())


@pytest.mark.parametrize(("distribution", "name", "since"), NAMES)
def test_the_installed_release_has_it(distribution: str, name: str, since: str) -> None:
    installed = numbers(importlib.metadata.version(distribution))
    if since == "all" or installed >= numbers(since):
        found(name)
    else:
        with pytest.raises((AttributeError, ImportError)):
            found(name)


def test_a_name_that_is_gone_is_noticed() -> None:
    with pytest.raises(AttributeError):
        found("flax.nnx.graphlib:no_such_name")

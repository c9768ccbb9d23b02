"""docs/reference.md has every public name of ``fnintern``, and every command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fnintern
from fnintern.__main__ import COMMANDS
from fnintern.retracing import pytest_plugin

PAGE = (Path(__file__).parent.parent / "docs" / "reference.md").read_text()
DOCUMENTED = re.findall(r"^\.\. auto\w+:: fnintern\.(\w+)(?:\(\))?$", PAGE, re.MULTILINE)


def public_names() -> list[str]:
    """What ``dir(fnintern)`` shows, but what it says of itself."""
    return [name for name in dir(fnintern) if not name.startswith("__")]


@pytest.mark.parametrize("name", public_names())
def test_every_public_name_is_in_the_reference(name: str) -> None:
    assert DOCUMENTED.count(name) == 1


@pytest.mark.parametrize("name", public_names())
def test_every_public_name_has_a_docstring(name: str) -> None:
    """One of its own, since the reference is made from it."""
    found = getattr(fnintern, name)
    assert found.__doc__
    if isinstance(found, type):
        assert found.__doc__ not in [base.__doc__ for base in found.__mro__[1:]]


def test_nothing_else_is_taken_for_public() -> None:
    assert set(DOCUMENTED) - {"interned", "lax", "retracing"} <= set(public_names())


def test_public_names_are_found() -> None:
    """The checks above are about more than nothing."""
    assert {"interned", "patch_flax", "Retraces", "keyed"} <= set(public_names())


@pytest.mark.parametrize("command", ["", *(f"{name} " for name in COMMANDS)])
def test_every_command_is_in_the_reference(command: str) -> None:
    """With its options, which are compared with what it prints where all such blocks are."""
    assert f"$ python -m fnintern {command}--help\nusage: " in PAGE


def test_what_pytest_gets_is_in_the_reference() -> None:
    marker = pytest_plugin._MARKER.partition(":")[0]
    assert f".. py:decorator:: pytest.mark.{marker}\n" in PAGE
    assert ".. py:function:: retraces\n" in PAGE

"""The tables of ``patches/flax.py`` name all that wraps a function in the installed flax.

A release with a new wrapper, a renamed one, or another way to call jax fails here. What to do then
is in docs/CONTRIBUTING.md, "A new release of flax".
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import flax
import pytest

from fnintern.patches.flax import MEMOS, NOT_PATCHED, OPERATIONS, TRANSIENT
from library_suites.wrappers import Finding, findings, findings_in

VERSION = tuple(map(int, flax.__version__.split(".")[:3]))
#: The release that the tables were last compared with.
NEWEST = (0, 12, 12)
FOUND = findings()


def patched() -> Iterator[tuple[str, str]]:
    """Module and name of what the patch replaces, as the findings have them."""
    yield from ((f"transforms.{module}", name) for module, name, _ in TRANSIENT)
    yield from ((f"transforms.{module}", f"jax.{name}") for module, name, _ in OPERATIONS)
    yield from ((f"transforms.{module}", name) for module, name in MEMOS)


def left() -> Iterator[tuple[str, str]]:
    """Module and name of what is deliberately left as it is."""
    yield from ((module, name) for module, names, _ in NOT_PATCHED for name in names.split())


def unknown(found: list[Finding], known: set[tuple[str, str]]) -> list[str]:
    """The findings that are in no table, by module and name."""
    return [str(f) for f in found if (f.module, f.name) not in known]


def test_every_wrapper_of_the_installed_flax_is_in_a_table() -> None:
    """Nothing in this release wraps a function without being patched, or left for a reason."""
    assert unknown(FOUND, {*patched(), *left()}) == []


@pytest.mark.parametrize("entry", [*patched(), *left()], ids=".".join)
def test_an_entry_that_is_removed_is_missed(entry: tuple[str, str]) -> None:
    """The test above goes red for each wrapper of this release that a table lacks."""
    here = {(f.module, f.name) for f in FOUND}
    if entry == ("transforms.iteration", "_get_cached_wrapper"):
        pytest.skip("imported there, found where it is defined")
    if entry not in here and VERSION < NEWEST:
        pytest.skip("not in this release")
    known = {*patched(), *left()}
    assert len(unknown(FOUND, known - {entry})) == len(unknown(FOUND, known)) + 1


def test_no_entry_is_in_two_tables() -> None:
    entries = [*patched(), *left()]
    assert len(entries) == len(set(entries))


@pytest.mark.parametrize(("module", "name", "releases"), TRANSIENT)
def test_what_every_supported_release_has_is_there(module: str, name: str, releases: str) -> None:
    """A wrapper that was renamed is missed under its old name, too: 0.12.6 is the oldest."""
    assert hasattr(importlib.import_module(f"flax.nnx.transforms.{module}"), name), releases


def test_every_reason_is_given() -> None:
    for module, names, reason in NOT_PATCHED:
        assert len(reason.split()) >= 4, (module, names)


NEW = {
    "a dataclass with a function": (
        """
        @dataclasses.dataclass(eq=False)
        class Around:
          user_function: tp.Callable[..., tp.Any]
        """,
        "class x.Around",
    ),
    "a class that is given a function": (
        """
        class Around:
          def __init__(self, function: tp.Callable[P, R]):
            self.function = function
        """,
        "class x.Around",
    ),
    "a class named like a wrapper": ("class NewFn:\n  f = None", "class x.NewFn"),
    "a closure with the function's name": (
        """
        def around(f):
          @functools.wraps(f)
          def wrapper(*args):
            return f(*args)
          return jax.tree.map(abs, wrapper)
        """,
        "closure x.around",
    ),
    "a closure that is returned": (
        """
        def around(f):
          if f:
            def wrapper(*args):
              return f(*args)
            return wrapper
        """,
        "closure x.around",
    ),
    "an operation that is called": ("import jax\njax.jit(f)", "operation x.jax.jit"),
    "an operation that decorates": (
        """
        import jax
        @functools.partial(jax.checkpoint, policy=None)
        def f(x):
          return x
        """,
        "operation x.jax.checkpoint",
    ),
    "an operation by another name": (
        "from jax import lax as l\nl.associative_scan(f, xs)",
        "operation x.l.associative_scan",
    ),
    "an operation that is passed on": (
        "import jax.lax\ntransform = jax.vmap if x else jax.lax.map",
        "operation x.jax.vmap operation x.jax.lax.map",
    ),
    "a memo": ("_CACHE = weakref.WeakKeyDictionary()", "memo x._CACHE"),
    "a function that remembers": (
        "@functools.lru_cache(maxsize=None)\ndef made(f):\n  return [f]",
        "memo x.made",
    ),
}


@pytest.mark.parametrize("name", NEW)
def test_a_new_wrapper_is_found(name: str) -> None:
    """Each kind of finding, in a source that no release has."""
    source, expected = NEW[name]
    lines = source.strip("\n").splitlines()
    indent = len(lines[0]) - len(lines[0].lstrip())
    text = "\n".join(line[indent:] for line in lines)
    found = [f"{f.kind} {f.module.removeprefix('transforms.')}.{f.name}" for f in _found(text)]
    assert " ".join(found) == expected


def _found(source: str) -> Any:
    return dict.fromkeys(findings_in(source, "transforms.x"))


@pytest.mark.parametrize(
    "source",
    [
        "import jax\njax.tree.map(f, x)",
        "import jax\njax.tree_util.tree_map(f, x)",
        "import jax.numpy as jnp\njnp.apply_along_axis(f, 0, x)",
        "def plain(x):\n  def inner(y):\n    return y\n  return inner(x)",
        "class State:\n  value: int",
    ],
)
def test_what_traces_nothing_is_not_found(source: str) -> None:
    assert not _found(source)

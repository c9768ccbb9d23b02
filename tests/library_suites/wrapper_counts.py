"""Counts what ``patch_flax()`` does: how many wrappers are hit, built and bypassed (law S2)."""

from __future__ import annotations

import collections
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from fnintern.captures import freezing
from fnintern.interning import by_value, held, shared
from fnintern.keys import tokens

__all__ = ["WrapperCounts"]

#: What a capture was, in a word that does not depend on the name of the user's class.
_CATEGORIES: Final = (
    ("flax.nnx", "Variable", "nnx.Variable"),
    ("flax.nnx", "Module", "nnx.Module"),
    ("flax.nnx", "Rngs", "nnx.Rngs"),
    ("flax.nnx", "RngStream", "nnx.RngStream"),
    ("flax.nnx", "State", "nnx.State"),
    ("flax.nnx", "GraphDef", "nnx.GraphDef"),
    ("flax.nnx", "Pytree", "nnx.Pytree"),
    ("jax", "Ref", "jax.Ref"),
    ("jax", "Array", "jax.Array"),
    ("numpy", "ndarray", "numpy.ndarray"),
)


class WrapperCounts:
    """What happened to wrappers: by factory, and what forced a fresh one."""

    def __init__(self) -> None:
        self.outcomes: collections.Counter[tuple[str, str]] = collections.Counter()
        #: (factory, type of the capture, reason) -> times.
        self.obstacles: collections.Counter[tuple[str, str, str]] = collections.Counter()
        #: (type of the capture, reason, test in which it was met, path of the capture)
        self.tests: set[tuple[str, str, str, str]] = set()

    def count(self, monkeypatch: pytest.MonkeyPatch, *, compare: bool = False) -> None:
        """Counts from now on."""
        _count(self, monkeypatch)

    def obstacle(self, factory: str, category: str, reason: str, path: str = "") -> None:
        self.obstacles[factory, category, reason] += 1
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        self.tests.add((category, reason, test, path))

    def dump(self) -> dict[str, Any]:
        return {
            "outcomes": [[*key, n] for key, n in sorted(self.outcomes.items())],
            "obstacles": [[*key, n] for key, n in sorted(self.obstacles.items())],
            "tests": sorted(self.tests),
        }

    def add(self, dump: dict[str, Any]) -> None:
        for factory, outcome, n in dump["outcomes"]:
            self.outcomes[factory, outcome] += n
        for factory, category, reason, n in dump["obstacles"]:
            self.obstacles[factory, category, reason] += n
        self.tests |= {
            (category, reason, test, path) for category, reason, test, path in dump["tests"]
        }

    def lines(self) -> Iterator[str]:
        def row(outcomes: collections.Counter[str]) -> str:
            return "  ".join(f"{outcomes[name]:>7}" for name in ("hit", "built", "bypassed"))

        factories: dict[str, collections.Counter[str]] = {}
        total: collections.Counter[str] = collections.Counter()
        for (factory, outcome), n in self.outcomes.items():
            factories.setdefault(factory, collections.Counter())[outcome] += n
            total[outcome] += n
        yield f"{'wrappers':32} {'hit':>7}  {'built':>7}  {'bypassed':>7}"
        for factory in sorted(factories):
            yield f"{factory:32} {row(factories[factory])}"
        yield f"{'in all':32} {row(total)}"
        if self.obstacles:
            yield ""
            yield "what forced a fresh wrapper: times, tests, what it is"
            times: collections.Counter[tuple[str, str]] = collections.Counter()
            for (_, category, reason), n in self.obstacles.items():
                times[category, reason] += n
            for (category, reason), n in times.most_common():
                tests = len({found[2] for found in self.tests if found[:2] == (category, reason)})
                yield f"{n:>7} {tests:>6}  {category}: {reason}"


def category_of(value: object) -> str:
    for module, name, category in _CATEGORIES:
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type) and isinstance(value, kind):
            return category
    kind = type(value)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )


def _count(counts: WrapperCounts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks into the two places that decide whether a wrapper is shared."""
    find = by_value.ValueInterner._find
    share = held.Operation.share
    freeze = freezing.freeze
    unkeyable = tokens.Unkeyable.__init__
    made = held._Share.__init__
    refused: list[tuple[str, str, str]] = []
    builds: list[None] = []

    def remember(self: Any, path: str, value: object, reason: str, remedy: str = "") -> None:
        unkeyable(self, path, value, reason, remedy)
        self.category = category_of(value)

    def watched_freeze(*values: Any, **kwargs: Any) -> Any:
        try:
            return freeze(*values, **kwargs)
        except tokens.Unkeyable as error:
            kind = getattr(error, "category", error.type_name)
            refused.append((kind, error.reason, error.path))
            raise

    def built(self: Any, *args: Any) -> None:
        builds.append(None)
        made(self, *args)

    def bypassed(name: str, values: tuple[Any, ...]) -> None:
        counts.outcomes[name, "bypassed"] += 1
        if refused:
            kind, reason, path = refused[0]
            counts.obstacle(name, kind, reason, path)
            return
        leaves = [leaf for value in values for leaf in freeze(value).leaves]
        if shared.has_tracer(leaves):
            counts.obstacle(name, "jax.core.Tracer", "it belongs to a trace under way")
        elif leaves:
            counts.obstacle(name, "jax.Array", "beside the function, or no function holds it")
        else:
            counts.obstacle(name, "argument", "it takes no weak reference, or holds a function")

    def counted_find(self: Any, names: Any, values: Any, args: Any, kwargs: Any) -> Any:
        name = getattr(self._factory, "__qualname__", None) or _class_of(self._factory)
        before = self.tally.hits, self.tally.misses
        refused.clear()
        # What the factory raises is its own affair; the wrapper was decided on before.
        result = find(self, names, values, args, kwargs)
        if self.tally.hits > before[0]:
            counts.outcomes[name, "hit"] += 1
        elif self.tally.misses > before[1]:
            counts.outcomes[name, "built"] += 1
        else:
            bypassed(name, values)
        return result

    def counted_share(self: Any, handle: Any, function: Any, structure: Any) -> Any:
        name = _operation(self.make)
        before = len(builds)
        refused.clear()
        result = share(self, handle, function, structure)
        if result is None:
            bypassed(name, (function,))
        else:
            counts.outcomes[name, "hit" if len(builds) == before else "built"] += 1
        return result

    monkeypatch.setattr(tokens.Unkeyable, "__init__", remember)
    monkeypatch.setattr(held, "freeze", watched_freeze)
    monkeypatch.setattr(by_value, "freeze", watched_freeze)
    monkeypatch.setattr(held._Share, "__init__", built)
    monkeypatch.setattr(by_value.ValueInterner, "_find", counted_find)
    monkeypatch.setattr(held.Operation, "share", counted_share)


def _class_of(factory: Any) -> str:
    # An interned class is called through a partial of its metaclass's __call__.
    bound = getattr(getattr(factory, "func", None), "__self__", None)
    return getattr(bound, "__qualname__", repr(factory))


def _operation(make: Callable[..., Any]) -> str:
    """What ``jax`` calls the operation: held ones close over it, immediate ones are being run."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename.endswith(os.path.join("patches", "flax.py")):
            return f"jax.{frame.f_locals.get('name', '?')}"
        if frame.f_code is held.Handle.__call__.__code__:
            break
        frame = frame.f_back
    cells = dict(zip(make.__code__.co_freevars, make.__closure__ or (), strict=True))
    return f"jax.{cells['name'].cell_contents}" if "name" in cells else "jax.?"

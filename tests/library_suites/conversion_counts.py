"""Counts what ``patch_jax()`` does: how many eager calls are converted, and why others are not."""

from __future__ import annotations

import collections
import os
import re
from collections.abc import Iterator
from typing import Any, Final

import jax
import numpy as np
import pytest

from fnintern.keys.reasons import Obstacle
from fnintern.staging import eager
from fnintern.staging.conversion import Conversion
from fnintern.staging.wrapping import Staged

__all__ = ["ConversionCounts"]

_OUTCOMES: Final = ("hit", "built", "unconverted", "raised", "traced")

#: Of the largest entry: programs that are compiled as a whole round otherwise.
_TOLERANCE: Final = 1e-4


class ConversionCounts:
    """What happened to calls of staged operations: by operation, and why they were not converted.

    Beside those that hit a program, built one, or ran unconverted: those that raised what the
    operation raises, and those that stepped aside inside a trace or in one of JAX's modes.
    """

    def __init__(self) -> None:
        self.outcomes: collections.Counter[tuple[str, str]] = collections.Counter()
        #: (operation, type at fault, reason) -> times.
        self.obstacles: collections.Counter[tuple[str, str, str]] = collections.Counter()
        #: (type at fault, reason, test in which it was met, path of the capture, whole reason)
        self.tests: set[tuple[str, str, str, str, str]] = set()
        #: (operation, test, what differs) of converted calls that gave something else.
        self.differences: set[tuple[str, str, str]] = set()

    def count(self, monkeypatch: pytest.MonkeyPatch, *, compare: bool = False) -> None:
        """Counts from now on.

        Args:
            compare: make each converted call unconverted, too, and compare what both return.
        """
        run, call = Conversion.run, Staged.__call__

        def counted_call(staged: Any, /, *args: Any, **kwargs: Any) -> Any:
            if not eager.is_eager():
                self.outcomes[staged.__qualname__, "traced"] += 1
            return call(staged, *args, **kwargs)

        def counted_run(conversion: Any, *args: Any) -> Any:
            name = conversion.name
            before = conversion.counts.hits, conversion.counts.misses
            outcome = "raised"
            try:
                result = run(conversion, *args)
                after = conversion.counts.hits, conversion.counts.misses
                converted = "hit" if after[0] > before[0] else "built"
                outcome = converted if after != before else "unconverted"
                if compare and after != before:
                    self._compare(name, result, *args)
            finally:
                self.outcomes[name, outcome] += 1
            return result

        monkeypatch.setattr(Staged, "__call__", counted_call)
        monkeypatch.setattr(Conversion, "run", counted_run)
        missed = Conversion._missed

        def counted_miss(conversion: Any, args: Any, kwargs: Any, call: Any, reason: Any) -> None:
            if reason is not None:
                self._refused(conversion, reason)
            missed(conversion, args, kwargs, call, reason)

        monkeypatch.setattr(Conversion, "_missed", counted_miss)

    def _refused(self, conversion: Conversion, found: Obstacle) -> None:
        kind = "a class of the test's own" if "<locals>" in found.type_name else found.type_name
        if kind == "NoneType":
            kind = found.path  # the library whose state it is
        # What an error says names arrays and functions of the test.
        reason = re.sub(r"\((\w+): .*\)", r"(\1)", found.reason)
        self.obstacles[conversion.name, kind, reason] += 1
        self.tests.add((kind, reason, _test(), found.path, found.reason))

    def _compare(self, name: str, result: Any, op: Any, args: Any, kwargs: Any) -> None:
        try:
            difference = _difference(result, op(*args, **kwargs))
        except Exception as error:
            difference = f"unconverted it raises {error!r}"[:500]
        if difference:
            self.differences.add((name, _test(), difference))

    def dump(self) -> dict[str, Any]:
        return {
            "outcomes": [[*key, n] for key, n in sorted(self.outcomes.items())],
            "obstacles": [[*key, n] for key, n in sorted(self.obstacles.items())],
            "tests": sorted(self.tests),
            "differences": sorted(self.differences),
        }

    def add(self, dump: dict[str, Any]) -> None:
        for name, outcome, n in dump["outcomes"]:
            self.outcomes[name, outcome] += n
        for name, kind, reason, n in dump["obstacles"]:
            self.obstacles[name, kind, reason] += n
        self.tests |= {tuple(found) for found in dump["tests"]}
        self.differences |= {tuple(found) for found in dump["differences"]}

    def lines(self) -> Iterator[str]:
        yield "  ".join((f"{'calls':24}", *(f"{outcome:>11}" for outcome in _OUTCOMES)))
        for name in (*sorted({name for name, _ in self.outcomes}), None):
            numbers = [
                sum(n for key, n in self.outcomes.items() if key == (name or key[0], outcome))
                for outcome in _OUTCOMES
            ]
            yield "  ".join((f"{name or 'in all':24}", *(f"{number:>11}" for number in numbers)))
        if self.obstacles:
            yield ""
            yield "what ran unconverted: times, tests, reason"
            times: collections.Counter[tuple[str, str]] = collections.Counter()
            for (_, kind, reason), n in self.obstacles.items():
                times[kind, reason] += n
            for (kind, reason), n in times.most_common():
                tests = len({found[2] for found in self.tests if found[:2] == (kind, reason)})
                yield f"{n:>7} {tests:>6}  {kind}: {reason}"
        for name, test, difference in sorted(self.differences):
            yield f"differs: {name} in {test}: {difference}"


def _test() -> str:
    return os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]


def _difference(converted: Any, plain: Any) -> str:
    """What differs between two results; nothing if they are the same."""
    leaves, structure = jax.tree_util.tree_flatten(converted)
    others, other_structure = jax.tree_util.tree_flatten(plain)
    if structure != other_structure:
        return f"{structure} instead of {other_structure}"
    for leaf, other in zip(leaves, others, strict=True):
        if jax.typeof(leaf) != jax.typeof(other):
            return f"{jax.typeof(leaf)} instead of {jax.typeof(other)}"
        if isinstance(leaf, jax.core.Tracer) or isinstance(other, jax.core.Tracer):
            continue
        if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf, other = jax.random.key_data(leaf), jax.random.key_data(other)
        # jax.lax returns a Python number of the carry as it is where the body does.
        leaf, other = (np.asarray(x) for x in (leaf, other))
        if jax.numpy.issubdtype(leaf.dtype, jax.numpy.inexact):
            leaf, other = (x.astype(np.complex128) for x in (leaf, other))
        scale = float(np.max(np.abs(other), initial=0, where=np.isfinite(other)))
        if not np.allclose(leaf, other, 0, _TOLERANCE * scale, equal_nan=True):
            return f"{leaf.ravel()[:5]}... instead of {other.ravel()[:5]}..., {leaf.shape}"
    return ""

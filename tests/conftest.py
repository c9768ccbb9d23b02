"""Fixtures that look at the state between tests."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator

import pytest

from fnintern.patches import patching

# A fault of fnintern is raised, and not counted as a bypass; in what tests start, too.
os.environ["FNINTERN_STRICT"] = "1"


@pytest.fixture(autouse=True, scope="module")
def small_heap() -> None:
    """Puts what imports and earlier modules made out of the collector's sight: the tests collect
    thousands of times, and jax alone would make each of them take 0.1 s."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def nothing_stays_patched() -> Iterator[None]:
    """A patch that a test leaves behind would decide the outcome of the next one."""
    yield
    left = list(patching._active)
    for patch in reversed(left):
        patch.revert()
    assert left == []


@pytest.fixture
def switching() -> Iterator[None]:
    """Threads switch after 1 µs, so that races show."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def threshold() -> Iterator[None]:
    """Puts back the thresholds of the collector."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)

"""S1: a patched call returns what a fresh trace would return, whatever visible state changed."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import states
from fnintern import patch_flax
from transforms import MODES, TRANSFORMS, without_memo


def outcome(call: Callable[[], Any]) -> Any:
    """The value with its type, or the error: both are to be the same."""
    try:
        value = np.asarray(call())
    except Exception as error:
        return type(error).__name__
    return value.dtype.name, value.tolist()


def outcomes(name: str, transform: str, mode: str, times: int) -> list[Any]:
    """What the calls return, for each state in turn."""
    run, options = TRANSFORMS[transform], MODES[mode]
    return [[outcome(lambda: run(f, options)) for _ in range(times)] for f in states.STATES[name]()]


def chosen_modes(name: str, transform: str) -> list[str]:
    """One mode for most pairs, by chance that stays the same; all modes for cond."""
    if transform == "cond":
        return list(MODES)
    return [list(MODES)[zlib.crc32(f"{name} {transform}".encode()) % len(MODES)]]


#: States whose trace changes what it sees: what a call returns depends on the number of calls.
COUNTING = {"counter_in_a_list", "nonlocal_counter", "iterator", "random_numbers"}

CELLS = [
    pytest.param(name, transform, mode, id=f"{name}-{transform}-{mode}")
    for name in states.STATES
    for transform in TRANSFORMS
    for mode in chosen_modes(name, transform)
]


@pytest.mark.parametrize(("name", "transform", "mode"), CELLS)
def test_S1_value_after_a_change_is_that_of_a_fresh_trace(
    name: str, transform: str, mode: str
) -> None:
    """The patched calls, two for each state, give what one unpatched call gives for it."""
    times = 2 if name in COUNTING else 1
    with without_memo():
        fresh = outcomes(name, transform, mode, times)
    with patch_flax():
        patched = outcomes(name, transform, mode, 2)
    if times == 1:
        fresh = [values * 2 for values in fresh]
    assert patched == fresh


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_S6_what_is_only_written_is_written_by_a_trace(transform: str, mode: str) -> None:
    """By the first call for certain, and by no other function in its place."""
    run, options = TRANSFORMS[transform], MODES[mode]
    made = states.STATES["written_global"]()
    with patch_flax():
        for first, written in ((True, 1.0), (True, 2.0), (False, 1.0), (False, 2.0)):
            f = next(made)
            assert states.COUNTED == 0.0
            outcome(lambda: run(f, options))
            assert states.COUNTED in ({written} if first else {0.0, written})
    assert next(made, None) is None

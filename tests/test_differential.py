"""S1 on generated programs: patched flax against a fresh trace by unpatched flax."""

from __future__ import annotations

import os
import warnings
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from fnintern import patch_flax
from strategies_by_value import Program, build, programs
from test_soundness import outcome
from transforms import MODES, TRANSFORMS, without_memo

#: In CI the same programs each time; elsewhere new ones. Each takes some 0.2 s of compilations.
checked = settings(
    max_examples=int(os.environ.get("FNINTERN_EXAMPLES", "12")),
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def outcomes(program: Program, transform: str, mode: str, times: int) -> list[Any]:
    run, options = TRANSFORMS[transform], MODES[mode]
    current, apply = build(program)
    got = []
    for change in (None, *program.changes):
        if change is not None:
            apply(change)
        got.append([outcome(lambda: run(current(), options)) for _ in range(times)])
    return got


@pytest.mark.parametrize(
    ("transform", "mode"),
    [
        ("cond", "default"), ("cond", "tree"), ("switch", "no_updates"),
        ("while_loop", "default"), ("while_loop", "tree"), ("scan", "default"), ("scan", "tree"),
    ],
)  # fmt: skip
def test_S1_patched_flax_equals_a_fresh_trace(transform: str, mode: str) -> None:
    """Whatever a branch captures, and whatever of it changes between two calls."""

    @checked
    @given(programs())
    def check(program: Program) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with without_memo():
                fresh = outcomes(program, transform, mode, 1)
            with patch_flax():
                patched = outcomes(program, transform, mode, 2)
        assert patched == [values * 2 for values in fresh]

    check()

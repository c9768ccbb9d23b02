"""The pytest plugin, run by pytest in a process of its own."""

from __future__ import annotations

import sys

import pytest

pytest_plugins = ["pytester"]

CHURN = """
import jax
import pytest

def churn(n=3):
    for _ in range(n):
        jax.jit(lambda x: x + 1)(1.0)
"""


@pytest.fixture
def outcomes(pytester: pytest.Pytester) -> object:
    def run(source: str, *args: str) -> pytest.RunResult:
        pytester.makepyfile(CHURN + source)
        # In an environment where fnintern is not installed there is no entry point to load it by.
        loaded = [] if _installed() else ["-p", "fnintern.retracing.pytest_plugin"]
        return pytester.runpytest_subprocess(*loaded, "--strict-markers", *args)

    return run


def _installed() -> bool:
    from importlib.metadata import entry_points

    return any(
        e.value == "fnintern.retracing.pytest_plugin" for e in entry_points(group="pytest11")
    )


def test_fixture_gives_the_report(outcomes: object) -> None:
    result = outcomes(  # type: ignore[operator]
        """
def test_rows(retraces):
    churn()
    (row,) = retraces.rows
    assert row.calls == 2
    with pytest.raises(AssertionError, match="1 cause of re-tracing"):
        retraces.assert_none()

def test_none(retraces):
    churn(1)
    retraces.assert_none()
"""
    )
    result.assert_outcomes(passed=2)


def test_marker_fails_with_the_table(outcomes: object) -> None:
    result = outcomes(  # type: ignore[operator]
        """
@pytest.mark.max_retraces(1)
def test_too_many():
    churn(3)
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "2 re-traces, at most 1 expected",
            "1 cause of re-tracing: 2 traces, 2 compiles,*",
            "*test_marker_fails_with_the_table.py:*",
            "*cause: *the lambda was made again*",
            "*remedy: *once, outside the loop*",
        ]
    )


def test_marker_allows_its_number_and_none_by_default(outcomes: object) -> None:
    result = outcomes(  # type: ignore[operator]
        """
@pytest.mark.max_retraces(2)
def test_just_enough():
    churn(3)

@pytest.mark.max_retraces
def test_none():
    churn(1)

@pytest.mark.max_retraces
def test_one():
    churn(2)

@pytest.mark.max_retraces(n=1)
def test_by_name():
    churn(2)
"""
    )
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["1 re-trace, at most 0 expected"])


def test_marked_test_that_fails_by_itself_shows_its_own_failure(outcomes: object) -> None:
    result = outcomes(  # type: ignore[operator]
        """
@pytest.mark.max_retraces(0)
def test_broken():
    churn(3)
    raise ValueError("its own")
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*ValueError: its own"])
    result.stdout.no_fnmatch_line("*re-traces, at most*")


@pytest.mark.parametrize("argument", ["-1", "'many'", "True", "0.5"])
def test_wrong_limit_is_told(outcomes: object, argument: str) -> None:
    result = outcomes(  # type: ignore[operator]
        f"""
@pytest.mark.max_retraces({argument})
def test_wrong():
    pass
"""
    )
    assert result.ret != 0
    result.stdout.fnmatch_lines([f"*max_retraces({argument}): expected the largest number*"])


def test_loading_the_plugin_imports_no_jax(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import sys\ndef test_none(): assert 'jax' not in sys.modules")
    loaded = [] if _installed() else ["-p", "fnintern.retracing.pytest_plugin"]
    pytester.runpytest_subprocess(*loaded).assert_outcomes(passed=1)


def test_plugin_is_loaded_by_its_entry_point() -> None:
    if not _installed():
        pytest.skip("fnintern is not installed here, only on the path")
    assert "fnintern.retracing.pytest_plugin" in sys.modules


ORDER = """
step = jax.jit(lambda v: v * 2)

def test_first():
    step(1.0)

@pytest.mark.max_retraces
def test_second():
    step(1)

@pytest.mark.max_retraces
def test_third():
    step(1.0)
    step(1)

def test_fixture(retraces):
    step(1j)
    retraces.assert_none()
"""


@pytest.mark.parametrize("order", [("first", "second", "third", "fixture"), ("second", "third")])
def test_what_ran_before_decides_nothing(outcomes: object, order: tuple[str, ...]) -> None:
    names = [f"test_what_ran_before_decides_nothing.py::test_{name}" for name in order]
    result = outcomes(ORDER, *names)  # type: ignore[operator]
    result.assert_outcomes(passed=len(order) - 1, failed=1)
    assert any("::test_third" in line for line in result.outlines if line.startswith("FAILED"))


SUITE = """
def test_two():
    churn(3)

@pytest.mark.max_retraces(2)
def test_marked():
    churn(3)

def test_none():
    churn(1)
"""


def test_limit_for_a_whole_suite(outcomes: object) -> None:
    result = outcomes(SUITE, "--fnintern-max-retraces=1")  # type: ignore[operator]
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["2 re-traces, at most 1 expected"])


def test_limit_for_a_whole_suite_in_a_file(outcomes: object, pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nfnintern_max_retraces = 0")
    outcomes(SUITE).assert_outcomes(passed=2, failed=1)  # type: ignore[operator]


def test_wrong_limit_for_a_suite_is_told(outcomes: object) -> None:
    result = outcomes(SUITE, "--fnintern-max-retraces=many")  # type: ignore[operator]
    assert result.ret != 0
    result.stderr.fnmatch_lines(["*--fnintern-max-retraces=many: expected the largest number*"])


def test_inner_traces_are_not_counted_one_by_one(outcomes: object) -> None:
    result = outcomes(  # type: ignore[operator]
        """
import numpy as np
step = jax.jit(lambda v: jax.numpy.sum(v * 2) + jax.numpy.mean(v))

@pytest.mark.max_retraces(2)
def test_two_shapes():
    for n in (4, 5, 6):
        step(np.ones(n, np.float32))
"""
    )
    result.assert_outcomes(passed=1)

"""A pytest plugin: the fixture ``retraces``, the marker ``max_retraces``, and a suite's own bound.

Loaded by pytest wherever fnintern is installed, so it imports nothing that costs: the diagnostics,
and jax with them, come in with the first test that asks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from .report import Retraces

__all__ = ["pytest_addoption", "pytest_configure", "pytest_runtest_call", "retraces"]

_MARKER: Final = "max_retraces(n=0): fail the test if more than n runs of its lines trace again"
_OPTION: Final = "--fnintern-max-retraces"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the whole suite, and the same as ``fnintern_max_retraces`` in a file."""
    parser.getgroup("fnintern").addoption(
        _OPTION,
        metavar="N",
        help="fail each test that has more than N re-traces; the marker max_retraces comes first",
    )
    parser.addini("fnintern_max_retraces", f"the same as {_OPTION}")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and look at the option before a test is run."""
    config.addinivalue_line("markers", _MARKER)
    _limit_of_suite(config)


@pytest.fixture
def retraces() -> Iterator[Retraces]:
    """A report of what the test traces again, from the fixture's set-up on.

    It begins with empty caches of jax, so that no earlier test decides what is traced.

    Example:
        ::

            def test_step(retraces):
                for batch in batches:
                    step(batch)
                retraces.assert_none()
    """
    with _watch() as seen:
        yield seen


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Run a test that has a limit under a report, and fail it if that has too many re-traces."""
    marker = item.get_closest_marker("max_retraces")
    if marker is not None:
        limit: int | None = _limit(*marker.args, **marker.kwargs)
    else:
        limit = _limit_of_suite(item.config)
    if limit is None:
        return (yield)
    with _watch() as seen:
        result = yield
    if seen.retraced > limit or seen.problems:
        some = f"{seen.retraced} re-trace{'s' * (seen.retraced != 1)}"
        pytest.fail(f"{some}, at most {limit} expected\n{seen}", pytrace=False)
    return result


def _watch() -> Retraces:
    """A report on a test as it would run in a process of its own."""
    from .report import retraces as watch

    jax = sys.modules.get("jax")
    if jax is not None and hasattr(jax, "clear_caches"):
        jax.clear_caches()
    return watch()


def _limit(n: Any = 0) -> int:
    if type(n) is not int or n < 0:
        raise pytest.UsageError(f"max_retraces({n!r}): expected the largest number allowed, as 0")
    return n


def _limit_of_suite(config: pytest.Config) -> int | None:
    given = config.getoption(_OPTION)
    if given is None:
        given = config.getini("fnintern_max_retraces") or None
    if given is None:
        return None
    if not str(given).isdecimal():
        raise pytest.UsageError(f"{_OPTION}={given}: expected the largest number allowed, as 0")
    return int(given)

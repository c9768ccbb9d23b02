"""A pytest plugin: the fixture ``retraces``, and the marker ``max_retraces``.

Loaded by pytest wherever fnintern is installed, so it imports nothing that costs: the diagnostics,
and jax with them, come in with the first test that asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .report import Retraces

__all__ = ["pytest_configure", "pytest_runtest_call", "retraces"]

_MARKER = "max_retraces(n=0): fail the test if jax traces more than n times again in it"


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture
def retraces() -> Iterator[Retraces]:
    """A report of what the test traces again, from the fixture's set-up on.

    Example:
        ::

            def test_step(retraces):
                for batch in batches:
                    step(batch)
                retraces.assert_none()
    """
    from .report import retraces as watch

    with watch() as seen:
        yield seen


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Run a marked test under a report, and fail it if that has too many re-traces."""
    marker = item.get_closest_marker("max_retraces")
    if marker is None:
        return (yield)
    limit = _limit(*marker.args, **marker.kwargs)
    from .report import retraces as watch

    with watch() as seen:
        result = yield
    if seen.retraced > limit or seen.problems:
        pytest.fail(f"{seen.retraced} re-traces, at most {limit} expected\n{seen}", pytrace=False)
    return result


def _limit(n: Any = 0) -> int:
    if type(n) is not int or n < 0:
        raise pytest.UsageError(f"max_retraces({n!r}): expected the largest number allowed, as 0")
    return n

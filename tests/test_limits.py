"""docs/limits.md says what S1 does not promise: its examples run, and print what they show."""

from __future__ import annotations

import doctest
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fnintern import patch_flax

PAGE = Path(__file__).parent.parent / "docs" / "limits.md"


@pytest.fixture
def _reverted() -> Iterator[None]:
    """Reverts what the page patches, should it stop half-way."""
    yield
    patch_flax().revert()


@pytest.mark.usefixtures("_reverted")
def test_limits_run_as_shown() -> None:
    """All Python blocks run in order, in one namespace."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    names = {"__name__": "limits"}
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), names, PAGE.name, None, None)
    report: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(test, out=report.append)
    assert not runner.failures, "".join(report)
    assert runner.tries >= 40

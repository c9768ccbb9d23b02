"""The README's Python runs as shown."""

import doctest
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"


@pytest.fixture
def _flax_as_installed() -> Iterator[None]:
    """Reverts what the README's first block patches, and leaves on."""
    from fnintern import patch_flax

    yield
    patch_flax().revert()


@pytest.mark.usefixtures("_flax_as_installed")
def test_readme_runs_as_shown() -> None:
    """All Python blocks of the README run in order, in one namespace, and print what they show."""
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "README.md", None, None)
    report: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(test, out=report.append)
    assert not runner.failures, "".join(report)
    assert runner.tries >= 8


def test_readme_shows_python_early() -> None:
    """The problem takes three lines, the two commands follow, and then comes Python."""
    lines = README.read_text().splitlines()
    assert lines.index("```python") < 15

"""flax's own toy examples as tests: each script runs from beginning to end, for fewer steps.

``run.py --examples`` copies this file into the source distribution and runs it there. What an
example plots goes nowhere; one that needs data from the network fails with and without the patch,
and so is not compared.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from unittest import mock

import pytest

#: Without those that change settings of the whole process, which other tests would see.
SCRIPTS = sorted(Path("examples/nnx_toy_examples").glob("[0-9]*.py"))


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_example(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plots = mock.MagicMock()
    plots.subplots.return_value = (mock.MagicMock(), mock.MagicMock())
    monkeypatch.setitem(sys.modules, "matplotlib", mock.MagicMock(pyplot=plots))
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", plots)
    monkeypatch.setattr(sys, "argv", [str(script)])
    source = script.read_text(encoding="utf-8")
    for steps in ("10_000", "2_000"):
        source = source.replace(steps, "200")  # what is traced is the same
    copy = tmp_path / script.name
    copy.write_text(source, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(copy), run_name="__main__")

"""flax's own toy examples as tests: each script of the sdist runs from beginning to end.

Collected by ``run.py --examples``, with the root of the source distribution as the working
directory. What an example plots goes nowhere; one that needs data from the network fails with and
without the patch, and so is not compared.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from unittest import mock

import pytest

SCRIPTS = sorted(Path("examples/nnx_toy_examples").glob("*.py"))


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_example(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plots = mock.MagicMock()
    plots.subplots.return_value = (mock.MagicMock(), mock.MagicMock())
    monkeypatch.setitem(sys.modules, "matplotlib", mock.MagicMock(pyplot=plots))
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", plots)
    monkeypatch.setattr(sys, "argv", [str(script)])
    path = script.resolve()
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")

"""Under ``patch_flax()`` an eager call of any transform traces and compiles nothing again."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import coverage

from fnintern import patch_flax

CELLS = list(coverage.cells())


def works(cell: coverage.Cell) -> bool:
    """Whether the cell works in this release, unpatched."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cell.call()
    except Exception:
        return False
    return True


@pytest.mark.filterwarnings("ignore")  # those of flax, about modes that it will drop
@pytest.mark.parametrize("cell", CELLS, ids=[cell.name for cell in CELLS])
def test_every_cell_traces_and_compiles_nothing(cell: coverage.Cell) -> None:
    """0 misses and 0 compilations a call; where even one application traces, no more than that."""
    if not works(cell):
        pytest.skip("it does not work unpatched")
    limit = coverage.count(cell.call, 2) if cell.transform in coverage.ALWAYS_TRACE else (0, 0)
    with patch_flax():
        traced, compiled = coverage.count(cell.call, 2)
    assert traced <= limit[0]
    assert compiled <= limit[1]


@pytest.mark.parametrize("name", coverage.RNNS)
def test_rnn_called_eagerly_traces_and_compiles_nothing(name: str) -> None:
    """``nnx.RNN`` makes its scan inside each call: the patches compose."""
    with patch_flax():
        assert coverage.count(coverage.RNNS[name](), 2) == (0, 0)


def test_the_counters_see_what_is_traced() -> None:
    """The twin: unpatched, a lambda in the default mode is traced and compiled each time."""
    (cell,) = (c for c in CELLS if c.name == "cond-default-lambda")
    traced, compiled = coverage.count(cell.call, 2)
    assert traced >= 1
    assert compiled >= 1

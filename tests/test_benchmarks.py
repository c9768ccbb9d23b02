"""The benchmarks' page: a run replaces what it ran and nothing else."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import page, plots
from benchmarks.__main__ import PARTS
from benchmarks.tables import Bars, Lines, Plot, Table

DOCS = Path(__file__).parent.parent / "docs"
ORDER = ["first", "second", "third"]


def test_a_run_replaces_its_blocks_and_leaves_the_others() -> None:
    text = page.merged("", "Python 3.11", {"first": "one", "third": "three"}, ORDER)
    text = page.merged(text, "Python 3.13", {"first": "other"}, ORDER) + "\nBy hand.\n"
    changed = page.merged(text, "Python 3.11", {"third": "3"}, ORDER)
    assert changed == text.replace("three", "3")


def test_a_new_block_goes_where_its_table_belongs() -> None:
    text = page.merged("", "Python 3.11", {"third": "three"}, ORDER)
    text = page.merged(text, "Python 3.11", {"second": "two"}, ORDER)
    assert text.index("two") < text.index("three")


def test_a_page_that_was_not_run_again_stays_as_it_is() -> None:
    text = (DOCS / "benchmarks.md").read_text()
    sections = page.sections(text)
    assert sections
    for versions in sections:
        assert page.merged(text, versions, {}, list(PARTS)) == text


def test_the_page_says_first_that_it_is_generated() -> None:
    assert "generated" in "".join((DOCS / "benchmarks.md").read_text().splitlines()[:4])


def test_every_plot_of_the_page_is_there() -> None:
    text = (DOCS / "benchmarks.md").read_text()
    named = [line.partition("](")[2].rstrip(")") for line in text.splitlines() if "![" in line]
    assert named
    assert sorted(named) == sorted(f"plots/{file.name}" for file in (DOCS / "plots").glob("*.svg"))


@pytest.mark.parametrize("name", PARTS)
def test_every_part_can_be_run(name: str) -> None:
    assert callable(importlib.import_module(f"benchmarks.{PARTS[name].module}").run)


def test_a_table_is_aligned_and_is_markdown() -> None:
    table = Table(["name", "ns"], [["a", "1"], ["longer", "22"]])
    assert table.text() == "name    ns\na        1\nlonger  22"
    assert table.markdown().splitlines()[1] == "| --- | --: |"


@pytest.mark.parametrize(
    "plot",
    [
        Bars("bars", "Bars", "ms", ["a", "b"], {"before": [40.0, 30.0], "after": [0.5, 0.4]}),
        Lines("lines", "Lines", "calls", "ns", {"a": [(1, 2.0), (10, 3.0)]}, log="xy"),
    ],
    ids=lambda plot: str(plot.name),
)
def test_the_same_plot_is_the_same_file(plot: Plot, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("one.svg", "two.svg"):
        assert plots.draw(plot, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert plot.title in (tmp_path / "one.svg").read_text()

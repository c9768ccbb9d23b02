"""``docs/compare.md`` says what the probes find: they run here again, without the clock."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.compare import page
from benchmarks.compare.contestants import FLAX
from benchmarks.compare.cost import QUESTIONS
from benchmarks.compare.environments import ENVIRONMENTS, NotRun, findings
from benchmarks.compare.findings import Findings
from benchmarks.compare.probes import PROBES

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "compare.md").read_text()


@pytest.fixture(scope="module")
def found() -> Findings:
    """What the probes find in a process with the installed releases."""
    command = [sys.executable, "-m", "benchmarks.compare", "--here", "0", "0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Findings.from_json(done.stdout.splitlines()[-1])


def differences(text: str, found: Findings) -> list[str]:
    """Each cell of the page that is not what was found; those of the clock are left out."""
    said = page.read(text, found.python, found.versions["flax"])
    questions = [question for question in {**said, **found.cells} if question not in QUESTIONS]
    return [
        f"{question}: the page has {said.get(question)}, found was {found.cells.get(question)}"
        for question in questions
        if said.get(question) != found.cells.get(question)
    ]


def test_every_cell_is_what_a_probe_found(found: Findings) -> None:
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    if versions.partition(", ")[2] not in PAGE:
        pytest.skip(f"the page is of other releases than {versions}: run make compare")
    assert differences(PAGE, found) == []


def test_a_cell_that_was_edited_is_noticed(found: Findings) -> None:
    """The twin: a page as it is written, with one cell changed by hand."""
    written = page.render([(environment, found) for environment in ENVIRONMENTS[:1]])
    assert differences(written, found) == []
    edited = written.replace("| kept apart |", "| kept together |", 1)
    assert len(differences(edited, found)) == 1


def test_every_question_has_an_answer_of_every_contestant(found: Findings) -> None:
    assert set(found.cells) == {probe.question for probe in PROBES}
    assert len({frozenset(row) for row in found.cells.values()}) == 1


def test_cells_of_two_pythons_are_read_apart(found: Findings) -> None:
    """A cell in which two Pythons differ has both answers, and each is found again."""
    question = PROBES[0].question
    other = attrs.evolve(
        found,
        python="3.99",
        versions=found.versions | {"flax": "9.9"},
        cells=json.loads(json.dumps(found.cells)),
    )
    other.cells[question]["functools.lru_cache"] = "something else"
    text = page.render([(ENVIRONMENTS[0], found), (ENVIRONMENTS[1], other)])
    assert differences(text, found) == []
    assert differences(text, other) == []


def test_an_interpreter_that_is_missing_is_not_run(found: Findings) -> None:
    missing = attrs.evolve(ENVIRONMENTS[1], flax="flax 9.9", pythons=("2.0",))
    with pytest.raises(NotRun, match=r"no Python 2\.0 was found") as reason:
        findings(missing, {}, 0, 0)
    text = page.render([(ENVIRONMENTS[0], found), (missing, str(reason.value))])
    assert "flax 9.9: not run, no Python 2.0 was found" in text
    cells = page.read(text, "2.0", "9.9")
    assert {row[FLAX] for row in cells.values()} == {page.NOT_RUN}

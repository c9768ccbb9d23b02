"""docs/recipes.md runs as shown, and each line of the table of libraries does what it is to do."""

from __future__ import annotations

import doctest
import re
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.libraries.measuring import count, missing, same_results
from benchmarks.libraries.program import Program, programs

PAGE = Path(__file__).parent.parent / "docs" / "recipes.md"

#: Section -> the modules that it needs. Sections that are not named here need jax alone.
NEEDS = {
    "equinox": ("equinox",),
    "optax": ("optax",),
    "dm-haiku": ("haiku",),
    "numpyro": ("numpyro",),
    "optimistix, diffrax and lineax": ("optimistix", "diffrax"),
}


def sections() -> dict[str, str]:
    """The Python of each section by its title; the first is what comes before any."""
    parts = re.split(r"^## (.*)\n", "start\n" + PAGE.read_text(), flags=re.MULTILINE)
    texts = dict(zip(["", *parts[1::2]], parts[0::2], strict=True))
    fence = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
    return {title: "\n".join(fence.findall(text)) for title, text in texts.items()}


SECTIONS = sections()


def run(source: str, names: dict[str, Any]) -> int:
    """Runs the examples of ``source`` in ``names``; returns how many there are."""
    test = doctest.DocTestParser().get_doctest(source, names, PAGE.name, None, None)
    report: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(test, out=report.append)
    assert not runner.failures, "".join(report)
    return runner.tries


@pytest.fixture
def names() -> dict[str, Any]:
    """What the start of the page and its section on jax define."""
    found: dict[str, Any] = {"__name__": "recipes"}
    for example in doctest.DocTestParser().get_examples(SECTIONS[""]):
        exec(example.source, found)
    jax, interned = found["jax"], found["interned"]
    found |= {name: interned(getattr(jax, name)) for name in ("jit", "grad", "vmap")}
    return found


@pytest.mark.filterwarnings("ignore")  # those of the libraries
@pytest.mark.parametrize("title", [title for title in SECTIONS if title])
def test_recipes_run_as_shown(title: str, names: dict[str, Any]) -> None:
    """Every example of the section prints what it shows, misses before and after among them."""
    for module in NEEDS.get(title, ()):
        pytest.importorskip(module)
    assert run(SECTIONS[title], names) >= 5


def test_the_start_runs_as_shown() -> None:
    """The examples before the first section."""
    assert run(SECTIONS[""], {"__name__": "recipes"}) >= 5


def test_the_page_shows_five_libraries_beside_flax() -> None:
    """What an editor may drop by mistake."""
    assert len(NEEDS) >= 5
    assert set(NEEDS) < set(SECTIONS)


#: What takes long, or is counted elsewhere, and is left to `make libraries`.
LEFT_OUT = ("blackjax:", "jaxopt:", "distrax:", "numpyro: MCMC", "flax: nnx")
HELPED = [p for p in programs() if p.recipe and not p.id.startswith(LEFT_OUT)]


@pytest.mark.filterwarnings("ignore")  # those of the libraries
@pytest.mark.parametrize("program", HELPED, ids=[p.id.replace(" ", "_") for p in HELPED])
def test_recipe_traces_nothing_and_changes_no_result(program: Program) -> None:
    """Misses before, none after, and every call returns what it returned without the recipe."""
    if missing(program):
        pytest.skip(missing(program))
    before, after = count(program, "before"), count(program, "recipe")
    assert before.traces >= 1
    assert same_results(before, after)
    assert (after.traces, after.compiles) == (0, 0)


def test_same_results_sees_another_result() -> None:
    """The twin: what the test above compares by can fail."""
    (program,) = (p for p in programs() if p.name == "jit(lambda)")
    (other,) = (p for p in programs() if p.name == "jit(partial)")
    assert not same_results(count(program, "before"), count(other, "before"))

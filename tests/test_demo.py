"""``python -m fnintern``: the demo's promise, its output and its errors."""

import json
import re
import subprocess
import sys
from typing import Any

import pytest

from fnintern import demo
from fnintern.__main__ import main


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fnintern", *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.fixture(scope="module")
def report() -> Any:
    pytest.importorskip("flax")
    done = run("demo", "--json", "--calls", "3")
    assert done.returncode == 0, done.stderr
    assert "with patch_flax()" in done.stderr  # the progress line
    return json.loads(done.stdout)


@pytest.mark.parametrize("kind", ["functions", "partials", "methods"])
@pytest.mark.parametrize("operation", demo.OPERATIONS)
@pytest.mark.parametrize("mode", demo.MODES)
def test_demo_patched_calls_trace_and_compile_nothing(
    report: Any, operation: str, mode: str, kind: str
) -> None:
    """After the first call: 0 tracing cache misses and 0 compilations, as at the limit."""
    (row,) = (
        r
        for r in report["rows"]
        if (r["operation"], r["mode"], r["kind"]) == (operation, mode, kind)
    )
    for column in ("after", "limit"):
        assert (row[column]["misses"], row[column]["compilations"]) == (0, 0), column


def test_demo_counts_what_flax_does_without_the_patch(report: Any) -> None:
    """The counters see the report's misses: in the default mode every release has them."""
    assert report["uncounted"] == []
    before = [r["before"] for r in report["rows"] if r["mode"] == "default mode"]
    assert [(m["misses"], m["compilations"]) for m in before] == [(3, 1)] * 8


def test_demo_json_names_versions_and_calls(report: Any) -> None:
    """The figures come with what they were measured on."""
    assert {"python", "flax", "jax"} <= set(report["versions"])
    assert report["calls"] == 3
    assert len(report["rows"]) == len(demo.OPERATIONS) * len(demo.MODES) * len(demo.KINDS)


def row(misses: float | None, kind: str = "functions") -> demo.Row:
    return demo.Row(
        "nnx.switch",
        "graph_updates=False",
        kind,
        demo.Measured(3.0, 1.0, 1234.5),
        demo.Measured(misses, 0.0, 0.123),
        demo.Measured(0.0, 0.0, 0.2),
    )


def test_demo_table_fits_80_columns() -> None:
    """Also with large figures, and with ones that this jax does not tell."""
    table = demo._table([row(0.0), row(None), row(2.5), row(3.0, "partials")])
    assert max(map(len, table.splitlines())) <= 80
    assert re.search(r"before after limit\n", table)
    assert re.search(r" 3 +\? +0 +1 +0 +0 +1234\.5 +0\.12 +0\.20\n", table)


def test_demo_says_which_calls_still_trace() -> None:
    """The last lines name what the patch does not reach, and never count it as done."""
    assert demo._verdict([row(0.0)]).endswith("1 of 1 calls trace and compile nothing.")
    verdict = demo._verdict([row(0.0), row(3.0, "lambdas")])
    assert "1 of 2 calls" in verdict
    assert "Still traced again: lambdas" in verdict


def test_demo_does_not_take_an_uncounted_miss_for_a_hit() -> None:
    """A figure that this jax does not tell is no zero."""
    assert "0 of 1 calls" in demo._verdict([row(None)])


def test_demo_counter_that_does_not_move_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """If jax renames what is counted, the demo shows '?' and says what is missing, not 0."""
    pytest.importorskip("jax")
    monkeypatch.setattr(demo, "_tracing_counter", lambda: None)
    monkeypatch.setattr(demo, "COMPILE_EVENT", "/renamed")
    counters = demo.Counters()
    assert [name.split(" (")[0] for name in counters.missing()] == [
        "tracing cache misses",
        "compilations",
    ]
    measured = counters.measure(lambda i: i, calls=2)
    assert (measured.misses, measured.compilations) == (None, None)


def test_demo_without_flax_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error says what is missing and what to run."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit) as caught:
        demo.main([])
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert "is not installed" in error
    assert "pip install 'flax>=0.12.6' 'jax>=0.10'" in error


def test_command_line_hands_the_rest_on_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options after the command are the command's, also ``--help`` and ``--``."""
    got: list[list[str]] = []

    def record(argv: list[str]) -> int:
        got.append(argv)
        return 7

    monkeypatch.setattr(demo, "main", record)
    assert main(["demo", "--help", "--", "-x"]) == 7
    assert got == [["--help", "--", "-x"]]


def test_command_line_lists_its_commands() -> None:
    """``--help`` names all commands, and imports neither jax nor flax."""
    done = run("--help")
    assert done.returncode == 0
    for name in ("demo", "retraces", "explain"):
        assert re.search(rf"^  {name} ", done.stdout, re.MULTILINE)

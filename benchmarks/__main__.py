"""``python -m benchmarks``: tables and plots, ratios first; prints them and writes the page."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import os
import platform
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# A program that is found on the disk costs less than a compilation.
os.environ.setdefault("JAX_ENABLE_COMPILATION_CACHE", "false")

from benchmarks import page, plots
from benchmarks.tables import Result
from benchmarks.timing import machine

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"


@attrs.frozen
class Part:
    """A table and what belongs to it, made by ``run(rounds, number, show)`` of the module.

    Attributes:
        rounds: how often everything is measured.
        number: the calls of a round.
    """

    module: str
    rounds: int
    number: int


#: Name -> what makes it, in the order of the page. Each is a module of this package.
PARTS = {
    "transforms": Part("transforms", 9, 200),
    "staged": Part("staged", 9, 300),
    "first_call": Part("first_call", 15, 3),
    "costs": Part("costs", 9, 300),
    "everyday": Part("everyday", 9, 300),
    "sizes": Part("sizes", 7, 100),
    "models": Part("models", 7, 20),
    "memory": Part("memory", 1, 10_000),
    "hits": Part("hits", 25, 100_000),
    "cond": Part("cond", 15, 400),
    "growth": Part("growth", 5, 200_000),
}


def _show(line: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{line[:79]:79}", end="\r", file=sys.stderr, flush=True)


def _versions() -> str:
    versions = [f"Python {platform.python_version()}"]
    for name in ("jax", "flax"):
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"no {name}")
    return ", ".join(versions)


def _run(part: Part, quick: bool) -> Result:
    run: Callable[..., Any] = importlib.import_module(f"benchmarks.{part.module}").run
    rounds, number = part.rounds, part.number
    if quick:
        rounds, number = max(5, rounds // 5), max(1, number // 5)
    result: Result = run(rounds, number, _show)
    return result


def _block(name: str, result: Result, command: str, folder: Path) -> str:
    """The Markdown of one part; its plots are written into the folder."""
    lines = [f"### {result.title}", "", result.notes]
    for table in result.tables:
        lines += ["", table.markdown()]
    if result.checks:
        lines += ["", "What is aimed at, by the medians:", ""]
        lines += [f"- {check}" for check in result.checks]
    for plot in result.plots:
        file = f"{plot.name}-{'.'.join(platform.python_version_tuple()[:2])}.svg"
        folder.mkdir(exist_ok=True)
        if plots.draw(plot, folder / file):
            lines += ["", f"![{plot.title}, {plot.name}]({folder.name}/{file})"]
    return "\n".join([*lines, "", f"`{command}`, on {machine()}."])


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the parts that were asked for and writes them; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"which of {', '.join(PARTS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="a fifth of the calls, fewer rounds")
    parser.add_argument("--output", type=Path, default=PAGE, help="the page, %(default)s")
    options = parser.parse_args(argv)
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"no part is called {unknown[0]!r}; there are {', '.join(PARTS)}")
    warnings.filterwarnings("ignore", module="flax")  # about modes that it will drop
    print(f"{_versions()}\n{machine()}", flush=True)
    for name in options.parts or PARTS:
        result = _run(PARTS[name], options.quick)
        print(f"\n{result.text()}", flush=True)
        command = f"python -m benchmarks {name}{' --quick' if options.quick else ''}"
        block = _block(name, result, command, options.output.parent / "plots")
        before = options.output.read_text() if options.output.exists() else ""
        # After each part, so that a run that is stopped leaves what it has done.
        options.output.write_text(page.merged(before, _versions(), {name: block}, list(PARTS)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

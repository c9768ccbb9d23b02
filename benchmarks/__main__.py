"""``python -m benchmarks``: all tables, ratios first, in one process."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable, Sequence

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from benchmarks import cond, growth, hits
from benchmarks.timing import Check, Result, machine

#: Part -> what runs it, its rounds, and how many calls a round has.
PARTS: dict[str, tuple[Callable[[int, int, Callable[[str], None]], Result], int, int]] = {
    "hits": (hits.run, 25, 100_000),
    "growth": (growth.run, 5, 200_000),
    "cond": (cond.run, 15, 400),
}


def _show(line: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{line[:79]:79}", end="\r", file=sys.stderr, flush=True)


def _versions() -> str:
    versions = [f"Python {platform.python_version()}"]
    for name in ("jax", "jaxlib", "flax"):
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"no {name}")
    return ", ".join(versions)


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the tables that were asked for; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"which of {', '.join(PARTS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="a fifth of the rounds and calls")
    options = parser.parse_args(argv)
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"no part is called {unknown[0]!r}; there are {', '.join(PARTS)}")
    print(f"{_versions()}\n{machine()}")
    checks: list[Check] = []
    for part in options.parts or PARTS:
        run, rounds, number = PARTS[part]
        if options.quick:
            rounds, number = max(3, rounds // 5), max(1, number // 5)
        result = run(rounds, number, _show)
        print("\n" + "\n".join(line.rstrip() for line in result.lines), flush=True)
        checks += result.checks
    print("\nWhat is aimed at, by the medians:")
    print("\n".join(map(str, checks)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

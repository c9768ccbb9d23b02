"""``python -m benchmarks.libraries``: counts, prints the page and writes it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.libraries.measuring import VARIANTS, has_patch_jax, table
from benchmarks.libraries.page import lines


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.libraries", description=__doc__)
    page = Path(__file__).parents[2] / "docs" / "libraries.md"
    parser.add_argument("--output", type=Path, default=page, help="where the page is written")
    parser.add_argument("--library", default="", help="count this one alone, and write nothing")
    parser.add_argument(
        "--variants", nargs="+", choices=VARIANTS, help="what to count besides `before`"
    )
    options = parser.parse_args(argv)
    variants = ["before", *(options.variants or VARIANTS[1:])]
    if not has_patch_jax():
        variants = [variant for variant in variants if variant != "patch_jax"]
    text = ""
    for line in lines(table(dict.fromkeys(variants), options.library)):
        print(line)
        text += line + "\n"
    if not options.library:
        options.output.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

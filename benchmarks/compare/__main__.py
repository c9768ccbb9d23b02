"""``python -m benchmarks.compare``: all probes on both releases of flax, and the page."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.compare import page
from benchmarks.compare.environments import ENVIRONMENTS, NotRun, findings
from benchmarks.compare.findings import Findings

PAGE = Path(__file__).parent.parent.parent / "docs" / "compare.md"


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 1 if an environment was not run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("--output", type=Path, default=PAGE, help="where the page is written")
    parser.add_argument("--rounds", type=int, default=9, help="of timing; 0 for none (%(default)s)")
    parser.add_argument("--number", type=int, default=20_000, help="hits a round (%(default)s)")
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="VERSION=PATH",
        help="an interpreter that has jax, flax and fnintern, such as 3.11=.venv/bin/python; "
        "without it the Makefile's environment is taken, and made if need be",
    )
    parser.add_argument("--here", nargs=2, type=int, metavar=("ROUNDS", "NUMBER"))
    options = parser.parse_args(argv)
    if options.here:  # the process of one environment
        print(Findings.here(*options.here).to_json())
        return 0
    given = dict(text.split("=", 1) for text in options.python)
    found: list[page.Found] = []
    for environment in ENVIRONMENTS:
        print(f"{environment.flax} ...", file=sys.stderr, flush=True)
        try:
            found.append(
                (environment, findings(environment, given, options.rounds, options.number))
            )
        except NotRun as reason:
            print(f"{environment.flax}: {page.NOT_RUN}, {reason}", file=sys.stderr)
            found.append((environment, str(reason)))
    text = page.render(found)
    print(text)
    options.output.write_text(text)
    return int(any(isinstance(findings, str) for _, findings in found))


if __name__ == "__main__":
    sys.exit(main())

"""``python -m fnintern retraces``: run any program unchanged, and say what it traced again.

The table goes to standard error when the interpreter exits, after the program's threads and its own
exit functions. jax is not imported before the program imports it.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import attrs

from fnintern.running import NoProgramError, add_program, run

from .frames import user_root
from .report import Retraces, retraces
from .table import print_table

__all__ = ["main", "to_json"]


def main(
    argv: Sequence[str] | None = None, patches: Mapping[str, Callable[[], object]] | None = None
) -> int:
    """Run a script or a module and print its re-traces when the interpreter exits.

    Args:
        argv: the arguments after ``python -m fnintern retraces``; ``sys.argv[2:]`` if None.
        patches: what ``--patch LIBRARY`` applies, by the name of the library. It imports none.

    Returns:
        0 once the program has ended. Where it raises, or exits, so does this.

    Raises:
        SystemExit: the arguments are wrong (status 2), or the program exits.

    Example:
        ``python -m fnintern retraces --top 5 train.py --epochs 3``
    """
    patches = patches or {}
    options = _parse(sys.argv[2:] if argv is None else list(argv), patches)
    for name in options.patch:
        patches[name]()
    try:
        seen = retraces()
    except ImportError as error:
        options.error(str(error))
    report = _at_exit(seen, options)
    # No `with`: the report is to see the threads that go on when the program's last line is done.
    seen.__enter__()
    try:
        run(options, _mark_as_users)
    except NoProgramError as error:  # nothing was run, so there is nothing to report
        atexit.unregister(report)
        seen.stop()
        options.error(str(error))
    return 0


def _mark_as_users(module: ModuleType) -> None:
    """A module that is run is the user's, also where it is installed."""
    if module.__spec__ is not None and module.__file__ is not None:
        user_root(os.path.dirname(module.__file__))


def _parse(argv: list[str], patches: Mapping[str, Callable[[], object]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m fnintern retraces",
        description="Run a program unchanged and print what jax traced again, why, and the remedy.",
    )
    parser.add_argument(
        "--patch",
        metavar="LIBRARY",
        action="append",
        choices=sorted(patches),
        default=[],
        help="run it with the patch for that library on, to see what that saves",
    )
    parser.add_argument("--json", metavar="FILE", help="write the report as JSON, too")
    parser.add_argument("--html", metavar="FILE", help="write a page with a timeline, too")
    parser.add_argument("--top", metavar="N", type=int, help="print the N worst rows alone")
    add_program(parser)
    options = parser.parse_args(argv)
    if options.top is not None and options.top < 1:
        parser.error(f"argument --top: {options.top} rows make no table, expected 1 or more")
    for name in ("json", "html"):
        file = getattr(options, name)
        folder = os.path.dirname(os.path.abspath(file)) if file else os.curdir
        if not os.access(folder, os.W_OK):
            parser.error(f"argument --{name}: cannot write to {folder}")
    options.error = parser.error
    return options


def _at_exit(seen: Retraces, options: argparse.Namespace) -> Callable[[], None]:
    pid = os.getpid()

    def report() -> None:
        if os.getpid() != pid:  # a fork of the program
            return
        seen.stop()
        print_table(seen, sys.stderr, options.top)
        if options.json:
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump(to_json(seen), file, indent=1)
        if options.html:
            from .html import page

            with open(options.html, "w", encoding="utf-8") as file:
                file.write(page(seen, title=options.program))

    atexit.register(report)
    return report


def to_json(seen: Retraces) -> dict[str, Any]:
    """A report as what JSON can hold: the totals, and a dictionary for each row, worst first.

    Example:
        >>> from fnintern import retraces
        >>> with retraces() as seen:
        ...     pass
        >>> to_json(seen)["rows"]
        []
    """
    return {
        "elapsed": seen.elapsed,
        "traces": seen.traces,
        "compiles": seen.compiles,
        "retraced": seen.retraced,
        "recompiled": seen.recompiled,
        "first_seconds": seen.first_seconds,
        "problems": seen.problems,
        "rows": [attrs.asdict(row) for row in seen.rows],
    }

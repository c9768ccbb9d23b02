"""``python -m fnintern run``: run any program unchanged, under :func:`patch_all`."""

from __future__ import annotations

import argparse
import atexit
import functools
import os
import sys
from collections.abc import Sequence

from fnintern.patches.everything import LIBRARIES, apply_all
from fnintern.patches.patching import Patch
from fnintern.running import NoProgramError, add_program, run

__all__ = ["main"]


def main(argv: Sequence[str]) -> int:
    """Runs a script or a module with every library patched that it imports.

    Args:
        argv: the arguments after ``python -m fnintern run``.

    Returns:
        0 once the program has ended. Where it raises, or exits, so does this.

    Raises:
        SystemExit: the arguments are wrong (status 2), or the program exits.
    """
    parser = argparse.ArgumentParser(
        prog="python -m fnintern run",
        description="Run a program unchanged with every library patched that it imports.",
    )
    for name, what in (("only", "patch this library alone"), ("without", "do not patch this one")):
        parser.add_argument(
            f"--{name}",
            metavar="LIBRARY",
            action="append",
            choices=sorted(LIBRARIES),
            default=[],
            help=f"{what}; may be repeated",
        )
    parser.add_argument(
        "--summary", action="store_true", help="print at its end what hit, what did not, and why"
    )
    add_program(parser)
    options = parser.parse_args(argv)
    patch = apply_all(options.only, options.without)
    # Registered first, it runs after the exit functions of the program.
    print_summary = functools.partial(_print_summary, patch, os.getpid())
    if options.summary:
        atexit.register(print_summary)
    try:
        run(options)
    except NoProgramError as error:
        atexit.unregister(print_summary)
        parser.error(str(error))
    return 0


def _print_summary(patch: Patch, pid: int) -> None:
    if os.getpid() == pid:  # not in a fork of the program
        print(patch.summary(), file=sys.stderr)

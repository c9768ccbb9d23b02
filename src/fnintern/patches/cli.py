"""``python -m fnintern run``: run any program unchanged, under :func:`patch_all`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from fnintern.patches.everything import LIBRARIES, patch_all
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
    add_program(parser)
    options = parser.parse_args(argv)
    patch_all(only=options.only, without=options.without)
    try:
        run(options)
    except NoProgramError as error:
        parser.error(str(error))
    return 0

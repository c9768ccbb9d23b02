"""``python -m fnintern COMMAND ...``: hands each command to the module that has it.

The rest of the command line goes on unchanged. Imports neither jax nor flax.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import sys
from collections.abc import Sequence
from typing import Final

import fnintern
from fnintern.patches.everything import LIBRARIES, apply_all

__all__ = ["main"]

#: Command -> the module whose ``main(argv)`` runs it, and what it does.
COMMANDS: Final = {
    "run": ("fnintern.patches.cli", "run a program under patch_all()"),
    "retraces": ("fnintern.retracing.cli", "run a script, and list what JAX traced again and why"),
    "demo": ("fnintern.demo", "google/flax#5512 before and after patch_flax(), in one table"),
    "explain": ("fnintern.explaining", "how MODULE:NAME is keyed, and what it captures"),
}


class _Version(argparse.Action):
    """Reads the version when it is asked for: that takes as long as importing fnintern."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        parser.exit(message=f"fnintern {fnintern.__version__}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        prog="python -m fnintern",
        usage="%(prog)s {run SCRIPT | retraces SCRIPT | demo | explain MODULE:NAME} [options]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="\n".join(f"  {name:10}{what}" for name, (_, what) in COMMANDS.items()),
    )
    parser.add_argument("command", choices=COMMANDS, help="add --help after it for its options")
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    name = parser.parse_args(arguments[:1]).command
    command = importlib.import_module(COMMANDS[name][0]).main
    if name == "retraces":
        patches = {name: functools.partial(apply_all, [name], ()) for name in LIBRARIES}
        command = functools.partial(command, patches=patches)
    status: int = command(arguments[1:])
    return status


if __name__ == "__main__":
    sys.exit(main())

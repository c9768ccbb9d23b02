"""``python -m fnintern retraces``: run any program unchanged, and say what it traced again.

The program runs in this process as ``__main__``, with its own ``sys.argv`` and ``sys.path[0]``. The
table goes to standard error when the interpreter exits, after the program's threads and its own
exit functions. Nothing about the exit itself is touched: an exception, ``sys.exit`` and Ctrl-C
leave as they would have. jax is not imported before the program imports it.
"""

from __future__ import annotations

import argparse
import atexit
import builtins
import importlib.machinery
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, ModuleType, TracebackType
from typing import Any

import attrs

from . import jaxprobe
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
        patches: what ``--patch LIBRARY`` applies, by the name of the library.

    Returns:
        0 once the program has ended. Where it raises, or exits, so does this.

    Raises:
        SystemExit: the arguments are wrong (status 2), or the program exits.

    Example:
        ``python -m fnintern retraces --top 5 train.py --epochs 3``
    """
    patches = patches or {}
    options, rest = _parse(sys.argv[2:] if argv is None else list(argv), patches)
    for name in options.patch:
        # The patch imports flax, and that jax: not before the program has said how.
        jaxprobe.when_imported(name, patches[name])
    seen = retraces()
    module = ModuleType("__main__")
    namespace = vars(module)
    namespace["__builtins__"] = builtins
    if sys.version_info < (3, 14):  # where every __main__ has some
        namespace["__annotations__"] = {}
    code = None
    report = _at_exit(seen, options)
    # No `with`: the report is to see the threads that go on when the program's last line is done.
    seen.__enter__()
    try:
        code = _load(options, module)
        sys.argv[:] = [options.program if not options.as_module else str(module.__file__), *rest]
        sys.modules["__main__"] = module
        exec(code, namespace)
    except _NoProgramError as error:  # nothing was run, so there is nothing to report
        atexit.unregister(report)
        seen.stop()
        options.error(str(error))
    except SystemExit:
        raise
    except BaseException:
        _hide_our_frames(code)
        raise
    return 0


def _parse(
    argv: list[str], patches: Mapping[str, Callable[[], object]]
) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(
        prog="python -m fnintern retraces",
        description="Run a program unchanged and print what jax traced again, why, and the remedy.",
    )
    parser.add_argument(
        "--patch",
        action="append",
        choices=sorted(patches),
        default=[],
        help="run it with the patch for that library on, to see what that saves",
    )
    parser.add_argument("--json", metavar="FILE", help="write the report as JSON, too")
    parser.add_argument("--html", metavar="FILE", help="write a page with a timeline, too")
    parser.add_argument("--top", metavar="N", type=int, help="print the N worst rows alone")
    parser.add_argument("-m", dest="as_module", action="store_true", help="SCRIPT is a module")
    parser.add_argument("program", metavar="SCRIPT", help="what to run")
    parser.add_argument("args", metavar="ARGS", nargs=argparse.REMAINDER, help="its arguments")
    options = parser.parse_args(argv)
    if options.top is not None and options.top < 1:
        parser.error(f"argument --top: {options.top} rows make no table, expected 1 or more")
    for name in ("json", "html"):
        file = getattr(options, name)
        folder = os.path.dirname(os.path.abspath(file)) if file else os.curdir
        if not os.access(folder, os.W_OK):
            parser.error(f"argument --{name}: cannot write to {folder}")
    options.error = parser.error
    return options, options.args


# --- the program -------------------------------------------------------------------------------


class _NoProgramError(Exception):
    """There is no such program."""


def _load(options: argparse.Namespace, module: ModuleType) -> CodeType:
    """The program's code, and in `module` what is to be known about it."""
    name = options.program
    if options.as_module:
        _first_on_path(os.getcwd())
        return _module_code(name, module)
    if os.path.isdir(name) or name.endswith((".zip", ".pyz")):
        sys.path[0] = name
        return _module_code("__main__", module)
    try:
        with open(name, "rb") as file:
            source = file.read()
    except OSError as error:
        raise _NoProgramError(f"cannot read {name!r}: {error.strerror}") from error
    _first_on_path(os.path.dirname(os.path.realpath(name)))
    module.__file__ = os.path.abspath(name)
    module.__spec__ = None
    # dont_inherit: our own __future__ imports are not to leak in.
    return compile(source, module.__file__, "exec", dont_inherit=True)


def _first_on_path(directory: str) -> None:
    # Python -P leaves the first entry out, then: there is none of ours to replace.
    if not sys.flags.safe_path:
        sys.path[0] = directory


def _module_code(name: str, module: ModuleType) -> CodeType:
    try:
        if name == "__main__":  # of a directory or a zip file
            spec = importlib.machinery.PathFinder.find_spec(name, [sys.path[0]])
        else:
            spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except ImportError as problem:
        raise _NoProgramError(f"cannot import {name!r}: {problem}") from problem
    get_code = getattr(spec.loader, "get_code", None) if spec is not None else None
    code = get_code(spec.name) if spec is not None and get_code is not None else None
    if spec is None or not isinstance(code, CodeType):
        raise _NoProgramError(f"no module named {name!r} that can be run")
    module.__file__ = spec.origin
    module.__spec__ = spec
    module.__loader__ = spec.loader
    module.__package__ = spec.parent
    if spec.origin is not None:
        user_root(os.path.dirname(spec.origin))
    return code


def _hide_our_frames(code: CodeType | None) -> None:
    """Show the program's traceback as it would be without us, whichever hook shows it."""
    hook = sys.excepthook

    def show(kind: type[BaseException], value: BaseException, traceback: Any) -> None:
        inner: TracebackType | None = traceback
        while inner is not None and inner.tb_frame.f_code is not code:
            inner = inner.tb_next
        hook(kind, value.with_traceback(inner), inner)

    sys.excepthook = show


# --- the report --------------------------------------------------------------------------------


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

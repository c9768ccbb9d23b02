"""Runs a program in this process as Python would: as ``__main__``, with its own ``sys.argv``; and
functions in a context.

Nothing about its end is touched: an exception, ``sys.exit`` and Ctrl-C leave as they would have,
and a traceback shows the program's frames alone.
"""

from __future__ import annotations

import builtins
import functools
import importlib.machinery
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import CodeType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

if TYPE_CHECKING:
    import argparse

__all__ = ["NoProgramError", "add_program", "around", "run"]

F = TypeVar("F", bound=Callable[..., Any])

#: How its standard input is called, as a program.
STDIN: Final = "-"


class NoProgramError(Exception):
    """There is no such program. The message says why."""


def add_program(parser: argparse.ArgumentParser) -> None:
    """Lets a parser take a program and its arguments, as ``as_module``, ``program``, ``args``."""
    parser.add_argument("-m", dest="as_module", action="store_true", help="SCRIPT is a module")
    parser.add_argument("program", metavar="SCRIPT", help="what to run; - for standard input")
    parser.add_argument("args", metavar="ARGS", nargs="...", help="its arguments")


def run(
    options: argparse.Namespace, loaded: Callable[[ModuleType], object] = lambda module: None
) -> None:
    """Runs a program to its end.

    Args:
        options: what a parser of :func:`add_program` has parsed.
        loaded: is called with its ``__main__`` before that runs.

    Raises:
        NoProgramError: there is none of this name. No code has run but that of its package.
        BaseException: what the program raises, ``SystemExit`` too.
    """
    module = ModuleType("__main__")
    namespace = vars(module)
    namespace["__builtins__"] = builtins
    if sys.version_info < (3, 14):  # where every __main__ has some
        namespace["__annotations__"] = {}
    try:
        code = _load(options.program, options.as_module, module)
        loaded(module)
        sys.argv[:] = [
            str(module.__file__) if options.as_module else options.program,
            *options.args,
        ]
        sys.modules["__main__"] = module
        exec(code, namespace)
    except (SystemExit, NoProgramError):
        raise
    except BaseException:
        _hide_our_frames()
        raise


def _load(name: str, as_module: bool, module: ModuleType) -> CodeType:
    """The program's code, and in `module` what is to be known about it."""
    if as_module:
        _first_on_path(os.getcwd())
        return _module_code(name, module)
    if os.path.isdir(name) or name.endswith((".zip", ".pyz")):
        _first_on_path(name, always=True)
        return _module_code("__main__", module)
    namespace = vars(module)
    if sys.version_info < (3, 15):
        namespace["__cached__"] = None
    try:
        if name == STDIN:
            _first_on_path("")
            file_name = namespace["__file__"] = "<stdin>"
            source = sys.stdin.buffer.read()
            namespace["__loader__"] = importlib.machinery.BuiltinImporter
        else:
            with open(name, "rb") as file:
                source = file.read()
            _first_on_path(os.path.dirname(os.path.realpath(name)))
            file_name = namespace["__file__"] = os.path.abspath(name)
            namespace["__loader__"] = importlib.machinery.SourceFileLoader("__main__", file_name)
    except OSError as error:
        raise NoProgramError(f"cannot read {name!r}: {error.strerror}") from None
    # dont_inherit: our own __future__ imports are not to leak in.
    return compile(source, file_name, "exec", dont_inherit=True)


def _first_on_path(directory: str, *, always: bool = False) -> None:
    # Python -P leaves the first entry out, then: there is none of ours to replace.
    if not sys.flags.safe_path:
        sys.path[0] = directory
    elif always:
        sys.path.insert(0, directory)


def _module_code(name: str, module: ModuleType) -> CodeType:
    try:
        if name == "__main__":  # of a directory or a zip file
            spec = importlib.machinery.PathFinder.find_spec(name, [sys.path[0]])
        else:
            spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except ImportError as problem:
        raise NoProgramError(f"cannot import {name!r}: {problem}") from None
    get_code = getattr(spec.loader, "get_code", None) if spec is not None else None
    code = get_code(spec.name) if spec is not None and get_code is not None else None
    if spec is None or not isinstance(code, CodeType):
        raise NoProgramError(f"no module named {name!r} that can be run")
    vars(module).update(
        __file__=spec.origin,
        __cached__=spec.cached,
        __spec__=spec,
        __loader__=spec.loader,
        __package__=spec.parent,
    )
    return code


def _hide_our_frames() -> None:
    """Has the program's traceback shown as it would be without us, whichever hook shows it."""
    hook = sys.excepthook

    def show(kind: type[BaseException], value: BaseException, traceback: Any) -> None:
        inner: TracebackType | None = traceback
        while inner is not None and inner.tb_frame.f_code is not run.__code__:
            inner = inner.tb_next
        while inner is not None and _is_ours(inner.tb_frame.f_code.co_filename):
            inner = inner.tb_next
        hook(kind, value.with_traceback(inner), inner)

    sys.excepthook = show


def _is_ours(file: str) -> bool:
    return file == __file__ or file.startswith("<frozen importlib")


def around(function: F, context: Callable[[], AbstractContextManager[object]]) -> F:
    """The same function, each call of which is made in a context of its own.

    Args:
        function: any callable, a coroutine function too.
        context: makes the context.

    Raises:
        TypeError: it is a class, or a generator function, whose call runs none of its code.
    """
    generators = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    if not callable(function) or isinstance(function, type) or generators:
        raise TypeError(
            f"expected a function to decorate, for each call of it, got {function!r}; a `with` "
            f"statement is for anything else"
        )
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def decorated(*args: Any, **kwargs: Any) -> Any:
            with context():
                return await function(*args, **kwargs)
    else:

        @functools.wraps(function)
        def decorated(*args: Any, **kwargs: Any) -> Any:
            with context():
                return function(*args, **kwargs)

    return cast(F, decorated)

"""Tells when the program has imported a library. Imports none by itself."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

__all__ = ["check_installed", "import_for", "when_imported"]


class _Finder:
    """Has the loader of a module that is waited for tell when it has run the module's code.

    It finds nothing by itself: it asks the other finders, and returns what they do.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _waiting or fullname in _searched():
            return None
        _searched().add(fullname)  # another hook may ask all finders, too
        try:
            for finder in list(sys.meta_path):
                find = getattr(finder, "find_spec", None) if finder is not self else None
                spec: ModuleSpec | None = find(fullname, path, target) if find is not None else None
                if spec is not None:
                    _watch(spec.loader, fullname)
                    return spec
            return None
        finally:
            _searched().discard(fullname)


def _watch(loader: Any, name: str) -> None:
    execute = getattr(loader, "exec_module", None)
    if execute is None or isinstance(loader, type):  # those of frozen and built-in modules
        return

    def exec_module(module: ModuleType) -> None:
        spec = module.__spec__
        if spec is None or spec.name != name:  # one loader for all modules of a zip file
            execute(module)
            return
        if vars(loader).get("exec_module") is exec_module:
            del loader.exec_module
        execute(module)
        _imported(name)

    try:
        loader.exec_module = exec_module
    except AttributeError:  # it has slots
        pass


def _imported(name: str) -> None:
    with _lock:
        callbacks = _waiting.pop(name, [])
        _remove_unused()
    for callback in callbacks:
        callback()


def _remove_unused() -> None:
    if not _waiting and _finder in sys.meta_path:
        sys.meta_path.remove(_finder)


def when_imported(name: str, callback: Callable[[], object]) -> Callable[[], None]:
    """Calls back now if a module is imported, else once it is.

    A program sets ``JAX_PLATFORMS`` before its own ``import jax``; an import on its behalf would
    make that too late.

    Args:
        name: of the module; also a submodule.
        callback: is called once, right after the module's code has run, by the thread that imports
            it. What it raises, the import raises.

    Returns:
        What calls that off.
    """
    with _lock:
        _waiting.setdefault(name, []).append(callback)
        if _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)
    module = sys.modules.get(name)
    spec = None if module is None else object.__getattribute__(module, "__dict__").get("__spec__")
    if type(module).__name__ == "_LazyModule" and spec is not None:
        _watch(spec.loader, name)  # runs it at the first access
    elif module is not None:
        if getattr(spec, "_initializing", False):
            importlib.import_module(name)  # waits for the thread that imports it
        _imported(name)

    def undo() -> None:
        with _lock:
            callbacks = _waiting.get(name, [])
            if callback in callbacks:
                callbacks.remove(callback)
            if not callbacks:
                _waiting.pop(name, None)
            _remove_unused()

    return undo


def import_for(caller: str, name: str) -> ModuleType:
    """Imports a module of jax or flax. What fails says what to install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise _missing(caller, name, str(error)) from error


def check_installed(caller: str, name: str) -> None:
    """Raises ImportError, and says what to install, where jax or flax is not found. It is not
    imported for that."""
    if sys.modules.get(name) is None and importlib.util.find_spec(name) is None:
        raise _missing(caller, name, "it is not installed")


def _missing(caller: str, name: str, why: str) -> ImportError:
    library = name.partition(".")[0]
    return ImportError(
        f"{caller} needs {library}, which could not be imported ({why}). Install it from the "
        f"package index, with: pip install {library}; or together with fnintern, which is on no "
        f"index, from a clone of its repository: pip install 'PATH_OF_THE_CLONE[flax]'",
        name=library,
    )


_finder: Final = _Finder()
#: Module -> what is called once it is imported.
_waiting: dict[str, list[Callable[[], object]]] = {}
_lock = threading.RLock()
_local = threading.local()


def _searched() -> set[str]:
    """The modules that this thread is asking the other finders for."""
    searched: set[str] = _local.__dict__.setdefault("searched", set())
    return searched


def _renew_lock() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)

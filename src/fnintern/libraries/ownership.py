"""Whose code it is: a library's that is known here, or the user's (S1).

The code of a library is not followed: its functions are what they are. That is right for the
standard library and for the libraries listed here, wherever they are installed. Any other package,
installed or not, may be the user's own, and is read like a script. Never imports any of them.
"""

from __future__ import annotations

import abc
import functools
import os
import site
import sys
import sysconfig
import types
import typing
from typing import Any, Final

from fnintern.keys.objects import importable
from fnintern.keys.weakids import WeakIds

__all__ = [
    "KNOWN",
    "calls_back",
    "is_held_by_library",
    "is_library_class",
    "is_library_module",
    "is_library_object",
    "is_library_path",
]

#: Top-level packages whose functions depend on their arguments alone, but for settings that
#: :mod:`fnintern.libraries.settings` knows of.
KNOWN: Final = frozenset({
    "_distutils_hack", "_pytest", "absl", "attr", "attrs", "beartype", "blackjax", "brax", "chex",
    "cloudpickle", "diffrax", "dill", "distrax", "einops", "equinox", "etils", "execnet", "flax",
    "flaxlib", "fnintern", "fsspec", "google", "gymnax", "h5py", "haiku", "hypothesis",
    "ipykernel", "IPython", "jax", "jaxlib", "jaxopt", "jaxtyping", "jmp", "lineax", "matplotlib",
    "mctx", "ml_collections", "ml_dtypes", "mlflow", "mpmath", "msgpack", "networkx", "numba",
    "numpy", "numpyro", "omegaconf", "opt_einsum", "optax", "optimistix", "orbax", "oryx",
    "packaging", "pandas", "penzai", "PIL", "pip", "pkg_resources", "pluggy", "psutil",
    "pydantic", "pydantic_core", "pytest", "quax", "requests", "rich", "rlax", "safetensors",
    "scipy", "setuptools", "sklearn", "sphinx", "sympy", "tensorboard", "tensorboardX",
    "tensorflow", "tensorflow_datasets", "tensorflow_probability", "tensorstore", "tokenizers",
    "toolz", "torch", "tqdm", "transformers", "treescope", "typeguard", "typing_extensions",
    "wadler_lindig", "wandb", "xdist", "yaml", "zarr",
})  # fmt: skip


@functools.cache
def _roots() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Where the standard library lies, and where packages are installed."""
    standard = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    packages = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    packages |= {*site.getsitepackages(), site.getusersitepackages()}
    return _folders(standard), _folders(packages)


def _folders(paths: set[str]) -> tuple[str, ...]:
    return tuple(
        {os.path.join(variant, "") for p in paths if p for variant in (p, os.path.realpath(p))}
    )


@functools.lru_cache(maxsize=16)
def _places_of(names: frozenset[str]) -> tuple[str, ...]:
    """The folders, and files, of known libraries that are loaded."""
    places: set[str] = set()
    for name in names:
        module = sys.modules.get(name)
        folders = [str(path) for path in getattr(module, "__path__", ())]
        places.update(_folders(set(folders)))
        file = getattr(module, "__file__", None)
        if not folders and file:
            places |= {str(file), os.path.realpath(file)}
    return tuple(places)


def is_library_path(path: str) -> bool:
    """Whether a file belongs to the standard library or to a known library that is loaded."""
    return _is_library_path(path, len(sys.modules))


@functools.lru_cache(maxsize=4096)
def _is_library_path(path: str, loaded: int) -> bool:
    """The same, with how many modules are loaded, among which a library may be new."""
    if path.startswith("<"):
        return path.startswith("<frozen ")
    standard, packages = _roots()
    if path.startswith(standard) and not path.startswith(packages):
        return "site-packages" not in path and "dist-packages" not in path
    return path.startswith(_places_of(KNOWN.intersection(sys.modules)))


def is_library_module(module: types.ModuleType) -> bool:
    """Whether a module belongs to the standard library or to a known library."""
    root = module.__name__.partition(".")[0]
    if root in KNOWN:
        return sys.modules.get(root) is not None and _is_under(module, sys.modules[root])
    path = getattr(module, "__file__", None)
    if path is None:
        # Built into the interpreter, a namespace package, or made by hand: the user's.
        return module.__name__ in sys.builtin_module_names
    return is_library_path(str(path))


def _is_under(module: types.ModuleType, root: types.ModuleType) -> bool:
    """Whether a module is the root package or lies in it; one made by hand only borrows a name."""
    if module is root or sys.modules.get(module.__name__) is module:
        return True
    path = getattr(module, "__file__", None)
    return path is not None and is_library_path(str(path))


_library_classes: WeakIds[bool] = WeakIds()


def is_library_class(kind: type) -> bool:
    found = _library_classes.get(kind)
    if found is not None:
        return found
    module = sys.modules.get(kind.__module__)
    # type(name, bases, namespace) names the module that called it, which may be abc.
    library = module is not None and is_library_module(module)
    library = library and (importable(kind) or kind.__module__ == "builtins")
    _library_classes.set(kind, library)
    return library


def calls_back(kind: type) -> bool:
    """Whether a class of a library may call methods that a subclass defines, by any name."""
    return is_library_class(kind) and kind not in _PASSIVE


_PASSIVE: Final = (object, type, abc.ABC, typing.Generic, typing.Protocol)


def is_library_object(value: Any) -> bool:
    """Whether an installed library holds ``value`` under its own name, like its functions."""
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    return module is not None and is_library_module(module) and importable(value)


def is_held_by_library(value: Any) -> bool:
    """Whether a module of a library holds ``value`` under any name, as a constant of its own, or
    an instance of it."""
    return any(
        item is value or type(item) is value
        for module in list(sys.modules.values())
        if isinstance(module, types.ModuleType) and is_library_module(module)
        for item in list(vars(module).values())
    )

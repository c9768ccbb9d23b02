"""What is read off modules, and off variables by constant keys."""

from __future__ import annotations

import collections
import os
import types
from collections.abc import Iterable
from typing import Any, Final

from fnintern.captures.code import is_users
from fnintern.captures.instructions import Key as ConstantKey
from fnintern.captures.reading import ReadObject
from fnintern.captures.walk import EMPTY, MISSING, OPERAND, Walk
from fnintern.keys.objects import is_ndarray, namespace_of
from fnintern.keys.tokens import Marker, Refused
from fnintern.libraries.ownership import is_library_module
from fnintern.libraries.purity import (
    ASKING,
    ASKING_LOGGERS,
    IMPURE_METHODS,
    IMPURE_MODULES,
    INTROSPECTING,
    INTROSPECTING_NAMES,
    RANDOM,
    READING_NAMES,
    SURROUNDINGS,
)

__all__ = [
    "CHANCE",
    "ESCAPES",
    "KEYED_TYPES",
    "READ_OUTSIDE",
    "add_bare_module",
    "add_items",
    "add_module",
    "check_pure",
    "loose",
    "read_by",
]

READ_OUTSIDE: Final = "read it outside, pass the result"


CHANCE: Final = "it returns something else at each call"


_ITEM: Final = "item"


KEYED_TYPES: Final = (dict, collections.OrderedDict)


#: A module that is used as a value: nothing is read straight off it.
ESCAPES: Final[tuple[tuple[str, ...], ...]] = ((),)


#: What code may ask an array of NumPy without a look at its contents.
_OUTLINE: Final = frozenset({"shape", "ndim", "size", "dtype", "nbytes", "itemsize"})


def read_by(walk: Walk, value: Any, chains: tuple[Any, ...], path: str) -> None:
    """A variable, by what is read off it: of a dictionary perhaps some constant keys alone."""
    if (
        type(value) in KEYED_TYPES
        and chains
        and all(chain and type(chain[0]) is ConstantKey for chain in chains)
    ):
        add_items(walk, value, [chain[0] for chain in chains], path)
    elif chains and all(chain and chain[0] in _OUTLINE for chain in chains) and is_ndarray(value):
        walk.tokens += (type(value), value.shape, value.dtype.str)  # whatever it holds
    elif (
        chains
        and type(value) not in walk.handlers
        and hasattr(type(value), "__dataclass_fields__")
        and _add_fields(walk, value, chains, path)
    ):
        pass
    else:
        walk.add(value, path)


def _add_fields(walk: Walk, value: Any, chains: tuple[Any, ...], path: str) -> bool:
    """What is read straight off a dataclass that goes nowhere else, such as ``state.apply_fn`` of a
    ``TrainState``, all of which would count because it is a pytree. Whether that is all there is
    to read: no property, no method, no attribute of the class."""
    kind = type(value)
    namespace = namespace_of(value)
    plain: Any = object.__getattribute__
    if namespace is None or kind.__getattribute__ is not plain:
        return False
    read: dict[str, list[Any]] = {}
    for chain in chains:
        if not chain or type(chain[0]) is not str or chain[0] not in namespace:
            return False
        read.setdefault(chain[0], []).append(chain[1:])
    if any(
        hasattr(type(vars(base).get(name)), "__set__") for base in kind.__mro__ for name in read
    ):
        return False
    walk.target(Marker.OBJECT, kind, path)
    for name, rest in read.items():
        walk.tokens.append(name)
        found = namespace[name]
        escapes = ESCAPES if () in rest else tuple(rest)
        if type(found) is types.ModuleType:
            add_module(walk, found, escapes, f"{path}.{name}")
        else:
            read_by(walk, found, escapes, f"{path}.{name}")
    return True


def add_items(walk: Walk, value: Any, keys: Iterable[ConstantKey], path: str) -> None:
    """What a dictionary holds under constant keys. What else it holds does not count (S5)."""
    for key in keys:
        walk.tokens += (_ITEM, type(key.value), key.value)
        found = dict.get(value, key.value, MISSING)
        if found is MISSING:
            walk.tokens.append(EMPTY)
        else:
            walk.add(found, f"{path}[{key.value!r}]")


def add_module(walk: Walk, module: types.ModuleType, chains: tuple[Any, ...], path: str) -> None:
    """A module, and what is read straight off it: ``config.scale``, ``np.random.normal``."""
    tokens = walk.tokens
    tokens.append(id(module))
    walk.targets.append(module)
    library = is_library_module(module)
    if library and module.__name__ in IMPURE_MODULES:
        raise Refused(path, module, CHANCE, READ_OUTSIDE)
    for chain in chains:
        if not chain or chain[0] == "__dict__":
            if library:
                loose(walk, module, path)
            elif not walk.met(module):
                walk.objects.append(ReadObject(vars(module), (), path))
                if "__getattr__" in vars(module):
                    walk.add(vars(module)["__getattr__"], f"{path}.__getattr__")
            continue
        content = module.__dict__.get(chain[0], MISSING)
        kind = type(content)
        # jnp.sin: the usual case, the short way.
        if (
            library
            and kind is types.BuiltinFunctionType
            and module is not os
            and (module.__name__ not in INTROSPECTING)
        ):
            tokens += (chain, id(content))
            walk.targets.append(content)
        else:
            _chain(walk, module, chain, path)


def _chain(walk: Walk, module: types.ModuleType, chain: tuple[Any, ...], path: str) -> None:
    """What one chain of attributes finds, up to the first that is no module."""
    for depth, name in enumerate(chain, 1):
        path = f"{path}.{name}"
        content = module.__dict__.get(name, MISSING)
        library = is_library_module(module)
        if type(content) is types.ModuleType and depth < len(chain):
            if content.__name__ in IMPURE_MODULES:
                raise Refused(path, content, CHANCE, READ_OUTSIDE)
            module = content
            continue
        rest = chain[depth:]
        walk.tokens.append(chain)
        if content is MISSING:
            if not library and "__getattr__" in module.__dict__:
                raise Refused(path, module, "the module computes it", OPERAND)
            walk.tokens.append(EMPTY)
        elif (
            library
            and callable(content)
            and not is_users(content)
            and not _is_object(content, rest)
        ):
            if IMPURE_METHODS.intersection(part for part in rest if type(part) is str):
                raise Refused(path, content, "it reads the clock", READ_OUTSIDE)
            check_pure(walk, content, path)
            walk.target(Marker.CALLABLE, content, path)
        else:
            read_by(walk, content, (rest,), path)
        return


def _is_object(value: Any, rest: Any) -> bool:
    """Whether attributes are read off a callable object of a library, as off ``absl``'s flags."""
    kind = type(value)
    return (
        bool(rest)
        and not isinstance(value, type)
        and not hasattr(value, "__code__")
        and bool(kind.__flags__ & 1 << 9)  # a class that is not made in C
        and kind.__module__.partition(".")[0] not in ("jax", "jaxlib", "numpy", "functools")
    )


def add_bare_module(walk: Walk, module: types.ModuleType, path: str) -> None:
    add_module(walk, module, ESCAPES, path)


def loose(walk: Walk, module: types.ModuleType, path: str) -> None:
    """A library's module in a variable: what is read off it there cannot be told."""
    if module is os:
        raise Refused(path, module, "the module is used as a value", OPERAND)
    if "random" in module.__dict__ and module.__name__ == "numpy":
        walk.doubtful += ((RANDOM, module, path, CHANCE),)


def check_pure(walk: Walk, value: Any, path: str) -> None:
    module = getattr(value, "__module__", None)
    if type(module) is str:
        root = module.partition(".")[0]
        if root in INTROSPECTING or getattr(value, "__name__", "") in INTROSPECTING_NAMES:
            walk.introspects = True
        if root in SURROUNDINGS or getattr(value, "__name__", "") in READING_NAMES.get(root, ()):
            raise Refused(path, value, "it asks what surrounds the program", READ_OUTSIDE)
    if module == "logging":
        walk.doubtful += ((ASKING_LOGGERS, value, path, "it asks a logger found by its name"),)
    if module in IMPURE_MODULES:
        raise Refused(path, value, f"it belongs to {module}", READ_OUTSIDE)
    if module in ("os", "posix", "nt") and value.__name__ in ASKING:
        raise Refused(path, value, "it asks the operating system", READ_OUTSIDE)

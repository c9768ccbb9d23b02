"""What functions, methods and partials see: code, cells, globals, defaults, attributes."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Iterable
from typing import Any, Final

from fnintern.captures.code import (
    BLIND_BUILTINS,
    BUILTIN_NAMES,
    CodeFacts,
    facts_of,
    is_library_code,
    is_users,
)
from fnintern.captures.declared import is_stateless
from fnintern.captures.modules import ESCAPES, READ_OUTSIDE, add_module, check_pure, loose, read_by
from fnintern.captures.reading import ReadObject
from fnintern.captures.walk import EMPTY, MAX_DEPTH, MISSING, OPERAND, References, Walk, slot_of
from fnintern.keys.callables import annotations_of
from fnintern.keys.objects import is_ndarray, is_protocol, namespace_of, slots_of
from fnintern.keys.tokens import STORE_ATTRIBUTE, Marker, Refused
from fnintern.libraries.jax import jitted_options
from fnintern.libraries.numpyro import PARTS_READ
from fnintern.libraries.ownership import is_library_module, is_library_object
from fnintern.libraries.purity import IMPURE_MODULES

__all__ = [
    "UNREAD_NAMES",
    "add_annotations",
    "add_attributes",
    "add_builtin",
    "add_function",
    "add_jitted",
    "add_lru_cache",
    "add_method",
    "add_method_wrapper",
    "add_partial",
    "decides_on_items",
    "parts_of",
]

#: Attributes that say nothing of what an object does: our own, and the number that haiku gives to
#: each module, which functools.wraps copies along.
UNREAD_NAMES: Final = frozenset({STORE_ATTRIBUTE, "_creation_frame_id"})


#: The code of every function made by ``functools.singledispatch``.
_DISPATCH: Final[object] = getattr(functools.singledispatch(lambda x: x), "__code__", None)


def _own_attributes(function: types.FunctionType, library: bool) -> dict[str, Any]:
    """The attributes of a function, without those that ``functools.wraps`` has copied from what it
    wraps: they are read there, and a library's wrapper makes nothing of its copies."""
    attributes = function.__dict__
    wrapped = namespace_of(attributes.get("__wrapped__"))
    if not wrapped:
        return attributes
    return {
        name: item
        for name, item in attributes.items()
        if name not in wrapped or not (library or wrapped[name] is item)
    }


def add_function(walk: Walk, value: types.FunctionType, path: str) -> None:
    if is_stateless(value):
        walk.target(Marker.CALLABLE, value, path)
        return
    if walk.met(value):
        return
    code = value.__code__
    facts = facts_of(code)
    namespace = value.__globals__
    library = is_library_code(facts, namespace)
    # What a library's decorator made of a function of the user's has the user's name.
    if library and is_library_object(value):
        check_pure(walk, value, path)
        walk.target(Marker.CALLABLE, value, path)
        return
    tokens = walk.tokens
    if facts.writes and not library and walk.references is References.REFUSED:
        raise Refused(
            path, value, f"it assigns to {facts.writes}", "return the value, and assign outside"
        )
    if code is _DISPATCH:  # its caches are no state
        walk.target(Marker.CALLABLE, value, path)
        walk.add(value.__dict__["registry"], f"{path}.registry")
        return
    # The id of the namespace only tells equal functions of two modules apart; equal contents
    # of a namespace that took over a freed one's id would be the same in all that counts.
    tokens += (Marker.CODE, id(code), id(namespace))
    walk.targets.append(code)
    if value.__name__ != code.co_name:
        tokens.append(value.__name__)
    walk.depth += 1
    if walk.depth > MAX_DEPTH:
        raise Refused(path, value, f"captures nest deeper than {MAX_DEPTH}", OPERAND)
    if value.__closure__ is not None:
        _cells(walk, value, facts, path)
    if value.__defaults__ is not None:
        tokens += ("defaults", len(value.__defaults__))
        for i, item in enumerate(value.__defaults__):
            walk.add(item, f"{path}.__defaults__[{i}]")
    if value.__kwdefaults__ is not None:
        tokens += ("kwdefaults", len(value.__kwdefaults__))
        for name, item in value.__kwdefaults__.items():
            tokens.append(name)
            walk.add(item, f"{path}.__kwdefaults__[{name!r}]")
    if value.__dict__:
        attributes = _own_attributes(value, library)
        if not library:
            walk.objects.append(ReadObject(attributes, (), path))
            attributes = {n: item for n, item in attributes.items() if is_protocol(n)}
        add_attributes(walk, attributes, path)
    if not library:
        annotations = annotations_of(value)
        if isinstance(annotations, dict):
            add_annotations(walk, annotations, path)
        elif annotations is not None:
            walk.target(Marker.CODE, annotations, path)
        tokens += (value.__qualname__, value.__doc__)
        if walk.owner is None:
            walk.owner = value
        walk.facts[facts] = None
        if facts.identifies:
            raise Refused(path, value, "it asks for the id() of an object", "name the object")
        _globals(walk, value, facts, namespace, path)
        if facts.assigned or facts.filled or facts.assigned_on:
            _note_written(walk, value, facts)
    walk.depth -= 1


def _note_written(walk: Walk, value: types.FunctionType, facts: CodeFacts) -> None:
    """What is in the variables that code assigns to, and in what it puts items into."""
    cells = dict(zip(value.__code__.co_freevars, value.__closure__ or (), strict=True))

    def content_of(name: str) -> Any:
        try:
            return cells[name].cell_contents if name in cells else value.__globals__[name]
        except (KeyError, ValueError):
            return EMPTY

    walk.written += tuple(map(content_of, facts.assigned))
    for name in facts.filled:
        content = content_of(name)
        walk.written += parts_of(content)
        if decides_on_items(content):
            walk.add(content, name)
    for name, *attributes, last in facts.assigned_on:
        content = content_of(name)
        for attribute in attributes:
            content = (namespace_of(content) or {}).get(attribute, EMPTY)
        walk.written += _assigned_parts(content, last)
        walk.add(content, name)  # its class decides what becomes of the value


def _assigned_parts(value: Any, name: str) -> tuple[Any, ...]:
    """What an object holds where an assignment to an attribute goes."""
    kind = type(value)
    names: Iterable[str] = (name,)
    for base in kind.__mro__:
        setter = vars(base).get("__setattr__")
        if is_users(setter):
            return parts_of(value)
        member = vars(base).get(name)
        if type(member) is property and is_users(member.fset):
            names = sorted(facts_of(member.fset.__code__).assigned_attributes)  # type: ignore[union-attr]
            break
    namespace = namespace_of(value) or {}
    slots = slots_of(kind)
    return tuple(
        namespace.get(name, slot_of(value, name) if name in slots else EMPTY) for name in names
    )


def decides_on_items(value: Any) -> bool:
    """Whether it is the class of an object that decides what becomes of an item that is assigned:
    a ``Ref`` of JAX, say, or a class of the user's."""
    if value is MISSING or value is EMPTY:
        return False
    return not isinstance(value, dict | list) and not is_ndarray(value)


def parts_of(value: Any) -> tuple[Any, ...]:
    """The keys and items of a container, and what an object has as attributes."""
    if isinstance(value, dict):
        return (*dict.keys(value), *dict.values(value))
    if isinstance(value, list):
        return tuple(list.__iter__(value))
    return tuple((namespace_of(value) or {}).values())


def add_attributes(walk: Walk, namespace: dict[str, Any], path: str) -> None:
    # In their own order, which code may go by.
    for name, item in list(namespace.items()):
        if name in UNREAD_NAMES:
            continue
        walk.tokens.append(name)
        if name == "__annotations__" and type(item) is dict:  # by functools.wraps
            add_annotations(walk, item, path)
        elif type(item) is bool or item is None:  # the usual ones, without a call for each
            walk.tokens += (type(item), item)
        elif type(item) is inspect.Signature:  # of annotations too, by their text
            walk.tokens += (str(item), tuple(item.parameters))
        else:
            walk.add(item, f"{path}.{name}")


def add_annotations(walk: Walk, annotations: dict[str, Any], path: str) -> None:
    """What decorators may make something of; of a type's alias its text is enough."""
    for name, item in annotations.items():
        if isinstance(item, type):
            walk.target(name, item, path)
        else:
            walk.tokens += (name, repr(item))


def _cells(walk: Walk, value: types.FunctionType, facts: CodeFacts, path: str) -> None:
    cells: tuple[types.CellType, ...] = value.__closure__ or ()
    for name, cell in zip(value.__code__.co_freevars, cells, strict=True):
        try:
            content = cell.cell_contents
        except ValueError:
            walk.tokens.append(EMPTY)
            continue
        chains = facts.chains.get(name)
        if facts.library and (
            part_names := PARTS_READ.get((value.__module__, value.__qualname__, name))
        ):
            for part in part_names:
                walk.add(getattr(content, part, EMPTY), f"{path}→{name}.{part}")
        elif chains is None and not facts.library and name != "__class__":
            walk.tokens.append(EMPTY)  # only updated
        elif type(content) is types.ModuleType:
            add_module(walk, content, chains or ESCAPES, f"{path}→{name}")
        else:
            read_by(walk, content, chains or ESCAPES, f"{path}→{name}")


def _globals(
    walk: Walk, value: types.FunctionType, facts: CodeFacts, namespace: dict[str, Any], path: str
) -> None:
    tokens = walk.tokens
    for name, chains in facts.globals:
        content = namespace.get(name, MISSING)
        kind = type(content)
        tokens.append(name)
        if kind is types.ModuleType:
            add_module(walk, content, chains, name)
        elif content is not MISSING:
            read_by(walk, content, chains, name)
        elif name in BLIND_BUILTINS:
            raise Refused(
                path, value, f"it calls {name.removesuffix('()')}()", "name what it reads"
            )
        else:
            builtin: dict[str, Any] = getattr(value, "__builtins__")  # noqa: B009
            found = builtin.get(name, EMPTY)
            if found is EMPTY or name in BUILTIN_NAMES:
                tokens.append(EMPTY)  # a builtin, or a NameError to come
            else:
                walk.add(found, name)
    for module, chains in facts.imports:
        _import(walk, value, namespace, module, chains, path)


def _import(
    walk: Walk,
    value: Any,
    namespace: dict[str, Any],
    name: tuple[str, int],
    chains: tuple[Any, ...],
    path: str,
) -> None:
    """An import statement inside a function reads modules as they are when it runs."""
    full, level = name
    if level:
        package = str(namespace.get("__package__") or "").split(".")
        full = ".".join([*package[: len(package) - level + 1], *([full] if full else [])])
    if full in IMPURE_MODULES:
        raise Refused(path, value, f"it imports {full}", READ_OUTSIDE)
    root = full.partition(".")[0]
    for found in dict.fromkeys((root, full)) if chains == ESCAPES else (full,):
        module = sys.modules.get(found)
        walk.tokens += ("import", found, module is None)
        if module is None or module.__name__ == "__future__":
            continue
        if is_library_module(module):
            loose(walk, module, path)
        add_module(walk, module, chains, found)


def add_method(walk: Walk, value: types.MethodType, path: str) -> None:
    walk.tokens.append(Marker.METHOD)
    walk.holders.append(value)  # a result may hold this very one
    walk.add(value.__func__, f"{path}.__func__")
    walk.add(value.__self__, f"{path}.__self__")


def add_partial(walk: Walk, value: functools.partial[Any], path: str) -> None:
    if walk.met(value):
        return
    walk.tokens += (type(value), len(value.args), len(value.keywords))
    walk.add(value.func, f"{path}.func")
    for i, item in enumerate(value.args):
        walk.add(item, f"{path}.args[{i}]")
    for name, item in value.keywords.items():  # **kwargs of the function has their order
        walk.tokens.append(name)
        walk.add(item, f"{path}.keywords[{name!r}]")
    if vars(value):
        add_attributes(walk, vars(value), path)


def add_builtin(walk: Walk, value: types.BuiltinFunctionType, path: str) -> None:
    owner = value.__self__
    if owner is None or isinstance(owner, types.ModuleType | type):
        check_pure(walk, value, path)
        walk.target(Marker.CALLABLE, value, path)
    else:
        walk.tokens += (Marker.METHOD, value.__name__)
        walk.add(owner, f"{path}.__self__")


def add_method_wrapper(walk: Walk, value: types.MethodWrapperType, path: str) -> None:
    walk.tokens += (Marker.METHOD, value.__name__)
    walk.add(value.__self__, f"{path}.__self__")


def add_lru_cache(walk: Walk, value: Any, path: str) -> None:
    walk.target(Marker.CALLABLE, value, path)
    info = value.cache_info()
    walk.tokens += (info.misses, info.currsize)  # what it has kept, it returns
    if not walk.met(value):
        walk.add(value.__wrapped__, f"{path}.__wrapped__")


def add_jitted(walk: Walk, value: Any, path: str) -> None:
    """A jitted function is what it wraps and its options, as it is for JAX, and has what it
    captures as constants. JAX may trace it again, which shows what it sees now."""
    function = getattr(value, "__wrapped__", None)
    options = jitted_options(value) if type(function) is types.FunctionType else None
    if options is None:
        walk.target(Marker.CALLABLE, value, path)
    else:
        walk.tokens += options
        walk.target(Marker.CALLABLE, function, path)
    if walk.fixed or function is None or is_library_object(value) or walk.met(value):
        return
    tokens, targets = len(walk.tokens), len(walk.targets)
    walk.fixed = True
    try:
        walk.add(function, f"{path}.__wrapped__")
    except Refused:  # its own cache decides, as without fnintern
        del walk.tokens[tokens:], walk.targets[targets:]
    finally:
        walk.fixed = False

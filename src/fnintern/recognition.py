"""What an object is: of a library or of the user's, a value, a reference, a container.

Recognises the types of jax, flax and numpy where the user's program has imported them.
"""

from __future__ import annotations

import abc
import collections
import contextlib
import functools
import struct
import sys
import types
import typing
import weakref
from typing import Any, Final

from fnintern.code import facts_of, is_library_code
from fnintern.installed import is_library_module
from fnintern.keys import importable

__all__ = [
    "CONTAINERS", "IMPURE_MODULES", "JITTED", "calls_back", "content_of", "has_value_equality",
    "hides_state", "is_attrs_repr", "is_held_by_its_module", "is_identifier", "is_library_class",
    "is_library_object", "is_protocol", "is_pytree_node",
    "is_readable_state", "is_reference_state", "is_trace_state", "is_users", "namespace_of",
    "slots_of", "unread_attributes",
]  # fmt: skip

#: Modules whose functions return something else at each call.
IMPURE_MODULES: Final = frozenset({"random", "numpy.random", "time", "timeit", "secrets", "uuid"})

#: Names of jax's own callables that cache what they wrap by identity.
JITTED: Final = frozenset({"PjitFunction", "PmapFunction", "CompiledFunction"})

#: Builtin types whose subclasses are read by a copy of the contents.
CONTAINERS: Final = (dict, list, tuple, set, frozenset, str, bytes, int, float, complex)


def is_protocol(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


#: Under the id of a class, with the weak reference that keeps it truthful.
_library_classes: dict[int, tuple[weakref.ref[type], bool]] = {}


def is_library_class(kind: type) -> bool:
    found = _library_classes.get(id(kind))
    if found is not None and found[0]() is kind:
        return found[1]
    module = sys.modules.get(kind.__module__)
    # type(name, bases, namespace) names the module that called it, which may be abc.
    library = module is not None and is_library_module(module)
    library = library and (importable(kind) or kind.__module__ == "builtins")
    _library_classes[id(kind)] = (weakref.ref(kind), library)
    return library


def calls_back(kind: type) -> bool:
    """Whether a class of a library may call methods that a subclass defines, by any name."""
    return is_library_class(kind) and kind not in _PASSIVE


_PASSIVE: Final = (object, type, abc.ABC, typing.Generic, typing.Protocol)


def is_attrs_repr(value: object) -> bool:
    """What attrs prints an instance with: it uses a thread-local against endless recursion."""
    return (
        isinstance(value, types.FunctionType)
        and value.__name__ == "__repr__"
        and value.__code__.co_filename.startswith("<attrs generated")
    )


def is_users(value: object) -> bool:
    """Whether ``value`` is a Python function of the user's, wherever it is held."""
    if type(value) is not types.FunctionType:
        return False
    return not is_library_code(facts_of(value.__code__), value.__globals__)


def is_library_object(value: Any) -> bool:
    """Whether an installed library holds ``value`` under its own name, like its functions."""
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    return module is not None and is_library_module(module) and importable(value)


def is_held_by_its_module(value: Any) -> bool:
    """Whether the module of its class holds an instance under a name, as a constant of its own."""
    module = sys.modules.get(type(value).__module__)
    return module is not None and any(item is value for item in list(vars(module).values()))


def has_value_equality(kind: type) -> bool:
    return (
        kind.__hash__ is not None
        and vars(object)["__eq__"] is not kind.__eq__
        and not hasattr(kind, "__array__")
        and not hasattr(kind, "__jax_array__")
        and (
            issubclass(kind, contextlib.ContextDecorator)
            or not any("__call__" in vars(base) for base in kind.__mro__)
        )
    )


def is_pytree_node(value: Any) -> bool:
    """Whether JAX takes instances of the class apart."""
    tree_util = sys.modules.get("jax.tree_util")
    return tree_util is not None and not tree_util.all_leaves((value,))


def is_reference_state(value: Any) -> bool:
    """Whether flax or jax change it in place: modules, variables, their states, references."""
    for module, names in _REFERENCE_STATE:
        loaded = sys.modules.get(module)
        for name in names:
            if loaded is not None and isinstance(value, getattr(loaded, name, ())):
                return True
    return False


_REFERENCE_STATE: Final = (
    ("flax.nnx", ("Module", "Pytree", "Object", "Variable", "State")),
    ("flax.core.scope", ("Scope",)),
    ("jax", ("Ref",)),
)


def is_readable_state(value: Any) -> bool:
    """Whether it holds its state in attributes: a module or a variable of ``flax.nnx``, a scope of
    ``flax.core``."""
    scope = sys.modules.get("flax.core.scope")
    if scope is not None and isinstance(value, getattr(scope, "Scope", ())):
        return True
    nnx = sys.modules.get("flax.nnx")
    if nnx is None or not isinstance(value, nnx.Pytree | nnx.Variable | nnx.State):
        return False
    return not isinstance(value, nnx.Variable) or "_raw_value" in slots_of(type(value))


def is_trace_state(kind: type) -> bool:
    """Whether instances say of a variable of ``flax.nnx`` in which trace it was made."""
    tracers = sys.modules.get("flax.nnx.tracers")
    return tracers is not None and kind is getattr(tracers, "TraceState", None)


def content_of(value: Any, base: Any) -> Any:
    """What the builtin part of an instance holds, whatever its class says when it is asked."""
    if base is dict:
        if isinstance(value, collections.OrderedDict):  # it has an order of its own
            return dict(collections.OrderedDict.items(value))
        return dict(dict.items(value))
    if base in (list, tuple, set, frozenset):
        return base(base.__iter__(value))
    if base is complex:
        return complex(float.__pos__(value.real), float.__pos__(value.imag))
    if base is str:
        return str.__str__(value)
    if base is bytes:
        return bytes.__getitem__(value, slice(None))
    return base.__pos__(value)


def is_identifier(kind: type) -> bool:
    """Whether instances are numbers that ``flax.linen`` gives to its modules: all that counts is
    where the same one occurs."""
    return kind.__module__ == "flax.ids" and kind.__name__ == "FlaxId"


def unread_attributes(value: Any) -> frozenset[str]:
    """Attributes that a trace makes nothing of: the trace to which a scope of ``flax.core``
    belongs."""
    for module, name, attributes in _UNREAD:
        loaded = sys.modules.get(module)
        if loaded is not None and isinstance(value, getattr(loaded, name, ())):
            return attributes
    return frozenset()


_UNREAD: Final = (("flax.core.scope", "Scope", frozenset({"trace_level"})),)


def namespace_of(value: Any) -> dict[str, Any] | None:
    """The instance's own attributes, whatever its class would answer."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return found if type(found) is dict else None


@functools.lru_cache(maxsize=4096)
def _layout_of(ref: weakref.ref[type]) -> tuple[tuple[str, ...], bool]:
    """The slots of a class, and whether instances hide state. Neither changes."""
    kind = ref()
    assert kind is not None
    slots = tuple(
        name
        for base in kind.__mro__
        for name, member in vars(base).items()
        if isinstance(member, types.MemberDescriptorType)
    )
    known = object.__basicsize__ + struct.calcsize("P") * (
        len(slots) + (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0)
    )
    return slots, kind.__basicsize__ > known or kind.__itemsize__ > 0 or kind is object


def slots_of(kind: type) -> tuple[str, ...]:
    return _layout_of(weakref.ref(kind))[0]


def hides_state(kind: type) -> bool:
    """Whether instances have more in them than Python attributes: anything made in C."""
    return _layout_of(weakref.ref(kind))[1]

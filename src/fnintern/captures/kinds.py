"""The table of kinds: what becomes of an object of each type."""

from __future__ import annotations

import collections
import contextlib
import enum
import functools
import logging
import threading
import types
import weakref
from typing import Any, ClassVar, Final

from fnintern.captures.classes import (
    add_another_object,
    add_class,
    add_descriptor,
    add_object,
    plain_kinds,
)
from fnintern.captures.declared import is_stateless, key_function
from fnintern.captures.functions import (
    add_attributes,
    add_builtin,
    add_function,
    add_jitted,
    add_lru_cache,
    add_method,
    add_method_wrapper,
    add_partial,
)
from fnintern.captures.modules import add_bare_module, check_pure
from fnintern.captures.values import (
    CONSTANTS,
    add_array,
    add_bytearray,
    add_complex,
    add_float,
    add_lock,
    add_logger,
    add_mapping,
    add_namespace,
    add_sequence,
    add_set,
    add_slice,
    add_tree_definition,
    add_trusted,
    add_weak,
    add_weak_values,
)
from fnintern.captures.walk import Handler, References, Walk
from fnintern.keys.callables import is_partial, is_standin
from fnintern.keys.objects import CONTAINERS, has_value_equality
from fnintern.keys.tokens import Identity, Marker, Refused
from fnintern.libraries.flax import (
    is_identifier,
    is_readable_state,
    is_reference_state,
    is_trace_state,
)
from fnintern.libraries.jax import JITTED
from fnintern.libraries.ownership import is_library_class, is_library_object

__all__ = ["MODULE_OPERAND", "Kinds"]

MODULE_OPERAND: Final = "pass the module as an operand"


_LOCKS: Final = (type(threading.Lock()), type(threading.RLock()))


class Kinds(Walk):
    """A walk that knows what becomes of each kind of object."""

    #: By the exact type; :meth:`add_other` has what is recognised by other signs.
    handlers: ClassVar[dict[type, Handler]] = {
        types.FunctionType: add_function,
        types.MethodType: add_method,
        functools.partial: add_partial,
        types.BuiltinFunctionType: add_builtin,
        types.MethodDescriptorType: add_descriptor,
        types.ClassMethodDescriptorType: add_descriptor,
        types.WrapperDescriptorType: add_descriptor,
        types.MethodWrapperType: add_method_wrapper,
        type(functools.lru_cache(lambda: None)): add_lru_cache,
        float: add_float,
        complex: add_complex,
        tuple: add_sequence,
        list: add_sequence,
        collections.deque: add_sequence,
        dict: add_mapping,
        collections.OrderedDict: add_mapping,
        collections.defaultdict: add_mapping,
        types.MappingProxyType: add_mapping,
        set: add_set,
        frozenset: add_set,
        bytearray: add_bytearray,
        slice: add_slice,
        types.SimpleNamespace: add_namespace,
        weakref.ref: add_weak,
        weakref.WeakValueDictionary: add_weak_values,
        type: add_class,
        Identity: lambda walk, value, path: walk.tokens.append(value),
        types.ModuleType: add_bare_module,
        logging.Logger: add_logger,
        **dict.fromkeys(_LOCKS, add_lock),
        **dict.fromkeys(CONSTANTS, add_trusted),
    }

    def add_other(self, value: Any, kind: type, path: str) -> None:
        """What has no handler by its exact type."""
        known = self.known.get(id(kind))
        if known is not None and not is_stateless(value):
            add_another_object(self, value, kind, *known, path)
            return
        if plain_kinds.get(kind) and not is_stateless(value) and key_function(kind) is None:
            add_object(self, value, kind, path)
            return
        if is_standin(kind):  # what it stands for is what counts
            self.tokens.append(Marker.CALLABLE)
            self.add(kind.__standin_for__(value), path)  # type: ignore[attr-defined]
            return
        key = key_function(kind)
        if key is not None:
            self.tokens.append(Marker.OBJECT)
            add_class(self, kind, path)
            self.add(key(value), f"key({path})")
        elif is_stateless(value):
            self.target(Marker.OBJECT, value, path)
        elif isinstance(value, type):
            add_class(self, value, path)
        elif isinstance(value, types.ModuleType):
            add_bare_module(self, value, path)
        elif isinstance(value, functools.partial) and is_partial(value):
            add_partial(self, value, path)
        elif isinstance(value, enum.Enum):
            self.tokens += (Marker.OBJECT, value.name)  # None for flags put together
            add_class(self, kind, path)
            if not self.met(value):
                self.add(value._value_, f"{path}.value")
                if not is_library_class(kind):
                    add_attributes(self, vars(value), path)
        elif not add_array(self, value, kind, path):
            self._foreign(value, kind, path)

    def _foreign(self, value: Any, kind: type, path: str) -> None:
        root = kind.__module__.partition(".")[0]
        if root in ("jax", "jaxlib") and kind.__name__ in JITTED:
            add_jitted(self, value, path)
        elif is_reference_state(value):
            if self.references is References.REFUSED or not is_readable_state(value):
                raise Refused(path, value, "it holds state that may change", MODULE_OPERAND)
            add_object(self, value, kind, path)
        elif callable(value) and is_library_object(value):
            check_pure(self, value, path)
            self.target(Marker.CALLABLE, value, path)  # jax.nn.relu, jnp.add
        elif root == "jaxlib" and kind.__name__ == "PyTreeDef":
            add_tree_definition(self, value, path)
        elif root in ("jax", "jaxlib", "numpy") and has_value_equality(kind):
            add_trusted(self, value, path)
        elif root == "jaxlib" or kind is object:  # devices; sentinels
            self.tokens += (Marker.OBJECT, Identity(value))
        elif root == "jax" and issubclass(kind, contextlib.ContextDecorator):  # meshes are unique
            self.target(Marker.OBJECT, value, path)
        elif is_identifier(kind):
            if not self.met(value):
                self.tokens.append(kind)
        elif is_trace_state(kind):
            self.tokens.append(value.is_valid())  # all that flax asks it
        else:
            if not issubclass(kind, CONTAINERS) and not (
                callable(value) and is_library_class(kind)
            ):
                plain_kinds.set(kind, True)
            add_object(self, value, kind, path)

"""Which arguments are callables, and of what kind (law I3)."""

from __future__ import annotations

import contextlib
import functools
import sys
import types
from typing import Any, Final

__all__ = [
    "annotations_of", "copy_annotations", "is_bound_method", "is_function_like", "is_only_called",
    "is_partial", "is_pytree_node", "is_standin", "syntax_of",
]  # fmt: skip


def is_partial(value: object) -> bool:
    """Whether ``value`` is a ``functools.partial`` or a ``jax.tree_util.Partial``, and no subclass
    of theirs that could hold more than a function and its arguments."""
    kind = type(value)
    if kind is functools.partial:
        return True
    if not issubclass(kind, functools.partial):
        return False
    tree_util = sys.modules.get("jax.tree_util")
    return kind is getattr(tree_util, "Partial", None)


def is_function_like(value: object) -> bool:
    """Whether ``value`` is keyed as a callable: by identity, never by its own equality.

    A class is a value here: factories ask ``issubclass`` of it, so it has to stay what it is. An
    object that is callable only because it can decorate (``jax.sharding.Mesh`` is a
    ``ContextDecorator``) is a value too.
    """
    return (
        callable(value)
        and not isinstance(value, type)
        and not isinstance(value, contextlib.ContextDecorator)
    )


def is_bound_method(value: object) -> bool:
    """Whether ``value`` is a bound method: Python's, or Equinox's, which is a pytree that
    ``module.method`` makes anew at each access, as Python's is."""
    kind = type(value)
    return kind is types.MethodType or (
        kind.__name__ == "BoundMethod" and kind.__module__.partition(".")[0] == "equinox"
    )


def is_standin(kind: type) -> bool:
    """Whether instances stand for a callable: ``__standin_for__`` of their class says for which."""
    return any("__standin_for__" in vars(base) for base in kind.__mro__)


#: Special methods that syntax and builtins look up on the class, and what makes a class one of
#: dataclasses or of attrs.
_NAMES: Final = """
    len length_hint getitem setitem delitem iter next reversed contains bool enter exit aenter aexit
    await aiter anext add radd iadd sub rsub isub mul rmul imul matmul rmatmul imatmul truediv
    rtruediv itruediv floordiv rfloordiv ifloordiv mod rmod imod divmod rdivmod pow rpow ipow lshift
    rlshift ilshift rshift rrshift irshift and rand iand or ror ior xor rxor ixor neg pos abs invert
    int float complex index round trunc floor ceil lt le gt ge array jax_array bytes fspath
    dataclass_fields dataclass_params attrs_attrs
"""
_SYNTAX: Final = frozenset(f"__{name}__" for name in _NAMES.split())


def syntax_of(kind: type) -> list[str]:
    """The special methods of a class, beside the call, that are looked up on the class."""
    found = (name for base in kind.__mro__ if base is not object for name in vars(base))
    return [name for name in dict.fromkeys(found) if name in _SYNTAX]


def is_only_called(value: object) -> bool:
    """Whether all that others do with a callable is to call it and to read its attributes. A model
    that is a pytree, has a length or is a dataclass is more."""
    if type(value) in _CALLABLE_ONLY:
        return True
    return not syntax_of(type(value)) and not is_pytree_node(value)


def is_pytree_node(value: object) -> bool:
    """Whether JAX takes instances of the class apart."""
    tree_util = sys.modules.get("jax.tree_util")
    return tree_util is not None and not tree_util.all_leaves((value,))


_CALLABLE_ONLY: Final = frozenset(
    {types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial}
)


def annotations_of(function: types.FunctionType) -> Any:
    """The annotations of a function as they stand. Since Python 3.14 that is the code that makes
    them, which is not run: it may fail, for names that only a type checker imports.

    Returns:
        A dictionary, a code object, or None.
    """
    if sys.version_info >= (3, 14):
        return getattr(function.__annotate__, "__code__", None)
    return function.__annotations__


def copy_annotations(new: types.FunctionType, function: types.FunctionType) -> None:
    """Gives one function the annotations of another, without running them."""
    if sys.version_info >= (3, 14):
        new.__annotate__ = function.__annotate__
    elif function.__annotations__:
        new.__annotations__ = function.__annotations__

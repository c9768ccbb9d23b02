"""The callable kinds that laws I3 and L1 name: one list, so that every law runs on each."""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Callable
from typing import Any

import attrs
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

__all__ = ["FREED", "KINDS", "Case", "Kind", "freed", "kinds"]


class Plain:
    def __init__(self, array: Any) -> None:
        self.array = array

    def __call__(self, x: Any) -> Any:
        return x + self.array

    def method(self, x: Any) -> Any:
        return x + self.array


class Slotted:
    __slots__ = ("__weakref__", "array")

    def __init__(self, array: Any) -> None:
        self.array = array

    def __call__(self, x: Any) -> Any:
        return x + self.array

    def method(self, x: Any) -> Any:
        return x + self.array


@attrs.define(eq=False)
class Attrs:
    array: Any

    def __call__(self, x: Any) -> Any:
        return x + self.array

    def method(self, x: Any) -> Any:
        return x + self.array


@attrs.define  # with an __eq__ that compares arrays, and no __hash__
class AttrsEqual:
    array: Any

    def __call__(self, x: Any) -> Any:
        return x + self.array

    def method(self, x: Any) -> Any:
        return x + self.array


class Nnx(nnx.Module):  # type: ignore[misc]
    def __init__(self, array: Any) -> None:
        self.array = nnx.Param(array)

    def __call__(self, x: Any) -> Any:
        return x + self.array[...]

    def method(self, x: Any) -> Any:
        return x + self.array[...]


class Eqx(eqx.Module):  # type: ignore[misc]
    array: Any

    def __call__(self, x: Any) -> Any:
        return x + self.array

    def method(self, x: Any) -> Any:
        return x + self.array


class Case:
    """One callable over one array, and how a user gets at it.

    ``fetch()`` spells the callable again, as a user's code would at each call: a bound method and
    a partial are new objects each time. ``watched`` are weak references to what has to die with
    it; the case itself holds all of it.
    """

    def __init__(self, fetch: Callable[[], Any], *watched: Any) -> None:
        self.fetch = fetch
        self.watched = [weakref.ref(x) for x in watched]


@attrs.frozen
class Kind:
    name: str
    make: Callable[[Any], Case] = attrs.field(repr=False)


def _def(array: Any) -> Case:
    def function(x: Any) -> Any:
        return x + 1.0

    return Case(lambda: function, function)


def _lambda(array: Any) -> Case:
    function = lambda x: x + 1.0
    return Case(lambda: function, function)


def _closure(array: Any) -> Case:
    def function(x: Any) -> Any:
        return x + array

    return Case(lambda: function, function, array)


def _default(array: Any) -> Case:
    def function(x: Any, y: Any = array) -> Any:
        return x + y

    return Case(lambda: function, function, array)


def _two(array: Any) -> Callable[[Any, Any], Any]:
    return lambda scale, x: scale * x + array


def _partial(array: Any) -> Case:
    function = _two(array)
    return Case(lambda: functools.partial(function, 1.0), function, array)


def _nested_partial(array: Any) -> Case:
    def function(a: Any, b: Any, x: Any, *, c: Any, d: Any) -> Any:
        return x + array + a + b + c + d

    orders = [{"c": -1.0, "d": 1.0}, {"d": 1.0, "c": -1.0}]

    def fetch() -> Any:
        orders.reverse()
        inner = functools.partial(function, 0.0)
        inner.tag = "keeps the constructor from flattening"  # type: ignore[attr-defined]
        return functools.partial(inner, 0.0, **orders[0])

    return Case(fetch, function, array)


def _tree_partial(array: Any) -> Case:
    function = _two(array)
    return Case(lambda: jax.tree_util.Partial(function, 1.0), function, array)


def _partial_of_method(array: Any) -> Case:
    owner = Plain(array)
    return Case(lambda: functools.partial(owner.method), owner, array)


def _method_of(kind: Callable[[Any], Any]) -> Callable[[Any], Case]:
    def make(array: Any) -> Case:
        owner = kind(array)
        return Case(lambda: owner.method, owner, array)

    return make


def _instance_of(kind: Callable[[Any], Any]) -> Callable[[Any], Case]:
    def make(array: Any) -> Case:
        owner = kind(array)
        return Case(lambda: owner, owner, array)

    return make


def _jitted(array: Any) -> Case:
    function = jax.jit(lambda x: x + array)
    return Case(lambda: function, function, array)


def _classmethod(array: Any) -> Case:
    class Local:
        captured = array

        @classmethod
        def method(cls, x: Any) -> Any:
            return x + cls.captured

    return Case(lambda: Local.method, Local, array)


def _method_with_callable(array: Any) -> Case:
    """A method whose function is itself a callable instance."""
    import types

    class Function:
        def __call__(self, owner: Plain, x: Any) -> Any:
            return x + owner.array

    function, owner = Function(), Plain(array)
    return Case(lambda: types.MethodType(function, owner), function, owner, array)


#: Kinds of which every object can be freed.
FREED = [
    Kind("def", _def),
    Kind("lambda", _lambda),
    Kind("closure", _closure),
    Kind("default", _default),
    Kind("partial", _partial),
    Kind("nested_partial", _nested_partial),
    Kind("tree_partial", _tree_partial),
    Kind("partial_of_method", _partial_of_method),
    *(
        Kind(f"method_{cls.__name__.lower()}", _method_of(cls))
        for cls in (Plain, Slotted, Attrs, AttrsEqual, Nnx, Eqx)
    ),
    *(
        Kind(f"instance_{cls.__name__.lower()}", _instance_of(cls))
        for cls in (Plain, Slotted, Attrs, AttrsEqual, Nnx, Eqx)
    ),
    Kind("jitted", _jitted),
    Kind("classmethod", _classmethod),
    Kind("method_with_callable", _method_with_callable),
]

#: All kinds. A class stays what it is in a factory, so nothing stands in for it.
KINDS = [
    *FREED,
    Kind("builtin", lambda array: Case(lambda: math.sqrt)),
    Kind("ufunc", lambda array: Case(lambda: np.sin)),
    Kind("class", lambda array: Case(lambda: float)),
]


def new_array() -> Any:
    """An array of one element that nothing else holds."""
    return jnp.array([1.0])


def _named(kind: Kind) -> str:
    return kind.name


kinds = pytest.mark.parametrize("kind", KINDS, ids=_named)
freed = pytest.mark.parametrize("kind", FREED, ids=_named)

"""A stand-in is its callable to the syntax of Python, to JAX, and to a table of functions (L4)."""

from __future__ import annotations

import dataclasses
import types
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fnintern import interned


class Model(eqx.Module):  # type: ignore[misc]
    w: jax.Array
    scale: float = eqx.field(static=True, default=2.0)

    def __call__(self, x: Any) -> Any:
        return self.scale * self.w * x


class Layers:
    """Callable, and a container."""

    def __init__(self, *layers: Any) -> None:
        self.layers = layers

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, i: int) -> Any:
        return self.layers[i]

    def __contains__(self, layer: Any) -> bool:
        return layer in self.layers

    def __add__(self, other: Any) -> Layers:
        return Layers(*self.layers, *other.layers)

    def __radd__(self, other: int) -> int:
        return other + len(self)


@dataclasses.dataclass(eq=False)
class Scaled:
    scale: float

    def __call__(self, x: Any) -> Any:
        return self.scale * x


def double(x: Any) -> Any:
    return 2 * x


#: What a factory may do with its argument.
USES: dict[str, tuple[Any, Any]] = {
    "leaves": (lambda: Model(jnp.float32(3.0)), lambda m: [float(x) for x in jax.tree.leaves(m)]),
    "partition": (
        lambda: Model(jnp.float32(3.0)),
        lambda m: float(eqx.combine(*eqx.partition(m, eqx.is_array))(1.0)),
    ),
    "gradient": (
        lambda: Model(jnp.float32(3.0)),
        lambda m: [float(x) for x in jax.tree.leaves(eqx.filter_grad(lambda m: m(5.0))(m))],
    ),
    "map": (
        lambda: Model(jnp.float32(3.0)),
        lambda m: float(jax.tree.map(lambda a, b: a + b, m, m)(1.0)),
    ),
    "paths": (
        lambda: Model(jnp.float32(3.0)),
        lambda m: [jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(m)],
    ),
    "jit": (lambda: Model(jnp.float32(3.0)), lambda m: float(eqx.filter_jit(lambda m: m(2.0))(m))),
    "length": (lambda: Layers(double, double), len),
    "no layers": (lambda: Layers(), bool),
    "item": (lambda: Layers(double), lambda m: m[0](3)),
    "iteration": (lambda: Layers(double, double), lambda m: [f(1) for f in m]),
    "contains": (lambda: Layers(double), lambda m: (double in m, abs in m)),
    "sum": (lambda: Layers(double), lambda m: (len(m + m), 1 + m)),
    "replace": (lambda: Scaled(2.0), lambda m: dataclasses.replace(m, scale=3.0)(1.0)),
    "fields": (lambda: Scaled(2.0), dataclasses.asdict),
    "instance": (lambda: Scaled(2.0), lambda m: isinstance(m, Scaled)),
}


@pytest.mark.parametrize("by", ["object", "value"])
@pytest.mark.parametrize("name", USES)
def test_L4_a_factory_may_do_with_its_argument_what_it_likes(name: str, by: Any) -> None:
    make, use = USES[name]
    target = make()
    factory: Any = interned(lambda f: [use(f)], by=by)
    assert factory(target) == factory(target) == [use(make())]


def test_S1_by_value_a_named_function_is_itself() -> None:
    """A table, or an `is`, asks for the function of a module."""
    gains = {double: 5.0, jnp.tanh: 7.0, len: 9.0}
    factory: Any = interned(lambda f: [gains.get(f, 1.0), f is double], by="value")
    assert [factory(f) for f in (double, jnp.tanh, len)] == [
        [5.0, True],
        [7.0, False],
        [9.0, False],
    ]
    assert factory(double) is factory(double)
    assert factory.cache_info().hits == 2


def test_I1_functions_of_two_names_are_two() -> None:
    same = types.FunctionType(double.__code__, double.__globals__)
    factory: Any = interned(lambda f: [f], by="value")
    assert factory(double) is not factory(same)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Layers(double), "more than a function"),
        (lambda: _over(np.ones(3)), "can be written to"),
        (lambda: _calls_back([]), "a callback keeps"),
    ],
)
def test_S2_explain_says_what_is_bypassed(make: Any, reason: str) -> None:
    factory: Any = interned(lambda f: [f], by="value")
    target = make()
    factory(target)
    assert factory.cache_info().bypassed == 1
    explained = factory.explain(target)
    assert not explained.interned
    assert reason in str(explained)


def _over(array: Any) -> Any:
    return lambda x: x * array


def _calls_back(log: list[Any]) -> Any:
    return lambda x: jax.debug.callback(lambda v: log.append(v), x)

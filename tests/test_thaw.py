"""``thaw`` rebuilds what ``freeze`` has split, around other arrays."""

from __future__ import annotations

import collections
import dataclasses
import fractions
import functools
import pathlib
import re
import types
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fnintern.captures import Refused, freeze
from fnintern.thawing import thaw

#: For functions that freeze refuses, since they assign outside themselves.
NOTHING = freeze(lambda: None)
WEIGHT: Any = jnp.float32(2.0)
SCALE = 3.0


def helper(x: Any) -> Any:
    return WEIGHT * x


def reads_a_global(x: Any) -> Any:
    return helper(x) + SCALE


class Layer:
    def __init__(self, w: Any) -> None:
        self.w = w
        self.calls: list[int] = []

    def __call__(self, x: Any) -> Any:
        self.calls.append(1)
        return self.w * x


@dataclasses.dataclass(frozen=True)
class Config:
    w: Any
    names: tuple[str, ...] = ("a",)


class Slotted:
    __slots__ = ("w",)

    def __init__(self, w: Any) -> None:
        self.w = w


def closure(w: Any) -> Any:
    return lambda x: w * x


def default(w: Any) -> Any:
    def f(x: Any, w: Any = w, *, k: Any = w) -> Any:
        return w * x + 0 * k

    return f


def attribute(w: Any) -> Any:
    def f(x: Any) -> Any:
        return f.w * x  # type: ignore[attr-defined]

    f.w = w  # type: ignore[attr-defined]
    return f


def in_containers(w: Any) -> Any:
    box: dict[str, Any] = {"a": [w, (w, 1)], "b": collections.deque([w])}
    return lambda x: box["a"][0] * x


def in_object(w: Any) -> Any:
    return Layer(w).__call__


def in_callable(w: Any) -> Any:
    return Layer(w)


def in_dataclass(w: Any) -> Any:
    config = Config(w)
    return lambda x: config.w * x


def in_slots(w: Any) -> Any:
    holder = Slotted(w)
    return lambda x: holder.w * x


def in_partial(w: Any) -> Any:
    return functools.partial(lambda w, x: w * x, w)


def in_nested_function(w: Any) -> Any:
    inner = closure(w)
    return lambda x: inner(x)


def in_module(w: Any) -> Any:
    config = types.ModuleType("config")
    config.w = w  # type: ignore[attr-defined]
    return lambda x: config.w * x


MAKERS = [
    closure, default, attribute, in_containers, in_object, in_callable, in_dataclass, in_slots,
    in_partial, in_nested_function, in_module,
]  # fmt: skip


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
class TestEveryPlace:
    """Each place that a captured array can sit in."""

    def test_leaves_are_replaced(self, make: Any) -> None:
        f = make(jnp.float32(2.0))
        frozen = freeze(f)
        assert frozen.leaves
        other = thaw(f, frozen, [jnp.float32(5.0)] * len(frozen.leaves))
        assert float(other(3.0)) == 15.0
        assert float(f(3.0)) == 6.0

    def test_leaves_may_be_tracers(self, make: Any) -> None:
        f = make(jnp.float32(2.0))
        frozen = freeze(f)
        run = jax.jit(lambda w, x: thaw(f, frozen, [w] * len(frozen.leaves))(x))
        assert float(run(jnp.float32(7.0), 3.0)) == 21.0
        assert float(f(3.0)) == 6.0  # no tracer has got into the original


def test_global_of_a_helper_is_replaced() -> None:
    frozen = freeze(reads_a_global)
    other = thaw(reads_a_global, frozen, [jnp.float32(10.0)])
    assert float(other(1.0)) == 13.0
    assert float(reads_a_global(1.0)) == 5.0
    assert float(WEIGHT) == 2.0


def test_containers_and_cells_are_its_own() -> None:
    log: list[int] = []
    count = 0

    def f(x: Any) -> Any:
        nonlocal count
        count += 1
        log.append(count)
        return x

    other = thaw(f, NOTHING, [])
    other(1)
    other(1)
    assert (log, count) == ([], 0)
    f(1)
    assert (log, count) == ([1], 1)


def test_functions_that_share_a_variable_go_on_sharing_one() -> None:
    def make() -> Any:
        n = 0

        def bump() -> None:
            nonlocal n
            n += 1

        def f(x: Any) -> Any:
            bump()
            return n * x

        return f

    f = make()
    other = thaw(f, NOTHING, [])
    assert (other(1), other(1), f(1)) == (1, 2, 1)


def test_recursion_and_cycles() -> None:
    def make(w: Any) -> Any:
        box: list[Any] = [w]
        box.append(box)

        def power(x: Any, n: int) -> Any:
            return x if n == 0 else box[1][0] * power(x, n - 1)

        return power

    f = make(jnp.float32(2.0))
    frozen = freeze(f)
    assert float(thaw(f, frozen, [jnp.float32(3.0)] * len(frozen.leaves))(1.0, 2)) == 9.0


def test_one_array_in_two_places_stays_one() -> None:
    w = jnp.float32(2.0)
    pair = (w, [w])
    f = lambda x: (pair[0] is pair[1][0]) and pair[0] * x
    frozen = freeze(f)
    other = thaw(f, frozen, [jnp.float32(4.0)] * len(frozen.leaves))
    assert float(other(1.0)) == 4.0


@pytest.mark.parametrize(
    "constant",
    [re.compile("a"), int | None, list[int], pathlib.Path("a"), fractions.Fraction(1, 2), range(2)],
    ids=lambda constant: type(constant).__name__,
)
def test_constants_of_the_standard_library_stay_what_they_are(constant: Any) -> None:
    w = jnp.float32(2.0)
    f = lambda: (constant, w)
    assert thaw(f, freeze(f), [jnp.float32(4.0)])()[0] is constant


def test_array_of_a_class_is_refused() -> None:
    class Table:
        w = jnp.float32(2.0)

    f = lambda x: Table.w * x
    with pytest.raises(Refused, match="a class holds it"):
        thaw(f, freeze(f), [jnp.float32(1.0)])


def test_wrong_number_of_leaves() -> None:
    f = closure(jnp.float32(2.0))
    with pytest.raises(ValueError, match="0 leaves for a value with 1"):
        thaw(f, freeze(f), [])


constants = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
    ),
    max_leaves=8,
)


@settings(derandomize=True, max_examples=60, deadline=None)
@given(constants)
def test_what_a_function_returns_is_equal_and_not_shared(value: Any) -> None:
    f = lambda: value
    copy = thaw(f, freeze(f), [])()
    assert copy == value
    assert type(copy) is type(value)
    if isinstance(value, list | dict):
        assert copy is not value

"""Captured arrays of NumPy: an edit in place is seen (S1), and none stays (S3)."""

from __future__ import annotations

import gc
import types
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import fnintern
from lax_calls import XS, assert_same, counted, lax

X = jnp.float32(1.0)
DTYPES = ["float64", "float32", "int64", "int32", "uint8", "complex128", "float16", "bool"]


class Holder(nnx.Module):  # type: ignore[misc]
    def __init__(self, array: Any) -> None:
        self.array = array

    def __call__(self, x: Any) -> Any:
        return (self.array * x).sum()


def _with_default(array: Any) -> Callable[[Any], Any]:
    def f(x: Any, a: Any = array) -> Any:
        return (a * x).sum()

    return f


#: How a function gets at an array, which is kept by nothing else.
PLACES: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "closure": lambda array: lambda x: (array * x).sum(),
    "dictionary": lambda array: (lambda held: lambda x: (held["a"] * x).sum())({"a": array}),
    "plain object": lambda array: (lambda held: lambda x: (held.a * x).sum())(
        types.SimpleNamespace(a=array)
    ),
    "default": lambda array: _with_default(array),
    "method": lambda array: Holder(array).__call__,
}


#: A call of a function of one number. With a ``jax.jit`` inside JAX alone does not see an edit as
#: long as that function lives.
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "cond": lambda ops, f: ops.cond(True, lambda x: f(x), lambda x: jnp.zeros_like(f(x)), X),
    "map": lambda ops, f: ops.map(lambda x: f(x), XS),
    "nested": lambda ops, f: ops.map(lambda x: ops.cond(x > 0, lambda: f(x), lambda: f(-x)), XS),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CALLS)
def test_S1_an_edit_in_place_is_seen(name: str, dtype: str) -> None:
    """JAX finds a constant that it has made of an array again by the array, as long as any jaxpr
    holds it."""
    array = np.ones((2, 2), dtype)
    f = PLACES["closure"](array)
    for number in (1, 3, 1, 7):
        array[0, 0] = number
        for _ in range(2):
            assert_same(CALLS[name](lax, f), CALLS[name](jax.lax, PLACES["closure"](array.copy())))


@pytest.mark.parametrize("place", PLACES)
def test_S1_wherever_the_array_is(place: str) -> None:
    array = np.ones((2, 2))
    f = PLACES[place](array)
    for number in (1.0, 100.0, 3.0):
        array[0, 0] = number
        assert float(lax.cond(True, f, f, X)) == 3.0 + number


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int32"])
def test_S1_arrays_of_no_dimension(dtype: str) -> None:
    """JAX writes them into the equations."""
    array = np.array(1, dtype)
    for number in (1, 5, 9):
        array[...] = number
        assert float(lax.cond(True, lambda x: x * array, lambda x: x, X)) == number
        assert float(lax.map(lambda x: lax.cond(x > 0, lambda: x * array, lambda: x), XS)[0]) == (
            number
        )


#: Transforms of flax over a function of one number.
TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "cond": lambda f: nnx.cond(True, lambda x: f(x), lambda x: x, X),
    "cond, model": lambda f: nnx.cond(True, lambda m, x: f(x), lambda m, x: x, Holder(XS), X),
    "switch": lambda f: nnx.switch(1, [lambda x: x, lambda x: f(x)], X),
    "while_loop": lambda f: nnx.while_loop(lambda x: x < 3.0, lambda x: f(x), X),
    "fori_loop": lambda f: nnx.fori_loop(0, 2, lambda i, x: f(x), X),
    "scan": lambda f: nnx.scan(
        lambda c, x: (f(c), x), in_axes=(nnx.Carry, 0), out_axes=(nnx.Carry, 0)
    )(X, jnp.arange(2.0))[0],
    "remat": lambda f: nnx.remat(lambda x: f(x))(X),
}


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_S1_an_edit_in_place_is_seen_by_flax(name: str, dtype: str) -> None:
    array = np.ones((2, 2), dtype)
    f = lambda x: (array * x).sum()

    def results() -> list[float]:
        found = []
        for number in (1.0, 1.0, 3.0, 3.0):
            array[0, 0] = number
            gc.collect()
            found.append(float(TRANSFORMS[name](f)))
        return found

    expected = results()
    with fnintern.patch_flax():
        assert results() == expected
    assert expected[0] != expected[2]


def test_S1_a_wrapper_by_value_does_not_hide_an_edit() -> None:
    """What the wrapper has traced would keep the constant, so that no later trace saw an edit."""
    jit = fnintern.interned(jax.jit, by="value")
    array = np.ones((2, 2))
    for number in (1.0, 4.0):
        array[0, 0] = number
        gc.collect()
        assert float(jit(lambda x: (array * x).sum())(X)) == 3.0 + number
    assert jit.cache_info().bypassed == 2
    array.setflags(write=False)
    for _ in range(2):
        jit(lambda x: (array * x).sum())(X)
    assert jit.cache_info().hits == 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_S3_the_array_goes_with_its_user(dtype: str) -> None:
    def call(array: Any) -> weakref.ref[Any]:
        for _ in range(3):
            lax.map(lambda x: (array * x).sum(), XS)
        return weakref.ref(array)

    ref = call(np.ones((2, 2), dtype))
    gc.collect()
    assert ref() is None
    other = np.ones((2, 2), dtype)
    call(other)
    assert counted(lambda: call(other)) == (0, 0, 0)


def test_S1_each_mode_of_x64_in_turn() -> None:
    array = np.arange(4.0) + 2.0**40
    for on in (False, True, False, True):
        with jax.enable_x64(on):
            x = jnp.ones(4)
            expected = jax.lax.cond(True, lambda x: x * array, lambda x: x, x)
            found = lax.cond(True, lambda x: x * array, lambda x: x, x)
            assert_same(found, expected)


def test_S5_an_array_that_stays_traces_nothing() -> None:
    array = np.ones((2, 2))
    call: Any = lambda: lax.map(lambda x: (array * x).sum(), XS)
    call()
    assert counted(call) == (0, 0, 0)

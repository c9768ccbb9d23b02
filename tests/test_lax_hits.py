"""fnintern.lax traces and compiles nothing for a function made anew over arrays made anew."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fnintern
from fnintern.staging.operations import OPERATIONS
from lax_calls import CALLS, XS, Node, counted, lax

NONE = (0, 0, 0)
#: As ``from fnintern.lax import scan`` gives it.
SCAN: Any = lax.scan


def arrays(count: int) -> list[Any]:
    """Different arrays, made before anything is counted."""
    return [jnp.float32(1.0 + i / 8) for i in range(count)]


def hits(call: Callable[[Any], Any]) -> tuple[int, int, int]:
    """What three calls over different arrays trace, lower and compile, after two to warm up."""
    given = iter(arrays(5))
    for _ in range(2):
        call(next(given))
    return counted(lambda: call(next(given)))


def test_what_is_counted_can_be_seen() -> None:
    """jax.lax itself traces, lowers and compiles at each of these calls."""
    assert min(hits(lambda w: CALLS["scan"](jax.lax, w, XS))) >= 3
    assert min(hits(lambda w: CALLS["cond"](jax.lax, w, XS))) >= 3


@pytest.mark.parametrize("name", CALLS)
def test_every_operation(name: str) -> None:
    assert hits(lambda w: CALLS[name](lax, w, XS)) == NONE


@pytest.mark.parametrize("name", ["scan", "fori_loop", "cond", "map"])
def test_eager_grad(name: str) -> None:
    def loss(w: Any) -> Any:
        return sum(leaf.sum() for leaf in jax.tree.leaves(CALLS[name](lax, w, XS)))

    assert hits(lambda w: jax.grad(lambda w: loss(w))(w)) == NONE


def test_every_operation_is_staged() -> None:
    """But for ``associative_scan``, which applies its function to the arrays themselves."""
    tested = {name.split()[0] for name in CALLS}
    assert tested == {*lax.__all__, "associative_scan"}
    assert set(lax.__all__) == set(OPERATIONS)
    assert lax.associative_scan is jax.lax.associative_scan


class Cell:
    def __init__(self, w: Any) -> None:
        self.w = w

    def step(self, c: Any, v: Any) -> Any:
        return c * self.w + v, c

    def __call__(self, c: Any, v: Any) -> Any:
        return self.step(c, v)


class Module(eqx.Module):  # type: ignore[misc]
    w: Any
    name: str = "module"

    def __call__(self, c: Any, v: Any) -> Any:
        return c * self.w + v, c


class Slotted:
    __slots__ = ("w",)

    def __init__(self, w: Any) -> None:
        self.w = w


def step(w: Any, c: Any, v: Any) -> Any:
    return c * w + v, c


def keyword(c: Any, v: Any, *, w: Any) -> Any:
    return c * w + v, c


def nested(w: Any) -> Any:
    def inner(c: Any) -> Any:
        return c * w

    def outer(c: Any, v: Any) -> Any:
        return inner(c) + v, c

    return outer


def decorated(w: Any) -> Any:
    @functools.wraps(step)
    def f(*args: Any) -> Any:
        return step(w, *args)

    return f


def in_list(w: Any) -> Any:
    table: Any = [[lambda c: c * w], {"b": w}]
    return lambda c, v: (table[0][0](c) + v * table[1]["b"], c)


def in_slots(w: Any) -> Any:
    held = Slotted(w)
    return lambda c, v: (c * held.w + v, c)


def in_module(w: Any) -> Any:
    module = Module(w)
    return lambda c, v: module(c, v)


def default(w: Any) -> Any:
    return lambda c, v, w=w: (c * w + v, c)


def recursive(w: Any) -> Any:
    def power(c: Any, n: int) -> Any:
        return c if n == 0 else w * power(c, n - 1)

    return lambda c, v: (power(c, 2) + v, c)


#: How a body of scan may be given; each makes it anew over ``w``.
KINDS: dict[str, Callable[[Any], Any]] = {
    "lambda": lambda w: lambda c, v: (c * w + v, c),
    "partial": lambda w: functools.partial(step, w),
    "partial by keyword": lambda w: functools.partial(keyword, w=w),
    "partial of a partial": lambda w: functools.partial(functools.partial(step), w),
    "jax's partial": lambda w: jax.tree_util.Partial(step, w),
    "bound method": lambda w: Cell(w).step,
    "callable object": lambda w: Cell(w),
    "function in a function": nested,
    "decorated": decorated,
    "function in a list": in_list,
    "slots": in_slots,
    "equinox module": in_module,
    "default": default,
    "recursive": recursive,
    "checkpoint": lambda w: jax.checkpoint(lambda c, v: (c * w + v, c)),
    "vmapped inside": lambda w: lambda c, v: (jax.vmap(lambda u: u * w)(XS).sum() * c + v, c),
    "grad inside": lambda w: lambda c, v: (jax.grad(lambda c: jnp.sin(c * w))(c) + v, c),
    "jitted inside": lambda w: lambda c, v: (jax.jit(lambda c: c * w)(c) + v, c),
    "scan inside": lambda w: lambda c, v: (lax.scan(lambda d, _: (d * w, None), c, XS)[0] + v, c),
    "captured operation inside": lambda w: (
        lambda c, v: (SCAN(lambda d, _: (d * w, v), c, XS)[0], c)
    ),
    "cond inside": lambda w: lambda c, v: (lax.cond(c > 0, lambda: c * w, lambda: v), c),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_function(kind: str) -> None:
    assert hits(lambda w: lax.scan(KINDS[kind](w), 0.5, XS)) == NONE
    assert lax.scan.cache_info().bypassed == 0


@pytest.fixture(autouse=True)
def counts_from_zero() -> None:
    for name in lax.__all__:
        getattr(lax, name).cache_clear()


def _apply(functions: Any, x: Any) -> Any:
    return sum(f(x) for f in jax.tree.leaves(functions, is_leaf=callable))


class TestFunctionsInContainers:
    apply = staticmethod(fnintern.staged(_apply))

    @pytest.mark.parametrize(
        "put",
        [
            lambda f, g: (f, g),
            lambda f, g: [f, (g,)],
            lambda f, g: {"f": f, "g": [g]},
            lambda f, g: Node([f, g]),
            lambda f, g: [functools.partial(f), Cell(1.0).step.__get__, g][::2],
            lambda f, g: [f, None, g],
        ],
        ids=["tuple", "list", "dict", "pytree", "partial", "None"],
    )
    def test_traces_once(self, put: Any) -> None:
        call: Any = lambda w: self.apply(put(lambda x: x * w, lambda x: x - w), 2.0)
        assert float(call(jnp.float32(3.0))) == 5.0
        assert float(call(jnp.float32(1.0))) == 3.0
        assert hits(call) == NONE

    def test_the_order_counts(self) -> None:
        pair: Any = fnintern.staged(lambda functions, x: functions[0](functions[1](x)))
        f, g = (lambda x: x + 1), (lambda x: x * 10)
        assert (int(pair([f, g], 1)), int(pair([g, f], 1))) == (11, 20)


class TestOperands:
    """What stays the same program, and what does not."""

    @pytest.mark.parametrize(
        ("one", "other"),
        [(1.0, 2.0), (1, 2), (True, False), (1j, 2j), (np.float32(1), np.float32(2))],
    )
    def test_python_and_numpy_scalars_are_operands(self, one: Any, other: Any) -> None:
        call: Any = lambda x: lax.cond(True, lambda v: v, lambda v: v, x)
        call(one)
        assert counted(lambda: call(other)) == NONE

    def test_static_parameters_are_part_of_the_key(self) -> None:
        call: Any = lambda n: lax.fori_loop(0, n, lambda i, v: v + i, 0)
        assert [int(call(n)) for n in (3, 4, 3)] == [3, 6, 3]
        assert lax.fori_loop.cache_info().misses == 2

    def test_traced_bounds_are_operands(self) -> None:
        jax.vmap(lambda n: lax.fori_loop(0, n, lambda i, v: v + i, 0))(jnp.arange(4))
        more = jnp.arange(1, 5)
        call: Any = lambda: jax.vmap(lambda n: lax.fori_loop(0, n, lambda i, v: v + i, 0))(more)
        call()
        assert counted(call) == NONE
        assert call().tolist() == [0, 1, 3, 6]

    def test_two_captures_or_one_twice(self) -> None:
        """Code may ask whether two captures are the same array."""

        def call(a: Any, b: Any) -> float:
            return float(lax.cond(True, lambda: a + b if a is b else a * 100, lambda: a))

        a, b = jnp.float32(1.0), jnp.float32(1.0)
        assert [call(a, a), call(a, b), call(b, b), call(b, a)] == [2.0, 100.0, 2.0, 100.0]

    def test_which_of_three_captures_are_the_same(self) -> None:
        def call(a: Any, b: Any, c: Any) -> list[float]:
            def f() -> Any:
                return (a is b) + 10 * (b is c) + 100 * (a is c) + 0 * a, a, b, c

            return [float(leaf) for leaf in lax.cond(True, f, f)]

        one, two = jnp.float32(1.0), jnp.float32(2.0)
        for _ in range(2):
            assert call(one, one, two) == [1.0, 1.0, 1.0, 2.0]
            assert call(one, two, two) == [10.0, 1.0, 2.0, 2.0]
            assert call(one, two, one) == [100.0, 1.0, 2.0, 1.0]
            assert call(two, two, two) == [111.0, 2.0, 2.0, 2.0]

    def test_constants_are_part_of_the_key(self) -> None:
        call: Any = lambda k: lax.map(lambda v: v * k, jnp.arange(3))
        found = [call(k).dtype.name for k in (2, 2.0, True, 2)]
        assert found == ["int32", "float32", "int32", "int32"]
        assert lax.map.cache_info().misses == 3

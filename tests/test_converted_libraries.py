"""Closure conversion of what libraries hand to ``jax.lax``: state that no capture shows.

Each program is compared with the same program without fnintern, with other parameters at each call,
so that a program made for one situation and used in another shows as a wrong number.
"""

# mypy: disable-error-code="misc,untyped-decorator,attr-defined,unused-ignore"

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import test_util

import fnintern
from fnintern import lax

X = np.arange(3, dtype=np.float32)
TABLE = jnp.float32(2.0)


def catches(x: Any) -> Any:
    try:
        scale = float(TABLE)
    except Exception:
        scale = 100.0
    return scale * x


def catches_anything(x: Any) -> Any:
    try:
        scale = float(TABLE)
    except:  # noqa: E722
        scale = 100.0
    return scale * x


def suppresses(x: Any) -> Any:
    scale = 100.0
    with contextlib.suppress(Exception):
        scale = float(TABLE)
    return scale * x


def asks(x: Any) -> Any:
    return x * (100.0 if isinstance(TABLE, jax.core.Tracer) else 1.0)


@pytest.mark.parametrize("f", [catches, catches_anything, suppresses, asks])
def test_s1_what_may_tell_a_tracer_from_an_array_gets_the_array(
    f: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lax.map.cache_clear()
    for number in (2.0, 3.0):
        monkeypatch.setitem(globals(), "TABLE", jnp.float32(number))
        for _ in range(2):
            np.testing.assert_array_equal(lax.map(f, X), jax.lax.map(f, X))
    info = lax.map.cache_info()
    # A program in which the value of the array is read is for that array alone.
    reads = f is not asks
    assert (info.hits, info.misses, info.bypassed) == ((2, 2, 0) if reads else (3, 1, 0))
    assert fnintern.explain(f).unconverted is None


def under_context(x: Any) -> Any:
    with jax.named_scope("scaled"):
        try:
            return TABLE * x
        finally:
            pass


def test_contexts_and_finally_are_converted() -> None:
    lax.map.cache_clear()
    np.testing.assert_array_equal(lax.map(under_context, X), 2.0 * X)
    assert lax.map.cache_info().misses == 1


Apply = Callable[[Any, Any, int], Any]


def compared(init: Callable[[], Any], apply: Apply, compiled: int = 0) -> None:
    """Runs a program over several parameters and inputs, without and with ``patch_jax()``."""
    variables = init()
    settings = [
        (jax.tree.map(lambda a, i=i: a + 0.1 * i, variables), jnp.ones(3) * 0.1 * (i + 1), i)
        for i in range(4)
    ]
    expected = [apply(*setting) for setting in settings]
    with fnintern.patch_jax():
        found = [apply(*setting) for setting in settings]
        with test_util.count_jit_and_pmap_lowerings() as count:
            found += [apply(*setting) for setting in settings]
            compilations = count()
    for result, right in zip(found, expected + expected, strict=True):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), result, right)
    assert compilations == compiled


class Counting(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        self.variable("state", "n", lambda: jnp.zeros(()))

        def up(m: Any, x: Any) -> Any:
            m.variable("state", "n", lambda: jnp.zeros(())).value += 1.0
            return x * 2

        return nn.cond(x.sum() > 0, up, lambda m, x: x, self, x)


class Branching(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        a, b = nn.Dense(3), nn.Dense(3)
        a(x), b(x)
        return nn.cond(x.sum() > 0.5, lambda m, x: a(x), lambda m, x: b(x), self, x)


class Looping(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        self.variable("state", "n", lambda: jnp.zeros(()))

        def more(m: Any, x: Any) -> Any:
            return m.get_variable("state", "n") < 3

        def step(m: Any, x: Any) -> Any:
            m.put_variable("state", "n", m.get_variable("state", "n") + 1)
            return x * 2

        return nn.while_loop(more, step, self, x, carry_variables="state")


class Recurrent(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.RNN(nn.GRUCell(3))(jnp.ones((2, 4, 3)) * x)


class Repeating(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        dense = nn.Dense(3)
        dense(x)
        return jax.lax.fori_loop(0, 3, lambda i, x: dense(x), x)


class Layer(nn.Module):
    @nn.compact
    def __call__(self, x: Any, _: Any) -> Any:
        return nn.Dense(3)(x), None


Layers = nn.scan(Layer, variable_axes={"params": 0}, split_rngs={"params": True}, length=3)


class Deep(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        return Layers()(x, None)[0]


class Adopting(nn.Module):
    """Modules made outside become its own in ``setup``, one of them under two names."""

    def setup(self) -> None:
        cell, dense = nn.GRUCell(3, parent=None), nn.Dense(3, parent=None)
        self.rnn = nn.RNN(cell)
        self.first, self.second = dense, dense

    def __call__(self, x: Any) -> Any:
        self.first(x)
        y = self.rnn(jnp.ones((2, 4, 3)) * x).sum((0, 1))
        return jax.lax.fori_loop(0, 3, lambda i, x: self.first(x) - self.second(x) + x, y)


class BothWays(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        forward, backward = nn.RNN(nn.GRUCell(3)), nn.RNN(nn.GRUCell(3))
        return nn.Bidirectional(forward, backward)(jnp.ones((2, 4, 3)) * x)


LINEN = [Counting, Branching, Looping, Recurrent, Repeating, Deep, Adopting, BothWays]


@pytest.mark.parametrize("module", LINEN)
def test_linen_transforms_compile_once(module: Any) -> None:
    model = module()
    compared(
        lambda: model.init(jax.random.key(0), jnp.ones(3)),
        lambda variables, x, i: model.apply(variables, x, mutable=["state"]),
    )


class Noisy(nn.Module):
    """Draws in the body: the scope that it captures counts what was drawn."""

    @nn.compact
    def __call__(self, carry: Any, x: Any) -> Any:
        return nn.Dropout(0.5, deterministic=False)(carry + x), None


NoisyScan = nn.scan(Noisy, variable_broadcast="params", split_rngs={"dropout": True})


def test_linen_keys_that_a_body_draws_are_counted() -> None:
    """A trace that changes what it captures is not converted; the numbers are the same."""

    def apply(i: int) -> Any:
        return NoisyScan().apply({}, jnp.ones(3), X, rngs={"dropout": jax.random.key(i)})[0]

    expected = [apply(i) for i in range(3)]
    with fnintern.patch_jax():
        np.testing.assert_array_equal([apply(i) for i in range(3)], expected)


@pytest.fixture
def hk() -> Any:
    return pytest.importorskip("haiku")


def haiku_programs(hk: Any) -> dict[str, Callable[[Any], Any]]:
    def cond(x: Any) -> Any:
        a, b = hk.Linear(3), hk.Linear(3)
        a(x), b(x)
        return hk.cond(x.sum() > 0.5, a, b, x)

    def scan(x: Any) -> Any:
        linear = hk.Linear(3)
        linear(x)
        return hk.scan(lambda c, a: (linear(c) + a, None), x, jnp.ones((4, 3)))[0]

    def fori_loop(x: Any) -> Any:
        linear = hk.Linear(3)
        linear(x)
        return hk.fori_loop(0, 3, lambda i, c: linear(c), x)

    def names(x: Any) -> Any:
        class Block(hk.Module):
            def __call__(self, x: Any) -> Any:
                linear = hk.Linear(3, name="same")
                linear(x)
                return hk.cond(True, lambda x: linear(x) * 2, lambda x: x, x)

        return Block("a")(x) + 3 * Block("b")(x)

    def keys(x: Any) -> Any:
        return hk.cond(
            True, lambda x: x + jax.random.normal(hk.next_rng_key(), (3,)), lambda x: x, x
        )

    def state(x: Any) -> Any:
        hk.get_state("n", (), jnp.int32, init=jnp.zeros)

        def step(i: Any, x: Any) -> Any:
            hk.set_state("n", hk.get_state("n") + 1)
            return x * 2

        return hk.fori_loop(0, 3, step, x), hk.get_state("n")

    def unrolled(x: Any) -> Any:
        core = hk.GRU(3)
        return hk.dynamic_unroll(core, jnp.ones((5, 2, 3)) * x, core.initial_state(2))[0]

    return {f.__name__: f for f in (cond, scan, fori_loop, keys, state, unrolled)} | {
        "names": names
    }


@pytest.mark.parametrize(
    "name", ["cond", "scan", "fori_loop", "keys", "state", "unrolled", "names"]
)
def test_haiku_transforms_compile_once(hk: Any, name: str) -> None:
    transformed = hk.transform_with_state(haiku_programs(hk)[name])
    state: Any = None

    def init() -> Any:
        nonlocal state
        params, state = transformed.init(jax.random.key(0), jnp.ones(3))
        return params

    compared(init, lambda params, x, i: transformed.apply(params, state, jax.random.key(i), x))


def test_haiku_getters_are_obeyed(hk: Any) -> None:
    def double(next_getter: Any, value: Any, context: Any) -> Any:
        return 2 * next_getter(value)

    def f(x: Any, doubled: bool) -> Any:
        def body() -> Any:
            return hk.fori_loop(0, 2, lambda i, c: c + hk.get_parameter("w", (), init=jnp.ones), x)

        if not doubled:
            return body()
        with hk.custom_getter(double):
            return body()

    transformed = hk.without_apply_rng(hk.transform(f))
    params = {"~": {"w": jnp.float32(1.0)}}
    with fnintern.patch_jax():
        results = [float(transformed.apply(params, 0.0, doubled)) for doubled in (False, True) * 2]
    assert results == [2.0, 4.0, 2.0, 4.0]


def test_numpyro_handlers_are_obeyed() -> None:
    numpyro = pytest.importorskip("numpyro")
    from numpyro import distributions

    def program() -> Any:
        return jax.lax.map(
            lambda x: numpyro.sample("z", distributions.Normal(x, 1.0), rng_key=jax.random.key(0)),
            X,
        )

    def results() -> list[Any]:
        found = [program()]
        for value in (1.0, 2.0):
            with numpyro.handlers.substitute(data={"z": jnp.float32(value)}):
                found.append(program())
        return [*found, program()]

    expected = results()
    with fnintern.patch_jax():
        for found, right in zip(results(), expected, strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-6)

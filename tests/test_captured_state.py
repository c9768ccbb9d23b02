"""``patch_flax()`` where functions capture arrays, variables and modules of ``flax.nnx``.

What a fresh trace returns is returned (S1), after one trace; what a function changes in a module
that it captures reaches that module, as if it had been passed.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from flax.errors import TraceContextError

import fnintern

MODES: list[dict[str, bool]] = [{}, {"graph_updates": False}, {"graph": False}]
X = np.ones((1, 3), np.float32)


class Model(nnx.Module):  # type: ignore[misc]
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.linear = nnx.Linear(3, 3, rngs=rngs)
        self.calls = nnx.Variable(jnp.array(0))
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.linear(x)

    def step(self, x: Any) -> Any:
        self.calls[...] = self.calls[...] + 1
        return self.linear(x)


def model() -> Model:
    return Model(nnx.Rngs(0))


Program = Callable[..., Any]

#: Each reads a module and an array that its functions capture.
READING: dict[str, Program] = {
    "cond": lambda m, w, **kw: nnx.cond(w > 0, lambda x: m(x) * w, lambda x: x - w, X, **kw),
    "cond, method": lambda m, w, **kw: nnx.cond(w > 0, m.__call__, m.linear.__call__, X * w, **kw),
    "cond, variable": lambda m, w, **kw: nnx.cond(
        w > 0, lambda: m.linear.kernel[...] * w, lambda: m.linear.kernel[...], **kw
    ),
    "switch": lambda m, w, **kw: nnx.switch(1, [lambda x: x, lambda x: m(x) * w], X, **kw),
    "while_loop": lambda m, w, **kw: nnx.while_loop(
        lambda c: c[0] < 3, lambda c: (c[0] + 1, m(c[1]) * w), (0, X), **kw
    )[1],
    "fori_loop": lambda m, w, **kw: nnx.fori_loop(0, 3, lambda i, c: m(c) * w, X, **kw),
    "scan": lambda m, w, **kw: nnx.scan(
        lambda c, a: (m(c) * w + a, a), in_axes=(nnx.Carry, 0), **kw
    )(X, np.ones(3, np.float32))[0],
    "grad of cond": lambda m, w, **kw: nnx.grad(
        lambda m: nnx.cond(w > 0, lambda x: m(x) * w, lambda x: x, X, **kw).sum()
    )(m).linear.kernel[...],
}


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("name", READING)
def test_s1_captured_modules_and_arrays_trace_once(name: str, mode: dict[str, bool]) -> None:
    """Equal to the unpatched call, before and after the module changes, and compiled once."""
    from jax._src import test_util

    if name == "cond, method" and not mode:
        pytest.skip("flax takes a method of a module for an argument in the default mode")
    program = READING[name]
    m = model()
    with fnintern.patch_flax():
        results = [program(m, jnp.float32(w), **mode) for w in (3.0, 4.0, -1.0)]
        with test_util.count_jit_and_pmap_lowerings() as compiled:
            for w in (3.0, 4.0, -1.0):
                program(m, jnp.float32(w), **mode)
            compilations = compiled()
        m.linear.kernel[...] = m.linear.kernel[...] * 2.0
        changed = program(m, jnp.float32(3.0), **mode)
    assert compilations == 0
    jax.clear_caches()
    np.testing.assert_allclose(changed, program(m, jnp.float32(3.0), **mode), rtol=1e-5)
    m.linear.kernel[...] = m.linear.kernel[...] / 2.0
    jax.clear_caches()  # flax's own memo returns what it returned before the change
    for w, result in zip((3.0, 4.0, -1.0), results, strict=True):
        np.testing.assert_allclose(result, program(m, jnp.float32(w), **mode), rtol=1e-5)


#: Each changes a module that its functions capture: the program, and the count after one call.
CHANGING: dict[str, tuple[Program, int]] = {
    "cond": (lambda m, **kw: nnx.cond(True, lambda x: m.step(x), lambda x: x, X, **kw), 1),
    "cond, by keyword": (
        lambda m, **kw: nnx.cond(
            pred=True, true_fun=lambda: m.step(X), false_fun=lambda: jnp.asarray(X), **kw
        ),
        1,
    ),
    "switch": (lambda m, **kw: nnx.switch(1, [lambda x: x, lambda x: m.step(x)], X, **kw), 1),
    "while_loop": (
        lambda m, **kw: nnx.while_loop(
            lambda c: c[0] < 3, lambda c: (c[0] + 1, m.step(c[1])), (0, X), **kw
        ),
        3,
    ),
    "fori_loop": (lambda m, **kw: nnx.fori_loop(0, 3, lambda i, c: m.step(c), X, **kw), 3),
}


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("name", CHANGING)
def test_changes_reach_the_captured_module(name: str, mode: dict[str, bool]) -> None:
    """Where flax refuses the change, the module is passed; and the call traces once."""
    from jax._src import test_util

    program, calls = CHANGING[name]
    m = model()
    with pytest.raises(TraceContextError):
        program(m, **mode)
    with fnintern.patch_flax():
        program(m, **mode)
        assert m.calls[...] == calls
        program(m, **mode)
        with test_util.count_jit_and_pmap_lowerings() as compiled:
            for _ in range(3):
                program(m, **mode)
            assert compiled() == 0
    assert m.calls[...] == 5 * calls


def test_random_state_that_is_captured_advances() -> None:
    m = model()
    with fnintern.patch_flax():
        one, two = (
            nnx.cond(True, lambda: m.dropout(jnp.ones(64)), lambda: jnp.ones(64)) for _ in range(2)
        )
    passed = model()
    expected = [
        nnx.cond(True, lambda m: m.dropout(jnp.ones(64)), lambda m: jnp.ones(64), passed)
        for _ in range(2)
    ]
    np.testing.assert_array_equal(one, expected[0])
    np.testing.assert_array_equal(two, expected[1])


def test_graph_changes_reach_the_captured_module() -> None:
    m = model()

    def add(value: float) -> Callable[[], None]:
        def branch() -> None:
            m.extra = nnx.Param(jnp.full(2, value))

        return branch

    with fnintern.patch_flax():
        nnx.cond(True, add(1.0), add(0.0))
    np.testing.assert_array_equal(m.extra[...], jnp.ones(2))


def test_what_flax_refuses_otherwise_is_refused() -> None:
    """In tree mode a module may not be captured and passed at once; the error is flax's own."""
    m = model()

    def program() -> Any:
        return nnx.cond(
            True, lambda n, x: n(m.step(x)), lambda n, x: x, m, X, graph=False, graph_updates=False
        )

    with pytest.raises(TraceContextError):
        program()
    with fnintern.patch_flax():
        for _ in range(2):
            with pytest.raises(TraceContextError):
                program()
    assert m.calls[...] == 0


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_s3_nothing_that_was_captured_stays_alive(mode: dict[str, bool]) -> None:
    alive = []
    with fnintern.patch_flax():
        for name, program in READING.items():
            if name == "cond, method" and not mode:
                continue
            for _ in range(3):
                m = model()
                w = jnp.float32(2.0)
                program(m, w, **mode)
                alive += [(name, weakref.ref(m)), (name, weakref.ref(w))]
        del m, w
        gc.collect()
        assert [name for name, ref in alive if ref() is not None] == []

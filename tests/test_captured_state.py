"""``patch_flax()`` where functions capture arrays, variables and modules of ``flax.nnx``.

What a fresh trace returns is returned (S1), after one trace. What a function changes in a module
that it captures, flax refuses, and so it is refused under the patch (S4).
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
from lax_calls import assert_same

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


#: Each changes a module that its functions capture.
CHANGING: dict[str, Program] = {
    "cond": lambda m, **kw: nnx.cond(True, lambda x: m.step(x), lambda x: x, X, **kw),
    "cond, by keyword": lambda m, **kw: nnx.cond(
        pred=True, true_fun=lambda: m.step(X), false_fun=lambda: jnp.asarray(X), **kw
    ),
    "switch": lambda m, **kw: nnx.switch(1, [lambda x: x, lambda x: m.step(x)], X, **kw),
    "while_loop": lambda m, **kw: nnx.while_loop(
        lambda c: c[0] < 3, lambda c: (c[0] + 1, m.step(c[1])), (0, X), **kw
    ),
    "fori_loop": lambda m, **kw: nnx.fori_loop(0, 3, lambda i, c: m.step(c), X, **kw),
    "random state": lambda m, **kw: nnx.cond(
        True, lambda: m.dropout(jnp.ones(64)), lambda: jnp.ones(64), **kw
    ),
    "graph": lambda m, **kw: nnx.cond(
        True,
        lambda: setattr(m, "extra", nnx.Param(jnp.ones(2))),
        lambda: setattr(m, "extra", nnx.Param(jnp.zeros(2))),
        **kw,
    ),
}


def _failure(program: Program, mode: dict[str, bool]) -> tuple[str, int, Any]:
    """The text of the error that a program raises three times, and what its module is then."""
    m = model()
    texts = set()
    for _ in range(3):
        with pytest.raises(TraceContextError) as caught:
            program(m, **mode)
        texts.add(str(caught.value))
    (text,) = texts
    return text, int(m.calls[...]), nnx.state(m)


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("name", CHANGING)
def test_s4_a_change_of_what_is_captured_is_refused_as_by_flax(
    name: str, mode: dict[str, bool]
) -> None:
    """The same error at each call, and the module stays as it was."""
    text, calls, state = _failure(CHANGING[name], mode)
    with fnintern.patch_flax():
        own = _failure(CHANGING[name], mode)
    assert own[:2] == (text, calls) == (text, 0)
    assert_same(own[2], state)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_s1_the_captured_module_may_change_between_calls(mode: dict[str, bool]) -> None:
    """A counter, and the attributes of the module, as they are at each call."""
    with fnintern.patch_flax():
        m = model()
        for calls in range(3):
            m.calls[...] = jnp.array(calls)
            found = nnx.cond(True, lambda: m.calls[...] + 1, lambda: m.calls[...], **mode)
            assert int(found) == calls + 1
        m.extra = nnx.Param(jnp.ones(2))
        found = nnx.cond(True, lambda: len(vars(m)) + m.calls[...], lambda: m.calls[...], **mode)
        assert int(found) == len(vars(m)) + 2


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

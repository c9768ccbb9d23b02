"""JAX's modes and contexts mean for fnintern.lax what they mean for jax.lax."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lax_calls import CALLS, XS, assert_same, counted, lax, outcome

W = jnp.float32(1.25)

#: Mode -> a call that it matters to, if any does.
MODES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "disable_jit": (
        jax.disable_jit,
        lambda lax: lax.scan(lambda c, x: (c * W if float(x) > 1 else c, None), 1.0, XS)[0],
    ),
    "disable_jit cond": (
        jax.disable_jit,
        lambda lax: lax.cond(True, lambda: W, lambda: jnp.zeros(int("x"))),
    ),
    "checking_leaks": (
        jax.checking_leaks,
        lambda lax: lax.scan(lambda c, x: (c * W + x, None), 1.0, XS)[0],
    ),
    "debug_nans": (
        lambda: jax.debug_nans(True),
        lambda lax: lax.map(lambda x: jnp.log(-x * W), XS),
    ),
    "debug_nans without": (
        lambda: jax.debug_nans(True),
        lambda lax: lax.map(lambda x: jnp.log(x * W), XS),
    ),
    "debug_infs": (
        lambda: jax.debug_infs(True),
        lambda lax: lax.map(lambda x: W / (x - 1), XS),
    ),
    "log_compiles": (
        lambda: jax.log_compiles(False),
        lambda lax: lax.map(lambda x: W * x, XS),
    ),
    "numpy_rank_promotion": (
        lambda: jax.numpy_rank_promotion("raise"),
        lambda lax: lax.scan(lambda c, x: (c + x * W, None), jnp.zeros((3, 3)), XS[None])[0],
    ),
    "default_matmul_precision": (
        lambda: jax.default_matmul_precision("float32"),
        lambda lax: lax.map(lambda x: x @ x * W, jnp.ones((2, 3))),
    ),
    "numpy_dtype_promotion": (
        lambda: jax.numpy_dtype_promotion("strict"),
        lambda lax: lax.map(lambda x: x + jnp.int32(1), XS),
    ),
    "default_device": (
        lambda: jax.default_device(jax.devices()[0]),
        lambda lax: lax.map(lambda x: x * W, np.arange(3.0)),
    ),
    "named_scope": (
        lambda: jax.named_scope("name"),
        lambda lax: lax.map(lambda x: x * W, XS),
    ),
    "default_prng_impl": (
        lambda: jax.default_prng_impl("rbg"),
        lambda lax: lax.map(lambda x: x + jax.random.uniform(jax.random.key(0)), XS),
    ),
    "enable_custom_prng": (
        lambda: jax.enable_custom_prng(True),
        lambda lax: lax.map(lambda x: jax.random.split(jax.random.PRNGKey(0)), XS),
    ),
    "x64": (
        lambda: jax.enable_x64(True),
        lambda lax: lax.map(lambda x: x + np.float64(1), np.arange(3.0)),
    ),
    "ensure_compile_time_eval": (
        jax.ensure_compile_time_eval,
        lambda lax: lax.map(lambda x: x * W, XS),
    ),
}  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
def test_mode(mode: str) -> None:
    """On and off in turn, with the functions of one piece of code."""
    enter, call = MODES[mode]
    for on in (False, True, False, True):
        with enter() if on else contextlib.nullcontext():
            expected, error = outcome(lambda: call(jax.lax))
            found, own = outcome(lambda: call(lax))
        assert own is error
        assert_same(found, expected)


@pytest.mark.parametrize("guard", ["allow", "disallow", "disallow_explicit"])
def test_transfer_guard(guard: str) -> None:
    zero = jnp.float32(0.0)
    calls: list[Any] = [
        lambda lax: lax.scan(lambda c, x: (c + W * x, None), zero, XS)[0],
        lambda lax: lax.cond(zero > 1, lambda: W, lambda: XS[0]),
        lambda lax: lax.map(lambda x: x * W, XS),
    ]
    for call in calls:
        for _ in range(2):
            with jax.transfer_guard(guard):
                _, error = outcome(lambda: call(jax.lax))
                _, own = outcome(lambda: call(lax))
            assert own is error


@pytest.mark.parametrize(
    "mode",
    [jax.disable_jit, jax.checking_leaks, lambda: jax.debug_nans(True),
     lambda: jax.debug_infs(True)],
)  # fmt: skip
@pytest.mark.parametrize("name", CALLS)
def test_steps_aside(mode: Any, name: str) -> None:
    """Where each operation is to run on its own, or is watched, nothing is converted."""
    op = getattr(lax, name.split()[0])
    before = op.cache_info()
    with mode():
        found = CALLS[name](lax, W, XS)
        expected = CALLS[name](jax.lax, W, XS)
    assert op.cache_info() == before
    assert_same(found, expected)


def test_no_tracer_leaks() -> None:
    """jax.checking_leaks() around calls that have been converted, and are again after it."""
    call: Any = lambda: lax.scan(lambda c, x: (c * W + x, None), 1.0, XS)[0]
    expected = call()
    for _ in range(2):
        with jax.checking_leaks():
            assert_same(call(), expected)
            jax.jit(lambda w: lax.scan(lambda c, x: (c * w + x, None), 1.0, XS)[0])(W)
        assert counted(call) == (0, 0, 0)


def test_a_program_of_one_mode_is_not_used_in_another() -> None:
    """The shape of the error, and of the result, are those of the mode at hand."""
    call: Any = lambda: lax.map(lambda x: x + jnp.ones((1, 1)), XS)
    assert call().shape == (3, 1, 1)
    with jax.numpy_rank_promotion("raise"):
        assert outcome(lambda: lax.map(lambda x: x + jnp.ones(2), XS[:, None]))[1] is None
        assert outcome(lambda: lax.map(lambda x: x[None] + jnp.ones((2, 2)), XS))[1] is ValueError
    assert call().shape == (3, 1, 1)
    with jax.enable_x64(True):
        assert lax.fori_loop(0, 3, lambda i, c: c + i, 0).dtype == jnp.int64
    assert lax.fori_loop(0, 3, lambda i, c: c + i, 0).dtype == jnp.int32


def test_log_compiles_says_nothing_of_a_hit(caplog: Any) -> None:
    call: Any = lambda: lax.map(lambda x: x * W + 3, XS)
    with caplog.at_level(logging.DEBUG, logger="jax"):
        with jax.log_compiles():
            call()
        assert "Compiling" in caplog.text
        caplog.clear()
        with jax.log_compiles():
            call()
        assert "Compiling" not in caplog.text


def test_in_an_eval_context_inside_of_jit() -> None:
    """Concrete values stay concrete, and tracers of the trace around are refused as by jax."""

    def f(x: Any, lax: Any) -> Any:
        with jax.ensure_compile_time_eval():
            known = lax.map(lambda v: v * W, XS)
        assert not isinstance(known, jax.core.Tracer)
        return known * x

    for _ in range(2):
        assert_same(jax.jit(lambda x: f(x, lax))(2.0), jax.jit(lambda x: f(x, jax.lax))(2.0))


def test_profiler_annotations_and_source_locations_survive() -> None:
    def named(lax: Any) -> str:
        f = jax.jit(lambda w: lax.map(lambda x: jnp.sin(x * w), XS))
        return str(f.lower(W).as_text(debug_info=True))

    assert "test_lax_modes.py" in named(lax)
    assert named(lax).count("sine") == named(jax.lax).count("sine")

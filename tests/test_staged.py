"""fnintern.staged: any higher-order function, converted."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fnintern
from fnintern import CacheInfo, staged
from lax_calls import XS, Node, assert_same, counted, outcome

NONE = (0, 0, 0)
W = jnp.float32(2.0)


def iterate(f: Any, x: Any, times: int = 2, *, scale: Any = 1.0) -> Any:
    """Calls a function again and again."""
    for _ in range(times):
        x = f(x) * scale
    return x


class TestFace:
    def test_looks_like_the_function(self) -> None:
        made: Any = staged(iterate, static_argnames="times")
        assert made.__name__ == "iterate"
        assert made.__doc__ == iterate.__doc__
        assert made.__module__ == __name__
        assert made.__wrapped__ is iterate
        assert inspect.signature(made) == inspect.signature(iterate)
        assert "iterate" in repr(made)

    def test_as_a_decorator(self) -> None:
        @staged
        def twice(f: Any, x: Any) -> Any:
            return f(f(x))

        @functools.partial(staged, static_argnames=("n",))
        def times(f: Any, x: Any, n: int) -> Any:
            return iterate(f, x, n)

        assert int(twice(lambda x: x + 1, 1)) == 3
        assert int(times(lambda x: x + 1, 1, 5)) == 6

    def test_as_a_method(self) -> None:
        class Solver:
            rate = 0.5

            @staged
            def run(self, f: Any, x: Any) -> Any:
                return x - self.rate * f(x)

        solver = Solver()
        for w in (W, W + 1):
            assert float(solver.run(lambda x: x * w, 1.0)) == 1 - 0.5 * float(w)
        solver.rate = 0.25
        assert float(solver.run(lambda x: x * W, 1.0)) == 0.5
        info = Solver.run.cache_info()
        assert (info.misses, info.hits) == (2, 1)

    def test_counts(self) -> None:
        made: Any = staged(iterate, static_argnames="times")
        changed: list[Any] = []
        assert made.cache_info() == CacheInfo(0, 0, 0, 0, 128)
        for w in (W, W + 1):
            made(lambda x: x * w, 1.0)
        made(lambda x: (changed.append(x) or x) * W * len(changed), 1.0)  # type: ignore[func-returns-value]
        made(None, 1.0, times=0)
        assert made.cache_info() == CacheInfo(hits=1, misses=2, bypassed=1, currsize=3, maxsize=128)
        made.cache_clear()
        assert made.cache_info() == CacheInfo(0, 0, 0, 0, 128)

    @pytest.mark.parametrize("op", [1, None, "text"])
    def test_not_callable(self, op: Any) -> None:
        with pytest.raises(TypeError, match="staged expects a function of functions"):
            staged(op)

    def test_unknown_static_parameter(self) -> None:
        with pytest.raises(ValueError, match="'nonsense', which is no parameter"):
            staged(iterate, static_argnames="nonsense")
        staged(lambda f, **options: f(options), static_argnames="anything")


class TestArguments:
    @pytest.mark.parametrize(
        "call",
        [
            lambda op: op(lambda x: x * W, 1.0, 3),
            lambda op: op(lambda x: x * W, 1.0, times=3),
            lambda op: op(lambda x: x * W, x=1.0, scale=2),
            lambda op: op(f=lambda x: x * W, x=1.0, scale=np.float32(2)),
            lambda op: op(lambda x: x * W, XS, scale=XS),
            lambda op: op(lambda x: x * W, 1.0, np.int8(2)),
            lambda op: op(lambda x: {"a": x["a"] * W, "n": None}, {"a": 1.0, "n": None}, 0),
            lambda op: op(lambda x: x * W),
            lambda op: op(lambda x: x * W, 1.0, nonsense=1),
            lambda op: op(lambda x: x * W, 1.0, 2, 3),
            lambda op: op(lambda x: x * W, 1.0, "text"),
            lambda op: op("text", 1.0),
            lambda op: op(None, 1.0),
        ],
    )
    def test_returns_or_raises_the_same(self, call: Any) -> None:
        made = staged(iterate, static_argnames="times")
        expected, error = outcome(lambda: call(iterate))
        for _ in range(2):
            found, own = outcome(lambda: call(made))
            assert own is error
            assert_same(found, jax.tree.map(jnp.asarray, expected))

    def test_strings_dtypes_and_none_are_part_of_the_key(self) -> None:
        @staged
        def cast(f: Any, x: Any, dtype: Any, mode: Any) -> Any:
            x = f(x).astype(dtype)
            return x if mode is None else {mode: x}

        def call(dtype: Any, mode: Any) -> Any:
            return cast(lambda x: x * W, XS, dtype, mode)

        for _ in range(2):
            assert call(jnp.int32, None).dtype == jnp.int32
            assert call(np.dtype("float16"), None).dtype == jnp.float16
            assert list(call("int8", "name")) == ["name"]
            assert list(call("int8", "other")) == ["other"]
        info = cast.cache_info()
        assert (info.hits, info.misses, info.bypassed) == (4, 4, 0)

    def test_scalars_stay_weakly_typed(self) -> None:
        add: Any = staged(lambda f, x, y: f(x) + y)
        for y in (1, 1.0, True):
            found = add(lambda x: x, jnp.float16(1.0), y)
            assert found.dtype == jnp.float16
            assert_same(found, (lambda x: x)(jnp.float16(1.0)) + y)

    def test_pytrees_of_functions_and_arrays(self) -> None:
        @staged
        def run(layers: Any, x: Any) -> Any:
            for layer in layers:
                x = layer["f"](layer["w"], x)
            return x

        def call(w: Any) -> Any:
            make: Any = lambda k: {"f": lambda u, x: u * x * k, "w": w, "name": "layer"}
            return run([make(W), Node(make(w)).array], 1.0)

        assert float(call(jnp.float32(3.0))) == 54.0
        arrays = [jnp.float32(i) for i in range(5)]
        assert counted(lambda: call(arrays.pop())) == NONE

    def test_without_any_function(self) -> None:
        made: Any = staged(lambda x: x + 1)
        assert float(made(1.0)) == 2.0
        assert made.cache_info().bypassed == 1

    def test_static_and_traced(self) -> None:
        """A static parameter that is being traced is an operand, as without fnintern."""
        made: Any = staged(lambda f, n, x: f(x) * n, static_argnames="n")
        assert jax.vmap(lambda n: made(lambda x: x * W, n, 1.0))(XS).tolist() == [2.0, 4.0, 6.0]
        assert float(jax.grad(lambda n: made(lambda x: x * W, n, 1.0))(3.0)) == 2.0

    def test_the_values_of_static_arguments_are_what_they_are(self) -> None:
        seen: list[type] = []
        note: Any = fnintern.stateless(lambda value: seen.append(type(value)))

        @functools.partial(staged, static_argnames="n")
        def op(f: Any, n: Any) -> Any:
            note(n)
            return f(1.0)

        weak, strong = jnp.asarray(1), jnp.int8(1)
        for value in (1, 1.0, True, np.int8(2), strong, weak + 1, (1, "x"), None):
            op(lambda x: x * W, value)
        assert seen == [int, float, bool, np.int8, np.int8, int, tuple, type(None)]


class TestOthersOperations:
    """Higher-order functions that are not of jax.lax."""

    @pytest.mark.parametrize(
        ("op", "static", "call"),
        [
            (jax.lax.scan, (), lambda op, w: op(lambda c, x: (c * w + x, c), 0.0, XS)),
            (lambda f, x: jax.grad(f)(x), (), lambda op, w: op(lambda x: x**3 * w, 2.0)),
            (lambda f, x: jax.vmap(f)(x), (), lambda op, w: op(lambda x: x * w, XS)),
            (lambda f, x: jax.jvp(f, (x,), (x,)), (), lambda op, w: op(lambda x: x**2 * w, 2.0)),
            (lambda f, x: jax.vjp(f, x)[1](x), (), lambda op, w: op(lambda x: x**2 * w, 2.0)),
            (lambda f, x: jax.hessian(f)(x), (), lambda op, w: op(lambda x: x**3 * w, 2.0)),
            (jax.numpy.apply_along_axis, ("axis",), lambda op, w: op(lambda r: r * w, 0, XS)),
            (jax.scipy.sparse.linalg.cg, (), lambda op, w: op(lambda v: v * w, XS)[0]),
            (jnp.piecewise, (), lambda op, w: op(XS, [XS > 2, XS < 2], [lambda x: x * w, -1, 0.5])),
        ],
    )
    def test_agrees_and_hits(self, op: Any, static: Any, call: Any) -> None:
        made = staged(op, static_argnames=static)
        arrays = iter([jnp.float32(1.5 + i) for i in range(10)])
        for number in (1.5, 2.5):
            assert_same(call(made, next(arrays)), call(op, jnp.float32(number)))
        assert counted(lambda: call(made, next(arrays))) == NONE

    def test_nested(self) -> None:
        outer, inner = staged(jax.lax.map), staged(jax.lax.scan)
        f: Any = lambda w: lambda x: inner(lambda c, y: (c * w + y, None), x, XS)[0]
        arrays = iter([jnp.float32(1.5 + i) for i in range(10)])
        for number in (1.5, 2.5):
            expected = jax.lax.map(f(jnp.float32(number)), XS)
            assert_same(outer(f(next(arrays)), XS), expected)
        assert counted(lambda: outer(f(next(arrays)), XS)) == NONE

    def test_staged_twice(self) -> None:
        made = staged(staged(iterate))
        for w in (W, W + 1):
            assert_same(made(lambda x: x * w, 1.0), w * w)

    def test_that_captures_a_staged_operation(self) -> None:
        def make(k: int) -> Any:
            return staged(lambda f, x: f(x) * k)

        outer: Any = staged(lambda f, x: f(x))
        results = []
        for k in (2, 3):
            inner = make(k)
            results.append(float(outer(lambda x: inner(lambda y: y * W, x), 1.0)))
        assert results == [4.0, 6.0]


def test_explain_of_functions_that_are_converted() -> None:
    f: Any = lambda x: x * W
    staged(iterate)(f, 1.0)
    assert fnintern.explain(f).unconverted is None
    assert "staged" not in str(fnintern.explain(f))

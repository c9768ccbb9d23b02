"""fnintern.jit is jax.jit, but for functions that are made anew at each call."""

from __future__ import annotations

import copy
import functools
import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fnintern
from lax_calls import XS, Node, assert_same, counted, jit, lax, outcome

NONE = (0, 0, 0)
W = jnp.float32(2.0)


class Model:
    def __init__(self, w: Any) -> None:
        self.w = w

    def __call__(self, x: Any) -> Any:
        return x * self.w

    def apply(self, x: Any) -> Any:
        return x * self.w


def scaled(w: Any, x: Any) -> Any:
    return x * w


#: What is jitted inside of a function that is called again and again, made anew over ``w``.
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "lambda": lambda w: lambda x: x * w,
    "partial": lambda w: functools.partial(scaled, w),
    "bound method": lambda w: Model(w).apply,
    "callable object": lambda w: Model(w),
    "grad": lambda w: jax.grad(lambda x: (x * w).sum()),
    "value_and_grad": lambda w: jax.value_and_grad(lambda x: (x * w).sum()),
    "vmap": lambda w: jax.vmap(lambda x: x * w),
    "grad of vmap": lambda w: jax.grad(lambda x: jax.vmap(lambda y: y * w)(x).sum()),
    "hessian": lambda w: jax.hessian(lambda x: (x**2 * w).sum()),
    "checkpoint": lambda w: jax.checkpoint(lambda x: jnp.sin(x * w)),
    "scan inside": lambda w: lambda x: lax.scan(lambda c, y: (c * w + y, c), 0.0, x),
    "jit inside": lambda w: lambda x: jit(lambda y: y * w)(x) * w,
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_made_anew_it_hits(kind: str) -> None:
    arrays = iter([jnp.float32(1.0 + i) for i in range(10)])

    def call() -> Any:
        return jit(FUNCTIONS[kind](next(arrays)))(XS)

    for number in (1.0, 2.0):
        assert_same(call(), jax.jit(FUNCTIONS[kind](jnp.float32(number)))(XS))
    assert counted(call) == NONE


def test_what_is_counted_can_be_seen() -> None:
    call: Any = lambda: jax.jit(lambda x: x * W)(XS)
    call()
    assert min(counted(call)) == 3


OPTIONS: list[dict[str, Any]] = [
    {},
    {"static_argnums": 1},
    {"static_argnums": (0, 1)},
    {"static_argnames": "b"},
    {"static_argnames": ("b", "c")},
    {"static_argnames": ["c"]},
    {"static_argnums": 0, "static_argnames": "c"},
    {"donate_argnums": 0},
    {"donate_argnames": "a"},
    {"donate_argnums": (0, 1), "keep_unused": True},
    {"keep_unused": True},
    {"inline": True},
]

CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((1.0,), {}),
    ((1.0, 2), {}),
    ((1.0,), {"b": 4}),
    ((), {"a": 1.0, "b": 5, "c": 6}),
    ((1.0, 2), {"c": 7}),
    ((np.float64(1), np.int8(2)), {"c": 7.0}),
    ((), {}),
    ((1.0, 2, 3), {}),
    ((1.0,), {"d": 1}),
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_options(options: dict[str, Any]) -> None:
    results = []
    for module in (jax.jit, jit):
        made: Any = lambda module=module: module(
            lambda a, b=2, *, c=3: (a * b + c * W, b), **options
        )
        for args, kwargs in CALLS:
            for _ in range(2):
                results.append(outcome(lambda: made()(*args, **kwargs)))
    half = len(results) // 2
    for (expected, error), (found, own) in zip(results[:half], results[half:], strict=True):
        assert own is error
        assert_same(found, expected)


@pytest.mark.parametrize(
    "call",
    [
        lambda jit: [
            jit(lambda a, mode: a * W if mode == "x" else a - W, static_argnums=1)(1.0, m)
            for m in "xyx"
        ],
        lambda jit: jit(lambda a, mode: a * mode[0], static_argnums=1)(1.0, [2]),
        lambda jit: jit(lambda a, mode: a * mode[0], static_argnums=1)(1.0, (2, "x", None)),
        lambda jit: jit(lambda a, n: a * n, static_argnums=1)(1.0, jnp.float32(2)),
        lambda jit: jit(lambda a, n: a * n, static_argnums=1)(1.0, np.float32(2)),
        lambda jit: jit(lambda a, g: g(a) * W, static_argnums=1)(1.0, lambda x: x + 1),
        lambda jit: [
            jit(lambda a, n: a * n, static_argnums=1)(1, n) for n in (1, True, 1.0, np.int32(1))
        ],
        lambda jit: jit(lambda a, g: a, static_argnums=5)(1.0, 2),
        lambda jit: jit(lambda a, g: a, static_argnames="other")(1.0, 2),
        lambda jit: jit(lambda a, b: a * b * W, static_argnums=-1)(2.0, 3),
        lambda jit: jit(lambda *args: args[0] * args[1] * W, static_argnums=1)(1, 2),
        lambda jit: jit(lambda *args, **kwargs: sum(args) + kwargs["z"] * W)(1, 2, z=3),
        lambda jit: jit(lambda fun: fun * W)(fun=1.0),
        lambda jit: jit(lambda self, args, op: self * args + op)(self=1.0, args=2, op=3),
        lambda jit: jit(lambda a: W)("text"),
        lambda jit: jit(lambda a: W)(lambda: 1),
        lambda jit: jit(lambda: W)(),
        lambda jit: jit(lambda: None)(),
        lambda jit: jit(lambda: "text")(),
        lambda jit: jit(lambda: {"a": W, "b": [None, 1]})(),
        lambda jit: jit(lambda d: {"y": d["x"] * W, "n": None, "e": Node(d["e"][0])})(
            {"x": 1.0, "e": (np.float64(2), None)}
        ),
        lambda jit: jit(lambda key: jax.random.split(key))(jax.random.key(0)),
        lambda jit: jit(functools.partial(lambda a, n: a * n * W, n=3), static_argnames="n")(2.0),
        lambda jit: jit(jnp.sin)(XS),
        lambda jit: jit(complex)(1.0),
        lambda jit: jit(3)(1.0),
        lambda jit: jit(lambda x: x, nonsense=1)(1.0),
        lambda jit: jit(static_argnums=1)(lambda a, b: a * b)(2.0, 3),
        lambda jit: jit(lambda x: x * float(W))(1.0),
        lambda jit: jit(lambda x: float(x))(1.0),
        lambda jit: jit(lambda x: 1 // 0)(1.0),
        lambda jit: jit(jit(lambda x: x * W))(2.0),
        lambda jit: jax.vmap(lambda v: jit(lambda x: v * x)(v))(XS),
        lambda jit: [jax.grad(lambda v: jit(lambda x: v * x)(v))(k) for k in (1.0, 2.0)],
        lambda jit: jit(lambda x: x * W, out_shardings=_sharding())(XS),
        lambda jit: jit(lambda x: x * W, in_shardings=_sharding())(XS),
        lambda jit: jit(lambda x: x * W, compiler_options={})(1.0),
    ],
)  # fmt: skip
def test_returns_or_raises_the_same(call: Any) -> None:
    expected, error = outcome(lambda: call(jax.jit))
    for _ in range(2):
        found, own = outcome(lambda: call(jit))
        assert own is error
        assert_same(found, expected)


def _sharding() -> Any:
    return jax.sharding.SingleDeviceSharding(jax.devices()[0])


class TestMethods:
    def test_decorated(self) -> None:
        class Layer:
            scale = 3

            def __init__(self, w: Any) -> None:
                self.w = w

            @functools.partial(jit, static_argnums=0)
            def apply(self, x: Any) -> Any:
                return x * self.w * self.scale

            @jit  # type: ignore[untyped-decorator]
            def plain(self: Any, x: Any) -> Any:
                return x

        for number in (1.0, 2.0):
            layer = Layer(jnp.float32(number))
            assert float(layer.apply(2.0)) == number * 6
            assert float(Layer.apply(layer, 2.0)) == number * 6
            with pytest.raises(TypeError, match="Error interpreting argument"):
                layer.plain(2.0)
        layer.scale = 10
        assert float(layer.apply(2.0)) == 40.0

    def test_bound_methods_see_their_object_as_it_is(self) -> None:
        model = Model(W)
        found = []
        for number in (2.0, 3.0):
            model.w = jnp.float32(number)
            found.append(float(jit(model.apply)(1.0)))
        assert found == [2.0, 3.0]


class TestDonation:
    @pytest.mark.parametrize(
        "call",
        [
            lambda jit, a: jit(lambda x: x + W, donate_argnums=0)(a),
            lambda jit, a: jit(lambda y, x: x + y + W, donate_argnums=1)(1.0, a),
            lambda jit, a: jit(lambda x: x + W, donate_argnames="x")(x=a),
            lambda jit, a: jit(lambda x: x + W, donate_argnames="x")(a),
            lambda jit, a: jit(lambda y, x: x["a"] + y["b"], donate_argnums=1)({"b": W}, {"a": a}),
        ],
    )
    def test_arrays_are_given_away(self, call: Any) -> None:
        for _ in range(3):
            array = XS + 0
            assert_same(call(jit, array), call(jax.jit, XS + 0))
            assert array.is_deleted()

    def test_captures_are_not(self) -> None:
        for _ in range(2):
            captured, array = XS + 0, XS + 0
            jit(lambda x: x + captured, donate_argnums=0)(array)
            assert array.is_deleted()
            assert not captured.is_deleted()

    def test_an_array_that_is_gone(self) -> None:
        array = XS + 0
        array.delete()
        calls: list[Any] = [
            lambda jit: jit(lambda x: x + W)(array),
            lambda jit: jit(lambda: array + W)(),
        ]
        for call in calls:
            errors = [outcome(lambda: call(module))[1] for module in (jax.jit, jit)]
            assert errors == [RuntimeError, RuntimeError]


class TestStages:
    """``lower``, ``trace`` and ``eval_shape``."""

    def test_agree_with_jax(self) -> None:
        f: Any = lambda x: {"y": x * W}
        assert jit(f).lower(XS).as_text() == jax.jit(f).lower(XS).as_text()
        assert str(jit(f).trace(XS).jaxpr) == str(jax.jit(f).trace(XS).jaxpr)
        assert jit(f).eval_shape(XS) == jax.jit(f).eval_shape(XS)
        assert_same(jit(f).lower(XS).compile()(XS), f(XS))

    def test_the_rest_of_jaxs_face(self) -> None:
        jitted = jit(scaled)
        assert jitted.__name__ == "scaled"
        assert jitted.__wrapped__ is scaled
        assert jitted.__module__ == __name__
        jitted.clear_cache()
        with pytest.raises(AttributeError):
            jitted.nonsense  # noqa: B018

    def test_inside_of_a_trace(self) -> None:
        texts = []
        for module in (jax.jit, jit):
            f: Any = lambda x: module(lambda y: y * x)(x)
            texts.append(str(jax.make_jaxpr(f)(2.0)))
        assert texts[0] == texts[1]


class TestState:
    """What a jitted function sees and changes."""

    def test_captures_are_those_of_the_call(self) -> None:
        w = jnp.float32(1.0)
        jitted = jit(lambda x: x * w)
        assert float(jitted(2.0)) == 2.0
        w = jnp.float32(5.0)
        assert float(jitted(2.0)) == 10.0

    def test_one_function_that_changes_something(self) -> None:
        """Where jax.jit traces once, each call is traced: what the function sees has changed."""
        log: Any = []
        jitted = jit(lambda x: (log.append(1), x * W * len(log))[1])
        assert [float(jitted(1.0)) for _ in range(3)] == [2.0, 4.0, 6.0]
        assert log == [1, 1, 1]

    def test_functions_made_anew_that_change_something(self) -> None:
        logs: list[Any] = [[], []]
        for log, module in zip(logs, (jax.jit, jit), strict=True):
            for _ in range(3):
                module(lambda x: (log.append(1), x * W)[1])(1.0)
        assert logs[0] == logs[1] == [1, 1, 1]

    def test_errors_are_raised_once(self) -> None:
        def fail(x: Any) -> Any:
            raise LookupError("what happened")

        for _ in range(2):
            with pytest.raises(LookupError, match="what happened") as caught:
                jit(fail)(W)
            assert caught.value.__context__ is None

    def test_modes(self) -> None:
        with jax.disable_jit():
            assert float(jit(lambda x: x * W if float(x) > 1 else x)(2.0)) == 4.0
        with jax.debug_nans(True), pytest.raises(FloatingPointError):
            jit(lambda x: jnp.log(-x))(W)
        with jax.checking_leaks():
            assert float(jit(lambda x: x * W)(2.0)) == 4.0


def test_L1_nothing_stays_alive() -> None:
    def call(make: Callable[[Any], Any]) -> list[weakref.ref[Any]]:
        w, x = jnp.float32(2.0) + 0, XS + 0
        f = make(w)
        jitted = jit(f)
        for _ in range(2):
            jitted(x)
        return [weakref.ref(item) for item in (w, x, f, jitted)]

    for name, make in FUNCTIONS.items():
        if name == "hessian":
            continue
        alive = call(make)
        gc.collect()
        assert [ref() for ref in alive if ref() is not None] == [], name


@jit  # type: ignore[untyped-decorator]
def decorated(x: Any) -> Any:
    return x * 2 + 1


class TestCopies:
    def test_call_the_same(self) -> None:
        jitted = jit(scaled, static_argnums=0)
        for made in (
            copy.copy(jitted), copy.deepcopy(jitted), pickle.loads(pickle.dumps(jitted)),
        ):  # fmt: skip
            assert float(made(3, W)) == 6.0
            assert made.__wrapped__ is scaled

    def test_by_cloudpickle(self) -> None:
        made = cloudpickle.loads(cloudpickle.dumps(jit(lambda x: x * 3)))
        assert float(made(W)) == 6.0

    def test_of_a_decorated_function(self) -> None:
        """jax.jit's are found by their name."""
        assert pickle.loads(pickle.dumps(decorated)) is decorated
        assert copy.deepcopy([decorated])[0] is decorated


def test_a_captured_jit_is_what_it_wraps() -> None:
    def call(w: Any, k: Any) -> Any:
        inner = jit(lambda y: y * k * w)
        return lax.map(lambda x: inner(x), XS)

    for w in (W, W + 1):
        assert_same(call(w, 2), XS * 2 * w)
    assert_same(call(W, 3), XS * 3 * W)
    assert counted(lambda: call(W, 3)) == NONE


def test_signature_and_repr() -> None:
    import inspect

    assert list(inspect.signature(jit(scaled)).parameters) == ["w", "x"]
    assert "scaled" in repr(jit(scaled))
    assert fnintern.jit is jit

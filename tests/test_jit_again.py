"""`jax.jit` and its like under `patch_jax()`: jax's own for what is made once, shared for what is
made again, and the same meaning."""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import pickle
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fnintern
from lax_calls import counted

X = jnp.arange(3.0)
OWN = type(jax.jit(lambda x: x))


@pytest.fixture
def patched() -> Iterator[fnintern.Patch]:
    with fnintern.patch_jax() as patch:
        yield patch


def steady(call: Callable[[int], Any], warm: int = 2) -> tuple[Any, ...]:
    """What calls trace and compile once they are warm."""
    for i in range(warm):
        call(i)
    return counted(lambda: call(warm))


class Scaler:
    def __init__(self, k: float) -> None:
        self.k = k

    def __call__(self, x: Any) -> Any:
        return x * self.k

    def method(self, x: Any) -> Any:
        return x * self.k

    @functools.partial(jax.jit, static_argnums=0)
    def decorated(self, x: Any) -> Any:
        return x * self.k


def scaled(x: Any, k: float) -> Any:
    return x * k


def square(x: Any) -> Any:
    return jnp.sum(x * x)


#: What is written at the point of use, by the number of the call.
MADE: dict[str, Callable[[int], Any]] = {
    "lambda": lambda i: jax.jit(lambda x: x * 2.0)(X + i),
    "lambda over an array": lambda i: (lambda w: jax.jit(lambda x: x * w))(X * i)(X),
    "partial": lambda i: jax.jit(functools.partial(scaled, k=3.0))(X + i),
    "method": lambda i: jax.jit(Scaler(2.0).method)(X + i),
    "object": lambda i: jax.jit(Scaler(2.0))(X + i),
    "grad": lambda i: jax.jit(jax.grad(square))(X + i),
    "vmap": lambda i: jax.jit(jax.vmap(lambda x: x * 2.0))(X + i),
    "value_and_grad": lambda i: jax.jit(jax.value_and_grad(lambda x: jnp.sum(x**2)))(X + i)[1],
    "keyword": lambda i: jax.jit(lambda x, y: x + y)(X, y=X + i),
    "donated": lambda i: jax.jit(lambda x: x + 1.0, donate_argnums=0)(X + i),
    "static number": lambda i: jax.jit(lambda x, n: x * n, static_argnums=1)(X + i, 3),
    "static name": lambda i: jax.jit(lambda x, n: x * n, static_argnames="n")(X + i, n=3),
    "static function": lambda i: jax.jit(lambda f, x: f(x), static_argnums=0)(lambda x: x + 1, X),
    "static object": lambda i: jax.jit(lambda f, x: f(x), static_argnums=0)(
        functools.partial(scaled, k=2.0), X + i
    ),
    "decorator": lambda i: jax.jit(static_argnums=1)(lambda x, n: x * n)(X + i, 2),
    "checkpoint": lambda i: jax.grad(lambda x: jax.checkpoint(lambda v: jnp.sum(v * v))(x))(X + i),
    "eval_shape": lambda i: jax.eval_shape(lambda x: x[:2], X).shape[0] + X,
    "pmap": lambda i: jax.pmap(functools.partial(scaled, k=2.0))(X[None] + i),
    "pure_callback": lambda i: jax.pure_callback(lambda v: np.asarray(v) * 2, X, X + i),
}


@pytest.mark.parametrize("name", MADE)
def test_what_is_made_at_the_point_of_use_hits(name: str, patched: Any) -> None:
    traced, compiled, *_ = steady(MADE[name])
    assert (traced, compiled) == (0, 0)


@pytest.mark.parametrize("name", MADE)
def test_the_same_results(name: str) -> None:
    plain = [MADE[name](i) for i in range(4)]
    with fnintern.patch_jax():
        again = [MADE[name](i) for i in range(4)]
    for a, b in zip(plain, again, strict=True):
        np.testing.assert_array_equal(a, b)


def test_it_is_traced_anew_without_the_patch() -> None:
    traced, *_ = steady(MADE["lambda"])
    assert traced > 0


class TestMadeOnce:
    def test_it_is_the_object_of_jax(self, patched: Any) -> None:
        assert type(jax.jit(lambda x: x + 41.0)) is OWN

    def test_the_same_function_again_is_the_object_of_jax(self, patched: Any) -> None:
        def step(x: Any) -> Any:
            return x + 42.0

        assert type(jax.jit(step)) is OWN
        assert type(jax.jit(step)) is OWN

    def test_in_a_trace_it_is_the_object_of_jax(self, patched: Any) -> None:
        made = []

        @jax.jit  # type: ignore[untyped-decorator]
        def outer(x: Any) -> Any:
            for _ in range(2):
                made.append(jax.jit(lambda x: x * 2.0))
                x = made[-1](x)
            return x

        outer(X)
        assert {type(jitted) for jitted in made} == {OWN}


def made_again(make: Callable[[], Any]) -> Any:
    """What comes of the second of two."""
    make()
    jitted = make()
    assert type(jitted) is not OWN
    return jitted


class TestHeld:
    """A jitted function keeps, for each signature, what it captured when it ran first."""

    @pytest.mark.parametrize("again", [False, True])
    def test_a_held_one_keeps_what_it_captured(self, again: bool, patched: Any) -> None:
        scaler = Scaler(2.0)

        def make() -> Any:
            return jax.jit(lambda x: x * scaler.k)

        jitted = made_again(make) if again else make()
        assert jitted(X)[1] == 2.0
        scaler.k = 3.0
        assert jitted(X)[1] == 2.0  # as with jax.jit
        assert jitted(X[:2])[1] == 3.0  # another signature is traced now
        assert make()(X)[1] == 3.0  # and a new one reads anew

    def test_plainly(self) -> None:
        self.test_a_held_one_keeps_what_it_captured(False, None)

    def test_arrays(self, patched: Any) -> None:
        box = [X]

        def make() -> Any:
            def f(x: Any) -> Any:
                return x + box[0]

            return jax.jit(f)

        jitted = made_again(make)
        np.testing.assert_array_equal(jitted(X), X + X)
        box[0] = X * 10
        np.testing.assert_array_equal(jitted(X), X + X)
        np.testing.assert_array_equal(make()(X), X + X * 10)

    def test_clear_cache(self, patched: Any) -> None:
        scaler = Scaler(2.0)
        jitted = made_again(lambda: jax.jit(lambda x: x + scaler.k))
        jitted(X)
        scaler.k = 5.0
        jitted.clear_cache()
        assert jitted(X)[0] == 5.0

    def test_another_dtype_setting_is_another_trace(self, patched: Any) -> None:
        jitted = made_again(lambda: jax.jit(lambda x: x + jnp.arange(3)))
        jitted(np.arange(3))
        with jax.enable_x64(True):
            assert jitted(np.arange(3)).dtype == jnp.int64
        assert jitted(np.arange(3)).dtype == jnp.int32

    def test_a_number_and_what_is_computed_from_it_are_one_signature(self, patched: Any) -> None:
        traces = [0]

        def make() -> Any:
            def f(x: Any) -> Any:
                traces[0] += 1
                return x * 2

            return jax.jit(f)

        jitted = made_again(make)
        x = jitted(1.0)
        assert jitted(x) == 4.0
        assert jitted(jitted(np.float32(2.0)).item()) == 8.0
        assert traces[0] == 2  # weakly typed, and not


class TestFace:
    """What `jax.jit` returns can do, it can."""

    def test_lower_trace_and_eval_shape(self, patched: Any) -> None:
        jitted = made_again(lambda: jax.jit(lambda x: x * 7.0))
        assert jitted.lower(X).compile()(X)[1] == 7.0
        assert jitted.trace(X).jaxpr.eqns
        assert jitted.eval_shape(X).shape == (3,)

    def test_isinstance_names_and_signature(self, patched: Any) -> None:
        def make() -> Any:
            def named(x: Any, *, power: int = 2) -> Any:
                "What it does."
                return x**power

            return jax.jit(named, static_argnames="power")

        jitted = made_again(make)
        assert isinstance(jitted, OWN)
        assert (jitted.__name__, jitted.__doc__) == ("named", "What it does.")
        assert list(inspect.signature(jitted).parameters) == ["x", "power"]
        assert jitted(X, power=3)[2] == 8.0

    def test_copies_and_pickles(self, patched: Any) -> None:
        jitted = made_again(lambda: jax.jit(functools.partial(scaled, k=4.0)))
        for twin in (copy.copy(jitted), copy.deepcopy(jitted)):
            assert twin(X)[1] == 4.0
        with pytest.raises(Exception) as plain:  # noqa: PT011
            pickle.dumps(jitted._own)
        with pytest.raises(type(plain.value)):
            pickle.dumps(jitted)

    def test_jit_itself_pickles(self, patched: Any) -> None:
        for function in (jax.jit, jax.checkpoint, jax.pmap, jax.eval_shape, jax.pure_callback):
            assert pickle.loads(pickle.dumps(function)) is function

    def test_a_method_of_a_class_made_again(self, patched: Any) -> None:
        def make(k: float) -> Any:
            class Model:
                def __init__(self) -> None:
                    self.k = k

                @jax.jit  # type: ignore[untyped-decorator]
                def pure(x: Any) -> Any:
                    return x * 2.0

                @functools.partial(jax.jit, static_argnums=0)
                def step(self, x: Any) -> Any:
                    return x * self.k

            return Model

        for k in (2.0, 3.0, 4.0):
            model = make(k)
            assert model.pure(X)[1] == 2.0
            assert model().step(X)[1] == k

    def test_errors_are_those_of_jax(self) -> None:
        def fail(x: Any) -> Any:
            return jax.jit(lambda x: x + jnp.ones(7))(x)

        with pytest.raises(TypeError) as plain:
            fail(X)
        with fnintern.patch_jax():
            for _ in range(3):
                with pytest.raises(TypeError) as again:
                    fail(X)
        assert str(plain.value) == str(again.value)

    def test_an_option_that_is_none(self, patched: Any) -> None:
        with pytest.raises(TypeError, match="static_argnum"):
            jax.jit(lambda x: x, static_argnum=0)
        with pytest.raises(TypeError, match="static_argnum"):
            jax.jit(static_argnum=0)

    def test_unhashable_static(self, patched: Any) -> None:
        for _ in range(3):
            with pytest.raises(ValueError, match=r"[Nn]on-hashable"):
                jax.jit(lambda x, n: x, static_argnums=1)(X, [1])

    def test_deleted_argument(self, patched: Any) -> None:
        jitted = made_again(lambda: jax.jit(lambda x: x * 2.0))
        jitted(X)
        gone = X + 1
        gone.delete()
        with pytest.raises(RuntimeError, match="deleted"):
            jitted(gone)

    def test_donation(self, patched: Any) -> None:
        for _ in range(4):
            given = X + 1.0
            jax.jit(lambda x: x * 2.0, donate_argnums=0)(given)
            assert given.is_deleted()

    def test_under_grad_and_vmap(self, patched: Any) -> None:
        for i in range(4):
            w = X + i
            value = jax.grad(lambda x: jnp.sum(jax.jit(lambda v: v * w)(x)))(X)
            np.testing.assert_array_equal(value, w)
            value = jax.vmap(lambda x: jax.jit(lambda v: v * w)(x))(jnp.ones((2, 3)))
            np.testing.assert_array_equal(value, jnp.stack([w, w]))


def test_a_profile_shows_the_name_of_the_function(patched: Any) -> None:
    jitted = made_again(lambda: jax.jit(functools.partial(scaled, k=4.5)))
    jitted(X)
    (kept,) = jitted._kept.values()
    assert kept._jitted.__name__ == "scaled"


class TestLifetime:
    """What is captured goes with the jitted function (L1)."""

    @pytest.mark.parametrize("calls", [1, 3])
    def test_captures_go(self, calls: int, patched: Any) -> None:
        refs = []
        for i in range(calls):
            w = X * i
            refs.append(weakref.ref(w))
            jax.jit(functools.partial(jnp.add, w))(X)
            jax.jit((lambda w: lambda x: x + w)(w))(X)
            del w
        gc.collect()
        assert [ref() for ref in refs[1:]] == [None] * (calls - 1)

    def test_programs_are_bounded(self, patched: Any) -> None:
        jitted = made_again(lambda: jax.jit(lambda x: x * 2.0))
        for n in range(1, 140):
            jitted(np.ones(n, np.float32))
        assert len(jitted._kept) <= 128


class TestReplacedEverywhere:
    def test_modules_that_took_it_by_name(self) -> None:
        import types

        from fnintern.patches import patching

        module = types.ModuleType("made_for_this_test")
        module.jit = own = jax.jit  # type: ignore[attr-defined]
        module.other = jax.jit  # type: ignore[attr-defined]
        import sys

        sys.modules[module.__name__] = module
        late = types.ModuleType("imported_later")
        try:
            with fnintern.patch_jax() as patch:
                assert module.jit is jax.jit is not own
                assert module.other is own  # kept under another name on purpose, it may be
                assert patching.bare(jax.jit) is own
                sys.modules[late.__name__] = late
                late.jit = jax.jit  # type: ignore[attr-defined]
                assert f"{module.__name__}.jit" in patch.report
            assert module.jit is late.jit is jax.jit is own
        finally:
            del sys.modules[module.__name__]
            sys.modules.pop(late.__name__, None)


class Holder:
    def __init__(self, ref: Any) -> None:
        self.ref = ref

    def write(self, x: Any) -> Any:
        self.ref[...] = x + 1.0
        return x


@pytest.mark.parametrize("where", ["closure", "attribute"])
def test_a_ref_that_is_only_written_to(where: str, patched: Any) -> None:
    for i in range(4):
        ref = jax.new_ref(X * 0.0)

        def write(x: Any) -> Any:
            ref[...] = x + 1.0
            return x

        jax.jit(write if where == "closure" else Holder(ref).write)(X * i)
        np.testing.assert_array_equal(ref[...], X * i + 1.0)


def test_static_argnums_zero(patched: Any) -> None:
    for i in range(4):

        @functools.partial(jax.jit, static_argnums=0)
        def call(f: Any, x: Any) -> Any:
            return f(x)

        for k in (i, i + 1):
            np.testing.assert_array_equal(call(lambda x: x * k, X), X * k)

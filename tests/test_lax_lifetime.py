"""Laws L1 to L5 and C1, C2 for programs: nothing kept alive, a bound, threads, fork, copies."""

from __future__ import annotations

import copy
import functools
import gc
import os
import pickle
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import cloudpickle
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fnintern
from fnintern.staging import programs
from fnintern.staging.operations import stage
from lax_calls import CALLS, XS, assert_same, counted, lax
from test_concurrency import race

SHAPE = (3,)


@pytest.fixture(autouse=True)
def counts_from_zero() -> None:
    for name in lax.__all__:
        getattr(lax, name).cache_clear()


def counts(name: str) -> tuple[int, int, int, int]:
    info = getattr(lax, name).cache_info()
    return info.hits, info.misses, info.bypassed, info.currsize


class Plain:
    def __init__(self, w: Any) -> None:
        self.w = w

    def step(self, c: Any, x: Any) -> Any:
        return c * self.w + x, None


class Module(eqx.Module):  # type: ignore[misc]
    w: Any

    def step(self, c: Any, x: Any) -> Any:
        return c * self.w + x, None


def step(w: Any, c: Any, x: Any) -> Any:
    return c * w + x, None


def _in_local_class(w: Any) -> Any:
    class Local:
        def __init__(self) -> None:
            self.w = w

        def step(self, c: Any, x: Any) -> Any:
            return c * self.w + x, None

    return Local().step


def _in_module(w: Any) -> Any:
    module = Module(w)
    return lambda c, x: module.step(c, x)


def _changing(w: Any, log: Any) -> Any:
    return lambda c, x: ((log.append(1), c * w)[1], None)


KINDS: dict[str, Callable[[Any], Any]] = {
    "lambda": lambda w: lambda c, x: (c * w + x, None),
    "nested": lambda w: (lambda inner: lambda c, x: inner(c, x))(lambda c, x: (c * w + x, None)),
    "default": lambda w: lambda c, x, w=w: (c * w + x, None),
    "partial": lambda w: functools.partial(step, w),
    "partial of a lambda": lambda w: functools.partial(lambda w, c, x: (c * w + x, None), w),
    "bound method": lambda w: Plain(w).step,
    "method of a local class": _in_local_class,
    "equinox module": _in_module,
    "jax's partial": lambda w: jax.tree_util.Partial(step, w),
    "jitted": lambda w: (lambda inner: lambda c, x: (inner(c) + x, None))(jax.jit(lambda c: c * w)),
    "value read": lambda w: lambda c, x: (c * w * np.asarray(w)[0] + x, None),
    "changing": lambda w: _changing(w, []),
}


def parts(function: Any) -> list[Any]:
    """The function, and what is made with it."""
    owner = getattr(function, "__self__", None)
    inner = getattr(function, "func", None)
    found = [function if owner is None else owner, inner]
    cells = getattr(function, "__closure__", None) or ()
    found += [cell.cell_contents for cell in cells]
    return [part for part in found if part is not None and part is not step]


def references(found: list[Any]) -> list[weakref.ref[Any]]:
    kept = []
    for part in found:
        try:
            kept.append(weakref.ref(part))
        except TypeError:  # a list
            continue
    return kept


@pytest.mark.parametrize("kind", KINDS)
def test_L1_nothing_of_a_call_stays_alive(kind: str) -> None:
    def call() -> list[weakref.ref[Any]]:
        w, x, init = jnp.full(SHAPE, 1.5), XS + 0, jnp.zeros(SHAPE)
        f = KINDS[kind](w)
        for _ in range(2):
            lax.scan(f, init, x)
        jax.grad(lambda w: lax.scan(KINDS["lambda"](w), init, x)[0].sum())(w)
        return references([w, x, init, *parts(f)])

    alive = call() + call()
    gc.collect()
    assert [ref() for ref in alive if ref() is not None] == []


@pytest.mark.parametrize("name", CALLS)
def test_L1_of_every_operation(name: str) -> None:
    def call() -> list[weakref.ref[Any]]:
        w, x = jnp.float32(1.5) + 0, XS + 0
        for _ in range(2):
            CALLS[name](lax, w, x)
        return [weakref.ref(w), weakref.ref(x)]

    alive = call()
    gc.collect()
    assert [ref() for ref in alive if ref() is not None] == []


def tracers() -> list[Any]:
    gc.collect()
    return [item for item in gc.get_objects() if isinstance(item, jax.core.Tracer)]


def test_S3_no_tracer_stays_alive() -> None:
    before = len(tracers())
    for kind in KINDS.values():
        w = jnp.full(SHAPE, 1.5)
        lax.scan(kind(w), jnp.zeros(SHAPE), XS)
        jax.vmap(lambda w: lax.scan(KINDS["lambda"](w), w, XS)[0])(w)
        jax.jit(jax.grad(lambda w: lax.scan(KINDS["lambda"](w), w, XS)[0].sum()))(w)
    del w
    assert len(tracers()) <= before


def test_L1_an_error_keeps_nothing_alive() -> None:
    def call() -> list[weakref.ref[Any]]:
        w = jnp.full(SHAPE, 1.5)

        def fail(c: Any, x: Any) -> Any:
            raise LookupError(str(w.shape))

        with pytest.raises(LookupError):
            lax.scan(fail, w, XS)
        return references([w, fail])

    alive = call()
    gc.collect()
    assert [ref() for ref in alive if ref() is not None] == []


def test_L1_the_program_goes_with_a_local_class() -> None:
    def call() -> weakref.ref[Any]:
        method = _in_local_class(jnp.full(SHAPE, 1.5))
        lax.scan(method, jnp.zeros(SHAPE), XS)
        return weakref.ref(type(method.__self__))

    local = call()
    gc.collect()
    assert local() is None
    assert counts("scan")[3] == 0


def test_L1_the_program_goes_with_the_code() -> None:
    """Of code that is made when the program runs, once JAX itself has let go of it."""

    def call() -> weakref.ref[Any]:
        space: dict[str, Any] = {}
        exec(compile("def step(c, x): return c + x, None", "<made>", "exec"), space)
        lax.scan(space["step"], 0.0, XS)
        return weakref.ref(space["step"].__code__)

    codes = [call() for _ in range(3)]
    assert counts("scan")[3] == 3
    jax.clear_caches()
    gc.collect()
    assert [code() for code in codes if code() is not None] == []
    assert counts("scan")[3] == 0


def test_L3_programs_are_bounded() -> None:
    apply: Any = fnintern.staged(lambda f, x: f(x))
    for number in [i for i in range(131) for _ in range(2)]:
        apply(lambda x: x + number, 1)
    info = apply.cache_info()
    assert (info.currsize, info.maxsize, info.misses) == (128, 128, 131)


def test_cache_clear() -> None:
    call: Any = lambda: lax.map(lambda x: x * 2 + 1, XS)
    call()
    call()
    assert counts("map") == (1, 1, 0, 1)
    lax.map.cache_clear()
    assert counts("map") == (0, 0, 0, 0)
    call()
    assert counts("map") == (0, 1, 0, 1)


class Unseen:
    """Something that a function reads, and freezing does not look into."""

    def __init__(self, t: Any) -> None:
        self.t = t


def test_cache_clear_forgets_what_was_unfit() -> None:
    held = fnintern.stateless(Unseen(XS[0] + 1))
    call: Any = lambda: lax.map(lambda x: x * held.t, XS)
    assert_same(call(), XS * 2)
    assert counts("map")[:3] == (0, 0, 1)
    held.t = 2.0
    assert_same(call(), XS * 2)
    assert counts("map")[:3] == (0, 0, 2)
    lax.map.cache_clear()
    assert_same(call(), XS * 2)
    assert counts("map") == (0, 1, 0, 1)


def test_after_jax_clear_caches() -> None:
    for _ in range(2):
        w = jnp.float32(3.0)
        assert_same(lax.map(lambda x: x * w, XS), XS * 3)
        jax.clear_caches()


def test_the_memory_of_programs_does_not_grow() -> None:
    """That a function is made anew is no reason for a new entry."""
    for number in range(50):
        w = jnp.float32(number)
        lax.map(lambda x: x * w, XS)
    assert counts("map") == (49, 1, 0, 1)


class TestThreads:
    @pytest.mark.usefixtures("switching")
    def test_race_on_one_program(self) -> None:
        found: dict[int, list[float]] = {}

        def work(i: int) -> None:
            found[i] = []
            for k in range(20):
                w = jnp.float32(i * 100 + k)
                result = lax.scan(lambda c, x: (c + w * x, None), 0.0, XS)[0]
                found[i].append(float(result))

        for _ in range(2):
            race(work, 6)
        for i, results in found.items():
            assert results == [(i * 100 + k) * 6.0 for k in range(20)]
        assert counts("scan")[2:] == (0, 1)

    @pytest.mark.usefixtures("switching")
    def test_race_on_programs_that_are_all_new(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each trace is that of the call in its own thread."""
        monkeypatch.setattr(programs, "MAX_UNUSED", 100)

        def work(i: int) -> None:
            for k in range(5):
                w = jnp.float32(i)
                number = 100 * i + k
                assert float(lax.map(lambda x: w * x + number, XS)[0]) == i + number

        race(work, 6)
        assert counts("map")[:3] == (0, 30, 0)

    @pytest.mark.usefixtures("switching")
    def test_race_while_programs_are_cleared(self) -> None:
        def work(i: int) -> None:
            for k in range(5):
                w = jnp.float32(i + k)
                assert float(lax.map(lambda x: w + x, XS)[0]) == i + k + 1
                if not i:
                    lax.map.cache_clear()

        race(work, 4)

    @pytest.mark.usefixtures("switching")
    def test_race_of_functions_that_change(self) -> None:
        log: Any = []

        def work(i: int) -> None:
            w = jnp.float32(i)
            for _ in range(3):
                lax.map(lambda x: (log.append(i), w + x)[1], XS)

        race(work, 4)
        assert sorted(set(log)) == [0, 1, 2, 3]

    def test_one_thread_calls_while_another_traces(self) -> None:
        """Each call gets its own arrays, whoever has traced the program."""
        results: dict[float, float] = {}
        threads: list[threading.Thread] = []

        def call(number: float) -> None:
            w = jnp.float32(number)
            results[number] = float(lax.map(lambda x: (start(), w + x)[1], XS)[0])

        @fnintern.stateless
        def start() -> None:
            if not threads:
                threads.append(threading.Thread(target=call, args=(20.0,), daemon=True))
                threads[0].start()

        call(10.0)
        threads[0].join(30)
        call(30.0)
        assert results == {10.0: 11.0, 20.0: 21.0, 30.0: 31.0}

    def test_nested_calls(self) -> None:
        """A call inside the trace of a call, and one of the same code inside itself."""

        def depth(n: int, w: Any) -> Any:
            if n == 0:
                return w
            return lax.cond(True, lambda: depth(n - 1, w) + 1, lambda: w)

        for number in (1.0, 2.0):
            assert float(depth(3, jnp.float32(number))) == number + 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_C2_fork() -> None:
    """The child finds the table in order; it runs nothing, since JAX's threads are not there."""
    lax.map(lambda x: x + 1, XS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            assert counts("map") == (0, 1, 0, 1)
            assert fnintern.explain(lambda x: x + 1).interned
            lax.map.cache_clear()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@fnintern.staged
def apply(f: Any, x: Any) -> Any:
    return f(x)


def twice(f: Any, x: Any) -> Any:
    return f(f(x))


class TestCopies:
    """A staged function is found by its name, as functions are."""

    @pytest.mark.parametrize("name", lax.__all__)
    def test_of_fnintern_lax(self, name: str) -> None:
        op = getattr(lax, name)
        for made in (copy.copy(op), copy.deepcopy(op), pickle.loads(pickle.dumps(op))):
            assert made is op
        assert cloudpickle.loads(cloudpickle.dumps(op)) is op

    def test_of_a_decorated_function(self) -> None:
        assert pickle.loads(pickle.dumps(apply)) is apply
        assert copy.deepcopy([apply])[0] is apply

    def test_of_one_that_has_no_name(self) -> None:
        staged: Any = fnintern.staged(twice, static_argnames=("x",))
        made = pickle.loads(pickle.dumps(staged))
        assert made is not staged
        assert made(lambda x: x + 1, 1) == 3
        assert made.__wrapped__ is twice
        assert made._static == ("x",)

    def test_steps_aside_as_the_original(self) -> None:
        switch: Any = lax.switch
        unnamed = copy.copy(switch)
        state = unnamed.__reduce_ex__(4)
        assert state[0](*state[1]) is switch
        made: Any = stage("switch", jax.lax.switch)
        for other in (made, pickle.loads(pickle.dumps(made))):
            assert other(0, [lambda x: (x, "text")], 1.0) == (1.0, "text")

    def test_of_what_captures_it(self) -> None:
        def f(w: Any) -> Any:
            return lax.scan(lambda c, x: (c * w + x, None), 1.0, XS)[0]

        made = cloudpickle.loads(cloudpickle.dumps(f))
        assert_same(made(2.0), f(2.0))


def test_a_program_is_for_one_op() -> None:
    """Two staged operations share no programs, nor their counts."""
    one: Any = fnintern.staged(lambda f, x: f(x))
    other: Any = fnintern.staged(lambda f, x: -f(x))
    f: Any = lambda x: x + 1
    assert (int(one(f, 1)), int(other(f, 1)), int(one(f, 1))) == (2, -2, 2)
    assert one.cache_info().hits == 1
    assert other.cache_info().hits == 0
    assert counted(lambda: (one(f, 2), other(f, 2))) == (0, 0, 0)

"""What a trace assigns to what is outside reaches the caller at every call (S4, S6)."""

from __future__ import annotations

import importlib
import logging
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from absl import flags

import fnintern
from lax_calls import XS, counted, lax


def _flat_scan(ops: Any, w: Any) -> Any:
    structure: Any = None

    def body(c: Any, x: Any) -> Any:
        nonlocal structure
        leaves, structure = jax.tree.flatten({"y": (c, x)})
        return c + w * x, leaves

    _, leaves = ops.scan(body, 0.0, XS)
    return str(jax.tree.structure(jax.tree.unflatten(structure, leaves)))


class Layer:
    shape: Any = None

    def __call__(self, x: Any) -> Any:
        self.shape = x.shape
        return 2 * x


def _made_for_the_call(ops: Any, w: Any) -> Any:
    layer = Layer()
    ops.map(layer, jnp.ones((2, 3)) * w)
    return layer.shape


def _attribute_of_a_captured_object(ops: Any, w: Any) -> Any:
    layer = Layer()

    def f(x: Any) -> Any:
        layer.shape = x.shape
        return x * w

    ops.map(f, jnp.ones((2, 3)))
    return layer.shape


def _item(ops: Any, w: Any) -> Any:
    info: dict[str, Any] = {}

    def f(x: Any) -> Any:
        info["ndim"] = x.ndim
        return x * w

    ops.map(f, XS)
    return info["ndim"]


HANDED_OUT: dict[str, Callable[[Any, Any], Any]] = {
    "variable": _flat_scan,
    "attribute of self": _made_for_the_call,
    "attribute": _attribute_of_a_captured_object,
    "item": _item,
}


@pytest.mark.parametrize("name", HANDED_OUT)
def test_S6_it_is_there_after_every_call(name: str) -> None:
    for number in range(5):
        w = jnp.float32(number)
        assert HANDED_OUT[name](lax, w) == HANDED_OUT[name](jax.lax, w)


def test_S6_what_stays_follows_the_shapes() -> None:
    layer = Layer()
    for n in (2, 3, 2, 2, 3):
        lax.map(layer, jnp.ones((4, n)))
        assert layer.shape == (n,)


def test_S7_what_is_there_already_traces_nothing() -> None:
    class Own(Layer):
        def __call__(self, x: Any) -> Any:
            self.shape = x.shape
            return 3 * x

    layer, xs = Own(), jnp.ones((4, 2))
    lax.map(layer, xs)
    lax.map(layer, xs)
    assert counted(lambda: lax.map(layer, xs)) == (0, 0, 0)


def test_S6_a_counter_and_a_log_do_not_count() -> None:
    n, log = 0, []

    def f(x: Any) -> Any:
        nonlocal n
        n += 1
        log.append("traced")
        return x * 2

    lax.map(f, XS)
    assert counted(lambda: lax.map(f, XS)) == (0, 0, 0)
    assert n == len(log) == 1


# -- what surrounds the functions ----------------------------------------------------------------


def _level(name: str) -> int:
    return logging.getLogger(name).level


@pytest.fixture
def logger() -> Any:
    logger = logging.getLogger("fnintern.tests.handed_out")
    before = logger.level
    yield logger
    logger.setLevel(before)


def test_S1_a_logger_found_by_its_name(logger: Any) -> None:
    f = lambda x: x * logging.getLogger("fnintern.tests.handed_out").level
    for level in (10, 20, 30):
        logger.setLevel(level)
        for _ in range(2):
            assert float(lax.map(f, XS)[0]) == level


def test_S5_a_logger_that_is_written_to_traces_once() -> None:
    def f(x: Any) -> Any:
        logging.getLogger("fnintern.tests.handed_out").debug("step")
        return x * 2

    lax.map(f, XS)
    assert counted(lambda: lax.map(f, XS)) == (0, 0, 0)


def test_S1_a_module_imported_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = types.ModuleType("my_settings")
    monkeypatch.setitem(sys.modules, "my_settings", settings)
    for number in (2.0, 3.0, 4.0):
        vars(settings)["rate"] = number
        found = lax.map(lambda x: x * importlib.import_module("my_settings").rate, XS)
        assert float(found[0]) == number


def test_S1_a_lock_that_is_asked() -> None:
    lock = threading.Lock()
    f = lambda x: x * (10.0 if lock.locked() else 1.0)
    assert float(lax.map(f, XS)[0]) == 1.0
    with lock:
        assert float(lax.map(f, XS)[0]) == 10.0


def test_S1_flags_of_absl() -> None:
    if "fnintern_rate" not in flags.FLAGS:
        flags.DEFINE_float("fnintern_rate", 0.5, "for the test")
        flags.FLAGS.mark_as_parsed()
    for number in (0.5, 2.0, 3.0):
        setattr(flags.FLAGS, "fnintern_rate", number)  # noqa: B010
        for _ in range(2):
            assert float(lax.map(lambda x: x * flags.FLAGS.fnintern_rate, XS)[0]) == number


def test_S1_a_callback_of_equal_functions_by_value() -> None:
    """What a callback captures stays in what is traced."""
    wrap: Any = fnintern.interned(lambda f: lambda *a: f(*a), by="value")
    for _ in range(3):
        log: Any = []

        def f(x: Any) -> Any:
            jax.debug.callback(lambda v: log.append(float(v)), x)
            return x * 2

        jax.lax.map(wrap(f), XS).block_until_ready()
        jax.effects_barrier()
        assert len(log) == 3


@pytest.mark.parametrize(
    ("make", "read"),
    [
        (lambda o: types.SimpleNamespace(o=o), lambda v: v.o),
        (lambda o: __import__("functools").partial(print, o), lambda v: v.args[0]),
        (lambda o: jax.tree_util.Partial(print, o), lambda v: v.args[0]),
        (lambda o: slice(1, o), lambda v: v.stop),
        (lambda o: (lambda x: [x, x])([o]), lambda v: v[0][0] if v[0] is v[1] else None),
    ],
)
def test_S4_static_data_made_around_the_object_of_the_call(make: Any, read: Any) -> None:
    class Config:
        pass

    for _ in range(3):
        config = Config()
        held = lax.map(lambda x: (x, Static(make(config))), XS)[1].value
        assert read(held) is config


class Static:
    def __init__(self, value: Any) -> None:
        self.value = value


jax.tree_util.register_pytree_node(Static, lambda s: ((), s.value), lambda value, _: Static(value))


class Slotted:
    __slots__ = ("shape",)


class WithProperty:
    _shape: Any = None

    @property
    def shape(self) -> Any:
        return self._shape

    @shape.setter
    def shape(self, value: Any) -> None:
        self._shape = value


@pytest.mark.parametrize("make", [Slotted, WithProperty, types.SimpleNamespace, Layer])
def test_S6_an_attribute_of_any_kind_of_object(make: Any) -> None:
    for n in (2, 3, 2, 3):
        held = make()

        def f(x: Any) -> Any:
            held.shape = x.shape
            return x.sum()

        lax.map(f, jnp.ones((4, n)))
        assert held.shape == (n,)


class Remembering:
    """Keeps its last result, a tracer, and asks only whether there is one."""

    last: Any = None

    def __call__(self, x: Any) -> Any:
        y = x * 2 if self.last is None else x * 3
        self.last = y
        return y


@pytest.mark.parametrize("call", ["map", "cond", "jit"])
def test_S4_a_tracer_whose_trace_has_ended_is_left_alone(call: str) -> None:
    f, other = Remembering(), Remembering()
    for _ in range(3):
        found = [
            {
                "map": lambda ops, f: ops.map(lambda x: f(x), XS),
                "cond": lambda ops, f: ops.cond(True, lambda x: f(x), lambda x: x, XS),
                "jit": lambda ops, f: (fnintern.jit if ops is lax else jax.jit)(lambda x: f(x))(XS),
            }[call](ops, model)
            for ops, model in ((lax, f), (jax.lax, other))
        ]
        assert jnp.array_equal(*found)

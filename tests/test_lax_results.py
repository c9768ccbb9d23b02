"""fnintern.lax returns what jax.lax returns: values, types, structure, and what it raises."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import traceback
import types
from collections.abc import Callable
from typing import Any

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.example_libraries import optimizers

from lax_calls import CALLS, XS, Node, assert_same, lax, outcome

#: Kind of value -> how it is made anew.
VALUES: dict[str, Callable[[], Any]] = {
    "float": lambda: 1.5,
    "int": lambda: 2,
    "bool": lambda: True,
    "complex": lambda: 1j,
    "numpy f32": lambda: np.float32(2.5),
    "numpy f64": lambda: np.float64(2.5),
    "numpy i64 vector": lambda: np.arange(3),
    "numpy f64 vector": lambda: np.arange(3.0),
    "numpy bool": lambda: np.bool_(True),
    "f32": lambda: jnp.float32(2.0),
    "f32 weak": lambda: jnp.asarray(2.0),
    "f32 vector": lambda: jnp.arange(3.0),
    "f16": lambda: jnp.float16(1.5),
    "bf16 vector": lambda: jnp.arange(3, dtype=jnp.bfloat16),
    "i32": lambda: jnp.int32(7),
    "i32 weak": lambda: jnp.asarray(7),
    "i32 overflowing": lambda: jnp.int32(2**31 - 1),
    "i8 overflowing": lambda: jnp.full(3, 127, jnp.int8),
    "u8": lambda: jnp.uint8(255),
    "bool array": lambda: jnp.array([True, False, True]),
    "c64": lambda: jnp.complex64(1 + 2j),
    "nan": lambda: jnp.float32(jnp.nan),
    "empty": lambda: jnp.zeros((0,)),
    "raw key": lambda: jax.random.PRNGKey(3),
    "typed key": lambda: jax.random.key(3),
    "None": lambda: None,
    "node": lambda: Node(jnp.arange(3.0)),
    "dict": lambda: {"b": jnp.float32(1.0), "a": None},
    "list": lambda: [2.0, jnp.int32(3)],
}


def term(value: Any) -> Any:
    """A number or an array that depends on all that a value is."""
    total: Any = 0
    for leaf in jax.tree.leaves(value):
        typed = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        if typed or (getattr(leaf, "dtype", None) == jnp.uint32 and np.shape(leaf) == (2,)):
            total = total + jax.random.uniform(leaf)
        else:
            total = total + leaf
    return total


COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "multiply": lambda a, b: a * b,
    "where": lambda a, b: jnp.where(a > 0, a, b),
    "tree": lambda a, b: {"y": a + b, "n": None, "t": (Node(a),)},
    "first": lambda a, b: a,
    "divide": lambda a, b: a / b,
}


def _with_default(value: Any) -> Callable[[], Any]:
    def read(value: Any = value) -> Any:
        return value

    return read


#: Where a captured value sits.
PLACES: dict[str, Callable[[Any], Callable[[], Any]]] = {
    "closure": lambda value: lambda: value,
    "default": lambda value: _with_default(value),
    "partial": lambda value: functools.partial(lambda value: value, value),
    "list": lambda value: (lambda held: lambda: held[0][0])([[value]]),
    "object": lambda value: types.MethodType(
        lambda self: self.value, types.SimpleNamespace(value=value)
    ),
    "frozen dataclass": lambda value: (lambda held: lambda: held.value)(Held(value)),
}


@dataclasses.dataclass(frozen=True)
class Held:
    value: Any


def _body(read: Callable[[], Any], combine: Any) -> Callable[[Any], Any]:
    return lambda x: combine(term(x), term(read()))


def closed(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that returns what it gets, type and all, with what ``f`` makes of it added."""

    def g(value: Any) -> Any:
        total = jnp.sum(jnp.asarray(term(f(value))))

        def add(leaf: Any) -> Any:
            leaf = jnp.asarray(leaf)
            if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                return leaf
            return (leaf + total).astype(leaf.dtype)

        return jax.tree.map(add, value)

    return g


def rows(value: Any) -> Any:
    """A tree of arrays, each with at least one axis."""
    return jax.tree.map(lambda leaf: leaf if np.ndim(leaf) else jnp.stack([leaf, leaf]), value)


OPERATIONS: dict[str, Callable[[Any, Callable[[Any], Any], Any], Any]] = {
    "cond": lambda lax, f, x: lax.cond(False, lambda v: f(f(v)), f, x),
    "closed cond": lambda lax, f, x: lax.cond(True, closed(f), lambda v: v, x),
    "switch": lambda lax, f, x: lax.switch(5, [lambda v: v, closed(f), closed(f)], x),
    "scan": lambda lax, f, x: lax.scan(lambda c, v: (c + 1, f(v)), 0, rows(x)),
    "scan over nothing": lambda lax, f, x: lax.scan(
        lambda c, _: (c, f(x)), 0, None, length=2, unroll=2
    ),
    "scan in reverse": lambda lax, f, x: lax.scan(
        lambda c, v: (closed(f)(c), (c, v)), x, XS, reverse=True
    ),
    "map": lambda lax, f, x: lax.map(f, rows(x)),
    "map in batches": lambda lax, f, x: lax.map(f, rows(x), batch_size=2),
    "fori_loop": lambda lax, f, x: lax.fori_loop(0, 2, lambda i, c: closed(f)(c), x),
    "while_loop": lambda lax, f, x: lax.while_loop(
        lambda s: s[0] < 2, lambda s: (s[0] + 1, closed(f)(s[1])), (0, x)
    ),
    "associative_scan": lambda lax, f, x: lax.associative_scan(
        lambda a, b: closed(f)(jax.tree.map(lambda a, b: jnp.where(True, a, b), a, b)), rows(x)
    ),
    "reduce": lambda lax, f, x: lax.reduce(
        rows(x), jax.tree.map(lambda a: np.zeros((), a.dtype)[()], rows(x)),
        lambda a, b: jax.tree.map(jnp.add, a, b), (0,),
    ),
}  # fmt: skip


@attrs.frozen
class Case:
    """One call, as data."""

    operation: str
    operand: str
    capture: str
    place: str
    combine: str

    def run(self, lax: Any) -> Any:
        read = PLACES[self.place](VALUES[self.capture]())
        f = _body(read, COMBINE[self.combine])
        return OPERATIONS[self.operation](lax, f, VALUES[self.operand]())


cases = st.builds(
    Case,
    operation=st.sampled_from(list(OPERATIONS)),
    operand=st.sampled_from(list(VALUES)),
    capture=st.sampled_from(list(VALUES)),
    place=st.sampled_from(list(PLACES)),
    combine=st.sampled_from(list(COMBINE)),
)


def check(case: Case) -> None:
    """Both agree: at the call that traces, and at the next one."""
    expected, error = outcome(lambda: case.run(jax.lax))
    for _ in range(2):
        found, own = outcome(lambda: case.run(lax))
        assert own is error
        assert_same(found, expected)


@pytest.mark.filterwarnings(
    "ignore::numpy.exceptions.ComplexWarning", "ignore:Explicitly requested"
)
class TestCorpus:
    @settings(derandomize=True, max_examples=35, deadline=None)
    @given(cases)
    def test_any_call(self, case: Case) -> None:
        check(case)

    @settings(derandomize=True, max_examples=12, deadline=None)
    @given(cases)
    def test_any_call_with_x64(self, case: Case) -> None:
        with jax.enable_x64(True):
            check(case)

    @pytest.mark.parametrize("capture", VALUES)
    def test_every_capture(self, capture: str) -> None:
        check(Case("scan over nothing", "f32 vector", capture, "closure", "tree"))

    @pytest.mark.parametrize("operand", VALUES)
    def test_every_operand(self, operand: str) -> None:
        check(Case("while_loop", operand, "float", "closure", "add"))

    def test_x64_on_and_off_in_turn(self) -> None:
        for on in (False, True, False, True):
            with jax.enable_x64(on):
                check(Case("scan", "numpy f64 vector", "numpy f64", "closure", "add"))
                check(Case("fori_loop", "int", "i32 overflowing", "closure", "add"))


@pytest.mark.parametrize("name", CALLS)
def test_every_operation(name: str) -> None:
    for w in (jnp.float32(1.5), jnp.float32(2.5), 1.5, np.float32(1.5)):
        assert_same(CALLS[name](lax, w, XS), CALLS[name](jax.lax, w, XS))


class TestSignatures:
    """Each way that jax.lax lets a call be spelled."""

    @pytest.mark.parametrize(
        "call",
        [
            lambda lax: lax.cond(True, 1.0, lambda x: x + 1, 2.0, lambda x: x + 2),
            lambda lax: lax.cond(pred=False, true_fun=lambda x: x, false_fun=jnp.sin, operand=3.0),
            lambda lax: lax.cond(1.0, lambda x, y: x, lambda x, y: y, 3.0, 4.0),
            lambda lax: lax.cond(True, jnp.sin, jnp.cos, 1.0),
            lambda lax: lax.switch(index=-4, branches=(jnp.sin, jnp.cos), operand=1.0),
            lambda lax: lax.switch(jnp.int32(9), [jnp.sin, jnp.cos], 1.0),
            lambda lax: lax.switch(0, [lambda x: (x, "text")], 3.0),
            lambda lax: lax.switch(0, [], 3.0),
            lambda lax: lax.switch(0.5, [jnp.sin, jnp.cos], 3.0),
            lambda lax: lax.scan(f=lambda c, x: (c + x, c), init=0, xs=jnp.arange(3), reverse=True),
            lambda lax: lax.scan(lambda c, x: (c + 1, x), 0, None, length=np.int64(3)),
            lambda lax: lax.scan(lambda c, x: (c + 1, x), 0, length=jnp.int32(3)),
            lambda lax: lax.scan(lambda c, x: (c + 1, x), 0, {"a": XS, "b": None}, unroll=True),
            lambda lax: lax.scan(lambda c, x: (c + 1, x), 0, XS, length=4),
            lambda lax: lax.scan(lambda c, x: (c, x), 0, jnp.zeros((0, 2))),
            lambda lax: lax.fori_loop(3, 0, lambda i, c: c + i, 1),
            lambda lax: lax.fori_loop(np.int8(0), np.int8(3), lambda i, c: i, np.int8(5)),
            lambda lax: lax.fori_loop(jnp.int32(0), 3, lambda i, c: c.at[i].set(i), jnp.zeros(5)),
            lambda lax: lax.fori_loop(jnp.int8(0), jnp.int8(3), lambda i, c: c + i, jnp.int8(1)),
            lambda lax: lax.fori_loop(0, 3, body_fun=lambda i, c: c + i, init_val=1, unroll=2),
            lambda lax: lax.fori_loop(0.0, 3.0, lambda i, c: c + i, 1.0),
            lambda lax: lax.map(lambda d: {"y": d["x"] * 2, "n": None}, {"x": np.arange(5)}),
            lambda lax: lax.associative_scan(lambda a, b: a + b, np.arange(5), reverse=True),
            lambda lax: lax.associative_scan(lambda a, b: a + b, np.arange(1)),
            lambda lax: lax.associative_scan(lambda a, b: a + b, np.zeros((2, 0)), axis=1),
            lambda lax: lax.associative_scan(lambda a, b: a + b, ()),
            lambda lax: lax.associative_scan(lambda a, b: a + b, 1.0),
            lambda lax: lax.associative_scan(jnp.maximum, np.arange(6).reshape(2, 3), axis=-1),
            lambda lax: lax.reduce(np.arange(4), 0, jax.lax.add, [0]),
            lambda lax: lax.reduce(np.arange(4), 0, lambda a, b: a + b, ()),
            lambda lax: lax.reduce(
                (XS, XS), (0.0, 1.0), lambda a, b: (a[0] + b[0], a[1] * b[1]), (0,)
            ),
            lambda lax: lax.while_loop(lambda c: c < 3, lambda c: c + 1, np.int64(0)),
            lambda lax: lax.while_loop(lambda c: jnp.array([True]), lambda c: c, 1),
            lambda lax: lax.scan(lambda c, x: (c, x), 2**40, XS),
            lambda lax: lax.scan(lambda c, x: (c, x), "text", XS),
            lambda lax: lax.scan(lambda c, x: (c, "text"), 1, XS),
            lambda lax: lax.scan(lambda c, x: c, 1, XS),
            lambda lax: lax.scan(1, 1, XS),
            lambda lax: lax.scan(lambda c, x: (c, x)),
            lambda lax: lax.scan(lambda c, x: (c, x), 1, XS, lenght=3),
            lambda lax: lax.cond(None, lambda: 1, lambda: 2),
            lambda lax: lax.cond(XS, lambda: 1, lambda: 2),
            lambda lax: lax.cond(True, lambda: 1, lambda: (2,)),
        ],
    )  # fmt: skip
    def test_returns_or_raises_the_same(self, call: Any) -> None:
        expected, error = outcome(lambda: call(jax.lax))
        for _ in range(2):
            found, own = outcome(lambda: call(lax))
            assert own is error
            if isinstance(expected, tuple) and "text" in expected:
                assert found == expected
            else:
                assert_same(found, expected)


@pytest.mark.parametrize("elems", [np.arange(1), np.zeros(0), {"a": np.arange(1), "b": None}])
def test_associative_scan_of_less_than_two_elements_returns_them(elems: Any) -> None:
    found = lax.associative_scan(lambda a, b: a + b, elems)
    expected = jax.lax.associative_scan(lambda a, b: a + b, elems)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert type(one) is type(other)
        assert one.dtype == other.dtype


def test_switch_of_one_branch_returns_what_it_returns() -> None:
    for value in (1, "text", np.arange(3), None):
        assert lax.switch(0, [lambda x: x], value) is value
    lax.switch.cache_clear()
    lax.switch(0, [lambda x: (x, "text")], 1.0)
    assert lax.switch.cache_info().bypassed == 0  # it has stepped aside


@pytest.mark.parametrize("numbers", [(1, 1.0, True), (True, 1), (0.0, -0.0), ((1,), (True,))])
def test_structures_that_are_equal_but_not_the_same(numbers: Any) -> None:
    """JAX's equality of trees compares by ==, which makes these one."""
    passed: Any = lambda lax, tree: lax.scan(lambda c, _: (c, None), tree, XS)[0]
    for number in numbers * 2:
        assert repr(passed(lax, Node(1.0, number)).data) == repr(number)
        assert repr([*passed(lax, {number: 1.0})]) == repr([number])
        nested = passed(lax, [{"a": (Node(1.0, [number]), None)}])
        assert repr(nested[0]["a"][0].data) == repr([number])


class TestArraysThatAreGone:
    """Deleted and donated arrays raise what they raise in jax.lax."""

    def gone(self) -> Any:
        array = jnp.arange(3.0) + 1
        array.delete()
        return array

    def given_away(self) -> Any:
        array = jnp.arange(3.0) + 1
        jax.block_until_ready(jax.jit(lambda x: x + 1, donate_argnums=0)(array))
        assert array.is_deleted()
        return array

    @pytest.mark.parametrize("make", [gone, given_away])
    @pytest.mark.parametrize("warm", [False, True])
    def test_errors(self, make: Any, warm: bool) -> None:
        calls: list[Callable[[Any, Any], Any]] = [
            lambda lax, a: lax.scan(lambda c, x: (c + a, None), jnp.zeros(3), XS)[0],
            lambda lax, a: lax.scan(lambda c, x: (c + x, None), 0.0, a)[0],
            lambda lax, a: lax.cond(True, lambda: a, lambda: a * 2),
            lambda lax, a: lax.map(lambda x: x + a, XS),
        ]
        for call in calls:
            if warm:
                call(lax, XS)
            _, error = outcome(lambda: call(jax.lax, make(self)))
            assert error is RuntimeError
            for _ in range(2):
                assert outcome(lambda: call(lax, make(self)))[1] is error
            # The error was the array's: the function is converted as before.
            assert_same(call(lax, XS), call(jax.lax, XS))

    def test_one_that_is_not_read_does_not_matter(self) -> None:
        held = [self.gone(), jnp.float32(2.0)]
        for _ in range(2):
            total, _ = lax.scan(lambda c, x: (c + held[1] * x, None), 0.0, XS)
            assert float(total) == 12.0


class Custom(Exception):
    pass


class TestErrors:
    """What a function raises is raised once, as it is."""

    def test_of_the_function(self) -> None:
        calls: list[int] = []
        w = jnp.float32(2.0)

        def fail(c: Any) -> Any:
            raise Custom("what happened")

        for _ in range(3):
            with pytest.raises(Custom, match="what happened") as caught:
                lax.scan(lambda c, x: (fail(c * w), None), 0.0, XS)
            error = caught.value
            assert error.__context__ is None
            assert error.__cause__ is None
            names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
            assert names[-2:] == ["<lambda>", "fail"]
            assert names[0] == "test_of_the_function"
        assert calls == []

    def test_its_own_context_is_kept(self) -> None:
        def fail() -> Any:
            try:
                raise KeyError("first")
            except KeyError:
                raise Custom("second")  # noqa: B904

        with pytest.raises(Custom) as caught:
            lax.cond(True, fail, lambda: 1.0)
        assert type(caught.value.__context__) is KeyError
        assert caught.value.__context__.__context__ is None

    def test_of_types_that_do_not_match(self) -> None:
        messages = []
        for module in (jax.lax, lax):
            with pytest.raises(TypeError) as caught:
                module.scan(lambda c, x: (c.astype("int32"), None), jnp.float32(0.0), XS)
            assert caught.value.__context__ is None
            messages.append(str(caught.value))
        assert messages[0] == messages[1]

    def test_a_function_that_failed_can_be_called_again(self) -> None:
        switch = {"on": True}

        def f(c: Any, x: Any) -> Any:
            if switch["on"]:
                raise Custom
            return c + x, None

        for on in (True, False, True, False):
            switch["on"] = on
            with contextlib.suppress(Custom):
                total, _ = lax.scan(f, 0.0, XS)
                assert not on
                assert float(total) == 6.0

    @pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
    def test_that_are_no_exceptions_go_through_at_once(self, error: type[BaseException]) -> None:
        calls = []

        class Counting(error):  # type: ignore[misc, valid-type]
            def __init__(self) -> None:
                calls.append(1)

        def f(c: Any, x: Any) -> Any:
            raise Counting

        with pytest.raises(Counting):
            lax.scan(f, 0.0, XS)
        assert len(calls) == 1
        assert float(lax.scan(lambda c, x: (c + x, None), 0.0, XS)[0]) == 6.0


class Tagged(collections.namedtuple("Tagged", "value tag")):
    """A named tuple that is registered as a node with data, as the states of jax's optimizers."""

    __slots__ = ()


jax.tree_util.register_pytree_node(
    Tagged,
    lambda held: ((held.value,), held.tag),
    lambda tag, children: Tagged._make([*children, tag]),
)


@pytest.mark.parametrize("tag", ["text", ("a", 1.5), Case, len], ids=repr)
@pytest.mark.parametrize("inner", [0.5, (0.5, [1.0]), jax.tree_util.Partial(max, 0.5)], ids=repr)
def test_a_named_tuple_with_data(tag: Any, inner: Any) -> None:
    for _ in range(3):
        held = Tagged(inner, tag)
        results = [ops.cond(True, lambda h: h, lambda h: h, held) for ops in (jax.lax, lax)]
        assert type(results[1]) is Tagged
        assert_same(*results)
        assert results[1].tag is tag or results[1].tag == tag


def test_a_named_tuple_with_data_of_the_caller() -> None:
    class Config:
        pass

    for _ in range(3):
        config = Config()
        held = Tagged(jnp.float32(1.0), config)
        assert lax.cond(True, lambda h: h, lambda h: h, held).tag is config


def test_the_state_of_an_optimizer_of_jax() -> None:
    init, update, _ = optimizers.adam(0.1)
    for ops in (jax.lax, lax, lax):
        state = init({"w": jnp.ones(3)})
        state, _ = ops.scan(lambda s, i: (update(i, {"w": jnp.ones(3)}, s), None), state, XS)
        assert type(state) is optimizers.OptimizerState


def test_a_bound_method_among_static_data() -> None:
    """A ``TrainState`` holds ``model.apply``: the result holds that of the call."""

    class Model:
        def apply(self, x: Any) -> Any:
            return x * 2

    @jax.tree_util.register_dataclass
    @dataclasses.dataclass
    class State:
        x: Any
        apply: Any = dataclasses.field(metadata={"static": True})

    model, other = Model(), Model()
    for owner in (model, model, other):
        state = State(jnp.float32(1.0), owner.apply)
        for _ in range(2):
            result, _ = lax.scan(lambda s, x: (State(s.apply(s.x), s.apply), x), state, XS)
            assert result.apply is state.apply
            assert float(result.x) == 8.0
    assert lax.scan.cache_info().hits >= 4
    made = lax.cond(True, lambda x: State(x, model.apply), lambda x: State(x, model.apply), 1.0)
    again = lax.cond(True, lambda x: State(x, model.apply), lambda x: State(x, model.apply), 1.0)
    assert made.apply == again.apply == model.apply

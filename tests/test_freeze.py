"""freeze: what a function can see becomes key or leaves, or is refused (S1, S2)."""

from __future__ import annotations

import collections
import copy
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import gc
import itertools
import operator
import os
import pathlib
import random
import re
import threading
import time
import types
import uuid
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import attrs
import equinox as eqx
import flax.core
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import fnintern
import states
from fnintern.captures.freezing import freeze
from fnintern.captures.walk import MAX_DEPTH
from fnintern.keys.tokens import Refused


def seeing(value: Any) -> Callable[[Any], Any]:
    """A function that captures ``value`` and may read all of it, made anew."""
    return lambda x: (x, copy.copy(value))


class Mode(enum.Enum):
    ONE = 1
    TWO = 2


class Options(NamedTuple):
    scale: Any


@dataclasses.dataclass(frozen=True)
class Data:
    scale: Any


@attrs.frozen
class Attrs:
    scale: Any


class Slotted:
    __slots__ = ("scale",)

    def __init__(self, scale: Any) -> None:
        self.scale = scale


class Plain:
    def __init__(self, scale: Any) -> None:
        self.scale = scale

    def method(self, x: Any) -> Any:
        return x


class MyDict(dict[Any, Any]):
    pass


class MyList(list[Any]):
    pass


class Eqx(eqx.Module):  # type: ignore[misc]
    scale: Any


def mesh() -> Any:
    return jax.sharding.Mesh(np.array(jax.devices()[:1]), ("d",))


P = jax.sharding.PartitionSpec


def custom_vjp() -> Any:
    function = jax.custom_vjp(lambda x: x)
    function.defvjp(lambda x: (x, None), lambda res, g: (g,))
    return function


def custom_jvp() -> Any:
    function = jax.custom_jvp(lambda x: x)
    function.defjvp(lambda primals, tangents: (primals[0], tangents[0]))
    return function


class Masked(nn.Module):  # type: ignore[misc]
    features: int

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x: Any) -> Any:
        return nn.Dense(self.features)(x)


def cyclic(k: Any) -> list[Any]:
    node = [k]
    node.append(node)
    return node


MODEL = nnx.Linear(2, 2, rngs=nnx.Rngs(0))

#: What is in the key: made anew it is the same, and what is made second differs from it.
KEYED: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "int": (lambda: 1, lambda: 1.0),
    "bool": (lambda: True, lambda: 1),
    "zero": (lambda: 0.0, lambda: -0.0),
    "nan": (lambda: float("nan"), lambda: -float("nan")),
    "complex": (lambda: complex(0, 0.0), lambda: complex(0, -0.0)),
    "str": (lambda: "ab", lambda: b"ab"),
    "none": (lambda: None, lambda: ...),
    "numpy_scalar": (lambda: np.float32(1), lambda: np.float64(1)),
    "enum": (lambda: Mode.ONE, lambda: Mode.TWO),
    "int_flag": (lambda: re.I | re.M, lambda: re.I),
    "range": (lambda: range(3), lambda: range(4)),
    "slice": (lambda: slice(1, 2), lambda: slice(1, 3)),
    "bytearray": (lambda: bytearray(b"a"), lambda: bytearray(b"b")),
    "tuple": (lambda: (1, 2), lambda: (1.0, 2)),
    "nested_tuple": (lambda: (1, (2,)), lambda: (1, (2.0,))),
    "named_tuple": (lambda: Options(1), lambda: Options(1.0)),
    "list": (lambda: [1, [2]], lambda: [1, [3]]),
    "list_is_not_tuple": (lambda: [1], lambda: (1,)),
    "dict": (lambda: {"a": 1}, lambda: {"a": 2}),
    "dict_order": (lambda: {"a": 1, "b": 1}, lambda: {"b": 1, "a": 1}),
    "dict_key_type": (lambda: {1: 0}, lambda: {True: 0}),
    "set": (lambda: {1, 2}, lambda: {1, 3}),
    "frozenset": (lambda: frozenset("ab"), lambda: frozenset("ac")),
    "deque": (lambda: collections.deque([1]), lambda: collections.deque([2])),
    "ordered": (lambda: collections.OrderedDict(a=1), lambda: {"a": 1}),
    "default_dict": (
        lambda: collections.defaultdict(int, a=1), lambda: collections.defaultdict(list, a=1),
    ),
    "counter": (lambda: collections.Counter("a"), lambda: collections.Counter("aa")),
    "mapping_proxy": (
        lambda: types.MappingProxyType({"a": 1}), lambda: types.MappingProxyType({"a": 2}),
    ),
    "dict_subclass": (lambda: MyDict(a=1), lambda: {"a": 1}),
    "list_subclass": (lambda: MyList([1]), lambda: MyList([2])),
    "alias": (lambda: [[1]] * 2, lambda: [[1], [1]]),
    "cycle": (lambda: cyclic(1), lambda: cyclic(2)),
    "simple_namespace": (
        lambda: types.SimpleNamespace(a=1), lambda: types.SimpleNamespace(a=1.0),
    ),
    "dataclass": (lambda: Data(1), lambda: Data(1.0)),
    "attrs": (lambda: Attrs(1), lambda: Attrs(2)),
    "slots": (lambda: Slotted(1), lambda: Slotted(2)),
    "plain_object": (lambda: Plain(1), lambda: Plain(2)),
    "bound_method": (lambda: Plain(1).method, lambda: Plain(2).method),
    "partial": (lambda: functools.partial(max, 1), lambda: functools.partial(max, 1.0)),
    "partial_keyword": (
        lambda: functools.partial(max, default=1), lambda: functools.partial(max, default=2),
    ),
    "builtin": (lambda: len, lambda: max),
    "method_of_a_builtin": (lambda: str.upper, lambda: str.lower),
    "method_wrapper": (lambda: object.__setattr__, lambda: object.__delattr__),
    "type": (lambda: int, lambda: float),
    "ufunc": (lambda: np.sin, lambda: np.cos),
    "lambda": (lambda: seeing(1), lambda: seeing(2)),
    "path": (lambda: pathlib.Path("a"), lambda: pathlib.Path("b")),
    "pattern": (lambda: re.compile("a"), lambda: re.compile("a", re.I)),
    "decimal": (lambda: decimal.Decimal("1"), lambda: decimal.Decimal("1.0")),
    "fraction": (lambda: fractions.Fraction(1, 2), lambda: fractions.Fraction(1, 3)),
    "date": (lambda: datetime.date(2020, 1, 1), lambda: datetime.date(2020, 1, 2)),
    "uuid": (lambda: uuid.UUID(int=1), lambda: uuid.UUID(int=2)),
    "small_array": (lambda: np.zeros(3), lambda: np.zeros(3, np.float32)),
    "array_contents": (lambda: np.array([0.0]), lambda: np.array([-0.0])),
    "array_strides": (lambda: np.zeros((2, 3)), lambda: np.zeros((3, 2)).T),
    # jax
    "np_dtype": (lambda: np.dtype("float32"), lambda: np.dtype("int32")),
    "jnp_dtype": (lambda: jnp.float32, lambda: jnp.bfloat16),
    "bfloat16": (lambda: jnp.dtype("bfloat16"), lambda: jnp.dtype("float16")),
    "shape_dtype": (
        lambda: jax.ShapeDtypeStruct((2,), jnp.float32), lambda: jax.ShapeDtypeStruct((2,), int),
    ),
    "tree_structure": (
        lambda: jax.tree.structure({"a": 1}), lambda: jax.tree.structure({"b": 1}),
    ),
    "partition_spec": (lambda: P("d", None), lambda: P("d")),
    "mesh": (
        mesh, lambda: jax.sharding.Mesh(np.array(jax.devices()[:1]), ("e",)),
    ),
    "named_sharding": (
        lambda: jax.sharding.NamedSharding(mesh(), P("d")),
        lambda: jax.sharding.NamedSharding(mesh(), P()),
    ),
    "precision": (lambda: jax.lax.Precision.HIGH, lambda: jax.lax.Precision.DEFAULT),
    "device": (lambda: jax.devices()[0], lambda: None),
    "policy": (
        lambda: jax.checkpoint_policies.dots_saveable,
        lambda: jax.checkpoint_policies.everything_saveable,
    ),
    "activation": (lambda: jax.nn.relu, lambda: jax.nn.gelu),
    "jnp_function": (lambda: jnp.sin, lambda: jnp.add),
    "mapped": (lambda: jax.vmap(seeing(1)), lambda: jax.vmap(seeing(2))),
    "grad": (lambda: jax.grad(seeing(1)), lambda: jax.grad(seeing(2))),
    "custom_jvp": (custom_jvp, custom_vjp),
    "custom_vjp": (custom_vjp, custom_jvp),
    "initializer": (
        lambda: jax.nn.initializers.normal(0.1), lambda: jax.nn.initializers.normal(0.2),
    ),
    "nnx_initializer": (
        lambda: nnx.initializers.lecun_normal(), lambda: nnx.initializers.he_normal(),
    ),
    # optax
    "sgd": (lambda: optax.sgd(0.1), lambda: optax.sgd(0.2)),
    "adam": (lambda: optax.adam(0.1), lambda: optax.adam(0.1, b1=0.8)),
    "adamw": (lambda: optax.adamw(0.1), lambda: optax.adamw(0.1, weight_decay=0.5)),
    "chain": (
        lambda: optax.chain(optax.clip(1.0), optax.sgd(0.1)),
        lambda: optax.chain(optax.clip(2.0), optax.sgd(0.1)),
    ),
    "schedule": (
        lambda: optax.cosine_decay_schedule(0.1, 10), lambda: optax.cosine_decay_schedule(0.1, 11),
    ),
    "scheduled_adam": (
        lambda: optax.adam(optax.exponential_decay(0.1, 10, 0.9)),
        lambda: optax.adam(optax.exponential_decay(0.1, 10, 0.8)),
    ),
    "masked": (
        lambda: optax.masked(optax.sgd(0.1), {"a": True}),
        lambda: optax.masked(optax.sgd(0.1), {"a": False}),
    ),
    # flax, equinox
    "linen": (lambda: nn.Dense(3), lambda: nn.Dense(4)),
    "linen_of_the_users": (lambda: Masked(3), lambda: Masked(4)),
    "linen_sequential": (
        lambda: nn.Sequential([nn.Dense(3), nn.relu]), lambda: nn.Sequential([nn.Dense(3)]),
    ),
    "frozen_dict": (lambda: flax.core.freeze({"a": 1}), lambda: flax.core.freeze({"a": 2})),
    "filter": (
        lambda: nnx.All(nnx.Param, nnx.BatchStat), lambda: nnx.Any(nnx.Param, nnx.BatchStat),
    ),
    "state_axes": (
        lambda: nnx.StateAxes({nnx.Param: 0}), lambda: nnx.StateAxes({nnx.Param: None}),
    ),
    "graph_definition": (
        lambda: nnx.graphdef(MODEL), lambda: nnx.graphdef(nnx.Linear(2, 3, rngs=nnx.Rngs(0))),
    ),
    "equinox": (lambda: Eqx(1), lambda: Eqx(2)),
}  # fmt: skip


@pytest.mark.parametrize("name", KEYED)
def test_S1_equal_captures_have_one_key_and_others_another(name: str) -> None:
    """A function over the same value, made anew, has the same key; I3 decides what is the same."""
    same, other = KEYED[name]
    first, second, third = (freeze(seeing(make())) for make in (same, same, other))
    assert first.leaves == []
    assert first.key == second.key
    assert first.key != third.key
    assert hash(first.key) == hash(second.key)


@pytest.mark.parametrize("name", KEYED)
def test_S1_the_key_is_stable_while_nothing_changes(name: str) -> None:
    """Looking at a value changes nothing that the next look would see."""
    f = seeing(KEYED[name][0]())
    assert freeze(f).key == freeze(f).key


@pytest.mark.parametrize(
    "make",
    [
        lambda: jnp.ones(3),
        lambda: jax.random.key(0),
        lambda: jax.random.PRNGKey(0),
        lambda: [jnp.ones(3)],
        lambda: Plain(jnp.ones(3)),
        lambda: Eqx(jnp.ones(3)),
        lambda: optax.sgd(0.1, momentum=0.9).init(jnp.ones(3)),
        lambda: functools.partial(seeing, jnp.ones(3)),
        lambda: jax.tree_util.Partial(seeing, jnp.ones(3)),
    ],
    ids=["array", "key", "raw_key", "list", "object", "equinox", "optax", "partial", "Partial"],
)
def test_S1_arrays_are_leaves(make: Callable[[], Any]) -> None:
    """They are no part of the key: functions over two arrays have one key."""
    first, second = freeze(seeing(make())), freeze(seeing(make()))
    assert first.key == second.key
    assert [type(leaf) for leaf in first.leaves] == [type(leaf) for leaf in second.leaves]
    assert len(first.leaves) >= 1


def test_S1_tracers_are_leaves() -> None:
    """A tracer is one, in whatever it sits."""
    found = []

    def f(x: Any) -> Any:
        found.extend(freeze(seeing({"a": x})).leaves)
        return x

    jax.jit(f)(1.0)
    assert len(found) == 1


def test_S1_jitted_functions_are_keyed_by_identity() -> None:
    """jax takes a jitted function as it is cached, whatever it closes over."""
    jitted = jax.jit(lambda x: x)
    assert freeze(seeing(jitted)).key == freeze(seeing(jitted)).key
    assert freeze(seeing(jitted)).key != freeze(seeing(jax.jit(lambda x: x))).key


REFUSED: dict[str, tuple[Callable[[], Any], str, str, str]] = {
    "module": (lambda: nnx.Linear(2, 2, rngs=nnx.Rngs(0)), "Linear", "state that may change",
               "pass the module as an operand"),
    "variable": (lambda: nnx.Param(jnp.ones(2)), "Param", "state", "module as an operand"),
    "rngs": (lambda: nnx.Rngs(0), "Rngs", "state", "module as an operand"),
    "optimizer": (lambda: nnx.Optimizer(MODEL, optax.sgd(0.1), wrt=nnx.Param), "Optimizer",
                  "state", "module as an operand"),
    "state": (lambda: nnx.state(MODEL), "State", "state", "module as an operand"),
    "large_array": (lambda: np.zeros(3 << 20), "ndarray", "25165824 bytes", "make it a jax.Array"),
    "object_array": (lambda: np.array([object()]), "ndarray", "edited in place", "jax.Array"),
    "file": (lambda: open(os.devnull), "TextIOWrapper", "read completely", "fnintern.keyed"),  # noqa: SIM115
    "thread_local": (threading.local, "_local", "read completely", "operand"),
    "iterator": (lambda: iter([1]), "list_iterator", "read completely", "operand"),
    "generator": (lambda: (i for i in [1]), "generator", "read completely", "operand"),
    "count": (itertools.count, "count", "read completely", "operand"),
    "rng": (lambda: np.random.default_rng(0), "Generator", "read completely", "operand"),
    "random": (lambda: random.Random(0), "Random", "read completely", "operand"),
    "random_function": (lambda: random.random, "Random", "read completely", "operand"),
    "random_module": (lambda: np.random, "module", "else at each call", "read it outside"),
    "time": (lambda: time.time, "builtin_function", "belongs to time", "read it outside"),
    "getter": (lambda: operator.itemgetter(0), "itemgetter", "read completely", "operand"),
    "weak_reference": (lambda: weakref.ref(Mode), "ReferenceType", "may go", "operand"),
    "environment": (lambda: os.getenv, "function", "operating system", "read it outside"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_S2_what_cannot_be_split_is_refused(name: str) -> None:
    """The refusal names the path, the type, the reason and a remedy, each on its own."""
    make, type_name, reason, remedy = REFUSED[name]
    value = make()
    try:
        with pytest.raises(Refused) as caught:
            freeze(seeing([value]) if name != "random_module" else seeing(value))
    finally:
        getattr(value, "close", lambda: None)()
    error = caught.value
    assert "value" in error.path
    assert re.search(type_name, error.type_name)
    assert re.search(reason, error.reason)
    assert remedy in error.remedy


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def test_S2_depth_has_a_limit() -> None:
    """Captures nested deeper than the limit are refused, before Python's own limit is met."""
    assert freeze(seeing(deep(MAX_DEPTH - 5))).leaves == []
    with pytest.raises(Refused, match="nest deeper than"):
        freeze(seeing(deep(MAX_DEPTH + 5)))
    f = seeing(1)
    for _ in range(2000):
        f = seeing(f)
    with pytest.raises(Refused, match="nest"):
        freeze(f)


SEEN = 2.0
SHADOWED: Any = None


def helper(x: Any) -> Any:
    return x * SEEN


def cached(function: Any) -> Any:
    return functools.lru_cache(function)


@functools.lru_cache
def memoized(x: Any) -> Any:
    return helper(x)


class Body:
    def property_chain(self) -> Any:
        return self.first

    @property
    def first(self) -> Any:
        return self.second

    @property
    def second(self) -> Any:
        return SEEN


BODY = Body()


def walrus(x: Any) -> Any:
    return (y := SEEN) * x + y


def comprehension(x: Any) -> Any:
    return [x * SEEN for _ in range(2) if x]


def generator_expression(x: Any) -> Any:
    return sum(x * SEEN for _ in range(2))


def class_body(x: Any) -> Any:
    class Local:
        scale = SEEN

    return Local.scale * x


def default_of_nested(x: Any) -> Any:
    def inner(y: Any, k: Any = SEEN) -> Any:
        return y * k

    return inner(x)


def decorated_inside(x: Any) -> Any:
    @functools.wraps(helper)
    def inner(y: Any) -> Any:
        return helper(y)

    return inner(x)


def try_statement(x: Any) -> Any:
    try:
        return x
    finally:
        x += SEEN


def matched(x: Any) -> Any:
    match x:
        case 1:
            return SEEN
        case _:
            return x


def annotated(x: Any) -> Any:
    return isinstance(x, list) and SEEN


def formatted(x: Any) -> Any:
    return f"{x}{SEEN:{SEEN}}"


def written(x: Any) -> Any:
    global SEEN
    SEEN = x


@pytest.mark.parametrize(
    "f",
    [
        helper, memoized, BODY.property_chain, lambda x: helper(x), lambda x: BODY.first,
        walrus, comprehension, generator_expression, class_body, default_of_nested,
        decorated_inside, try_statement, matched, annotated, formatted,
        functools.partial(helper), functools.wraps(len)(lambda x: helper(x)),
        jax.vmap(helper), jax.custom_jvp(helper), seeing([{"a": (helper,)}]),
    ],
)  # fmt: skip
def test_S1_every_way_to_reach_a_global_is_seen(f: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rebinding the global changes the key, and binding it back brings the key back."""
    before = freeze(f).key
    for value in (3.0, 2, True, "a"):
        monkeypatch.setitem(globals(), "SEEN", value)
        assert freeze(f).key != before
    monkeypatch.setitem(globals(), "SEEN", 2.0)
    assert freeze(f).key == before


def test_S2_what_assigns_outside_itself_is_refused() -> None:
    """Two branches that count in one variable are not traced alike, not even in one call."""
    count = 0

    def counts(x: Any) -> Any:
        nonlocal count
        count += 1
        return x * count

    for f, name in ((written, "SEEN"), (counts, "count"), (lambda x: counts(x), "count")):
        with pytest.raises(Refused, match=f"it assigns to {name}"):
            freeze(f)


def test_S1_only_globals_count_and_not_every_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A local variable, an attribute or a parameter of that name is another thing."""

    def local(x: Any, SHADOWED: Any = 0) -> Any:
        return x.SHADOWED

    before = freeze(local).key
    monkeypatch.setitem(globals(), "SHADOWED", 1)
    assert freeze(local).key == before


def test_S1_a_builtin_that_is_shadowed_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A global that hides a builtin counts, from the moment it is there."""
    f = lambda x: abs(x)
    before = freeze(f).key
    monkeypatch.setitem(globals(), "abs", lambda x: x)
    assert freeze(f).key != before


@pytest.mark.parametrize("call", ["globals()", "eval('x')", "vars()", "locals()", "open('x')"])
def test_S2_builtins_that_hide_what_is_read(call: str) -> None:
    """Code that asks for names at run time is refused, and the reason says which builtin."""
    namespace: dict[str, Any] = {}
    exec(f"def f(x): return {call}", namespace)
    name = call.partition("(")[0]
    with pytest.raises(Refused) as caught:
        freeze(namespace["f"])
    assert f"it calls {name}()" in caught.value.reason
    assert "name what it reads" in caught.value.remedy


def imports_numpy(x: Any) -> Any:
    import numpy

    return x * numpy.random.normal()


def imports_random_of_numpy(x: Any) -> Any:
    from numpy import random

    return x * random.normal()


def imports_time(x: Any) -> Any:
    from time import time

    return x * time()


def renames_numpy(x: Any) -> Any:
    xp = np
    return x * xp.random.normal()


def asks_for_the_day(x: Any) -> Any:
    return x * datetime.date.today().day


def asks_the_environment(x: Any) -> Any:
    return x * len(os.getenv("HOME", ""))


@pytest.mark.parametrize(
    "f",
    [
        imports_numpy, imports_random_of_numpy, imports_time, renames_numpy, asks_for_the_day,
        asks_the_environment, lambda x: np.random.normal(), lambda x: time.time(),
        lambda x: random.random(), lambda x: time.perf_counter(),
    ],
)  # fmt: skip
def test_S2_what_is_different_at_each_call_is_refused(f: Any) -> None:
    """Chance, the clock and the environment are refused however they are reached."""
    with pytest.raises(Refused) as caught:
        freeze(f)
    assert caught.value.remedy == "read it outside, pass the result"


def test_S1_the_same_code_in_other_globals_is_another_function() -> None:
    """Functions that one text made in two namespaces see different things."""
    spaces: list[dict[str, Any]] = [{"K": 1}, {"K": 2}, {"K": 1}]
    code = compile("def f(x): return x * K", "<text>", "exec")
    for space in spaces:
        exec(code, space)
    keys = [freeze(space["f"]).key for space in spaces]
    assert len(set(keys)) == 3


def test_S2_stateless_is_taken_as_it_is() -> None:
    """What is declared free of state is keyed by identity, and never looked into."""

    class Table:
        def __init__(self) -> None:
            self.lock = iter([1])

    table = Table()
    with pytest.raises(Refused):
        freeze(seeing(table))
    assert fnintern.stateless(table) is table
    key = freeze(seeing(table)).key
    table.lock = iter([1])
    assert freeze(seeing(table)).key == key
    with pytest.raises(Refused):
        freeze(seeing(Table()))


def test_S2_stateless_as_a_decorator() -> None:
    """A function declared stateless may read what would be refused."""

    @fnintern.stateless
    def log(x: Any) -> Any:
        return time.time()

    assert freeze(seeing(log)).key == freeze(seeing(log)).key


def test_S2_stateless_ends_with_the_object() -> None:
    """An object that takes over the id of a declared one is not declared."""

    class Table:
        def __init__(self) -> None:
            self.lock = iter([1])

    for _ in range(50):
        table = fnintern.stateless(Table())
        del table
        with pytest.raises(Refused):
            freeze(seeing(Table()))


def test_S2_stateless_names_what_it_cannot_declare() -> None:
    """The error shows the value, its type, and the other way."""
    with pytest.raises(TypeError) as caught:
        fnintern.stateless(3)
    text = str(caught.value)
    assert "got 3" in text
    assert "of type int" in text
    assert "fnintern.keyed" in text


def test_S2_keyed_says_what_makes_instances_the_same() -> None:
    """The key function is asked at each look-up, for subclasses too."""

    class Tokenizer:
        def __init__(self, name: Any) -> None:
            self.name, self.lock = name, threading.Lock()

    class Sub(Tokenizer):
        pass

    fnintern.keyed(Tokenizer, lambda tokenizer: tokenizer.name)
    assert freeze(seeing(Tokenizer("a"))).key == freeze(seeing(Tokenizer("a"))).key
    assert freeze(seeing(Tokenizer("a"))).key != freeze(seeing(Tokenizer("b"))).key
    assert freeze(seeing(Tokenizer(1))).key != freeze(seeing(Tokenizer(1.0))).key
    assert freeze(seeing(Tokenizer("a"))).key != freeze(seeing(Sub("a"))).key


@pytest.mark.parametrize(
    ("arguments", "text"), [((3, len), "got 3"), ((Plain, 3), "got 3")], ids=["type", "key"]
)
def test_S2_keyed_names_what_is_wrong(arguments: Any, text: str) -> None:
    """A wrong argument is shown, at the declaration."""
    with pytest.raises(TypeError, match=text):
        fnintern.keyed(*arguments)


def key_and_references(value: Any) -> tuple[Any, list[weakref.ref[Any]]]:
    class Local:
        pass

    def local(x: Any) -> Any:
        return (x, value, Local)

    return freeze(local).key, [weakref.ref(local), weakref.ref(Local)]


@pytest.mark.parametrize("name", KEYED)
def test_S3_a_key_keeps_no_function_alive(name: str) -> None:
    """Whoever stores a key holds neither the function nor an object of the user's."""

    key, refs = key_and_references(KEYED[name][0]())
    gc.collect()
    assert [ref() for ref in refs] == [None, None]
    assert key


#: States that only calling the function makes.
CHANGED_BY_CALLS = {"counter_in_a_list", "nonlocal_counter", "cached_property"}


@pytest.mark.parametrize("make", list(states.STATES.values()), ids=list(states.STATES))
def test_S1_each_state_has_its_own_key_or_is_refused(make: states.State) -> None:
    """Consecutive states of the soundness tests differ in key or in leaves."""
    before: Any = None
    for f in make():
        try:
            frozen = freeze(f)
        except Refused:
            before = None
            continue
        now = (frozen.key, [id(leaf) for leaf in frozen.leaves])
        if before is not None and make.__name__ not in CHANGED_BY_CALLS:
            assert now != before
        before = now
        del frozen


def test_s1_an_interned_wrapper_is_what_it_wraps() -> None:
    """A stand-in inside a wrapper counts as the callable that it stands for."""

    class Model:
        def __init__(self, scale: float) -> None:
            self.scale = scale

        def call(self, x: float) -> float:
            return self.scale * x

    @fnintern.interned
    def wrap(f: Any) -> Any:
        return lambda x: f(x)

    one, two, again = Model(1.0), Model(2.0), Model(1.0)
    keys = [freeze(wrap(model.call)).key for model in (one, two, again)]
    assert keys[0] != keys[1]
    assert keys[0] == keys[2]
    one.scale = 2.0
    assert freeze(wrap(one.call)).key == keys[1]


def test_s1_what_code_asks_of_a_value_is_part_of_the_key() -> None:
    """A bound, a flag and a base are read as well as the contents."""

    def named(qualname: str) -> Any:
        def inner() -> None: ...

        inner.__qualname__ = qualname
        return lambda: len(inner.__qualname__)

    def seeing_each(*values: Any) -> list[Any]:
        return [freeze(seeing(value)).key for value in values]

    free, fixed = np.ones(2), np.ones(2)
    fixed.flags.writeable = False
    view = np.ones((2, 1))[:, 0]
    queues = collections.deque([1, 2]), collections.deque([1, 2], maxlen=2)
    for keys in (seeing_each(*queues), seeing_each(free, fixed), seeing_each(free, view)):
        assert keys[0] != keys[1]
    assert freeze(named("a")).key != freeze(named("b")).key


def test_s1_what_jax_calls_of_a_pytree_is_part_of_the_key() -> None:
    class Config:
        scale = 1.0

    class Node:
        def tree_flatten(self) -> Any:
            return (Config.scale,), None

    node = Node()

    def f() -> Any:
        return jax.tree.leaves(node)

    before = freeze(f).key
    Config.scale = 2.0
    assert freeze(f).key != before

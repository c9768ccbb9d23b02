"""Every way in which what a branch sees can change between two calls (S1), as one list.

A state is a generator: it yields the function to call, changes something each time it is resumed,
and yields the function again, made anew or not. What it does to this module it puts right itself.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import itertools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

import attrs
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

__all__ = ["STATES", "State"]

Function = Callable[[Any], Any]
State = Callable[[], Iterator[Function]]

STATES: dict[str, State] = {}


def state(make: State) -> State:
    STATES[make.__name__] = make
    return make


SCALE: Any = 2.0
ARRAY = jnp.float32(2.0)
COUNTED = 0.0
LIMITS = [2.0]
TABLE: dict[str, Any] = {"scale": 2.0}
EDITED = np.array([2.0], np.float32)
CONFIG = types.ModuleType("a_config")
CONFIG.scale = 2.0  # type: ignore[attr-defined]
CONFIG.inner = types.SimpleNamespace(scale=2.0)  # type: ignore[attr-defined]


class Settings:
    scale = 2.0


class Scaled:
    def __init__(self, scale: Any = 2.0) -> None:
        self.scale = scale

    def method(self, x: Any) -> Any:
        return x * self.scale

    def __call__(self, x: Any) -> Any:
        return x * self.scale


class Slotted:
    __slots__ = ("scale",)

    def __init__(self) -> None:
        self.scale = 2.0

    def __call__(self, x: Any) -> Any:
        return x * self.scale


class Model(nnx.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        self.w = nnx.Param(jnp.float32(2.0))
        self.deterministic = False
        self.drop = nnx.Dropout(0.9, rngs=nnx.Rngs(0))

    def method(self, x: Any) -> Any:
        return x * self.w[...] * (3.0 if self.deterministic else 1.0)

    def __call__(self, x: Any) -> Any:
        return self.method(x)


HELD = Scaled()


def innermost(x: Any) -> Any:
    return x * SCALE


def helper(x: Any) -> Any:
    return innermost(x)


def twice(function: Function) -> Function:
    @functools.wraps(function)
    def wrapper(x: Any) -> Any:
        return function(x) + function(x)

    return wrapper


@twice
def decorated(x: Any) -> Any:
    return x * SCALE


@jax.vmap  # type: ignore[untyped-decorator]
def mapped(x: Any) -> Any:
    """A library's decorator gives what it makes the name of the user's function."""
    return x * SCALE


@functools.singledispatch
def dispatched(x: Any) -> Any:
    return x * SCALE


# -- globals ------------------------------------------------------------------------------------


@state
def global_float() -> Iterator[Function]:
    global SCALE

    def f(x: Any) -> Any:
        return x * SCALE

    yield f
    SCALE = 3.0
    yield f
    SCALE = 3  # of another type: I3
    yield f
    SCALE = 2.0
    yield f


@state
def global_array() -> Iterator[Function]:
    global ARRAY

    def f(x: Any) -> Any:
        return x * ARRAY

    yield f
    ARRAY = ARRAY + 1
    yield f
    ARRAY = jnp.float32(2.0)
    yield f


@state
def global_array_dtype() -> Iterator[Function]:
    global ARRAY

    def f(x: Any) -> Any:
        return jnp.float32(x * ARRAY)

    yield f
    ARRAY = jnp.int32(5)
    yield f
    ARRAY = jnp.float32(2.0)


@state
def global_list() -> Iterator[Function]:
    yield lambda x: x * LIMITS[0]
    LIMITS[0] = 3.0
    yield lambda x: x * LIMITS[0]
    LIMITS[0] = 2.0


@state
def global_dict() -> Iterator[Function]:
    def f(x: Any) -> Any:
        return x * TABLE["scale"]

    yield f
    TABLE["scale"] = 3.0
    yield f
    TABLE["scale"] = 2.0


@state
def numpy_edited_in_place() -> Iterator[Function]:
    def f(x: Any) -> Any:
        return x * EDITED[0]

    yield f
    EDITED[0] = 3.0
    yield f
    EDITED[0] = 2.0


@state
def large_numpy_edited_in_place() -> Iterator[Function]:
    table = np.full(5000, 2.0, np.float32)

    def f(x: Any) -> Any:
        return x * table[0]

    yield f
    table[0] = 3.0
    yield f


@state
def class_attribute() -> Iterator[Function]:
    def f(x: Any) -> Any:
        return x * Settings.scale

    yield f
    Settings.scale = 3.0
    yield f
    Settings.scale = 2.0


@state
def module_attribute() -> Iterator[Function]:
    def f(x: Any) -> Any:
        return x * CONFIG.scale

    yield f
    CONFIG.scale = 3.0  # type: ignore[attr-defined]
    yield f
    CONFIG.scale = 2.0  # type: ignore[attr-defined]


@state
def chain_of_attributes() -> Iterator[Function]:
    def f(x: Any) -> Any:
        return x * CONFIG.inner.scale

    yield f
    CONFIG.inner.scale = 3.0
    yield f
    CONFIG.inner.scale = 2.0


@state
def module_in_a_variable() -> Iterator[Function]:
    def f(x: Any) -> Any:
        config = CONFIG
        return x * config.scale

    yield f
    CONFIG.scale = 3.0  # type: ignore[attr-defined]
    yield f
    CONFIG.scale = 2.0  # type: ignore[attr-defined]


@state
def import_inside() -> Iterator[Function]:
    sys.modules["a_config"] = CONFIG

    def f(x: Any) -> Any:
        from a_config import scale  # type: ignore[import-not-found]

        return x * scale

    yield f
    CONFIG.scale = 3.0  # type: ignore[attr-defined]
    yield f
    CONFIG.scale = 2.0  # type: ignore[attr-defined]
    del sys.modules["a_config"]


@state
def helper_of_a_helper() -> Iterator[Function]:
    global SCALE

    yield lambda x: helper(x)
    SCALE = 3.0
    yield lambda x: helper(x)
    SCALE = 2.0


@state
def monkeypatched_helper() -> Iterator[Function]:
    global innermost
    before = innermost

    def f(x: Any) -> Any:
        return helper(x)

    yield f
    innermost = lambda x: x * 17.0
    yield f
    innermost = before
    yield f


@state
def replaced_code() -> Iterator[Function]:
    def f(x: Any) -> Any:
        return x * 2.0

    yield f
    f.__code__ = (lambda x: x * 3.0).__code__
    yield f


@state
def exec_namespace() -> Iterator[Function]:
    namespace: dict[str, Any] = {}
    exec("K = 2.0\ndef f(x):\n    return x * K\n", namespace)
    yield namespace["f"]
    namespace["K"] = 3.0
    yield namespace["f"]


@state
def missing_global() -> Iterator[Function]:
    namespace: dict[str, Any] = {}
    exec("def f(x):\n    return x * K if 'K' in globals() else x\n", namespace)
    yield namespace["f"]
    namespace["K"] = 3.0
    yield namespace["f"]


@state
def nested_code() -> Iterator[Function]:
    global SCALE

    def f(x: Any) -> Any:
        class Local:
            scale = SCALE

        return sum([y * SCALE for y in (x, x)]) + (lambda y: y * SCALE)(x) * Local.scale

    yield f
    SCALE = 3.0
    yield f
    SCALE = 2.0


@state
def rebound_between_nested_calls() -> Iterator[Function]:
    global SCALE

    def f(x: Any) -> Any:
        global SCALE
        SCALE = SCALE + 1.0
        y = nnx.cond(True, innermost, lambda y: y, x)
        SCALE = SCALE - 1.0
        return y + nnx.cond(True, innermost, lambda y: y, x)

    yield f
    SCALE = 5.0
    yield f
    SCALE = 2.0


# -- closures, defaults, attributes -------------------------------------------------------------


@state
def closure() -> Iterator[Function]:
    k: Any = 2.0

    def f(x: Any) -> Any:
        return x * k

    yield f
    k = 3.0
    yield f
    k = 3
    yield f


@state
def closure_made_anew() -> Iterator[Function]:
    def make(k: Any) -> Function:
        return lambda x: x * k

    for k in (2.0, 3.0, 3, 2.0, -0.0, 0.0):
        yield make(k)


@state
def closure_over_array() -> Iterator[Function]:
    k = jnp.float32(2.0)

    def f(x: Any) -> Any:
        return x * k

    yield f
    k = k + 1
    yield f
    k = k.astype(jnp.int32)
    yield f


@state
def closure_over_closure() -> Iterator[Function]:
    def make() -> tuple[Function, Callable[[], None]]:
        k = 2.0

        def inner(x: Any) -> Any:
            return x * k

        def grow() -> None:
            nonlocal k
            k += 1

        return lambda x: inner(x) + 1.0, grow

    f, grow = make()
    yield f
    grow()
    yield f


@state
def empty_cell() -> Iterator[Function]:
    def make(fill: bool) -> Function:
        def f(x: Any) -> Any:
            try:
                return x * k
            except NameError:
                return x

        if fill:
            k = 3.0
        return f

    yield make(False)
    yield make(True)


@state
def default() -> Iterator[Function]:
    def f(x: Any, k: float = 2.0) -> Any:
        return x * k

    yield f
    f.__defaults__ = (3.0,)
    yield f


@state
def keyword_default() -> Iterator[Function]:
    def f(x: Any, *, k: float = 2.0) -> Any:
        return x * k

    yield f
    f.__kwdefaults__["k"] = 3.0  # type: ignore[index]
    yield f


@state
def mutable_default() -> Iterator[Function]:
    def f(x: Any, k: list[float] = [2.0]) -> Any:  # noqa: B006
        return x * k[0]

    yield f
    f.__defaults__[0][0] = 3.0  # type: ignore[index]
    yield f


@state
def function_attribute() -> Iterator[Function]:
    def f(x: Any) -> Any:
        return x * f.k  # type: ignore[attr-defined]

    f.k = 2.0  # type: ignore[attr-defined]
    yield f
    f.k = 3.0  # type: ignore[attr-defined]
    yield f


@state
def partial_argument() -> Iterator[Function]:
    held = [2.0]

    def scaled(k: list[float], x: Any) -> Any:
        return x * k[0]

    f = functools.partial(scaled, held)
    yield f
    held[0] = 3.0
    yield f
    yield functools.partial(scaled, [4.0])


@state
def partial_keyword() -> Iterator[Function]:
    def scaled(x: Any, *, k: float) -> Any:
        return x * k

    f = functools.partial(scaled, k=2.0)
    yield f
    f.keywords["k"] = 3.0
    yield f


@state
def tree_partial() -> Iterator[Function]:
    def scaled(k: Any, x: Any) -> Any:
        return x * k

    yield jax.tree_util.Partial(scaled, jnp.float32(2.0))
    yield jax.tree_util.Partial(scaled, jnp.float32(3.0))
    yield jax.tree_util.Partial(scaled, 3.0)


# -- objects ------------------------------------------------------------------------------------


@state
def bound_method() -> Iterator[Function]:
    owner = Scaled()
    yield owner.method
    owner.scale = 3.0
    yield owner.method


@state
def callable_object() -> Iterator[Function]:
    owner = Scaled()
    yield owner
    owner.scale = 3.0
    yield owner


@state
def callable_without_weak_references() -> Iterator[Function]:
    owner = Slotted()
    yield owner
    owner.scale = 3.0
    yield owner


@state
def global_object() -> Iterator[Function]:
    def f(x: Any) -> Any:
        return HELD.method(x)

    yield f
    HELD.scale = 3.0
    yield f
    HELD.scale = 2.0


@state
def object_with_array() -> Iterator[Function]:
    owner = Scaled(jnp.float32(2.0))
    yield owner.method
    owner.scale = owner.scale + 1
    yield owner.method


@state
def simple_namespace() -> Iterator[Function]:
    options = types.SimpleNamespace(scale=2.0)

    def f(x: Any) -> Any:
        return x * options.scale

    yield f
    options.scale = 3.0
    yield f


@state
def frozen_dataclass() -> Iterator[Function]:
    @dataclasses.dataclass(frozen=True)
    class Options:
        scale: float = 2.0

    options = Options()

    def f(x: Any) -> Any:
        return x * options.scale

    yield f
    options = Options(3.0)
    yield f
    object.__setattr__(options, "scale", 4.0)
    yield f


@state
def dataclass_of_dataclasses() -> Iterator[Function]:
    @dataclasses.dataclass
    class Inner:
        scale: float = 2.0

    @dataclasses.dataclass
    class Outer:
        inner: Inner

        @property
        def scale(self) -> float:
            return self.inner.scale

    outer = Outer(Inner())

    def f(x: Any) -> Any:
        return x * outer.scale

    yield f
    outer.inner.scale = 3.0
    yield f


@state
def attrs_class() -> Iterator[Function]:
    @attrs.define
    class Options:
        scale: float = 2.0

    options = Options()

    def f(x: Any) -> Any:
        return x * options.scale

    yield f
    options.scale = 3.0
    yield f


@state
def made_dataclass() -> Iterator[Function]:
    options = dataclasses.make_dataclass(
        "Options", [("k", float)], namespace={"scale": lambda self: self.k * SCALE}
    )(1.0)
    global SCALE

    def f(x: Any) -> Any:
        return x * options.scale()

    yield f
    SCALE = 3.0
    yield f
    SCALE = 2.0


@state
def property_of_a_global() -> Iterator[Function]:
    class Options:
        @property
        def scale(self) -> Any:
            return self.outer

        @property
        def outer(self) -> Any:
            return SCALE

    global SCALE
    options = Options()

    def f(x: Any) -> Any:
        return x * options.scale

    yield f
    SCALE = 3.0
    yield f
    SCALE = 2.0


@state
def cached_property() -> Iterator[Function]:
    class Options:
        def __init__(self, k: float) -> None:
            self.k = k

        @functools.cached_property
        def scale(self) -> float:
            return self.k

    options = Options(2.0)

    def f(x: Any) -> Any:
        return x * options.scale

    yield f
    options.k = 3.0  # too late
    yield f
    options = Options(3.0)
    yield f


@state
def superclass() -> Iterator[Function]:
    class Base:
        scale = 2.0

        def method(self, x: Any) -> Any:
            return x * self.scale

    class Derived(Base):
        def method(self, x: Any) -> Any:
            return super().method(x) + 1.0

    owner = Derived()
    yield owner.method
    Base.scale = 3.0
    yield owner.method


@state
def method_replaced() -> Iterator[Function]:
    class Owner:
        def method(self, x: Any) -> Any:
            return self.inner(x)

        def inner(self, x: Any) -> Any:
            return x * 2.0

    owner = Owner()
    yield owner.method
    Owner.inner = lambda self, x: x * 3.0  # type: ignore[method-assign]
    yield owner.method
    owner.inner = lambda x: x * 4.0  # type: ignore[method-assign]
    yield owner.method


@state
def metaclass_property() -> Iterator[Function]:
    class Meta(type):
        @property
        def scale(cls) -> Any:
            return SCALE

    class Options(metaclass=Meta):
        pass

    global SCALE

    def f(x: Any) -> Any:
        return x * Options.scale

    yield f
    SCALE = 3.0
    yield f
    SCALE = 2.0


@state
def descriptor() -> Iterator[Function]:
    class Field:
        def __init__(self) -> None:
            self.value = 2.0

        def __get__(self, instance: Any, owner: Any = None) -> float:
            return self.value

    field = Field()

    class Options:
        scale = field

    options = Options()

    def f(x: Any) -> Any:
        return x * options.scale

    yield f
    field.value = 3.0
    yield f


@state
def computed_attribute() -> Iterator[Function]:
    class Options:
        def __getattr__(self, name: str) -> Any:
            return SCALE

    global SCALE
    options = Options()

    def f(x: Any) -> Any:
        return x * options.anything

    yield f
    SCALE = 3.0
    yield f
    SCALE = 2.0


@state
def class_methods() -> Iterator[Function]:
    class Options:
        scales: ClassVar[list[float]] = [2.0]

        @classmethod
        def of(cls, x: Any) -> Any:
            return x * cls.scales[0] * cls.one()

        @staticmethod
        def one() -> Any:
            return SCALE

    global SCALE
    yield Options.of
    Options.scales[0] = 3.0
    yield Options.of
    SCALE = 3.0
    yield Options.of
    SCALE = 2.0


@state
def changed_class() -> Iterator[Function]:
    class One:
        def __call__(self, x: Any) -> Any:
            return x * 2.0

    class Two:
        def __call__(self, x: Any) -> Any:
            return x * 3.0

    owner: Any = One()
    yield owner
    owner.__class__ = Two
    yield owner


@state
def equinox_module() -> Iterator[Function]:
    class Scale(eqx.Module):  # type: ignore[misc]
        scale: Any
        static: float = eqx.field(static=True)

        def __call__(self, x: Any) -> Any:
            return x * self.scale * self.static

    module = Scale(jnp.float32(2.0), 1.0)
    yield module
    module = eqx.tree_at(lambda m: m.scale, module, jnp.float32(3.0))
    yield module
    yield Scale(module.scale, 2.0)


@state
def enumeration() -> Iterator[Function]:
    class Kind(enum.Enum):
        ONE = 1.0
        TWO = 2.0

    kind = Kind.ONE

    def f(x: Any) -> Any:
        return x * kind.value if kind is Kind.ONE else x - kind.value

    yield f
    kind = Kind.TWO
    yield f


@state
def enumeration_with_state() -> Iterator[Function]:
    class Kind(enum.Enum):
        ONE = [2.0]  # noqa: RUF012

        @property
        def scale(self) -> Any:
            return self.value[0] * self.extra  # type: ignore[attr-defined]

    kind: Any = Kind.ONE
    setattr(kind, "extra", 1.0)  # noqa: B010

    def f(x: Any) -> Any:
        return x * kind.scale

    yield f
    kind.value[0] = 3.0
    yield f
    setattr(kind, "extra", 2.0)  # noqa: B010
    yield f


@state
def containers_that_hide_what_they_hold() -> Iterator[Function]:
    class Dict(dict):  # type: ignore[type-arg]
        def __iter__(self) -> Any:
            return iter(())

        def keys(self) -> Any:
            return []

        def items(self) -> Any:
            return []

    class List(list):  # type: ignore[type-arg]
        def __iter__(self) -> Any:
            return iter(())

    class Float(float):
        def __float__(self) -> float:
            return 1.0

    table, queue, number = Dict(k=2.0), List([2.0]), Float(2.0)

    def f(x: Any) -> Any:
        return x * table["k"] + queue[0] * (number + 0.0)

    yield f
    table["k"] = 3.0
    yield f
    queue[0] = 3.0
    yield f
    number = Float(3.0)
    yield f


@state
def hostile_object() -> Iterator[Function]:
    class Hostile:
        def __init__(self) -> None:
            self.scale = 2.0

        def __eq__(self, other: object) -> bool:
            raise RuntimeError("asked for equality")

        __hash__ = None  # type: ignore[assignment]

        def __bool__(self) -> bool:
            raise RuntimeError("asked for truth")

        def __len__(self) -> int:
            raise RuntimeError("asked for length")

        def __repr__(self) -> str:
            raise RuntimeError("asked for text")

    hostile = Hostile()

    def f(x: Any) -> Any:
        return x * hostile.scale

    yield f
    hostile.scale = 3.0
    yield f


@state
def named_tuple() -> Iterator[Function]:
    class Options(NamedTuple):
        scale: Any

    options = Options(2.0)

    def f(x: Any) -> Any:
        return x * options.scale

    yield f
    options = options._replace(scale=3.0)
    yield f
    options = options._replace(scale=3)
    yield f


# -- containers and callables in them -----------------------------------------------------------


@state
def container_subclasses() -> Iterator[Function]:
    class Options(dict):  # type: ignore[type-arg]
        offset = 0.0

        def __getattr__(self, name: str) -> Any:
            return self[name]

    options = Options(scale=2.0)

    def f(x: Any) -> Any:
        return x * options.scale + options.offset

    yield f
    options["scale"] = 3.0
    yield f
    options.offset = 1.0
    yield f
    Options.offset = 2.0
    yield f
    del options.offset
    yield f


@state
def collections_of_all_kinds() -> Iterator[Function]:
    queue = collections.deque([1.0])
    ordered = collections.OrderedDict(a=1.0, b=2.0)
    lazy: dict[str, float] = collections.defaultdict(lambda: 2.0)
    counter = collections.Counter("aab")
    layered = collections.ChainMap({}, {"k": 1.0})

    def f(x: Any) -> Any:
        y = x * queue[-1] + next(iter(ordered.values())) + counter["a"] + layered["k"]
        return y * lazy.get("missing", 1.0)

    yield f
    queue.append(2.0)
    yield f
    ordered.move_to_end("a")
    yield f
    counter["a"] += 1
    yield f
    layered["k"] = 3.0
    yield f
    lazy["missing"] = 7.0
    yield f


@state
def sets() -> Iterator[Function]:
    allowed = {"double"}

    def f(x: Any) -> Any:
        return x * 2.0 if "double" in allowed else x

    yield f
    allowed.clear()
    yield f


@state
def order_of_a_dict() -> Iterator[Function]:
    layers: dict[str, Function] = {"a": lambda x: x + 1.0, "b": lambda x: x * 2.0}

    def f(x: Any) -> Any:
        for layer in layers.values():
            x = layer(x)
        return x

    yield f
    layers["a"] = layers.pop("a")
    yield f


@state
def functions_in_containers() -> Iterator[Function]:
    k = 2.0
    table = {"layers": [lambda x: x * k, (lambda x: x + k,)]}

    def f(x: Any) -> Any:
        layers: Any = table["layers"]
        return layers[1][0](layers[0](x))

    yield f
    k = 3.0
    yield f
    table["layers"][0] = lambda x: x - k
    yield f


@state
def aliasing() -> Iterator[Function]:
    first, second = [2.0], [2.0]
    pair = (first, first)

    def f(x: Any) -> Any:
        return x * 2.0 if pair[0] is pair[1] else x

    yield f
    pair = (first, second)
    yield f


@state
def cycle() -> Iterator[Function]:
    node: dict[str, Any] = {"k": 2.0}
    node["self"] = node

    def f(x: Any) -> Any:
        return x * node["self"]["self"]["k"]

    yield f
    node["k"] = 3.0
    yield f


@state
def recursion() -> Iterator[Function]:
    global SCALE

    def f(x: Any, depth: int = 2) -> Any:
        return x * SCALE if depth == 0 else f(x, depth - 1)

    yield f
    SCALE = 3.0
    yield f
    SCALE = 2.0


@state
def decorated_function() -> Iterator[Function]:
    global SCALE
    yield decorated
    SCALE = 3.0
    yield decorated
    SCALE = 2.0


@state
def decorated_by_a_library() -> Iterator[Function]:
    global SCALE
    yield lambda x: mapped(x[None])[0]
    SCALE = 3.0
    yield lambda x: mapped(x[None])[0]
    SCALE = 2.0


@state
def single_dispatch() -> Iterator[Function]:
    global SCALE
    yield dispatched
    SCALE = 3.0
    yield dispatched
    SCALE = 2.0


@state
def custom_derivative() -> Iterator[Function]:
    k = 2.0

    @jax.custom_jvp  # type: ignore[untyped-decorator]
    def scaled(x: Any) -> Any:
        return x * k

    scaled.defjvp(lambda primals, tangents: (scaled(*primals), tangents[0] * k))

    def f(x: Any) -> Any:
        return scaled(x)

    yield f
    k = 3.0
    yield f


@state
def transformed_by_jax() -> Iterator[Function]:
    k = 2.0
    mapped = jax.vmap(lambda x: x * k)

    def f(x: Any) -> Any:
        return mapped(x[None])[0]

    yield f
    k = 3.0
    yield f


# -- a trace that changes what it sees ----------------------------------------------------------


@state
def counter_in_a_list() -> Iterator[Function]:
    count = [0.0]

    def f(x: Any) -> Any:
        count[0] += 1
        return x * count[0]

    yield f
    yield f


@state
def nonlocal_counter() -> Iterator[Function]:
    count = 0.0

    def f(x: Any) -> Any:
        nonlocal count
        count += 1
        return x * count

    yield f
    yield f


@state
def written_global() -> Iterator[Function]:
    global COUNTED

    def one(x: Any) -> Any:
        global COUNTED
        COUNTED = 1.0
        return x

    def two(x: Any) -> Any:
        global COUNTED
        COUNTED = 2.0
        return x

    for f in (one, two, one, two):
        COUNTED = 0.0
        yield f


@state
def iterator() -> Iterator[Function]:
    numbers = itertools.count(1.0)
    yield lambda x: x * next(numbers)
    yield lambda x: x * next(numbers)


@state
def random_numbers() -> Iterator[Function]:
    np.random.seed(0)
    yield lambda x: x * np.random.normal()
    yield lambda x: x * np.random.normal()


# -- flax modules -------------------------------------------------------------------------------


@state
def model_method() -> Iterator[Function]:
    model = Model()
    yield model.method
    model.w[...] = jnp.float32(3.0)
    yield model.method
    model.deterministic = True
    yield model.method


@state
def callable_model() -> Iterator[Function]:
    model = Model()
    yield model
    model.w[...] = jnp.float32(3.0)
    yield model


@state
def model_in_a_closure() -> Iterator[Function]:
    model = Model()

    def f(x: Any) -> Any:
        return model(x)

    yield f
    model.w[...] = jnp.float32(3.0)
    yield f
    model = Model()
    yield f


@state
def model_eval() -> Iterator[Function]:
    model = Model()

    def f(x: Any) -> Any:
        return x * 2.0 if model.drop.deterministic else x

    yield f
    model.eval()
    yield f
    model.train()
    yield f


@state
def model_in_a_partial() -> Iterator[Function]:
    model = Model()
    f = functools.partial(lambda model, x: model(x), model)
    yield f
    model.w[...] = jnp.float32(3.0)
    yield f


@state
def variable() -> Iterator[Function]:
    scale = nnx.Variable(jnp.float32(2.0))

    def f(x: Any) -> Any:
        return x * scale[...]

    yield f
    scale[...] = jnp.float32(3.0)
    yield f


@state
def random_stream() -> Iterator[Function]:
    def make(seed: int) -> Function:
        rngs = nnx.Rngs(seed)
        key = rngs.params()
        return lambda x: x + jax.random.uniform(key)

    yield make(0)
    yield make(1)


@state
def captured_rngs() -> Iterator[Function]:
    rngs = nnx.Rngs(0)

    def f(x: Any) -> Any:
        return x + jax.random.key_data(rngs.params.key[...])[-1]

    yield f
    rngs = nnx.Rngs(7)
    yield f


@state
def graph_definition() -> Iterator[Function]:
    model = Model()
    graphdef, leaves = nnx.split(model)
    leaves = jax.tree.map(lambda leaf: leaf, nnx.to_pure_dict(leaves))

    def f(x: Any) -> Any:
        return nnx.merge(graphdef, leaves)(x)

    yield f
    model.deterministic = True
    graphdef, _ = nnx.split(model)
    yield f

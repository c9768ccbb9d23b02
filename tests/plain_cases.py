"""Calls that are made plainly and under fnintern: what they capture, get, read, return and raise.

A case is a function of a :class:`Side`. It builds all that it needs anew, so that neither side sees
what the other has left, and it calls the operations of ``on.lax`` or ``on.jit``. Floats are small
integers and powers of two: every order of operations gives the same bits.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import enum
import fractions
import functools
import json
import logging
import math
import operator
import pickle
import pprint
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import attrs
import equinox as eqx
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental import io_callback
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.tree_util import Partial

__all__ = ["CASES", "Case", "Side"]

Body = Callable[[Any, Any], Any]


@attrs.define
class Side:
    """What one call of a case is made with."""

    #: ``jax.lax`` or ``fnintern.lax``.
    lax: Any
    #: ``jax.jit`` or ``fnintern.jit``.
    jit: Any
    #: The number of the call: arrays have other values at each call, and the same shapes.
    n: int
    #: What was given to the call, in the order of its making. Results may hand it through.
    known: list[Any] = attrs.field(factory=list)

    def keep(self, value: Any) -> Any:
        """Registers a value, and each leaf in it, as given to the call."""
        self.known.append(value)
        self.known.extend(leaf for leaf in jax.tree.leaves(value) if leaf is not value)
        return value

    def f32(self, value: float = 2.0) -> Any:
        return self.keep(jnp.float32(value + self.n))

    def i32(self, value: int = 2) -> Any:
        return self.keep(jnp.int32(value + self.n))

    def xs(self) -> Any:
        return self.keep(jnp.arange(1.0, 4.0) + self.n)


@attrs.frozen
class Case:
    """A call, as data."""

    name: str
    run: Callable[[Side], Any]
    #: The output comes from running the program, not from tracing: it comes at each call.
    always: bool = False
    #: Made under ``patch_jax()``, with ``jax.lax`` and ``jax.jit`` by their own names.
    patched: bool = False


#: Name -> case.
CASES: dict[str, Case] = {}


def add(name: str, run: Callable[[Side], Any], **flags: bool) -> None:
    assert name not in CASES, name
    CASES[name] = Case(name, run, **flags)


def case(**flags: bool) -> Callable[[Callable[[Side], Any]], Callable[[Side], Any]]:
    """Adds a function as a case of its name."""

    def register(run: Callable[[Side], Any]) -> Callable[[Side], Any]:
        add(run.__name__.strip("_").replace("_", " "), run, **flags)
        return run

    return register


# ---------------------------------------------------------------------- operations under transforms


def _solve(f: Any, guess: Any) -> Any:
    return guess - f(guess) / 2.0


#: Operation -> a call over a captured scalar and a vector of three.
OPERATIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "cond": lambda lax, w, x: lax.cond(x.sum() > 0, lambda v: w * v, lambda v: v - w, x),
    "cond of nothing": lambda lax, w, x: lax.cond(True, lambda: w * x, lambda: x - w),
    "switch": lambda lax, w, x: lax.switch(1, [lambda v: v, lambda v: w * v, lambda v: -v], x),
    "while_loop": lambda lax, w, x: lax.while_loop(
        lambda s: s[1] < 3, lambda s: (s[0] * w, s[1] + 1), (x, 0)
    ),
    "fori_loop": lambda lax, w, x: lax.fori_loop(0, 3, lambda i, v: v * w + i, x),
    "scan": lambda lax, w, x: lax.scan(lambda c, v: (c + w * v, c * v), jnp.float32(1.0), x),
    "map": lambda lax, w, x: lax.map(lambda v: (w * v, w), x),
    "associative_scan": lambda lax, w, x: lax.associative_scan(lambda a, b: a * b * w, x),
    "reduce": lambda lax, w, x: lax.reduce(
        x * w, np.float32(0.0), lambda a, b: lax.add(a, b), (0,)
    ),
    "custom_root": lambda lax, w, x: lax.custom_root(
        lambda y: 2.0 * y - w * x.sum(), jnp.float32(2.0), _solve, lambda g, y: y / g(1.0)
    ),
    "custom_linear_solve": lambda lax, w, x: lax.custom_linear_solve(
        lambda v: 2.0 * v * jnp.sign(w), x, lambda _, b: b / 2.0, symmetric=True
    ),
}


def _sum(tree: Any) -> Any:
    return sum(jnp.sum(leaf).astype(jnp.float32) for leaf in jax.tree.leaves(tree))


#: How a call is transformed -> the call of a function of the capture and the operand.
MODES: dict[str, Callable[[Body, Any, Any], Any]] = {
    "eager": lambda f, w, x: f(w, x),
    "grad by operand": lambda f, w, x: jax.value_and_grad(lambda x: _sum(f(w, x)))(x),
    "grad by capture": lambda f, w, x: jax.grad(lambda w: _sum(f(w, x)))(w),
    "vmap": lambda f, w, x: jax.vmap(lambda w: f(w, x))(jnp.stack([w, 2 * w])),
    "jvp": lambda f, w, x: jax.jvp(f, (w, x), (jnp.ones_like(w), x)),
    "jacrev": lambda f, w, x: jax.jacrev(lambda x: f(w, x), allow_int=True)(x),
    "in jit": lambda f, w, x: jax.jit(lambda x: f(w, x))(x),
}

for _name, _call in OPERATIONS.items():
    for _mode, _transform in MODES.items():

        def _transformed(on: Side, call: Any = _call, transform: Any = _transform) -> Any:
            lax = on.lax
            return transform(lambda w, x: call(lax, w, x), on.f32(), on.xs())

        add(f"{_name}, {_mode}", _transformed)
        if _mode == "eager":
            add(f"{_name}, {_mode}, patched", _transformed, patched=True)

for _mode, _transform in MODES.items():

    def _jitted(on: Side, transform: Any = _transform) -> Any:
        jit = on.jit
        return transform(lambda w, x: jit(lambda v: (w * v, v - w))(x), on.f32(), on.xs())

    add(f"jit, {_mode}", _jitted)


# ------------------------------------------------------------------------------- kinds of captures


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Pair(NamedTuple):
    a: Any
    b: Any


@dataclasses.dataclass
class Data:
    array: Any
    name: str = "data"


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Registered:
    array: Any
    static: Any = dataclasses.field(default="static", metadata={"static": True})


class Struct(flax.struct.PyTreeNode):  # type: ignore[misc]
    array: Any
    static: Any = flax.struct.field(pytree_node=False, default=None)


class Module(eqx.Module):  # type: ignore[misc]
    array: Any
    static: Any = eqx.field(static=True, default=None)

    def __call__(self, x: Any) -> Any:
        return x * self.array


@jax.tree_util.register_pytree_node_class
class Node:
    """A pytree whose auxiliary data is compared by equality, and is anything."""

    def __init__(self, array: Any, static: Any = "static") -> None:
        self.array, self.static = array, static

    def tree_flatten(self) -> Any:
        return (self.array,), self.static

    @classmethod
    def tree_unflatten(cls, static: Any, children: Any) -> Node:
        return cls(children[0], static)


class Plain:
    """An object with a method, which is no pytree."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def method(self, x: Any) -> Any:
        return x * self.array

    def __call__(self, x: Any) -> Any:
        return x + self.array


class Config:
    """Compared by ``is``, and found in registries."""

    def __init__(self, scale: float = 2.0) -> None:
        self.scale = scale


DEFAULT = Config()
OTHER = Config(4.0)


def _times(v: Any, x: Any) -> Any:
    return x * v


def _row(on: Side, dtype: Any = jnp.float32) -> Any:
    return jnp.arange(2, 5).astype(dtype) + jnp.asarray(on.n).astype(dtype)


def _draw(key: Any, x: Any) -> Any:
    return x * jax.random.randint(key, (), 0, 100)


#: Kind of capture -> how it is made, and what a body computes of it and of a scalar.
CAPTURES: dict[str, tuple[Callable[[Side], Any], Body]] = {
    "f32": (lambda on: jnp.float32(2 + on.n), _times),
    "weak f32": (lambda on: jnp.asarray(2.0 + on.n), _times),
    "vector": (_row, _times),
    "matrix": (lambda on: jnp.eye(2) * on.n, _times),
    "empty": (lambda on: jnp.zeros((0,)), _times),
    "nan": (lambda on: jnp.array([jnp.nan, -0.0, jnp.inf]), _times),
    "exponent": (lambda on: jnp.array([1, 2]) + on.n, lambda v, x: x**v),
    "python exponent": (lambda on: 2 + on.n, lambda v, x: x**v),
    "bound": (lambda on: jnp.int32(2 + on.n), lambda v, x: jnp.clip(x, 0, v)),
    "bf16": (lambda on: _row(on, jnp.bfloat16), _times),
    "f16": (lambda on: _row(on, jnp.float16), _times),
    "i8": (lambda on: _row(on, jnp.int8), _times),
    "u32": (lambda on: _row(on, jnp.uint32), _times),
    "c64": (lambda on: _row(on, jnp.complex64) * 1j, _times),
    "bool array": (lambda on: _row(on) > 3, lambda v, x: jnp.where(v, x, -x)),
    "committed": (lambda on: jax.device_put(_row(on), jax.devices()[0]), _times),
    "sharded": (
        lambda on: jax.device_put(
            _row(on), NamedSharding(Mesh(np.array(jax.devices()[:1]), ("d",)), PartitionSpec("d"))
        ),
        lambda v, x: x * v,
    ),
    "old key": (lambda on: jax.random.PRNGKey(on.n), _draw),
    "new key": (lambda on: jax.random.key(on.n), _draw),
    "rbg key": (lambda on: jax.random.key(on.n, impl="rbg"), lambda v, x: x),
    "np f32 array": (lambda on: np.arange(3, dtype=np.float32) + on.n, _times),
    "np f64 array": (lambda on: np.arange(3.0) + on.n, _times),
    "np i64 array": (lambda on: np.arange(3) + on.n, _times),
    "np f32": (lambda on: np.float32(2 + on.n), _times),
    "np f64": (lambda on: np.float64(2 + on.n), _times),
    "np i64": (lambda on: np.int64(2 + on.n), _times),
    "np bool": (lambda on: np.bool_(on.n % 2), _times),
    "float": (lambda on: 2.5, _times),
    "int": (lambda on: 3, _times),
    "other int": (lambda on: 3 + on.n, _times),
    "bool": (lambda on: True, _times),
    "complex": (lambda on: 1j, _times),
    "None": (lambda on: None, lambda v, x: x if v is None else -x),
    "dict": (lambda on: {"b": _row(on), "a": 2}, lambda v, x: x * v["a"] + v["b"]),
    "dict of keys": (lambda on: {1: _row(on), 2: None}, lambda v, x: x * v[1]),
    "list": (lambda on: [_row(on), [None, 2.0]], lambda v, x: x * v[0] + v[1][1]),
    "tuple": (lambda on: (_row(on), (), "s"), lambda v, x: x * v[0] + len(v)),
    "namedtuple": (lambda on: Pair(_row(on), None), lambda v, x: x * v.a),
    "OrderedDict": (
        lambda on: collections.OrderedDict(b=_row(on), a=jnp.float32(on.n)),
        lambda v, x: x * next(iter(v.values())),
    ),
    "defaultdict": (
        lambda on: collections.defaultdict(int, b=_row(on)), lambda v, x: x * v["b"] + len(v)
    ),
    "deque": (lambda on: collections.deque([_row(on)]), lambda v, x: x * v[0]),
    "dataclass": (lambda on: Data(_row(on)), lambda v, x: x * v.array),
    "registered dataclass": (lambda on: Registered(_row(on), DEFAULT), lambda v, x: x * v.array),
    "flax.struct": (
        lambda on: Struct(_row(on), DEFAULT), lambda v, x: x * v.array * (v.static is DEFAULT)
    ),
    "eqx.Module": (lambda on: Module(_row(on), DEFAULT), lambda v, x: v(x)),
    "pytree class": (lambda on: Node(_row(on), DEFAULT), lambda v, x: x * v.array),
    "plain object": (lambda on: Plain(_row(on)), lambda v, x: v.method(x)),
    "callable object": (lambda on: Plain(_row(on)), lambda v, x: v(x)),
    "bound method": (lambda on: Plain(_row(on)).method, lambda v, x: v(x)),
    "partial": (lambda on: functools.partial(_times, _row(on)), lambda v, x: v(x)),
    "Partial": (lambda on: Partial(_times, _row(on)), lambda v, x: v(x)),
    "lambda": (lambda on: (lambda w: lambda x: x * w)(_row(on)), lambda v, x: v(x)),
    "namespace": (lambda on: types.SimpleNamespace(w=_row(on)), lambda v, x: x * v.w),
    "config": (lambda on: DEFAULT, lambda v, x: x * 2 if v is DEFAULT else x * 3),
    "other config": (lambda on: OTHER, lambda v, x: x * 2 if v is DEFAULT else x * v.scale),
    "fresh config": (lambda on: Config(2.0), lambda v, x: x * 2 if v is DEFAULT else x * 3),
    "enum": (lambda on: Color.BLUE, lambda v, x: x * (2 if v is Color.BLUE else 3)),
    "optimizer": (
        lambda on: optax.sgd(0.5), lambda v, x: v.update(jnp.ones(2) * x, v.init(jnp.ones(2)))[0]
    ),
    "dtype": (lambda on: jnp.dtype("int8"), lambda v, x: x.astype(v)),
    "module": (lambda on: jnp, lambda v, x: v.square(x)),
    "jitted": (lambda on: jax.jit(lambda x: x * 2), lambda v, x: v(x)),
    "jitted over an array": (
        lambda on: (lambda w: jax.jit(lambda x: x * w))(_row(on)), lambda v, x: v(x)
    ),
    "slice": (lambda on: slice(0, 1), lambda v, x: x * jnp.arange(3.0)[v]),
    "string": (lambda on: "text", lambda v, x: x * len(v)),
    "set": (lambda on: {1, 2}, lambda v, x: x * (1 in v)),
}  # fmt: skip

#: A call that computes with a capture, each kind by another operation in turn.
_COMPUTE: list[Callable[[Any, Any, Any, Body], Any]] = [
    lambda lax, jit, v, use: lax.map(lambda x: use(v, x), jnp.arange(2.0)),
    lambda lax, jit, v, use: jit(lambda x: use(v, x))(jnp.float32(3.0)),
    lambda lax, jit, v, use: lax.cond(
        True, lambda x: use(v, x), lambda x: use(v, -x), jnp.float32(3.0)
    ),
    lambda lax, jit, v, use: lax.scan(
        lambda c, x: (c + 1, (use(v, x), c)), 0, jnp.arange(2.0), reverse=True
    ),
    lambda lax, jit, v, use: lax.switch(
        jnp.int32(1), (lambda x: use(v, x), lambda x: use(v, 2 * x)), 3.0
    ),
]

#: A call that hands a capture through.
_THROUGH: dict[str, Callable[[Any, Any, Any], Any]] = {
    "cond": lambda lax, jit, v: lax.cond(True, lambda: v, lambda: v),
    "jit": lambda lax, jit, v: jit(lambda x: (v, x))(1.0),
    "scan": lambda lax, jit, v: lax.scan(lambda c, _: (c, v), v, None, length=2),
    "switch of one": lambda lax, jit, v: lax.switch(0, [lambda: (v,)]),
}

_ARRAYS = (
    "f32", "weak f32", "vector", "bf16", "committed", "old key", "new key", "np f64 array",
    "np f64", "np i64", "int", "bool", "None", "dict", "namedtuple", "OrderedDict",
    "registered dataclass", "flax.struct", "eqx.Module", "pytree class", "Partial", "partial",
    "plain object", "optimizer", "defaultdict", "tuple",
)  # fmt: skip

for _i, (_name, (_make, _use)) in enumerate(CAPTURES.items()):

    def _computed(on: Side, make: Any = _make, use: Any = _use, how: Any = _COMPUTE[_i % 5]) -> Any:
        return how(on.lax, on.jit, on.keep(make(on)), use)

    add(f"captured {_name}", _computed)
    if _name not in _ARRAYS:
        continue
    for _j, (_op, _through) in enumerate(_THROUGH.items()):
        if (_i + _j) % 2 and _op != "cond":
            continue

        def _handed(on: Side, make: Any = _make, through: Any = _through) -> Any:
            return through(on.lax, on.jit, on.keep(make(on)))

        add(f"captured {_name} handed through {_op}", _handed)


# -------------------------------------------------------------------------------- kinds of operands

#: Kind of operand -> how it is made.
OPERANDS: dict[str, Callable[[Side], Any]] = {
    "float": lambda on: 1.5 + on.n,
    "int": lambda on: 2 + on.n,
    "bool": lambda on: bool(on.n % 2),
    "complex": lambda on: 1j + on.n,
    "big int": lambda on: 2**40 + 7 + on.n,
    "huge int": lambda on: 2**70 + on.n,
    "big np.int64": lambda on: np.int64(2**40 + 7 + on.n),
    "np.float64": lambda on: np.float64(0.1 + on.n),
    "np f64 vector": lambda on: np.array([0.1, 0.2]) + on.n,
    "np i64 vector": lambda on: np.array([2**40, on.n]),
    "np f32 vector": lambda on: np.arange(2, dtype=np.float32) + on.n,
    "np.bool": lambda on: np.bool_(True),
    "f32": lambda on: jnp.float32(2 + on.n),
    "weak f32": lambda on: jnp.asarray(2.0 + on.n),
    "vector": _row,
    "committed": lambda on: jax.device_put(_row(on), jax.devices()[0]),
    "old key": lambda on: jax.random.PRNGKey(on.n),
    "new key": lambda on: jax.random.key(on.n),
    "None": lambda on: None,
    "empty tuple": lambda on: (),
    "nested": lambda on: {"b": [_row(on), None, ()], "a": (1.0, {"c": jnp.int8(on.n)})},
    "OrderedDict": lambda on: collections.OrderedDict(z=_row(on), a=2),
    "namedtuple": lambda on: Pair(_row(on), Pair(1, None)),
    "static config": lambda on: Node(_row(on), Config(2.0)),
    "struct with config": lambda on: Struct(_row(on), Config(2.0)),
    "struct with optimizer": lambda on: Struct(_row(on), optax.sgd(0.5)),
    "struct with partial": lambda on: Struct(_row(on), functools.partial(_times, 2.0)),
    "registered with lambda": lambda on: Registered(_row(on), lambda x: x),
    "module": lambda on: Module(_row(on), DEFAULT),
    "Partial": lambda on: Partial(_times, _row(on)),
    "string": lambda on: "no array",
    "object": lambda on: Plain(_row(on)),
}

#: A call that gets an operand, and hands it through.
_GET: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "cond": lambda lax, jit, w, v: lax.cond(w > 0, lambda t: (t, w), lambda t: (t, -w), v),
    "scan": lambda lax, jit, w, v: lax.scan(lambda c, x: (c, w * x), v, jnp.arange(2.0)),
    "while_loop": lambda lax, jit, w, v: lax.while_loop(
        lambda s: s[1] < w, lambda s: (s[0], s[1] + 1), (v, jnp.float32(0.0))
    ),
    "fori_loop": lambda lax, jit, w, v: lax.fori_loop(
        0, 2, lambda i, s: (s[0], s[1] * w), (v, jnp.float32(1.0))
    ),
    "jit": lambda lax, jit, w, v: jit(lambda t: (w, t))(v),
    "switch": lambda lax, jit, w, v: lax.switch(0, [lambda t: t, lambda t: t], v),
}

for _i, (_name, _make) in enumerate(OPERANDS.items()):
    for _j, (_op, _get) in enumerate(_GET.items()):
        if (_i + _j) % 3:
            continue

        def _got(on: Side, make: Any = _make, get: Any = _get) -> Any:
            return get(on.lax, on.jit, on.f32(), on.keep(make(on)))

        add(f"operand {_name} through {_op}", _got)


# ------------------------------------------------------------- bodies that read a captured array


def _suppressed(w: Any, x: Any) -> Any:
    k = 1.0
    with contextlib.suppress(Exception):
        k = float(w)
    return x * k


def _caught(w: Any, x: Any) -> Any:
    try:
        return x * float(w)
    except Exception:
        return x


def _concrete(w: Any, x: Any) -> Any:
    try:
        return x * [1, 2, 3, 4, 5][int(w)]
    except jax.errors.JAXTypeError:
        return x


def _formatted(w: Any, x: Any) -> Any:
    return x * len(f"{float(w):08.3f}")


def _matched(w: Any, x: Any) -> Any:
    match w:
        case 2.0:
            return x * 2
        case _:
            return x * 3


def _thrown_away(w: Any, x: Any) -> Any:
    float(w)
    return x


def _only_later(w: Any, x: Any) -> Any:
    return x * w if np.asarray(w) < 3 else x * int(w)


#: What a body does with a captured scalar of two, three and four -> the body.
READS: dict[str, Body] = {
    "float": lambda w, x: x * float(w),
    "int": lambda w, x: x * int(w),
    "bool": lambda w, x: x if w else -x,
    "complex": lambda w, x: x * complex(w).real,
    "compared": lambda w, x: x if w > 2.0 else -x,
    "equal": lambda w, x: x if w == 2.0 else -x,
    "in a tuple": lambda w, x: x if w in (3.0, 7.0) else -x,
    "contains": lambda w, x: x if 3.0 in jnp.stack([w, w]) else -x,
    "item": lambda w, x: x * w.item(),
    "tolist": lambda w, x: x * w.tolist(),
    "np.asarray": lambda w, x: x * np.asarray(w),
    "np.array": lambda w, x: x * np.array(w, dtype=np.float32),
    "np.float32": lambda w, x: x * np.float32(w),
    "np.array_equal": lambda w, x: x if np.array_equal(w, 3.0) else -x,
    "np.sum": lambda w, x: x * np.sum(w),
    "np.isfinite": lambda w, x: x if np.isfinite(w) else -x,
    "np.add": lambda w, x: x * np.add(w, 1),
    "jnp.array_equal": lambda w, x: x if jnp.array_equal(w, 3.0) else -x,
    "device_get": lambda w, x: x * jax.device_get(w),
    "__array__": lambda w, x: x * w.__array__(),
    "memoryview": lambda w, x: x * memoryview(np.asarray(w).data).tolist(),
    "repr": lambda w, x: x * {"Array(2., dtype=float32)": 5.0}.get(repr(w), 6.0),
    "str": lambda w, x: x * {"2.0": 5.0, "3.0": 7.0}.get(str(w), 6.0),
    "f-string": lambda w, x: x * {"w=2.0": 5.0}.get(f"w={w}", 6.0),
    "format": lambda w, x: x * float(f"{w:.1f}"),
    "percent": lambda w, x: x * float("%.2f" % w),  # noqa: UP031
    "formatted float": _formatted,
    "pformat": lambda w, x: x * len(pprint.pformat({"w": w})),
    "type name": lambda w, x: x * len(type(w).__name__),
    "isinstance Tracer": lambda w, x: x if isinstance(w, jax.core.Tracer) else -x,
    "isinstance Array": lambda w, x: x if isinstance(w, jax.Array) else -x,
    "is_deleted": lambda w, x: -x if w.is_deleted() else x,
    "devices": lambda w, x: x * len(w.devices()),
    "committed": lambda w, x: x if w.committed else -x,
    "sharding": lambda w, x: x * len(w.sharding.device_set),
    "weak_type": lambda w, x: x if w.weak_type else -x,
    "typeof": lambda w, x: x * len(str(jax.typeof(w))),
    "hash": lambda w, x: x * hash(w),
    "a key of a dict": lambda w, x: x * {2.0: 5.0, 3.0: 6.0}.get(float(w), 7.0),
    "index": lambda w, x: x * [5, 6, 7, 8, 9][w.astype(int)],
    "operator.index": lambda w, x: x * operator.index(w.astype(int)),
    "range": lambda w, x: x * len(range(int(w))),
    "math": lambda w, x: x * math.floor(w),
    "round": lambda w, x: x * round(w, 1),
    "max": lambda w, x: x * max(w, 3.0),
    "sorted": lambda w, x: x * sorted([w, 3.0, 1.0])[1],
    "any": lambda w, x: x if any([w == 3.0, False]) else -x,
    "json": lambda w, x: x * len(json.dumps([w.tolist()])),
    "pickle": lambda w, x: x * pickle.loads(pickle.dumps(w)),
    "copy": lambda w, x: x * copy.deepcopy(w),
    "fraction": lambda w, x: x * fractions.Fraction(float(w)).denominator,
    "identity": lambda w, x: x if copy.copy(w) is w else -x,
    "id": lambda w, x: x * len({id(w), id(w)}),
    "match": _matched,
    "suppressed": _suppressed,
    "caught": _caught,
    "caught error of jax": _concrete,
    "thrown away": _thrown_away,
    "only later": _only_later,
    "shape": lambda w, x: x * (1 + len(w.shape)),
    "iterated": lambda w, x: x * sum(v for v in jnp.stack([w, w])),
    "getattr": lambda w, x: x * getattr(w, "nothing", 3.0),
    "where": lambda w, x: jnp.where(w > 2, x, -x),
    "stop_gradient": lambda w, x: x * float(jax.lax.stop_gradient(w)),
    "computed first": lambda w, x: x * float(jnp.square(w) + 1),
    "ensure_compile_time_eval": lambda w, x: x * _at_compile_time(w),
}  # fmt: skip


def _at_compile_time(w: Any) -> float:
    with jax.ensure_compile_time_eval():
        return float(w * 2)


#: The call of a body that reads, each kind by another operation in turn.
_READ: list[Callable[[Any, Any, Any, Body], Any]] = [
    lambda lax, jit, w, read: lax.map(lambda x: read(w, x), jnp.arange(2.0)),
    lambda lax, jit, w, read: jit(lambda x: read(w, x))(jnp.float32(3.0)),
    lambda lax, jit, w, read: lax.cond(
        True, lambda x: read(w, x), lambda x: -read(w, x), jnp.float32(3.0)
    ),
]

for _i, (_name, _read) in enumerate(READS.items()):

    def _reading(on: Side, read: Any = _read, how: Any = _READ[_i % 3]) -> Any:
        return how(on.lax, on.jit, on.f32(), read)

    add(f"reads {_name}", _reading)

for _name in ("float", "suppressed", "caught", "f-string", "isinstance Tracer", "np.asarray"):

    def _reading_under(on: Side, read: Any = READS[_name]) -> Any:
        lax, w = on.lax, on.f32()
        return jax.grad(lambda x: lax.cond(True, lambda v: read(w, v), lambda v: v, x))(1.0)

    def _reading_nested(on: Side, read: Any = READS[_name]) -> Any:
        lax, w, xs = on.lax, on.f32(), on.xs()
        return lax.scan(lambda c, x: (c, lax.cond(x > 1, lambda: read(w, x), lambda: x)), None, xs)

    add(f"reads {_name} under grad", _reading_under)
    add(f"reads {_name} in a nested call", _reading_nested)
    add(f"reads {_name}, patched", _reading_nested, patched=True)


# --------------------------------------------------------------------------- state around a trace


class Settings:
    scale = 1.0


STATE: dict[str, Any] = {"scale": 1.0}


@contextlib.contextmanager
def override(scale: float) -> Iterator[None]:
    before, Settings.scale = Settings.scale, scale
    STATE["scale"] = scale
    try:
        yield
    finally:
        Settings.scale = before
        STATE["scale"] = before


def scaled(x: Any) -> Any:
    return x * Settings.scale * STATE["scale"]


@case()
def _settings_set_and_restored(on: Side) -> Any:
    def body(x: Any) -> Any:
        with override(5.0):
            return scaled(x)

    return on.lax.map(body, on.xs()), Settings.scale


@case()
def _settings_set_and_restored_around_a_capture(on: Side) -> Any:
    w = on.f32()

    def body(x: Any) -> Any:
        with override(5.0):
            return scaled(x) * w

    return on.lax.cond(True, body, lambda x: x, 3.0), Settings.scale, STATE["scale"]


@case()
def _settings_set_and_restored_in_jit(on: Side) -> Any:
    w = on.f32()

    def body(x: Any) -> Any:
        with override(3.0):
            return scaled(x) * w

    return on.jit(body)(3.0)


@case()
def _settings_set_around_the_call(on: Side) -> Any:
    w, lax = on.f32(), on.lax
    with override(2.0 + on.n):
        return lax.map(lambda x: scaled(x) * w, on.xs())


@case()
def _settings_left_changed(on: Side) -> Any:
    state = {"scale": 1.0}
    w = on.f32()

    def body(x: Any) -> Any:
        state["scale"] *= 2
        return x * w * state["scale"]

    return on.lax.map(body, on.xs()), state


@case()
def _attribute_swapped(on: Side) -> Any:
    model = Plain(on.f32())

    def helper(x: Any) -> Any:
        return x * model.array

    def body(x: Any) -> Any:
        before, model.array = model.array, model.array * 2
        y = helper(x)
        model.array = before
        return y

    return on.lax.map(body, on.xs()), model.array


@case()
def _attribute_of_an_object_that_the_global_holds(on: Side) -> Any:
    REGISTRY["model"] = Plain(on.f32())
    model = REGISTRY["model"]
    try:
        return on.lax.map(lambda x: x * (2 if REGISTRY["model"] is model else 3), on.xs())
    finally:
        REGISTRY.clear()


REGISTRY: dict[Any, Any] = {}


@case()
def _registry_by_identity(on: Side) -> Any:
    config, w = on.keep(Config()), on.f32()
    registry = {id(config): 2.0}
    return on.lax.map(lambda x: x * w * registry.get(id(config), 3.0), on.xs())


@case()
def _registry_by_object(on: Side) -> Any:
    config, w = on.keep(Config()), on.f32()
    registry = {config: 2.0, Config(): 4.0}
    return on.lax.map(lambda x: x * w * registry[config], on.xs())


@case()
def _list_membership(on: Side) -> Any:
    config, w = on.keep(Config()), on.f32()
    active = [Config(), config]
    return on.lax.cond(
        True, lambda x: x * w * active.index(config), lambda x: x * (config in active), 3.0
    )


@case()
def _sentinel(on: Side) -> Any:
    missing, w = object(), on.f32()
    values = {"a": missing}
    return on.lax.map(lambda x: x * w if values["a"] is missing else -x, on.xs())


@case()
def _array_is_the_same_array(on: Side) -> Any:
    w = on.f32()
    held = {"w": w}
    return on.lax.map(lambda x: x if held["w"] is w else -x, on.xs())


@case()
def _array_is_another_equal_array(on: Side) -> Any:
    w, v = on.f32(), on.f32()
    return on.lax.map(lambda x: x * v if v is w else -x, on.xs())


@case()
def _array_in_a_list_by_identity(on: Side) -> Any:
    w, v = on.f32(), on.f32()
    return on.lax.map(lambda x: x * [a is w for a in (v, w)].index(True), on.xs())


@case()
def _arrays_found_by_id(on: Side) -> Any:
    w = on.f32()
    seen = {id(w): 5.0}
    return on.jit(lambda x: x * w * seen.get(id(w), 7.0))(3.0)


@case()
def _weak_registry(on: Side) -> Any:
    import weakref

    config, w = on.keep(Config()), on.f32()
    registry = weakref.WeakKeyDictionary({config: 2.0})
    return on.lax.map(lambda x: x * w * registry.get(config, 3.0), on.xs())


@case()
def _lru_cache_of_a_config(on: Side) -> Any:
    config, w = on.keep(Config(2.0)), on.f32()

    @functools.lru_cache
    def scale(config: Config) -> float:
        return config.scale

    return on.lax.map(lambda x: x * w * scale(config), on.xs()), scale.cache_info().misses


@case()
def _lru_cache_of_numbers(on: Side) -> Any:
    w = on.f32()

    @functools.lru_cache
    def table(n: int) -> Any:
        return np.arange(n, dtype=np.float32)

    return on.lax.map(lambda x: x * w * table(3), on.xs()), table.cache_info().currsize


@case()
def _lru_cache_of_the_array(on: Side) -> Any:
    w = on.f32()

    @functools.lru_cache
    def twice() -> Any:
        return w * 2

    first = twice()
    return on.lax.map(lambda x: x * twice(), on.xs()), twice() is first


@case()
def _cached_property(on: Side) -> Any:
    class Lazy:
        def __init__(self, w: Any) -> None:
            self.w = w

        @functools.cached_property
        def scale(self) -> float:
            return float(self.w) * 2

    lazy = Lazy(on.f32())
    return on.lax.map(lambda x: x * lazy.scale, on.xs()), vars(lazy)["scale"]


@jax.jit  # type: ignore[untyped-decorator]
def _double(x: Any) -> Any:
    return x * 2.0


@case()
def _own_jit_helper(on: Side) -> Any:
    w = on.f32()
    return on.lax.map(lambda x: _double(x * w), on.xs())


@case()
def _own_jit_helper_of_the_capture(on: Side) -> Any:
    w = on.f32()
    return on.lax.map(lambda x: x * float(_double(w)), on.xs())


@case()
def _own_jit_helper_over_an_array(on: Side) -> Any:
    w = on.f32()
    helper = jax.jit(lambda x: x * w)
    before = helper(jnp.float32(1.0))
    return before, on.lax.map(lambda x: helper(x), on.xs()), helper(jnp.float32(1.0))


@case()
def _own_jit_helper_called_after(on: Side) -> Any:
    w, state = on.f32(), {"scale": 1.0}
    helper = jax.jit(lambda x: x * w * state["scale"])

    def body(x: Any) -> Any:
        state["scale"] = 3.0
        y = helper(x)
        state["scale"] = 1.0
        return y

    return on.lax.map(body, on.xs()), helper(jnp.float32(1.0))


@case()
def _own_jit_with_a_static_config(on: Side) -> Any:
    w, config = on.f32(), on.keep(Config(2.0))
    helper = jax.jit(lambda c, x: Node(x * c.scale, c), static_argnums=0)
    return on.lax.map(lambda x: helper(config, x * w), on.xs())


@case()
def _counter_read_by_the_body(on: Side) -> Any:
    calls: list[int] = []

    def body(x: Any) -> Any:
        calls.append(1)
        return x * len(calls)

    return on.lax.switch(1, [body, body, body], 3.0), len(calls)


@case()
def _counter_of_a_nonlocal(on: Side) -> Any:
    count, w = 0, on.f32()

    def body(x: Any) -> Any:
        nonlocal count
        count += 1
        return x * w * count

    return on.lax.cond(True, body, body, 3.0), count


@case()
def _names_made_in_order(on: Side) -> Any:
    names: list[str] = []

    def name() -> str:
        names.append(f"layer{len(names)}")
        return names[-1]

    return on.lax.map(lambda x: {name(): x, name(): x * 2}, on.xs()), names


@case()
def _log_that_holds_the_array(on: Side) -> Any:
    log: list[Any] = []
    w = on.f32()

    def body(x: Any) -> Any:
        log.append(w)
        return x * w + len(log)

    return on.lax.map(body, on.xs()), log


@case()
def _dict_filled_by_the_first_branch(on: Side) -> Any:
    cache: dict[str, Any] = {}
    w = on.f32()

    def body(x: Any) -> Any:
        if "k" not in cache:
            cache["k"] = float(w)
        return x * cache["k"]

    return on.lax.cond(True, body, lambda x: -body(x), 3.0), cache


@case()
def _iterator_that_goes_on(on: Side) -> Any:
    numbers, w = iter(range(100)), on.f32()
    return on.lax.map(lambda x: x * w * next(numbers), on.xs()), next(numbers)


@case()
def _generator_of_numpy(on: Side) -> Any:
    rng, w = np.random.default_rng(on.n), on.f32()
    return on.lax.map(lambda x: x * w * rng.integers(9), on.xs()), int(rng.integers(9))


@case()
def _global_array(on: Side) -> Any:
    global GLOBAL
    GLOBAL = on.f32()
    return on.lax.map(lambda x: x * GLOBAL, on.xs())


GLOBAL: Any = None


@case()
def _global_array_read_as_a_number(on: Side) -> Any:
    global GLOBAL
    GLOBAL = on.f32()
    return on.jit(lambda x: x * float(GLOBAL))(3.0)


@case()
def _class_attribute(on: Side) -> Any:
    class Local:
        w = on.f32()

    return on.lax.map(lambda x: x * Local.w, on.xs())


@case()
def _default_argument(on: Side) -> Any:
    w, v = on.f32(), on.f32(4.0)

    def body(x: Any, w: Any = w, *, v: Any = v) -> Any:
        return x * w + v

    return on.lax.map(body, on.xs())


@case()
def _function_attribute(on: Side) -> Any:
    def body(x: Any) -> Any:
        return x * body.w  # type: ignore[attr-defined]

    body.w = on.f32()  # type: ignore[attr-defined]
    return on.lax.map(body, on.xs())


@case()
def _numpy_array_edited_between_calls(on: Side) -> Any:
    w, lax, xs = np.ones(3, np.float32), on.lax, on.xs()
    first = lax.map(lambda x: x * w, xs)
    w[0] = 5.0
    return first, lax.map(lambda x: x * w, xs)


@case()
def _list_edited_between_calls(on: Side) -> Any:
    values, lax, xs = [on.f32()], on.lax, on.xs()
    first = lax.map(lambda x: x * values[0], xs)
    values[0] = on.f32(7.0)
    return first, lax.map(lambda x: x * values[0], xs)


@case()
def _dropped_array_and_another(on: Side) -> Any:
    lax = on.lax

    def call(w: Any) -> Any:
        return lax.map(lambda x: x * w, jnp.arange(3.0))

    return [call(jnp.float32(i)) for i in range(3)]


@case()
def _two_captures_that_are_one_array(on: Side) -> Any:
    w = on.f32()
    v = w
    return on.lax.cond(True, lambda: (w, v), lambda: (v, w))


@case()
def _two_captures_that_become_one(on: Side) -> Any:
    w, v = on.f32(), on.f32(5.0)
    if on.n:
        v = w
    return on.lax.map(lambda x: x * (1 if v is w else 2) + w * v, on.xs())


@case()
def _capture_that_is_the_operand(on: Side) -> Any:
    x = on.xs()
    return on.lax.cond(True, lambda v: (v, x, v is x), lambda v: (x, v, v is x), x)


@case()
def _logger_level(on: Side) -> Any:
    logger, w = logging.getLogger("plain_cases"), on.f32()
    logger.setLevel(logging.DEBUG if on.n % 2 else logging.ERROR)
    return on.lax.map(lambda x: x * w if logger.isEnabledFor(logging.INFO) else -x, on.xs())


@case()
def _x64_switched_on(on: Side) -> Any:
    w = on.f32()
    with jax.enable_x64(bool(on.n % 2)):
        return on.lax.map(lambda x: x * w + np.float64(0.5), on.xs())


@case()
def _default_device_and_precision(on: Side) -> Any:
    w = on.f32()
    with jax.default_matmul_precision("highest"):
        return on.lax.map(lambda x: jnp.dot(w * jnp.ones(2), x * jnp.ones(2)), on.xs())


@case()
def _named_scope(on: Side) -> Any:
    w = on.f32()
    with jax.named_scope("outer"):
        return on.lax.map(lambda x: x * w, on.xs())


@case()
def _disable_jit(on: Side) -> Any:
    w = on.f32()
    with jax.disable_jit():
        return on.lax.map(lambda x: x * float(w) * float(x), on.xs())


# ----------------------------------------------------------------------- static data in results


@case()
def _config_in_a_struct(on: Side) -> Any:
    w, s = on.f32(), on.keep(Struct(on.f32(), on.keep(Config())))
    return on.lax.cond(w > 0, lambda: s.replace(array=s.array * w), lambda: s)


@case()
def _config_made_by_the_body(on: Side) -> Any:
    w = on.f32()
    return on.lax.map(lambda x: Node(x * w, Config()), on.xs())


@case()
def _lambda_made_by_the_body(on: Side) -> Any:
    w = on.f32()
    return on.lax.map(lambda x: Partial(lambda y: y * 2, x * w), on.xs())


@case()
def _partial_of_an_own_function(on: Side) -> Any:
    k, w = on.f32(3.0), on.f32()

    def h(a: Any, x: Any) -> Any:
        return a * x * k

    on.keep(h)
    f = on.lax.cond(w > 1, lambda: Partial(h, w), lambda: Partial(h, 2 * w))
    return f, f(1.0)


@case()
def _partial_that_captures_the_array(on: Side) -> Any:
    w = on.f32()
    f = on.jit(lambda x: Partial(lambda y: y * w, x))(3.0)
    return f.func(1.0)


@case()
def _optimizer_in_a_state(on: Side) -> Any:
    w, tx = on.f32(), on.keep(optax.sgd(0.5))
    state = Struct(on.f32(), tx)
    found = on.lax.scan(lambda s, x: (s.replace(array=s.array * w), None), state, on.xs())[0]
    return found, found.static is tx


@case()
def _optimizer_state(on: Side) -> Any:
    target, tx, xs = on.f32(), optax.sgd(0.5, momentum=0.5), on.xs()
    params = {"w": jnp.ones(2)}

    def step(carry: Any, x: Any) -> Any:
        params, state = carry
        grads = {"w": (params["w"] - target) * x}
        updates, state = tx.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), None

    return on.lax.scan(step, (params, tx.init(params)), xs)


@case()
def _model_with_a_static_config(on: Side) -> Any:
    model, w = on.keep(Module(on.f32(), on.keep(Config()))), on.f32()
    return on.jit(lambda x: eqx.tree_at(lambda m: m.array, model, x * w))(3.0)


@case()
def _config_that_is_changed_after(on: Side) -> Any:
    w, config = on.f32(), on.keep(Config())
    found = on.lax.map(lambda x: Node(x * w, config), on.xs())
    config.scale = 9.0
    return found.static.scale


@case()
def _mutable_list_as_static_data(on: Side) -> Any:
    w, items = on.f32(), on.keep([1, 2])
    found = on.lax.map(lambda x: Node(x * w, items), on.xs())
    return found, found.static is items


@case()
def _numpy_array_as_static_data(on: Side) -> Any:
    w, data = on.f32(), on.keep(np.arange(1) + on.n)
    return on.jit(lambda x: Node(x * w, data))(3.0)


@case()
def _array_as_static_data(on: Side) -> Any:
    w = on.f32()
    return on.jit(lambda x: Node(x, w))(3.0)


@case()
def _tuple_of_static_data(on: Side) -> Any:
    w, config = on.f32(), on.keep(Config())
    return on.jit(lambda x: Node(x * w, ("a", (config, Color.RED), 1, 1.0, True)))(3.0)


@case()
def _static_number_that_differs(on: Side) -> Any:
    w, number = on.f32(), (1, 1.0, True)[on.n]
    return on.lax.map(lambda x: Node(x * w, number), on.xs())


@case()
def _static_text_of_the_array(on: Side) -> Any:
    w = on.f32()
    return on.jit(lambda x: Node(x * w, f"{w}"))(3.0)


@case()
def _bound_method_as_static_data(on: Side) -> Any:
    owner = on.keep(Plain(on.f32()))
    method = on.keep(owner.method)
    found = on.jit(lambda x: Partial(method, x))(3.0)
    return found.func.__self__ is owner, found()


@case()
def _keys_of_dicts(on: Side) -> Any:
    w, config = on.f32(), on.keep(Config())
    return on.jit(lambda x: {config: x * w})(3.0)


@case()
def _subclass_of_dict(on: Side) -> Any:
    w = on.f32()
    return on.jit(lambda x: collections.OrderedDict([("z", x * w), ("a", w)]))(3.0)


@case()
def _class_made_by_the_call(on: Side) -> Any:
    w, xs = on.f32(), on.xs()

    class Local(NamedTuple):
        y: Any

    on.keep(Local)
    found = on.lax.map(lambda x: Local(x * w), xs)
    return type(found) is Local, found.y


@case()
def _hands_through_one_of_many(on: Side) -> Any:
    arrays = [on.f32(float(i)) for i in range(4)]
    return on.lax.cond(
        True, lambda: (arrays[2], arrays[0], 1.0), lambda: (arrays[2], arrays[1], 2.0)
    )


@case()
def _hands_through_with_a_traced_predicate(on: Side) -> Any:
    w, x = on.f32(), on.xs()
    return on.lax.cond(w > 2, lambda: (w, x), lambda: (w, x))


@case()
def _hands_operand_and_capture_through_jit(on: Side) -> Any:
    w, x = on.f32(), on.xs()
    return on.jit(lambda v: {"w": w, "x": v, "y": (w, v, None)})(x)


@case()
def _loop_without_an_iteration(on: Side) -> Any:
    w, x = on.f32(), on.xs()
    return on.lax.fori_loop(0, 0, lambda i, v: v * w, x), on.lax.while_loop(
        lambda v: False, lambda v: v * w, x
    )


@case()
def _fori_loop_of_a_captured_bound(on: Side) -> Any:
    w, n = on.f32(), on.i32()
    return on.lax.fori_loop(0, n, lambda i, v: v + w, jnp.float32(1.0))


@case()
def _fori_loop_of_float_bounds(on: Side) -> Any:
    w = on.f32()
    return on.lax.fori_loop(0.0, w, lambda i, c: c, w)


@case()
def _fori_loop_of_numpy_bounds(on: Side) -> Any:
    w = on.f32()
    return on.lax.fori_loop(np.int64(0), np.int32(2), lambda i, v: v + w * i, jnp.float32(1.0))


@case()
def _scan_of_no_element(on: Side) -> Any:
    w = on.f32()
    return on.lax.scan(lambda c, x: (c, x * w), w, jnp.zeros((0,)))


@case()
def _scan_unrolled(on: Side) -> Any:
    w = on.f32()
    return on.lax.scan(lambda c, x: (c + 1, x * w), 0, on.xs(), unroll=True)


@case()
def _scan_promotes_a_weak_carry(on: Side) -> Any:
    w = on.f32()
    return on.lax.scan(lambda c, x: (c * w, c), 1.0, on.xs())


@case()
def _map_in_batches(on: Side) -> Any:
    w = on.f32()
    return on.lax.map(lambda x: (x * w, w), on.xs(), batch_size=2)


@case()
def _associative_scan_of_one_element(on: Side) -> Any:
    w, x = on.f32(), on.keep(jnp.ones(1))
    return on.lax.associative_scan(lambda a, b: a * b * w, x)


@case()
def _nested_three_deep(on: Side) -> Any:
    lax, w, xs = on.lax, on.f32(), on.xs()
    return lax.scan(
        lambda c, x: (
            lax.fori_loop(0, 2, lambda i, v: lax.cond(v > w, lambda: v, lambda: v + w), c),
            x * w,
        ),
        jnp.float32(0.0),
        xs,
    )


@case(patched=True)
def _nested_three_deep_patched(on: Side) -> Any:
    lax, w, xs = on.lax, on.f32(), on.xs()
    return lax.scan(
        lambda c, x: (
            lax.fori_loop(0, 2, lambda i, v: lax.cond(v > w, lambda: v, lambda: v + w), c),
            x * w,
        ),
        jnp.float32(0.0),
        xs,
    )


@case(patched=True)
def _library_function_patched(on: Side) -> Any:
    w = on.f32()
    return jax.scipy.sparse.linalg.cg(lambda v: v * w, on.xs(), maxiter=1)


@case()
def _jit_in_a_scan_and_back(on: Side) -> Any:
    lax, jit, w = on.lax, on.jit, on.f32()
    return lax.map(lambda x: jit(lambda y: lax.cond(y > w, lambda: y, lambda: w))(x), on.xs())


@case()
def _custom_jvp_over_a_capture(on: Side) -> Any:
    w, lax = on.f32(), on.lax

    @jax.custom_jvp  # type: ignore[untyped-decorator]
    def f(x: Any) -> Any:
        return x * w

    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * 2 * w))
    return jax.grad(lambda x: lax.map(f, x).sum())(on.xs())


@case()
def _checkpoint_over_a_capture(on: Side) -> Any:
    w, lax = on.f32(), on.lax
    body = jax.checkpoint(lambda x: x * x * w)
    return jax.grad(lambda x: lax.map(body, x).sum())(on.xs())


@case()
def _grad_inside_of_the_body(on: Side) -> Any:
    w = on.f32()
    return on.lax.map(jax.grad(lambda x: w * x * x), on.xs())


@case()
def _vmap_inside_of_the_body(on: Side) -> Any:
    w, v = on.f32(), on.xs()
    return on.lax.map(lambda x: jax.vmap(lambda a: a * x * w)(v), on.xs())


@case()
def _jit_with_static_arguments(on: Side) -> Any:
    w, config = on.f32(), on.keep(Config())
    return on.jit(lambda c, x: Node(x * w * c.scale, c), static_argnums=0)(config, 3.0)


@case()
def _jit_with_static_names(on: Side) -> Any:
    w = on.f32()
    return on.jit(lambda x, *, k: x * w * k, static_argnames="k")(3.0, k=2 + on.n)


@case()
def _jit_donates(on: Side) -> Any:
    w, x = on.f32(), on.xs()
    found = on.jit(lambda x: x * w, donate_argnums=0)(x)
    return found, x.is_deleted()


@case()
def _jit_keeps_unused(on: Side) -> Any:
    w = on.f32()
    return on.jit(lambda x, y: x * w, keep_unused=True)(3.0, on.xs())


@case()
def _jit_called_twice(on: Side) -> Any:
    w = on.f32()
    f = on.jit(lambda x: (x * w, w))
    return f(1.0), f(jnp.float32(2.0)), f(np.float32(3.0))


@case()
def _jit_as_a_decorator(on: Side) -> Any:
    w = on.f32()

    @on.jit  # type: ignore[untyped-decorator]
    def f(x: Any, *, y: Any = 2.0) -> Any:
        """Text."""
        return x * w + y

    return f(1.0), f.__name__, f.__doc__, f.__wrapped__(1.0)


@case()
def _jit_lowered_and_evaluated(on: Side) -> Any:
    w = on.f32()
    f = on.jit(lambda x: x * w)
    return str(f.eval_shape(1.0)), f.lower(1.0).as_text(), f.lower(1.0).compile()(1.0)


# ------------------------------------------------------------------------------ output and warnings


@case()
def _prints_while_tracing(on: Side) -> Any:
    w = on.f32()

    def body(x: Any) -> Any:
        print("tracing", x.shape)
        return x * w

    return on.lax.map(body, on.xs())


@case()
def _prints_in_both_branches(on: Side) -> Any:
    w = on.f32()

    def body(x: Any) -> Any:
        print("branch")
        return x * w

    return on.lax.cond(True, body, body, 3.0)


@case()
def _prints_the_loop_functions(on: Side) -> Any:
    w = on.f32()

    def go(s: Any) -> Any:
        print("cond")
        return s[1] < 2

    def step(s: Any) -> Any:
        print("body")
        return s[0] * w, s[1] + 1

    return on.lax.while_loop(go, step, (1.0, 0))


@case()
def _prints_the_captured_array(on: Side) -> Any:
    w = on.f32()

    def body(x: Any) -> Any:
        print(w, repr(w), x)
        return x * w

    return on.lax.map(body, on.xs())


@case()
def _prints_in_jit(on: Side) -> Any:
    w = on.f32()

    def body(x: Any) -> Any:
        print("jit", type(x).__name__)
        return x * w

    return on.jit(body)(3.0)


@case()
def _prints_under_grad(on: Side) -> Any:
    w, lax = on.f32(), on.lax

    def body(x: Any) -> Any:
        print("grad", w.shape)
        return x * w

    return jax.grad(lambda x: lax.cond(True, body, lambda x: x, x))(3.0)


@case()
def _prints_and_fails(on: Side) -> Any:
    w = on.f32()

    def body(x: Any) -> Any:
        print("before")
        raise ValueError("after", w.shape)

    return on.lax.map(body, on.xs())


@case(always=True)
def _debug_print_with_the_capture(on: Side) -> Any:
    w = on.f32()

    def body(c: Any, x: Any) -> Any:
        jax.debug.print("c={c} w={w}", c=c, w=w)
        return c * w, None

    return on.lax.scan(body, jnp.float32(1.0), on.xs())


@case(always=True)
def _debug_print_with_the_text_of_the_capture(on: Side) -> Any:
    w = on.f32()

    def body(c: Any, x: Any) -> Any:
        jax.debug.print(f"scale {w}: {{c}}", c=c)
        return c * w, None

    return on.lax.scan(body, jnp.float32(1.0), on.xs())


@case(always=True)
def _debug_print_in_jit(on: Side) -> Any:
    w = on.f32()

    def body(x: Any) -> Any:
        jax.debug.print("x={x} w={w}", x=x, w=w)
        return x * w

    return on.jit(body)(3.0)


@case(always=True)
def _io_callback_to_the_caller(on: Side) -> Any:
    w, log = on.f32(), []

    def note(x: Any) -> None:
        log.append(float(x))

    def body(x: Any) -> Any:
        io_callback(note, None, x * w, ordered=True)
        return x

    found = on.lax.map(body, on.xs())
    jax.effects_barrier()
    return found, log


@case()
def _pure_callback(on: Side) -> Any:
    w, scale = on.f32(), [2.0 + on.n]

    def host(x: Any) -> Any:
        return np.float32(x * scale[0])

    shape = jax.ShapeDtypeStruct((), jnp.float32)
    return on.lax.map(lambda x: jax.pure_callback(host, shape, x * w), on.xs())


@case()
def _warns_while_tracing(on: Side) -> Any:
    w = on.f32()

    def body(x: Any) -> Any:
        warnings.warn("slow body", RuntimeWarning, stacklevel=1)
        return x * w

    return on.lax.map(body, on.xs())


@case()
def _warning_of_a_truncated_dtype(on: Side) -> Any:
    w = on.f32()
    return on.lax.map(lambda x: (x * w).astype("float64"), on.xs())


@case()
def _warning_of_a_truncated_constant(on: Side) -> Any:
    w = on.f32()
    return on.jit(lambda x: x * w + jnp.array(1.0, dtype="float64"))(3.0)


@case()
def _warning_of_complex_numbers(on: Side) -> Any:
    w = on.keep(jnp.complex64(2j + on.n))
    return on.jit(lambda x: (x * w).astype(jnp.float32))(3.0)


@case()
def _warning_turned_into_an_error(on: Side) -> Any:
    w = on.f32()

    def body(x: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.warn("bad", UserWarning, stacklevel=1)
        return x * w

    return on.lax.map(body, on.xs())


# ------------------------------------------------------------------------------------------- errors


class Failure(Exception):
    def __init__(self, code: int, *, hint: str) -> None:
        super().__init__(code, hint)
        self.code = code


def _raise(error: BaseException) -> Any:
    raise error


def _fails_by_chain(w: Any, x: Any) -> Any:
    try:
        return STATE["missing"]
    except KeyError as error:
        error.add_note("a note")
        raise Failure(3, hint=f"{w.shape}") from error


#: What goes wrong -> a call with a captured array.
ERRORS: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "branches of other structures": lambda lax, jit, w, x: lax.cond(
        True, lambda v: (v, w), lambda v: v, x
    ),
    "branches of other dtypes": lambda lax, jit, w, x: lax.cond(
        True, lambda v: w * v, lambda v: v.astype(int), x
    ),
    "branches of other shapes": lambda lax, jit, w, x: lax.cond(
        True, lambda v: w * v, lambda v: v[:1], x
    ),
    "branches of other keys": lambda lax, jit, w, x: lax.switch(
        0, [lambda: {"a": w}, lambda: {"b": w}]
    ),
    "branches of other configs": lambda lax, jit, w, x: lax.cond(
        True, lambda: Node(w, "a"), lambda: Node(w, "b")
    ),
    "branches of other operands": lambda lax, jit, w, x: lax.cond(
        True, lambda a, b: a * w, lambda a: a, x, x
    ),
    "branches that are none": lambda lax, jit, w, x: lax.cond(True, w, w, x),
    "no branches": lambda lax, jit, w, x: lax.switch(0, [], x),
    "a predicate that is a vector": lambda lax, jit, w, x: lax.cond(
        x > w, lambda: w, lambda: -w
    ),
    "a predicate that is a string": lambda lax, jit, w, x: lax.cond(
        "yes", lambda: w, lambda: -w
    ),
    "a predicate that is None": lambda lax, jit, w, x: lax.cond(None, lambda: w, lambda: -w),
    "an index that is a float": lambda lax, jit, w, x: lax.switch(
        w, [lambda: w, lambda: -w]
    ),
    "a carry of another dtype": lambda lax, jit, w, x: lax.scan(
        lambda c, v: (c * w, v), jnp.int32(1), x
    ),
    "a carry of another shape": lambda lax, jit, w, x: lax.scan(
        lambda c, v: (c * x, v), w, x
    ),
    "a carry of another structure": lambda lax, jit, w, x: lax.scan(
        lambda c, v: ((c, w), v), w, x
    ),
    "a body that returns no pair": lambda lax, jit, w, x: lax.scan(lambda c, v: c * w, w, x),
    "lengths that differ": lambda lax, jit, w, x: lax.scan(
        lambda c, v: (c, w), w, (x, x[:2])
    ),
    "a length that does not fit": lambda lax, jit, w, x: lax.scan(
        lambda c, v: (c, w), w, x, length=7
    ),
    "no length": lambda lax, jit, w, x: lax.scan(lambda c, v: (c, w), w, None),
    "a scalar to scan": lambda lax, jit, w, x: lax.scan(lambda c, v: (c, w), w, w),
    "a loop that changes the dtype": lambda lax, jit, w, x: lax.while_loop(
        lambda c: c < 9, lambda c: c * w, jnp.int32(1)
    ),
    "a loop that changes the structure": lambda lax, jit, w, x: lax.fori_loop(
        0, 2, lambda i, c: (c, w), w
    ),
    "a predicate of a loop that is no bool": lambda lax, jit, w, x: lax.while_loop(
        lambda c: c, lambda c: c * w, w
    ),
    "a predicate of a loop that is a vector": lambda lax, jit, w, x: lax.while_loop(
        lambda c: c > w, lambda c: c, x
    ),
    "a loop body of one argument": lambda lax, jit, w, x: lax.fori_loop(0, 2, lambda c: w, w),
    "nothing to call": lambda lax, jit, w, x: lax.map(w, x),
    "nothing to map over": lambda lax, jit, w, x: lax.map(lambda v: w, ()),
    "a string to map over": lambda lax, jit, w, x: lax.map(lambda v: w, "abc"),
    "a missing argument": lambda lax, jit, w, x: lax.scan(lambda c, v: (c, w)),
    "an unknown keyword": lambda lax, jit, w, x: lax.map(lambda v: w, x, nothing=1),
    "an unroll below zero": lambda lax, jit, w, x: lax.scan(
        lambda c, v: (c, w), w, x, unroll=-1
    ),
    "an axis that is none": lambda lax, jit, w, x: lax.associative_scan(
        lambda a, b: a * w, x, axis=3
    ),
    "a reduction of another dtype": lambda lax, jit, w, x: lax.reduce(
        x, np.int32(0), lambda a, b: a + b * w, (0,)
    ),
    "a root of another structure": lambda lax, jit, w, x: lax.custom_root(
        lambda y: (y, w), w, _solve, lambda g, y: y
    ),
    "a solution of another structure": lambda lax, jit, w, x: lax.custom_linear_solve(
        lambda v: v * w, x, lambda _, b: (b, w), symmetric=True
    ),
    "a division": lambda lax, jit, w, x: lax.map(lambda v: w * (1 // 0), x),
    "an own exception": lambda lax, jit, w, x: lax.map(
        lambda v: _raise(Failure(3, hint=str(v))), x
    ),
    "an exception with a cause": lambda lax, jit, w, x: lax.map(
        lambda v: _fails_by_chain(w, v), x
    ),
    "an exception that tells the value": lambda lax, jit, w, x: lax.map(
        lambda v: _raise(ValueError(f"w is {w!r}, of type {type(w)}, x is {v}")), x
    ),
    "an exception in jit": lambda lax, jit, w, x: jit(
        lambda v: _raise(ValueError(f"w is {w}, x is {v}"))
    )(x),
    "StopIteration": lambda lax, jit, w, x: lax.map(lambda v: next(iter(())), x),
    "KeyboardInterrupt": lambda lax, jit, w, x: lax.map(
        lambda v: _raise(KeyboardInterrupt("stop")), x
    ),
    "a failed assertion": lambda lax, jit, w, x: lax.cond(
        True, lambda: w, lambda: _raise(AssertionError(w.tolist()))
    ),
    "a name that is missing": lambda lax, jit, w, x: lax.map(
        lambda v: undefined * w,  # type: ignore[name-defined]  # noqa: F821
        x,
    ),
    "an attribute that is missing": lambda lax, jit, w, x: lax.map(lambda v: w.nothing, x),
    "shapes that do not fit": lambda lax, jit, w, x: lax.map(lambda v: x + jnp.ones(2) * w, x),
    "an operand read as a number": lambda lax, jit, w, x: lax.map(lambda v: float(v) * w, x),
    "an operand read as a bool": lambda lax, jit, w, x: jit(lambda v: w if v > w else -w)(w),
    "an operand read as an index": lambda lax, jit, w, x: lax.map(lambda v: [w][v], x),
    "an operand read by NumPy": lambda lax, jit, w, x: lax.map(lambda v: np.asarray(v) * w, x),
    "an operand as a string": lambda lax, jit, w, x: lax.cond(
        True, lambda v: w, lambda v: -w, "text"
    ),
    "an int that is too big": lambda lax, jit, w, x: lax.map(lambda v: v * 2**70 * w, x),
    "a result that is no array": lambda lax, jit, w, x: lax.map(lambda v: (w, "text"), x),
    "a result that is an object": lambda lax, jit, w, x: jit(lambda v: Config())(w),
    "a result of no array in a branch": lambda lax, jit, w, x: lax.cond(
        True, lambda: (w, Config), lambda: (w, Config)
    ),
    "static arguments that are arrays": lambda lax, jit, w, x: jit(
        lambda v: v * w, static_argnums=0
    )(x),
    "too many arguments": lambda lax, jit, w, x: jit(lambda v: v * w)(x, x),
    "a deleted capture": lambda lax, jit, w, x: lax.map(lambda v: v * _deleted(), x),
    "leaves of a key": lambda lax, jit, w, x: lax.map(lambda v: jax.random.key(0) + w, x),
    "a gradient of an integer": lambda lax, jit, w, x: jax.grad(
        lambda i: lax.cond(True, lambda: w * i, lambda: w)
    )(1),
    "a gradient through a loop": lambda lax, jit, w, x: jax.grad(
        lambda v: lax.while_loop(lambda c: c < 9, lambda c: c * w, v)
    )(1.0),
    "an escaped tracer": lambda lax, jit, w, x: _escaped(lax, w, x),
}  # fmt: skip


def _deleted() -> Any:
    array = jnp.ones(2)
    array.delete()
    return array


def _escaped(lax: Any, w: Any, x: Any) -> Any:
    held: list[Any] = []

    def body(v: Any) -> Any:
        held.append(v)
        return v * w * len(held)  # what is read is no effect: each call is traced (S6)

    lax.map(body, x)
    return held[0] + 1


for _name, _fails in ERRORS.items():

    def _failing(on: Side, fails: Any = _fails) -> Any:
        return fails(on.lax, on.jit, on.f32(), on.xs())

    add(f"fails by {_name}", _failing)


@case()
def _exception_that_was_made_before(on: Side) -> Any:
    error = on.keep(Failure(1, hint="made before"))
    return on.lax.map(lambda x: _raise(error), on.xs())


@case()
def _fails_at_every_other_call(on: Side) -> Any:
    w, bad = on.f32(), on.n % 2

    def body(x: Any) -> Any:
        if bad:
            raise ValueError("bad")
        return x * w

    return on.lax.map(body, on.xs())


@case()
def _fails_by_the_value_of_the_capture(on: Side) -> Any:
    w = on.f32()

    def body(x: Any) -> Any:
        if float(w) > 2:
            raise ValueError(f"{w} is too much")
        return x * w

    return on.lax.map(body, on.xs())


@case()
def _error_that_the_caller_swallows(on: Side) -> Any:
    w, seen = on.f32(), []

    def body(x: Any) -> Any:
        seen.append(str(x.dtype))
        raise ValueError("no")

    with contextlib.suppress(ValueError):
        on.lax.map(body, on.xs())
    return seen, on.lax.map(lambda x: x * w, on.xs())


@case()
def _error_that_the_body_swallows(on: Side) -> Any:
    w = on.f32()

    def body(x: Any) -> Any:
        try:
            float(x)
        except Exception as error:
            return x * w * len(type(error).__name__)
        return x

    return on.lax.map(body, on.xs())

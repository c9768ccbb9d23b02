"""A key is what the code reads: no less (S1), and no more (S5, S6).

Both halves are tested alike. A case is a generator: it yields a function, changes something, and
yields again. Where the change is one of what the function reads, the next call gives what
``jax.lax`` gives over a function made for that call. Where it is not, the next call traces nothing.
"""

from __future__ import annotations

import abc
import collections
import contextlib
import copy
import dataclasses
import functools
import importlib
import io
import logging
import math
import operator
import pickle
import sys
import textwrap
import threading
import time
import types
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fnintern
from lax_calls import assert_same, counted, lax
from transforms import without_memo

X = jnp.float32(3.0)
XS = jnp.arange(1.0, 4.0)

#: Yields functions of one scalar, or such a function of an operand and a scalar with the operand.
Case = Callable[[], Iterator[Any]]


def _other(*args: Any) -> Any:
    return args[-1] * 1.0


def _call(library: Any, way: str, f: Any, operands: tuple[Any, ...]) -> Any:
    """One call of a higher-order function over ``f``; ``library`` is a ``jax.lax``."""
    if way == "map":
        return library.map(f, XS)
    if way == "scan":
        return library.scan(lambda c, v: (c, f(*c, v)), operands, XS)[1]
    if way == "nnx.cond" and library is lax:
        return nnx.cond(True, f, _other, *operands, X)  # under patch_flax(), see `patched`
    return library.cond(True, f, _other, *operands, X)


@pytest.fixture(autouse=True)
def patched(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests of ``nnx.cond`` run under one patch."""
    values = getattr(getattr(request.node, "callspec", None), "params", {}).values()
    with fnintern.patch_flax() if "nnx.cond" in values else contextlib.nullcontext():
        yield


def _split(yielded: Any) -> tuple[Any, tuple[Any, ...]]:
    return yielded if isinstance(yielded, tuple) else (yielded, ())


def called(way: str, yielded: Any) -> Any:
    """What fnintern returns."""
    f, operands = _split(yielded)
    return _call(lax, way, f, operands)


def fresh(way: str, yielded: Any) -> Any:
    """What ``jax.lax`` returns for a function that it has never seen."""
    f, operands = _split(yielded)
    return _call(jax.lax, way, lambda *args: f(*args), operands)


def traces(call: Callable[[], Any]) -> int:
    """Tracing cache misses of one call."""
    return counted(call, 1)[0]


def assert_followed(case: Case, way: str, *, hits: bool = True) -> None:
    """After each change the value is the one of a fresh trace, and it is another one.

    ``hits``: and the second call in the same state traces nothing.
    """
    before: Any = None
    for yielded in case():
        expected = fresh(way, yielded)
        assert before is None or not np.array_equal(before, expected), "nothing has changed"
        before = expected
        assert_same(called(way, yielded), expected)
        again: list[Any] = []
        misses = traces(lambda: again.append(called(way, yielded)))
        assert_same(again[0], expected)
        assert not hits or misses == 0


def assert_left_alone(case: Case, way: str, *, warm: int = 1) -> None:
    """Each state after the first ``warm`` ones traces nothing, and the value is right."""
    counts, found = [], []
    for yielded in case():
        counts.append(traces(lambda: found.append(called(way, yielded))))
        if len(counts) != 2:  # compiling is most of what these tests cost
            assert_same(found[-1], fresh(way, yielded))
    assert len(counts) > warm
    assert counts[warm:] == [0] * (len(counts) - warm)


def ways_of(cases: dict[str, Case], *ways: str) -> list[Any]:
    """Each case with one of the ways, by chance that stays the same; the first way for all."""
    found = []
    for name in cases:
        other = ways[zlib.crc32(name.encode()) % len(ways)]
        found += [pytest.param(name, way, id=f"{name}-{way}") for way in {ways[0]: 0, other: 0}]
    return found


def number(text: str) -> float:
    """A number that depends on each character of a text."""
    return float(zlib.crc32(text.encode()) % 8191 + 1)


# -- no less: a package of the user's that is installed ------------------------------------------

PACKAGE = {
    "__init__.py": """
        from functools import wraps
        from . import conf
        SCALE = 2.0
        def scaled(x):
            return x * SCALE
        def configured(x):
            return x * conf.rate
        def keyed(x):
            return x * conf.gains["up"]
        def late(x):
            from . import conf as c
            return x * c.rate
        def later(x):
            from .conf import rate
            return x * rate
        def decorate(f):
            @wraps(f)
            def inner(x):
                return f(x) * SCALE
            return inner
        @decorate
        def decorated(x):
            return x + 1.0
        class Layer:
            rate = 2.0
            def __call__(self, x):
                return x * self.rate * SCALE
            def method(self, x):
                return configured(x)
        layer = Layer()
        """,
    "conf.py": """
        rate = 2.0
        gains = {"up": 2.0, "step": 0}
        """,
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A package in a ``site-packages``, imported."""
    name = "read_sets_own"
    folder = tmp_path / "site-packages" / name
    folder.mkdir(parents=True)
    for file, text in PACKAGE.items():
        (folder / file).write_text(textwrap.dedent(text))
    monkeypatch.setattr(sys, "path", [str(folder.parent), *sys.path])
    importlib.invalidate_caches()
    yield importlib.import_module(name)
    for loaded in [key for key in sys.modules if key.partition(".")[0] == name]:
        del sys.modules[loaded]


#: Name -> what is called, what is changed in the package, by its path, and to what.
INSTALLED: dict[str, tuple[Callable[[Any], Any], str, Any]] = {
    "global": (lambda p: p.scaled, "SCALE", 5.0),
    "global of a module": (lambda p: p.configured, "conf.rate", 5.0),
    "dict of a module": (lambda p: p.keyed, "conf.gains", {"up": 5.0}),
    "import inside": (lambda p: p.late, "conf.rate", 5.0),
    "from import inside": (lambda p: p.later, "conf.rate", 5.0),
    "decorated": (lambda p: p.decorated, "SCALE", 5.0),
    "class attribute": (lambda p: p.layer, "Layer.rate", 5.0),
    "global read by a method": (lambda p: p.layer, "SCALE", 5.0),
    "bound method": (lambda p: p.layer.method, "conf.rate", 5.0),
    "attribute": (lambda p: p.layer, "layer.rate", 7.0),
    "function replaced": (lambda p: lambda x: p.scaled(x), "scaled", lambda x: x * 9.0),
    "method replaced": (lambda p: p.layer, "Layer.__call__", lambda self, x: x * 9.0),
    "submodule replaced": (
        lambda p: p.configured,
        "conf",
        types.SimpleNamespace(rate=6.0),
    ),
}


@pytest.mark.parametrize(
    ("name", "use"),
    [
        pytest.param(name, use, id=f"{name}-{use}")
        for i, name in enumerate(INSTALLED)
        for use in (["itself", "lambda"][i % 2], ["map", "nnx.cond", "scan"][i % 3])
    ],
)
def test_S1_a_package_of_the_users_that_is_installed_is_read(
    name: str, use: str, package: Any
) -> None:
    """Where it lies does not make its state a constant."""
    function, path, value = INSTALLED[name]
    f = function(package)

    def case() -> Iterator[Any]:
        yield f if use == "itself" else lambda x: f(x) + 1.0
        *folders, last = path.split(".")
        setattr(functools.reduce(getattr, folders, package), last, value)
        yield f if use == "itself" else lambda x: f(x) + 1.0

    assert_followed(case, {"itself": "cond", "lambda": "map"}.get(use, use))


def test_S1_an_installed_package_under_jit(package: Any) -> None:
    """``fnintern.jit`` over a lambda made at each call."""
    jit: Any = fnintern.jit
    for scale in (2.0, 5.0):
        package.SCALE = scale
        for _ in range(2):
            assert float(jit(lambda x: package.scaled(x))(X)) == 3.0 * scale


def test_S5_what_an_installed_package_does_not_read(package: Any) -> None:
    """Its counters are no part of the key of a function that does not look."""

    def case() -> Iterator[Any]:
        for i in range(3):
            package.conf.steps = i
            package.conf.gains["step"] += 1
            package.Layer.calls = i
            package.layer.calls = i
            yield package.keyed

    assert_left_alone(case, "map")

    def layers() -> Iterator[Any]:
        for i in range(3):
            package.conf.rate = float(i)
            package.layer.calls = i
            yield package.layer

    assert_left_alone(layers, "map")


# -- no less: through an operand -----------------------------------------------------------------

FLAG = False
RATE = 2.0
TABLE: dict[str, Any] = {"rate": 2.0, "step": 0}


@jax.tree_util.register_pytree_node_class
class Tree:
    """A user's own pytree; its data takes part in the structure by identity."""

    power = 1.0

    def __init_subclass__(cls) -> None:
        jax.tree_util.register_pytree_node_class(cls)

    def __init__(self, w: Any, data: Any = None) -> None:
        self.w, self.data = w, data

    def tree_flatten(self) -> Any:
        return (self.w,), self.data

    @classmethod
    def tree_unflatten(cls, data: Any, children: Any) -> Any:
        made = cls.__new__(cls)
        (made.w,), made.data = children, data
        return made


class Config:
    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.steps = 0


def reading_activation(x: Any) -> Any:
    return x * RATE


def helper(x: Any) -> Any:
    return x * TABLE["rate"]


class GlobalTree(Tree):
    def __call__(self, x: Any) -> Any:
        return self.w * x * (2.0 if FLAG else 1.0)


class AttributeTree(Tree):
    def __call__(self, x: Any) -> Any:
        return self.w * x * self.power


class BaseTree(Tree):
    def __call__(self, x: Any) -> Any:
        return self.w * x * self.power


class ConfigTree(Tree):
    def __call__(self, x: Any) -> Any:
        return self.w * x * self.data.rate


class ActivatedTree(Tree):
    def __call__(self, x: Any) -> Any:
        return self.data(self.w * x)


class HelperTree(Tree):
    @property
    def scaled(self) -> Any:
        return helper(self.w)

    def __call__(self, x: Any) -> Any:
        return self.scaled * x


class Equinox(eqx.Module):  # type: ignore[misc]
    w: Any
    activation: Any = eqx.field(static=True)
    power: ClassVar[float] = 1.0

    def __call__(self, x: Any) -> Any:
        return self.activation(self.w * x) * self.power


class Model(nnx.Module):  # type: ignore[misc]
    power = 1.0

    def __init__(self, data: Any = None) -> None:
        self.w = nnx.Param(jnp.float32(2.0))
        self.data = data

    def __call__(self, x: Any) -> Any:
        rate = self.data.rate if isinstance(self.data, Config) else 1.0
        y = self.w[...] * x * self.power * rate * (2.0 if FLAG else 1.0)
        return self.data(y) if callable(self.data) else y


def apply(model: Any, x: Any) -> Any:
    return model(x)


def _flags(model: Any) -> Iterator[Any]:
    global FLAG
    for FLAG in (False, True, False):  # noqa: B007
        yield apply, (model,)


def _powers(kind: Any, model: Any) -> Iterator[Any]:
    before = kind.power
    try:
        for kind.power in (2.0, 5.0, 2.0):
            yield apply, (model,)
    finally:
        kind.power = before


def _configs(kind: Any, *args: Any) -> Iterator[Any]:
    config = Config(2.0)
    model = kind(*args, config)
    for config.rate in (2.0, 5.0):
        yield apply, (model,)


def _rates(model: Any) -> Iterator[Any]:
    global RATE
    for RATE in (2.0, 5.0):  # noqa: B007
        yield apply, (model,)


def _tables(model: Any) -> Iterator[Any]:
    for rate in (2.0, 5.0):
        TABLE["rate"] = rate
        yield apply, (model,)


def _methods(kind: Any, model: Any) -> Iterator[Any]:
    real = kind.__call__
    try:
        yield apply, (model,)
        kind.__call__ = lambda self, x: x * 17.0
        yield apply, (model,)
    finally:
        kind.__call__ = real


W = jnp.float32(2.0)

OPERANDS: dict[str, Case] = {
    "global flag": lambda: _flags(GlobalTree(W)),
    "class attribute": lambda: _powers(AttributeTree, AttributeTree(W)),
    "class attribute of a base": lambda: _powers(Tree, BaseTree(W)),
    "config object": lambda: _configs(ConfigTree, W),
    "activation": lambda: _rates(ActivatedTree(W, reading_activation)),
    "partial activation": lambda: _rates(ActivatedTree(W, functools.partial(reading_activation))),
    "helper of a property": lambda: _tables(HelperTree(W)),
    "method replaced": lambda: _methods(AttributeTree, AttributeTree(W)),
    "equinox activation": lambda: _rates(Equinox(W, reading_activation)),
}

NNX_OPERANDS: dict[str, Case] = {
    "global flag": lambda: _flags(Model()),
    "class attribute": lambda: _powers(Model, Model()),
    "config object": lambda: _configs(Model),
    "activation": lambda: _rates(Model(reading_activation)),
    "method replaced": lambda: _methods(Model, Model()),
}


@pytest.mark.parametrize(("name", "way"), ways_of(OPERANDS, "cond", "scan", "nnx.cond"))
def test_S1_code_reached_through_an_operand_is_read(name: str, way: str) -> None:
    """What a model's own methods read, what its structure holds, and what that reads."""
    assert_followed(OPERANDS[name], way)


@pytest.mark.parametrize("way", ["nnx.cond"])
@pytest.mark.parametrize("name", NNX_OPERANDS)
def test_S1_what_a_model_of_flax_reads_when_it_is_an_operand(name: str, way: str) -> None:
    """The same for ``nnx.Module``."""
    assert_followed(NNX_OPERANDS[name], way)


class ReadingCell(nnx.GRUCell):  # type: ignore[misc]
    gain = 1.0

    def __call__(self, carry: Any, inputs: Any) -> Any:
        carry, y = super().__call__(carry, inputs)
        return carry, y * self.gain * RATE


def test_S1_a_cell_that_rnn_calls_is_read() -> None:
    """``nnx.RNN`` scans over a function of flax's own; the user's cell is only an operand there."""
    global RATE
    rnn = nnx.RNN(ReadingCell(2, 3, rngs=nnx.Rngs(0)))
    xs = jnp.ones((1, 4, 2))
    states = [(2.0, 1.0), (5.0, 1.0), (5.0, 3.0)]
    expected = []
    try:
        for RATE, ReadingCell.gain in states:  # noqa: B007
            with without_memo():
                expected.append(nnx.jit(lambda m, xs: m(xs))(rnn, xs))
        with fnintern.patch_flax():
            for i, (RATE, ReadingCell.gain) in enumerate(states):  # noqa: B007
                np.testing.assert_allclose(rnn(xs), expected[i], rtol=1e-5)
                assert traces(lambda: rnn(xs)) == 0
                inside = nnx.cond(True, lambda m, xs: m(xs), lambda m, xs: m(xs) * 0, rnn, xs)
                np.testing.assert_allclose(inside, expected[i], rtol=1e-5)
    finally:
        RATE, ReadingCell.gain = 2.0, 1.0


def test_S5_what_an_operand_holds_beside_what_is_read() -> None:
    """A counter in a config object, in a class and in a global dictionary."""
    config = Config(2.0)
    model = ConfigTree(W, config)

    def case() -> Iterator[Any]:
        for i in range(3):
            config.steps = i
            ConfigTree.instances = i  # type: ignore[attr-defined]
            TABLE["step"] = i
            yield apply, (model,)

    for way in ("cond", "scan"):
        assert_left_alone(case, way)


# -- no less: other things that code reads -------------------------------------------------------


def _module(name: str, **values: Any) -> Any:
    module = types.ModuleType(name)
    vars(module).update(values)
    return module


def imports() -> Iterator[tuple[Any, Any]]:
    """A package with a module, both made by hand, as long as the generator lives."""
    conf = _module("read_sets_made.conf", rate=2.0, steps=0)
    made = _module("read_sets_made", conf=conf, rate=2.0, steps=0, __path__=[])
    sys.modules[made.__name__], sys.modules[conf.__name__] = made, conf
    try:
        yield made, conf
    finally:
        del sys.modules[made.__name__], sys.modules[conf.__name__]


def import_as(x: Any) -> Any:
    import read_sets_made.conf as c  # type: ignore[import-not-found]

    return x * c.rate


def import_dotted(x: Any) -> Any:
    import read_sets_made.conf

    return x * read_sets_made.conf.rate


def import_module(x: Any) -> Any:
    import read_sets_made as r

    return x * r.conf.rate


def from_import(x: Any) -> Any:
    from read_sets_made import rate

    return x * rate


def from_module(x: Any) -> Any:
    from read_sets_made.conf import rate as r

    return x * r


def from_import_module(x: Any) -> Any:
    from read_sets_made import conf

    return x * conf.rate


IMPORTS = [import_as, import_dotted, import_module, from_import, from_module, from_import_module]


@pytest.mark.parametrize("f", IMPORTS, ids=lambda f: str(f.__name__))
def test_S1_modules_imported_inside_are_read(f: Any) -> None:
    """As they are when the function runs; also another module under the same name."""
    way = "cond" if f is import_module else "map"
    for made, conf in imports():

        def case() -> Iterator[Any]:
            yield f
            made.rate = conf.rate = 5.0
            yield f
            other = _module(conf.__name__, rate=7.0)
            made.rate, made.conf, sys.modules[conf.__name__] = 7.0, other, other
            yield f

        assert_followed(case, way)


@pytest.mark.parametrize("f", [import_as, import_dotted, from_import, from_module])
def test_S5_what_is_not_read_off_an_imported_module(f: Any) -> None:
    """The twin of the above; it fails if a module counts as a whole."""
    for made, conf in imports():

        def case() -> Iterator[Any]:
            for i in range(3):
                made.steps = conf.steps = i
                yield f

        assert_left_alone(case, "map")


LOG = logging.getLogger("read_sets.parent.child")
PARENT = logging.getLogger("read_sets.parent")


def by_logger(read: Callable[[Any], float]) -> Case:
    def f(x: Any) -> Any:
        return x * read(LOG)

    def case() -> Iterator[Any]:
        try:
            PARENT.setLevel(logging.WARNING)
            yield f
            PARENT.setLevel(logging.DEBUG)
            yield f
            LOG.setLevel(logging.ERROR)
            yield f
        finally:
            LOG.setLevel(logging.NOTSET)
            PARENT.setLevel(logging.NOTSET)

    return case


class Point:
    x = 2.0
    y = 3.0
    __match_args__: tuple[str, ...] = ("x", "y")

    def __init__(self) -> None:
        self.steps = 0


def class_pattern() -> Iterator[Any]:
    point = Point()

    def f(v: Any) -> Any:
        match point:
            case Point(a, _):
                return v * a
        return v

    try:
        for Point.x in (2.0, 5.0):
            yield f
        point.x = 7.0
        yield f
        setattr(Point, "__match_args__", ("y", "x"))  # noqa: B010
        yield f
    finally:
        Point.x = 2.0
        setattr(Point, "__match_args__", ("x", "y"))  # noqa: B010


def keyword_pattern() -> Iterator[Any]:
    point = Point()

    def f(v: Any) -> Any:
        match point:
            case Point(x=a):
                return v * a
        return v

    try:
        for Point.x in (2.0, 5.0):
            yield f
    finally:
        Point.x = 2.0


def mapping_pattern() -> Iterator[Any]:
    table = {"x": 2.0, "y": 0.0}

    def f(v: Any) -> Any:
        match table:
            case {"x": a}:
                return v * a
        return v

    yield f
    table["x"] = 5.0
    yield f
    del table["x"]
    yield f


class Ordered(collections.OrderedDict[str, float]):
    pass


def _moved(kind: Any) -> Case:
    def case() -> Iterator[Any]:
        values = kind(a=2.0, b=5.0, c=7.0)

        def f(x: Any) -> Any:
            for value in values.values():
                x = x * value - 1.0
            return x

        yield f
        values.move_to_end("a")
        yield f
        values.move_to_end("b", last=False)
        values.move_to_end("c", last=False)
        yield f

    return case


def _rate_of(module: Any) -> Any:
    return module.rate


def _named(module: Any, name: str) -> Any:
    return getattr(module, name)


def module_as_value(read: Callable[[Any], Callable[[Any], Any]]) -> Case:
    def case() -> Iterator[Any]:
        module = _module("read_sets_value", rate=2.0)
        f = read(module)
        for module.rate in (2.0, 5.0):
            yield f
        vars(module)["rate"] = 7.0
        yield f

    return case


def _module_by_default(module: Any) -> Callable[[Any], Any]:
    def f(x: Any, module: Any = module) -> Any:
        return x * module.rate

    return f


def _module_in_a_variable(module: Any) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        local = module
        return x * local.rate

    return f


def module_getattr() -> Iterator[Any]:
    values = {"rate": 2.0}
    module = _module("read_sets_lazy", __getattr__=lambda name: values[name])

    def f(x: Any) -> Any:
        return x * _rate_of(module)

    yield f
    values["rate"] = 5.0
    yield f


def default_in_get() -> Iterator[Any]:
    state: dict[str, float] = {}

    def f(x: Any) -> Any:
        return x * state.get("scale", 2.0)

    yield f
    state["scale"] = 5.0
    yield f
    del state["scale"]
    yield f


def class_of_an_object() -> Iterator[Any]:
    class A:
        rate = 2.0

    class B:
        rate = 5.0

    thing: Any = A()

    def f(x: Any) -> Any:
        return x * thing.rate

    yield f
    thing.__class__ = B
    yield f


def registered_class() -> Iterator[Any]:
    class Base(abc.ABC):  # noqa: B024
        pass

    class Own:
        pass

    own = Own()

    def f(x: Any) -> Any:
        return x * (5.0 if isinstance(own, Base) else 2.0)

    yield f
    Base.register(Own)
    yield f


def computed_by_getattr() -> Iterator[Any]:
    class Proxy:
        def __init__(self) -> None:
            self.target = {"rate": 2.0}

        def __getattr__(self, name: str) -> Any:
            return self.__dict__["target"][name]

    proxy = Proxy()

    def f(x: Any) -> Any:
        return x * proxy.rate

    yield f
    proxy.target["rate"] = 5.0
    yield f


def descriptor() -> Iterator[Any]:
    class Field:
        def __set_name__(self, owner: type, name: str) -> None:
            self.name = "_" + name

        def __get__(self, instance: Any, owner: type) -> Any:
            return getattr(instance, self.name)

    class Thing:
        rate = Field()

        def __init__(self) -> None:
            self._rate = 2.0

    thing = Thing()

    def f(x: Any) -> Any:
        return x * thing.rate

    yield f
    thing._rate = 5.0
    yield f


def operators() -> Iterator[Any]:
    class Scaled:
        def __init__(self) -> None:
            self.rate = 2.0

        def __len__(self) -> int:
            return int(self.rate)

        def __float__(self) -> float:
            return self.rate

    thing = Scaled()

    def f(x: Any) -> Any:
        return x * len(thing) + float(thing)

    for thing.rate in (2.0, 5.0):
        yield f


def shadowed_method() -> Iterator[Any]:
    class Thing:
        def rate(self) -> float:
            return 2.0

    thing = Thing()

    def f(x: Any) -> Any:
        return x * thing.rate()

    yield f
    thing.rate = lambda: 5.0  # type: ignore[method-assign]
    yield f


def written_then_read() -> Iterator[Any]:
    """Of an update the value counts where it is read elsewhere in the body."""
    box = types.SimpleNamespace(n=0.0)

    def update(amount: float) -> None:
        box.n += amount

    def f(x: Any) -> Any:
        return x * (box.n + 1.0)

    for i in range(3):
        update(float(i > 0))
        yield f


LESS: dict[str, Case] = {
    "logger's effective level": by_logger(lambda log: float(log.getEffectiveLevel())),
    "logger enabled": by_logger(
        lambda log: (
            3.0
            + log.isEnabledFor(logging.DEBUG)
            + 5.0 * log.isEnabledFor(logging.WARNING)
            + log.level
        )
    ),
    "positional class pattern": class_pattern,
    "keyword class pattern": keyword_pattern,
    "mapping pattern": mapping_pattern,
    "OrderedDict": _moved(collections.OrderedDict),
    "OrderedDict subclass": _moved(Ordered),
    "module passed on": module_as_value(lambda module: lambda x: x * _rate_of(module)),
    "module by a made name": module_as_value(
        lambda module: lambda x: x * _named(module, "".join(["ra", "te"]))
    ),
    "module in a default": module_as_value(_module_by_default),
    "module in a variable": module_as_value(_module_in_a_variable),
    "module in a list": module_as_value(
        lambda module: (lambda box: lambda x: x * box[0].rate)([module])
    ),
    "module's vars": module_as_value(lambda module: lambda x: x * module.__dict__["rate"]),
    "module with getattr": module_getattr,
    "get with a default": default_in_get,
    "class of an object": class_of_an_object,
    "registered class": registered_class,
    "attribute that is computed": computed_by_getattr,
    "descriptor": descriptor,
    "operators": operators,
    "method shadowed": shadowed_method,
    "updated elsewhere": written_then_read,
}
#: Whose calls may trace each time: the values are right.
MAY_TRACE = {"module with getattr", "module's vars"}


@pytest.mark.parametrize(("name", "way"), ways_of(LESS, "map", "scan", "cond", "nnx.cond"))
def test_S1_every_change_of_what_is_read_counts(name: str, way: str) -> None:
    """The value is the one of a fresh trace, and was another before the change."""
    assert_followed(LESS[name], way, hits=name not in MAY_TRACE)


def test_S1_the_comparison_can_fail() -> None:
    """A twin: a function declared free of state goes stale, and ``assert_followed`` says so."""
    box = [2.0]

    @fnintern.stateless
    def f(x: Any) -> Any:
        return x * box[0]

    def case() -> Iterator[Any]:
        yield f
        box[0] = 5.0
        yield f

    with pytest.raises(AssertionError):
        assert_followed(case, "map")


# -- no more: what a trainer keeps beside its step -----------------------------------------------


class Trainer:
    def __init__(self) -> None:
        self.scale = 2.0
        self.w = jnp.float32(2.0)
        self.steps = 0
        self.history: list[Any] = []
        self.metrics: dict[str, Any] = {}
        self.t = 0.0
        self.extra: Any = None

    def step(self, x: Any) -> Any:
        return x * self.scale * self.w

    def __call__(self, x: Any) -> Any:
        return self.step(x)


class Fitted(Trainer):
    """A subclass with a step of its own."""

    def step(self, x: Any) -> Any:
        return super().step(x) + self.scale


@dataclasses.dataclass
class Data:
    scale: float = 2.0
    w: Any = dataclasses.field(default_factory=lambda: jnp.float32(2.0))
    steps: int = 0
    history: list[Any] = dataclasses.field(default_factory=list)
    metrics: dict[str, Any] = dataclasses.field(default_factory=dict)
    t: float = 0.0
    extra: Any = None

    def step(self, x: Any) -> Any:
        return x * self.scale * self.w

    def __call__(self, x: Any) -> Any:
        return self.step(x)


@dataclasses.dataclass(slots=True, weakref_slot=True, eq=False)
class SlottedData:
    scale: float = 2.0
    w: Any = dataclasses.field(default_factory=lambda: jnp.float32(2.0))
    steps: int = 0
    history: list[Any] = dataclasses.field(default_factory=list)
    metrics: dict[str, Any] = dataclasses.field(default_factory=dict)
    t: float = 0.0
    extra: Any = None

    def step(self, x: Any) -> Any:
        return x * self.scale * self.w

    def __call__(self, x: Any) -> Any:
        return self.step(x)


class Slots:
    __slots__ = ("__weakref__", "extra", "history", "metrics", "scale", "steps", "t", "w")

    def __init__(self) -> None:
        self.scale = 2.0
        self.w = jnp.float32(2.0)
        self.steps = 0
        self.history: list[Any] = []
        self.metrics: dict[str, Any] = {}
        self.t = 0.0
        self.extra: Any = None

    def step(self, x: Any) -> Any:
        return x * self.scale * self.w

    def __call__(self, x: Any) -> Any:
        return self.step(x)


TRAINERS: dict[str, Any] = {
    "plain": Trainer, "subclass": Fitted, "dataclass": Data, "slots": Slots,
    "slotted dataclass": SlottedData,
}  # fmt: skip
USES: dict[str, Callable[[Any], Any]] = {
    "bound method": lambda trainer: trainer.step,
    "callable": lambda trainer: trainer,
    "lambda": lambda trainer: lambda x: trainer.step(x) + 1.0,
    "partial": lambda trainer: functools.partial(type(trainer).step, trainer),
}


def work(trainer: Any, y: Any) -> None:
    """What a loop does between two steps."""
    trainer.steps += 1
    trainer.history.append(y)
    trainer.metrics[f"loss {trainer.steps}"] = y
    trainer.t = time.time()
    trainer.extra = [trainer.steps]


@pytest.mark.parametrize(
    ("kind", "use", "way"),
    [
        pytest.param(kind, use, way, id=f"{kind}-{use}-{way}")
        for i, kind in enumerate(TRAINERS)
        for j, use in enumerate(USES)
        for way in [["map", "nnx.cond", "scan"][(i + j) % 3]]
    ],
)
def test_S5_a_trainers_counters_and_history_do_not_count(kind: str, use: str, way: str) -> None:
    """They change between calls; the step reads none of them."""
    trainer = TRAINERS[kind]()

    def case() -> Iterator[Any]:
        for _ in range(4):
            yield USES[use](trainer)
            work(trainer, jnp.float32(trainer.steps))

    assert_left_alone(case, way)

    def changes() -> Iterator[Any]:
        for trainer.scale in (3.0, 5.0):
            yield USES[use](trainer)
        trainer.w = jnp.float32(4.0)
        yield USES[use](trainer)

    assert_followed(changes, way)


def test_S5_the_count_can_fail() -> None:
    """A twin: a step that reads its counter traces again, and ``assert_left_alone`` says so."""

    class Counting(Trainer):
        def step(self, x: Any) -> Any:
            return x * self.scale + self.steps

    trainer = Counting()

    def case() -> Iterator[Any]:
        for _ in range(3):
            yield trainer.step
            work(trainer, 0.0)

    with pytest.raises(AssertionError):
        assert_left_alone(case, "map")
    assert_followed(case, "map")


def _unread(name: str, folder: Path) -> tuple[Any, Callable[[Any], Any]]:
    """An object that nobody can read completely, and what is done to it between two calls."""
    if name == "lock":
        return threading.Lock(), lambda lock: lock.acquire(blocking=False)
    if name == "condition":
        return threading.Condition(), lambda condition: None
    if name == "file":
        return (folder / "log").open("w"), lambda file: file.write("line\n")
    if name == "generator of numpy":
        return np.random.default_rng(0), lambda rng: rng.random()
    if name == "iterator":
        return iter(range(100)), next
    if name == "memory file":
        return io.BytesIO(), lambda file: file.write(b"line")
    return (i for i in range(100)), next


@pytest.mark.parametrize(
    "name",
    ["lock", "condition", "file", "generator of numpy", "iterator", "memory file", "generator"],
)
def test_S5_what_cannot_be_read_does_not_matter_where_it_is_not_read(
    name: str, tmp_path: Path
) -> None:
    """A lock, an open file or a source of random numbers among the attributes of a trainer."""
    use = "callable" if name in ("lock", "iterator") else "bound method"
    trainer = Trainer()
    trainer.extra, touch = _unread(name, tmp_path)

    def case() -> Iterator[Any]:
        for _ in range(3):
            yield USES[use](trainer)
            touch(trainer.extra)

    try:
        assert_left_alone(case, "map")
    finally:
        if name == "file":
            trainer.extra.close()


# -- no more: state that the first trace fills ---------------------------------------------------


def dict_cache() -> Iterator[Any]:
    cache: dict[int, float] = {}

    def table(n: int) -> float:
        if n not in cache:
            cache[n] = math.sqrt(n)
        return cache[n]

    for _ in range(4):
        yield lambda x: x * table(5)


def cold_lru_cache() -> Iterator[Any]:
    @functools.lru_cache
    def table(n: int) -> float:
        return math.sqrt(n)

    for _ in range(4):
        yield lambda x: x * table(5)


def array_lru_cache() -> Iterator[Any]:
    @functools.cache
    def table(n: int) -> Any:
        return np.arange(n, dtype=np.float32).sum()

    for _ in range(4):
        yield lambda x: x * table(5)


def cached_property() -> Iterator[Any]:
    class Lazy:
        @functools.cached_property
        def rate(self) -> float:
            return math.sqrt(5.0)

        def step(self, x: Any) -> Any:
            return x * self.rate

    lazy = Lazy()
    for _ in range(4):
        yield lazy.step


def lazy_attribute() -> Iterator[Any]:
    class Lazy:
        table: Any = None

        def step(self, x: Any) -> Any:
            if self.table is None:
                self.table = np.float32(5.0)
            return x * self.table

    lazy = Lazy()
    for _ in range(4):
        yield lazy.step


def normalised_variable() -> Iterator[Any]:
    n: Any = 3

    def f(x: Any) -> Any:
        nonlocal n
        n = float(n)
        return x * n

    for _ in range(4):
        yield f


LAZY: Any = None


def lazy_global() -> Iterator[Any]:
    global LAZY
    LAZY = None

    def f(x: Any) -> Any:
        global LAZY
        if LAZY is None:
            LAZY = 5.0
        return x * LAZY

    for _ in range(4):
        yield f


def defaultdict_filled() -> Iterator[Any]:
    table: Any = collections.defaultdict(lambda: 5.0)
    for _ in range(4):
        yield lambda x: x * table["rate"]


FILLING: dict[str, Case] = {
    "dict cache": dict_cache,
    "cold lru_cache": cold_lru_cache,
    "cold cache of arrays": array_lru_cache,
    "cached_property": cached_property,
    "lazy attribute": lazy_attribute,
    "normalised variable": normalised_variable,
    "lazy global": lazy_global,
    "defaultdict": defaultdict_filled,
}


@pytest.mark.parametrize(("name", "way"), ways_of(FILLING, "map", "scan", "cond", "nnx.cond"))
def test_S5_state_that_a_first_trace_fills(name: str, way: str) -> None:
    """At most one more trace, and none after. Nothing but fnintern calls it meanwhile."""
    counts, found = [], []
    yielded: Any = None
    for yielded in FILLING[name]():
        counts.append(traces(lambda: found.append(called(way, yielded))))
    assert counts[0] > 0
    assert counts[2:] == [0, 0]
    for value in found:
        assert_same(value, fresh(way, yielded))


# -- no more: everyday code that is to hit -------------------------------------------------------


def except_clause() -> Iterator[Any]:
    table = {"rate": 2.0}
    for i in range(3):
        table["step"] = float(i)

        def f(x: Any) -> Any:
            try:
                return x * table["rate"]
            except (KeyError, ValueError) as error:
                raise RuntimeError("no rate") from error

        yield f


def except_taken() -> Iterator[Any]:
    for _ in range(3):

        def f(x: Any) -> Any:
            try:
                import read_sets_missing as missing  # type: ignore[import-not-found]
            except ImportError:
                missing = None
            return x * (2.0 if missing is None else 3.0)

        yield f


class WithArray:
    w = jnp.float32(2.0)
    table = np.arange(3.0, dtype=np.float32)

    def step(self, x: Any) -> Any:
        return x * self.w + self.table.sum()


def array_in_a_class() -> Iterator[Any]:
    thing = WithArray()
    try:
        for i in range(3):
            WithArray.w = jnp.float32(2.0 + i)
            yield thing.step
    finally:
        WithArray.w = jnp.float32(2.0)


def same_array_in_a_class() -> Iterator[Any]:
    for _ in range(3):
        yield WithArray().step


CONSTANT = 2.0
ARRAY = jnp.float32(3.0)


@jax.custom_jvp  # type: ignore[untyped-decorator]
def custom(x: Any) -> Any:
    return x * CONSTANT * ARRAY


@custom.defjvp  # type: ignore[untyped-decorator]
def _custom_jvp(primals: Any, tangents: Any) -> Any:
    return custom(*primals), tangents[0] * CONSTANT


def custom_derivative() -> Iterator[Any]:
    for _ in range(3):
        yield lambda x: custom(x) + 1.0


def named_call() -> Iterator[Any]:
    for i in range(3):
        w = jnp.float32(i + 2.0)
        yield jax.named_call(lambda x, w=w: x * w, name="scaled")


def logged(f: Any) -> Any:
    @functools.wraps(f)
    def inner(*args: Any) -> Any:
        return f(*args)

    return inner


def wrapped() -> Iterator[Any]:
    for i in range(3):
        w = jnp.float32(i + 2.0)

        @logged
        def f(x: Any, w: Any = w) -> Any:
            return x * w

        yield f


VOCABULARY = {f"word {i}": i for i in range(30_000)}


def vocabulary() -> Iterator[Any]:
    for word in ("word 7",) * 3:
        yield lambda x, word=word: x * VOCABULARY[word] + len(VOCABULARY)


def vocabulary_by_constant() -> Iterator[Any]:
    for i in range(3):
        VOCABULARY["word 9"] = i
        yield lambda x: x * VOCABULARY["word 7"]


def debug_print() -> Iterator[Any]:
    for i in range(3):
        w = jnp.float32(i + 2.0)

        def f(x: Any) -> Any:
            jax.debug.print("x = {}", x)
            return x * w

        yield f


PRINTED: list[float] = []


def record(x: Any) -> None:
    PRINTED.append(float(x))


def debug_callback() -> Iterator[Any]:
    for i in range(3):
        w = jnp.float32(i + 2.0)

        def f(x: Any) -> Any:
            jax.debug.callback(record, x)
            return x * w

        yield f


def printing_lambda() -> Iterator[Any]:
    for i in range(3):
        w = jnp.float32(i + 2.0)

        def f(x: Any) -> Any:
            jax.debug.callback(lambda v: print("x =", v), x)
            return x * w

        yield f


def logging_only() -> Iterator[Any]:
    for i in range(3):
        w = jnp.float32(i + 2.0)

        def f(x: Any) -> Any:
            LOG.debug("tracing %s", x)
            return x * w

        yield f


def local_function() -> Iterator[Any]:
    for i in range(3):
        w = jnp.float32(i + 2.0)

        def f(x: Any) -> Any:
            def inner(y: Any) -> Any:
                return y * w

            return inner(x) + sum(inner(v) for v in (x, x))

        yield f


EVERYDAY: dict[str, Case] = {
    "except clause": except_clause,
    "except clause that is taken": except_taken,
    "array in a class": array_in_a_class,
    "class with arrays": same_array_in_a_class,
    "custom_jvp over a constant": custom_derivative,
    "named_call": named_call,
    "functools.wraps": wrapped,
    "vocabulary": vocabulary,
    "vocabulary by a constant": vocabulary_by_constant,
    "debug.print": debug_print,
    "debug.callback": debug_callback,
    "lambda that prints": printing_lambda,
    "logging": logging_only,
    "local functions": local_function,
}


@pytest.mark.parametrize(("name", "way"), ways_of(EVERYDAY, "map", "cond", "scan", "nnx.cond"))
def test_S5_everyday_code_traces_once(name: str, way: str) -> None:
    """It captures another array, or is made anew, at each call; the values are right."""
    assert_left_alone(EVERYDAY[name], way)


def test_S1_constants_of_a_custom_derivative_and_a_vocabulary_are_read() -> None:
    """The twin of the above; it fails if what is cheap to skip is skipped."""
    global CONSTANT

    def constants() -> Iterator[Any]:
        global CONSTANT
        for CONSTANT in (2.0, 5.0):  # noqa: B007
            yield lambda x: custom(x) + 1.0

    def words() -> Iterator[Any]:
        for i in (7, 8):
            VOCABULARY["word 7"] = i
            yield lambda x: x * VOCABULARY["word 7"]

    def all_words() -> Iterator[Any]:
        for i in (7, 10**7):  # a float32 shows the difference
            VOCABULARY["word 9"] = i
            yield lambda x: x * sum(VOCABULARY.values())

    try:
        assert_followed(constants, "map")
        assert_followed(words, "map")
        assert_followed(all_words, "map")
    finally:
        CONSTANT = 2.0
        VOCABULARY["word 7"], VOCABULARY["word 9"] = 7, 9


def test_S6_a_callback_runs_at_every_call() -> None:
    """It belongs to the program, not to the trace."""
    PRINTED.clear()
    for i, f in enumerate(debug_callback(), 1):
        lax.map(f, XS)
        jax.effects_barrier()
        expected = [1.0, 2.0, 3.0] * i
        assert expected == PRINTED


# -- no more: the counters by which people look for traces ---------------------------------------

#: Makes a function and what tells how often it was traced.
Counter = Callable[[], tuple[Any, Callable[[], int]]]
COUNT = 0


def count_nonlocal() -> tuple[Any, Callable[[], int]]:
    n = 0

    def f(x: Any) -> Any:
        nonlocal n
        n += 1
        return x * 2.0

    return f, lambda: n


def count_global() -> tuple[Any, Callable[[], int]]:
    global COUNT
    COUNT = 0

    def f(x: Any) -> Any:
        global COUNT
        COUNT += 1
        return x * 2.0

    return f, lambda: COUNT


def count_log() -> tuple[Any, Callable[[], int]]:
    log: list[str] = []

    def f(x: Any) -> Any:
        log.append("traced")
        return x * 2.0

    return f, lambda: len(log)


def count_shapes() -> tuple[Any, Callable[[], int]]:
    log: list[Any] = []

    def f(x: Any) -> Any:
        log.append((x.shape, str(x.dtype)))
        return x * 2.0

    return f, lambda: len(log)


def count_attribute() -> tuple[Any, Callable[[], int]]:
    class Counted:
        def __init__(self) -> None:
            self.traces = 0
            self.scale = 2.0

        def step(self, x: Any) -> Any:
            self.traces += 1
            return x * self.scale

    thing = Counted()
    return thing.step, lambda: thing.traces


def count_dict() -> tuple[Any, Callable[[], int]]:
    counts = {"n": 0, "m": 0}

    def f(x: Any) -> Any:
        counts["n"] += 1
        return x * 2.0

    return f, lambda: counts["n"]


def count_dict_attribute() -> tuple[Any, Callable[[], int]]:
    class Counted:
        def __init__(self) -> None:
            self.counts = {"n": 0}

        def step(self, x: Any) -> Any:
            self.counts["n"] += 1
            return x * 2.0

    thing = Counted()
    return thing.step, lambda: thing.counts["n"]


def count_element() -> tuple[Any, Callable[[], int]]:
    counts = [0]

    def f(x: Any) -> Any:
        counts[0] += 1
        return x * 2.0

    return f, lambda: counts[0]


def count_log_attribute() -> tuple[Any, Callable[[], int]]:
    class Counted:
        def __init__(self) -> None:
            self.log: list[str] = []

        def step(self, x: Any) -> Any:
            self.log.append("traced")
            return x * 2.0

    thing = Counted()
    return thing.step, lambda: len(thing.log)


def count_in_a_decorator() -> tuple[Any, Callable[[], int]]:
    n = 0

    def counting(f: Any) -> Any:
        @functools.wraps(f)
        def inner(*args: Any) -> Any:
            nonlocal n
            n += 1
            return f(*args)

        return inner

    return counting(lambda x: x * 2.0), lambda: n


COUNTERS: dict[str, Counter] = {
    "nonlocal n; n += 1": count_nonlocal,
    "global COUNT; COUNT += 1": count_global,
    "log.append": count_log,
    "log.append of a shape": count_shapes,
    "self.traces += 1": count_attribute,
    "counts['n'] += 1": count_dict,
    "self.counts['n'] += 1": count_dict_attribute,
    "counts[0] += 1": count_element,
    "self.log.append": count_log_attribute,
    "in a decorator": count_in_a_decorator,
}


@pytest.mark.parametrize("way", ["map", "cond", "nnx.cond"])
@pytest.mark.parametrize("name", COUNTERS)
def test_S6_a_counter_of_traces_counts_traces(name: str, way: str) -> None:
    """It is counted as often as one plain call counts, and never again."""
    f, count = COUNTERS[name]()
    fresh(way, f)
    plain = count()
    assert plain > 0
    f, count = COUNTERS[name]()
    expected = called(way, f)
    first = count()
    assert traces(lambda: [called(way, f) for _ in range(3)]) == 0
    assert count() == first
    if way != "nnx.cond":  # flax may trace a function more than once
        assert first == plain
    assert_same(called(way, f), expected)


def follow_nonlocal() -> Any:
    n = 0

    def f(x: Any) -> Any:
        nonlocal n
        n += 1
        return x * n

    return f


def follow_global() -> Any:
    global COUNT
    COUNT = 0

    def f(x: Any) -> Any:
        global COUNT
        COUNT += 1
        return x * COUNT

    return f


def follow_log() -> Any:
    log: list[int] = []

    def f(x: Any) -> Any:
        log.append(1)
        return x * len(log)

    return f


def follow_log_before() -> Any:
    log: list[int] = []

    def f(x: Any) -> Any:
        y = x * len(log)
        log.append(1)
        return y

    return f


def follow_dict() -> Any:
    counts = {"n": 0}

    def f(x: Any) -> Any:
        counts["n"] += 1
        return x * counts["n"]

    return f


def follow_attribute() -> Any:
    class Counted:
        traces = 0

        def step(self, x: Any) -> Any:
            self.traces += 1
            return x * self.traces

    return Counted().step


def follow_property() -> Any:
    class Counted:
        def __init__(self) -> None:
            self.traces = 0

        @property
        def rate(self) -> int:
            return self.traces

        def step(self, x: Any) -> Any:
            self.traces += 1
            return x * self.rate

    return Counted().step


def follow_helper() -> Any:
    box = types.SimpleNamespace(n=0)

    def tick() -> None:
        box.n += 1

    def f(x: Any) -> Any:
        tick()
        return x * getattr(box, "n")  # noqa: B009

    return f


def follow_walrus() -> Any:
    box = [0]

    def f(x: Any) -> Any:
        box[0] = (n := box[0] + 1)
        return x * n

    return f


def follow_alias() -> Any:
    log: list[int] = []
    same = log

    def f(x: Any) -> Any:
        log.append(1)
        return x * len(same)

    return f


def follow_returned() -> Any:
    log: set[int] = set()

    def f(x: Any) -> Any:
        log.add(len(log))
        return x * max(log)

    return f


def follow_pop() -> Any:
    values = [5.0, 4.0, 3.0, 2.0, 1.0]

    def f(x: Any) -> Any:
        return x * values.pop()

    return f


def follow_setdefault() -> Any:
    values: dict[int, float] = {}

    def f(x: Any) -> Any:
        values.setdefault(len(values), 2.0)
        return x * sum(values.values())

    return f


def follow_iadd_method() -> Any:
    """``+=`` is a method of the object, which may do anything."""

    class Acc:
        def __init__(self) -> None:
            self.n = 0

        def __iadd__(self, other: int) -> Any:
            self.n += other
            return self

    acc = Acc()
    box = types.SimpleNamespace(acc=acc)

    def f(x: Any) -> Any:
        box.acc += 1
        return x * acc.n

    return f


def follow_own_append() -> Any:
    """A method named ``append`` of a class of the user's."""

    class Log:
        def __init__(self) -> None:
            self.size = 0

        def append(self, item: Any) -> None:
            self.size += 1

    log = Log()

    def f(x: Any) -> Any:
        log.append(1)
        return x * log.size

    return f


FOLLOWED: dict[str, Callable[[], Any]] = {
    "nonlocal": follow_nonlocal,
    "global": follow_global,
    "log": follow_log,
    "log before": follow_log_before,
    "dict": follow_dict,
    "attribute": follow_attribute,
    "property": follow_property,
    "helper": follow_helper,
    "walrus": follow_walrus,
    "alias": follow_alias,
    "set": follow_returned,
    "pop": follow_pop,
    "setdefault": follow_setdefault,
    "iadd": follow_iadd_method,
    "own append": follow_own_append,
}


@pytest.mark.parametrize(("name", "way"), ways_of(FOLLOWED, "map", "cond", "nnx.cond"))
def test_S6_a_result_that_depends_on_a_counter_follows_it(name: str, way: str) -> None:
    """What is written and read counts: each call gives what the same plain call gives."""
    f, g = FOLLOWED[name](), FOLLOWED[name]()
    expected = [np.asarray(fresh(way, g)) for _ in range(4)]
    if name == "global":
        FOLLOWED[name]()
    found = [np.asarray(called(way, f)) for _ in range(4)]
    np.testing.assert_array_equal(found, expected)
    assert len({value.tobytes() for value in expected}) > 1


# -- dictionaries with constant keys -------------------------------------------------------------

STATE: dict[str, Any] = {"scale": 2.0, "step": 0, "model": {"rate": 2.0, "step": 0}}


def _state() -> dict[str, Any]:
    return {"scale": 2.0, "step": 0, "model": {"rate": 2.0, "step": 0}}


class Holder:
    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def step(self, x: Any) -> Any:
        return x * self.state["scale"]

    def nested(self, x: Any) -> Any:
        return x * self.state["model"]["rate"] * self.state["scale"]


def by_global(x: Any) -> Any:
    return x * STATE["scale"]


#: Name -> makes a function over a state.
DICTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "closure": lambda state: lambda x: x * state["scale"],
    "attribute": lambda state: Holder(state).step,
    "in a comprehension": lambda state: lambda x: sum(x * state["scale"] for _ in range(2)),
    "in a nested function": lambda state: lambda x: (lambda y: y * state["scale"])(x),
}


@pytest.mark.parametrize("name", DICTS)
def test_S5_other_keys_of_a_dictionary_do_not_count(name: str) -> None:
    """``state["scale"]`` is read while ``state["step"]`` changes; then ``scale`` changes too."""
    state = _state()
    f = DICTS[name](state)

    def steps() -> Iterator[Any]:
        for i in range(3):
            state["step"] += 1
            state[f"new {i}"] = jnp.float32(i)
            yield f

    def scales() -> Iterator[Any]:
        for state["scale"] in (3.0, 5.0, jnp.float32(7.0)):
            yield f

    assert_left_alone(steps, "map")
    assert_followed(scales, "map")


def test_S5_other_keys_of_a_global_and_of_a_nested_dictionary() -> None:
    """The same where the dictionary is a global, or holds another one."""
    held = Holder(_state())

    def steps() -> Iterator[Any]:
        for i in range(3):
            STATE["step"] = i
            STATE["model"]["step"] = i
            yield by_global

    def nested_steps() -> Iterator[Any]:
        for i in range(3):
            held.state["step"] = i
            yield held.nested

    def nested_scales() -> Iterator[Any]:
        for held.state["model"]["rate"] in (3.0, 5.0):
            yield held.nested
        held.state["scale"] = 7.0
        yield held.nested
        held.state["model"] = {"rate": 11.0}
        yield held.nested

    assert_left_alone(steps, "map")
    assert_left_alone(nested_steps, "map")
    assert_followed(nested_scales, "map")


def key_and_length() -> Iterator[Any]:
    state = _state()

    def f(x: Any) -> Any:
        return x * state["scale"] + len(state)

    yield f
    state["more"] = 0
    yield f


def key_and_contains() -> Iterator[Any]:
    state = _state()

    def f(x: Any) -> Any:
        return x * state["scale"] + ("more" in state)

    yield f
    state["more"] = 0
    yield f


def key_and_alias() -> Iterator[Any]:
    state = _state()

    def f(x: Any) -> Any:
        other = state
        return x * state["scale"] + other["step"]

    for state["step"] in (1, 2):
        yield f


def key_and_passed() -> Iterator[Any]:
    state = _state()

    def total(values: Any) -> Any:
        return sum(value for value in values.values() if type(value) is int)

    def f(x: Any) -> Any:
        return x * state["scale"] + total(state)

    for state["step"] in (1, 2):
        yield f


def key_of_a_kind() -> Iterator[Any]:
    """``1``, ``1.0`` and ``True`` are one key of a dictionary."""
    table: dict[Any, float] = {1: 2.0}

    def f(x: Any) -> Any:
        return x * table[True] + table[1.0]

    yield f
    table[1] = 5.0
    yield f


def own_getitem() -> Iterator[Any]:
    """A subclass may look into other keys."""

    class Chained(dict[str, Any]):
        def __getitem__(self, key: str) -> Any:
            return dict.__getitem__(self, "alias of " + key)

    table = Chained({"alias of rate": 2.0, "rate": 1.0})

    def f(x: Any) -> Any:
        return x * table["rate"]

    yield f
    table["alias of rate"] = 5.0
    yield f


def missing_key() -> Iterator[Any]:
    """A subclass may have an answer for a key that it has not."""

    class Filled(dict[str, Any]):
        rate = 2.0

        def __missing__(self, key: str) -> Any:
            return self.rate

    table = Filled()

    def f(x: Any) -> Any:
        return x * table["rate"]

    for table.rate in (2.0, 5.0):
        yield f


def deleted_key() -> Iterator[Any]:
    state: dict[str, Any] = {"scale": 2.0}

    def f(x: Any) -> Any:
        try:
            return x * state["scale"]
        except KeyError:
            return x * 5.0

    yield f
    del state["scale"]
    yield f


def key_of_another_dictionary() -> Iterator[Any]:
    """Another dictionary under the same name."""
    held = Holder(_state())
    yield held.step
    held.state = {"scale": 5.0}
    yield held.step


def default_factory_called() -> Iterator[Any]:
    rate = 2.0
    table: Any = collections.defaultdict(lambda: rate)

    def f(x: Any) -> Any:
        return x * table["rate"]

    yield f
    rate = 5.0
    table.clear()
    yield f


def chain_map() -> Iterator[Any]:
    outer = {"rate": 2.0}
    table = collections.ChainMap({}, outer)

    def f(x: Any) -> Any:
        return x * table["rate"]

    yield f
    outer["rate"] = 5.0
    yield f


WHOLE_DICTS: dict[str, Case] = {
    "length": key_and_length,
    "contains": key_and_contains,
    "alias": key_and_alias,
    "passed": key_and_passed,
    "kinds of keys": key_of_a_kind,
    "own getitem": own_getitem,
    "missing": missing_key,
    "deleted": deleted_key,
    "another dictionary": key_of_another_dictionary,
    "default factory": default_factory_called,
    "ChainMap": chain_map,
}


@pytest.mark.parametrize("name", WHOLE_DICTS)
def test_S1_a_dictionary_that_is_read_otherwise_too(name: str) -> None:
    """Its length, another name for it, a function that gets it, or a class with its own rules."""
    assert_followed(WHOLE_DICTS[name], "map", hits=name != "default factory")


# -- giving up to more ---------------------------------------------------------------------------


@dataclasses.dataclass
class Options:
    a: float = 2.0
    b: float = 3.0


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: float = 2.0
    b: float = 3.0


@dataclasses.dataclass(order=True)
class Sortable:
    a: float = 2.0
    b: float = 3.0


class Plain:
    def __init__(self) -> None:
        self.a = 2.0
        self.b = 3.0


NAMES = ["a", "b"]


def _whole_repr(options: Any) -> Callable[[Any], Any]:
    return lambda x: x * number(f"{options}")


#: Name -> (makes the object, makes a function that reads its ``b`` by no name of the code's).
GIVEN_UP: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "vars": (Plain, lambda o: lambda x: x * sum(vars(o).values())),
    "__dict__": (Plain, lambda o: lambda x: x * sum(o.__dict__[name] for name in o.__dict__)),
    "getattr": (Plain, lambda o: lambda x: x * getattr(o, chr(98))),
    "getattr of names": (Plain, lambda o: lambda x: x * sum(getattr(o, n) for n in NAMES)),
    "getattr mapped": (
        Plain,
        lambda o: lambda x: x * sum(map(functools.partial(getattr, o), NAMES)),
    ),
    "getattr reduced": (Plain, lambda o: lambda x: x * functools.reduce(getattr, NAMES[1:], o)),
    "attrgetter": (Plain, lambda o: lambda x: x * operator.attrgetter(NAMES[1])(o)),
    "attrgetter made before": (
        Plain,
        lambda o: (lambda get: lambda x: x * get(o))(operator.attrgetter("b")),
    ),
    "__getattribute__": (Plain, lambda o: lambda x: x * o.__getattribute__(NAMES[1])),
    "object.__getattribute__": (
        Plain,
        lambda o: lambda x: x * object.__getattribute__(o, NAMES[1]),
    ),
    "copy.copy": (Plain, lambda o: lambda x: x * _sum_of(copy.copy(o))),
    "copy.deepcopy": (Plain, lambda o: lambda x: x * _sum_of(copy.deepcopy(o))),
    "copy of a copy": (Plain, lambda o: lambda x: x * number(repr(copy.copy(o).__dict__))),
    "pickle": (Plain, lambda o: lambda x: x * (zlib.crc32(pickle.dumps(o)) % 8191)),
    "replace": (Options, lambda o: lambda x: x * number(repr(dataclasses.replace(o, a=1.0)))),
    "replace frozen": (Frozen, lambda o: lambda x: x * number(repr(dataclasses.replace(o, a=1.0)))),
    "asdict": (Options, lambda o: lambda x: x * sum(dataclasses.asdict(o).values())),
    "astuple": (Options, lambda o: lambda x: x * sum(dataclasses.astuple(o))),
    "fields": (
        Options,
        lambda o: lambda x: x * sum(getattr(o, f.name) for f in dataclasses.fields(o)),
    ),
    "f-string": (Options, _whole_repr),
    "repr": (Options, lambda o: lambda x: x * number(repr(o))),
    "str": (Options, lambda o: lambda x: x * number(str(o))),
    "percent": (Options, lambda o: lambda x: x * number("%s" % (o,))),  # noqa: UP031
    "format": (Options, lambda o: lambda x: x * number("{}".format(o))),  # noqa: UP032
    "format of an attribute": (Plain, lambda o: lambda x: x * number("{0.b}".format(o))),  # noqa: UP030, UP032
    "format by a stored text": (Plain, lambda o: lambda x: x * number(TEMPLATE.format(o))),
    "format_map": (Plain, lambda o: lambda x: x * number(TEMPLATE_MAP.format_map({"o": o}))),
    "join": (Options, lambda o: lambda x: x * number(",".join(map(repr, [o])))),
    "text of a list": (Options, lambda o: lambda x: x * number(f"{[o]}")),
    "==": (Options, lambda o: lambda x: x * (2.0 if o == Options(2.0, 3.0) else 5.0)),
    "!=": (Options, lambda o: lambda x: x * (2.0 if o != Options(2.0, 3.0) else 5.0)),
    "operator.eq": (
        Options,
        lambda o: lambda x: x * (2.0 if operator.eq(o, Options(2.0, 3.0)) else 5.0),
    ),
    "in": (Options, lambda o: lambda x: x * (2.0 if o in [Options(2.0, 3.0)] else 5.0)),
    "list ==": (Options, lambda o: lambda x: x * (2.0 if [o] == [Options(2.0, 3.0)] else 5.0)),
    "count": (Options, lambda o: lambda x: x * (2.0 + [Options(2.0, 3.0)].count(o))),
    "hash": (Frozen, lambda o: lambda x: x * (hash(o) % 8191)),
    "key of a dictionary": (
        Frozen,
        lambda o: lambda x: x * {Frozen(2.0, 3.0): 2.0}.get(o, 5.0),
    ),
    "<": (Sortable, lambda o: lambda x: x * (2.0 if o < Sortable(2.0, 4.0) else 5.0)),
    "max": (Sortable, lambda o: lambda x: x * (2.0 if max(o, Sortable(2.0, 4.0)) is o else 5.0)),
    "sorted": (
        Sortable,
        lambda o: lambda x: x * (2.0 if sorted([Sortable(2.0, 4.0), o])[0] is o else 5.0),
    ),
    "positional pattern": (Options, lambda o: lambda x: x * _matched(o)),
    "match constant": (Options, lambda o: lambda x: x * _match_value(o)),
}

TEMPLATE = "{0.b}"
TEMPLATE_MAP = "{o.b}"


def _sum_of(thing: Any) -> Any:
    return thing.a + thing.b


def _matched(thing: Any) -> float:
    match thing:
        case Options(_, second):
            return second
    return 1.0


class Defaults:
    options = Options(2.0, 3.0)


def _match_value(thing: Any) -> float:
    match thing:
        case Defaults.options:
            return 2.0
    return 5.0


@pytest.mark.parametrize("name", GIVEN_UP)
def test_S1_where_the_text_does_not_tell_what_is_read_everything_is(name: str) -> None:
    """``b`` is not named, and changes; also where the object is an attribute of another."""
    make, function = GIVEN_UP[name]
    options = make()
    f = function(options)

    def case() -> Iterator[Any]:
        yield f
        object.__setattr__(options, "b", 5.0)
        yield f

    assert_followed(case, "map", hits=False)


@pytest.mark.parametrize(
    "use",
    [
        lambda o: lambda x: x * vars(o)["b"],
        lambda o: lambda x: x * sum(vars(o).values()),
        lambda o: lambda x: x * list(vars(o).items())[1][1],
        lambda o: lambda x: x * sum(v["b"] for v in map(vars, [o])),
    ],
)
def test_S5_what_is_read_by_vars_is_read_whole_and_traced_once(use: Any) -> None:
    """``vars(x)`` reads all of ``x``, and nothing that cannot be part of a key."""
    options = Plain()
    f = use(options)

    def case() -> Iterator[Any]:
        yield f
        options.b = 5.0
        yield f

    assert_followed(case, "map")


@pytest.mark.parametrize("way", ["nnx.cond"])
@pytest.mark.parametrize("name", ["vars", "getattr", "copy.copy", "replace", "f-string", "=="])
def test_S1_and_so_it_is_for_nnx_cond(name: str, way: str) -> None:
    """The same under ``patch_flax()``."""
    make, function = GIVEN_UP[name]
    options = make()
    f = function(options)

    def case() -> Iterator[Any]:
        yield f
        options.b = 5.0
        yield f

    assert_followed(case, way, hits=False)


# -- random programs -----------------------------------------------------------------------------

#: Attributes of the object, of its child, and keys of its dictionary.
FIELDS = ("a", "b", "c", "d", "e", "f")
CHILD = ("g", "h")
KEYS = ("k", "l")

#: How an attribute is read: a template for the body, and what it needs of the class.
READS: dict[str, tuple[str, str]] = {
    "attribute": ("y = y * o.{0}", ""),
    "variable": ("t = o\n    y = y + t.{0} * 3.0", ""),
    "method": ("y = y + o.get_{0}()", "def get_{0}(self):\n        return self.{0} * 2.0"),
    "property": (
        "y = y - o.prop_{0}",
        "@property\n    def prop_{0}(self):\n        return self.{0}",
    ),
    "function": ("y = y * read_{0}(o)", ""),
    "getattr": ("y = y * getattr(o, '{0}')", ""),
    "nested": ("y = y + (lambda: o.{0})()", ""),
    "condition": ("y = y + (1.0 if o.{0} > 2.0 else 7.0 * o.{0})", ""),
}
#: How an attribute is written and not read.
WRITES: dict[str, tuple[str, str]] = {
    "update": ("o.{0} += 1.0", ""),
    "store": ("o.{0} = 9.0", ""),
    "method": ("o.set_{0}()", "def set_{0}(self):\n        self.{0} = 9.0"),
    "update by a method": ("o.inc_{0}()", "def inc_{0}(self):\n        self.{0} += 1.0"),
}

Use = tuple[str, str]
Change = tuple[str, float]


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[Use], list[Use], bool, list[Change]]:
    """Reads and writes in order, whether the function is a method, and changes between calls."""
    names = st.sampled_from([*FIELDS, *CHILD, *KEYS])
    reads = draw(st.lists(st.tuples(names, st.sampled_from(sorted(READS))), min_size=1, max_size=4))
    fields = st.sampled_from(FIELDS)
    writes = draw(st.lists(st.tuples(fields, st.sampled_from(sorted(WRITES))), max_size=2))
    values = st.sampled_from([1.0, 2.0, 3.0, 9.0])
    changes = draw(st.lists(st.tuples(names, values), min_size=2, max_size=4))
    return reads, writes, draw(st.booleans()), changes


def source_of(reads: list[Use], writes: list[Use], method: bool) -> str:
    """A module with a class, its instance ``thing``, and ``f``."""
    members, body, functions = [], [], []
    for name, how in reads:
        if name in KEYS:
            body.append(f"y = y * o.table['{name}']")
        elif name in CHILD:
            body.append(f"y = y + o.child.{name}")
        else:
            text, member = READS[how]
            body.append(text.format(name))
            members.append(member.format(name))
            functions.append(f"def read_{name}(o):\n    return o.{name} * 5.0")
    for name, how in writes:
        text, member = WRITES[how]
        body.append(text.format(name))
        members.append(member.format(name))
    fields = "\n        ".join(f"self.{name} = 2.0" for name in FIELDS)
    lines = "\n    ".join(["y = x", *body, "return y"])
    parts = [
        "class Child:\n    def __init__(self):\n        self.g = self.h = 2.0",
        f"class Thing:\n    def __init__(self):\n        {fields}\n"
        "        self.child = Child()\n        self.table = {'k': 2.0, 'l': 2.0}",
        *(f"    {member}" for member in dict.fromkeys(members) if member),
        *dict.fromkeys(functions),
        f"def body(o, x):\n    {lines}",
        "Thing.body = body" if method else "",
        "thing = Thing()",
        "f = thing.body if method else lambda x: body(thing, x)",
    ]
    return "\n".join(parts) + "\n"


def apply_change(thing: Any, name: str, value: float) -> None:
    if name in KEYS:
        thing.table[name] = value
    else:
        setattr(thing.child if name in CHILD else thing, name, value)


def value_of(thing: Any, name: str) -> Any:
    if name in KEYS:
        return thing.table[name]
    return getattr(thing.child if name in CHILD else thing, name)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_S1_S5_random_programs_over_an_object(
    program: tuple[list[Use], list[Use], bool, list[Change]],
) -> None:
    """The result is the one of a fresh trace, over a twin of the object that has seen the same
    calls; and a change of what is not read traces nothing."""
    reads, writes, method, changes = program
    code = compile(source_of(reads, writes, method), "/tmp/read_sets_program.py", "exec")
    one: dict[str, Any] = {"__name__": "read_sets_program", "method": method}
    other = dict(one)
    exec(code, one)
    exec(code, other)
    read = {name for name, _ in reads}
    for _ in range(2):
        assert_same(called("map", one["f"]), fresh("map", other["f"]))
    for name, value in changes:
        before = {key: value_of(one["thing"], key) for key in read}
        apply_change(one["thing"], name, value)
        apply_change(other["thing"], name, value)
        found: list[Any] = []
        misses = traces(lambda: found.append(called("map", one["f"])))
        assert_same(found[0], fresh("map", other["f"]))
        # What is both written and read is another at each call, until it stays the same. What is
        # assigned to is what the caller may be after.
        assigned = {name for name, how in writes if how in ("store", "method")}
        if name not in read | assigned and not read & {name for name, _ in writes}:
            assert before == {key: value_of(one["thing"], key) for key in read}
            assert misses == 0


class Counted:
    """What a step reads of a state that is a pytree, of a library's class or of one's own."""

    @staticmethod
    def made(step: int) -> Any:
        import optax
        from flax.training.train_state import TrainState

        state = TrainState.create(apply_fn=_applied, params={"w": jnp.ones(3)}, tx=optax.sgd(0.1))
        return state.replace(step=step)


def _applied(params: Any, x: Any) -> Any:
    return jnp.sum(params["w"] * x)


@pytest.mark.parametrize(
    ("body", "misses"),
    [
        (lambda s: lambda c, x: (c + s.apply_fn(s.params, x), c), 1),
        (lambda s: lambda c, x: (c + s.apply_fn(s.params, x) * s.step, c), 3),
        (lambda s: lambda c, x: (c + s.apply_fn(s.params, x), str(s) and c), 3),
    ],
    ids=["not the counter", "the counter", "all of it"],
)
def test_a_state_counts_by_what_is_read_off_it(body: Any, misses: int) -> None:
    xs = jnp.ones((4, 3))
    with fnintern.patch_jax():
        before = jax.lax.scan.cache_info().misses
        for step in range(3):
            carry, _ = jax.lax.scan(body(Counted.made(step)), jnp.float32(0), xs)
            plain = 12.0 * (step if misses == 3 and carry != 12.0 else 1)
            assert carry == plain
        found = jax.lax.scan.cache_info()
    assert found.misses + found.bypassed - before == misses

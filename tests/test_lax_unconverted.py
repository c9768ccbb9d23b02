"""What cannot be converted runs as in jax.lax, changes what it changes there, and is explained."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import gc
import itertools
import os
import random
import sys
import threading
import time
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

import fnintern
from lax_calls import XS, assert_same, counted, lax, outcome

W = jnp.float32(2.0)


@pytest.fixture(autouse=True)
def counts_from_zero() -> None:
    for name in lax.__all__:
        getattr(lax, name).cache_clear()


def counts(name: str) -> tuple[int, int, int, int]:
    """Hits, misses, calls that were not converted, and programs, of one operation."""
    info = getattr(lax, name).cache_info()
    return info.hits, info.misses, info.bypassed, info.currsize


def scan(lax: Any, note: Callable[[], Any], w: Any = W) -> Any:
    """A scan whose body calls ``note`` when it is traced."""
    return lax.scan(lambda c, x: ((note(), c * w + x)[1], None), 0.5, XS)[0]


class Plain:
    n = 0

    def __init__(self) -> None:
        self.log: list[int] = []

    def bump(self) -> None:
        self.log.append(1)


class Made:
    n: int

    def __new__(cls) -> Made:
        self = super().__new__(cls)
        self.n = 0
        return self


class Slotted:
    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n = 0


class Counting(dict[str, int]):
    pass


@dataclasses.dataclass
class Data:
    n: int = 0
    items: list[int] = dataclasses.field(default_factory=list)


def _added(name: str) -> Callable[[Any], None]:
    return lambda target: setattr(target, name, getattr(target, name, 0) + 1)


def _one_more(target: Any) -> None:
    target.n += 1


def _something_new(target: Any) -> None:
    target.m = 1


def _local_class() -> Any:
    class Local:
        n = 0
        log: list[int] = []  # noqa: RUF012

    return Local


def _module() -> Any:
    module: Any = types.ModuleType("config")
    module.log = []
    module.n = 0
    return module


#: What changes -> how it is made, how a trace changes it, and how it is read.
CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "list": (list, lambda o: o.append(len(o)), list),
    "list in a tuple": (lambda: ([],), lambda o: o[0].append(1), repr),
    "dict": (dict, lambda o: o.setdefault(len(o), 1), dict),
    "defaultdict": (lambda: collections.defaultdict(int), lambda o: o["a"].__add__(1), dict),
    "Counter": (collections.Counter, lambda o: o.update("a"), dict),
    "subclass of dict": (Counting, lambda o: o.setdefault(str(len(o)), 1), dict),
    "set": (set, lambda o: o.add(len(o)), set),
    "deque": (lambda: collections.deque([7, 8], maxlen=2), lambda o: o.append(len(o)), list),
    "bytearray": (lambda: bytearray(b"ab"), lambda o: o.append(99), bytes),
    "ndarray": (lambda: np.zeros(2), lambda o: np.add.at(o, 0, 1), lambda o: o.tolist()),
    "namespace": (lambda: types.SimpleNamespace(n=0), _added("n"), lambda o: o.n),
    "object": (Plain, lambda o: o.bump(), lambda o: o.log),
    "attribute": (Plain, _added("n"), lambda o: (o.n, Plain.n)),
    "new attribute": (Plain, _added("m"), lambda o: o.m),
    "object without attributes": (type("Empty", (), {}), _added("n"), lambda o: o.n),
    "object with __new__": (Made, _added("n"), lambda o: o.n),
    "slots": (Slotted, _added("n"), lambda o: o.n),
    "dataclass": (Data, lambda o: o.items.append(_added("n")(o)), lambda o: (o.n, o.items)),
    "class": (_local_class, _one_more, lambda o: o.n),
    "new attribute of a class": (_local_class, _something_new, lambda o: o.m),
    "list of a class": (_local_class, lambda o: o.log.append(1), lambda o: o.log),
    "module": (_module, _added("n"), lambda o: o.n),
    "list of a module": (_module, lambda o: o.log.append(1), lambda o: o.log),
    "function": (lambda: lambda: 0, _added("n"), lambda o: o.n),
    "removed from a list": (lambda: [1, 2, 3, 4, 5, 6, 7], lambda o: o.pop(), list),
    "cleared": (lambda: {"a": 1}, lambda o: o.clear(), dict),
}


class TestChanges:
    """A function whose trace changes something is a function that is traced at each call."""

    @pytest.mark.parametrize("what", sorted(CHANGES.keys() - {"class", "object"}))
    def test_ends_as_in_jax_lax(self, what: str) -> None:
        """What is read ends as in ``jax.lax``. The log of an object is only appended to, and the
        number of a class only incremented: these are effects of a trace (S6)."""
        make, change, read = CHANGES[what]
        targets = [make(), make()]
        results = []
        for calls in range(4):
            for target, module in zip(targets, (jax.lax, lax), strict=True):
                results.append(scan(module, lambda: change(target)))
            assert read(targets[1]) == read(targets[0]), calls
        assert len({float(result) for result in results}) == 1

    @pytest.mark.parametrize("what", CHANGES)
    def test_of_one_function_called_again(self, what: str) -> None:
        """The first call is the plain one (S4). Later it is traced as a function made anew, for
        what it sees has changed (S1), or is found traced, as JAX finds it (S6)."""
        make, change, read = CHANGES[what]

        def body_of(target: Any) -> Any:
            def body(c: Any, x: Any) -> Any:
                change(target)
                return c * W + x, None

            return body

        once, anew, own = make(), make(), make()
        plain, converted = body_of(once), body_of(own)
        for _ in range(3):
            expected = jax.lax.scan(plain, 0.5, XS)
            jax.lax.scan(body_of(anew), 0.5, XS)
            assert_same(lax.scan(converted, 0.5, XS), expected)
            assert read(own) in (read(once), read(anew))

    def test_runs_once_at_each_call(self) -> None:
        log: Any = []
        traces = []

        @fnintern.stateless
        def traced() -> None:
            traces.append(1)

        def call() -> None:
            lax.scan(lambda c, x: ((traced(), log.append(1), c * W)[-1], None), 0.5, XS)

        for _ in range(3):
            call()
        assert len(log) == len(traces) == 3
        assert counts("scan")[:3] == (0, 0, 3)

    def test_met_again_runs_as_it_is(self) -> None:
        """A second call that sees what the first has seen is not converted, and traced once."""
        state = {"n": 0}
        traces = []

        @fnintern.stateless
        def traced() -> None:
            traces.append(1)

        for _ in range(3):
            state["n"] = 0
            lax.scan(lambda c, x: ((traced(), state.update(n=1), c * W)[-1], None), 0.5, XS)
            assert state == {"n": 1}
        assert len(traces) == 3
        assert counts("scan") == (0, 0, 3, 1)

    def test_is_explained(self) -> None:
        log: list[int] = []

        def body(c: Any, x: Any) -> Any:
            log.append(1)
            return c * W * len(log), None

        lax.scan(body, 0.5, XS)
        found = fnintern.explain(body).unconverted
        assert found is not None
        assert found.reason == "its trace changed what it sees"
        assert "staged operations run it as it is" in str(fnintern.explain(body))

    def test_of_one_branch_of_two_is_explained(self) -> None:
        log: list[int] = []

        def one() -> Any:
            log.append(1)
            return W * len(log)

        def other() -> Any:
            return W * 2

        assert fnintern.explain(one).unconverted is None
        lax.cond(True, one, other)
        assert fnintern.explain(one).unconverted is not None
        assert fnintern.explain(lambda: W).unconverted is None
        assert len(log) == 1

    def test_before_an_error(self) -> None:
        """What a function changed before it failed, it has changed once."""
        for make, change, read in CHANGES.values():
            targets = [make(), make()]
            for target, module in zip(targets, (jax.lax, lax), strict=True):

                def fail(target: Any = target) -> None:
                    change(target)
                    raise LookupError

                for _ in range(2):
                    with pytest.raises(LookupError):
                        scan(module, fail)
            assert read(targets[1]) == read(targets[0])

    def test_of_global_and_outer_variables(self) -> None:
        n = 0

        def bump() -> None:
            nonlocal n
            n += 1

        for _ in range(3):
            scan(lax, bump)
        assert n == 1  # an effect happens when a trace happens (S6)

        def count() -> int:
            nonlocal n
            n += 1
            return n

        n = 0
        for _ in range(3):
            scan(lax, count)
        assert n == 3  # what is read may decide a result (S1)

    def test_filled_caches(self) -> None:
        made: list[int] = []
        note: Any = fnintern.stateless(lambda size: made.append(size))

        @functools.lru_cache
        def table(size: int) -> Any:
            note(size)
            return np.arange(size)

        for _ in range(3):
            assert_same(lax.map(lambda x: x + table(3)[1], XS), XS + 1)
        assert made == [3]


class TestValues:
    """A captured array that is needed as a Python value: the program is for that array alone."""

    @pytest.mark.parametrize(
        "use",
        [
            lambda t, x: x * float(t),
            lambda t, x: x if t > 1 else -x,
            lambda t, x: x + jnp.zeros(int(t)).size,
            lambda t, x: x + np.asarray(t),
            lambda t, x: x + len(range(int(t))),
            lambda t, x: x + [0.0, 1.0, 2.0][int(t)],
            lambda t, x: x + t.item(),
            lambda t, x: x + t.tolist(),
            lambda t, x: x + float(f"{t:.1f}"),
            lambda t, x: x + hash(t.unsafe_buffer_pointer()) * 0,
            lambda t, x: x + {2.0: 1.0}[float(t)],
        ],
    )
    def test_is_traced_for_each_array(self, use: Any) -> None:
        returned = failed = 0
        for number in (2.0, 1.0, 2.0):
            t = jnp.float32(number)
            expected, error = outcome(lambda: jax.lax.map(lambda x: use(t, x), XS))
            for _ in range(2):
                found, own = outcome(lambda: lax.map(lambda x: use(t, x), XS))
                assert own is error
                assert_same(found, expected)
            returned += error is None
            failed += error is not None
        if not failed:  # what has raised an error is made plainly the next time
            assert counts("map")[:3] == (returned, returned, 0)

    def test_of_arrays_that_take_each_others_place(self) -> None:
        """An array may get the address of one that is gone."""

        def check(number: int) -> None:
            t = jnp.float32(number)
            assert_same(lax.map(lambda x: x + float(t), XS), XS + number)

        for number in range(20):
            check(number)
        assert counts("map")[:3] == (0, 8, 12)

    def test_among_arrays_that_are_not_read(self) -> None:
        t = jnp.float32(3.0)
        for number in (1.0, 2.0, 3.0):
            w = jnp.float32(number)
            assert_same(lax.map(lambda x: x * w + float(t), XS), XS * number + 3)
        assert counts("map")[:3] == (2, 1, 0)

    def test_of_the_same_array_it_hits(self) -> None:
        traces = []

        @fnintern.stateless
        def traced() -> None:
            traces.append(1)

        def body(x: Any) -> Any:
            traced()
            return x * float(W)

        for _ in range(3):
            assert_same(lax.map(body, XS), XS * 2)
        assert len(traces) == 1
        assert fnintern.explain(body).unconverted is None

    def test_shapes_dtypes_and_dimensions_are_there(self) -> None:
        t = jnp.zeros((2, 3))
        f: Any = lambda x: x + t.shape[1] + t.ndim + t.size + len(t) + (t.dtype == jnp.float32)
        for _ in range(2):
            assert_same(lax.map(f, XS), jax.lax.map(f, XS))
        assert counts("map")[:3] == (1, 1, 0)

    def test_a_concrete_value_of_another_call_does_not_matter(self) -> None:
        """A function that reads a value in one case only."""

        def call(exact: bool) -> Any:
            return lax.map(lambda x: x * (float(W) if exact else W), XS)

        for exact in (False, True, False, True):
            assert_same(call(exact), XS * 2)


class Unseen:
    """Something that a function reads, and freezing does not look into."""

    t: Any
    key: Any

    def __init__(self, **content: Any) -> None:
        vars(self).update(content)


class TestHidden:
    """An array that no capture shows must not become part of a program."""

    @pytest.mark.parametrize(
        "make",
        [
            lambda i: jnp.arange(3.0) * i,
            lambda i: jnp.float32(i),
            lambda i: jnp.arange(3) * i,
            lambda i: jax.random.uniform(jax.random.key(i)),
        ],
    )
    @pytest.mark.parametrize("operation", ["map", "cond", "scan"])
    def test_is_read_at_each_call(self, make: Any, operation: str) -> None:
        held = fnintern.stateless(Unseen())
        calls: dict[str, Callable[[Any], Any]] = {
            "map": lambda lax: lax.map(lambda x: x + held.t, XS),
            "cond": lambda lax: lax.cond(True, lambda: held.t * 2.0, lambda: held.t * 3.0),
            "scan": lambda lax: lax.scan(lambda c, x: (c, jnp.dot(held.t, x)), W, XS),
        }
        for i in (1, 2, 3, 1):
            held.t = make(i)
            assert_same(calls[operation](lax), calls[operation](jax.lax))
        assert counts("map")[0] == 0

    def test_key(self) -> None:
        held = fnintern.stateless(Unseen())
        for i in (1, 2, 3, 1):
            held.key = jax.random.key(i)
            call: Any = lambda lax: lax.map(lambda x: x + jax.random.uniform(held.key), XS)
            assert_same(call(lax), call(jax.lax))

    def test_is_explained(self) -> None:
        held = fnintern.stateless(Unseen(t=jnp.arange(3.0)))
        f: Any = lambda x: x + held.t
        lax.map(f, XS)
        found = fnintern.explain(f).unconverted
        assert found is not None
        assert found.reason == "its trace reads an array that no capture shows"

    def test_what_a_jitted_function_holds_is_as_jax_caches_it(self) -> None:
        table = jnp.arange(3.0)
        jitted = jax.jit(lambda x: x + table)
        for i in range(3):
            w = jnp.float32(i)
            f: Any = lambda x: jitted(x) * w
            assert_same(lax.map(f, XS), jax.lax.map(f, XS))
        assert counts("map")[:3] == (2, 1, 0)

    def test_no_array_becomes_part_of_a_program_of_a_trace_that_finds_none(self) -> None:
        """Temporaries that die in a trace lend their ids to tracers."""
        for _ in range(3):
            lax.map(lambda x: x * W + sum(jnp.float32(i) for i in range(3)), XS)
        assert counts("map")[:3] == (2, 1, 0)


class Ended:
    ends: list[int] = []  # noqa: RUF012

    def __init__(self, w: Any) -> None:
        self.w = w

    def __del__(self) -> None:
        Ended.ends.append(1)


class TestRefused:
    """Captures that freezing refuses."""

    def check(self, call: Callable[[Any], Any]) -> None:
        for _ in range(2):
            call(lax)
        assert counts("map")[:3] == (0, 0, 2)

    def test_open_file(self, tmp_path: Any) -> None:
        with open(tmp_path / "log", "w") as file:
            self.check(lambda lax: lax.map(lambda x: (file.write("x"), x * W)[1], XS))
        assert (tmp_path / "log").read_text() == "xx"

    def test_chance_and_time(self) -> None:
        generator = np.random.default_rng(0)
        draws: list[Any] = [
            lambda: np.random.normal(),
            lambda: random.random(),
            lambda: time.time(),
            lambda: generator.normal(),
            lambda: os.getpid() * random.random(),
        ]
        for draw in draws:
            lax.map.cache_clear()
            found = []
            self.check(lambda lax: found.append(float(lax.map(lambda x: W * draw(), XS)[0])))
            assert found[0] != found[1] or draw() > 1e9  # the clock, in float32

    def test_S5_a_lock_decides_nothing(self) -> None:
        lock = threading.Lock()

        def locked(x: Any) -> Any:
            with lock:
                return x * W

        for _ in range(3):
            lax.map(locked, XS)
        assert counts("map")[:3] == (2, 1, 0)

    def test_iterators_and_generators(self) -> None:
        numbers = iter(range(100))
        squares = (i * i for i in range(1, 100))

        for take, expected in ((numbers, 0.0), (squares, 1.0)):
            lax.map.cache_clear()
            found = []
            self.check(lambda lax: found.append(lax.map(lambda x: W * next(take), XS)))
            assert float(found[0][0]) == expected * 2
            assert float(found[1][0]) == (expected + 1) ** (1 + expected) * 2

    def test_the_end_of_an_object(self) -> None:
        """No copy of it ends, either."""
        held = Ended(W)
        for _ in range(2):
            f: Any = lambda x, held=held: x * held.w
            assert_same(lax.map(f, XS), XS * 2)
        assert Ended.ends == []
        del held, f
        gc.collect()
        assert Ended.ends == [1]

    def test_large_numpy_arrays(self) -> None:
        """Beyond 16 MiB."""
        table = np.zeros((16 << 20) // 4 + 1, np.float32)
        self.check(lambda lax: lax.map(lambda x: x * W + table[0], XS))
        for i in range(3):
            table[0] = i
            assert_same(lax.map(lambda x: x * W + table[0], XS), XS * 2 + i)

    def test_numpy_arrays_that_are_edited_are_others(self) -> None:
        table = np.arange(10_000.0, dtype=np.float32)
        for i in (0, 1, 2, 1):
            table[0] = i
            assert_same(lax.map(lambda x: x * W + table[0], XS), XS * 2 + i)
        assert counts("map")[:3] == (1, 3, 0)

    def test_a_generator_function_as_body(self) -> None:
        def body(c: Any, x: Any) -> Any:
            yield c

        errors = [outcome(lambda: module.scan(body, 0.0, XS))[1] for module in (jax.lax, lax)]
        assert errors[0] is errors[1] is not None


SENTINEL = object()


class Mode:
    """An enumeration by hand."""

    FAST: Any
    SLOW: Any

    def __init__(self, name: str) -> None:
        self.name = name


Mode.FAST = Mode("fast")
Mode.SLOW = Mode("slow")


class Level(enum.Enum):
    LOW = 1
    HIGH = 2


class Unset:
    pass


UNSET = Unset()


class Options:
    default = Unset()
    table: dict[str, int] = {"a": 1}  # noqa: RUF012


class TestIdentity:
    """Code that compares by `is` finds what it finds in jax.lax."""

    @pytest.mark.parametrize(
        ("value", "same"),
        [
            (SENTINEL, lambda value: value is SENTINEL),
            (UNSET, lambda value: value is UNSET),
            (Options.default, lambda value: value is Options.default),
            (Options.table, lambda value: value is Options.table),
            (Mode.FAST, lambda value: value is Mode.FAST),
            (Mode.SLOW, lambda value: value is not Mode.FAST),
            (Level.HIGH, lambda value: value is Level.HIGH),
            (dataclasses.MISSING, lambda value: value is dataclasses.MISSING),
            (sys, lambda value: value is sys),
            (jnp.float32, lambda value: value is jnp.float32),
            (len, lambda value: value is len),
            (NotImplemented, lambda value: value is NotImplemented),
        ],
    )
    def test_of_captures(self, value: Any, same: Any) -> None:
        for _ in range(2):
            assert_same(lax.map(lambda x: x * W if same(value) else -x, XS), XS * 2)

    def test_within_one_call(self) -> None:
        held = [Unset(), {"a": 1}]
        again = list(held)
        for _ in range(2):
            f: Any = lambda x: x * W if held[0] is again[0] and held[1] is again[1] else -x
            assert_same(lax.map(f, XS), XS * 2)

    def test_of_a_module_attribute(self) -> None:
        config: Any = types.ModuleType("config")
        config.mode = config.fast = {"name": "fast"}
        mode = config.mode
        for _ in range(2):
            f: Any = lambda x: x * W if mode is config.fast else -x
            assert_same(lax.map(f, XS), XS * 2)


class Recorder:
    def __init__(self) -> None:
        self.seen: list[float] = []

    def __call__(self, value: Any) -> None:
        self.seen.append(float(value))

    def note(self, value: Any) -> None:
        self.seen.append(float(value))


class TestCallbacks:
    """Functions that JAX calls back while the program runs see what they see in jax.lax."""

    @pytest.mark.parametrize(
        "callback",
        [
            lambda recorder: lambda v: recorder.seen.append(float(v)),
            lambda recorder: recorder,
            lambda recorder: recorder.note,
            lambda recorder: functools.partial(recorder.note),
            lambda recorder: recorder.seen.append,
        ],
        ids=["lambda", "object", "method", "partial", "builtin method"],
    )
    @pytest.mark.parametrize("how", ["debug", "io"])
    def test_what_they_append(self, how: str, callback: Any) -> None:
        recorders = [Recorder(), Recorder()]
        for _ in range(3):
            for recorder, module in zip(recorders, (jax.lax, lax), strict=True):
                call = callback(recorder)

                def body(c: Any, x: Any) -> Any:
                    if how == "debug":
                        jax.debug.callback(call, x, ordered=True)
                    else:
                        io_callback(call, None, x, ordered=True)
                    return c * W + x, None

                jax.block_until_ready(module.scan(body, 0.5, XS))
                jax.effects_barrier()
        assert recorders[0].seen == recorders[1].seen
        assert [float(x) for x in recorders[1].seen] == [1.0, 2.0, 3.0] * 3

    def test_arrays_that_they_read(self) -> None:
        for number in (1.0, 2.0):
            w = jnp.full(2, number)
            shape = jax.ShapeDtypeStruct((), jnp.float32)
            read: Any = lambda v: np.float32(v + np.asarray(w)[0])
            f: Any = lambda x: jax.pure_callback(read, shape, x)
            for _ in range(2):
                assert_same(lax.map(f, XS), jax.lax.map(f, XS))

    def test_printing_is_converted(self, capsys: Any) -> None:
        for number in (1.0, 2.0):
            w = jnp.float32(number)
            lax.map(lambda x: (jax.debug.print("{x} and {w}", x=x, w=w), x)[1], XS[:1])
            jax.effects_barrier()
        assert capsys.readouterr().out == "1.0 and 1.0\n1.0 and 2.0\n"
        assert counts("map")[:3] == (1, 1, 0)

    def test_errors_in_them(self) -> None:
        def fail(v: Any) -> Any:
            raise LookupError("in a callback")

        shape = jax.ShapeDtypeStruct((), jnp.float32)
        errors = []
        for module in (jax.lax, lax):
            f: Any = lambda x: jax.pure_callback(fail, shape, x) * W
            _, error = outcome(lambda: jax.block_until_ready(module.map(f, XS)))
            errors.append(error)
        assert errors[0] is errors[1] is not None

    def test_is_explained(self) -> None:
        seen: list[Any] = []

        def body(c: Any, x: Any) -> Any:
            jax.debug.callback(lambda v: seen.append(v), x)
            return c, None

        lax.scan(body, W, XS)
        jax.effects_barrier()
        found = fnintern.explain(body).unconverted
        assert found is not None
        assert "calls back" in found.reason
        assert len(seen) == 3


def test_a_library_or_a_class_that_holds_an_array() -> None:
    class Table:
        w = jnp.float32(2.0)

    for number in (2.0, 3.0):
        Table.w = jnp.float32(number)
        assert_same(lax.map(lambda x: x * Table.w, XS), XS * number)
    assert counted(lambda: lax.map(lambda x: x * Table.w, XS), 1) != (0, 0, 0)


class TestWhatChangesAtEachCall:
    """S7: code that reads what is new at each call is traced as by jax.lax, and keeps nothing."""

    def test_costs_no_more_than_without(self) -> None:
        def call(lax: Any, number: int) -> Any:
            return lax.cond(True, lambda x: x * number, lambda x: x, W)

        numbers = itertools.count()
        for ops in (jax.lax, *[lax] * 10):
            call(ops, next(numbers))
        plain = counted(lambda: call(jax.lax, next(numbers)), 10)
        programs = counts("cond")[-1]
        assert counted(lambda: call(lax, next(numbers)), 10) == plain
        assert counts("cond")[-1] == programs < 10

    def test_what_comes_again_is_converted(self) -> None:
        def call(number: int) -> float:
            return float(lax.cond(True, lambda x: x * number, lambda x: x, W))

        for _ in range(2):
            for number in range(20):
                call(number)
        again = counted(lambda: [call(number) == 2.0 * number or 1 / 0 for number in range(20)], 1)
        assert again == (0, 0, 0)

    def test_so_is_what_is_used_now_and_then(self) -> None:
        def call(number: int) -> Any:
            return lax.cond(True, lambda x: x * number, lambda x: x, W)

        for number in range(12):  # each twice, as in a loop over epochs of one setting
            call(number)
            call(number)
        assert counts("cond")[:3] == (12, 12, 0)

    def test_an_array_whose_value_is_read(self) -> None:
        def call(number: int) -> Any:
            w = jnp.float32(number)
            return lax.cond(True, lambda x: x * float(w), lambda x: x, W)

        for number in range(20):
            assert float(call(number)) == 2.0 * number
        assert counts("cond")[2] >= 10

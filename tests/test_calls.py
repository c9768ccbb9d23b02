"""S1 and S2 where calls differ: held wrappers, settings, errors, graphs, nesting, threads."""

from __future__ import annotations

import contextlib
import copy
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import flax
import flax.core.spmd
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from fnintern import patch_flax
from transforms import MODES, TRANSFORMS, XS, X, without_memo

modes = pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
transforms = pytest.mark.parametrize("transform", TRANSFORMS)

#: Patched, a test has to give what it gives without.
Program = Callable[[], list[Any]]


def same(program: Program) -> list[Any]:
    """Runs a program unpatched and patched; returns what both gave."""
    with without_memo():
        expected = program()
    with patch_flax():
        assert program() == expected
    return expected


def scalar(value: Any) -> Any:
    array = np.asarray(value)
    return array.dtype.name, array.tolist()


SCALE: Any = 2.0


@pytest.fixture(autouse=True)
def _scale() -> Iterator[None]:
    yield
    globals()["SCALE"] = 2.0


def scaled(x: Any) -> Any:
    return x * SCALE


def scaled_pair(carry: Any, x: Any) -> Any:
    return carry * SCALE, x


def held_scan(mode: Any) -> Any:
    return nnx.scan(scaled_pair, in_axes=(nnx.Carry, 0), out_axes=(nnx.Carry, 0), **mode)


#: What a caller may hold and call again, made of a function that reads the global.
HELD: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    "jit": (lambda mode: nnx.jit(scaled, **mode), lambda g, x: g(x)),
    "scan": (held_scan, lambda g, x: g(x * 1.0, XS[: 1 + x.dtype.itemsize % 3])[0]),
    "remat": (lambda mode: nnx.remat(scaled, **mode), lambda g, x: g(x)),
    "pmap": (lambda mode: nnx.pmap(scaled, **mode), lambda g, x: g(x[None])),
    "vmap": (lambda mode: nnx.vmap(scaled, **mode), lambda g, x: g(x[None])),
    "jit_partial": (
        lambda mode: nnx.jit_partial(scaled, **(mode or MODES["no_updates"])),
        lambda g, x: g(x),
    ),
    "cond": (lambda mode: mode, lambda mode, x: nnx.cond(True, scaled, scaled, x, **mode)),
}


@pytest.mark.parametrize("name", HELD)
@modes
def test_S1_state_at_the_call_that_traces_counts(name: str, mode: Any) -> None:
    """Not the state when the transform was applied."""
    make, call = HELD[name]

    def program() -> list[Any]:
        global SCALE
        SCALE = 2.0
        held = make(mode)
        SCALE = 3.0
        return [scalar(call(held, X))]

    assert same(program)[0][1] in (9.0, [9.0], 27.0)


@pytest.mark.parametrize("name", [name for name in HELD if name != "scan"])
@modes
def test_S1_a_held_wrapper_behaves_as_unpatched(name: str, mode: Any) -> None:
    """One holder, alone: what it has traced it keeps, and what it has not it traces anew."""
    make, call = HELD[name]

    def program() -> list[Any]:
        global SCALE
        SCALE = 2.0
        held = make(mode)
        got = [scalar(call(held, X)), scalar(call(held, X))]
        SCALE = 3.0
        got += [scalar(call(held, X)), scalar(call(held, jnp.int32(2)))]
        SCALE = 2.0
        return [*got, scalar(call(held, jnp.int32(2))), scalar(call(held, X))]

    same(program)


@modes
def test_S1_a_held_scan_returns_what_a_fresh_trace_gives(mode: Any) -> None:
    """It is converted, and so goes by what its function sees at each call."""
    global SCALE
    make, call = HELD["scan"]
    with patch_flax():
        SCALE = 2.0
        held = make(mode)
        before = scalar(call(held, X))
        SCALE = 3.0
        after = scalar(call(held, X))
        assert before != after
        assert after == scalar(call(make(mode), X))
        SCALE = 2.0
        assert scalar(call(held, X)) == before


@pytest.mark.parametrize("name", HELD)
@modes
def test_S1_two_holders_do_not_see_each_others_state(name: str, mode: Any) -> None:
    """Two wrappers of one function, in turns, while what the function sees changes.

    Each gets what it would have kept unpatched, or what a fresh trace gives: one that shared a
    program is on its own as soon as it is not equal any more.
    """
    make, call = HELD[name]
    one = two = three = None

    def program(anew: bool = False) -> list[Any]:
        global SCALE
        nonlocal one, two, three

        def value(held: Any, x: Any) -> Any:
            return scalar(call(make(mode) if anew else held, x))

        SCALE = 2.0
        one, two = make(mode), make(mode)
        got = [value(one, X), value(two, X)]
        SCALE = 3.0
        got += [value(one, jnp.int32(2)), value(one, X)]
        SCALE = 2.0
        got += [value(two, jnp.int32(2)), value(two, X), value(one, jnp.int32(2))]
        SCALE = 5.0
        three = make(mode)
        return [*got, value(three, X), value(two, X), value(one, X)]

    with without_memo():
        kept, fresh = program(), program(anew=True)
    with patch_flax():
        got = program()
    # After its state has changed once, `one` may say what it said at any of its own states.
    own = [[k, f] for k, f in zip(kept, fresh, strict=True)]
    own[6] += [kept[2]]
    own[9] += [kept[3], fresh[3]]
    assert all(value in allowed for value, allowed in zip(got, own, strict=True)), (got, own)


def test_S2_what_a_model_holds_can_be_copied() -> None:
    """A jitted function on a model goes through ``nnx.clone`` and ``copy.deepcopy`` as before."""

    class Model(nnx.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            self.w = nnx.Param(jnp.float32(2.0))
            self.f = nnx.jit(scaled)

        def __call__(self, x: Any) -> Any:
            return self.f(x) * self.w[...]

    def program() -> list[Any]:
        model = Model()
        model(X)
        got = [model(X), nnx.clone(model)(X), copy.deepcopy(model)(X), copy.copy(model)(X)]
        return [scalar(value) for value in got]

    assert same(program) == [("float32", 12.0)] * 4


# -- settings -----------------------------------------------------------------------------------


def graph_mode() -> Any:
    return nnx.graphlib.set_graph_mode.current_value()


def graph_updates() -> Any:
    return nnx.graphlib.set_graph_updates.current_value()


def eager_sharding() -> Any:
    return nnx.variablelib.use_eager_sharding.current_value()


def axis_rules() -> Any:
    return bool(flax.core.spmd.get_logical_axis_rules())


def hijax() -> Any:
    return nnx.Variable(1.0).get_metadata("is_hijax", None)


@contextlib.contextmanager
def config(name: str, value: Any) -> Iterator[None]:
    before = getattr(flax.config, name)
    flax.config.update(name, value)
    try:
        yield
    finally:
        flax.config.update(name, before)


SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[bool], Any]]] = {
    "graph_mode": (graph_mode, lambda on: nnx.graphlib.set_graph_mode(on)),
    "graph_updates": (graph_updates, lambda on: nnx.graphlib.set_graph_updates(on)),
    "eager_sharding": (eager_sharding, lambda on: nnx.use_eager_sharding(on)),
    "axis_rules": (
        axis_rules, lambda on: flax.core.spmd.logical_axis_rules([("a", "b")] if on else []),
    ),
    "variable_defaults": (hijax, lambda on: nnx.var_defaults(hijax=on)),
    "config": (
        lambda: flax.config.flax_use_flaxlib, lambda on: config("flax_use_flaxlib", on),
    ),
}  # fmt: skip


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("transform", ["cond", "switch", "while_loop", "scan", "jit", "remat"])
def test_S1_flax_settings_are_part_of_the_key(setting: str, transform: str) -> None:
    """A branch that asks for a setting gets the present one, in every mode of the call."""
    read, context = SETTINGS[setting]
    run = TRANSFORMS[transform]

    def branch(x: Any) -> Any:
        import fnintern  # an import of a library does not stand in the way

        assert fnintern
        return x * (5.0 if CURRENT() else 7.0)

    CURRENT = read
    mode = MODES["tree" if setting in ("graph_mode", "graph_updates") else "default"]

    def program() -> list[Any]:
        got = []
        for on in (True, False, True):
            with context(on):
                got += [scalar(run(branch, mode)), scalar(run(branch, mode))]
        return got

    try:
        with SETTINGS[setting][1](True):
            pass
    except (AttributeError, TypeError, NotImplementedError) as error:
        pytest.skip(f"this release has no such setting: {error}")
    same(program)


# -- errors -------------------------------------------------------------------------------------


class Boom(Exception):
    pass


def failing(x: Any) -> Any:
    raise Boom(f"on {type(x).__name__[:0]}purpose")


@transforms
@modes
def test_S2_an_error_in_a_branch_is_the_same_on_each_call(transform: str, mode: Any) -> None:
    """Its type, its message, and the user's frame in the traceback, at the second call too."""
    with patch_flax():
        for _ in range(3):
            with pytest.raises(Boom) as caught:
                TRANSFORMS[transform](failing, mode)
            assert str(caught.value) == "on purpose"
            frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
            assert "failing" in frames


@transforms
@modes
def test_S1_a_trace_that_failed_leaves_nothing(transform: str, mode: Any) -> None:
    """After an error in the middle of a trace the same call, retried, gives the right value."""

    def program() -> list[Any]:
        fail = [True]

        def f(x: Any) -> Any:
            y = x * SCALE
            if fail[0]:
                raise Boom("in the middle")
            return y

        got: list[Any] = []
        for state in (True, False, False, True, True, False):
            fail[0] = state
            try:
                got.append(scalar(TRANSFORMS[transform](f, mode)))
            except Boom as error:
                got.append(str(error))
        return got

    assert "in the middle" in same(program)


MISMATCHED: list[Callable[[], Any]] = [
    lambda: nnx.cond(True, lambda x: x, lambda x: (x, x), X),
    lambda: nnx.switch(0, [lambda x: x, lambda x: x.astype(int)], X),
    lambda: nnx.while_loop(lambda x: x < 3, lambda x: (x,), X),
    lambda: nnx.fori_loop(0, 3, lambda i, x: x.astype(int), X),
    lambda: nnx.cond(True, lambda x: x, lambda: 1, X),
    lambda: nnx.cond(True, None, lambda x: x, X),
    lambda: nnx.jit(3)(X),
    lambda: nnx.scan(lambda c, x: c, in_axes=(nnx.Carry, 0), out_axes=(nnx.Carry, 0))(X, XS),
    lambda: nnx.scan(lambda c: c, in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)(X, XS),
]


@pytest.mark.parametrize("number", range(len(MISMATCHED)))
def test_S2_misuse_raises_what_it_raises_unpatched(number: int) -> None:
    """The checks of jax and flax say the same, each time."""

    def program() -> list[Any]:
        got: list[Any] = []
        for _ in range(2):
            try:
                got.append(repr(MISMATCHED[number]()))
            except Exception as error:
                got.append((type(error).__name__, str(error).split(" at 0x")[0]))
        return got

    same(program)


# -- the graph, in the default mode -------------------------------------------------------------


class Cell(nnx.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        self.w = nnx.Param(jnp.float32(1.0))
        self.count = nnx.BatchStat(jnp.float32(0.0))

    def __call__(self, x: Any) -> Any:
        self.count[...] += 1
        return x * self.w[...]


def test_S1_state_changes_on_a_cached_call_as_on_the_first() -> None:
    """What a branch writes to a model passed as operand is there after each call."""

    def program() -> list[Any]:
        cell = Cell()
        got = []
        for _ in range(4):
            y = nnx.cond(True, lambda c, x: c(x), lambda c, x: c(x) + 1, cell, X)
            cell.w[...] += 1
            got.append((scalar(y), scalar(cell.count[...])))
        return got

    assert same(program)[-1] == (("float32", 12.0), ("float32", 4.0))


def test_S1_graph_changes_on_a_cached_call_as_on_the_first() -> None:
    """A Variable added in both branches appears on each new model."""

    def add(cell: Any) -> None:
        cell.extra = nnx.Cache(cell.w[...] + SCALE)

    def program() -> list[Any]:
        global SCALE
        got: list[Any] = []
        for scale in (2.0, 2.0, 3.0):
            SCALE = scale
            cell = Cell()
            nnx.cond(True, add, add, cell)
            got.append((type(cell.extra).__name__, scalar(cell.extra[...])))
            del cell.extra
            nnx.switch(0, [add, add], cell)
            got.append((sorted(nnx.to_flat_state(nnx.state(cell)).paths), scalar(cell.extra[...])))
        return got

    same(program)


def test_S1_shared_references_on_a_cached_call_as_on_the_first() -> None:
    """One Variable in two places stays one; two that were one in the last call stay two."""

    class Pair(nnx.Module):  # type: ignore[misc]
        def __init__(self, shared: bool) -> None:
            self.a = Cell()
            self.b = self.a if shared else Cell()

    def step(pair: Any, x: Any) -> Any:
        pair.a.w[...] += 1
        return pair.b(x)

    def program() -> list[Any]:
        got = []
        for shared in (True, False, True, False):
            pair = Pair(shared)
            y = nnx.cond(True, step, step, pair, X)
            got.append((scalar(y), pair.a is pair.b, scalar(pair.b.w[...])))
        return got

    same(program)


@modes
def test_S2_aliasing_errors_on_a_cached_call_as_on_the_first(mode: Any) -> None:
    """The same model twice among the operands: what flax says, it says each time."""

    def step(a: Any, b: Any, x: Any) -> Any:
        return a(x) + b(x)

    def program() -> list[Any]:
        got: list[Any] = []
        for shared in (False, True, False, True):
            a = Cell()
            b = a if shared else Cell()
            try:
                got.append(scalar(nnx.cond(True, step, step, a, b, X, **mode)))
            except Exception as error:
                got.append((type(error).__name__, str(error)[:60]))
        return got

    same(program)


# -- nesting and threads ------------------------------------------------------------------------


def counted_loop(body: Any, mode: Any) -> Any:
    """The condition is one lambda for every loop: loops inside loops share its wrapper."""
    return nnx.while_loop(lambda s: s[0] < 3, body, (0, 1.0), **mode)


@modes
def test_S1_loops_inside_loops_share_a_wrapper(mode: Any) -> None:
    """The outer condition is traced again, for a stronger type, after the inner one has died."""

    def program() -> list[Any]:
        def body(s: Any) -> Any:
            inner = counted_loop(lambda t: (t[0] + 1, t[1] * jnp.bfloat16(2)), mode)
            return s[0] + 1, s[1] * jnp.float32(inner[1])

        got = []
        for _ in range(2):
            got += [scalar(value) for value in counted_loop(body, mode)]
        return got

    same(program)


@modes
def test_S1_recursion_through_a_transform(mode: Any) -> None:
    """A branch that calls the transform on itself."""

    def power(depth: int, x: Any) -> Any:
        if depth == 0:
            return x * SCALE
        return nnx.cond(x > 0, lambda y: power(depth - 1, y) * y, lambda y: y, x, **mode)

    def program() -> list[Any]:
        global SCALE
        got = []
        for SCALE in (2.0, 2.0, 3.0):  # noqa: B007
            got.append(scalar(power(3, X)))
        return got

    same(program)


@transforms
def test_S1_inside_jax_jit_grad_and_vmap(transform: str) -> None:
    """A patched call in a trace gives what an unpatched one gives, with tracers captured."""
    if transform in ("eval_shape", "pmap"):
        pytest.skip("it takes no tracer")
    run = TRANSFORMS[transform]

    def program() -> list[Any]:
        got = []
        for mode in MODES.values():
            for _ in range(2):
                # fmt: off
                got += [
                    scalar(jax.jit(lambda w: run(lambda x: x * w, mode))(2.0)),
                    transform == "while_loop" or scalar(
                        jax.grad(lambda w: jnp.sum(run(lambda x: x * w, mode)))(2.0)
                    ),
                    scalar(jax.vmap(lambda w: run(lambda x: x * w, mode))(jnp.arange(2.0))),
                ]
                # fmt: on
        return got

    same(program)


@pytest.mark.usefixtures("switching")
@pytest.mark.parametrize("transform", ["cond", "scan", "jit"])
@modes
def test_C1_threads_with_different_state_get_their_own_values(transform: str, mode: Any) -> None:
    """Each thread calls with captures of its own, at the same time, and sees only those."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(4)
    power = 3 if transform == "scan" else 1

    def work(number: int) -> None:
        try:
            for round in range(6):
                barrier.wait(120)
                k = float((number + round) % 3 + 1)
                array = jnp.float32(k)
                for f in (lambda x: x * k, lambda x: x * array):
                    assert float(TRANSFORMS[transform](f, mode)) == 3.0 * k**power
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    with patch_flax():
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
            assert not thread.is_alive()
    if errors:
        raise errors[0]

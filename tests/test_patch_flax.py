"""``patch_flax``: nnx.cond and nnx.switch trace once, keep nothing alive, and go back."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import flax
import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from jax._src import test_util as jtu

import fnintern
from fnintern.patches.flax import MEMOS, OPERATIONS, TRANSIENT

HAS_MEMO = tuple(map(int, flax.__version__.split(".")[:3])) >= (0, 12, 9)
transforms: Any = importlib.import_module("flax.nnx.transforms.transforms")
general: Any = importlib.import_module("flax.nnx.transforms.general")


def up(model: Any, x: Any) -> Any:
    return model(x) + 1.0


def down(model: Any, x: Any) -> Any:
    return model(x) - 1.0


def scaled(scale: float, model: Any, x: Any) -> Any:
    return model(x) * scale


class Branches:
    def up(self, model: Any, x: Any) -> Any:
        return model(x) + 1.0

    def down(self, model: Any, x: Any) -> Any:
        return model(x) - 1.0


BRANCHES = Branches()

#: How a user spells two branches at each call.
SPELLINGS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "functions": lambda: (up, down),
    "partials": lambda: (functools.partial(scaled, 2.0), functools.partial(scaled, 3.0)),
    "methods": lambda: (BRANCHES.up, BRANCHES.down),
}
MODES: dict[str, dict[str, bool]] = {
    "default": {},
    "graph_updates=False": {"graph_updates": False},
    "graph=False": {"graph": False},
}


def _cond(spell: Callable[[], tuple[Any, Any]], mode: dict[str, bool]) -> Callable[..., Any]:
    return lambda i, *operands: nnx.cond(i == 0, *spell(), *operands, **mode)


def _switch(spell: Callable[[], tuple[Any, Any]], mode: dict[str, bool]) -> Callable[..., Any]:
    return lambda i, *operands: nnx.switch(i, spell(), *operands, **mode)


every_call = pytest.mark.parametrize(
    "call",
    [
        pytest.param(make(spell, mode), id=f"{make.__name__[1:]}-{spelled}-{named}")
        for make in (_cond, _switch)
        for spelled, spell in SPELLINGS.items()
        for named, mode in MODES.items()
    ],
)


@pytest.fixture
def model() -> Any:
    return nnx.Linear(2, 2, rngs=nnx.Rngs(0))


@pytest.fixture
def patched() -> Iterator[fnintern.Patch]:
    with fnintern.patch_flax(by="object") as patch:
        yield patch


class TestMisses:
    @every_call
    def test_no_miss_after_the_first_call(self, call: Any, model: Any, patched: Any) -> None:
        x = jnp.ones((1, 2))
        results = [call(0, model, x), call(1, model, x)]
        with (
            jtu.count_jit_tracing_cache_miss() as traces,
            jtu.count_jit_compilation_cache_miss() as compilations,
        ):
            again = []
            for i in (0, 1, 0, 1):
                gc.collect()
                again.append(call(i, model, x))
        assert (traces(), compilations()) == (0, 0)
        assert all((a == results[i % 2]).all() for i, a in enumerate(again))

    def test_unpatched_misses_are_seen(self, model: Any) -> None:
        """The check above can fail: the same calls without the patch."""
        call, x = _cond(SPELLINGS["partials"], {}), jnp.ones((1, 2))
        call(0, model, x)
        with (
            jtu.count_jit_tracing_cache_miss() as traces,
            jtu.count_jit_compilation_cache_miss() as compilations,
        ):
            call(0, model, x)
        assert traces() > 0
        assert compilations() > 0

    @every_call
    def test_same_results_as_unpatched(self, call: Any, model: Any) -> None:
        x = jnp.ones((1, 2))
        expected = [call(0, model, x), call(1, model, x)]
        with fnintern.patch_flax():
            for i in (0, 1, 0):
                assert (call(i, model, x) == expected[i]).all()

    def test_updates_of_the_operands_go_through(self, patched: Any) -> None:
        """State that a branch changes is changed, call after call."""

        class Counter(nnx.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                self.count = nnx.Variable(jnp.array(0))

        def increment(counter: Any) -> None:
            counter.count[...] += 1

        def nothing(counter: Any) -> None:
            pass

        for mode in MODES.values():
            counter = Counter()
            for _ in range(3):
                nnx.cond(True, increment, nothing, counter, **mode)
            nnx.cond(False, increment, nothing, counter, **mode)
            assert int(counter.count[...]) == 3

    def test_inside_jit_and_grad(self, model: Any, patched: Any) -> None:
        traced = []

        @nnx.jit  # type: ignore[untyped-decorator]
        def step(model: Any, x: Any, flag: Any) -> Any:
            traced.append(x)
            return nnx.cond(flag, up, down, model, x).sum()

        x = jnp.ones((1, 2))
        assert step(model, x, True) - step(model, x, False) == 4.0
        assert len(traced) == 1
        assert nnx.grad(lambda m: nnx.cond(True, up, down, m, x).sum())(model) is not None
        with jax.checking_leaks():
            jax.jit(lambda y: nnx.cond(True, lambda z: z + y, lambda z: z, y))(1.0)


class TestIdentity:
    @every_call
    def test_I1_wrappers_are_the_same_across_calls(
        self, call: Any, model: Any, patched: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What jax.lax is given: looked at from where flax calls it."""
        seen: Any = []
        cond, switch = jax.lax.cond, jax.lax.switch
        monkeypatch.setattr(
            jax.lax, "cond", lambda p, t, f, *xs: seen.append((t, f)) or cond(p, t, f, *xs)
        )
        monkeypatch.setattr(
            jax.lax, "switch", lambda i, fs, *xs: seen.append(tuple(fs)) or switch(i, fs, *xs)
        )
        for i in (0, 1, 0):
            call(i, model, jnp.ones((1, 2)))
            gc.collect()
        assert len(seen) == 3
        assert all(a is b is c for a, b, c in zip(*seen, strict=True))
        assert seen[0][0] is not seen[0][1]

    def test_I4_the_two_modes_do_not_share(self, model: Any, patched: Any) -> None:
        graph, tree = (
            transforms.SimpleCondFn(up, graph=True),
            transforms.SimpleCondFn(up, graph=False),
        )
        assert graph is not tree
        assert graph is transforms.SimpleCondFn(graph=True, f=up)
        assert general.merge_inputs(up, ctxtag="cond") is general.merge_inputs(up, ctxtag="cond")
        assert general.merge_inputs(up, ctxtag="cond") is not general.merge_inputs(up, ctxtag="x")

    def test_merge_inputs_as_a_decorator_factory(self, patched: Any) -> None:
        """``merge_inputs(ctxtag=...)`` with no function gives a decorator."""
        decorate = general.merge_inputs(ctxtag="cond")
        assert decorate(up).__wrapped__ is up

    def test_wrapper_is_of_the_class_that_was_imported_before(self) -> None:
        before = transforms.SimpleCondFn
        with fnintern.patch_flax():
            one = transforms.SimpleCondFn(up, graph=True)
            assert isinstance(one, before)
            assert set(vars(one)) >= {"f", "graph"}
            assert type(one).__qualname__ == before.__qualname__


def _captured(references: list[weakref.ref[Any]]) -> Any:
    array = jnp.array([1.0])
    f, g = (lambda x: x + array), (lambda x: x - array)
    references += [weakref.ref(x) for x in (array, f, g)]
    return f, g


def _traced_cond(f: Any, g: Any, mode: dict[str, bool], x: Any) -> Any:
    return nnx.cond(True, f, g, x, **mode)


def _wrappers(references: list[weakref.ref[Any]], f: Any) -> None:
    references.append(weakref.ref(transforms.SimpleCondFn(f, graph=True)))
    references.append(weakref.ref(general.merge_inputs(f, ctxtag="cond")))


class TestLifetime:
    def test_L1_thousand_rounds_of_fresh_lambdas(self, patched: Any) -> None:
        """Traced 1,000 times; no lambda, wrapper or array is alive."""
        references: list[weakref.ref[Any]] = []
        modes = list(MODES.values())
        for i in range(1_000):
            f, g = _captured(references)
            jax.eval_shape(functools.partial(_traced_cond, f, g, modes[i % 3]), 1.0)
            _wrappers(references, f)
        f = g = None
        gc.collect()
        assert len(references) == 5_000
        assert sum(ref() is not None for ref in references) == 0

    @pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
    def test_L1_compiled_rounds_of_fresh_lambdas(self, patched: Any, mode: Any) -> None:
        """Eager calls, each compiled as the user would have it."""
        references: list[weakref.ref[Any]] = []
        for _ in range(15):
            f, g = _captured(references)
            assert nnx.cond(True, f, g, 1.0, **mode) == 2.0
            assert nnx.switch(1, [f, g], 1.0, **mode) == 0.0
            _wrappers(references, f)
        del f, g
        gc.collect()
        assert sum(ref() is not None for ref in references) == 0

    def test_L1_models_of_bound_methods(self, patched: Any) -> None:
        references = []
        for mode in MODES.values():
            for _ in range(3):
                owner = Branches()
                owner.array = jnp.array([1.0])  # type: ignore[attr-defined]
                references += [weakref.ref(owner), weakref.ref(owner.array)]  # type: ignore[attr-defined]
                f, g = (functools.partial(m, jnp.sin) for m in (owner.up, owner.down))
                nnx.cond(True, f, g, 1.0, **mode)
        del owner, f, g
        gc.collect()
        assert [ref() for ref in references if ref() is not None] == []

    @pytest.mark.skipif(not HAS_MEMO, reason="flax has no memo before 0.12.9")
    def test_the_memo_of_flax_leaks_and_the_check_sees_it(self) -> None:
        references: list[weakref.ref[Any]] = []
        for _ in range(3):
            f, g = _captured(references)
            jax.eval_shape(functools.partial(_traced_cond, f, g, {"graph_updates": False}), 1.0)
        del f, g
        gc.collect()
        assert sum(ref() is not None for ref in references) == 9
        transforms._SIMPLE_COND_FN_CACHE.clear()
        gc.collect()
        assert sum(ref() is not None for ref in references) == 0


class TestPatch:
    def sites(self, by: str = "value") -> dict[str, Any]:
        """What is replaced, as it is now."""
        names = [(f"flax.nnx.transforms.{m}", n) for m, n in MEMOS]
        if by == "object":
            names += [(f"flax.nnx.transforms.{m}", n) for m, n, _ in TRANSIENT]
        else:
            names += [(f"flax.nnx.transforms.{m}", "jax") for m, _, _ in OPERATIONS]
        return {f"{m}.{n}": getattr(importlib.import_module(m), n, None) for m, n in names}

    @pytest.mark.parametrize("by", ["object", "value"])
    def test_report(self, by: Any) -> None:
        expected = {
            name: "absent in this release" if x is None else "patched"
            for name, x in self.sites(by).items()
        }
        with fnintern.patch_flax(by=by) as patch:
            assert patch.report == expected
        reverted = {n: s.replace("patched", "reverted") for n, s in expected.items()}
        assert patch.report == reverted

    @pytest.mark.parametrize("by", ["object", "value"])
    def test_revert_to_the_identical_objects(self, by: Any) -> None:
        before = self.sites(by)
        for _ in range(2):
            with fnintern.patch_flax(by=by):
                inside = self.sites(by)
                assert all(inside[n] is not x for n, x in before.items() if x is not None)
            assert all(x is before[n] for n, x in self.sites(by).items())

    def test_idempotent_and_nestable(self) -> None:
        before = self.sites()
        with fnintern.patch_flax() as outer, fnintern.patch_flax() as inner:
            assert outer is inner
        assert self.sites() == before

    def test_under_a_patch_of_one_wrapper(self) -> None:
        before = self.sites()
        everything = fnintern.patch_flax()
        one = fnintern.patch("flax.nnx.transforms.general", "merge_inputs")
        everything.revert()
        assert general.merge_inputs(up, ctxtag="x") is general.merge_inputs(up, ctxtag="x")
        one.revert()
        assert self.sites() == before

    @pytest.mark.parametrize(
        ("by", "taken", "left"),
        [
            ("object", "general.merge_inputs", "transforms.SimpleCondFn"),
            ("value", "iteration.jax", "transforms.jax"),
        ],
    )
    def test_reverted_by_somebody_else(self, by: Any, taken: str, left: str) -> None:
        before = self.sites(by)
        patch = fnintern.patch_flax(by=by)
        module, _, name = taken.partition(".")
        path = f"flax.nnx.transforms.{module}"
        setattr(importlib.import_module(path), name, before[f"{path}.{name}"])
        report = patch.report
        assert report[f"{path}.{name}"] == "already reverted by somebody else"
        assert report[f"flax.nnx.transforms.{left}"] == "patched"
        patch.revert()
        assert self.sites(by) == before

    def test_half_applied_patch_cannot_remain(self, monkeypatch: pytest.MonkeyPatch) -> None:
        before = self.sites()
        from fnintern.patches import flax as patch_module

        def fail(memo: Any) -> Any:
            raise MemoryError("no replacement")

        monkeypatch.setattr(patch_module, "MEMOS", (("general", "split_inputs"),))
        monkeypatch.setattr(patch_module, "_memo_of_a_call", fail)
        with pytest.raises(MemoryError, match="no replacement"):
            fnintern.patch_flax()
        monkeypatch.undo()
        assert self.sites() == before

    @pytest.mark.skipif(not HAS_MEMO, reason="flax has no memo before 0.12.9")
    def test_takes_the_place_of_the_memo(self, patched: Any) -> None:
        """flax's own table gets no new entries, so it neither leaks nor answers."""
        before = len(transforms._SIMPLE_COND_FN_CACHE)
        f = lambda x: x
        first = transforms._get_simple_cond_fn(f, True)
        assert transforms._get_simple_cond_fn(f, True) is first
        assert transforms._get_simple_cond_fn(f, False) is not first
        assert len(transforms._SIMPLE_COND_FN_CACHE) == before


@pytest.mark.parametrize("block", ["flax", "flax.nnx"])
def test_flax_missing(block: str) -> None:
    """The error names the extra; nothing has been changed."""
    program = (
        f"import sys; sys.modules[{block!r}] = None\n"
        "import fnintern\n"
        "try: fnintern.patch_flax()\n"
        "except ImportError as error: print(error)\n"
        "from fnintern.patches import patching; assert patching._active == []"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "patch_flax() needs flax" in done.stdout
    assert "could not be imported" in done.stdout
    assert "pip install 'flax>=0.12.6' 'jax>=0.10'" in done.stdout


class Jitted(nnx.Module):  # type: ignore[misc]
    """A module whose call is jitted, so that flax takes the module apart for it."""

    def __init__(self) -> None:
        self.w = nnx.Param(jnp.float32(2.0))

    @nnx.jit  # type: ignore[untyped-decorator]
    def __call__(self, x: Any) -> Any:
        return x * self.w[...]


def test_S4_an_error_of_flax_is_raised_by_the_first_attempt() -> None:
    """A second attempt would find a module that the first has left taken apart."""
    errors = []
    for patch in (contextlib.nullcontext, fnintern.patch_flax):
        with patch(), pytest.raises(Exception) as caught:  # noqa: PT011
            nnx.cond(True, Jitted().__call__, lambda x: x, jnp.float32(3.0))
        errors.append(caught)
    assert errors[0].type is errors[1].type
    assert str(errors[0].value) == str(errors[1].value)


def test_S7_eval_shape_compiles_nothing() -> None:
    """Its shapes are remembered by those of the arguments."""
    model = nnx.Linear(4, 4, rngs=nnx.Rngs(0))

    def call(length: int) -> Any:
        x = jnp.ones((length, 4))
        return nnx.eval_shape(lambda m, x: m(x) * 2, model, x)

    with fnintern.patch_flax():
        call(2)
        with jtu.count_jit_tracing_cache_miss() as traced:
            assert call(2).shape == (2, 4)
        assert traced() == 0
        jnp.ones((3, 4))
        with jtu.count_jit_compilation_cache_miss() as compiled:
            assert call(3).shape == (3, 4)
        assert compiled() == 0


def test_S1_eval_shape_sees_what_has_changed() -> None:
    width = 2
    with fnintern.patch_flax():
        assert nnx.eval_shape(lambda x: jnp.ones(width) + x, 1.0).shape == (2,)
        width = 5
        assert nnx.eval_shape(lambda x: jnp.ones(width) + x, 1.0).shape == (5,)


@pytest.mark.parametrize("error", [ValueError, KeyError, AssertionError])
def test_S7_an_error_in_a_branch_costs_one_more_trace_once(error: type[Exception]) -> None:
    """What raised an error is made plainly the next time, and converted again once it works."""
    works = False

    def call() -> Any:
        def branch(x: Any) -> Any:
            if not works:
                raise error("no")
            return x + 1

        return nnx.cond(True, branch, branch, 1.0)

    def counted() -> int:
        with jtu.count_jit_tracing_cache_miss() as traced, contextlib.suppress(error):
            call()
        return int(traced())

    plain = counted()
    with fnintern.patch_flax():
        counted()
        assert counted() == counted() == plain
        works = True
        counted()
        assert counted() == 0

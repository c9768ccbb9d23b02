"""``patch_jax``: what it replaces, what libraries gain by it, and the way back."""

from __future__ import annotations

import copy
import importlib
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

import fnintern
from fnintern import patch_flax, patch_jax
from fnintern.staging.operations import OPERATIONS, original
from lax_calls import CALLS, XS, assert_same, counted, lax, outcome

NONE = (0, 0, 0)
W = jnp.float32(2.0)


def names() -> dict[str, Any]:
    """Everything that may be replaced, as it is now."""
    found = {}
    for module_name in ("jax.lax", "jax._src.lax"):
        module = importlib.import_module(module_name)
        for name, operation in OPERATIONS.items():
            if operation.internal or module_name == "jax.lax":
                found[f"{module_name}.{name}"] = getattr(module, name, None)
    for name in ("checkpoint", "eval_shape", "jit", "pmap", "pure_callback", "remat"):
        found[f"jax.{name}"] = getattr(jax, name)
    return found


@pytest.fixture(autouse=True)
def everything_is_put_back() -> Iterator[None]:
    before = names()
    yield
    after = names()
    assert all(after[name] is before[name] for name in before)


class TestPatch:
    def test_report(self) -> None:
        with patch_jax() as patch:
            report = patch.report
            assert report.keys() >= {name for name, found in names().items() if found is not None}
            # The others are in modules that took it by `from jax import ...`.
            assert {name.rpartition(".")[2] for name in report} <= {
                name.rpartition(".")[2] for name in names()
            }
            for name in lax.__all__:
                assert report[f"jax.lax.{name}"] == "patched"
                assert getattr(jax.lax, name).__wrapped__ is getattr(lax, name).__wrapped__
            assert set(report.values()) == {"patched"}
        assert set(patch.report.values()) == {"reverted"}

    def test_reverts_to_the_identical_objects(self) -> None:
        before = names()
        patch = patch_jax()
        assert jax.lax.scan is not before["jax.lax.scan"]
        patch.revert()
        assert all(names()[name] is before[name] for name in before)
        patch.revert()

    def test_idempotent(self) -> None:
        patch = patch_jax()
        inside = names()
        assert patch_jax() is patch
        assert all(names()[name] is inside[name] for name in inside)
        with patch_jax():
            pass
        assert jax.lax.scan is inside["jax.lax.scan"]  # a call outside of the block had applied it
        patch.revert()

    def test_as_a_context_manager(self) -> None:
        before = jax.lax.scan
        with patch_jax(), patch_jax():
            assert jax.lax.scan is not before
        assert jax.lax.scan is before
        with pytest.raises(LookupError), patch_jax():
            raise LookupError
        assert jax.lax.scan is before

    def test_again_after_a_revert(self) -> None:
        for _ in range(2):
            with patch_jax():
                for w in (W, W + 1):
                    jax.lax.map(lambda x: x * w, XS)
                assert jax.lax.map.cache_info().hits == 1

    @pytest.mark.parametrize("order", [(patch_jax, patch_flax), (patch_flax, patch_jax)])
    @pytest.mark.parametrize("first_out", [0, 1])
    def test_with_patch_flax(self, order: Any, first_out: int) -> None:
        before = nnx.cond, jax.lax.cond
        patches = [apply() for apply in order]

        def call() -> Any:
            model = nnx.Linear(1, 1, rngs=nnx.Rngs(0))
            model.bias[...] = W[None]
            x = jnp.zeros((1, 1))
            one = nnx.cond(W > 0, lambda m, x: m(x), lambda m, x: x, model, x)
            return one, jax.lax.cond(W > 0, lambda: x + W, lambda: x)

        for _ in range(2):
            assert [float(leaf[0, 0]) for leaf in call()] == [2.0, 2.0]
        patches[first_out].revert()
        assert [float(leaf[0, 0]) for leaf in call()] == [2.0, 2.0]
        if order[first_out] is patch_jax:
            assert jax.lax.cond is before[1]
        patches[1 - first_out].revert()
        assert (nnx.cond, jax.lax.cond) == before

    def test_somebody_else_has_replaced_one(self) -> None:
        before = jax.lax.scan
        patch = patch_jax()
        mine: Any = lambda *args, **kwargs: before(*args, **kwargs)
        jax.lax.scan = mine
        try:
            assert patch.report["jax.lax.scan"] == "already reverted by somebody else"
            patch.revert()
            assert jax.lax.scan is mine
        finally:
            jax.lax.scan = before

    def test_threads(self) -> None:
        patches: list[Any] = []
        threads = [
            threading.Thread(target=lambda: patches.append(patch_jax()), daemon=True)
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(set(patches)) == 1
        patches[0].revert()


class TestCalls:
    @pytest.mark.parametrize("name", CALLS)
    def test_every_operation(self, name: str) -> None:
        expected = [CALLS[name](jax.lax, w, XS) for w in (W, W + 1)]
        arrays = iter([W + i for i in range(10)])
        with patch_jax():
            for value in expected:
                assert_same(CALLS[name](jax.lax, next(arrays), XS), value)
            assert counted(lambda: CALLS[name](jax.lax, next(arrays), XS)) == NONE

    def test_what_libraries_call(self) -> None:
        """jax.scipy looks the operations up when it runs."""

        def solve(w: Any) -> Any:
            return jax.scipy.sparse.linalg.cg(lambda v: v * w, XS)[0]

        expected = [solve(w) for w in (W, W + 1)]
        arrays = iter([W + i for i in range(10)])
        with patch_jax():
            for value in expected:
                assert_same(solve(next(arrays)), value)
            assert counted(lambda: solve(next(arrays))) == NONE

    def test_inside_of_jit_nothing_changes(self) -> None:
        def text() -> str:
            f = lambda w: jax.lax.scan(lambda c, x: (c * w + x, None), 1.0, XS)[0]
            return str(jax.make_jaxpr(jax.grad(f))(W))

        plain = text()
        with patch_jax():
            assert text() == plain

    def test_a_function_that_calls_a_patched_operation(self) -> None:
        def call(w: Any) -> Any:
            inner = lambda y: jax.lax.cond(y > 1, lambda: y * w, lambda: y)
            return jax.lax.map(inner, XS)

        expected = [call(w) for w in (W, W + 1)]
        with patch_jax():
            for w, value in zip((W, W + 1), expected, strict=True):
                assert_same(call(w), value)
            arrays = iter([W + i for i in range(3)])
            assert counted(lambda: call(next(arrays))) == NONE
        assert_same(call(W), expected[0])

    def test_fnintern_lax_is_not_wrapped_twice(self) -> None:
        with patch_jax():
            assert original(jax.lax.scan) is lax.scan.__wrapped__
            staged: Any = fnintern.staged(jax.lax.scan)
            f: Any = lambda w: staged(lambda c, x: (c * w + x, None), 0.0, XS)[0]
            for w in (W, W + 1):
                assert_same(f(w), lax.scan(lambda c, x: (c * w + x, None), 0.0, XS)[0])
        assert_same(f(W), jax.lax.scan(lambda c, x: (c * W + x, None), 0.0, XS)[0])

    def test_errors(self) -> None:
        calls = [
            lambda: jax.lax.scan(lambda c, x: c, 0.0, XS),
            lambda: jax.lax.cond(True, lambda: 1.0, lambda: (1.0,)),
            lambda: jax.lax.map(lambda x: 1 // 0, XS),
        ]
        for call in calls:
            _, expected = outcome(call)
            with patch_jax():
                assert outcome(call)[1] is expected is not None


class TestCopies:
    @pytest.mark.parametrize("name", lax.__all__)
    def test_are_the_operation_itself(self, name: str) -> None:
        with patch_jax():
            op = getattr(jax.lax, name)
            assert copy.copy(op) is op
            assert copy.deepcopy([op])[0] is op
            assert pickle.loads(pickle.dumps(op)) is op

    @pytest.mark.parametrize("name", lax.__all__)
    def test_a_pickle_outlives_the_patch(self, name: str) -> None:
        """It is read as what jax.lax has by then, and needs no fnintern."""
        with patch_jax():
            data = pickle.dumps(getattr(jax.lax, name))
        assert b"fnintern" not in data
        assert pickle.loads(data) is getattr(jax.lax, name)

    def test_one_that_is_kept_beyond_the_patch_goes_on_working(self) -> None:
        with patch_jax():
            kept: Any = jax.lax.map
        for w in (W, W + 1):
            assert_same(kept(lambda x: x * w, XS), XS * w)
        assert kept.cache_info().hits == 1
        made = pickle.loads(pickle.dumps(kept))
        assert_same(made(lambda x: x * W, XS), XS * W)

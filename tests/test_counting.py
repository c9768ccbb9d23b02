"""``summary``, what is logged, and the warning at a line that misses again and again."""

from __future__ import annotations

import gc
import logging
import time
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import attrs
import jax
import jax.numpy as jnp
import pytest
from flax import nnx

import fnintern
from fnintern import OperationCounts, RetraceWarning, lax
from fnintern.counting import counts as counts_module
from fnintern.counting import lines
from fnintern.counting.counts import Counts
from fnintern.counting.lines import MANY
from fnintern.keys.reasons import Obstacle

XS = jnp.arange(3.0)


@pytest.fixture(autouse=True)
def no_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_lines", {})


def counted(call: Callable[[], Any]) -> dict[str, OperationCounts]:
    """What a call adds to the summary."""
    before = fnintern.summary()
    call()
    return fnintern.summary().since(before).operations


class TestSummary:
    def test_operations(self) -> None:
        def call() -> None:
            for w in (1.0, 2.0):
                array = jnp.float32(w)
                lax.map(lambda x: x * array, XS)
            lax.map(lambda x: x * time.time(), XS)

        (reason,) = counted(lambda: lax.map(lambda x: x * time.time(), XS))["map"].reasons
        assert reason.startswith("time is a module: it returns something else at each call")
        assert counted(call) == {"map": OperationCounts(1, 1, 1, {reason: 1})}

    def test_factories(self) -> None:
        for by in ("object", "value"):

            @fnintern.interned(by=by)
            def made_here(f: Any) -> Any:
                return [f]

            found = counted(lambda: [made_here(abs), made_here(abs), made_here(XS)])
            (counts,) = (c for name, c in found.items() if name.endswith("made_here"))
            assert (counts.hits, counts.misses, counts.bypassed) == (1, 1, 1)

    def test_patches(self) -> None:
        model = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
        x = jnp.ones((1, 2))
        with fnintern.patch_all() as patch:
            for _ in range(3):
                nnx.cond(True, lambda m, x: m(x), lambda m, x: x, model, x)
                nnx.jit(lambda m, x: m(x))(model, x)
                jax.lax.map(lambda x: x + 1.0, XS)
                jax.jit(lambda x: x + 1.0)(XS)
        found = patch.summary().operations
        assert found["flax.nnx: cond"] == OperationCounts(2, 1)
        assert found["flax.nnx: jit"].hits == 1
        assert found["map"] == OperationCounts(2, 1)
        assert found["jit"].hits == 1  # the first of each is jax's own
        lax.map(lambda x: x + 2.0, XS)
        assert patch.summary().operations == found  # as it was when it was reverted

    def test_of_what_is_gone(self) -> None:
        counts = Counts("test_of_what_is_gone")
        counts.hits = 3
        counts.bypass(Obstacle("f", "list", "a reason"))
        del counts
        gc.collect()
        row = fnintern.summary().operations["test_of_what_is_gone"]
        assert row == OperationCounts(3, 0, 1, {"f is a list: a reason": 1})

    def test_what_is_gone_is_added_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(counts_module, "_MAX_PAST", 10)
        monkeypatch.setattr(counts_module, "_past", type(counts_module._past)())
        for i in range(100):
            Counts(f"test_what_is_gone_is_added_up {i % 2}").hits = 2
        found = fnintern.summary().operations
        assert [found[f"test_what_is_gone_is_added_up {i}"].hits for i in (0, 1)] == [100, 100]
        assert len(counts_module._past) < 50

    def test_clearing_a_cache_clears_no_summary(self) -> None:
        wrap = fnintern.interned(lambda f: [f])

        def call() -> None:
            wrap(abs)
            fnintern.cache_clear(wrap)
            wrap(abs)

        found = counted(call)
        assert sum(row.misses for row in found.values()) == 2

    def test_text_and_data(self) -> None:
        summary = fnintern.Summary(
            {"scan": OperationCounts(30, 2), "map": OperationCounts(1, 2, 3, {"a": 1, "b": 2})}
        )
        assert repr(summary) == str(summary)
        assert str(summary).splitlines() == [
            "operation      hits    misses  bypassed",
            "map               1         2         3",
            "  2 times: b",
            "  1 times: a",
            "scan             30         2         0",
        ]
        assert summary.total == OperationCounts(31, 4, 3, {"a": 1, "b": 2})
        assert attrs.asdict(summary)["operations"]["scan"]["hits"] == 30
        assert str(fnintern.Summary({})) == "no calls of operations that fnintern shares"

    def test_reasons_are_bounded(self) -> None:
        counts = Counts("test_reasons_are_bounded")
        for i in range(100):
            counts.bypass(Obstacle("f", "list", str(i)))
        assert counts.bypassed == 100
        assert len(counts.reasons) == 65
        assert sum(counts.reasons.values()) == 100


class TestLogging:
    def test_bypasses(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG, "fnintern")
        operation = fnintern.staged(jax.lax.map)
        for _ in range(2):
            operation(lambda x: x * time.time(), XS)
        operation(lambda x: x, XS)
        first, second, miss = [r for r in caplog.records if r.name == "fnintern"]
        assert (first.levelname, second.levelname, miss.levelname) == ("INFO", "DEBUG", "DEBUG")
        assert first.getMessage() == second.getMessage()
        assert first.getMessage().startswith(f"map: made as without fnintern at {__file__}:")
        assert "time is a module" in first.getMessage()

    def test_nothing_is_logged_of_hits(self, caplog: pytest.LogCaptureFixture) -> None:
        for level in (logging.CRITICAL, logging.DEBUG):
            caplog.set_level(level, "fnintern")
            lax.map(lambda x: x + 3.0, XS)
        assert [r for r in caplog.records if r.name == "fnintern"] == []


def caught(call: Callable[[int], Any], count: int = 2 * MANY) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for i in range(count):
            call(i)
    assert all(w.category is RetraceWarning and w.filename == __file__ for w in found)
    return [str(w.message) for w in found]


class Settings:
    def __init__(self, rate: int) -> None:
        self.rate = rate


class TestWarning:
    def test_once_and_with_what_changes(self) -> None:
        def call(i: int) -> None:
            scale = float(i)
            lax.map(lambda x: x * scale, XS)

        (message,) = caught(call)
        assert "map has found nothing that was traced before in 12 calls" in message
        assert "scale (float) at each call" in message
        assert caught(call) == []

    def test_names_the_attribute(self) -> None:
        settings = Settings(0)

        def call(i: int) -> None:
            settings.rate = i
            lax.cond(True, lambda x: x * settings.rate, lambda x: x, XS)

        (message,) = caught(call)
        assert "settings.rate (int) at each call" in message

    def test_names_an_argument_of_a_partial(self) -> None:
        import functools

        (message,) = caught(lambda i: lax.map(functools.partial(jnp.add, i), XS))
        assert ".args[0] (int)" in message

    def test_of_a_reason(self) -> None:
        (message,) = caught(lambda i: lax.map(lambda x: x * time.time(), XS))
        assert "time is a module: it returns something else at each call" in message

    def test_under_a_patch(self) -> None:
        model = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
        with fnintern.patch_all():
            (message,) = caught(lambda i: nnx.jit(lambda m, x: m(x) * i)(model, jnp.ones((1, 2))))
        assert message.startswith("flax.nnx: jit has found nothing")
        assert "i (int) at each call" in message

    def test_not_of_a_function_that_jax_finds_again(self) -> None:
        def timed(x: Any) -> Any:
            return x * time.time()

        assert caught(lambda i: lax.cond(True, timed, timed, XS)) == []

    def test_not_where_some_calls_hit(self) -> None:
        def call(i: int) -> None:
            scale = float(i // 2)
            lax.map(lambda x: x * scale, XS)

        assert caught(call, 4 * MANY) == []

    def test_not_of_a_few(self) -> None:
        assert caught(lambda i: lax.map(lambda x: x * i, XS), MANY - 1) == []

    def test_off_and_as_an_error(self) -> None:
        def call(i: int) -> Any:
            return lax.map(lambda x: x * i, XS)

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", RetraceWarning)
            for i in range(2 * MANY):
                call(i)
        lines._lines.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("error", RetraceWarning)
            with pytest.raises(RetraceWarning, match="at this line"):
                list(map(call, range(100, 100 + MANY)))

    def test_S3_keeps_nothing(self) -> None:
        watched: list[weakref.ref[Any]] = []

        def call(i: int) -> None:
            scale = jnp.float32(i)
            f = lambda x: x * scale * time.time()
            watched.extend([weakref.ref(f), weakref.ref(scale)])
            lax.map(f, XS)

        caught(call)
        gc.collect()
        assert [ref for ref in watched if ref() is not None] == []

    def test_lines_are_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lines, "_MAX_LINES", 3)
        for i in range(10):
            exec(compile("lax.map(lambda x: x * 1, XS)", f"line {i}", "exec"), globals())
            assert len(lines._lines) <= 3

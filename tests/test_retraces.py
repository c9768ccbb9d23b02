"""The report itself: what it keeps, what it hooks, nesting, threads, text."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
import time
import weakref
from typing import Any

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax._src import monitoring as private_monitoring
from jax._src import util
from jax._src.interpreters import partial_eval

from fnintern import Retraces, retraces
from fnintern.retracing import frames, jaxprobe, recorder

X = jnp.arange(4.0)


def churn(n: int = 3) -> None:
    for _ in range(n):
        jax.jit(lambda x: x + 1)(X)


def hooks() -> list[Any]:
    """All that a report may replace or add to."""
    return [
        util.test_event,
        partial_eval.test_event,
        util.test_event_listener,
        partial_eval.trace_to_jaxpr,
        *private_monitoring.get_event_duration_listeners(),
        *private_monitoring.get_event_listeners(),
        *sys.meta_path,
    ]


def same(first: list[Any], second: list[Any]) -> bool:
    return len(first) == len(second) and all(a is b for a, b in zip(first, second, strict=True))


def test_importing_imports_neither_jax_nor_flax() -> None:
    code = (
        "import sys, fnintern.retracing.report; print({'jax', 'flax', 'rich'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_a_block_without_jax_imports_no_jax() -> None:
    code = (
        "import sys\n"
        "from fnintern import retraces\n"
        "before = list(sys.meta_path)\n"
        "with retraces() as seen: assert 'jax' not in sys.modules\n"
        "assert 'jax' not in sys.modules and sys.meta_path == before\n"
        "print(seen)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "no re-traces (0 first traces, 0 compilations)\n"


def test_jax_imported_inside_the_block_is_watched() -> None:
    code = (
        "import sys\n"
        "from fnintern import retraces\n"
        "with retraces() as seen:\n"
        "    import jax\n"
        "    for _ in range(3): jax.jit(lambda x: x)(1.0)\n"
        "assert type(jax.__spec__.loader).__module__.startswith('_frozen'), jax.__spec__\n"
        "assert jax.__loader__ is jax.__spec__.loader\n"
        "print(seen.traces, [row.calls for row in seen.rows])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "3 [2]\n"


def test_nothing_is_hooked_when_off_and_the_very_objects_return() -> None:
    before = hooks()
    with retraces():
        assert util.test_event is not before[0]
        assert partial_eval.test_event is not before[1]
        churn()
    assert same(hooks(), before)


def test_the_very_objects_return_after_an_exception() -> None:
    def fails() -> None:
        churn()
        raise KeyError("mine")

    before = hooks()
    with pytest.raises(KeyError, match="mine"), retraces() as seen:
        fails()
    assert same(hooks(), before)
    assert seen.rows


def test_nested_blocks_make_a_report_each_and_hook_once() -> None:
    before = hooks()
    with retraces() as outer:
        churn(2)
        during = hooks()
        with retraces() as inner:
            churn(2)
            assert same(hooks(), during)
        churn(1)
        assert same(hooks(), during)
    assert same(hooks(), before)
    assert (inner.traces, [row.calls for row in inner.rows]) == (2, [1])
    assert (outer.traces, [row.calls for row in outer.rows]) == (5, [4])


def test_a_block_begun_inside_a_trace_counts_what_it_sees() -> None:
    reports = []

    def step(x: Any) -> Any:
        with retraces() as inner:
            y = jax.lax.map(lambda v: v + 1, x)
        reports.append(inner)
        return y

    with retraces() as outer:
        jax.jit(step)(X)
    jax.jit(lambda x: step(x) + 1)(X)
    within, alone = reports
    assert 0 < within.traces < outer.traces
    assert within.compiles == 0
    assert alone.traces > 0


def test_blocks_may_overlap() -> None:
    before = hooks()
    first, second = retraces(), retraces()
    first.__enter__()
    churn(2)
    second.__enter__()
    churn(2)
    first.__exit__(None, None, None)
    churn(2)
    second.__exit__(None, None, None)
    assert same(hooks(), before)
    assert (first.traces, second.traces) == (4, 4)


def test_a_report_is_made_once() -> None:
    seen = retraces()
    with seen:
        pass
    with pytest.raises(RuntimeError, match="made already"), seen:
        pass


def test_a_report_counts_nothing_after_its_block() -> None:
    with retraces() as seen:
        churn(2)
    was = str(seen)
    churn(2)
    assert str(seen) == was


class Holder:
    """Something of the user's that a function captures."""


def test_a_report_keeps_nothing_of_the_users_alive() -> None:
    refs: list[weakref.ref[Any]] = []

    def run() -> None:
        for k in range(3):
            model = nnx.Linear(4, 4, rngs=nnx.Rngs(0))
            data, holder, table = X + k, Holder(), np.ones(1000)

            def step(x: Any, factor: Any = holder) -> Any:
                table.sum()
                return x + data

            def forward(m: Any, x: Any) -> Any:
                return m(x) + data

            refs.extend(weakref.ref(o) for o in (model, data, holder, table, step, forward))
            jax.jit(step)(X)
            jax.jit(lambda f, x: f(x), static_argnums=0)(step, X)
            nnx.cond(True, forward, forward, model, X)

    with retraces() as seen:
        run()
    jax.clear_caches()  # jax keeps static arguments itself
    gc.collect()
    alive = [ref() for ref in refs if ref() is not None]
    assert alive == []
    assert seen.rows


def test_a_report_keeps_only_text_and_numbers() -> None:
    with retraces() as seen:
        churn()
        jax.lax.cond(True, lambda x: x, lambda x: x + 1, X)
    gc.collect()
    allowed = (str, int, float, bool, type(None))
    found: set[type] = set()
    stack: list[Any] = [seen]
    visited: set[int] = set()
    while stack:
        value = stack.pop()
        if id(value) in visited:
            continue
        visited.add(id(value))
        if isinstance(value, allowed):
            continue
        found.add(type(value))
        if isinstance(value, dict):
            stack += [*value.keys(), *value.values()]
        elif isinstance(value, tuple | list | set):
            stack += list(value)
        else:
            assert type(value).__module__.startswith("fnintern."), value
            names = [n for c in type(value).__mro__ for n in getattr(c, "__slots__", ())]
            stack += [getattr(value, n) for n in names if hasattr(value, n) and n != "__weakref__"]
            stack += list(getattr(value, "__dict__", {}).values())
    assert {"Retraces", "Cause", "Span"} <= {kind.__name__ for kind in found}


def test_a_debugger_sees_every_line_that_it_saw_without() -> None:
    """The frames that we mark are jax's, in the slot where a debugger keeps its own hook."""
    calls: list[tuple[str, str, int]] = []

    def tracer(frame: Any, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename.endswith(("traceback_util.py", "partial_eval.py")):
            calls.append((frame.f_code.co_name, event, frame.f_lineno))
        return tracer

    def lines() -> list[tuple[str, str, int]]:
        calls.clear()
        previous = sys.gettrace()
        sys.settrace(tracer)
        try:
            churn()
        finally:
            sys.settrace(previous)
        return list(calls)

    lines()
    without = lines()
    with retraces() as seen:
        assert lines() == without
    assert without
    assert [row.calls for row in seen.rows] == [2]


def test_code_typed_in_is_the_users() -> None:
    # Not "<string>", which is the name of what python -c was given, in a worker of pytest too.
    code = compile("for _ in range(3): jit(lambda x: x + 1)(1.0)", "<typed>", "exec")
    with retraces() as seen:
        exec(code, {"jit": jax.jit})
    (row,) = seen.rows
    assert (row.file, row.line, row.source) == ("<typed>", 1, "")


def test_users_files_are_told_from_libraries() -> None:
    assert frames.is_user_file(__file__)
    assert frames.is_user_file("<stdin>")
    assert not frames.is_user_file(str(jax.__file__))
    assert not frames.is_user_file(str(json.__file__))
    assert not frames.is_user_file(frames.__file__)
    assert not frames.is_user_file("<frozen importlib._bootstrap>")


def test_threads_that_trace_at_once_agree_with_each_other() -> None:
    barrier = threading.Barrier(4)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            barrier.wait(60)
            churn(5)
        except BaseException as error:
            failed.append(error)

    with retraces() as seen:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            gc.collect()
            str(seen)
        for thread in threads:
            thread.join(60)
    assert failed == []
    assert (seen.traces, seen.compiles, seen.problems) == (20, 20, [])


def test_a_thread_outside_the_block_is_counted_too() -> None:
    with retraces() as seen:
        thread = threading.Thread(target=churn)
        thread.start()
        thread.join(60)
    assert [row.calls for row in seen.rows] == [2]


def test_a_recursive_repr_or_a_hostile_eq_is_never_called() -> None:
    class Hostile:
        def __eq__(self, other: object) -> bool:
            raise AssertionError("compared")

        __hash__ = None  # type: ignore[assignment]

        def __repr__(self) -> str:
            raise AssertionError("shown")

        def __getattr__(self, name: str) -> Any:
            raise AssertionError("asked for " + name)

    def run() -> None:
        for _ in range(2):
            hostile = Hostile()
            jax.jit(lambda x, h=hostile: x)(X)

    with retraces() as seen:
        run()
    assert seen.problems == []
    assert "h: Hostile object → another Hostile object" in seen.rows[0].cause


def test_a_problem_fails_assert_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fnintern.retracing.recorder.describe", lambda *_: 1 / 0)
    with retraces() as seen:
        churn(1)
    with pytest.raises(AssertionError, match="division by zero"):
        seen.assert_none()


def test_a_hostile_callable_is_asked_nothing() -> None:
    class Hostile:
        def __getattribute__(self, name: str) -> Any:
            if name.startswith("__"):
                return object.__getattribute__(self, name)
            raise AssertionError("asked for " + name)

        def __call__(self, x: Any) -> Any:
            return x

    with retraces() as seen:
        for _ in range(2):
            jax.lax.map(Hostile(), X)
    assert seen.problems == []
    assert "`Hostile` object" in seen.rows[0].cause


def test_an_error_of_ours_never_reaches_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise LookupError("lost")

    monkeypatch.setattr("fnintern.retracing.recorder.locate", fails)
    with retraces() as seen:
        churn(1)
    assert seen.problems
    assert set(seen.problems) == {"LookupError: lost"}


def test_what_cannot_be_explained_is_counted_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise LookupError("unknown jax")

    monkeypatch.setattr("fnintern.retracing.recorder.describe", fails)
    with retraces() as seen:
        churn(2)
    assert seen.traces == 2
    assert seen.problems == ["LookupError: unknown jax"] * 2
    assert "not explained: LookupError: unknown jax" in str(seen)


@pytest.mark.parametrize("name", ["_cached", "context_names", "_statics", "_tree"])
def test_a_missing_private_detail_costs_a_column(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = {"_tree": None}.get(name, ())
    monkeypatch.setattr(f"fnintern.retracing.jaxprobe.{name}", lambda *_: nothing)
    with retraces() as seen:
        churn(2)
    assert [row.calls for row in seen.rows] == [1]
    assert seen.problems == []


def test_a_jax_that_does_not_count_is_said_and_not_taken_for_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fnintern.retracing.jaxprobe._REPORTER", "no_such_name")
    with retraces() as seen:
        churn(2)
    assert (seen.traces, seen.rows) == (0, [])
    assert seen.first_seconds > 0  # these come from the public jax.monitoring
    with pytest.raises(AssertionError, match="nothing was counted"):
        seen.assert_none()


def test_seconds_are_those_of_the_block() -> None:
    with retraces() as seen:
        churn()
    (row,) = seen.rows
    assert row.tracing > 0
    assert row.lowering > 0
    assert row.compiling > 0
    assert row.seconds + seen.first_seconds <= seen.elapsed


def test_seconds_traced_while_lowering_are_not_counted_as_lowering() -> None:
    with retraces():
        now = time.perf_counter()
        recorder._local.finished.extend([(now - 9, now - 8), (now - 2, now - 1)])
        recorder._on_seconds(jaxprobe.LOWERING_SECONDS, 3.0, "step")
        waiting = recorder._local.waiting
        recorder._local.waiting = None
    assert waiting is not None
    *_, seconds, own = waiting
    assert seconds == 3.0
    assert own == pytest.approx(2.0)


def test_assert_none_shows_the_table() -> None:
    with retraces() as seen:
        churn()
    with pytest.raises(AssertionError) as caught:
        seen.assert_none()
    assert str(caught.value) == str(seen)


def test_the_table_fits_80_columns_and_says_all() -> None:
    with retraces() as seen:
        churn()
        for k in range(2):
            jax.jit(lambda x: x * k)(X)
    text = str(seen)
    assert max(map(len, text.splitlines())) <= 80
    first, second = seen.rows
    assert first.seconds >= second.seconds
    for row in (first, second):
        assert f"{row.file.rpartition('/')[2]}:{row.line}" in text
        assert " ".join(row.cause.split()) in " ".join(text.split())
        assert " ".join(row.remedy.split()) in " ".join(text.split())


def test_repr_is_short() -> None:
    with retraces() as seen:
        churn(3)
    assert repr(seen) == "<Retraces: 2 re-traces by 1 causes>"


def test_a_report_that_watched_nothing_asserts_nothing() -> None:
    seen = retraces()
    churn(3)
    with pytest.raises(RuntimeError, match="watched nothing; write `with"):
        seen.assert_none()
    assert "not begun" in repr(Retraces())


def test_elapsed_grows_while_the_block_runs() -> None:
    with retraces() as seen:
        churn(2)
        assert sum(row.seconds for row in seen.rows) <= seen.elapsed
    assert seen.elapsed == seen.elapsed > 0
    assert Retraces().elapsed == 0


def test_whose_line_it_is_goes_by_what_the_library_is() -> None:
    """A package of the user's may be installed; a library that is known is one wherever it lies."""
    assert frames.is_user_file("/env/lib/python3.13/site-packages/my_project/train.py")
    assert not frames.is_user_file(str(jax.__file__))


def test_decorator_makes_a_report_for_each_call() -> None:
    @retraces()
    def work(count: int) -> int:
        for _ in range(count):
            jax.jit(lambda x: x + 1)(1.0)
        return count

    watched: Any = work
    assert watched(3) == 3
    first = watched.retraces
    assert watched(1) == 1
    watched.retraces.assert_none()
    assert first.retraced > 0


def test_without_jax_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(ImportError, match=r"retraces\(\) needs jax.*pip install jax"):
        retraces()

"""Each cause is told from the others, on real jax and flax, with line, names and values."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped, unused-ignore]
import pytest
from flax import nnx

from fnintern import Retrace, retraces

X = jnp.arange(4.0)


def square(x: Any) -> Any:
    return jnp.sum(x * x)


def shift(x: Any, by: float) -> Any:
    return x + by


class Model:
    def __init__(self, scale: float) -> None:
        self.scale = scale

    def apply(self, x: Any) -> Any:
        return x * self.scale

    def __call__(self, x: Any) -> Any:
        return x - self.scale


def line_of(run: Callable[..., Any], text: str) -> int:
    """The number of the line of `run` that holds `text`."""
    lines, first = inspect.getsourcelines(run)
    return first + next(i for i, line in enumerate(lines) if text in line)


def rows(run: Callable[[], Any]) -> list[Retrace]:
    with retraces() as seen:
        run()
    assert seen.problems == []
    return seen.rows


def only_row(run: Callable[[], Any], text: str) -> Retrace:
    """The one row of a report on `run`, which must be at the line that holds `text`."""
    (row,) = rows(run)
    assert (row.file, row.line) == (__file__, line_of(run, text))
    assert row.source
    assert text in row.source
    return row


# --- a library's wrapper ---------------------------------------------------------------------


def test_wrapper_of_flax_around_the_same_functions_is_named() -> None:
    model = nnx.Linear(4, 4, rngs=nnx.Rngs(0))

    def up(m: Any, x: Any) -> Any:
        return m(x) + 1

    def down(m: Any, x: Any) -> Any:
        return m(x) - 1

    def run() -> None:
        for _ in range(3):
            nnx.cond(True, up, down, model, X)

    row = only_row(run, "nnx.cond(")
    assert row.kind == "wrapper"
    assert "of flax was built anew around the same `" in row.cause
    assert "fnintern.patch_flax()" in row.remedy
    assert "@fnintern.interned" in row.remedy
    assert [name.rpartition(".")[2] for name in row.functions] == ["up", "down"]
    assert row.defined == f"{__file__}:{up.__code__.co_firstlineno}"
    # Two branches and the primitive, two calls after the first.
    assert (row.calls, row.traces, row.compiles) == (2, 6, 2)


@pytest.mark.skipif(
    "WeakKeyDictionary" in inspect.getsource(inspect.getmodule(nnx.cond)),  # type: ignore[arg-type]
    reason="this flax memoizes SimpleCondFn",
)
def test_SimpleCondFn_is_named() -> None:
    def run() -> None:
        for _ in range(2):
            nnx.cond(True, square, square, X, graph_updates=False)

    row = only_row(run, "nnx.cond(")
    assert row.cause == "`SimpleCondFn` of flax was built anew around the same `square`"


def test_JitFn_is_named() -> None:
    model = nnx.Linear(4, 4, rngs=nnx.Rngs(0))

    def forward(m: Any, x: Any) -> Any:
        return m(x)

    def run() -> None:
        for _ in range(2):
            nnx.jit(forward)(model, X)

    assert "`JitFn` of flax was built anew" in only_row(run, "nnx.jit(").cause


def test_wrapper_of_jax_around_the_same_function_is_named() -> None:
    def run() -> None:
        for _ in range(3):
            jax.lax.map(square, X[:, None])

    row = only_row(run, "jax.lax.map(")
    assert row.cause == "`map` of jax was built anew around the same `square`"
    assert "one jax.jit function" in row.remedy


def test_library_function_that_holds_no_users_function_is_named() -> None:
    params = {"w": X}

    def run() -> None:
        for _ in range(2):
            opt = optax.sgd(0.1)
            state = opt.init(params)
            jax.jit(opt.update)(params, state)

    row = only_row(run, "jax.jit(opt.update)")
    assert row.kind == "wrapper"
    assert "of optax was made anew" in row.cause


# --- a function made again -------------------------------------------------------------------


def test_lambda_with_equal_captures_is_to_be_hoisted() -> None:
    scale = 2.0

    def run() -> None:
        for _ in range(3):
            jax.lax.fori_loop(0, 2, lambda i, x: x * scale, X)

    row = only_row(run, "fori_loop(")
    assert row.kind == "function"
    assert "the lambda was made again by its line with equal captures" in row.cause
    assert "once, outside the loop" in row.remedy
    assert 'interned(by="value")' in row.remedy
    assert row.defined == f"{__file__}:{row.line}"


def test_jit_of_a_lambda_in_a_loop_names_both() -> None:
    def run() -> None:
        for _ in range(3):
            jax.jit(lambda x: x + 1)(X)

    row = only_row(run, "jax.jit(lambda")
    assert row.kind == "function"
    assert "the lambda was made again" in row.cause
    assert "jax.jit applied to it anew" in row.cause
    assert "its jax.jit once, outside the loop" in row.remedy
    assert (row.calls, row.traces, row.compiles) == (2, 2, 2)


def test_changed_capture_is_named_with_both_values() -> None:
    def run() -> None:
        for rate in (0.5, 0.25):
            same = "x"
            jax.jit(lambda x: (x * rate, same)[0])(X)

    row = only_row(run, "jax.jit(lambda")
    assert row.kind == "function"
    assert row.cause.endswith(": rate: 0.5 → 0.25")
    assert "same" not in row.cause
    assert "pass `rate` as an argument" in row.remedy


def test_changed_global_is_named_as_a_script_has_no_closures() -> None:
    source = "for rate in (0.5, 0.25): jit(lambda x: (lambda y: y * rate)(x))(X)"
    (row,) = rows(lambda: exec(compile(source, "<string>", "exec"), {"jit": jax.jit, "X": X}))
    assert row.cause.endswith(": rate: 0.5 → 0.25")
    assert "pass `rate` as an argument" in row.remedy


def test_changed_default_is_named() -> None:
    def run() -> None:
        for k in (1, 2):

            def body(x: Any, factor: int = k) -> Any:
                return x * factor

            jax.jit(body)(X)

    row = only_row(run, "jax.jit(body)")
    assert row.cause.endswith(": factor: 1 → 2")
    assert row.defined == f"{__file__}:{line_of(run, 'def body')}"


VALUES: dict[str, tuple[Any, Any]] = {
    "value: 1 → True": (1, True),
    "value: 0.0 → -0.0": (0.0, -0.0),
    "value: 'a' → 'b'": ("a", "b"),
    "value: (1, 'a') → (1, 'b')": ((1, "a"), (1, "b")),
    "value['k']: 1 → 2": ({"k": 1}, {"k": 2}),
    "value: None → 3": (None, 3),
    "value: int of 16610 bits → another int of 16610 bits": (10**5000, 10**5000 + 1),
    f"value: '{'a' * 38}… → another '{'a' * 38}…": ("a" * 9999 + "b", "a" * 9999 + "c"),
    "value: sum → max": (sum, max),
    "value: int → float": (int, float),
}


@pytest.mark.parametrize("change", VALUES)
def test_captured_values_are_shown(change: str) -> None:
    def run() -> None:
        for value in VALUES[change]:
            jax.jit(lambda x: (x, value)[0])(X)

    assert only_row(run, "jax.jit(lambda").cause.partition("anew: ")[2] == change


@dataclasses.dataclass
class Mapped:
    value: Any = dataclasses.field(
        default_factory=functools.partial(jax.lax.map, square, np.ones((3, 1), np.float32))
    )


def test_code_that_a_dataclass_generates_is_nobodys_line() -> None:
    def run() -> None:
        for _ in range(2):
            Mapped()

    assert only_row(run, "Mapped()").kind == "wrapper"


def test_changed_array_is_another_array() -> None:
    def run() -> None:
        for k in (1.0, 2.0):
            data = X + k
            jax.jit(lambda x: x + data)(X)

    assert "data: f32[4] → another f32[4]" in only_row(run, "jax.jit(lambda").cause


def test_changed_numpy_array_is_compared_by_content() -> None:
    def run(values: tuple[float, float]) -> None:
        for value in values:
            table = np.array([value, 1.0])
            jax.jit(lambda x: x + table.sum())(X)

    (equal,) = rows(lambda: run((1.0, 1.0)))
    (differs,) = rows(lambda: run((1.0, 2.0)))
    assert "equal captures" in equal.cause
    assert "table: [1. 1.] → [2. 1.]" in differs.cause


def test_changed_value_in_a_captured_function_is_found() -> None:
    def make(k: int) -> Callable[[Any], Any]:
        def helper(x: Any) -> Any:
            return x * k

        return lambda x: helper(x) + 1

    def run() -> None:
        for k in (3, 4):
            jax.jit(make(k))(X)

    assert only_row(run, "jax.jit(make").cause.endswith(": helper.k: 3 → 4")


def test_callable_object_made_again_is_named() -> None:
    def run() -> None:
        for _ in range(2):
            jax.jit(Model(2.0))(X)

    row = only_row(run, "jax.jit(Model")
    assert row.cause == "another `Model` object was called"
    assert row.remedy == "make the object once, outside the loop"


# --- partials and methods --------------------------------------------------------------------


def test_equal_partial_made_again() -> None:
    def run() -> None:
        for _ in range(2):
            jax.jit(functools.partial(shift, by=1.0))(X)

    row = only_row(run, "partial(")
    assert row.kind == "partial"
    assert "functools.partial of the same `shift` was made again, with equal arguments" in row.cause
    assert "make the partial once" in row.remedy


def test_partial_with_another_argument_names_it() -> None:
    def run() -> None:
        for by in (1.0, 2.0):
            jax.jit(functools.partial(shift, by=by))(X)

    row = only_row(run, "partial(")
    assert row.cause.endswith(", by: 1.0 → 2.0")
    assert "`by` as an argument" in row.remedy


def test_positional_argument_of_a_partial_has_its_parameters_name() -> None:
    def run() -> None:
        for value in (1.0, 2.0):
            jax.jit(functools.partial(shift, value))(1.0)

    assert only_row(run, "partial(").cause.endswith(", x: 1.0 → 2.0")


def test_bound_method_taken_again() -> None:
    model = Model(2.0)

    def run() -> None:
        for _ in range(2):
            jax.jit(model.apply)(X)

    row = only_row(run, "model.apply")
    assert row.kind == "method"
    assert "the bound method `Model.apply` was taken again from the same object" in row.cause
    assert "take it once and keep it" in row.remedy


def test_bound_method_of_another_object() -> None:
    def run() -> None:
        for scale in (1.0, 2.0):
            jax.jit(Model(scale).apply)(X)

    row = only_row(run, "Model(scale)")
    assert row.kind == "method"
    assert "taken from another `Model` object" in row.cause


# --- transforms ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["grad", "value_and_grad", "vmap", "jacfwd", "checkpoint"])
def test_transform_applied_anew_is_named(name: str) -> None:
    transform = getattr(jax, name)

    def run() -> None:
        for _ in range(3):
            jax.jit(transform(jnp.sum if name == "vmap" else square))(jnp.ones((2, 2))[0])

    if name == "vmap":
        (row,) = rows(lambda: [jax.jit(jax.vmap(square))(X[:, None]) for _ in range(2)])
    else:
        row = only_row(run, "jax.jit(transform")
    assert row.kind == "transform"
    assert row.cause == f"jax.{name} was applied anew to the same `square`"
    assert row.remedy == f"apply jax.{name} once, outside the loop"


def test_jit_of_a_stable_function_in_a_loop_is_no_retrace() -> None:
    def run() -> None:
        for _ in range(3):
            jax.jit(square)(X)

    assert rows(run) == []


def test_jitted_function_made_anew_inside_a_cond() -> None:
    def run() -> None:
        for _ in range(2):
            jax.lax.cond(True, jax.jit(square), jax.jit(square), X)

    row = only_row(run, "jax.lax.cond")
    assert row.cause == "jax.jit was applied anew to the same `square`"


# --- arguments -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "before", "after", "change"),
    [
        ("shape", lambda: jnp.ones(8), lambda: jnp.ones(9), "x: f32[8] → f32[9]"),
        ("dtype", lambda: jnp.ones(8), lambda: jnp.ones(8, int), "x: f32[8] → i32[8]"),
        ("weak type", lambda: jnp.float32(1), lambda: 1.0, "x: f32[] → f32[] (weak)"),
    ],
)
def test_another_type_of_argument(word: str, before: Any, after: Any, change: str) -> None:
    first, second = before(), after()

    def run() -> None:
        step = jax.jit(lambda x: x * 2)
        step(first)
        step(second)

    row = only_row(run, "step(second)")
    assert row.kind == "shape"
    assert row.cause == f"another {word}, {change}"
    assert "`x`" in row.remedy
    assert (row.calls, row.compiles) == (1, 1)


def test_the_argument_that_differs_is_found_in_a_tree() -> None:
    def run() -> None:
        step = jax.jit(lambda params, x: params["w"] @ x)
        for n in (2, 3):
            step({"w": np.ones((n, 2), np.float32), "b": np.ones(3)}, np.ones(2, np.float32))

    assert only_row(run, 'step({"w"').cause == "another shape, params['w']: f32[2,2] → f32[3,2]"


def test_another_tree_structure() -> None:
    def run() -> None:
        total = jax.jit(lambda batch: sum(batch.values()))
        for names in ("ab", "abc"):
            total(dict.fromkeys(names, X))

    row = only_row(run, "total(dict")
    assert row.kind == "structure"
    assert row.cause.startswith("another tree structure, batch: dict")
    assert "2 child" in row.cause
    assert "3 child" in row.cause


@pytest.mark.parametrize("by_name", [False, True])
def test_another_static_argument(by_name: bool) -> None:
    def run() -> None:
        power = jax.jit(lambda x, n: x**n, static_argnames="n")
        for n in (2, 3):
            power(X, n=n) if by_name else power(X, n)

    row = only_row(run, "power(X, n")
    assert row.kind == "static"
    assert row.cause == "another static argument, n: 2 → 3"
    assert "pass `n` as an ordinary argument" in row.remedy


def test_function_made_again_as_a_static_argument() -> None:
    def run() -> None:
        apply = jax.jit(lambda f, x: f(x), static_argnums=0)
        for _ in range(2):
            apply(lambda x: x + 1, X)

    row = only_row(run, "apply(lambda")
    assert row.kind == "static"
    assert "f: function" in row.cause
    assert "make `f` once and keep it" in row.remedy


def test_matmul_precision() -> None:
    def run() -> None:
        product = jax.jit(lambda x: x @ x)
        for precision in ("float32", "bfloat16"):
            with jax.default_matmul_precision(precision):
                product(X)

    row = only_row(run, "product(X)")
    assert row.kind == "context"
    assert "default_matmul_precision: float32 → bfloat16" in row.cause


def test_x64() -> None:
    def run() -> None:
        product = jax.jit(lambda x: x * 2)
        for x64 in (False, True):
            with jax.enable_x64(x64):
                product(X)

    row = only_row(run, "product(X)")
    assert row.kind == "context"
    assert "enable_x64: False → True" in row.cause


def test_mesh() -> None:
    mesh = jax.make_mesh((1,), ("data",))

    def run() -> None:
        product = jax.jit(lambda x: x * 2)
        product(np.ones(3, np.float32))
        with jax.set_mesh(mesh):
            product(np.ones(3, np.float32))

    (row,) = (row for row in rows(run) if "product" in row.source)
    assert row.kind == "context"
    assert "mesh" in row.cause


def test_cleared_cache_is_what_jax_says() -> None:
    def run() -> None:
        step = jax.jit(lambda x: x * 3)
        for _ in range(2):
            step(X)
            step.clear_cache()

    row = only_row(run, "step(X)")
    assert row.kind == "other"
    assert "jax holds no trace of this function any more" in row.cause


# --- what is a re-trace ----------------------------------------------------------------------


def test_shape_traced_before_the_report_is_known() -> None:
    step = jax.jit(lambda x: x * 2 + 7)
    step(jnp.ones(8))

    def run() -> None:
        step(np.ones(9, np.float32))

    assert "x: f32[8] → f32[9]" in only_row(run, "step(np").cause


def test_first_traces_at_several_lines_are_none() -> None:
    def run() -> None:
        jnp.zeros(3) + jnp.zeros(3)
        jnp.zeros(5) + jnp.zeros(5)
        nnx.Linear(2, 3, rngs=nnx.Rngs(0))
        nnx.Linear(3, 4, rngs=nnx.Rngs(0))
        jax.jit(lambda x: x + 1)(X)
        jax.jit(lambda x: x - 1)(X)

    assert rows(run) == []


def test_one_tree_map_is_one_run_of_its_line() -> None:
    params = {"a": jnp.ones(3), "b": jnp.ones(4), "c": jnp.ones((5, 2))}

    def run() -> None:
        for _ in range(2):
            jax.tree.map(lambda p: p - 0.1 * p, params)
            optax.adam(0.1).init(params)

    assert rows(run) == []


def test_eager_operation_at_another_size_is_a_retrace() -> None:
    values = [np.ones(n, np.float32) for n in (2, 3, 4)]

    def run() -> None:
        for value in values:
            jnp.cumsum(value)

    row = only_row(run, "jnp.cumsum(value)")
    assert row.calls == 2
    assert "f32[2] → f32[3]" in row.cause


def test_a_retrace_takes_what_it_traces_inside() -> None:
    inner = jax.jit(lambda x: x * 5)

    def run() -> None:
        outer = jax.jit(lambda x: jax.lax.cond(True, inner, lambda y: y, x))
        for n in (6, 7):
            outer(np.ones(n, np.float32))

    row = only_row(run, "outer(np")
    assert row.cause == "another shape, x: f32[6] → f32[7]"
    assert row.traces > 2
    assert row.compiles == 1


def test_mixed_causes_are_kept_apart() -> None:
    model = nnx.Linear(4, 4, rngs=nnx.Rngs(0))
    scaled = jax.jit(lambda x, n: x * n, static_argnums=1)
    summed = jax.jit(lambda batch: batch.sum())

    def forward(m: Any, x: Any) -> Any:
        return m(x)

    def run() -> None:
        for k in range(3):
            nnx.cond(True, forward, forward, model, X)
            jax.jit(jax.grad(square))(X)
            jax.jit(lambda x: x + k)(X)
            scaled(X, k)
            summed(np.ones(k + 5, np.float32))
            jax.jit(functools.partial(shift, by=2.0))(X)

    found = sorted(rows(run), key=lambda row: row.line)
    first = line_of(run, "nnx.cond(")
    assert [(row.kind, row.line - first, row.calls) for row in found] == [
        ("wrapper", 0, 2),
        ("transform", 1, 2),
        ("function", 2, 2),
        ("static", 3, 2),
        ("shape", 4, 2),
        ("partial", 5, 2),
    ]
    assert "k: 0 → 1" in found[2].cause
    assert found[2].examples == (found[2].cause.replace("0 → 1", "1 → 2"),)
    assert "batch: f32[5] → f32[6]" in found[4].cause


def test_two_lambdas_on_one_line_are_told_apart_by_what_they_capture() -> None:
    def run() -> None:
        for k in (1, 2):
            jax.lax.cond(True, lambda x: x * k, lambda x: x * 2, X)

    causes = sorted(row.cause.rpartition("by its line")[2] for row in rows(run))
    assert causes == [" with equal captures", ": k: 1 → 2"]


@pytest.mark.parametrize(
    ("call", "remedy"),
    [
        (lambda w: jax.lax.scan(lambda c, x: (c + w * x, None), w, w), "`scan` from fnintern.lax"),
        (lambda w: jax.lax.cond(True, lambda: w, lambda: 2 * w), "`cond` from fnintern.lax"),
        (lambda w: jax.jit(lambda x: w * x)(w), "fnintern.jit"),
    ],
    ids=["scan", "cond", "jit"],
)
def test_a_captured_array_is_for_closure_conversion(call: Any, remedy: str) -> None:
    with retraces() as seen:
        for number in range(3):
            call(jnp.full(3, float(number)))
    assert remedy in seen.rows[0].remedy

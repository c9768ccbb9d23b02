"""A call of ``nnx.cond``: patched, as installed, by flax's own memo, and ``jax.lax.cond``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from benchmarks.tables import Check, Result, Table
from benchmarks.timing import Spread, race, ratios, time_once

__all__ = ["run"]

MODES: dict[str, dict[str, bool]] = {
    "default mode": {},
    "graph_updates=False": {"graph_updates": False},
    "graph=False": {"graph": False},
}


TITLE = "A call of nnx.cond"
NOTES = """\
`nnx.cond` of the same two functions, patched by object, in calls of each rival; and patched by
value (the default of `patch_flax()`) in calls of by object: median (quartiles)."""


def run(rounds: int, number: int, show: Callable[[str], None]) -> Result:
    """The table's lines."""
    try:
        import jax
        import jax.numpy as jnp
        from flax import nnx
        from flax.nnx.transforms import transforms
    except ImportError as error:
        return Result(TITLE, f"Not measured: {error}.")

    from fnintern import patch_flax
    from fnintern.interning.decorator import By

    model, x = nnx.Linear(4, 4, rngs=nnx.Rngs(0)), jnp.ones(4)
    kernel, bias = model.kernel[...], model.bias[...]

    def up(model: Any, x: Any) -> Any:
        return model(x) + 1

    def down(model: Any, x: Any) -> Any:
        return model(x) - 1

    def up_arrays(kernel: Any, bias: Any, x: Any) -> Any:
        return x @ kernel + bias + 1

    def down_arrays(kernel: Any, bias: Any, x: Any) -> Any:
        return x @ kernel + bias - 1

    def limit() -> Any:
        return jax.block_until_ready(jax.lax.cond(True, up_arrays, down_arrays, kernel, bias, x))

    def call(mode: dict[str, bool]) -> Any:
        return jax.block_until_ready(nnx.cond(True, up, down, model, x, **mode))

    def patched(by: By, mode: dict[str, bool]) -> float:
        with patch_flax(by=by):
            call(mode)  # each patch has wrappers of its own, and traces them once
            return time_once("call(mode)", {"call": call, "mode": mode}, number)

    memo = hasattr(transforms, "_get_cached_wrapper")

    def installed(mode: dict[str, bool]) -> float:
        call(mode)
        # Where it compiles at every call, a few calls tell.
        few = number if memo and mode else max(1, number // 100)
        return time_once("call(mode)", {"call": call, "mode": mode}, few)

    rows, checks = [], []
    for name, mode in MODES.items():
        rivals = {
            "patched": functools.partial(patched, "object", mode),
            "by value": functools.partial(patched, "value", mode),
            "installed": functools.partial(installed, mode),
            "limit": functools.partial(time_once, "limit()", {"limit": limit}, number),
        }
        seconds = race(rivals, rounds, lambda line: show(f"nnx.cond, {name}: {line}"))
        ours = seconds["patched"]
        ratio = ratios(ours, seconds["installed"])
        of_memo, of_none = "none", str(ratio)
        if memo and mode:
            checks.append(Check(f"nnx.cond, {name}, by object / flax's memo", ratio.median, 1.1))
            of_memo, of_none = str(ratio), ""
        value = ratios(seconds["by value"], ours)
        checks.append(Check(f"nnx.cond, {name}, by value / by object", value.median, 1.1))
        ms = Spread.of(seconds["by value"]).median * 1e3
        limits = str(ratios(ours, seconds["limit"]))
        rows.append([name, limits, of_memo, of_none, str(value), f"{ms:.3f}"])
    heads = [
        "mode",
        "jax.lax.cond",
        "flax, its memo",
        "flax, no memo",
        "by value / by object",
        "by value, ms",
    ]
    return Result(TITLE, NOTES, [Table(heads, rows)], checks)

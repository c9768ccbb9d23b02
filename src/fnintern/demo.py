"""``python -m fnintern demo``: google/flax#5512 on the installed flax, without and with the patch.

Each half runs in a process of its own, so that neither finds what the other has traced. Importing
this module imports neither jax nor flax; the processes it starts do.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.metadata
import importlib.util
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import attrs

from fnintern.libraries.missing import install

__all__ = ["Measured", "Row", "main"]

OPERATIONS: Final = ("nnx.cond", "nnx.switch")
#: What a call looks like, and the keyword arguments it adds.
MODES: Final[dict[str, dict[str, bool]]] = {
    "default mode": {},
    "graph_updates=False": {"graph_updates": False},
    "graph=False": {"graph": False},
}
#: What the branches are, and how the table calls them.
KINDS: Final = {
    "functions": "module-level functions",
    "partials": "functools.partial, made again for each call",
    "methods": "bound methods of a plain object",
    "lambdas": "lambdas, made again for each call",
}
COMPILE_EVENT: Final = "/jax/core/compile/backend_compile_duration"


@attrs.frozen
class Measured:
    """What one call costs once the first is over.

    Attributes:
        misses: tracing cache misses a call, or None where this jax does not tell.
        compilations: XLA compilations a call, or None where this jax does not tell.
        ms: median milliseconds a call.
    """

    misses: float | None
    compilations: float | None
    ms: float


@attrs.frozen
class Row:
    """One line of the table.

    Attributes:
        operation: ``"nnx.cond"`` or ``"nnx.switch"``.
        mode: one of :data:`MODES`.
        kind: one of :data:`KINDS`.
        before: as installed.
        after: with ``patch_flax()``.
        limit: ``jax.lax`` with functions that stay the same, on the same arrays.
    """

    operation: str
    mode: str
    kind: str
    before: Measured
    after: Measured
    limit: Measured


# What the processes run -----------------------------------------------------------------------


def true_fn(model: Any, x: Any) -> Any:
    return model(x) + 1


def false_fn(model: Any, x: Any) -> Any:
    return model(x) - 1


def scaled_fn(scale: int, model: Any, x: Any) -> Any:
    return model(x) * scale


class Plain:
    """An object of no library's, whose methods are branches."""

    def up(self, model: Any, x: Any) -> Any:
        return model(x) + 1

    def down(self, model: Any, x: Any) -> Any:
        return model(x) - 1


def _branch_maker(kind: str) -> Callable[[], list[Callable[..., Any]]]:
    """What gives the two branches of a call, as a user's code would spell them there."""
    if kind == "functions":
        return lambda: [true_fn, false_fn]
    if kind == "partials":
        return lambda: [functools.partial(scaled_fn, 2), functools.partial(scaled_fn, -2)]
    if kind == "methods":
        plain = Plain()
        return lambda: [plain.up, plain.down]
    return lambda: [lambda model, x: model(x) + 1, lambda model, x: model(x) - 1]


def _tracing_counter() -> Callable[[], contextlib.AbstractContextManager[Callable[[], int]]] | None:
    """jax's own counter of tracing cache misses, the only one there is. The one private name."""
    try:
        from jax._src import test_util

        counter = test_util.count_jit_tracing_cache_miss
    except (ImportError, AttributeError):
        return None
    return counter  # type: ignore[no-any-return]


class Counters:
    """Counts tracing cache misses and compilations, each after a trial that shows it counts."""

    def __init__(self) -> None:
        import jax

        self._compiled = 0
        self._tracing = _tracing_counter()
        jax.monitoring.register_event_duration_secs_listener(self._on_event)
        misses, compilations = self._count(lambda: jax.jit(lambda x: x + 1)(1))
        # A counter that does not move is one that a later jax has renamed.
        self._can_trace = bool(misses)
        self._can_compile = bool(compilations)

    def _on_event(self, event: str, seconds: float, **kwargs: Any) -> None:
        self._compiled += event == COMPILE_EVENT

    def _count(self, run: Callable[[], Any]) -> tuple[int, int]:
        before = self._compiled
        with self._tracing() if self._tracing else contextlib.nullcontext(lambda: 0) as misses:
            run()
            return misses(), self._compiled - before

    def missing(self) -> list[str]:
        """What this jax does not tell, in words."""
        names = []
        if not self._can_trace:
            names.append("tracing cache misses (jax._src.test_util.count_jit_tracing_cache_miss)")
        if not self._can_compile:
            names.append(f"compilations (jax.monitoring event {COMPILE_EVENT})")
        return names

    def measure(self, call: Callable[[int], Any], calls: int) -> Measured:
        """Runs ``call(i)`` once, and then ``calls`` times for the figures."""
        import jax

        times = []

        def run() -> None:
            for i in range(1, calls + 1):
                start = time.perf_counter()
                jax.block_until_ready(call(i))
                times.append((time.perf_counter() - start) * 1e3)

        jax.block_until_ready(call(0))
        misses, compilations = self._count(run)
        return Measured(
            misses / calls if self._can_trace else None,
            compilations / calls if self._can_compile else None,
            statistics.median(times),
        )


def _caller(operation: str, branches: Callable[[], Any], *operands: Any, **mode: Any) -> Any:
    """The call to measure, which takes turns between the branches."""
    from flax import nnx

    if operation == "nnx.cond":
        return lambda i: nnx.cond(i % 2 == 0, *branches(), *operands, **mode)
    return lambda i: nnx.switch(i % 2, branches(), *operands, **mode)


def _limit(counters: Counters, operation: str, calls: int) -> Measured:
    import jax
    import jax.numpy as jnp

    def up(kernel: Any, bias: Any, x: Any) -> Any:
        return x @ kernel + bias + 1

    def down(kernel: Any, bias: Any, x: Any) -> Any:
        return x @ kernel + bias - 1

    arrays = jnp.ones((4, 4)), jnp.ones(4), jnp.ones(4)
    if operation == "nnx.cond":
        return counters.measure(lambda i: jax.lax.cond(i % 2 == 0, up, down, *arrays), calls)
    return counters.measure(lambda i: jax.lax.switch(i % 2, [up, down], *arrays), calls)


def _measure_all(patched: bool, calls: int) -> dict[str, Any]:
    """All rows in this process, as JSON would have them."""
    import jax.numpy as jnp
    from flax import nnx

    from fnintern import patch_flax

    if patched:
        patch_flax()
    counters = Counters()
    model = nnx.Linear(4, 4, rngs=nnx.Rngs(0))
    x = jnp.ones(4)
    cases = list(itertools.product(KINDS, OPERATIONS, MODES))
    what = "with patch_flax()" if patched else "as installed"
    rows = {}
    with _progress() as show:
        for number, (kind, operation, mode) in enumerate(cases, 1):
            show(f"{what}: {number} of {len(cases)}, {operation} of {kind}, {mode}")
            call = _caller(operation, _branch_maker(kind), model, x, **MODES[mode])
            rows[f"{operation}|{mode}|{kind}"] = attrs.asdict(counters.measure(call, calls))
        limits = {name: attrs.asdict(_limit(counters, name, calls)) for name in OPERATIONS}
    return {"rows": rows, "limits": limits, "missing": counters.missing()}


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Shows one line on stderr that is written over; where nobody watches, only the first."""
    tty = sys.stderr.isatty()
    shown = 0

    def show(line: str) -> None:
        nonlocal shown
        if tty:
            print(f"\r{line[:79]:79}", end="", file=sys.stderr, flush=True)
        elif not shown:
            print(line, file=sys.stderr, flush=True)
        shown += 1

    try:
        yield show
    finally:
        if tty and shown:
            print("\r" + " " * 79 + "\r", end="", file=sys.stderr, flush=True)


# What starts them, and prints -----------------------------------------------------------------


def _in_a_process(half: str, calls: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "fnintern", "demo", "--half", half, "--calls", str(calls)]
    # A program from the disk is counted as compiled, and costs less than a compilation.
    environment = os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the process that measures the {half} half failed; see above")
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def _rows(before: dict[str, Any], after: dict[str, Any]) -> list[Row]:
    rows = []
    for key, measured in before["rows"].items():
        operation, mode, kind = key.split("|")
        rows.append(
            Row(
                operation,
                mode,
                kind,
                Measured(**measured),
                Measured(**after["rows"][key]),
                Measured(**after["limits"][operation]),
            )
        )
    return rows


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:g}" if value == int(value) else f"{value:.1f}"


def _table(rows: Sequence[Row]) -> str:
    """The rows as plain text, at most 80 columns wide."""
    lines = [
        f"{'':20}{'tracing cache misses':^22}{'compilations':^18}{'ms a call':^20}".rstrip(),
        f"{'a call':20}" + f"{'before':>8}{'after':>6}{'limit':>6}" * 3,
    ]
    for (operation, kind), group in itertools.groupby(rows, lambda r: (r.operation, r.kind)):
        lines.append(f"{operation}, {KINDS[kind]}")
        for row in group:
            three = (row.before, row.after, row.limit)
            cells = [
                *(_number(m.misses) for m in three),
                *(_number(m.compilations) for m in three),
                *(f"{m.ms:.1f}" if m.ms >= 9.95 else f"{m.ms:.2f}" for m in three),
            ]
            widths = (8, 6, 6) * 3
            figures = (f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
            lines.append(f" {row.mode:19}" + "".join(figures))
    return "\n".join(lines)


def _hits(measured: Measured) -> bool:
    return measured.misses == 0 and measured.compilations == 0


def _verdict(rows: Sequence[Row]) -> str:
    hits = [row for row in rows if _hits(row.after)]
    text = f"After patch_flax(), {len(hits)} of {len(rows)} calls trace and compile nothing"
    others = sorted({KINDS[row.kind] for row in rows if not _hits(row.after)})
    return f"{text}.\nStill traced again: {'; '.join(others)}." if others else f"{text}."


def _versions() -> dict[str, str]:
    packages = ("fnintern", "flax", "jax")
    versions = {}
    for name in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return {"python": platform.python_version(), **versions}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the demo; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m fnintern demo",
        description="nnx.cond and nnx.switch called again and again, as installed and patched: "
        "tracing cache misses, compilations and milliseconds a call.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--calls", type=int, default=10, help="calls after the first (%(default)s)")
    parser.add_argument("--half", choices=("before", "after"), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.calls < 1:
        parser.error(f"--calls {options.calls}: expected 1 or more")
    for name in ("jax", "flax"):
        if importlib.util.find_spec(name) is None:
            parser.exit(
                2,
                f"the demo needs flax and jax, and {name} is not installed. "
                f"Install both with: {install('flax')}\n",
            )
    if options.half:
        print(json.dumps(_measure_all(options.half == "after", options.calls)))
        return 0
    before, after = (_in_a_process(half, options.calls) for half in ("before", "after"))
    rows = _rows(before, after)
    for name in after["missing"]:
        print(f"This jax does not tell {name}: shown as '?'.", file=sys.stderr)
    if options.json:
        print(
            json.dumps(
                {
                    "versions": _versions(),
                    "machine": platform.machine(),
                    "calls": options.calls,
                    "uncounted": after["missing"],
                    "rows": [attrs.asdict(row) for row in rows],
                },
                indent=2,
            )
        )
        return 0
    versions = ", ".join(f"{name} {version}" for name, version in _versions().items())
    print(f"google/flax#5512: {options.calls} eager calls after the first.\n{versions}\n")
    print(_table(rows))
    print(f"\nlimit: jax.lax.cond or jax.lax.switch with functions that stay.\n{_verdict(rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

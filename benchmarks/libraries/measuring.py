"""Counts what programs trace and compile: each library and variant in a process of its own."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pickle
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import attrs

from benchmarks.libraries.program import Program, programs

__all__ = ["VARIANTS", "Count", "count", "missing", "same_results", "table"]

#: How a program is run: as it is, under ``patch_jax()``, with its user's line.
VARIANTS = ("before", "patch_jax", "patch_all", "recipe")
#: Calls before counting starts, and calls that are counted.
WARM, COUNTED = 3, 2


@attrs.frozen
class Count:
    """What one program did in one variant.

    Attributes:
        traces: tracing cache misses a call.
        compiles: compilations a call.
        results: what each call returned, as flat lists of NumPy arrays.
        error: what was raised, if anything.
    """

    traces: float = 0.0
    compiles: float = 0.0
    results: tuple[list[Any], ...] = attrs.field(default=(), repr=False, eq=False)
    error: str = ""

    @property
    def nothing(self) -> bool:
        return not self.error and not self.traces and not self.compiles

    def __str__(self) -> str:
        return self.error or f"{self.traces:g}/{self.compiles:g}"


def missing(program: Program) -> str:
    """Which module the program needs and does not find, or an empty string."""
    for name in program.modules:
        if importlib.util.find_spec(name) is None:
            return f"{name} is not installed"
    return ""


def has_patch_jax() -> bool:
    import fnintern

    return hasattr(fnintern, "patch_jax")


def _around(program: Program, variant: str) -> AbstractContextManager[Any]:
    import fnintern

    if variant == "patch_jax":
        # By its name, since this package is older than the patch.
        made: AbstractContextManager[Any] = getattr(fnintern, "patch_jax")()  # noqa: B009
        return made
    if variant == "patch_all":
        everything: AbstractContextManager[Any] = getattr(fnintern, "patch_all")()  # noqa: B009
        return everything
    return program.patch() if variant == "recipe" else contextlib.nullcontext()


def count(program: Program, variant: str) -> Count:
    """Counts one program in this process.

    The calls before counting warm up what the program keeps; each call has other numbers.
    """
    import jax
    from jax._src import test_util

    with warnings.catch_warnings(), _around(program, variant):
        warnings.simplefilter("ignore")
        call = program.build(variant == "recipe")
        results = [call(i) for i in range(WARM)]
        with (
            test_util.count_jit_tracing_cache_miss() as traced,
            test_util.count_jit_compilation_cache_miss() as compiled,
        ):
            results += [call(i) for i in range(WARM, WARM + COUNTED)]
        return Count(
            traced() / COUNTED,
            compiled() / COUNTED,
            tuple([jax.device_get(leaf) for leaf in jax.tree.leaves(r)] for r in results),
        )


def same_results(count: Count, other: Count) -> bool:
    """Whether two variants computed the same, to the tolerance of a reordered sum."""
    import numpy as np

    pairs = list(zip(count.results, other.results, strict=True))
    return all(
        len(a) == len(b)
        and all(
            np.allclose(x, y, rtol=1e-4, atol=1e-5, equal_nan=True)
            for x, y in zip(a, b, strict=True)
        )
        for a, b in pairs
    )


#: What the process of a library and variant runs.
CHILD = "import sys; from benchmarks.libraries.measuring import run; run(*sys.argv[1:])"


def run(library: str, variant: str, output: str) -> None:
    """In the process of its own: counts the programs of one library."""
    import jax

    found = {}
    for program in programs():
        if program.library != library or missing(program):
            continue
        if variant == "recipe" and not program.recipe:
            continue
        jax.clear_caches()  # so that no program helps the next
        try:
            found[program.id] = count(program, variant)
        except Exception as error:
            found[program.id] = Count(error=type(error).__name__)
            print(f"{program.id}, {variant}: {error!r:.500}", file=sys.stderr)
    Path(output).write_bytes(pickle.dumps(found))


def table(variants: Iterable[str] = VARIANTS, only: str = "") -> dict[str, dict[str, Count]]:
    """Variant -> program's id -> what was counted. ``only`` names one library."""
    libraries = dict.fromkeys(p.library for p in programs() if only in ("", p.library))
    found: dict[str, dict[str, Count]] = {variant: {} for variant in variants}
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    environment = {**os.environ, "XLA_FLAGS": flags.strip(), "TQDM_DISABLE": "1"}
    with tempfile.TemporaryDirectory() as folder:
        for library in libraries:
            for variant in variants:
                print(f"{library}, {variant} ...", file=sys.stderr, flush=True)
                output = Path(folder) / "counts"
                command = [sys.executable, "-c", CHILD, library, variant, str(output)]
                subprocess.run(command, check=True, env=environment)
                found[variant] |= pickle.loads(output.read_bytes())
    return found

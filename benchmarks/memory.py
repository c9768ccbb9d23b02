"""Memory over many eager calls of ``nnx.cond``, with and without the patch.

Each line is measured in a process of its own, so that none starts with what another has left:
``python -m benchmarks.memory NAME CALLS 0|1`` is such a process, and prints JSON.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs

from benchmarks.tables import Lines, Result, Table

__all__ = ["CASES", "Grown", "grown", "run"]

ROOT = Path(__file__).parent.parent
#: Calls before the first look, and how many looks follow.
WARM, LOOKS = 20, 10
#: Unpatched a call costs 20 to 80 ms and up to 0.5 MiB, which for ten thousand is too much.
FEWER = 25

NOTES = """\
What eager calls of `nnx.cond` leave behind, each line in a process of its own, after a
collection. *functions alive*: of those that were passed and dropped. *objects*: those of the
collector, a call. *RSS*: of the process, in MiB per 1,000 calls. What remains of an unpatched call
is jax's own cache of compiled programs, which holds up to 4,096. Unpatched there are fewer calls,
for each traces and compiles; their figures are per call, so that they compare."""


@attrs.frozen
class Grown:
    """What some calls left.

    Attributes:
        alive: functions that live on, of ``made``.
        objects: by how many the collector's objects grew; it may be that some went.
        rss: by how many MiB the process grew, up to each look.
    """

    calls: int
    made: int
    alive: int
    objects: int
    rss: list[tuple[int, float]]


def _constants(mode: dict[str, bool]) -> Callable[[int], Any]:
    """Lambdas made again for each call, over nothing."""
    return lambda number: (lambda x: x + 1.0, lambda x: x - 1.0)


def _arrays(mode: dict[str, bool]) -> Callable[[int], Any]:
    """Lambdas over an array that is new for each call."""
    import jax.numpy as jnp

    def make(number: int) -> Any:
        array = jnp.float32(number)
        return (lambda x: x + array, lambda x: x - array)

    return make


#: Name -> what makes the branches, the mode, and by how much less often it is called.
CASES: dict[str, tuple[Callable[[dict[str, bool]], Callable[[int], Any]], dict[str, bool], int]] = {
    "lambdas, default mode": (_constants, {}, 1),
    "lambdas, graph_updates=False": (_constants, {"graph_updates": False}, 1),
    "lambdas over a new array, default mode": (_arrays, {}, FEWER),
}


#: The lines of the plot; the others lie upon the first.
PLOTTED = (
    "lambdas, default mode, as installed",
    "lambdas over a new array, default mode, patched",
    "lambdas, default mode, patched",
)


def _rss() -> float:
    """MiB of this process that are in memory, or 0 where only another system would tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def grown(name: str, calls: int, patched: bool) -> Grown:
    """Runs a case in this process."""
    import jax
    import jax.numpy as jnp
    from flax import nnx

    from fnintern import patch_flax

    if patched:
        patch_flax()
    maker, mode, _ = CASES[name]
    make, x = maker(mode), jnp.float32(3.0)
    # Forgets what dies: a list of weak references would be a part of the growth.
    alive: weakref.WeakSet[Any] = weakref.WeakSet()

    def call(number: int) -> None:
        t, f = make(number)
        alive.update((t, f))
        jax.block_until_ready(nnx.cond(number % 2 == 0, t, f, x, **mode))

    for number in range(WARM):
        call(number)
    gc.collect()
    alive.clear()
    rss, objects, looks = _rss(), len(gc.get_objects()), []
    for number in range(calls):
        call(WARM + number)
        if (number + 1) % max(1, calls // LOOKS) == 0:
            gc.collect()
            looks.append((number + 1, _rss() - rss))
    return Grown(calls, 2 * calls, len(alive), len(gc.get_objects()) - objects, looks)


def _in_a_process(name: str, calls: int, patched: bool) -> Grown:
    command = [sys.executable, "-m", "benchmarks.memory", name, str(calls), str(int(patched))]
    settings = {"JAX_ENABLE_COMPILATION_CACHE": "false", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | settings, stdout=subprocess.PIPE, text=True, check=True
    )
    return Grown(**json.loads(done.stdout.splitlines()[-1]))


def run(rounds: int, calls: int, show: Callable[[str], None]) -> Result:
    """Two rows for each case. There is one round, since memory is no matter of the clock."""
    rows: list[Sequence[str]] = []
    lines: dict[str, Sequence[tuple[float, float]]] = {}
    for name, (_, _, fewer) in CASES.items():
        for patched in (False, True):
            number = calls // (fewer if patched else FEWER)
            title = f"{name}, {'patched' if patched else 'as installed'}"
            show(f"{title}: {number} calls")
            found = _in_a_process(name, number, patched)
            rows.append(
                [
                    name,
                    "patched" if patched else "as installed",
                    f"{number:,}",
                    f"{found.alive:,} of {found.made:,}",
                    f"{max(0, found.objects) / number:.2f}",
                    f"{found.rss[-1][1] / number * 1000:.1f}",
                ]
            )
            if title in PLOTTED:
                lines[title] = found.rss
    plot = Lines("memory", "Growth of the process", "calls of nnx.cond", "MiB", lines, log="x")
    heads = ["calls of nnx.cond", "flax", "calls", "functions alive", "objects a call", "RSS"]
    return Result("Memory", NOTES, [Table(heads, rows, words=2)], plots=[plot])


if __name__ == "__main__":
    found = grown(sys.argv[1], int(sys.argv[2]), sys.argv[3] == "1")
    print(json.dumps(attrs.asdict(found)))

"""What patched code asks of JAX's compilation cache on disk: one request for each pair of branches.

google/flax#5512 found the disk cache defeated too: every eager call asked it again.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flax")

#: Prints, for each pair of branches and mode, the cache events of each of three calls.
PROGRAM = """
import collections, functools, json, sys
import jax, numpy as np
from flax import nnx
import fnintern

model = nnx.Linear(4, 4, rngs=nnx.Rngs(0))
# What jax.lax.switch compiles for itself, once, to clamp an index.
jax.lax.switch(1, [lambda x: x, lambda x: x + 1], 1.0)
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
if sys.argv[2] == "patched":
    fnintern.patch_flax()

events = collections.Counter()
prefix = "/jax/compilation_cache/"
jax.monitoring.register_event_listener(
    lambda event, **_: events.update([event.removeprefix(prefix)] * event.startswith(prefix))
)

def up(model, x): return model(x) + 1
def down(model, x): return model(x) - 1
def add(amount, model, x): return model(x) + amount
class Plain:
    def up(self, model, x): return model(x) * 3
    def down(self, model, x): return model(x) * -3
plain = Plain()

pairs = {
    "functions": lambda: [up, down],
    "partials": lambda: [functools.partial(add, 5), functools.partial(add, -5)],
    "methods": lambda: [plain.up, plain.down],
}
seen = {}
for name, pair in pairs.items():
    for mode in {}, {"graph_updates": False}:
        for op in "cond", "switch":
            calls = seen[f"{op} {name} {mode}"] = []
            # A shape of its own: both modes compile to one program where nothing else differs.
            x = np.ones((len(seen), 4), np.float32)
            for _ in range(3):
                events.clear()
                if op == "cond":
                    y = nnx.cond(True, *pair(), model, x, **mode)
                else:
                    y = nnx.switch(1, [*pair(), up], model, x, **mode)
                jax.block_until_ready(y)
                calls.append(dict(events))
print(json.dumps(seen))
"""

REQUESTS, HITS, MISSES = "compile_requests_use_cache", "cache_hits", "cache_misses"

Seen = dict[str, list[dict[str, int]]]


def run(directory: Path, patched: str) -> Seen:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(directory), patched],
        env=environment | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen: Seen = json.loads(done.stdout.splitlines()[-1])
    return seen


def test_persistent_cache_second_process_compiles_nothing(tmp_path: Path) -> None:
    """The first process stores each program, the second loads it; later calls ask for nothing."""
    first = run(tmp_path, "patched")
    stored = {path.name for path in tmp_path.iterdir() if not path.name.endswith("-atime")}
    second = run(tmp_path, "patched")
    assert len(first) == len(second) == 12
    for name, (call, *later) in first.items():
        assert call == {REQUESTS: 1, MISSES: 1}, name
        assert later == [{}, {}], name
    for name, (call, *later) in second.items():
        assert call == {REQUESTS: 1, HITS: 1}, name
        assert later == [{}, {}], name
    assert {path.name for path in tmp_path.iterdir() if not path.name.endswith("-atime")} == stored
    assert len(stored) == 12


def test_persistent_cache_is_asked_at_every_call_without_the_patch(tmp_path: Path) -> None:
    """What the patch mends is there to be mended, and the events of the test above see it."""
    seen = run(tmp_path, "as installed")
    for name in ("cond functions {}", "switch functions {}", "cond partials {}"):
        assert [call.get(REQUESTS) for call in seen[name]] == [1, 1, 1], name

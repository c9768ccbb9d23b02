"""Two processes of ``jax.distributed`` compile the same programs in the same order, whatever their
garbage collectors do. Where one compiled what the other did not, both would wait for ever."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import fnintern

PROGRAM = """
import gc, json, logging, re, sys
import fnintern
number, address, collector, patched = int(sys.argv[1]), *sys.argv[2:5]
if patched == "patched":
    fnintern.patch_all()
if collector == "off":
    gc.disable()
else:
    gc.set_threshold(int(collector), 2, 2)
import jax
jax.distributed.initialize(address, num_processes=2, process_id=number)
jax.config.update("jax_log_compiles", True)
compiled = []
class Compiled(logging.Handler):
    def emit(self, record):
        text = record.getMessage()
        if text.startswith("Compiling"):
            compiled.append(re.sub(r"0x[0-9a-f]+", "", text))
logging.getLogger("jax").addHandler(Compiled())
logging.getLogger("jax").propagate = False

import jax.numpy as jnp
import numpy as np
from flax import nnx
from functools import partial
from jax.sharding import Mesh, NamedSharding, PartitionSpec
mesh = Mesh(np.array(jax.devices()), "x")
everywhere = NamedSharding(mesh, PartitionSpec("x"))
xs = jax.make_array_from_process_local_data(everywhere, np.arange(2.0, dtype=np.float32))

class Layer:
    def __init__(self, rate):
        self.rate, self.me = rate, self  # a cycle, which the collector alone frees
    def __call__(self, x):
        return x * self.rate

results = []
for step in range(40):
    w = jnp.float32(step)
    layer = Layer(float(step % 7))
    results.append(jax.lax.map(lambda x: w * layer(x), jnp.arange(3.0)))
    results.append(jax.jit(lambda x: x * layer.rate)(w))
    results.append(jax.jit(partial(jnp.add, step % 3))(w))
    model = nnx.Linear(2, 2, rngs=nnx.Rngs(step))
    results.append(nnx.cond(step % 2, lambda m, x: m(x), lambda m, x: x, model, jnp.ones((1, 2))))
    results.append(nnx.jit(lambda m, x: m(x) * layer.rate)(model, jnp.ones((1, 2))))
    if step % 10 == 0:  # of both processes
        results.append(jnp.sum(jax.lax.cond(True, lambda x: x * w, lambda x: x, xs)))
print(json.dumps([compiled, [np.asarray(r.addressable_data(0)).tolist() for r in results]]))
"""


def run(tmp_path: Path, collectors: tuple[str, str], patched: str) -> list[tuple[list[str], Any]]:
    """What each of the two processes compiled, and what it computed."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    source = os.path.dirname(os.path.dirname(fnintern.__file__))
    processes = [
        subprocess.Popen(
            [sys.executable, str(path), str(i), address, collector, patched],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": source, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""},
        )
        for i, collector in enumerate(collectors)
    ]
    try:
        ends = [process.communicate(timeout=240) for process in processes]
    finally:
        for process in processes:
            process.kill()
    found = []
    for process, (out, err) in zip(processes, ends, strict=True):
        assert process.returncode == 0, err[-3000:]
        compiled, results = json.loads(out.splitlines()[-1])
        found.append((compiled, results))
    return found


def test_two_processes_compile_the_same_in_the_same_order(tmp_path: Path) -> None:
    (first, results), (second, other_results) = run(tmp_path, ("off", "50"), "patched")
    assert first == second
    assert results == other_results
    (without, plain), _ = run(tmp_path, ("700", "700"), "plain")
    assert results == plain
    assert 20 < len(first) < len(without) / 2

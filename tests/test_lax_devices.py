"""fnintern.lax over several devices: values, shardings and committed devices are jax.lax's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = r"""
import sys, warnings
warnings.simplefilter("error")
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from fnintern import lax
from lax_calls import XS, assert_same, counted, outcome

devices = jax.devices()
assert len(devices) == 4
mesh = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Auto,))
explicit = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Explicit,))
PLACES = {
    "sharded": NamedSharding(mesh, P("d")),
    "replicated": NamedSharding(mesh, P()),
    "explicit": NamedSharding(explicit, P("d")),
    "another device": devices[1],
    "uncommitted": None,
}
checked = 0

def check(call):
    global checked
    expected, error = outcome(lambda: call(jax.lax))
    for _ in range(2):
        found, own = outcome(lambda: call(lax))
        assert own is error, (own, error)
        assert_same(found, expected)
    checked += 1

def put(place, start=0.0):
    return jax.device_put(jnp.arange(8.0) + start, place)

CALLS = [
    lambda lax, w: lax.cond(True, lambda: w, lambda: w * 2),
    lambda lax, w: lax.cond(True, lambda: w * 3, lambda: w * 2),
    lambda lax, w: lax.switch(1, [lambda: w, lambda: w * 2]),
    lambda lax, w: lax.scan(lambda c, x: (c + w * x, c[0]), w, XS),
    lambda lax, w: lax.scan(lambda c, x: (c + x, w), 0.0, XS),
    lambda lax, w: lax.map(lambda x: x + w, w),
    lambda lax, w: lax.while_loop(lambda c: c.sum() < 90, lambda c: c + w + 1, w),
    lambda lax, w: lax.fori_loop(0, 3, lambda i, c: c + w, jnp.zeros(8)),
    lambda lax, w: lax.reduce(w, 0.0, jax.lax.add, (0,)),
]
for place in PLACES.values():
    for call in CALLS:
        check(lambda lax: call(lax, put(place)))
        check(lambda lax: call(lax, put(place, 1.0)))

# No primitive of JAX: run as one program, XLA may shard what comes of each operation another way.
associative = lambda lax, w: lax.associative_scan(lambda a, b: a + b, w)
for name, place in PLACES.items():
    if name != "sharded":
        check(lambda lax: associative(lax, put(place)))
w = put(PLACES["sharded"])
np.testing.assert_array_equal(associative(lax, w), associative(jax.lax, w))

# Where a capture is placed makes another program of the same functions, in turn.
for place in (*PLACES.values(), *PLACES.values()):
    w = put(place)
    check(lambda lax: lax.map(lambda x: x * w.sum(), XS))

# Different places: the same error, or none where one of them is not read.
one, other = jax.device_put(XS, devices[1]), jax.device_put(XS, devices[2])
held = [one, other]
check(lambda lax: lax.map(lambda x: x + held[1], XS))
check(lambda lax: lax.map(lambda x: x + one + other, XS))
check(lambda lax: lax.scan(lambda c, x: (c, x), one, other))
unread = [put(PLACES["sharded"]), 2.0]
check(lambda lax: lax.map(lambda x: x + unread[1], XS))

with jax.default_device(devices[2]):
    check(lambda lax: lax.map(lambda x: x * 2, np.arange(3.0)))
    check(lambda lax: lax.map(lambda x: x * 2, XS))
check(lambda lax: lax.map(lambda x: x * 2, np.arange(3.0)))

for current in (mesh, explicit):
    with jax.set_mesh(current):
        w = jax.device_put(jnp.arange(8.0), P("d") if current is explicit else PLACES["sharded"])
        zero = jnp.zeros_like(w)
        check(lambda lax: lax.scan(lambda c, x: (c + w * x, None), zero, XS)[0])
        check(lambda lax: lax.cond(True, lambda: w, lambda: w * 2))
        step = lambda c: (c[0] + w, c[1] + 1)
        check(lambda lax: lax.while_loop(lambda c: c[1] < 2, step, (w, 0)))
        if current is mesh:
            everywhere = PLACES["replicated"]
            check(lambda lax: lax.cond(
                True, lambda: jax.lax.with_sharding_constraint(w, everywhere), lambda: w))

def mapped(lax):
    def f(x):
        return lax.map(lambda t: x * t, XS)
    f = jax.shard_map(f, mesh=mesh, in_specs=P("d"), out_specs=P(None, "d"))
    return f(put(PLACES["sharded"]))
check(mapped)

def grad(lax, w):
    return jax.grad(lambda v: lax.scan(lambda c, x: (c * w + v, None), v, XS)[0].sum())(w)
check(lambda lax: grad(lax, put(PLACES["sharded"])))

def vmapped(lax, w):
    return jax.vmap(lambda v: lax.cond(v > 2, lambda: v * 2, lambda: v))(w)
check(lambda lax: vmapped(lax, put(PLACES["sharded"])))

arrays = [put(PLACES["sharded"], i) for i in range(5)]
def hit():
    w = arrays.pop()
    return lax.scan(lambda c, x: (c + w * x, None), zeros, XS)
zeros = put(PLACES["sharded"])
hit(), hit()
assert counted(hit) == (0, 0, 0)
print("checked", checked)
"""


def test_four_devices() -> None:
    here = Path(__file__).parent
    environment = {
        **os.environ,
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join([str(here), *sys.path]),
    }
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    if "No module named 'jax'" in run.stderr:
        pytest.skip("jax is not installed")
    assert run.returncode == 0, run.stderr[-3000:]
    assert int(run.stdout.split()[-1]) > 120

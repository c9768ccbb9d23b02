"""Two training scripts, as users write them: the first row is right, and its remedy works."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

import fnintern
from fnintern import Retraces, retraces

DATA = """
import jax, jax.numpy as jnp, numpy as np, optax

def digits(n, seed=0):
    # Ten 8 by 8 prototypes, with noise: synthetic digits.
    rng = np.random.default_rng(seed)
    prototypes = rng.normal(size=(10, 64)).astype(np.float32)
    labels = rng.integers(0, 10, n)
    return prototypes[labels] + 0.3 * rng.normal(size=(n, 64)).astype(np.float32), labels

images, labels = digits(256)
batches = [(images[i:i + 64], labels[i:i + 64]) for i in range(0, 256, 64)]
"""

NNX = (
    DATA
    + """
from flax import nnx

class MLP(nnx.Module):
    def __init__(self, rngs):
        self.hidden = nnx.Linear(64, 32, rngs=rngs)
        self.out = nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, x):
        return self.out(nnx.relu(self.hidden(x)))

def loss_fn(model, x, y):
    return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

@nnx.jit
def train_step(model, optimizer, x, y):
    loss, grads = nnx.value_and_grad(loss_fn)(model, x, y)
    optimizer.update(model, grads)
    return loss

def noisy(model, x):
    return x + 0.1 * jnp.tanh(x)

def clean(model, x):
    return x

model = MLP(nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
losses = []
for epoch in range(3):
    for x, y in batches:
        x = nnx.cond(epoch > 0, noisy, clean, model, x)
        losses.append(float(train_step(model, optimizer, x, y)))
"""
)

OPTAX = (
    DATA
    + """
keys = jax.random.split(jax.random.key(0))
params = {
    "hidden": 0.1 * jax.random.normal(keys[0], (64, 32)),
    "out": 0.1 * jax.random.normal(keys[1], (32, 10)),
}
optimizer = optax.adam(1e-2)
state = optimizer.init(params)

def loss_fn(params, x, y):
    logits = jax.nn.relu(x @ params["hidden"]) @ params["out"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

@HOISTED
losses = []
for epoch in range(3):
    for x, y in batches:
        @STEP
        updates, state = optimizer.update(grads, state)
        params = optax.apply_updates(params, updates)
        losses.append(float(loss))
"""
)
IN_THE_LOOP = OPTAX.replace("@HOISTED\n", "").replace(
    "@STEP", "loss, grads = jax.jit(lambda p: jax.value_and_grad(loss_fn)(p, x, y))(params)"
)
HOISTED = OPTAX.replace(
    "@HOISTED",
    "step = jax.jit(lambda p, x, y: jax.value_and_grad(loss_fn)(p, x, y))",
).replace("@STEP", "loss, grads = step(params, x, y)")


def train(source: str, path: Path) -> tuple[Retraces, list[float]]:
    path.write_text(textwrap.dedent(source))
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with retraces() as seen:
        exec(compile(path.read_text(), str(path), "exec"), namespace)
    assert seen.problems == []
    return seen, namespace["losses"]


def line_of(source: str, text: str) -> int:
    return next(i for i, line in enumerate(source.splitlines(), 1) if text in line)


def test_nnx_cond_in_an_eager_loop_is_the_first_row(tmp_path: Path) -> None:
    seen, losses = train(NNX, tmp_path / "train.py")
    first = seen.rows[0]
    assert (first.file, first.line) == (str(tmp_path / "train.py"), line_of(NNX, "nnx.cond("))
    assert first.kind == "wrapper"
    assert "of flax was built anew around the same `" in first.cause
    assert first.remedy.startswith("fnintern.patch_flax()")
    assert (first.calls, first.compiles) == (11, 11)
    assert len(seen.rows) == 1
    assert losses[-1] < losses[0] / 2


def test_patch_flax_brings_it_to_none(tmp_path: Path) -> None:
    _, before = train(NNX, tmp_path / "train.py")
    with fnintern.patch_flax():
        seen, after = train(NNX, tmp_path / "train.py")
    seen.assert_none()
    assert after == before


def test_jit_of_a_lambda_in_the_loop_is_the_first_row(tmp_path: Path) -> None:
    seen, losses = train(IN_THE_LOOP, tmp_path / "train.py")
    first = seen.rows[0]
    line = line_of(IN_THE_LOOP, "jax.jit(lambda p")
    assert (first.file, first.line) == (str(tmp_path / "train.py"), line)
    assert first.kind == "function"
    assert "the lambda was made again by its line, and jax.jit applied to it anew" in first.cause
    assert "x: " in first.cause
    assert "y: " in first.cause
    assert first.remedy.startswith("pass `x`, `y` as an argument")
    assert (first.calls, first.compiles) == (11, 11)
    assert len(seen.rows) == 1
    assert losses[-1] < losses[0] / 2


def test_following_the_remedy_brings_it_to_none(tmp_path: Path) -> None:
    _, before = train(IN_THE_LOOP, tmp_path / "train.py")
    seen, after = train(HOISTED, tmp_path / "train.py")
    seen.assert_none()
    assert after == pytest.approx(before, rel=1e-4)

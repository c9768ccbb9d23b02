"""Fits a small network to the sum of its inputs, and looks at its error on the way."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx


class Net(nnx.Module):
    def __init__(self, rngs):
        self.hidden = nnx.Linear(8, 16, rngs=rngs)
        self.out = nnx.Linear(16, 1, rngs=rngs)

    def __call__(self, x):
        return self.out(jax.nn.relu(self.hidden(x)))


def loss(model, x, y):
    return jnp.mean((model(x) - y) ** 2)


@nnx.jit
def train_step(model, x, y, rate):
    grads = nnx.grad(loss)(model, x, y)
    params = nnx.state(model, nnx.Param)
    nnx.update(model, jax.tree.map(lambda p, g: p - rate * g, params, grads))


def plain(model, x):
    return model(x)


def noisy(model, x):
    return model(x + 0.1 * jnp.sin(37.0 * x))


def batches(epoch):
    rows = np.random.default_rng(epoch).normal(size=(40, 8)).astype(np.float32)
    for start in range(0, 40, 16):
        x = rows[start : start + 16]
        yield x, x.sum(axis=1, keepdims=True)


model = Net(nnx.Rngs(0))
rate = 0.1
for epoch in range(4):
    for x, y in batches(epoch):
        train_step(model, x, y, rate)
        shown = nnx.cond(epoch % 2 == 0, plain, noisy, model, x)
        error = jax.jit(lambda p: jnp.mean((p - y) ** 2))(shown)
    rate *= 0.5
    print(f"epoch {epoch}: {float(error):.2f}")

"""Several seeds with flax.nnx: each run makes model, optimizer and step anew."""

# mypy: allow-untyped-decorators, allow-subclassing-any, disable-error-code="no-any-return"

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import optax
from flax import nnx


class Classifier(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.hidden = nnx.Linear(8, 8, rngs=rngs)
        self.head = nnx.Linear(8, 3, rngs=rngs)
        self.use_hidden = True

    def __call__(self, x: jax.Array) -> jax.Array:
        h = nnx.cond(self.use_hidden, lambda m, x: m.hidden(x), lambda m, x: x, self, x)
        return self.head(nnx.relu(h))


def train(seed: int, steps: int) -> None:
    rngs = nnx.Rngs(seed)
    model = Classifier(rngs)
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    key = jax.random.key(seed)
    x = jax.random.normal(key, (64, 8))
    y = jnp.argmax(x[:, :3], axis=1)

    @nnx.jit
    def step(model: Classifier, optimizer: nnx.Optimizer[Classifier]) -> jax.Array:
        def loss_of(model: Classifier) -> jax.Array:
            logits = model(x)
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

        loss, grads = nnx.value_and_grad(loss_of)(model)
        optimizer.update(model, grads)
        return loss

    for i in range(steps):
        print("nnx", seed, i, repr(float(step(model, optimizer))))
    accuracy = nnx.cond(
        seed >= 0, lambda m: jnp.mean(jnp.argmax(m(x), 1) == y), lambda m: jnp.float32(0), model
    )
    print("nnx", seed, "accuracy", repr(float(accuracy)))


if __name__ == "__main__":
    for seed in range(5):
        train(seed, int(sys.argv[1]) if len(sys.argv) > 1 else 10)

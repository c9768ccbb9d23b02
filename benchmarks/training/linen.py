"""A recurrent network of flax.linen, evaluated eagerly after each epoch."""

# mypy: allow-untyped-decorators, allow-subclassing-any, disable-error-code="no-any-return"

from __future__ import annotations

import sys
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training.train_state import TrainState


class Tagger(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        h = nn.RNN(nn.GRUCell(8))(x)
        h = nn.remat(nn.Dense)(8)(h)
        return nn.Dense(2)(jnp.tanh(h))


def train(rate: float, epochs: int) -> None:
    model = Tagger()
    x = jax.random.normal(jax.random.key(0), (4, 6, 3))
    y = (jnp.cumsum(x[..., 0], axis=1) > 0).astype(jnp.int32)
    state = TrainState.create(
        apply_fn=model.apply, params=model.init(jax.random.key(1), x), tx=optax.adam(rate)
    )

    def loss_of(params: Any) -> jax.Array:
        logits = state.apply_fn(params, x)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    for epoch in range(epochs):
        loss, grads = jax.jit(jax.value_and_grad(loss_of))(state.params)
        state = state.apply_gradients(grads=grads)
        right = jnp.mean(jnp.argmax(model.apply(state.params, x), -1) == y)
        print("linen", rate, epoch, repr(float(loss)), repr(float(right)))


if __name__ == "__main__":
    for rate in (1e-2, 3e-2):
        train(rate, int(sys.argv[1]) if len(sys.argv) > 1 else 10)

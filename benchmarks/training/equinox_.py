"""A neural ODE with equinox and diffrax, trained from several seeds."""

# mypy: allow-untyped-decorators, allow-subclassing-any, disable-error-code="no-any-return"

from __future__ import annotations

import sys
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import optax


class Field(eqx.Module):
    mlp: eqx.nn.MLP

    def __init__(self, key: jax.Array) -> None:
        self.mlp = eqx.nn.MLP(2, 2, 8, 1, activation=jnp.tanh, key=key)

    def __call__(self, t: Any, y: jax.Array, args: Any) -> jax.Array:
        return self.mlp(y)


def solve(field: Any, y0: jax.Array, step: float) -> jax.Array:
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(field), diffrax.Euler(), 0.0, 1.0, step, y0, max_steps=64
    )
    assert solution.ys is not None
    return solution.ys[-1]


def train(seed: int, steps: int) -> None:
    field = Field(jax.random.key(seed))
    y0 = jax.random.normal(jax.random.key(1), (8, 2))
    target = jnp.stack([y0[:, 1], -y0[:, 0]], axis=1)
    tx = optax.adam(1e-2)
    state = tx.init(eqx.filter(field, eqx.is_array))

    @eqx.filter_jit
    def update(field: Any, state: Any) -> Any:
        def loss_of(field: Any) -> jax.Array:
            return jnp.mean((jax.vmap(lambda y: solve(field, y, 0.1))(y0) - target) ** 2)

        loss, grads = eqx.filter_value_and_grad(loss_of)(field)
        updates, state = tx.update(grads, state)
        return eqx.apply_updates(field, updates), state, loss

    for i in range(steps):
        field, state, loss = update(field, state)
        print("equinox", seed, i, repr(float(loss)))
    rotated = solve(lambda t, y, args: field(t, y, args), y0[0], 0.05)
    print("equinox", seed, "end", [repr(float(v)) for v in rotated])


if __name__ == "__main__":
    for seed in range(4):
        train(seed, int(sys.argv[1]) if len(sys.argv) > 1 else 10)

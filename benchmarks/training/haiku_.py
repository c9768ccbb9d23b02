"""Several seeds with dm-haiku: each run makes the transformed function and the update anew."""

# mypy: allow-untyped-decorators, allow-subclassing-any, disable-error-code="no-any-return"

from __future__ import annotations

import sys
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import optax


def train(seed: int, steps: int) -> None:
    def forward(x: jax.Array) -> jax.Array:
        core = hk.LSTM(8)
        out, _ = hk.dynamic_unroll(core, x, core.initial_state(x.shape[1]))
        return hk.Linear(1)(out[-1])

    net = hk.without_apply_rng(hk.transform(forward))
    x = jax.random.normal(jax.random.key(seed), (6, 16, 3))
    y = jnp.sum(x[..., :1], axis=0)
    params = net.init(jax.random.key(1), x)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2))
    state = tx.init(params)

    @jax.jit
    def update(params: Any, state: Any) -> Any:
        loss, grads = jax.value_and_grad(lambda p: jnp.mean((net.apply(p, x) - y) ** 2))(params)
        updates, state = tx.update(grads, state)
        return optax.apply_updates(params, updates), state, loss

    for i in range(steps):
        params, state, loss = update(params, state)
        print("haiku", seed, i, repr(float(loss)))
    print("haiku", seed, "error", repr(float(jnp.abs(net.apply(params, x) - y).max())))


if __name__ == "__main__":
    for seed in range(5):
        train(seed, int(sys.argv[1]) if len(sys.argv) > 1 else 10)

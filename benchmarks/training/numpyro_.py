"""A regression with numpyro: one sampler for each of several data sets."""

# mypy: allow-untyped-decorators, allow-subclassing-any, disable-error-code="no-any-return"

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS, Predictive


def model(x: jax.Array, y: Any = None) -> None:
    slope = numpyro.sample("slope", dist.Normal(0.0, 2.0))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    numpyro.sample("y", dist.Normal(slope * x, noise), obs=y)


def fit(number: int, samples: int) -> None:
    key = jax.random.key(number)
    x = jnp.linspace(-1.0, 1.0, 20)
    y = 1.5 * x + 0.3 * jax.random.normal(key, x.shape)
    # Data that are no constants of a program: XLA does not fold them into it.
    mcmc = MCMC(
        NUTS(model),
        num_warmup=samples,
        num_samples=samples,
        progress_bar=False,
        jit_model_args=True,
    )
    mcmc.run(key, x, y)
    found = mcmc.get_samples()
    for i, slope in enumerate(found["slope"][:5]):
        print("numpyro", number, i, repr(float(slope)))
    predicted = Predictive(model, found)(jax.random.key(9), x)["y"]
    print("numpyro", number, "mean", repr(float(predicted.mean())))


if __name__ == "__main__":
    for number in range(5):
        fit(number, int(sys.argv[1]) if len(sys.argv) > 1 else 20)

"""Programs over numpyro."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.libraries.jax_itself import KEY
from benchmarks.libraries.program import Call, program
from fnintern import interned, patch

MAYBE_JIT: dict[str, Any] = {
    "modules": "numpyro",
    "recipe": "`fnintern.patch('numpyro.util', 'maybe_jit', by='object')`",
    "patch": lambda: patch("numpyro.util", "maybe_jit", by="object"),
}


def model(y: Any = None) -> None:
    import numpyro
    import numpyro.distributions as dist

    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def _data(i: int) -> Any:
    return jnp.ones(3) * i


def _mcmc(new_data: bool = False, jit_model_args: bool = False, **options: Any) -> Call:
    from numpyro.infer import MCMC, NUTS

    mcmc = MCMC(NUTS(model), num_warmup=5, num_samples=5, jit_model_args=jit_model_args, **options)
    fixed = _data(1)

    def call(i: int) -> Any:
        mcmc.run(jax.random.PRNGKey(i), _data(i) if new_data else fixed)
        return mcmc.get_samples()["mu"]

    return call


@program("numpyro", "MCMC.run again, same data", report="pyro-ppl/numpyro#2171", **MAYBE_JIT)
def mcmc_same(recipe: bool) -> Call:
    return _mcmc(progress_bar=False)


@program(
    "numpyro",
    "MCMC.run again, new data",
    report="pyro-ppl/numpyro#1347",
    modules="numpyro",
    recipe="`jit_model_args=True`, and " + MAYBE_JIT["recipe"],
    patch=MAYBE_JIT["patch"],
    why="the data are constants of the program",
)
def mcmc_new(recipe: bool) -> Call:
    return _mcmc(new_data=True, jit_model_args=recipe, progress_bar=False)


@program(
    "numpyro",
    "MCMC.run again, new data, progress bar",
    report="pyro-ppl/numpyro#448",
    modules="numpyro",
    recipe="`MCMC(..., jit_model_args=True)`",
    why="the data are constants of the program",
)
def mcmc_bar(recipe: bool) -> Call:
    return _mcmc(new_data=True, jit_model_args=recipe, progress_bar=True)


@program(
    "numpyro",
    "MCMC.run again, vectorized chains",
    report="pyro-ppl/numpyro#2171",
    why="numpyro wraps the sampler in another vmap at each run",
    **MAYBE_JIT,
)
def mcmc_vectorized(recipe: bool) -> Call:
    return _mcmc(progress_bar=False, num_chains=2, chain_method="vectorized")


@program(
    "numpyro",
    "MCMC.run again, parallel chains",
    report="pyro-ppl/numpyro#2172",
    modules="numpyro",
    why="each run hands pmap a new partial over the sampler, and over what the last run returned",
)
def mcmc_parallel(recipe: bool) -> Call:
    return _mcmc(progress_bar=False, num_chains=2, chain_method="parallel")


@program(
    "numpyro",
    "SVI.run",
    report="pyro-ppl/numpyro#1347",
    modules="numpyro",
    recipe="`jit = interned(jax.jit)`, and `jit(svi.update)(state, y)` in a loop",
)
def svi_run(recipe: bool) -> Call:
    import numpyro
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal

    svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(0.1), Trace_ELBO())
    if not recipe:
        return lambda i: svi.run(KEY, 5, _data(i), progress_bar=False).losses
    jit = interned(jax.jit)

    def call(i: int) -> Any:
        state, losses = svi.init(KEY, _data(i)), []
        for _ in range(5):
            state, loss = jit(svi.update)(state, _data(i))
            losses.append(loss)
        return jnp.stack(losses)

    return call


def _predicted(key: Any, samples: Any) -> Any:
    from numpyro.infer import Predictive

    return Predictive(model, samples)(key)["y"]


@program(
    "numpyro",
    "Predictive",
    report="pyro-ppl/numpyro#1347",
    modules="numpyro",
    recipe="`jit = interned(jax.jit)`, on a function of the samples",
)
def predictive(recipe: bool) -> Call:
    run: Any = interned(jax.jit)(_predicted) if recipe else _predicted
    return lambda i: run(jax.random.PRNGKey(i), {"mu": jnp.ones(6) * i})


@program(
    "numpyro",
    "Predictive inside handlers.substitute",
    modules="numpyro",
    why="the model reads the handlers that are in force, which no capture shows",
)
def predictive_substituted(recipe: bool) -> Call:
    from numpyro import handlers

    def call(i: int) -> Any:
        with handlers.substitute(data={"y": jnp.float32(i)}):
            return _predicted(KEY, {"mu": jnp.ones(6)})

    return call


@program(
    "numpyro",
    "control_flow.scan",
    modules="numpyro",
    recipe="`jit = interned(jax.jit)`, on a function that seeds the model",
    why="numpyro reads the value of the scale, to check it",
)
def control_flow_scan(recipe: bool) -> Call:
    import numpyro
    import numpyro.distributions as dist
    from numpyro import handlers
    from numpyro.contrib.control_flow import scan

    def chain(y: Any) -> Any:
        scale = y[0] + 1.0

        def step(carry: Any, v: Any) -> Any:
            z = numpyro.sample("z", dist.Normal(carry, scale))
            return z + v, z

        return scan(step, 0.0, y)[1]

    def seeded(key: Any, y: Any) -> Any:
        return handlers.seed(chain, key)(y)

    run: Any = interned(jax.jit)(seeded) if recipe else seeded
    return lambda i: run(jax.random.PRNGKey(i), _data(i))

"""Programs over optimistix, diffrax, lineax, jaxopt and distrax."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.libraries.jax_itself import KEY, X, loss, numbers, same
from benchmarks.libraries.program import Call, program
from fnintern import interned

STATIC = "the function is a static argument of one jitted function of the library"


@program(
    "optimistix",
    "root_find(lambda)",
    modules="optimistix",
    recipe="`root_find(same(lambda ...), ...)`",
    why=STATIC,
)
def root_find(recipe: bool) -> Call:
    import optimistix as optx

    solver, given = optx.Newton(1e-5, 1e-5), same(recipe)
    return lambda i: optx.root_find(given(lambda y, a: y**2 - 2.0), solver, X + 1.0 + i).value


@program(
    "optimistix",
    "root_find(lambda over an array)",
    modules="optimistix",
    recipe="`root_find(same(lambda y, a: ...), solver, y0, args=a)`",
    why=STATIC,
)
def root_find_closure(recipe: bool) -> Call:
    import optimistix as optx

    solver, given = optx.Newton(1e-5, 1e-5), same(recipe)
    if recipe:
        return lambda i: optx.root_find(given(lambda y, a: y - a), solver, X, args=numbers(i)).value

    def call(i: int) -> Any:
        a = numbers(i)
        return optx.root_find(lambda y, _: y - a, solver, X).value

    return call


@program(
    "optimistix",
    "least_squares(lambda)",
    modules="optimistix",
    recipe="`least_squares(same(lambda ...), ...)`",
    why=STATIC,
)
def least_squares(recipe: bool) -> Call:
    import optimistix as optx

    solver, given = optx.LevenbergMarquardt(1e-5, 1e-5), same(recipe)
    return lambda i: optx.least_squares(given(lambda y, a: y - 2.0), solver, numbers(i)).value


@program(
    "diffrax",
    "diffeqsolve(ODETerm(lambda))",
    modules="diffrax",
    report="patrick-kidger/diffrax#142",
    recipe="`ODETerm(same(lambda ...))`",
    why=STATIC,
)
def diffeqsolve(recipe: bool) -> Call:
    import diffrax

    solver, given = diffrax.Tsit5(), same(recipe)
    return lambda i: (
        diffrax.diffeqsolve(
            diffrax.ODETerm(given(lambda t, y, a: -y)), solver, 0.0, 1.0, 0.1, numbers(i)
        ).ys
    )


@program(
    "diffrax",
    "diffeqsolve(ODETerm(lambda over an array))",
    modules="diffrax",
    recipe="`ODETerm(same(lambda t, y, a: ...))`, and `args=a`",
    why=STATIC,
)
def diffeqsolve_closure(recipe: bool) -> Call:
    import diffrax

    solver, given = diffrax.Tsit5(), same(recipe)

    def call(i: int) -> Any:
        w = numbers(i) / 10.0
        if recipe:
            term = diffrax.ODETerm(given(lambda t, y, a: -a * y))
            return diffrax.diffeqsolve(term, solver, 0.0, 1.0, 0.1, X, args=w).ys
        term = diffrax.ODETerm(lambda t, y, a: -w * y)
        return diffrax.diffeqsolve(term, solver, 0.0, 1.0, 0.1, X).ys

    return call


LINEAX = (
    "lineax turns the function into a jaxpr at each call, one trace, even where it is the same; "
    "that jaxpr is a static argument"
)


@program(
    "lineax",
    "linear_solve, a function that stays",
    modules="lineax",
    report="patrick-kidger/lineax#169",
    recipe="jit the function that solves",
    why=LINEAX,
)
def linear_solve_stable(recipe: bool) -> Call:
    import lineax as lx

    shape, solver = jax.eval_shape(lambda: X), lx.AutoLinearSolver(well_posed=True)

    def solve(b: Any) -> Any:
        return lx.linear_solve(lx.FunctionLinearOperator(_double, shape), b, solver).value

    run: Any = jax.jit(solve) if recipe else solve
    return lambda i: run(numbers(i))


def _double(v: Any) -> Any:
    return 2.0 * v


@program(
    "lineax",
    "linear_solve, a lambda",
    modules="lineax",
    report="patrick-kidger/lineax#169",
    recipe="`jit = interned(jax.jit, by='value')`, on the function that solves",
    why=LINEAX,
)
def linear_solve(recipe: bool) -> Call:
    import lineax as lx

    shape, solver = jax.eval_shape(lambda: X), lx.AutoLinearSolver(well_posed=True)
    jit: Any = interned(jax.jit, by="value") if recipe else lambda f: f
    return lambda i: jit(
        lambda b: (
            lx.linear_solve(lx.FunctionLinearOperator(lambda v: 2.0 * v, shape), b, solver).value
        )
    )(numbers(i))


def _solver(kind: str, recipe: bool) -> Call:
    import jaxopt

    def make(fun: Any) -> Any:
        return getattr(jaxopt, kind)(fun, maxiter=5)

    made: Any = interned(make) if recipe else make
    jit: Any = interned(jax.jit) if recipe else lambda f: f
    return lambda i: jit(made(loss).run)(numbers(i)).params


JAXOPT: dict[str, Any] = {
    "modules": "jaxopt",
    "report": "google/jaxopt#221",
    "recipe": "`@interned` on a function that makes the solver, and `jit = interned(jax.jit)`",
    "why": "the solver jits its own methods when it is made",
}


@program("jaxopt", "GradientDescent made again", **JAXOPT)
def gradient_descent(recipe: bool) -> Call:
    return _solver("GradientDescent", recipe)


@program("jaxopt", "LBFGS made again", **JAXOPT)
def jaxopt_lbfgs(recipe: bool) -> Call:
    return _solver("LBFGS", recipe)


@program(
    "jaxopt",
    "LBFGS kept",
    modules="jaxopt",
    recipe="`jit = interned(jax.jit); jit(solver.run)(x)`",
)
def jaxopt_kept(recipe: bool) -> Call:
    import jaxopt

    solver = jaxopt.LBFGS(loss, maxiter=5)
    jit: Any = interned(jax.jit) if recipe else lambda f: f
    return lambda i: jit(solver.run)(numbers(i)).params


@program(
    "jaxopt",
    "ScipyMinimize made again",
    modules="jaxopt",
    report="google/jaxopt#221",
    recipe="`@interned` on a function that makes the solver",
    why=JAXOPT["why"],
)
def scipy_minimize(recipe: bool) -> Call:
    import jaxopt

    def make(fun: Any) -> Any:
        return jaxopt.ScipyMinimize(fun=fun, maxiter=5)

    made: Any = interned(make) if recipe else make
    return lambda i: made(loss).run(numbers(i)).params


@program(
    "distrax",
    "HMM.forward",
    modules="distrax",
    recipe="`jit = interned(jax.jit); jit(hmm.forward)(observations)`",
)
def hmm(recipe: bool) -> Call:
    import distrax

    even = jnp.ones(2) / 2.0
    model = distrax.HMM(
        distrax.Categorical(probs=even),
        distrax.Categorical(probs=jnp.stack([even, even])),
        distrax.Normal(jnp.arange(2.0), jnp.ones(2)),
    )
    jit: Any = interned(jax.jit) if recipe else lambda f: f
    return lambda i: jit(model.forward)(numbers(i))[0]


@program(
    "distrax",
    "HMM.sample",
    modules="distrax",
    recipe="`jit = interned(jax.jit); jit(partial(hmm.sample, seq_len=4))(seed=key)`",
)
def hmm_sample(recipe: bool) -> Call:
    from functools import partial

    import distrax

    even = jnp.ones(2) / 2.0
    model = distrax.HMM(
        distrax.Categorical(probs=even),
        distrax.Categorical(probs=jnp.stack([even, even])),
        distrax.Normal(jnp.arange(2.0), jnp.ones(2)),
    )
    jit: Any = interned(jax.jit) if recipe else lambda f: f
    return lambda i: jit(partial(model.sample, seq_len=4))(seed=jax.random.fold_in(KEY, i))

"""Programs that need nothing but jax."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.optimize
import jax.scipy.sparse.linalg

from benchmarks.libraries.program import Call, program
from fnintern import interned

X = jnp.arange(4.0)
KEY = jax.random.PRNGKey(0)


def numbers(i: int) -> Any:
    return X + i


def loss(v: Any) -> Any:
    return jnp.sum((v - 1.0) ** 2)


def same(recipe: bool) -> Any:
    """The recipe for functions that are arguments: one object for all that are equal."""
    return interned(by="value")(lambda f: f) if recipe else lambda f: f


@program(
    "jax", "jit(lambda)", report="jax-ml/jax#14183", recipe="`jit = interned(jax.jit, by='value')`"
)
def jit_lambda(recipe: bool) -> Call:
    jit = interned(jax.jit, by="value") if recipe else jax.jit
    return lambda i: jit(lambda v: jnp.sin(v) * 2.0)(numbers(i))


@program("jax", "jit(partial)", report="jax-ml/jax#14183", recipe="`jit = interned(jax.jit)`")
def jit_partial(recipe: bool) -> Call:
    jit = interned(jax.jit) if recipe else jax.jit
    return lambda i: jit(partial(_scaled, k=2.0))(numbers(i))


def _scaled(v: Any, k: Any) -> Any:
    return v * k


@program("jax", "jit(obj.method)", report="jax-ml/jax#19570", recipe="`jit = interned(jax.jit)`")
def jit_method(recipe: bool) -> Call:
    jit = interned(jax.jit) if recipe else jax.jit
    owner = _Owner()
    return lambda i: jit(owner.apply)(numbers(i))


class _Owner:
    def __init__(self) -> None:
        self.scale = 2.0

    def apply(self, v: Any) -> Any:
        return self.scale * v


@program(
    "jax",
    "jit(grad(f))",
    report="jax-ml/jax#1832",
    recipe="`jit, grad = interned(jax.jit), interned(jax.grad)`",
)
def jit_grad(recipe: bool) -> Call:
    jit, grad = (interned(jax.jit), interned(jax.grad)) if recipe else (jax.jit, jax.grad)
    return lambda i: jit(grad(loss))(numbers(i))


@program(
    "jax",
    "jit(vmap(f))",
    report="jax-ml/jax#2515",
    recipe="`jit, vmap = interned(jax.jit), interned(jax.vmap)`",
)
def jit_vmap(recipe: bool) -> Call:
    jit, vmap = (interned(jax.jit), interned(jax.vmap)) if recipe else (jax.jit, jax.vmap)
    return lambda i: jit(vmap(loss))(numbers(i)[None])


@program(
    "jax",
    "jit(vjp function)",
    report="jax-ml/jax#282",
    recipe="jit one function that calls `jax.vjp`",
    why="the function is a program of its own for each point, with the residuals in it",
)
def jit_vjp(recipe: bool) -> Call:
    @jax.jit
    def pulled(x: Any, g: Any) -> Any:
        return jax.vjp(loss, x)[1](g)

    if recipe:
        return lambda i: pulled(numbers(i), 1.0)
    return lambda i: jax.jit(jax.vjp(loss, numbers(i))[1])(1.0)


@program(
    "jax", "pmap(partial)", report="pyro-ppl/numpyro#2172", recipe="`pmap = interned(jax.pmap)`"
)
def pmap_partial(recipe: bool) -> Call:
    pmap = interned(jax.pmap) if recipe else jax.pmap
    return lambda i: pmap(partial(_scaled, k=2.0))(numbers(i)[None])


@program(
    "jax",
    "methods jitted again at each outer step",
    report="PlasmaControl/DESC#1191",
    recipe="`jit, jacfwd = interned(jax.jit), interned(jax.jacfwd)`",
)
def outer_loop(recipe: bool) -> Call:
    jit, jacfwd = (interned(jax.jit), interned(jax.jacfwd)) if recipe else (jax.jit, jax.jacfwd)
    owner = _Owner()
    return lambda i: (jit(owner.apply)(numbers(i)), jit(jacfwd(owner.apply))(numbers(i)))


@program(
    "jax",
    "a factory of jit(vmap(closure))",
    report="ChipFlow/vajax#17",
    recipe="`@interned` on the factory",
)
def factory(recipe: bool) -> Call:
    def make(kind: str, width: int) -> Any:
        def one(v: Any) -> Any:
            return jnp.sum(v[:width]) * (2.0 if kind == "diode" else 1.0)

        return jax.jit(jax.vmap(one))

    made: Any = interned(make) if recipe else make
    return lambda i: made("diode", 2)(numbers(i)[None])


@program("jax", "lax.cond(lambda over an array)", recipe="operands instead of captures")
def cond_closure(recipe: bool) -> Call:
    if recipe:
        return lambda i: jax.lax.cond(True, jnp.multiply, jnp.add, numbers(i), numbers(2 * i))

    def call(i: int) -> Any:
        w = numbers(i)
        return jax.lax.cond(True, lambda v: w * v, lambda v: w + v, numbers(2 * i))

    return call


@program(
    "jax",
    "lax.cond(obj.method)",
    report="jax-ml/jax#9672",
    recipe="`cond(p, same(obj.method), ...)`",
)
def cond_method(recipe: bool) -> Call:
    owner, given = _Owner(), same(recipe)
    return lambda i: jax.lax.cond(True, given(owner.apply), given(owner.apply), numbers(i))


@program(
    "jax",
    "lax.scan(partial)",
    report="jax-ml/jax#14183",
    recipe="`scan(same(partial(...)), ...)`",
)
def scan_partial(recipe: bool) -> Call:
    given = same(recipe)
    return lambda i: jax.lax.scan(given(partial(_carried, k=2.0)), numbers(i), None, length=3)[0]


def _carried(carry: Any, _: Any, k: Any) -> Any:
    return carry * k, None


@program(
    "jax",
    "lax.scan in a method, over self.data",
    report="kazewong/flowMC#133",
    recipe="`jit = interned(jax.jit); jit(scan_it)(data, x, keys)`",
)
def sampler(recipe: bool) -> Call:
    def scan_it(data: Any, x: Any, keys: Any) -> Any:
        def body(carry: Any, key: Any) -> Any:
            noise = 0.01 * jax.random.normal(key, x.shape)
            carry = carry - 0.1 * jnp.mean(carry - data) + noise
            return carry, carry

        return jax.lax.scan(body, x, keys)[1]

    run: Any = interned(jax.jit)(scan_it) if recipe else scan_it
    keys = jax.random.split(KEY, 8)
    return lambda i: run(numbers(i), X, keys)


@program(
    "jax",
    "lax.while_loop in a made solver",
    report="ChipFlow/vajax#17",
    recipe="`@interned` on what makes the solver",
)
def made_solver(recipe: bool) -> Call:
    def make(n: int) -> Any:
        def wanted(state: Any) -> Any:
            return state[0] < n

        def body(state: Any) -> Any:
            return state[0] + 1, state[1] * 0.5

        return lambda x: jax.lax.while_loop(wanted, body, (0, x))[1]

    made: Any = interned(make) if recipe else make
    return lambda i: made(5)(numbers(i))


@program(
    "jax",
    "lax.map(f)",
    report="markean/aimz#275",
    recipe="`jit = interned(jax.jit); jit(partial(lax.map, f))(x)`",
)
def map_stable(recipe: bool) -> Call:
    if recipe:
        jit = interned(jax.jit)
        return lambda i: jit(partial(jax.lax.map, jnp.sin))(numbers(i))
    return lambda i: jax.lax.map(jnp.sin, numbers(i))


@program(
    "jax",
    "lax.map(lambda over an array)",
    report="markean/aimz#275",
    recipe="jit one function that takes the array",
)
def map_closure(recipe: bool) -> Call:
    def mapped(w: Any, x: Any) -> Any:
        return jax.lax.map(lambda v: w[0] * v, x)

    run: Any = jax.jit(mapped) if recipe else mapped
    return lambda i: run(numbers(i), X)


@program(
    "jax",
    "lax.scan(callable with __eq__)",
    report="jax-ml/jax#14743",
    recipe="`scan(same(Scale(2.0)), ...)`",
)
def scan_callable(recipe: bool) -> Call:
    given = same(recipe)
    return lambda i: jax.lax.scan(given(_Scale(2.0)), 0.0, numbers(i))[0]


class _Scale:
    def __init__(self, k: float) -> None:
        self.k = k

    def __hash__(self) -> int:
        return hash(self.k)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Scale) and self.k == other.k

    def __call__(self, carry: Any, v: Any) -> Any:
        return carry + self.k * v, v


@program("jax", "eager grad of lax.scan(lambda over an array)", recipe="jit the gradient")
def grad_scan(recipe: bool) -> Call:
    def total(w: Any, x: Any) -> Any:
        return jax.lax.scan(lambda c, v: (c + w[0] * v, None), 0.0, x)[0]

    gradient: Any = jax.jit(jax.grad(total)) if recipe else jax.grad(total)
    return lambda i: gradient(numbers(i), numbers(2 * i))


@program("jax", "pure_callback(lambda)", recipe="`pure_callback(same(lambda ...), ...)`")
def callback(recipe: bool) -> Call:
    given = same(recipe)
    return lambda i: jax.pure_callback(given(lambda v: v + 1), X, numbers(i))


def _double(v: Any) -> Any:
    return 2.0 * v


@program(
    "jax", "scipy.sparse.linalg.cg(f)", recipe="`jit = interned(jax.jit); jit(partial(cg, f))(b)`"
)
def cg(recipe: bool) -> Call:
    solve = jax.scipy.sparse.linalg.cg
    if recipe:
        jit = interned(jax.jit)
        return lambda i: jit(partial(solve, _double))(numbers(i))[0]
    return lambda i: solve(_double, numbers(i))[0]


@program(
    "jax",
    "scipy.sparse.linalg.cg(lambda over an array)",
    recipe="jit one function that takes the array",
)
def cg_closure(recipe: bool) -> Call:
    def solve(w: Any, b: Any) -> Any:
        return jax.scipy.sparse.linalg.cg(lambda v: w * v, b)[0]

    run: Any = jax.jit(solve) if recipe else solve
    return lambda i: run(numbers(i) + 1.0, X)


@program(
    "jax",
    "scipy.sparse.linalg.gmres(f)",
    recipe="`jit = interned(jax.jit); jit(partial(gmres, f))(b)`",
)
def gmres(recipe: bool) -> Call:
    solve = jax.scipy.sparse.linalg.gmres
    if recipe:
        jit = interned(jax.jit)
        return lambda i: jit(partial(solve, _double))(numbers(i))[0]
    return lambda i: solve(_double, numbers(i))[0]


@program(
    "jax",
    "scipy.optimize.minimize(f)",
    recipe="`jit = interned(jax.jit); jit(partial(minimize, f, method='BFGS'))(x)`",
)
def minimize(recipe: bool) -> Call:
    solve = partial(jax.scipy.optimize.minimize, loss, method="BFGS")
    if recipe:
        jit = interned(jax.jit)
        return lambda i: jit(_minimum)(numbers(i))
    return lambda i: solve(numbers(i)).x


def _minimum(x: Any) -> Any:
    return jax.scipy.optimize.minimize(loss, x, method="BFGS").x


@program(
    "jax",
    "jit(f) on batches of other lengths",
    report="google-deepmind/mujoco#2306",
    why="another shape is another program; pad the batches",
)
def shapes(recipe: bool) -> Call:
    total = jax.jit(jnp.sum)
    batches = [jnp.ones(5 + n) for n in range(8)]
    return lambda i: total(batches[i])

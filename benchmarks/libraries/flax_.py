"""Programs over flax: nnx and Linen, called eagerly."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import nnx

from benchmarks.libraries.jax_itself import KEY, numbers
from benchmarks.libraries.program import Call, program
from fnintern import interned, patch_flax

FLAX: dict[str, Any] = {"recipe": "`fnintern.patch_flax()`", "patch": patch_flax}


def _model() -> Any:
    return nnx.Linear(4, 4, rngs=nnx.Rngs(0))


def _up(model: Any, v: Any) -> Any:
    return model(v) + 1.0


def _down(model: Any, v: Any) -> Any:
    return model(v) - 1.0


@program("flax", "nnx.cond", report="google/flax#5512", **FLAX)
def nnx_cond(recipe: bool) -> Call:
    model = _model()
    return lambda i: nnx.cond(i % 2 == 0, _up, _down, model, numbers(i))


@program("flax", "nnx.switch", report="google/flax#5512", **FLAX)
def nnx_switch(recipe: bool) -> Call:
    model = _model()
    return lambda i: nnx.switch(i % 2, [_up, _down], model, numbers(i))


@program("flax", "nnx.fori_loop(lambda)", report="google/flax#5512", **FLAX)
def nnx_fori_loop(recipe: bool) -> Call:
    model = _model()
    return lambda i: nnx.fori_loop(
        0, 3, lambda _, carry: (carry[0], carry[0](carry[1])), (model, numbers(i))
    )[1]


@program("flax", "nnx.jit(inner function)", report="energnn/energnn#75", **FLAX)
def nnx_jit_inner(recipe: bool) -> Call:
    model = _model()

    def call(i: int) -> Any:
        def loss(m: Any, x: Any) -> Any:
            return jnp.mean(m(x) ** 2)

        return nnx.jit(loss)(model, numbers(i))

    return call


def _mean_square(model: Any, x: Any) -> Any:
    return jnp.mean(model(x) ** 2)


@program("flax", "nnx.jit(f)", report="energnn/energnn#75", **FLAX)
def nnx_jit(recipe: bool) -> Call:
    model = _model()
    return lambda i: nnx.jit(_mean_square)(model, numbers(i))


@program(
    "flax",
    "nnx.jit(nnx.value_and_grad(f))",
    report="energnn/energnn#75",
    recipe="`value_and_grad = interned(nnx.value_and_grad)`, and `fnintern.patch_flax()`",
    patch=patch_flax,
)
def nnx_jit_grad(recipe: bool) -> Call:
    model = _model()
    value_and_grad = interned(nnx.value_and_grad) if recipe else nnx.value_and_grad
    return lambda i: nnx.jit(value_and_grad(_mean_square))(model, numbers(i))[0]


class _Block(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.w = nnx.Param(jax.random.normal(rngs(), (4, 4)))

    def __call__(self, x: Any) -> Any:
        return self.w @ x


class _Stack(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        make = nnx.vmap(lambda r: _Block(r), in_axes=0, out_axes=0)
        self.blocks = make(rngs.fork(split=3))

    def __call__(self, x: Any) -> Any:
        @nnx.scan(in_axes=(0, nnx.Carry), out_axes=nnx.Carry)
        def run(block: Any, x: Any) -> Any:
            return block(x)

        return run(self.blocks, x)


@program("flax", "nnx.scan made in a method", report="google/flax#4871", **FLAX)
def nnx_scan(recipe: bool) -> Call:
    model = _Stack(nnx.Rngs(0))
    return lambda i: model(numbers(i))


@program(
    "flax", "nnx.cond(lambdas over the model)", why="a module that a branch captures may change"
)
def nnx_cond_capture(recipe: bool) -> Call:
    model = _model()
    return lambda i: nnx.cond(True, lambda v: model(v), lambda v: v, numbers(i))


class _Scan(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        cell = nn.scan(nn.GRUCell, variable_broadcast="params", split_rngs={"params": False})
        return cell(4)(jnp.zeros(4), x)[0]


class _RNN(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.RNN(nn.LSTMCell(4))(x[None])


class _Cond(nn.Module):
    def setup(self) -> None:
        self.dense = nn.Dense(4)

    def __call__(self, x: Any) -> Any:
        if self.is_initializing():
            return self.dense(x)
        return nn.cond(True, lambda m, v: m.dense(v), lambda m, v: v, self, x)


class _While(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        dense = nn.Dense(4)
        dense(x)
        return nn.while_loop(
            lambda m, c: c[0] < 3,
            lambda m, c: (c[0] + 1, m(c[1])),
            dense,
            (0, x),
            carry_variables=[],
        )[1]


class _Remat(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.remat(nn.Dense)(4)(x)


def _linen(module: Any, recipe: bool) -> Call:
    x = jnp.ones((3, 4))
    variables = module.init(KEY, x)
    jit: Any = interned(jax.jit) if recipe else lambda f: f
    return lambda i: jit(module.apply)(jax.tree.map(lambda v: v * (1.0 + i), variables), x)


JIT_APPLY: dict[str, Any] = {
    "recipe": "`jit = interned(jax.jit); jit(module.apply)(variables, x)`",
    "why": "the lifted body captures scopes and modules, which the trace writes to",
}


@program("flax", "nn.scan, module.apply", **JIT_APPLY)
def linen_scan(recipe: bool) -> Call:
    return _linen(_Scan(), recipe)


@program("flax", "nn.RNN, module.apply", **JIT_APPLY)
def linen_rnn(recipe: bool) -> Call:
    return _linen(_RNN(), recipe)


@program("flax", "nn.cond, module.apply", **JIT_APPLY)
def linen_cond(recipe: bool) -> Call:
    return _linen(_Cond(), recipe)


@program("flax", "nn.while_loop, module.apply", **JIT_APPLY)
def linen_while(recipe: bool) -> Call:
    return _linen(_While(), recipe)


@program("flax", "nn.remat, module.apply", **JIT_APPLY)
def linen_remat(recipe: bool) -> Call:
    return _linen(_Remat(), recipe)


@program(
    "flax",
    "jit(module.apply)",
    report="jax-ml/jax#282",
    recipe="`jit = interned(jax.jit)`",
)
def linen_jit_apply(recipe: bool) -> Call:
    module = nn.Dense(3)
    jit = interned(jax.jit) if recipe else jax.jit
    variables = module.init(KEY, numbers(0))
    return lambda i: jit(module.apply)(variables, numbers(i))


@program(
    "flax",
    "jit(module.init)",
    report="jax-ml/jax#282",
    recipe="`jit = interned(jax.jit)`",
)
def linen_jit_init(recipe: bool) -> Call:
    module = nn.Dense(3)
    jit = interned(jax.jit) if recipe else jax.jit
    return lambda i: jit(module.init)(KEY, numbers(i))

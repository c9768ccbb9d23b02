"""Code of a user, which is only type-checked: what mypy and pyright make of the public names.

``make mypy`` checks it with everything else; ``tests/test_typing.py`` says that a wrong line in it
is found. It is not run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_type

import jax
import jax.numpy as jnp

import fnintern

Array = jax.Array


# A function that makes wrappers keeps its signature, and has the methods of a cache.
@fnintern.interned
def scaled(f: Callable[[float], float], factor: float = 2.0) -> Callable[[float], float]:
    return lambda x: factor * f(x)


assert_type(scaled(abs, factor=3.0), Callable[[float], float])
assert_type(scaled.cache_info(), fnintern.CacheInfo)
assert_type(scaled.explain(abs), fnintern.Explanation)
scaled.cache_clear()
name: str = scaled.__qualname__


@fnintern.interned(by="value", maxsize=None)
def shifted(f: Callable[[float], float]) -> Callable[[float], float]:
    return f


assert_type(shifted(abs), Callable[[float], float])
assert_type(shifted.cache_info(), fnintern.CacheInfo)


# A class stays that class. A type checker sees no methods that a decorator adds to one: the
# functions of the same names take it.
@fnintern.interned(by="value")
class Branch:
    def __init__(self, f: Callable[[float], float], strict: bool = True) -> None:
        self.f, self.strict = f, strict


class Strict(Branch):
    pass


branch: Branch = Branch(abs, strict=False)
assert isinstance(branch, Branch)
assert_type(fnintern.cache_info(Branch), fnintern.CacheInfo)
assert_type(fnintern.explain(Branch, abs, strict=True), fnintern.Explanation)
fnintern.cache_clear(Branch)


class Library:
    @fnintern.interned
    def wrap(self, f: Callable[[float], float]) -> Callable[[float], float]:
        return f

    @fnintern.jit
    def step(self, x: Array) -> Array:
        return x


library = Library()
assert_type(library.wrap(abs), Callable[[float], float])
assert_type(library.wrap.cache_info(), fnintern.CacheInfo)
assert_type(library.step(jnp.ones(3)), Array)


# jit keeps the signature, as a call and as a decorator with options.
@fnintern.jit
def double(x: Array, times: int = 1) -> Array:
    return 2 * times * x


@fnintern.jit(static_argnames="times")
def triple(x: Array, times: int = 1) -> Array:
    return 3 * times * x


assert_type(double(jnp.ones(3), times=2), Array)
assert_type(triple(jnp.ones(3), times=2), Array)
assert_type(double.cache_info(), fnintern.CacheInfo)
lowered = triple.lower(jnp.ones(3), times=2).as_text()
gradient = fnintern.jit(jax.grad(lambda x: x**2))(1.0)


# staged, and what it is made for.
def twice(f: Callable[[Array], Array], x: Array) -> Array:
    return f(f(x))


staged_twice = fnintern.staged(twice)
assert_type(staged_twice(jnp.sin, jnp.ones(3)), Array)
assert_type(staged_twice.cache_info(), fnintern.CacheInfo)
assert_type(staged_twice.explain(jnp.sin, jnp.ones(3)), fnintern.Explanation)
carry, ys = fnintern.lax.scan(lambda c, x: (c + x, x), jnp.ones(()), jnp.ones(3))
chosen = fnintern.lax.cond(True, jnp.sin, jnp.cos, carry)
counts = fnintern.cache_info(fnintern.lax.scan)


# A function of one's own that takes whatever is cached.
def hits(cached: fnintern.Cached[..., object]) -> int:
    return cached.cache_info().hits


total = hits(scaled) + hits(double) + hits(staged_twice)

# Patches, reports and declarations.
with fnintern.patch_flax(by="object") as patched, fnintern.patch_jax():
    assert_type(patched.report, dict[str, str])
patched.revert()
with fnintern.retraces() as seen:
    seen.assert_none()
assert_type(seen.rows, list[fnintern.Retrace])
fnintern.keyed(Library, lambda library: id(library))
assert_type(fnintern.stateless(library), Library)
version: str = fnintern.__version__
obstacles: tuple[fnintern.Obstacle, ...] = fnintern.explain(double).obstacles

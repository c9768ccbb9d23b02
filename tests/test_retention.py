"""S3: no tracer, no array and no object of the user's outlives its user because of the patch."""

from __future__ import annotations

import collections
import functools
import gc
import types
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from fnintern import interned, patch_flax
from transforms import MODES, TRANSFORMS, without_memo

ROUNDS = 50

#: Makes a function, and weak references to all that has to go with it.
Make = Callable[[], tuple[Callable[[Any], Any], list["weakref.ref[Any]"]]]


class Model(nnx.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        self.w = nnx.Param(jnp.float32(2.0))

    def __call__(self, x: Any) -> Any:
        return x * self.w[...]


class Plain:
    def __init__(self, scale: Any) -> None:
        self.scale = scale

    def method(self, x: Any) -> Any:
        return x * self.scale


def refs(*objects: Any) -> list[weakref.ref[Any]]:
    return [weakref.ref(item) for item in objects]


def constant() -> Any:
    k = 2.0
    f = lambda x: x * k
    return f, refs(f)


def array() -> Any:
    k = jnp.arange(3.0) + 1
    f = lambda x: x * k[0]
    return f, refs(f, k)


def model() -> Any:
    m = Model()
    f = lambda x: m(x)
    return f, refs(f, m, m.w[...])


def model_itself() -> Any:
    m = Model()
    return m, refs(m, m.w[...])


def method() -> Any:
    owner = Plain(2.0)
    return owner.method, refs(owner)


def method_with_array() -> Any:
    owner = Plain(jnp.ones(()))
    return owner.method, refs(owner, owner.scale)


def partial() -> Any:
    k = jnp.ones(2)
    f = functools.partial(lambda k, x: x * k[0], k)
    return f, refs(f, k)


def local_class() -> Any:
    class Local:
        scale = 2.0

        def __call__(self, x: Any) -> Any:
            return x * self.scale

    owner = Local()
    f = lambda x: owner(x) * Local.scale
    return f, refs(f, Local, owner)


def module() -> Any:
    config = types.ModuleType("config")
    config.scale = 2.0  # type: ignore[attr-defined]
    f = lambda x: x * config.scale
    return f, refs(f, config)


def jitted() -> Any:
    inner = jax.jit(lambda x: x * 2.0)
    f = lambda x: inner(x)
    return f, refs(f)


def namespace() -> Any:
    space: dict[str, Any] = {}
    exec("K = 2.0\ndef helper(x): return x * K\ndef f(x): return helper(x)\n", space)
    return space["f"], refs(space["f"], space["helper"])


def default() -> Any:
    k = jnp.ones(2)

    def f(x: Any, k: Any = k) -> Any:
        return x * k[0]

    return f, refs(f, k)


def container() -> Any:
    k, owner = jnp.ones(2), Plain(1.0)
    table = {"k": [k], "owner": owner, "f": lambda x: x}
    f = lambda x: x * table["k"][0][0]  # type: ignore[index]
    return f, refs(f, k, owner, table["f"])


MAKES: list[Make] = [
    constant, array, model, model_itself, method, method_with_array, partial, local_class, module,
    jitted, namespace, default, container,
]  # fmt: skip


def alive_after(
    rounds: int, make: Make, transform: str, mode: dict[str, bool]
) -> collections.Counter[str]:
    """The types of what is alive after rounds of fresh functions, each called twice."""
    made: list[weakref.ref[Any]] = []
    for _ in range(rounds):
        f, new = make()
        made += new
        for _ in range(2):
            TRANSFORMS[transform](f, mode)
        del f
    gc.collect()
    return collections.Counter(type(ref()).__name__ for ref in made if ref() is not None)


def kept_by_jax(
    rounds: int, make: Make, transform: str, mode: dict[str, bool]
) -> collections.Counter[str]:
    """What the same calls leave unpatched: ``jax.pmap`` has tables of its own."""
    if transform != "pmap":
        return collections.Counter()
    with without_memo():
        return alive_after(rounds, make, transform, mode)


@pytest.mark.parametrize("make", MAKES, ids=lambda make: make.__name__)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_S3_nothing_outlives_its_user(transform: str, make: Make) -> None:
    """Each kind of capture through each transform, in one mode each, all modes over the kinds."""
    number = MAKES.index(make) + list(TRANSFORMS).index(transform)
    mode = list(MODES.values())[number % len(MODES)]
    if make is model_itself:
        mode = MODES["tree"]  # in the default mode flax takes a model for an operand
    with patch_flax():
        assert not alive_after(2, make, transform, mode) - kept_by_jax(2, make, transform, mode)


@pytest.mark.parametrize("transform", [name for name in TRANSFORMS if name != "pmap"])
def test_S3_rounds_of_fresh_arrays_leave_nothing(transform: str) -> None:
    """As many rounds as a training loop has steps between two looks at the memory."""
    with patch_flax():
        # Half a minute of compilations: jax keeps each program, which is its own affair.
        rounds = ROUNDS if transform in ("vmap", "grad", "switch") else 5
        for make in (array, module):
            assert not alive_after(rounds, make, transform, {})


def test_S3_a_thousand_rounds_of_cond() -> None:
    """Fresh closures over constants, equal ones: one program, and no function left."""
    with patch_flax():
        for make in (constant, method, local_class):
            rounds = 1000 if make is not local_class else 20
            assert not alive_after(rounds, make, "cond", {})


def test_S3_a_thousand_rounds_of_cond_in_a_trace() -> None:
    """A loop of a thousand fresh closures over tracers, in one jitted function."""
    made: list[weakref.ref[Any]] = []

    def outer(w: Any) -> Any:
        for i in range(100):
            f = lambda x, w=w, i=i: x * w
            made.append(weakref.ref(f))
            w = nnx.cond(True, f, lambda x: x, w, graph=False)
        return w

    with patch_flax():
        for i in range(10):
            jax.make_jaxpr(lambda w, i=i: outer(w))(1.0)
    gc.collect()
    assert [ref for ref in made if ref() is not None] == []
    assert len(made) == 1000


WEIGHTS = jnp.float32(1.0)


def by_weights(x: Any) -> Any:
    return x * WEIGHTS


@pytest.mark.parametrize("transform", [name for name in TRANSFORMS if name != "pmap"])
def test_S3_arrays_of_past_steps_are_freed(transform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module-level function that reads a rebound global: all arrays but the current one go."""
    global WEIGHTS
    past = []
    with patch_flax():
        for step in range(4):
            WEIGHTS = jnp.float32(step) + jnp.float32(0.5)
            past.append(weakref.ref(WEIGHTS))
            for _ in range(2):
                TRANSFORMS[transform](by_weights, {})
        WEIGHTS = jnp.float32(0.25)
        TRANSFORMS[transform](by_weights, {})
        gc.collect()
        assert [ref for ref in past if ref() is not None] == []


def used_model() -> list[weakref.ref[Any]]:
    model = Model()
    held = nnx.jit(lambda x: model(x))
    for _ in range(2):
        nnx.cond(True, model.__call__, lambda x: x, 1.0)
        held(1.0)
    return refs(model, model.w[...])


def test_S3_a_model_is_freed() -> None:
    """``del model; gc.collect()`` while its methods have been branches, held and not."""
    with patch_flax():
        watched = used_model()
        gc.collect()
        assert [ref() for ref in watched] == [None, None]


OUTER: dict[str, Callable[[Callable[[Any], Any]], Any]] = {
    "jit": lambda g: jax.jit(g)(jnp.float32(3.0)),
    "grad": lambda g: jax.grad(lambda w: jnp.sum(g(w)))(jnp.float32(3.0)),
    "vmap": lambda g: jax.vmap(g)(jnp.ones(2)),
}


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_S3_no_tracer_leaks(transform: str, mode: str, outer: str) -> None:
    """``jax.checking_leaks`` is clean around every transform under jit, grad and vmap."""
    if transform in ("pmap", "eval_shape") or (transform, outer) == ("while_loop", "grad"):
        pytest.skip("unpatched it does not run there")

    def g(w: Any) -> Any:
        return TRANSFORMS[transform](lambda x: x * w, MODES[mode])

    with patch_flax(), jax.checking_leaks():
        for _ in range(2):
            OUTER[outer](g)


def test_S3_leaks_are_seen() -> None:
    """The twin: a table that does keep the function fails the checks above."""
    kept: list[Any] = []

    def cond(f: Any, mode: Any) -> Any:
        kept.append(f)
        return f(1.0)

    TRANSFORMS["leaking"] = cond
    try:
        assert alive_after(2, array, "leaking", {}) == {"function": 2, "ArrayImpl": 2}

        def g(w: Any) -> Any:
            return TRANSFORMS["leaking"](lambda x: x * w, {})

        with pytest.raises(Exception, match="Leaked"), jax.checking_leaks():
            OUTER["jit"](g)
    finally:
        del TRANSFORMS["leaking"]


def test_S3_interned_by_value_frees_what_it_was_given() -> None:
    """The decorator alone, where the caller holds the wrapper."""

    @interned(by="value")
    def wrap(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda x: f(x)

    makes: list[Make] = [constant, array, method, local_class, module, namespace]
    for make in makes:
        f, made = make()
        first, second = wrap(f), wrap(f)
        assert first is second
        assert first(1.0) == f(1.0)
        del f, first, second
        gc.collect()
        assert [ref() for ref in made if ref() is not None] == [], make

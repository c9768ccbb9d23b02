"""Every transform of flax.nnx, mode and kind of function: what an eager call traces.

``python -m benchmarks.coverage`` prints the table, before and after ``patch_flax()``, and writes
it to ``docs/coverage.md``.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.metadata
import platform
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import jax
import jax.numpy as jnp
from flax import nnx

from benchmarks.counting import count
from fnintern import patch_flax

__all__ = ["KINDS", "MODES", "RNNS", "TRANSFORMS", "Cell", "cells", "count", "table"]

X = jnp.arange(4.0)
P = jax.sharding.PartitionSpec

MODES: dict[str, dict[str, bool]] = {
    "default": {},
    "graph_updates=False": {"graph_updates": False},
    "graph=False": {"graph": False},
}


def _true(v: Any) -> Any:
    return jnp.sin(v)


def _false(v: Any) -> Any:
    return jnp.cos(v)


def _wanted(v: Any) -> Any:
    return v[1] < 3


def _step(v: Any) -> Any:
    return v[0] + 1.0, v[1] + 1


def _numbered(i: Any, v: Any) -> Any:
    return v + i


def _carried(carry: Any, v: Any) -> Any:
    return carry + v, carry * v


def _loss(v: Any) -> Any:
    return (v**2).sum()


def _forward(v: Any) -> Any:
    return jnp.sin(v), (v,)


def _backward(residual: Any, g: Any) -> Any:
    return (g,)


def _scan(mode: dict[str, bool], f: Any) -> Any:
    return nnx.scan(f, in_axes=(nnx.Carry, 0), out_axes=(nnx.Carry, 0), **mode)(X[0], X)


def _shard_map(mode: dict[str, bool], f: Any) -> Any:
    return nnx.shard_map(f, mesh=_mesh(), in_specs=(P("d"),), out_specs=P("d"), **mode)(X)


@functools.cache
def _mesh() -> Any:
    return jax.sharding.Mesh(jax.devices()[:1], ("d",))


def _custom_vjp(mode: dict[str, bool], f: Any, forward: Any, backward: Any) -> Any:
    g = nnx.custom_vjp(f, **mode)
    g.defvjp(forward, backward)
    return g(X)


#: Transform -> its functions, and the call.
TRANSFORMS: dict[str, tuple[tuple[Callable[..., Any], ...], Callable[..., Any]]] = {
    "cond": ((_true, _false), lambda mode, t, f: nnx.cond(True, t, f, X, **mode)),
    "switch": ((_true, _false), lambda mode, t, f: nnx.switch(1, [t, f], X, **mode)),
    "while_loop": ((_wanted, _step), lambda mode, c, b: nnx.while_loop(c, b, (X, 0), **mode)),
    "fori_loop": ((_numbered,), lambda mode, b: nnx.fori_loop(0, 3, b, X, **mode)),
    "scan": ((_carried,), _scan),
    "vmap": ((_true,), lambda mode, f: nnx.vmap(f, **mode)(X)),
    "pmap": ((_true,), lambda mode, f: nnx.pmap(f, **mode)(X[None])),
    "jit": ((_true,), lambda mode, f: nnx.jit(f, **mode)(X)),
    "jit_partial": ((_true,), lambda mode, f: nnx.jit_partial(f, X, **mode)()),
    "shard_map": ((_true,), _shard_map),
    "remat": ((_true,), lambda mode, f: nnx.remat(f, **mode)(X)),
    "grad": ((_loss,), lambda mode, f: nnx.grad(f, **mode)(X)),
    "value_and_grad": ((_loss,), lambda mode, f: nnx.value_and_grad(f, **mode)(X)),
    "vjp": ((_true,), lambda mode, f: nnx.vjp(f, X, **mode)[0]),
    "jvp": ((_true,), lambda mode, f: nnx.jvp(f, (X,), (X,), **mode)[0]),
    "custom_vjp": ((_true, _forward, _backward), _custom_vjp),
    "eval_shape": ((_true,), lambda mode, f: nnx.eval_shape(f, X, **mode)),
    "checkify": ((_true,), lambda mode, f: nnx.checkify(f, **mode)(X)[1]),
    "make_jaxpr": ((_true,), lambda mode, f: nnx.make_jaxpr(f, **mode)(X)),
}

#: These trace at each call even when they are applied once.
ALWAYS_TRACE = ("checkify", "shard_map")


def _call(scale: float, f: Any, *args: Any) -> Any:
    return f(*args)


def _lambda(f: Any) -> Any:
    scale = 2.0
    if f.__code__.co_argcount == 1:
        return lambda v: _call(scale, f, v)
    return lambda u, v: _call(scale, f, u, v)


def _local(f: Any) -> Any:
    scale, name = 2.0, "local"

    def one(v: Any) -> Any:
        return _call(scale, f, v) if name else v

    def two(u: Any, v: Any) -> Any:
        return _call(scale, f, u, v) if name else v

    return one if f.__code__.co_argcount == 1 else two


class _Owner:
    def __init__(self, f: Any) -> None:
        self.f = f
        self.scale = 2.0

    def one(self, v: Any) -> Any:
        return _call(self.scale, self.f, v)

    def two(self, u: Any, v: Any) -> Any:
        return _call(self.scale, self.f, u, v)


@functools.cache
def _owner(f: Any) -> _Owner:
    return _Owner(f)


def _method(f: Any) -> Any:
    owner = _owner(f)
    return owner.one if f.__code__.co_argcount == 1 else owner.two


#: Kind -> what a caller writes in the call, from a module-level function.
KINDS: dict[str, Callable[[Any], Any]] = {
    "function": lambda f: f,
    "partial": lambda f: functools.partial(f),
    "lambda": _lambda,
    "local def": _local,
    "bound method": _method,
}


def _rnn(cell: Callable[..., Any], **options: Any) -> Callable[[], Any]:
    rnn = nnx.RNN(cell(2, 3, rngs=nnx.Rngs(0)), **options)
    x = jnp.ones((4, 5, 2))
    return lambda: jax.block_until_ready(rnn(x))


#: ``nnx.RNN`` called eagerly makes its scan inside each call.
RNNS: dict[str, Callable[[], Callable[[], Any]]] = {
    f"{cell} {' '.join(options)}".strip(): functools.partial(
        _rnn, getattr(nnx, cell), **dict.fromkeys(options, True)
    )
    for cell in ("LSTMCell", "GRUCell", "SimpleCell")
    for options in ((), ("time_major",), ("reverse",), ("return_carry",))
}


@attrs.frozen
class Cell:
    """One cell: ``call`` is one eager call, with its functions made anew where that is the kind."""

    transform: str
    mode: str
    kind: str
    call: Callable[[], Any] = attrs.field(repr=False)

    @property
    def name(self) -> str:
        return f"{self.transform}-{self.mode}-{self.kind}".replace(" ", "_")


def cells() -> Iterator[Cell]:
    """All cells, whether they work in this release or not."""
    for transform, (functions, run) in TRANSFORMS.items():
        if not hasattr(nnx, transform):
            continue
        for mode, options in MODES.items():
            for kind, make in KINDS.items():

                def call(
                    run: Any = run, options: Any = options, make: Any = make, of: Any = functions
                ) -> Any:
                    return run(options, *map(make, of))

                yield Cell(transform, mode, kind, call)


def _shown(call: Callable[[], Any]) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            traced, compiled = count(call, 2)
    except Exception:  # the release has no such mode
        return ""
    return f"{traced:g}/{compiled:g}"


def table(patched: bool) -> dict[str, str]:
    """Cell's name -> what it traces and compiles a call, or an empty string where it fails."""
    with patch_flax() if patched else contextlib.nullcontext():
        found = {cell.name: _shown(cell.call) for cell in cells()}
        found |= {f"RNN-{name}": _shown(make()) for name, make in RNNS.items()}
    return found


def lines() -> Iterator[str]:
    """The page, line by line."""
    before, after = table(patched=False), table(patched=True)
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("flax", "jax"))
    yield "# Coverage"
    yield ""
    yield "Tracing cache misses and compilations of one eager call after two calls to warm up,"
    yield "unpatched → under `patch_flax()`. An empty cell does not work unpatched either."
    yield "`checkify` and `shard_map` trace at each call even when they are applied once."
    yield "A partial, a lambda and a local function are made anew for each call; the lambda and"
    yield "the local function capture constants. The table comes from:"
    yield ""
    yield "```sh"
    yield "python -m benchmarks.coverage"
    yield "```"
    yield ""
    yield f"Python {platform.python_version()}, {versions}."
    yield ""
    yield f"| transform | mode | {' | '.join(KINDS)} |"
    yield f"|---|---|{'---|' * len(KINDS)}"
    for transform in TRANSFORMS:
        for mode in MODES:
            row = []
            for kind in KINDS:
                name = f"{transform}-{mode}-{kind}".replace(" ", "_")
                row.append(f"{before[name]} → {after[name]}" if before.get(name) else "")
            if any(row):
                yield f"| {transform} | {mode} | {' | '.join(row)} |"
    yield ""
    yield "`nnx.RNN`, called eagerly:"
    yield ""
    yield "| cell and options | misses/compilations |"
    yield "|---|---|"
    for name in RNNS:
        yield f"| {name} | {before[f'RNN-{name}']} → {after[f'RNN-{name}']} |"
    working = [name for name, shown in before.items() if shown]
    zero = [name for name in working if after[name] == "0/0"]
    were = [name for name in working if before[name] == "0/0"]
    yield ""
    yield (
        f"{len(zero)} of {len(working)} cells trace and compile nothing under the patch; "
        f"{len(were)} did so before."
    )


def main(argv: list[str] | None = None) -> int:
    """Prints the page and writes it; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__)
    default = Path(__file__).parent.parent / "docs" / "coverage.md"
    parser.add_argument("--output", type=Path, default=default, help="where the page is written")
    options = parser.parse_args(argv)
    page = ""
    for line in lines():
        print(line, flush=True)
        page += line + "\n"
    options.output.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())

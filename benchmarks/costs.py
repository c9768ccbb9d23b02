"""What a call costs against a peer in the same run, each with its limit (law S7)."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import fnintern
from benchmarks.tables import Check, Result, Table
from benchmarks.timing import race, ratios, time_once
from fnintern import lax

__all__ = ["run"]

NOTES = """\
A call in calls of a peer that was measured in the same round: median (quartiles), and the limit.
*One more* is the difference of two sizes, in calls of a jitted function that gets as many more
operands."""

Call = Callable[[], Any]
X = jnp.float32(2.0)
XS = jnp.arange(3.0)


@attrs.frozen
class Row:
    """A call and its peer.

    Attributes:
        what: both, in words.
        limit: the most that the ratio may be.
        ours, peer: the calls.
        less: what of both is taken off, for the cost of one more: a smaller call of each.
        share: by how many the calls of a round are divided.
    """

    what: str
    limit: float
    ours: Call
    peer: Call
    less: tuple[Call, Call] | None = None
    share: int = 1


def _hits() -> Iterator[Row]:
    """A hit of a factory, in hits of ``lru_cache``."""

    def f(x: Any) -> Any:
        return x

    class Owner:
        def method(self, x: Any) -> Any:
            return x

    def pair(function: Any, graph: bool = True) -> Any:
        return [function, graph]

    def single(function: Any) -> Any:
        return [function]

    def cached(factory: Any) -> Any:
        return functools.lru_cache(maxsize=None, typed=True)(factory)

    ours, theirs = fnintern.interned(pair), cached(pair)
    one, their_one = fnintern.interned(single), cached(single)
    kept, owner = functools.partial(f, 1), Owner()
    held = [owner.method]
    name = "{}, interned / lru_cache(typed)"

    def row(what: str, limit: float, call: Callable[[Any], Any], a: Any, b: Any) -> Row:
        return Row(name.format(what), limit, functools.partial(call, a), functools.partial(call, b))

    yield row("hit by keyword", 3, lambda memo: memo(f, graph=True), ours, theirs)
    yield row("hit of one parameter", 3, lambda memo: memo(f), one, their_one)
    yield row("hit with a default left out", 3, lambda memo: memo(f), ours, theirs)
    yield row("hit of a kept partial", 10, lambda memo: memo(kept, True), ours, theirs)
    yield row("hit of a bound method", 10, lambda memo: memo(held[0], True), ours, theirs)


class _Plain:
    """An object of the user's with a number."""

    def __init__(self, number: int) -> None:
        self.number = number


def _captures() -> Iterator[Row]:
    """One more of what a converted call captures."""

    def arrays(count: int) -> tuple[Call, Call]:
        held = [jnp.float32(i) for i in range(count)]
        jitted = jax.jit(lambda held, x: x * held[0])
        return (
            lambda: lax.map(lambda x: x * sum(held[:1]), XS) if held else None,
            lambda: jitted(held, XS),
        )

    def objects(count: int) -> tuple[Call, Call]:
        held = [_Plain(i) for i in range(count)]
        values = [np.float32(i) for i in range(count)]
        jitted = jax.jit(lambda values, x: x * values[0])
        return (
            lambda: lax.map(lambda x: x * sum(item.number for item in held), XS),
            lambda: jitted(values, XS),
        )

    few, many = arrays(10), arrays(110)
    yield Row("one more captured array / one more operand of jax.jit", 4, many[0], many[1], few, 5)
    few, many = objects(10), objects(110)
    yield Row(
        "one more captured object / one more NumPy operand of jax.jit", 15, many[0], many[1], few, 5
    )
    lists = [[i] for i in range(2000)]
    twice, once = (lists, lists), ([[i] for i in range(2000)], [[i] for i in range(2000)])
    yield Row(
        "2,000 lists met twice / 4,000 lists met once",
        1.2,
        lambda: lax.map(lambda x: x * len(twice[0]) + len(twice[1]), XS),
        lambda: lax.map(lambda x: x * len(once[0]) + len(once[1]), XS),
        share=50,
    )


WIDTH = 16


class Block(nnx.Module):  # type: ignore[misc]
    """A block of a transformer."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(2, WIDTH, rngs=rngs, decode=False)
        self.up = nnx.Linear(WIDTH, 2 * WIDTH, rngs=rngs)
        self.down = nnx.Linear(2 * WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = x + self.attention(self.norm(x))
        return x + self.down(nnx.relu(self.up(x)))


class Transformer(nnx.Module):  # type: ignore[misc]
    """Blocks in a list."""

    def __init__(self, count: int, rngs: nnx.Rngs) -> None:
        self.blocks = nnx.List([Block(rngs) for _ in range(count)])

    def __call__(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x


def _models() -> Iterator[Row]:
    """A transformer of 12 blocks, as operand and captured."""
    model, x = Transformer(12, nnx.Rngs(0)), jnp.ones((1, 4, WIDTH))
    jitted = nnx.jit(lambda model, x: model(x))

    def operand() -> Any:
        return nnx.cond(True, lambda model, x: model(x), lambda model, x: x, model, x)

    def captured() -> Any:
        return nnx.cond(True, lambda x: model(x), lambda x: x, x)

    def peer() -> Any:
        return jitted(model, x)

    yield Row("nnx.cond over 12 blocks as operand / nnx.jit", 2, operand, peer, share=10)
    yield Row("nnx.cond over 12 captured blocks / nnx.jit", 2, captured, peer, share=10)


class _Counted:
    """A trainer whose counter changes between calls."""

    def __init__(self, weight: Any) -> None:
        self.weight = weight
        self.steps = 0

    def step(self, carry: Any, x: Any) -> Any:
        return carry + x * self.weight, None


def _stays() -> Iterator[Row]:
    """Functions that stay, which ``jax`` alone finds in its cache."""
    weights = {f"w{i}": jnp.float32(i) for i in range(1000)}

    class Holder:
        pass

    holder: Any = Holder()
    for i in range(300):
        setattr(holder, f"w{i}", jnp.float32(i))

    def over_dict(c: Any, x: Any) -> Any:
        return c + x * weights["w1"] + sum(weights.values()), None

    def over_object(c: Any, x: Any) -> Any:
        return c + x * holder.w1 + sum(vars(holder).values()), None

    trainer = _Counted(X)
    step = trainer.step

    def counted(ops: Any) -> Any:
        trainer.steps += 1
        return ops.scan(step, X, XS)

    def scan(body: Any) -> tuple[Call, Call]:
        return lambda: lax.scan(body, X, XS), lambda: jax.lax.scan(body, X, XS)

    name = "lax.scan of a body that stays, over {}, patched / plain"
    yield Row(name.format("a dict of 1,000 arrays"), 1.5, *scan(over_dict), share=5)
    yield Row(name.format("an object of 300 arrays"), 1.5, *scan(over_object), share=5)
    yield Row(
        name.format("an object with a counter"), 1.5, lambda: counted(lax), lambda: counted(jax.lax)
    )


def _jits() -> Iterator[Row]:
    """``fnintern.jit`` of functions that stay."""
    lock, table = threading.Lock(), np.ones(4096, np.float32)

    def plain(x: Any) -> Any:
        return x * X

    def locked(x: Any) -> Any:
        with lock:
            return x * X

    def tabled(x: Any) -> Any:
        return x * table[:4].sum()

    def called_back(x: Any) -> Any:
        jax.debug.callback(lambda x: None, x)
        return x * X

    functions = {
        "a function that stays": plain,
        "one with a lock": locked,
        "one over a 16 kB NumPy array": tabled,
        "one with a callback": called_back,
    }
    for name, function in functions.items():
        yield Row(
            f"{name}, fnintern.jit / jax.jit",
            6,
            functools.partial(fnintern.jit(function), X),
            functools.partial(jax.jit(function), X),
        )


def rows() -> Iterator[Row]:
    for part in (_hits, _captures, _models, _stays, _jits):
        yield from part()


def run(rounds: int, number: int, show: Callable[[str], None]) -> Result:
    """A row for each call, and its check."""
    lines: list[Sequence[str]] = []
    checks = []
    with fnintern.patch_flax():
        for row in rows():
            times = max(2, number // row.share)
            calls = {"ours": row.ours, "peer": row.peer}
            if row.less:
                calls |= {"ours, less": row.less[0], "peer, less": row.less[1]}
            for call in calls.values():
                for _ in range(3):
                    jax.block_until_ready(call())
            rivals = {key: functools.partial(_timed, call, times) for key, call in calls.items()}
            seconds = race(rivals, rounds, functools.partial(_shown, show, row.what))
            ours, peer = seconds["ours"], seconds["peer"]
            if row.less:
                ours = _differences(ours, seconds["ours, less"])
                peer = _differences(peer, seconds["peer, less"])
            ratio = ratios(ours, peer)
            lines.append([row.what, str(ratio), f"{row.limit:g}"])
            checks.append(Check(row.what, ratio.median, row.limit))
    return Result("Costs", NOTES, [Table(["call", "ratio", "limit"], lines)], checks)


def _differences(more: Sequence[float], less: Sequence[float]) -> list[float]:
    # A small positive number where noise hides it.
    return [max(a - b, 1e-9) for a, b in zip(more, less, strict=True)]


def _shown(show: Callable[[str], None], what: str, line: str) -> None:
    show(f"{what}: {line}")


def _timed(call: Call, number: int) -> float:
    return time_once("call()", {"call": call}, number)

"""What flax's own tests found wrong with the patch, each reduced to the smallest case."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

import fnintern
from fnintern.captures import freezing


@pytest.fixture(autouse=True)
def _patched() -> Iterator[None]:
    with fnintern.patch_flax():
        yield


class Slotted:
    """Takes no weak reference."""

    __slots__ = ()

    def __call__(self, x: object) -> object:
        return x


@pytest.mark.parametrize("graph_updates", [True, False])
def test_a_branch_that_takes_no_weak_reference_runs_as_without_the_patch(
    graph_updates: bool,
) -> None:
    for _ in range(2):
        out = nnx.cond(True, Slotted(), Slotted(), jnp.ones(()), graph_updates=graph_updates)
        assert out == 1.0


class Step(NamedTuple):
    number: int
    reward: jax.Array


def test_a_function_that_makes_a_named_tuple_and_reads_its_fields_is_a_constant() -> None:
    # In TestCond.test_basic of flax 0.12.6, a branch returns a time step.
    def make(scale: float) -> Any:
        return lambda step: Step(step.number + 1, scale * step.reward)

    assert freezing.freeze(make(2.0)).key == freezing.freeze(make(2.0)).key
    assert freezing.freeze(make(2.0)).key != freezing.freeze(make(3.0)).key


@pytest.mark.parametrize("graph_updates", [True, False])
def test_a_branch_that_reads_what_its_trace_changes_is_traced_each_time(
    graph_updates: bool,
) -> None:
    # flax 0.12.9 and later trace once here: their memo takes what a branch reads as constant.
    traces = 0

    def branch(x: jax.Array) -> jax.Array:
        nonlocal traces
        traces += 1
        return x * traces

    outs = [
        float(nnx.cond(True, branch, lambda x: x, jnp.ones(()), graph_updates=graph_updates))
        for _ in range(3)
    ]
    assert outs == [1.0, 2.0, 3.0]


class Counter:
    count = 0


def test_traces_can_be_counted_in_what_is_declared_free_of_state() -> None:
    counter = fnintern.stateless(Counter())

    def branch(x: jax.Array) -> jax.Array:
        counter.count += 1
        return x

    for _ in range(3):
        nnx.cond(True, branch, branch, jnp.ones(()))
    assert counter.count == 2  # two branches, in the first call

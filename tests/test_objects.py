"""Objects among the arguments of a factory that are compared by identity; freed stand-ins (L1)."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from fnintern import interned


class Config:
    """Compared by identity, and not callable."""

    scale = 2.0


def function(x: float) -> float:
    return x


def holding(config: Config, f: Callable[[float], float]) -> Callable[[float], float]:
    return lambda x: config.scale * f(x)


def not_holding(config: Config, f: Callable[[float], float]) -> Callable[[float], float]:
    scale = config.scale
    return lambda x: scale * f(x)


class Trainer:
    scale = 3.0

    @interned
    def holding(self, f: Callable[[float], float]) -> Callable[[float], float]:
        return lambda x: self.scale * f(x)

    @interned
    def not_holding(self, f: Callable[[float], float]) -> Callable[[float], float]:
        return lambda x: f(x)


@pytest.mark.parametrize("factory", [holding, not_holding])
def test_L1_a_configuration_object_is_not_kept_alive(factory: Any) -> None:
    """Neither by the key nor by the wrapper, although the function lives."""
    wrap = interned(factory)
    config = Config()
    assert wrap(config, function)(1.0) == 2.0
    gone = weakref.ref(config)
    del config
    gc.collect()
    assert gone() is None
    assert wrap.cache_info().currsize == 0


@pytest.mark.parametrize("name", ["holding", "not_holding"])
def test_L1_an_interned_method_does_not_keep_its_instance(name: str) -> None:
    """The function that was wrapped lives on; the instance does not."""
    trainer = Trainer()
    getattr(trainer, name)(function)
    gone = weakref.ref(trainer)
    del trainer
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("factory", [holding, not_holding])
def test_I1_the_same_object_gives_the_same_wrapper(factory: Any) -> None:
    """As long as somebody holds the wrapper, and until the next full collection if nobody does."""
    wrap = interned(factory)
    config = Config()
    held = wrap(config, function)
    gc.collect()
    assert wrap(config, function) is held
    assert wrap(Config(), function) is not held
    number = id(held)
    del held
    assert id(wrap(config, function)) == number


def test_L2_a_held_wrapper_keeps_its_object() -> None:
    """A wrapper that is held goes on working when the object is not held by anybody else."""
    wrap = interned(holding)
    held = wrap(Config(), function)
    gc.collect()
    assert held(1.0) == 2.0


def test_L1_a_stand_in_answers_when_its_callable_is_gone() -> None:
    """Code that looks at all objects there are, as leak checks do, meets stand-ins."""

    class Model:
        def step(self, x: float) -> float:
            return x

    wrap = interned(lambda f: [f])
    model = Model()
    wrap(model.step)
    del model
    gc.collect()
    assert sum(isinstance(item, Model) for item in gc.get_objects()) == 0
    assert all(repr(item) for item in gc.get_objects() if "Forward" in type(item).__name__)

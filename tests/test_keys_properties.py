"""Laws I1, I2, I3 and L3 against oracles: the bare factory, a recursive key, a plain dict."""

from __future__ import annotations

import copy
import gc
import inspect
from typing import Any

import hypothesis.strategies as st
import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from fnintern import interned
from strategies import FUNCTIONS, Spec, calls, strict, values

# Fixed seeds: a run says the same each time. The machines that run this are slow at times.
relaxed = settings(
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    database=None,
    phases=[Phase.generate],  # a failure is small as it is, and shrinking takes minutes
)


def bare(f: Any, a: Any = 1, *, b: Any = 2, c: Any = 3) -> Any:
    return [f, a, b, c]


def outcome(call: Any, args: Any, kwargs: Any) -> Any:
    try:
        return call(*args, **kwargs)
    except TypeError as error:
        return str(error)


@relaxed
@given(one=values, two=values)
def test_I3_same_exactly_where_the_oracle_says(one: Any, two: Any) -> None:
    wrap = interned(lambda x: [x])
    assert (wrap(one) is wrap(two)) == (strict(one) == strict(two))
    assert wrap.cache_info().bypassed == 0


@relaxed
@given(value=values)
def test_I1_deep_copies_of_values_are_the_same(value: Any) -> None:
    """Nothing depends on the identity of what is compared by value."""
    wrap = interned(lambda x: [x])
    memo = {id(f): f for f in (spell() for spell in FUNCTIONS)}
    twin = copy.deepcopy(value, {**memo, **{id(o): o for o in _owners()}})
    if strict(twin) == strict(value):
        assert wrap(twin) is wrap(value)


def _owners() -> list[Any]:
    return [f.__self__ for f in (spell() for spell in FUNCTIONS) if inspect.ismethod(f)]


@settings(relaxed, max_examples=200)
@given(first=calls(), second=calls())
def test_I2_as_python_binds(first: Any, second: Any) -> None:
    """Wrong calls raise the bare factory's error; right ones are one where they bind alike."""
    wrap = interned(bare)
    wrapped = [outcome(wrap, *call) for call in (first, second)]
    expected = [outcome(bare, *call) for call in (first, second)]
    for got, wanted in zip(wrapped, expected, strict=True):
        if isinstance(wanted, str):
            assert got == wanted
        else:
            assert type(got) is list
    if not isinstance(expected[0], str) and not isinstance(expected[1], str):
        same = strict(tuple(expected[0])) == strict(tuple(expected[1]))
        assert (wrapped[0] is wrapped[1]) == same


@relaxed
@given(args=st.lists(st.integers(-3, 3), max_size=2))
def test_I4_wrapper_does_what_the_bare_one_does(args: list[int]) -> None:
    def make(f: Any) -> Any:
        return lambda *args: f(*args)

    wrap = interned(make)
    for spell in FUNCTIONS:
        if spell() not in (abs,) and not hasattr(spell(), "nin"):
            assert wrap(spell())(*args) == make(spell())(*args)


class Table(RuleBasedStateMachine):
    """One table against a dict on recursive keys, with eviction, clearing and collections."""

    MAXSIZE = 3

    @initialize()
    def start(self) -> None:
        self.made: list[Any] = []
        self.wrap = interned(self._make, maxsize=self.MAXSIZE)
        #: For each callable: strict keys of the calls, oldest first, and the wrappers. An instance
        #: and its bound methods share one table, and so does all that cannot carry one.
        self.model: dict[Any, dict[Any, Any]] = {}
        self.hits = self.misses = self.bypassed = 0

    def _make(self, f: Any, constant: Any = 0) -> Any:
        result = [len(self.made)]
        self.made.append(result)
        return result

    @rule(
        spell=st.sampled_from(FUNCTIONS),
        constant=st.sampled_from(
            [0, 1, 1.0, True, -0.0, 0.0, (1,), (1.0,), Spec(1), Spec(True), None]
        ),
        keyword=st.booleans(),
    )
    def call(self, spell: Any, constant: Any, keyword: bool) -> None:
        f = spell()
        owner = id(getattr(f, "__self__", f)) if f is not abs and f is not np.sin else strict(f)
        of_one = self.model.setdefault("constants" if f is np.sin else owner, {})
        key = strict((f, constant))
        expected = of_one.get(key)
        found = self.wrap(constant=constant, f=spell()) if keyword else self.wrap(spell(), constant)
        if expected is None:
            assert found is self.made[-1]
            self.misses += 1
            of_one[key] = found
            if len(of_one) > self.MAXSIZE:
                del of_one[next(iter(of_one))]
        else:
            assert found is expected
            self.hits += 1

    @rule(spell=st.sampled_from(FUNCTIONS))
    def bypass(self, spell: Any) -> None:
        assert self.wrap(spell(), []) is self.made[-1]
        self.bypassed += 1

    @rule()
    def collect(self) -> None:
        gc.collect()

    @rule()
    @precondition(lambda self: self.made)
    def clear(self) -> None:
        self.wrap.cache_clear()
        self.model.clear()
        self.hits = self.misses = self.bypassed = 0

    @invariant()
    def counts(self) -> None:
        info = self.wrap.cache_info()
        assert (info.hits, info.misses, info.bypassed) == (self.hits, self.misses, self.bypassed)
        assert info.currsize <= sum(map(len, self.model.values()))


TestTable = Table.TestCase
TestTable.settings = settings(relaxed, max_examples=25, stateful_step_count=30)

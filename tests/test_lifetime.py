"""Laws L1, L2, L3 and L5: the tables keep nothing alive, and nothing in use dies."""

from __future__ import annotations

import functools
import gc
import subprocess
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import jax
import pytest

from factories import factories, make_class_factory, make_function_factory
from fnintern import interned
from fnintern.lifetime import entries as lifetime
from fnintern.lifetime import standins, stores
from kinds import FREED, Case, Kind, Plain, freed, new_array


def alive(references: list[weakref.ref[Any]]) -> list[Any]:
    """What survives one collection."""
    gc.collect()
    return [x for ref in references if (x := ref()) is not None]


def function(x: Any) -> Any:
    return x


@freed
@factories
class TestEveryKind:
    def test_L1_freed_once_dropped(self, make_factory: Any, kind: Kind) -> None:
        """The callable, its owner and the array it captures, in one collection."""
        factory, case = make_factory(), kind.make(new_array())
        factory(case.fetch())
        watched = case.watched
        assert alive(watched)
        del case
        assert alive(watched) == []
        assert factory.cache_info().currsize == 0

    def test_L1_freed_after_the_wrapper_was_called(self, make_factory: Any, kind: Kind) -> None:
        factory, case = make_factory(), kind.make(new_array())
        wrapper = factory(case.fetch(), 2.0)
        for _ in range(3):
            wrapper(1.0)
            assert factory(case.fetch(), 2.0) is wrapper
        watched = case.watched
        del case, wrapper
        assert alive(watched) == []

    def test_L1_freed_after_jax_has_traced_the_wrapper(self, make_factory: Any, kind: Kind) -> None:
        """JAX's caches hold what they traced weakly; the table must not be what holds it."""
        factory, case = make_factory(), kind.make(new_array())
        jax.eval_shape(factory(case.fetch()), 1.0)
        jax.make_jaxpr(factory(case.fetch()))(1.0)
        watched = case.watched
        del case
        assert alive(watched) == []

    def test_L1_freed_among_held_wrappers(self, make_factory: Any, kind: Kind) -> None:
        """That one callable of many is in use keeps none of the others."""
        factory, cases = make_factory(), [kind.make(new_array()) for _ in range(8)]
        wrappers = [factory(case.fetch()) for case in cases]
        gc.collect()
        watched = [ref for case in cases[1:] for ref in case.watched]
        del cases, wrappers[1:]
        assert alive(watched) == []
        assert wrappers[0](1.0) == 2.0

    def test_L1_cycle_through_the_callable(self, make_factory: Any, kind: Kind) -> None:
        """The owner holds its own wrapper, as ``self.step = wrap(self._step)`` does."""
        case = kind.make(new_array())
        owner: Any = case.watched[0]()
        factory = make_factory()
        try:
            owner.wrapper = factory(case.fetch())
        except (AttributeError, TypeError):  # slotted or frozen
            owner = object.__new__(Plain)
            owner.array = [factory(case.fetch()), case]
        gc.collect()
        watched = case.watched
        del case, owner
        assert alive(watched) == []

    def test_L1_wrapper_of_a_wrapper(self, make_factory: Any, kind: Kind) -> None:
        one, two, case = make_factory(), make_class_factory(), kind.make(new_array())
        outer = two(one(case.fetch()), 2.0)
        watched = case.watched
        del case
        assert alive(watched)
        assert outer(1.0) == 4.0
        del outer
        assert alive(watched) == []

    def test_L1_wrapper_of_a_wrapper_is_found_again(self, make_factory: Any, kind: Kind) -> None:
        one, two, case = make_factory(), make_function_factory(), kind.make(new_array())
        number = id(two(one(case.fetch()), 2.0))
        for _ in range(2):
            gc.collect()
            assert id(two(one(case.fetch()), 2.0)) == number
        assert (one.cache_info().misses, two.cache_info().misses) == (1, 1)

    def test_L1_factory_that_calls_a_factory(self, make_factory: Any, kind: Kind) -> None:
        inner, case = make_factory(), kind.make(new_array())
        outer = interned(lambda f: [f, inner(f), inner(f)])
        first = outer(case.fetch())
        gc.collect()
        assert outer(case.fetch()) is first
        assert first[1] is first[2]
        assert first[1](1.0) == 2.0
        watched = case.watched
        del case, first
        assert alive(watched) == []

    def test_L2_wrapper_outlives_every_other_reference(self, make_factory: Any, kind: Kind) -> None:
        factory, case = make_factory(), kind.make(new_array())
        wrapper, watched = factory(case.fetch(), 3.0), case.watched
        del case
        for _ in range(3):
            gc.collect()
            assert wrapper(1.0) == 6.0
        del wrapper
        assert alive(watched) == []

    def test_L2_held_through_something_else(self, make_factory: Any, kind: Kind) -> None:
        """The user holds a closure, a partial or a method over the wrapper, not the wrapper."""
        factory, case = make_factory(), kind.make(new_array())
        wrapper, watched = factory(case.fetch()), case.watched
        held: list[Callable[[Any], Any]] = [
            (lambda w: lambda x: w(x))(wrapper),
            functools.partial(wrapper),
            wrapper.__call__,
        ]
        del case, wrapper
        while held:
            gc.collect()
            assert held[-1](1.0) == 2.0
            held.pop()
        assert alive(watched) == []

    def test_L2_taken_again_after_a_collection(self, make_factory: Any, kind: Kind) -> None:
        """At rest the reference is weak; a hit makes it strong again."""
        factory, case = make_factory(), kind.make(new_array())
        factory(case.fetch())
        gc.collect()
        wrapper, watched = factory(case.fetch()), case.watched
        del case
        gc.collect()
        assert wrapper(1.0) == 2.0
        del wrapper
        assert alive(watched) == []

    def test_L2_any_generation_may_run(self, make_factory: Any, kind: Kind) -> None:
        factory, case = make_factory(), kind.make(new_array())
        wrapper, watched = factory(case.fetch()), case.watched
        del case
        for generation in (0, 1, 0, 2, 1, 0, 2, 2):
            gc.collect(generation)
            assert wrapper(1.0) == 2.0
        del wrapper
        assert alive(watched) == []

    def test_L5_no_table_keeps_what_jax_may_have_seen(self, make_factory: Any, kind: Kind) -> None:
        """Equal bound methods are one key to JAX: none may stay behind, in a wrapper or a table."""
        factory, case = make_factory(), kind.make(new_array())
        factory(case.fetch())
        gc.collect()
        spelled = case.fetch()
        if type(spelled) in (types.MethodType, functools.partial, jax.tree_util.Partial):
            same = [
                x
                for x in gc.get_objects()
                if type(x) is type(spelled)
                and x is not spelled
                and (x is case.fetch or (type(x) is types.MethodType and x == spelled))
            ]
            assert same == []
            ref = weakref.ref(spelled)
            factory(spelled)
            del spelled
            assert ref() is None


@pytest.mark.parametrize("pairs", [FREED[i : i + 2] for i in range(len(FREED) - 1)], ids=str)
def test_L1_two_callables_either_dies_first(pairs: list[Kind]) -> None:
    """An entry goes with the first of its callables."""
    wrap = interned(lambda f, g, n=0: lambda x: f(x) + g(x))
    for first_to_go in (0, 1):
        cases = [kind.make(new_array()) for kind in pairs]
        wrapper: Any = wrap(*(case.fetch() for case in cases))
        assert wrap(*(case.fetch() for case in cases)) is wrapper
        gc.collect()
        assert wrapper(1.0) == 4.0  # type: ignore[no-untyped-call]
        del wrapper
        gc.collect()
        assert wrap.cache_info().currsize == 1
        watched = cases[first_to_go].watched
        del cases[first_to_go]
        if first_to_go == 1 and pairs[0].name in ("def", "lambda", "closure"):
            gc.collect()
        assert alive(watched) == []
        assert wrap.cache_info().currsize == 0


class TestNoGarbage:
    def test_L1_bound_method_is_freed_without_a_collector(self) -> None:
        """Where no cycle is needed there is none: a weakref callback takes the entry along."""
        wrap, owner = make_function_factory(), Plain(1.0)
        wrap(owner.method)
        lifetime.demote()
        gc.disable()
        try:
            ref = weakref.ref(owner)
            del owner
            assert ref() is None
            assert wrap.cache_info().currsize == 0
        finally:
            gc.enable()

    def test_L1_many_fresh_lambdas(self) -> None:
        wrap, references = make_function_factory(), []
        for i in range(1_000):
            f = lambda x, i=i: x + i
            references += [weakref.ref(f), weakref.ref(wrap(f))]
        del f
        assert alive(references) == []

    def test_L1_many_fresh_owners(self) -> None:
        before = len(stores.registry)
        wrap, references = make_class_factory(), []
        for i in range(1_000):
            owner = Plain(i)
            references += [weakref.ref(owner), weakref.ref(wrap(owner.method, 2.0))]
        del owner
        assert alive(references) == []
        assert len(stores.registry) < before + 100

    def test_L1_nothing_is_left_in_the_module(self) -> None:
        gc.collect()
        before = len(stores.registry), len(lifetime._fresh), len(lifetime._old)
        self.test_L1_many_fresh_owners()
        gc.collect()
        assert (len(stores.registry), len(lifetime._fresh), len(lifetime._old)) == before
        assert lifetime._lent == []


class TestCycles:
    def test_L1_function_over_itself(self) -> None:
        wrap = make_function_factory()

        def fresh() -> list[weakref.ref[Any]]:
            def f(x: Any) -> Any:
                return (f, wrapper)

            wrapper = wrap(f)
            f.wrapper = wrapper  # type: ignore[attr-defined]
            return [weakref.ref(f), weakref.ref(wrapper)]

        assert alive(fresh()) == []

    def test_L1_two_owners_over_each_others_wrappers(self) -> None:
        wrap, one, two = make_class_factory(), Plain(1.0), Plain(2.0)
        one.array, two.array = wrap(two.method), wrap(one.method)
        references = [weakref.ref(x) for x in (one, two, one.array, two.array)]
        gc.collect()
        del one, two
        assert alive(references) == []

    def test_L1_long_lived_callable_beside_one_that_holds_the_wrapper(self) -> None:
        wrap, owner = interned(lambda f, g: lambda x: f(g(x))), Plain(1.0)
        owner.array = wrap(function, owner)
        references = [weakref.ref(owner), weakref.ref(owner.array)]
        del owner
        assert alive(references) == []

    def test_L1_wrapper_that_comes_to_hold_itself(self) -> None:
        """A cached property computed late: no reason to keep the callable, nor to forget it."""

        @interned
        class Wrapper:
            def __init__(self, f: Any) -> None:
                self.f = f

            def run(self, x: Any) -> Any:
                return self.f(x)

            @functools.cached_property
            def late(self) -> Any:
                return self.run

        owner = Plain(1.0)
        assert Wrapper(owner.method).late(1.0) == 2.0
        number = id(Wrapper(owner.method))
        for _ in range(3):
            gc.collect()
            assert id(Wrapper(owner.method)) == number
            assert "late" in vars(Wrapper(owner.method))
        ref = weakref.ref(owner)
        del owner
        assert alive([ref]) == []

    def test_L2_wrapper_in_use_survives_what_the_collector_looks_at(self) -> None:
        """During a full collection the table refers weakly to wrappers in use."""
        wrap, owner = make_function_factory(), Plain(1.0)
        held = [wrap(owner.method)]
        found = []

        def during(phase: str, info: dict[str, int]) -> None:
            found.append(wrap(owner.method) is held[0])

        gc.callbacks.append(during)
        try:
            gc.collect()
        finally:
            gc.callbacks.remove(during)
        assert found == [True, True]
        assert wrap(owner.method) is held[0]
        # The table holds it again: nobody else does now.
        held.clear()
        wrap(owner.method)
        assert wrap.cache_info().misses == 1

    def test_L1_partial_with_a_wrapped_attribute(self) -> None:
        """functools.update_wrapper leaves the bound method in ``__wrapped__`` of the partial."""
        wrap, owner = make_function_factory(), Plain(1.0)
        one, two = (
            functools.update_wrapper(functools.partial(owner.method), owner.method) for _ in "12"
        )
        assert wrap(one) is wrap(two)
        del one, two
        ref = weakref.ref(owner)
        del owner
        assert alive([ref]) == []

    def test_L1_method_in_a_frozenset(self) -> None:
        wrap, owner = interned(lambda f: [f]), Plain(1.0)
        wrap(frozenset({(owner.method, 1)}))
        wrap(frozenset({owner.method}))
        ref = weakref.ref(owner)
        del owner
        assert alive([ref]) == []

    def test_L1_jitted_function_of_a_module(self) -> None:
        """A notebook's cell run again: what its module held under that name is garbage."""
        module = types.ModuleType("a_module_of_mine")
        sys.modules[module.__name__] = module
        try:
            exec(
                "import jax\ncaptured = jax.numpy.ones(1)\n@jax.jit\ndef f(x): return x",
                vars(module),
            )
            wrap = make_function_factory()
            wrap(module.f)
            ref = weakref.ref(module.f)
            del module.f
            assert alive([ref]) == []
        finally:
            del sys.modules[module.__name__]

    def test_L1_interned_jit(self) -> None:
        """``interned(jax.jit)``, called, so that JAX has compiled and cached it."""
        jit = interned(jax.jit)
        for kind in FREED:
            case = kind.make(new_array())
            assert jit(case.fetch())(1.0) == 2.0
            assert jit(case.fetch()) is jit(case.fetch())
            watched = case.watched
            del case
            assert alive(watched) == [], kind.name


class TestStore:
    def test_L3_evicted_wrapper_keeps_working(self) -> None:
        wrap, owner = make_function_factory(maxsize=1), Plain(1.0)
        first, second = wrap(owner.method, 1.0), wrap(owner.method, 2.0)
        assert wrap.cache_info().currsize == 1
        ref = weakref.ref(owner)
        del owner
        gc.collect()
        assert (first(1.0), second(1.0)) == (2.0, 4.0)
        del first
        assert alive([ref])
        del second
        assert alive([ref]) == []

    def test_L2_cleared_wrapper_keeps_working(self) -> None:
        wrap, owner = make_function_factory(), Plain(1.0)
        wrapper = wrap(owner.method)
        wrap.cache_clear()
        ref = weakref.ref(owner)
        assert wrap(owner.method) is not wrapper
        del owner
        gc.collect()
        assert wrapper(1.0) == 2.0
        del wrapper
        assert alive([ref]) == []

    def test_L3_dead_factory_leaves_no_entries(self) -> None:
        """A factory made in a loop must not fill the stores of functions that live for long.

        A class cannot promise this: its instances, which are in the stores, hold it.
        """
        for _ in range(10):
            factory, owner = make_function_factory(), Plain(1.0)
            references = [weakref.ref(factory(f)) for f in (function, owner.method)]
            assert alive(references)
            del factory
            assert alive(references) == []

    def test_L3_constants_are_bounded_too(self) -> None:
        make = interned(lambda n: [n], maxsize=3)
        for i in range(10):
            make(i)
        assert make.cache_info().currsize == 3

    def test_L2_forward_to_the_dead_says_so(self) -> None:
        """Only reachable by hiding references from Python; the message says what to do."""
        owner = Plain(1.0)
        forward = standins.Forward(owner)
        standins.weaken(forward)
        del owner
        with pytest.raises(ReferenceError, match="after its callable had been freed") as caught:
            forward(1.0)
        assert "nothing that Python can count referred to the wrapper" in str(caught.value)
        assert "Hold the wrapper, or the callable" in str(caught.value)

    def test_L1_demoting_twice(self) -> None:
        """Found by a probe: a table at rest whose callable is dead was asked for it."""
        wrap, owner = make_class_factory(), Plain(1.0)
        wrap(owner)
        entries = list(lifetime._fresh.values())
        assert entries
        lifetime.demote()
        del owner
        assert all(entry.demote() for entry in entries)


def test_C2_interpreter_exits_in_silence() -> None:
    """Collections run while modules are torn down, and so do our callbacks."""
    program = """
import fnintern
@fnintern.interned
class Wrapper:
    def __init__(self, f): self.f = f
class Owner:
    def m(self): pass
    def __del__(self): Wrapper(self.m)
owners = [Owner() for _ in range(100)]
kept = [Wrapper(o.m) for o in owners]
for o in owners[:50]: o.kept = Wrapper(o.m)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_case_holds_what_it_watches() -> None:
    """What the tests above rest on: nothing dies before its case."""
    for kind in FREED:
        case: Case = kind.make(new_array())
        assert len(alive(case.watched)) == len(case.watched) > 0


@pytest.mark.usefixtures("threshold")
@pytest.mark.parametrize("generations", [(100, 10**9, 10**9), (700, 0, 10**9), (700, 10, 10)])
@pytest.mark.parametrize("held", [0, 50])
def test_L1_whatever_generation_collections_are_of(
    generations: tuple[int, int, int], held: int
) -> None:
    """Automatic collections are of generation 0 without the global lock, and of 1 on 3.14.0."""
    wrap = interned(lambda f: lambda x: f(x))
    gc.collect()
    gc.set_threshold(*generations)
    alive: list[weakref.ref[Any]] = []
    kept: list[Any] = []
    for _ in range(5000):
        owner = Plain(1)
        alive.append(weakref.ref(owner))
        kept.append(wrap(owner.__call__))
        del owner, kept[: max(0, len(kept) - held)]
        cycle: list[Any] = [[[] for _ in range(20)]]
        cycle.append(cycle)
    del kept[:]
    assert sum(ref() is not None for ref in alive) < 1500


def _loss(model: Any, x: Any) -> Any:
    return model(x) + 1


#: What a factory gets, and is dropped at once -> with other callables that only the wrapper holds.
DROPPED: dict[str, Callable[[], Any]] = {
    "partial over an object": lambda: functools.partial(_loss, Plain(2)),
    "partial over a lambda": lambda: functools.partial(_loss, lambda x: x + 2),
    "keyword": lambda: functools.partial(lambda x, m: m(x) + 1, m=Plain(2)),
    "tuple": lambda: functools.partial(lambda ms, x: ms[0](x) + 1, (Plain(2), Plain(3))),
    "local function": lambda: (lambda n: lambda x: _loss(lambda y: y + n, x))(2),
}


@pytest.mark.parametrize("by", ["object", "value"])
@pytest.mark.parametrize("name", DROPPED)
def test_L2_a_held_wrapper_holds_what_is_inside_of_its_arguments(name: str, by: Any) -> None:
    """A function that the wrapper holds has a store, and in it the table's own reference."""
    wrap: Any = interned(lambda f: lambda x: f(x), by=by)
    held = wrap(DROPPED[name]())
    expected = held(1)
    for _ in range(3):
        gc.collect()
        assert held(1) == expected


@pytest.mark.parametrize("by", ["object", "value"])
def test_L2_a_held_wrapper_of_a_function_and_an_object(by: Any) -> None:
    wrap: Any = interned(lambda f, *more: lambda x: [f(x), *(m(x) for m in more)], by=by)
    held = wrap(_loss.__get__(Plain(1)), Plain(2), _loss)
    gc.collect()
    held_too = wrap(lambda x: x, Plain(2))
    gc.collect()
    assert held_too(1)[0] == 1
    assert len(held_too(1)) == 2
    assert held.__name__ == "<lambda>"

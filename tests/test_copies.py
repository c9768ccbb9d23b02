"""Laws I4 and L4: copies carry nothing along, and nothing a user looks at changes."""

from __future__ import annotations

import copy
import dataclasses
import functools
import gc
import inspect
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable
from typing import Any

import attrs
import cloudpickle
import equinox as eqx
import jax
import numpy as np
import pytest

import fnintern
from factories import factories, make_function_factory
from fnintern import interned
from fnintern.lifetime import stores
from kinds import Eqx, Kind, Nnx, Plain, freed, new_array


def function(x: Any) -> Any:
    """Adds one."""
    return x + 1


@interned
def module_wrap(f: Callable[..., Any], scale: float = 1.0) -> Any:
    return ModuleWrapper(f, scale)


@interned
@dataclasses.dataclass(eq=False)
class ModuleWrapper:
    f: Callable[..., Any]
    scale: float = 1.0

    def __call__(self, x: Any) -> Any:
        return self.scale * self.f(x)


def by_pickle(protocol: int) -> Callable[[Any], Any]:
    return lambda x: pickle.loads(pickle.dumps(x, protocol))


def by_cloudpickle(x: Any) -> Any:
    return pickle.loads(cloudpickle.dumps(x))


COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "cloudpickle": by_cloudpickle,
    **{f"pickle{n}": by_pickle(n) for n in range(2, pickle.HIGHEST_PROTOCOL + 1)},
}
copies = pytest.mark.parametrize("duplicate", COPIES.values(), ids=COPIES)


class TestCopiedFunctions:
    def test_I4_wraps(self) -> None:
        """functools.wraps copies the private attribute; its owner is checked."""
        wrap = make_function_factory()
        first = wrap(function)

        @functools.wraps(function)
        def decorated(x: Any) -> Any:
            return -1

        assert vars(decorated)["__fnintern__"] is vars(function)["__fnintern__"]
        assert wrap(decorated) is not first
        assert wrap(decorated)(1) == -1
        assert wrap(decorated) is wrap(decorated)
        assert wrap(function) is first

    @factories
    def test_I4_wraps_with_a_plain_constant(self, make_factory: Any) -> None:
        """Calls of a function and an int, a bool, a str or None take a shorter way to a hit."""
        wrap = make_factory()
        decorated = functools.wraps(function)(lambda x: -1)
        for constant in (1, True, 2):
            first = wrap(function, constant)
            vars(decorated)["__fnintern__"] = vars(function)["__fnintern__"]
            assert wrap(decorated, constant) is not first
            assert wrap(decorated, constant)(1) == -constant
            assert wrap(function, constant) is first
            assert wrap(function, scale=constant) is first

    def test_I4_wraps_chain(self) -> None:
        wrap, functions = make_function_factory(), [function]
        for i in range(5):
            wrap(functions[-1])

            @functools.wraps(functions[-1])
            def decorated(x: Any, i: int = i) -> Any:
                return i

            functions.append(decorated)
        wrappers = [wrap(f) for f in functions]
        assert len({id(w) for w in wrappers}) == len(functions)
        assert [w(1) for w in wrappers] == [2, 0, 1, 2, 3, 4]

    def test_I4_update_of_the_dict(self) -> None:
        wrap = make_function_factory()
        f, g = (lambda x: 1), (lambda x: 2)
        wrap(f)
        g.__dict__.update(f.__dict__)
        assert wrap(g)(0) == 2
        f.__dict__.update(g.__dict__)
        assert (wrap(f)(0), wrap(g)(0)) == (1, 2)

    def test_I4_callable_instance_with_a_copied_dict(self) -> None:
        class Decorated:
            def __init__(self, f: Any) -> None:
                functools.update_wrapper(self, f)

            def __call__(self, x: Any) -> Any:
                return -1

        wrap = make_function_factory()
        wrap(function)
        one = Decorated(function)
        assert wrap(one) is wrap(one)
        assert wrap(one)(1) == -1

    def test_I4_jitted_function_copies_the_dict(self) -> None:
        wrap, f = make_function_factory(), lambda x: x + 1
        first = wrap(f)
        jitted = jax.jit(f)
        assert wrap(jitted) is wrap(jitted)
        assert wrap(jitted) is not first

    def test_I4_wrapper_of_a_wrapper_carries_no_store(self) -> None:
        """update_wrapper inside the factory: the store of the inner one must not come along."""
        seen = []

        @interned
        def wrap(f: Any) -> Any:
            @functools.wraps(f)
            def wrapper(x: Any) -> Any:
                return f(x)

            seen.append(weakref.ref(wrapper))
            return wrapper

        f = lambda x: x
        wrapper = f
        for _ in range(5):
            store = vars(wrap(wrapper)).get("__fnintern__")
            assert store is None or stores.owns(store, wrap(wrapper))
            wrapper = wrap(wrapper)
        del wrapper, f
        gc.collect()
        assert [ref() for ref in seen if ref() is not None] == []

    @copies
    def test_I4_function(self, duplicate: Any) -> None:
        first = module_wrap(function)
        assert module_wrap(duplicate(function)) is first

    def test_I4_function_by_value(self) -> None:
        """cloudpickle takes a local function apart, attributes and all."""
        wrap, array = make_function_factory(), np.ones(1)
        f = lambda x: x + array
        first = wrap(f)
        twin = by_cloudpickle(f)
        assert vars(twin).get("__fnintern__") is None
        assert wrap(twin) is wrap(twin)
        assert wrap(twin) is not first
        assert wrap(twin)(1.0) == 2.0

    def test_L4_pickle_of_a_function_does_not_grow(self) -> None:
        f = lambda x: x
        before = len(cloudpickle.dumps(f))
        for n in range(100):
            module_wrap(f, n)
        assert len(cloudpickle.dumps(f)) < before + 100

    def test_L4_pickle_is_read_without_the_library(self) -> None:
        """Neither a function nor its wrapper brings fnintern along."""
        f = lambda x: x + 1
        module_wrap(f)
        wrapper = make_function_factory()(Plain(2).method)
        assert b"fnintern" not in cloudpickle.dumps(f).replace(b"__fnintern__", b"")
        payload = cloudpickle.dumps((f, f.__dict__))
        program = (
            "import pickle, sys\n"
            "f, attributes = pickle.loads(sys.stdin.buffer.read())\n"
            "assert f(1) == 2 and 'fnintern' not in sys.modules"
        )
        done = subprocess.run([sys.executable, "-c", program], input=payload, capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
        assert wrapper(1) == 3

    @factories
    def test_L4_factory_by_value(self, make_factory: Any) -> None:
        """cloudpickle takes a local factory apart: the copy interns on its own."""
        wrap = make_factory(maxsize=3)
        first = wrap(function)
        twin = by_cloudpickle(wrap)
        if not isinstance(wrap, type):  # cloudpickle finds a class that this process has again
            assert twin is not wrap
            assert twin(function) is not first
            assert twin.cache_info() == fnintern.CacheInfo(0, 1, 0, 1, 3)
        assert twin(function) is twin(f=function)
        assert wrap(function) is first

    def test_L4_class_by_value_in_another_process(self) -> None:
        @interned(maxsize=5)
        class Local:
            def __init__(self, f: Any) -> None:
                self.f = f

        payload = cloudpickle.dumps((Local, Local(abs)))
        program = (
            "import pickle, sys, fnintern\n"
            "Local, one = pickle.loads(sys.stdin.buffer.read())\n"
            "assert type(one) is Local and one.f is abs\n"
            "assert Local(abs) is Local(f=abs) and Local(abs) is not one\n"
            "assert fnintern.cache_info(Local) == fnintern.CacheInfo(2, 1, 0, 1, 5)\n"
        )
        done = subprocess.run([sys.executable, "-c", program], input=payload, capture_output=True)
        assert done.returncode == 0, done.stderr.decode()

    @copies
    def test_I4_store_itself(self, duplicate: Any) -> None:
        module_wrap(function)
        assert duplicate(vars(function)["__fnintern__"]) is None


class TestCopiedInstances:
    @copies
    @pytest.mark.parametrize("make", [Plain, Nnx, Eqx], ids=lambda cls: cls.__name__)
    def test_I4_instance(self, make: Any, duplicate: Any) -> None:
        """A copy of a callable is another callable."""
        wrap, one = make_function_factory(), make(new_array())
        first, method = wrap(one), wrap(one.method)
        two = duplicate(one)
        assert wrap(two) is not first
        assert wrap(two.method) is not method
        assert (wrap(two)(1.0), wrap(two.method)(1.0)) == (2.0, 2.0)
        assert wrap(one) is first

    @copies
    def test_L4_vars_of_an_instance(self, duplicate: Any) -> None:
        wrap, one = make_function_factory(), Plain(1.0)
        before = dict(vars(one))
        wrap(one), wrap(one.method), wrap(functools.partial(one.method))
        assert vars(one) == before
        assert vars(duplicate(one)) == before

    @freed
    def test_L4_pytree_and_pickle_do_not_change(self, kind: Kind) -> None:
        wrap, case = make_function_factory(), kind.make(new_array())
        if kind.name.startswith("instance"):
            before = jax.tree.structure(case.fetch()), pickle.dumps(case.fetch())
            wrap(case.fetch()), wrap(case.fetch())
            assert (jax.tree.structure(case.fetch()), pickle.dumps(case.fetch())) == before
        owner = case.watched[0]()
        written = set(getattr(owner, "__dict__", ()))
        wrap(case.fetch())
        more = set(getattr(owner, "__dict__", ())) - written
        assert more <= {"__fnintern__"}
        assert not more or inspect.isfunction(owner)

    def test_I4_replace_of_a_callable_dataclass(self) -> None:
        @dataclasses.dataclass(frozen=True)
        class Act:
            n: int

            def __call__(self, x: Any) -> Any:
                return x + self.n

        wrap, one = make_function_factory(), Act(1)
        first = wrap(one)
        two = dataclasses.replace(one, n=2)
        assert wrap(two) is not first
        assert (first(1), wrap(two)(1)) == (2, 3)
        assert wrap(dataclasses.replace(one)) is not first  # equal, and another object


@factories
class TestCopiedWrappers:
    def test_I4_replace_goes_through_the_factory(self, make_factory: Any) -> None:
        first = ModuleWrapper(function)
        assert dataclasses.replace(first) is first
        changed = dataclasses.replace(first, scale=2.0)
        assert changed is ModuleWrapper(function, 2.0)
        assert (first(1), changed(1)) == (2, 4)

    def test_I4_copy_of_a_wrapper_is_not_in_the_table(self, make_factory: Any) -> None:
        first = ModuleWrapper(function)
        for duplicate in COPIES.values():
            twin = duplicate(first)
            assert type(twin) is ModuleWrapper
            assert twin is not first
            assert twin(1) == 2
            assert ModuleWrapper(function) is first

    def test_L2_copy_of_a_wrapper_holds_the_callable(self, make_factory: Any) -> None:
        """What stands in for an instance is the instance itself in each copy."""
        wrap, owner = make_factory(), Plain(1.0)
        for f, kind in ((owner, Plain), (owner.method, type(owner.method))):
            for duplicate in (copy.deepcopy, by_cloudpickle):
                first = wrap(f)
                if inspect.isfunction(first) and duplicate is copy.deepcopy:
                    continue  # the same function
                twin = duplicate(first)
                held = twin.f if hasattr(twin, "f") else twin.__wrapped__
                assert type(held) is kind
                assert twin(1.0) == 2.0
        copied = copy.copy(ModuleWrapper(owner))
        ref = weakref.ref(owner)
        del owner, f, first, twin, held
        wrap.cache_clear()
        gc.collect()
        assert copied(1.0) == 2.0
        del copied
        gc.collect()
        assert ref() is None

    def test_L4_wrapper_looks_like_its_callable(self, make_factory: Any) -> None:
        wrap, owner = make_factory(), Plain(1.0)
        for f in (function, owner.method):
            wrapper = wrap(f)
            assert wrapper.__name__ == f.__name__
            assert wrapper.__doc__ == f.__doc__
            assert inspect.signature(wrapper.__wrapped__) == inspect.signature(f)


class TestForward:
    """What a factory sees in the place of a callable instance or a bound method."""

    def seen(self, f: Any) -> Any:
        found: Any = []
        interned(lambda f: found.append(f) or [f])(f)
        return found[0]

    def test_L4_plain_functions_are_given_as_they_are(self) -> None:
        assert self.seen(function) is function
        assert self.seen(functools.partial(function)).func is function

    def test_L4_values_are_given_as_they_are(self) -> None:
        for value in (1, (1, 2), frozenset({1}), float, np.sin, abs, attrs, None):
            assert self.seen(value) is value

    def test_L4_instance(self) -> None:
        owner = Plain(1.0)
        stands_in = self.seen(owner)
        assert stands_in.__class__ is Plain
        assert isinstance(stands_in, Plain) is True
        stands_in = self.seen(owner)
        assert callable(stands_in)
        assert stands_in.array == 1.0
        assert stands_in(1.0) == 2.0
        assert stands_in.method(1.0) == 2.0
        assert repr(stands_in) == repr(owner)
        stands_in.array = 2.0
        assert owner.array == 2.0
        assert inspect.signature(stands_in) == inspect.signature(owner)
        with pytest.raises(AttributeError, match="nothing"):
            stands_in.nothing  # noqa: B018

    def test_L4_method(self) -> None:
        owner = Plain(1.0)
        stands_in = self.seen(owner.method)
        assert inspect.ismethod(stands_in)
        assert (stands_in.__self__, stands_in.__func__) == (owner, Plain.method)
        assert stands_in.__name__ == "method"
        assert inspect.signature(stands_in) == inspect.signature(owner.method)

    def test_L4_jitted(self) -> None:
        jitted = jax.jit(lambda x: x + 1)
        stands_in = self.seen(jitted)
        assert stands_in(1) == 2
        assert "lambda" in stands_in.lower(1).as_text()
        assert inspect.signature(stands_in) == inspect.signature(jitted)

    def test_L4_equinox_method(self) -> None:
        module = Eqx(new_array())
        assert self.seen(module.method)(1.0) == 2.0
        assert eqx.filter_jit(self.seen(module.method))(1.0) == 2.0

    @copies
    def test_L4_copies_are_the_callable_itself(self, duplicate: Any) -> None:
        owner = Plain(1.0)
        assert copy.copy(self.seen(owner)) is owner
        assert type(duplicate(self.seen(owner))) is Plain
        assert type(duplicate(self.seen(owner.method))) is type(owner.method)


def test_L4_signature_is_unchanged() -> None:
    def bare(
        f: Callable[..., Any], a: int, /, b: str = "b", *c: float, d: Any, **e: Any
    ) -> list[Any]:
        """What it does."""
        return []

    wrap = interned(bare)
    assert inspect.signature(wrap) == inspect.signature(bare)
    assert wrap.__doc__ == bare.__doc__
    assert wrap.__module__ == bare.__module__
    assert inspect.unwrap(wrap) is bare
    assert fnintern.cache_info(wrap).hits == 0

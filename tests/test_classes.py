"""An interned class stays that class (laws I1 to I4, L4): of any make and under any decorator."""

from __future__ import annotations

import abc
import dataclasses
import gc
import inspect
import pickle
import weakref
from collections.abc import Callable
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import attrs
import equinox as eqx
import jax
import pytest
from flax import nnx

import fnintern
from fnintern import interned
from kinds import Plain

T = TypeVar("T")


def function(x: Any) -> Any:
    return x + 1


class CountsMeta(type):
    """A metaclass with a namespace and a ``__call__`` of its own."""

    made = 0

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        CountsMeta.made += 1
        return super().__call__(*args, **kwargs)

    @property
    def shout(cls) -> str:
        return cls.__name__.upper()


class Base:
    def __init__(self, f: Callable[..., Any], n: int = 1) -> None:
        self.f, self.n = f, n

    def __call__(self, x: Any) -> Any:
        return self.n * self.f(x)


Module: Any = eqx.Module


def plain() -> Any:
    class Made(Base):
        pass

    return interned(Made)


def dataclass_below() -> Any:
    @interned
    @dataclasses.dataclass
    class Made:
        f: Callable[..., Any]
        n: int = 1

        def __call__(self, x: Any) -> Any:
            return self.n * self.f(x)

    return Made


def dataclass_above() -> Any:
    @dataclasses.dataclass
    @interned
    class Made:
        f: Callable[..., Any]
        n: int = 1

        def __call__(self, x: Any) -> Any:
            return self.n * self.f(x)

    return Made


def dataclass_slots_above() -> Any:
    @dataclasses.dataclass(slots=True, weakref_slot=True)
    @interned
    class Made:
        f: Callable[..., Any]
        n: int = 1

        def __call__(self, x: Any) -> Any:
            return self.n * self.f(x)

    return Made


def dataclass_slots_below() -> Any:
    @interned
    @dataclasses.dataclass(slots=True, weakref_slot=True)
    class Made:
        f: Callable[..., Any]
        n: int = 1

        def __call__(self, x: Any) -> Any:
            return self.n * self.f(x)

    return Made


def dataclass_slots_without_weakref() -> Any:
    @interned
    @dataclasses.dataclass(slots=True)
    class Made:
        f: Callable[..., Any]
        n: int = 1

        def __call__(self, x: Any) -> Any:
            return self.n * self.f(x)

    return Made


def frozen_dataclass() -> Any:
    @interned
    @dataclasses.dataclass(frozen=True)
    class Made:
        f: Callable[..., Any]
        n: int = 1

        def __call__(self, x: Any) -> Any:
            return self.n * self.f(x)

    return Made


def attrs_below() -> Any:
    @interned
    @attrs.define
    class Made:
        f: Callable[..., Any]
        n: int = 1

        def __call__(self, x: Any) -> Any:
            return self.n * self.f(x)

    return Made


def attrs_above() -> Any:
    @attrs.define
    @interned
    class Made:
        f: Callable[..., Any]
        n: int = 1

        def __call__(self, x: Any) -> Any:
            return self.n * self.f(x)

    return Made


def attrs_frozen() -> Any:
    @interned
    @attrs.frozen
    class Made:
        f: Callable[..., Any]
        n: int = 1

        def __call__(self, x: Any) -> Any:
            return self.n * self.f(x)

    return Made


def slots() -> Any:
    @interned
    class Made:
        __slots__ = ("__private", "f", "n")

        def __init__(self, f: Callable[..., Any], n: int = 1) -> None:
            self.f, self.n, self.__private = f, n, f

        def __call__(self, x: Any) -> Any:
            return self.n * self.__private(x)

    return Made


def generic() -> Any:
    @interned
    class Made(Base, Generic[T]):
        pass

    return Made


def abstract_child() -> Any:
    class Abstract(abc.ABC):
        @abc.abstractmethod
        def __call__(self, x: Any) -> Any: ...

    @interned
    class Made(Base, Abstract):
        def __call__(self, x: Any) -> Any:
            return super().__call__(x)

    return Made


def custom_metaclass() -> Any:
    @interned
    class Made(Base, metaclass=CountsMeta):
        pass

    return Made


def equinox_module() -> Any:
    @interned
    class Made(Module):  # type: ignore[misc]
        f: Callable[..., Any]
        n: int = 1

        def __call__(self, x: Any) -> Any:
            return self.n * self.f(x)

    return Made


def nnx_module() -> Any:
    @interned
    class Made(nnx.Module):  # type: ignore[misc]
        def __init__(self, f: Callable[..., Any], n: int = 1) -> None:
            self.f, self.n = f, n

        def __call__(self, x: Any) -> Any:
            return self.n * self.f(x)

    return Made


def pytree_above() -> Any:
    @jax.tree_util.register_static
    @interned
    class Made(Base):
        pass

    return Made


def new_only() -> Any:
    @interned
    class Made:
        f: Any
        n: int

        def __new__(cls, f: Callable[..., Any], n: int = 1) -> Any:
            self = super().__new__(cls)
            self.f, self.n = f, n
            return self

        def __call__(self, x: Any) -> Any:
            return self.n * self.f(x)

    return Made


def named_tuple() -> Any:
    class Pair(NamedTuple):
        f: Callable[..., Any]
        n: int = 1

        def __call__(self, x: Any) -> Any:
            return self.n * self.f(x)

    return interned(Pair)


MAKES = [
    plain, dataclass_below, dataclass_above, dataclass_slots_above, dataclass_slots_below,
    dataclass_slots_without_weakref, frozen_dataclass, attrs_below, attrs_above, attrs_frozen,
    slots, generic, abstract_child, custom_metaclass, equinox_module, nnx_module, pytree_above,
    new_only, named_tuple,
]  # fmt: skip


@pytest.mark.parametrize("make", MAKES, ids=lambda make: make.__name__)
class TestEveryMake:
    def test_I1_same_arguments_same_instance(self, make: Any) -> None:
        cls, owner = make(), Plain(1.0)
        for f in (function, owner, owner.method):
            first = cls(f)
            assert cls(f, 1) is cls(f=f) is cls(n=1, f=f) is first
            assert cls(f, 2) is not first
            assert cls(f, True) is not first
        gc.collect()
        assert cls(owner.method)(3.0) == 4.0
        assert cls(function)(3.0) == 4.0
        assert fnintern.cache_info(cls).bypassed == 0

    def test_L1_callable_is_freed(self, make: Any) -> None:
        cls = make()
        spellings: list[Any] = [lambda x: x, lambda x: x.method]
        for spell in spellings:
            owner = Plain(1.0)
            cls(spell(owner))
            ref = weakref.ref(owner)
            gc.collect()
            assert ref() is owner
            del owner
            gc.collect()
            assert ref() is None

    def test_isinstance_and_type(self, make: Any) -> None:
        cls = make()
        assert isinstance(cls(function), cls)
        assert type(cls(function)) is cls
        assert isinstance(cls, type)
        assert cls.__name__ in ("Made", "Pair")
        assert cls.__module__ == __name__

    def test_wrong_arguments(self, make: Any) -> None:
        cls = make()
        with pytest.raises(TypeError):
            cls()
        with pytest.raises(TypeError):
            cls(function, 1, 2)
        with pytest.raises(TypeError):
            cls(function, nothing=1)
        assert fnintern.cache_info(cls).currsize == 0

    def test_L4_signature(self, make: Any) -> None:
        assert list(inspect.signature(make()).parameters) == ["f", "n"]
        assert inspect.signature(make()).parameters["n"].default == 1

    def test_I4_subclass_is_interned_on_its_own(self, make: Any) -> None:
        cls = make()
        if make in (named_tuple, frozen_dataclass, attrs_frozen):
            child = type(cls)("Child", (cls,), {"__slots__": ()})
        else:
            child = type(cls)("Child", (cls,), {"__module__": __name__})
        assert issubclass(child, cls)
        assert child(function) is child(function)
        assert type(child(function)) is child
        assert child(function) is not cls(function)
        assert child(function)(3.0) == 4.0
        assert fnintern.cache_info(child).currsize == 1
        assert fnintern.cache_info(child).maxsize == 128

    def test_clear(self, make: Any) -> None:
        cls = make()
        first = cls(function)
        fnintern.cache_clear(cls)
        assert cls(function) is not first
        assert fnintern.cache_info(cls).misses == 1


class TestSuper:
    def test_super_in_all_kinds_of_methods(self) -> None:
        """The class is made anew; ``super()`` and ``__class__`` mean the new one."""

        class Parent:
            def method(self) -> str:
                return "parent"

            @classmethod
            def of_class(cls) -> str:
                return "parent"

            @property
            def attribute(self) -> str:
                return "parent"

        @interned
        class Child(Parent):
            def __init__(self, f: Any) -> None:
                super().__init__()

            def method(self) -> str:
                return "child of " + super().method()

            @classmethod
            def of_class(cls) -> str:
                return "child of " + super().of_class()

            @property
            def attribute(self) -> str:
                return "child of " + super().attribute

            @staticmethod
            def itself() -> Any:
                return __class__  # type: ignore[name-defined]

            def nested(self) -> str:
                return (lambda: super(__class__, self).method())()  # type: ignore[name-defined]

        child = Child(function)
        assert child.method() == Child.of_class() == child.attribute == "child of parent"
        assert child.itself() is Child
        assert child.nested() == "parent"

    def test_init_runs_once(self) -> None:
        calls = []

        @interned
        class Once:
            def __init__(self, f: Any) -> None:
                calls.append(f)

        assert Once(function) is Once(function)
        assert calls == [function]

    def test_subclass_of_an_interned_class_with_more_arguments(self) -> None:
        @interned(maxsize=7)
        class Parent:
            def __init__(self, f: Any) -> None:
                self.f = f

        class Child(Parent):
            def __init__(self, f: Any, extra: Any) -> None:
                super().__init__(f)
                self.extra = extra

        assert Child(function, 1) is Child(extra=1, f=function)
        assert Child(function, 1) is not Child(function, 2)
        assert fnintern.cache_info(Child).maxsize == 7


class TestKinds:
    def test_I6_abstract_class_cannot_be_made(self) -> None:
        @interned
        class Abstract(abc.ABC):
            def __init__(self, f: Any) -> None:
                self.f = f

            @abc.abstractmethod
            def method(self) -> None: ...

        with pytest.raises(TypeError, match="abstract"):
            Abstract(function)  # type: ignore[abstract]
        assert fnintern.cache_info(Abstract).currsize == 0

    def test_custom_metaclass_keeps_its_ways(self) -> None:
        cls = custom_metaclass()
        assert isinstance(cls, CountsMeta)
        assert cls.shout == "MADE"
        before = CountsMeta.made
        assert cls(function) is cls(function)
        assert CountsMeta.made == before + 1
        assert type(cls) is type(custom_metaclass())

    def test_generic_alias(self) -> None:
        """``G[int]`` and ``G[str]`` leave another ``__orig_class__``, and make another instance."""
        cls = generic()
        one, other = cls[int](function), cls[str](function)
        assert one is not other
        assert one.__orig_class__ == cls[int]
        assert other.__orig_class__ == cls[str]
        assert cls[int](function) is one
        assert cls(function) is not one
        assert cls[int] == cls[int]

    def test_registered_pytree(self) -> None:
        cls = pytree_above()
        one = cls(function)
        assert jax.tree.leaves(one) == []
        assert jax.jit(lambda w, x: w(x), static_argnums=0)(one, 1) == 2
        assert jax.jit(lambda w, x: w(x))(one, 1) == 2

    def test_equinox_module_is_a_pytree(self) -> None:
        cls = equinox_module()
        one = cls(function, 3)
        assert jax.tree.leaves(one) == [function, 3]
        assert eqx.tree_at(lambda w: w.n, one, 4)(1) == 8
        assert eqx.filter_jit(one)(1) == 6

    def test_own_use_of_our_names(self) -> None:
        @interned
        class Busy:
            cache_info = "mine"
            explain = 3

            def __init__(self, f: Any) -> None:
                pass

            def cache_clear(self) -> str:
                return "mine too"

        one = Busy(function)
        assert (Busy.cache_info, Busy.explain, one.cache_clear()) == ("mine", 3, "mine too")
        assert fnintern.cache_info(Busy).currsize == 1
        fnintern.cache_clear(Busy)
        assert Busy(function) is not one

    def test_L4_instances_show_nothing(self) -> None:
        cls = plain()
        assert set(vars(cls(function))) == {"f", "n"}
        assert not hasattr(cls(function), "cache_info")
        assert not hasattr(cls(function), "explain")

    def test_pickle_by_name(self) -> None:
        one = Importable(function, 2)
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            assert pickle.loads(pickle.dumps(Importable, protocol)) is Importable
            twin = pickle.loads(pickle.dumps(one, protocol))
            assert type(twin) is Importable
            assert (twin.f, twin.n) == (function, 2)
        assert Importable(function, 2) is one

    @pytest.mark.parametrize("slots", [{}, {"__slots__": ()}], ids=["dict", "slots"])
    def test_bases_are_told_once_of_a_class(self, slots: dict[str, Any]) -> None:
        """Making the class anew does not run ``__init_subclass__`` without its keywords."""
        told: list[tuple[str, int]] = []

        def hook(cls: type, key: int) -> None:
            told.append((cls.__name__, key))

        base: Any = type("Base", (), {"__init_subclass__": classmethod(hook), **slots})

        @interned
        class Child(base, key=1):  # type: ignore[call-arg, misc]
            def __init__(self, f: Any) -> None:
                self.f = f

        assert told == [("Child", 1)]
        assert Child.__bases__ == (base,)
        assert Child(function) is Child(function)

    def test_class_that_cannot_be_made_anew(self) -> None:
        class Picky(type):
            def __new__(meta, name: str, bases: Any, namespace: Any, *, key: int) -> Any:
                return super().__new__(meta, name, bases, namespace)

        class Child(metaclass=Picky, key=1):
            pass

        with pytest.raises(TypeError, match=r"cannot intern the class .*Child") as caught:
            interned(Child)
        assert "missing 1 required keyword-only argument: 'key'" in str(caught.value)
        assert "Decorate a function that returns its instances instead" in str(caught.value)

    def test_decorated_twice(self) -> None:
        cls = interned(interned(maxsize=3)(Importable), maxsize=5)
        try:
            assert fnintern.cache_info(cls).maxsize == 5
        finally:
            interned(cls)

    def test_class_without_arguments(self) -> None:
        @interned
        class Empty:
            pass

        assert Empty() is Empty()
        with pytest.raises(TypeError):
            Empty(function)  # type: ignore[call-arg]

    def test_explain(self) -> None:
        said = Importable.explain(function, [])  # type: ignore[attr-defined]
        assert said.obstacles[0].path == "n"
        assert "not interned" in str(said)


@interned
class Importable(Base):
    pass


class InUse:
    """A class that its module holds, as a library's does."""

    def __init__(self, f: Any) -> None:
        super().__init__()
        self.f = f


def test_a_class_in_use_stays_as_it_is() -> None:
    """``interned(library.Class)`` makes another class, whose instances are the library's too."""
    other = interned(InUse)
    assert other(abs) is other(abs)
    assert isinstance(other(abs), InUse)
    assert InUse(abs) is not InUse(abs)
    assert type(InUse(abs)) is InUse


Parameter = TypeVar("Parameter")


class Registered:
    """A base that counts its subclasses."""

    names: ClassVar[list[str]] = []

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        Registered.names.append(cls.__name__)


class GenericWrapper(Registered, Generic[Parameter]):
    def __init__(self, f: Any) -> None:
        self.f = f


def test_a_generic_class_that_exists_stays_generic() -> None:
    """Interned as it is, or patched: its library may write ``Wrapper[Callable](f)``."""
    before = list(Registered.names)
    shared: Any = interned(GenericWrapper)
    assert shared[int](abs).f(-1) == 1
    assert shared.__parameters__ == (Parameter,)
    assert shared[int](abs) is shared[int](abs)
    assert Registered.names == before  # it is no other class to its bases

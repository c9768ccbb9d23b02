"""Interned classes: a metaclass that looks before it makes an instance.

A class is made anew under it, and stays that class in all else. Never imports jax or flax.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
import typing
import weakref
from typing import Any, Final, TypeVar, cast

from fnintern.captures.code import is_users
from fnintern.interning.by_object import MISSING, Interner
from fnintern.keys.objects import importable
from fnintern.keys.reasons import CacheInfo, Explanation

__all__ = [
    "INTERNER",
    "MISSING",
    "InternedMeta",
    "given",
    "intern_class",
    "interner_of",
    "subclass_of",
]

T = TypeVar("T")

_FunctionType: Final = types.FunctionType
#: Not given. Of an enum, since a pickled function of ours has to find the same one.


INTERNER: Final = "__fnintern_interner__"


class InternedMeta(type):
    """Metaclass of interned classes: calling the class looks before it makes an instance."""

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: Any, **kwargs: Any) -> None:
        super().__init__(name, bases, namespace, **kwargs)
        # Each class has its own, so that a class and its subclass never share (I4), and a class
        # made anew from a copy of the namespace (attrs, dataclass(slots=True)) gets another.
        inherited = namespace.get(INTERNER) or _interner_of_bases(bases)
        _give_interner(cls, inherited or Interner(cls, 128))

    def __call__(cls, /, *args: Any, **kwargs: Any) -> Any:
        interner: Interner = cls.__fnintern_interner__  # type: ignore[attr-defined]
        if interner.aliases is not None:
            alias = _alias_calling(sys._getframe(1))
            if alias is not None:
                interner = _interner_for(alias, interner)
        return interner.find(args, kwargs)

    def __setattr__(cls, name: str, value: Any) -> None:
        if name != INTERNER:
            super().__setattr__(name, value)
        elif value._maxsize != interner_of(cls)._maxsize:
            # cloudpickle writes the namespace of a class that it makes anew, or finds here.
            _give_interner(cls, value)

    @property
    def __signature__(cls) -> inspect.Signature | None:
        # Without it, inspect would take the signature of our __call__ for that of the class.
        return _class_signature(cls)

    def cache_info(cls) -> CacheInfo:
        """The counts; see :class:`CacheInfo`."""
        return interner_of(cls).cache_info()

    def cache_clear(cls) -> None:
        """Forgets all instances and sets the counts to 0."""
        interner_of(cls).cache_clear()

    def explain(cls, *args: Any, **kwargs: Any) -> Explanation:
        """How this call would be keyed, without making it."""
        return interner_of(cls).explain(args, kwargs)


class _PlainMeta(InternedMeta):
    """For classes whose metaclass would be ``type``: the usual call by the shortest way."""

    def __call__(
        cls, function: Any = MISSING, other: Any = MISSING, /, *rest: Any, **kwargs: Any
    ) -> Any:
        # The first lines of Interner.hit once more: calling it would cost a fifth of a hit. The
        # class stands for its interner in the key: looking that up would cost a tenth.
        try:
            store = function.__fnintern__
            if store.owner() is function:
                mark, constant, entry = store.last
                if mark is cls and constant is other and not kwargs and not rest:
                    entry.note.hits += 1
                    return entry.wrapper
        except Exception:  # not yet interned, or not even a function
            pass
        interner = cls.__fnintern_interner__  # type: ignore[attr-defined]
        wrapper = hit_as_given(interner, function, other, rest, kwargs)
        if wrapper is not None:
            return wrapper
        return interner.find(given(function, other, rest), kwargs)


def hit_as_given(
    interner: Interner, function: Any, other: Any, rest: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The wrapper for one of the usual calls, or None; see :meth:`Interner.hit`."""
    if rest:
        return None
    if not kwargs:
        return interner.hit(function, other)
    if other is MISSING and len(kwargs) == 1:
        value = kwargs.get(interner.second, MISSING)
        if value is not MISSING:
            return interner.hit(function, value)
    return None


def given(function: Any, other: Any, rest: tuple[Any, ...]) -> tuple[Any, ...]:
    """The positional arguments that were given."""
    if rest:
        return (function, other, *rest)
    if other is not MISSING:
        return function, other
    return () if function is MISSING else (function,)


def _interner_of_bases(bases: tuple[type, ...]) -> Interner | None:
    for base in bases:
        if isinstance(base, InternedMeta):
            return interner_of(base)
    return None


def _give_interner(cls: type, pattern: Interner) -> None:
    make = functools.partial(super(InternedMeta, cls).__call__)  # type: ignore[misc]
    mark = cls if isinstance(cls, _PlainMeta) and type(pattern) is Interner else None
    interner = pattern.like(make, lambda: _class_signature(cls), mark)
    if _is_generic(cls):
        interner.aliases = {}
    type.__setattr__(cls, INTERNER, interner)


def _is_generic(cls: type) -> bool:
    return typing.Generic in cls.__mro__


#: What a call of ``G[int]`` runs. It calls ``G``, and notes ``G[int]`` in the instance.
_ALIAS_CALL: Final = getattr(
    vars(getattr(typing, "_BaseGenericAlias", object)).get("__call__"), "__code__", None
)


def _alias_calling(frame: types.FrameType) -> Any:
    """The ``G[int]`` that calls a generic class, or None."""
    return frame.f_locals["self"] if frame.f_code is _ALIAS_CALL else None


def _interner_for(alias: Any, interner: Interner) -> Interner:
    """The interner of one ``G[int]``: an instance knows by which it was made."""
    aliases = interner.aliases
    assert aliases is not None
    try:
        found = aliases.get(alias)
    except TypeError:  # an unhashable parameter
        return interner
    if found is None:
        new = interner.like(interner.factory, interner.signature_of)
        found = aliases.setdefault(alias, new)
    return found


def _class_signature(cls: type) -> inspect.Signature | None:
    for base in cls.__mro__:
        if "__signature__" in base.__dict__:
            return cast("inspect.Signature", base.__dict__["__signature__"])
    method: Any
    if cls.__init__ is not object.__init__:  # type: ignore[misc]
        method = cls.__init__  # type: ignore[misc]
    elif cls.__new__ is not object.__new__:  # type: ignore[comparison-overlap]
        method = cls.__new__
    else:
        return inspect.Signature()
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):
        return None
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def interner_of(factory: Any) -> Interner:
    """The interner of a decorated class or function."""
    found = (
        vars(factory).get(INTERNER)
        if isinstance(factory, InternedMeta)
        else getattr(factory, INTERNER, None)
    )
    if not isinstance(found, Interner):
        raise TypeError(
            f"expected a function or class decorated by fnintern.interned, got {factory!r} of "
            f"type {type(factory).__qualname__}; decorate it with @interned first"
        )
    return found


#: Metaclass of a class to be interned -> the same with InternedMeta in front.
_metaclasses: weakref.WeakValueDictionary[type, type] = weakref.WeakValueDictionary()


def _metaclass_for(kind: type, pattern: Interner, generic: bool) -> type:
    if kind is type:
        return _PlainMeta if type(pattern) is Interner and not generic else InternedMeta
    found = _metaclasses.get(kind)
    if found is None:
        found = type(f"Interned{kind.__name__}", (InternedMeta, kind), {})
        _metaclasses[kind] = found
    return found


def intern_class(cls: type[T], pattern: Interner) -> type[T]:
    if not isinstance(cls, InternedMeta):
        # One that its module holds already is in use as it is: not being decorated, but wrapped.
        cls = _recreate(subclass_of(cls) if importable(cls) else cls, pattern)
    _give_interner(cls, pattern)
    return cls


def subclass_of(cls: type[T]) -> type[T]:
    """A class that is like ``cls`` in all but identity, and leaves ``cls`` as it is."""
    namespace = {
        "__slots__": (),
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
    }
    made: type[T] = _make_silently(type(cls), cls.__name__, (cls,), namespace)
    _keep_parameters(made, cls)
    return made


def _keep_parameters(new: type, cls: type) -> None:
    """Makes a class that is made of a generic one generic in the same parameters."""
    parameters = getattr(cls, "__parameters__", None)
    if parameters and _is_generic(cls):
        type.__setattr__(new, "__parameters__", parameters)


def _recreate(cls: type[T], pattern: Interner) -> type[T]:
    """The same class made anew under an interning metaclass, as ``dataclass(slots=True)`` does.

    Python refuses ``cls.__class__ = InternedMeta`` for classes whose metaclass is ``type``.
    """
    namespace = {
        name: value
        for name, value in vars(cls).items()
        # Descriptors of slots belong to the old class, and are made again.
        if not (
            isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType)
            and value.__objclass__ is cls
        )
    }
    namespace["__qualname__"] = cls.__qualname__
    try:
        generic = _is_generic(cls)
        new: type[T] = _make_silently(
            _metaclass_for(type(cls), pattern, generic), cls.__name__, cls.__bases__, namespace
        )
    except Exception as error:
        raise TypeError(
            f"cannot intern the class {cls.__qualname__}: making it anew under an interning "
            f"metaclass failed ({type(error).__name__}: {error}). Decorate a function that "
            f"returns its instances instead"
        ) from error
    _keep_parameters(new, cls)
    _point_super_at(new, cls)
    return new


class _Silent:
    """The first base of a class that is made anew: its bases have been told of it already."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        pass


class _SilentWithSlots:
    __slots__ = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        pass


def _make_silently(meta: Any, name: str, bases: tuple[type, ...], namespace: Any) -> Any:
    """A class of which no ``__init_subclass__`` of the user's is told a second time, without the
    keywords that it got before. Those of libraries are told: they register the class."""
    hooks = [
        hook
        for base in bases
        for parent in base.__mro__
        if isinstance(hook := vars(parent).get("__init_subclass__"), classmethod)
    ]
    if not hooks or not is_users(hooks[0].__func__):
        return meta(name, bases, namespace)
    silent = _Silent if any(base.__dictoffset__ for base in bases) else _SilentWithSlots
    new = meta(name, (silent, *bases), namespace)
    new.__bases__ = bases
    return new


def _point_super_at(new: type, old: type) -> None:
    """Makes zero-argument ``super()`` and ``__class__`` in the methods mean the new class."""
    todo: list[Any] = list(vars(new).values())
    seen: set[int] = set()
    while todo:
        item = todo.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, staticmethod | classmethod):
            todo.append(item.__func__)
        elif isinstance(item, property):
            todo += (item.fget, item.fset, item.fdel)
        elif isinstance(item, functools.partialmethod | functools.cached_property):
            todo.append(item.func)
        elif isinstance(item, _FunctionType):
            todo.append(getattr(item, "__wrapped__", None))
            for cell in item.__closure__ or ():
                try:
                    content = cell.cell_contents
                except ValueError:  # not filled yet
                    continue
                if content is old:
                    cell.cell_contents = new
                elif isinstance(content, _FunctionType):
                    todo.append(content)

"""``interned``: memoizes a factory by what its arguments are (laws I1 to I6).

One :class:`Interner` for each factory finds or builds the wrapper for a call; a function gets it
as a closure, a class through a metaclass. Never imports jax or flax.
"""

from __future__ import annotations

import functools
import inspect
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, Literal, ParamSpec, Protocol, TypeVar, cast, overload

import attrs

from fnintern.explanations import Explanation, Obstacle
from fnintern.keys import ATOMIC, Binder, Marker, Unkeyable, key_of, walk
from fnintern.lifetime import LOST, Token, build, store_of

__all__ = ["CacheInfo", "InternedFunction", "Interner", "cache_clear", "cache_info", "interned"]

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
T = TypeVar("T")

_FunctionType: Final = types.FunctionType
#: Not given. Of an enum, since a pickled function of ours has to find the same one.
_MISSING: Final = Marker.EMPTY


@attrs.frozen
class CacheInfo:
    """Counts of one factory since it was decorated or cleared.

    Attributes:
        hits: calls that got a wrapper made before.
        misses: calls that built and stored one.
        bypassed: calls with an argument that cannot be keyed, run as if undecorated (I5).
        currsize: wrappers alive in all tables of the factory.
        maxsize: the bound for each callable, or None (L3).
    """

    hits: int
    misses: int
    bypassed: int
    currsize: int
    maxsize: int | None


class InternedFunction(Protocol, Generic[P, R]):
    """A function or other callable decorated by :func:`interned`."""

    __wrapped__: Callable[..., Any]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def cache_info(self) -> CacheInfo:
        """The counts; see :class:`CacheInfo`."""
        ...

    def cache_clear(self) -> None:
        """Forgets all wrappers and sets the counts to 0."""
        ...

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """How this call would be keyed, without making it."""
        ...


class Interner:
    """Finds or builds the wrapper for a call of one factory."""

    __slots__ = (
        "_arity", "_binder", "_bypassed", "_factory", "_maxsize", "_misses", "_names",
        "_of_class", "_signature_of", "_token", "hits", "number",
    )  # fmt: skip

    def __init__(
        self,
        factory: Callable[..., Any],
        maxsize: int | None,
        signature_of: Callable[[], inspect.Signature | None] | None = None,
    ) -> None:
        self._factory = factory
        self._maxsize = maxsize
        self._of_class = signature_of is not None
        # Read at the first call: decorators above may still give a class its __init__.
        self._signature_of = signature_of or functools.partial(_signature_of, factory)
        self._binder: Binder | None = None
        self._arity = -1
        self._names: tuple[str, ...] | None = None
        self.cache_clear()

    def like(
        self,
        factory: Callable[..., Any],
        signature_of: Callable[[], inspect.Signature | None] | None = None,
    ) -> Interner:
        """An empty interner of the same kind for another factory."""
        return Interner(factory, self._maxsize, signature_of)

    def __reduce__(self) -> tuple[Any, ...]:
        # cloudpickle takes apart what it cannot import: a copy starts with empty tables (L4).
        return type(self), (None if self._of_class else self._factory, self._maxsize)

    def hit(self, function: Any, other: Any) -> Any:
        """The wrapper for the usual call, a plain function and a plain constant; or None.

        It spells the key as :meth:`_find` does, by the shortest way. A look in vain costs its time.
        """
        if type(function) is _FunctionType:
            try:
                store = function.__fnintern__  # type: ignore[attr-defined]
                if store.owner() is function:
                    kind = type(other)
                    if kind is bool or kind in ATOMIC:
                        wrapper = store.entries[(self.number, kind, other)].wrapper
                        self.hits += 1
                        return wrapper
            except (AttributeError, KeyError):
                pass
        return None

    def find(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The wrapper for a call, from a table or built now."""
        names: Iterable[str] | None
        if kwargs or len(args) != self._arity:
            bound = self._bind(args, kwargs)
            if bound is None:  # Python's own TypeError, from where it belongs
                self._bypassed += 1
                return self._factory(*args, **kwargs)
            names, values = bound
            if len(values) == 2 and self.number >= 0:
                wrapper = self.hit(*values)
                if wrapper is not None:
                    return wrapper
        else:
            names, values = self._names, args
        return self._find(names, values, args, kwargs)

    def _bind(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Iterable[str], tuple[Any, ...]] | None:
        if self._binder is None:
            self._binder = Binder(self._signature_of())
            self._arity, self._names = self._binder.arity, self._binder.names
        return self._binder.bind(args, kwargs)

    def _find(
        self, names: Any, values: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        token = self._token
        try:
            tokens, targets, owner = walk(zip(names, values, strict=True))
            store = store_of(owner) if targets else token.constants
            if (
                len(targets) == 1
                and values[0] is owner
                and len(values) == self._arity  # keyword-only, say, must not answer to hit()
                and not store.lent
            ):
                tokens = tokens[2:]  # it says nothing that the store does not
            key = (token.number, *tokens)
            entry = store.entries.get(key)
        except Exception:
            # Unkeyable, or the __eq__, __hash__ or __repr__ of an argument failed (I5).
            self._bypassed += 1
            return self._factory(*args, **kwargs)
        if entry is not None:
            wrapper = entry.take() if entry.matches(targets) else LOST
            if wrapper is not LOST:
                entry.hold()
                self.hits += 1
                return wrapper
            entry.discard()
        self._misses += 1
        entry = build(self._factory, args, kwargs, targets, owner)
        entry.settle()
        built = entry.wrapper
        entry = token.install(store, key, entry)
        wrapper = entry.take()
        if wrapper is LOST:  # by a collection in another thread, just now
            return built
        entry.hold()
        return wrapper

    def cache_info(self) -> CacheInfo:
        return CacheInfo(self.hits, self._misses, self._bypassed, len(self._token), self._maxsize)

    def cache_clear(self) -> None:
        self._token = Token(self._maxsize)
        self.number = self._token.number
        self.hits = self._misses = self._bypassed = 0

    def explain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Explanation:
        name = getattr(self._factory, "__qualname__", repr(self._factory))
        binder = self._binder or Binder(self._signature_of())
        bound = binder.bind(args, kwargs)
        if bound is None:
            self._signature_of()
            inspect.signature(self._factory).bind(*args, **kwargs)  # raises the TypeError
            return Explanation(name, interned=False)
        try:
            key_of(zip(*bound, strict=True))
        except Unkeyable as error:
            return Explanation(name, interned=False, obstacles=(Obstacle.of(error),))
        except Exception as error:  # of an argument's own code, or too deep a recursion
            obstacle = Obstacle("arguments", "tuple", f"keying failed: {type(error).__name__}")
            return Explanation(name, interned=False, obstacles=(obstacle,))
        return Explanation(name, interned=True, keyed_by="the identity of the callables")


_INTERNER: Final = "__fnintern_interner__"


class InternedMeta(type):
    """Metaclass of interned classes: calling the class looks before it makes an instance."""

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: Any, **kwargs: Any) -> None:
        super().__init__(name, bases, namespace, **kwargs)
        # Each class has its own, so that a class and its subclass never share (I4), and a class
        # made anew from a copy of the namespace (attrs, dataclass(slots=True)) gets another.
        inherited = namespace.get(_INTERNER) or _interner_of_bases(bases)
        _give_interner(cls, inherited or Interner(cls, 128))

    def __call__(
        cls, function: Any = _MISSING, other: Any = _MISSING, /, *rest: Any, **kwargs: Any
    ) -> Any:
        interner = cls.__fnintern_interner__  # type: ignore[attr-defined]
        # Interner.hit once more: calling it would cost a fifth of a hit, and this is the hit.
        if interner.number >= 0 and type(function) is _FunctionType and not rest and not kwargs:
            try:
                store = function.__fnintern__  # type: ignore[attr-defined]
                if store.owner() is function:
                    kind = type(other)
                    if kind is bool or kind in ATOMIC:
                        wrapper = store.entries[(interner.number, kind, other)].wrapper
                        interner.hits += 1
                        return wrapper
            except (AttributeError, KeyError):
                pass
        return interner.find(_given(function, other, rest), kwargs)

    def __setattr__(cls, name: str, value: Any) -> None:
        if name != _INTERNER:
            super().__setattr__(name, value)
        elif value._maxsize != _interner_of(cls)._maxsize:
            # cloudpickle writes the namespace of a class that it makes anew, or finds here.
            _give_interner(cls, value)

    @property
    def __signature__(cls) -> inspect.Signature | None:
        # Without it, inspect would take the signature of our __call__ for that of the class.
        return _class_signature(cls)

    def cache_info(cls) -> CacheInfo:
        """The counts; see :class:`CacheInfo`."""
        return _interner_of(cls).cache_info()

    def cache_clear(cls) -> None:
        """Forgets all instances and sets the counts to 0."""
        _interner_of(cls).cache_clear()

    def explain(cls, *args: Any, **kwargs: Any) -> Explanation:
        """How this call would be keyed, without making it."""
        return _interner_of(cls).explain(args, kwargs)


def _given(function: Any, other: Any, rest: tuple[Any, ...]) -> tuple[Any, ...]:
    """The positional arguments that were given."""
    if rest:
        return (function, other, *rest)
    if other is not _MISSING:
        return function, other
    return () if function is _MISSING else (function,)


def _interner_of_bases(bases: tuple[type, ...]) -> Interner | None:
    for base in bases:
        if isinstance(base, InternedMeta):
            return _interner_of(base)
    return None


def _give_interner(cls: type, pattern: Interner) -> None:
    make = functools.partial(super(InternedMeta, cls).__call__)  # type: ignore[misc]
    type.__setattr__(cls, _INTERNER, pattern.like(make, lambda: _class_signature(cls)))


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


def _signature_of(factory: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(factory)
    except (TypeError, ValueError):  # some builtins have none
        return None


def _interner_of(factory: Any) -> Interner:
    """The interner of a decorated class or function."""
    found = (
        vars(factory).get(_INTERNER)
        if isinstance(factory, InternedMeta)
        else getattr(factory, _INTERNER, None)
    )
    if not isinstance(found, Interner):
        raise TypeError(
            f"expected a function or class decorated by fnintern.interned, got {factory!r} of "
            f"type {type(factory).__qualname__}; decorate it with @interned first"
        )
    return found


#: Metaclass of a class to be interned -> the same with InternedMeta in front.
_metaclasses: weakref.WeakValueDictionary[type, type] = weakref.WeakValueDictionary()


def _metaclass_for(kind: type) -> type:
    if kind is type:
        return InternedMeta
    found = _metaclasses.get(kind)
    if found is None:
        found = type(f"Interned{kind.__name__}", (InternedMeta, kind), {})
        _metaclasses[kind] = found
    return found


def _intern_class(cls: type[T], pattern: Interner) -> type[T]:
    if not isinstance(cls, InternedMeta):
        cls = _recreate(cls)
    _give_interner(cls, pattern)
    return cls


def _recreate(cls: type[T]) -> type[T]:
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
        new: type[T] = _metaclass_for(type(cls))(cls.__name__, cls.__bases__, namespace)
    except Exception as error:
        raise TypeError(
            f"cannot intern the class {cls.__qualname__}: making it anew under an interning "
            f"metaclass failed ({type(error).__name__}: {error}). Decorate a function that "
            f"returns its instances instead"
        ) from error
    _point_super_at(new, cls)
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


def _intern_function(factory: Callable[P, R], pattern: Interner) -> InternedFunction[P, R]:
    interner = pattern.like(factory)
    hit, find = interner.hit, interner.find

    def interned_factory(
        function: Any = _MISSING, other: Any = _MISSING, /, *rest: Any, **kwargs: Any
    ) -> Any:
        if not rest and not kwargs and interner.number >= 0:
            wrapper = hit(function, other)
            if wrapper is not None:
                return wrapper
        return find(_given(function, other, rest), kwargs)

    functools.update_wrapper(interned_factory, factory)
    interned_factory.__dict__.pop("__fnintern__", None)
    for name, value in (
        (_INTERNER, interner),
        ("cache_info", interner.cache_info),
        ("cache_clear", interner.cache_clear),
        ("explain", lambda *args, **kwargs: interner.explain(args, kwargs)),
    ):
        setattr(interned_factory, name, value)
    return cast("InternedFunction[P, R]", interned_factory)


By = Literal["object", "value"]


@overload
def interned(  # type: ignore[overload-overlap]
    factory: type[T], /, *, by: By = ..., maxsize: int | None = ...
) -> type[T]: ...
@overload
def interned(
    factory: Callable[P, R], /, *, by: By = ..., maxsize: int | None = ...
) -> InternedFunction[P, R]: ...
@overload
def interned(
    factory: None = None, /, *, by: By = ..., maxsize: int | None = ...
) -> Callable[[Callable[P, R]], InternedFunction[P, R]]: ...
def interned(factory: Any = None, /, *, by: By = "object", maxsize: int | None = 128) -> Any:
    """Makes a factory return the same object for the same arguments.

    Args:
        factory: a function, a class or another callable that makes a wrapper from a callable. A
            class is made anew under a metaclass of ours and stays that class in all else.
        by: how callable arguments are compared. ``"object"``: by identity, bound methods by
            ``(__self__, __func__)``, partials by function, arguments and keywords (law I3).
            ``"value"``: by all that a trace of them could see (laws S1 to S3), so that a lambda
            made again at each call hits, and a changed capture misses.
        maxsize: how many wrappers to keep for each callable argument, the oldest going first, or
            None for no bound (L3).

    Returns:
        The decorated factory, with ``cache_info()``, ``cache_clear()`` and ``explain(...)``.
        A decorated function also has ``__wrapped__``.

    Raises:
        TypeError: ``factory`` is not callable, or is a class that cannot be made anew.
        ValueError: ``by`` or ``maxsize`` is none of the above.

    Calls with an argument that cannot be keyed (a list, an array) run as if undecorated (I5). The
    tables keep no callable alive (L1).

    Example:
        >>> import fnintern
        >>> @fnintern.interned
        ... def wrap(f, scale=1):
        ...     return lambda x: scale * f(x)
        >>> wrap(abs) is wrap(f=abs, scale=1)
        True
        >>> wrap(abs, 1.0) is wrap(abs, 1)
        False
        >>> wrap.cache_info()
        CacheInfo(hits=2, misses=2, bypassed=0, currsize=2, maxsize=128)
    """
    if by not in ("object", "value"):
        raise ValueError(f"by={by!r} is not known; expected 'object' or 'value'")
    if maxsize is not None and (type(maxsize) is not int or maxsize < 1):
        raise ValueError(
            f"maxsize={maxsize!r} is not a bound; expected a positive int, or None for no bound"
        )
    if factory is None:
        return lambda factory: interned(factory, by=by, maxsize=maxsize)
    return intern_as(factory, _interner_kind(by)(factory, maxsize))


def _interner_kind(by: By) -> type[Interner]:
    if by == "object":
        return Interner
    from fnintern.sharing import ValueInterner

    return ValueInterner


def intern_as(factory: Any, pattern: Interner) -> Any:
    """``interned`` with an interner like ``pattern``."""
    if isinstance(factory, type):
        return _intern_class(factory, pattern)
    if not callable(factory):
        raise TypeError(
            f"interned expects a function, a class or another callable, got {factory!r} of type "
            f"{type(factory).__qualname__}"
        )
    return _intern_function(factory, pattern)


def cache_info(factory: Callable[..., Any]) -> CacheInfo:
    """The counts of a decorated factory, also of a class that uses the name itself.

    Args:
        factory: a function or class decorated by :func:`interned`.

    Returns:
        The counts since it was decorated or cleared.

    Raises:
        TypeError: ``factory`` is not decorated.

    Example:
        >>> import fnintern
        >>> @fnintern.interned
        ... class Wrapper:
        ...     cache_info = "mine"
        >>> fnintern.cache_info(Wrapper).currsize
        0
    """
    return _interner_of(factory).cache_info()


def cache_clear(factory: Callable[..., Any]) -> None:
    """Forgets all wrappers of a decorated factory, and sets its counts to 0.

    Args:
        factory: a function or class decorated by :func:`interned`.

    Raises:
        TypeError: ``factory`` is not decorated.

    Example:
        >>> import fnintern
        >>> wrap = fnintern.interned(lambda f: [f])
        >>> first = wrap(abs)
        >>> fnintern.cache_clear(wrap)
        >>> wrap(abs) is first
        False
    """
    _interner_of(factory).cache_clear()

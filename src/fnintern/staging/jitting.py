"""``fnintern.jit``: ``jax.jit`` of a function that is made again at each call.

Imports jax.
"""

from __future__ import annotations

import functools
import inspect
import pkgutil
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, ParamSpec, Protocol, TypeVar, overload

import jax

from fnintern.captures.declared import keyed
from fnintern.captures.freezing import freeze
from fnintern.keys.objects import importable
from fnintern.keys.reasons import Cached, CacheInfo
from fnintern.keys.tokens import Identity, Key
from fnintern.staging.arguments import Arguments, Parameters
from fnintern.staging.conversion import Conversion
from fnintern.staging.eager import is_eager
from fnintern.staging.programs import jax_jit
from fnintern.staging.traces import HandsThrough, Plain, PlainTrace

__all__ = ["Jitted", "conversion_for", "jit", "static_places"]


P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class JittedFunction(Cached[P, R], Protocol[P, R]):
    """What :func:`jit` returns, for type checkers: a :class:`Cached` function of ``jax.jit``."""

    def lower(self, *args: P.args, **kwargs: P.kwargs) -> jax.stages.Lowered: ...
    def trace(self, *args: P.args, **kwargs: P.kwargs) -> jax.stages.Traced: ...
    def eval_shape(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...
    def clear_cache(self) -> None: ...


class JitDecorator(Protocol):
    """:func:`jit` with its options."""

    def __call__(self, fun: Callable[P, R], /) -> JittedFunction[P, R]: ...


@overload
def jit(fun: Callable[P, R], /, **options: Any) -> JittedFunction[P, R]: ...
@overload
def jit(fun: None = None, /, **options: Any) -> JitDecorator: ...
def jit(fun: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """``jax.jit`` for functions that are made again at each call: they share one program.

    For ``jit(lambda x: w * x)(x)``, ``jit(partial(f, 2))(x)`` or ``jit(grad(f))(x)`` inside of a
    function. Equal functions are found by value, and the arrays that they capture are operands. So
    unlike with ``jax.jit`` the captures are those of the call, not of the first trace. A function
    that is made once is better given to ``jax.jit``, whose calls cost less.

    Args:
        fun: the function; without one, a decorator is returned.
        **options: those of ``jax.jit``.

    Returns:
        A function that is called like that of ``jax.jit``, and has its ``lower``, ``trace`` and
        ``eval_shape``. A call that cannot be converted is traced anew.

    Raises:
        TypeError: as ``jax.jit`` does.

    Example:
        >>> import jax, jax.numpy as jnp, fnintern
        >>> def step(w, x):
        ...     return fnintern.jit(jax.grad(lambda x: (w * x) ** 2))(x)
        >>> float(step(jnp.float32(2.0), 1.0)), float(step(jnp.float32(3.0), 1.0))
        (8.0, 18.0)
    """
    if fun is None:
        return functools.partial(jit, **options)
    if not callable(fun):
        raise TypeError(f"jit expects a function, got {fun!r} of type {type(fun).__qualname__}")
    return Jitted(fun, options)


class Jitted:
    """A function as :func:`jit` returns it."""

    def __init__(self, fun: Callable[..., Any], options: dict[str, Any]) -> None:
        #: What ``jax.jit`` makes of the function, for calls that are not converted.
        self._plain: Any = jax_jit(fun, **options)
        self._fresh = functools.partial(_fresh, options)
        self._options = options
        functools.update_wrapper(self, fun, updated=())
        self.__wrapped__: Callable[..., Any] = fun
        self._conversion = conversion_for(fun, options)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if self._conversion is None or not is_eager():
            return self._plain(*args, **kwargs)
        # In the order in which JAX takes them.
        kwargs = {name: kwargs[name] for name in sorted(kwargs)} if len(kwargs) > 1 else kwargs
        return self._conversion.run(self._fresh, (self.__wrapped__, *args), kwargs)

    def cache_info(self) -> CacheInfo | None:
        """Counts of the calls of all functions with these options; None where none is converted."""
        return None if self._conversion is None else self._conversion.cache_info()

    def __repr__(self) -> str:
        return f"<fnintern.jit of {self.__wrapped__!r}>"

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __getattr__(self, name: str) -> Any:
        if name == "_plain":  # not yet set, in a copy under way
            raise AttributeError(name)
        return getattr(self._plain, name)

    def __reduce__(self) -> Any:
        if importable(self):  # by its name, as functions are
            return pkgutil.resolve_name, (f"{self.__module__}:{self.__qualname__}",)
        return Jitted, (self.__wrapped__, self._options)


keyed(Jitted, lambda jitted: (Identity(Jitted), jitted.__wrapped__, jitted._options))


def _fresh(options: dict[str, Any], fun: Any, /, *args: Any, **kwargs: Any) -> Any:
    """The call where it cannot be converted. What the function sees may have changed, so JAX has to
    trace it: it gets another function each time."""

    @functools.wraps(fun)
    def again(*args: Any, **kwargs: Any) -> Any:
        return fun(*args, **kwargs)

    return jax_jit(again, **options)(*args, **kwargs)


def _traced_jit(options: Mapping[str, Any]) -> Plain:
    """The trace of a call of ``jax.jit`` with these options; the function is the first argument."""

    def plain(arguments: Arguments, operands: Sequence[Any]) -> PlainTrace:
        (fun, *args), kwargs = arguments.put_together(iter(operands))
        traced = jax_jit(fun, **options).trace(*args, **kwargs)
        # Captured tracers are the first of its operands already.
        return PlainTrace(traced.jaxpr, traced.out_tree, tuple(getattr(traced, "_consts", ())))

    return plain


#: Options -> conversion, which keeps them, and with them the ids in the key, alive. Options are
#: constants of the source, so there are few.
_conversions: dict[Key, Conversion] = {}

#: Options that the program of a converted call gets as they are.
_PASSED_ON: Final = frozenset({
    "keep_unused", "inline", "in_shardings", "out_shardings", "compiler_options",
})  # fmt: skip
_SPECIAL: Final = ("static_argnums", "static_argnames", "donate_argnums", "donate_argnames")


def conversion_for(
    fun: Callable[..., Any], options: Mapping[str, Any], name: str = "jit"
) -> Conversion | None:
    """The programs of all functions with these options; None where calls cannot be converted."""
    if not options and (name,) in _conversions:
        return _conversions[(name,)]
    options = dict(_without_places(options))
    if not options.keys() <= _PASSED_ON.union(_SPECIAL) or options.get("in_shardings") is not None:
        return None
    special = {name: _as_tuple(options.get(name)) for name in _SPECIAL}
    try:
        signature = inspect.signature(fun) if any(special.values()) else inspect.Signature()
    except (TypeError, ValueError):  # no signature
        return None
    positions = list(signature.parameters.values())
    parameters = Parameters(
        static=_places(special["static_argnums"], special["static_argnames"], positions),
        donated=_places(special["donate_argnums"], special["donate_argnames"], positions),
        functions=frozenset({0}),
        hashed=True,
    )
    shardings = options.get("out_shardings")
    if shardings is not None and not jax.tree_util.all_leaves((shardings,)):
        return None  # they go by the structure of the result
    passed_on = {name: value for name, value in options.items() if name in _PASSED_ON}
    try:
        frozen = freeze(passed_on, names=("options",))
    except Exception:
        return None
    if frozen.leaves or frozen.owner is not None:
        return None
    key = (name, parameters.static, parameters.donated, *special.values(), *frozen.key)
    found = _conversions.get(key)
    if found is None:
        conversion = Conversion(
            _traced_jit(options), name, parameters, passed_on, HandsThrough.NOTHING
        )
        found = _conversions.setdefault(key, conversion)
        if not options:
            _conversions[(name,)] = found
    return found


def _without_places(options: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Options without those that leave it to JAX where something is to be: a library passes them
    all. Trees of shardings that are None become one None, for all."""
    for name, option in options.items():
        if name in ("device", "backend") and option is None:
            continue
        if name in ("in_shardings", "out_shardings"):
            leaves = jax.tree_util.tree_leaves(option, is_leaf=lambda leaf: leaf is None)
            option = None if all(leaf is None for leaf in leaves) else option
        yield name, option


def static_places(
    fun: Callable[..., Any], options: Mapping[str, Any]
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The static parameters of a function that ``jax.jit`` gets with these options: by position,
    and by name."""
    numbers, names = (_as_tuple(options.get(name)) for name in _SPECIAL[:2])
    if not numbers and not names:
        return (), ()
    try:
        positions = list(inspect.signature(fun).parameters.values())
    except (TypeError, ValueError):  # no signature
        return (), ()
    places = _places(numbers, names, positions)
    by_position = sorted(place - 1 for place in places if isinstance(place, int))
    return tuple(by_position), tuple(sorted(p for p in places if isinstance(p, str)))


def _as_tuple(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, int | str) else tuple(value)


def _places(
    numbers: tuple[Any, ...], names: tuple[Any, ...], parameters: list[inspect.Parameter]
) -> frozenset[int | str]:
    """Chosen parameters by position among a call's arguments, after the function, and by name.

    As for ``jax.jit``, one that is named is meant by position too, and the other way round, where
    only names or only numbers are given.
    """
    known = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    numbers = tuple(n + len(parameters) if n < 0 else n for n in numbers)
    places: set[int | str] = {*names, *(1 + number for number in numbers)}
    if not numbers:
        places.update(1 + i for i, name in enumerate(known) if name in names)
    if not names:
        places.update(name for i, name in enumerate(known) if i in numbers)
    return frozenset(places)

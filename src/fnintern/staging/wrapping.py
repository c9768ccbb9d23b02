"""``fnintern.staged``: a higher-order function that compiles once for what its functions are.

The face of :mod:`fnintern.staging.conversion`. Imports jax.
"""

from __future__ import annotations

import functools
import inspect
import pkgutil
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar, cast

from fnintern.captures.declared import keyed
from fnintern.keys.reasons import Cached, CacheInfo, Explanation
from fnintern.keys.tokens import Identity
from fnintern.staging.arguments import Parameters
from fnintern.staging.conversion import Conversion
from fnintern.staging.eager import is_eager, runs_programs
from fnintern.staging.traces import HandsThrough, Plain, traced_operation, traced_shapes

__all__ = ["Staged", "staged"]

P = ParamSpec("P")
R = TypeVar("R")


def staged(op: Callable[P, R], *, static_argnames: str | Sequence[str] = ()) -> Cached[P, R]:
    """Makes a higher-order function compile once for what its functions are.

    Args:
        op: a function of functions and arrays that JAX can trace, such as ``jax.lax.scan``.
        static_argnames: its parameters that it needs as Python values. They stay what they are,
            and each set of them has a program of its own.

    Returns:
        The same function, for eager calls: functions among the arguments (also in containers, in
        partials and bound) are compared by value, the arrays that they capture are passed to a
        jitted function at each call, and so is every other argument. It has ``cache_info()``,
        ``cache_clear()``, ``explain(...)`` and ``__wrapped__``. Inside ``jit``, and in a mode such
        as ``jax.disable_jit()``, it calls ``op``; and so it does where a function sees what cannot
        be carried across, or changes it (``fnintern.explain`` says what), or needs a captured
        array as a Python value.

    Raises:
        TypeError: ``op`` is not callable.
        ValueError: ``op`` has no parameter of a name in ``static_argnames``.

    Example:
        >>> import jax, jax.numpy as jnp, fnintern
        >>> scan = fnintern.staged(jax.lax.scan, static_argnames=("length", "reverse", "unroll"))
        >>> def total(weight, xs):
        ...     return scan(lambda carry, x: (carry + weight * x, None), 0.0, xs)[0]
        >>> float(total(jnp.float32(2.0), jnp.ones(3))), float(total(jnp.float32(3.0), jnp.ones(3)))
        (6.0, 9.0)
        >>> scan.cache_info()
        CacheInfo(hits=1, misses=1, bypassed=0, currsize=1, maxsize=128)
    """
    if not callable(op):
        raise TypeError(
            f"staged expects a function of functions, such as jax.lax.scan, got {op!r} of type "
            f"{type(op).__qualname__}"
        )
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    return cast("Cached[P, R]", Staged(op, names))


class Staged:
    """A higher-order function whose eager calls are converted; made by :func:`staged`.

    Args:
        op: the function.
        static: names of its static parameters.
        functions: names of its parameters that are functions, or hold some; by default any may.
        aside: says of the arguments of a call whether it is to run as it is.
        plain: how a converted call is traced, where that is not by calling ``op``.
        hands_through: which arguments ``op`` returns as they are if it returns them untouched.
    """

    def __init__(
        self,
        op: Callable[..., Any],
        static: tuple[str, ...] = (),
        *,
        functions: tuple[str, ...] | None = None,
        aside: Callable[..., bool] | None = None,
        plain: Plain | None = None,
        hands_through: HandsThrough = HandsThrough.ARRAYS,
    ) -> None:
        functools.update_wrapper(self, op, updated=())
        self.__qualname__: str = getattr(op, "__qualname__", type(op).__qualname__)
        self.__wrapped__: Callable[..., Any] = op
        self._static = static
        self._aside = aside
        self._plain = plain
        self._functions = functions
        parameters = Parameters(
            static=_places(op, static),
            functions=None if functions is None else _places(op, functions),
        )
        self._hands_through = hands_through
        self._conversion = Conversion(
            plain or traced_operation(op),
            getattr(op, "__name__", "staged"),
            parameters,
            hands_through=hands_through,
        )

    def __repr__(self) -> str:
        for module in ("jax.lax", self.__module__):
            found = getattr(sys.modules.get(module), self.__qualname__, None)
            if found is self or found is self.__wrapped__:
                return f"<staged {module}.{self.__qualname__}>"
        return f"<staged {self.__wrapped__!r}>"

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> Any:
        # By name where a module holds it under its name, as functions do.
        for module in (self.__module__, "jax", "jax.lax", "fnintern.lax"):
            if getattr(sys.modules.get(module), self.__qualname__, None) is self:
                return pkgutil.resolve_name, (f"{module}:{self.__qualname__}",)
        make = functools.partial(
            Staged,
            functions=self._functions,
            aside=self._aside,
            plain=self._plain,
            hands_through=self._hands_through,
        )
        return make, (self.__wrapped__, self._static)

    def cache_info(self) -> CacheInfo:
        """Counts of eager calls: hits, misses, those that ran as ``op``; programs; their bound."""
        return self._conversion.cache_info()

    def count_as(self, name: str) -> None:
        """Has its calls counted under another name."""
        self._conversion.counts.operation = name

    def cache_clear(self) -> None:
        """Forgets all programs, and what was found unfit for conversion."""
        self._conversion.cache_clear()

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """How this call would be converted, without making it."""
        return self._conversion.explain(args, kwargs)

    @property
    def __fnintern_interner__(self) -> Conversion:  # for fnintern.cache_info
        return self._conversion

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        op = self.__wrapped__
        # What computes nothing may be asked inside of a trace, too.
        runs = runs_programs if self._plain is traced_shapes else is_eager
        if not runs() or (self._aside is not None and self._aside(*args, **kwargs)):
            return op(*args, **kwargs)
        return self._conversion.run(op, args, kwargs)


# A function that captures a staged operation sees what it wraps.
keyed(Staged, lambda op: (Identity(op.__wrapped__), op._static))


def _places(op: Callable[..., Any], names: tuple[str, ...]) -> frozenset[int | str]:
    """Parameters by name, and by position where they may be given so."""
    if not names:
        return frozenset()
    try:
        parameters = list(inspect.signature(op).parameters.values())
    except (TypeError, ValueError):
        raise ValueError(
            f"static_argnames={names!r} needs the names of the parameters of {op!r}, which Python "
            f"does not know; wrap it in a function that names them"
        ) from None
    known = [parameter.name for parameter in parameters]
    for name in names:
        if name not in known and not any(p.kind is p.VAR_KEYWORD for p in parameters):
            raise ValueError(
                f"static_argnames names {name!r}, which is no parameter of {op!r}; "
                f"it has {', '.join(known)}"
            )
    places = {
        i
        for i, parameter in enumerate(parameters)
        if parameter.name in names
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    }
    return frozenset(places) | frozenset(names)

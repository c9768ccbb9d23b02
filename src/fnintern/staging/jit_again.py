"""``jax.jit`` for a program that jits the same code again and again (:func:`fnintern.patch_jax`).

What is jitted once is jax's own object, with its dispatch. Where the code of a function has been
jitted before, or a static argument is a new object, the call is converted. It means what
``jax.jit`` means: for each signature a jitted function keeps what it captured when it was first
called so; a new one reads anew. Imports jax.
"""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable
from typing import Any, Final

import jax

from fnintern.captures.declared import keyed, stateless
from fnintern.keys.objects import importable
from fnintern.keys.tokens import ATOMIC, Identity
from fnintern.libraries.jax import jitted_options
from fnintern.libraries.settings import ambient_key
from fnintern.staging.call import Call
from fnintern.staging.conversion import Conversion
from fnintern.staging.eager import is_eager
from fnintern.staging.jitting import conversion_for, static_places
from fnintern.staging.met import Met, Seen
from fnintern.staging.programs import jax_jit, under_way
from fnintern.staging.results import Template
from fnintern.staging.structures import holds_text_only

__all__ = ["JitAgain", "share_jit", "share_jitted"]

#: Signatures that one jitted function keeps what it captured for, as JAX keeps its programs.
_MAX_KEPT: Final = 128

_flatten: Final = jax.tree_util.tree_flatten


def share_jit(jit: Callable[..., Any], name: str = "jit") -> Callable[..., Any]:
    """``jax.jit``, with programs that are shared by functions of the same code.

    Args:
        jit: that of jax.
        name: under which calls are counted.
    """
    met = Met()

    @stateless
    @functools.wraps(jit)
    def shared(*args: Any, **options: Any) -> Any:
        if not args:
            decorate = jit(**options)  # an option that is none raises
            return functools.update_wrapper(functools.partial(shared, **options), decorate)
        own = jit(*args, **options)
        if not is_eager():
            return own
        fun = args[0]
        static = options.get("static_argnums"), options.get("static_argnames")
        has_static = static != (None, None)
        seen = met.seen(fun)
        # A tuple of no static arguments is none.
        if not seen.again and not (has_static and any(static_places(fun, options))):
            return own
        conversion = conversion_for(fun, options, name)
        if conversion is None:
            return own
        return JitAgain(fun, own, conversion, () if not has_static else options, seen)

    shared.__module__ = "jax"  # where it is found under its name, by pickle
    return shared


def share_jitted(jitted: Any, options: dict[str, Any]) -> Any:
    """What jax's ``jit`` has made, with programs that are shared by new static arguments.

    Args:
        jitted: what ``jax.jit`` returned.
        options: those that it got, some arguments static. With others there, it is left as it is.
    """
    fun = jitted.__wrapped__
    if type(jitted) is JitAgain:  # made under the patch of jax.jit
        return jitted
    if jitted_options(jitted) != jitted_options(jax_jit(fun, **options)):
        return jitted
    conversion = conversion_for(fun, options)
    return jitted if conversion is None else JitAgain(fun, jitted, conversion, options, Seen(None))


class _Retraced(BaseException):
    """JAX is about to trace a kept call again, under other settings. Its functions may see
    something else by now. No error, so that nobody on the way handles it."""


class _Closed:
    def trace(self, arrays: Any, operands: Any) -> Any:
        raise _Retraced


_CLOSED: Final = _Closed()


class _Kept:
    """A call of one signature with what it captured when it was made first."""

    __slots__ = ("_arrays", "_frozen", "_jitted", "_trees", "_variants")

    def __init__(self, call: Call, jitted: Any) -> None:
        self._jitted = jitted
        self._arrays = call.passed
        self._frozen = call.frozen
        self._variants = dict(call.variants)
        self._trees: dict[int, Any] = {}

    def run(self, operands: list[Any]) -> Any:
        outer = getattr(under_way, "call", None)
        under_way.call = _CLOSED
        try:
            returned = self._jitted(self._arrays, *operands)
        finally:
            under_way.call = outer
        ((number, results),) = returned.items()
        tree = self._trees.get(number)
        if tree is None:
            variant = self._variants.get(number)
            if variant is None:
                raise _Retraced
            tree = variant.tree
            if type(tree) is Template:
                tree = tree.structure(self._frozen)
            self._trees[number] = tree
        return tree.unflatten(results)


class JitAgain:
    """What ``jax.jit`` returns under the patch for code that it has met before.

    Args:
        fun: the function.
        own: what jax's ``jit`` has made of it.
        conversion: the programs of all functions with these options.
        options: of ``jax.jit``, where some arguments are static.
        seen: of its code. If it was not met before, calls are jax's own until another object is
            given where the first call has a static one.
    """

    __slots__ = (
        "__dict__", "__weakref__", "_calls", "_conversion", "_fun", "_kept", "_names", "_only",
        "_own", "_positions", "_seen", "_static",
    )  # fmt: skip

    def __init__(
        self, fun: Any, own: Any, conversion: Conversion, options: Any, seen: Seen
    ) -> None:
        self._fun = fun
        self._own = own
        self._conversion = conversion
        self._seen = seen
        #: Static arguments -> whether calls with them are jax's own.
        self._static: dict[Any, bool] = {}
        self._kept: dict[Any, _Kept | None] = {}
        #: Calls under way that look for a program.
        self._calls = 0
        self._positions, self._names = static_places(fun, options) if options else ((), ())
        #: Where the only static argument is, if it is the only one.
        self._only: slice | None = None
        if len(self._positions) == 1:
            self._only = slice(self._positions[0], self._positions[0] + 1)
        self.__dict__.update(getattr(own, "__dict__", {}))

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        has_static = self._positions or self._names
        if has_static:
            if self._only is not None:
                given = args[self._only]
            else:
                count = len(args)
                given = tuple([args[i] for i in self._positions if i < count])
            if kwargs:
                given += tuple([kwargs[name] for name in self._names if name in kwargs])
            try:
                own = self._static[given]
            except KeyError:
                own = self._decide(args, kwargs, given)
            except Exception:  # it has no hash: jax says so
                own = True
            if own:
                return self._own(*args, **kwargs)
        if not is_eager():
            return self._own(*args, **kwargs)
        static: Any = ()
        if has_static:
            static = self._static_of(args, kwargs)
            dynamic = self._dynamic(args, kwargs)
        else:
            dynamic = (args, kwargs) if kwargs else args
        operands, structure = _flatten(dynamic)
        signature = (
            structure, static, *ambient_key(), bool(jax.config.jax_enable_x64),
            *[_kind_of(operand) for operand in operands],
        )  # fmt: skip
        try:
            kept = self._kept[signature]
        except KeyError:
            pass
        except Exception:  # data of a node that has no hash
            return self._own(*args, **kwargs)
        else:
            if kept is None:
                return self._own(*args, **kwargs)
            try:
                result = kept.run(operands)
                self._conversion.counts.hits += 1
                return result
            except _Retraced:
                pass
            except Exception:
                if any(map(_is_deleted, operands)):
                    return self._own(*args, **kwargs)  # which says so in its words
                raise
        if len(kwargs) > 1:  # in the order in which JAX takes them
            kwargs = {name: kwargs[name] for name in sorted(kwargs)}

        def keep(call: Call, jitted: Any) -> None:
            self._remember(signature, _Kept(call, jitted))

        def unconverted(fun: Any, /, *args: Any, **kwargs: Any) -> Any:
            self._remember(signature, None)
            return self._own(*args, **kwargs)

        self._calls += 1
        try:
            return self._conversion.run(unconverted, (self._fun, *args), kwargs, keep)
        finally:
            self._calls -= 1

    def _remember(self, signature: Any, kept: _Kept | None) -> None:
        if len(self._kept) >= _MAX_KEPT:
            self._kept.pop(next(iter(self._kept)), None)
        self._kept[signature] = kept

    def _static_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        count = len(args)
        given: list[Any] = [(i, type(args[i]), args[i]) for i in self._positions if i < count]
        if kwargs:
            given += [
                (name, type(kwargs[name]), kwargs[name]) for name in self._names if name in kwargs
            ]
        return tuple(given)

    def _dynamic(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return (
            [arg for i, arg in enumerate(args) if i not in self._positions],
            {name: arg for name, arg in kwargs.items() if name not in self._names},
        )

    def _decide(self, args: tuple[Any, ...], kwargs: dict[str, Any], given: Any) -> bool:
        """Whether calls with these static arguments are jax's own."""
        plain = all(_is_plain(value) for *_, value in self._static_of(args, kwargs))
        seen = self._seen
        own = not seen.again and (plain or not seen.given)
        seen.given = seen.given or not plain
        if len(self._static) >= _MAX_KEPT:
            self._static.pop(next(iter(self._static)), None)
        self._static[given] = own
        return own

    def clear_cache(self) -> None:
        """Forgets what it has traced, as that of jax's own object does."""
        self._kept.clear()
        self._own.clear_cache()

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # for isinstance, which finds what jax.jit returns
        return type(self._own)

    @property
    def __wrapped__(self) -> Any:
        return self._fun

    def __repr__(self) -> str:
        return repr(self._own)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __getattr__(self, name: str) -> Any:
        if name == "_own":  # not yet set, in a copy under way
            raise AttributeError(name)
        return getattr(self._own, name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        # A pickle or a copy is that of jax's own object.
        return operator.itemgetter(0), ((self._own,),)


def _key(jitted: JitAgain) -> Any:
    """A function that captures one sees what it wraps, until it has been called: then it keeps
    what it has traced. (The function of one that is being called may refer to it.)"""
    called = not jitted._calls and (jitted._kept or jitted._static)
    function = jitted._own if called else jitted._fun
    return Identity(JitAgain), function, jitted._conversion.options


keyed(JitAgain, _key)


def _is_plain(value: Any) -> bool:
    """Whether equality says all of a static argument, so that JAX finds it again."""
    if type(value) in ATOMIC or type(value) in (float, complex):
        return True
    if isinstance(value, tuple | frozenset):
        return all(map(_is_plain, value))
    if isinstance(value, jax.tree_util.PyTreeDef):
        return holds_text_only(value)
    return importable(value) if callable(value) else False


def _kind_of(operand: Any) -> Any:
    """What JAX tells its traces by."""
    try:
        aval = operand.aval
    except AttributeError:  # of Python or NumPy: what JAX makes of it
        try:
            aval = jax.typeof(operand)
        except TypeError:  # it says so itself
            return type(operand)
    return aval.shape, aval.dtype, getattr(aval, "weak_type", False)


def _is_deleted(operand: Any) -> bool:
    return isinstance(operand, jax.Array) and operand.is_deleted()

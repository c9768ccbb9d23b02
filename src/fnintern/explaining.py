"""``fnintern.explain``: how a callable is keyed, what it captures, and what stands in the way.

Also the command ``python -m fnintern explain MODULE:NAME``. Imports neither jax nor flax.
"""

from __future__ import annotations

import functools
import importlib
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from fnintern.captures.code import facts_of
from fnintern.captures.freezing import freeze
from fnintern.captures.reading import ReadObject
from fnintern.captures.walk import References
from fnintern.interning.classes import INTERNER
from fnintern.interning.decorator import cache_of
from fnintern.keys import strict
from fnintern.keys.arguments import key_of
from fnintern.keys.reasons import Capture, Explanation, Obstacle

__all__ = ["explain", "main"]


def explain(callable: Any, /, *args: Any, **kwargs: Any) -> Explanation:
    """How a function, or a call of a factory, is keyed, and why it is not interned.

    Args:
        callable: a function, a partial, a bound method or a callable object; or a factory, which
            :func:`interned`, ``staged`` or ``jit`` has made.
        *args: for a factory, the arguments of the call to explain, which is not made.
        **kwargs: the same by name.

    Returns:
        The explanation, a text by ``str()``. Its attributes say what each capture is, and name
        each obstacle with its path, type, reason and remedy. It never raises for a callable that
        cannot be read: that is an obstacle.

    Raises:
        TypeError: there are arguments and ``callable`` is no factory, or it does not take them.

    Example:
        >>> import fnintern, time
        >>> scale = 2.0
        >>> print(fnintern.explain(lambda x: scale * x))
        <lambda>: interned, keyed by the value of all its captures
          scale is a float: part of the key
        >>> print(fnintern.explain(lambda x: x + time.time()))
        <lambda>: not interned, built afresh on each call
          time is a module: it returns something else at each call; read it outside, pass the result
        >>> wrap = fnintern.interned(lambda f, options: [f])
        >>> print(fnintern.explain(wrap, abs, ["fast"]))
        <lambda>: not interned, built afresh on each call
          options is a list: it can change under the key
    """
    if args or kwargs:
        return cache_of(callable).explain(args, kwargs)
    if not _is_callable(callable):
        return _no_callable(callable)
    note = ""
    if hasattr(callable, INTERNER):
        name = _name_of(callable)
        note = f"it is cached itself: fnintern.explain({name}, ...) explains a call of it"
        callable = getattr(callable, "__wrapped__", callable)
    try:
        explanation = _explained(callable)
    except Exception as error:  # of code of the callable's own
        strict.check(error)
        explanation = Explanation(_name_of(callable), False, obstacles=(Obstacle.of(error),))
    return attrs.evolve(explanation, note=note or explanation.note)


def _explained(callable: Any) -> Explanation:
    name = _name_of(callable)
    captures = []
    obstacles = []
    for path, value in _visible(callable):
        try:
            frozen = freeze(value, names=(path,))
        except Exception as error:
            strict.check(error)
            obstacles.append(Obstacle.of(error))
            captures.append(Capture(path, _type_name(value), "refused"))
        else:
            role = "operand" if frozen.leaves else "key"
            captures.append(Capture(path, _type_name(value), role))
    by_object = _by_object(callable)
    try:
        frozen = freeze(callable, names=(name,))
        frozen.check_shareable()
    except Exception as error:
        strict.check(error)
        # The whole is asked too: what no single capture shows, such as a module's attributes.
        whole = Obstacle.of(error)
        known = {(o.type_name, o.reason) for o in obstacles}
        if (whole.type_name, whole.reason) not in known:
            obstacles.append(whole)
        converted, unconverted = _conversion_of(callable)
        return Explanation(
            name,
            False,
            "" if by_object else "the identity of the callables",
            tuple(obstacles),
            tuple(captures),
            converted,
            unconverted,
        )
    for record in frozen.objects:
        captures += [_read(record, item) for item in record.done]
    unread = tuple(path for record in frozen.objects for path in record.unread())
    note = f'by="object" bypasses it: {by_object}' if by_object else _of_method(callable)
    return Explanation(
        name, True, frozen.keyed_by(), (), tuple(captures), *_conversion_of(callable), unread, note
    )


def _is_callable(value: Any) -> bool:
    try:
        return callable(value)
    except Exception:  # a property __class__ that fails, say
        return False


def _no_callable(value: Any) -> Explanation:
    """What is said of an argument that is a number, a text or the like."""
    remedy = "pass the function itself"
    if isinstance(value, str) and ":" in value:
        remedy += f", or run: python -m fnintern explain {value}"
    kind = type(value).__qualname__
    obstacle = Obstacle("the argument", kind, "there is nothing to call", remedy)
    return Explanation(kind, False, obstacles=(obstacle,))


def _of_method(value: Any) -> str:
    """What there is to know of a method that was looked up on its class."""
    if not isinstance(value, types.FunctionType) or "." not in value.__qualname__:
        return ""
    owner = value.__qualname__.split(".")[-2]
    if owner == "<locals>" or value.__code__.co_varnames[:1] != ("self",):
        return ""
    return f"self is a parameter here, and not looked at; explain a bound method, {owner}(...)." + (
        value.__name__
    )


def _read(record: ReadObject, name: str) -> Capture:
    """An attribute that code reads off an object, maybe in a function that the callable calls."""
    value = record.value_of(name)
    path = f"{record.path}.{name}"
    try:
        role = "operand" if freeze(value, names=(path,)).leaves else "key"
    except Exception:
        role = "refused"
    return Capture(path, _type_name(value), role)


def _conversion_of(value: Any) -> tuple[bool, Obstacle | None]:
    """Whether closure conversion can carry a callable across, and what a trace showed of it."""
    try:
        frozen = freeze(value, references=References.READ)
    except Exception:  # refused, or code of its own failed
        return False, None
    try:
        from fnintern.staging.conversion import reason_unconverted
    except ImportError:  # there is no jax
        return False, None
    unconverted = reason_unconverted(frozen)
    return unconverted is None, unconverted


def _type_name(value: Any) -> str:
    name = type(value).__qualname__
    return "jax.Array" if name == "ArrayImpl" else name


def _by_object(value: Any) -> Obstacle | None:
    """Why ``by="object"`` bypasses a callable, if it does."""
    try:
        key_of([("f", value)])
    except Exception as error:
        return Obstacle.of(error)
    return None


def _name_of(value: Any) -> str:
    try:
        name = value.__name__
    except Exception:  # it has none, or code of its own failed
        name = None
    return name if isinstance(name, str) else type(value).__qualname__


def _visible(value: Any) -> Iterator[tuple[str, Any]]:
    """What a function sees at first sight, by the names that its code uses."""
    if isinstance(value, functools.partial):
        yield from _visible(value.func)
        for i, item in enumerate(value.args):
            yield f"args[{i}]", item
        for name, item in value.keywords.items():
            yield f"keywords[{name!r}]", item
    elif isinstance(value, types.MethodType):
        yield "__self__", value.__self__
        yield from _visible(value.__func__)
    elif isinstance(value, types.FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            try:
                yield name, cell.cell_contents
            except ValueError:  # not filled yet
                continue
        for name, _ in facts_of(value.__code__).globals:
            if name in value.__globals__ and type(value.__globals__[name]) is not types.ModuleType:
                yield name, value.__globals__[name]
        for i, item in enumerate(value.__defaults__ or ()):
            yield f"__defaults__[{i}]", item
        for name, item in (value.__kwdefaults__ or {}).items():
            yield f"__kwdefaults__[{name!r}]", item


def main(argv: Sequence[str]) -> int:
    """Runs ``python -m fnintern explain``; returns its exit status: 0 if interned, else 1."""
    import argparse

    parser = argparse.ArgumentParser(
        prog="python -m fnintern explain",
        description="How a function is keyed, what it captures, and what stands in the way.",
    )
    parser.add_argument("target", metavar="MODULE:NAME", help="for example my_package.model:loss")
    module_name, colon, name = parser.parse_args(argv).target.partition(":")
    if not colon or not module_name or not name:
        parser.error("expected MODULE:NAME, for example my_package.model:loss")
    sys.path.insert(0, "")
    found: Callable[..., Any]
    try:
        found = importlib.import_module(module_name)  # type: ignore[assignment]
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        parser.error(f"cannot find {module_name}:{name}: {error}")
    explanation = explain(found)
    print(explanation)
    return 0 if explanation.interned else 1

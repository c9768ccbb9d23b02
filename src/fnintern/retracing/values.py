"""What a function captures, as text to show and tokens to compare.

A value is described once, when the function that captures it is traced, and is compared later with
that of another trace. A description holds text, numbers and weak references, and so keeps nothing
of the user's alive; no ``__eq__`` and no ``__repr__`` of the user's is ever called.
"""

from __future__ import annotations

import dis
import functools
import types
import weakref
from collections.abc import Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any, Final

import attrs

from . import jaxprobe

__all__ = ["Same", "Value", "captures_of", "changes", "cut", "from_to", "title", "value_of"]

_TEXT: Final = 40
_SMALL: Final = 1024  # bytes of a numpy array that are compared, beyond that it is its identity


class Same:
    """Equal to another one of the same object, while that lives. Keeps it not alive."""

    __slots__ = ("_address", "_ref")

    def __init__(self, value: Any) -> None:
        self._address = id(value)
        try:
            self._ref: weakref.ref[Any] | None = weakref.ref(value)
        except TypeError:
            self._ref = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Same) or self._address != other._address:
            return False
        # An address alone is an answer only for what takes no weak reference.
        return (
            (self._ref is None) == (other._ref is None)
            and (self._ref is None or (other._ref is not None and self._ref() is other._ref()))
            and not (self._ref is not None and self._ref() is None)
        )

    __hash__ = None  # type: ignore[assignment]


@attrs.frozen
class Value:
    """A captured value: what it is compared by, and what a reader sees of it."""

    token: Any
    text: str = attrs.field(eq=False)
    parts: tuple[tuple[str, Value], ...] = attrs.field(default=(), eq=False)


def value_of(value: Any, depth: int = 6, *, strict: bool = False) -> Value:
    """Describe one captured value. Equal functions are equal, unless `strict`: jax's view."""
    kind = type(value)
    if value is None or value is ... or kind in (bool, float, complex):
        return Value((kind.__name__, repr(value)), repr(value))
    if kind in (int, str, bytes):
        return _long(value)
    if depth and kind in (tuple, list, dict) and len(value) <= 64:
        return _container(value, depth - 1, strict)
    if depth and isinstance(value, tuple) and hasattr(kind, "_fields") and len(value) <= 64:
        parts = [
            (name, value_of(getattr(value, name), depth - 1, strict=strict))
            for name in kind._fields
        ]
        return Value((kind, [part.token for _, part in parts]), kind.__name__, tuple(parts))
    if kind is FunctionType and depth:
        captures = tuple(captures_of(value, min(depth - 1, 3)))
        token = ("def", value.__code__, [(name, part.token) for name, part in captures])
        text = f"function {title(value.__qualname__)}"
        return Value((Same(value), token) if strict else token, text, captures)
    if kind.__name__ == "PjitFunction":
        return Value(Same(value), f"jitted {title(getattr(value, '__qualname__', 'function'))}")
    if kind.__name__ == "PyTreeDef":
        return Value(value, "structure")  # compared as jax compares it
    if isinstance(value, types.ModuleType | type | types.BuiltinFunctionType):
        return Value(Same(value), cut(str(getattr(value, "__name__", kind.__name__))))
    return _array_or_object(value)


def _long(value: int | str | bytes) -> Value:
    """A number or a text, which may be so long that it is neither shown nor kept whole."""
    kind = type(value).__name__
    if isinstance(value, int):
        text = str(value) if value.bit_length() < 256 else f"int of {value.bit_length()} bits"
        return Value((kind, value), cut(text))
    token = (kind, value) if len(value) <= 256 else (kind, len(value), hash(value))
    return Value(token, cut(repr(value[:_TEXT])))


def _container(value: Any, depth: int, strict: bool) -> Value:
    if type(value) is dict:
        named = [(value_of(k, 1), value_of(v, depth, strict=strict)) for k, v in value.items()]
        text = "{" + ", ".join(f"{k.text}: {v.text}" for k, v in named) + "}"
        parts = [(f"[{k.text}]", v) for k, v in named]
        return Value(("dict", [(k.token, v.token) for k, v in named]), cut(text), tuple(parts))
    items = [value_of(item, depth, strict=strict) for item in value]
    inside = ", ".join(item.text for item in items)
    text = f"[{inside}]" if type(value) is list else f"({inside}{',' * (len(items) == 1)})"
    parts = [(f"[{i}]", item) for i, item in enumerate(items)]
    return Value((type(value), [item.token for item in items]), cut(text), tuple(parts))


def _array_or_object(value: Any) -> Value:
    kind = type(value)
    module = kind.__module__.partition(".")[0]
    if module == "numpy" and hasattr(value, "dtype") and value.dtype.kind in "biufc":
        text = f"{value.dtype}{list(value.shape)}"
        if value.nbytes <= _SMALL:
            text = cut(" ".join(str(value).split())) if value.size <= 4 else text
            return Value(("numpy", str(value.dtype), value.shape, value.tobytes()), text)
        return Value(Same(value), text)
    if module in ("jax", "jaxlib") and (aval := getattr(value, "aval", None)) is not None:
        traced = "a tracer of " if kind.__name__.endswith("Tracer") else ""
        return Value(Same(value), traced + jaxprobe.short(aval))
    return Value(Same(value), f"{kind.__name__} object")


def captures_of(fun: FunctionType, depth: int = 4) -> Iterator[tuple[str, Value]]:
    """What a function closes over, and its defaults, by name."""
    # In a script at module level, what a lambda in a loop captures are globals.
    if depth == 4:
        for name in _globals_of(fun.__code__):
            content = fun.__globals__.get(name)
            if name in fun.__globals__ and not isinstance(content, types.ModuleType):
                yield name, value_of(content, 1)
    code = fun.__code__
    for name, cell in zip(code.co_freevars, fun.__closure__ or (), strict=False):
        try:
            content = cell.cell_contents
        except ValueError:  # not bound yet
            continue
        if content is not fun:  # a function that calls itself
            yield name, value_of(content, depth)
    defaults = fun.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount][code.co_argcount - len(defaults) :]
    for name, content in [*zip(names, defaults, strict=False), *(fun.__kwdefaults__ or {}).items()]:
        yield name, value_of(content, depth)


@functools.lru_cache(maxsize=512)
def _globals_of(code: CodeType) -> tuple[str, ...]:
    """The names of globals that a function's code, or code nested in it, reads."""
    names = {i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names.update(_globals_of(constant))
    return tuple(sorted(names))


def changes(new: Sequence[tuple[str, Value]], old: Sequence[tuple[str, Value]]) -> list[str]:
    """``k: 1 → 2`` for each name whose value differs; inside captured functions too."""
    before, found = dict(old), []
    for name, value in new:
        was = before.pop(name, None)
        if was is not None and was.token == value.token:
            continue
        # Short tuples are shown whole; what does not fit, or is a function, by what differs in it.
        deeper: list[str] = []
        if was is not None and ("…" in value.text + was.text or not value.text.startswith("(")):
            deeper = changes(value.parts, was.parts) if value.parts else []
        if deeper:
            found += [f"{name}{'' if c.startswith('[') else '.'}{c}" for c in deeper]
        else:
            found.append(f"{name}: {from_to('nothing' if was is None else was.text, value.text)}")
    return found + [f"{name}: {from_to(was.text, 'nothing')}" for name, was in before.items()]


def from_to(old: str, new: str) -> str:
    return f"{old} → another {new}" if old == new else f"{old} → {new}"


def cut(text: str) -> str:
    return text if len(text) <= _TEXT else text[: _TEXT - 1] + "…"


def title(qualname: str) -> str:
    return qualname.replace(".<locals>", "")

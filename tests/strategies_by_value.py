"""Generators for by="value": a branch function, what it captures, and what changes between calls.

A program is plain data, so that hypothesis can shrink it; :func:`build` makes it run.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import attrs
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

__all__ = ["Change", "Live", "Program", "build", "programs"]

#: Where a value sits that the branch reads.
PLACES = [
    "closure", "global", "default", "keyword", "attribute", "partial", "partial_keyword",
    "object", "class", "module", "list", "dict", "tuple", "numpy", "helper_global",
    "helper_closure", "property", "function_in_list", "nested_partial",
]  # fmt: skip

#: The kinds of a value: two that are equal by == but not by type, and an array.
VALUES = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, 2.0, 0, 1, 2, True, False]),
    st.sampled_from(["f32:1", "f32:2", "i32:1", "np:2"]),
)


def value_of(name: Any) -> Any:
    """The value that a name stands for, made anew."""
    if not isinstance(name, str):
        return name
    kind, _, number = name.partition(":")
    if kind == "np":
        return np.float32(number)
    return jnp.asarray(float(number), jnp.float32 if kind == "f32" else jnp.int32)


@attrs.frozen
class Change:
    """Puts ``value`` where the part of that number reads it; makes the function anew or not."""

    part: int
    value: Any
    anew: bool


@attrs.frozen
class Program:
    """A branch that reads a value in each of some places, how it combines them, and changes."""

    places: tuple[str, ...]
    values: tuple[Any, ...]
    combine: str
    changes: tuple[Change, ...]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    places = draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=3))
    values = draw(st.lists(VALUES, min_size=len(places), max_size=len(places)))
    change = st.builds(
        Change, part=st.integers(0, len(places) - 1), value=VALUES, anew=st.booleans()
    )
    changes = draw(st.lists(change, min_size=1, max_size=3))
    combine = draw(st.sampled_from(["add", "multiply", "sign"]))
    return Program(tuple(places), tuple(values), combine, tuple(changes))


class Live:
    """One place at run time: ``read`` is what the branch calls, ``put`` changes what it sees."""

    def __init__(self, place: str, value: Any) -> None:
        self.place = place
        self.value = value
        self.make()

    def make(self) -> None:
        """Makes the part of the branch anew, over the present value."""
        self.read, self.put = _PLACES[self.place](self.value)


Part = tuple[Callable[[], Any], Callable[[Any], None]]
_PLACES: dict[str, Callable[[Any], Part]] = {}


def place(make: Callable[[Any], Part]) -> Callable[[Any], Part]:
    _PLACES[make.__name__.removesuffix("_")] = make
    return make


@place
def closure(value: Any) -> Part:
    def read() -> Any:
        return value

    def put(new: Any) -> None:
        nonlocal value
        value = new

    return read, put


def _in_namespace(text: str, value: Any) -> Part:
    space: dict[str, Any] = {"VALUE": value}
    exec(text, space)
    return space["read"], functools.partial(space.__setitem__, "VALUE")


@place
def global_(value: Any) -> Part:
    return _in_namespace("def read(): return VALUE", value)


@place
def helper_global(value: Any) -> Part:
    return _in_namespace(
        "def inner(): return [VALUE for _ in 'a'][0]\ndef read(): return inner()", value
    )


@place
def helper_closure(value: Any) -> Part:
    inner, put = closure(value)
    return lambda: inner(), put


@place
def default(value: Any) -> Part:
    def read(value: Any = value) -> Any:
        return value

    return read, lambda new: setattr(read, "__defaults__", (new,))


@place
def keyword(value: Any) -> Part:
    def read(*, value: Any = value) -> Any:
        return value

    return read, lambda new: setattr(read, "__kwdefaults__", {"value": new})


@place
def attribute(value: Any) -> Part:
    def read() -> Any:
        return read.value  # type: ignore[attr-defined]

    setattr(read, "value", value)  # noqa: B010
    return read, functools.partial(setattr, read, "value")


@place
def partial(value: Any) -> Part:
    held = [value]
    return functools.partial(lambda held: held[0], held), functools.partial(held.__setitem__, 0)


@place
def partial_keyword(value: Any) -> Part:
    read = functools.partial(lambda value: value, value=value)
    return read, functools.partial(read.keywords.__setitem__, "value")


@place
def nested_partial(value: Any) -> Part:
    inner, put = keyword(value)
    outer = functools.partial(lambda function: function(), functools.partial(inner))
    return outer, put


class Holder:
    def __init__(self, value: Any) -> None:
        self.value = value

    def read(self) -> Any:
        return self.value


@place
def object_(value: Any) -> Part:
    holder = Holder(value)
    return holder.read, functools.partial(setattr, holder, "value")


@place
def class_(value: Any) -> Part:
    class Local:
        held = value

        def read(self) -> Any:
            return self.held

    return Local().read, functools.partial(setattr, Local, "held")


@place
def property_(value: Any) -> Part:
    inner, put = closure(value)

    class Local:
        @property
        def held(self) -> Any:
            return inner()

    local = Local()
    return lambda: local.held, put


@place
def module(value: Any) -> Part:
    config = types.ModuleType("config")
    setattr(config, "value", value)  # noqa: B010
    return lambda: config.value, functools.partial(setattr, config, "value")


@place
def list_(value: Any) -> Part:
    held = [[value]]
    return lambda: held[0][0], functools.partial(held[0].__setitem__, 0)


@place
def dict_(value: Any) -> Part:
    held = {"a": value}
    return lambda: held["a"], functools.partial(held.__setitem__, "a")


@place
def tuple_(value: Any) -> Part:
    held = (value, (value,))

    def put(new: Any) -> None:
        nonlocal held
        held = (new, (new,))

    return lambda: held[1][0], put


@place
def numpy(value: Any) -> Part:
    held = np.array([float(value)])
    return lambda: held[0], lambda new: held.__setitem__(0, float(new))


@place
def function_in_list(value: Any) -> Part:
    table = [lambda: value]
    return lambda: table[0](), lambda new: table.__setitem__(0, lambda: new)


def build(program: Program) -> tuple[Callable[[], Callable[[Any], Any]], Callable[[Change], None]]:
    """The branch of a program, and what makes a change.

    Returns:
        A function that returns the branch to call next, and one that applies a change.
    """
    parts = [Live(p, value_of(v)) for p, v in zip(program.places, program.values, strict=True)]

    def make() -> Callable[[Any], Any]:
        reads = [part.read for part in parts]
        if program.combine == "add":
            return lambda x: jnp.float32(x + sum(read() for read in reads))

        def multiply(x: Any) -> Any:
            for read in reads:
                x = x * read()
            return jnp.float32(x)

        def sign(x: Any) -> Any:
            for read in reads:
                x = jnp.copysign(x, read()) + jnp.asarray(read()).dtype.itemsize
            return jnp.float32(x)

        return multiply if program.combine == "multiply" else sign

    branch = make()

    def current() -> Callable[[Any], Any]:
        return branch

    def apply(change: Change) -> None:
        nonlocal branch
        part = parts[change.part]
        part.value = value_of(change.value)
        if change.anew:
            part.make()
            branch = make()
        else:
            part.put(part.value)

    return current, apply

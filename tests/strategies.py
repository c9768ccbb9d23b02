"""Generators for property tests, and the oracles they are held against."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import Any

import attrs
import hypothesis.strategies as st
import numpy as np

__all__ = ["FUNCTIONS", "Owner", "Spec", "calls", "scalars", "strict", "values"]


class Owner:
    """A callable whose equality would make all of its kind one."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return (id(self), args, kwargs)

    def one(self, *args: Any, **kwargs: Any) -> Any:
        return (id(self), "one", args, kwargs)

    def two(self, *args: Any, **kwargs: Any) -> Any:
        return (id(self), "two", args, kwargs)


@attrs.frozen
class Spec:
    x: Any
    y: Any = 0


def _first(*args: Any, **kwargs: Any) -> Any:
    return ("first", args, kwargs)


def _second(*args: Any, **kwargs: Any) -> Any:
    return ("second", args, kwargs)


OWNERS = [Owner(), Owner()]

#: How a user spells a callable; each call of one of these spells it anew.
FUNCTIONS: list[Callable[[], Any]] = [
    lambda: _first,
    lambda: _second,
    *(lambda owner=owner: owner for owner in OWNERS),
    *(lambda owner=owner: owner.one for owner in OWNERS),
    *(lambda owner=owner: owner.two for owner in OWNERS),
    lambda: abs,
    lambda: np.sin,
]

scalars = st.one_of(
    st.sampled_from([0, 1, -1]),
    st.booleans(),
    st.sampled_from([0.0, -0.0, 1.0, float("nan"), float("inf")]),
    st.sampled_from([0j, complex(0.0, -0.0), 1 + 0j]),
    st.sampled_from([np.int64(1), np.int32(1), np.float32(1), np.float64(-0.0), np.bool_(True)]),
    st.none(),
    st.sampled_from(["", "1", b"1"]),
)


_plain = scalars.filter(lambda x: bool(x == x))


def _partials(inner: Any) -> Any:
    @st.composite
    def build(draw: Any) -> Any:
        function = draw(st.sampled_from(FUNCTIONS))()
        args = draw(st.lists(inner, max_size=2))
        names = draw(st.lists(st.sampled_from(["a", "b", "c"]), unique=True))
        return functools.partial(function, *args, **{name: draw(inner) for name in names})

    return build()


values: Any = st.recursive(
    st.one_of(scalars, st.sampled_from(FUNCTIONS).map(lambda f: f())),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.frozensets(scalars, max_size=3),
        # Not over partials or nan: a class's own equality decides, and takes those as different.
        st.builds(Spec, _plain, st.lists(_plain, max_size=2).map(tuple)),
        _partials(inner),
    ),
    max_leaves=6,
)


def strict(value: Any) -> Any:
    """The oracle for law I3: two values are the same where this gives equal results.

    Slow and plain: types, bits and ids written out recursively, with nothing left to equality.
    """
    kind = type(value)
    if kind in (int, bool, str, bytes, type(None)):
        return (kind.__name__, repr(value))
    if kind is float:
        return ("float", struct.pack("d", value))
    if kind is complex:
        return ("complex", struct.pack("dd", value.real, value.imag))
    if isinstance(value, np.generic):
        return (kind.__name__, value.tobytes())
    if kind is tuple:
        return ("tuple", *(strict(x) for x in value))
    if kind is frozenset:
        return ("frozenset", frozenset(strict(x) for x in value))
    if kind is Spec:
        return ("Spec", strict(value.x), strict(value.y))
    if kind is functools.partial:
        keywords = sorted((name, strict(x)) for name, x in value.keywords.items())
        return ("partial", strict(value.func), *(strict(x) for x in value.args), repr(keywords))
    if hasattr(value, "__self__") and hasattr(value, "__func__"):
        return ("method", id(value.__self__), id(value.__func__))
    return ("callable", id(value))


@st.composite
def calls(draw: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments for ``(f, a=1, *, b=2, c=3)``, spelled in every way, wrong ones included."""
    given = {name: draw(values) for name in ("f", "a", "b", "c") if draw(st.booleans())}
    positional = draw(st.integers(0, 3))
    names = [name for name in ("f", "a", "b") if name in given][:positional]
    args = tuple(given.pop(name) for name in names)
    order = draw(st.permutations(list(given)))
    return args, {name: given[name] for name in order}

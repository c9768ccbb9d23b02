"""What fnintern says of a call it cannot intern, in words that a program can read too (I5, S2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, overload

import attrs

from fnintern.keys.tokens import Unkeyable

__all__ = ["CacheInfo", "Cached", "Capture", "Explanation", "Obstacle", "reason_for"]

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R", covariant=True)
S = TypeVar("S")


def _a(type_name: str) -> str:
    return f"{'an' if type_name[:1] in 'AEIOUaeiou' else 'a'} {type_name}"


@attrs.frozen
class Obstacle:
    """One thing that stands in the way of interning.

    Attributes:
        path: where it sits, as Python would spell it (``f.args[0]``, ``f→w``).
        type_name: the type of what sits there. The value itself is not kept.
        reason: why it cannot be part of a key.
        remedy: what usually helps, or an empty string.
    """

    path: str
    type_name: str
    reason: str
    remedy: str = ""

    @classmethod
    def of(cls, error: BaseException, path: str = "f", type_name: str = "function") -> Obstacle:
        """What has been refused, or what code of an argument's own has raised."""
        if isinstance(error, Unkeyable):
            return cls(error.path, error.type_name, error.reason, error.remedy)
        line = (str(error).splitlines() or [""])[0]
        return cls(path, type_name, f"reading it failed ({type(error).__name__}: {line})")

    def __str__(self) -> str:
        text = f"{self.path} is {_a(self.type_name)}: {self.reason}"
        return f"{text}; {self.remedy}" if self.remedy else text


def reason_for(error: BaseException) -> Obstacle:
    """What an error says that came up in the place of an answer."""
    if isinstance(error, Unkeyable):
        return Obstacle.of(error)
    lines = str(error).splitlines() or [""]
    return Obstacle("f", "function", f"it failed ({type(error).__name__}: {lines[0]})")


@attrs.frozen
class Capture:
    """One thing that a function sees.

    Attributes:
        path: its name in the function's code.
        type_name: its type.
        role: ``"key"``, ``"operand"`` (it holds arrays) or ``"refused"``.
    """

    path: str
    type_name: str
    role: str

    def __str__(self) -> str:
        roles = {"key": "part of the key", "operand": "holds arrays", "refused": "refused"}
        return f"{self.path} is {_a(self.type_name)}: {roles[self.role]}"


@attrs.frozen
class Explanation:
    """How a call or a callable is keyed, and what stands in the way.

    Attributes:
        subject: what was asked about.
        interned: whether equal calls share a wrapper.
        keyed_by: how, in one phrase. Where ``by="value"`` refuses, how ``by="object"`` would.
        obstacles: what stands in the way; empty where nothing does.
        captures: what the callable sees at first sight.
        converted: whether staged operations, and the control flow that ``patch_flax()`` patches,
            carry it across; as far as can be told before a trace.
        unconverted: why they run it as it is, where a trace has shown that.
        unread: attributes of the objects that the callable sees which no code reached reads, each
            by its path; a change of one is no change of the callable.
        note: what else there is to know, or an empty string.
    """

    subject: str
    interned: bool
    keyed_by: str = ""
    obstacles: tuple[Obstacle, ...] = ()
    captures: tuple[Capture, ...] = ()
    converted: bool = False
    unconverted: Obstacle | None = None
    unread: tuple[str, ...] = ()
    note: str = ""

    def __str__(self) -> str:
        if self.interned:
            lines = [f"{self.subject}: interned, keyed by {self.keyed_by}"]
            lines += [f"  {capture}" for capture in self.captures]
            if self.unread:
                lines.append(f"  not read, so no part of the key: {', '.join(self.unread)}")
        else:
            lines = [f"{self.subject}: not interned, built afresh on each call"]
            lines += [f"  {obstacle}" for obstacle in self.obstacles]
            if self.converted:
                lines.append("  staged operations convert it all the same: its state is an operand")
        if self.unconverted is not None:
            lines.append(f"  staged operations run it as it is: {self.unconverted}")
        if self.note:
            lines.append(f"  {self.note}")
        return "\n".join(lines)


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


class Cached(Protocol[P, R]):
    """A callable whose results or programs fnintern keeps; what its decorators return.

    It is called as what it was made of. For type checkers alone: nothing is an instance of it.
    """

    __name__: str
    __qualname__: str
    __wrapped__: Callable[..., Any]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    def __get__(self, instance: None, owner: Any = None, /) -> Self: ...
    @overload
    def __get__(
        self: Cached[Concatenate[Any, Q], S], instance: object, owner: Any = None, /
    ) -> Cached[Q, S]: ...

    def cache_info(self) -> CacheInfo:
        """The counts; see :class:`CacheInfo`."""
        ...

    def cache_clear(self) -> None:
        """Forgets all wrappers or programs, and sets the counts to 0."""
        ...

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """How this call would be keyed, without making it."""
        ...

"""Which capture differs between two calls: what :mod:`fnintern.captures` reads, by its path.

Nothing of what was read is kept: a part is remembered by a hash (S3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import attrs

from fnintern.captures.freezing import freeze
from fnintern.captures.kinds import Kinds
from fnintern.captures.walk import References
from fnintern.keys.tokens import Unkeyable

__all__ = ["Part", "changed", "parts_of"]


#: Of a path, the end is shown.
_MAX_PATH: Final = 80


@attrs.frozen
class Part:
    """What was read in one place.

    Attributes:
        digest: a hash of it.
        type_name: of what was there.
        is_callable: whether that can be called.
        start: where it begins in all that was read.
        end: where it ends.
    """

    digest: int
    type_name: str
    is_callable: bool
    start: int
    end: int

    def holds(self, other: Part) -> bool:
        """Whether another part is inside of this one."""
        return other is not self and self.start <= other.start and other.end <= self.end


class _Parts(Kinds):
    """A walk that notes which tokens come from where."""

    def __init__(self) -> None:
        super().__init__()
        #: Path, value, and where its tokens begin and end.
        self.spans: list[tuple[str, Any, int, int]] = []

    def add(self, value: Any, path: str) -> None:
        start = len(self.tokens)
        super().add(value, path)
        self.spans.append((path, value, start, len(self.tokens)))


def parts_of(functions: Sequence[Any]) -> dict[str, Part]:
    """What functions see, by the path."""
    walk = _Parts()
    names = ["f"] if len(functions) == 1 else [f"f{i + 1}" for i in range(len(functions))]
    try:
        freeze(*functions, names=tuple(names), references=References.READ, walk=walk)
    except Unkeyable:
        pass  # what was read until then
    return {
        path: Part(
            hash(tuple(walk.tokens[start:end])),
            type(value).__qualname__,
            callable(value),
            start,
            end,
        )
        for path, value, start, end in walk.spans
    }


def changed(before: dict[str, Part], after: dict[str, Part]) -> list[str]:
    """The parts that differ, each as its path and type, without what only holds one of them."""
    differ = {
        path: part
        for path, part in after.items()
        if path in before and before[path].digest != part.digest
    }
    inner = {
        path: part
        for path, part in differ.items()
        if not any(part.holds(other) for other in differ.values())
    }
    # A function that was made again differs for what it sees.
    values = {path: part for path, part in inner.items() if not part.is_callable}
    return [f"{_short(path)} ({part.type_name})" for path, part in (values or inner).items()]


def _short(path: str) -> str:
    return path if len(path) <= _MAX_PATH else f"…{path[-_MAX_PATH:]}"

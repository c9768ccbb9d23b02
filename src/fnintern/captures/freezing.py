"""What a function can see, split into a strict key and leaves, or refused (laws S1, S2).

:func:`freeze` walks everything a fresh trace of a function could read: its code, closure cells,
defaults, attributes, ``__self__``, partial arguments, the globals that its code loads, attributes
read off modules and classes, and the same again for each Python function of the user's reached
that way. The key holds plain tokens and ids; the objects behind the ids are *targets*, which who
stores the key refers to weakly and compares with ``is``. So a stored key keeps nothing alive.

The key is computed anew at every call and cannot go stale; only what depends on a code object
alone is remembered, in :mod:`fnintern.captures.code`. Code of installed libraries is not
followed: a library function is what it is, closed over what it is closed over.
Never imports jax or flax; it recognises their types where the user's program has imported them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fnintern.captures.classes import visit_read_sets
from fnintern.captures.kinds import Kinds
from fnintern.captures.reading import ReadObject, reading_of
from fnintern.captures.values import is_array
from fnintern.captures.walk import OPERAND, References, Walk
from fnintern.keys.tokens import Key, Marker, Refused

__all__ = ["Frozen", "freeze"]


class Frozen:
    """What :func:`freeze` found.

    Attributes:
        key: tokens, hashable and strict; equal for functions that a trace cannot tell apart.
        targets: the objects whose ids are in the key, in the order of the key.
        leaves: the arrays and tracers, in the order in which they are met.
        owner: the first plain function of the user's that was met, or None.
        holders: the functions, containers and objects met.
        buffers: the NumPy arrays met, each with what stands for its contents in the key.
        asks_placement: whether code may ask an array where it is.
        calls_host: whether code may have JAX call back to Python: what a callback captures stays
            in the program.
        objects: those of which some attributes are read, with what is.
    """

    __slots__ = (
        "asks_placement", "buffers", "calls_host", "holders", "key", "leaves", "objects", "owner",
        "targets",
    )  # fmt: skip

    def __init__(
        self,
        key: Key,
        targets: list[Any],
        leaves: list[Any],
        owner: Any,
        holders: Sequence[Any] = (),
        buffers: Sequence[tuple[Any, Any]] = (),
        asks_placement: bool = False,
        objects: Sequence[ReadObject] = (),
        calls_host: bool = False,
    ) -> None:
        self.calls_host = calls_host
        self.asks_placement = asks_placement
        self.objects = objects
        self.buffers = buffers
        self.holders = holders
        self.key = key
        self.targets = targets
        self.leaves = leaves
        self.owner = owner

    def keyed_by(self) -> str:
        """How equal functions are found, in one phrase."""
        count = len(self.leaves)
        if not count:
            return "the value of all its captures"
        return (
            f"the function object, while its {count} captured array{'s are' * (count > 1)}"
            f"{' is' * (count == 1)} bound to the same object{'s' * (count > 1)}"
        )

    def check_shareable(self) -> None:
        """Raises :class:`Refused` where what a trace makes of one of these functions would not do
        for another of the same key."""
        if self.calls_host:
            reason = "it calls back to Python, and a callback keeps what it captures"
            raise Refused("f", self.owner, reason, OPERAND)
        for array, _ in self.buffers:
            # JAX finds what it has made of an array of NumPy again by the array, for as long as any
            # jaxpr has it. So what is kept would hide an edit of the array.
            if array.flags.writeable:
                reason = "a NumPy array that can be written to: an edit of it would be hidden"
                raise Refused("f", array, reason, "call array.setflags(write=False)")


def freeze(
    *values: Any,
    names: tuple[str, ...] = ("f",),
    references: References = References.REFUSED,
    walk: Walk | None = None,
) -> Frozen:
    """Splits all that functions can see into a key and leaves.

    Args:
        *values: functions, and whatever else is to be part of the key.
        names: what to call the values in the path of a refused capture.
        references: what becomes of modules and variables of ``flax.nnx``, which may change at
            any time.
        walk: what to read them by, for who wants to see more of it.

    Returns:
        The key, its targets and the leaves.

    Raises:
        Refused: a capture is neither constant nor array; it names the capture by its path.

    Example:
        >>> def make(scale):
        ...     return lambda x: scale * x
        >>> freeze(make(2)).key == freeze(make(2)).key
        True
        >>> freeze(make(2)).key == freeze(make(2.0)).key
        False
    """
    if walk is None:
        walk = Kinds()
    walk.references = references
    try:
        for value, name in zip(values, names, strict=True):
            # What is no function goes to code that is not known here, such as a factory's.
            walk.whole = references is References.REFUSED and not callable(value)
            walk.add(value, name)
        walk.whole = False
        if walk.facts or walk.classes or walk.objects:
            visit_read_sets(walk)
        if walk.written and references is References.READ:
            _add_written(walk)
    except RecursionError:
        raise Refused(names[0], values[0], "its captures nest too deeply") from None
    reading = reading_of(tuple(walk.facts))
    return Frozen(
        tuple(walk.tokens),
        walk.targets,
        walk.leaves,
        walk.owner,
        walk.holders,
        walk.buffers,
        reading.asks_placement,
        walk.objects,
        reading.calls_host,
    )


def _add_written(walk: Walk) -> None:
    """What is found where code only writes. A trace that puts another value there may hand it to
    the caller, as a counter or a log does not; an array or a tracer it can only lose there."""
    for value in walk.written:
        if is_array(value):
            walk.tokens.append(Marker.LEAF)
            continue
        try:
            found = freeze(value, names=("written",), references=References.READ)
        except Refused:
            walk.tokens.append(Marker.EMPTY)
        else:
            walk.tokens += found.key
            walk.targets += found.targets

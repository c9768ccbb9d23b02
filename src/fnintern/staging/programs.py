"""A program: one jitted function for all calls of one key, and what is kept beside it.

Imports jax.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs
import jax

from fnintern.keys.reasons import Obstacle

__all__ = [
    "MAXSIZE",
    "MAX_UNUSED",
    "History",
    "Program",
    "Variant",
    "jax_jit",
    "once_for_shapes",
    "under_way",
]

#: That of jax, also while a patch has replaced it.
jax_jit: Final = getattr(jax.jit, "__fnintern_wraps__", jax.jit)

#: Programs kept for each piece of code (L3).
MAXSIZE: Final = 128

#: Programs that one piece of code may have made in a row without a use of any. From then on a
#: call is converted when it comes for the second time.
MAX_UNUSED: Final = 8


class History:
    """Whether the programs of a piece of code are used again. One that reads what is different at
    each call would pay for a program each time, and use none."""

    __slots__ = ("_arrays", "_seen", "unused")

    def __init__(self) -> None:
        #: Programs made since one was used.
        self.unused = 0
        #: Hashes of the keys that came since, oldest first.
        self._seen: dict[int, None] = {}
        #: Arrays whose values were to be read since, under their ids.
        self._arrays: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def is_new(self, number: int, pinned: Sequence[Any]) -> bool:
        """Whether a call is better not converted: it may be one more that never comes again.

        Args:
            number: the hash of its key.
            pinned: captured arrays whose values are read.
        """
        self.unused += 1
        if self.unused <= MAX_UNUSED:
            return False
        known = number in self._seen and all(self._arrays.get(id(a)) is a for a in pinned)
        self._seen[number] = None
        self._arrays.update((id(array), array) for array in pinned)
        while len(self._seen) > MAXSIZE:
            self._seen.pop(next(iter(self._seen)), None)
        return not known


under_way = threading.local()


@attrs.frozen
class Variant:
    """How the result of a program is put together, for arrays of one set of shapes and dtypes.

    Attributes:
        places: for each leaf of the result the array or operand that it is, as a pair of what the
            call has and a position there; or None for one that the program computes.
        tree: the structure of the result, or how it is made.
        shapes: the leaves of the result, where it is no arrays.
        assigned: what the trace has assigned, see :mod:`fnintern.staging.assignments`.
    """

    places: tuple[tuple[str, int] | None, ...] | None
    tree: Any
    shapes: tuple[Any, ...] | None = None
    assigned: tuple[Any, ...] = ()


class Program:
    """One jitted function for all calls of one key.

    JAX has the call that is under way trace for each new set of shapes and dtypes. The program
    holds no function and no array of that call.
    """

    __slots__ = ("failed", "jitted", "obstacle", "pinned", "variants")

    def __init__(
        self,
        name: str,
        wrap: Callable[..., Any],
        options: Mapping[str, Any],
        donated: Sequence[int],
    ) -> None:
        """
        Args:
            name: of the operation, for profiles.
            wrap: makes a function of arrays one that JAX traces once for each set of shapes and
                dtypes, such as ``jax.jit``.
            options: for ``wrap``.
            donated: the positions of operands that are given away.
        """
        #: Why the program must not be used again, if it must not.
        self.obstacle: Obstacle | None = None
        #: Whether its last trace raised an error, as the next one probably will.
        self.failed = False
        #: The positions of arrays whose values the trace has read, with weak references to them:
        #: the program is right for those alone.
        self.pinned: dict[int, weakref.ref[Any]] = {}
        self.variants: dict[int, Variant] = {}

        def run(arrays: list[Any], *operands: Any) -> Any:
            return under_way.call.trace(arrays, operands)

        run.__name__ = run.__qualname__ = name
        if donated:
            options = {**options, "donate_argnums": tuple(1 + i for i in donated)}
        self.jitted: Any = wrap(run, **options)

    def is_for(self, arrays: Sequence[Any]) -> bool:
        """Whether the arrays whose values the trace has read are still the same objects."""
        return all(arrays[place] is ref() for place, ref in self.pinned.items())

    def is_alive(self) -> bool:
        """Whether the arrays whose values the trace has read are still there."""
        return all(ref() is not None for ref in self.pinned.values())


def once_for_shapes(run: Callable[..., Any]) -> Callable[..., Any]:
    """Calls a function once for each set of shapes and dtypes, as a jitted one is traced."""
    known: dict[Any, Any] = {}

    def find(arrays: list[Any], *operands: Any) -> Any:
        key = (bool(jax.config.jax_enable_x64), *map(jax.typeof, (*arrays, *operands)))
        found = known.get(key)
        if found is None:
            found = known[key] = run(arrays, *operands)
        return found

    return find

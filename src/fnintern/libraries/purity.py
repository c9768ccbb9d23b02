"""Functions of libraries that depend on more than their arguments (S2)."""

from __future__ import annotations

from typing import Final

__all__ = ["IMPURE_MODULES"]

#: Modules whose functions return something else at each call.
IMPURE_MODULES: Final = frozenset({"random", "numpy.random", "time", "timeit", "secrets", "uuid"})

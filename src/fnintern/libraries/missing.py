"""What to say where a library that is needed is not installed."""

from __future__ import annotations

from typing import Final

__all__ = ["install", "missing"]

#: Library -> what to give to pip. fnintern itself may have been installed from a clone, so that
#: its extras have no name that an index knows.
_REQUIREMENTS: Final = {"jax": "'jax>=0.10'", "flax": "'flax>=0.12.6' 'jax>=0.10'"}


def install(library: str) -> str:
    """The command that installs a library in a release that fnintern supports."""
    return f"python -m pip install {_REQUIREMENTS.get(library, library)}"


def missing(what: str, error: ImportError, library: str = "jax") -> ImportError:
    """The error for ``what``, which needs a library that could not be imported."""
    return ImportError(
        f"{what} needs {library}, which could not be imported ({error}). "
        f"Install it with: {install(library)}",
        name=error.name,
    )

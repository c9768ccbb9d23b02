"""Strict mode: an error of fnintern's own code is raised, and not counted as a bypass.

Code of the user's that a look-up runs into (a ``__hash__``, a property) may fail; the call is then
made as without fnintern. A fault of fnintern would look the same. With ``FNINTERN_STRICT=1`` in the
environment, as in fnintern's own tests, it does not.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from fnintern.keys.tokens import Unkeyable

__all__ = ["check"]

_ROOT: Final = str(Path(__file__).parent.parent) + os.sep


def check(error: Exception) -> None:
    """Raises an error again if the mode is strict and the code that raised it is fnintern's.

    Args:
        error: what a look-up has raised.

    Example:
        >>> from fnintern.keys.tokens import Unkeyable
        >>> check(Unkeyable("x", [], "it can change under the key"))  # an answer, no error
    """
    if os.environ.get("FNINTERN_STRICT", "") in ("", "0") or isinstance(
        error, Unkeyable | RecursionError | MemoryError
    ):
        return
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(_ROOT):
        raise error

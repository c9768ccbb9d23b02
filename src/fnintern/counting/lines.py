"""Which of the user's lines miss again and again, and the warning that says why.

Nothing is done here on a hit.
"""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, Final

from fnintern.counting.changes import Part, changed, parts_of
from fnintern.keys.reasons import Obstacle
from fnintern.libraries.ownership import is_library_module

__all__ = ["RetraceWarning", "functions_in", "missed", "user_line"]

#: Misses in a row at one line after which a warning says so.
MANY: Final = 12

#: Lines that are remembered.
_MAX_LINES: Final = 1024

_OURS: Final = "fnintern"


class RetraceWarning(UserWarning):
    """A line of the program has JAX trace again and again, and fnintern cannot help it.

    Once for each line. ``warnings.simplefilter("ignore", fnintern.RetraceWarning)`` turns it off,
    and ``"error"`` raises it.
    """


class _Line:
    __slots__ = ("count", "parts")

    def __init__(self) -> None:
        #: Misses in a row.
        self.count = 0
        #: What the functions of the call before the warning saw.
        self.parts: dict[str, Part] = {}


_lines: dict[tuple[str, int, str], _Line] = {}


def user_line() -> str:
    """``file:line`` of the innermost line under way that is the user's."""
    frame = _user_frame()
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _user_frame() -> types.FrameType:
    frame: types.FrameType | None = sys._getframe(1)
    last = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__") or ""
        module = sys.modules.get(name)
        if name.partition(".")[0] != _OURS and (module is None or not is_library_module(module)):
            return frame
        last, frame = frame, frame.f_back
    return last


def missed(
    operation: str,
    functions: Sequence[Any],
    reason: Obstacle | None,
    most: int | None = None,
) -> None:
    """Notes that a call had JAX trace, for the line that made it.

    Args:
        operation: its name.
        functions: those of the call.
        reason: why the call was made as without fnintern, if it was.
        most: how many calls in a row at most have found nothing, if that is known.

    Raises:
        RetraceWarning: the filters of warnings turn it into an error.
    """
    frame = _user_frame()
    key = (frame.f_code.co_filename, frame.f_lineno, operation)
    line = _lines.get(key)
    if line is None:
        if len(_lines) >= _MAX_LINES:
            oldest, *_ = _lines  # at once, whatever other threads add
            _lines.pop(oldest, None)
        line = _lines.setdefault(key, _Line())
    if line.count >= MANY:
        return
    line.count += 1
    if most is not None:
        line.count = min(line.count, most)
    if line.count < MANY - 1:
        return
    earlier, line.parts = line.parts, parts_of(functions)
    if line.count < MANY:
        return
    differ = changed(earlier, line.parts)
    line.parts = {}
    if differ:
        what = ", ".join(differ[:3]) + " and more" * (len(differ) > 3)
        why = f"another value of {what} at each call; pass what changes as an argument"
    elif reason is not None:
        why = str(reason)
    else:
        why = "its arguments differ in their structure, or in what is static; keep them alike"
    warnings.warn_explicit(
        f"{operation} has found nothing that was traced before in {MANY} calls at this line: {why}."
        " fnintern.explain(f) says what a function sees",
        RetraceWarning,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=frame.f_globals.get("__name__"),
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )


def functions_in(arguments: Iterable[Any]) -> list[Any]:
    """The functions among the arguments of a call, and in the sequences among them."""
    found: list[Any] = []
    for argument in arguments:
        parts = argument if type(argument) in (list, tuple) else (argument,)
        found += [part for part in parts if callable(part)]
    return found

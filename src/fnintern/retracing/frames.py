"""Whose line it is: the user's frame below the libraries', and one call of it told from the next.

Uses no jax. Nothing here keeps a frame: what must live exactly as long as a frame is put into its
``f_trace``, a slot that only a debugger reads (a debugger's own hook goes on being called).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, Final

import attrs

from fnintern.libraries.ownership import is_library_path

__all__ = ["Mark", "Place", "is_user_file", "locate", "mark_of", "user_root"]

_TREE_UTIL: Final = os.path.join("jax", "_src", "tree_util.py")
_executions = itertools.count(1)
_user_roots: list[str] = []
_is_user: dict[str, bool] = {}


def user_root(directory: str) -> None:
    """Take the files in a directory for the user's, wherever they are installed."""
    _user_roots.append(os.path.join(os.path.abspath(directory), ""))
    _is_user.clear()


def is_user_file(filename: str) -> bool:
    """Whether a file is the user's: neither of the standard library nor of a known library."""
    known = _is_user.get(filename)
    if known is None:
        known = _is_user[filename] = _decide(filename)
    return known


def _decide(filename: str) -> bool:
    if filename.startswith("<"):  # <stdin> and <string> are typed in; <frozen ...> is Python's
        return not filename.startswith(("<frozen", "<attrs generated", "<__array_function__"))
    path = os.path.abspath(filename)
    if any(path.startswith(root) for root in _user_roots):
        return True
    return not is_library_path(path)


class Mark:
    """Sits in a frame's ``f_trace``, and so lives as long as the frame runs."""

    __slots__ = ("ended", "inner", "value")

    def __init__(self, value: Any, ended: Callable[[], None] | None, inner: Any) -> None:
        self.value = value
        self.ended = ended
        self.inner = inner

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        """Only a debugger's tracing calls this: pass it on."""
        if self.inner is not None:
            self.inner = self.inner(frame, event, arg)
        return self

    def __del__(self) -> None:
        if self.ended is not None:
            self.ended()


def mark(frame: FrameType, value: Any, ended: Callable[[], None] | None = None) -> None:
    """Note `value` on a running frame; `ended` is called when the frame is done."""
    frame.f_trace = Mark(value, ended, frame.f_trace)


def mark_of(frame: FrameType) -> Any:
    """What :func:`mark` noted on this frame, or None."""
    found = frame.f_trace
    return found.value if type(found) is Mark else None


@attrs.frozen
class Place:
    """Where in the user's program something happened."""

    file: str
    line: int
    spot: tuple[int, int]  # the user's code and the instruction in it
    path: tuple[int, ...]  # the same for every frame from there to jax
    execution: int  # a number for this one run of that instruction; 0 inside a trace
    enclosing: Any  # what the enclosing trace's frame was marked with, if there is one


def locate(frame: FrameType | None, trace_code: CodeType | None) -> Place:
    """The user's innermost line above `frame`, seen through the frames of libraries.

    Where no frame is the user's, the outermost frame stands for it.
    """
    path: list[int] = []
    spot: FrameType | None = None
    below = callee = last = frame
    enclosing = None
    in_tree_map = False
    while frame is not None:
        code = frame.f_code
        if code is trace_code and enclosing is None:
            enclosing = mark_of(frame)
        if spot is None:
            if _is_users(frame):
                spot, callee, in_tree_map = frame, below, True
            path += (id(code), frame.f_lasti)
        elif in_tree_map:
            # One jax.tree.map over the user's lambda is one run of the line, not one per leaf.
            in_tree_map = code.co_filename.endswith(_TREE_UTIL)
            if in_tree_map:
                callee = frame
        last, below, frame = frame, frame, frame.f_back
    spot = spot or last
    assert spot is not None
    return Place(
        file=spot.f_code.co_filename,
        line=spot.f_lineno or 0,
        spot=(id(spot.f_code), spot.f_lasti),
        path=tuple(path),
        execution=0 if enclosing is not None else _execution(callee or spot),
        enclosing=enclosing,
    )


def _is_users(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    # What a module has generated, as a dataclass its __init__, is no line that anyone wrote.
    if name.startswith("<") and "__file__" in frame.f_globals:
        return False
    return is_user_file(name)


def _execution(frame: FrameType) -> int:
    found = mark_of(frame)
    if type(found) is not int:
        found = next(_executions)
        mark(frame, found)
    return found

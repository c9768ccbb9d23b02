"""Which captured arrays a trace reads the value of (S4).

JAX records what is computed with an array, and not that Python or NumPy looked into it:
``float(w)``, ``np.asarray(w)``, ``f"{w}"``. A program in which such a value has decided something
is right for that array alone. :func:`watching` notes these reads, at the two ways to an array's
contents: the private property ``_value``, and the buffer protocol, by which NumPy reads.

What a trace computes at once (``jax.ensure_compile_time_eval()``) reads its operands too, and the
results are constants of the program. They are noted where JAX runs a primitive, and where it runs a
jitted function that it has compiled before. Imports jax.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Final

import jax
import numpy

__all__ = ["Watch", "watching"]

#: Methods that hand out an array's contents by neither of the two ways.
_METHODS: Final = ("__dlpack__", "unsafe_buffer_pointer", "addressable_data")

_local = threading.local()


class Watch:
    """What a trace has done with values.

    Attributes:
        reads: the arrays whose values it has read, by their ids. It made none of them.
        made: the arrays that it has computed, by their ids.
    """

    __slots__ = ("made", "reads")

    def __init__(self) -> None:
        self.reads: dict[int, Any] = {}
        self.made: dict[int, Any] = {}

    def note(self, array: Any) -> None:
        if id(array) not in self.made:
            self.reads[id(array)] = array

    def note_computation(self, operands: Any, results: Any) -> None:
        for operand in jax.tree_util.tree_leaves(operands):
            if isinstance(operand, _Array):
                self.note(operand)
        made = [x for x in jax.tree_util.tree_leaves(results) if isinstance(x, _Array)]
        # A result that is an operand handed through is none.
        self.made.update((id(x), x) for x in made if id(x) not in self.reads)


def _note(array: Any) -> None:
    watch: Watch | None = getattr(_local, "watch", None)
    if watch is not None and id(array) not in watch.reads and not _is_for_a_message():
        watch.note(array)


#: Functions of jax that take the text of a function for their messages, and with it that of the
#: arrays in a partial. It decides nothing.
_DESCRIBING: Final = frozenset({"fun_sourceinfo"})


def _is_for_a_message() -> bool:
    frame = sys._getframe(2)
    for _ in range(20):
        if frame.f_code.co_name in _DESCRIBING:
            return True
        if frame.f_back is None:
            break
        frame = frame.f_back
    return False


@contextlib.contextmanager
def watching() -> Iterator[Watch | None]:
    """Notes the arrays whose contents this thread reads, and those that it computes, for the time
    of the block.

    Returns:
        What is noted; or None where this release of jax cannot be watched.

    Example:
        >>> import jax.numpy as jnp, numpy as np
        >>> w, v = jnp.float32(1.0), jnp.float32(2.0)
        >>> with watching() as watch:
        ...     _ = float(w), v.shape
        >>> id(w) in watch.reads, id(v) in watch.reads
        (True, False)
    """
    global _watchers
    if _is_unwatchable():
        yield None
        return
    with _lock:
        _watchers += 1
        if _watchers == 1:
            _install()
    outer: Watch | None = getattr(_local, "watch", None)
    watch = Watch()
    _local.watch = watch
    hook = _hook.swap_local(_note_jitted) if _hook is not None else None
    try:
        yield watch
    finally:
        _local.watch = outer
        if _hook is not None:
            _hook.set_local(hook)
        if outer is not None:
            outer.reads.update(watch.reads)
            outer.made.update(watch.made)
        with _lock:
            _watchers -= 1
            if _watchers == 0:
                _uninstall()


#: Traces under way in all threads; the class is as JAX has it while there is none.
_watchers = 0
_lock = threading.Lock()


def _renew_lock() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)

#: Found without an array: to make one would start the backends before the program has set them up.
_Array: Final[Any] = getattr(sys.modules.get("jax._src.array"), "ArrayImpl", jax.Array)
_MISSING: Final = object()
_originals: dict[str, Any] = {}


def _private(module: str, name: str) -> Any:
    """A private name of jax. Without it, what a trace computes at once is not known, and calls in
    which it does are not converted."""
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        return None


_eval_trace: Final = _private("jax._src.core", "EvalTrace")
#: What JAX calls after a jitted function that it has run without any Python, in this thread.
_hook: Final = _private("jax._src.api", "_post_hook_state")


def _note_computation(operands: Any, results: Any) -> None:
    watch: Watch | None = getattr(_local, "watch", None)
    if watch is not None:
        watch.note_computation(operands, results)


def _note_jitted(fun: Any, args: Any, kwargs: Any, results: Any) -> None:
    _note_computation((args, kwargs), results)


def _install() -> None:
    for name in ("_value", *_METHODS):
        found = vars(_Array).get(name, _MISSING)
        if found is not _MISSING:
            _originals[name] = found
            setattr(_Array, name, _noting(found))
    _buffers.install()
    if _eval_trace is not None:
        _originals["process_primitive"] = original = _eval_trace.process_primitive

        def process_primitive(
            self: Any, primitive: Any, args: Any, params: Any, /, **kwargs: Any
        ) -> Any:
            results = original(self, primitive, args, params, **kwargs)
            _note_computation(args, results)
            return results

        _eval_trace.process_primitive = process_primitive


def _uninstall() -> None:
    if _eval_trace is not None:
        _eval_trace.process_primitive = _originals.pop("process_primitive")
    _buffers.uninstall()
    for name, found in _originals.items():
        setattr(_Array, name, found)
    _originals.clear()


def _noting(member: Any) -> Any:
    if isinstance(member, property):
        read: Callable[[Any], Any] = member.fget  # type: ignore[assignment]

        def value(self: Any) -> Any:
            _note(self)
            return read(self)

        return property(value)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        _note(self)
        return member(self, *args, **kwargs)

    return method


class _BufferMethod:
    """The buffer protocol as a Python method (PEP 688)."""

    def install(self) -> None:
        original = vars(_Array)["__buffer__"]
        self._original = original

        def __buffer__(array: Any, flags: int) -> Any:
            _note(array)
            return original(array, flags)

        _Array.__buffer__ = __buffer__

    def uninstall(self) -> None:
        _Array.__buffer__ = self._original


class _BufferSlot:
    """The buffer protocol of Python 3.11, which no Python code can stand in for: the slot of the
    type is emptied meanwhile, so that NumPy takes ``__array__``, which reads ``_value``."""

    #: ``PyTypeObject.tp_as_buffer``: behind ``PyVarObject`` and 17 fields of a pointer's size.
    _OFFSET: Final = object.__basicsize__ + 18 * ctypes.sizeof(ctypes.c_void_p)

    def __init__(self) -> None:
        procs = ctypes.c_void_p.from_address(id(_Array) + self._OFFSET).value
        assert procs is not None
        self._slot = ctypes.c_void_p.from_address(procs)  # bf_getbuffer comes first
        self._original = self._slot.value

    def install(self) -> None:
        self._slot.value = None

    def uninstall(self) -> None:
        self._slot.value = self._original


_buffers: Final[_BufferMethod | _BufferSlot] = (
    _BufferMethod() if sys.version_info >= (3, 12) else _BufferSlot()
)


def _is_unwatchable() -> bool:
    """Whether a read goes unnoticed, by either way. Found out at the first call."""
    global _unwatchable
    if _unwatchable is None:
        _unwatchable = False  # while it is tried
        with jax.ensure_compile_time_eval():
            _unwatchable = not (_is_noticed(float) and _is_noticed(numpy.asarray))
        if _unwatchable:
            warnings.warn(
                f"fnintern cannot see in jax {jax.__version__} whether a trace reads the value of "
                f"a captured array, so calls of functions that capture arrays run as without "
                f"fnintern. Use a release of jax that is listed as supported",
                stacklevel=2,
            )
    return _unwatchable


def _is_noticed(read: Callable[[Any], Any]) -> bool:
    array = jax.device_put(numpy.float32(0))  # compiles nothing
    try:
        with watching() as watch:
            read(array)
    except Exception:
        return False
    return watch is not None and bool(watch.reads)


_unwatchable: bool | None = None

"""Every private detail of jax that the diagnostics read, in one place.

jax counts a tracing cache miss and a compilation in one place each, by a call of
``jax._src.util.test_event``; ``jax._src.test_util`` counts by the same calls. While a report is
being made, that function is replaced by one which also tells us (:func:`install`). The frame it
was called from holds what missed: the function, its abstract arguments, the debug information.

Each detail is looked up when it is used, and its absence costs a column: without ``test_event``
nothing is counted, without the frame's variables no cause is told, and the seconds remain, since
those come from the public ``jax.monitoring``. Importing this module imports no jax.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from types import FrameType, FunctionType, ModuleType
from typing import Any, Final

import attrs

__all__ = [
    "Key",
    "Miss",
    "context_names",
    "counts",
    "explain_miss",
    "install",
    "key_of",
    "live_keys",
    "primitive_name",
    "read_compile",
    "read_miss",
    "short",
    "tree_changes",
    "when_imported",
]

_REPORTER: Final = "test_event"
TRACE_EVENT: Final = "trace_to_jaxpr"
COMPILE_EVENT: Final = "pxla_cached_compilation"
LOWERING_SECONDS: Final = "/jax/core/compile/jaxpr_to_mlir_module_duration"
COMPILE_SECONDS: Final = "/jax/core/compile/backend_compile_duration"


@attrs.frozen(eq=False, slots=False)
class Key:
    """What jax compares two traces of one function by. Let go of with the report's block.

    What costs is worked out only when two keys are compared, as most never are.
    """

    in_avals: Any
    names: tuple[str, ...]
    statics: dict[str, Any]
    context: Any  # the values of jax's settings, in the order of context_names()

    @functools.cached_property
    def avals(self) -> tuple[Any, ...]:
        """The abstract arguments, without the static ones."""
        return tuple(getattr(self.in_avals, "vals", self.in_avals))

    @functools.cached_property
    def tree(self) -> Any:
        """Their structure; None where they have none."""
        return _tree(self.in_avals)


@attrs.frozen(eq=False)
class Miss:
    """A tracing cache miss, as jax's own frame shows it. Lives as long as one event is handled."""

    fun: Any
    in_avals: Any
    debug_info: Any

    @property
    def traced_for(self) -> str:
        return str(getattr(self.debug_info, "traced_for", ""))

    @property
    def func_name(self) -> str:
        return str(getattr(self.debug_info, "func_name", "") or "<unknown>")


def counts() -> bool:
    """Does this jax report its misses where we look for them?"""
    return callable(getattr(sys.modules.get("jax._src.util"), _REPORTER, None))


def install(
    on_event: Callable[[str, FrameType], None], on_seconds: Callable[[str, float, str], None]
) -> Callable[[], None]:
    """Tell the two functions of jax's misses and seconds until the returned undo is called.

    The undo puts back the very objects that were there.
    """
    import jax.monitoring

    undo: list[Callable[[], None]] = []

    def duration(event: str, seconds: float, **more: str | int) -> None:
        on_seconds(event, seconds, str(more.get("fun_name", "")))

    jax.monitoring.register_event_duration_secs_listener(duration)
    undo.append(lambda: jax.monitoring.unregister_event_duration_listener(duration))

    original = getattr(sys.modules.get("jax._src.util"), _REPORTER, None)
    if original is not None:

        def test_event(name: str, *args: Any) -> None:
            if name in (TRACE_EVENT, COMPILE_EVENT):
                on_event(name, sys._getframe(1))
            return original(name, *args)  # type: ignore[no-any-return]

        # partial_eval holds the function under a name of its own. The listener behind it is
        # left alone: whoever imports jax's test_util while we run would overwrite ours.
        for module in ("jax._src.util", "jax._src.interpreters.partial_eval"):
            undo.append(_replace(sys.modules.get(module), _REPORTER, original, test_event))

    def undo_all() -> None:
        for step in reversed(undo):
            step()

    return undo_all


def _replace(module: ModuleType | None, name: str, old: Any, new: Any) -> Callable[[], None]:
    if getattr(module, name, None) is not old:
        return lambda: None
    setattr(module, name, new)

    def undo() -> None:
        # Whoever replaced ours meanwhile calls it still, and would be undone with it.
        if getattr(module, name, None) is new:
            setattr(module, name, old)

    return undo


class _Finder(MetaPathFinder):
    """Runs callbacks right after one package has been imported, once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.callbacks: list[Callable[[], object]] = []

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        del _finders[fullname]
        spec = importlib.util.find_spec(fullname)
        loader: Any = spec.loader if spec is not None else None
        if loader is not None:

            def exec_module(module: ModuleType) -> None:
                del loader.exec_module
                loader.exec_module(module)
                for callback in self.callbacks:
                    callback()

            loader.exec_module = exec_module
        return spec


#: One for each package: two that set one loader's method would undo each other.
_finders: dict[str, _Finder] = {}


def when_imported(name: str, callback: Callable[[], object]) -> Callable[[], None]:
    """Call back now if a package is imported, else once it is. Returns what calls that off.

    A script sets ``JAX_PLATFORMS`` before its own ``import jax``; importing it earlier, on the
    script's behalf, would make that too late.
    """
    if name in sys.modules:
        callback()
        return lambda: None
    finder = _finders.get(name)
    if finder is None:
        finder = _finders[name] = _Finder(name)
        sys.meta_path.insert(0, finder)
    finder.callbacks.append(callback)

    def undo() -> None:
        if callback in finder.callbacks:
            finder.callbacks.remove(callback)
        if not finder.callbacks and _finders.get(name) is finder:
            del _finders[name]
            sys.meta_path.remove(finder)

    return undo


def read_miss(frame: FrameType) -> Miss | None:
    """What missed, from the frame that reported it; None where jax names things otherwise."""
    variables = frame.f_locals
    try:
        return Miss(variables["fun"], variables["in_avals"], variables["debug_info"])
    except KeyError:
        return None


def read_compile(frame: FrameType) -> tuple[str, tuple[Any, ...]]:
    """The name of what is being compiled, and its abstract arguments."""
    variables = frame.f_locals
    return str(variables.get("name", "")), tuple(variables.get("global_in_avals", ()))


def key_of(miss: Miss) -> Key:
    """The parts of jax's cache key that a user can change."""
    return _key(miss.fun, miss.in_avals, miss.debug_info, None)


def _key(fun: Any, in_avals: Any, debug_info: Any, context: Sequence[Any] | None) -> Key:
    return Key(
        in_avals=in_avals,
        names=tuple(getattr(debug_info, "arg_names", None) or ()),
        statics=dict(_statics(fun, in_avals)),
        context=_context() if context is None else context,
    )


def live_keys(miss: Miss) -> list[Key]:
    """The keys under which jax holds traces of this very function, made before the report began."""
    return [
        _key(miss.fun, in_avals, debug_info, context)
        for context, (in_avals, debug_info, *_), _ in _cached(miss.fun)
        if getattr(debug_info, "traced_for", "") == miss.traced_for
    ]


def _cached(fun: Any) -> list[Any]:
    partial_eval = sys.modules.get("jax._src.interpreters.partial_eval")
    try:
        keys = partial_eval.trace_to_jaxpr.cache_keys()  # type: ignore[union-attr]
        return [key for ref, *key in keys if ref() is fun]
    except (AttributeError, TypeError, ValueError):
        return []


def explain_miss(miss: Miss) -> str:
    """jax's own words on a miss: the difference to the closest key that it holds, or that none."""
    partial_eval: Any = sys.modules.get("jax._src.interpreters.partial_eval")
    config: Any = sys.modules.get("jax._src.config")
    keys = _cached(miss.fun)
    if not keys:
        return "jax holds no trace of this function any more (cleared, or evicted)"
    try:
        new: Any = (config.trace_context(), (miss.in_avals, miss.debug_info), {})
        text = min(partial_eval.diff_tracing_cache_keys(new, key) for key in keys)[-1]
    except Exception:  # private, and foreign reprs: a report goes on without it
        return "jax gives no explanation"
    return f"jax says: {' '.join(str(text).split())}"


def _context() -> Any:
    config: Any = sys.modules.get("jax._src.config")
    try:
        return config.trace_context()
    except AttributeError:
        return ()


def context_names() -> tuple[str, ...]:
    """The names of jax's settings that a trace depends on."""
    config: Any = sys.modules.get("jax._src.config")
    try:
        return tuple(config.trace_context_names())
    except (AttributeError, NotImplementedError):
        return ()


def _tree(in_avals: Any) -> Any:
    try:
        return in_avals.tree
    except (AssertionError, AttributeError):  # jax 0.12: a flat tree that comes from no pytree
        return None


def _statics(fun: Any, in_avals: Any) -> Iterator[tuple[str, Any]]:
    """Static arguments by name. jax 0.12 keeps them as nodes of the flat tree, 0.10 as tree nodes;
    an eager primitive's parameters are closed over."""
    closed = _primitive_params(fun)
    if closed is not None:
        yield from closed.items()
        return
    try:
        args, kwargs = _children(in_avals)
        positional, named = _children(args), _children(kwargs)
    except (AttributeError, TypeError, ValueError):
        return
    for index, value in enumerate(positional):
        if (static := _static(value)) is not None:
            yield _parameter(fun, index), static[0]
    for name, value in zip(_keys(kwargs), named, strict=False):
        if (static := _static(value)) is not None:
            yield str(name), static[0]


def primitive_name(fun: Any) -> str | None:
    """The name of the primitive that jax runs eagerly by this function, if it is one such."""
    return None if _primitive_params(fun) is None else str(fun.__name__)


def _primitive_params(fun: Any) -> dict[str, Any] | None:
    if type(fun) is not FunctionType or not getattr(fun, "_apply_primitive", False):
        return None
    code = fun.__code__
    cells = dict(zip(code.co_freevars, fun.__closure__ or (), strict=False))
    params = cells["params"].cell_contents if "params" in cells else None
    return params if isinstance(params, dict) else None


def _children(node: Any) -> list[Any]:
    if hasattr(node, "elts"):
        return list(node.elts)
    if hasattr(node, "keys") and hasattr(node, "_vals"):
        return list(node._vals)
    if hasattr(node, "statics"):
        node = node.tree
    if hasattr(node, "children"):
        return list(node.children())
    return []


def _keys(node: Any) -> Sequence[Any]:
    if hasattr(node, "keys") and hasattr(node, "_vals"):
        return tuple(node.keys)
    data = node.node_data() if hasattr(node, "node_data") else None
    return data[1] if data and isinstance(data[1], list) else ()


def _static(node: Any) -> tuple[Any] | None:
    if type(node).__name__ == "FTStatic":
        return (node.val,)
    data = node.node_data() if hasattr(node, "node_data") else None
    if data and getattr(data[0], "__name__", "") == "Static":
        return (getattr(data[1], "val", data[1]),)
    return None


def _parameter(fun: Any, index: int) -> str:
    try:
        return list(inspect.signature(fun).parameters)[index]
    except (TypeError, ValueError, IndexError):
        return f"args[{index}]"


def short(aval: Any) -> str:
    """``f32[8,3]``, and whether the type is weak: ``f32[] (weak)``."""
    try:
        text = str(aval.str_short(True))
    except (AttributeError, TypeError):
        text = str(aval)
    return f"{text} (weak)" if getattr(aval, "weak_type", False) else text


def _clean(thing: Any) -> str:
    text = re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", str(thing))
    return re.sub(r"<(.*?) at 0x[0-9a-f]+>", r"\1", text).replace(".<locals>", "")


def tree_changes(new: Key, old: Key, name: Callable[[int], str]) -> list[str]:
    """``x: dict of 1 → dict of 2``: where the structures of two calls' arguments part."""
    tree_util: Any = sys.modules.get("jax.tree_util")
    private: Any = sys.modules.get("jax._src.tree_util")
    changes = []
    try:
        for path, thing_new, thing_old, _ in private.equality_errors_pytreedef(new.tree, old.tree):
            entries: list[Any] = [
                getattr(entry, "idx", getattr(entry, "key", None)) for entry in path[:2]
            ]
            where = "arguments"
            if len(entries) == 2:
                where = name(entries[1]) if entries[0] == 0 else str(entries[1])
            where += tree_util.keystr(tuple(path[2:]))
            was, now = _clean(thing_old), _clean(thing_new)
            changes.append(f"{where}: {was} → {'another ' if was == now else ''}{now}")
    except Exception:  # private, and runs the user's tree code
        return []
    return changes

"""The wrappers and operations of flax.nnx, in tables, and what takes the place of each.

What it relies on beyond public names is in the tables; a name that a release does not have is
reported as absent.
"""

from __future__ import annotations

import functools
import importlib
import types
import weakref
from collections.abc import Callable
from typing import Any, Final

from fnintern.interning.decorator import By
from fnintern.interning.held import Handle, Operation
from fnintern.keys.tokens import Key
from fnintern.libraries.flax import flax_settings
from fnintern.libraries.importing import import_for
from fnintern.patches.patching import Patch, Site, apply, bare, intern_attribute

__all__ = ["patch_flax"]

#: Wrappers that are made, called and dropped within one call of a transform:
#: module of flax.nnx.transforms, name, releases that have it.
TRANSIENT: Final = (
    ("transforms", "SimpleCondFn", "0.12.6 and later"),  # cond, switch
    ("general", "merge_inputs", "all"),  # cond, switch in the default mode
    ("iteration", "SimpleWhileLoopCondFn", "0.12.6 and later"),
    ("iteration", "SimpleWhileLoopBodyFn", "0.12.6 and later"),
    ("iteration", "WhileLoopCondFn", "all"),
    ("iteration", "WhileLoopBodyFn", "all"),
    ("iteration", "SimpleForiLoopBodyFn", "0.12.6 and later"),
    ("iteration", "ForiLoopBodyFn", "all"),
)

#: Operations of jax to which flax hands its wrappers: module of flax.nnx.transforms, what its code
#: calls, and how. One that is "converted" calls its function at once, and is closure-converted, so
#: that it traces once also for functions that capture arrays and modules. One that is "made again"
#: is the same as under ``patch_jax()``. What comes of one that is "held" may be called later, and
#: is shared by the value of the function.
OPERATIONS: Final = (
    ("compilation", "jit", "made again"),  # jit, jit_partial
    ("iteration", "pmap", "held"),
    ("iteration", "eval_shape", "converted"),  # in fori_loop
    ("iteration", "lax.scan", "converted"),  # scan, and what is built on it (RNN)
    ("iteration", "lax.while_loop", "converted"),
    ("iteration", "lax.fori_loop", "converted"),
    ("autodiff", "checkpoint", "made again"),  # remat
    ("transforms", "eval_shape", "converted"),
    ("transforms", "make_jaxpr", "held"),
    ("transforms", "lax.cond", "converted"),
    ("transforms", "lax.switch", "converted"),
)

#: flax's own memo, which keeps every function alive and goes stale (since 0.12.9).
MEMOS: Final = (("transforms", "_get_cached_wrapper"), ("iteration", "_get_cached_wrapper"))

#: Wrappers that are left as they are: module of flax.nnx, names as its code spells them, why.
#: A test fails for what wraps a function in the installed release and is in none of the tables.
NOT_PATCHED: Final = (
    (
        "transforms.autodiff",
        "jax.grad jax.value_and_grad jax.vjp jax.jvp",
        "traces nothing that jax would find again",
    ),
    (
        "transforms.autodiff",
        "GradFn SimpleGradFn SimpleVjpFn SimpleJvpFn",
        "for grad, value_and_grad, vjp and jvp, which trace nothing that jax would find again",
    ),
    (
        "transforms.autodiff",
        "jax.custom_vjp CustomVjp CustomVjpFnWrapper FwdFn BwdFn "
        "SimpleCustomVjp SimpleCustomVjpFn SimpleFwdFn SimpleBwdFn",
        "an object that defvjp changes, for the caller to keep; making it traces nothing",
    ),
    ("transforms.autodiff", "SimpleRematFn", "given to checkpoint, which is in OPERATIONS"),
    ("transforms.autodiff", "_grad_general remat", "what it returns stays with the caller"),
    (
        "transforms.compilation",
        "JitFn SimpleJitFn SimpleJitPartialFn",
        "given to jit, which is in OPERATIONS",
    ),
    (
        "transforms.compilation",
        "JitWrapped SimpleJitWrapped SimpleJitPartialWrapped jit_partial",
        "stays with the caller, around a result of jit, which is in OPERATIONS",
    ),
    (
        "transforms.compilation",
        "jax.shard_map ShardMapFn SimpleShardMapFn shard_map",
        "traces at each call even when it is applied once",
    ),
    ("transforms.general", "split_inputs", "what it returns stays with the caller"),
    (
        "transforms.iteration",
        "jax.vmap VmapFn SimpleVmapFn vmap",
        "traces nothing that jax would find again",
    ),
    ("transforms.iteration", "PmapFn SimplePmapFn", "given to pmap, which is in OPERATIONS"),
    ("transforms.iteration", "pmap", "what it returns stays with the caller"),
    ("transforms.iteration", "ScanFn SimpleScanFn", "given to lax.scan, which is in OPERATIONS"),
    (
        "transforms.iteration",
        "_graph_updates_scan _simple_scan transform_metadata",
        "what it returns stays with the caller",
    ),
    (
        "transforms.iteration",
        "_SIMPLE_WHILE_LOOP_COND_FN_CACHE _SIMPLE_WHILE_LOOP_BODY_FN_CACHE "
        "_SIMPLE_FORI_LOOP_BODY_FN_CACHE",
        "filled by _get_cached_wrapper alone, which is in MEMOS",
    ),
    (
        "transforms.transforms",
        "_SIMPLE_COND_FN_CACHE",
        "filled by _get_cached_wrapper alone, which is in MEMOS",
    ),
    (
        "transforms.transforms",
        "checkify_lib.checkify CheckifyFn SimpleCheckifyFn checkify",
        "traces at each call even when it is applied once",
    ),
    (
        "transforms.transforms",
        "SimpleEvalShapeFn eval_shape",
        "given to eval_shape, which is in OPERATIONS",
    ),
    (
        "transforms.transforms",
        "SimpleMakeJaxprFn make_jaxpr",
        "given to make_jaxpr, which is in OPERATIONS",
    ),
    ("transforms.transforms", "resolve_kwargs", "calls its function, and traces nothing"),
    ("bridge.module", "jax.eval_shape", "once for each parameter of a module that is being made"),
    ("nn.attention", "jax.vmap", "traces nothing that jax would find again"),
    ("nn.linear", "jax.sharding.auto_axes", "traces nothing that jax would find again"),
    ("summary", "jax.jit jax.vjp", "for nnx.tabulate, which traces each layer to describe it"),
)


def patch_flax(*, by: By = "value") -> Patch:
    """Makes the eager transforms of ``flax.nnx`` trace once for the same functions.

    Equal functions share what was traced. The arrays, variables and modules that the functions of
    ``cond``, ``switch``, ``while_loop``, ``fori_loop`` and ``scan`` capture are passed to one
    program at each call.

    Args:
        by: how functions are compared; see :func:`fnintern.interned`. with ``"value"`` a call
            returns what a fresh trace would (laws S1 to S3). ``"object"`` takes what a function
            captures as constant, as ``jax.jit`` does, and covers what a transform makes and drops
            within one call.

    Returns:
        The patch, which is in force, and is a context manager with ``revert()`` and ``report``.
        While it is in force the same call returns the same patch.

    Raises:
        ImportError: flax is not installed; the message says what to install.

    Example:
        >>> import fnintern
        >>> with fnintern.patch_flax() as patched:
        ...     print(patched.report["flax.nnx.transforms.transforms.jax"])
        patched
    """
    import_for("patch_flax()", "flax.nnx")
    memo = _no_memo if by == "object" else _memo_of_a_call
    sites = [Site(_transforms(module), name, memo) for module, name in MEMOS]
    if by == "object":
        intern = intern_attribute(by)
        replace = {"merge_inputs": lambda factory: _within_cond(factory, intern(factory))}
        sites += [
            Site(_transforms(module), name, replace.get(name, intern))
            for module, name, _ in TRANSIENT
        ]
    else:
        settings = flax_settings()
        for module in dict.fromkeys(module for module, _, _ in OPERATIONS):
            names = {name: kind for where, name, kind in OPERATIONS if where == module}
            sites.append(Site(_transforms(module), "jax", _overlay(names, settings)))
    return apply(("flax", by), sites)


def _transforms(name: str) -> types.ModuleType:
    return importlib.import_module(f"flax.nnx.transforms.{name}")


def _within_cond(merge_inputs: Any, interned: Any) -> Any:
    """``merge_inputs``, interned where ``cond`` and ``switch`` call it. Elsewhere its result may be
    held, and a shared one would then be of the state in which it was made."""

    @functools.wraps(merge_inputs)
    def merge(*args: Any, **kwargs: Any) -> Any:
        if args and kwargs.get("ctxtag") in ("cond", "switch"):
            return interned(*args, **kwargs)
        return merge_inputs(*args, **kwargs)

    return merge


def _no_memo(memo: Any) -> Any:
    """The wrapper as it is made: it is interned."""

    def _get_cached_wrapper(cache: Any, wrapper_type: Any, f: Any, graph: Any) -> Any:
        return wrapper_type(f, graph=graph)

    return _get_cached_wrapper


def _memo_of_a_call(memo: Any) -> Any:
    """flax's memo, for the time of one call: of two branches that are one function, there is one
    wrapper, and JAX traces it once. It goes when the call ends."""
    alive: weakref.WeakValueDictionary[Any, Any] = weakref.WeakValueDictionary()

    def _get_cached_wrapper(cache: Any, wrapper_type: Any, f: Any, graph: Any) -> Any:
        key = (wrapper_type, id(f), graph)  # the wrapper holds f, so the id is that of f
        wrapper = alive.get(key)
        if wrapper is None:
            wrapper = wrapper_type(f, graph=graph)
            try:
                weakref.ref(f)  # as flax asks
                hash(f)
                alive[key] = wrapper
            except TypeError:
                pass
        return wrapper

    return _get_cached_wrapper


class _Overlay(types.ModuleType):
    """A module with some names replaced, as the code of one other module sees it."""

    def __init__(self, module: types.ModuleType, names: dict[str, Any]) -> None:
        super().__init__(module.__name__, module.__doc__)
        self.__dict__.update(names, _module=module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_module"], name)


def _overlay(names: dict[str, str], settings: Callable[[], Key]) -> Callable[[Any], Any]:
    """How to replace ``jax`` in a module of flax: by the same, with some operations shared."""

    def replace(jax: types.ModuleType) -> types.ModuleType:
        top: dict[str, Any] = {}
        nested: dict[str, dict[str, Any]] = {}
        for name, kind in names.items():
            path, _, last = name.rpartition(".")
            module = getattr(jax, path) if path else jax
            if kind == "made again":
                made: Any = _made_again(module, last)
            elif kind == "held":
                made = _held(module, last, settings)
            else:
                made = _converted(module, last)
            (nested.setdefault(path, {}) if path else top)[last] = made
        for path, inner in nested.items():
            top[path] = _Overlay(getattr(jax, path), inner)
        return _Overlay(jax, top)

    return replace


def _held(module: types.ModuleType, name: str, settings: Callable[[], Key]) -> Callable[..., Any]:
    """An operation whose result is called later: the state of the function counts then."""

    def make(function: Any, *args: Any, **kwargs: Any) -> Any:
        # That of jax, also where patch_jax() has replaced it.
        return bare(getattr(module, name))(function, *args, **kwargs)

    operation = Operation(make, settings, name=f"flax.nnx: {name}")

    def apply_operation(function: Any, *args: Any, **kwargs: Any) -> Any:
        return Handle(operation, function, make(function, *args, **kwargs), args, kwargs)

    return apply_operation


def _converted(module: types.ModuleType, name: str) -> Callable[..., Any]:
    """An operation of jax, staged."""
    from fnintern.staging.operations import original, stage

    made = stage(name, original(getattr(module, name)))
    made.count_as(f"flax.nnx: {name}")
    return made


def _made_again(jax: types.ModuleType, name: str) -> Callable[..., Any]:
    """A transformation that shares what it has traced with later functions of the same code."""
    from fnintern.staging.checkpointing import share_checkpoint
    from fnintern.staging.jit_again import share_jit

    share = {"jit": share_jit, "checkpoint": share_checkpoint}[name]
    return share(bare(getattr(jax, name)), f"flax.nnx: {name}")

"""What a traced callable is made of: the wrappers around it, and the user's function inside."""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable, Sequence
from types import CodeType, FunctionType, MethodType
from typing import Any, Final

import attrs

from . import jaxprobe
from .frames import is_user_file
from .values import Same, Value, captures_of, title, value_of

__all__ = ["Function", "Layer", "describe"]

#: Transforms of a function, by the name a user applies them under. What else jax wraps a function
#: in, it wraps behind the user's back.
_TRANSFORMS: Final = frozenset(
    {"checkify", "checkpoint", "closure_convert", "custom_gradient", "custom_jvp", "custom_vjp"}
    | {"grad", "hessian", "jacfwd", "jacrev", "jit", "jvp", "linearize", "named_call", "pmap"}
    | {"remat", "shard_map", "value_and_grad", "vjp", "vmap"}
)
_DEPTH: Final = 8


@attrs.frozen(eq=False)
class Layer:
    """One thing around the function: a partial, a method's binding, a wrapper."""

    kind: str  # partial, method, transform, wrapper
    name: str
    module: str
    same: Same
    captures: tuple[tuple[str, Value], ...] = ()


@attrs.frozen(eq=False)
class Function:
    """A traced callable, described."""

    name: str
    file: str
    line: int
    users: bool  # is there a function of the user's in it?
    library: str  # whose it is, if there is not
    primitive: bool
    code: Any  # what makes two leaves come from the same line
    same: Same
    captures: tuple[tuple[str, Value], ...]
    layers: tuple[Layer, ...]
    key: jaxprobe.Key
    traced_for: str
    parameters: tuple[str, ...]

    @property
    def defined(self) -> str:
        return f"{self.file}:{self.line}" if self.users and self.file else ""


def describe(miss: jaxprobe.Miss, key: jaxprobe.Key | None = None) -> Function:
    """Describe the function that missed: its layers, and the function inside."""
    layers, leaf = _unwrap(miss.fun)
    users = _is_users(leaf)
    code = _code_of(leaf)
    name = leaf.__qualname__ if type(leaf) is FunctionType else f"{type(leaf).__name__} object"
    primitive = jaxprobe.primitive_name(miss.fun)
    library = ""
    if not users:
        name, library = _librarys(miss, leaf, layers)
    return Function(
        name=title(name),
        file=code.co_filename if code is not None else "",
        line=code.co_firstlineno if code is not None else 0,
        users=users,
        library=library,
        primitive=primitive is not None,
        code=(primitive, code),
        same=_identity(leaf),
        captures=tuple(captures_of(leaf)) if users and isinstance(leaf, FunctionType) else (),
        layers=tuple(layers),
        key=key or jaxprobe.key_of(miss),
        traced_for=miss.traced_for,
        parameters=_positional(code),
    )


def _librarys(miss: jaxprobe.Miss, leaf: Any, layers: Sequence[Layer]) -> tuple[str, str]:
    """The name and the library of a function that holds none of the user's."""
    module = getattr(leaf, "__globals__", {}).get("__name__") or type(leaf).__module__
    modules = [layer.module for layer in layers if layer.module] + [module]
    libraries = [module.partition(".")[0] for module in modules]
    library = next((name for name in libraries if name not in ("jax", "jaxlib")), "jax")
    name = miss.func_name if miss.func_name != "<unknown>" else type(miss.fun).__name__
    return name, "jax" if library in ("functools", "builtins") else library


def _positional(code: CodeType | None) -> tuple[str, ...]:
    return () if code is None else code.co_varnames[: code.co_argcount]


def _identity(fun: Any) -> Same:
    # A bound method is made at each look-up; what it binds is not.
    return Same(fun.__func__ if isinstance(fun, MethodType) else fun)


def _code_of(fun: Any) -> CodeType | None:
    """The code that a call runs. Asks the class: an instance may answer by code of its own."""
    if isinstance(fun, FunctionType):
        return fun.__code__
    calls = (vars(cls)["__call__"] for cls in type(fun).__mro__ if "__call__" in vars(cls))
    return getattr(next(calls, None), "__code__", None)


def _is_users(leaf: Any) -> bool:
    if isinstance(leaf, FunctionType):
        return is_user_file(leaf.__code__.co_filename)
    code = _code_of(leaf)
    return code is not None and is_user_file(code.co_filename)


def _unwrap(fun: Any) -> tuple[list[Layer], Any]:
    """The wrappers from the outside in, and the user's function, or else a library's, inside."""
    layers: list[Layer] = []
    while len(layers) < _DEPTH:
        layer, inner = _peel(fun)
        if inner is None:
            break
        if layer is not None and not (layers and _one_transform(layers[-1], layer)):
            layers.append(layer)
        fun = inner
    return layers, fun


def _one_transform(outer: Layer, inner: Layer) -> bool:
    """``jax.grad`` is made of ``jax.value_and_grad``: a reader wrote the first alone."""
    return outer.kind == inner.kind == "transform" and outer.name == "grad"


def _peel(fun: Any) -> tuple[Layer | None, Any]:
    for base in type(fun).__mro__:
        if "__standin_for__" in vars(base):  # what it stands for has the user's name
            return None, base.__standin_for__(fun)  # type: ignore[attr-defined]
    if isinstance(fun, functools.partial):
        positional = zip(_names(fun.func), fun.args, strict=False)
        bound = [(name, value_of(arg)) for name, arg in [*positional, *fun.keywords.items()]]
        return Layer("partial", "functools.partial", "", Same(fun), tuple(bound)), fun.func
    if isinstance(fun, MethodType):
        owner = fun.__self__
        # The binding is as stable as the object bound: `same` is that of the object.
        layer = Layer("method", type(owner).__name__, "", Same(owner))
        return layer, fun.__func__
    if isinstance(fun, FunctionType):
        if is_user_file(fun.__code__.co_filename):
            return None, None
        return _wrapper_of(fun, fun.__code__.co_qualname, fun.__globals__.get("__name__", ""))
    if type(fun).__name__ == "PjitFunction":
        return Layer("transform", "jit", "jax", Same(fun)), getattr(fun, "__wrapped__", None)
    if _is_users(fun):
        return None, None
    return _wrapper_of(fun, type(fun).__qualname__, type(fun).__module__)


def _wrapper_of(fun: Any, name: str, module: str) -> tuple[Layer | None, Any]:
    # Around every public function of jax, and around what its older transforms are given.
    if module in ("jax._src.traceback_util", "jax._src.linear_util"):
        return None, next((held for held in _held(fun) if callable(held)), None)
    inner = _users_function(fun, 4)
    if inner is None:  # none of the user's: then what another library wrote
        inner = _users_function(fun, 2, _is_librarys)
    name = "pmap" if module == "jax._src.pmap" else name.partition(".<locals>")[0]
    transform = module.partition(".")[0] == "jax" and name in _TRANSFORMS
    if inner is None and transform:
        inner = next((held for held in _held(fun) if callable(held)), None)
    return Layer("transform" if transform else "wrapper", name, module, Same(fun)), inner


def _users_function(holder: Any, depth: int, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """What `holder` directly holds that is, or leads to, a function of the user's."""
    is_leaf = is_leaf or _is_leaf
    for held in _held(holder):
        content: Any = held() if isinstance(held, weakref.ref) else held
        for option in content[:8] if type(content) in (tuple, list) else (content,):
            inner = _bound(option)
            if is_leaf(inner):
                return option
            if depth and _may_wrap(inner) and _users_function(inner, depth - 1, is_leaf):
                return option
    return None


def _bound(fun: Any) -> Any:
    """What a method or a partial binds."""
    while isinstance(fun, MethodType | functools.partial):
        fun = fun.__func__ if isinstance(fun, MethodType) else fun.func
    return fun


def _held(holder: Any) -> list[Any]:
    if isinstance(holder, FunctionType):
        cells = []
        for cell in holder.__closure__ or ():
            try:
                cells.append(cell.cell_contents)
            except ValueError:
                continue
        return [*cells, *(holder.__defaults__ or ())]
    wrapped = (
        getattr(holder, "__wrapped__", None) if type(holder).__name__ == "PjitFunction" else None
    )
    if wrapped is not None:
        return [wrapped]
    held = list(getattr(holder, "__dict__", {}).values()) if not isinstance(holder, type) else []
    slots = getattr(type(holder), "__slots__", ())
    for name in (slots,) if isinstance(slots, str) else slots:
        try:
            held.append(object.__getattribute__(holder, name))
        except AttributeError:
            continue
    return held


def _may_wrap(value: Any) -> bool:
    if isinstance(value, type | types.ModuleType):
        return False
    return callable(value) or type(value).__name__ == "WrappedFun"


def _is_leaf(value: Any) -> bool:
    return _may_wrap(value) and _is_users(value)


def _is_librarys(value: Any) -> bool:
    if not isinstance(value, FunctionType):
        return False
    return str(value.__globals__.get("__name__", "")).partition(".")[0] not in ("jax", "jaxlib")


def _names(fun: Any) -> tuple[str, ...]:
    """Names for the positional arguments that a partial of `fun` binds."""
    while isinstance(fun, functools.partial):
        fun = fun.func
    names = _positional(getattr(getattr(fun, "__func__", fun), "__code__", None))
    return (*names, *(f"args[{i}]" for i in range(len(names), len(names) + 16)))

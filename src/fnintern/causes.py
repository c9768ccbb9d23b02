"""Why a function was traced again: what it is made of, and how it differs from the last time.

A traced callable is described once, at its trace (:func:`describe`): the wrappers around it, the
user's function inside, what that captures. Two descriptions are then told apart
(:func:`tell_apart`). A description holds text, numbers and weak references, and so keeps nothing
of the user's alive, but for the static arguments and the tree structures in jax's own key. No code
of the user's is run beyond what jax's cache runs itself, to compare these.
"""

from __future__ import annotations

import functools
import re
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FunctionType, MethodType
from typing import Any, Final

import attrs

from . import _jaxprobe
from ._frames import is_user_file

__all__ = ["Cause", "Function", "compiled_again", "describe", "tell_apart"]

#: Transforms of a function, by the name a user applies them under. What else jax wraps a function
#: in, it wraps behind the user's back.
_TRANSFORMS: Final = frozenset(
    "checkify checkpoint closure_convert custom_gradient custom_jvp custom_vjp grad hessian jacfwd"
    " jacrev jit jvp linearize named_call pmap remat shard_map value_and_grad vjp vmap".split()
)
#: What can differ between two abstract arrays, in the order in which a reader looks for it.
_AVAL_REMEDIES: Final = {
    "shape": ("shape", "keep the shape of {} fixed: pad it, or leave the short batch out"),
    "dtype": ("dtype", "give {} one dtype before the call"),
    "weak_type": ("weak type", "give {} a dtype: jnp.asarray(value, dtype)"),
    "sharding": ("sharding", "put {} on the same devices before every call"),
}
_DEPTH: Final = 8
_TEXT: Final = 40
_SMALL: Final = 1024  # bytes of a numpy array that are compared, beyond that it is its identity


@attrs.frozen
class Cause:
    """Why something was traced again."""

    kind: str
    #: What rows are told apart by, beside the line. The same for every repetition.
    topic: str
    text: str
    remedy: str


# --- values ----------------------------------------------------------------------------------


class Same:
    """Equal to another one of the same object, while that lives. Keeps it not alive."""

    __slots__ = ("_address", "_ref")

    def __init__(self, value: Any) -> None:
        self._address = id(value)
        try:
            self._ref: weakref.ref[Any] | None = weakref.ref(value)
        except TypeError:
            self._ref = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Same) or self._address != other._address:
            return False
        # An address alone is an answer only for what takes no weak reference.
        return (self._ref is None) == (other._ref is None) and (
            self._ref is None or (other._ref is not None and self._ref() is other._ref())
        ) and not (self._ref is not None and self._ref() is None)

    __hash__ = None  # type: ignore[assignment]


@attrs.frozen
class Value:
    """A captured value: what it is compared by, and what a reader sees of it."""

    token: Any
    text: str = attrs.field(eq=False)
    parts: tuple[tuple[str, Value], ...] = attrs.field(default=(), eq=False)


def value_of(value: Any, depth: int = 6, *, strict: bool = False) -> Value:
    """Describe one captured value. Equal functions are equal, unless `strict`: jax's view."""
    kind = type(value)
    if value is None or value is ... or kind in (bool, int, float, complex, str, bytes):
        return Value((kind.__name__, repr(value)), _cut(repr(value)))
    if depth and kind in (tuple, list, dict) and len(value) <= 64:
        return _container(value, depth - 1, strict)
    if depth and isinstance(value, tuple) and hasattr(kind, "_fields") and len(value) <= 64:
        parts = [(name, value_of(getattr(value, name), depth - 1, strict=strict)) for name in kind._fields]
        return Value((kind, [part.token for _, part in parts]), kind.__name__, tuple(parts))
    if kind is FunctionType and depth:
        captures = tuple(_captures(value, depth - 1))
        token = ("def", value.__code__, [(name, part.token) for name, part in captures])
        text = f"function {_title(value.__qualname__)}"
        return Value((Same(value), token) if strict else token, text, captures)
    if kind.__name__ == "PjitFunction":
        return Value(Same(value), f"jitted {_title(getattr(value, '__qualname__', 'function'))}")
    if kind.__name__ == "PyTreeDef":
        return Value(value, "structure")  # compared as jax compares it
    if isinstance(value, types.ModuleType | type | types.BuiltinFunctionType):
        return Value(Same(value), _cut(str(getattr(value, "__name__", kind.__name__))))
    return _array_or_object(value)


def _container(value: Any, depth: int, strict: bool) -> Value:
    if type(value) is dict:
        named = [(value_of(k, 1), value_of(v, depth, strict=strict)) for k, v in value.items()]
        text = "{" + ", ".join(f"{k.text}: {v.text}" for k, v in named) + "}"
        parts = [(f"[{k.text}]", v) for k, v in named]
        return Value(("dict", [(k.token, v.token) for k, v in named]), _cut(text), tuple(parts))
    items = [value_of(item, depth, strict=strict) for item in value]
    inside = ", ".join(item.text for item in items)
    text = f"[{inside}]" if type(value) is list else f"({inside}{',' * (len(items) == 1)})"
    parts = [(f"[{i}]", item) for i, item in enumerate(items)]
    return Value((type(value), [item.token for item in items]), _cut(text), tuple(parts))


def _array_or_object(value: Any) -> Value:
    kind = type(value)
    module = kind.__module__.partition(".")[0]
    if module == "numpy" and hasattr(value, "dtype") and value.dtype.kind in "biufc":
        text = f"{value.dtype}{list(value.shape)}"
        if value.nbytes <= _SMALL:
            text = _cut(" ".join(str(value).split())) if value.size <= 4 else text
            return Value(("numpy", str(value.dtype), value.shape, value.tobytes()), text)
        return Value(Same(value), text)
    if module in ("jax", "jaxlib") and (aval := getattr(value, "aval", None)) is not None:
        traced = "a tracer of " if kind.__name__.endswith("Tracer") else ""
        return Value(Same(value), traced + _jaxprobe.short(aval))
    return Value(Same(value), f"{kind.__name__} object")


def _captures(fun: FunctionType, depth: int = 4) -> Iterator[tuple[str, Value]]:
    """What a function closes over, and its defaults, by name."""
    code = fun.__code__
    for name, cell in zip(code.co_freevars, fun.__closure__ or (), strict=False):
        try:
            content = cell.cell_contents
        except ValueError:  # not bound yet
            continue
        if content is not fun:  # a function that calls itself
            yield name, value_of(content, depth)
    defaults = fun.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount][code.co_argcount - len(defaults) :]
    for name, content in [*zip(names, defaults, strict=False), *(fun.__kwdefaults__ or {}).items()]:
        yield name, value_of(content, depth)


def changes(new: Sequence[tuple[str, Value]], old: Sequence[tuple[str, Value]]) -> list[str]:
    """``k: 1 → 2`` for each name whose value differs; inside captured functions too."""
    before, found = dict(old), []
    for name, value in new:
        was = before.pop(name, None)
        if was is not None and was.token == value.token:
            continue
        # Short tuples are shown whole; what does not fit, or is a function, by what differs in it.
        deeper: list[str] = []
        if was is not None and ("…" in value.text + was.text or not value.text.startswith("(")):
            deeper = changes(value.parts, was.parts) if value.parts else []
        if deeper:
            found += [f"{name}{'' if c.startswith('[') else '.'}{c}" for c in deeper]
        else:
            found.append(f"{name}: {_from_to('nothing' if was is None else was.text, value.text)}")
    return found + [f"{name}: {_from_to(was.text, 'nothing')}" for name, was in before.items()]


def _from_to(old: str, new: str) -> str:
    return f"{old} → another {new}" if old == new else f"{old} → {new}"


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT else text[: _TEXT - 1] + "…"


def _title(qualname: str) -> str:
    return qualname.replace(".<locals>", "")


# --- functions -------------------------------------------------------------------------------


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
    key: _jaxprobe.Key
    traced_for: str
    parameters: tuple[str, ...]

    @property
    def defined(self) -> str:
        return f"{self.file}:{self.line}" if self.users and self.file else ""


def describe(miss: _jaxprobe.Miss, key: _jaxprobe.Key | None = None) -> Function:
    """Describe the function that missed: its layers, and the function inside."""
    layers, leaf = _unwrap(miss.fun)
    users = _is_users(leaf)
    inner = leaf.__call__ if not isinstance(leaf, FunctionType) else leaf
    code = getattr(inner, "__code__", None)
    name = getattr(leaf, "__qualname__", None) or f"{type(leaf).__name__} object"
    primitive = _jaxprobe.primitive_name(miss.fun)
    library = ""
    if not users:
        name, library = _librarys(miss, leaf, layers)
    return Function(
        name=_title(name),
        file=code.co_filename if code is not None else "",
        line=code.co_firstlineno if code is not None else 0,
        users=users,
        library=library,
        primitive=primitive is not None,
        code=(primitive, code),
        same=_identity(leaf),
        captures=tuple(_captures(leaf)) if users and isinstance(leaf, FunctionType) else (),
        layers=tuple(layers),
        key=key or _jaxprobe.key_of(miss),
        traced_for=miss.traced_for,
        parameters=_positional(code),
    )


def _librarys(miss: _jaxprobe.Miss, leaf: Any, layers: Sequence[Layer]) -> tuple[str, str]:
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


def _is_users(leaf: Any) -> bool:
    if isinstance(leaf, FunctionType):
        return is_user_file(leaf.__code__.co_filename)
    call = getattr(type(leaf), "__call__", None)
    code = getattr(call, "__code__", None)
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


def _users_function(
    holder: Any, depth: int, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    """What `holder` directly holds that is, or leads to, a function of the user's."""
    is_leaf = is_leaf or _is_leaf
    for found in _held(holder):
        candidate = found() if isinstance(found, weakref.ref) else found
        options = candidate if type(candidate) in (tuple, list) else (candidate,)
        for option in options[:8]:
            if isinstance(option, MethodType | functools.partial):
                target: Any = option
                while isinstance(target, MethodType | functools.partial):
                    target = getattr(target, "__func__", None) or getattr(target, "func", None)
                if is_leaf(target) or (depth and _users_function(target, depth - 1, is_leaf) is not None):
                    return option
            elif is_leaf(option):
                return option
            elif depth and _may_wrap(option) and _users_function(option, depth - 1, is_leaf) is not None:
                return option
    return None


def _held(holder: Any) -> list[Any]:
    if isinstance(holder, FunctionType):
        cells = []
        for cell in holder.__closure__ or ():
            try:
                cells.append(cell.cell_contents)
            except ValueError:
                continue
        return [*cells, *(holder.__defaults__ or ())]
    wrapped = getattr(holder, "__wrapped__", None) if type(holder).__name__ == "PjitFunction" else None
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


# --- telling apart ---------------------------------------------------------------------------


def tell_apart(new: Function, earlier: Sequence[Function]) -> Cause | None:
    """Why `new` missed where `earlier`, traces of the same definition, had been traced.

    Args:
        new: what was traced now.
        earlier: at least one earlier trace, oldest first.

    Returns:
        The cause; None where nothing differs that a user could see.
    """
    if new.users:
        same = [old for old in earlier if _same_callable(new, old)]
        if not same:
            return _made_again(new, _closest(new, earlier))
        return _other_key(new, _closest(new, same)) or _method_taken_again(new)
    # A library makes its own functions anew as a matter of course: what a user can change is first.
    cause = _other_key(new, _closest(new, earlier))
    if cause is not None or new.primitive:
        return cause
    if any(_same_callable(new, old) for old in earlier):
        return _method_taken_again(new)
    old = _closest(new, earlier)
    if old.same != new.same or all(layer.kind == "wrapper" for layer in new.layers):
        return _library_function_made_again(new)
    return _made_again(new, old)


def _same_callable(new: Function, old: Function) -> bool:
    return new.same == old.same and all(
        a.same == b.same for a, b in zip(new.layers, old.layers, strict=False)
    )


def _closest(new: Function, earlier: Sequence[Function]) -> Function:
    """The earlier trace with the fewest differences, the latest of those."""

    def distance(old: Function) -> tuple[bool, int, int]:
        found = _key_changes(new, old)
        return (
            new.same != old.same,
            sum(len(changes) for _, changes in found),
            sum(len(_differing(a, b)) for a, b in zip(new.key.avals, old.key.avals, strict=False)),
        )

    return min(reversed(earlier), key=distance)


def _made_again(new: Function, old: Function) -> Cause:
    if new.same != old.same:
        return _function_made_again(new, old)
    layer, was = next(
        (a, b)
        for a, b in reversed(list(zip(new.layers, old.layers, strict=False)))
        if a.same != b.same
    )
    around = f"the same `{new.name}`"
    if layer.kind == "partial":
        found = changes(layer.captures, was.captures)
        values = f", {'; '.join(found)}" if found else ", with equal arguments"
        return Cause(
            "partial",
            f"partial {_subjects(found)}",
            f"a functools.partial of {around} was made again{values}",
            "make the partial once, outside the loop, or pass "
            + (f"{_subjects(found)} as an argument" if found else "it by an @fnintern.interned factory"),
        )
    if layer.kind == "method":
        return Cause(
            "method",
            f"method of another {layer.name}",
            f"the bound method `{new.name}` was taken from another `{layer.name}` object",
            f"take it from one `{layer.name}`, or pass the object as an argument",
        )
    if layer.kind == "transform":
        return Cause(
            "transform",
            f"transform {layer.name}",
            f"jax.{layer.name} was applied anew to {around}",
            f"apply jax.{layer.name} once, outside the loop",
        )
    return _wrapper_made_again(layer, around)


def _method_taken_again(new: Function) -> Cause | None:
    # jax finds an equal bound method only while an earlier one is alive.
    for layer in new.layers:
        if layer.kind == "method":
            return Cause(
                "method",
                f"method of {layer.name}",
                f"the bound method `{new.name}` was taken again from the same object",
                "take it once and keep it: `method = obj.method`, outside the loop",
            )
    return None


def _wrapper_made_again(layer: Layer, around: str) -> Cause:
    library = layer.module.partition(".")[0]
    if library == "flax":
        remedy = "fnintern.patch_flax(), or @fnintern.interned on what makes the wrapper"
    elif library in ("jax", "jaxlib"):
        remedy = "call it inside one jax.jit function, which traces it once"
    else:
        remedy = (
            f"@fnintern.interned on what makes the wrapper, or"
            f' fnintern.patch("{layer.module}", "{layer.name}")'
        )
    text = f"`{layer.name}` of {library} was built anew around {around}"
    return Cause("wrapper", f"wrapper {layer.name} of {layer.module}", text, remedy)


def _library_function_made_again(new: Function) -> Cause:
    text = f"`{new.name}` of {new.library} was made anew"
    remedy = "keep what the library returned and use it again, or @fnintern.interned on its maker"
    if new.library == "jax":
        remedy = "call it inside one jax.jit function, which traces it once"
    return Cause("wrapper", f"library {new.name}", text, remedy)


def _function_made_again(new: Function, old: Function) -> Cause:
    what = "the lambda" if "<lambda>" in new.name else f"`{new.name}`"
    if not isinstance(new.code[1], CodeType) or new.name.endswith(" object"):
        text = f"another `{new.name.removesuffix(' object')}` object was called"
        return Cause("function", "object", text, "make the object once, outside the loop")
    found = changes(new.captures, old.captures)
    anew = [layer.name for layer in new.layers if layer.kind == "transform"]
    wrappers = [layer for layer in new.layers if layer.kind == "wrapper"]
    if new.traced_for == "jit" and not wrappers and "jit" not in anew:
        anew.insert(0, "jit")
    with_it = f", and jax.{anew[0]} applied to it anew" if anew else ""
    if found:
        names = _subjects(found)
        return Cause(
            "function",
            f"made again {names}",
            f"{what} was made again by its line{with_it}: {'; '.join(found)}",
            f"pass {names} as an argument, or make one function for each value and keep it",
        )
    once = f"make it{' and its jax.' + anew[0] if anew else ''} once, outside the loop"
    if any(layer.module.startswith("flax.") for layer in wrappers):
        once += ", and call fnintern.patch_flax()"
    return Cause(
        "function",
        "made again",
        f"{what} was made again by its line with equal captures{with_it}",
        once + '; or wrap it by fnintern.interned(by="value")',
    )


def _subjects(found: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(f"`{change.split(':')[0]}`" for change in found))


def _key_changes(new: Function, old: Function) -> list[tuple[str, list[str]]]:
    a, b = new.key, old.key
    static = _static_changes(a, b)
    return [
        ("context", _context_changes(a, b)),
        ("static", static),
        # jax 0.10 has the static arguments in the structure.
        ("structure", [] if static else _structure_changes(new, old)),
        ("shape", _aval_changes(new, old)),
    ]


def _context_changes(new: _jaxprobe.Key, old: _jaxprobe.Key) -> list[str]:
    return [
        f"{name.removeprefix('jax_')}: {_cut(str(was))} → {_cut(str(value))}"
        for (name, value), (_, was) in zip(new.context, old.context, strict=False)
        if value is not was and value != was
    ]


def _static_changes(new: _jaxprobe.Key, old: _jaxprobe.Key) -> list[str]:
    return changes(
        [(name, value_of(value, strict=True)) for name, value in new.statics.items()],
        [(name, value_of(value, strict=True)) for name, value in old.statics.items()],
    )


def _structure_changes(new: Function, old: Function) -> list[str]:
    if new.key.tree == old.key.tree:
        return []

    def name(index: Any) -> str:
        known = isinstance(index, int) and index < len(new.parameters)
        return new.parameters[index] if known else f"args[{index}]"

    return _jaxprobe.tree_changes(new.key, old.key, name)


def _aval_changes(new: Function, old: Function) -> list[str]:
    return aval_changes(new.key, old.key)


def aval_changes(a: _jaxprobe.Key, b: _jaxprobe.Key) -> list[str]:
    """``x: f32[8] → f32[9]`` for each abstract argument that differs."""
    if len(a.avals) != len(b.avals):
        return []
    names = a.names if len(a.names) == len(a.avals) else [f"args[{i}]" for i in range(len(a.avals))]
    return [
        f"{name}: {_from_to(_jaxprobe.short(was), _jaxprobe.short(aval))}"
        for name, aval, was in zip(names, a.avals, b.avals, strict=True)
        if aval is not was and aval != was
    ]


def _other_key(new: Function, old: Function) -> Cause | None:
    kinds = [(kind, found) for kind, found in _key_changes(new, old) if found]
    if not kinds:
        return None
    kind, found = kinds[0]
    subjects = _subjects(found)
    text = "; ".join(found[:3]) + (f"; and {len(found) - 3} more" if len(found) > 3 else "")
    if kind == "context":
        return Cause(
            kind,
            f"context {subjects}",
            f"traced under another jax setting, {text}",
            "set it once, before the first call",
        )
    if kind == "static":
        return Cause(
            kind,
            f"static {subjects}",
            f"another static argument, {text}",
            _static_remedy(new, subjects, text),
        )
    if kind == "structure":
        return Cause(
            kind,
            f"structure {subjects}",
            f"another tree structure, {text}",
            f"keep the structure of {subjects} the same in every call",
        )
    return _other_aval(new, old, subjects, text)


def _static_remedy(new: Function, subjects: str, text: str) -> str:
    if new.primitive:
        return "keep its sizes fixed, or do this inside one jax.jit function"
    if not new.users and "[" in text:  # a path within a library's own argument
        return "pass the same functions and objects in every call: make them once and keep them"
    if re.search(r"→ another |→ \(?function |→ jitted | object\b", text):  # equal, had it been kept
        subjects = _subjects([re.split(r"[.\[]", subject)[0] for subject in subjects.split("`")[1::2]])
        return f"make {subjects} once and keep it, or @fnintern.interned on its maker"
    return f"if it changes often, pass {subjects} as an ordinary argument"


def _other_aval(new: Function, old: Function, subjects: str, text: str) -> Cause:
    differing = {
        attribute
        for aval, was in zip(new.key.avals, old.key.avals, strict=True)
        for attribute in _differing(aval, was)
    }
    for attribute, (word, remedy) in _AVAL_REMEDIES.items():
        if attribute in differing:
            remedy = remedy.format(subjects)
            return Cause("shape", f"{word} {subjects}", f"another {word}, {text}", remedy)
    return Cause("shape", f"type {subjects}", f"another type, {text}", f"keep {subjects} the same")


def compiled_again(name: str, new: _jaxprobe.Key, old: _jaxprobe.Key) -> Cause:
    """Why `name` was compiled again at a line where jax still had its trace."""
    found = aval_changes(new, old)
    if found:
        remedy = f"keep the shape of {_subjects(found)} fixed: pad it"
        return Cause("shape", name, f"`{name}` was compiled for {'; '.join(found[:3])}", remedy)
    text = f"`{name}` was compiled again without a trace: another device, sharding or layout"
    return Cause("compile", name, text, "put its arguments on the same devices before every call")


def _differing(aval: Any, was: Any) -> list[str]:
    if aval is was:
        return []
    return [name for name in _AVAL_REMEDIES if getattr(aval, name, 0) != getattr(was, name, 0)]

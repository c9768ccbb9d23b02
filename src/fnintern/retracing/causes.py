"""Why a function was traced again: how it differs from the last time, and what to change.

Two descriptions of a function (:mod:`fnintern.retracing.described`) are told apart. Tree structures
and settings are compared as jax's own cache compares them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import CodeType
from typing import Any, Final

import attrs

from . import jaxprobe
from .described import Function, Layer
from .values import changes, cut, from_to, value_of

__all__ = ["Cause", "compiled_again", "tell_apart"]

#: What can differ between two abstract arrays, in the order in which a reader looks for it.
_AVAL_REMEDIES: Final = {
    "shape": ("shape", "keep the shape of {} fixed: pad it, or leave the short batch out"),
    "dtype": ("dtype", "give {} one dtype before the call"),
    "weak_type": ("weak type", "give {} a dtype: jnp.asarray(value, dtype)"),
    "sharding": ("sharding", "put {} on the same devices before every call"),
}


@attrs.frozen
class Cause:
    """Why something was traced again."""

    kind: str
    #: What rows are told apart by, beside the line. The same for every repetition.
    topic: str
    text: str
    remedy: str


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
            return _made_again(new, earlier[-1])
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
            + (
                f"{_subjects(found)} as an argument"
                if found
                else "it by an @fnintern.interned factory"
            ),
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
            f"pass {names} as an argument{_converted(new, anew, found)}, or make one function for "
            f"each value and keep it",
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


#: What jax says that it traced for -> the operation that closure conversion has.
_STAGED: Final = {
    "cond": "cond", "switch": "switch", "scan": "scan", "fori_loop": "fori_loop",
    "while_loop": "while_loop", "while_cond": "while_loop", "while_body": "while_loop",
}  # fmt: skip


def _converted(new: Function, anew: Sequence[str], found: Sequence[str]) -> str:
    """The way by closure conversion, where nothing but arrays has changed."""
    if not all("→ another " in change and "[" in change for change in found):
        return ""
    if new.traced_for in _STAGED:
        return f", or take `{_STAGED[new.traced_for]}` from fnintern.lax"
    return ", or use fnintern.jit" if "jit" in anew else ""


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


def _context_changes(new: jaxprobe.Key, old: jaxprobe.Key) -> list[str]:
    if new.context == old.context:
        return []
    return [
        f"{name.removeprefix('jax_')}: {cut(str(was))} → {cut(str(value))}"
        for name, value, was in zip(
            jaxprobe.context_names(), new.context, old.context, strict=False
        )
        if value is not was and value != was
    ]


def _static_changes(new: jaxprobe.Key, old: jaxprobe.Key) -> list[str]:
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

    return jaxprobe.tree_changes(new.key, old.key, name)


def _aval_changes(new: Function, old: Function) -> list[str]:
    return aval_changes(new.key, old.key)


def aval_changes(a: jaxprobe.Key, b: jaxprobe.Key) -> list[str]:
    """``x: f32[8] → f32[9]`` for each abstract argument that differs."""
    if len(a.avals) != len(b.avals):
        return []
    names = a.names if len(a.names) == len(a.avals) else [f"args[{i}]" for i in range(len(a.avals))]
    return [
        f"{name}: {from_to(jaxprobe.short(was), jaxprobe.short(aval))}"
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
        subjects = _subjects(
            [re.split(r"[.\[]", subject)[0] for subject in subjects.split("`")[1::2]]
        )
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


def compiled_again(name: str, new: jaxprobe.Key, old: jaxprobe.Key) -> Cause:
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

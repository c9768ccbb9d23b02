"""Errors and explanations say what was given, what was expected, and what to do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import jax
import pytest

import fnintern
from fnintern import explain, interned, keyed, lax, patch, staged


def function(x: Any) -> Any:
    return x


def generator(f: Any) -> Iterator[Any]:
    yield f


async def asynchronous(f: Any) -> AsyncIterator[Any]:
    yield f


async def coroutine(f: Any) -> Any:
    return f


class Slotted:
    __slots__ = ("scale",)

    def __init__(self) -> None:
        self.scale = 2.0

    def __call__(self, x: Any) -> Any:
        return self.scale * x


class Method:
    def apply(self, x: Any) -> Any:
        return x


class Named:
    @property
    def __name__(self) -> str:
        raise RuntimeError("no name")

    def __call__(self, x: Any) -> Any:
        return x


class Unread:
    """Declared with a key that fails."""

    def __call__(self, x: Any) -> Any:
        return x


keyed(Unread, lambda unread: unread.missing)  # type: ignore[attr-defined]

#: A call that is refused, the error, and what its message says.
REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], tuple[str, ...]]] = {
    "keyed, no class": (
        lambda: keyed(3, lambda x: x),  # type: ignore[arg-type]
        TypeError,
        ("expects a class", "got 3 of type int", "fnintern.stateless"),
    ),
    "keyed, no function": (
        lambda: keyed(Method, 3),  # type: ignore[arg-type]
        TypeError,
        ("got 3 of type int", "lambda x: x.name"),
    ),
    "keyed, builtin": (lambda: keyed(int, abs), TypeError, ("the builtin int", "of your own")),
    "generator": (lambda: interned(generator), TypeError, ("a generator", "Return a list")),
    "asynchronous": (lambda: interned(asynchronous), TypeError, ("an asynchronous generator",)),
    "coroutine": (lambda: interned(coroutine), TypeError, ("a coroutine", "its second caller")),
    "patch, no callable": (
        lambda: patch("jax", "__version__"),
        TypeError,
        ("jax.__version__ is", "of type str", "makes a wrapper"),
    ),
    "patch, no module": (
        lambda: patch(3, "name"),  # type: ignore[arg-type]
        TypeError,
        ("expects a module or its name", "got 3 of type int"),
    ),
    "staged": (
        lambda: staged(3),  # type: ignore[arg-type]
        TypeError,
        ("a function of functions", "got 3 of type int"),
    ),
    "staged, no signature": (
        lambda: staged(max, static_argnames="key"),
        ValueError,
        ("static_argnames=('key',)", "built-in", "wrap it in a function"),
    ),
    "jit": (
        lambda: fnintern.jit(3),  # type: ignore[call-overload]
        TypeError,
        ("expects a function", "got 3 of type int"),
    ),
    "cache_info": (
        lambda: fnintern.cache_info(function),
        TypeError,
        ("decorated by fnintern.interned", "decorate it"),
    ),
    "explain with arguments": (
        lambda: explain(function, abs),
        TypeError,
        ("decorated by fnintern.interned", "decorate it"),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_error_says_what_to_do(name: str) -> None:
    call, kind, parts = REFUSED[name]
    with pytest.raises(kind) as caught:
        call()
    for part in parts:
        assert part in str(caught.value)


#: What is explained, whether it is interned, and what the text says.
EXPLAINED: dict[str, tuple[Any, bool, tuple[str, ...]]] = {
    "number": (3, False, ("is an int: there is nothing to call", "pass the function itself")),
    "text": ("train:f", False, ("python -m fnintern explain train:f",)),
    "array": (jax.numpy.ones(3), False, ("there is nothing to call",)),
    "method of a class": (Method.apply, True, ("self is a parameter", "Method(...).apply")),
    "bound method": (Method().apply, True, ("__self__ is a Method",)),
    "slotted": (Slotted(), True, ('by="object" bypasses it', '"__weakref__"')),
    "name that fails": (Named(), True, ("Named: interned",)),
    "key that fails": (Unread(), False, ("reading it failed (AttributeError",)),
    "capture whose key fails": (
        (lambda unread: lambda x: unread(x))(Unread()),
        False,
        ("reading it failed (AttributeError",),
    ),
    "factory": (interned(function), True, ("explain(function, ...) explains a call",)),
    "operation": (lax.scan, True, ("explain(scan, ...) explains a call",)),
}


@pytest.mark.parametrize("name", EXPLAINED)
def test_explain_answers_for_anything(name: str) -> None:
    subject, is_interned, parts = EXPLAINED[name]
    explained = explain(subject)
    assert explained.interned is is_interned
    for part in parts:
        assert part in str(explained)


def test_a_bound_method_is_told_from_one_of_a_class() -> None:
    assert "self is a parameter" not in str(explain(Method().apply))
    assert "bypasses" not in str(explain(function))


@pytest.mark.parametrize("by", ["object", "value"])
def test_explain_of_a_call_never_raises_for_what_it_cannot_read(by: Any) -> None:
    wrap = interned(lambda f: [f], by=by)
    said = {id(explain(wrap, Unread())): explain(wrap, f) for f in (function, Slotted(), Unread())}
    assert [str(explanation).count("\n") for explanation in said.values()]
    assert explain(wrap, function).interned
    assert wrap.cache_info().misses == 0


def test_explain_of_a_slotted_object_is_what_interned_does() -> None:
    wrap = interned(lambda f: [f])
    explained = explain(wrap, Slotted())
    assert not explained.interned
    assert explained.obstacles[0].remedy == 'add "__weakref__" to the __slots__ of Slotted'
    wrap(Slotted())
    assert wrap.cache_info().bypassed == 1


def test_explain_of_a_staged_call() -> None:
    xs = jax.numpy.arange(3.0)
    explained = explain(lax.scan, lambda carry, x: (carry + x, None), 0.0, xs)
    assert explained.converted
    assert "arrays are operands" in str(explained)
    explained = explain(lax.map, lambda x: x, xs)
    assert explained.subject == "map"


def test_repr_of_a_staged_operation_is_its_name() -> None:
    assert repr(lax.scan) == "<staged jax.lax.scan>"
    assert repr(staged(function)).startswith("<staged test_messages.function")


WITHOUT_JAX = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("jax", "jaxlib", "flax"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import fnintern
for what in ("jit(abs)", "lax", "staged(abs)", "patch_jax()", "patch_flax()", "explain(abs)"):
    try:
        print(eval(f"fnintern.{what}"))
    except ImportError as error:
        print(error)
"""


def test_without_jax_each_says_how_to_install_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_JAX], capture_output=True, text=True, check=True
    )
    jit, lax, staged, patch_jax, patch_flax, explained, *_ = done.stdout.splitlines()
    for what, line in zip(
        ("fnintern.jit", "fnintern.lax", "fnintern.staged", "patch_jax()"),
        (jit, lax, staged, patch_jax),
        strict=True,
    ):
        assert line.startswith(f"{what} needs jax, which could not be imported")
        assert "Install it from the package index, with: pip install jax;" in line
    assert "with: pip install flax;" in patch_flax
    assert explained == "abs: interned, keyed by the value of all its captures"

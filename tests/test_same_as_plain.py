"""S4: a call under fnintern is the plain call, in all that a caller can see of it.

Each case of :mod:`plain_cases` is made three times plainly and three times under fnintern, with
inputs that are built anew. The first call makes the program. The second and the third have equal
functions over other arrays, so that hits are compared as well.
"""

from __future__ import annotations

import contextlib
import functools
import re
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

import fnintern
from fnintern import lax as converted
from plain_cases import CASES, Case, Config, Node, Side

#: The number of calls of each case.
CALLS = 3

#: Values without an identity that a program could rely on.
_INTERCHANGEABLE = (bool, int, float, complex, str, bytes, type(None))


@attrs.frozen
class Outcome:
    """All that a caller can see of a call, without the objects themselves."""

    result: Any
    error: Any
    printed: str
    warned: tuple[tuple[str, str], ...]


def _normal(text: str) -> str:
    """A text without addresses of memory."""
    return re.sub(r"0x[0-9a-fA-F]+", "0x...", text)


def _position(value: Any, known: list[Any]) -> int | None:
    """Which of the objects that were given to the call this is."""
    if isinstance(value, _INTERCHANGEABLE) or (type(value) is tuple and not value):
        return None
    return next((i for i, other in enumerate(known) if other is value), None)


def _array(value: Any) -> tuple[Any, ...]:
    """Everything about an array: bits, dtype, weak type, and where it is."""
    if isinstance(value, jax.core.Tracer):
        return "tracer", _normal(str(value))
    if not isinstance(value, jax.Array):
        return type(value), str(value.dtype), value.shape, value.tobytes(), str(value)
    if value.is_deleted():
        return "deleted", str(value.dtype), value.shape
    place = repr(value.sharding), sorted(map(str, value.devices())), value.committed
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        bits, weak = np.asarray(jax.random.key_data(value)), None
    else:
        bits, weak = np.asarray(value), value.weak_type
    return "array", str(value.dtype), value.shape, weak, place, bits.tobytes(), str(bits)


def _described(value: Any, known: list[Any]) -> Any:
    """A leaf of a result, or data that a node of it holds."""
    position = _position(value, known)
    if position is not None:
        return "given", position
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        return _array(value)
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
        return type(value), value.__module__, value.__qualname__
    if isinstance(value, functools.partial):
        parts = value.func, value.args, tuple(value.keywords.items())
        return type(value), _described(parts, known)
    if isinstance(value, dict):
        items = [(_described(key, known), _described(v, known)) for key, v in value.items()]
        return type(value), items
    if isinstance(value, tuple | list):
        return type(value), [_described(item, known) for item in value]
    return type(value), _normal(repr(value))


def _structure(treedef: Any, known: list[Any]) -> Any:
    """The types of the nodes of a tree, and the data that they hold."""
    node = treedef.node_data()
    if node is None:
        return "leaf"
    kind, data = node
    children = [_structure(child, known) for child in treedef.children()]
    return kind, _described(data, known), children


def _tree(value: Any, known: list[Any]) -> Any:
    leaves, treedef = jax.tree.flatten(value)
    whole = None if len(leaves) == 1 and leaves[0] is value else _position(value, known)
    parts = [_described(leaf, known) for leaf in leaves]
    return {"whole": whole, "structure": _structure(treedef, known), "leaves": parts}


def _failure(error: BaseException, known: list[Any]) -> Any:
    """Type, text and notes of an error, and whether it is one that the call was given."""
    notes = [_normal(note) for note in getattr(error, "__notes__", ())]
    given = next((i for i, other in enumerate(known) if other is error), None)
    return type(error), _normal(str(error)), notes, given


def observed(case: Case, side: Side, printed: Callable[[], str]) -> Outcome:
    """What one call does."""
    result = failure = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = _tree(case.run(side), side.known)
        except BaseException as error:
            failure = _failure(error, side.known)
        jax.effects_barrier()
    warned = tuple((w.category.__name__, _normal(str(w.message))) for w in caught)
    return Outcome(result, failure, _normal(printed()), warned)


@contextlib.contextmanager
def _under_fnintern(case: Case) -> Iterator[tuple[Any, Any]]:
    """The operations of fnintern, without a program yet."""
    with fnintern.patch_jax() if case.patched else contextlib.nullcontext():
        lax: Any = jax.lax if case.patched else converted
        for name in converted.__all__:
            getattr(getattr(lax, name), "cache_clear", int)()
        yield lax, fnintern.jit


#: Case -> what its plain calls do. The self check has them from the comparison.
_plain: dict[str, list[Outcome]] = {}


def plain(case: Case, printed: Callable[[], str]) -> list[Outcome]:
    """What the plain calls of a case do."""
    if case.name not in _plain:
        sides = [Side(jax.lax, jax.jit, n) for n in range(CALLS)]
        _plain[case.name] = [observed(case, side, printed) for side in sides]
    return _plain[case.name]


def _fewer(found: Any, expected: Any) -> bool:
    """Each line of the one is a line of the other, in the same order."""
    rest = iter(expected)
    return all(line in rest for line in found)


def check(case: Case, n: int, found: Outcome, expected: Outcome) -> None:
    """The one call is the other. Effects of a trace may be missing after the first call (S6)."""
    call = f"call {n + 1} of {case.name!r}"
    assert found.error == expected.error, call
    for part in ("whole", "structure", "leaves"):
        ours, theirs = ((o.result or {}).get(part) for o in (found, expected))
        if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
            for i, (leaf, other) in enumerate(zip(ours, theirs, strict=True)):
                assert leaf == other, f"leaf {i} of the result of {call}"
        assert ours == theirs, f"{part} of the result of {call}"
    if n == 0 or case.always:
        assert found.printed == expected.printed, call
        assert found.warned == expected.warned, call
    else:
        assert _fewer(found.printed.splitlines(), expected.printed.splitlines()), call
        assert _fewer(found.warned, expected.warned), call


@pytest.fixture(autouse=True, scope="module")
def quick_compilations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """XLA does little, and not twice: each plain call compiles a program that was there before."""
    chosen = {
        "jax_disable_most_optimizations": True,
        "jax_compilation_cache_dir": str(tmp_path_factory.mktemp("compiled")),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: jax.config.values[name] for name in chosen}
    for settings in (chosen, before):
        for name, value in settings.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()
        if settings is chosen:
            yield


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    """Reads what was printed since it was read last."""

    def read() -> str:
        output = capsys.readouterr()
        return output.out + output.err

    return read


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_S4_call_is_the_plain_call(case: Case, printed: Callable[[], str]) -> None:
    """Results, errors, output and warnings are those of the plain call, at each of three calls."""
    expected = plain(case, printed)
    with _under_fnintern(case) as (lax, jit):
        found = [observed(case, Side(lax, jit, n), printed) for n in range(CALLS)]
    for n in range(CALLS):
        check(case, n, found[n], expected[n])


@pytest.mark.parametrize("case", list(CASES.values())[::3], ids=list(CASES)[::3])
def test_comparison_can_hold(case: Case, printed: Callable[[], str]) -> None:
    """A plain call is itself: nothing that is compared differs from run to run. Takes a third."""
    check(case, 0, observed(case, Side(jax.lax, jax.jit, 0), printed), plain(case, printed)[0])


def _shown(make: Callable[[Side], Any], n: int = 0) -> Outcome:
    return observed(Case("made up", make), Side(jax.lax, jax.jit, n), str)


def _fail(error: BaseException) -> Any:
    raise error


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=1)


#: What differs -> two calls that differ in it alone.
DIFFERENT: dict[str, tuple[Callable[[Side], Any], Callable[[Side], Any]]] = {
    "value": (lambda on: jnp.float32(1.0), lambda on: jnp.float32(2.0)),
    "sign of zero": (lambda on: jnp.float32(0.0), lambda on: jnp.float32(-0.0)),
    "dtype": (lambda on: jnp.float32(1.0), lambda on: jnp.int32(1)),
    "shape": (lambda on: jnp.ones(1), lambda on: jnp.ones(())),
    "weak type": (lambda on: jnp.asarray(1.0), lambda on: jnp.float32(1.0)),
    "committed": (lambda on: jnp.ones(1), lambda on: jax.device_put(jnp.ones(1), jax.devices()[0])),
    "kind of array": (lambda on: np.ones(1, np.float32), lambda on: jnp.ones(1)),
    "kind of number": (lambda on: 1, lambda on: 1.0),
    "kind of key": (lambda on: jax.random.key(0), lambda on: jax.random.key(0, impl="rbg")),
    "structure": (lambda on: (1, 2), lambda on: [1, 2]),
    "keys": (lambda on: {"a": 1}, lambda on: {"b": 1}),
    "identity of a leaf": (lambda on: on.keep(jnp.ones(1)), lambda on: +on.keep(jnp.ones(1))),
    "identity of static data": (
        lambda on: Node(1, on.keep(Config())), lambda on: (on.keep(Config()), Node(1, Config()))[1]
    ),
    "static data": (lambda on: Node(1, 1), lambda on: Node(1, True)),
    "error": (lambda on: _fail(ValueError("a")), lambda on: 1),
    "type of an error": (lambda on: _fail(ValueError("a")), lambda on: _fail(TypeError("a"))),
    "text of an error": (lambda on: _fail(ValueError("a")), lambda on: _fail(ValueError("b"))),
    "warning": (lambda on: _warn("a"), lambda on: _warn("b")),
}  # fmt: skip


@pytest.mark.parametrize("what", DIFFERENT)
def test_comparison_can_fail(what: str) -> None:
    """Two calls that differ in one thing alone are told apart, at each call but for warnings."""
    one, other = DIFFERENT[what]
    with pytest.raises(AssertionError):
        check(Case(what, one), 0, _shown(one), _shown(other))
    check(Case(what, one), 0, _shown(one), _shown(one))


def test_comparison_of_output_can_fail(printed: Callable[[], str]) -> None:
    """A print that is missing is seen at the first call, and one too many at each."""
    side = Side(jax.lax, jax.jit, 0)
    once = observed(Case("once", lambda on: print("a")), side, printed)
    never = observed(Case("never", lambda on: None), side, printed)
    case = Case("prints", lambda on: None)
    with pytest.raises(AssertionError):
        check(case, 0, never, once)
    check(case, 1, never, once)  # S6
    with pytest.raises(AssertionError):
        check(case, 1, once, never)
    with pytest.raises(AssertionError):
        check(Case("prints", lambda on: None, always=True), 1, never, once)


def test_there_are_enough_cases() -> None:
    """The tables are what they are taken for."""
    assert len(CASES) >= 300

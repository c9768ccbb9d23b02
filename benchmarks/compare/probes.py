"""The rows of the comparison: each is a question, and the probe that asks one contestant.

A probe runs the contestant and says in a word or two what came of it. :func:`answers` runs all of
them; of a contestant that raises, the answer is what it raised.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import jax
import jax.numpy as jnp
from flax import nnx

from benchmarks.compare.contestants import Contestant, contestants
from benchmarks.counting import count

__all__ = ["ABSENT", "PROBES", "Probe", "answers"]

X = jnp.float32(3.0)
#: How many callables a leak probe drops.
DROPPED = 20

#: The answer where the installed release has no such contestant.
ABSENT = "absent"

#: What the functions below read, and a probe changes.
rate = 2.0


def double(x: Any) -> Any:
    return x * 2.0


def other(x: Any) -> Any:
    return x * 1.0


def scaled(scale: float, x: Any) -> Any:
    return x * scale


def by_rate(x: Any) -> Any:
    return x * rate


class Owner:
    """An object of no library's, with a method."""

    def __init__(self) -> None:
        self.scale = 2.0

    def method(self, x: Any) -> Any:
        return x * self.scale


class Slotted:
    """A callable that takes no weak reference."""

    __slots__ = ()

    def __call__(self, x: Any) -> Any:
        return x * 2.0


class Equal:
    """Callables that are equal to each other and do different things."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __call__(self, x: Any) -> Any:
        return x * self.scale

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal)

    def __hash__(self) -> int:
        return 0


class Unhashable:
    """A callable without a hash."""

    __hash__ = None  # type: ignore[assignment]

    def __call__(self, x: Any) -> Any:
        return x * 2.0


# Does the second call find what the first has traced? -----------------------------------------


def _hits(make: Callable[[], Callable[[], Any]]) -> Callable[[Contestant], str]:
    """``make()`` gives what gives the function, at each call."""

    def probe(contestant: Contestant) -> str:
        function = make()
        traced, compiled = count(lambda: contestant.cond(True, function(), other, X), 2)
        if traced == compiled == 0:
            return "hits"
        return f"{traced:g} traces, {compiled:g} compiled"

    return probe


def _kept(f: Any) -> Callable[[], Callable[[], Any]]:
    return lambda: lambda: f


def _over_a_number() -> Callable[[], Any]:
    scale = 2.0

    def make() -> Any:
        def closure(x: Any) -> Any:
            return x * scale

        return closure

    return make


def _over_an_array() -> Callable[[], Any]:
    array = X + 1.0

    def make() -> Any:
        def closure(x: Any) -> Any:
            return x * array

        return closure

    return make


def _partial() -> Callable[[], Any]:
    return lambda: functools.partial(scaled, 2.0)


def _method() -> Callable[[], Any]:
    owner = Owner()
    return lambda: owner.method


# Is the result that of a fresh trace? ---------------------------------------------------------


def _result(make: Callable[[], tuple[Any, Callable[[], Any]]]) -> Callable[[Contestant], str]:
    """``make()`` gives what gives the function, and what changes its state."""

    def probe(contestant: Contestant) -> str:
        function, change = make()
        for moment in ("wrong from the start", "stale"):
            expected = float(function()(X))
            for _ in range(2):
                if float(contestant.cond(True, function(), other, X)) != expected:
                    return moment
            change()
        return "right"

    return probe


def _changed_method() -> tuple[Any, Callable[[], Any]]:
    owner = Owner()
    return lambda: owner.method, lambda: setattr(owner, "scale", 5.0)


def _changed_global() -> tuple[Any, Callable[[], Any]]:
    global rate
    rate = 2.0

    def change() -> None:
        global rate
        rate = 5.0

    return lambda: by_rate, change


def _changed_cell() -> tuple[Any, Callable[[], Any]]:
    scale = 2.0

    def closure(x: Any) -> Any:
        return x * scale

    def change() -> None:
        nonlocal scale
        scale = 5.0

    return lambda: closure, change


def _changed_list() -> tuple[Any, Callable[[], Any]]:
    scales = [2.0]
    closure = lambda x: x * scales[0]
    return lambda: closure, lambda: scales.__setitem__(0, 5.0)


def _changed_module() -> tuple[Any, Callable[[], Any]]:
    weight = nnx.Param(jnp.float32(2.0))
    closure = lambda x: x * weight[...]
    return lambda: closure, lambda: weight.__setitem__(..., 5.0)


def _equal_not_same() -> tuple[Any, Callable[[], Any]]:
    both = [Equal(2.0), Equal(5.0)]
    return lambda: both[0], both.reverse


def _copied() -> tuple[Any, Callable[[], Any]]:
    def first(x: Any) -> Any:
        return x * 2.0

    functions: list[Any] = [first]

    def change() -> None:
        functions[0] = functools.wraps(first)(lambda x: x * 5.0)

    return lambda: functions[0], change


def _reused_id(contestant: Contestant) -> str:
    """Functions that are made, called and dropped, each where the last one was if that is gone."""
    for number in range(4):

        def closure(x: Any, scale: float = float(number)) -> Any:
            return x * scale

        if float(contestant.cond(True, closure, other, X)) != 3.0 * number:
            return "wrong"
        del closure
        gc.collect()
    return "right"


def _held(contestant: Contestant) -> str:
    """The wrapper, when its caller has dropped the function."""
    assert contestant.memo is not None
    wrapper = contestant.memo(lambda x: x * 2.0, True)
    gc.collect()
    # flax's wrapper returns what it changed, too.
    result = jax.tree.leaves(jax.lax.cond(True, wrapper, wrapper, X))[0]
    return "works" if float(result) == 6.0 else "wrong"


# Who lives on? --------------------------------------------------------------------------------


def _left(make: Callable[[int], tuple[Any, Any]]) -> Callable[[Contestant], str]:
    return lambda contestant: _alive(contestant, make)


def _alive(contestant: Contestant, make: Callable[[int], tuple[Any, Any]]) -> str:
    references: list[weakref.ref[Any]] = []

    def call(number: int) -> None:
        function, captured = make(number)
        for thing in (function, captured):
            if not hasattr(thing, "__self__"):  # the object of a method, rather than the method
                references.append(weakref.ref(thing))
        contestant.cond(True, function, other, X)

    for number in range(DROPPED):
        call(number)
    gc.collect()
    alive = sum(reference() is not None for reference in references)
    return f"{alive} of {len(references)} alive"


def _lambda_and_array(number: int) -> tuple[Any, Any]:
    array = X + number
    return lambda x: x * array, array


def _method_and_owner(number: int) -> tuple[Any, Any]:
    owner = Owner()
    return owner.method, owner


def _lambda_and_module(number: int) -> tuple[Any, Any]:
    model = nnx.Linear(1, 1, rngs=nnx.Rngs(0))
    return lambda x: x * model.bias[0], model


def _tracer(contestant: Contestant) -> str:
    """A function that captures a tracer, under ``jit``."""

    def outer(x: Any) -> Any:
        return contestant.cond(x > 0, lambda v: v + x, lambda v: v - x, x)

    try:
        with jax.checking_leaks():
            jax.jit(outer)(X)
    except Exception as error:
        if "leak" in str(error).lower():
            return "leaks"
        raise
    return "freed"


# What is one call? ----------------------------------------------------------------------------


def _spelled(*spellings: Callable[[Any], Any]) -> Callable[[Contestant], str]:
    def probe(contestant: Contestant) -> str:
        wrappers = [spell(contestant.memo) for spell in spellings]
        number = len({id(wrapper) for wrapper in wrappers})
        return "one wrapper" if number == 1 else f"{number} wrappers"

    return probe


def _positional(memo: Any) -> Any:
    return memo(double, True)


def _keyword(memo: Any) -> Any:
    return memo(double, graph=True)


def _both(memo: Any) -> Any:
    return memo(f=double, graph=True)


def _swapped(memo: Any) -> Any:
    return memo(graph=True, f=double)


def _default(contestant: Contestant) -> str:
    memo = contestant.memo
    assert memo is not None
    try:
        short = memo(double)
    except TypeError:
        return "has no default"
    return "one wrapper" if short is memo(double, True) else "2 wrappers"


def _apart(*settings: Any) -> Callable[[Contestant], str]:
    """Whether each setting gets a wrapper that was made with it, by ``repr``."""

    def probe(contestant: Contestant) -> str:
        assert contestant.memo is not None
        wrappers = [contestant.memo(double, setting) for setting in settings]
        right = [
            repr(wrapper.graph) == repr(setting)
            for wrapper, setting in zip(wrappers, settings, strict=True)
        ]
        return "kept apart" if all(right) else f"{right.count(False)} of {len(right)} wrong"

    return probe


def _settled(f: Any, setting: Any) -> Callable[[Contestant], str]:
    """What comes of a call that cannot be memoized."""

    def probe(contestant: Contestant) -> str:
        assert contestant.memo is not None
        first, second = contestant.memo(f, setting), contestant.memo(f, setting)
        return "one wrapper" if first is second else "built afresh"

    return probe


def _edited_list(contestant: Contestant) -> str:
    """Whether a list that its owner edits reaches a wrapper that was made for what was in it."""
    assert contestant.memo is not None
    settings = [1]
    kept = contestant.memo(double, settings)
    settings.append(2)
    later = contestant.memo(double, [1])
    del kept
    return "right" if later.graph == [1] else "wrong"


# Threads --------------------------------------------------------------------------------------


@contextlib.contextmanager
def _meeting_in_the_factory() -> Iterator[None]:
    """Two threads in the factory wait for each other there, where it calls ``update_wrapper``."""
    barrier, original = threading.Barrier(2), functools.update_wrapper

    def update_wrapper(*args: Any, **kwargs: Any) -> Any:
        # Alone in the factory, as where a lock is held meanwhile, nobody comes.
        with contextlib.suppress(threading.BrokenBarrierError):
            barrier.wait(1.0)
        return original(*args, **kwargs)

    functools.update_wrapper = update_wrapper
    try:
        yield
    finally:
        functools.update_wrapper = original


def _race(contestant: Contestant) -> str:
    memo, wrappers = contestant.memo, []
    assert memo is not None
    threads = [threading.Thread(target=lambda: wrappers.append(memo(raced, True))) for _ in "12"]

    def raced(x: Any) -> Any:
        return x

    with _meeting_in_the_factory():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    if len(wrappers) != len(threads):
        return "hangs or raises"
    return "one wrapper" if wrappers[0] is wrappers[1] else "2 wrappers"


def _other_thread(contestant: Contestant) -> str:
    """Whether one thread finds what another has made."""
    memo, wrappers = contestant.memo, []
    assert memo is not None
    wrappers.append(memo(double, True))
    thread = threading.Thread(target=lambda: wrappers.append(memo(double, True)))
    thread.start()
    thread.join(30)
    return "one wrapper" if len(wrappers) == 2 and wrappers[0] is wrappers[1] else "2 wrappers"


# The rows -------------------------------------------------------------------------------------


@attrs.frozen
class Probe:
    """A row: in which table it is, the question, and what answers it.

    Attributes:
        law: the law of ``docs/laws.md`` that it is about, if any.
        good: the answers that keep it.
    """

    table: str
    question: str
    law: str
    good: tuple[str, ...]
    ask: Callable[[Contestant], str] = attrs.field(repr=False)


HITS = "Does the second call find what the first has traced?"
RESULTS = "Is the result that of a fresh trace?"
LIFE = f"Who lives on, when {DROPPED} callables were called and dropped?"
CALLS = "Which calls are one?"
THREADS = "Do threads get one object?"


def _rows(
    table: str, good: tuple[str, ...], *rows: tuple[str, str, Callable[[Contestant], str]]
) -> list[Probe]:
    return [Probe(table, question, law, good, ask) for law, question, ask in rows]


#: All rows, in the order of the page.
PROBES = (
    *_rows(
        HITS,
        ("hits",),
        ("I1", "a module-level `def`", _hits(_kept(double))),
        ("", "a `lambda` made again for each call", _hits(lambda: lambda: lambda x: x * 2)),
        ("", "a closure over a number, made again", _hits(_over_a_number)),
        ("", "a closure over an array, made again", _hits(_over_an_array)),
        ("I3", "a `functools.partial` made again", _hits(_partial)),
        ("I3", "a bound method, looked up again", _hits(_method)),
        ("I3", "a callable object, the same", _hits(_kept(Equal(2.0)))),
        ("I5", "a callable object that takes no weak reference", _hits(_kept(Slotted()))),
    ),
    *_rows(
        RESULTS,
        ("right", "works"),
        ("S1", "a method, after an attribute of its object changed", _result(_changed_method)),
        ("S1", "a function, after a global that it reads changed", _result(_changed_global)),
        ("S1", "a closure, after a variable that it reads changed", _result(_changed_cell)),
        ("S1", "a closure, after a list in it was edited", _result(_changed_list)),
        ("S1", "a closure, after a weight of a model in it changed", _result(_changed_module)),
        ("I3", "two callables that are equal, not the same", _result(_equal_not_same)),
        ("I4", "a function with the `__dict__` of another, by `functools.wraps`", _result(_copied)),
        ("I4", "functions made and dropped, so that an `id()` is used again", _reused_id),
        ("L2", "a wrapper that outlives its function", _held),
    ),
    *_rows(
        LIFE,
        (f"0 of {DROPPED} alive", f"0 of {2 * DROPPED} alive", "freed"),
        ("L1", "lambdas, and the arrays that they capture", _left(_lambda_and_array)),
        ("L1", "lambdas, and the models that they capture", _left(_lambda_and_module)),
        ("L1", "the objects of bound methods", _left(_method_and_owner)),
        ("S3", "a tracer captured under `jit`, by `jax.checking_leaks`", _tracer),
    ),
    *_rows(
        CALLS,
        ("one wrapper", "has no default"),
        ("I2", "`memo(f, True)` and `memo(f, graph=True)`", _spelled(_positional, _keyword)),
        ("I2", "`memo(f=f, graph=True)` and `memo(graph=True, f=f)`", _spelled(_both, _swapped)),
        ("I2", "`memo(f)` and `memo(f, True)`, the default", _default),
    ),
    *_rows(
        CALLS,
        ("kept apart",),
        ("I3", "`memo(f, 1)`, `memo(f, 1.0)` and `memo(f, True)`", _apart(1, 1.0, True)),
        ("I3", "the same with `(1,)`, `(1.0,)` and `(True,)`", _apart((1,), (1.0,), (True,))),
        ("I3", "the same with `0.0` and `-0.0`", _apart(0.0, -0.0)),
    ),
    *_rows(
        CALLS,
        ("one wrapper", "built afresh"),
        ("I5", "a setting without a hash: `memo(f, [1])`", _settled(double, [1])),
        ("I5", "a callable without a hash", _settled(Unhashable(), True)),
    ),
    *_rows(
        CALLS,
        ("right",),
        ("I4", "`memo(f, [1])` again, after the first list was edited", _edited_list),
    ),
    *_rows(
        THREADS,
        ("one wrapper",),
        ("C1", "two that are in the factory for one key at once", _race),
        ("C1", "one after the other", _other_thread),
    ),
)


def answers() -> dict[str, dict[str, str]]:
    """Question -> contestant -> what came of it. Each cell has a store of its own, empty before."""
    gc.collect()
    gc.freeze()  # what was imported, which the probes' collections need not look through
    found: dict[str, dict[str, str]] = {}
    for probe in PROBES:
        cells = found.setdefault(probe.question, {})
        for contestant in contestants():
            cells[contestant.name] = answer(probe, contestant)
    return found


def answer(probe: Probe, contestant: Contestant) -> str:
    """One cell."""
    if contestant.memo is None:
        return ABSENT
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # flax's, about modes that it will drop
            return probe.ask(contestant)
    except Exception as error:
        return f"raises `{type(error).__name__}`"

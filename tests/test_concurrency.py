"""Laws C1 and C2: threads, re-entrance, collections at any point, and fork."""

from __future__ import annotations

import functools
import gc
import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from factories import factories, make_function_factory
from fnintern import CacheInfo, interned
from fnintern.lifetime import stores
from kinds import Case, Kind, Plain, kinds, new_array

THREADS = 8


def race(work: Callable[[int], None], threads: int = THREADS) -> None:
    """Runs ``work(i)`` in threads that start together; their errors are raised here."""
    barrier, errors = threading.Barrier(threads), []

    def run(i: int) -> None:
        try:
            barrier.wait(30)
            work(i)
        except BaseException as error:
            errors.append(error)

    started = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join(60)
        assert not thread.is_alive(), "deadlock"
    if errors:
        raise errors[0]


@contextmanager
def collecting() -> Iterator[None]:
    """The collector runs in another thread all the while."""
    stop, errors = threading.Event(), []

    def run() -> None:
        try:
            while not stop.is_set():
                gc.collect()
                gc.collect(1)
                time.sleep(0)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
    assert not thread.is_alive()
    assert errors == []


def test_race_raises_at_join() -> None:
    """What the tests below rest on."""
    with pytest.raises(ZeroDivisionError):
        race(lambda i: print(1 // i))


@pytest.mark.usefixtures("switching")
class TestThreads:
    @kinds
    @factories
    def test_C1_one_object_for_a_key(self, make_factory: Any, kind: Kind) -> None:
        """All threads get one object, and each call is counted once."""
        factory, case = make_factory(), kind.make(new_array())
        rounds: list[list[Any]] = [[] for _ in range(THREADS)]

        def work(i: int) -> None:
            for scale in range(20):
                rounds[i].append(factory(case.fetch(), scale))

        race(work)
        for of_one_scale in zip(*rounds, strict=True):
            assert len({id(w) for w in of_one_scale}) == 1
        info = factory.cache_info()
        assert info.hits + info.misses == THREADS * 20
        assert 20 <= info.misses < THREADS * 20
        assert (info.bypassed, info.currsize) == (0, 20)

    def test_C1_with_a_slow_factory(self) -> None:
        """Every thread is inside the factory before one of them stores: it runs under no lock."""
        inside = threading.Barrier(THREADS)

        @interned
        def wrap(f: Any) -> Any:
            inside.wait(30)
            return [f]

        found: list[Any] = []
        owner = Plain(1.0)
        race(lambda i: found.append(wrap(owner.method)))
        assert len(found) == THREADS
        assert len({id(w) for w in found}) == 1
        assert wrap.cache_info() == CacheInfo(0, THREADS, 0, 1, 128)

    def test_C1_collector_in_another_thread(self) -> None:
        """Wrappers in use keep working while tables are made weak and strong again."""
        wrap = make_function_factory()

        def work(i: int) -> None:
            for n in range(150):
                owner = Plain(n)
                wrapper = wrap(owner.method)
                again = wrap(owner.method)
                assert again is wrapper
                del owner, again
                assert wrapper(1) == n + 1

        with collecting():
            race(work, 4)

    def test_C1_shared_owner_with_a_collector(self) -> None:
        """The wrapper is dropped and found again, by many threads, between collections."""
        owner, wrap = Plain(1), make_function_factory()
        numbers: set[int] = set()

        def work(i: int) -> None:
            for _ in range(300):
                wrapper = wrap(owner.method)
                numbers.add(id(wrapper))
                assert wrapper(1) == 2

        with collecting():
            race(work, 4)
        assert len(numbers) == 1
        assert wrap.cache_info().misses <= 4

    def test_C1_eviction(self) -> None:
        wrap = make_function_factory(maxsize=4)

        def work(i: int) -> None:
            for n in range(300):
                assert wrap(race, n % 7).__wrapped__ is race

        race(work)
        assert wrap.cache_info().currsize <= 4

    def test_C1_clear_while_in_use(self) -> None:
        owner, wrap = Plain(1), make_function_factory()

        def work(i: int) -> None:
            for n in range(200):
                if i == 0:
                    wrap.cache_clear()
                    wrap.cache_info()
                else:
                    assert wrap(owner.method, n % 5)(1) == (n % 5) * 2
                    wrap(race, n % 5)

        race(work)
        wrap.cache_clear()
        gc.collect()
        assert wrap.cache_info() == CacheInfo(0, 0, 0, 0, 128)

    def test_C1_copied_stores(self) -> None:
        """A function that carries another's store gets its own, one for all threads."""
        wrap = make_function_factory()
        for _ in range(50):
            f, g = (lambda x: 1), (lambda x: 2)
            wrap(f)
            functools.update_wrapper(g, f)
            found: list[Any] = []
            race(lambda i: found.append(wrap(g)), 4)
            assert len({id(w) for w in found}) == 1
            assert (found[0](0), wrap(f)(0)) == (2, 1)

    def test_C1_hit_takes_no_lock(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Counted:
            taken = 0

            def __enter__(self) -> None:
                self.taken += 1

            def __exit__(self, *exc_info: object) -> None:
                pass

        lock = Counted()
        monkeypatch.setattr(stores, "_replacing", lock)
        wrap, owner = make_function_factory(), Plain(1.0)
        for _ in range(3):
            wrap(race)
            wrap(owner.method)
            wrap(functools.partial(race, threads=1))
        assert lock.taken == 0
        copied = functools.wraps(race)(lambda: None)
        wrap(copied)
        assert lock.taken == 1  # the check can fail


class TestReentrance:
    @kinds
    def test_C2_factory_calls_itself_on_the_same_key(self, kind: Kind) -> None:
        """The inner call stores first, and both get its object."""
        case, depth = kind.make(new_array()), 0
        inner: list[Any] = []

        @interned
        def wrap(f: Any) -> Any:
            nonlocal depth
            depth += 1
            if depth < 4:
                inner.append(wrap(case.fetch()))
            return [f, depth]

        outer = wrap(case.fetch())
        assert len(inner) == 3
        assert all(x is outer for x in inner)
        assert wrap(case.fetch()) is outer
        assert wrap.cache_info().misses == 4

    def test_C2_factory_calls_another_and_clears(self) -> None:
        other = make_function_factory()

        @interned
        def wrap(f: Any) -> Any:
            wrap.cache_clear()
            other.cache_clear()
            return [other(f)]

        first = wrap(race)
        assert wrap(race)[0] is other(race)
        assert first[0].__wrapped__ is race

    @kinds
    @factories
    def test_C2_collection_inside_the_factory(self, make_factory: Any, kind: Kind) -> None:
        bare, case = make_factory(), kind.make(new_array())

        @interned
        def wrap(f: Any) -> Any:
            gc.collect()
            inner = bare(f)
            gc.collect()
            return inner

        wrapper = wrap(case.fetch())
        gc.collect()
        assert wrap(case.fetch()) is wrapper
        assert wrapper(4.0) == case.fetch()(4.0)
        watched = case.watched
        del case, wrapper
        gc.collect()
        assert [ref() for ref in watched if ref() is not None] == []

    @pytest.mark.usefixtures("threshold")
    @pytest.mark.parametrize("generations", [(1, 1), (2, 2), (10, 10)])
    def test_C2_collection_at_every_threshold(self, generations: tuple[int, int]) -> None:
        """Thresholds from 1 to 99 put a collection between any two allocations."""
        wrap = make_function_factory()
        for threshold in range(1, 100):
            gc.set_threshold(threshold, *generations)
            owner = Plain(threshold)
            f = lambda x, n=threshold: x + n
            held = [wrap(owner.method), wrap(owner), wrap(f), wrap(functools.partial(f))]
            found = [wrap(owner.method), wrap(owner), wrap(f), wrap(functools.partial(f))]
            assert all(a is b for a, b in zip(held, found, strict=True))
            assert [w(1) for w in held] == [threshold + 1] * 4

    def test_C2_destructor_calls_the_factory(self) -> None:
        wrap, calls = make_function_factory(), []

        class Last(Plain):
            def __del__(self) -> None:
                calls.append(wrap(self.method)(1))
                calls.append(wrap(race) is wrap(race))

        for _ in range(20):
            last = Last(1)
            wrap(last.method)
            wrap(lambda last=last: last)
            last.array = 2
            del last
        gc.collect()
        assert calls == [3, True] * 20

    def test_C2_weakref_callback_calls_the_factory(self) -> None:
        wrap, other, calls, references = make_function_factory(), Plain(1), [], []

        def callback(ref: object) -> None:
            calls.append(wrap(other.method)(1))
            wrap(lambda: None)

        for i in range(20):
            owner = Plain(1)
            references += [weakref.ref(owner, callback), weakref.ref(wrap(owner.method), callback)]
            owner.array = wrap(owner) if i % 2 else owner
            wrap(owner.method, 2)
            del owner
        gc.collect()
        assert calls == [2] * 40

    def test_C2_evicted_wrapper_calls_the_factory_as_it_dies(self) -> None:
        class Wrapper:
            def __init__(self, n: int) -> None:
                self.n = n

            def __del__(self) -> None:
                died.append(self.n)
                if self.n < 5:
                    wrap(race, self.n + 100)

        died: list[int] = []
        wrap = interned(lambda f, n: Wrapper(n), maxsize=3)
        for n in range(10):
            wrap(race, n)
        assert wrap.cache_info().currsize == 3
        assert set(range(5)) <= set(died)
        wrap.cache_clear()
        gc.collect()
        assert wrap.cache_info().currsize == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
class TestFork:
    def fork(self, work: Callable[[], None]) -> None:
        """Runs ``work`` in a child; a hanging one is ended by an alarm."""
        import signal

        with warnings.catch_warnings():
            # CPython 3.12+ warns of fork in a process with threads, and so does jax; the child
            # here calls neither, and that it works in spite of threads is what is tested.
            warnings.filterwarnings("ignore", message=r".*fork\(\)", category=DeprecationWarning)
            warnings.filterwarnings("ignore", message=r".*fork\(\)", category=RuntimeWarning)
            child = os.fork()
        if child == 0:
            code = 1
            try:
                signal.alarm(30)
                work()
                code = 0
            except BaseException as error:
                sys.__stderr__ and print(repr(error), file=sys.__stderr__)
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    def test_C2_child_finds_what_the_parent_stored(self) -> None:
        wrap, owner = make_function_factory(), Plain(1)
        first, second = wrap(owner.method), wrap(race)

        def work() -> None:
            assert wrap(owner.method) is first
            assert wrap(race) is second
            gc.collect()
            assert wrap(Plain(2).method)(1) == 3
            assert wrap(lambda x: x)(1) == 1

        self.fork(work)
        assert wrap(owner.method) is first

    def test_C2_child_works_when_a_thread_held_the_lock(self) -> None:
        """The lock is held by a thread that the child does not have."""
        wrap = make_function_factory()
        held, done = threading.Event(), threading.Event()

        def hold() -> None:
            with stores._replacing:
                held.set()
                done.wait(60)

        thread = threading.Thread(target=hold, daemon=True)
        thread.start()
        assert held.wait(30)
        f, g = (lambda x: 1), (lambda x: 2)
        wrap(f)
        functools.update_wrapper(g, f)

        def work() -> None:
            assert wrap(g)(0) == 2

        try:
            self.fork(work)
        finally:
            done.set()
            thread.join(30)

    def test_C2_a_failing_child_is_seen(self) -> None:
        """What the tests above rest on."""
        with pytest.raises(AssertionError):
            self.fork(lambda: sys.exit(3))


def test_case_is_shared_between_threads() -> None:
    """Spelling a callable in several threads is the tests' own business: it works."""
    case = Case(lambda: race)
    race(lambda i: case.fetch())

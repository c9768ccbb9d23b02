"""``patch``: all or nothing, and back to the very object."""

from __future__ import annotations

import os
import threading
import types
from collections.abc import Callable
from typing import Any

import pytest

import fnintern
from fnintern.patches import patching
from fnintern.patches.patching import Site, apply, intern_attribute
from test_concurrency import race


def function(x: Any) -> Any:
    return x


class Wrapper:
    def __init__(self, f: Any) -> None:
        self.f = f


@pytest.fixture
def library() -> Any:
    module: Any = types.ModuleType("library")
    module.wrap = lambda f: [f]
    module.other = lambda f: (f, [])
    module.Wrapper = Wrapper
    return module


class TestPatch:
    def test_interns_and_reverts_to_the_identical_object(self, library: Any) -> None:
        before = dict(vars(library))
        patch = fnintern.patch(library, "wrap")
        assert library.wrap(function) is library.wrap(function)
        assert library.wrap is not before["wrap"]
        patch.revert()
        assert vars(library) == before
        assert library.wrap is before["wrap"]
        assert library.wrap(function) is not library.wrap(function)

    def test_class_is_replaced_by_a_subclass(self, library: Any) -> None:
        with fnintern.patch(library, "Wrapper"):
            one = library.Wrapper(function)
            assert library.Wrapper(f=function) is one
            assert isinstance(one, Wrapper)
            assert issubclass(library.Wrapper, Wrapper)
            assert library.Wrapper.__qualname__ == "Wrapper"
            assert library.Wrapper.__module__ == __name__
            assert set(vars(one)) == {"f"}
            assert Wrapper(function) is not one
        assert library.Wrapper is Wrapper

    def test_module_by_name(self) -> None:
        import json

        dumps = json.dumps
        with fnintern.patch("json", "dumps") as patch:
            assert patch.report == {"json.dumps": "patched"}
            assert json.dumps is not dumps
        assert json.dumps is dumps

    def test_idempotent(self, library: Any) -> None:
        before = library.wrap
        patch = fnintern.patch(library, "wrap")
        inside = library.wrap
        assert fnintern.patch(library, "wrap") is patch
        assert library.wrap is inside
        patch.revert()
        assert library.wrap is before
        patch.revert()
        assert library.wrap is before

    def test_applied_again_after_revert(self, library: Any) -> None:
        first = fnintern.patch(library, "wrap")
        first.revert()
        with fnintern.patch(library, "wrap") as second:
            assert second is not first
            assert library.wrap(function) is library.wrap(function)
            first.revert()  # of no effect on the second
            assert second.report == {"library.wrap": "patched"}

    def test_no_such_attribute(self, library: Any) -> None:
        before = dict(vars(library))
        with pytest.raises(AttributeError, match="'library' has no attribute 'nothing'") as caught:
            fnintern.patch(library, "nothing")
        assert "name the module whose code looks the wrapper up" in str(caught.value)
        assert vars(library) == before

    def test_not_callable(self, library: Any) -> None:
        library.number = 3
        with pytest.raises(TypeError, match=r"library\.number is 3 of type int"):
            fnintern.patch(library, "number")
        assert library.number == 3

    def test_no_such_module(self) -> None:
        with pytest.raises(ModuleNotFoundError, match="no_such_module"):
            fnintern.patch("no_such_module", "wrap")


class TestReport:
    def test_patched_then_reverted(self, library: Any) -> None:
        patch = fnintern.patch(library, "wrap")
        assert patch.report == {"library.wrap": "patched"}
        assert repr(patch) == "<fnintern.Patch {'library.wrap': 'patched'}>"
        patch.revert()
        assert patch.report == {"library.wrap": "reverted"}

    def test_absent(self, library: Any) -> None:
        sites = [Site(library, name, intern_attribute("object")) for name in ("wrap", "newer")]
        with apply("some", sites) as patch:
            assert patch.report == {
                "library.wrap": "patched",
                "library.newer": "absent in this release",
            }
        assert not hasattr(library, "newer")
        assert patch.report["library.newer"] == "absent in this release"

    def test_reverted_by_somebody_else(self, library: Any) -> None:
        patch, theirs = fnintern.patch(library, "wrap"), lambda f: f
        library.wrap = theirs
        assert patch.report == {"library.wrap": "already reverted by somebody else"}
        patch.revert()
        assert library.wrap is theirs

    def test_deleted_by_somebody_else(self, library: Any) -> None:
        patch = fnintern.patch(library, "wrap")
        del library.wrap
        assert patch.report == {"library.wrap": "already reverted by somebody else"}
        patch.revert()
        assert not hasattr(library, "wrap")

    def test_applied_again_after_somebody_else_reverted(self, library: Any) -> None:
        before = library.wrap
        first = fnintern.patch(library, "wrap")
        library.wrap = before
        with fnintern.patch(library, "wrap") as second:
            assert second is not first
            assert library.wrap(function) is library.wrap(function)
        assert library.wrap is before
        first.revert()
        assert library.wrap is before

    def test_covered_by_a_later_patch_is_still_patched(self, library: Any) -> None:
        with fnintern.patch(library, "wrap") as lower:
            site = Site(library, "wrap", intern_attribute("object"))
            with apply("upper", [site]) as upper:
                assert lower.report == upper.report == {"library.wrap": "patched"}
                assert fnintern.patch(library, "wrap") is lower
                lower._calls -= 1


class TestNesting:
    def test_context_manager(self, library: Any) -> None:
        before = library.wrap
        with pytest.raises(KeyError), fnintern.patch(library, "wrap"):
            raise KeyError
        assert library.wrap is before

    def test_nested(self, library: Any) -> None:
        before = library.wrap
        with fnintern.patch(library, "wrap") as outer:
            with fnintern.patch(library, "wrap") as inner:
                assert inner is outer
            assert library.wrap is not before
        assert library.wrap is before

    def test_a_call_outside_the_block_keeps_it(self, library: Any) -> None:
        before = library.wrap
        patch = fnintern.patch(library, "wrap")
        with fnintern.patch(library, "wrap"):
            pass
        assert library.wrap is not before
        patch.revert()
        assert library.wrap is before

    @pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1)])
    def test_three_patches_in_any_order(self, library: Any, order: tuple[int, ...]) -> None:
        """Non-LIFO too: what is left keeps working, and the last puts the original back."""
        before = library.wrap
        sites = [Site(library, "wrap", intern_attribute("object"))]
        patches = [apply(name, sites) for name in "abc"]
        for count, i in enumerate(order):
            assert library.wrap(function) is library.wrap(function)
            patches[i].revert()
            assert (library.wrap is before) == (count == 2)

    def test_a_patch_never_wraps_a_patch(self, library: Any) -> None:
        calls: Any = []
        library.wrap = lambda f: calls.append(f) or [f]
        sites = [Site(library, "wrap", intern_attribute("object"))]
        with apply("a", sites), apply("b", sites):
            assert library.wrap.__wrapped__(function) is not library.wrap(function)
            assert len(calls) == 2

    @pytest.mark.usefixtures("switching")
    def test_two_threads(self, library: Any) -> None:
        """One leaves while the other is inside: the patch stays until the last has left."""
        before = library.wrap
        inside, left = threading.Barrier(2), threading.Barrier(2)

        def work(i: int) -> None:
            with fnintern.patch(library, "wrap"):
                inside.wait(30)
                if i == 1:
                    left.wait(30)
                    assert library.wrap(function) is library.wrap(function)
            if i == 0:
                left.wait(30)

        race(work, 2)
        assert library.wrap is before

    @pytest.mark.usefixtures("switching")
    def test_many_threads(self, library: Any) -> None:
        before = library.wrap

        def work(i: int) -> None:
            for _ in range(50):
                with fnintern.patch(library, "wrap"):
                    assert library.wrap(function) is library.wrap(function)

        race(work)
        assert library.wrap is before
        assert patching._active == []


class TestAllOrNothing:
    def test_failing_replacement(self, library: Any) -> None:
        before = dict(vars(library))

        def fail(found: Any) -> Any:
            raise RuntimeError("cannot replace")

        sites = [Site(library, "wrap", intern_attribute("object")), Site(library, "other", fail)]
        with pytest.raises(RuntimeError, match="cannot replace"):
            apply("half", sites)
        assert vars(library) == before

    def test_failing_assignment(self) -> None:
        """Found by reading: undoing began with the assignment that had failed, and failed again."""

        class Guarded(types.ModuleType):
            def __setattr__(self, name: str, value: Any) -> None:
                if name == "guarded" and name in vars(self):
                    raise AttributeError("guarded is read-only")
                super().__setattr__(name, value)

        module: Any = Guarded("guarded")
        module.one, module.guarded, module.three = (lambda f: [f] for _ in range(3))
        before = dict(vars(module))
        replace: Callable[[Any], Any] = intern_attribute("object")
        sites = [Site(module, name, replace) for name in ("one", "guarded", "three")]
        with pytest.raises(AttributeError, match="read-only"):
            apply("half", sites)
        assert vars(module) == before
        assert patching._active == []

    def test_lock_is_new_after_fork(self) -> None:
        """C2: a child forked while another thread patched can patch, and revert."""
        import warnings

        library: Any = types.ModuleType("library")
        library.wrap = lambda f: [f]
        held, done = threading.Event(), threading.Event()

        def hold() -> None:
            with patching._lock:
                held.set()
                done.wait(60)

        thread = threading.Thread(target=hold, daemon=True)
        thread.start()
        assert held.wait(30)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r".*fork\(\)", category=DeprecationWarning)
            warnings.filterwarnings("ignore", message=r".*fork\(\)", category=RuntimeWarning)
            child = os.fork()
        if child == 0:
            import signal

            signal.alarm(30)
            code = 1
            try:
                with fnintern.patch(library, "wrap"):
                    code = 0 if library.wrap(function) is library.wrap(function) else 1
            finally:
                os._exit(code)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        done.set()
        thread.join(30)
        assert status == 0

"""``patch_all``: every library that is imported, now or later, and back to the very objects."""

from __future__ import annotations

import asyncio
import importlib
import subprocess
import sys
import textwrap
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fnintern
from fnintern.libraries import importing
from fnintern.patches import everything, patching
from fnintern.patches.everything import LIBRARIES, Library
from fnintern.patches.patching import Site, intern_attribute
from test_concurrency import race

LATE = "late_library_{}"
SOURCE = """
from importlib import import_module
events = ["begins"]
def wrap(f):
    return [f]
"""


def function(x: Any) -> Any:
    return x


def table(name: str) -> Callable[[], list[Site]]:
    return lambda: [Site(sys.modules[name], "wrap", intern_attribute("object"))]


def is_patched(name: str) -> bool:
    wrap = sys.modules[name].wrap
    return wrap(function) is wrap(function)


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Three importable libraries with a patch, which alone are known: a module, a submodule of a
    package, and a package."""
    (tmp_path / "one_lib.py").write_text(SOURCE)
    for package in ("two_lib", "three_lib"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(SOURCE)
    (tmp_path / "two_lib" / "inner.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    names = ["one_lib", "two_lib.inner", "three_lib"]
    for known in list(LIBRARIES):
        monkeypatch.delitem(LIBRARIES, known)
    for name in names:
        library = Library.of_table(name, table(name))
        monkeypatch.setitem(LIBRARIES, name.partition(".")[0], library)
    yield names
    for name in [n for n in sys.modules if n.partition("_")[2].startswith("lib")]:
        del sys.modules[name]
    assert importing._finder not in sys.meta_path
    assert importing._waiting == {}


class TestNowAndLater:
    def test_what_is_imported_is_patched_at_once(self, libraries: list[str]) -> None:
        one = importlib.import_module("one_lib")
        before = one.wrap
        with fnintern.patch_all() as patch:
            assert is_patched("one_lib")
            assert patch.report == {
                "one_lib.wrap": "patched",
                "two_lib.inner": "not imported",
                "three_lib": "not imported",
            }
            assert "three_lib" not in sys.modules
        assert one.wrap is before
        assert patch.report["one_lib.wrap"] == "reverted"

    @pytest.mark.parametrize("way", ["import", "import_module", "from"])
    def test_what_is_imported_later_is_patched_then(self, libraries: list[str], way: str) -> None:
        statements = {"import": "import {}", "from": "from {} import events"}
        with fnintern.patch_all() as patch:
            for name in libraries:
                if way == "import_module":
                    importlib.import_module(name)
                else:
                    exec(statements[way].format(name))
                assert is_patched(name)
            assert set(patch.report.values()) == {"patched"}
        assert not any(map(is_patched, libraries))

    def test_the_rest_of_a_package_waits(self, libraries: list[str]) -> None:
        with fnintern.patch_all() as patch:
            importlib.import_module("two_lib")
            assert "two_lib.inner" not in sys.modules
            assert patch.report["two_lib.inner"] == "not imported"

    def test_modules_are_as_without(self, libraries: list[str]) -> None:
        def seen() -> Any:
            module = importlib.import_module("one_lib")
            spec = module.__spec__
            assert spec is not None
            del sys.modules["one_lib"]
            return (
                sorted(vars(module)), spec.origin, spec.cached, type(spec.loader),
                spec.loader is module.__loader__, vars(spec.loader), module.__file__,
            )  # fmt: skip

        without = seen()
        with fnintern.patch_all():
            assert seen() == without

    def test_looking_for_a_module_is_no_import(self, libraries: list[str]) -> None:
        with fnintern.patch_all() as patch:
            assert importlib.util.find_spec("one_lib") is not None
            assert patch.report["one_lib"] == "not imported"
            importlib.import_module("one_lib")
            assert is_patched("one_lib")

    def test_a_module_that_loads_at_its_first_use(self, libraries: list[str]) -> None:
        def lazily(name: str) -> types.ModuleType:
            spec = importlib.util.find_spec(name)
            assert spec is not None
            assert spec.loader is not None
            spec.loader = importlib.util.LazyLoader(spec.loader)
            module = sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module

        one = lazily("one_lib")
        with fnintern.patch_all():
            three = lazily("three_lib")
            for module in (one, three):
                assert type(module) is not types.ModuleType
                assert module.events == ["begins"]
                assert is_patched(module.__name__)

    def test_an_import_that_fails_may_be_repeated(self, libraries: list[str]) -> None:
        file = Path(str(importlib.util.find_spec("one_lib").origin))  # type: ignore[union-attr]
        file.write_text("raise ImportError('not now')")
        with fnintern.patch_all():
            with pytest.raises(ImportError, match="not now"):
                importlib.import_module("one_lib")
            file.write_text(SOURCE + "# of another size\n")
            importlib.invalidate_caches()
            importlib.import_module("one_lib")
            assert is_patched("one_lib")

    def test_after_revert_nothing_waits(self, libraries: list[str]) -> None:
        patch = fnintern.patch_all()
        patch.revert()
        assert importing._finder not in sys.meta_path
        importlib.import_module("one_lib")
        assert not is_patched("one_lib")
        assert patch.report["one_lib"] == "not imported"

    def test_with_another_hook(self, libraries: list[str]) -> None:
        told: list[str] = []
        for first in (True, False):
            sys.modules.pop("one_lib", None)
            call_off = (
                importing.when_imported("one_lib", lambda: told.append("a")) if first else None
            )
            with fnintern.patch_all():
                if call_off is None:
                    call_off = importing.when_imported("one_lib", lambda: told.append("b"))
                importlib.import_module("one_lib")
                assert is_patched("one_lib")
            call_off()
        assert told == ["a", "b"]

    @pytest.mark.usefixtures("switching")
    def test_threads_import_at_the_same_time(self, libraries: list[str]) -> None:
        with fnintern.patch_all() as patch:

            def work(i: int) -> None:
                for name in libraries[i % 3 :] + libraries[: i % 3]:
                    importlib.import_module(name)
                    assert is_patched(name)

            race(work)
            assert set(patch.report.values()) == {"patched"}
        assert not any(map(is_patched, libraries))

    @pytest.mark.usefixtures("switching")
    def test_a_thread_imports_while_another_patches(self, libraries: list[str]) -> None:
        """The one that patches waits for the module, as an import of it would."""
        file = Path(str(importlib.util.find_spec("one_lib").origin))  # type: ignore[union-attr]
        file.write_text(
            SOURCE.replace("def wrap", "import test_patch_all\ntest_patch_all.gate()\ndef wrap")
        )
        began.clear()
        go_on.clear()
        sys.modules.setdefault("test_patch_all", sys.modules[__name__])
        importer = threading.Thread(target=importlib.import_module, args=("one_lib",))
        importer.start()
        assert began.wait(30)
        threading.Timer(0.2, go_on.set).start()
        with fnintern.patch_all():
            importer.join(30)
            assert is_patched("one_lib")


began, go_on = threading.Event(), threading.Event()


def gate() -> None:
    began.set()
    assert go_on.wait(30)


class TestNesting:
    def test_idempotent(self, libraries: list[str]) -> None:
        importlib.import_module("one_lib")
        patch = fnintern.patch_all()
        inside = sys.modules["one_lib"].wrap
        assert fnintern.patch_all() is patch
        assert fnintern.patch_all(only=["one_lib", "two_lib", "three_lib"]) is patch
        assert sys.modules["one_lib"].wrap is inside
        patch.revert()
        patch.revert()
        assert not is_patched("one_lib")

    def test_nested(self, libraries: list[str]) -> None:
        importlib.import_module("one_lib")
        with fnintern.patch_all() as outer:
            with fnintern.patch_all() as inner:
                assert inner is outer
            assert is_patched("one_lib")
            with fnintern.patch_all(only="one_lib") as smaller:
                assert smaller is not outer
            assert is_patched("one_lib")
        assert not is_patched("one_lib")

    @pytest.mark.parametrize("first", [0, 1])
    def test_two_that_overlap(self, libraries: list[str], first: int) -> None:
        importlib.import_module("one_lib")
        patches = [fnintern.patch_all(only="one_lib"), fnintern.patch_all()]
        patches[first].revert()
        assert is_patched("one_lib")
        importlib.import_module("three_lib")
        assert is_patched("three_lib") == (first == 0)
        patches[1 - first].revert()
        assert not is_patched("one_lib")

    def test_a_patch_of_one_library_that_was_there_stays(self) -> None:
        import jax

        before = jax.lax.scan
        single = fnintern.patch_jax()
        with fnintern.patch_all():
            pass
        assert jax.lax.scan is not before
        single.revert()
        assert jax.lax.scan is before

    @pytest.mark.usefixtures("switching")
    def test_many_threads(self, libraries: list[str]) -> None:
        before = importlib.import_module("one_lib").wrap

        def work(i: int) -> None:
            for _ in range(20):
                with fnintern.patch_all(only=("one_lib", "three_lib")[: 1 + i % 2]):
                    assert is_patched("one_lib")

        race(work)
        assert sys.modules["one_lib"].wrap is before
        assert patching._active == []


class TestChoice:
    def test_only_and_without(self, libraries: list[str]) -> None:
        list(map(importlib.import_module, libraries))
        for arguments, patched in (
            ({"only": "two_lib"}, [False, True, False]),
            ({"only": ("one_lib", "two_lib"), "without": "two_lib"}, [True, False, False]),
            ({"without": iter(["one_lib"])}, [False, True, True]),
            ({"only": "one_lib", "without": "one_lib"}, [False, False, False]),
        ):
            with fnintern.patch_all(**arguments):
                assert list(map(is_patched, libraries)) == patched

    def test_a_part_goes_with_its_library(
        self, libraries: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(LIBRARIES, "one_lib.part", Library("three_lib", fnintern.patch_jax))
        assert everything._chosen("one_lib", "only") == {"one_lib", "one_lib.part"}
        assert everything._chosen("one_lib.part", "only") == {"one_lib.part"}

    @pytest.mark.parametrize("argument", ["only", "without"])
    def test_an_unknown_library_is_named(self, argument: str) -> None:
        with pytest.raises(
            ValueError, match="names 'flacks', for which there is no patch"
        ) as caught:
            fnintern.patch_all(**{argument: ["jax", "flacks"]})
        assert argument in str(caught.value)
        assert ", ".join(sorted(LIBRARIES)) in str(caught.value)
        assert patching._active == []


class TestFailure:
    @pytest.fixture
    def broken(self, libraries: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
        def fail(found: Any) -> Any:
            raise RuntimeError("cannot replace")

        def sites() -> list[Site]:
            return [*table("two_lib.inner")(), Site(sys.modules["two_lib.inner"], "events", fail)]

        monkeypatch.setitem(LIBRARIES, "two_lib", Library.of_table("two_lib.inner", sites))
        return libraries

    @pytest.mark.parametrize("later", [False, True])
    def test_one_table_that_fails_leaves_its_library(self, broken: list[str], later: bool) -> None:
        if not later:
            list(map(importlib.import_module, broken))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            patch = fnintern.patch_all()
            list(map(importlib.import_module, broken))
        (warning,) = caught
        assert warning.category is RuntimeWarning
        assert "leaves two_lib as it was" in str(warning.message)
        assert "without='two_lib'" in str(warning.message)
        assert list(map(is_patched, broken)) == [True, False, True]
        assert patch.report["two_lib.inner"] == "left as it was: RuntimeError: cannot replace"
        patch.revert()
        assert not any(map(is_patched, broken))

    def test_where_the_warning_is_an_error_nothing_is_patched(self, broken: list[str]) -> None:
        list(map(importlib.import_module, broken))
        with pytest.raises(RuntimeWarning, match="leaves two_lib as it was"):
            fnintern.patch_all()
        assert not any(map(is_patched, broken))
        assert patching._active == []


class TestDecorator:
    def test_in_force_during_each_call(self, libraries: list[str]) -> None:
        importlib.import_module("one_lib")

        @fnintern.patch_all()
        def work(depth: int = 1) -> tuple[Any, bool]:
            """Says so."""
            if depth:
                work(depth - 1)
            return sys.modules["one_lib"].wrap(function), is_patched("one_lib")

        assert work.__doc__ == "Says so."
        assert not is_patched("one_lib")
        first, second = work(), work()
        assert first == second == ([function], True)
        assert first[0] is second[0]  # it keeps what it has made
        assert not is_patched("one_lib")
        assert patching._active == []

    def test_of_one_library(self) -> None:
        import jax
        import jax.numpy as jnp

        before = jax.lax.map

        @fnintern.patch_jax()
        def work(w: Any) -> Any:
            jax.lax.map(lambda x: w * x, jnp.arange(3.0))
            return jax.lax.map.cache_info().misses

        assert jax.lax.map is before
        assert [work(jnp.float32(i)) for i in range(3)] == [1, 1, 1]
        assert jax.lax.map is before

    def test_leaves_what_others_have_applied(self, libraries: list[str]) -> None:
        importlib.import_module("one_lib")
        patch = fnintern.patch_all()
        assert fnintern.patch_all()(is_patched)("one_lib")
        assert is_patched("one_lib")
        patch.revert()

    def test_of_a_coroutine(self, libraries: list[str]) -> None:
        importlib.import_module("one_lib")

        @fnintern.patch_all()
        async def work() -> bool:
            await asyncio.sleep(0)
            return is_patched("one_lib")

        assert asyncio.run(work())
        assert not is_patched("one_lib")

    def test_of_what_is_no_function(self, libraries: list[str]) -> None:
        def generator() -> Iterator[int]:
            yield 1

        for thing in (generator, int, 3):
            patch: Any = fnintern.patch_all()
            with pytest.raises(TypeError, match="expected a function to decorate"):
                patch(thing)
            patch.revert()


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class TestPrograms:
    def test_jax_and_flax_are_patched_when_the_program_imports_them(self) -> None:
        out = run(
            """
            import sys, fnintern
            patch = fnintern.patch_all()
            assert "jax" not in sys.modules and "flax" not in sys.modules
            import jax
            assert set(patch.report.values()) == {"patched", "not imported"}, patch.report
            assert hasattr(jax.lax.scan, "cache_info") and "flax" not in sys.modules
            import flax
            assert "flax.nnx" not in sys.modules
            from flax import nnx
            name = "flax.nnx.transforms.transforms.jax"
            print(patch.report[name])
            patch.revert()
            assert not hasattr(jax.lax.scan, "cache_info")
            print(patch.report[name], type(sys.meta_path[0]))
            """
        )
        assert out.split()[:2] == ["patched", "reverted"]
        assert "_Finder" not in out

    @pytest.mark.parametrize(
        "statement",
        ["from fnintern import lax", "import fnintern.lax", "fnintern.jit", "fnintern.staged"],
    )
    def test_jax_is_imported_by_fnintern_first(self, statement: str) -> None:
        """Found by thought: the patch needs modules that are being imported just then."""
        run(
            f"""
            import fnintern
            patch = fnintern.patch_all(only="jax")
            {statement}
            assert set(patch.report.values()) == {{"patched"}}, patch.report
            """
        )

    def test_nothing_is_imported_that_the_program_does_not_import(self) -> None:
        program = """
            import sys
            {}
            import {}
            others = {{"fnintern", "attr", "attrs", *sys.stdlib_module_names}}
            print(sorted(name for name in sys.modules if name.partition(".")[0] not in others))
        """
        for module in ("jax", "equinox", "flax.linen", "flax.nnx"):
            without = run(program.format("", module))
            assert run(program.format("import fnintern; fnintern.patch_all()", module)) == without

    def test_no_backend_is_started(self) -> None:
        """Found by the test above: devices, platforms and jax.distributed are set up later."""
        run(
            """
            import fnintern
            patch = fnintern.patch_all()
            import flax.nnx, jax
            jax.config.update("jax_num_cpu_devices", 3)
            assert jax.device_count() == 3
            assert patch.report["flax.nnx.transforms.transforms.jax"] == "patched"
            """
        )

    @pytest.mark.parametrize(
        ("block", "call"),
        [
            ("jax", "patch_all()"),
            ("jax", "patch_jax()"),
            ("flax", "patch_all(only='flax')"),
            ("flax", "patch_flax()"),
        ],
    )
    def test_without_jax_or_flax_it_says_what_to_install(self, block: str, call: str) -> None:
        out = run(
            f"""
            import sys
            sys.modules[{block!r}] = None
            import fnintern
            try:
                fnintern.{call}
            except ImportError as error:
                print(error)
            from fnintern.patches import patching
            assert patching._active == []
            """
        )
        assert f"{call.partition('(')[0]}() needs {block}" in out
        assert f"pip install {block};" in out
        assert "pip install 'PATH_OF_THE_CLONE[flax]'" in out

    def test_without_flax_the_rest_is_patched(self) -> None:
        run(
            """
            import sys
            sys.modules["flax"] = None
            import fnintern, jax
            assert fnintern.patch_all().report["jax.lax.scan"] == "patched"
            """
        )

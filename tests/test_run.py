"""``python -m fnintern run`` runs a program as Python would, but for the patches."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

import fnintern

RUN = ("-m", "fnintern", "run")


def environment() -> dict[str, str]:
    source = os.path.dirname(os.path.dirname(fnintern.__file__))
    return {**os.environ, "PYTHONPATH": source}


def python(*args: object, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **{"env": environment(), **kwargs},
    )


def same(*args: object, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    """Runs a program with and without fnintern, and compares all that can be seen of it."""
    without, under = python(*args, **kwargs), python(*RUN, *args, **kwargs)
    assert under.stdout == without.stdout
    assert under.stderr == without.stderr
    assert under.returncode == without.returncode
    return under


@pytest.fixture
def script(tmp_path: Path) -> Any:
    def write(source: str, name: str = "program.py") -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(source))
        return path

    return write


SELF = """
import inspect, pickle, sys, warnings
class Mine: pass
for name, value in sorted(globals().items()):
    print(name, type(value) if name in ("__loader__", "__spec__") else value)
print(sys.argv, sys.path[0], sys.modules["__main__"].Mine is Mine, Mine.__module__)
print(pickle.loads(pickle.dumps(Mine)) is Mine, sys.excepthook is sys.__excepthook__)
print(sorted({"jax", "flax", "numpy"} & set(sys.modules)))
"""


class TestItself:
    def test_script(self, script: Any) -> None:
        path = script(SELF + "print(inspect.getsource(Mine))\n")
        done = same(path, "--only", "x", "-m", "--", "-")
        assert "__main__" in done.stdout
        same(path.name, cwd=path.parent)

    def test_module(self, script: Any) -> None:
        script("", "package/__init__.py")
        path = script(SELF + "from . import helper\nprint(__spec__.name)\n", "package/__main__.py")
        script("", "package/helper.py")
        for name in ("package", "package.__main__"):
            assert same("-m", name, "a", "-x", cwd=path.parent.parent).returncode == 0

    def test_directory_and_zip_file(self, script: Any, tmp_path: Path) -> None:
        path = script(SELF, "app/__main__.py")
        assert same(tmp_path / "app", "a").returncode == 0
        with zipfile.ZipFile(tmp_path / "app.zip", "w") as file:
            file.write(path, "__main__.py")
        assert same(tmp_path / "app.zip").returncode == 0

    def test_standard_input(self) -> None:
        assert "'<stdin>'" in same("-", "a", input=SELF + "print([__file__])\n").stdout
        assert same("-", input="x = (\n").returncode == 1
        assert same("-", input="def f():\n    1 / 0\nf()\n").returncode == 1

    def test_standard_input_of_a_script(self, script: Any) -> None:
        assert same(script("print(input(), input())"), input="a\nb\n").stdout == "a b\n"

    def test_safe_path(self, script: Any) -> None:
        path = script("import sys\nprint(sys.path)\n")
        assert python("-P", *RUN, path).stdout == python("-P", path).stdout


class TestEnd:
    @pytest.mark.parametrize(
        "last",
        [
            "sys.exit(7)",
            "sys.exit('a message')",
            "sys.exit()",
            "os._exit(9)",
            "raise KeyboardInterrupt",
            "os.kill(os.getpid(), signal.SIGTERM)",
            "os.kill(os.getpid(), signal.SIGINT)",
            "atexit.register(print, 'last words')",
            "threading.Timer(0.1, print, ['a thread']).start()",
            "sys.exit(os.waitpid(os.fork(), 0)[1] if os.fork() else 3)",
        ],
    )
    def test_exit_status_and_signals(self, script: Any, last: str) -> None:
        same(script(f"import atexit, os, signal, sys, threading\n{last}\n"))

    @pytest.mark.parametrize(
        "source",
        [
            "def fails():\n    1 / 0\nfails()\n",
            "try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise ValueError('second')\n",
            "raise ExceptionGroup('two', [ValueError(1), TypeError(2)])\n",
            "x = (\n",
            "import no_such_module\n",
            "import broken\n",
            "import sys\nsys.excepthook = lambda kind, value, tb: print(tb.tb_lineno)\nint('x')\n",
            "import threading\nthreading.Thread(target=int, args=['x']).start()\n",
            "print(open('no such file'))\n",
        ],
    )
    def test_traceback_has_the_frames_of_the_program_alone(self, script: Any, source: str) -> None:
        script("1 / 0\n", "broken.py")
        done = same(script(source))
        assert "fnintern/" not in done.stderr

    def test_traceback_of_a_module(self, script: Any, tmp_path: Path) -> None:
        """Python itself shows two frames of runpy there, which are cut off, too."""
        script("1 / 0\n", "package/__init__.py")
        script("", "package/__main__.py")
        script("1 / 0\n", "plain.py")
        for name in ("package", "plain"):
            done = python(*RUN, "-m", name, cwd=tmp_path)
            assert done.returncode == 1
            assert done.stderr.startswith("Traceback (most recent call last):\n  File ")
            assert "fnintern/" not in done.stderr
            assert done.stderr.count("  File ") == 1

    @pytest.mark.parametrize(
        ("args", "message"),
        [
            ([], "the following arguments are required: SCRIPT"),
            (["no_such_file.py"], "cannot read 'no_such_file.py': No such file"),
            (["-m", "no_such_module"], "no module named 'no_such_module' that can be run"),
            (["--only", "flacks", "x.py"], "invalid choice: 'flacks'"),
        ],
    )
    def test_wrong_arguments_are_told(self, args: list[str], message: str) -> None:
        done = python(*RUN, *args)
        assert done.returncode == 2
        assert message in done.stderr


WORKERS = """
import multiprocessing, os, sys
class Mine:
    def __init__(self, x): self.x = x
    def __call__(self, y): return self.__class__.__module__, self.x + y
def work(mine): return mine(1)
if __name__ == "__main__":
    with multiprocessing.get_context({method!r}).Pool(2) as pool:
        print(pool.map(work, [Mine(1), Mine(2)]), len(sys.argv))
"""


class TestProcesses:
    @pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
    def test_multiprocessing(self, script: Any, method: str) -> None:
        path = script(WORKERS.format(method=method))
        main = "__main__" if method == "fork" else "__mp_main__"
        assert same(path).stdout == f"[({main!r}, 2), ({main!r}, 3)] 1\n"
        assert same("-m", "program", cwd=path.parent).returncode == 0

    def test_ctrl_c_while_it_waits(self, script: Any) -> None:
        path = script("import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
        ends = []
        for args in ((), RUN):
            process = subprocess.Popen(
                [sys.executable, *args, str(path)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=environment(),
            )
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            ends.append((process.communicate(timeout=60), process.returncode))
        assert ends[0] == ends[1]


PROGRAM = """
import jax, jax.numpy as jnp
from jax._src import test_util
def step(w):
    return jax.lax.map(lambda x: w * x, jnp.arange(3.0))
step(jnp.float32(0)), step(jnp.float32(1))
with test_util.count_jit_tracing_cache_miss() as traced:
    for i in range(5):
        result = step(jnp.float32(i))
print(traced(), result)
"""


class TestPatched:
    def test_the_program_is_patched(self, script: Any) -> None:
        path = script(PROGRAM)
        without, under = python(path), python(*RUN, path)
        assert under.returncode == 0, under.stderr
        traces, _, results = under.stdout.partition(" ")
        assert traces == "0"
        assert results == without.stdout.partition(" ")[2]
        assert without.stdout[0] != "0"
        assert python(*RUN, "--without", "jax", path).stdout == without.stdout
        assert python(*RUN, "--only", "flax", path).stdout == without.stdout
        assert python(*RUN, "--only", "jax", "--only", "flax", path).stdout == under.stdout

    def test_summary(self, script: Any) -> None:
        path = script(PROGRAM + "import atexit, sys\natexit.register(print, 'last words')\n")
        done = python(*RUN, "--summary", path)
        assert done.stdout.endswith("last words\n")
        assert re.search(r"^map +6 +1 +0$", done.stderr, re.MULTILINE), done.stderr
        fork = script("import os\nif os.fork():\n    os.wait()\n")
        assert python(*RUN, "--summary", fork).stderr.count("no calls of operations") == 1

"""The command line runs a program as it would run by itself, and adds a table on standard error."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

import fnintern

TOOL = "import sys; from fnintern.__main__ import main; sys.exit(main(['retraces', *sys.argv[1:]]))"
CHURN = "import jax\nfor _ in range(3):\n    jax.jit(lambda x: x + 1)(1.0)\n"


@pytest.fixture
def script(tmp_path: Path) -> Any:
    def write(source: str, name: str = "program.py") -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(source))
        return path

    return write


def command(*args: object, tool: bool = True) -> list[str]:
    return [sys.executable, *(["-c", TOOL] if tool else []), *map(str, args)]


def environment(*paths: object, **more: str) -> dict[str, str]:
    source = os.path.dirname(os.path.dirname(fnintern.__file__))
    path = os.pathsep.join([*map(str, paths), source])
    return {**os.environ, "PYTHONPATH": path, **more}


def run(*args: object, tool: bool = True, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    kwargs.setdefault("env", environment())
    return subprocess.run(
        command(*args, tool=tool),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **kwargs,
    )


def table_of(stderr: str) -> str:
    for start in ("no re-traces (", "1 cause of re-tracing", "2 causes of re-tracing"):
        if start in stderr:
            return stderr[stderr.index(start) :]
    raise AssertionError(f"no table in {stderr!r}")


def test_prints_the_table_at_exit_and_leaves_stdout_alone(script: Any) -> None:
    path = script(CHURN + "print('done')\n")
    done = run(path)
    assert (done.returncode, done.stdout) == (0, "done\n")
    table = table_of(done.stderr)
    assert f"{path.name}:3" in table
    assert "jax.jit(lambda x: x + 1)(1.0)" in table
    assert "\x1b" not in table


def test_program_without_jax_reports_none_and_imports_none(script: Any) -> None:
    done = run(script("import sys\nprint('jax' in sys.modules)\n"))
    assert (done.returncode, done.stdout) == (0, "False\n")
    assert table_of(done.stderr) == "no re-traces (0 first traces, 0 compilations)\n"


def test_program_sees_itself_as_without_the_tool(script: Any) -> None:
    path = script(
        """
        import sys, os, pickle, inspect
        class Mine: pass
        print(__name__, __file__, sys.argv, sys.path[0], __spec__, __builtins__.__name__)
        print(sys.modules["__main__"].Mine is Mine, pickle.loads(pickle.dumps(Mine)) is Mine)
        print(inspect.getsource(Mine), __annotations__ if "__annotations__" in globals() else None)
        """
    )
    args = ["--epochs", "3", "--top", "x", "-m"]
    with_tool, without = run(path, *args), run(path, *args, tool=False)
    assert with_tool.returncode == 0, with_tool.stderr
    assert with_tool.stdout == without.stdout


def test_module_sees_itself_as_without_the_tool(script: Any, tmp_path: Path) -> None:
    script("", "package/__init__.py")
    script(
        f"""
        import sys
        from . import helper
        inside = sys.path[0] in ("", {str(tmp_path)!r})
        print(__name__, __package__, __file__, sys.argv, inside, __spec__.name)
        """,
        "package/__main__.py",
    )
    script("", "package/helper.py")
    with_tool = run("-m", "package", "a", cwd=tmp_path)
    without = run("-m", "package", "a", tool=False, cwd=tmp_path)
    assert with_tool.returncode == 0, with_tool.stderr
    assert with_tool.stdout == without.stdout


def test_module_among_installed_packages_is_the_users(script: Any, tmp_path: Path) -> None:
    script(CHURN, "site-packages/program.py")
    done = run("-m", "program", env=environment(tmp_path / "site-packages"))
    assert "program.py:3" in table_of(done.stderr)


def test_directory_with_a_main_is_run(script: Any, tmp_path: Path) -> None:
    script("import other\nprint(__name__, other.x)\n", "app/__main__.py")
    script("x = 5\n", "app/other.py")
    done = run(tmp_path / "app")
    assert done.stdout == "__main__ 5\n", done.stderr


@pytest.mark.parametrize(
    "last",
    ["sys.exit(7)", "sys.exit()", "sys.exit('a message')", "raise SystemExit(3)", "os._exit(9)"],
)
def test_exit_is_untouched(script: Any, last: str) -> None:
    path = script(CHURN + f"import os, sys\n{last}\n")
    with_tool, without = run(path), run(path, tool=False)
    assert with_tool.returncode == without.returncode
    assert with_tool.stdout == without.stdout
    assert with_tool.stderr.startswith(without.stderr)
    if "_exit" not in last:
        assert "1 cause of re-tracing" in with_tool.stderr


@pytest.mark.parametrize(
    "source",
    [
        CHURN + "def fails():\n    1 / 0\nfails()\n",
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise ValueError('second')\n",
        "x = (\n",
        "import sys\nsys.excepthook = lambda kind, value, tb: print(kind.__name__, tb.tb_lineno)\n"
        "int('x')\n",
        "raise KeyboardInterrupt\n",
    ],
)
def test_exception_shows_as_without_the_tool_then_the_table(script: Any, source: str) -> None:
    path = script(source)
    with_tool, without = run(path), run(path, tool=False)
    assert with_tool.returncode == without.returncode != 0
    assert with_tool.stdout == without.stdout
    table = table_of(with_tool.stderr)
    assert with_tool.stderr.removesuffix(table) == without.stderr


def test_ctrl_c_ends_the_program_as_without_the_tool(script: Any) -> None:
    path = script(CHURN + "import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    codes = []
    for tool in (False, True):
        process = subprocess.Popen(
            command(path, tool=tool),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
        codes.append(process.returncode)
    assert codes == [-signal.SIGINT, -signal.SIGINT]
    assert "KeyboardInterrupt" in stderr
    assert "1 cause of re-tracing" in stderr


def test_threads_are_waited_for_and_counted(script: Any) -> None:
    path = script(
        """
        import threading, time, jax
        def work():
            time.sleep(0.3)
            for _ in range(3):
                jax.jit(lambda x: x + 1)(1.0)
            print("worked")
        threading.Thread(target=work).start()
        """
    )
    done = run(path)
    assert (done.returncode, done.stdout) == (0, "worked\n")
    assert "1 cause of re-tracing: 2 traces" in done.stderr


def test_exit_functions_of_the_program_run_before_the_table(script: Any) -> None:
    path = script(
        """
        import atexit, sys, jax
        atexit.register(lambda: print("last words", file=sys.stderr))
        """
    )
    done = run(path)
    assert done.stderr.index("last words") < done.stderr.index("no re-traces")


def test_a_fork_prints_no_table(script: Any) -> None:
    path = script(
        """
        import os, sys
        pid = os.fork()
        if pid == 0:
            sys.exit(4)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        """
    )
    done = run(path)
    assert done.stdout == "4\n"
    assert done.stderr.count("no re-traces") == 1


def test_environment_set_before_importing_jax_is_heeded(script: Any) -> None:
    path = script(
        """
        import os
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=3"
        os.environ["JAX_ENABLE_X64"] = "1"
        import jax, jax.numpy as jnp
        print(jax.device_count(), jnp.ones(1).dtype)
        """
    )
    env = environment()
    for name in ("XLA_FLAGS", "JAX_ENABLE_X64"):
        env.pop(name, None)
    done = run(path, env=env)
    assert done.stdout == "3 float64\n"


def test_json_has_the_rows_and_totals(script: Any, tmp_path: Path) -> None:
    path = script(CHURN)
    done = run("--json", tmp_path / "out.json", path)
    assert done.returncode == 0
    report = json.loads((tmp_path / "out.json").read_text())
    (row,) = report["rows"]
    assert (row["file"], row["line"], row["calls"], row["kind"]) == (str(path), 3, 2, "function")
    assert report["traces"] > report["retraced"] == 2


def test_top_shows_the_worst_rows_only(script: Any) -> None:
    done = run("--top", "1", script(CHURN + CHURN.replace("import jax", "")))
    table = table_of(done.stderr)
    assert table.count("remedy:") == 1
    assert "and 1 more" in table


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "the following arguments are required: SCRIPT"),
        (["--top", "0", "x.py"], "0 rows make no table"),
        (["no_such_file.py"], "cannot read 'no_such_file.py': No such file"),
        (["-m", "no_such_module"], "no module named 'no_such_module' that can be run"),
        (["--patch", "haiku", "x.py"], "invalid choice: 'haiku'"),
    ],
)
def test_wrong_arguments_are_told(args: list[str], message: str) -> None:
    done = run(*args)
    assert done.returncode == 2
    assert message in done.stderr
    assert "re-trac" not in done.stderr.replace("fnintern retraces", "")


def test_patch_jax_is_applied_although_the_report_waits_for_jax_too(script: Any) -> None:
    path = script(
        """
        import jax, jax.numpy as jnp
        for _ in range(3):
            jax.lax.map(lambda v: v + 1, jnp.ones(4))
        """
    )
    assert "made again" in run(path).stderr
    assert "no re-traces" in run("--patch", "jax", path).stderr
    assert "no re-traces" in run("--patch", "jax", "--patch", "flax", path).stderr


def test_patch_flax_shows_what_it_saves(script: Any) -> None:
    path = script(
        """
        import jax.numpy as jnp
        from flax import nnx
        model = nnx.Linear(4, 4, rngs=nnx.Rngs(0))
        def up(m, x): return m(x) + 1
        def down(m, x): return m(x) - 1
        for _ in range(3):
            nnx.cond(True, up, down, model, jnp.ones(4))
        """
    )
    assert "of flax was built anew" in run(path).stderr
    assert "no re-traces" in run("--patch", "flax", path).stderr


def test_table_on_a_terminal_is_drawn_by_rich(script: Any) -> None:
    pty = pytest.importorskip("pty")
    pytest.importorskip("rich")
    path = script(CHURN)
    parent, child = pty.openpty()
    env = environment(TERM="xterm-256color", COLUMNS="80")
    env.pop("NO_COLOR", None)
    process = subprocess.Popen(command(path), stderr=child, env=env)
    os.close(child)
    shown = b""
    while True:
        try:
            chunk = os.read(parent, 65536)
        except OSError:  # how Linux says that the other side is closed
            break
        if not chunk:
            break
        shown += chunk
    os.close(parent)
    assert process.wait(60) == 0
    text = shown.decode()
    assert "\x1b[" in text
    assert "made again" in text
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert max(len(line.rstrip("\r")) for line in plain.split("\n")) <= 80

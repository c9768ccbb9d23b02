"""What type checkers make of the public names: ``typing_user.py``, and lines that must be wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy", reason="it comes with the dev extra")

ROOT = Path(__file__).parent.parent
USER = Path(__file__).with_name("typing_user.py")

#: A line to add, and what mypy is to say of it.
WRONG = {
    "scaled(3)": "arg-type",
    "scaled(abs, faktor=2.0)": "call-arg",
    "double(jnp.ones(3), times='2')": "arg-type",
    "triple()": "call-arg",
    "library.step('x')": "arg-type",
    "library.wrap(abs, 3)": "call-arg",
    "staged_twice(jnp.ones(3))": "call-arg",
    "Branch(abs, strict=3)": "arg-type",
    "fnintern.lax.nosuch": "attr-defined",
    "hits(abs)": "arg-type",
    "fnintern.nosuch": "attr-defined",
}


def mypy(file: Path, cache: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml"),
         "--cache-dir", str(cache), str(file)],
        capture_output=True, text=True, cwd=ROOT, timeout=300,
    )  # fmt: skip
    return [line for line in done.stdout.splitlines() if "error" in line and file.name in line]


def test_user_code_is_clean_and_wrong_lines_are_found(tmp_path: Path) -> None:
    file = tmp_path / "user.py"
    text = USER.read_text()
    begin = text.count("\n") + 1
    file.write_text(text + "\n".join(WRONG) + "\n")
    found = mypy(file, tmp_path / "cache")
    assert [line for line in found if int(line.split(":")[1]) < begin] == []
    codes = {int(line.split(":")[1]) - begin: line.rpartition("[")[2].rstrip("]") for line in found}
    assert codes == dict(enumerate(WRONG.values()))

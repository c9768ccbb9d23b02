"""``import fnintern`` imports neither jax nor flax, and its twin shows that the check can fail."""

from __future__ import annotations

import subprocess
import sys

import pytest

CHECK = """
import sys
{statement}
found = sorted({{"jax", "jaxlib", "flax", "numpy"}} & set(sys.modules))
sys.exit(f"imported {{found}}" if found else 0)
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


@pytest.mark.parametrize(
    "statement",
    [
        "import fnintern",
        "import fnintern.patches.flax",
        "import fnintern; fnintern.interned(lambda f: [f])(lambda x: x)",
        "import fnintern; fnintern.interned(lambda f: [f])((1.0, frozenset({2}), object()))",
        "import fnintern; from fnintern import *; fnintern.patch('json', 'dumps').revert()",
        "import fnintern; fnintern.patch_all()",
    ],
)
def test_imports_neither_jax_nor_flax(statement: str) -> None:
    done = run(CHECK.format(statement=statement))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("module", ["jax", "flax", "numpy"])
def test_the_check_can_fail(module: str) -> None:
    done = run(CHECK.format(statement=f"import fnintern, {module}"))
    assert done.returncode == 1
    assert f"'{module}'" in done.stderr


#: What a command, a report or a call by value under jax needs, and ``import fnintern`` does not.
LATE = {
    "argparse", "fnintern.__main__", "fnintern.demo", "fnintern.explaining", "fnintern.retracing",
    "fnintern.staging", "html", "importlib.metadata", "json", "random", "subprocess", "tempfile",
}  # fmt: skip


def test_nothing_is_imported_that_only_a_command_needs() -> None:
    program = "import fnintern, sys; print(*sys.modules)"
    before = set(run("import sys; print(*sys.modules)").stdout.split())
    found = set(run(program).stdout.split()) - before
    assert found & LATE == set()
    assert "attrs" in found
    late = run(f"import fnintern, fnintern.__main__; fnintern.explain; {program}")
    assert {"argparse", "fnintern.explaining"} <= set(late.stdout.split())


def test_public_names() -> None:
    """``dir(fnintern)`` shows what the page of the reference has, and no module but ``lax``."""
    program = "import fnintern; print(*dir(fnintern))"
    assert set(run(program).stdout.split()) == {
        "CacheInfo", "Cached", "Capture", "Explanation", "Obstacle", "OperationCounts", "Patch",
        "Retrace", "RetraceWarning", "Retraces", "Summary", "__all__", "__version__", "cache_clear",
        "cache_info", "explain", "interned", "jit", "keyed", "lax", "patch", "patch_all",
        "patch_flax", "patch_jax", "retraces", "staged", "stateless", "summary",
    }  # fmt: skip

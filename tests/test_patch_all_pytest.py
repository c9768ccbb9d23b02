"""``pytest --fnintern-patch-all``, run by pytest in a process of its own."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest

pytest_plugins = ["pytester"]

PLUGIN = "fnintern.patches.pytest_plugin"
TESTS = """
import sys
assert "jax" not in sys.modules
import jax
import jax.numpy as jnp

def test_patched():
    for scale in (1.0, 2.0):
        scale = jnp.float32(scale)
        jax.lax.map(lambda x: x * scale, jnp.arange(3.0))
    assert jax.lax.map.cache_info().hits == 1
"""


def run(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    pytester.makepyfile(TESTS)
    # In an environment where fnintern is not installed there is no entry point to load it by.
    installed = any(e.value == PLUGIN for e in entry_points(group="pytest11"))
    return pytester.runpytest_subprocess(*([] if installed else ["-p", PLUGIN]), *args)


def test_option_patches_the_run(pytester: pytest.Pytester) -> None:
    result = run(pytester, "--fnintern-patch-all")
    result.assert_outcomes(passed=1)
    result.stdout.re_match_lines([r"=+ fnintern.patch_all\(\) =+", r"map +1 +1 +0"])


def test_without_the_option_nothing_is_patched(pytester: pytest.Pytester) -> None:
    result = run(pytester)
    result.assert_outcomes(failed=1)
    assert "fnintern.patch_all()" not in result.stdout.str()

"""Which tests are the fast set, and fixtures that look at the state between tests.

The fast set is what a bare ``pytest`` runs: of each test some cases, drawn by ``--seed``, and none
of those in :data:`FULL`. ``--all``, or naming files or tests, runs everything that is named.
"""

from __future__ import annotations

import gc
import os
import random
import sys
from collections.abc import Iterator

import pytest

from fnintern.patches import patching

# A fault of fnintern is raised, and not counted as a bypass; in what tests start, too.
os.environ["FNINTERN_STRICT"] = "1"

#: Type-checked, and not run.
collect_ignore = ["typing_user.py"]

#: Cases of one test in the fast set.
CASES = 2
#: Tests that start programs, build pages or take long in another way: file -> test functions, or
#: what their names start with. They are in the full set alone.
FULL = {
    "test_compare.py": ("test_every_cell",),
    "test_converted_libraries.py": ("test_haiku", "test_linen_transforms", "test_numpyro"),
    "test_demo.py": ("test_demo_patched",),
    "test_docs.py": ("test_tests_that", "test_commands", "test_examples"),
    "test_keys_properties.py": ("runTest",),
    "test_lax_derivatives.py": ("test_a_thousand",),
    "test_lax_lifetime.py": ("test_L1_the_program_goes", "test_L3_programs"),
    "test_lax_results.py": ("test_any_call",),
    "test_distributed.py": ("test_two",),
    "test_patch_all_pytest.py": ("test_option", "test_without"),
    "test_patch_all.py": ("test_jax_and_flax", "test_jax_is", "test_nothing_is", "test_no_backend",
        "test_without"),
    "test_messages.py": ("test_without_jax",),
    "test_patch_flax.py": ("test_L1_thousand", "test_L1_compiled"),
    "test_persistent_cache.py": ("test_persistent_cache_second",),
    "test_read_sets.py": ("test_S1_S5_random",),
    "test_recipes.py": ("test_recipes_run",),
    "test_retraces_cli.py": (
        "test_patch_flax", "test_exit", "test_ctrl_c", "test_exception", "test_threads",
        "test_top", "test_environment", "test_module", "test_table",
    ),
    "test_retraces_html.py": ("test_page_sorts", "test_source_text", "test_seconds"),
    "test_retraces_pytest.py": (
        "test_wrong", "test_marked", "test_marker_allows", "test_loading", "test_fixture",
    ),
    "test_run.py": (
        "test_module", "test_directory", "test_standard", "test_exit", "test_traceback",
        "test_wrong", "test_multi", "test_ctrl_c", "test_the_program", "test_summary",
    ),
    "test_retraces_training.py": ("test_jit_of", "test_following", "test_patch_flax"),
    "test_typing.py": ("test_user_code",),
}  # fmt: skip


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("sets of tests")
    group.addoption("--all", action="store_true", help="all tests, not the fast set")
    group.addoption("--seed", default="0", help="which cases are in the fast set")


def _is_full(item: pytest.Item) -> bool:
    names = FULL.get(item.path.name, ())
    return getattr(item, "originalname", item.name).startswith(names) if names else False


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen = config.args_source is not pytest.Config.ArgsSource.TESTPATHS
    if chosen or config.option.all or config.option.keyword:
        return
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        if not _is_full(item):
            groups.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {
        item
        for name, group in groups.items()
        for item in random.Random(name + config.option.seed).sample(group, min(CASES, len(group)))
    }
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


@pytest.fixture(autouse=True, scope="module")
def small_heap() -> None:
    """Puts what imports and earlier modules made out of the collector's sight: the tests collect
    thousands of times, and jax alone would make each of them take 0.1 s."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def nothing_stays_patched() -> Iterator[None]:
    """A patch that a test leaves behind would decide the outcome of the next one."""
    yield
    left = list(patching._active)
    for patch in reversed(left):
        patch.revert()
    assert left == []


@pytest.fixture
def switching() -> Iterator[None]:
    """Threads switch after 1 µs, so that races show."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def threshold() -> Iterator[None]:
    """Puts back the thresholds of the collector."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)

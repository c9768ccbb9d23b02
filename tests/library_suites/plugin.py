"""A pytest plugin that runs a whole test suite under a patch, and counts what it did.

    pytest -p library_suites.plugin --fnintern=flax

with the directory above on ``PYTHONPATH``. Under ``flax`` the summary says how many wrappers were
hit, built and bypassed, under ``jax`` how many calls were converted; ``--fnintern-report=FILE``
also writes it as JSON, with the captures that stood in the way (law S2). Works under pytest-xdist:
each worker counts, the controller adds up.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

import fnintern
from fnintern.patches.patching import Patch
from library_suites.conversion_counts import ConversionCounts
from library_suites.wrapper_counts import WrapperCounts

#: Name -> the patch, and what counts.
_PATCHES: Final[dict[str, tuple[Callable[[], Patch], type[WrapperCounts | ConversionCounts]]]] = {
    "flax": (fnintern.patch_flax, WrapperCounts),
    "jax": (fnintern.patch_jax, ConversionCounts),
    "all": (fnintern.patch_all, ConversionCounts),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fnintern")
    group.addoption("--fnintern", choices=(*_PATCHES, "off"), default="off", help="the patch")
    group.addoption("--fnintern-twice", action="store_true", help="run each test twice in a row")
    group.addoption(
        "--fnintern-compare", action="store_true", help="make converted calls unconverted, too"
    )
    group.addoption("--fnintern-report", metavar="FILE", help="write the counts as JSON")


_counts = pytest.StashKey[WrapperCounts | ConversionCounts]()


def pytest_configure(config: pytest.Config) -> None:
    name = config.getoption("--fnintern")
    if name == "off":
        return
    apply, kind = _PATCHES[name]
    counts = config.stash[_counts] = kind()
    monkeypatch = pytest.MonkeyPatch()
    config.add_cleanup(monkeypatch.undo)
    counts.count(monkeypatch, compare=config.getoption("--fnintern-compare"))
    if not hasattr(config, "workerinput") and config.getoption("numprocesses", None):
        return  # the workers run the tests
    config.add_cleanup(apply().revert)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--fnintern-twice"):
        # The second time, functions made by the same code are found where the first left them.
        items[:] = [item for item in items for _ in range(2)]


def pytest_sessionfinish(session: pytest.Session) -> None:
    counts = session.config.stash.get(_counts, None)
    output = getattr(session.config, "workeroutput", None)
    if counts is not None and output is not None:
        output["fnintern"] = json.dumps(counts.dump())


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    counts = node.config.stash.get(_counts, None)
    dumped = getattr(node, "workeroutput", {}).get("fnintern")
    if counts is not None and dumped:
        counts.add(json.loads(dumped))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    counts = config.stash.get(_counts, None)
    if counts is None:
        return
    terminalreporter.section("fnintern")
    for line in counts.lines():
        terminalreporter.write_line(line)
    if target := config.getoption("--fnintern-report"):
        Path(target).write_text(json.dumps(counts.dump(), indent=1), encoding="utf-8")

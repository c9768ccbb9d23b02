"""A pytest plugin: the option ``--fnintern-patch-all`` runs the tests under :func:`patch_all`.

Loaded by pytest wherever fnintern is installed, so it imports nothing before the option is given.
"""

from __future__ import annotations

import pytest

__all__ = ["pytest_addoption", "pytest_configure"]

_OPTION = "--fnintern-patch-all"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.getgroup("fnintern").addoption(
        _OPTION,
        action="store_true",
        help="run all tests under fnintern.patch_all(), and print its summary",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Apply the patch before any test is imported, and for as long as pytest runs."""
    if config.getoption(_OPTION):
        config.pluginmanager.register(_Patched(), "fnintern-patched")


class _Patched:
    def __init__(self) -> None:
        from fnintern.patches.everything import apply_all

        self._patch = apply_all((), ())

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("fnintern.patch_all()")
        terminalreporter.write_line(str(self._patch.summary()))

    def pytest_unconfigure(self) -> None:
        self._patch.revert()

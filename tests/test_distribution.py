"""What ``make dist`` looks for in a wheel, a source distribution and their metadata, it finds."""

from __future__ import annotations

import email.parser
from pathlib import Path

import pytest

import distribution

MODULES = ["fnintern/__init__.py", "fnintern/keys.py"]
WHEEL = [
    *MODULES,
    "fnintern/py.typed",
    "fnintern/retracing/page.html",
    "fnintern-1.dist-info/METADATA",
    "fnintern-1.dist-info/entry_points.txt",
    "fnintern-1.dist-info/licenses/LICENSE",
]
SDIST = list(distribution._SDIST)


def test_a_wheel_of_the_package_alone_is_right() -> None:
    assert distribution.wheel_problems(WHEEL, MODULES) == []


@pytest.mark.parametrize(
    "extra",
    ["tests/test_keys.py", "benchmarks/hits.py", "fnintern/tests/x.py", "fnintern/test_keys.py",
     "fnintern/benchmarks/hits.py", "conftest.py", "docs/index.md"],
)  # fmt: skip
def test_a_wheel_with_more_in_it_is_wrong(extra: str) -> None:
    (problem,) = distribution.wheel_problems([*WHEEL, extra], MODULES)
    assert extra in problem


@pytest.mark.parametrize("missing", [n for n in WHEEL if not n.endswith("METADATA")])
def test_a_wheel_with_less_in_it_is_wrong(missing: str) -> None:
    (problem,) = distribution.wheel_problems([n for n in WHEEL if n != missing], MODULES)
    assert problem.startswith("lacks ")


def test_a_source_distribution_is_complete_and_clean() -> None:
    assert distribution.sdist_problems(SDIST) == []
    assert distribution.sdist_problems(SDIST[1:]) == [f"lacks {SDIST[0]}"]
    built = "docs/_build/html/index.html"
    assert distribution.sdist_problems([*SDIST, built]) == [f"has {built}"]


def test_metadata_are_complete() -> None:
    lines = "".join(f"{field}: x\n" for field in distribution._METADATA)
    parse = email.parser.Parser().parsestr
    assert distribution.metadata_problems(parse(f"{lines}\n[a](https://x.org/docs/a.md)")) == []
    assert len(distribution.metadata_problems(parse(f"{lines}\n[a](docs/a.md)"))) == 1
    (problem,) = distribution.metadata_problems(parse(lines.replace("Keywords: x\n", "") + "\n"))
    assert problem == "lacks Keywords"


def test_the_quick_tests_are_there() -> None:
    here = Path(__file__).parent
    assert [name for name in distribution.QUICK if not (here / name).exists()] == []

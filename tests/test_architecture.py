"""Imports within fnintern go along the arrows that docs/CONTRIBUTING.md draws, and in no circle."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import fnintern

ROOT = Path(str(fnintern.__file__)).parent
PAGE = Path(__file__).parent.parent / "docs" / "CONTRIBUTING.md"
#: What may import all of it.
ROOF = {"__init__", "__main__", "demo"}
#: Package or module -> what it may import.
ARROWS = {
    name: set(to.split())
    for name, to in re.findall(r"^(\w+) +->((?: \w+)*)  ", PAGE.read_text(), re.MULTILINE)
}


def modules(root: Path = ROOT) -> dict[str, Path]:
    """Dotted name below ``fnintern`` -> file."""
    return {
        ".".join(file.relative_to(root).with_suffix("").parts): file for file in root.rglob("*.py")
    }


def imported(tree: ast.AST, package: str, *, at_once: bool = False) -> Iterator[str]:
    """What a module imports of fnintern when it runs, below ``fnintern``.

    Args:
        tree: of the module.
        package: in which it lies, below ``fnintern``.
        at_once: whether what functions import is left out.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from (n for other in node.orelse for n in imported(other, package))
            continue
        if isinstance(node, ast.ImportFrom):
            module = f"fnintern.{package}.{node.module or ''}" if node.level else node.module or ""
            if module.partition(".")[0] == "fnintern":
                inner = module.strip(".").removeprefix("fnintern").lstrip(".")
                yield from (f"{inner}.{alias.name}".lstrip(".") for alias in node.names)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "fnintern":
                    yield alias.name.removeprefix("fnintern").lstrip(".") or "__init__"
        elif not (at_once and isinstance(node, ast.FunctionDef)):
            yield from imported(node, package, at_once=at_once)


def arrows(name: str, file: Path) -> set[str]:
    tree = ast.parse(file.read_text())
    return {n.partition(".")[0] for n in imported(tree, name.rpartition(".")[0])}


@pytest.mark.parametrize("name", sorted(modules()))
def test_imports_go_along_the_arrows(name: str) -> None:
    part = name.partition(".")[0]
    if part in ROOF:
        return
    assert arrows(name, modules()[name]) - {part} <= ARROWS[part]


def test_every_part_is_in_the_picture_and_nothing_else() -> None:
    parts = {name.partition(".")[0] for name in modules()}
    assert parts - ROOF == set(ARROWS)


def test_the_picture_has_no_circle() -> None:
    done: set[str] = set()
    while ready := {part for part, to in ARROWS.items() if part not in done and to <= done}:
        done |= ready
    assert done == set(ARROWS)


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Names that refer to each other in a circle, or none."""

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        for other in sorted(graph.get(name, set())):
            if other not in done and (found := visit(other, [*path, name])):
                return found
        done.add(name)
        return []

    done: set[str] = set()
    return next((found for name in sorted(graph) if (found := visit(name, []))), [])


def test_no_modules_import_each_other_in_a_circle() -> None:
    files = modules()
    graph: dict[str, set[str]] = {}
    for name, file in files.items():
        names = imported(ast.parse(file.read_text()), name.rpartition(".")[0], at_once=True)
        found = {n if n in files else n.rpartition(".")[0] for n in names}
        graph[name] = found & set(files) - {"__init__"}
    assert len(graph["staging.conversion"]) > 5
    assert circle(graph) == []
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) == ["a", "b", "c", "a"]


def test_an_arrow_that_is_not_drawn_is_found(tmp_path: Path) -> None:
    module = tmp_path / "keys" / "wrong.py"
    module.parent.mkdir()
    module.write_text("def f():\n    from fnintern.staging import eager\n    from . import tokens")
    assert arrows("keys.wrong", module) == {"staging", "keys"}


def test_no_module_is_called_as_a_public_function() -> None:
    names = {name.rpartition(".")[2] for name in modules()} - {"__init__", "lax"}
    assert names.isdisjoint(dir(fnintern))


@pytest.mark.parametrize("name", sorted({name for name in modules() if name not in ROOF}))
def test_no_module_is_longer_than_an_evening(name: str) -> None:
    assert len(modules()[name].read_text().splitlines()) <= 450


@pytest.mark.parametrize("package", sorted(p.parent.name for p in ROOT.glob("*/__init__.py")))
def test_every_package_says_what_it_owns(package: str) -> None:
    text = (ROOT / package / "README.md").read_text()
    for module in (ROOT / package).glob("*.py"):
        assert module.name == "__init__.py" or f"`{module.name}`" in text

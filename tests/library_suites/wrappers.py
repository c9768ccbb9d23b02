"""What of the installed ``flax.nnx`` wraps a user's function, read from its source.

Four kinds of finding:

- ``class``: in ``transforms``, one with a callable among its fields or the arguments of its
  ``__init__``, or that is named like a wrapper.
- ``closure``: in ``transforms``, a function that makes another one around what it is given.
- ``memo``: in ``transforms``, a variable or a function that remembers what was made before.
- ``operation``: anywhere, an operation of jax that traces the function it is given.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs

__all__ = ["Finding", "findings", "findings_in"]

#: Ends of the names that flax gives to its wrappers.
_ENDINGS: Final = ("Fn", "Wrapped", "Wrapper")
#: F is flax's type variable for functions.
_CALLABLE: Final = ("Callable", "F")
_MEMOS: Final = ("WeakKeyDictionary", "WeakValueDictionary", "lru_cache", "cache", "cached_partial")
#: What jax calls those parameters of its operations that it traces.
_FUNCTIONS: Final = frozenset(
    ("f", "fun", "fn", "func", "function", "true_fun", "branches", "cond_fun", "body_fun")
)
#: Modules whose functions call what they are given, and trace nothing.
_NOT_TRACING: Final = ("jax.tree.", "jax.tree_util.", "jax.numpy.")


@attrs.frozen(order=True)
class Finding:
    """One thing that wraps a function.

    Attributes:
        module: the module of ``flax.nnx`` that has it, such as ``transforms.iteration``.
        name: the class, function or variable; an operation as the code spells it, since that
            decides whether the patch, which stands in for the name ``jax``, takes its place.
        kind: see above.
        line: where it is first.
    """

    module: str
    name: str
    kind: str = attrs.field(eq=False)
    line: int = attrs.field(eq=False)

    def __str__(self) -> str:
        return f"{self.kind} {self.module}.{self.name}, line {self.line}"


def findings() -> list[Finding]:
    """All findings in the installed flax, each once."""
    root = Path(str(importlib.import_module("flax.nnx").__file__)).parent
    found: dict[Finding, None] = {}
    for path in sorted(root.rglob("*.py")):
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        found |= dict.fromkeys(findings_in(path.read_text(encoding="utf-8"), module))
    return sorted(found)


def findings_in(source: str, module: str) -> Iterator[Finding]:
    """The findings in the source of one module, some of them more than once."""
    tree = ast.parse(source)
    if module.startswith("transforms."):
        for statement in tree.body:
            yield from (
                Finding(module, name, kind, statement.lineno) for kind, name in _wrappers(statement)
            )
    names = _names_of_jax(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
            name = ast.unparse(node)
            first, dot, rest = name.partition(".")
            if first in names and _traces(names[first] + dot + rest):
                yield Finding(module, name, "operation", node.lineno)


def _wrappers(statement: ast.stmt) -> Iterator[tuple[str, str]]:
    """Kind and name of what a statement of a module of transforms defines."""
    if isinstance(statement, ast.ClassDef):
        annotations = [c.annotation for c in statement.body if isinstance(c, ast.AnnAssign)]
        for child in statement.body:
            if isinstance(child, ast.FunctionDef) and child.name in ("__init__", "__new__"):
                annotations += [a.annotation for a in _parameters(child) if a.annotation]
        if statement.name.endswith(_ENDINGS) or any(_has(a, _CALLABLE) for a in annotations):
            yield "class", statement.name
    elif isinstance(statement, ast.FunctionDef):
        inner = [c for c in ast.walk(statement) if isinstance(c, ast.FunctionDef)][1:]
        wraps = any(_has(d, ("wraps",)) for c in inner for d in c.decorator_list)
        if wraps or _returned(statement) & {c.name for c in inner}:
            yield "closure", statement.name
        about = [a.annotation for a in _parameters(statement)] + statement.decorator_list
        if any(_has(node, _MEMOS) for node in about):
            yield "memo", statement.name
    elif isinstance(statement, ast.Assign | ast.AnnAssign) and _has(statement.value, _MEMOS):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            yield "memo", ast.unparse(target)


def _returned(function: ast.FunctionDef) -> set[str]:
    """Names that a function returns, by itself and as they are."""
    found = set()
    todo: list[ast.AST] = list(function.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Name):
            found.add(node.value.id)
        elif not isinstance(node, ast.FunctionDef | ast.Lambda):
            todo += ast.iter_child_nodes(node)
    return found


def _parameters(function: ast.FunctionDef) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _has(node: ast.AST | None, names: tuple[str, ...]) -> bool:
    """Whether one of the names occurs, alone or as an attribute."""
    found = ast.walk(node) if node is not None else ()
    return any(getattr(child, "id", getattr(child, "attr", None)) in names for child in found)


def _names_of_jax(tree: ast.Module) -> dict[str, str]:
    """Names that a module imports from jax, with what they are."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                names[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return {name: full for name, full in names.items() if f"{full}.".startswith("jax.")}


def _traces(name: str) -> bool:
    """Whether a full name is that of a function of jax that traces a function it is given."""
    if name.startswith(_NOT_TRACING):
        return False
    path, _, last = name.rpartition(".")
    operation: Any = _resolve(path, last)
    if not callable(operation):
        return False
    import jax

    if isinstance(operation, type) and operation not in (jax.custom_vjp, jax.custom_jvp):
        return False
    try:
        return not _FUNCTIONS.isdisjoint(inspect.signature(operation).parameters)
    except (TypeError, ValueError):
        return False


def _resolve(path: str, name: str) -> Any:
    """What a module has under a name; None for all else."""
    try:
        return getattr(importlib.import_module(path), name, None)
    except (ImportError, ValueError):
        return None

"""The page, as Markdown, and back: what it says of one Python can be compared with a new run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.compare import cost
from benchmarks.compare.contestants import FLAX
from benchmarks.compare.environments import Environment
from benchmarks.compare.findings import Findings
from benchmarks.compare.probes import ABSENT, PROBES

__all__ = ["NOT_RUN", "read", "render"]

NOT_RUN = "not run"
#: An environment, and what was found in it, or why nothing was.
Found = tuple[Environment, Findings | str]

HEAD = """\
# Compare

<!-- Written by `make compare`. Do not edit: each cell is what a probe answered. -->

JAX finds what it has traced by the function object, so a library that wraps your function needs a
memo: the same wrapper for the same function. This page asks the same questions of everything that
could be that memo. Each cell is the answer of a probe that ran, in `benchmarks/compare/probes.py`;
none is written by hand. To run them again, on both releases of flax:

```sh
make compare
```

The contestants, each on the same factory, which makes a wrapper with two fields:

- **flax 0.12.8 and before** has no memo: `nnx.cond(..., graph_updates=False)` wraps at each call.
- **flax 0.12.9 and later** has one in a `WeakKeyDictionary`, for `nnx.cond` and loops in that mode.
- **`functools.lru_cache`**, with `typed=True` and no bound.
- **`weakref_lru_cache`** and **`weak_value_interner`** of jax, in C++; private to it. The first
  refers to the first argument weakly and to the wrapper strongly, the second to the wrapper weakly.
- **`WeakKeyDictionary`**: a memo written like flax's, on the factory of the others.
- **fnintern** with `@interned` (by object) and `@interned(by="value")`, which is how
  `patch_flax()` compares.

**Bold** is an answer that breaks the law beside it ([the laws](laws.md)), or a call that traces
again; a trace and a compilation cost 20 to 40 ms. By object is JAX's own contract: what a function
captures is taken as constant, so the stale rows are no bug of it, nor of `lru_cache`; they are why
a patch of somebody else's library must compare by value. What never hits is never stale: read the
second table with the first. Where two Pythons differ, a cell has both.
"""


def render(found: Sequence[Found]) -> str:
    """The page."""
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Sequence[Found]) -> Iterator[str]:
    yield HEAD
    yield "Run on:"
    yield ""
    for environment, findings in found:
        yield f"- {_described(environment, findings)}"
    tables = dict.fromkeys(probe.table for probe in PROBES)
    for table in tables:
        yield f"\n## {table}\n"
        yield from _table(found, [(p.law, p.question) for p in PROBES if p.table == table])
    yield "\n## How many rows have no bold cell?\n"
    yield from _tally(found)
    yield f"\n## {cost.TABLE}\n"
    yield "Ratios of processor time within a round, in one process: median (quartiles)."
    yield "The wrapper is held, so that all can hit. A `cond` that traces again pays for it here.\n"
    yield from _table(found, [("", question) for question in cost.QUESTIONS])


def _described(environment: Environment, findings: Findings | str) -> str:
    if isinstance(findings, str):
        return f"{environment.flax}: {NOT_RUN}, {findings}"
    return ", ".join(f"{name} {version}" for name, version in findings.versions.items())


def _columns(found: Sequence[Found]) -> list[tuple[str, str, list[Findings]]]:
    """Head, contestant, and whose findings are in the column."""
    ran = [findings for _, findings in found if isinstance(findings, Findings)]
    heads = []
    for environment, findings in found:
        if isinstance(findings, Findings):
            heads.append((f"flax {findings.versions['flax']}", FLAX, [findings]))
        else:
            heads.append((environment.flax, FLAX, []))
    names = dict.fromkeys(
        name for findings in ran for row in findings.cells.values() for name in row if name != FLAX
    )
    return heads + [(name, name, ran) for name in names]


def _table(found: Sequence[Found], rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    columns = _columns(found)
    laws = any(law for law, _ in rows)
    heads = [*(["law"] if laws else []), "", *(head for head, _, _ in columns)]
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    for law, question in rows:
        cells = [_cell(question, contestant, of) for _, contestant, of in columns]
        linked = f"[{law}](laws.md#{law.lower()})" if law else ""
        yield f"| {' | '.join([*([linked] if laws else []), question, *cells])} |"


def _cell(question: str, contestant: str, of: Sequence[Findings]) -> str:
    answers = {findings.python: findings.cells.get(question, {}) for findings in of}
    texts = {
        python: _emphasized(question, row[contestant])
        for python, row in answers.items()
        if contestant in row
    }
    if not texts:
        return NOT_RUN
    if len(set(texts.values())) == 1:
        return next(iter(texts.values()))
    return "<br>".join(f"{python}: {text}" for python, text in texts.items())


def _good(question: str, answer: str) -> bool:
    return any(probe.question == question and answer in probe.good for probe in PROBES)


def _emphasized(question: str, answer: str) -> str:
    if question in cost.QUESTIONS or answer == ABSENT or _good(question, answer):
        return answer
    return f"**{answer}**"


def _tally(found: Sequence[Found]) -> Iterator[str]:
    columns = _columns(found)
    yield f"| {' | '.join(head for head, _, _ in columns)} |"
    yield "|" + "---|" * len(columns)
    cells = []
    for _, contestant, of in columns:
        good = [
            all(
                _good(probe.question, findings.cells[probe.question][contestant]) for findings in of
            )
            for probe in PROBES
        ]
        cells.append(f"{sum(good)} of {len(good)}" if of else NOT_RUN)
    yield f"| {' | '.join(cells)} |"


def read(page: str, python: str, flax: str) -> dict[str, dict[str, str]]:
    """Question -> contestant -> what the page says of one Python, with its release of flax.

    The columns of other releases of flax are left out.
    """
    cells: dict[str, dict[str, str]] = {}
    heads: list[str] = []
    for line in page.splitlines():
        if not line.startswith("|"):
            heads = []
            continue
        row = [cell.strip() for cell in line.strip("|").split(" | ")]
        if not heads:
            heads = row
        elif "" in heads and not line.startswith("|---"):
            question = row[heads.index("")]
            for head, cell in list(zip(heads, row, strict=True))[heads.index("") + 1 :]:
                if head == f"flax {flax}" or not head.startswith("flax "):
                    name = FLAX if head.startswith("flax ") else head
                    cells.setdefault(question, {})[name] = _of(cell, python)
    return cells


def _of(cell: str, python: str) -> str:
    """What a cell says of one Python."""
    for text in cell.split("<br>"):
        version, colon, answer = text.partition(": ")
        if colon and version == python:
            cell = answer
    return cell.removeprefix("**").removesuffix("**")

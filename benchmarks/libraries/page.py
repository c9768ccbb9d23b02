"""Renders ``docs/libraries.md`` from what was counted."""

from __future__ import annotations

import importlib.metadata
import platform
from collections import Counter
from collections.abc import Iterator

from benchmarks.libraries.measuring import Count, missing, same_results
from benchmarks.libraries.program import Program, programs

__all__ = ["lines", "verdict"]

#: What brings a row to nothing traced.
PATCH, ALL, LINE, STABLE, NOT = "`patch_jax()`", "`patch_all()`", "one line", "no need", "nothing"

INTRODUCTION = """\
# Other libraries, counted

What an eager call traces and compiles, again and again, in programs over other JAX libraries:
tracing cache misses/compilations a call, after three calls to warm up. Every call has other
numbers. *Before* is the program as it is; then the same under `fnintern.patch_jax()`, and under
`fnintern.patch_all()`, unknown to the program; then with a line that its user writes. A variant
that does not return the same, call by call, is marked.

```sh
make libraries
```
"""

HELP = """\
## How to read it

`interned` is `fnintern.interned`; `same` is `interned(by="value")(lambda f: f)`, which gives
equal functions one identity, so that it can stand wherever a function is an argument. Under *by*
is what brings a row to 0/0: `patch_jax()`; else `patch_all()`; else *one line* of the user's; else
*nothing*, and why not. [Other libraries](recipes.md) shows the lines at work. A report is the
public one that a program rebuilds.
"""


def verdict(program: Program, row: dict[str, Count]) -> str:
    """What brings a program to nothing traced and nothing compiled."""
    if row["before"].nothing:
        return STABLE
    for variant, words in (("patch_jax", PATCH), ("patch_all", ALL), ("recipe", LINE)):
        found = row.get(variant)
        if found is not None and found.nothing:
            return words
    return NOT


def _cell(count: Count | None, before: Count) -> str:
    if count is None:
        return ""
    if not count.error and not before.error and not same_results(before, count):
        return f"{count}, **other results**"
    return str(count)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def lines(found: dict[str, dict[str, Count]]) -> Iterator[str]:
    """The page, line by line."""
    yield from INTRODUCTION.splitlines()
    shown = [p for p in programs() if p.id in found["before"]]
    libraries = list(dict.fromkeys(p.library for p in shown))
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in libraries)
    yield ""
    yield f"Python {platform.python_version()}, {versions}, on the CPU."
    verdicts: Counter[str] = Counter()
    for library in libraries:
        yield ""
        yield f"## {library}"
        yield ""
        yield (
            "| eager call | before | `patch_jax()` | `patch_all()` | with a line | by "
            "| the line, and why |"
        )
        yield "|---|---|---|---|---|---|---|"
        said = ""
        for program in shown:
            if program.library != library:
                continue
            row = {variant: of[program.id] for variant, of in found.items() if program.id in of}
            before, fixed = row["before"], verdict(program, row)
            verdicts[fixed] += 1
            name = program.name + (f" ({program.report})" if program.report else "")
            notes = []
            if program.recipe:
                notes.append(_escaped(program.recipe))
            if program.why and fixed not in (PATCH, ALL):
                notes.append(program.why)
            note = "; ".join(notes)
            cells = (
                name,
                str(before),
                _cell(row.get("patch_jax"), before),
                _cell(row.get("patch_all"), before),
                _cell(row.get("recipe"), before),
                fixed,
                "as above" if note and note == said else note,
            )
            said = note
            yield f"| {' | '.join(cells)} |"
    yield ""
    yield from HELP.splitlines()
    yield ""
    yield (
        f"{len(shown)} programs, by what helps: "
        + ", ".join(f"{v} {n}" for v, n in verdicts.items())
        + "."
    )
    absent = sorted({missing(p) for p in programs()} - {""})
    if absent:
        yield f"Left out: {', '.join(absent)}."

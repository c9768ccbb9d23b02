"""The page of the benchmarks: a section for each Python with its releases, a block for each table.

What is between two marks is written by the benchmarks; a run replaces the blocks that it ran, in
the section of its own releases, and leaves the rest of the page as it is.
"""

from __future__ import annotations

import re

__all__ = ["HEAD", "merged", "sections"]

HEAD = """\
# Benchmarks

<!-- The sections between the marks "begin" and "end" are generated, by `make bench`. -->
"""

_SECTION = re.compile(r"<!-- begin (?P<versions>[^\n]*) -->\n(?P<body>.*?)<!-- end -->\n", re.S)
_BLOCK = re.compile(r"<!-- table (?P<name>\w+) -->\n(?P<text>.*?)(?=<!-- table |\Z)", re.S)


def sections(page: str) -> dict[str, str]:
    """Versions -> what is between the marks of their section."""
    return {found["versions"]: found["body"] for found in _SECTION.finditer(page)}


def merged(page: str, versions: str, blocks: dict[str, str], order: list[str]) -> str:
    """The page with some blocks replaced, or added where they belong.

    Args:
        versions: what the section is of, such as ``"Python 3.13.0, jax 0.12.0.1, flax 0.12.12"``.
        blocks: name -> Markdown, without a mark.
        order: the names of all blocks; others are left out.
    """
    body = sections(page).get(versions, "")
    known = {found["name"]: found["text"].strip() for found in _BLOCK.finditer(body)}
    known |= {name: text.strip() for name, text in blocks.items()}
    body = f"## {versions}\n\n" + "".join(
        f"<!-- table {name} -->\n{known[name]}\n\n" for name in order if name in known
    )
    section = f"<!-- begin {versions} -->\n{body}<!-- end -->\n"
    for found in _SECTION.finditer(page):
        if found["versions"] == versions:
            return page[: found.start()] + section + page[found.end() :]
    # A new one goes after the others, and before what follows them.
    ends = [found.end() for found in _SECTION.finditer(page)]
    if ends:
        return page[: ends[-1]] + "\n" + section + page[ends[-1] :]
    return (page or HEAD).rstrip("\n") + "\n\n" + section

"""``python -m benchmarks.front``: the demo on each Python, into the README and the start page.

The start page has the demo's tables as they are printed, the README the rows of the default mode.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import attrs

__all__ = ["Demo", "front", "inserted", "main", "summary"]

ROOT = Path(__file__).parent.parent
README, START = ROOT / "README.md", ROOT / "docs" / "index.md"

BEGIN, END = "<!-- begin figures -->\n", "<!-- end figures -->\n"
#: What the README calls a row of the demo.
ROWS = {
    "nnx.cond, module-level functions": "`nnx.cond`, functions of a module",
    "nnx.switch, module-level functions": "`nnx.switch`, functions of a module",
    "nnx.cond, functools.partial, made again for each call": "`nnx.cond`, partials",
    "nnx.cond, bound methods of a plain object": "`nnx.cond`, bound methods",
    "nnx.cond, lambdas, made again for each call": "`nnx.cond`, lambdas",
}
LEGEND = """\
*as installed* is flax without fnintern, *patched* is with it, and *kept* is `jax.lax.cond` or \
`jax.lax.switch` with functions that
stay the same objects."""


@attrs.frozen
class Demo:
    """What the demo printed on one Python."""

    text: str

    @property
    def table(self) -> str:
        """The versions, and the table."""
        start = self.text.index("python ")
        table = self.text[start : self.text.index("\nlimit:")]
        return re.sub(r"fnintern [^,]+, ", "", table).rstrip()

    @property
    def flax(self) -> str:
        found = re.search(r"flax ([\d.]+)", self.text)
        assert found is not None
        return found[1]

    def cells(self, name: str, mode: str = "default mode") -> list[str]:
        """Misses, compilations and milliseconds: before, after and limit of each."""
        after = self.text[self.text.index(f"\n{name}\n") :]
        line = next(line for line in after.splitlines() if line.strip().startswith(mode))
        return line.replace(mode, "").split()


def summary(demos: Sequence[Demo]) -> str:
    """The table of the README."""
    heads = ["milliseconds an eager call (traces)"]
    for demo in demos:
        heads += [f"flax {demo.flax} as installed", "patched", "kept"]
    lines = [f"| {' | '.join(heads)} |", "|---|" + "--:|" * (len(heads) - 1)]
    for name, words in ROWS.items():
        row = [words]
        for demo in demos:
            cells = demo.cells(name)
            traces, milliseconds = cells[:3], cells[6:]
            row += [f"{ms} ({n})" for ms, n in zip(milliseconds, traces, strict=True)]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join([*lines, "", LEGEND])


def front(demos: Sequence[Demo]) -> str:
    """What the start page shows."""
    blocks = [f"```text\n{demo.table}\n```" for demo in demos]
    return "\n\n".join(
        [
            "## What it saves",
            "`make demo` calls `nnx.cond` and `nnx.switch` again and again, in flax's three modes:",
            summary(demos),
            "flax 0.12.9 and later have a memo of their own for the other two modes. It keeps "
            "functions alive for\ngood and returns numbers of before a change "
            "([why](how_it_works.md)); patched, another takes its place,\nwhich costs about as "
            "much. The whole tables, where `limit` is what is called *kept* above:",
            *blocks,
        ]
    )


def inserted(page: str, text: str) -> str:
    """The page with the text between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise ValueError(f"the page has no text between {BEGIN.strip()} and {END.strip()}")
    return f"{before}{BEGIN}\n{text}\n\n{END}{after}"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the demos and writes both pages; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.front", description=__doc__)
    parser.add_argument("pythons", nargs="*", default=[sys.executable], help="interpreters")
    options = parser.parse_args(argv)
    demos = []
    for python in options.pythons:
        print(f"{python} -m fnintern demo ...", file=sys.stderr, flush=True)
        done = subprocess.run(
            [python, "-m", "fnintern", "demo"], stdout=subprocess.PIPE, text=True, check=True
        )
        demos.append(Demo(done.stdout))
    README.write_text(inserted(README.read_text(), summary(demos)))
    START.write_text(inserted(START.read_text(), front(demos)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

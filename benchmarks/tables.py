"""What a benchmark hands back: tables, figures that are aimed at, and plots.

The same table is printed with aligned columns, and written as Markdown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from benchmarks.timing import digits

__all__ = ["Bars", "Check", "Lines", "Plot", "Result", "Table"]


@attrs.frozen
class Table:
    """Rows of text under heads; all columns but the first ``words`` hold figures."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1

    def text(self) -> str:
        """Aligned, for a terminal."""
        widths = [max(map(len, column)) for column in zip(self.heads, *self.rows, strict=True)]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if number < self.words else cell.rjust(width)
                for number, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in (self.heads, *self.rows)
        )

    def markdown(self) -> str:
        """For the page."""
        rules = ["---" if number < self.words else "--:" for number in range(len(self.heads))]
        rows = [" | ".join(row) for row in (self.heads, rules, *self.rows)]
        return "\n".join(f"| {row} |" for row in rows)


@attrs.frozen
class Check:
    """A figure that is aimed at: ``what`` is at most ``bound``, or below it if ``strict``."""

    what: str
    figure: float
    bound: float
    strict: bool = False

    def __str__(self) -> str:
        met = self.figure < self.bound if self.strict else self.figure <= self.bound
        sign = "<" if self.strict else "<="
        return (
            f"{'met' if met else 'MISSED'}: {self.what}, {digits(self.figure)} {sign} {self.bound}"
        )


@attrs.frozen
class Bars:
    """A plot of horizontal bars, some for each label, on a logarithmic axis.

    Attributes:
        name: of the file, without the version.
        title, unit: what the axis says.
        labels: from top to bottom.
        series: name -> a figure for each label.
    """

    name: str
    title: str
    unit: str
    labels: Sequence[str]
    series: Mapping[str, Sequence[float]]


@attrs.frozen
class Lines:
    """A plot of lines; ``series`` is name -> the points.

    Attributes:
        name: of the file, without the version.
        title, x, y: the title, and what the axes say.
        log: the axes that are logarithmic: "", "x", "y" or "xy".
    """

    name: str
    title: str
    x: str
    y: str
    series: Mapping[str, Sequence[tuple[float, float]]]
    log: str = ""


Plot = Bars | Lines


@attrs.frozen
class Result:
    """What one benchmark found.

    Attributes:
        title: a few words.
        notes: what the columns are, in sentences.
        tables: at least one, unless it could not run; then ``notes`` say why.
        checks: the figures in them that are aimed at.
        plots: to be drawn beside the page.
    """

    title: str
    notes: str
    tables: Sequence[Table] = ()
    checks: Sequence[Check] = ()
    plots: Sequence[Plot] = ()

    def text(self) -> str:
        """As it is printed."""
        aimed = ["\n".join(map(str, self.checks))] if self.checks else []
        blocks = [self.title, self.notes, *(table.text() for table in self.tables), *aimed]
        return "\n\n".join(blocks)

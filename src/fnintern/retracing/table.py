"""The table of a report: by rich on a terminal if that is installed, else plain text."""

from __future__ import annotations

import os
import textwrap
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from .report import Retrace, Retraces

__all__ = ["plain", "print_table", "relative", "summary"]

_WIDTH = 80
_HEAD = (
    f"{'#':>3}  {'line':<28} {'calls':>5} {'traces':>6} {'compiles':>8}"
    f" {'trace':>7} {'lower':>7} {'compile':>7}"
)


def plain(report: Retraces, top: int | None = None) -> str:
    """The table as text, at most 80 columns wide where no name is longer than that."""
    rows = report.rows
    if not rows:
        return summary(report, rows)
    lines = [summary(report, rows), "", _HEAD]
    for number, row in enumerate(rows[:top], 1):
        where = _shorten(f"{relative(row.file)}:{row.line}", 28)
        lines.append(
            f"{number:>3}  {where:<28} {row.calls:>5} {row.traces:>6} {row.compiles:>8}"
            f" {row.tracing:>6.2f}s {row.lowering:>6.2f}s {row.compiling:>6.2f}s"
        )
        for label, text in _notes(row):
            lines += textwrap.wrap(
                text,
                _WIDTH,
                initial_indent=f"     {label + ':':<10}",
                subsequent_indent=" " * 15,
                break_long_words=False,
                break_on_hyphens=False,
            )
    if top is not None and len(rows) > top:
        lines.append(f"     and {len(rows) - top} more")
    return "\n".join(lines)


def print_table(report: Retraces, file: TextIO, top: int | None = None) -> None:
    """Write the table to `file`: with colours on a terminal, where rich is installed."""
    if file.isatty() and "NO_COLOR" not in os.environ:
        try:
            from rich.console import Console
        except ImportError:
            pass
        else:
            Console(file=file, highlight=False).print(_rich(report, top))
            return
    print(plain(report, top), file=file)


def _rich(report: Retraces, top: int | None) -> Any:
    from rich.table import Table
    from rich.text import Text

    rows = report.rows
    if not rows:
        return Text(summary(report, rows), style="green")
    table = Table(title=summary(report, rows), title_justify="left", title_style="bold")
    table.add_column("line, cause, remedy", ratio=1, overflow="fold")
    for name in ("calls", "traces", "compiles", "seconds"):
        table.add_column(name, justify="right")
    for row in rows[:top]:
        text = Text(f"{relative(row.file)}:{row.line}\n", style="bold cyan")
        styles = {"cause": "yellow", "remedy": "green"}
        for label, note in _notes(row):
            text.append(f"{label}: ", style="dim")
            text.append(f"{note}\n", style=styles.get(label, "default"))
        text.rstrip()
        table.add_row(
            text, str(row.calls), str(row.traces), str(row.compiles), f"{row.seconds:.2f}"
        )
        table.add_section()
    return table


def _notes(row: Retrace) -> list[tuple[str, str]]:
    defined = f" ({relative(row.defined)})" if row.defined else ""
    notes = [("function", row.function + defined)]
    if row.source:
        notes.append(("code", _shorten(row.source, _WIDTH - 15, keep_end=False)))
    notes.append(("cause", row.cause))
    notes += [("also", text) for text in row.examples[:1]]
    return [*notes, ("remedy", row.remedy)]


def summary(report: Retraces, rows: list[Retrace]) -> str:
    """The report in two lines; in one if there is nothing to tell."""
    first = report.traces - sum(row.traces for row in rows)
    compiles = report.compiles - sum(row.compiles for row in rows)
    problems = f"\n(not explained: {report.problems[0]})" if report.problems else ""
    if not rows:
        return f"no re-traces ({first} first traces, {compiles} compilations){problems}"
    seconds = sum(row.seconds for row in rows)
    return (
        f"{len(rows)} cause{'s' if len(rows) > 1 else ''} of re-tracing:"
        f" {sum(row.traces for row in rows)} traces, {sum(row.compiles for row in rows)} compiles,"
        f" {seconds:.2f} s of {report.elapsed:.2f} s\n"
        f"(first traces, which are not re-traces: {first}, with {compiles} compiles,"
        f" {report.first_seconds:.2f} s){problems}"
    )


def relative(path: str) -> str:
    """A path as one would type it here."""
    here = os.path.join(os.getcwd(), "")
    return path.removeprefix(here)


def _shorten(text: str, width: int, *, keep_end: bool = True) -> str:
    if len(text) <= width:
        return text
    return "…" + text[1 - width :] if keep_end else text[: width - 1] + "…"

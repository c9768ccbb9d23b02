"""A report as one self-contained page: a timeline, and the table, which can be sorted."""

from __future__ import annotations

import html
import json
from importlib import resources
from typing import Any, Final

from .report import Retraces, Span
from .table import relative, summary

__all__ = ["page"]

#: More bars than that no screen can show; the shortest are left out.
_BARS: Final = 4_000


def page(seen: Retraces, *, title: str = "") -> str:
    """The page for a report, as HTML text that refers to nothing outside itself.

    Args:
        seen: a report.
        title: what was run.

    Returns:
        The text of the page.

    Example:
        >>> from fnintern import retraces
        >>> with retraces() as seen:
        ...     pass
        >>> page(seen, title="train.py").splitlines()[0]
        '<!doctype html>'
    """
    template = resources.files("fnintern.retracing").joinpath("page.html").read_text("utf-8")
    # In a script element only "</" and "<!--" end anything, but a "<" is simplest to do without.
    data = json.dumps(_data(seen)).replace("<", "\\u003c")
    return template.replace("@TITLE@", html.escape(title)).replace("@DATA@", data)


def _data(seen: Retraces) -> dict[str, Any]:
    rows = seen.rows
    return {
        "summary": " ".join(summary(seen, rows).split()),
        "elapsed": seen.elapsed,
        "seconds": seen.seconds,
        "rows": [
            {
                "where": f"{relative(row.file)}:{row.line}",
                "source": row.source,
                "function": row.function,
                "cause": row.cause,
                "examples": row.examples,
                "remedy": row.remedy,
                "calls": row.calls,
                "traces": row.traces,
                "compiles": row.compiles,
                "tracing": row.tracing,
                "lowering": row.lowering,
                "compiling": row.compiling,
            }
            for row in rows
        ],
        "spans": _bars(seen.spans),
    }


def _bars(spans: list[Span]) -> list[dict[str, Any]]:
    outermost = _without_nested(spans)
    longest = sorted(outermost, key=lambda span: -span.seconds)[:_BARS]
    return [
        {
            "kind": span.kind,
            "start": span.start,
            "seconds": span.seconds,
            "name": span.name,
            "where": relative(span.where),
            "thread": span.thread,
            "row": span.row,
            "mark": span.row >= 0 and span.kind == "tracing",
        }
        for span in sorted(longest, key=lambda span: span.start)
    ]


def _without_nested(spans: list[Span]) -> list[Span]:
    """Leave out the traces that lie within a trace, and so would be drawn over it."""
    found = []
    ends: dict[str, float] = {}
    for span in sorted(spans, key=lambda span: (span.start, -span.seconds)):
        if span.kind == "tracing":
            if span.start + span.seconds <= ends.get(span.thread, 0.0):
                continue
            ends[span.thread] = span.start + span.seconds
        found.append(span)
    return found

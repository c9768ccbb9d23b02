"""Draws the plots of the benchmarks as SVG. The only module that needs matplotlib."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.tables import Bars, Lines, Plot

__all__ = ["draw"]

#: Colours that people of any colour vision tell apart (Okabe and Ito), on white.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
MARKERS = "os^Dv*"
STYLE: Any = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "fnintern",  # the same plot is the same file
    "font.family": "sans-serif",
    "font.sans-serif": ["Helvetica", "Arial", "Liberation Sans", "DejaVu Sans", "sans-serif"],
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "figure.facecolor": "white",
}
WIDTH = 7.5


def draw(plot: Plot, path: Path) -> bool:
    """Writes the plot; False where matplotlib is not installed, and nothing was written."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("svg")
    with _figure(plot) as axes:
        if isinstance(plot, Bars):
            _bars(plot, axes)
        else:
            _lines(plot, axes)
        axes.set_title(plot.title, loc="left")
        # The date would make each file a new one.
        axes.figure.savefig(path, metadata={"Date": None, "Creator": None}, bbox_inches="tight")
    # matplotlib ends some lines in blanks.
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line.rstrip() for line in lines) + "\n")
    return True


@contextmanager
def _figure(plot: Plot) -> Iterator[Any]:
    from matplotlib import pyplot

    with pyplot.rc_context(STYLE):
        bars = len(plot.labels) * (len(plot.series) + 1) if isinstance(plot, Bars) else 16
        figure, axes = pyplot.subplots(figsize=(WIDTH, 1.0 + 0.2 * bars))
        try:
            yield axes
        finally:
            pyplot.close(figure)


def _bars(plot: Bars, axes: Any) -> None:
    step = len(plot.series) + 1
    for number, (name, figures) in enumerate(plot.series.items()):
        places = [label * step + number for label in range(len(plot.labels))]
        drawn = axes.barh(places, figures, height=0.9, label=name, color=COLOURS[number])
        axes.bar_label(drawn, [_short(figure) for figure in figures], padding=3, fontsize=8)
    middle = (len(plot.series) - 1) / 2
    axes.set_yticks([label * step + middle for label in range(len(plot.labels))], plot.labels)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(_plain)
    axes.minorticks_off()
    axes.set_xlabel(f"{plot.unit}, logarithmic")
    axes.grid(axis="x", color="#dddddd")
    axes.margins(x=0.12)
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _plain(figure: float, place: int) -> str:
    """A tick without a power of ten."""
    return f"{figure:,.10g}"


def _short(figure: float) -> str:
    return f"{figure:.0f}" if figure >= 10 else f"{figure:.2g}"


def _lines(plot: Lines, axes: Any) -> None:
    for number, (name, points) in enumerate(plot.series.items()):
        x, y = zip(*points, strict=True)
        axes.plot(
            x,
            y,
            label=name,
            color=COLOURS[number],
            marker=MARKERS[number],
            markersize=4.5,
            alpha=0.9,
        )
    if "x" in plot.log:
        axes.set_xscale("log")
    if "y" in plot.log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
    if "x" in plot.log:
        axes.xaxis.set_major_formatter(_plain)
    if "y" in plot.log:
        axes.yaxis.set_major_formatter(_plain)
    axes.minorticks_off()
    axes.set_xlabel(plot.x)
    axes.set_ylabel(plot.y)
    axes.grid(color="#dddddd")
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2)

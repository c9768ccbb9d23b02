"""The page, as a real browser renders it."""

from __future__ import annotations

import html.parser
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest

from fnintern import Retraces, retraces
from fnintern.retracing.html import page

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)


class Dom(html.parser.HTMLParser):
    """The text and attributes of the elements that a test asks for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.rows: list[list[str]] = []
        self.bar: dict[str, float] = {}
        self._in_cell = self._in_script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.elements.append((tag, found))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self._in_cell = True
        if "data-kind" in found:
            self.bar[found["data-kind"]] = float(found["data-seconds"])

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._in_cell = False

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.rows[-1][-1] += data + " "

    def named(self, tag: str, **wanted: str) -> list[dict[str, str]]:
        return [
            attrs
            for name, attrs in self.elements
            if name == tag and all(attrs.get(k.rstrip("_")) == v for k, v in wanted.items())
        ]


@pytest.fixture
def seen() -> Retraces:
    with retraces() as report:
        step = jax.jit(lambda batch: batch.sum())
        for n in (4, 5, 6):
            step(np.ones(n, np.float32))
        for rate in (1.0, 2.0):
            jax.jit(lambda x: "</script><b>"[:0] or x * rate)(1.0)
    assert len(report.rows) == 2
    return report


@pytest.fixture
def render(tmp_path: Path) -> Callable[..., Dom]:
    if not BROWSER:
        pytest.skip("no Chromium: install the system's package `chromium` to read the page in it")

    def dom(text: str, fragment: str = "") -> Dom:
        path = tmp_path / "page.html"
        path.write_text(text, encoding="utf-8")
        done = subprocess.run(
            [
                BROWSER,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                "--disable-background-networking",
                f"--user-data-dir={tmp_path / 'profile'}",
                "--dump-dom",
                f"{path.as_uri()}{fragment}",
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        return Dom(done.stdout)

    return dom


def test_page_shows_the_rows_worst_first(seen: Retraces, render: Callable[..., Dom]) -> None:
    dom = render(page(seen, title="train.py"))
    head, *body = dom.rows
    assert [cell.strip() for cell in head] == [
        *("#", "line", "calls", "traces", "compiles", "tracing", "lowering", "compiling", "total")
    ]
    assert len(body) == 2
    for number, (cells, row) in enumerate(zip(body, seen.rows, strict=True), 1):
        assert cells[0].strip() == str(number)
        text = " ".join(cells[1].split())
        assert f"test_retraces_html.py:{row.line}" in text
        for part in (row.source, row.function, row.cause, row.remedy):
            assert " ".join(part.split()) in text
        assert [int(cell) for cell in cells[2:5]] == [row.calls, row.traces, row.compiles]
    assert dom.named("th", **{"data-key": "total", "aria-sort": "descending"})


@pytest.mark.parametrize("direction", ["", "-"])
def test_page_sorts_by_a_column(seen: Retraces, render: Callable[..., Dom], direction: str) -> None:
    dom = render(page(seen), f"#{direction}calls")
    calls = [int(row[2]) for row in dom.rows[1:]]
    assert calls == sorted([1, 2], reverse=bool(direction))
    word = "descending" if direction else "ascending"
    assert dom.named("th", **{"data-key": "calls", "aria-sort": word})


def test_timeline_has_a_bar_for_each_stretch_and_a_mark_for_each_retrace(
    seen: Retraces, render: Callable[..., Dom]
) -> None:
    dom = render(page(seen))
    for kind in ("tracing", "lowering", "compiling"):
        again = dom.named("rect", class_=f"{kind} again")
        assert len(again) == sum(row.calls for row in seen.rows) == 3
        assert dom.named("rect", class_=f"{kind} first")
    assert len(dom.named("path", class_="mark")) == 3
    starts = [float(bar["x"]) for bar in dom.named("rect")]
    assert starts == sorted(starts)
    assert max(starts) <= 1068


def test_seconds_of_the_bar_add_up_to_the_run(seen: Retraces, render: Callable[..., Dom]) -> None:
    dom = render(page(seen))
    assert list(dom.bar) == ["tracing", "lowering", "compiling", "rest"]
    assert sum(dom.bar.values()) == pytest.approx(seen.elapsed)
    for kind, seconds in seen.seconds.items():
        assert dom.bar[kind] == pytest.approx(seconds)


def test_page_of_a_run_without_retraces_has_no_table(render: Callable[..., Dom]) -> None:
    with retraces() as report:
        pass
    dom = render(page(report))
    assert dom.named("table", id="rows", hidden="")
    assert dom.named("rect") == []


def test_page_refers_to_nothing_outside_itself(seen: Retraces) -> None:
    text = page(seen, title="<img>")
    assert "<img>" not in text
    assert "<title>Re-traces: &lt;img&gt;</title>" in text
    assert re.findall(r"(?:src|href|url|import)\s*[=(]\s*[\"']?[^\"'\s)]+", text) == []
    assert set(re.findall(r"https?://[^\s\"]+", text)) <= {"http://www.w3.org/2000/svg"}


def test_source_text_cannot_end_the_script(seen: Retraces, render: Callable[..., Dom]) -> None:
    assert any("</script>" in row.source for row in seen.rows)
    assert page(seen).count("</script>") == 2
    dom = render(page(seen))
    assert any("</script><b>" in row[1] for row in dom.rows)
    assert dom.named("b") == []

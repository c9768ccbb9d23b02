"""Every example of the README and of docs/ runs, and prints what the page shows.

- A ``python`` block with prompts is a doctest. Those of a page run in order, in one namespace.
- A ``python`` block with tests in it is run by pytest.
- A ``console`` block is run where its page is, and what it prints is compared, but for seconds.

A page leaves nothing patched for the next one.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import attrs
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import front

from fnintern.patches import patching

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
PAGES = [page for page in PAGES if "_build" not in page.parts]

#: Pages whose examples are run by tests of their own, which know what each section needs.
ELSEWHERE = {"recipes.md": "test_recipes.py"}

#: Pages that would say little without their examples: how many there are at least.
EXAMPLES = {"README.md": 8, "limits.md": 40}


@attrs.frozen
class Block:
    """A fenced block: its language, its text, and the line of the page that it begins on."""

    language: str
    text: str
    line: int = attrs.field(eq=False)


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a page, those in lists and quotes included."""
    opened = re.compile(r"^(?P<indent> *)(?P<fence>`{3,})(?P<language>[\w+-]*).*\n", re.MULTILINE)
    position = 0
    while (found := opened.search(text, position)) is not None:
        closed = re.compile(rf"^{found['indent']}{found['fence']}`* *$", re.MULTILINE)
        end = closed.search(text, found.end())
        assert end is not None, f"a block is never closed: {found[0]}"
        lines = text[found.end() : end.start()].splitlines(keepends=True)
        inner = "".join(line.removeprefix(found["indent"]) for line in lines)
        yield Block(found["language"], inner, text.count("\n", 0, found.end()) + 1)
        position = end.end()


def is_doctest(block: Block) -> bool:
    return block.language == "python" and ">>> " in block.text


def is_tests(block: Block) -> bool:
    return block.language == "python" and re.search(r"^def test_", block.text, re.M) is not None


def ids(pages: list[Path]) -> list[str]:
    return [str(page.relative_to(ROOT)) for page in pages]


def pages_with(kind: str) -> list[Path]:
    return [page for page in PAGES if any(b.language == kind for b in blocks(page.read_text()))]


@pytest.fixture
def _as_it_was() -> Iterator[None]:
    """Reverts what a page patches, should it leave it on, or stop half-way."""
    yield
    for patch in reversed(list(patching._active)):
        patch.revert()


def run_doctests(page: str, found: list[Block]) -> doctest.DocTestRunner:
    """Runs blocks in order, in one namespace; their lines are those of the page."""
    parser = doctest.DocTestParser()
    examples = []
    for block in found:
        for example in parser.get_examples(block.text, page):
            example.lineno += block.line - 1
            examples.append(example)
    test = doctest.DocTest(examples, {"__name__": Path(page).stem}, page, page, 0, None)
    report: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(test, out=report.append)
    assert not runner.failures, "".join(report)
    return runner


EXAMPLE_PAGES = [page for page in pages_with("python") if page.name not in ELSEWHERE]


@pytest.mark.usefixtures("_as_it_was")
@pytest.mark.parametrize("page", EXAMPLE_PAGES, ids=ids(EXAMPLE_PAGES))
def test_examples_run_as_shown(page: Path) -> None:
    found = [block for block in blocks(page.read_text()) if is_doctest(block)]
    runner = run_doctests(str(page.relative_to(ROOT)), found)
    assert runner.tries >= EXAMPLES.get(page.name, 0)


@pytest.mark.parametrize("page", pages_with("python"), ids=ids(pages_with("python")))
def test_every_python_block_is_run(page: Path) -> None:
    """None is there to be looked at only: it has prompts, or tests."""
    idle = [
        block.line
        for block in blocks(page.read_text())
        if block.language in ("python", "pycon", "py")
        and not (is_doctest(block) or is_tests(block))
    ]
    assert idle == []


PAGES_WITH_TESTS = [page for page in PAGES if any(map(is_tests, blocks(page.read_text())))]


def environment() -> dict[str, str]:
    """As here, with one device, and this checkout's fnintern."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


@pytest.mark.parametrize("page", PAGES_WITH_TESTS, ids=ids(PAGES_WITH_TESTS))
def test_tests_that_a_page_shows_pass(page: Path, tmp_path: Path) -> None:
    found = [block.text for block in blocks(page.read_text()) if is_tests(block)]
    (tmp_path / "test_page.py").write_text("\n\n".join(found))
    plugin = "fnintern.retracing.pytest_plugin"
    # In an environment where fnintern is not installed there is no entry point to load it by.
    known = any(e.value == plugin for e in entry_points(group="pytest11"))
    loaded = [] if known else ["-p", plugin]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *loaded, "test_page.py"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{sum(text.count('def test_') for text in found)} passed" in done.stdout


def comparable(output: str) -> list[str]:
    """Lines without what differs from run to run or from one jax to another: seconds, the rank of
    what is sorted by them, and how many traces there are within a trace."""
    output = re.sub(r"\d+\.\d+ ?s", "#s", output)
    output = re.sub(r"^  \d  (.* )\d+( +\d+( +#s){3})$", r"  #  \1#\2", output, flags=re.MULTILINE)
    output = re.sub(r"\d+( first)? traces\b", r"#\1 traces", output)
    output = re.sub(r"(first traces, which are not re-traces:) .*", r"\1 #", output)
    return sorted(" ".join(line.split()) for line in output.splitlines() if line.strip())


@pytest.mark.parametrize("page", pages_with("console"), ids=ids(pages_with("console")))
def test_commands_print_what_is_shown(page: Path) -> None:
    for block in blocks(page.read_text()):
        if block.language != "console":
            continue
        for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            if not expected.strip():  # a command alone, for the reader to fill in
                continue
            words = shlex.split(command)
            assert words[0] == "python", f"what is not Python cannot be run here: {command}"
            done = subprocess.run(
                [sys.executable, *words[1:]],
                cwd=page.parent,
                env=environment() | {"COLUMNS": "80"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=300,
            )
            assert comparable(done.stdout) == comparable(expected), done.stdout


@pytest.mark.parametrize(("page", "tests"), ELSEWHERE.items())
def test_pages_that_are_run_elsewhere_are(page: str, tests: str) -> None:
    assert (DOCS / page).exists()
    assert page in (Path(__file__).parent / tests).read_text()


def test_readme_shows_python_early() -> None:
    """The problem takes three lines, the two commands follow, and then comes Python."""
    lines = (ROOT / "README.md").read_text().splitlines()
    assert lines.index("```python") < 15


class TestTheseTestsCanFail:
    def test_a_wrong_result(self) -> None:
        with pytest.raises(AssertionError, match=r"File .page.md., line 4(.|\n)*Got:\n +2"):
            run_doctests("page.md", list(blocks("# Page\n\n```python\n>>> 1 + 1\n3\n```\n")))

    def test_blocks_are_found(self) -> None:
        text = "```python\n>>> 1\n1\n```\n\n- item:\n\n  ```text\n  a\n    b\n  ```\n"
        text += "\n````md\n```python\nx\n```\n````\n"
        assert list(blocks(text)) == [
            Block("python", ">>> 1\n1\n", 2),
            Block("text", "a\n  b\n", 9),
            Block("md", "```python\nx\n```\n", 15),
        ]

    def test_seconds_are_not_compared_and_counts_are(self) -> None:
        row = "  1  a.py:3    {} 25 {}   0.25s   0.15s   0.5s\n"
        shown = comparable(row.format(5, 6))
        assert comparable("  2  a.py:3   5   26   6   0.2s   0.2s   1.5s\n") == shown
        assert comparable(row.format(4, 6)) != shown
        assert comparable(row.format(5, 7)) != shown
        assert comparable("no re-traces (3 first traces, 4 compilations)") != comparable(
            "no re-traces (3 first traces, 5 compilations)"
        )


def test_the_table_of_the_readme_is_that_of_the_start_page() -> None:
    """Both are made of what the demo printed, which the start page has whole."""
    start = front.START.read_text()
    demos = [
        front.Demo(f"{b.text}\nlimit:") for b in blocks(start) if "tracing cache misses" in b.text
    ]
    assert [demo.flax for demo in demos] == sorted({d.flax for d in demos}, key=len)
    readme = front.README.read_text()
    assert front.inserted(readme, front.summary(demos)) == readme
    assert front.inserted(start, front.front(demos)) == start
    edited = readme.replace("(3) |", "(2) |", 1)
    assert front.inserted(edited, front.summary(demos)) != edited


#: Code of a law, such as S1.
LAW = re.compile(r"(?<![\w`])(?:I[1-6]|L[1-5]|C[12]|S[1-7])(?![\w`])")


def without_code(text: str) -> str:
    return re.sub(r"(?ms)^ *```.*?^ *```|`[^`\n]*`|<!--.*?-->", "", text)


#: Pages for those who change fnintern, and the page that defines the codes.
FOR_MAINTAINERS = {"CONTRIBUTING.md", "laws.md", "changelog.md"}
FOR_USERS = [page for page in PAGES if page.name not in FOR_MAINTAINERS]


@pytest.mark.parametrize("page", FOR_USERS, ids=ids(FOR_USERS))
def test_a_law_is_named_with_a_link(page: Path) -> None:
    text = without_code(page.read_text())
    linked = re.sub(r"\[[^\]]*\]\([^)]*laws\.md#[^)]*\)", "", text)
    assert LAW.findall(linked) == []
    for code, anchor in re.findall(r"\[[^\]]*?(\w\d)[^\]]*\]\([^)]*laws\.md#(\w+)\)", text):
        assert anchor == code.lower()
        assert f"### {code}\n" in (DOCS / "laws.md").read_text()


@pytest.mark.parametrize("page", FOR_USERS, ids=ids(FOR_USERS))
def test_a_link_is_called_by_a_title(page: Path) -> None:
    """And not by a file's name."""
    assert re.findall(r"\[`?[\w/]+\.md`?\]\(", page.read_text()) == []

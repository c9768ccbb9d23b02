"""Builds what is released, and checks it as somebody who installs it would.

    python tests/distribution.py [--all] [--python PYTHON] [REQUIREMENT ...]

Wheel and source distribution are built into ``dist/``, pass ``twine check --strict``, and hold what
they should. The wheel is installed into a new environment, with the further requirements that are
named, and the tests of the unpacked source distribution run there, without its sources: on the
command line, in pytest and in ``import fnintern`` it is the installed wheel that is tested.

By default these are the files of :data:`QUICK`, which say whether the package is whole; ``--all``
runs every test, as the legs of CI do from the checkout.
"""

from __future__ import annotations

import argparse
import email.message
import email.parser
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

__all__ = ["main", "metadata_problems", "sdist_problems", "wheel_problems"]

ROOT: Final = Path(__file__).parent.parent

#: Each reaches something that an installation could lack: modules, data files, the entry point of
#: pytest, the command line, the patch, and what the pages show.
QUICK: Final = (
    "test_classes.py",
    "test_docs.py",
    "test_identity.py",
    "test_imports.py",
    "test_new_wrappers.py",
    "test_patch_flax.py",
    "test_patching.py",
    "test_reference.py",
    "test_retraces_pytest.py",
)

#: What a wheel has beside the modules.
_WHEEL: Final = (
    "fnintern/py.typed",
    "fnintern/retracing/page.html",
    ".dist-info/entry_points.txt",
    ".dist-info/licenses/LICENSE",
)
_SDIST: Final = (
    "CHANGELOG.md", "LICENSE", "Makefile", "README.md", "pyproject.toml",
    "benchmarks/__main__.py", "docs/conf.py", "docs/index.md", "src/fnintern/py.typed",
    "tests/conftest.py", "tests/library_suites/run.py",
)  # fmt: skip
_METADATA: Final = (
    "Author", "Classifier", "Description-Content-Type", "Keywords", "License-Expression",
    "License-File", "Project-URL", "Requires-Python", "Summary",
)  # fmt: skip


def wheel_problems(names: Sequence[str], modules: Sequence[str]) -> list[str]:
    """What a wheel lacks, or has too much.

    Args:
        names: its files.
        modules: the files of the package, as ``fnintern/keys.py``.
    """
    problems = [f"lacks {name}" for name in modules if name not in names]
    problems += [f"lacks {end}" for end in _WHEEL if not any(n.endswith(end) for n in names)]
    for name in names:
        top, *parts = name.split("/")
        if top != "fnintern" and not (top.startswith("fnintern-") and top.endswith(".dist-info")):
            problems.append(f"has {name}, outside of the package")
        elif any(part.startswith(("test", "benchmark", "conftest")) for part in parts):
            problems.append(f"has {name}, which is no part of the library")
    return problems


def sdist_problems(names: Sequence[str]) -> list[str]:
    """What a source distribution lacks, or has too much; its files are named without its folder."""
    problems = [f"lacks {name}" for name in _SDIST if name not in names]
    left = ("_build", "__pycache__", ".venv", "dist", ".hypothesis")
    problems += [f"has {name}" for name in names if set(left) & set(name.split("/"))]
    return problems


def metadata_problems(metadata: email.message.Message) -> list[str]:
    """What the metadata lack."""
    problems = [f"lacks {field}" for field in _METADATA if not metadata.get_all(field)]
    description = str(metadata.get_payload())
    if "](docs/" in description:
        problems.append("has links that lead nowhere from the page of a package index")
    return problems


def _package() -> list[str]:
    source = ROOT / "src"
    return [str(path.relative_to(source)) for path in sorted(source.rglob("*.py"))]


def _run(*command: str | Path, cwd: Path = ROOT) -> None:
    print("+", *command, flush=True)
    subprocess.run(list(map(str, command)), cwd=cwd, check=True)


def _build(into: Path) -> tuple[Path, Path]:
    shutil.rmtree(into, ignore_errors=True)
    _run(sys.executable, "-m", "build", "--outdir", into)
    (wheel,), (sdist,) = into.glob("*.whl"), into.glob("*.tar.gz")
    _run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    return wheel, sdist


def _check(wheel: Path, sdist: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (path,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = email.parser.BytesParser().parsebytes(archive.read(path))
    with tarfile.open(sdist) as archive:
        inside = [name.partition("/")[2] for name in archive.getnames()]
    problems = [f"{wheel.name} {problem}" for problem in wheel_problems(names, _package())]
    problems += [f"{sdist.name} {problem}" for problem in sdist_problems(inside)]
    problems += [f"the metadata of {wheel.name} {p}" for p in metadata_problems(metadata)]
    if problems:
        sys.exit("\n".join(problems))
    print(f"{wheel.name}: {len(names)} files; {sdist.name}: {len(inside)} files")


def _test(wheel: Path, sdist: Path, python: str, requirements: Sequence[str], full: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        clean = Path(folder)
        with tarfile.open(sdist) as archive:
            archive.extractall(clean, filter="data")
        unpacked = clean / sdist.name.removesuffix(".tar.gz")
        shutil.rmtree(unpacked / "src")
        _run(python, "-m", "venv", clean / "venv")
        installed = clean / "venv" / "bin" / "python"
        install = (installed, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        _run(*install, f"fnintern[test] @ {wheel.resolve().as_uri()}", *requirements)
        where = "import fnintern; print(fnintern.__file__)"
        found = subprocess.check_output([installed, "-c", where], cwd=unpacked, text=True)
        if clean / "venv" not in Path(found.strip()).parents:
            sys.exit(f"the tests would not be of the installed wheel, but of {found}")
        tests = ["tests"] if full else [f"tests/{name}" for name in QUICK]
        # A virtual environment is passed over unless pytest is told otherwise.
        doctests = ("--collect-in-virtualenv", "--pyargs", "fnintern")
        _run(installed, "-m", "pytest", "-q", "-p", "no:cacheprovider", *doctests, cwd=unpacked)
        _run(installed, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, cwd=unpacked)


def main(argv: Sequence[str] | None = None) -> int:
    """Builds, checks and tests; returns the exit status."""
    parser = argparse.ArgumentParser(description="Builds what is released, and checks it.")
    parser.add_argument("--all", action="store_true", help="run every test, which takes minutes")
    parser.add_argument("--python", default=sys.executable, help="of the new environment")
    parser.add_argument("requirements", nargs="*", help="to install beside the wheel")
    options = parser.parse_args(argv)
    try:
        wheel, sdist = _build(ROOT / "dist")
        _check(wheel, sdist)
        _test(wheel, sdist, options.python, options.requirements, options.all)
    except subprocess.CalledProcessError as error:
        return int(error.returncode) or 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

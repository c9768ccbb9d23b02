"""The two interpreters of the comparison, each with its release of flax.

flax 0.12.8 with jax 0.10.2 is the last on Python 3.11, and the last without a memo; Python 3.12
and later have jax 0.12 and flax 0.12.12. The Makefile says so, and makes the environments.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs

from benchmarks.compare.findings import Findings

__all__ = ["ENVIRONMENTS", "Environment", "NotRun", "findings"]

ROOT = Path(__file__).parent.parent.parent


class NotRun(Exception):
    """The environment could not be had; the message says why."""


@attrs.frozen
class Environment:
    """One of the two.

    Attributes:
        flax: the column's head where it was not run.
        pythons: the versions that will do, the best first.
    """

    flax: str
    pythons: tuple[str, ...]


ENVIRONMENTS = (
    Environment("flax 0.12.8", ("3.11",)),
    Environment("flax 0.12.12", ("3.13", "3.12", "3.14")),
)


def findings(environment: Environment, given: dict[str, str], rounds: int, number: int) -> Findings:
    """What the probes find there.

    Args:
        given: version -> an interpreter with all that is needed, to be taken as it is.

    Raises:
        NotRun: no interpreter, no installation, or a process that failed.
    """
    python = _python(environment, given)
    command = [python, "-m", "benchmarks.compare", "--here", str(rounds), str(number)]
    settings = {"JAX_ENABLE_COMPILATION_CACHE": "false", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | settings, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise NotRun(f"the probes ended with status {done.returncode}")
    return Findings.from_json(done.stdout.splitlines()[-1])


def _python(environment: Environment, given: dict[str, str]) -> str:
    for version in environment.pythons:
        if version in given:
            return given[version]
    if _version(sys.executable) in environment.pythons:  # flax is here, or this did not run
        return sys.executable
    for version in environment.pythons:
        for candidate in _candidates(version):
            if _version(candidate) == version:
                return _installed(candidate, version)
    raise NotRun(f"no Python {' or '.join(environment.pythons)} was found")


def _candidates(version: str) -> Iterator[str]:
    """Interpreters that may be of a version: the one on PATH, and those of pyenv."""
    shim = shutil.which(f"python{version}")
    if shim:
        yield shim
    roots = [os.environ.get("PYENV_ROOT"), str(Path.home() / ".pyenv")]
    if shim and Path(shim).parent.name == "shims":  # it runs only what pyenv has selected
        roots.append(str(Path(shim).parent.parent))
    for root in dict.fromkeys(root for root in roots if root):
        yield from sorted(glob.glob(f"{root}/versions/{version}.*/bin/python"), reverse=True)


def _version(python: str) -> str | None:
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _installed(python: str, version: str) -> str:
    """An interpreter with jax and flax: the Makefile's environment for this one."""
    venv = f".venv-{version}"
    stamp = f"{venv}/.installed-flax"
    done = subprocess.run(
        ["make", "--no-print-directory", f"PYTHON={python}", f"VENV={venv}", stamp],
        cwd=ROOT,
        stdout=sys.stderr,
        check=False,
    )
    if done.returncode:
        raise NotRun(f"nothing could be installed for Python {version}")
    return str(ROOT / venv / "bin" / "python")

"""Runs a library's own tests without and with a patch, and compares by test.

    python tests/library_suites/run.py flax [--patch flax | jax] [--quick | --examples] [--twice]
    python tests/library_suites/run.py haiku [--patch jax | all] [--quick]
    python tests/library_suites/run.py (optax | numpyro) [--quick]

and ``[-n 2] [--sdist FILE] [TEST ...]``. Downloads the source distribution of the release that this
interpreter has installed, unpacks its tests and their configuration (not its package: what is
tested is what is installed), and fails if a test that passes without the patch does not pass with
it. The last line is ``N passed, M failed``: tests that pass under the patch, and tests that only
fail under it.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from library_suites.suites import SUITES, Suite

#: Worst first: what counts where one test reports several times (subtests).
OUTCOMES = ("error", "failed", "passed", "skipped")


def download(distribution: str, release: str, target: Path) -> Path:
    """Downloads the source distribution of a release."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--no-binary", distribution, "--dest", str(target), f"{distribution}=={release}"]
    subprocess.run(command, check=True)
    (found,) = target.glob("*.tar.gz")
    return found


def unpack(suite: Suite, sdist: Path, target: Path) -> Path:
    """Unpacks the tests and the configuration of pytest; returns the root."""
    with tarfile.open(sdist) as archive:
        for member in archive:
            destination = suite.destination(member.name)
            if destination is not None:
                archive.extract(member.replace(name=destination), target, filter="data")
    (root,) = target.iterdir()
    for module in suite.absent:
        if importlib.util.find_spec(module) is None:
            (root / f"{module}.py").touch()
    return root


def run(root: Path, tests: list[str], patch: str, options: argparse.Namespace) -> Path:
    """Runs the tests in a process of their own; returns the report."""
    suite = SUITES[options.library]
    report = root.parent.parent / f"{patch}.xml"
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider"]
    command += ["-W", "ignore::fnintern.RetraceWarning"]  # flax's tests take warnings for errors
    command += ["-p", "library_suites.plugin", f"--fnintern={patch}", f"--junitxml={report}"]
    command += suite.arguments
    command += ["-n", str(options.n), "--dist", "worksteal"] if options.n else []
    command += ["--fnintern-twice"] if options.twice else []
    command += ["--fnintern-compare"] if options.compare else []
    command += ["-k", options.k] if options.k else []
    command += [f"--fnintern-report={report.with_suffix('.json')}"]
    environment = {**os.environ, **suite.environment}
    environment.setdefault("JAX_COMPILATION_CACHE_DIR", str(root.parent.parent / "compiled"))
    paths = [str(Path(__file__).resolve().parents[1]), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    started = time.monotonic()
    with report.with_suffix(".log").open("w") as log:
        subprocess.run([*command, *tests], cwd=root, env=environment, stdout=log, stderr=log)
    if not report.exists():
        sys.exit(f"pytest did not finish:\n{report.with_suffix('.log').read_text()[-5000:]}")
    print(f"patch {patch}: {time.monotonic() - started:.0f} s", flush=True)
    return report


def outcomes(report: Path) -> dict[str, tuple[str, str]]:
    """Test -> its outcome, and what it said."""
    found: dict[str, tuple[str, str]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        outcome, message = "passed", ""
        for tag, meaning in (("skipped", "skipped"), ("failure", "failed"), ("error", "error")):
            element = case.find(tag)
            if element is not None:
                outcome, message = meaning, f"{element.get('message')}\n{element.text or ''}"
        before = found.get(name)
        if before is None or OUTCOMES.index(outcome) < OUTCOMES.index(before[0]):
            found[name] = outcome, message
    return found


def tally(found: dict[str, tuple[str, str]]) -> str:
    counts = {name: sum(outcome == name for outcome, _ in found.values()) for name in OUTCOMES}
    return ", ".join(f"{counts[name]} {name}" for name in reversed(OUTCOMES) if counts[name])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("library", choices=SUITES)
    parser.add_argument(
        "--patch", choices=("flax", "jax", "all"), help="the first that the library has"
    )
    parser.add_argument("--quick", action="store_true", help="only the files that use transforms")
    parser.add_argument("--examples", action="store_true", help="the examples instead")
    parser.add_argument(
        "--patched-first", action="store_true", help="without the patch only if a test fails"
    )
    parser.add_argument("--twice", action="store_true", help="run each test twice, to hit more")
    parser.add_argument(
        "--compare", action="store_true", help="under patch_jax, compare each call with jax.lax's"
    )
    parser.add_argument("-n", type=int, default=2, help="worker processes (pytest-xdist); 0: none")
    parser.add_argument("-k", help="as of pytest")
    parser.add_argument("--sdist", type=Path, help="use this file instead of downloading one")
    parser.add_argument("--keep", type=Path, help="leave the logs and reports in this directory")
    parser.add_argument("tests", nargs="*", help="instead of all of them")
    options = parser.parse_intermixed_args()
    suite = SUITES[options.library]
    patch = options.patch or next(iter(suite.tests))
    if patch not in suite.tests or (options.examples and not suite.examples):
        parser.error(f"not for {options.library}")
    release = importlib.metadata.version(suite.distribution)
    jax = importlib.metadata.version("jax")
    print(f"{suite.distribution} {release} under patch_{patch}, jax {jax}, "
          f"Python {sys.version.split()[0]}", flush=True)  # fmt: skip
    with tempfile.TemporaryDirectory() as scratch:
        directory = options.keep.resolve() if options.keep else Path(scratch)
        source = directory / "source"
        source.mkdir(parents=True)
        sdist = options.sdist or download(suite.distribution, release, Path(scratch))
        root = unpack(suite, sdist, source)
        tests = options.tests or list((suite.quick if options.quick else suite.tests)[patch])
        if options.examples:
            # Copied, out of reach of the configuration of our own tests.
            copy = shutil.copy(Path(__file__).with_name("examples.py"), root / "toys_test.py")
            tests = [*suite.examples, str(copy)]
        tests = [test for test in tests if (root / test).exists()]
        plain = {} if options.patched_first else outcomes(run(root, tests, "off", options))
        report = run(root, tests, patch, options)
        patched = outcomes(report)
        counted = report.with_suffix(".log").read_text()
        reasons = suite.excluded.get(patch, {})
        excluded = {name for name in patched if any(part in name for part in reasons)}
        failed = {name for name, found in patched.items() if found[0] in ("failed", "error")}
        if not plain and failed - excluded:
            plain = outcomes(run(root, tests, "off", options))
    regressions = [
        name
        for name, (outcome, _) in plain.items()
        if outcome == "passed"
        and name not in excluded
        and patched.get(name, ("missing", ""))[0] != "passed"
    ]
    for name in regressions:
        outcome, message = patched.get(name, ("missing", ""))
        print(f"\n--- only with the patch: {outcome}: {name}\n{message[-3000:]}")
    if " fnintern " in counted:
        section = counted.partition(" fnintern ")[2].partition("\n")[2]
        print("\n" + re.split(r"\n(?:==|\d+ (?:passed|failed))", section)[0])
    print(f"\nwithout the patch: {tally(plain) or 'not run, since none failed with it'}")
    print(f"with the patch:    {tally(patched)}")
    for part, reason in reasons.items():
        for name in sorted(name for name in excluded if part in name):
            print(f"left out: {name}: {reason}")
    for name, (outcome, _) in plain.items():
        if outcome in ("failed", "error") and patched.get(name, ("",))[0] == "passed":
            print(f"only without the patch: {outcome}: {name}")
    passed = sum(
        outcome == "passed" and name not in excluded for name, (outcome, _) in patched.items()
    )
    print(f"{passed} passed, {len(regressions)} failed")
    return bool(regressions) or not passed


if __name__ == "__main__":
    sys.exit(main())

"""Runs flax's own ``tests/nnx`` without and with ``patch_flax()``, and compares by test.

    python tests/flax_suite/run.py [--quick | --examples] [--twice] [-n 2] [--sdist FILE]

Downloads the source distribution of the flax release that this interpreter has installed, unpacks
its tests and their configuration (not its package: what is tested is what is installed), and fails
if a test that passes without the patch does not pass with it. The last line is
``N passed, M failed``: tests that pass under the patch, and tests that only fail under it.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

#: Tests of flax's own memo, which the patch replaces: a part of the test's name, and the reason.
EXCLUDED: dict[str, str] = {
    "TestCond::test_control_flow_reuses_branch_wrappers": (
        "it counts traces in a variable that the branch reads, so that each trace makes the "
        "branch another function (S1); flax's memo takes what a branch reads as constant"
    ),
}

#: What ``--quick`` runs: where the transforms, and what carries state through them, are tested.
QUICK = (
    "transforms_test.py", "graph_utils_test.py", "mutable_array_test.py", "rngs_test.py",
    "integration_test.py", "bridge", "nn/recurrent_test.py",
)  # fmt: skip

#: What ``--examples`` runs: those examples that need neither data nor much time.
EXAMPLES = tuple(
    f"examples/gemma/{name}_test.py"
    for name in ("helpers", "layers", "modules", "positional_embeddings", "sampler", "transformer")
)

#: As tests/run_all_tests.sh of flax sets them, on the CPU.
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "JAX_NUMPY_RANK_PROMOTION": "raise",
    "FLAX_PROFILE": "1",
    "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
    # Most of the time goes into compiling small programs. What is compiled in the first run is
    # loaded in the second: XLA's own cache, by the contents of the program, after all tracing.
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}

#: Worst first: what counts where one test reports several times (subtests).
OUTCOMES = ("error", "failed", "passed", "skipped")


def download(release: str, target: Path) -> Path:
    """Downloads the source distribution of a flax release."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--no-binary", "flax", "--dest", str(target), f"flax=={release}"]
    subprocess.run(command, check=True)
    (found,) = target.glob("flax-*.tar.gz")
    return found


def unpack(sdist: Path, target: Path) -> Path:
    """Unpacks the tests and the configuration of pytest; returns the root."""
    with tarfile.open(sdist) as archive:
        members = [
            member
            for member in archive
            if member.name.split("/")[1:2] in (["tests"], ["examples"], ["pyproject.toml"])
        ]
        archive.extractall(target, members, filter="data")
    (root,) = target.iterdir()
    return root


def run(root: Path, tests: list[str], patch: str, options: argparse.Namespace) -> Path:
    """Runs the tests in a process of their own; returns the report."""
    report = root.parent.parent / f"{patch}.xml"
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider"]
    command += ["-p", "flax_suite.plugin", f"--fnintern={patch}", f"--junitxml={report}"]
    # flax turns warnings into errors; those of a jax that is newer than the release are none.
    command += ["-W", "ignore:jax.:DeprecationWarning"]
    command += ["-n", str(options.n), "--dist", "worksteal"] if options.n else []
    command += ["--fnintern-twice"] if options.twice else []
    command += ["-k", options.k] if options.k else []
    command += [f"--fnintern-report={report.with_suffix('.json')}"]
    environment = {**os.environ, **ENVIRONMENT}
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
    parser.add_argument("--quick", action="store_true", help="only the files that use transforms")
    parser.add_argument("--examples", action="store_true", help="flax's examples instead")
    parser.add_argument("--twice", action="store_true", help="run each test twice, to hit more")
    parser.add_argument("-n", type=int, default=2, help="worker processes (pytest-xdist); 0: none")
    parser.add_argument("-k", help="as of pytest")
    parser.add_argument("--sdist", type=Path, help="use this file instead of downloading one")
    parser.add_argument("--keep", type=Path, help="leave the logs and reports in this directory")
    parser.add_argument("tests", nargs="*", help="instead of all of tests/nnx")
    options = parser.parse_args()
    release = importlib.metadata.version("flax")
    print(f"flax {release}, jax {importlib.metadata.version('jax')}, "
          f"Python {sys.version.split()[0]}", flush=True)  # fmt: skip
    with tempfile.TemporaryDirectory() as scratch:
        directory = options.keep.resolve() if options.keep else Path(scratch)
        source = directory / "source"
        source.mkdir(parents=True)
        root = unpack(options.sdist or download(release, Path(scratch)), source)
        tests = options.tests or ["tests/nnx"]
        if options.quick:
            tests = [f"tests/nnx/{name}" for name in QUICK]
        if options.examples:
            # Copied, out of reach of the configuration of our own tests.
            copy = shutil.copy(Path(__file__).with_name("examples.py"), root / "toys_test.py")
            tests = [*EXAMPLES, str(copy)]
        tests = [test for test in tests if (root / test).exists()]
        plain = outcomes(run(root, tests, "off", options))
        report = run(root, tests, "on", options)
        patched = outcomes(report)
        counted = report.with_suffix(".log").read_text()
    excluded = {name for name in plain if any(part in name for part in EXCLUDED)}
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
        print("\n" + counted.partition(" fnintern ")[2].partition("\n")[2].partition("\n==")[0])
    print(f"\nwithout the patch: {tally(plain)}")
    print(f"with the patch:    {tally(patched)}")
    for part, reason in EXCLUDED.items():
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

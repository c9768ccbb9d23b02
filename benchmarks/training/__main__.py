"""``python -m benchmarks.training``: each script plainly and under ``python -m fnintern run``.

Both have to print the same, to the last digit. Prints the seconds of each, as a ratio.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
SCRIPTS = ("nnx", "linen", "haiku_", "equinox_", "numpyro_")


def run(*command: str) -> tuple[str, float]:
    """What a command prints, and the seconds it takes."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True)
    return done.stdout, time.perf_counter() - start


def main() -> int:
    failed = 0
    print("| script | lines | the same | plain, s | patched, s | patched / plain |")
    print("|---|---|---|---|---|---|")
    for name in SCRIPTS:
        path = str(HERE / f"{name}.py")
        plain, before = run(path, *sys.argv[1:])
        patched, after = run("-m", "fnintern", "run", path, *sys.argv[1:])
        same = plain == patched
        failed += not same
        count = len(plain.splitlines())
        cells = (name.strip("_"), count, same, f"{before:.1f}", f"{after:.1f}")
        print(f"| {' | '.join(map(str, cells))} | {after / before:.2f} |", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())

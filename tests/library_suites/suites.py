"""The libraries whose own tests are run: where their tests are, and how they are to be run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

import attrs

__all__ = ["SUITES", "Suite"]


@attrs.frozen
class Suite:
    """The tests of one library.

    Attributes:
        distribution: what it is called in the package index.
        tests: patch -> the files and directories to be run. The first patch is the default.
        quick: patch -> those that ``--quick`` runs.
        excluded: patch -> a part of the name of a test that cannot pass, and the reason.
        unpacked: what of the source distribution, below its root, goes where.
        examples: what ``--examples`` runs.
        arguments: for pytest.
        environment: variables to be set.
        absent: modules that an empty one stands for if they are not installed: a single test of a
            file uses them.
    """

    distribution: str
    tests: Mapping[str, tuple[str, ...]]
    quick: Mapping[str, tuple[str, ...]]
    unpacked: Mapping[str, str]
    excluded: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)
    examples: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = attrs.field(factory=dict)
    absent: tuple[str, ...] = ()

    def destination(self, member: str) -> str | None:
        """Where a file of the source distribution is unpacked to; None if it is not."""
        root, _, path = member.partition("/")
        for source, target in self.unpacked.items():
            if PurePosixPath(path).is_relative_to(source):
                return f"{root}/{target}{path.removeprefix(source)}"
        return None


#: Most of the time goes into compiling small programs. What is compiled in the first run is loaded
#: in the second: XLA's own cache, by the contents of the program, after all tracing.
_COMPILING: Final = {
    "JAX_PLATFORMS": "cpu",
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}

_FLAX: Final = Suite(
    "flax",
    tests={"flax": ("tests/nnx",), "jax": ("tests/nnx", "tests/linen", "tests/core")},
    quick={
        # Where the transforms, and what carries state through them, are tested.
        "flax": tuple(
            f"tests/nnx/{name}"
            for name in (
                "transforms_test.py", "graph_utils_test.py", "mutable_array_test.py",
                "rngs_test.py", "integration_test.py", "bridge", "nn/recurrent_test.py",
            )
        ),
        # Where control flow is.
        "jax": (
            "tests/nnx/transforms_test.py", "tests/nnx/mutable_array_test.py",
            "tests/nnx/nn/recurrent_test.py", "tests/linen/linen_transforms_test.py",
            "tests/linen/linen_recurrent_test.py", "tests/linen/linen_combinators_test.py",
            "tests/core",
        ),
    },
    # Not its package: what is tested is what is installed.
    unpacked={"tests": "tests", "examples": "examples", "pyproject.toml": "pyproject.toml"},
    excluded={
        "jax": {
            "TransformTest::test_jit_scan_retracing_simple scan": (
                "it counts traces in what the scanned function captures, so that the call is not "
                "converted; by then JAX has the trace of a jitted function in it, which is found "
                "by equal arguments and so is not counted again"
            ),
        },
    },
    # Those that need neither data nor much time.
    examples=tuple(
        f"examples/gemma/{name}_test.py"
        for name in (
            "helpers", "layers", "modules", "positional_embeddings", "sampler", "transformer",
        )
    ),
    # flax turns warnings into errors; those of a jax that is newer than the release are none.
    arguments=("-W", "ignore:jax.:DeprecationWarning"),
    # As tests/run_all_tests.sh of flax sets them, on the CPU.
    environment={
        **_COMPILING,
        "JAX_NUMPY_RANK_PROMOTION": "raise",
        "FLAX_PROFILE": "1",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
    },
)  # fmt: skip

_LOGS: Final = {
    "test_create_module_inside_remat_jax_remat": (
        "it logs in a trace, and a function that is made again is traced once"
    ),
}

_HAIKU: Final = Suite(
    "dm-haiku",
    tests={"jax": ("tests",), "all": ("tests",)},
    # Where control flow is, and what carries parameters and state through it.
    quick=dict.fromkeys(
        ("jax", "all"),
        tuple(
            f"tests/{name}_test.py"
            for name in (
                "stateful", "recurrent", "lift", "layer_stack", "spectral_norm",
                "multi_transform",
            )
        ),
    ),
    # Beside the package, under another name than its own.
    unpacked={"haiku/_src": "tests"},
    excluded={"jax": _LOGS, "all": _LOGS},
    # Names of files occur in several directories; two of them need TensorFlow.
    arguments=("--import-mode=importlib", "--continue-on-collection-errors"),
    environment=_COMPILING,
    absent=("tensorflow",),
)  # fmt: skip

_OPTAX: Final = Suite(
    "optax",
    tests={"all": ("tests",)},
    # Where control flow is, and what is jitted at the point of use.
    quick={
        "all": tuple(
            f"tests/{name}_test.py"
            for name in (
                "_src/linesearch", "_src/linear_algebra", "_src/combine", "schedules/_inject",
                "transforms/_accumulation", "transforms/_conditionality", "contrib/_common",
                "perturbations/_make_pert", "projections/_projections",
            )
        ),
    },
    unpacked={"optax": "tests"},
    arguments=("--import-mode=importlib", "--continue-on-collection-errors"),
    environment=_COMPILING,
)  # fmt: skip

_NUMPYRO: Final = Suite(
    "numpyro",
    # Those that the distribution has; those of inference it leaves out.
    tests={"all": ("test",)},
    quick={
        "all": tuple(
            f"test/test_{name}.py"
            for name in ("compile", "handlers", "pickle", "optimizers", "util", "nn", "flows")
        ),
    },
    unpacked={"test": "test", "pyproject.toml": "pyproject.toml"},
    # A script of examples needs the repository.
    excluded={"all": {"test_examples": "it runs files that the distribution leaves out"}},
    arguments=("--continue-on-collection-errors", "-W", "ignore::DeprecationWarning"),
    environment={**_COMPILING, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
)  # fmt: skip

#: Name of the library's package -> its tests. The distribution of equinox has none.
SUITES: Final[Mapping[str, Suite]] = {
    "flax": _FLAX, "haiku": _HAIKU, "optax": _OPTAX, "numpyro": _NUMPYRO,
}  # fmt: skip

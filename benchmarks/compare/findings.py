"""What the probes found on one Python: made in a process of that Python, handed on as JSON."""

from __future__ import annotations

import importlib.metadata
import json
import platform

import attrs

__all__ = ["Findings"]


@attrs.frozen
class Findings:
    """The cells of one interpreter and what is installed for it.

    Attributes:
        python: its version, ``3.13``.
        versions: ``Python``, ``jax``, ``flax`` -> version.
        machine: processor and cores.
        cells: question -> contestant -> answer.
        timed: the questions that are answered by a clock.
    """

    python: str
    versions: dict[str, str]
    machine: str
    cells: dict[str, dict[str, str]]
    timed: tuple[str, ...]

    @classmethod
    def from_json(cls, text: str) -> Findings:
        fields = json.loads(text)
        return cls(**fields | {"timed": tuple(fields["timed"])})

    def to_json(self) -> str:
        return json.dumps(attrs.asdict(self))

    @classmethod
    def here(cls, rounds: int, number: int) -> Findings:
        """Runs all probes in this process. Without rounds nothing is timed."""
        # Late, for these import jax and flax: who reads findings of another process needs neither.
        from benchmarks.compare.cost import costs
        from benchmarks.compare.probes import answers
        from benchmarks.timing import machine

        cells = answers()
        timed = costs(rounds, number) if rounds else {}
        return cls(
            ".".join(platform.python_version_tuple()[:2]),
            {
                "Python": platform.python_version(),
                **{name: importlib.metadata.version(name) for name in ("jax", "flax")},
            },
            machine(),
            cells | timed,
            tuple(timed),
        )

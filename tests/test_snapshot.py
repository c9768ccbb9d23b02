"""A snapshot puts back what a trace has changed, whatever else the function sees."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import fnintern
from fnintern.conversion import Conversion
from fnintern.explanations import Obstacle
from fnintern.snapshot import Snapshot


@pytest.mark.parametrize("other", [functools.partial(print), print, 10**6, "a"])
def test_what_is_read_only_does_not_stand_in_the_way(other: Any) -> None:
    log = [1]
    snapshot = Snapshot([other, log])
    log.append(2)
    snapshot.restore()
    assert log == [1]


def test_S2_the_watcher_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Obstacle] = []
    monkeypatch.setattr(Conversion, "watcher", lambda conversion, reason: told.append(reason))
    log: list[int] = []
    scale: Callable[..., Any] = functools.partial(jnp.multiply, jnp.float32(2.0))

    def body(carry: Any, x: Any) -> Any:
        log.append(1)
        return scale(carry), None

    scan = fnintern.staged(jax.lax.scan, static_argnames="length")
    assert float(scan(body, jnp.float32(1.0), None, length=3)[0]) == 8.0
    assert log == [1]
    assert [reason.reason for reason in told] == ["its trace changed what it captures"]

"""What is known of equinox."""

from __future__ import annotations

from typing import Final

__all__ = ["PRIVATE"]

#: Private names, each with the first release that has it, or "all" of the supported ones.
PRIVATE: Final = {
    "equinox._jit:_call": "all",  # by patches/equinox.py
    "equinox._jit:_JitWrapper": "all",
}

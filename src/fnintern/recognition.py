"""recognition"""

from __future__ import annotations

import types

from fnintern.code import facts_of, is_library_code

__all__ = ["is_attrs_repr", "is_users"]


def is_attrs_repr(value: object) -> bool:
    """What attrs prints an instance with: it uses a thread-local against endless recursion."""
    return (
        isinstance(value, types.FunctionType)
        and value.__name__ == "__repr__"
        and value.__code__.co_filename.startswith("<attrs generated")
    )


def is_users(value: object) -> bool:
    """Whether ``value`` is a Python function of the user's, wherever it is held."""
    if type(value) is not types.FunctionType:
        return False
    return not is_library_code(facts_of(value.__code__), value.__globals__)

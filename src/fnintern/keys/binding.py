"""Matches arguments to parameters as Python does (law I2)."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, Final

from fnintern.keys.tokens import ATOMIC

__all__ = ["Binder"]


class Binder:
    """Matches arguments to parameters as Python does (I2), at the price of a dict look-up for each.

    Signatures with ``*args`` or ``**kwargs`` take ``inspect.Signature.bind``, which is slower.
    """

    __slots__ = ("_defaults", "_positional", "_positional_only", "_signature", "arity", "names")

    def __init__(self, signature: inspect.Signature | None) -> None:
        parameters = list(signature.parameters.values()) if signature else []
        self._signature = signature
        #: The parameters' names, or None where a call decides how many there are.
        self.names: tuple[str, ...] | None = tuple(p.name for p in parameters)
        if signature is None or any(p.kind in _VARIADIC for p in parameters):
            self.names = None
        positional = [p for p in parameters if p.kind in _POSITIONAL]
        self._positional = len(positional)
        self._positional_only = sum(p.kind is p.POSITIONAL_ONLY for p in positional)
        self._defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        #: How many positional arguments leave nothing to be bound; -1 where it takes keywords.
        self.arity = len(parameters) if self.names and parameters == positional else -1

    def after_first(self) -> tuple[tuple[Any, ...] | None, str]:
        """The tokens of all parameters but the first where a call leaves them out, if they are
        plain constants; and the name of the second parameter of two, or an empty text."""
        names = self.names
        if names is None or self.arity != len(names):
            return None, ""
        if len(names) == 1:
            return (), ""
        if len(names) > 2:
            return None, ""
        default = self._defaults.get(names[1], self)
        named = names[1] if self._positional_only < 2 else ""
        return ((type(default), default) if type(default) in ATOMIC else None), named

    def bind(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Iterable[str], tuple[Any, ...]] | None:
        """The parameters' names and the arguments, defaults included; None for a wrong call."""
        names = self.names
        if names is None:
            return self._bind_slowly(args, kwargs)
        given = len(args)
        if given > self._positional:
            return None
        values = list(args)
        used = 0
        for i in range(given, len(names)):
            name = names[i]
            if i >= self._positional_only and name in kwargs:
                values.append(kwargs[name])
                used += 1
            elif name in self._defaults:
                values.append(self._defaults[name])
            else:
                return None
        return (names, tuple(values)) if used == len(kwargs) else None

    def _bind_slowly(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Iterable[str], tuple[Any, ...]] | None:
        names: list[str] = []
        values: list[Any] = []
        if self._signature is None:
            names.append("args")
            values.append(args)
            for name in sorted(kwargs):  # each as two: its name is part of the key
                names += (name, name)
                values += (name, kwargs[name])
            return names, tuple(values)
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError:
            return None
        bound.apply_defaults()
        for name, parameter in self._signature.parameters.items():
            value = bound.arguments[name]
            if parameter.kind is not parameter.VAR_KEYWORD:
                names.append(name)
                values.append(value)
                continue
            for keyword in sorted(value):  # each as two: its name is part of the key
                names += (name, f"{name}[{keyword!r}]")
                values += (keyword, value[keyword])
        return names, tuple(values)


_POSITIONAL: Final = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)
_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

"""``flax.linen``: ``nn.scan(Cell)``, ``nn.remat(Layer)`` and their like, written where the class is
used, make another class at each call, which no key can find again."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, Final

from fnintern.captures.declared import stateless
from fnintern.captures.freezing import freeze
from fnintern.keys.objects import importable
from fnintern.keys.tokens import Refused
from fnintern.patches.patching import Site

__all__ = ["sites"]

_MAXSIZE: Final = 128


def sites() -> list[Site]:
    """What to replace in ``flax.linen``: the function that makes a lifted class of a class."""
    module = importlib.import_module("flax.linen.transforms")
    return [Site(module, "module_class_lift_transform", _remember)]


def _remember(lift: Callable[..., Any]) -> Callable[..., Any]:
    """The same, which returns a class again for the same class and equal options."""
    made: dict[Any, tuple[Any, list[dict[str, Any]]]] = {}

    @stateless
    @functools.wraps(lift)
    def module_class_lift_transform(
        transform: Any, module_class: Any, *args: Any, **kwargs: Any
    ) -> Any:
        # A class of a module lives as long as the program does.
        if not isinstance(module_class, type) or not importable(module_class):
            return lift(transform, module_class, *args, **kwargs)
        try:
            options = freeze(transform, args, kwargs, names=("transform", "args", "kwargs"))
        except Refused:
            return lift(transform, module_class, *args, **kwargs)
        # A function of the user's among them would be kept with the class.
        if options.leaves or options.owner is not None or not all(map(importable, options.targets)):
            return lift(transform, module_class, *args, **kwargs)
        key = (module_class, options.key)
        found, as_made = made.get(key, (None, []))
        # Whoever has edited one of the classes gets a new one. That of the module is among the
        # bases of the other.
        if found is None or not _is_same(as_made, found):
            found = lift(transform, module_class, *args, **kwargs)
            if len(made) >= _MAXSIZE:
                made.pop(next(iter(made)), None)
            made[key] = (found, _contents(found))
        return found

    return module_class_lift_transform


def _contents(kind: type) -> list[dict[str, Any]]:
    return [dict(vars(base)) for base in kind.__mro__]


def _is_same(before: list[dict[str, Any]], kind: type) -> bool:
    return len(before) == len(kind.__mro__) and all(
        len(contents) == len(vars(base))
        and all(vars(base).get(name) is value for name, value in contents.items())
        for contents, base in zip(before, kind.__mro__, strict=True)
    )

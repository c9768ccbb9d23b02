"""A stand-in for a callable inside a wrapper, whose hold on the callable can be let go (L1, L2).

For callables that have no place to carry their wrappers: the factory gets a :class:`Forward`, whose
reference is strong while anybody holds the wrapper, and weak once only the table does.
"""

from __future__ import annotations

import inspect
import operator
import sys
import types
import weakref
from typing import Any, Final

from fnintern.keys.callables import is_only_called, is_pytree_node, syntax_of
from fnintern.keys.tokens import STORE_ATTRIBUTE
from fnintern.keys.weakids import WeakIds

__all__ = ["FREED", "Forward", "callable_of", "hold", "standin_for", "strengthen", "weaken"]

_FunctionType: Final = types.FunctionType


class Forward:
    """Stands in for a callable inside a wrapper, and looks like it in all that factories ask.

    Calls, attributes, ``isinstance`` and ``inspect.signature`` go to the callable; copies and
    pickles hold the callable itself. Its own identity is stable, and equal to nothing else (L5).
    """

    __slots__ = ("__weakref__", "_strong", "_weak")

    def __init__(self, *targets: Any) -> None:
        """Args: the callable, or the ``__self__`` and ``__func__`` of a bound method."""
        _SET(self, "_weak", tuple(map(weakref.ref, targets)))
        _SET(self, "_strong", targets)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        targets = _targets_of(self)
        if len(targets) == 2:
            instance, function = targets
            return function(instance, *args, **kwargs)
        return targets[0](*args, **kwargs)

    def __getattribute__(self, name: str) -> Any:
        try:
            target = callable_of(self)
        except ReferenceError:
            if name == "__class__":  # somebody looks at all objects there are
                return type(self)
            raise
        if name == "__reduce_ex__":
            # Unpickles to the callable itself, also where fnintern is not installed.
            return lambda protocol: (operator.itemgetter(0), ((target,),))
        if name == "__dict__":
            # For functools.update_wrapper. An instance's attributes would be kept alive by it.
            if isinstance(target, (types.MethodType, _FunctionType)):
                return {n: v for n, v in vars(target).items() if n != STORE_ATTRIBUTE}
            return {}
        if name == "__signature__":
            try:
                return inspect.signature(target)
            except (TypeError, ValueError) as error:
                raise AttributeError(name) from error
        return getattr(target, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(callable_of(self), name, value)

    def __repr__(self) -> str:
        try:
            target = callable_of(self)
        except ReferenceError:
            return "<stand-in for a callable that has been freed>"
        return repr(target)

    def __standin_for__(self) -> Any:
        """The callable, for those who look at the stand-in itself."""
        targets = _targets_of(self)
        # A bound method is made for the moment: JAX takes equal ones for one key (L5).
        return types.MethodType(targets[1], targets[0]) if len(targets) == 2 else targets[0]

    def _renew(self) -> None:
        """Makes the reference to the callable strong."""
        if _GET(self, "_strong") is None:
            _SET(self, "_strong", tuple([ref() for ref in _GET(self, "_weak")]))

    def _release(self) -> Any:
        """Makes it weak; returns what :meth:`_restore` needs."""
        targets: tuple[Any, ...] | None = _GET(self, "_strong")
        if targets is None:  # weak already, and the callable may be dead
            return tuple(ref() for ref in _GET(self, "_weak"))
        _SET(self, "_strong", None)
        return targets

    def _restore(self, kept: Any) -> None:
        _SET(self, "_strong", kept)


def standin_for(*targets: Any) -> Forward:
    """A stand-in that the syntax of Python, and JAX, take for the callable, too.

    Args:
        *targets: the callable, or the ``__self__`` and ``__func__`` of a bound method.
    """
    if len(targets) == 2 or is_only_called(targets[0]):
        return Forward(*targets)
    kind = type(targets[0])
    made = _classes.get(kind)
    if made is None:
        made = _class_for(targets[0], kind)
        _classes.set(kind, made)
    return made(*targets)


#: Classes of callables, each with that of its stand-ins.
_classes: WeakIds[type[Forward]] = WeakIds()


def _class_for(target: Any, kind: type) -> type[Forward]:
    """A class of stand-ins with the special methods of a class."""
    namespace: dict[str, Any] = {"__slots__": ()}
    for name in syntax_of(kind):
        found = getattr(kind, name)
        namespace[name] = _forwarding(name) if callable(found) else found
    made: type[Forward] = type("Forward", (Forward,), namespace)
    if is_pytree_node(target):  # JAX keeps the class of a node, and so that of its stand-ins
        _register(made)
    return made


def _forwarding(name: str) -> Any:
    def method(self: Any, /, *args: Any) -> Any:
        target = callable_of(self)
        return getattr(type(target), name)(target, *args)

    return method


def _register(made: type[Forward]) -> None:
    """Has JAX take stand-ins apart as their callables. What it puts together again is a stand-in,
    too: the structures of both are equal."""
    tree = sys.modules["jax.tree_util"]

    def flatten_with_keys(standin: Any) -> Any:
        target = callable_of(standin)
        parts, level = tree.tree_flatten_with_path(target, is_leaf=lambda x: x is not target)
        return [(path[0], part) for path, part in parts], level

    def flatten(standin: Any) -> Any:
        parts, level = flatten_with_keys(standin)
        return [part for _, part in parts], level

    def unflatten(level: Any, parts: Any) -> Any:
        whole = level.unflatten(parts)
        try:
            return made(whole)
        except TypeError:  # it takes no weak reference
            return whole

    tree.register_pytree_with_keys(made, flatten_with_keys, unflatten, flatten)


FREED: Final = (
    "a wrapper was called after its callable had been freed: nothing that Python can count "
    "referred to the wrapper. Hold the wrapper, or the callable, for as long as it is to be called"
)

_GET: Final = object.__getattribute__
_SET: Final = object.__setattr__


def _targets_of(forward: Forward) -> tuple[Any, ...]:
    strong: tuple[Any, ...] | None = _GET(forward, "_strong")
    if strong is None:
        strong = tuple(ref() for ref in _GET(forward, "_weak"))
        if any(target is None for target in strong):
            raise ReferenceError(FREED)
    return strong


# An instance's attributes are those of its callable: what is the forward's own goes by the class.


def callable_of(forward: Forward) -> Any:
    """What the forward stands for now."""
    return type(forward).__standin_for__(forward)


def hold(forward: Forward) -> None:
    type(forward)._renew(forward)


def strengthen(forward: Forward, kept: Any) -> None:
    type(forward)._restore(forward, kept)


def weaken(forward: Forward) -> Any:
    return type(forward)._release(forward)

"""Transformations whose results are shared by the value of the function, at the moment of the call.

The state that counts is that of the call that traces, not of the moment the transformation was
applied. Never imports jax or flax.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import Any, Final

from fnintern.captures.declared import keyed
from fnintern.captures.freezing import Frozen, freeze
from fnintern.counting.counts import Counts
from fnintern.counting.lines import missed
from fnintern.interning.by_value import place
from fnintern.interning.shared import Changed, SharedForward, Terms, belongs_to, lent
from fnintern.keys import strict
from fnintern.keys.objects import importable
from fnintern.keys.reasons import Obstacle, reason_for
from fnintern.keys.tokens import Identity, Key
from fnintern.libraries.ownership import is_library_class
from fnintern.lifetime.entries import Entry
from fnintern.lifetime.stores import Token, store_of

__all__ = ["Handle", "Operation"]

_EQUAL: Final = Terms.EQUAL


class _Share:
    """What an operation made of one stand-in."""

    __slots__ = ("forward", "key", "made", "sole")

    def __init__(self, made: Any, forward: SharedForward, key: Key, sole: object) -> None:
        self.made = made
        self.forward = forward
        self.key = key
        #: The mark of the only handle that ever used it, or None.
        self.sole = sole


class Operation:
    """A transformation of functions whose results are shared by the value of the function.

    Args:
        make: gets a function and further arguments, and returns what is to be called.
        context: what a trace reads besides, as part of the key.
        maxsize: how many results to keep for each piece of code (L3).
        name: of the operation, for those who count.
    """

    def __init__(
        self,
        make: Callable[..., Any],
        context: Callable[[], Key] = tuple,
        maxsize: int | None = 128,
        name: str = "",
    ) -> None:
        self.make = make
        self.counts = Counts(name or getattr(make, "__name__", "operation"))
        self._context = context
        self._token = Token(maxsize)

    def share(self, handle: Handle, function: Any, structure: Any) -> _Share | None:
        """The share of ``function`` as it is now, or None where it has to be on its own (S2).

        Args:
            handle: whose call it is.
            function: what is transformed.
            structure: of the arguments of the call, whose classes the function calls (S1).
        """
        try:
            operands = freeze(structure, names=("operands",))
            options = freeze(handle.args, handle.kwargs, names=("args", "kwargs"))
            frozen = freeze(
                function,
                handle.args,
                handle.kwargs,
                structure,
                names=("f", "args", "kwargs", "operands"),
            )
            placed = place(self._token.mark, self._context(), lambda: options, frozen)
        except Exception as error:  # refused, or code of the user's that reading ran into failed
            strict.check(error)
            self.counts.bypass(reason_for(error))
            return None
        if _holds_objects(operands):
            self.counts.bypass(_HELD_BY_JAX)
            return None
        if options.owner is not None or options.leaves:
            self.counts.bypass(_HELD_BY_RESULT)
            return None
        key, targets, owner = placed
        store = store_of(owner) if owner is not None else self._token.constants
        entry = store.entries.get(key)
        if entry is not None:
            share: _Share = entry.wrapper
            if entry.matches(targets) and share.key == frozen.key:
                share.sole = None
                self.counts.hits += 1
                return share
            entry.discard()
        forward = SharedForward(function, self._context)
        with lent(forward, function):
            made = self.make(forward, *handle.args, **handle.kwargs)
        entry = Entry(_Share(made, forward, frozen.key, handle.mark), targets, owner, ())
        belongs_to(forward, entry)
        found: _Share = self._token.install(store, key, entry).wrapper
        if found.sole is not handle.mark:
            found.sole = None
        self.counts.miss()
        missed(self.counts.operation, [function], None)
        return found


_HELD_BY_JAX: Final = Obstacle(
    "operands", "tuple", "JAX keeps an object of yours in their structure with what it traces"
)
_HELD_BY_RESULT: Final = Obstacle("arguments", "tuple", "one holds a function or an array")


def _holds_objects(frozen: Frozen) -> bool:
    """Whether something of the user's is among what was frozen: an object, or a local function or
    class."""
    kinds = (item if isinstance(item, type) else type(item) for item in frozen.holders)
    return (
        bool(frozen.leaves)
        or any(not is_library_class(kind) for kind in kinds)
        or any(
            isinstance(item, types.FunctionType | type) and not importable(item)
            for item in (*frozen.holders, *frozen.targets)
        )
    )


_ALONE: Final = object()


class Handle:
    """The result of applying an operation to one function, as the caller holds it.

    The first call with arguments of one structure, shape and dtype finds a share by the value of
    the function at that time. Later calls with such arguments use the same, as the unpatched result
    would use its own program. Where that has to trace again, and the function's state has changed
    while others share, or where it cannot be shared, the function is on its own.
    """

    __slots__ = (
        "__weakref__", "_function", "_operation", "_plain", "_shares", "args", "kwargs", "mark",
    )  # fmt: skip

    def __init__(
        self, operation: Operation, function: Any, plain: Any, args: Any = (), kwargs: Any = None
    ) -> None:
        self._operation = operation
        self._function = function
        self._plain = plain
        #: Signature of a call -> its share.
        self._shares: dict[Any, Any] = {}
        self.args = args
        self.kwargs = kwargs or {}
        self.mark = object()

    def run(
        self,
        call: Callable[[Any], Any],
        function: Any,
        plain: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Calls what the operation made of ``function``; ``plain`` where it is on its own."""
        structure, signature = _signature(args, kwargs)
        share: Any = self._shares.get(signature)
        terms = Terms.REFUSE
        if share is None:
            share = self._operation.share(self, function, structure) or _ALONE
            self._shares[signature] = share
            terms = _EQUAL
        if share is not _ALONE:
            if terms is Terms.REFUSE:
                self._operation.counts.hits += 1
                if share.sole is self.mark:
                    terms = Terms.UNSHARE
            try:
                with lent(share.forward, function, terms):
                    return call(share.made)
            except Changed as changed:
                if changed.forward is not share.forward:
                    raise
            # From now on it is on its own. Going back for what it has traced before would find
            # there what the others have traced since.
            self._shares[signature] = _ALONE
        return call(plain)

    def _run(
        self, call: Callable[[Any], Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        return self.run(call, self._function, self._plain, args, kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(lambda made: made(*args, **kwargs), args, kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(lambda made: made.lower(*args, **kwargs), args, kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(lambda made: made.trace(*args, **kwargs), args, kwargs)

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(lambda made: made.eval_shape(*args, **kwargs), args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_plain":  # not yet set, in a copy under way
            raise AttributeError(name)
        return getattr(self._plain, name)

    def __copy__(self) -> Handle:
        """As a copy of what jax.jit returns does, it shares function and programs."""
        new = Handle(self._operation, self._function, self._plain, self.args, self.kwargs)
        new._shares = dict(self._shares)
        for share in self._shares.values():
            if isinstance(share, _Share):
                share.sole = None
        return new

    def __deepcopy__(self, memo: Any) -> Handle:
        return self.__copy__()

    def __reduce_ex__(self, protocol: Any) -> Any:
        # A pickle is what it would be unpatched.
        return operator.itemgetter(0), ((self._plain,),)


def _signature(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """The tree structure of a call's arguments, and what JAX tells its programs by."""
    import jax

    leaves, structure = jax.tree_util.tree_flatten((args, kwargs))
    kinds = tuple([_kind_of(leaf) for leaf in leaves])
    try:
        hash(structure)
    except Exception:  # data of a node that has no hash
        return structure, kinds
    return structure, (structure, kinds)


def _kind_of(leaf: Any) -> Any:
    if hasattr(leaf, "dtype"):
        return leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False)
    try:
        hash(leaf)
    except Exception:
        return type(leaf)
    return type(leaf) if isinstance(leaf, int | float | complex) else leaf


# A handle that a function captures is what it was applied to.
keyed(Handle, lambda h: (Identity(h._operation), h._function, h.args, h.kwargs))

"""One stand-in for all functions that are equal by value, and what was made of it (S1, S3).

A wrapper that is shared must not hold any one of its functions: it would keep alive what the
function refers to, and go stale when the function's state changes. It gets a :class:`SharedForward`
instead, which forwards to the function of whoever is calling now.

An :class:`Operation` makes such wrappers at the moment of the *call*: the state that counts is that
of the call that traces. Never imports jax or flax.
"""

from __future__ import annotations

import contextlib
import enum
import inspect
import operator
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from threading import get_ident
from types import FunctionType
from typing import Any, Final

from fnintern.captures import Frozen, _keys, freeze, short_key
from fnintern.code import facts_of
from fnintern.explanations import Explanation, Obstacle
from fnintern.forwards import FREED, Forward
from fnintern.interner import Interner
from fnintern.keys import (
    ATOMIC,
    Identity,
    Key,
    Marker,
    Unkeyable,
    is_bound_method,
    is_function_like,
)
from fnintern.lifetime import LOST, Entry, handed_out
from fnintern.stores import Token, registered, store_of

__all__ = ["Handle", "Operation", "SharedForward", "ValueInterner", "has_tracer", "key_now"]

#: How many equal functions one thread may have lent at a time, as recursion does.
MAX_LOANS: Final = 100

_GET: Final = object.__getattribute__
_SET: Final = object.__setattr__
ref_to: Final = weakref.ref


def key_now(function: Any) -> Key | None:
    """The key of a function as it is now, or None where it is refused."""
    try:
        return freeze(function).key
    except Exception:  # refused, or code of the user's that reading ran into failed
        return None


def has_tracer(leaves: list[Any]) -> bool:
    """Whether one of the arrays belongs to a trace under way, which nothing may outlive (S3)."""
    jax = sys.modules.get("jax")
    return jax is not None and any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)


class Changed(BaseException):
    """A shared result is about to be traced for a function that is not equal any more.

    Raised before any code of the user's runs, and caught by the :class:`Handle` that lent the
    function; a BaseException, so that nobody on the way takes it for an error.
    """

    def __init__(self, forward: SharedForward) -> None:
        self.forward = forward


class Terms(enum.Enum):
    """On what terms a function is lent, should JAX trace it."""

    #: Its key was computed just now.
    EQUAL = "equal"
    #: It may have changed; then nobody shall get to share what comes of it.
    UNSHARE = "unshare"
    #: It may have changed; then it must not be traced, since others share already.
    REFUSE = "refuse"


#: The function lent or None, else a weak reference to it; its terms; and what was lent before in
#: the same thread.
Loan = tuple[Any, Any, Terms, Any]
_EQUAL: Final = Terms.EQUAL

_ABSENT: Final = Marker.EMPTY
#: What functions of one key have in common, and keeps nothing of them alive.
_ALIKE: Final = ("__class__", "__name__", "__qualname__", "__module__")


class SharedForward(Forward):
    """Stands in for every function of one key: it forwards to the one lent in this thread."""

    __slots__ = ("_alike", "_code", "_context", "_entry", "_key", "_lent")

    def __init__(self, function: Any, context: Callable[[], Key] | None = None) -> None:
        """Args: one of the functions that will be lent, all of one key, and what a trace reads
        besides, for an operation that may trace long after the function was lent."""
        _SET(self, "_key", freeze(function).key)
        # JAX asks a wrapper for these some thirty times a call, for its messages.
        alike = {}
        _SET(self, "_code", None)
        if type(function) is FunctionType:
            alike = {name: getattr(function, name) for name in _ALIKE}
            alike["__wrapped__"] = _ABSENT if "__wrapped__" not in function.__dict__ else None
            if not (function.__defaults__ or function.__kwdefaults__ or function.__annotations__):
                alike["__signature__"] = inspect.signature(function)  # of nothing but names
            _SET(self, "_code", weakref.ref(function.__code__))
        _SET(self, "_alike", {name: x for name, x in alike.items() if x is not None})
        _SET(self, "_context", (context, context()) if context is not None else None)
        #: Thread -> its loan.
        _SET(self, "_lent", {})
        _SET(self, "_entry", None)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        # JAX is tracing. The result will serve all equal functions, so it has to come from one.
        function, terms = SharedForward._current(self)
        if terms is not _EQUAL:
            context = _GET(self, "_context")
            if key_now(function) != _GET(self, "_key") or (
                context is not None and context[0]() != context[1]
            ):
                if terms is not Terms.UNSHARE:
                    raise Changed(self)
                SharedForward._unshare(self)
        result = function(*args, **kwargs)
        # One whose trace changes what it sees (a counter, a list) is shared with nobody.
        if key_now(function) != _GET(self, "_key"):
            SharedForward._unshare(self)
        return result

    def __getattribute__(self, name: str) -> Any:
        alike = _GET(self, "_alike")
        if name in alike:
            if alike[name] is _ABSENT:
                raise AttributeError(name)
            return alike[name]
        if name == "__code__":
            code = _GET(self, "_code")
            code = None if code is None else code()  # weakly: the code's store holds this forward
            if code is not None:
                return code
        return Forward.__getattribute__(self, name)

    def _current(self) -> tuple[Any, Terms]:
        lent = _GET(self, "_lent")
        loan = lent.get(get_ident())
        terms = Terms.UNSHARE if loan is None else loan[2]
        # Last, what was lent in other threads: this one did not ask for the wrapper.
        for start in (loan, *reversed(list(lent.values()))):
            loan = start
            while loan is not None:
                function, ref, _, loan = loan
                function = function if ref is None else ref()
                if function is not None:
                    return function, terms
                terms = Terms.UNSHARE
        raise ReferenceError(FREED)

    def _unshare(self) -> None:
        entry = _GET(self, "_entry")
        entry = entry() if entry is not None else None
        if entry is not None:
            entry.discard()

    def _callable(self) -> Any:
        return SharedForward._current(self)[0]

    def _renew(self) -> None:
        pass  # lending has done it

    def _release(self) -> Any:
        kept = dict(_GET(self, "_lent"))
        _GET(self, "_lent").clear()
        return kept

    def _restore(self, kept: Any) -> None:
        for thread, function in kept.items():
            _GET(self, "_lent").setdefault(thread, function)


def belongs_to(forward: SharedForward, entry: Entry) -> None:
    """Tells a forward which entry to discard when its function turns out not to be shared."""
    _SET(forward, "_entry", weakref.ref(entry))


def lend(
    forward: SharedForward, function: Any, *, weakly: bool = False, terms: Terms = _EQUAL
) -> Any:
    """Makes ``forward`` stand for ``function`` in this thread.

    Args:
        forward: the stand-in.
        function: one whose key was that of ``forward`` when the wrapper was asked for.
        weakly: the caller holds the function for as long as the wrapper is called.
        terms: what may have happened since.

    Returns:
        What :func:`take_back` needs.
    """
    lent = _GET(forward, "_lent")
    thread = get_ident()
    before = lent.get(thread)
    if weakly:
        older = before and outlived(before, function)
        lent[thread] = (None, weakref.ref(function), terms, older)
    else:
        lent[thread] = (function, None, terms, None)
    return before


def outlived(loan: Loan, function: Any) -> Loan | None:
    """The loans of callers further up that are still to be traced, when ``function`` is lent.

    A branch that calls the same transform lends an equal function, which dies before the outer
    one is called.
    """
    older: Loan | None = None
    found: list[Any] = []
    seen: Any = loan
    while seen is not None and len(found) < MAX_LOANS:
        kept, ref, _, next_loan = seen
        lent = kept if ref is None else ref()
        if lent is not None and lent is not function:
            found.append(seen)
        seen = next_loan
    for kept, ref, _, _ in reversed(found):
        older = (kept, ref, Terms.UNSHARE, older)
    return older


def take_back(forward: SharedForward, before: Any) -> None:
    """Makes ``forward`` stand for what it stood for before :func:`lend`."""
    lent = _GET(forward, "_lent")
    if before is None:
        lent.pop(get_ident(), None)
    else:
        lent[get_ident()] = before


def place(
    mark: object, context: Key, options: Callable[[], Frozen], frozen: Frozen
) -> tuple[Key, list[Any], Any] | None:
    """Where the entry for a function goes.

    Args:
        mark: of the token.
        context: what a trace reads besides the function.
        options: freezes the arguments beside the function; asked only where they are needed alone.
        frozen: the function, and all arguments beside it.

    Returns:
        The key, what is verified against it with ``is``, and the owner of the store; or None where
        the function is to be on its own.
    """
    if not frozen.leaves:
        code = frozen.owner.__code__ if frozen.owner is not None else None
        return (mark, *context, *frozen.key), frozen.targets, code
    # With arrays by object, and one entry for each function: a past array goes as soon as the
    # function has got another one. A tracer's function is made anew in the next trace (S3).
    if frozen.owner is None or has_tracer(frozen.leaves):
        return None
    # What holds the arrays is compared too, so that the entry dies with it: the program that the
    # wrapper keeps alive keeps the arrays alive.
    holders = [holder for holder in frozen.holders if weakly_held(holder)]
    targets = [*frozen.targets, *frozen.leaves, *holders, frozen.owner]
    return (mark, Marker.LEAF, *context, *options().key), targets, frozen.owner


def weakly_held(value: Any) -> bool:
    """Whether ``value`` takes weak references, and is not made anew at each access."""
    return bool(type(value).__weakrefoffset__) and not is_bound_method(value)


class ValueInterner(Interner):
    """Finds or builds the wrapper for a call whose functions are compared by value.

    Args:
        transient: the callers hold the functions for as long as they call the wrapper, as a
            library does that makes it, calls it and drops it.
        context: what a trace reads besides, as part of the key.
    """

    __slots__ = ("_context", "_transient")

    def __init__(
        self,
        factory: Callable[..., Any],
        maxsize: int | None,
        signature_of: Callable[[], Any] | None = None,
        *,
        transient: bool = False,
        context: Callable[[], Key] = tuple,
    ) -> None:
        self._transient = transient
        self._context = context
        super().__init__(factory, maxsize, signature_of)

    def like(
        self,
        factory: Callable[..., Any],
        signature_of: Callable[[], Any] | None = None,
        mark: object = None,
    ) -> Interner:
        return ValueInterner(
            factory,
            self._maxsize,
            signature_of,
            transient=self._transient,
            context=self._context,
        )

    def hit(self, function: Any, other: Any) -> Any:
        return None  # looks at no value

    def _hit(self, values: tuple[Any, ...]) -> Any:
        """The wrapper for the usual call, a plain function and plain constants; or None.

        It spells the key as :meth:`_find` does, by the shortest way.
        """
        function = values[0]
        if type(function) is not FunctionType:
            return None
        code = function.__code__
        facts = facts_of(code)
        store = registered(code)
        if store is None or not facts.short or facts.generated:
            return None
        short = short_key(function, code, facts)
        if short is None:
            return None
        key, targets = short
        for value in values[1:]:
            kind = type(value)
            if kind not in ATOMIC:
                return None
            key += (kind, value)
        entry = store.entries.get((self._token.mark, *self._context(), *key))
        if entry is None or entry.wrapper is LOST:
            return None
        if len(targets) > 1:  # the first is the code, whose store this is
            for ref, target in zip(entry.refs, targets, strict=False):
                if ref() is not target:
                    return None
        wrapper = entry.wrapper
        forward = entry.note[1][0]
        if self._transient:
            lent, thread, ref = _GET(forward, "_lent"), get_ident(), ref_to(function)
            before = lent.get(thread)
            # Python makes one plain weak reference for each object: the usual loan is the last one.
            if before is None or before[1] is not ref or before[3] is not None:
                older = None if before is None else outlived(before, function)
                lent[thread] = (None, ref, _EQUAL, older)
        else:
            _GET(forward, "_lent")[get_ident()] = (function, None, _EQUAL, None)
            handed_out(entry)
        self.tally.hits += 1
        return wrapper

    def _find(
        self, names: Any, values: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if values:
            wrapper = self._hit(values)
            if wrapper is not None:
                return wrapper
        token = self._token
        functions = [value for value in values if is_function_like(value)]
        try:
            frozen = freeze(*values, names=names)
            placed = place(
                token.mark, self._context(), lambda: self._options(names, values), frozen
            )
            if placed is None or not self._self_contained(names, values):
                raise Unkeyable("f", None, "it is on its own")
            if self._transient:
                for function in functions:
                    ref_to(function)  # a TypeError where it takes none
                del function
        except Exception:
            self._bypassed += 1
            return self._factory(*args, **kwargs)
        key, targets, owner = placed
        store = store_of(owner) if owner is not None else token.constants
        entry = store.entries.get(key)
        if entry is not None:
            wrapper = entry.take() if entry.matches(targets) else LOST
            made_for: tuple[Key, tuple[SharedForward, ...]] = entry.note
            if wrapper is not LOST and made_for[0] == frozen.key:
                self._lend(made_for[1], functions)
                entry.hold()
                self.tally.hits += 1
                return wrapper
            entry.discard()
        self._misses += 1
        forwards = tuple(SharedForward(function) for function in functions)
        self._lend(forwards, functions)
        by_id = {id(f): forward for f, forward in zip(functions, forwards, strict=True)}
        wrapper = self._factory(
            *(by_id.get(id(value), value) for value in args),
            **{name: by_id.get(id(value), value) for name, value in kwargs.items()},
        )
        entry = Entry(wrapper, targets, owner, () if self._transient else forwards)
        entry.note = (frozen.key, forwards)
        del wrapper, by_id, forwards
        for forward in entry.note[1]:
            belongs_to(forward, entry)
            del forward
        entry.settle()
        built = entry.wrapper
        entry = token.install(store, key, entry)
        wrapper = entry.take()
        if wrapper is LOST:  # by a collection in another thread, just now
            return built
        self._lend(entry.note[1], functions)
        entry.hold()
        return wrapper

    def _lend(self, forwards: tuple[SharedForward, ...], functions: Sequence[Any]) -> None:
        for forward, function in zip(forwards, functions, strict=False):
            lend(forward, function, weakly=self._transient)

    def _options(self, names: Any, values: tuple[Any, ...]) -> Frozen:
        rest = [(n, v) for n, v in zip(names, values, strict=True) if not is_function_like(v)]
        return freeze(*(v for _, v in rest), names=tuple(n for n, _ in rest))

    def _self_contained(self, names: Any, values: tuple[Any, ...]) -> bool:
        """Whether no argument but the functions themselves holds a function or an array: the
        wrapper would hold it in turn, and outlive it."""
        if all(type(value) in ATOMIC or is_function_like(value) for value in values):
            return True
        options = self._options(names, values)
        return options.owner is None and not options.leaves

    def explain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Explanation:
        bound = self._bind(args, kwargs)
        name = getattr(self._factory, "__qualname__", repr(self._factory))
        if bound is None:
            return Explanation(name, interned=False)
        return explain_values(name, *bound)


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
    """

    def __init__(
        self,
        make: Callable[..., Any],
        context: Callable[[], Key] = tuple,
        maxsize: int | None = 128,
    ) -> None:
        self.make = make
        self._context = context
        self._token = Token(maxsize)

    def share(self, handle: Handle, function: Any) -> _Share | None:
        """The share of ``function`` as it is now, or None where it has to be on its own (S2)."""
        try:
            options = freeze(handle.args, handle.kwargs, names=("args", "kwargs"))
            frozen = freeze(function, handle.args, handle.kwargs, names=("f", "args", "kwargs"))
        except Exception:  # refused, or code of the user's that reading ran into failed
            return None
        # The result would hold functions and arrays among the options.
        placed = place(self._token.mark, self._context(), lambda: options, frozen)
        if placed is None or options.owner is not None or options.leaves:
            return None
        key, targets, owner = placed
        store = store_of(owner) if owner is not None else self._token.constants
        entry = store.entries.get(key)
        if entry is not None:
            share: _Share = entry.wrapper
            if entry.matches(targets) and share.key == frozen.key:
                share.sole = None
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
        return found


@contextlib.contextmanager
def lent(forward: SharedForward, function: Any, terms: Terms = _EQUAL) -> Iterator[None]:
    """Makes ``forward`` stand for ``function`` in this thread, for the time of the block."""
    before = lend(forward, function, terms=terms)
    try:
        yield
    finally:
        take_back(forward, before)


_ALONE: Final = object()


class Handle:
    """The result of applying an operation to one function, as the caller holds it.

    Its first call finds a share by the value of the function at that time. Later calls use the
    same, as the unpatched result would use its own program. Where that has to trace again, and the
    function's state has changed while others share, or where it cannot be shared, the function is
    on its own.
    """

    __slots__ = (
        "__weakref__", "_function", "_operation", "_plain", "_share", "args", "kwargs", "mark",
    )  # fmt: skip

    def __init__(
        self, operation: Operation, function: Any, plain: Any, args: Any = (), kwargs: Any = None
    ) -> None:
        self._operation = operation
        self._function = function
        self._plain = plain
        self._share: Any = None
        self.args = args
        self.kwargs = kwargs or {}
        self.mark = object()

    def run(self, call: Callable[[Any], Any], function: Any, plain: Any) -> Any:
        """Calls what the operation made of ``function``; ``plain`` where it is on its own."""
        share, terms = self._share, Terms.REFUSE
        if share is None:
            share = self._share = self._operation.share(self, function) or _ALONE
            terms = _EQUAL
        if share is not _ALONE:
            if terms is Terms.REFUSE and share.sole is self.mark:
                terms = Terms.UNSHARE
            try:
                with lent(share.forward, function, terms):
                    return call(share.made)
            except Changed as changed:
                if changed.forward is not share.forward:
                    raise
            # From now on it is on its own. Going back for what it has traced before would find
            # there what the others have traced since.
            self._share = _ALONE
        return call(plain)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(lambda made: made(*args, **kwargs), self._function, self._plain)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(lambda made: made.lower(*args, **kwargs), self._function, self._plain)

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(lambda made: made.trace(*args, **kwargs), self._function, self._plain)

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(lambda made: made.eval_shape(*args, **kwargs), self._function, self._plain)

    def __getattr__(self, name: str) -> Any:
        if name == "_plain":  # not yet set, in a copy under way
            raise AttributeError(name)
        return getattr(self._plain, name)

    def __copy__(self) -> Handle:
        """As a copy of what jax.jit returns does, it shares function and programs."""
        new = Handle(self._operation, self._function, self._plain, self.args, self.kwargs)
        new._share = self._share
        if isinstance(self._share, _Share):
            self._share.sole = None
        return new

    def __deepcopy__(self, memo: Any) -> Handle:
        return self.__copy__()

    def __reduce_ex__(self, protocol: Any) -> Any:
        # A pickle is what it would be unpatched.
        return operator.itemgetter(0), ((self._plain,),)


# A handle that a function captures is what it was applied to.
_keys[Handle] = lambda handle: (
    Identity(handle._operation),
    handle._function,
    handle.args,
    handle.kwargs,
)


def explain_values(name: str, names: Any, values: tuple[Any, ...]) -> Explanation:
    """How a call would be keyed by value."""
    try:
        frozen = freeze(*values, names=tuple(names))
    except Unkeyable as error:
        return Explanation(name, interned=False, obstacles=(Obstacle.of(error),))
    if not frozen.leaves:
        return Explanation(name, interned=True, keyed_by="the value of all its captures")
    return Explanation(
        name,
        interned=True,
        keyed_by=(
            f"the function object, for as long as its {len(frozen.leaves)} captured arrays are "
            f"bound to the same objects"
        ),
    )

"""Replaces attributes of modules, all or none of them, and puts back the very objects.

Knows no library: the modules beside it say what to replace. Never imports jax or flax by itself.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import attrs

from fnintern.counting.counts import Summary, summary
from fnintern.interning.classes import subclass_of
from fnintern.interning.decorator import By, intern_as, interner_of_kind
from fnintern.running import around

__all__ = ["Patch", "Site", "apply", "bare", "intern_attribute", "patch"]

F = TypeVar("F", bound=Callable[..., Any])

PATCHED: Final = "patched"
ABSENT: Final = "absent in this release"
REVERTED: Final = "reverted"
REVERTED_ELSEWHERE: Final = "already reverted by somebody else"


@attrs.frozen
class Site:
    """One attribute of one module, and how to make what takes its place.

    Attributes:
        module: the module that looks the attribute up when it runs.
        name: the attribute.
        replace: gets the present object and returns the new one.
    """

    module: types.ModuleType = attrs.field(repr=lambda module: module.__name__)
    name: str
    replace: Callable[[Any], Any]

    def __str__(self) -> str:
        return f"{self.module.__name__}.{self.name}"


@attrs.define(eq=False)
class _Replacement:
    site: Site
    found: Any
    put: Any

    def in_place(self) -> bool:
        """Whether the attribute is what this replacement put there."""
        return getattr(self.site.module, self.site.name, None) is self.put

    def in_force(self) -> bool:
        """Whether it is in place, or under replacements of ours that were made since."""
        present = getattr(self.site.module, self.site.name, None)
        for replacement in (r for patch in reversed(_active) for r in patch._replacements):
            if present is self.put:
                break
            if present is replacement.put:
                present = replacement.found
        return present is self.put


class Patch:
    """What a patch replaced, and the way back. Made by :func:`patch` and ``patch_flax``.

    Leaving a ``with`` block reverts the patch, unless a call outside the block had applied it. As a
    decorator it is in force during each call of the function, and keeps what was traced in between.
    """

    def __init__(self, what: object, sites: Sequence[Site]) -> None:
        self._what = what
        self._sites = list(sites)
        #: How many of them were given, and whether others are where it was imported.
        self._given = len(self._sites)
        self._imported = False
        self._replacements: list[_Replacement] = []
        #: The modules there were before the patch, by name.
        self._modules = frozenset(sys.modules)
        #: Site -> what was there, and what took its place: again so where it is applied again.
        self._made: dict[str, tuple[Any, Any]] = {}
        #: What was counted before it was in force, and until it was reverted.
        self._counted: tuple[Summary, Summary | None] = summary(), None
        # Calls that returned this patch, and how many of them a `with` has taken over.
        self._calls = 0
        self._entered = 0
        self._depth = 0

    def __repr__(self) -> str:
        return f"<fnintern.Patch {self.report}>"

    def _replace_imported(self) -> None:
        """Adds what modules have taken by ``from ... import``, under the same name."""
        modules = sys.modules.keys() - {
            name for name in sys.modules if name.partition(".")[0] in _NOT_SEARCHED
        }
        for replacement in list(self._replacements):
            name = replacement.site.name
            for module in _modules_with(name, replacement.found, modules):
                site = Site(module, name, replacement.site.replace)
                self._sites.append(site)
                self._replacements.append(_Replacement(site, replacement.found, replacement.put))

    @property
    def report(self) -> dict[str, str]:
        """What became of each wrapper, under its full name.

        One of ``"patched"``, ``"absent in this release"``, ``"already reverted by somebody else"``,
        or ``"reverted"`` after :meth:`revert`.
        """
        with _lock:
            active = self in _active
            by_site = {id(r.site): r for r in self._replacements}
            report = {}
            for site in self._sites:
                replacement = by_site.get(id(site))
                if replacement is None:
                    report[str(site)] = ABSENT
                elif not active:
                    report[str(site)] = REVERTED
                else:
                    report[str(site)] = PATCHED if replacement.in_force() else REVERTED_ELSEWHERE
            return report

    def summary(self) -> Summary:
        """:func:`fnintern.summary` for the time in which this patch has been in force."""
        before, after = self._counted
        return (after or summary()).since(before)

    def revert(self) -> None:
        """Puts every attribute back, as the identical object. A second call does nothing.

        An attribute that somebody else has replaced since is left to them.
        """
        with _lock:
            if self not in _active:
                return
            _active.remove(self)
            self._counted = self._counted[0], summary()
            for replacement in reversed(self._replacements):
                if replacement.in_place():
                    setattr(replacement.site.module, replacement.site.name, replacement.found)
                # Modules imported since have taken it by `from ... import`.
                name = replacement.site.name
                since = sys.modules.keys() - self._modules
                for module in _modules_with(name, replacement.put, since):
                    setattr(module, name, replacement.found)
                for later in _active:
                    # A patch made on top of this one goes back to what was there before both.
                    for other in later._replacements:
                        if other.found is replacement.put:
                            other.found = replacement.found

    def __enter__(self) -> Patch:
        with _lock:
            self._entered += 1
            self._depth += 1
        return self

    def __exit__(self, *exc_info: object) -> None:
        with _lock:
            self._depth -= 1
            if self._depth == 0 and self._entered >= self._calls:
                self.revert()

    def __call__(self, function: F) -> F:
        decorated = around(function, self._again)
        with self:  # this call is done; each one of the function applies the patch again
            pass
        return decorated

    def _again(self) -> Patch:
        return apply(self._what, self._sites[: self._given], self._made, self._imported)


#: Packages whose own modules go by what is patched where they look it up.
_NOT_SEARCHED: Final = frozenset({"jax", "jaxlib", "fnintern"})


def _modules_with(name: str, value: Any, among: Iterable[str]) -> list[types.ModuleType]:
    """The modules that hold a value under a name."""
    return [
        module
        for module in map(sys.modules.get, list(among))
        # Not by vars(), which would load a module that waits for its first use.
        if isinstance(module, types.ModuleType)
        and object.__getattribute__(module, "__dict__").get(name) is value
    ]


#: Patches in force, oldest first.
_active: list[Patch] = []
_lock = threading.RLock()


def _renew_lock() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def apply(
    what: object,
    sites: Sequence[Site],
    made: dict[str, tuple[Any, Any]] | None = None,
    imported: bool = False,
) -> Patch:
    """Replaces the attribute at each site that exists, all or none.

    Args:
        what: names the patch; while one of the same name is in force, that one is returned.
        sites: what to replace; a site whose attribute is absent is left out, and reported.
        made: replacements of an earlier time, with all that they have traced.
        imported: whether to replace it, too, where modules of other libraries and of the user's
            have taken it by ``from ... import``.

    Returns:
        The patch.

    Raises:
        Whatever making a replacement raises; then nothing has been replaced.
    """
    with _lock:
        for patch in _active:
            if patch._what == what and any(r.in_force() for r in patch._replacements):
                patch._calls += 1
                return patch
        patch = Patch(what, sites)
        patch._made = {} if made is None else made
        missing = object()
        for site in sites:
            found = getattr(site.module, site.name, missing)
            if found is not missing:
                under = bare(found)
                known = patch._made.get(str(site))
                if known is None or known[0] is not under:
                    known = patch._made[str(site)] = (under, site.replace(under))
                patch._replacements.append(_Replacement(site, found, known[1]))
        patch._imported = imported
        if imported:
            patch._replace_imported()
        done: list[_Replacement] = []
        try:
            for replacement in patch._replacements:
                done.append(replacement)
                setattr(replacement.site.module, replacement.site.name, replacement.put)
        except BaseException:
            for replacement in reversed(done):
                if not replacement.in_place():
                    continue  # the one that failed
                setattr(replacement.site.module, replacement.site.name, replacement.found)
            raise
        patch._calls = 1
        _active.append(patch)
        return patch


def bare(found: Any) -> Any:
    """What is under the replacements in force, so that a patch never wraps another one's work."""
    for patch in reversed(_active):
        for replacement in patch._replacements:
            if replacement.put is found:
                found = replacement.found
    return found


def intern_attribute(by: By) -> Callable[[Any], Any]:
    """How to replace a wrapper factory: by the same, interned.

    Args:
        by: how callables are compared.
    """
    kind = interner_of_kind(by)

    def replace(factory: Any) -> Any:
        # A subclass, since the class itself has to stay as it is for the way back: those who
        # imported it before still find it in isinstance, and it pickles under the same name.
        own = subclass_of(factory) if isinstance(factory, type) else factory
        return intern_as(own, kind(factory, 128))

    return replace


def patch(module: types.ModuleType | str, name: str, *, by: By = "value") -> Patch:
    """Interns one wrapper factory of any library, where the library looks it up.

    Args:
        module: the module, or its name, whose global the library calls.
        name: the global: a function or a class that makes a wrapper from a callable.
        by: how callables are compared; see :func:`fnintern.interned`.

    Returns:
        The patch, which is in force, and is a context manager with ``revert()`` and ``report``.
        While it is in force the same call returns the same patch.

    Raises:
        AttributeError: the module has no such attribute; nothing is changed.
        TypeError: ``module`` is neither a module nor a name; the attribute is not callable, or is a
            class that cannot be interned.

    Example:
        >>> import types, fnintern
        >>> library = types.ModuleType("library")
        >>> library.wrap = lambda f: [f]
        >>> with fnintern.patch(library, "wrap") as patched:
        ...     print(library.wrap(abs) is library.wrap(abs), patched.report)
        True {'library.wrap': 'patched'}
        >>> library.wrap(abs) is library.wrap(abs)
        False
    """
    if isinstance(module, str):
        module = importlib.import_module(module)
    if not isinstance(module, types.ModuleType):
        raise TypeError(
            f"patch expects a module or its name, got {module!r} of type "
            f"{type(module).__qualname__}; to patch several names, call it for each"
        )
    if not hasattr(module, name):
        raise AttributeError(
            f"module {module.__name__!r} has no attribute {name!r} to patch; name the module "
            f"whose code looks the wrapper up, and the wrapper's name there"
        )
    found = getattr(module, name)
    if not callable(found):
        raise TypeError(
            f"patch expects the name of a function or class that makes a wrapper, and "
            f"{module.__name__}.{name} is {found!r} of type {type(found).__qualname__}"
        )
    site = Site(module, name, intern_attribute(by))
    return apply(("patch", module.__name__, name, by), [site])

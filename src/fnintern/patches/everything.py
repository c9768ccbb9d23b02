"""``patch_all``: every patch whose library the program has imported, or imports later.

A library is patched right after its own code has run. None is imported for that.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import attrs

from fnintern.counting.counts import summary
from fnintern.libraries.importing import check_installed, when_imported
from fnintern.patches import equinox, linen, patching
from fnintern.patches.flax import patch_flax
from fnintern.patches.jax import patch_jax
from fnintern.patches.patching import Patch, Site, apply

__all__ = ["LIBRARIES", "AllPatches", "Library", "apply_all", "patch_all"]

NOT_IMPORTED: Final = "not imported"


@attrs.frozen
class Library:
    """How a library is patched.

    Attributes:
        module: the patch is applied once this one is imported.
        patch: applies it.
    """

    module: str
    patch: Callable[[], Patch]

    @classmethod
    def of_table(cls, module: str, sites: Callable[[], Sequence[Site]]) -> Library:
        """A library for which a table says what to replace."""
        return cls(module, lambda: apply(module, sites()))


#: Name for ``only`` and ``without`` -> how it is patched. ``a.b`` belongs to ``a``.
LIBRARIES: Final[dict[str, Library]] = {
    "jax": Library("jax", patch_jax),
    "flax": Library("flax.nnx", patch_flax),
    "flax.linen": Library.of_table("flax.linen", linen.sites),
    "equinox": Library.of_table("equinox", equinox.sites),
}


class AllPatches(Patch):
    """The patches of several libraries, those of later imports included."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(("all", names), ())
        self._names = names
        #: Library -> its patch, or what went wrong. Kept after it was reverted, for the report.
        self._patches: dict[str, Patch | str] = {}
        self._call_off: list[Callable[[], None]] = []
        self._starter = threading.get_ident()
        self._started = threading.Event()

    def __repr__(self) -> str:
        return f"<fnintern.patch_all {self.report}>"

    @property
    def report(self) -> dict[str, str]:
        """What became of each name, as for the patch of one library; and of each library that is
        not patched, under the name of its module: ``"not imported"``, or what went wrong."""
        report: dict[str, str] = {}
        for name in self._names:
            patch = self._patches.get(name, NOT_IMPORTED)
            report.update(
                patch.report if isinstance(patch, Patch) else {LIBRARIES[name].module: patch}
            )
        return report

    def start(self, earlier: dict[str, Patch | str]) -> None:
        """Patches what is imported, and waits for the rest.

        Args:
            earlier: patches that were applied and reverted, whose work is used again.
        """
        try:
            for name in self._names:
                add = functools.partial(self._add, name, earlier.get(name))
                self._call_off.append(when_imported(LIBRARIES[name].module, add))
        except BaseException:  # a warning that is an error, say
            self.revert()
            raise
        finally:
            self._started.set()
        if self not in patching._active:  # reverted meanwhile
            self._wait_no_more()

    def _add(self, name: str, earlier: Patch | str | None) -> None:
        # Not under the lock: it imports modules, which another thread may be importing.
        try:
            patch = earlier._again() if isinstance(earlier, Patch) else LIBRARIES[name].patch()
            patch.__enter__()
        except Exception as error:
            self._patches[name] = f"left as it was: {type(error).__name__}: {error}"
            warnings.warn(
                f"fnintern.patch_all() leaves {name} as it was, since its patch failed "
                f"({type(error).__name__}: {error}). Its releases that are supported are in the "
                f"changelog; patch_all(without={name!r}) leaves it out",
                RuntimeWarning,
                stacklevel=2,
            )
            return
        with patching._lock:
            if self in patching._active:
                self._patches[name] = patch
                return
        patch.__exit__()  # reverted meanwhile

    def revert(self) -> None:
        """Puts back the very objects, unless another patch in force has them replaced too, and
        waits for no import any more. A second call does nothing."""
        with patching._lock:
            if self not in patching._active:
                return
            patching._active.remove(self)
            self._counted = self._counted[0], summary()
            patches = list(self._patches.values())
        self._wait_no_more()
        for patch in reversed(patches):
            if isinstance(patch, Patch):
                patch.__exit__()

    def _wait_no_more(self) -> None:
        for call_off in self._call_off:
            call_off()

    def _again(self) -> Patch:
        return _apply(self._names, self._patches)


def patch_all(*, only: str | Iterable[str] = (), without: str | Iterable[str] = ()) -> Patch:
    """Applies every patch: to libraries that are imported now, and to others once they are.

    It is :func:`patch_jax`, :func:`patch_flax` and what there is for other libraries, in one line.
    It imports no library. Where a patch fails, that library is left as it was, with a warning, and
    the others are patched.

    Args:
        only: the libraries to patch, if not all: ``"jax"``, ``"flax"``. One name, or several.
        without: libraries to leave as they are.

    Returns:
        The patch, in force: a context manager and decorator with ``revert()`` and ``report``. While
        it is in force the same call returns the same patch.

    Raises:
        ValueError: a library is named for which there is no patch.
        ImportError: jax is not installed, or ``only`` names flax, and that is not; the message says
            what to install.

    Example:
        >>> import fnintern
        >>> with fnintern.patch_all(only="jax") as patched:
        ...     import jax
        ...     print(patched.report["jax.lax.scan"])
        patched
    """
    chosen = _chosen(only, "only")
    check_installed("patch_all()", "jax")
    if "flax" in chosen:
        check_installed("patch_all()", "flax")
    return apply_all(chosen, without)


def apply_all(only: Iterable[str], without: str | Iterable[str]) -> Patch:
    """:func:`patch_all` for a program that may have no use for jax, or its own place for it."""
    names = _chosen(only, "only") or set(LIBRARIES)
    names -= _chosen(without, "without")
    return _apply(tuple(name for name in LIBRARIES if name in names), {})


def _apply(names: tuple[str, ...], earlier: dict[str, Patch | str]) -> AllPatches:
    with patching._lock:
        known = [patch for patch in patching._active if patch._what == ("all", names)]
        patch = known[0] if known else AllPatches(names)
        assert isinstance(patch, AllPatches)
        patch._calls += 1
        if not known:
            patching._active.append(patch)
    if not known:
        patch.start(earlier)
    elif patch._starter != threading.get_ident():
        patch._started.wait()
    return patch


def _chosen(given: str | Iterable[str], argument: str) -> set[str]:
    found: set[str] = set()
    for name in (given,) if isinstance(given, str) else given:
        names = {known for known in LIBRARIES if known == name or known.startswith(f"{name}.")}
        if not names:
            raise ValueError(
                f"patch_all({argument}=...) names {name!r}, for which there is no patch; expected "
                f"{', '.join(sorted(LIBRARIES))}. fnintern.patch(module, name) patches one wrapper "
                f"of any library"
            )
        found |= names
    return found

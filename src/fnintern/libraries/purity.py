"""Functions of libraries that depend on more than their arguments (S2)."""

from __future__ import annotations

import datetime
from typing import Final

__all__ = [
    "ASKING",
    "ASKING_LOCKS",
    "ASKING_LOGGERS",
    "CLOCKS",
    "IMPURE_METHODS",
    "IMPURE_MODULES",
    "INTROSPECTING",
    "INTROSPECTING_NAMES",
    "RANDOM",
    "READING_FILES",
    "READING_NAMES",
    "SURROUNDINGS",
]

#: Modules whose functions return something else at each call.
IMPURE_MODULES: Final = frozenset({"random", "numpy.random", "time", "timeit", "secrets", "uuid"})

IMPURE_METHODS: Final = frozenset({"now", "utcnow", "today"})

CLOCKS: Final = (datetime.datetime, datetime.date)

RANDOM: Final = frozenset({"random"})

#: Libraries whose functions do.
SURROUNDINGS: Final = frozenset(
    {"glob", "shutil", "tempfile", "subprocess", "socket", "platform", "configparser", "sqlite3",
     "urllib", "http", "fileinput", "linecache", "mmap", "select"}
)  # fmt: skip

#: Functions of other libraries that do, by the root of the module.
READING_NAMES: Final = {
    "genericpath": frozenset(
        {"exists", "lexists", "isfile", "isdir", "getsize", "getmtime", "getatime", "getctime",
         "samefile"}
    ),
    "posixpath": frozenset({"lexists", "islink", "ismount", "realpath"}),
    "numpy": frozenset(
        {"load", "loadtxt", "genfromtxt", "fromfile", "memmap", "get_printoptions", "geterr"}
    ),
    "threading": frozenset({"current_thread", "get_ident", "active_count", "enumerate"}),
    "_thread": frozenset({"get_ident"}),
    "decimal": frozenset({"getcontext", "localcontext"}),
    "importlib": frozenset({"import_module", "reload"}),
    "pydoc": frozenset({"locate"}),
    "pkgutil": frozenset({"resolve_name"}),
    "sys": frozenset({"getswitchinterval", "getrecursionlimit", "getrefcount", "_getframe"}),
    "logging": frozenset({"getLevelName", "getLevelNamesMapping", "getHandlerNames"}),
    "absl": frozenset({"get_verbosity", "level_debug", "vlog_is_on"}),
}  # fmt: skip

#: Functions that read any attribute of what they get, by whatever module.
INTROSPECTING_NAMES: Final = frozenset({"asdict", "astuple", "evolve", "replace"})

#: Functions of ``os`` whose answer depends on what surrounds the program.
ASKING: Final = frozenset(
    {"getenv", "getenvb", "getcwd", "getcwdb", "getpid", "urandom", "getrandom", "listdir",
     "scandir", "stat", "times", "getloadavg", "cpu_count", "sched_getaffinity", "read"}
)  # fmt: skip

#: What code may ask a logger that it gets by its name.
ASKING_LOGGERS: Final = frozenset(
    {"level", "isEnabledFor", "getEffectiveLevel", "disabled", "manager", "disable", "handlers",
     "filters", "parent", "propagate", "hasHandlers"}
)  # fmt: skip

#: What code may ask a lock.
ASKING_LOCKS: Final = frozenset({"locked", "_is_owned"})

#: Methods of a path that read files.
READING_FILES: Final = frozenset(
    {"read_text", "read_bytes", "open", "exists", "is_file", "is_dir", "glob", "rglob", "iterdir",
     "stat", "lstat", "resolve", "walk"}
)  # fmt: skip

#: Modules of the standard library, and libraries, that read any attribute of what they get.
INTROSPECTING: Final = frozenset(
    {"copy", "_copy", "pickle", "_pickle", "dataclasses", "inspect", "pprint", "reprlib",
     "cloudpickle", "dill", "gc", "ctypes", "pydantic", "yaml", "marshal", "shelve"}
)  # fmt: skip

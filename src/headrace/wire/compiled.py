"""How kernels are compiled: by numba, once for each machine, into a folder that no other version of Headrace uses.

numba knows that a kernel is stale by its own file only, and not by those that it calls into. So the folder's name is a
hash of all sources of this package, of numba, llvmlite, numpy, Python and the kind of CPU. Nothing else decides, so the
folder may be copied to another machine, where this package may be in another folder or in an archive.

Without numba the same functions run as plain Python, which gives the same rows some hundred times slower.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.resources
import logging
import os
import platform
import stat
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])

_log = logging.getLogger(__name__)
CACHE_VARIABLE = "HEADRACE_KERNELS"
"""The environment variable that names the folder in which the folder of kernels is made, or was made elsewhere."""


@dataclass(frozen=True)
class Folders:
    """Where compiled kernels lie.

    Args:
        read: where they are looked for, in this order.
        written: where a process puts those that it compiles; None where no folder can be written.
    """

    read: tuple[Path, ...]
    written: Path | None


def kernel(function: F) -> F:
    """Compile a function over numpy arrays when it is first called.

    The function may not allocate: numba's counting of references is off (`_nrt`), without which a kernel of many small
    functions takes five to seven times as long. Integer overflow wraps, and a division by zero gives what C gives.
    """
    return cast(F, _Kernel(function))


class _Kernel:
    """A function that numba sees when it is called, or when a kernel that calls it is compiled.

    So a process that imports formats and only plans does not load numba.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self.kernel(*arguments)

    @functools.cached_property
    def kernel(self) -> Any:
        """What runs: numba's function, or plain Python without it."""
        numba = _numba()
        if numba is None:
            return _interpreted(self._function)
        from headrace.wire.kernel_files import KernelFiles

        kernel = numba.njit(nogil=True, error_model="numpy", _nrt=False)(self._function)
        folder = folders()
        kernel._cache = KernelFiles(self._function, folder.read, folder.written)
        return kernel

    @property
    def _numba_type_(self) -> Any:
        return self.kernel._numba_type_


def is_compiled() -> bool:
    """Whether kernels are compiled, and not run as plain Python."""
    return _numba() is not None


@functools.cache
def _numba() -> Any:
    try:
        import numba
    except ImportError:
        _log.warning("numba is not installed, so plain Python reads and writes messages, which is far slower.")
        return None
    return numba


def _interpreted(function: F) -> F:
    @functools.wraps(function)
    def run(*arguments: Any) -> Any:
        with np.errstate(over="ignore"):
            return function(*arguments)

    return cast(F, run)


@functools.cache
def folders() -> Folders:
    """The folder that the user names, the user's cache and the one for temporary files, up to the first that can be
    written.
    """
    name = f"kernels-{fingerprint()}"
    given = os.environ.get(CACHE_VARIABLE)
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "headrace"
    # A folder that all users can write to holds one that is this user's alone: what lies in it is run.
    shared = Path(tempfile.gettempdir()) / f"headrace-{os.getuid() if hasattr(os, 'getuid') else 0}"
    read: list[Path] = []
    written = None
    for parent in [*([Path(given).absolute()] if given else []), caches, shared]:
        folder = parent / name
        if _can_write(folder):
            written = folder
        if _is_safe(folder):
            read.append(folder)
        if written:
            break
    if given and not any(folder.parent == Path(given).absolute() for folder in read):
        there = (Path(given) / name).is_dir()
        why = (
            "other users can write to it" if there else "it has none for this machine and version, and is not writable"
        )
        _log.warning("Can't use compiled kernels in %s/%s: %s.", given, name, why)
    if not written and not read:
        _log.warning(
            "Can't write compiled kernels to any folder, so each process compiles them. Set %s.", CACHE_VARIABLE
        )
    return Folders(tuple(read), written)


def _can_write(folder: Path) -> bool:
    """Whether kernels can be put there, after it was made."""
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK) and _is_safe(folder)


def _is_safe(folder: Path) -> bool:
    """Whether only this user or root can have put there what lies there: it is run."""
    try:
        above, here = folder.parent.stat(), folder.stat()
    except OSError:
        return False
    if not hasattr(os, "getuid"):
        return True
    owned = all(status.st_uid in (os.getuid(), 0) for status in (above, here))
    # Where all may write, as in /tmp, the sticky bit keeps them from putting another folder in the place of this one.
    replaced = above.st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH
    return owned and not replaced and not here.st_mode & stat.S_IWOTH


@functools.cache
def fingerprint() -> str:
    """The hash of all that decides what a kernel's machine code is."""
    # Also where the package is in an archive.
    files = importlib.resources.files(__package__ or "headrace.wire").iterdir()
    sources = [file.read_bytes() for file in sorted(files, key=lambda file: file.name) if file.name.endswith(".py")]
    versions = [importlib.metadata.version(name) for name in ("numba", "llvmlite", "numpy")]
    # Another setting of bounds checks is other code.
    checks = os.environ.get("NUMBA_BOUNDSCHECK", "")
    parts = [*versions, sys.version, platform.machine(), _cpu(), checks]
    return hashlib.sha256(b"\0".join([*sources, *(text.encode() for text in parts)])).hexdigest()[:16]


def _cpu() -> str:
    """The CPU that numba compiles for: this machine's, or that of NUMBA_CPU_NAME, so that kernels fit others too."""
    numba = _numba()
    if numba is None:
        return ""
    import llvmlite.binding as llvm

    features = numba.config.CPU_FEATURES
    host = llvm.get_host_cpu_features().flatten() if features is None else features
    return f"{numba.config.CPU_NAME or llvm.get_host_cpu_name()} {host}"

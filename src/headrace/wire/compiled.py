"""How kernels are compiled: by numba, once for each machine, into a folder that no other version of Headrace uses.

numba knows that a kernel is stale by the time stamp of its own file only, and not of those that it calls into. So the
folder's name is a hash of all sources of this package, of numba, llvmlite, Python and the kind of CPU.

Without numba the same functions run as plain Python, which gives the same rows some hundred times slower.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import logging
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])

_log = logging.getLogger(__name__)
CACHE_VARIABLE = "HEADRACE_KERNELS"
"""The environment variable that names the folder in which the folder of kernels is made."""


def kernel(function: F) -> F:
    """Compile a function over numpy arrays when it is first called.

    The function may not allocate: numba's counting of references is off (`_nrt`), without which a kernel of many small
    functions takes five to seven times as long. Integer overflow wraps, and a division by zero gives what C gives.
    """
    numba = _numba()
    if numba is None:
        return _interpreted(function)
    folder = _folder()
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = "" if folder is None else str(folder)
    try:
        made = numba.njit(cache=folder is not None, nogil=True, error_model="numpy", _nrt=False)(function)
    finally:
        # A setting of the process, which the user's own functions follow too.
        numba.config.CACHE_DIR = before
    return cast(F, made)


def is_compiled() -> bool:
    """Whether kernels are compiled, and not run as plain Python."""
    return _numba() is not None


@functools.cache
def _numba() -> Any:
    try:
        import numba
    except ImportError:
        _log.warning("numba is not installed: messages are read and written by plain Python, which is far slower.")
        return None
    return numba


def _interpreted(function: F) -> F:
    @functools.wraps(function)
    def run(*arguments: Any) -> Any:
        with np.errstate(over="ignore"):
            return function(*arguments)

    return cast(F, run)


@functools.cache
def _folder() -> Path | None:
    """The folder of compiled kernels; None where none can be written, so that each process compiles for itself."""
    name = f"kernels-{fingerprint()}"
    given = os.environ.get(CACHE_VARIABLE)
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "headrace"
    # A folder that all users can write to holds one that is this user's alone: what lies in it is run.
    shared = Path(tempfile.gettempdir()) / f"headrace-{os.getuid() if hasattr(os, 'getuid') else 0}"
    for folder in [Path(given)] if given else [caches, shared]:
        if _is_ours(folder / name):
            return folder / name
    _log.warning(
        "No folder can be written for compiled kernels, so each process compiles them. Set %s.", CACHE_VARIABLE
    )
    return None


def _is_ours(folder: Path) -> bool:
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        mine = not hasattr(os, "getuid") or all(p.stat().st_uid == os.getuid() for p in (folder.parent, folder))
        return mine and os.access(folder, os.W_OK)
    except OSError:
        return False


def fingerprint() -> str:
    """The hash of all that decides what a kernel's machine code is."""
    sources = [path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))]
    versions = [importlib.metadata.version(name) for name in ("numba", "llvmlite", "numpy")]
    # Another setting of bounds checks is other code.
    checks = os.environ.get("NUMBA_BOUNDSCHECK", "")
    said = [*versions, sys.version, platform.machine(), _cpu(), checks]
    return hashlib.sha256(b"\0".join([*sources, *(text.encode() for text in said)])).hexdigest()[:16]


def _cpu() -> str:
    numba = _numba()
    if numba is None:
        return ""
    import llvmlite.binding as llvm

    return f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"

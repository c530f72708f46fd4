"""Compiled kernels in files, in place of numba's own cache.

numba's looks for a kernel by the path of its source, asks for a folder that it can write, and lets processes that
start together all compile the same. Here one of them compiles, and the others wait and load what it made.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import pickle
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

_log = logging.getLogger(__name__)
PATIENCE = 120.0
"""Seconds to wait for another process before this one compiles for itself."""
_STEP = 0.05


class _Turn:
    """The turn to compile, which one process of a machine has at a time; it ends with the process at the latest."""

    def __init__(self) -> None:
        self._file: TextIO | None = None
        self._waits = True

    def take(self, folder: Path) -> bool:
        """Wait for the turn; False where this process has it already, or has given up waiting."""
        if self._file is not None or not self._waits:
            return False
        until = time.monotonic() + PATIENCE
        try:
            file = (folder / "lock").open("w")
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    self._file = file
                    return True
                except BlockingIOError:
                    if time.monotonic() > until:
                        break
                    time.sleep(_STEP)
            file.close()
            _log.warning(
                "Another process has held %s for %.0f s, so this process compiles the kernels too.", file.name, PATIENCE
            )
        except OSError:
            pass  # A file system without locks: compiling twice is harmless.
        self._waits = False
        return False

    def end(self) -> None:
        """Let the next process compile."""
        if self._file is not None:
            self._file.close()
            self._file = None


_turn = _Turn()


class KernelFiles(_Cache):
    """The files of one kernel, one for each combination of argument types.

    numba asks it before it compiles (`load_overload`) and hands it what it compiled (`save_overload`), both under a
    lock of the process, and in between asks for the kernels that this one calls.

    Args:
        function: the kernel's source.
        read: the folders in which kernels are looked for, in this order.
        written: the folder for kernels that this process compiles; None where no folder can be written.
    """

    def __init__(self, function: Callable[..., Any], read: Sequence[Path], written: Path | None) -> None:
        self._name = f"{function.__module__}.{function.__qualname__}"
        self._read = read
        self._written = written
        self._has_turn = False

    @property
    def cache_path(self) -> str:
        return str(self._written or "")

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The kernel for these argument types; None where it has to be compiled here."""
        target_context.refresh()
        payload = self._loaded(sig)
        if payload is None and self._written is not None and _turn.take(self._written):
            self._has_turn = True
            payload = self._loaded(sig)
            if payload is not None:
                self._end_turn()
        if payload is None:
            return None
        return CompileResult._rebuild(target_context, *payload)  # type: ignore[no-untyped-call]

    def save_overload(self, sig: Any, data: Any) -> None:
        """Put a kernel there that was compiled here."""
        try:
            # Machine code that holds an address of this process is of no use to another one.
            if self._written is not None and not data.library.has_dynamic_globals:
                path = self._written / self._file(sig)
                draft = path.with_suffix(f".{os.getpid()}")
                draft.write_bytes(dumps(data._reduce()))  # type: ignore[no-untyped-call]
                draft.replace(path)
        except OSError as error:
            _log.warning("Can't store a compiled kernel in %s: %s", self._written, error.strerror)
        finally:
            self._end_turn()

    def enable(self) -> None:
        """Nothing: it is always on."""

    def disable(self) -> None:
        """Nothing: it is always on."""

    def flush(self) -> None:
        """Nothing: what lies there is never stale."""

    def _end_turn(self) -> None:
        # A kernel that another one calls is compiled in the turn of that one.
        if self._has_turn:
            self._has_turn = False
            _turn.end()

    def _file(self, sig: Any) -> str:
        return f"{self._name}-{hashlib.sha256(str(sig).encode()).hexdigest()[:16]}.kernel"

    def _loaded(self, sig: Any) -> Any:
        name = self._file(sig)
        for folder in self._read:
            try:
                return pickle.loads((folder / name).read_bytes())
            except FileNotFoundError:
                continue
            except (OSError, EOFError, pickle.UnpicklingError) as error:
                _log.warning("Can't read the compiled kernel %s: %s", folder / name, error)
        return None

"""Programs of the machine that the demo and tests run: where they are, and starting and stopping them in order."""

from __future__ import annotations

import pwd
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from headrace.errors import ConnectError

_WHERE = ("usr/sbin", "usr/lib/postgresql/*/bin", "usr/pgsql-*/bin", "usr/local/bin")
"""Folders that hold servers and are seldom on the PATH."""


class FolderError(ConnectError):
    """A server can't have its data in this folder."""


def program(name: str, package: str) -> Path:
    """The path of a program.

    Raises:
        ConnectError: the machine does not have it; the remedy names Debian's package.
    """
    found = shutil.which(name)
    if found:
        return Path(found)
    for folder in sorted((folder for pattern in _WHERE for folder in Path("/").glob(pattern)), reverse=True):
        if (folder / name).is_file():
            return folder / name
    raise ConnectError(
        f"The program {name} is needed, and this machine does not have it.",
        remedy=f"Run: apt-get install {package}",
    )


def identity(user: str | None) -> dict[str, Any]:
    """Arguments of `subprocess` for a process of another user of the machine; none without one."""
    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []} if user else {}


class Server:
    """A process that serves until it is stopped.

    Args:
        name: what it is, for messages.
        log: the file that takes what it prints.
    """

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(
        self,
        command: Iterable[str | Path],
        *,
        folder: Path,
        user: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start the process in a folder, as another user of the machine where one is named."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(word) for word in command],
                cwd=folder,
                **identity(user),
                env=dict(environment) if environment is not None else None,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The number of the process that was started."""
        assert self._process is not None
        return self._process.pid

    def wait_until(self, ready: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
        """Return as soon as the condition holds.

        Raises:
            ConnectError: the process ended, or the time is over; the last lines of its log stand in the message.
        """
        never = threading.Event()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                raise ConnectError(f"{self.name} ended before {what}.\n{self._last_lines()}", remedy=f"See {self.log}.")
            if ready():
                return
            never.wait(0.1)
        raise ConnectError(
            f"{self.name}: {what} did not happen within {seconds:.0f} seconds.\n{self._last_lines()}",
            remedy=f"See {self.log}.",
        )

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Ask the process to end and wait for it; kill it when that takes more than twenty seconds."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(how)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _last_lines(self) -> str:
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-30:])

"""A lease on a checkpoint that is not on this machine, so that one driver at a time writes to it and its targets.

The kernel locks a local checkpoint for as long as the process lives (`pipeline.checkpoint.owned`). On an object store
or another file system nothing does. So a driver puts a small file into the folder `headrace-lease` of the checkpoint,
whose name is a number, and writes it again every few seconds. Who takes over makes the file with the next number, which
can be made once only. The highest number holds the checkpoint: a driver that was paused, or cut off, finds a higher
number than its own before it gives a batch to the sinks, and stops.

How sure that is depends on the file system's answer to "make this file if it is not there": on HDFS, ABFS and GCS one
of two drivers gets it. S3A asks and then writes, unless it knows conditional creation (Hadoop 3.4.2, Spark 4.1); there
a driver whose file was written over finds another holder in it when it looks next.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from headrace.errors import HeadraceError, OptionError
from headrace.observe.checkpoint import CheckpointFolder

_LOG = logging.getLogger("headrace.pipeline")
FOLDER = "headrace-lease"
"""The folder in the checkpoint."""
SECONDS = 60
"""How long a lease lasts, where the option does not say otherwise."""
_RENEWALS = 4
"""How often it is renewed in that time."""
_SKEW = 2
"""Who finds a lease waits until it is so many times its length old: the clocks of two drivers are not the same."""
_KEPT = 3
"""How many older files are left."""


class LeaseFolder(CheckpointFolder, Protocol):
    """What a lease needs of a checkpoint's folder."""

    def create(self, file: str, text: str) -> bool:
        """Write a small file that must not be there yet; whether it was not."""

    def write(self, file: str, text: str) -> None:
        """Write a small file in place of the older one."""

    def delete(self, file: str) -> None:
        """Delete a file, if it is there."""


@dataclass(frozen=True)
class LeaseHolder:
    """Who holds a lease.

    Args:
        id: differs for each run.
        pipeline: the pipeline's name.
        host: the machine of its driver.
        process: the driver's process id there.
        renewed: when it was renewed, in seconds since the epoch by the holder's clock.
        seconds: how long it lasts from then.
        released: whether its holder has ended in order.
    """

    id: str
    pipeline: str
    host: str
    process: int
    renewed: float
    seconds: float
    released: bool = False

    def free_at(self) -> float:
        """When others may take it, in seconds since the epoch."""
        return 0.0 if self.released else self.renewed + _SKEW * self.seconds

    def to_text(self) -> str:
        return json.dumps(self.__dict__)

    @classmethod
    def from_text(cls, text: str) -> LeaseHolder | None:
        """Back from `to_text`; None where it can't be read, as while it is being written."""
        try:
            data: Any = json.loads(text)
            return cls(
                id=str(data["id"]),
                pipeline=str(data["pipeline"]),
                host=str(data["host"]),
                process=int(data["process"]),
                renewed=float(data["renewed"]),
                seconds=float(data["seconds"]),
                released=bool(data.get("released", False)),
            )
        except (ValueError, KeyError, TypeError):
            return None


def newest_lease(folder: CheckpointFolder) -> tuple[int, LeaseHolder | None]:
    """The highest number and who holds it; 0 and null where there is none yet."""
    number = max((int(name) for name in folder.names(FOLDER) if name.isdigit()), default=0)
    text = folder.text(_file(number)) if number else None
    return number, None if text is None else LeaseHolder.from_text(text)


def lease_holder(folder: CheckpointFolder, now: Callable[[], float] = time.time) -> LeaseHolder | None:
    """Who holds a checkpoint now; None where nobody does."""
    _, holder = newest_lease(folder)
    return holder if holder is not None and holder.free_at() > now() else None


class Lease:
    """A lease on a checkpoint. Runs in the driver; `confirm` may be called by any thread.

    Args:
        folder: the checkpoint's.
        location: its path or URL, for sentences.
        pipeline: the pipeline's name.
        seconds: how long the lease lasts without being renewed.
        breaks: whether to take it from a holder whose lease is not over.
        now: the time, in seconds since the epoch.
    """

    def __init__(
        self,
        folder: LeaseFolder,
        location: str,
        pipeline: str,
        seconds: float = SECONDS,
        *,
        breaks: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._location = location
        self._now = now
        self._number = 0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._renewer: threading.Thread | None = None
        host = socket.gethostname()
        self._own = LeaseHolder(uuid.uuid4().hex, pipeline, host, os.getpid(), now(), seconds)
        self._take(breaks)

    def keep(self) -> None:
        """Renew it every few seconds from now on, in a thread of its own."""
        self._renewer = threading.Thread(target=self._renew_always, name="headrace-lease", daemon=True)
        self._renewer.start()

    def confirm(self) -> None:
        """Whether this driver still holds the checkpoint, asked before a batch is given to the sinks.

        A lease that was not renewed in time is taken once more, which only one driver can.

        Raises:
            OptionError: another driver holds it.
        """
        with self._lock:
            number, holder = newest_lease(self._folder)
            if number > self._number or (holder is not None and holder.id != self._own.id):
                raise self._lost(holder)
            if self._now() - self._own.renewed > self._own.seconds:
                self._take_number(self._number + 1)

    def renew(self) -> None:
        """Write the lease again.

        Raises:
            OptionError: another driver holds the checkpoint.
        """
        with self._lock:
            number, holder = newest_lease(self._folder)
            if number > self._number or (holder is not None and holder.id != self._own.id):
                raise self._lost(holder)
            self._own = replace(self._own, renewed=self._now())
            self._folder.write(_file(self._number), self._own.to_text())

    def release(self) -> None:
        """Give it back, so that the next driver need not wait; nothing where another one holds it already."""
        self._ended.set()
        if self._renewer is not None and self._renewer is not threading.current_thread():
            self._renewer.join(self._own.seconds)
        with self._lock:
            number, holder = newest_lease(self._folder)
            if number == self._number and holder is not None and holder.id == self._own.id:
                self._folder.write(_file(number), replace(self._own, released=True).to_text())

    def _take(self, breaks: bool) -> None:
        number, holder = newest_lease(self._folder)
        if holder is not None and not breaks and holder.free_at() > self._now():
            raise self._taken(holder)
        if holder is not None and not holder.released:
            _LOG.warning(
                "The lease of pipeline '%s' (process %d on %s) on checkpoint '%s' is taken over.",
                holder.pipeline,
                holder.process,
                holder.host,
                self._location,
            )
        self._take_number(number + 1)

    def _take_number(self, number: int) -> None:
        self._own = replace(self._own, renewed=self._now())
        is_created = self._folder.create(_file(number), self._own.to_text())
        newest, holder = newest_lease(self._folder)
        if not is_created or newest != number or holder is None or holder.id != self._own.id:
            raise self._lost(holder) if self._number else self._taken(holder)
        self._number = number
        for name in self._folder.names(FOLDER):
            if name.isdigit() and int(name) <= number - _KEPT:
                self._folder.delete(_file(int(name)))

    def _renew_always(self) -> None:
        while not self._ended.wait(self._own.seconds / _RENEWALS):
            try:
                self.renew()
            except HeadraceError as error:
                # The next batch stops by `confirm`.
                _LOG.warning("%s", error)
                return
            except Exception as error:
                # The store may be back with the next try; if not, `confirm` asks it once more.
                _LOG.warning("The lease on checkpoint '%s' was not renewed: %s", self._location, type(error).__name__)

    def _taken(self, holder: LeaseHolder | None) -> OptionError:
        if holder is None:
            return OptionError(
                f"The checkpoint '{self._location}' was taken by another run at this moment.", remedy="Try again."
            )
        free = dt.datetime.fromtimestamp(holder.free_at(), dt.UTC)
        return OptionError(
            f"The checkpoint '{self._location}' is in use by pipeline '{holder.pipeline}' (process {holder.process} on "
            f"{holder.host}).",
            remedy=f"Stop that one first. If it is gone, its lease ends at {free:%Y-%m-%d %H:%M:%S} UTC; headrace run "
            "--break-lock takes the checkpoint before that.",
        )

    def _lost(self, holder: LeaseHolder | None) -> OptionError:
        by = "another run"
        if holder is not None and holder.id != self._own.id:
            by = f"pipeline '{holder.pipeline}' (process {holder.process} on {holder.host})"
        return OptionError(
            f"The checkpoint '{self._location}' was taken over by {by}, so this run stops before its next batch.",
            remedy="Let that one go on, or stop it and start this one again.",
        )


def _file(number: int) -> str:
    return f"{FOLDER}/{number:010}"

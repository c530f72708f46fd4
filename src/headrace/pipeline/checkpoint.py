"""What a pipeline needs to know of Spark's checkpoint: what is committed, and that nobody else runs on it.

Spark owns the folder and writes it; here it is only read, through Hadoop's file systems, so that any URL works that
Spark takes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCK = ".headrace.lock"


class Checkpoint:
    """A checkpoint folder as Spark sees it. Runs in the driver.

    Args:
        spark: a classic session, whose JVM opens the file system.
        location: path or URL.
    """

    def __init__(self, spark: SparkSession, location: str) -> None:
        self.location = location
        jvm = spark.sparkContext._jvm
        assert jvm is not None
        self._jvm = jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        self._files: Any = self._path(location).getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())

    @property
    def local_folder(self) -> Path | None:
        """The folder on this machine, or None when it is elsewhere."""
        if self._files.getUri().getScheme() != "file":
            return None
        return Path(self._path(self.location).toUri().getPath())

    def committed(self) -> int | None:
        """The number of the newest batch that rests in all sinks; None before the first."""
        folder = self._path(self.location, "commits")
        if not self._files.exists(folder):
            return None
        names = [status.getPath().getName() for status in self._files.listStatus(folder)]
        return max((int(name) for name in names if name.isdigit()), default=None)

    def offset(self, batch: int | None) -> str | None:
        """Where a batch ends, in the source's own words; None when there is no such batch."""
        if batch is None:
            return None
        file = self._path(self.location, f"offsets/{batch}")
        if not self._files.exists(file):
            return None
        stream = self._files.open(file)
        try:
            text = str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()
        # Spark's offset log: a version, the batch's metadata, then one line per source; `-` where a source had none
        # yet.
        lines = text.split("\n")
        return lines[2] if len(lines) > 2 and lines[2] not in ("", "-") else None

    def committed_offset(self) -> str | None:
        """Where the newest committed batch ends; None before the first."""
        return self.offset(self.committed())


@contextlib.contextmanager
def owned(folder: Path | None, name: str) -> Iterator[None]:
    """Be the only pipeline on a checkpoint of this machine while the block runs.

    The kernel holds the lock for the process, so that a killed one leaves nothing behind that must be cleaned up. A
    checkpoint on an object store (`folder` None) has no lock: there Spark's own check of its commit log finds a second
    writer.

    Raises:
        OptionError: another pipeline runs on it.
    """
    if folder is None:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / LOCK).open("a+")
    except OSError as error:
        raise OptionError(
            f"The checkpoint '{folder}' can't be written: {error.strerror}.", remedy="Name another folder."
        ) from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _taken(folder) from None
        handle.truncate(0)
        handle.write(f"{os.getpid()} {name}\n")
        handle.flush()
        yield


def check_free(location: str) -> None:
    """Whether a local checkpoint is free, asked before Spark is started; nothing is created.

    Raises:
        OptionError: another pipeline runs on it.
    """
    folder = Path(location.removeprefix("file://").removeprefix("file:"))
    try:
        handle = (folder / LOCK).open("r")
    except OSError:
        # No lock file, no owner; a folder that can't be used is told by `owned`.
        return
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _taken(folder) from None


def _taken(folder: Path) -> OptionError:
    pid, _, name = (folder / LOCK).read_text(errors="replace").strip().partition(" ")
    return OptionError(
        f"The checkpoint '{folder}' is in use by pipeline '{name}' (process {pid}).",
        remedy="Stop that one first, or give this pipeline a checkpoint of its own.",
    )

"""Folders that sinks write to, on this machine or wherever Spark reaches."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import SinkError
from headrace.permissions import MissingPermission, Permissions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_SAME_SCHEMES = {"s3a": "s3", "s3n": "s3", "abfss": "abfs", "wasbs": "wasb"}
"""Schemes of one store that reach the same folders."""


def absolute(path: str) -> str:
    """A path without a scheme that is relative belongs to the driver's working folder."""
    plain = path.rstrip("/")
    return plain if "://" in plain or plain.startswith(("/", "file:")) else str(Path(plain).absolute())


def folder_identity(path: str) -> str:
    """The same text for the same folder, however it is written; of folders on this machine links are followed."""
    plain = absolute(path)
    scheme, separator, rest = plain.partition("://")
    if not separator or scheme.lower() == "file":
        local = rest if separator else plain.removeprefix("file:")
        return os.path.realpath(f"/{local.lstrip('/')}")
    host, _, inside = rest.partition("/")
    name = scheme.lower()
    return f"{_SAME_SCHEMES.get(name, name)}://{host}/{os.path.normpath(f'/{inside}').lstrip('/')}".rstrip("/")


def refuse_read_only(path: str) -> None:
    """Raise SinkError unless a local folder, or the nearest one above it that exists, can be written."""
    location = _nearest(path)
    if location is None:
        return
    if not location.is_dir() or not os.access(location, os.W_OK | os.X_OK):
        raise SinkError(
            f"The folder {path} can't be written: {location} is not a folder that this user may write to.",
            remedy="Choose another 'path'.",
        )


def folder_permissions(path: str) -> Permissions:
    """Whether a folder, or the nearest one above it that exists, takes a file: one is made there and deleted again.

    A folder that only Spark reaches is not asked. Runs anywhere; nothing stays behind.
    """
    location = _nearest(path)
    if location is None:
        return Permissions(
            f"{path} is not on this machine and was not checked; the first write shows whether it is writable.",
            known=False,
        )
    try:
        # Where the system can, it never has a name; else one that readers of a lakehouse pass over.
        with tempfile.TemporaryFile(dir=location, prefix="_headrace_probe_") as probe:
            probe.write(b"headrace check")
            probe.flush()
    except OSError as failure:
        missing = MissingPermission(
            f"The folder {path} can't be written: {location} takes no file ({failure.strerror}).",
            "Allow this user to write there, make room, or choose another folder.",
        )
        return Permissions("", (missing,))
    return Permissions(f"The folder {path} can be written.")


def _nearest(path: str) -> Path | None:
    """The folder, or the nearest one above it that is there; None for one that is not on this machine."""
    if "://" in path and not path.startswith("file://"):
        return None
    location = Path(path.removeprefix("file://").removeprefix("file:")).absolute()
    while not location.exists():
        location = location.parent
    return location


class Folder:
    """A folder on any file system that Spark reaches (Hadoop's API, in the driver's JVM)."""

    def __init__(self, spark: SparkSession, base: str) -> None:
        jvm: Any = spark._jvm
        self._base = base
        self._make_path: Any = jvm.org.apache.hadoop.fs.Path
        self._files: Any = self._make_path(base).getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())

    def read(self, name: str) -> str | None:
        """A small text file's content, or None where there is none."""
        path = self._path(name)
        if not self._files.exists(path):
            return None
        size = int(self._files.getFileStatus(path).getLen())
        stream = self._files.open(path)
        try:
            return bytes(stream.readNBytes(size)).decode()
        finally:
            stream.close()

    def names(self) -> list[str]:
        """The names of what lies in it, in order; none where there is no folder."""
        base = self._make_path(self._base)
        if not self._files.exists(base):
            return []
        return sorted(status.getPath().getName() for status in self._files.listStatus(base))

    def create(self, name: str, text: str) -> None:
        """Write a small text file that must not be there yet."""
        stream = self._files.create(self._path(name), False)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def replace(self, draft: str, name: str) -> None:
        """Put a finished folder in its place."""
        target = self._path(name)
        # The old one holds the same lines; between the two calls the batch is not there, but never half there.
        self._files.delete(target, True)
        if not self._files.rename(self._path(draft), target):
            raise SinkError(f"The folder {target.toString()} can't be renamed into place.", remedy="Repeat the batch.")

    def _path(self, name: str) -> Any:
        return self._make_path(f"{self._base}/{name}")

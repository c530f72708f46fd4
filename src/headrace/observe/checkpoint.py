"""The contents of a Spark checkpoint: the last committed batch and where it ends; Headrace's own files in it.

Spark owns the folder. On this machine it is read as files, without Spark; elsewhere through the Hadoop file systems of
a session, so that any URL works that Spark takes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headrace.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")

MESSAGE_COUNTS = "headrace-message-counts.json"
"""The file beside Spark's own that holds `KeptCounts`; nothing depends on it."""
LAST_RUN = "headrace-last-run.json"
"""The file that says in what form, and by which release, the last run read and wrote; nothing depends on it."""
TOPIC_IDS = "headrace-topic-ids.json"
"""The file that holds the id of each topic which the offsets are of."""
REPLAYED = "headrace-replayed-letters.json"
"""The file that says which dead letters were replayed."""
SKIPPED = "headrace-skipped-messages.json"
"""The file that says which messages of Kafka a user passed over."""
CASCADES = "headrace-cascades.json"
"""The file that holds the rows which foreign keys add to the batch that is being written."""
PARKED = "headrace-parked-tables.json"
"""The file that says which tables are parked; not there where none is, so that an earlier release can go on."""
STRUCTURES = "headrace-structures.json"
"""The file that says which structures of tables sinks have; there where messages say them."""
OWN_FILES = frozenset([MESSAGE_COUNTS, LAST_RUN, TOPIC_IDS, REPLAYED, SKIPPED, CASCADES, PARKED, STRUCTURES])
"""Headrace's files in a checkpoint. A release does not go on from a checkpoint that has another: a later one left it.

So whoever adds a file adds its name here, and a file on which anything depends has a version in it."""
_OWN_FILE = re.compile(r"headrace-.*\.json")


@contextmanager
def reading(file: str, *, without: str) -> Iterator[None]:
    """Report a file of Headrace's that the block can't make out as damaged.

    Args:
        file: its name.
        without: what deleting it leads to, as a sentence.

    Raises:
        OptionError: the block fails over what the file has.
    """
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise OptionError(
            f"The checkpoint is damaged: it has a file '{file}' that can't be read.",
            remedy=f"Restore it from a backup. {without}",
        ) from error


class CheckpointFolder(Protocol):
    def exists(self) -> bool:
        """Whether it is there."""

    def names(self, folder: str) -> list[str]:
        """The names of the files in one of its folders, or in itself (`""`); none when that is not there."""

    def text(self, file: str) -> str | None:
        """A file's text; None when it is not there."""


class LocalFolder:
    """A checkpoint on this machine.

    Args:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def exists(self) -> bool:
        return self.path.is_dir()

    def names(self, folder: str) -> list[str]:
        """The names of the files in one of its folders.

        Raises:
            OptionError: it can't be read.
        """
        try:
            return [file.name for file in (self.path / folder).iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise self._unreadable(error) from error

    def text(self, file: str) -> str | None:
        """A file's text.

        Raises:
            OptionError: it can't be read.
        """
        try:
            return (self.path / file).read_text("utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: OSError) -> OptionError:
        return OptionError(
            f"The checkpoint '{self.path}' can't be read: {error.strerror}.", remedy="Check who may read it."
        )


class HadoopFolder:
    """A checkpoint at any URL that Spark takes.

    Args:
        spark: a classic session, whose JVM opens the file system.
        location: path or URL.
    """

    def __init__(self, spark: SparkSession, location: str) -> None:
        jvm = spark.sparkContext._jvm
        assert jvm is not None
        self._jvm = jvm
        self._location = location
        self._path = jvm.org.apache.hadoop.fs.Path
        self._files: Any = self._path(location).getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())

    @property
    def local_path(self) -> Path | None:
        if self._files.getUri().getScheme() != "file":
            return None
        return Path(self._path(self._location).toUri().getPath())

    def exists(self) -> bool:
        return bool(self._files.exists(self._path(self._location)))

    def names(self, folder: str) -> list[str]:
        path = self._path(self._location, folder) if folder else self._path(self._location)
        if not self._files.exists(path):
            return []
        return [status.getPath().getName() for status in self._files.listStatus(path)]

    def text(self, file: str) -> str | None:
        path = self._path(self._location, file)
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, file: str, text: str) -> None:
        """Write a small file in place of the older one."""
        stream = self._files.create(self._path(self._location, file), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def create(self, file: str, text: str) -> bool:
        """Write a small file that must not be there yet; whether it was not.

        The file system decides between two that do it at once, as far as it can: S3A only with conditional creation.
        """
        from py4j.protocol import Py4JJavaError

        path = self._path(self._location, file)
        try:
            builder = self._files.createFile(path).recursive().overwrite(False)
            # Others ignore it.
            stream = builder.opt("fs.option.create.conditional.overwrite", True).build()
            stream.write(bytearray(text.encode()))
            stream.close()
        except Py4JJavaError:
            if self._files.exists(path):
                return False
            raise
        return True

    def delete(self, file: str) -> None:
        self._files.delete(self._path(self._location, file), False)


def local_path(location: str | os.PathLike[str]) -> Path | None:
    """The folder that a path or a `file:` URL names; None for any other URL."""
    text = os.fspath(location)
    scheme = _URL.match(text)
    if scheme is None:
        return Path(text)
    if scheme[1].lower() == "file":
        return Path(re.sub(r"^/+", "/", text[len("file:") :]))
    return None


def open_folder(location: str | os.PathLike[str], spark: SparkSession | None) -> CheckpointFolder:
    """A checkpoint's folder.

    Args:
        location: path or URL.
        spark: a classic session, for what is not on this machine.

    Raises:
        OptionError: it is not on this machine, and there is no session.
    """
    path = local_path(location)
    if path is not None:
        return LocalFolder(path)
    if spark is None:
        raise OptionError(
            f"The checkpoint '{location}' is not on this machine.",
            remedy="Give a Spark session that can read it: spark=spark.",
        )
    return HadoopFolder(spark, os.fspath(location))


def committed_batch(folder: CheckpointFolder) -> int | None:
    """The number of the newest batch that rests in all sinks; None before the first."""
    return _newest(folder, "commits")


def planned_batch(folder: CheckpointFolder) -> int | None:
    """The number of the newest batch that was planned, whether it was finished or not; None before the first."""
    return _newest(folder, "offsets")


def _newest(folder: CheckpointFolder, log: str) -> int | None:
    return max((int(name) for name in folder.names(log) if name.isdigit()), default=None)


def unknown_files(folder: CheckpointFolder) -> list[str]:
    """Files that a later release of Headrace left in a checkpoint."""
    return sorted(name for name in folder.names("") if _OWN_FILE.fullmatch(name) and name not in OWN_FILES)


def batch_offsets(folder: CheckpointFolder, batch: int) -> list[str | None]:
    """Where a batch ends, in each source's own words; null for a source that had nothing yet."""
    text = folder.text(f"offsets/{batch}")
    if text is None:
        return []
    # Spark's offset log: a version, the batch's metadata, then one line per source; `-` where a source had none yet.
    return [None if line in ("", "-") else line for line in text.split("\n")[2:]]

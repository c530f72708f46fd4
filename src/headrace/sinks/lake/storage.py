"""Where the files of lake tables are, and how Python reads and writes them there: local folders and S3.

Spark logs in to a store by the settings of Hadoop or Iceberg. Workers and the driver, which write files with pyarrow,
log in the same way; where pyarrow can't, Spark writes the files (`headrace.sinks.lake.s3`).
"""

from __future__ import annotations

import datetime as dt
import errno
import functools
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from headrace.errors import SinkError

_TRIES = 8
"""A store that is busy is asked so often, with growing pauses."""
_SECONDS = 60
"""A request that takes longer than this is made again."""
_LOCAL = re.compile(r"file:/+(.*)")
_S3 = frozenset(["s3", "s3a", "s3n"])


@dataclass(frozen=True)
class Storage:
    """A file system that Python reaches. Can be pickled; every process that uses it logs in by itself.

    Args:
        login: what `pyarrow.fs.S3FileSystem` takes, as JSON; may hold secrets. Empty for the local file system.
    """

    login: str = field(default="", repr=False)

    @classmethod
    def s3(cls, login: Mapping[str, Any]) -> Storage:
        """S3, or a store that speaks its protocol."""
        return cls(json.dumps(login, sort_keys=True))

    @property
    def is_local(self) -> bool:
        """Whether it is this machine's file system, which other machines may not share."""
        return not self.login

    @property
    def fingerprint(self) -> str:
        """Tells one login from another, and holds no secret."""
        return hashlib.sha256(self.login.encode()).hexdigest() if self.login else ""

    @property
    def system(self) -> fs.FileSystem:
        return _system(self.login, os.getpid())

    @contextmanager
    def parquet(self, path: str) -> Iterator[pq.ParquetFile]:
        """A Parquet file that is closed afterwards.

        Raises:
            OSError: it can't be read.
        """
        # Where each read is a request, neighbours are read by one.
        with pq.ParquetFile(path, filesystem=self.system, pre_buffer=not self.is_local) as file:
            yield file

    def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        """Bytes of a file, up to its end where no size is given.

        Raises:
            FileNotFoundError: it is not there.
            OSError: it can't be read.
        """
        try:
            with self.system.open_input_file(path) as file:
                file.seek(offset)
                content: bytes = file.read(size)
        except FileNotFoundError as missing:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from missing
        return content

    def write(self, path: str, data: bytes | pa.Buffer) -> None:
        """Make a file.

        Raises:
            OSError: it can't be written.
        """
        with self.system.open_output_stream(path) as file:
            file.write(data)

    def size(self, path: str) -> int | None:
        """The bytes of a file; None where it is not there."""
        info = self.system.get_file_info(path)
        return int(info.size) if info.is_file else None

    def delete(self, path: str) -> None:
        try:
            self.system.delete_file(path)
        except FileNotFoundError:
            return

    def names(self, folder: str) -> list[str]:
        """The names of the files in a folder.

        Raises:
            FileNotFoundError: it is not there.
        """
        infos = self.system.get_file_info(fs.FileSelector(folder))
        return [info.base_name for info in infos if info.is_file]

    def files_below(self, folder: str) -> Iterator[tuple[str, int, dt.datetime]]:
        """All files in a folder and in those below it: path, bytes and when it was written.

        Raises:
            OSError: they can't be listed.
        """
        for info in self.system.get_file_info(fs.FileSelector(folder, allow_not_found=True, recursive=True)):
            if info.is_file:
                yield info.path, info.size, info.mtime

    def make_folder(self, folder: str) -> None:
        if self.is_local:
            Path(folder).mkdir(parents=True, exist_ok=True)


LOCAL = Storage()


@dataclass(frozen=True)
class Folder:
    """A folder of files.

    Args:
        path: in its storage, without `/` at its end; in S3 it begins with the bucket.
        storage: what it is in.
    """

    path: str
    storage: Storage = LOCAL

    def __str__(self) -> str:
        return self.path if self.storage.is_local else f"s3://{self.path}"

    def location(self, name: str) -> str:
        return f"{self.path}/{name}"

    def make(self) -> None:
        self.storage.make_folder(self.path)

    def require(self, written: Mapping[str, int]) -> None:
        """See that the driver has the files that tasks wrote: they may run on machines with a disk of their own.

        Args:
            written: the size of each by its name.

        Raises:
            SinkError: one is not there, or not all of it.
        """
        if not self.storage.is_local:
            return
        for name, size in written.items():
            if self.storage.size(self.location(name)) != size:
                raise SinkError(
                    f"A task wrote a data file of {size} bytes into the folder {self.path}, and the driver does not "
                    "find it there.",
                    remedy="Give the sink a folder that all machines of the cluster share, or one of an object store.",
                )


@dataclass(frozen=True)
class Location:
    """A place as a table format names it.

    Args:
        scheme: `file`, or that of a store.
        path: as `Folder` has it.
    """

    scheme: str
    path: str

    @classmethod
    def of_uri(cls, text: str) -> Location:
        """Of a URI, in which odd letters are escaped."""
        parts = urlsplit(text)
        return cls(parts.scheme, f"{parts.netloc}{unquote(parts.path)}".rstrip("/"))

    @classmethod
    def of_name(cls, text: str, default_scheme: str) -> Location:
        """Of a name without escapes, as Iceberg has them.

        Args:
            text: the name.
            default_scheme: that of a name without one.
        """
        if text.startswith("/"):
            return cls(default_scheme, text.rstrip("/"))
        if local := _LOCAL.fullmatch(text):
            return cls("file", f"/{local[1]}".rstrip("/"))
        scheme, _, rest = text.partition("://")
        return cls(scheme, rest.rstrip("/"))

    @property
    def is_local(self) -> bool:
        return self.scheme == "file"

    @property
    def bucket(self) -> str | None:
        """The bucket of S3 that it is in; None elsewhere."""
        return self.path.partition("/")[0] if self.scheme in _S3 else None


@functools.lru_cache(maxsize=64)
def _system(login: str, _process: int) -> fs.FileSystem:
    """The file system of a login; a process does not use what the one before it has made."""
    if not login:
        return fs.LocalFileSystem()
    return fs.S3FileSystem(
        **json.loads(login),
        request_timeout=_SECONDS,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_TRIES),
        # A small file is one request.
        allow_delayed_open=True,
    )

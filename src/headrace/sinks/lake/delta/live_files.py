"""The data files of a Delta table at a version, read from its log without a Spark job."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.sinks.lake.delta.actions import Entry
from headrace.sinks.lake.delta.deletion_vectors import read_vector
from headrace.sinks.lake.indexed import FilesAtVersion, LogUnreadable, Rows
from headrace.sinks.lake.storage import Folder, Storage

_LOG = "_delta_log"
_COMMIT = "{:020d}.json"
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
_OTHER_PLACE = re.compile(r"^(/|[A-Za-z][A-Za-z0-9+.-]*:)")
_MAPS = ("partitionValues", "tags")
_DERIVED = ("stats_parsed", "partitionValues_parsed")


class LiveFiles(FilesAtVersion):
    """What the log of a table says of its files, followed from version to version.

    Args:
        folder: the table's.
    """

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.version = -1
        self.entries: dict[str, Entry] = {}
        """The files by path, as they stand in the log."""
        self.types: Mapping[str, pa.DataType | None] = {}
        """The columns by which the table has partitions, with their types."""
        self.names: Mapping[str, str] = {}
        """The names that columns have in files and in the log, where these are not their own."""
        self._rows: dict[str, int] = {}
        self._vectors: dict[str, Rows] = {}

    @property
    def rows(self) -> Mapping[str, int]:
        return self._rows

    @property
    def size(self) -> int:
        return sum(rows.nbytes for rows in self._vectors.values())

    def gone(self, path: str) -> Rows:
        vector = self.entries[path].get("deletionVector")
        if not vector:
            return np.empty(0, np.int64)
        name = _name(vector)
        if name not in self._vectors:
            self._vectors[name] = read_vector(self.folder, vector)
        return self._vectors[name]

    def partition(self, path: str) -> str:
        return json.dumps(self.entries[path].get("partitionValues") or {}, sort_keys=True)

    def constants(self, path: str) -> Mapping[str, pa.Scalar]:
        """The values of its partition, which the log has as text."""
        values = self.entries[path].get("partitionValues") or {}
        return {
            name: pa.scalar(values[self.names.get(name, name)] or None, pa.string()).cast(kind)
            for name, kind in self.types.items()
        }

    def columns(self, file: pq.ParquetFile) -> Mapping[str, str]:
        by_physical = super().columns(file)
        return (
            {name: stored for name, stored in self.names.items() if stored in by_physical}
            if self.names
            else by_physical
        )

    def keep(self, vector: Mapping[str, Any], rows: Rows) -> None:
        self._vectors[_name(vector)] = rows

    def advance(self, version: int) -> None:
        """Read on up to a version, from a checkpoint where that is nearer. An earlier version is read from the start.

        Raises:
            LogUnreadable: it can't be read.
        """
        if version < self.version:
            self._forget()
        try:
            if self.version < 0:
                self._read_checkpoint(version)
            while self.version < version:
                self._read_commit(self.version + 1)
        except FileNotFoundError as missing:
            # Commits that were followed up to now may be gone where a checkpoint has them.
            self._forget()
            raise LogUnreadable(f"{missing.filename or self.folder} is not there") from missing
        vectors = {_name(entry["deletionVector"]) for entry in self.entries.values() if entry.get("deletionVector")}
        self._vectors = {name: rows for name, rows in self._vectors.items() if name in vectors}

    @property
    def storage(self) -> Storage:
        return self.folder.storage

    def bytes_of(self, path: str) -> int:
        return int(self.entries[path]["size"])

    def location(self, path: str) -> str:
        """Where a file is.

        Raises:
            LogUnreadable: outside of the table's folder, as those of a shallow clone.
        """
        if _OTHER_PLACE.match(path):
            raise LogUnreadable("it has files outside of its folder")
        return self.folder.location(unquote(path))

    def _read_checkpoint(self, version: int) -> None:
        parts: dict[tuple[int, int], list[str]] = defaultdict(list)
        for name in self.storage.names(self.folder.location(_LOG)):
            if (match := _CHECKPOINT.fullmatch(name)) and int(match[1]) <= version:
                parts[int(match[1]), int(match[3] or 1)].append(name)
        whole = [key for key, files in parts.items() if len(files) == key[1]]
        if not whole:
            return
        newest = max(whole)
        for name in parts[newest]:
            with self.storage.parquet(self.folder.location(f"{_LOG}/{name}")) as file:
                column = file.read(columns=["add"]).column("add")
            for row in column.drop_null().to_pylist():
                self._add(_as_json(row))
        self.version = newest[0]

    def _read_commit(self, version: int) -> None:
        text = self.storage.read(self.folder.location(f"{_LOG}/{_COMMIT.format(version)}")).decode()
        actions = [json.loads(line) for line in text.split("\n") if line.strip()]
        for action in actions:
            if "remove" in action:
                self.entries.pop(action["remove"]["path"], None)
                self._rows.pop(action["remove"]["path"], None)
        for action in actions:
            if "add" in action:
                self._add(action["add"])
        self.version = version

    def _add(self, entry: Entry) -> None:
        self.entries[entry["path"]] = entry
        self._rows[entry["path"]] = json.loads(entry.get("stats") or "{}").get("numRecords", 0)

    def _forget(self) -> None:
        self.version, self.entries, self._rows = -1, {}, {}


def names_in_log(folder: Folder) -> set[str]:
    """The names, without folders, of all files that a log names: those of its versions, and those that these lost.

    Raises:
        OSError: it can't be read, or is not there.
        ValueError: likewise.
    """
    names: set[str] = set()
    storage = folder.storage
    entries = [path for path, *_ in storage.files_below(folder.location(_LOG))]
    if not entries:
        # All files would seem to be nobody's.
        raise FileNotFoundError(f"the log of {folder} is not there")
    for path in entries:
        if path.endswith(".json"):
            lines = storage.read(path).decode().split("\n")
            actions = [json.loads(line) for line in lines if line.strip()]
        elif path.endswith(".parquet"):
            with storage.parquet(path) as file:
                kinds = [kind for kind in ("add", "remove") if kind in file.schema_arrow.names]
                actions = file.read(columns=[f"{kind}.path" for kind in kinds]).to_pylist()
        else:
            continue
        files = (action[kind]["path"] for action in actions for kind in ("add", "remove") if action.get(kind))
        names.update(unquote(file).rpartition("/")[2] for file in files)
    return names


def _name(vector: Mapping[str, Any]) -> str:
    return f"{vector['storageType']}{vector['pathOrInlineDv']}@{vector.get('offset')}"


def _as_json(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a checkpoint as a line of the log has it."""
    entry = {}
    for name, value in row.items():
        if value is None or name in _DERIVED:
            continue
        if name in _MAPS:
            value = dict(value)
        elif isinstance(value, dict):
            value = {key: inner for key, inner in value.items() if inner is not None}
        entry[name] = value
    return entry

"""What a scenario of the capture contract asks of a server, whatever its name: tables, capture, clean-up."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from headrace.changes.position import READ_AGAIN_FROM
from headrace.changes.row import SNAPSHOT_ENDS
from headrace.sources.reader import source_named
from headrace.testing.sources import Row, SourceRun


class CapturedDatabase(ABC):
    """A database of one kind of server.

    Attributes:
        source: the source's name.
        schema: the schema of all tables here.
    """

    source: str
    schema: str
    capitals = False
    """Whether the catalog has names in capitals."""
    small_slices: Row = {"commits_per_slice": 2}  # noqa: RUF012
    """Options with which a few commits make several slices."""
    chunk_point = "source.incremental.wait"
    """Where a chunk of an ad-hoc snapshot has been planned and is not read yet."""
    chunks_are_moments = False
    """Whether such a chunk is the table at the batch's end, so that nothing in it can be newer than what follows."""

    @property
    @abstractmethod
    def options(self) -> dict[str, str]:
        """The options that name the database."""

    @abstractmethod
    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """One statement in a transaction of its own."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Any]:
        """A transaction whose cursor has `execute`."""

    @abstractmethod
    def enable(self, table: str) -> None:
        """Capture a table from now on."""

    @abstractmethod
    def disable(self, table: str) -> None:
        """Capture a table no longer."""

    @abstractmethod
    def capture(self) -> None:
        """Make everything that was committed readable."""

    @abstractmethod
    def clean(self) -> None:
        """Forget all captured changes."""

    def clean_delivered(self, run: Run) -> None:
        """Forget all changes that a run has delivered."""
        self.clean()

    @abstractmethod
    def capturing(self) -> AbstractContextManager[Any]:
        """Capture by itself for as long as a block lasts."""

    def close(self) -> None:
        """The test is over."""
        return None

    def create(self, table: str, columns: str, rows: Sequence[Sequence[Any]] = ()) -> None:
        """Make a captured table with rows that are history."""
        self.execute(f"CREATE TABLE {self.schema}.{table} ({columns})")
        with self.transaction() as cursor:
            for row in rows:
                cursor.execute(f"INSERT INTO {self.schema}.{table} VALUES ({', '.join('?' * len(row))})", row)
        self.enable(table)
        self.capture()

    def insert(self, table: str, *row: Any) -> None:
        """One row in a transaction of its own."""
        self.execute(f"INSERT INTO {self.schema}.{table} VALUES ({', '.join('?' * len(row))})", row)

    def update(self, table: str, change: str, where: str) -> None:
        """An update in a transaction of its own."""
        self.execute(f"UPDATE {self.schema}.{table} SET {change} WHERE {where}")

    def delete(self, table: str, where: str) -> None:
        """A delete in a transaction of its own."""
        self.execute(f"DELETE FROM {self.schema}.{table} WHERE {where}")

    def named(self, table: str) -> str:
        """A table as the catalog has it."""
        return f"{self.schema}.{table.upper() if self.capitals else table}"

    def run(self, **options: Any) -> Run:
        """A run of the source."""
        return Run(self, **options)


class Run(SourceRun):
    """A run of a database's source with options."""

    def __init__(self, database: CapturedDatabase, **options: Any) -> None:
        self.options = {
            **database.options,
            **{name: str(value) for name, value in options.items()},
        }
        super().__init__(lambda: source_named(database.source, self.options))

    def restarted(self, **options: Any) -> Run:
        """The same place, read by a new process."""
        self.options |= {name: str(value) for name, value in options.items()}
        self.source = self._make()
        return self


def data(rows: Sequence[Row]) -> list[tuple[str, str, dict[str, Any]]]:
    """Operation, table and image of each change in the order of positions; names in lower case."""
    changes = sorted((row for row in rows if row["op"] in "rcud"), key=lambda row: row["position"])
    return [(row["op"], row["table"]["name"].lower(), image(row)) for row in changes]


def image(row: Row, which: str = "") -> dict[str, Any]:
    """A row's image with names in lower case; the one after the change unless there is none."""
    chosen = row[which] if which else row["after"] or row["before"]
    return {name.lower(): value for name, value in chosen}


def read_since(row: Row) -> str:
    """The position from which a read beside the stream began that a row ends; empty where none does."""
    return dict(row["source"] or ()).get(READ_AGAIN_FROM, "") if row["op"] == "schema" else ""


def replay(rows: Sequence[Row]) -> dict[tuple[str, str], dict[str, Any]]:
    """What tables hold after the rows, by table and key; the end of a read of a whole table says what is gone."""
    held: dict[tuple[str, str], dict[str, Any]] = {}
    written: dict[tuple[str, str], str] = {}
    changes = (row for row in rows if row["op"] in "rcud" or row["snapshot"] in SNAPSHOT_ENDS or read_since(row))
    for row in sorted(changes, key=lambda row: row["position"]):
        key = (row["table"]["name"].lower(), row["key_text"])
        if since := read_since(row):
            held = {k: v for k, v in held.items() if k[0] != key[0] or written[k] >= since}
        if row["snapshot"] in SNAPSHOT_ENDS:
            begun = row["position"].partition("/")[0]
            held = {k: v for k, v in held.items() if k[0] != key[0] or written[k] >= begun}
        if row["op"] == "schema":
            continue
        written[key] = row["position"]
        if row["op"] == "u" and row["before"] and row["key"]:
            # An update may carry a row to another key.
            before = dict(row["before"])
            old = [before[name] for name, _ in row["key"] if name in before]
            if len(old) == len(row["key"]):
                held.pop((key[0], json.dumps(old, separators=(",", ":"))), None)
        if row["op"] == "d":
            held.pop(key, None)
        else:
            held[key] = image(row)
    return held

"""A sink: messages in a table of a SQLite file, each of them once."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from headrace.changes import TableId
from headrace.errors import SinkError
from headrace.settings import Settings, option
from headrace.sinks.base import BatchId, LastBatch, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class SqliteSettings(Settings):
    """Where the messages go."""

    path: str = option("The SQLite file; made if it is not there.")


class SqliteMessages(Sink):
    """Appends the messages of a batch, and which batch it was, in one transaction."""

    name = "sqlite"
    settings: SqliteSettings
    takes: ClassVar[Literal["messages", "changes"]] = "messages"
    guarantee: ClassVar[Literal["exactly-once", "at-least-once"]] = "exactly-once"
    is_one_place = True

    def places(self, table: TableId | None = None, topic: str | None = None) -> frozenset[str]:
        return frozenset([f"sqlite {Path(self.settings.path).resolve()}"])

    def check(self) -> None:
        folder = Path(self.settings.path).parent
        if not folder.is_dir():
            raise SinkError(f"The folder '{folder}' does not exist.", remedy="Make it, or choose another 'path'.")

    def write(self, rows: DataFrame, batch: BatchId) -> None:
        # The driver gets all messages; a sink of large batches lets executors write (`rows.foreachPartition`).
        found = rows.orderBy("position").select("topic", "key", "value").collect()
        try:
            with closing(sqlite3.connect(self.settings.path, isolation_level=None)) as connection:
                self._append(connection, [tuple(row) for row in found], batch)
        except sqlite3.Error as failure:
            raise SinkError(
                f"Batch {batch.number} can't be written to '{self.settings.path}': {failure}.",
                remedy="Mend the cause; the batch is repeated.",
            ) from failure

    def _append(self, connection: sqlite3.Connection, messages: list[tuple[object, ...]], batch: BatchId) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("CREATE TABLE IF NOT EXISTS batches (owner TEXT, number INT, offsets TEXT)")
        connection.execute("CREATE TABLE IF NOT EXISTS messages (topic TEXT, key BLOB, value BLOB)")
        last = connection.execute("SELECT owner, number, offsets FROM batches").fetchone()
        if last is not None and last[0] != batch.owner:
            raise SinkError(
                f"The file '{self.settings.path}' belongs to the pipeline and checkpoint '{last[0]}', not to "
                f"'{batch.owner}'.",
                remedy="Choose another 'path'.",
            )
        if last is not None and LastBatch(last[1], last[2]).covers(batch, f"the file '{self.settings.path}'"):
            return
        connection.executemany("INSERT INTO messages VALUES (?, ?, ?)", messages)
        connection.execute("DELETE FROM batches")
        connection.execute("INSERT INTO batches VALUES (?, ?, ?)", (batch.owner, batch.number, batch.offsets))
        connection.execute("COMMIT")

"""Small stand-ins for a source, a format and sinks, so that the run loop is tested apart from real ones.

The source is a folder of files, one per commit (`0001.json`): a commit is a list of `[table, op, key]`. It writes no
state, so that tests decide what is there, and can be told to fail. Headrace finds all this by the entry points in the
folder beside this file, as it finds any package of a third party.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa

from headrace import registry
from headrace.changes import Column, LogicalType, TableId, TableSchema, arrow_schema
from headrace.errors import CaptureError, ConnectError, SinkError
from headrace.formats.base import Format, FormatSettings
from headrace.options import folder
from headrace.settings import Settings, option
from headrace.sinks.base import BatchId, Sink
from headrace.sinks.table_sink import rows_left_by
from headrace.sources.base import Limit, Slice, Source
from headrace.sources.offset import Offset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.apply import TableProfile


def commit_changes(folder: Path, number: int, changes: list[tuple[str, str, str]]) -> None:
    """Make a commit visible, the whole of it at once."""
    draft = folder / f"{number:04}.draft"
    draft.write_text(json.dumps(changes))
    draft.replace(folder / f"{number:04}.json")


class FolderSettings(Settings):
    """Where the commits lie, and how they are read."""

    hostname: str = option(
        "The folder.",
    )
    tables: tuple[str, ...] = option(
        "The tables.",
        default=(),
    )
    password: str = option(
        "A password.",
        default="",
    )
    schema_rows: bool = option(
        "Whether each commit begins with the structures of its tables.",
        default=False,
    )
    commits_per_batch: int = option(
        "How many commits a batch holds.",
        default=1,
        minimum=1,
    )


class FolderSource(Source):
    """Commits are files."""

    name = "folder"
    settings: FolderSettings

    @property
    def _folder(self) -> Path:
        return Path(self.settings.hostname)

    def _commits(self) -> list[str]:
        if not self._folder.is_dir():
            raise ConnectError(f"The server '{self._folder}' can't be reached.", remedy="Start it.")
        if self.settings.password == "wrong":
            raise ConnectError("The server refused the login with wrong.", remedy="Check user and password.")
        return sorted(file.stem for file in self._folder.glob("*.json"))

    def tables(self, known: Collection[str] = ()) -> Sequence[TableSchema]:
        self._commits()
        if "dbo.none" in self.settings.tables:
            raise CaptureError("Table 'dbo.none' is not set up for capture.", remedy="Enable it.")
        return [self._table()]

    def _table(self, path: str = "dbo.a") -> TableSchema:
        key = Column("id", 1, LogicalType("string"), nullable=False)
        return TableSchema(TableId("db", *path.split(".")), (key,), ("id",))

    def head(self) -> str:
        return max(self._commits(), default="0000")

    def advance(self, start: Offset, limit: Limit, now: dt.datetime) -> Offset:
        if (self._folder / "broken").exists():
            raise CaptureError("Table 'dbo.a' is no longer captured.", remedy="Enable it again.")
        after = [c for c in self._commits() if c > start.commit][: self.settings.commits_per_batch]
        if not after:
            return start if start.commit else Offset(source="folder", commit="0000", initial=False)
        return Offset(source="folder", commit=after[-1], commit_time=now, capture_time=now, initial=False)

    def plan(self, start: Offset, end: Offset) -> list[Slice]:
        return [Slice("commit", {"commit": c}) for c in self._commits() if start.commit < c <= end.commit]

    def read(self, slice: Slice) -> Iterator[pa.RecordBatch]:
        commit = slice.details["commit"]
        changes = json.loads((self._folder / f"{commit}.json").read_text())
        schemas = {path: self._table(path) for path in sorted({"dbo.a", *(path for path, *_ in changes)})}
        rows: list[dict[str, Any]] = [
            dict.fromkeys(arrow_schema().names)
            | {
                "op": "schema",
                "table": {"database": "db", "schema": schema.id.schema, "name": schema.id.name},
                "position": f"{commit}//",
                "schema_id": schema.fingerprint,
                "table_schema": schema.to_text(),
            }
            for schema in schemas.values()
            if self.settings.schema_rows
        ]
        for n, (table, op, key) in enumerate(changes):
            room, name = table.split(".")
            row: dict[str, Any] = dict.fromkeys(arrow_schema().names)
            row |= {
                "op": op,
                "table": {"database": "db", "schema": room, "name": name},
                "key": [("id", key)],
                "key_text": f'["{key}"]',
                "after": None if op == "d" else [("id", key)],
                "before": [("id", key)] if op in ("u", "d") else None,
                "schema_id": schemas[table].fingerprint,
                # What the Debezium format wants to know; this source poses as SQL Server.
                "source": [
                    ("connector", "sqlserver"),
                    ("change_lsn", f"0000:{commit}:0001"),
                    ("commit_lsn", f"0000:{commit}:0002"),
                    ("event_serial_no", "1"),
                ],
                "capture_time": dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
                "position": f"{commit}/{n:04}/",
                "event_time": dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
            }
            rows.append(row)
        yield pa.RecordBatch.from_pylist(rows, schema=arrow_schema())


class LinesSettings(FormatSettings):
    """Where the messages go."""

    prefix: str = option("Before every topic.", default="t")


class LinesFormat(Format):
    """A message is `op key`."""

    name = "lines"
    settings: LinesSettings
    encoded: ClassVar[list[str]] = []

    def encode(self, changes: DataFrame) -> DataFrame:
        self.encoded.append(self.settings.prefix)
        return changes.selectExpr(
            f"concat('{self.settings.prefix}.', table.name) as topic",
            "cast(null as int) as partition",
            "cast(key_text as binary) as key",
            "cast(concat(op, ' ', key['id']) as binary) as value",
            "cast(null as array<struct<key:string,value:binary>>) as headers",
            "position",
        )

    def decode(self, messages: DataFrame) -> DataFrame:
        nulls = {name: f"cast(null as {kind}) as {name}" for name, kind in _sql_types().items()}
        nulls["op"] = "split(cast(value as string), ' ')[0] as op"
        nulls["table"] = "named_struct('database', 'db', 'schema', 'dbo', 'name', topic) as table"
        nulls["key"] = "map('id', split(cast(value as string), ' ')[1]) as key"
        nulls["position"] = "lpad(cast(offset as string), 10, '0') as position"
        nulls["event_time"] = "timestamp as event_time"
        return messages.selectExpr(*nulls.values())


class FussySettings(FormatSettings):
    """What can't be read."""

    refuses: str = option("A text; messages that have it can't be read. Empty for none.", default="", may_be_empty=True)


class FussyCanal(Format):
    """Canal's messages, of which some can't be read until the user says otherwise."""

    name = "fussy_canal"
    settings: FussySettings

    def decode(self, messages: DataFrame) -> DataFrame:
        from headrace.formats.codec import KAFKA_COLUMNS, kafka_columns

        messages = kafka_columns(messages)
        canal = registry.find("format", "canal_json").of({})
        if not self.settings.refuses:
            return canal.decode(messages)
        refused = f"contains(coalesce(cast(value as string), ''), '{self.settings.refuses}')"
        columns = {
            "op": "'error'",
            "position": "concat(lpad(offset, 20, '0'), '/1/')",
            "capture_time": "timestamp",
            "message": f"struct({', '.join(KAFKA_COLUMNS)})",
            "error": "'It has what is refused.'",
        }
        made = (f"cast({columns.get(name, 'null')} as {kind}) as {name}" for name, kind in _sql_types().items())
        return canal.decode(messages.where(f"not {refused}")).unionByName(messages.where(refused).selectExpr(*made))


def _sql_types() -> dict[str, str]:
    from headrace.changes.row import spark_schema

    return {field.name: field.dataType.simpleString() for field in spark_schema().fields}


class ListSettings(Settings):
    """Where the file lies."""

    path: str = option("The folder.", kind=folder)
    fails: int = option("How often writing fails before it works.", default=0)


class _ListSink(Sink):
    """Writes each batch to a file, so that other processes see it; fails on request."""

    settings: ListSettings
    guarantee: ClassVar[Literal["exactly-once", "at-least-once"]] = "at-least-once"
    column: ClassVar[str]

    def __init__(self, settings: ListSettings) -> None:
        super().__init__(settings)
        self._failures = settings.fails

    def check(self) -> None:
        if "unwritable" in self.settings.path:
            raise SinkError(f"The folder '{self.settings.path}' can't be written.", remedy="Name another.")

    def write(self, rows: DataFrame, batch: BatchId) -> None:
        if self._failures:
            self._failures -= 1
            raise SinkError("The target belongs to another pipeline.", remedy="Take it over.")
        texts = [row[0] for row in rows.orderBy("position").selectExpr(self.column).collect()]
        location = Path(self.settings.path)
        location.mkdir(parents=True, exist_ok=True)
        with (location / "batches.jsonl").open("a") as file:
            file.write(json.dumps([batch.number, batch.owner, texts]) + "\n")


class ListMessages(_ListSink):
    """Takes messages."""

    name = "list_messages"
    takes: ClassVar[Literal["messages", "changes"]] = "messages"
    column = "concat(topic, ' ', cast(value as string))"


class ListChanges(_ListSink):
    """Takes change rows."""

    name = "list_changes"
    takes: ClassVar[Literal["messages", "changes"]] = "changes"
    column = "concat(op, ' ', key['id'])"


class KeySet(Sink):
    """Keeps the keys of a table in a file, and can be read back."""

    name = "key_set"
    settings: ListSettings
    guarantee: ClassVar[Literal["exactly-once", "at-least-once"]] = "exactly-once"
    takes: ClassVar[Literal["messages", "changes"]] = "changes"
    reads_back: ClassVar[Literal["no", "snapshot", "live"]] = "snapshot"
    jars: ClassVar[tuple[str, ...]] = ("org.example:key-set:1.0",)

    @property
    def file(self) -> Path:
        return Path(self.settings.path) / "keys.json"

    def keys(self) -> set[str]:
        return set(json.loads(self.file.read_text())) if self.file.exists() else set()

    def check(self) -> None:
        Path(self.settings.path).mkdir(parents=True, exist_ok=True)

    def write(self, rows: DataFrame, batch: BatchId) -> None:
        keys = self.keys()
        for op, key in rows.where("op in ('r', 'c', 'd')").orderBy("position").selectExpr("op", "key['id']").collect():
            keys = keys - {key} if op == "d" else keys | {key}
        self.file.write_text(json.dumps(sorted(keys)))

    def now(self, spark: SparkSession, schema: TableSchema) -> DataFrame | None:
        return spark.createDataFrame([(key,) for key in self.keys()], "id string") if self.file.exists() else None

    def expected(self, rows: DataFrame, table: TableProfile) -> DataFrame:
        return rows_left_by(rows, table).selectExpr("row.id")


def written(folder: Path) -> list[tuple[int, str, list[str]]]:
    """The batches that a sink took, in order."""
    file = folder / "batches.jsonl"
    return [tuple(json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []

"""A table of a lake that one sink writes, as in a run, and that somebody else can write to with Spark."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from tests.support.delta_target import DeltaTarget
from tests.support.iceberg_target import IcebergTarget

from headrace.changes import TableSchema
from headrace.sinks.base import BatchId
from headrace.sinks.lake.delta import table as delta_table
from headrace.sinks.lake.delta.log import Transaction
from headrace.sinks.lake.iceberg.table import Branch
from headrace.testing.change_history import Batch, table

T = table("t", id="int64", a="string")
WIDE = {
    "flag": "boolean",
    "tiny": "int8",
    "small": "int16",
    "number": "int32",
    "big": "int64",
    "huge": "uint64",
    "single": "float32",
    "double": "float64",
    "amount": "decimal(12,3)",
    "text": "string",
    "bytes": "bytes",
    "day": "date",
    "local": "timestamp(6)",
    "instant": "instant(6)",
    "zoned": "zoned_timestamp(3)",
    "clock": "time(3)",
}
"""A column of each type."""
CELLS: dict[str, list[str]] = {
    "flag": ["true", "false"], "tiny": ["-128", "127"], "small": ["-32768"], "number": ["2147483647"],
    "big": ["-9223372036854775808"], "huge": ["18446744073709551615"], "single": ["-0.0", "3.4028235e+38", "NaN"],
    "double": ["1.7976931348623157e+308", "5e-324", "-Infinity", "0.1"], "amount": ["-999999999.999", "0.000"],
    "text": ["", "O'Hara \"\\\n", "\U0001f600" * 40], "bytes": ["", "3q2+7w=="], "day": ["0001-01-01", "9999-12-31"],
    "local": ["0001-01-01 00:00:00.000001", "9999-12-31 23:59:59.999999"],
    "instant": ["0001-01-01T00:00:00.000000Z", "9999-12-31T23:59:59.999999Z"],
    "zoned": ["2018-07-13T12:23:45.120+11:00"], "clock": ["-10:23:45.120"],
}  # fmt: skip
"""Their extremes."""
_RETENTION_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"


class Mirror:
    """A target that one sink writes, as in a run."""

    target: DeltaTarget | IcebergTarget
    only_way: ClassVar[tuple[object, str]]
    """What a batch that goes by the index does not come to."""
    files_written: ClassVar[str]
    """Where a batch stands that has its files and no commit yet."""
    last_step: ClassVar[tuple[type, str]]
    """The last step of a batch that does not go by the index: its commit, or what publishes it."""
    refused_options: ClassVar[list[tuple[dict[str, Any], str]]]
    """With them a new table has no index, and why."""
    refused_change: ClassVar[tuple[str, str]]
    """What somebody else does to the table so that it has none any more, and why."""

    def __init__(self, target: DeltaTarget | IcebergTarget) -> None:
        self.target = target
        self.spark = target.spark
        self.kept = target.sink()
        self.number = 0

    def successor(self) -> Mirror:
        """The same target, written by a process that was started later."""
        return type(self)(self.target)

    def bring(self, batch: Batch) -> Mirror:
        self.kept.write(batch.rows(self.spark), BatchId("p", "checkpoint", self.number))
        self.number += 1
        return self

    def content(self) -> list[tuple[Any, ...]]:
        return self.target.content(T)

    def frame(self) -> list[str]:
        """The rows as texts, which tell the two zeros apart and find a NaN equal to another."""
        found = self.read().selectExpr("to_json(struct(*)) as v")
        return sorted(line["v"] for line in found.collect())

    def read(self) -> Any:
        """The rows of the table `t`."""
        return self.read_table(T)

    def read_table(self, schema: TableSchema) -> Any:
        raise NotImplementedError

    def sql(self, statement: str, schema: TableSchema = T) -> None:
        """A statement of somebody else's about a table."""
        raise NotImplementedError

    def compact(self, schema: TableSchema = T) -> None:
        raise NotImplementedError

    def forget(self, schema: TableSchema = T) -> None:
        """Remove what only versions before the newest need."""
        raise NotImplementedError

    def undo(self) -> None:
        """Take back the last commit."""
        raise NotImplementedError

    def version(self) -> int:
        raise NotImplementedError

    def files(self) -> int:
        """How many data files it has."""
        return self.read().selectExpr("input_file_name()").distinct().count()


class DeltaMirror(Mirror):
    only_way = delta_table, "replaced"
    files_written = "sink.delta.files_written"
    last_step = Transaction, "commit"
    refused_options: ClassVar[list[tuple[dict[str, Any], str]]] = [
        ({"readers": "trino,polars"}, "it has no deletion vectors ('readers')"),
    ]
    refused_change = (
        "alter table {} set tblproperties ('delta.enableChangeDataFeed' = 'true')",
        "it has a change data feed",
    )

    def read_table(self, schema: TableSchema) -> Any:
        return self.spark.read.format("delta").load(self.target.path(schema.id.name))

    def sql(self, statement: str, schema: TableSchema = T) -> None:
        self.spark.sql(statement.format(f"delta.`{self.target.path(schema.id.name)}`")).collect()

    def compact(self, schema: TableSchema = T) -> None:
        self.sql("optimize {}", schema)

    def forget(self, schema: TableSchema = T) -> None:
        self.spark.conf.set(_RETENTION_CHECK, "false")
        try:
            self.sql("vacuum {} retain 0 hours", schema)
        finally:
            self.spark.conf.unset(_RETENTION_CHECK)

    def undo(self) -> None:
        self.sql(f"restore table {{}} to version as of {self.version() - 1}")

    def version(self) -> int:
        return self.target.version()


class IcebergMirror(Mirror):
    only_way = Branch, "begin"
    files_written = "sink.iceberg.before_publish"
    last_step = Branch, "publish"
    refused_options: ClassVar[list[tuple[dict[str, Any], str]]] = [
        ({"merge_on_read": False}, "deleted rows are not marked in it"),
    ]
    refused_change = "alter table {} write ordered by a", "it has a sort order"

    def read_table(self, schema: TableSchema) -> Any:
        return self.target.table(schema).read()

    def sql(self, statement: str, schema: TableSchema = T) -> None:
        found = self.target.table(schema)
        found.session.sql(statement.format(found.sql_name)).collect()

    def compact(self, schema: TableSchema = T) -> None:
        for procedure in ("rewrite_data_files", "rewrite_position_delete_files"):
            table = f"table => 'dbo.{schema.id.name}'"
            self.sql(f"call lake.system.{procedure}({table}, options => map('rewrite-all', 'true'))", schema)

    def forget(self, schema: TableSchema = T) -> None:
        now = "older_than => timestamp '9999-01-01', retain_last => 1"
        self.sql(f"call lake.system.expire_snapshots(table => 'dbo.{schema.id.name}', {now})", schema)

    def undo(self) -> None:
        found = self.target.table()
        assert found.exists
        _, before = islice(found._table().descent(), 2)
        self.sql(f"call lake.system.rollback_to_snapshot('dbo.t', {before.snapshotId()})")

    def version(self) -> int:
        return len(self.target.snapshots())


def made(kind: str, spark: Any, folder: Path | str, **options: Any) -> Mirror:
    if kind == "delta":
        return DeltaMirror(DeltaTarget(spark, folder, **options))
    if kind == "iceberg 3":
        options = {"format_version": "3", **options}
    return IcebergMirror(IcebergTarget(spark, folder, **options))

"""One Delta table that mirrors a source table: where it lies, who owns it, how it gets its structure.

Everything here is metadata: it comes before the data of a batch and may be repeated without harm.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.apply import TableBatch
from headrace.changes.table import Column, TableId, TableSchema
from headrace.changes.typed import literal, quote
from headrace.changes.types import LogicalType
from headrace.errors import SchemaError, SinkError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delta.tables import DeltaTable
    from pyspark.sql import SparkSession

OWNER = "headrace.owner"
KEY = "headrace.key"
SOURCE_TABLE = "headrace.table"
PHASE = "headrace.phase"
INITIAL = "initial"
STREAMING = "streaming"

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN_IN_PATH = re.compile(r"[\w\-.]", re.ASCII)
_TEXT = LogicalType("string")


def folder_of(base: str, id: TableId) -> str:
    """The folder of a table's mirror: `<base>/<schema>/<table>`.

    Letters, digits, `_`, `-` and inner dots stay; every other byte becomes `~` and two hex digits, so that two names
    never share a folder and no file system or URL takes part of a name for something else.
    """
    parts = [escaped(part) for part in (id.schema, id.name) if part]
    return "/".join((base.rstrip("/"), *parts))


def escaped(name: str) -> str:
    """One name as one path segment."""
    out = []
    for place, letter in enumerate(name):
        # A leading dot would hide the folder, or leave it.
        plain = _PLAIN_IN_PATH.fullmatch(letter) and (place or letter != ".")
        out.append(letter if plain else "".join(f"~{byte:02x}" for byte in letter.encode()))
    return "".join(out)


@dataclass(frozen=True)
class TargetPlan:
    """What has to be done to a target before a batch's data, and how the data goes in. Nothing was done yet.

    Args:
        schema: the source's structure.
        exists: whether the table is there.
        add: columns to add.
        set: table properties to set; all of them where the table is to be created.
        append: the rows are new for certain, so that they need not be merged.
    """

    schema: TableSchema
    exists: bool
    append: bool
    set: Mapping[str, str]
    add: tuple[Column, ...] = ()


class MirrorTable:
    """The Delta table of one source table.

    Args:
        spark: the session that reads and writes it.
        path: its folder.
        position_column: the name of our column in it.
    """

    def __init__(self, spark: SparkSession, path: str, position_column: str) -> None:
        self._spark = spark
        self.path = path
        self.position_column = position_column

    @property
    def _name(self) -> str:
        return f"delta.{quote(self.path)}"

    def open(self) -> DeltaTable:
        """The table as Delta's Python API has it."""
        from delta.tables import DeltaTable

        return DeltaTable.forPath(self._spark, self.path)

    def plan(self, table: TableBatch, *, owner: str, takeover: bool) -> TargetPlan:
        """Compare the target with what the batch holds of its source. Changes nothing.

        Rows are appended while the table was created by this owner and holds rows of its first snapshot only, and
        always where a table without a key only gains rows. The phase is over before the first other row is written.

        Raises:
            SinkError: another pipeline or checkpoint, or another source table, has this target.
            SchemaError: the target can't carry the structure.
        """
        from delta.tables import DeltaTable

        schema = table.schema
        self._refuse_names(schema)
        identity = {OWNER: owner, KEY: key_names(schema), SOURCE_TABLE: schema.id.full_path}
        exists = DeltaTable.isDeltaTable(self._spark, self.path)
        add: tuple[Column, ...] = ()
        if exists:
            properties = {
                row["key"]: row["value"] for row in self._spark.sql(f"show tblproperties {self._name}").collect()
            }
            self._refuse_stranger(properties, schema, owner, takeover)
            add = self._missing_columns(schema)
        else:
            properties = {OWNER: owner, PHASE: INITIAL}
        change = {name: value for name, value in identity.items() if properties.get(name) != value}
        initial = properties.get(PHASE) == INITIAL and properties.get(OWNER) == owner
        if table.size and initial and (table.snapshot_ended or not table.initial):
            change[PHASE] = STREAMING
        elif not exists:
            change[PHASE] = INITIAL
        elif OWNER in change:
            change[PHASE] = STREAMING
        named = add if exists else (*schema.columns, Column(self.position_column, 0, _TEXT))
        if any(needs_mapping(c.name) for c in named) and properties.get("delta.columnMapping.mode", "none") == "none":
            change["delta.columnMapping.mode"] = "name"
        append = (initial and table.initial) if schema.key else table.inserts_only
        return TargetPlan(schema, exists, append, change if exists else {**identity, **change}, add)

    def prepare(self, plan: TargetPlan, *, properties: Mapping[str, str]) -> None:
        """Create or evolve the target as planned. Repeatable; no data is touched.

        Args:
            plan: what `plan` said.
            properties: further table properties of a new table.
        """
        if not plan.exists:
            self._create(plan.schema, {**properties, **plan.set})
            return
        if plan.set:
            self.set_properties(plan.set)
        if plan.add:
            columns = ", ".join(
                f"{quote(c.name)} {c.logical.spark_type}" + (f" comment {literal(c.comment)}" if c.comment else "")
                for c in plan.add
            )
            self._spark.sql(f"alter table {self._name} add columns ({columns})")

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Set table properties in one metadata commit."""
        pairs = ", ".join(f"{literal(name)} = {literal(value)}" for name, value in properties.items())
        self._spark.sql(f"alter table {self._name} set tblproperties ({pairs})")

    def _create(self, schema: TableSchema, properties: Mapping[str, str]) -> None:
        from delta.tables import DeltaTable

        table = DeltaTable.createIfNotExists(self._spark).location(self.path)
        for column in schema.columns:
            table = table.addColumn(column.name, column.logical.spark_type, comment=column.comment)
        table = table.addColumn(self.position_column, "string", comment="Headrace: position of the row's last change")
        if schema.comment:
            table = table.comment(schema.comment)
        for name, value in properties.items():
            table = table.property(name, value)
        table.execute()

    def _refuse_names(self, schema: TableSchema) -> None:
        seen: dict[str, str] = {self.position_column.lower(): self.position_column}
        for column in schema.columns:
            twin = seen.setdefault(column.name.lower(), column.name)
            if column.name == self.position_column:
                raise SchemaError(
                    f"Table {schema.id} has a column '{column.name}', which is Headrace's own in a mirror.",
                    remedy="Set the sink's option 'position_column' to another name.",
                )
            if twin != column.name:
                raise SchemaError(
                    f"Columns '{twin}' and '{column.name}' of table {schema.id} differ only in case; "
                    "Delta can't hold both.",
                    remedy="Leave one of them out of the capture.",
                )

    def _refuse_stranger(self, properties: Mapping[str, str], schema: TableSchema, owner: str, takeover: bool) -> None:
        known = properties.get(SOURCE_TABLE)
        if known is not None and known != schema.id.full_path:
            raise SinkError(
                f"The Delta table {self.path} mirrors {known}, not {schema.id.full_path}.",
                remedy="Give each source database a folder of its own (the sink's option 'path').",
            )
        key = properties.get(KEY, key_names(schema))
        if key != key_names(schema):
            raise SchemaError(
                f"The key of table {schema.id} is ({key_names(schema)}) now, but the Delta table {self.path} "
                f"was kept by ({key}).",
                remedy="Move the target away and take a new snapshot.",
            )
        current = properties.get(OWNER)
        if current != owner and not takeover:
            whose = f"to the pipeline and checkpoint '{current}'" if current else "to no Headrace pipeline"
            raise SinkError(
                f"The Delta table {self.path} belongs {whose}, not to '{owner}'.",
                remedy="Set the sink's option 'takeover' to true if it may be taken over, or choose another 'path'.",
            )

    def _missing_columns(self, schema: TableSchema) -> tuple[Column, ...]:
        have = {f.name: f.dataType.simpleString() for f in self._spark.read.format("delta").load(self.path).schema}
        folded = {name.lower(): name for name in have}
        add = []
        for column in schema.columns:
            found = folded.pop(column.name.lower(), None)
            if found is None:
                add.append(column)
            elif have[found] != _simple(column.logical.spark_type):
                raise SchemaError(
                    f"Column '{column.name}' of table {schema.id} is {column.logical.spark_type} now, but "
                    f"{have[found]} in the Delta table {self.path}.",
                    remedy="Change the target's column yourself, or move the target away and take a new snapshot.",
                )
        if folded.pop(self.position_column.lower(), None) is None:
            add.append(Column(self.position_column, 0, _TEXT))
        if folded:
            gone = ", ".join(f"'{name}'" for name in folded.values())
            raise SchemaError(
                f"Table {schema.id} has no column {gone} any more, but the Delta table {self.path} has.",
                remedy="Drop or rename the target's column yourself, or move the target away and take a new snapshot.",
            )
        return tuple(add)


def key_names(schema: TableSchema) -> str:
    """The key columns as they stand in the target's property."""
    return ", ".join(quote(name) for name in schema.key)


def needs_mapping(name: str) -> bool:
    """Whether Delta needs column mapping to carry this name."""
    return _PLAIN.fullmatch(name) is None


def _simple(spark_type: str) -> str:
    return spark_type.replace(" ", "")

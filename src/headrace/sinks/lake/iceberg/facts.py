"""The facts of an Iceberg table that our data files and commits depend on."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.sinks.lake.data_files import FIELD_ID, arrow_type, numbered
from headrace.sinks.lake.partitions import Partition, Partitioning, iceberg_value, of_iceberg
from headrace.sinks.lake.storage import Folder, Location, Storage

FORMAT = "format-version"
MERGE_MODE = "write.merge.mode"
ON_READ = "merge-on-read"
NOT_ON_READ = "deleted rows are not marked in it (write.merge.mode)"
OTHER_FORMAT = "it does not have the format 2 or 3"
ROW_ID, SEQUENCE = "_row_id", "_last_updated_sequence_number"
"""The columns that format 3 adds to rows which move to another file."""
_SPARK = {"long": "bigint", "timestamptz": "timestamp", "timestamp": "timestamp_ntz"}
"""Types that Spark has other names for."""
_SAME = frozenset(["boolean", "int", "float", "double", "date", "string", "binary"])
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")


@dataclass(frozen=True)
class TableFacts:
    """What a table is.

    Args:
        id: tells it from another one of the same name.
        format: the version of its format.
        fields: its columns, as Iceberg writes a structure as JSON.
        spec: how it is partitioned, as Iceberg writes it as JSON.
        specs: in how many ways it is partitioned, or was.
        ordered: whether its rows have an order within files.
        properties: its properties.
        data: the folder of its data files, as Iceberg names it.
        default_scheme: that of paths without one.
        storage: how Python reaches its folder; or why it doesn't, as the end of a sentence.
        equality_deletes: whether rows are deleted by their values.
    """

    id: str
    format: int
    fields: tuple[Mapping[str, Any], ...]
    spec: str
    specs: int
    ordered: bool
    properties: Mapping[str, str]
    data: str
    default_scheme: str
    storage: Storage | str
    equality_deletes: bool

    @classmethod
    def of(cls, schema: str, **given: Any) -> TableFacts:
        return cls(fields=tuple(json.loads(schema)["fields"]), **given)

    @property
    def columns(self) -> dict[str, str]:
        """The columns with their types as Spark's DDL has them; those that Spark has no type for under Iceberg's."""
        return {field["name"]: spark_type(field["type"]) for field in self.fields}

    @property
    def ids(self) -> dict[str, int]:
        return {field["name"]: int(field["id"]) for field in self.fields}

    @property
    def schema(self) -> pa.Schema:
        """The columns of a data file, whose numbers say which of the table's they are."""
        return pa.schema(
            [
                numbered(field["name"], arrow_type(kind), field["id"], required=field["required"])
                for field, kind in zip(self.fields, self.columns.values(), strict=True)
            ]
        )

    @property
    def lineage(self) -> pa.Schema:
        """The further columns of a data file with rows that were in another one before."""
        numbers = {ROW_ID: 2147483540, SEQUENCE: 2147483539} if self.format >= 3 else {}
        return pa.schema([numbered(name, pa.int64(), number) for name, number in numbers.items()])

    @property
    def partitioning(self) -> Partitioning | None:
        """By what it is partitioned; None for a transform that is not known here."""
        names = {number: name for name, number in self.ids.items()}
        fields = json.loads(self.spec)["fields"]
        parsed = [of_iceberg(names.get(field["source-id"], ""), field["transform"]) for field in fields]
        known = tuple(field for field in parsed if field is not None)
        return Partitioning(known) if len(known) == len(parsed) else None

    @property
    def required(self) -> list[str]:
        """The columns that are never null."""
        return [field["name"] for field in self.fields if field["required"]]

    @property
    def folder(self) -> Folder | None:
        """The folder of data files, where Python reaches it. It need not be there."""
        if isinstance(self.storage, str):
            return None
        return Folder(Location.of_name(self.data, self.default_scheme).path, self.storage)

    @property
    def odd_column(self) -> str:
        """The first column that has a type which pyarrow does not write for us, and which; empty for none."""
        return next((f"{name} is {kind}" for name, kind in self.columns.items() if arrow_type(kind) is None), "")

    @property
    def no_files(self) -> str:
        """Why files that pyarrow writes can't be the table's, as the end of a sentence; empty where they can."""
        odd = self.odd_column
        known = self.partitioning
        storage = self.storage
        parts = "something that is not known here" if known is None else known.odd_column(self.columns)
        reasons = {
            f"{storage}": isinstance(storage, str),
            "it has a sort order": self.ordered,
            "it is encrypted": "encryption.key-id" in self.properties,
            "its files are not Parquet": self.properties.get("write.format.default", "parquet").lower() != "parquet",
            f"its column {odd}": bool(odd),
            "its partitions became others": self.specs > 1,
            f"it has partitions by {parts}": bool(parts),
        }
        return next((reason for reason, is_so in reasons.items() if is_so), "")

    @property
    def no_index(self) -> str:
        """Why small batches can't go by an index of keys, as the end of a sentence; empty where they can."""
        reasons = {
            no_marks({**self.properties, FORMAT: str(self.format)}): True,
            self.no_files: True,
            "rows are deleted by their values in it": self.equality_deletes,
            "rows of before a column was added have a value of it": any("initial-default" in f for f in self.fields),
        }
        return next((reason for reason, is_so in reasons.items() if is_so and reason), "")


def partition_text(partitioning: Partitioning, spec: str, columns: Mapping[str, str], partition: Partition) -> str:
    """The values of a partition as Iceberg's JSON has them.

    Args:
        partitioning: the table's.
        spec: the same as Iceberg writes it as JSON.
        columns: those of the table, with Spark's types.
        partition: which one.
    """
    numbers = [str(field["field-id"]) for field in json.loads(spec)["fields"]]
    values = zip(partitioning.fields, partition.values, strict=True)
    shown = [iceberg_value(field, columns[field.column], value) for field, value in values]
    # As Iceberg itself writes it, so that one partition has one text.
    given = {number: value for number, value in zip(numbers, shown, strict=True) if value is not None}
    return json.dumps(given, ensure_ascii=False, separators=(",", ":"))


def number_of(field: pa.Field) -> int | None:
    """The number of a column of a Parquet file; None for none."""
    text = (field.metadata or {}).get(FIELD_ID.encode())
    return None if text is None else int(text)


def no_marks(properties: Mapping[str, str]) -> str:
    """Why rows of a table are not marked as deleted, as the end of a sentence; empty where they are."""
    if properties.get(FORMAT) not in ("2", "3"):
        return OTHER_FORMAT
    return "" if properties.get(MERGE_MODE) == ON_READ else NOT_ON_READ


def spark_type(kind: Any) -> str:
    """A type of Iceberg's as Spark's DDL has it; one that pyarrow does not write for us under Iceberg's own name."""
    if isinstance(kind, str):
        digits = _DECIMAL.fullmatch(kind)
        if digits:
            return f"decimal({digits[1]},{digits[2]})"
        if kind in _SPARK or kind in _SAME:
            return _SPARK.get(kind, kind)
    return f"Iceberg's {kind if isinstance(kind, str) else kind['type']}"

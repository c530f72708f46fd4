"""The option `schema`: schemas that the user gives, as a DDL string, `TableSchema`s, or their JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.errors import OptionError
from headrace.spark.local_rows import local_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

_LOGICAL = {
    "boolean": "boolean",
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "float": "float32",
    "double": "float64",
    "string": "string",
    "binary": "bytes",
    "date": "date",
    "timestamp_ntz": "timestamp(6)",
    "timestamp": "instant(6)",
}


@dataclass(frozen=True)
class GivenSchema:
    """What the option `schema` holds.

    Args:
        tables: schemas with their tables' names; empty where a DDL string is given.
        ddl: a Spark DDL string (`id int, amount decimal(10,2)`), which names no table: all messages are of one table.
        several: whether a list was given, so that images stay maps even if it has one table.
    """

    tables: tuple[TableSchema, ...] = ()
    ddl: str | None = None
    several: bool = False

    @property
    def single(self) -> bool:
        """Whether one table is decoded, to struct images: a DDL string, or a single schema."""
        return not self.several

    def only(self, keys: Sequence[str] = ()) -> TableSchema:
        """The one schema, with `keys` as its key where they are given. A DDL's table has no name.

        Asks the active Spark session to read a DDL.

        Raises:
            OptionError: several are given, the DDL can't be read, or it lacks a key column.
        """
        if self.several:
            raise OptionError("Option 'schema' is a list of schemas.", remedy="Give one of them.")
        table = self.tables[0] if self.ddl is None else table_of_ddl(self.ddl)
        if not keys:
            return table
        names = {column.name for column in table.columns}
        missing = [key for key in keys if key not in names]
        if missing:
            raise OptionError(
                f"Option 'keys' names '{missing[0]}', which option 'schema' does not have.",
                remedy="Name columns of the schema.",
            )
        return TableSchema(table.id, table.columns, tuple(keys))


def given_schema(given: Any) -> GivenSchema:
    """Read the option: a `TableSchema`, its JSON (text or mapping), a list of either, or a Spark DDL string."""
    if isinstance(given, GivenSchema):
        return given
    if isinstance(given, TableSchema):
        return GivenSchema((given,))
    if isinstance(given, Mapping):
        return GivenSchema((_from_json(given),))
    if isinstance(given, str):
        text = given.strip()
        if text.startswith(("{", "[")):
            try:
                return given_schema(json.loads(text))
            except json.JSONDecodeError as error:
                raise ValueError("it is neither a TableSchema, nor its JSON, nor a DDL string") from error
        if not text:
            raise ValueError("it is empty")
        return GivenSchema(ddl=text)
    if isinstance(given, (list, tuple)):
        tables = [given_schema(item) for item in given]
        if any(table.ddl for table in tables):
            raise ValueError("a list may hold TableSchemas or their JSON, but not a DDL string")
        return GivenSchema(tuple(schema for table in tables for schema in table.tables), several=True)
    raise ValueError("it is neither a TableSchema, nor its JSON, nor a DDL string")


def _from_json(data: Mapping[str, Any]) -> TableSchema:
    try:
        return TableSchema.from_json(data)
    except (KeyError, TypeError) as error:
        raise ValueError(f"its JSON lacks {error}") from error


def with_schema_rows(rows: DataFrame, tables: Sequence[TableSchema]) -> DataFrame:
    """Decoded change rows of a batch, with a `schema` row in front for each schema that the user gave.

    Table sinks then know them as if the messages had carried them. The rows must not be a stream.
    """
    lines = [("schema", (s.id.database, s.id.schema, s.id.name), "", s.fingerprint, s.to_text()) for s in tables]
    ddl = (
        "op string, table struct<database: string, schema: string, name: string>, position string, schema_id string, "
        "table_schema string"
    )
    given_rows = local_rows(rows.sparkSession, lines, ddl)
    return given_rows.unionByName(rows, allowMissingColumns=True).select(rows.columns)


def table_of_ddl(ddl: str) -> TableSchema:
    """The schema that a Spark DDL string describes, of a table without a name and a key.

    Raises:
        OptionError: Spark can't read it, or a type has no logical type.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        struct = StructType.fromDDL(ddl)
    except PySparkException as error:
        raise OptionError(
            f"Option 'schema' can't be '{ddl}': Spark can't read it as DDL.", remedy="Write: id int, name string."
        ) from error
    if not isinstance(struct, StructType):
        raise OptionError(f"Option 'schema' can't be '{ddl}': it has no columns.", remedy="Write: id int, name string.")
    return nameless_table(struct)


def nameless_table(image: StructType, key: Sequence[str] = ()) -> TableSchema:
    """The schema of structs of a Spark type, of a table without a name.

    Raises:
        OptionError: a type has no logical type.
    """
    columns = tuple(
        Column(field.name, n, logical_type(field.dataType, field.name), nullable=field.nullable)
        for n, field in enumerate(image.fields, 1)
    )
    return TableSchema(TableId("", "", ""), columns, tuple(key))


def logical_type(kind: DataType, name: str) -> LogicalType:
    """The logical type of a Spark type; `name` is its column, for the message.

    Raises:
        OptionError: it has none (arrays, structs, intervals).
    """
    text = kind.simpleString()
    if text.startswith("decimal("):
        return LogicalType.parse(text)
    if text not in _LOGICAL:
        raise OptionError(
            f"Column '{name}' can't be of type {text}.", remedy="Declare it as string, which keeps its text."
        )
    return LogicalType.parse(_LOGICAL[text])

"""The change row."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.changes.types import LogicalType

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


SNAPSHOT_ENDS = ("last", "last_in_data_collection")
"""What the change row's column `snapshot` has in the last row of a table's snapshot."""
_MESSAGE_DDL = (
    "struct<topic:string,partition:int,offset:bigint,timestamp:timestamp,key:binary,value:binary,"
    "headers:array<struct<key:string,value:binary>>>"
)
CHANGE_ROW_DDL = ",".join(
    (
        "op string",
        "table struct<database:string,schema:string,name:string>",
        "key map<string,string>",
        "key_text string",
        "before map<string,string>",
        "after map<string,string>",
        "changed array<string>",
        "before_absent array<string>",
        "after_absent array<string>",
        "position string",
        "event_time timestamp",
        "capture_time timestamp",
        "snapshot string",
        "transaction struct<id:string,total_order:bigint,data_collection_order:bigint>",
        "source map<string,string>",
        "schema_id string",
        "table_schema string",
        f"message {_MESSAGE_DDL}",
        "error string",
    )
)
"""The change row as a Spark DDL string, with images as maps (any table in one stream)."""
_TEXT_MAP = pa.map_(pa.string(), pa.string())
_INSTANT = pa.timestamp("us", tz="UTC")
_ARROW = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp_ntz": pa.timestamp("us"),
    "timestamp": _INSTANT,
}


class Operation(StrEnum):
    """The values of the change row's column `op`; the letters are Debezium's."""

    READ = "r"
    """A row that was there when the snapshot read it."""
    CREATE = "c"
    UPDATE = "u"
    DELETE = "d"
    TRUNCATE = "t"
    SCHEMA = "schema"
    """A table's schema; comes before the first row that follows it, and may be repeated."""
    BEGIN = "begin"
    END = "end"
    HEARTBEAT = "heartbeat"
    TOMBSTONE = "tombstone"
    """A key whose value was null on the wire."""
    MESSAGE = "message"
    """What a source says that is not a change: a message that a session wrote into the log, or a notification."""
    GAP = "gap"
    """Changes known to be lost; only with failOnDataLoss=false."""
    ERROR = "error"
    """A message that could not be read, kept whole in `message`; or a change of a database that could not."""


DATA_OPERATIONS = (Operation.READ, Operation.CREATE, Operation.UPDATE, Operation.DELETE, Operation.TRUNCATE)
"""The operations that change what a table holds."""


def arrow_schema() -> pa.Schema:
    """The change row as an Arrow schema, the form in which sources hand it to Spark."""
    return pa.schema(
        [
            ("op", pa.string()),
            ("table", pa.struct([("database", pa.string()), ("schema", pa.string()), ("name", pa.string())])),
            ("key", _TEXT_MAP),
            ("key_text", pa.string()),
            ("before", _TEXT_MAP),
            ("after", _TEXT_MAP),
            ("changed", pa.list_(pa.string())),
            ("before_absent", pa.list_(pa.string())),
            ("after_absent", pa.list_(pa.string())),
            ("position", pa.string()),
            ("event_time", _INSTANT),
            ("capture_time", _INSTANT),
            ("snapshot", pa.string()),
            (
                "transaction",
                pa.struct([("id", pa.string()), ("total_order", pa.int64()), ("data_collection_order", pa.int64())]),
            ),
            ("source", _TEXT_MAP),
            ("schema_id", pa.string()),
            ("table_schema", pa.string()),
            (
                "message",
                pa.struct(
                    [
                        ("topic", pa.string()),
                        ("partition", pa.int32()),
                        ("offset", pa.int64()),
                        ("timestamp", _INSTANT),
                        ("key", pa.binary()),
                        ("value", pa.binary()),
                        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
                    ]
                ),
            ),
            ("error", pa.string()),
        ]
    )


def arrow_type(logical: LogicalType) -> pa.DataType:
    """The Arrow type of a typed column, which is that of `LogicalType.spark_type`."""
    kind = logical.spark_type
    if kind.startswith("decimal("):
        precision, scale = kind.removeprefix("decimal(").removesuffix(")").split(",")
        return pa.decimal128(int(precision), int(scale))
    return _ARROW.get(kind, pa.string())


def spark_schema() -> StructType:
    """The change row as a Spark schema, for DataFrames made by hand; needs a running Spark session."""
    from pyspark.sql.types import StructType

    schema = StructType.fromDDL(CHANGE_ROW_DDL)
    assert isinstance(schema, StructType)
    return schema

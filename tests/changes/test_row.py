"""Rule: the change row is one schema, the same for Arrow and for Spark."""

import re

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from headrace.changes import CHANGE_ROW_DDL, Operation, arrow_schema

_COLUMN = re.compile(r"(\w+) ")


def test_arrow_and_spark_agree_on_the_change_row():
    schema = arrow_schema()
    fields = [pa.field(f.name, f.type) for f in schema]
    struct = from_arrow_schema(pa.schema(fields)).simpleString()
    assert struct == "struct<" + _COLUMN.sub(r"\1:", CHANGE_ROW_DDL) + ">"


def test_operations_are_what_stands_in_the_row():
    assert [str(op) for op in Operation] == [
        "r", "c", "u", "d", "t", "schema", "begin", "end", "heartbeat", "tombstone", "message", "gap", "error",
    ]  # fmt: skip

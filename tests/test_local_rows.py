"""Rows of this process as a part of Spark's plan."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

from headrace.spark.local_rows import local_rows


def test_values_of_every_shape_arrive_as_they_are(spark: Any) -> None:
    ddl = (
        "n int, d decimal(38,10), b binary, at timestamp, m map<string,array<string>>, "
        "s struct<a:int,b:map<string,string>>, l array<struct<x:string>>"
    )
    at = dt.datetime(2020, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC)
    full = (1, Decimal("1234567890123456789012345678.0000000001"), b"\xff", at, {"k": ["v", None], "e": None},
            {"a": 2, "b": {"x": None}}, [("y",), None])  # fmt: skip
    frame = local_rows(spark, [full, (None,) * 7], ddl)
    first, second = (row.asDict(recursive=True) for row in frame.collect())
    assert frame.schema.simpleString() == spark.createDataFrame([], ddl).schema.simpleString()
    assert first | {"at": None, "b": bytes(first["b"])} == {
        "n": 1, "d": full[1], "b": b"\xff", "at": None, "m": full[4], "s": full[5], "l": [{"x": "y"}, None],
    }  # fmt: skip
    assert first["at"].timestamp() == at.timestamp()
    assert set(second.values()) == {None}


def test_no_python_worker_is_asked(spark: Any) -> None:
    plan = local_rows(spark, [("a",)], "x string")._jdf.queryExecution().executedPlan().toString()
    assert plan.startswith("LocalTableScan")


def test_no_rows_have_their_columns(spark: Any) -> None:
    assert local_rows(spark, [], "x string, y array<int>").collect() == []

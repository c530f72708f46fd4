"""A list of schemas is held against values as one schema is, although images stay maps."""

from __future__ import annotations

import json
from typing import Any

import pytest
from codec_rows import change_rows

from headrace.changes import Column, LogicalType, TableId, TableSchema


def message_of(format: str, row: dict[str, Any]) -> Any:
    """One insert of a row."""
    return {
        "debezium_json": {"op": "c", "after": row, "source": {"table": "t"}},
        "maxwell_json": {"database": "d", "table": "t", "type": "insert", "ts": 1, "data": row},
        "ogg_json": {"table": "d.t", "op_type": "I", "op_ts": "2015-11-05 18:45:36.0", "after": row},
        "canal_json": {"database": "d", "table": "t", "type": "INSERT", "isDdl": False, "data": [row]},
    }[format]


def data_rows(format: str, messages: Any, **options: Any) -> list[dict[str, Any]]:
    return [row for row in change_rows(format, messages, **options) if row["op"] != "schema"]


@pytest.mark.parametrize("format", ["debezium_json", "maxwell_json", "ogg_json", "canal_json"])
@pytest.mark.parametrize(
    ("logical", "value", "text"),
    [
        ("date", "19675", None),
        ("date", "2024", None),
        ("date", "2024-02-30", "2024-02-30"),
        ("date", "-0044-03-15", "-0044-03-15"),
        ("date", "2024-02-29", "2024-02-29"),
        ("int32", "3000000000", None),
        ("int32", "x1", None),
        ("int32", "", None),
        ("uint64", "-1", None),
        ("uint64", "18446744073709551615", "18446744073709551615"),
        ("decimal(5,2)", "1.505", None),
        ("decimal(5,2)", "1.50", "1.50"),
        ("decimal(5,2)", "NaN", "NaN"),
        ("timestamp(6)", "2024-01-01 10:00:00+08:00", None),
        ("timestamp(6)", "2024-01-01 10:00:00.5", "2024-01-01 10:00:00.5"),
        ("boolean", "perhaps", None),
        ("boolean", "true", "true"),
        ("string", "anything", "anything"),
    ],
)
def test_a_value_that_its_column_cannot_hold_is_an_error_row(
    format: str, logical: str, value: str, text: str | None
) -> None:
    table = TableSchema(TableId("", "", "t"), (Column("c", 1, LogicalType.parse(logical)),))
    messages = [("s.t", 0, 0, None, None, json.dumps(message_of(format, {"c": value})).encode(), None)]
    modes = {"decimal_handling_mode": "string", "time_precision_mode": "isostring"} if "debez" in format else {}
    (row,) = data_rows(format, messages, schema=[table], **modes)
    assert (row["op"], row["after"]) == (("c", {"c": text}) if text is not None else ("error", None))
    assert text is not None or "'c'" in row["error"]


def test_debeziums_counts_become_days_and_wrapped_numbers_their_own() -> None:
    columns = (
        Column("d", 1, LogicalType.parse("date")),
        Column("u", 2, LogicalType.parse("uint64"), native_type="bigint unsigned"),
    )
    table = TableSchema(TableId("", "", "t"), columns)
    rows = [{"d": 19675, "u": -1}, {"d": 0, "u": 7}]
    messages = [
        ("s.t", 0, n, None, None, json.dumps(message_of("debezium_json", row)).encode(), None)
        for n, row in enumerate(rows)
    ]
    found = data_rows("debezium_json", messages, schema=[table], bigint_unsigned_handling_mode="long")
    assert [row["after"] for row in found] == [
        {"d": "2023-11-14", "u": "18446744073709551615"}, {"d": "1970-01-01", "u": "7"},
    ]  # fmt: skip

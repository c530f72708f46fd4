"""Values that columns of the user's schemas can't hold: one law for all formats.

One schema gives structs, which have no place for them; a list of schemas is held against values as one schema is,
although images stay maps.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from codec_rows import change_rows, changes_of_messages
from dts_records import character, encoded, record
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.smoke import examples

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.formats.given_values import UnfitValue

FORMATS = [
    "debezium_json", "maxwell_json", "ogg_json", "canal_json", "shareplex_json", "qlik_json", "dts_avro",
]  # fmt: skip
TEXTS = {"decimal_handling_mode": "string", "time_precision_mode": "isostring"}
"""Debezium's options by which values are texts."""


def message_of(format: str, row: dict[str, Any]) -> Any:
    """One insert of a row."""
    said = {"operation": "INSERT", "changeSequence": "1", "timestamp": "2015-11-05T18:45:36", "transactionId": "1"}
    return {
        "shareplex_json": {"meta": {"op": "ins", "table": "D.t", "time": "2015-11-05T18:45:36"}, "data": row},
        "qlik_json": {"data": row, "beforeData": None, "headers": said},
        "debezium_json": {"op": "c", "after": row, "source": {"table": "t"}},
        "maxwell_json": {"database": "d", "table": "t", "type": "insert", "ts": 1, "data": row},
        "ogg_json": {"table": "d.t", "op_type": "I", "op_ts": "2015-11-05 18:45:36.0", "after": row},
        "canal_json": {"database": "d", "table": "t", "type": "INSERT", "isDdl": False, "data": [row]},
    }[format]


def bytes_of(format: str, row: dict[str, Any]) -> bytes:
    """The value of a message with one insert of a row."""
    if format == "dts_avro":
        return encoded(record("INSERT", None, list(map(character, row.values())), fields=[(n, 253) for n in row]))
    return json.dumps(message_of(format, row)).encode()


def data_rows(format: str, messages: Any, **options: Any) -> list[dict[str, Any]]:
    return [row for row in change_rows(format, messages, **options) if row["op"] != "schema"]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("logical", "value", "text"),
    [
        ("date", "19675", None),
        ("date", "2024", None),
        ("date", "2024-02-30", "2024-02-30"),
        ("date", "-0044-03-15", "-0044-03-15"),
        ("date", "0044-03-15 BC", "0044-03-15 BC"),
        ("date", "garbage-00", None),
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
        ("timestamp(6)", "2024-01-01 10:00:00.1234567", None),
        ("timestamp(6)", "0000-00-00 00:00:00", "0000-00-00 00:00:00"),
        ("boolean", "perhaps", None),
        ("boolean", "true", "true"),
        ("string", "anything", "anything"),
    ],
)
def test_a_value_that_its_column_cannot_hold_is_an_error_row(
    format: str, logical: str, value: str, text: str | None
) -> None:
    table = TableSchema(TableId("", "", "t"), (Column("c", 1, LogicalType.parse(logical)),))
    messages = [("s.t", 0, 0, None, None, bytes_of(format, {"c": value}), None)]
    modes = TEXTS if "debez" in format else {}
    (row,) = data_rows(format, messages, schema=[table], **modes)
    assert (row["op"], row["after"]) == (("c", {"c": text}) if text is not None else ("error", None))
    assert text is not None or "Column 'c' can't hold" in row["error"]


NOWHERE = "Column 'c' has the value {}, for which Spark's {} has no place."


def only_row(format: str, value: str, logical: str, **options: Any) -> pa.RecordBatch:
    """What one message becomes with one schema, whose first column is the key."""
    columns = (Column("id", 1, LogicalType.parse("int32")), Column("c", 2, LogicalType.parse(logical)))
    table = TableSchema(TableId("", "", "t"), columns, options.pop("key", ("id",)))
    messages = [("s.t", 0, 0, None, None, bytes_of(format, {"id": "1", "c": value}), None)]
    modes = TEXTS if "debez" in format else {}
    found = changes_of_messages(format, messages, schema=table, **modes, **options)
    assert found.num_rows == 1
    return found


@pytest.mark.parametrize("format", FORMATS)
def test_a_value_that_structs_have_no_place_for_is_an_error_or_null_but_never_in_a_key(format: str) -> None:
    for logical, spark_type, value in (
        ("date", "date", "0000-00-00"),
        ("date", "date", "2024-02-30"),
        ("date", "date", "infinity"),
        ("timestamp(6)", "timestamp_ntz", "0000-00-00 00:00:00"),
        ("timestamp(6)", "timestamp_ntz", "-infinity"),
        ("decimal(5,2)", "decimal(5,2)", "NaN"),
    ):
        sentence = NOWHERE.format(value, spark_type)
        error = only_row(format, value, logical).column("error")[0].as_py()
        assert error.startswith(f"{sentence} Declare the column as string"), error
        assert "'unrepresentable'" in error
        lenient = only_row(format, value, logical, unrepresentable="null")
        assert lenient.column("op")[0].as_py() == "c"
        assert lenient.column("after")[0].as_py() == {"id": 1, "c": None}
        in_key = only_row(format, value, logical, unrepresentable="null", key=("id", "c")).column("error")[0].as_py()
        assert in_key.startswith(f"{sentence} NULL can't stand in a key: declare"), in_key
        text = only_row(format, value, "string").column("after")[0].as_py()
        assert text == {"id": 1, "c": value}


@pytest.mark.parametrize("format", FORMATS)
def test_null_stands_for_no_value_that_a_type_has_or_that_is_none(format: str) -> None:
    for logical, value in (
        ("date", "garbage-00"), ("date", "2024-02-28 10:00:00"), ("decimal(5,2)", "1.505"), ("int32", "x"),
        ("timestamp(6)", "2024-01-01 10:00:00.1234567"), ("boolean", "perhaps"),
    ):  # fmt: skip
        error = only_row(format, value, logical, unrepresentable="null").column("error")[0].as_py()
        assert error.startswith(f"Column 'c' can't hold {value} exactly"), error


MOMENTS = st.from_regex(
    r"-?[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?)?Z?( BC)?", fullmatch=True
)
ANYTHING = (
    MOMENTS
    | st.from_regex(r"-?[0-9]{1,22}([.][0-9]{0,12})?", fullmatch=True)
    | st.sampled_from(
        ["NaN", "infinity", "-Infinity", "inf", "0000-00-00", "2024-00-10", "2024-02-30", "", " ", "true"]
    )
    | st.text("0123456789-+.:eE TZ", max_size=20)
)
TYPES = ["date", "timestamp(6)", "instant(6)", "decimal(9,2)", "int32", "uint64", "float64", "boolean", "bytes"]


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=examples(40), deadline=None)
# An empty text behind which there is no byte.
@example(texts=["NaN", ""], logical="uint64", nulls=False)
@given(texts=st.lists(ANYTHING, min_size=1, max_size=15), logical=st.sampled_from(TYPES), nulls=st.booleans())
def test_no_text_becomes_null_without_a_word(format: str, texts: list[str], logical: str, nulls: bool) -> None:
    column = Column("c", 1, LogicalType.parse(logical))
    messages = [("s.t", 0, n, None, None, bytes_of(format, {"c": text}), None) for n, text in enumerate(texts)]
    modes = TEXTS if "debez" in format else {}
    option = "null" if nulls else "fail"
    table = TableSchema(TableId("", "", "t"), (column,))
    rows = changes_of_messages(format, messages, schema=table, unrepresentable=option, **modes)
    assert rows.num_rows == len(texts)
    offsets = [message["offset"] for message in rows.column("message").to_pylist()]
    has_value = rows.column("after").field(0).is_valid().to_pylist()
    for offset, op, error, there in zip(
        offsets, rows.column("op").to_pylist(), rows.column("error").to_pylist(), has_value, strict=True
    ):
        if op == "error":
            assert "'c'" in error
        else:
            assert there or (nulls and UnfitValue(0, column, texts[offset]).is_of_source), texts[offset]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("text", ["0044-03-15 BC", "-0043-03-15"])
def test_years_before_christ_are_days_of_structs(format: str, text: str) -> None:
    day = only_row(format, text, "date").column("after").field(1)
    assert day.cast(pa.int32()).to_pylist() == [-735_160]


@pytest.mark.parametrize("native", ["bigint unsigned", ""])
def test_debeziums_counts_become_days_and_wrapped_numbers_their_own(native: str) -> None:
    columns = (
        Column("d", 1, LogicalType.parse("date")),
        Column("u", 2, LogicalType.parse("uint64"), native_type=native),
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

"""DTS Avro: what each kind of record and value means, and what is refused."""

from __future__ import annotations

import datetime as dt
import random
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from dts_records import (
    DDL,
    NONE,
    NULL,
    character,
    date_time,
    decimal,
    decoded,
    encoded,
    floating,
    integer,
    record,
    rows_without_spark,
    timestamp,
    typed,
    zoned,
)
from pyspark.sql import SparkSession
from samples import samples_of

import headrace
from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.formats.dts.values import date_time as exactly
from headrace.spark.local_rows import local_rows

ONE = [integer(1)]
WHOLE = record("UPDATE", ONE, [integer(2)])


REFUSED = [
    (b"", "The value is not a DTS record."),
    (b"\xff" * 30, "The value is not a DTS record."),
    (encoded(WHOLE)[:-8], "The value is not a DTS record."),
    (b"\x00" * 47, "The record of a row names no table."),
    (record("INSERT", None, ONE, objectName=None), "The record of a row names no table."),
    (record("INSERT", None, ONE, fields=None), "The record of a row has no fields."),
    (record("INSERT", None, ONE, fields="c0"), "The record of a row has no fields."),
    (record("INSERT", ONE, None), "The record has no new image."),
    (record("UPDATE", ONE, "text"), "The record has no new image."),
    (record("DELETE", None, ONE), "The record of a delete has no old image."),
    (
        record("INSERT", None, ONE * 2, fields=[("c0", 3)]),
        "An image of the record does not have one value for each field.",
    ),
    (record("INSERT", None, ONE * 2, fields=[("c0", 3), ("c0", 3)]), "Two fields of the record have the same name."),
    (record("DDL"), "The DDL record has no statement."),
    (
        encoded(record("INSERT", None, ONE, objectName="db.tttt")).replace(b"db.tttt", b"db.\xff\xfe\xff\xff"),
        "A text of the record is not UTF-8.",
    ),
]


@pytest.mark.parametrize("schema", [None, "c0 int"])
def test_what_cannot_be_read_is_an_error_row_that_keeps_the_message(schema: str | None) -> None:
    values = [encoded(v) if isinstance(v, dict) else v for v, _ in REFUSED]
    rows = decoded(values, schema=schema)
    assert [row.error for row in rows] == [why for _, why in REFUSED]
    assert {row.op for row in rows} == {"error"}
    assert [bytes(row.message.value) for row in rows] == values


BAD_VALUES = [
    integer("1x"), integer(" 1"), integer(""), integer("1.0"), decimal("1,5"), decimal("1d"), decimal(""),
    character(b"\xff\xfe"), character(b"\x81", "gbk"), timestamp(1, 1_000_000), timestamp(2**62, 0), date_time(),
    date_time(2024, 1, 1, 0, 0, 0, 2_000_000_000), zoned("", 2024, 1, 1, 0, 0, 0),
    zoned("no zone", 2024, 1, 1, 0, 0, 0),
    typed("BinaryObject", "JSON", b"\xff"),
]  # fmt: skip


def test_a_value_that_is_not_what_its_branch_says_is_an_error_row() -> None:
    rows = decoded([record("INSERT", None, [integer(1), bad]) for bad in BAD_VALUES])
    sentence = "The value of column 'c1' does not match its type in the record."
    assert [row.error for row in rows] == [sentence] * len(BAD_VALUES)
    as_text = decoded([record("INSERT", None, [bad]) for bad in BAD_VALUES], schema="c0 string")
    assert [row.error for row in as_text] == [sentence.replace("c1", "c0")] * len(BAD_VALUES)


def test_kinds_of_records() -> None:
    values: list[Any] = [
        None,
        b"\x00" * 48,
        record("INIT", None, ONE),
        record("UPDATE", None, ONE, sourceTxid="99", bornTimestamp=0),
        record("DELETE", ONE, None, objectName=r"a\u002Eb.s.t\u002e1"),
        record("DDL", None, "create database d", objectName="d"),
        record("DDL", None, "/* now */ -- really\n TRUNCATE TABLE `d`.`a``b`;", objectName="d"),
        record("DDL", None, "truncate x.y", objectName="d.s.t"),
        record("DDL", None, "truncated", objectName=None),
        record("COMMAND", None, '{"drop":"c"}', objectName="d", source="MongoDB"),
        record("BEGIN", objectName=None, sourceTxid="7001"),
        record("COMMIT", objectName=None, sourceTxid="7001"),
        record("HEARTBEAT", objectName=None, sourceTimestamp=0, source="OTHER"),
        record("CHECKPOINT", objectName=None, sourceTxid="7001"),
        *(record(name, objectName=None) for name in ("ROLLBACK", "ABORT", "FILL", "FINISH", "CONTROL", "RDB", "NOOP")),
        record("COMMAND", objectName=None),
    ]
    for schema in (None, "c0 string"):
        rows = decoded(values, schema=schema)
        got = [(row.op, *(row.table or [None] * 3), (row.source or {}).get("ddl")) for row in rows]
        assert got == [
            ("tombstone", None, None, None, None),
            ("r", "db", None, "t", None),
            ("u", "db", None, "t", None),
            ("d", "a.b", "s", "t.1", None),
            ("schema", "d", None, None, "create database d"),
            ("t", "d", None, "a`b", "/* now */ -- really\n TRUNCATE TABLE `d`.`a``b`;"),
            ("t", "d", "s", "t", "truncate x.y"),
            ("schema", None, None, None, "truncated"),
            ("schema", "d", None, None, '{"drop":"c"}'),
            ("begin", None, None, None, None),
            ("end", None, None, None, None),
            ("heartbeat", None, None, None, None),
            ("heartbeat", None, None, None, None),
        ]
        assert [row.snapshot for row in rows[:3]] == [None, "true", None]
        assert (rows[2].transaction.id, rows[2].before, rows[1].transaction) == ("99", None, None)
        assert (rows[9].transaction.id, rows[11].event_time) == ("7001", None)
        assert rows[1].source == {
            "connector": "mysql", "version": "8.0.28", "id": "7", "sourcePosition": "72469@78",
            "safeSourcePosition": "72347@78", "bornTimestamp": "1700000001000",
        }  # fmt: skip
        assert "bornTimestamp" not in rows[2].source
        assert (rows[11].source["connector"], rows[12].source["operation"]) == ("", "CHECKPOINT")
        # The filler, seven operations, and a command without a text.
        assert sum(row.op is None for row in rows_without_spark(values, schema=schema)) == 9


ZONED = "zoned_timestamp(6)"
VALUES: list[tuple[str, int, Any, str | None, str]] = [
    # source, dataTypeNumber, value, canonical text, logical type
    ("MySQL", 1, integer(200), "200", "int16"),
    ("MySQL", 8, integer(18446744073709551615), "18446744073709551615", "uint64"),
    ("MySQL", 3, None, None, "int64"),
    ("MySQL", 3, NULL, None, "int64"),
    ("MySQL", 16, integer(5), "5", "uint64"),
    ("MySQL", 246, decimal("12.50"), "12.50", "decimal"),
    ("MySQL", 246, decimal("-" + "9" * 35 + "." + "1" * 30), "-" + "9" * 35 + "." + "1" * 30, "decimal"),
    ("PostgreSQL", 1700, decimal("NaN"), "NaN", "decimal"),
    ("Oracle", 2, decimal("~"), "~", "string"),
    ("MySQL", 4, floating(1.100000023841858), "1.1", "float32"),
    ("MySQL", 4, floating(1.1), "1.1", "float32"),
    ("MySQL", 5, floating(1.100000023841858), "1.100000023841858", "float64"),
    ("PostgreSQL", 701, floating(float("-inf")), "-Infinity", "float64"),
    ("PostgreSQL", 701, floating(float("nan")), "NaN", "float64"),
    ("MySQL", 17, timestamp(-1, 500_000), "1969-12-31T23:59:59.500000Z", "instant(6)"),
    ("MySQL", 17, timestamp(0, 0), "1970-01-01T00:00:00.000000Z", "instant(6)"),
    ("MySQL", 10, date_time(1582, 10, 4), "1582-10-04", "date"),
    ("MySQL", 10, date_time(0, 0, 0), "0000-00-00", "string"),
    ("MySQL", 10, date_time(2023, 2, 29), "2023-02-29", "string"),
    ("MySQL", 18, date_time(2024, 2, 29, 23, 59, 59, 1), "2024-02-29 23:59:59.000001", "timestamp(6)"),
    ("MySQL", 18, date_time(2024, 2, 29, 23, 59, 59, 0), "2024-02-29 23:59:59", "timestamp(6)"),
    ("MySQL", 18, date_time(0, 0, 0, 0, 0, 0), "0000-00-00 00:00:00", "string"),
    ("Oracle", 12, date_time(2024, 2, 29, 23, 59, 59, 1), "2024-02-29 23:59:59.000000001", "string"),
    ("DRDS", 12, date_time(2024, 2, 29, 1, 2, 3, 4000), "2024-02-29 01:02:03.000004000", "timestamp(9)"),
    ("MySQL", 19, date_time(None, None, None, -838, -59, -59, -5), "-838:59:59.000005", "time(6)"),
    ("MySQL", 19, date_time(None, None, None, 0, 0, 0), "00:00:00", "time(6)"),
    ("MySQL", 19, date_time(None, None, None, 0, 0, -1), "-00:00:01", "time(6)"),
    ("MySQL", 13, date_time(1999), "1999", "int32"),
    ("PostgreSQL", 1184, zoned("+08:00", 2024, 2, 29, 1, 2, 3, 5), "2024-02-29 01:02:03.000005+08:00", ZONED),
    ("PostgreSQL", 1184, zoned("Asia/Shanghai", 2024, 1, 1, 0, 0, 0), "2024-01-01 00:00:00Asia/Shanghai", ZONED),
    ("PostgreSQL", 1184, timestamp(1, 1), "1970-01-01T00:00:01.000001Z", "instant(6)"),
    ("PostgreSQL", 16, typed("TextObject", "BOOL", "t"), "true", "boolean"),
    ("PostgreSQL", 16, typed("TextObject", "XTYPE", "false"), "false", "boolean"),
    ("PostgreSQL", 3802, typed("BinaryObject", "XTYPE", b'{"a": 1.10}'), '{"a": 1.10}', "json"),
    ("PostgreSQL", 2950, typed("TextObject", "UUID", "u"), "u", "uuid"),
    ("PostgreSQL", 17, typed("BinaryObject", "BYTEA", b"\x00\xff"), "AP8=", "bytes"),
    ("MySQL", 245, typed("TextObject", "JSON", "[1.50]"), "[1.50]", "json"),
    ("MySQL", 247, typed("TextObject", "ENUM", "small"), "small", "string"),
    ("MySQL", 252, typed("BinaryObject", "blob", b"\x00\xff"), "AP8=", "bytes"),
    ("MySQL", 253, character(b"\x00\xff", "binary"), "AP8=", "bytes"),
    ("MySQL", 253, character(b"\x00\xff", ""), "AP8=", "bytes"),
    ("MySQL", 253, character(b"\x00\xff", "no such set"), "AP8=", "bytes"),
    ("MySQL", 253, character("日本😀"), "日本😀", "string"),
    ("MySQL", 255, typed("TextGeometry", "POINT", "POINT (1 1)"), "POINT (1 1)", "string"),
    ("MySQL", 255, typed("BinaryGeometry", "POINT", b"\x01"), "AQ==", "bytes"),
    ("Oracle", 23, typed("BinaryObject", "RAW", b"\x01"), "AQ==", "bytes"),
    ("Oracle", 96, typed("BinaryObject", "ROWID", b"AAAB"), "AAAB", "string"),
]  # fmt: skip


def test_all_times_at_once_are_spelled_as_one_by_one() -> None:
    rng = random.Random(16)
    some = [
        [
            rng.choice([None, *edges])
            for edges in (
                [0, 1, 1999, 2024, 9999, 10_000], [0, 2, 12, 13], [0, 1, 29, 31], [0, 23, 24, 99, 100, -1],
                [0, 59, 60, -1], [0, 59, 99], [0, 1, 999_999, 1_000_000, 999_999_999],
            )
        ]
        for _ in range(3000)
    ]  # fmt: skip
    for source, micro in (("MySQL", True), ("Oracle", False)):
        records = [record("INSERT", None, [date_time(*parts)], source=source) for parts in some]
        found = rows_without_spark(records)
        for parts, row in zip(some, [row for row in found if row.op in ("c", "error")], strict=True):
            text, _ = exactly(parts, micro)
            assert (None if row.op == "error" else row.after["c0"]) == text, parts


def test_values_and_types() -> None:
    records = [
        record("INSERT", None, [value], source=source, fields=[("v", number)], objectName=f"d.t{n}")
        for n, (source, number, value, _, _) in enumerate(VALUES)
    ]
    rows = rows_without_spark(records)
    structures = {row.message.offset: TableSchema.from_text(row.table_schema) for row in rows if row.table_schema}
    data = {row.message.offset: row for row in rows if not row.table_schema}
    got = [(data[n].error, data[n].after, str(structures[n].columns[0].logical)) for n in range(len(VALUES))]
    assert got == [(None, {"v": text}, logical) for _, _, _, text, logical in VALUES]
    assert all(data[n].schema_id == structures[n].fingerprint for n in data)


def test_absent_columns_keys_and_structures() -> None:
    fields = [("id", 3), ("part", 253), ("note", 253)]
    image = [integer(1), character("x"), NONE]
    primary = {"pk_uk_info": '{"uk_x":["note"],"PRIMARY":["part","id"]}', "id": "a tag", "metaVersion": "3"}
    records = [
        record("UPDATE", [integer(1), NONE, NONE], image, fields=fields, tags=primary),
        record("INSERT", None, image, fields=fields, tags={"pk_uk_info": '{"t_pkey":["id"]}'}),
        record("INSERT", None, image, fields=fields, tags={"pk_uk_info": '{"PRIMARY":["gone"]}'}),
        record("INSERT", None, image, fields=fields, tags={"pk_uk_info": "no json"}),
    ]
    rows = rows_without_spark(records, keys=["part"])
    data = sorted((row for row in rows if not row.table_schema), key=lambda row: row.position)
    assert (data[0].before, data[0].after) == ({"id": "1"}, {"id": "1", "part": "x"})
    assert [row.key_text for row in data] == ['["x","1"]', '["1"]', None, '["x"]']
    assert (data[0].source["id"], data[0].source["metaVersion"]) == ("7", "3")
    assert '"id":"a tag"' in data[0].source["tags"]
    structures = [TableSchema.from_text(row.table_schema) for row in rows if row.table_schema]
    assert {s.key for s in structures} == {("part", "id"), ("id",), (), ("part",)}
    assert {s.id for s in structures} == {TableId("db", "", "t")}
    first = min((row for row in rows), key=lambda row: row.position)
    assert first.op == "schema" and first.schema_id == data[0].schema_id
    given = rows_without_spark(records, schema=[structures[0]])
    assert {(row.op, row.schema_id) for row in given} == {
        ("u", structures[0].fingerprint),
        ("c", structures[0].fingerprint),
    }


# MySQL's name, and Python's for the same.
CHARSETS = {
    "utf8": "utf-8", "utf8mb3": "utf-8", "utf8mb4": "utf-8", "latin1": "cp1252", "ascii": "ascii", "gbk": "gbk",
    "gb2312": "gb2312", "gb18030": "gb18030", "big5": "big5", "sjis": "shift_jis", "cp932": "cp932", "ujis": "euc_jp",
    "eucjpms": "euc_jp", "euckr": "euc_kr", "tis620": "tis-620", "koi8r": "koi8-r", "koi8u": "koi8-u",
    "latin2": "iso8859-2", "latin5": "iso8859-9", "latin7": "iso8859-13", "greek": "iso8859-7", "hebrew": "iso8859-8",
    "cp1250": "cp1250", "cp1251": "cp1251", "cp1256": "cp1256", "cp1257": "cp1257", "cp850": "cp850", "cp852": "cp852",
    "cp866": "cp866", "keybcs2": "cp852", "macce": "mac-latin2", "macroman": "mac-roman", "utf16": "utf-16-be",
    "utf16le": "utf-16-le", "utf32": "utf-32-be", "ucs2": "utf-16-be", "dec8": "cp1252", "hp8": "cp1252",
    "swe7": "cp1252", "geostd8": "cp1252", "armscii8": "cp1252", "UTF-8": "utf-8", "ISO-8859-15": "iso8859-15",
    "GBK": "gbk", "EUC-TW": "ascii",
}  # fmt: skip
TEXTS = "plain, 杭州市 日本語 カナ 한국어 ภาษา Привіт Žluťoučký Škoda ğış Ελλάδα שלום سلام café – € ™ \ufffd 😀"


def test_every_character_set() -> None:
    texts = {}
    for name, codec in CHARSETS.items():
        kept = [c for c in TEXTS if _fits(c, codec)]
        texts[name] = "".join(kept)
    records = [record("INSERT", None, [character(text.encode(CHARSETS[name]), name)]) for name, text in texts.items()]
    for schema in (None, "c0 string"):
        rows = decoded(records, schema=schema)
        got = {name: (row.error, row.after["c0"]) for name, row in zip(texts, rows, strict=True)}
        assert got == {name: (None, text) for name, text in texts.items()}
    every_byte = bytes(range(256))
    row = decoded([record("INSERT", None, [character(every_byte, "latin1")])])[0]
    gaps = {0x81, 0x8D, 0x8F, 0x90, 0x9D}
    assert row.after["c0"] == "".join(chr(b) if b in gaps else bytes([b]).decode("cp1252") for b in every_byte)


def _fits(character: str, codec: str) -> bool:
    try:
        return character.encode(codec).decode(codec) == character
    except UnicodeError:
        return False


def test_both_writers_and_bytes_behind_a_record() -> None:
    new, old = encoded(WHOLE), encoded(WHOLE, born=False)
    ddl = record("DDL", None, "alter table é")
    values = [new, old, new + b"\x00\x01", old + b"\xff" * 20, new + b"\xff" * 20, encoded(ddl, born=False)]
    for schema in (None, "c0 int"):
        rows = decoded(values, schema=schema)
        assert [row.op for row in rows] == ["u"] * 5 + ["schema"]
        assert [row.source.get("bornTimestamp") for row in rows] == [
            "1700000001000", None, "1700000001000", None, "1700000001000", None,
        ]  # fmt: skip
        assert rows[5].source["ddl"] == "alter table é"


SHAPE = TableSchema(
    TableId("db", "", "t"),
    (
        Column("id", 1, LogicalType("int32"), nullable=False),
        Column("big", 2, LogicalType("uint64")),
        Column("amount", 3, LogicalType("decimal", 9, 2)),
        Column("ratio", 4, LogicalType("float64")),
        Column("name", 5, LogicalType("string")),
        Column("data", 6, LogicalType("bytes")),
        Column("day", 7, LogicalType("date")),
        Column("made", 8, LogicalType("timestamp", 6)),
        Column("at", 9, LogicalType("instant", 6)),
        Column("yes", 10, LogicalType("boolean")),
        Column("clock", 11, LogicalType("time", 6)),
        Column("fine", 12, LogicalType("timestamp", 9)),
    ),
    ("id",),
)
NUMBERS = [3, 8, 246, 5, 253, 252, 10, 18, 17, 1, 19, 12]
FIELDS = list(zip((c.name for c in SHAPE.columns), NUMBERS, strict=True))
ROW = [
    integer(1), integer(2**64 - 1), decimal("12.5"), floating(0.1), character("é😀"),
    typed("BinaryObject", "BLOB", b"\x00\xff"), date_time(1969, 12, 31), date_time(2024, 2, 29, 23, 59, 59, 999_999),
    timestamp(-1, 1), integer(1), date_time(None, None, None, -1, -2, -3), date_time(2024, 1, 1, 0, 0, 0, 7),
]  # fmt: skip
NO_ROW: list[Any] = [integer(2), *[None] * 11]


def _with(index: int, value: Any) -> list[Any]:
    return [*ROW[:index], value, *ROW[index + 1 :]]


def _struct_cases() -> list[dict[str, Any]]:
    """Records that the fast path reads, and records that it leaves."""
    backwards = list(reversed(FIELDS))
    cases = [
        record("INSERT", None, ROW, fields=FIELDS),
        record("UPDATE", ROW, NO_ROW, fields=FIELDS),
        record("UPDATE", None, NO_ROW, fields=FIELDS, sourceTxid="5"),
        record("DELETE", NO_ROW, None, fields=FIELDS, objectName="db.s.t"),
        record("INIT", None, NO_ROW, fields=FIELDS, source="PostgreSQL"),
        record("INSERT", None, list(reversed(ROW)), fields=backwards),
        record("INSERT", None, ROW[:3], fields=FIELDS[:3]),
        record("INSERT", None, [*ROW, integer(5)], fields=[*FIELDS, ("more", 3)]),
        record("UPDATE", [integer(1), *[NONE] * 11], _with(4, NONE), fields=FIELDS),
        record("INSERT", None, _with(4, NULL), fields=FIELDS),
    ]
    for index, value in (
        (0, decimal("1")), (0, character("17")), (1, decimal("5")), (2, integer(3)), (2, decimal("1.50000")),
        (2, decimal("1e2")), (3, decimal("0.25")), (3, integer(4)), (4, character("杭州".encode("gbk"), "gbk")),
        (4, character(b"\x80", "latin1")), (4, integer(5)), (4, typed("TextObject", "JSON", "{}")), (4, floating(0.5)),
        (4, typed("TextObject", "BOOL", "t")), (5, character(b"\xff", "binary")), (5, character("a text")),
        (5, typed("BinaryObject", "JSON", b"{}")), (6, date_time(0, 0, 0)), (6, date_time(2024, 2, 29, 0, 0, 0)),
        (7, date_time(2024, 2, 29)), (7, date_time(0, 0, 0, 0, 0, 0)), (8, zoned("+08:00", 2024, 1, 1, 0, 0, 0)),
        (9, typed("TextObject", "BOOL", "f")), (9, character("true")),
    ):  # fmt: skip
        cases.append(record("INSERT", None, _with(index, value), fields=FIELDS))
    # PostgreSQL's physical log counts nanoseconds.
    cases.append(record("INSERT", None, ROW, fields=FIELDS, sourcePosition="1<->2", source="PostgreSQL"))
    cases.append(record("INSERT", None, _with(7, date_time(2024, 1, 1, 0, 0, 0, 7000)), fields=FIELDS, source="Oracle"))
    cases += [record("INSERT", None, ROW, fields=FIELDS, tags={"id": "x"}), record("HEARTBEAT", objectName=None)]
    return cases


def test_struct_images_are_the_maps_typed() -> None:
    cases = _struct_cases()
    structs = {row.position: row for row in decoded(cases, schema=SHAPE, unrepresentable="null")}
    maps = decoded(cases, keys=["id"])
    assert [row.position for row in maps] == sorted(structs)
    names = [column.name for column in SHAPE.columns]
    compared = 0
    for row in maps:
        struct = structs[row.position]
        if struct.error:
            # A day with a clock, finer than microseconds, or without a zone: text can hold it, the type can't.
            assert re.fullmatch(r"Column 'made' can't hold .+ exactly: it is timestamp_ntz\.", struct.error)
            continue
        for name in ("op", "table", "key", "key_text", "event_time", "snapshot", "transaction", "source"):
            assert getattr(row, name) == getattr(struct, name), name
        for image in ("before", "after"):
            have, want = getattr(struct, image), getattr(row, image)
            assert (have is None) == (want is None)
            if have is not None:
                absent = [name for name in names if name not in want]
                assert (getattr(struct, f"{image}_absent") or []) == absent
                for column in SHAPE.columns:
                    expected = _typed(want.get(column.name), column.logical)
                    got = have[column.name]
                    assert (got.astimezone(dt.UTC) if column.name == "at" and got else got) == expected, column.name
                    compared += 1
    assert compared > 300


def _typed(text: str | None, logical: LogicalType) -> Any:
    import base64

    if text is None or (logical.kind in ("date", "timestamp") and text.startswith("0000") and logical.digits < 7):
        return None
    if logical.kind == "bytes":
        try:
            return bytearray(base64.b64decode(text, validate=True))
        except ValueError:
            return bytearray(text.encode())
    if logical.kind == "date":
        return dt.date.fromisoformat(text[:10])
    if logical.kind == "boolean":
        return text in ("1", "true")
    if logical.kind == "instant":
        return dt.datetime.fromisoformat(text).astimezone(dt.UTC)
    if logical.kind in ("decimal", "uint64"):
        return Decimal(text)
    if logical.kind == "timestamp" and logical.digits == 6:
        return dt.datetime.fromisoformat(text[:26])
    return {"int32": int, "float64": float}.get(logical.kind, str)(text)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("int", integer(2**31)), ("int", decimal("1.5")), ("int", character("x")), ("decimal(4,1)", decimal("1.25")),
        ("decimal(4,1)", decimal("12345")), ("date", date_time(2024, 2, 30)),
        ("date", date_time(2024, 2, 28, 10, 0, 0)),
        ("timestamp_ntz", date_time(2024, 1, 1, 25, 0, 0)), ("boolean", character("maybe")), ("double", character("x")),
        ("timestamp", date_time(2024, 1, 1, 0, 0, 0)), ("timestamp_ntz", timestamp(1, 1)), ("date", integer(3)),
    ],
)  # fmt: skip
def test_a_value_that_its_column_cannot_hold_is_an_error_row(schema: str, value: Any) -> None:
    rows = decoded([record("INSERT", None, [value]), record("UPDATE", [value], [None])], schema=f"c0 {schema}")
    assert len(rows) == 2
    for row in rows:
        assert re.match(
            rf"Column 'c0' (can't hold .+ exactly: it is|.* for which Spark's) {re.escape(schema)}[., ]", row.error
        )


def test_a_stream_is_read_as_a_batch_is(spark: SparkSession, tmp_path: Path) -> None:
    samples = samples_of("dts_avro")
    local_rows(spark, [s.message for s in samples], DDL).coalesce(1).write.parquet(str(tmp_path / "in"))
    batch = {
        row.position: row
        for row in headrace.decode(spark.read.parquet(str(tmp_path / "in")), format="dts_avro").collect()
    }
    stream = headrace.decode(spark.readStream.schema(DDL).parquet(str(tmp_path / "in")), format="dts_avro")
    query = stream.writeStream.format("memory").queryName("dts_stream").outputMode("append").start()
    query.processAllAvailable()
    query.stop()
    streamed = {row.position: row for row in spark.table("dts_stream").collect()}
    assert streamed == batch
    assert sum(row.op == "schema" and row.table_schema is not None for row in streamed.values()) > 10


def test_broken_bytes_neither_raise_nor_vanish() -> None:
    """Also with lengths of gigabytes among the bytes."""
    rng = random.Random(20_241_121)
    whole = [s.message[5] for s in samples_of("dts_avro") if s.message[5]] + [encoded(case) for case in _struct_cases()]
    values = [_broken(rng.choice(whole), rng) for _ in range(3_000)]
    for options in ({}, {"schema": SHAPE}):
        rows = rows_without_spark(values, **options)
        assert {row.message.offset for row in rows} == set(range(len(values)))


_HUGE = (b"\xfe\xff\xff\xff\x0f", b"\xfe\xff\xff\xff\x0e", b"\xf0\xff\xff\xff\xff\x7f", b"\x80\x80\x80\x80\x08")


def _broken(value: bytes, rng: random.Random) -> bytes:
    data = bytearray(value if rng.random() < 0.95 else rng.randbytes(rng.randrange(300)))
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(4)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at:at] = rng.choice(_HUGE)
        elif kind == 2:
            del data[at:]
        else:
            data[at : at + 1] = rng.randbytes(2)
    return bytes(data)

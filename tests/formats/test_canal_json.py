"""Canal's JSON: what each kind of message means, what is refused, and that encoding and decoding are each other's
inverse."""

from __future__ import annotations

import datetime as dt
import json
import random
from typing import Any

import pytest
from codec_rows import as_kafka, change_batch, changes_of_messages, events_of, sent
from column_values import EVERY_TYPE, changes_of, comparable, of_kafka, random_changes, typed_texts
from pyspark.sql import DataFrame, SparkSession
from samples import samples_of

import headrace
from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.errors import OptionError
from headrace.formats.canal.types import MysqlType, mysql_type_of
from headrace.formats.codec import KAFKA_COLUMNS
from headrace.formats.convert import format_named
from headrace.spark.local_rows import local_rows

DDL = ", ".join(f"{name} {kind}" for name, kind in KAFKA_COLUMNS.items())
SCHEMA = "id bigint, name string, weight decimal(9,2)"


def kafka(values: list[Any]) -> list[tuple[Any, ...]]:
    texts = [v if isinstance(v, bytes) or v is None else (v if isinstance(v, str) else json.dumps(v)) for v in values]
    return [("t", 0, n, None, None, t.encode() if isinstance(t, str) else t, None) for n, t in enumerate(texts)]


def in_spark(spark: SparkSession, values: list[Any]) -> DataFrame:
    return local_rows(spark, kafka(values), DDL).coalesce(1)


def decoded(values: list[Any], **options: Any) -> list[Any]:
    return [row for row in events_of("canal_json", kafka(values), **options) if not row.table_schema]


def message(kind: str, data: Any, old: Any = None, **fields: Any) -> dict[str, Any]:
    return {"data": data, "database": "d", "table": "t", "type": kind, "old": old, "es": 1000, "id": 1, **fields}


HALF_A_PAIR = "The value has one half of a surrogate pair, which is not a character. Let its writer drop it."
REFUSED = [
    (b"\xff\xfe{}", "The value is not UTF-8."),
    (b"", "The value is not a JSON object of the Canal form."),
    ("[]", "The value is not a JSON object of the Canal form."),
    ("null", "The value is not a JSON object of the Canal form."),
    ('{"data":{"id":"1"},"type":"INSERT"}', "The value is not a JSON object of the Canal form."),
    ('{"data":[1],"type":"INSERT"}', "The value is not a JSON object of the Canal form."),
    ('{"data":[{"id":"1"}],"type":"INSERT"} x', "Unexpected data after the JSON object."),
    (
        '{"data":[{"id":"1"}],"type":"INSERT"}{"data":[{"id":"2"}],"type":"INSERT"}',
        "Unexpected data after the JSON object.",
    ),
    ('{"data":[{"id":"\x01"}],"type":"INSERT"}', "The value is not a JSON object of the Canal form."),
    ('{"data":[{"id":"\\ud800"}],"type":"INSERT"}', HALF_A_PAIR),
    ('{"data":[{"id":NaN}],"type":"INSERT"}', "The value is not a JSON object of the Canal form."),
    ('{"data":[{"id":"1"}]}', "The message has no type."),
    (message("MERGE", [{"id": "1"}]), "Unknown type MERGE."),
    (message("INSERT", None), "The message has neither data nor old."),
    (message("UPDATE", None, [{"id": "1"}]), "The update has no data."),
    (message("INSERT", [{"id": "1"}, None]), "A row of the message is null."),
    (message("UPDATE", [{"id": "1"}], [{}, {}]), "The message has 1 rows in data and 2 in old."),
]


@pytest.mark.parametrize("schema", [None, SCHEMA])
def test_what_cannot_be_read_is_an_error_row_that_keeps_the_message(schema: str | None) -> None:
    rows = decoded([value for value, _ in REFUSED], schema=schema)
    assert [row.error for row in rows] == [why for _, why in REFUSED]
    assert {row.op for row in rows} == {"error"}
    for row, (value, _) in zip(rows, REFUSED, strict=True):
        text = value if isinstance(value, (bytes, str)) else json.dumps(value)
        assert bytes(row.message.value) == (text.encode() if isinstance(text, str) else text)


def test_kinds_of_messages() -> None:
    truncate = {"isDdl": True, "sql": "/* by hand */ -- now\n truncate `t`", "database": "d", "table": "t"}
    values = [
        message("QUERY", None, isDdl=False, sql="update t set a = 1"),
        message("GTID", None),
        message("XACOMMIT", None),
        message("XAROLLBACK", None),
        message("INSERT", []),
        message("MHEARTBEAT", None),
        {**truncate, "type": "QUERY"},
        {**truncate, "type": "ALTER", "sql": "alter table t add truncate_at date"},
        {"type": "DINDEX", "sql": "drop index i on t", "table": "t"},
        message("insert", [{"id": "1"}], es="no time"),
        message("DELETE", None, [{"id": "1"}]),
        message("INSERT", None, [{"id": "1"}]),
        message("UPDATE", [{"id": "1"}], None),
        message("UPDATE", [{"id": "1"}, {"id": "2", "a": None}], [{"id": "0"}, {"b": "x"}]),
    ]
    rows = decoded(values)
    got = [(row.op, row.before, row.after, row.changed, row.error) for row in rows]
    assert got == [
        ("heartbeat", None, None, None, None),
        ("t", None, None, None, None),
        ("schema", None, None, None, None),
        ("schema", None, None, None, None),
        ("c", None, {"id": "1"}, None, None),
        ("d", {"id": "1"}, None, None, None),
        ("c", None, {"id": "1"}, None, None),
        ("u", None, {"id": "1"}, None, None),
        ("u", {"id": "0"}, {"id": "1"}, ["id"], None),
        ("u", {"id": "2", "a": None, "b": "x"}, {"id": "2", "a": None}, ["b"], None),
    ]
    assert rows[1].source["ddl"] == truncate["sql"]
    assert (rows[3].source["type"], rows[3].source["ddl"]) == ("DINDEX", "drop index i on t")
    assert (rows[4].event_time, rows[4].source["es"]) == (None, "no time")
    assert [row.position[-9:] for row in rows[-2:]] == ["000000000", "000000001"]


def test_old_rows_of_dts_before_2022() -> None:
    values = [
        message("UPDATE", [{"id": "1", "name": "old"}], [{"id": "1", "name": "new"}], pkNames=["id"]),
        message("DELETE", None, [{"id": "2", "name": "gone"}]),
        message("INSERT", [{"id": "3", "name": "come"}]),
        message("UPDATE", [{"id": "1", "name": "old"}], None),
    ]
    for schema in (None, SCHEMA):
        rows = decoded(values, dts_legacy_old=True, schema=schema)
        images = [
            tuple(image and {k: str(v) for k, v in _items(image) if v is not None} for image in (row.before, row.after))
            for row in rows[:3]
        ]
        assert images == [
            ({"id": "1", "name": "old"}, {"id": "1", "name": "new"}),
            ({"id": "2", "name": "gone"}, None),
            (None, {"id": "3", "name": "come"}),
        ]
        assert rows[3].error == "The update has no new row in old."
    assert _items(rows[0].key) == [("id", "1")]


def _items(image: Any) -> list[tuple[str, Any]]:
    return list((image if isinstance(image, dict) else image.asDict()).items())


def test_of_a_name_that_an_object_repeats_the_last_counts() -> None:
    old = '{"id":"0","id":"9","x":"1","x":"3"}'
    value = f'{{"data":[{{"id":"1","id":"2"}}],"old":[{old}],"type":"UPDATE","pkNames":["id","id"]}}'
    for schema, before in ((None, {"id": "9", "x": "3"}), ("id string, x string", {"id": "9", "x": "3"})):
        row = decoded([value], schema=schema)[0]
        assert (dict(_items(row.before)), row.key, sorted(row.changed)) == (before, {"id": "2"}, ["id", "x"])
        assert row.after["id"] == "2"


MYSQL = [
    # type, text on the wire, canonical text, logical type, typed value
    ("tinyint(3) unsigned", "255", "255", "int16", 255),
    ("SMALLINT UNSIGNED", "65535", "65535", "int32", 65535),
    ("mediumint(8) unsigned zerofill", "16777215", "16777215", "int32", 16777215),
    ("int(10) unsigned", "4294967295", "4294967295", "int64", 4294967295),
    ("bigint(20) unsigned", "18446744073709551615", "18446744073709551615", "uint64", 18446744073709551615),
    ("decimal(65,30)", "-1." + "0" * 29 + "1", "-1." + "0" * 29 + "1", "decimal(65,30)", "-1." + "0" * 29 + "1"),
    ("enum('a','it''s','x,y)')", "3", "x,y)", "string", "x,y)"),
    ("enum('a','b')", "0", "", "string", ""),
    ("enum('a','b')", "b", "b", "string", "b"),
    ("set('a','b,','c')", "5", "a,c", "string", "a,c"),
    ("set('a','b')", "0", "", "string", ""),
    ("bit(64)", "18446744073709551615", "18446744073709551615", "uint64", 18446744073709551615),
    ("year(4)", "2024", "2024", "int16", 2024),
    ("time(3)", "-838:59:59.000", "-838:59:59.000", "time(3)", "-838:59:59.000"),
    ("date", "0000-00-00", "0000-00-00", "date", None),
    ("datetime(6)", "0000-00-00 00:00:00.000000", "0000-00-00 00:00:00.000000", "timestamp(6)", None),
    ("timestamp", "2024-03-01 00:30:00.5", "2024-02-29T16:30:00.5Z", "instant(6)", None),
    ("json", '{"a": 1.10}', '{"a": 1.10}', "json", '{"a": 1.10}'),
    ("varbinary(4)", "Þ\u00ad¾ï", "3q2+7w==", "bytes", b"\xde\xad\xbe\xef"),
    ("char(3) binary", "a\u0000\u00ff", "YQD/", "bytes", b"a\x00\xff"),
    ("point", "\u0001", "AQ==", "bytes", b"\x01"),
    ("text", "Ā\u2028", "Ā\u2028", "string", "Ā\u2028"),
    ("float(7,4)", "1.0E10", "1.0E10", "float32", 1e10),
    ("bool", "2", "true", "boolean", True),
]


def test_values_are_what_their_mysql_types_say(spark: SparkSession) -> None:
    names = [f"c{n}" for n in range(len(MYSQL))]
    value = message(
        "INSERT",
        [dict(zip(names, (line[1] for line in MYSQL), strict=True))],
        mysqlType=dict(zip(names, (line[0] for line in MYSQL), strict=True)),
        pkNames=["c0"],
    )
    rows = headrace.decode(in_spark(spark, [value]), format="canal_json", time_zone="Asia/Shanghai")
    schema, row = sorted(rows.collect(), key=lambda r: r.position)
    assert dict(zip(names, (line[2] for line in MYSQL), strict=True)) == row.after
    structure = TableSchema.from_text(schema.table_schema)
    assert (structure.key, structure.id) == (("c0",), TableId("d", "", "t"))
    assert [str(column.logical) for column in structure.columns] == [line[3] for line in MYSQL]
    typed = headrace.typed(rows, structure, unrepresentable="null").collect()[-1].after
    maps = [typed[name] for name in names]
    options = {"schema": structure, "unrepresentable": "null"}
    structs = headrace.decode(in_spark(spark, [value]), format="canal_json", time_zone="Asia/Shanghai", **options)
    for got in (maps, list(structs.collect()[0].after)):
        for have, line in zip(got, MYSQL, strict=True):
            if line[0] == "timestamp":
                assert have.astimezone(dt.UTC) == dt.datetime(2024, 2, 29, 16, 30, 0, 500_000, dt.UTC)
            else:
                assert have == line[4], line


def test_labels_are_those_of_the_message_where_a_ddl_says_none() -> None:
    types = {"e": "enum('a','b')", "s": "set('x','y')", "long": "blob"}
    value = message("INSERT", [{"e": "2", "s": "3", "long": "\u00ff" * 100}], mysqlType=types)
    row = decoded([value], schema="e string, s string, long binary")[0]
    assert (row.after.e, row.after.s, bytes(row.after.long)) == ("b", "x,y", b"\xff" * 100)
    maps = decoded([value])[0]
    assert "\n" not in maps.after["long"]


def test_values_without_types_of_their_own() -> None:
    exact = (
        '{"data":[{"a":12.50,"b":123456789012345678901234567890.123456789,"c":{"x":1.10},"d":true}],"type":"INSERT"}'
    )
    bad = message("INSERT", [{"id": "1", "name": "Ā"}], mysqlType={"id": "int", "name": "blob"})
    by_number = message("INSERT", [{"id": "1", "b": "\u00ff"}], sqlType={"id": 4, "b": 2004})
    rows = decoded([exact, bad, by_number])
    assert rows[0].after == {
        "a": "12.50",
        "b": "123456789012345678901234567890.123456789",
        "c": '{"x":1.10}',
        "d": "true",
    }
    assert rows[1].error == "A column of bytes holds a character that is not a byte."
    assert rows[2].after == {"id": "1", "b": "/w=="}
    structs = decoded([exact], schema="a decimal(12,3), b string, c string, d boolean, e int")
    assert structs[0].after.asDict() | {"a": str(structs[0].after.a)} == {
        "a": "12.500",
        "b": "123456789012345678901234567890.123456789",
        "c": '{"x":1.10}',
        "d": True,
        "e": None,
    }
    assert structs[0].after_absent == ["e"]
    base64 = decoded([message("INSERT", [{"b": "/w=="}])], schema="b binary", bytes="base64")
    assert bytes(base64[0].after.b) == b"\xff"


@pytest.mark.parametrize("typed", [{}, {"schema": "b binary"}], ids=["by mysqlType", "by schema"])
@pytest.mark.parametrize("text", ["/w=", "ÿ", "/w==\n", "a b=", "/w-_"])
def test_a_text_that_is_not_base64_is_refused_where_bytes_come_as_base64(text, typed):
    rows = decoded([message("INSERT", [{"b": text}], mysqlType={"b": "blob"})], bytes="base64", **typed)
    assert [row.error for row in rows] == [
        "Column 'b' holds a text that is not base64. If its bytes come as characters, set bytes: characters."
    ]


STRUCTS = [
    (message("INSERT", [{"id": "1", "name": None, "weight": "1"}]), None, None),
    (message("INSERT", [{"id": "1"}]), ["name", "weight"], None),
    (message("UPDATE", [{"id": "1", "name": None, "weight": "1"}], [{"name": None}]), None, ["name"]),
    (message("UPDATE", [{"id": "1", "name": None, "weight": "1"}], [{"weight": "2"}]), None, ["weight"]),
    (message("UPDATE", [{"id": "1", "weight": "1"}], [{"name": None}]), ["name"], ["name"]),
    (message("UPDATE", [{"id": "1", "weight": "1"}, {"id": "2"}], [{}, {"id": "3"}]), ["name"], []),
    (message("DELETE", [{"id": "1", "name": "x", "weight": "1.50"}], pkNames=["id"]), None, None),
]


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_struct_images_are_the_maps_typed(separators: tuple[str, str]) -> None:
    values = [json.dumps(value, separators=separators) for value, _, _ in STRUCTS]
    values += [
        sample.message[5].decode() for sample in samples_of("canal_json") if not sample.options and sample.message[5]
    ]
    schema = TableSchema(
        TableId("", "", ""),
        (
            Column("id", 1, LogicalType("int64")),
            Column("name", 2, LogicalType("string")),
            Column("weight", 3, LogicalType("decimal", 9, 2)),
        ),
    )
    structs = {row.position: row for row in decoded(values, schema=schema)}
    for n, (_, absent, changed) in enumerate(STRUCTS):
        row = structs[f"{n:020}/1/000000000"]
        assert (row.after_absent if row.op != "d" else row.before_absent, row.changed) == (absent, changed)
    maps = decoded(values)
    assert [row.position for row in maps] == sorted(structs)
    names = ["id", "name", "weight"]
    for row in maps:
        struct = structs[row.position]
        assert (row.op, row.error, row.event_time, row.source) == (
            struct.op, struct.error, struct.event_time, struct.source,
        )  # fmt: skip
        for image in ("before", "after"):
            have, want = getattr(struct, image), getattr(row, image)
            assert (have is None) == (want is None)
            if have is not None:
                absent = getattr(struct, f"{image}_absent") or []
                assert absent == [name for name in names if name not in want]
                texts = [None if v is None else str(v) for v in have]
                assert texts == [_text(name, want.get(name)) for name in names]


def _text(name: str, text: str | None) -> str | None:
    from decimal import Decimal

    return str(Decimal(text).quantize(Decimal("0.01"))) if text is not None and name == "weight" else text


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        ("v int", "1.5"), ("v tinyint", "128"), ("v decimal(4,1)", "1.25"), ("v decimal(4,1)", "12345"),
        ("v date", "2024-02-30"), ("v date", "2024-02-28 10:00:00"), ("v timestamp_ntz", "2024-01-01 00:00:00.1234567"),
        ("v boolean", "maybe"), ("v binary", "Ā"), ("v double", "x"),
    ],
)  # fmt: skip
def test_a_value_that_its_column_cannot_hold_is_an_error_row(schema: str, data: str) -> None:
    many = [message("INSERT", [{"v": data}]), message("UPDATE", [{"v": None}], [{"v": data}])]
    many.append(message("INSERT", [{"v": None}, {"v": data}]))
    rows = decoded(many, schema=schema)
    kind = schema.removeprefix("v ")
    sentence = f"Column 'v' can't hold {data} exactly: it is {kind}."
    if data == "2024-02-30":
        sentence = f"Column 'v' has the value {data}, for which Spark's date has no place."
    assert all(row.error.startswith(sentence) for row in rows)
    assert len(rows) == 3


@pytest.mark.parametrize("flavour", ["native", "dts"])
def test_decode_of_encode_is_identity(flavour: str, rng: random.Random) -> None:
    # What the format has no place for: a column that an old image lacks, and in the native flavour READ.
    ops = "cud" if flavour == "native" else "rcud"
    data = random_changes(rng, ops=ops, absent_before=False)
    messages = sent("canal_json", change_batch(data), [EVERY_TYPE], flavour=flavour, time_zone="UTC")
    rows = events_of("canal_json", as_kafka(messages), time_zone="UTC")
    schemas = [TableSchema.from_text(row.table_schema) for row in rows if row.table_schema]
    lost = {"uuid": "string", "xml": "string", "interval": "string", "nested": "json", "zoned_timestamp(9)": "string"}
    expected = [(c.name, lost.get(str(c.logical), str(c.logical))) for c in EVERY_TYPE.columns]
    assert [(c.name, str(c.logical)) for c in schemas[0].columns] == expected
    assert schemas[0].key == EVERY_TYPE.key
    got = [row for row in rows if not row.table_schema]
    assert [row.error for row in got if row.op == "error"] == []
    for row, want in zip(got, data, strict=True):
        if flavour == "dts" and want["op"] == "u":
            want = want | {"changed": list(want["before"])}
        assert comparable(row.asDict(recursive=True)) == comparable(want)


def test_decoding_to_structs_gives_what_was_encoded_typed(spark: SparkSession) -> None:
    data, frame = changes_of(spark, random.Random(5), ops="cud", absent_before=False)
    sent = headrace.encode(frame, format="canal_json")
    rows = headrace.decode(of_kafka(sent), format="canal_json", schema=EVERY_TYPE)
    assert rows.where("op = 'error'").select("error").collect() == []
    found = typed_texts(rows)
    assert len(found) == len(data)
    assert found == typed_texts(headrace.typed(frame, EVERY_TYPE))


def test_struct_images_are_encoded_as_maps_are(rng: random.Random) -> None:
    data = random_changes(rng, ops="rcud", absent_before=False)
    options = {"message_key": "primary_key", "flavour": "dts"}
    maps = sent("canal_json", change_batch(data), [EVERY_TYPE], **options)
    structs = changes_of_messages("canal_json", as_kafka(maps), schema=EVERY_TYPE)
    again = sent("canal_json", structs, [EVERY_TYPE], **options)
    assert len(again) == len(data)
    for ours, theirs in zip(again, maps, strict=True):
        assert json.loads(ours["value"]) == json.loads(theirs["value"])
        assert (ours["key"], ours["topic"]) == (theirs["key"], theirs["topic"])


def test_native_messages_come_back_byte_for_byte() -> None:
    cases = [s for s in samples_of("canal_json") if s.message[5] and not s.data.get("expect_error")]
    values = [sample.message[5].decode() for sample in cases]
    for flavour in ("native", "dts"):
        changes = changes_of_messages("canal_json", kafka(values))
        rows = changes.filter(changes.column("op").is_valid())
        structures = [TableSchema.from_text(text) for text in set(rows.column("table_schema").drop_null().to_pylist())]
        messages = sent("canal_json", rows, structures, flavour=flavour)
        back = {int(m["position"][:20]): m["value"].decode() for m in messages}
        same = {sample.case for n, sample in enumerate(cases) if back.get(n) == values[n]}
        assert {"native_insert", "native_delete", "varbinary_iso_8859_1", "unicode_escapes", "odd_identifiers"} <= same
        if flavour == "native":
            assert {"native_update_partial_old", "pk_change", "ddl_create", "ddl_erase", "ddl_rename"} <= same
            assert all(json.loads(value)["type"] != "INIT" for value in back.values())
        else:
            assert {"dts_init", "dts_ddl_minimal", "dts_ddl_truncate"} <= same


def test_truncates_and_structures_of_other_sources() -> None:
    rows = [
        {"op": op, "table": {"database": "d", "schema": "", "name": name}, "source": ddl and {"ddl": ddl}}
        for op, name, ddl in (
            ("t", "a`b", None),
            ("schema", "x", "create unique index i on x (a)"),
            ("schema", "x", "grant all on x to y"),
        )
    ]
    messages = [json.loads(m["value"]) for m in sent("canal_json", change_batch(rows))]
    assert [(m["type"], m["isDdl"], m["sql"]) for m in messages] == [
        ("TRUNCATE", True, "TRUNCATE TABLE `a``b`"),
        ("CINDEX", True, "create unique index i on x (a)"),
        ("QUERY", True, "grant all on x to y"),
    ]


def test_streaming(spark: SparkSession, tmp_path: Any) -> None:
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    samples = [sample.message[5].decode() for sample in samples_of("canal_json") if sample.message[5]]
    in_spark(spark, samples).write.parquet(str(source))
    stream = spark.readStream.schema(DDL).parquet(str(source))
    rows = headrace.decode(stream, format="canal_json")
    query = (
        rows.writeStream.format("memory").queryName("canal_stream").option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    streamed = sorted((r.position, r.op) for r in spark.table("canal_stream").collect() if not r.table_schema)
    assert streamed == sorted((r.position, r.op) for r in decoded(samples))
    assert spark.table("canal_stream").where("table_schema is not null").count() > 0
    with pytest.raises(OptionError, match="needs the option 'schema' to encode a streaming DataFrame"):
        headrace.encode(rows, format="canal_json")


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("enum('a','b')", ("a", "b")),
        ("ENUM( 'a' , 'b' )", ("a", "b")),
        ("set('it''s','\\\\','a\\'b','')", ("it's", "\\", "a'b", "")),
        ("enum('a'", ()),
        ("enum", ()),
        ("enum(a)", ()),
    ],
)
def test_labels(text: str, labels: tuple[str, ...]) -> None:
    assert MysqlType.parse(text).labels == labels


@pytest.mark.parametrize(
    ("logical", "native", "written", "number"),
    [
        ("int32", "int", "int", 4), ("timestamp(3)", "datetime", "datetime(3)", 93), ("boolean", "bit", "boolean", -6),
        ("string", "nvarchar", "longtext", 2005), ("uint64", "", "bigint unsigned", 3),
        ("int64", "int unsigned", "int unsigned", -5),
        ("string", "enum('a')", "enum('a')", 4), ("bytes", "varbinary(3)", "varbinary(3)", 2004),
        ("decimal(12,2)", "numeric", "decimal(12,2)", 3), ("date", "date", "date", 91),
    ],
)  # fmt: skip
def test_types_that_are_written(logical: str, native: str, written: str, number: int) -> None:
    found = mysql_type_of(Column("c", 1, LogicalType.parse(logical), native_type=native))
    assert (found.text, found.sql_type) == (written, number)


@pytest.mark.parametrize("options", [{"time_zone": "Mars/Olympus"}, {"flavour": "flink"}, {"dts_legacy": True}])
def test_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        format_named("canal_json", options)

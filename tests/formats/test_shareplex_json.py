"""SharePlex JSON: what each message means, with and without a structure, and back."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import drawn_rows
import pyarrow as pa
import pytest
from codec_rows import arrow_format, as_kafka, change_batch, changes_of_messages, rows_of, sent
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.row import CHANGE_ROW_DDL, spark_schema
from headrace.changes.texts import key_text
from headrace.errors import OptionError
from headrace.formats import codec
from headrace.formats.codec import KAFKA_COLUMNS
from headrace.formats.convert import decode, encode
from headrace.spark.local_rows import local_rows

KAFKA = ", ".join(f"{name} {kind}" for name, kind in KAFKA_COLUMNS.items())
DDL = "ID int, V string, N decimal(9,2), D date, T timestamp_ntz, B binary, F double"


def message(op: str | None, data: Any = None, key: Any = None, **meta: Any) -> str:
    said = {"op": op, "table": "O.T", **meta}
    parts = {"meta": {k: v for k, v in said.items() if v is not None}, "data": data, "key": key}
    return json.dumps({k: v for k, v in parts.items() if v is not None}, separators=(",", ":"), ensure_ascii=False)


def kafka(values: list[Any], keys: Mapping[int, str] | None = None) -> list[tuple[Any, ...]]:
    return [
        ("t", 0, n, None, (keys or {}).get(n, "").encode() or None, v.encode() if isinstance(v, str) else v, None)
        for n, v in enumerate(values)
    ]


def decoded(values: list[Any], kafka_keys: Mapping[int, str] | None = None, **options: Any) -> dict[int, Any]:
    """The rows by offset; what is no event is left out."""
    found = [row for row in rows_of("shareplex_json", kafka(values, kafka_keys), **options) if row.op is not None]
    offsets = [row.message.offset for row in found]
    assert len(set(offsets)) == len(offsets)
    return dict(zip(offsets, found, strict=True))


# What a message gives without a structure: op, before, after, changed; or the beginning of its error.
MEANINGS: list[tuple[Any, Any]] = [
    (message("ins", {"ID": "1", "V": None}), ("c", None, {"ID": "1", "V": None}, None)),
    ('{"meta":{"op":"INSERT"},"data":{"ID":12.50,"V":[1.10,{"x":2e3}]}}',
     ("c", None, {"ID": "12.50", "V": '[1.10,{"x":2e3}]'}, None)),
    (message("upd", {"V": None}, {"ID": "1", "V": "a"}), ("u", {"ID": "1", "V": "a"}, {"ID": "1", "V": None}, ["V"])),
    (message("Update", {"V": "b"}, {"ID": "1"}), ("u", {"ID": "1"}, {"ID": "1", "V": "b"}, ["V"])),
    (message("upd", {"V": "b"}), ("u", None, {"V": "b"}, None)),
    (message("upd", {"V": "b"}, {}), ("u", None, {"V": "b"}, None)),
    (message("upd", {}, {"ID": "1"}), ("u", {"ID": "1"}, {"ID": "1"}, None)),
    (message("del", {}, {"ID": "1"}), ("d", {"ID": "1"}, None, None)),
    (message("del", {"ID": "1", "V": None}), ("d", {"ID": "1", "V": None}, None, None)),
    (message("TRUNCATE"), ("t", None, None, None)),
    (message("ddl", {"ddl": " truncate table O.T"}), ("t", None, None, None)),
    (message("drop_column", {"V": None}), ("schema", None, None, None)),
    (message("COMMIT"), ("end", None, None, None)),
    ('{"meta":{"op":"ins"},"data":{"a":"1","a":"2","b":"3"}}', ("c", None, {"a": "2", "b": "3"}, None)),
    (None, ("tombstone", None, None, None)),
    (message("ins"), "An insert has no data"),
    (message("upd"), "An update has neither"),
    (message("del"), "A deleted or old row has neither"),
    (message("merge", {"ID": "1"}), "Unknown operation: merge"),
    (message(None, {"ID": "1"}), "The message has no meta.op"),
    (message("ins", {"ID": "1"}, time="16-JUN-17"), "The time can't be read"),
    (message("ins", {"ID": "1"}, table="a.b.c.d"), "The table can't be read"),
    (message("ins", {"ID": "1"}, table='"a".'), "The table can't be read"),
    (message("ins", {"ID": "1"}) + message("ins", {"ID": "2"}), "Unexpected data after"),
    (message("ins", {"ID": "1"}) + "x", "Unexpected data after"),
    (message("ins", {"ID": "1"}) + "}", "Unexpected data after"),
    ("[" + message("ins", {"ID": "1"}) + "]", "The value is not a JSON object"),
    ('{"meta":{"op":"ins"},"data":5}', "The value is not a JSON object"),
    ("", "The value is not a JSON object"),
    ("null", "The value is not a JSON object"),
    (b"\xff\xfe", "The value is not UTF-8"),
]  # fmt: skip


def test_each_message_means_what_the_table_says() -> None:
    found = decoded([value for value, _ in MEANINGS])
    wrong = {}
    for n, (value, wanted) in enumerate(MEANINGS):
        row = found[n]
        if isinstance(wanted, str):
            if row.op != "error" or not row.error.startswith(wanted) or row.message.value is None:
                wrong[value] = (row.op, row.error)
        elif (row.op, row.before, row.after, row.changed) != wanted or row.error:
            wrong[value] = (row.op, row.before, row.after, row.changed, row.error)
    assert wrong == {}


def test_meta_is_read_in_all_its_forms() -> None:
    values = [
        message("ins", {"A": "1"}, time="2017-06-16T14:24:34", idx="2/11", scn="99999999999999999999", trans="7.0.4"),
        message("ins", {"A": "1"}, time="2017-06-16T14:24:34.123456Z", seq=3, size="4", userid=84, rowid="AAA"),
        message("ins", {"A": "1"}, time="2017-06-17 00:24:34+10:00", posttime="2020-01-01T00:00:00"),
        message("ins", {"A": "1"}, table='"a.b"."c""d"'),
        message("ins", {"A": "1"}, table="P.O.T"),
        message("ins", {"A": "1"}, table="T", time=""),
    ]
    found = decoded(values)
    instant = dt.datetime(2017, 6, 16, 14, 24, 34, tzinfo=dt.UTC)
    assert found[0].event_time == found[2].event_time == instant
    assert found[1].event_time == instant + dt.timedelta(microseconds=123456)
    assert found[3].event_time is None and found[5].event_time is None
    assert tuple(found[0].transaction)[:2] == ("7.0.4", 2)
    assert found[0].source == {"connector": "oracle", "scn": "99999999999999999999", "size": "11"}
    assert found[1].source == {"connector": "oracle", "size": "4", "userid": "84", "rowid": "AAA"}
    assert found[1].transaction.total_order == 3
    assert found[2].source["posttime"] == "2020-01-01T00:00:00"
    assert tuple(found[3].table) == (None, "a.b", 'c"d')
    assert tuple(found[4].table) == ("P", "O", "T")
    assert tuple(found[5].table) == (None, None, "T")


def test_a_dropped_column_and_a_statement_are_schema_rows() -> None:
    values = [message("DROP COLUMN", {"V": None, "W": None}), message("ddl", {"ddl": "alter table t"})]
    for options in ({}, {"schema": DDL}):
        found = decoded(values, **options)
        assert found[0].source == {"connector": "oracle", "ddl_kind": "drop_column", "columns": '["V","W"]'}
        assert (found[1].op, found[1].source["ddl"]) == ("schema", "alter table t")


# With a structure: before, after, before_absent, after_absent, changed. Columns that are not named are null.
TYPED: list[tuple[str, Any]] = [
    (message("ins", {"ID": "1", "V": None, "N": "1.10", "D": "1900-02-28T00:00:00", "T": "2017-06-16T14:24:34.5",
                     "B": "00FF", "F": "1E-7"}),
     (None, {"ID": 1, "N": "1.10", "D": dt.date(1900, 2, 28), "T": dt.datetime(2017, 6, 16, 14, 24, 34, 500000),
             "B": b"\x00\xff", "F": 1e-7}, None, None, None)),
    (message("ins", {"ID": 1, "N": 2.50, "F": 0.1}),
     (None, {"ID": 1, "N": "2.50", "F": 0.1}, None, ["V", "D", "T", "B"], None)),
    (message("ins", {"ID": "1", "X": None}), (None, {"ID": 1}, None, ["V", "N", "D", "T", "B", "F"], None)),
    (message("upd", {"V": "b"}, {"ID": "1", "V": "a", "N": None, "D": None, "T": None, "B": None, "F": None}),
     ({"ID": 1, "V": "a"}, {"ID": 1, "V": "b"}, None, None, ["V"])),
    (message("upd", {"N": None}, {"ID": "1", "V": "a", "N": "3", "D": None, "T": None, "B": None, "F": None}),
     ({"ID": 1, "V": "a", "N": "3.00"}, {"ID": 1, "V": "a"}, None, None, ["N"])),
    (message("upd", {"V": '"N":null'}, {"ID": "1"}),
     ({"ID": 1}, {"ID": 1, "V": '"N":null'}, ["V", "N", "D", "T", "B", "F"], ["N", "D", "T", "B", "F"], ["V"])),
    (message("upd", {"V": '},"key":{'}, {"ID": "1", "V": None}),
     ({"ID": 1}, {"ID": 1, "V": '},"key":{'}, ["N", "D", "T", "B", "F"], ["N", "D", "T", "B", "F"], ["V"])),
    (message("upd", {"ID": "2"}), (None, {"ID": 2}, None, ["V", "N", "D", "T", "B", "F"], None)),
    (message("del", {"ID": "1", "V": None}), ({"ID": 1}, None, ["N", "D", "T", "B", "F"], None, None)),
    (json.dumps(json.loads(message("upd", {"V": None}, {"ID": "1", "N": None}))),
     ({"ID": 1}, {"ID": 1}, ["V", "D", "T", "B", "F"], ["D", "T", "B", "F"], ["V"])),
    (message("ins", {"ID": "1.5"}), "Column 'ID' can't hold 1.5"),
    (message("ins", {"N": "1.005"}), "Column 'N' can't hold 1.005"),
    (message("ins", {"N": "12345678.9"}), "Column 'N' can't hold 12345678.9"),
    (message("ins", {"D": "2017-06-16T14:24:34"}), "Column 'D' can't hold"),
    (message("ins", {"T": "2017-06-16T14:24:34.1234567"}), "Column 'T' can't hold"),
    (message("ins", {"T": "2017-06-16T14:24:34+01:00"}), "Column 'T' can't hold"),
    (message("ins", {"B": "0G"}), "Column 'B' can't hold 0G"),
    (message("upd", {"V": "x"}, {"F": "1e999"}), "Column 'F' can't hold 1e999"),
    (message("ins"), "An insert has no data"),
]  # fmt: skip


def test_a_structure_gives_typed_structs_and_tells_absent_from_null() -> None:
    values = [value for value, _ in TYPED]
    kinds = changes_of_messages("shareplex_json", kafka(values), schema=DDL, keys="ID").schema.field("after").type
    assert str(kinds).startswith("struct<ID: int32, V: string, N: decimal128(9, 2), D: date32[day]")
    found = decoded(values, schema=DDL, keys="ID")
    wrong = {}
    for n, (value, wanted) in enumerate(TYPED):
        row = found[n]
        if isinstance(wanted, str):
            if row.op != "error" or not row.error.startswith(wanted):
                wrong[value] = (row.op, row.error)
            continue
        images = [
            None if i is None else {k: v for k, v in plain(i).items() if v is not None} for i in (row.before, row.after)
        ]
        got = (*images, row.before_absent, row.after_absent, row.changed)
        if got != wanted or row.error:
            wrong[value] = (got, row.error)
        image = row.after or row.before
        if image.ID is not None:
            assert row.key == {"ID": str(image.ID)} and row.key_text == key_text([str(image.ID)])
    assert wrong == {}


def plain(image: Any) -> dict[str, Any]:
    return {
        k: bytes(v) if isinstance(v, bytearray) else str(v) if k == "N" and v is not None else v
        for k, v in image.asDict().items()
    }


def test_halves_of_an_update_are_paired_where_the_spec_says() -> None:
    def half(which: str, image: Any, **meta: Any) -> str:
        return message(f"UPDATE {which}", image, trans="1.2.3", **meta)

    values = [
        half("BEFORE", {"ID": "1", "V": "a"}, rowid="R1", seq=1),
        half("BEFORE", {"ID": "2", "V": "a"}, rowid="R2", seq=2),
        half("AFTER", {"ID": "1", "V": "b"}, rowid="R1", seq=2),
        half("AFTER", {"ID": "2", "V": "c"}, rowid="R2", seq=9),
        message("update before", {"ID": "3"}),
        message("Update_After", {"ID": "4"}),
        message("ins", {"ID": "5"}),
        message("UPDATE AFTER", {"ID": "6"}),
    ]
    for options in ({}, {"schema": "ID int, V string"}):
        found = decoded(values, **options)
        assert sorted(found) == [2, 3, 5, 6, 7]
        before = {
            n: row.before and (dict(row.before) if not options else row.before.asDict()) for n, row in found.items()
        }
        assert str(before[2]["ID"]) == "1" and before[2]["V"] == "a"
        assert before[3] is None and before[7] is None
        assert str(before[5]["ID"]) == "3"
        alone = decoded(values, pair_updates=False, **options)
        assert sorted(alone) == [2, 3, 5, 6, 7] and all(row.before is None for row in alone.values())


def test_halves_are_paired_however_the_messages_are_cut() -> None:
    values = [
        message("UPDATE BEFORE", {"ID": "1"}, trans="1", rowid="R1", seq=1),
        message("ins", {"ID": "2"}),
        message("UPDATE BEFORE", {"ID": "3"}),
        message("UPDATE AFTER", {"ID": "4"}),
        message("UPDATE AFTER", {"ID": "5"}, trans="1", rowid="R1", seq=2),
        message("UPDATE AFTER", {"ID": "6"}, trans="1", rowid="R1", seq=3),
    ]
    messages = [dict(zip(KAFKA_COLUMNS, line, strict=True)) for line in kafka(values)]
    batch = pa.RecordBatch.from_pylist(messages, codec.KAFKA)
    for size in range(1, len(values) + 1):
        decoder = arrow_format("shareplex_json").decoder(codec.Facts())
        parts = [batch.slice(start, size) for start in range(0, len(values), size)]
        rows = [row for made in codec.run_codec(decoder, parts) for row in made.to_pylist()]
        assert [(row["op"], dict(row["before"] or ()), dict(row["after"] or ())) for row in rows] == [
            (None, {}, {}), ("c", {}, {"ID": "2"}), (None, {}, {}), ("u", {"ID": "3"}, {"ID": "4"}),
            ("u", {"ID": "1"}, {"ID": "5"}), ("u", {}, {"ID": "6"}),
        ]  # fmt: skip


def test_keys_come_from_the_option_or_from_the_names_in_kafkas_key() -> None:
    values = [message("ins", {"A": "1", "B": "2"}), message("del", {"A": "1", "B": "2"}), message("upd", {"B": "2"})]
    names = {0: '{"B":"x","A":"y"}', 1: '{"Z":"1"}', 2: '{"B":1'}
    found = decoded(values, names)
    assert found[0].key_text == '["2","1"]' and found[1].key is None and found[2].key is None
    found = decoded(values, names, keys="A")
    assert [found[n].key_text for n in range(3)] == ['["1"]', '["1"]', None]


def test_a_list_of_structures_spells_maps() -> None:
    def schema(name: str, **kinds: str) -> TableSchema:
        columns = tuple(Column(c, n, LogicalType.parse(k)) for n, (c, k) in enumerate(kinds.items(), 1))
        return TableSchema(TableId("", "O", name), columns, ("ID",))

    given = [schema("T", ID="int32", D="date", T="timestamp(6)", B="bytes", I="instant(3)"), schema("U", ID="string")]
    image = {"ID": "1", "D": "2017-06-16T00:00:00", "T": "2017-06-16T14:24:34", "B": "00FF", "I": "2017-06-16T14:24:34"}
    values = [message("ins", image), message("ins", image, table="O.U"), message("ins", {**image, "B": "xyz"})]
    found = decoded(values, schema=given)
    canonical = {"ID": "1", "D": "2017-06-16", "T": "2017-06-16 14:24:34", "B": "AP8=", "I": "2017-06-16T14:24:34Z"}
    assert found[0].after == canonical and found[0].key == {"ID": "1"}
    assert found[1].after == image and found[1].key_text == '["1"]'
    assert found[2].error == "Column 'B' can't hold xyz exactly: it is binary."


def test_a_stream_decodes_what_a_batch_does(spark: SparkSession, tmp_path: Path) -> None:
    values = [value for value, _ in MEANINGS] + [message("UPDATE AFTER", {"ID": "1"})]
    local_rows(spark, kafka(values), KAFKA).coalesce(1).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(KAFKA).parquet(str(tmp_path / "in"))
    writer = decode(stream, format="shareplex_json").writeStream.format("memory").queryName("shareplex")
    writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination()

    def said(rows: Iterable[Any]) -> list[tuple[Any, ...]]:
        return sorted((row.position, row.op, sorted((row.after or {}).items()), row.error) for row in rows)

    assert said(spark.table("shareplex").collect()) == said(decoded(values).values())


SAMPLE = Path(__file__).parents[1] / "golden" / "shareplex_json" / "samples.jsonl"


def test_messages_come_back_byte_for_byte() -> None:
    cases = {line["case"]: line["value"] for line in map(json.loads, SAMPLE.read_text().splitlines())}
    same = ["seed_insert", "delete_with_table", "update_pk_change", "update_from_null", "unicode", "big_decimal_string",
            "three_part_table", "unqualified_table", "update_no_key", "clob_10k", "tx_last_of_two"]  # fmt: skip
    changes = changes_of_messages("shareplex_json", kafka([cases[c] for c in same]))
    assert [m["value"].decode() for m in sent("shareplex_json", changes)] == [cases[c] for c in same]


def test_captured_changes_are_numbered_in_their_transaction(spark: SparkSession) -> None:
    def row(order: int | None, op: str = "c", **facts: str) -> dict[str, Any]:
        transaction = {"id": "7.0.1", "total_order": order}
        source = {"connector": "oracle", **facts}
        table = {"database": "", "schema": "O", "name": "T"}
        after = {"ID": str(order)} if op == "c" else None
        return {"op": op, "transaction": transaction, "source": source, "table": table, "after": after}

    rows = [row(2, scn="8", commit_scn="9"), row(1, scn="7", commit_scn="9"), row(2, op="end"), row(1, scn="5")]
    rows[3] |= {"transaction": {"id": "8.0.1", "total_order": 1}, "message": {"topic": "t"}}
    lines = [tuple(({"position": f"5/{n}/"} | r).get(f.name) for f in spark_schema()) for n, r in enumerate(rows)]
    messages = encode(local_rows(spark, lines, CHANGE_ROW_DDL), format="shareplex_json").orderBy("position").collect()
    metas = [json.loads(m.value)["meta"] for m in messages]
    said = [(m.get("scn"), m.get("seq"), m.get("size"), m.get("idx")) for m in metas]
    # Of a decoded transaction only its own messages know the size.
    assert said == [("9", 1, 2, "1/2"), ("9", 2, 2, "2/2"), ("5", 1, None, None)]


def test_an_lsn_of_another_database_stands_where_an_scn_would() -> None:
    row = {"op": "t", "table": {"name": "T"}, "source": {"commit_lsn": "00000027:00000758:0005"}}
    assert json.loads(sent("shareplex_json", change_batch([row]))[0]["value"])["meta"]["scn"] == str(0x27000007580005)


def test_options_of_encoding(spark: SparkSession) -> None:
    changes = changes_of_messages("shareplex_json", kafka([message("ins", {"A": "1"}, table="P.O.T")]), keys="A")
    (one,) = sent("shareplex_json", changes, table_parts=2, topic="x-${table}")
    assert (one["topic"], one["key"]) == ("x-T", b'{"A":"1"}')
    assert json.loads(one["value"])["meta"]["table"] == "O.T"
    with pytest.raises(OptionError, match="nonsense"):
        encode(local_rows(spark, [], CHANGE_ROW_DDL), format="shareplex_json", topic="${nonsense}")
    with pytest.raises(OptionError, match="does not have"):
        decoded([], schema="A int", keys="B")


KINDS = ["boolean", "int8", "int16", "int32", "int64", "uint64", "decimal(9,3)", "decimal(38,10)", "float32",
         "float64", "string", "json", "uuid", "bytes", "date", "time(6)", "timestamp(6)", "timestamp(9)",
         "instant(6)"]  # fmt: skip
TABLE = TableSchema(
    TableId("db", "own.er", 'ta"ble'),
    (Column("id", 1, LogicalType("int32"), nullable=False),
     *(Column(f"c `{k}` 列", n, LogicalType.parse(k)) for n, k in enumerate(KINDS, 2))),
    ("id",),
)  # fmt: skip
DOUBLE = next(c.name for c in TABLE.columns if c.logical.kind == "float64")
DATES = st.dates(dt.date(1, 1, 1)).map(str)
CLOCKS = st.times().map(lambda t: t.strftime("%H:%M:%S.%f"))
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
VALUES: dict[str, st.SearchStrategy[str]] = {
    "boolean": st.sampled_from(["true", "false"]),
    "uint64": st.integers(0, 2**64 - 1).map(str),
    "float32": st.sampled_from(["1.5", "-0.0", "3.4028235e+38", "1e-05", "NaN", "Infinity"]),
    "float64": st.floats().map(lambda f: LogicalType("float64").to_text(f)),
    "bytes": st.binary(max_size=9).map(lambda b: LogicalType("bytes").to_text(b)),
    "date": DATES,
    "time": CLOCKS,
    "timestamp": st.builds("{} {}".format, DATES, CLOCKS),
    "instant": st.builds("{}T{}Z".format, DATES, CLOCKS),
    **{f"int{bits}": st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1).map(str) for bits in (8, 16, 32, 64)},
}


def texts_of(logical: LogicalType) -> st.SearchStrategy[str]:
    if logical.kind == "decimal":
        assert logical.precision is not None
        most = 10**logical.precision - 1
        return st.integers(-most, most).map(lambda n: LogicalType.to_text(logical, scaled(n, logical.scale or 0)))
    if logical.kind == "timestamp" and logical.digits == 9:
        return VALUES["timestamp"].map(lambda t: t + "789")
    return VALUES.get(logical.kind, TEXTS)


def scaled(number: int, scale: int) -> Any:
    from decimal import Decimal

    return Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale))


POOLS = drawn_rows.pools({c.name: texts_of(c.logical) for c in TABLE.columns[1:]})


def change(number: int, op: str, before: Any, after: Any) -> dict[str, Any]:
    images = [None if image is None else {"id": str(number), **image} for image in (before, after)]
    differing = None
    if op == "u":
        differing = [n for n in images[1] if images[0][n] != images[1][n]] or None
    return {
        "op": op,
        "table": {"database": "db", "schema": "own.er", "name": 'ta"ble'},
        "key": {"id": str(number)},
        "key_text": key_text([str(number)]),
        "before": images[0],
        "after": images[1],
        "changed": differing,
        "position": f"{number:020}/1/",
        "event_time": dt.datetime(2020, 1, 2, 3, 4, 5, tzinfo=dt.UTC) + dt.timedelta(seconds=number),
        "transaction": {"id": "1.2.3", "total_order": number},
        "source": {"connector": "oracle", "scn": "5"},
        "schema_id": TABLE.fingerprint,
    }


# The first example is the simplest one there is; shrinking would take minutes.
@settings(max_examples=5, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(POOLS)
def test_decode_of_encode_is_identity_for_every_type(drawn: Any) -> None:
    found_values, rng = drawn
    changes = []
    for n in range(120):
        op, old, new = rng.choice("cud"), drawn_rows.row(rng, found_values), drawn_rows.row(rng, found_values)
        changes.append(change(n, op, old if op in "ud" else None, new if op in "cu" else None))
    messages = as_kafka(sent("shareplex_json", change_batch(changes), [TABLE]))
    for row, wanted in zip(rows_of("shareplex_json", messages, schema=[TABLE]), changes, strict=True):
        got = row.asDict(recursive=True)
        parts = ("op", "table", "key", "key_text", "before", "after", "changed", "source")
        assert {k: got[k] for k in parts} == {k: wanted[k] for k in parts} and got["error"] is None
        assert got["transaction"]["total_order"] == int(wanted["position"][:20])
    typed = changes_of_messages("shareplex_json", messages, schema=TABLE)
    assert typed.column("error").null_count == len(changes)
    again = sent("shareplex_json", typed, [TABLE])
    for ours, theirs in zip(again, messages, strict=True):
        assert meaning(ours["value"]) == meaning(theirs[5])


def meaning(value: bytes) -> Any:
    """A message, with its doubles in one spelling of the same number."""
    found = json.loads(value)
    for image in (part for part in found.values() if DOUBLE in part):
        image[DOUBLE] = drawn_rows.shortest(image[DOUBLE])
    return found

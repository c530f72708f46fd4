"""What each kind of value on the wire becomes: every logical type, its extremes, and what stands for no value."""

from __future__ import annotations

import base64
import json
import random
from typing import Any

import pytest
from codec_rows import change_rows
from tests.support.debezium_cells import CONNECT, DATA, DECIMAL, TIME, VARIABLE, WORD, message, named, unscaled

from headrace.changes import TableSchema
from headrace.formats.codec import KAFKA_COLUMNS
from headrace.formats.convert import decode
from headrace.spark.local_rows import local_rows
from headrace.testing.waiting import PATIENCE

KAFKA = ", ".join(f"{name} {kind}" for name, kind in KAFKA_COLUMNS.items())


def plain(number: int, scale: int) -> str:
    if scale <= 0:
        return str(number) + "0" * (-scale if number else 0)
    digits = str(abs(number)).rjust(scale + 1, "0")
    return f"{'-' if number < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def listed(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def decimals() -> list[tuple[dict[str, Any], Any, str]]:
    rng = random.Random(5)
    found = []
    for bits in (0, 7, 8, 62, 63, 64, 65, 119, 120, 127, 128, 215, 255, 900):
        for number in {2**bits - 1, 2**bits, -(2**bits), -(2**bits) - 1, rng.randrange(2 ** (bits + 1))}:
            scale = rng.choice([0, 1, 2, 30])
            field = named("bytes", DECIMAL, scale=str(scale))
            found.append((field, unscaled(number, rng.choice([0, 0, 9])), plain(number, scale)))
            variable = {"scale": rng.choice([-3, 0, 5]), "value": unscaled(number)}
            found.append((named("struct", VARIABLE), variable, plain(number, variable["scale"])))
    wide = 99999999999999999999999999999999999999999999999999999999999999999
    found.append((named("bytes", DECIMAL, scale="30"), unscaled(wide), plain(wide, 30)))
    found.append((named("bytes", DECIMAL, scale="2046"), unscaled(-12300 * 10**2046), "-12300." + "0" * 2046))
    return found


CASES: list[tuple[dict[str, Any], Any, str | None]] = [
    (named("int8"), -128, "-128"),
    (named("int64"), 9223372036854775807, "9223372036854775807"),
    (named("boolean"), True, "true"),
    (named("float"), 3.4028235e38, "3.4028235e+38"),
    (named("double"), 1.0e-05, "1e-05"),
    (named("double"), 12345678.5, "12345678.5"),
    (named("double"), 3, "3.0"),
    (named("double"), "NaN", "NaN"),
    (named("float"), "-Infinity", "-Infinity"),
    (named("string"), "", ""),
    (named("string"), '日本 "\\\n\x01 },"payload":', '日本 "\\\n\x01 },"payload":'),
    (named("bytes"), "AAH/", "AAH/"),
    (named("bytes", f"{DATA}Bits", length="10"), "BQE=", "BQE="),
    (named("string", f"{DATA}Json"), '{"a": 1.10}', '{"a": 1.10}'),
    (named("string", f"{DATA}Enum", allowed="a,b"), "a", "a"),
    (named("string", f"{DATA}EnumSet", allowed="a,b"), "a,b", "a,b"),
    (named("string", f"{DATA}Ltree"), "a.b", "a.b"),
    (named("int32", f"{TIME}Date"), 0, "1970-01-01"),
    (named("int32", f"{TIME}Date"), -719163, "0000-12-31"),
    (named("int32", f"{TIME}Date"), -735599, "-0044-01-01"),
    (named("int32", f"{TIME}Date"), 2932897, "10000-01-01"),
    (named("int32", f"{CONNECT}Date"), -1, "1969-12-31"),
    (named("int32", f"{TIME}Time"), 37403500, "10:23:23.500"),
    (named("int32", f"{CONNECT}Time"), 86400000, "24:00:00"),
    (named("int64", f"{TIME}MicroTime"), 3020399000000, "838:59:59"),
    (named("int64", f"{TIME}MicroTime"), -1000000, "-00:00:01"),
    (named("int64", f"{TIME}MicroTime"), -1, "-00:00:00.000001"),
    (named("int64", f"{TIME}NanoTime"), 1, "00:00:00.000000001"),
    (named("int64", f"{TIME}Timestamp"), -1, "1969-12-31 23:59:59.999"),
    (named("int64", f"{CONNECT}Timestamp"), 0, "1970-01-01 00:00:00.000"),
    (named("int64", f"{TIME}MicroTimestamp"), 253402300799999999, "9999-12-31 23:59:59.999999"),
    (named("int64", f"{TIME}MicroTimestamp"), 9223372036825200000, "294247-01-10 04:00:25.200000"),
    (named("int64", f"{TIME}MicroTimestamp"), -9223372036832400000, "-290308-12-21 19:59:27.600000"),
    (named("int64", f"{TIME}NanoTimestamp"), -9223372036854775808, "1677-09-21 00:12:43.145224192"),
    (named("string", f"{TIME}ZonedTimestamp"), "2023-11-14T22:13:20.5+09:00", "2023-11-14T22:13:20.5+09:00"),
    (named("string", f"{TIME}ZonedTimestamp"), "-infinity", "-infinity"),
    (named("string", f"{TIME}ZonedTime"), "18:29:59.999999Z", "18:29:59.999999Z"),
    (named("string", f"{TIME}IsoDate"), "1900-02-28Z", "1900-02-28"),
    (named("string", f"{TIME}IsoTime"), "10:15:30.1Z", "10:15:30.1"),
    (named("string", f"{TIME}IsoTimestamp"), "2023-11-14T22:13:20.5Z", "2023-11-14 22:13:20.5"),
    (named("int32", f"{TIME}Year"), 1999, "1999"),
    (named("string", f"{TIME}Interval"), "P1Y2M3DT4H5M6.78S", "P1Y2M3DT4H5M6.78S"),
    (named("int64", f"{TIME}MicroDuration"), 93784000000, "93784000000"),
    (named("struct", "io.debezium.data.geometry.Point"), {"x": 1.25, "y": -2.5, "wkb": "AQ==", "srid": None},
     '{"x":1.25,"y":-2.5,"wkb":"AQ==","srid":null}'),
    (listed(named("int32")), [1, None, 3], "[1,null,3]"),
    (listed(named("string")), ["a", None, "é\""], '["a",null,"é\\""]'),
    (listed(named("int32", f"{TIME}Date")), [19782, None], '["2024-02-29",null]'),
    (listed(named("bytes", DECIMAL, scale="3")), [unscaled(1500), unscaled(-1)], '["1.500","-0.001"]'),
    (listed(named("struct", VARIABLE)), [{"scale": 1, "value": unscaled(15)}], '["1.5"]'),
    (listed(listed(named("int32"))), [None, None], "[null,null]"),
    ({"type": "map"}, {"a": "1"}, '{"a":"1"}'),
    (named("bytes", DECIMAL, scale="2"), None, None),
    *decimals(),
]  # fmt: skip
ABSENT = [
    WORD, base64.b64encode(WORD.encode()).decode(), WORD.encode().hex(), [WORD], list(WORD.encode()), {WORD: WORD},
]  # fmt: skip


def kafka(values: list[Any]) -> list[tuple[Any, ...]]:
    return [
        ("s.d.t", 0, n, None, None, json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(), None)
        for n, value in enumerate(values)
    ]


def by_offset(rows: list[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["message"]["offset"], []).append(row)
    return found


@pytest.fixture(scope="module")
def decoded() -> dict[int, list[dict[str, Any]]]:
    """All cases together, and the placeholders behind them."""
    values = [message(field, value) for field, value, _ in CASES] + [message(named("string"), v) for v in ABSENT]
    return by_offset(change_rows("debezium_json", kafka(values)))


def test_every_value_is_its_canonical_text(decoded: dict[int, list[dict[str, Any]]]) -> None:
    wrong = {}
    for number, (field, value, expected) in enumerate(CASES):
        row = decoded[number][-1]
        got = row["error"] if row["error"] else row["after"]["c"]
        if got != expected or row["after"]["id"] != "1":
            wrong[number] = (field, value, expected, got)
    assert wrong == {}


def test_each_structure_is_announced_before_its_first_row(decoded: dict[int, list[dict[str, Any]]]) -> None:
    announced = [rows[0] for rows in decoded.values() if rows[0]["op"] == "schema"]
    followed = {rows[-1]["schema_id"] for rows in decoded.values()}
    assert sorted(row["schema_id"] for row in announced) == sorted(followed)
    assert len(followed) > 20
    for number, rows in decoded.items():
        if number < len(CASES):
            assert rows[-1]["schema_id"] is not None
    first = TableSchema.from_text(decoded[0][0]["table_schema"])
    assert (first.id.database, first.id.name, [c.name for c in first.columns]) == ("d", "t", ["id", "c"])
    assert decoded[0][0]["schema_id"] == first.fingerprint == decoded[0][1]["schema_id"]
    assert [column.nullable for column in first.columns] == [False, True]


def test_a_value_that_a_change_does_not_carry_is_absent(decoded: dict[int, list[dict[str, Any]]]) -> None:
    images = [decoded[len(CASES) + n][-1]["after"] for n in range(len(ABSENT))]
    assert images == [{"id": "1"}] * len(ABSENT)


BROKEN = [
    (named("bytes", DECIMAL, scale="999999999999999999999999990"), unscaled(1)),
    (named("bytes", DECIMAL, scale="-99999999999"), unscaled(1)),
    (named("int32"), "x"), (named("int64"), 1.5), (named("boolean"), 1), (named("int32", f"{TIME}Date"), "x"),
    (named("int64", f"{TIME}MicroTime"), "10:00"), (named("bytes", DECIMAL, scale="2"), "?"),
    (named("bytes", DECIMAL, scale="2"), ""), (named("struct", VARIABLE), "x"),
    (named("struct", VARIABLE), {"scale": 2_000_000_000, "value": "AQ=="}), (named("double"), "x"),
    (named("int64", f"{TIME}Timestamp"), 9223372036854775807),
]  # fmt: skip


def test_what_does_not_follow_its_schema_is_an_error_row() -> None:
    rows = by_offset(change_rows("debezium_json", kafka([message(*case) for case in BROKEN])))
    wrong = {n: row for n, (*_, row) in rows.items() if row["error"] != "The value does not follow its schema."}
    assert wrong == {}
    assert len(rows) == len(BROKEN)


def test_without_a_schema_values_stay_as_they_came() -> None:
    number = "123456789012345678901234567890.1234567890"
    text = (
        f'{{"before":null,"after":{{"id":1,"n":{number},"s":1.50,"d":{{"scale":2,"value":"AQ=="}},"l":[1.10,"x"]}},'
        '"source":{"db":"d","schema":null,"table":"t","ts_us":-1},"op":"c"}'
    )
    (row,) = change_rows("debezium_json", [("s.d.t", 0, 0, None, b'{"id":1.10}', text.encode(), None)])
    assert row["after"] == {
        "id": "1", "n": number, "s": "1.50", "d": '{"scale":2,"value":"AQ=="}', "l": '[1.10,"x"]'
    }  # fmt: skip
    assert (row["key"], row["key_text"]) == ({"id": "1.10"}, '["1.10"]')
    assert not row["source"]
    assert round(row["event_time"].timestamp(), 6) == -0.000001


def test_a_stream_is_read_with_the_schemas_that_come(spark: Any, tmp_path: Any) -> None:
    sent = local_rows(spark, kafka([message(*case[:2]) for case in CASES[:20]]), KAFKA)
    sent.coalesce(1).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(KAFKA).parquet(str(tmp_path / "in"))
    rows = decode(stream, format="debezium_json")
    query = rows.writeStream.format("memory").queryName("decoded_types").trigger(availableNow=True).start()
    query.awaitTermination(PATIENCE)
    found = by_offset([row.asDict(recursive=True) for row in spark.table("decoded_types").collect()])
    assert [found[n][-1]["after"]["c"] for n in range(20)] == [expected for _, _, expected in CASES[:20]]
    assert found[0][0]["op"] == "schema"

"""Rows that were collected as texts are folded and typed as Spark does it, or left to Spark."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from headrace.apply import fold, profile
from headrace.changes import Column, LogicalType
from headrace.changes.typed import literal, typed_value
from headrace.errors import SchemaError
from headrace.sinks.lake import collected
from headrace.sinks.lake.collected import are_small, collect_texts, fold_texts, is_simple, typed_texts
from headrace.sinks.lake.data_files import arrow_type
from headrace.testing.change_history import Batch, from_message, table

YES, NO = True, False
"""Whether a text is typed in the driver; if not, its table's batch is left to Spark, whatever that makes of it."""
TEXTS: dict[str, dict[str, bool]] = {
    "boolean": {"true": YES, "false": YES, "t": NO, "TRUE": NO, "1": NO, "": NO},
    "int8": {"-128": YES, "127": YES, "128": NO, "-129": NO, "+1": NO, " 1": NO, "1.0": NO, "-0": YES, "007": YES},
    "int16": {"-32768": YES, "32767": YES, "32768": NO},
    "int32": {"-2147483648": YES, "2147483647": YES, "2147483648": NO, "": NO, "1e3": NO},
    "int64": {"-9223372036854775808": YES, "9223372036854775807": YES, "9223372036854775808": NO},
    "uint64": {"0": YES, "18446744073709551615": YES, "100000000000000000000": NO},
    "decimal(5,2)": {"999.99": YES, "-999.99": YES, "0.1": YES, "12.50": YES, "12.500": YES, "1000": NO, "0.001": NO,
                     ".5": NO, "5.": NO, "1E2": NO, "NaN": NO, "-0.00": YES, "00001.10": YES},
    "decimal(38,0)": {"9" * 38: YES, "-" + "9" * 38: YES, "1" + "0" * 38: NO},
    "decimal(38,38)": {"0." + "9" * 38: YES, "1": NO},
    "float32": {"3.4028235e+38": YES, "1e-45": YES, "-0.0": YES, "0.1": YES, "16777217": YES, "NaN": YES,
                "Infinity": YES, "-Infinity": YES, "1e39": NO, "nan": NO, "inf": NO, "1f": NO, "-NaN": NO},
    "float64": {"1.7976931348623157e+308": YES, "5e-324": YES, "-0.0": YES, "0.1": YES, "1e23": YES, "NaN": YES,
                "2.2250738585072011e-308": YES, "9007199254740993": YES, "Infinity": YES, "1e309": NO, "0x1p3": NO},
    "bytes": {"": YES, "3q2+7w==": YES, "AA==": YES, "AAA=": YES, "AAAA": YES, "A": NO, "AA": NO, "A A=": NO, "é": NO},
    "date": {"0001-01-01": YES, "9999-12-31": YES, "1582-10-10": YES, "2024-02-29": YES, "2023-02-29": NO,
             "0000-01-01": NO, "10000-01-01": NO, "0044-03-15 BC": NO, "infinity": NO, "2024-2-9": NO,
             "2024-02-29 00:00:00": NO},
    "timestamp(6)": {"0001-01-01 00:00:00.000001": YES, "9999-12-31 23:59:59.999999": YES, "2024-02-29 01:02:03": YES,
                     "2024-02-29 01:02:03.5": YES, "2024-02-29 24:00:00": NO, "2024-02-29 23:59:60": NO,
                     "2024-02-29T01:02:03": NO, "2024-02-29 01:02:03.1234567": NO, "2024-02-29 01:02:03Z": NO,
                     "2024-02-29": NO, "infinity": NO, "1582-10-10 12:00:00": YES},
    "instant(6)": {"0001-01-01T00:00:00.000000Z": YES, "9999-12-31T23:59:59.999999Z": YES, "2024-02-29T01:02:03Z": YES,
                   "1582-10-10T12:00:00.1Z": YES, "1883-11-18T12:00:00Z": YES, "2024-02-29T01:02:03": NO,
                   "2024-02-29 01:02:03Z": NO, "2024-02-29T01:02:03 Europe/Paris": NO},
    "zoned_timestamp(3)": {"2018-07-13T12:23:45.123+11:00": YES, "2018-07-13T12:23:45-17:59": YES,
                           "2018-07-13T12:23:45+18:00": NO, "2018-07-13T12:23:45+1100": NO,
                           "0001-01-01T00:00:00+10:00": YES},
    "timestamp(9)": {"2024-02-29 01:02:03.123456789": YES},
    "time(3)": {"-10:23:45.120": YES},
    "string": {"": YES, "O'Hara\n": YES},
    "uuid": {"123e4567-e89b-12d3-a456-426614174000": YES},
    "json": {'{"a": 1e400}': YES},
    "decimal(40,2)": {"1" * 38 + ".50": YES},
}  # fmt: skip
CASES = [(kind, text, kept) for kind, texts in TEXTS.items() for text, kept in texts.items()]


@pytest.mark.parametrize(("kind", "text", "kept"), CASES)
def test_only_texts_that_have_one_value_are_typed_in_the_driver(kind: str, text: str, kept: bool) -> None:
    column = Column("c", 1, LogicalType.parse(kind))
    assert (typed_texts(pa.array([None, text], pa.string()), column) is not None) is kept


def test_what_is_typed_in_the_driver_is_what_spark_makes_of_it(spark: Any) -> None:
    """With random numbers beside the extremes. Bits are compared: the zeros are two."""
    made = random.Random(7)
    floats = [repr(made.uniform(-1, 1) * 10 ** made.randrange(-30, 30)) for _ in range(300)]
    cases = [(kind, text) for kind, text, kept in CASES if kept]
    cases += [(kind, text) for kind in ("float32", "float64") for text in floats]
    kinds = sorted({kind for kind, _ in cases})
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    rows = session.createDataFrame([(str(n), text) for n, (_, text) in enumerate(cases)], "n string, text string")
    columns = [Column(f"c{n}", n, LogicalType.parse(kind)) for n, kind in enumerate(kinds)]
    places = {kind: [n for n, (one, _) in enumerate(cases) if one == kind] for kind in kinds}
    sql = [
        typed_value(f"if(n in ({', '.join(literal(str(n)) for n in places[kind])}), text, null)", column)
        for kind, column in zip(kinds, columns, strict=True)
    ]
    found = rows.selectExpr("cast(n as int) as n", *(f"{s} as c{n}" for n, s in enumerate(sql))).orderBy("n").toArrow()
    for number, (kind, column) in enumerate(zip(kinds, columns, strict=True)):
        texts = pa.array([cases[n][1] for n in places[kind]])
        ours, spark_type = typed_texts(texts, column), arrow_type(column.logical.spark_type)
        theirs = found.column(f"c{number}").take(pa.array(places[kind])).combine_chunks().cast(spark_type)
        assert ours is not None and ours.type == spark_type
        assert bits(ours) == bits(theirs), kind


def bits(values: pa.Array) -> Any:
    if not pa.types.is_floating(values.type):
        return values.to_pylist() if not pa.types.is_temporal(values.type) else values.view(_width(values)).to_pylist()
    return [str(value) for value in values.to_pylist()]


def _width(values: pa.Array) -> pa.DataType:
    return pa.int32() if pa.types.is_date32(values.type) else pa.int64()


def batch_of(made: random.Random, schema: Any, *, key: tuple[str, ...]) -> Batch:
    batch = Batch(schema)
    for _ in range(60):
        image = {"id": str(made.randrange(8)), "n": f"{made.randrange(3)}.{made.choice(['5', '50'])}", "a": None}
        image["a"] = made.choice([None, "", "x", "é"])
        op, at = made.choice("ccuud"), f"{made.randrange(10**6):07}/{made.randrange(10**6)}"
        batch.add(op, schema, at, *((None, image) if op == "d" else (image,)))
        if made.random() < 0.5 and op == "d":
            # A message of a delete may have the key alone.
            batch.lines[-1]["before"] = None
    return batch


@pytest.mark.parametrize("key", [("id",), ("n",), ("a", "id")])
def test_the_last_change_of_each_key_is_found_as_spark_finds_it(spark: Any, key: tuple[str, ...]) -> None:
    """Keys are typed before they are compared: 1.5 and 1.50 are one."""
    schema = table("t", key=key, id="int32", n="decimal(9,2)", a="string")
    schema = schema if "a" not in key else _nullable(schema, "a")
    other = table("other", id="int32", n="decimal(9,2)", a="string")
    made = random.Random(len(key))
    batch = batch_of(made, schema, key=key)
    batch.lines += batch_of(made, other, key=("id",)).lines
    rows = batch.rows(spark)
    tables = {found.id.name: found for found in profile(rows)}
    assert is_simple(tables["t"])
    texts = collect_texts(rows, [*tables.values()])
    for name, found in tables.items():
        nullable = frozenset(c.name for c in found.schema.key_columns if c.nullable)
        change = fold_texts(texts[found.id], found, nullable, "at", "the target")
        assert change is not None
        ours = [
            (comes, *(row[c] if comes or c in (*found.schema.key, "at") else None for c in row))
            for comes, row in zip(change.comes.to_pylist(), change.rows.to_pylist(), strict=True)
        ]
        names = [c.name for c in found.schema.columns]
        theirs = fold(rows, found).selectExpr("op = 'upsert' as comes", *(f"row.{c}" for c in names), "position as at")
        assert sorted(ours, key=repr) == sorted((tuple(row) for row in theirs.collect()), key=repr), name


def _nullable(schema: Any, name: str) -> Any:
    from dataclasses import replace

    columns = tuple(replace(column, nullable=column.name == name) for column in schema.columns)
    return replace(schema, columns=columns)


NOT_SIMPLE = {
    "a truncate": lambda batch, schema: batch.add("t", schema, 9),
    "a change that lacks a column": lambda batch, schema: batch.add("u", schema, 9, {"id": "1"}),
    "a change of a key": lambda batch, schema: batch.add(
        "u", schema, 9, {"id": "2", "a": "x", "b": None}, {"id": "1", "a": "x", "b": None}
    ),
}


@pytest.mark.parametrize("what", NOT_SIMPLE)
def test_what_takes_more_than_the_last_change_of_a_key_is_left_to_spark(spark: Any, what: str) -> None:
    schema = table("t")
    batch = Batch(schema).add("c", schema, 1, {"id": "1", "a": "x", "b": None})
    NOT_SIMPLE[what](batch, schema)
    (found,) = profile(batch.rows(spark))
    assert not is_simple(found)


def test_messages_of_several_partitions_have_no_order(spark: Any) -> None:
    schema = table("t")
    batch = Batch(schema)
    for partition in (0, 1):
        at = f"{7 + partition:020}/1/@{partition:08}"
        from_message(batch.add("u", schema, at, {"id": "1", "a": "x", "b": None}), "topic", partition)
    (found,) = profile(batch.rows(spark))
    texts = collect_texts(batch.rows(spark), [found])
    with pytest.raises(SchemaError, match=r"several Kafka partitions .* for the target"):
        fold_texts(texts[found.id], found, frozenset(), "at", "target")


def test_a_batch_of_many_bytes_is_left_to_spark(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = table("t")
    rows = Batch(schema).add("c", schema, 1, {"id": "1", "a": "x" * 5_000, "b": None}).rows(spark)
    kept = rows.persist()
    assert kept.count() == 2
    assert are_small(kept)
    monkeypatch.setattr(collected, "MOST_BYTES", 100)
    assert not are_small(kept)
    kept.unpersist()
    assert are_small(rows.sparkSession.createDataFrame(rows.rdd, rows.schema)), "nothing is known of its size"

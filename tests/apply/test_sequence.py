"""An offset compares inside its partition only: positions of other sequences have no order but one that is given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from headrace.apply import disordered, profile, sequenced
from headrace.apply.sequence import has_disorder, is_disordered
from headrace.changes import Column, LogicalType
from headrace.errors import OptionError, SchemaError
from headrace.sinks.jdbc.postgresql import PostgresDialect
from headrace.testing.change_history import Batch, from_message, table

T = table()
AT = "00000000000000000007/1/"
FIRST, SECOND = f"{AT}@aaaaaaaa", "00000000000000000003/1/@bbbbbbbb"
OLD, CAPTURED = AT, "0000002d:00000758:0005/0001/0"


def given(order: str, position: str) -> str:
    return f"s{order}!{position}"


PAIRS = [
    # What is kept, what comes, and whether nobody knows which is later.
    (FIRST, "00000000000000000002/1/@aaaaaaaa", False),
    (FIRST, SECOND, True),
    (SECOND, FIRST, True),
    # Older releases did not say the sequence: their mirrors go on.
    (OLD, FIRST, False),
    (OLD, given("1", FIRST), False),
    # An order that is given decides, but not between equals of two sequences.
    (given("1", FIRST), given("2", SECOND), False),
    (given("1", FIRST), given("1", SECOND), True),
    (given("1", FIRST), given("1", FIRST), False),
    # It may come later than the mirror, and can't be taken away.
    (FIRST, given("1", SECOND), False),
    (given("1", FIRST), FIRST, True),
    # A captured change and a message have no order.
    (CAPTURED, FIRST, True),
    (FIRST, CAPTURED, True),
    (CAPTURED, CAPTURED, False),
    (OLD, CAPTURED, False),
    (None, FIRST, False),
]


def test_which_positions_have_no_order(spark: Any) -> None:
    texts = [tuple("cast(null as string)" if one is None else f"'{one}'" for one in pair[:2]) for pair in PAIRS]
    dialect = PostgresDialect()
    sql = ", ".join(
        f"({disordered(kept, new)}, coalesce({dialect.disordered(kept, new)}, false))" for kept, new in texts
    )
    found = spark.sql(f"select * from values {sql}").collect()
    assert [(kept, new, *row) for (kept, new, _), row in zip(PAIRS, found, strict=True)] == [
        (kept, new, expected, expected) for kept, new, expected in PAIRS
    ]


@pytest.mark.parametrize(("kept", "new", "expected"), PAIRS)
def test_the_driver_finds_the_same_positions_without_order(kept: str | None, new: str, expected: bool) -> None:
    assert is_disordered(kept, new) is expected
    assert has_disorder(pa.array([kept], pa.string()), pa.array([new])) is expected


def positions(spark: Any, batch: Batch, sequence_by: str = "", epochs: Any = None) -> list[str]:
    rows = sequenced(sequenced(batch.rows(spark), sequence_by, epochs), sequence_by)
    return [row["position"] for row in rows.where("op <> 'schema'").orderBy("key_text").collect()]


def test_a_position_says_topic_partition_and_what_id_the_topic_has(spark: Any) -> None:
    batch = Batch(T)
    for number, (topic, partition) in enumerate([("a", 0), ("a", 1), ("b", 0)]):
        from_message(batch.add("c", T, AT, {"id": str(number)}), topic, partition)
    batch.add("c", T, CAPTURED, {"id": "3"})
    found = positions(spark, batch)
    assert [position[: len(AT) + 1] for position in found[:3]] == [f"{AT}@"] * 3
    assert len(set(found[:3])) == 3
    assert found[3] == CAPTURED
    again = positions(spark, batch, epochs={"a": "made again"})
    assert (again[0] != found[0], again[1] != found[1], again[2:] == found[2:]) == (True, True, True)


@pytest.mark.parametrize(
    ("sequence_by", "values"),
    [
        ("source['n']", ["9", "10", "0100"]),
        ("cast(source['n'] as bigint)", ["9", "10", "100"]),
        ("source['n']", ["0000:0001", "0000:0002", "0001:0000"]),
        ("source['n']", ["a", "ab", "b"]),
        ("cast(source['n'] as timestamp)", ["1970-01-01 00:00:00Z", "2024-05-01 00:00:00Z", "9999-12-31 00:00:00Z"]),
        ("cast(source['n'] as date)", ["0001-01-01", "2024-05-01", "9999-12-31"]),
    ],
)
def test_a_given_order_comes_first(spark: Any, sequence_by: str, values: list[str]) -> None:
    batch = Batch(T)
    for number, value in enumerate(values):
        # The offsets say the contrary.
        at = f"{9 - number:020}/1/"
        from_message(batch.add("c", T, at, {"id": str(number)}), "a", number, {"n": value})
    found = positions(spark, batch, sequence_by)
    assert found == sorted(found)


@pytest.mark.parametrize("value", [None, "-1", "a b", "a!b"])
def test_a_change_that_has_no_place_in_a_given_order_stops(spark: Any, value: str | None) -> None:
    from pyspark.errors import PySparkException

    batch = from_message(Batch(T).add("c", T, AT, {"id": "1"}), "a", 0, {} if value is None else {"n": value})
    by = "cast(source['n'] as bigint)" if value == "-1" else "source['n']"
    with pytest.raises(PySparkException, match=r"A change of table dbo\.t has no place in the order of sequence_by"):
        positions(spark, batch, by)


@pytest.mark.parametrize(("sequence_by", "said"), [("nothing", "can't be computed"), ("source", "has no order")])
def test_an_order_that_is_none_is_refused(spark: Any, sequence_by: str, said: str) -> None:
    with pytest.raises(OptionError, match=rf"Option 'sequence_by' .*{said}"):
        sequenced(Batch(T).rows(spark), sequence_by)


def test_no_column_is_lost_where_offsets_do_not_say_which_structure_is_newer(spark: Any) -> None:
    newer = replace(T, columns=(*T.columns, Column("c", 4, LogicalType("string"))))
    batch = Batch()
    # The partition that has the older structure has the larger offsets.
    for schema, partition, offset in ((newer, 0, 7), (T, 1, 900)):
        at = f"{offset:020}/"
        from_message(batch.structure(schema, f"{at}0/"), "a", partition)
        from_message(batch.add("c", schema, f"{at}1/", {"id": str(partition), "a": "x", "b": "y"}), "a", partition)
    (found,) = profile(sequenced(batch.rows(spark)))
    assert [column.name for column in found.schema.columns] == ["id", "a", "b", "c"]


def test_a_truncate_in_one_partition_says_nothing_of_another(spark: Any) -> None:
    batch = from_message(Batch(T).add("c", T, AT, {"id": "1"}), "a", 0)
    from_message(batch.add("t", T, AT), "a", 1)
    with pytest.raises(SchemaError, match=r"of table db\.dbo\.t come from several Kafka partitions"):
        profile(sequenced(batch.rows(spark)))

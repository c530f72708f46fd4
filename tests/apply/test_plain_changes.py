"""Rule: what is said in Arrow of decoded changes is what Spark SQL says of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headrace.apply.plain_changes import plain_changes
from headrace.apply.profile import profile
from headrace.apply.sequence import sequenced
from headrace.changes.row import arrow_schema, spark_schema
from headrace.testing.change_history import table

T = table("t", key=("id",), id="int32", a="string")
IDS = {"topic": "an-id"}


def change(op: str, *, topic: str = "topic", partition: int = 0, headers: Any = None, **more: Any) -> dict[str, Any]:
    image = {"id": "1", "a": "x"}
    row: dict[str, Any] = {
        "op": op,
        "table": {"database": "db", "schema": "dbo", "name": "t"},
        "key": {"id": "1"},
        "before": image if op in "ud" else None,
        "after": image if op != "d" else None,
        "position": "00000000000000000007/1/",
        "source": {"connector": "mysql"},
        "schema_id": T.fingerprint,
        "message": {"topic": topic, "partition": partition, "offset": 7, "headers": headers},
    }
    return row | more


def arrow(*changes: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([*changes], arrow_schema())


POSTGRESQL = {"connector": "postgresql", "txId": "77"}
PLAIN = [
    change("r"),
    change("c"),
    change("u"),
    change("d"),
    change("u", before=None),
    change("u", before={"id": "1"}),
    change("u", before={"a": None, "id": "1"}, after={"a": None, "id": "1"}),
    change("c", source=POSTGRESQL),
    change("u", source=POSTGRESQL),
    change("d", source=POSTGRESQL),
    change("c", source={"connector": "postgresql"}),
    change("c", source={"connector": "postgresql"}, transaction={"id": "a:b"}),
    change("c", source={"connector": "oracle", "gtid": "g", "commit_lsn": "1"}),
    change("u", source={"csn": "ä", "gtid": None}),
    change("c", source=None),
    change("c", source={"connector": "sqlserver", "commit_lsn": "1:2"}),
    change("c", topic="another/topic", partition=12),
    change("c", headers=[{"key": "other", "value": b""}]),
    change("c", snapshot="first"),
]
MORE = {
    "an update of the key": change("u", before={"id": "2", "a": "x"}),
    "a key of either image": change("u", key={"id": "2"}),
    "an update without a key": change("u", key=None),
    "a null in a key": change("u", key={"id": None}),
    "half of a change of key": change("d", headers=[{"key": "__debezium.newkey", "value": b"2"}]),
    "the other half": change("c", headers=[{"key": "x", "value": b""}, {"key": "__debezium.oldkey", "value": b"2"}]),
    "a delete of a whole row": change("d", source={"connector": "oracle"}),
    "a row that lacks a column": change("u", after={"id": "1"}),
    "the end of a snapshot": change("r", snapshot="last"),
    "a truncate": change("t", key=None, after=None),
    "no message": change("c", message=None),
    "a position of another release": change("c", position="00000000000000000007/1/@12345678"),
}


@pytest.mark.jvm
def test_positions_say_what_spark_lets_them_say(spark: Any) -> None:
    rows = [{**one, "position": f"{number:020}/1/"} for number, one in enumerate(PLAIN)]
    found = plain_changes(arrow(*rows), len(T.columns), IDS)
    assert found is not None
    frame = sequenced(spark.createDataFrame(rows, spark_schema()), epochs=IDS)
    assert found.column("position").to_pylist() == [row["position"] for row in frame.orderBy("position").collect()]
    schema = change("schema", key=None, after=None, message=None, table_schema=T.to_text(), position="0/0/")
    (of_table,) = profile(frame.unionByName(spark.createDataFrame([schema], spark_schema())))
    assert not (of_table.partial or of_table.key_changed or of_table.key_paired or of_table.snapshot_ended)


@pytest.mark.parametrize("one", MORE.values(), ids=MORE)
def test_of_changes_that_say_more_than_their_last_row_nothing_is_said(one: dict[str, Any]) -> None:
    assert plain_changes(arrow(change("c"), one), len(T.columns), IDS) is None


def test_images_are_handed_on_as_they_are() -> None:
    found = plain_changes(arrow(change("c"), change("d")), len(T.columns), {})
    assert found is not None
    assert found.column("comes").to_pylist() == [True, False]
    assert found.column("after").to_pylist() == [[("id", "1"), ("a", "x")], None]
    assert found.column("key").to_pylist() == [[("id", "1")]] * 2

"""Small batches find their rows by an index of keys, and leave what a MERGE would leave, whoever else writes."""

from __future__ import annotations

import errno
import json
import random
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from tests.support.lake_mirror import CELLS, WIDE, DeltaMirror, Mirror, T, made

from headrace import faultpoints
from headrace.errors import SchemaError, SinkError
from headrace.sinks.base import BatchId
from headrace.sinks.lake import collected, indexed, merge
from headrace.sinks.lake.data_files import DataFileWriter, arrow_type
from headrace.sinks.lake.delta.facts import TableFacts
from headrace.sinks.lake.iceberg.facts import TableFacts as IcebergFacts
from headrace.sinks.lake.indexed import IndexedTable, unfit
from headrace.sinks.lake.key_index import Bounded
from headrace.sinks.lake.s3 import of_hadoop, storage_of
from headrace.sinks.lake.storage import Location, Storage
from headrace.sinks.lake.table import say_no_index
from headrace.testing.change_history import Batch, from_message, table


def read(mirror: Mirror) -> Mirror:
    """After it got 40 rows in two files."""
    first = Batch(T)
    for n in range(40):
        first.add("r", T, 1, row(n, f"read {n}"), snapshot="last" if n == 39 else "true")
    return mirror.bring(first)


@pytest.fixture(scope="module")
def read_lake(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with Delta's table of these rows, which may be copied, because its log names files relatively."""
    folder = tmp_path_factory.mktemp("read") / "lake"
    read(made("delta", spark, folder))
    return folder


BY_TASKS = " by tasks"


@pytest.fixture(
    params=[
        "delta",
        "iceberg",
        "iceberg 3",
        *(pytest.param(f"{kind}{BY_TASKS}", marks=pytest.mark.system) for kind in ("delta", "iceberg", "iceberg 3")),
    ]
)
def mirror(request: pytest.FixtureRequest, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    """One that has 40 rows in two files, and no other way than the index."""
    # Those by tasks have the names of the others.
    say_no_index.cache_clear()
    mirror = made(request.param.removesuffix(BY_TASKS), spark, tmp_path / "lake")
    if isinstance(mirror, DeltaMirror):
        shutil.copytree(request.getfixturevalue("read_lake"), tmp_path / "lake")
        mirror.number = 1
    else:
        read(mirror)

    def refuse(*_: Any) -> bool:
        raise AssertionError("the batch goes another way")

    monkeypatch.setattr(*mirror.only_way, refuse)
    if request.param.endswith(BY_TASKS):
        monkeypatch.setattr(collected, "MOST", 0)
    return mirror


def row(id: int, text: str) -> dict[str, str]:
    return {"id": str(id), "a": text}


def rows(content: dict[int, str]) -> list[tuple[int, str]]:
    return sorted(content.items(), key=repr)


READ = {n: f"read {n}" for n in range(40)}


def test_commits_of_others_between_two_batches_are_followed(mirror: Mirror) -> None:
    mirror.bring(Batch(T).add("u", T, 5, row(3, "new")).add("d", T, 6, before=row(4, "read 4")))
    mirror.sql("delete from {} where id in (5, 6)")
    mirror.sql("insert into {} values (100, 'foreign', null), (101, 'foreign', null), (101, 'twice', null)")
    mirror.sql("update {} set a = 'foreign' where id = 7")
    changes = Batch(T).add("c", T, 8, row(5, "again")).add("u", T, 9, row(7, "newer")).add("u", T, 10, row(100, "ours"))
    mirror.bring(changes.add("u", T, 11, row(101, "once")).add("d", T, 12, before=row(3, "new")))
    expected = {**READ, 5: "again", 7: "newer", 100: "ours", 101: "once"}
    for gone in (3, 4, 6):
        del expected[gone]
    assert mirror.content() == rows(expected)
    mirror.compact()
    mirror.bring(Batch(T).add("u", T, 13, row(7, "newest")).add("d", T, 14, before=row(8, "read 8")))
    del expected[8]
    assert mirror.content() == rows({**expected, 7: "newest"})
    mirror.undo()
    mirror.bring(Batch(T).add("u", T, 15, row(9, "after all")))
    assert mirror.content() == rows({**expected, 8: "read 8", 9: "after all"})


def test_columns_that_get_other_names_or_go_and_come_again_leave_the_index_as_it_is(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    mirror.kept = mirror.target.sink(schema_change_behavior="evolve")

    def by_index(batch: Batch) -> None:
        with monkeypatch.context() as without:
            without.delattr(merge, "merge")
            without.setattr(*mirror.only_way, None)
            mirror.bring(batch)

    by_index(Batch(T).add("u", T, 5, row(1, "new")).add("d", T, 6, before=row(2, "read 2")))
    named = table(id="int64", **{"the a": "string"}, b="string")
    batch = Batch().statement(T, 7, "ALTER TABLE t RENAME COLUMN a TO `the a`").structure(named, 8)
    mirror.bring(batch.add("u", named, 9, {"id": "4", "the a": "named", "b": "first"}))
    by_index(Batch(named).add("u", named, 10, {"id": "3", "the a": "named", "b": "first"}))
    # Columns that come again are other ones of the same name.
    for at, kept in ((20, "the a"), (30, "b")):
        less = table(id="int64", **{kept: "string"})
        for way, n in ((mirror.bring, 1), (by_index, 2)):
            way(Batch(less).add("u", less, at + n, {"id": "5", kept: f"less {n}"}))
        for way, n in ((mirror.bring, 3), (by_index, 4)):
            way(Batch(named).add("u", named, at + n, {"id": "6", "the a": f"more {n}", "b": f"more {n}"}))
    mirror.sql("update {} set b = 'foreign' where id in (4, 7)")
    mirror.compact()
    last = table(key=("nr",), nr="int64", **{"the a": "string"}, b="string")
    batch = Batch().statement(named, 40, "ALTER TABLE t RENAME COLUMN id TO nr").structure(last, 41)
    mirror.bring(batch.add("u", last, 42, {"nr": "9", "the a": "last", "b": "last"}))
    by_index(
        Batch(last).add("u", last, 43, {"nr": "7", "the a": "last", "b": "last"}).add("d", last, 44, before={"nr": "8"})
    )
    expected: dict[int, Any] = {n: (n, None, None) for n in READ if n not in (2, 8)}
    expected |= {n: (n, "last", "last") for n in (7, 9)}
    expected |= {4: (4, None, "foreign"), 5: (5, None, "less 2"), 6: (6, "more 4", "more 4")}
    content = [(line["nr"], line["the a"], line["b"]) for line in mirror.target.rows(last)]
    assert sorted(content) == sorted(expected.values())


COMPACTION = "compaction"
IN_BETWEEN: tuple[tuple[str, dict[int, str]], ...] = (
    ("insert into {} values (50, 'foreign', null)", {}),
    ("update {} set a = 'foreign' where id in (1, 2)", {2: "foreign"}),
    ("delete from {} where id = 1", {}),
    (COMPACTION, {}),
    ("alter table {} set tblproperties ('somebody' = 'else')", {}),
)
"""Statements of others, and what stays of them after a batch that has rows 1 and 50."""


def test_a_commit_of_others_between_the_look_up_and_the_commit_is_found(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[str] = []

    def meanwhile(point: str) -> None:
        if point == mirror.files_written and waiting:
            statement = waiting.pop()
            mirror.compact() if statement == COMPACTION else mirror.sql(statement)

    monkeypatch.setattr(faultpoints, "reach", meanwhile)
    expected = dict(READ)
    for number, (statement, stays) in enumerate(IN_BETWEEN):
        waiting.append(statement)
        text = f"new {number}"
        mirror.bring(Batch(T).add("u", T, 5 + number, row(1, text)).add("c", T, 5 + number, row(50, text)))
        expected |= {1: text, 50: text, **stays}
        assert (mirror.content(), waiting) == (rows(expected), []), statement


@pytest.mark.parametrize("mirror", ["delta"], indirect=True)
def test_a_log_is_followed_from_its_checkpoints(mirror: Mirror) -> None:
    mirror.sql("alter table {} set tblproperties ('delta.checkpointInterval' = '2')")
    expected = dict(READ)
    for number in range(6):
        expected[number] = f"new {number}"
        mirror.bring(Batch(T).add("u", T, 5 + number, row(number, f"new {number}")))
    again = mirror.successor()
    again.number = mirror.number
    again.bring(Batch(T).add("u", T, 20, row(1, "newer")).add("u", T, 21, row(39, "newer")))
    assert again.content() == rows({**expected, 1: "newer", 39: "newer"})


def test_a_row_that_is_newer_in_the_target_stays_whatever_statistics_say(mirror: Mirror) -> None:
    """Positions that differ after the 32 characters that statistics have, and a table without statistics."""
    long = "00000002" + "0" * 32 + "/{}"
    mirror.bring(Batch(T).add("u", T, long.format(5), row(1, "new")).add("u", T, long.format(1), row(2, "old")))
    late = Batch(T).add("u", T, long.format(4), row(1, "late")).add("d", T, long.format(3), before=row(1, "late"))
    mirror.bring(late.add("u", T, long.format(2), row(2, "newer")).add("u", T, long.format(2), row(50, "come")))
    assert mirror.content() == rows({**READ, 1: "new", 2: "newer", 50: "come"})
    mirror.sql("update {} set _headrace_position = null where id = 2")
    mirror.bring(Batch(T).add("u", T, 1, row(2, "after null")))
    assert mirror.content() == rows({**READ, 1: "new", 2: "after null", 50: "come"})


def test_messages_of_two_partitions_stop_before_anything(mirror: Mirror) -> None:
    first, second = "00000000000000000007", "00000000000000000008"
    mirror.bring(from_message(Batch(T).add("c", T, f"{first}/1/", row(60, "a")), "topic", 0))
    version = mirror.version()
    with pytest.raises(SchemaError, match="come from several Kafka partitions"):
        mirror.bring(from_message(Batch(T).add("u", T, f"{second}/1/", row(60, "b")), "topic", 1))
    assert mirror.version() == version
    mirror.bring(from_message(Batch(T).add("u", T, f"{second}/1/", row(60, "b")), "topic", 0))
    assert (60, "b") in mirror.content()


def test_a_batch_that_failed_after_its_files_were_written_is_brought_once(
    mirror: Mirror, arm: Callable[[str], None]
) -> None:
    batch = Batch(T).add("u", T, 5, row(3, "new")).add("d", T, 6, before=row(4, "read 4")).add("c", T, 7, row(70, "c"))
    arm(f"{mirror.files_written}=raise")
    with pytest.raises(Exception, match=mirror.files_written):
        mirror.bring(batch)
    assert mirror.content() == rows(READ)
    expected = {**READ, 3: "new", 70: "c"}
    del expected[4]
    # The same process, and one that was started after the other had died.
    for again in (mirror, mirror.successor()):
        again.number = 1
        again.bring(batch)
        assert again.content() == rows(expected)


def test_a_process_that_died_before_the_commit_left_nothing(mirror: Mirror, arm: Callable[[str], None]) -> None:
    batch = Batch(T).add("u", T, 5, row(3, "new")).add("d", T, 6, before=row(4, "read 4"))
    arm(f"{mirror.files_written}=raise")
    with pytest.raises(Exception, match=mirror.files_written):
        mirror.bring(batch)
    successor = mirror.successor()
    successor.number = 1
    successor.bring(batch).bring(Batch(T).add("u", T, 7, row(3, "newer")))
    expected = {**READ, 3: "newer"}
    del expected[4]
    assert successor.content() == rows(expected)


def test_a_batch_of_which_nothing_is_newer_is_known_all_the_same(mirror: Mirror) -> None:
    mirror.bring(Batch(T).add("d", T, 5, before=row(99, "never there")))
    version = mirror.version()
    mirror.number -= 1
    mirror.bring(Batch(T).add("d", T, 5, before=row(99, "never there")))
    assert (mirror.version(), mirror.content()) == (version, rows(READ))


def test_young_files_become_one_and_one_of_which_most_rows_are_gone_is_written_anew(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexed, "YOUNG", 4)
    expected = dict(READ)
    for number in range(12):
        batch = Batch(T)
        for id in (number, 20 + number, 100 + number):
            expected[id] = f"new {number}"
            batch.add("u", T, 10 + number, row(id, expected[id]))
        del expected[number]
        mirror.bring(batch.add("d", T, 11 + number, before=row(number, "")))
        if number == 6:
            mirror.sql("delete from {} where id = 101")
            del expected[101]
    assert mirror.content() == rows(expected)
    assert mirror.files() <= 7
    again = mirror.successor()
    again.number = mirror.number
    again.bring(Batch(T).add("u", T, 50, row(102, "newer")).add("u", T, 50, row(21, "newer")))
    assert again.content() == rows({**expected, 102: "newer", 21: "newer"})


def test_young_files_become_one_although_each_batch_changes_rows_in_all_of_them(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexed, "YOUNG", 4)
    expected = dict(READ)
    for number in range(10):
        batch = Batch(T)
        changed = [1000 * earlier + number for earlier in range(1, number + 1)]
        for id in [*changed, *range(1000 * (number + 1) + 50, 1000 * (number + 1), -1)]:
            expected[id] = f"new {number}"
            batch.add("u" if id in changed else "c", T, 10 + number, row(id, expected[id]))
        mirror.bring(batch)
    assert mirror.content() == rows(expected)
    assert mirror.files() <= 6


def test_files_that_only_spark_can_rewrite_keep_no_others_from_becoming_one(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexed, "YOUNG", 3)
    timed = table("t", id="int64", at="instant(6)")
    mirror = made("delta", spark, tmp_path / "lake")
    moment = "2026-05-01T12:00:00.000000Z"
    mirror.bring(Batch(timed).add("c", timed, 1, {"id": "1", "at": moment}))
    spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    try:
        for id in (100, 200, 300):
            mirror.sql(f"insert into {{}} values ({id}, timestamp'2026-05-01 12:00:00', null)")
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    for number in range(2, 12):
        mirror.bring(Batch(timed).add("c", timed, number, {"id": str(number), "at": moment}))
    mirror.bring(Batch(timed).add("d", timed, 20, before={"id": "200", "at": moment}))
    ids = sorted(row["id"] for row in mirror.read().collect())
    assert ids == [*range(1, 12), 100, 300]
    assert mirror.files() <= 6


def test_a_table_can_lose_all_rows(mirror: Mirror) -> None:
    gone = Batch(T)
    for n in range(40):
        gone.add("d", T, 5 + n, before=row(n, ""))
    mirror.bring(gone)
    assert mirror.content() == []
    mirror.bring(Batch(T).add("c", T, 99, row(1, "again")))
    assert mirror.content() == [(1, "again")]


def no_login(location: Location, bucket: str) -> Storage | str:
    return of_hadoop({"fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem"}.get, location.scheme, bucket)


def facts(properties: dict[str, str] | None = None, features: Iterable[str] = (), **given: Any) -> TableFacts:
    """A table of which nothing is against an index but what is given."""
    vectors = {"delta.enableDeletionVectors": "true"}
    field = {"name": "id", "type": "long", "nullable": True, "metadata": {}, **given.pop("field", {})}
    schema = json.dumps({"type": "struct", "fields": [field]})
    made = {"id": "1", "schemaString": schema, "partitionColumns": [], "configuration": vectors | (properties or {})}
    protocol = {"minWriterVersion": 7, "writerFeatures": ["deletionVectors", *features]}
    location = given.pop("location", "file:/tmp")
    storage = storage_of(Location.of_uri(location), no_login)
    return TableFacts.of(json.dumps({"metaData": made | given}), json.dumps({"protocol": protocol}), location, storage)


REFUSED: list[tuple[TableFacts, str]] = [
    (facts(), ""),
    (facts(features=["clustering", "domainMetadata", "typeWidening", "inCommitTimestamp", "timestampNtz"]), ""),
    (facts({"delta.enableDeletionVectors": "false"}), "no deletion vectors"),
    (facts(configuration={}), "no deletion vectors"),
    (facts(location="s3a://bucket/t"), "no login is set for its bucket"),
    (facts(location="abfss://container@account/t"), "neither in a local folder nor in S3"),
    (facts(location="file:/no/such/folder"), "not on this machine"),
    (facts(partitionColumns=["id"]), ""),
    (facts(partitionColumns=["id"], field={"type": "double"}), "partitions by column 'id', which is double"),
    (facts(partitionColumns=["id"], field={"type": "timestamp"}), "partitions by column 'id', which is timestamp"),
    (facts({"delta.columnMapping.mode": "id"}), "column mapping"),
    (facts({"delta.constraints.positive": "id > 0"}), "constraints"),
    (facts(field={"nullable": False}), "constraints"),
    (facts(field={"metadata": {"delta.invariants": "{}"}}), "constraints"),
    (facts(field={"type": "string", "metadata": {"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}}), "constraints"),
    (facts(field={"type": "variant"}), "column id is variant"),
    (facts(field={"type": {"type": "array", "elementType": "long", "containsNull": True}}), "column id is"),
    (facts({"delta.enableChangeDataFeed": "true"}), "change data feed"),
    (facts({"delta.enableRowTracking": "true"}), "row tracking"),
    (facts(field={"metadata": {"delta.generationExpression": "1"}}), "computed columns"),
    (facts(field={"metadata": {"delta.identity.start": 1}}), "computed columns"),
    (facts(field={"metadata": {"CURRENT_DEFAULT": "1"}}), "computed columns"),
    (facts(features=["icebergCompatV2"]), "another feature"),
    (facts(features=["catalogManaged"]), "another feature"),
    (facts(features=["coordinatedCommits-preview"]), "another feature"),
    (facts({"delta.universalFormat.enabledFormats": "iceberg"}), "Iceberg table"),
    (facts({"delta.appendOnly": "true"}), "append-only"),
    (facts(features=["v2Checkpoint"]), "checkpoints of version 2"),
    (facts({"delta.checkpoint.writeStatsAsJson": "false"}), "statistics as JSON"),
    (facts({"delta.isolationLevel": "WriteSerializable"}), "others may append"),
]


def iceberg_facts(fields: Iterable[tuple[str, Any]] = (), **given: Any) -> IcebergFacts:
    """Likewise of Iceberg."""
    made = [("id", "long"), *fields]
    schema = {"fields": [{"id": n, "name": name, "required": n == 1, "type": kind} for n, (name, kind) in
                         enumerate(made, 1)]}  # fmt: skip
    modes = {"write.merge.mode": "merge-on-read", **given.pop("properties", {})}
    found = {"id": "1", "format": 2, "spec": '{"fields": []}', "specs": 1, "ordered": False, "properties": modes,
             "data": "/tmp/data", "default_scheme": "file", "equality_deletes": False}  # fmt: skip
    found |= given
    location = Location.of_name(found["data"], found["default_scheme"])
    return IcebergFacts.of(json.dumps(schema), storage=storage_of(location, no_login), **found)


def partitioned(transform: str) -> str:
    return json.dumps({"fields": [{"name": "p", "transform": transform, "source-id": 1, "field-id": 1000}]})


LATER = {"id": 1, "name": "a", "required": False, "type": "long", "initial-default": 7}
REFUSED_ICEBERG: list[tuple[IcebergFacts, str]] = [
    (iceberg_facts(), ""),
    (iceberg_facts([("a", "timestamptz"), ("b", "decimal(9, 2)"), ("c", "timestamp"), ("d", "binary")]), ""),
    (iceberg_facts(data="file:/tmp/data", default_scheme="hdfs"), ""),
    (iceberg_facts(format=1), "does not have the format 2 or 3"),
    (iceberg_facts(format=4), "does not have the format 2 or 3"),
    (iceberg_facts(properties={"write.merge.mode": "copy-on-write"}), "deleted rows are not marked"),
    (iceberg_facts(properties={"encryption.key-id": "k"}), "encrypted"),
    (iceberg_facts(properties={"write.format.default": "orc"}), "not Parquet"),
    (iceberg_facts(data="/tmp/data", default_scheme="hdfs"), "neither in a local folder nor in S3"),
    (iceberg_facts(data="s3://bucket/t/data"), "no login is set for its bucket"),
    (iceberg_facts(data="file:/no/such/folder/data"), "not on this machine"),
    (iceberg_facts(spec=partitioned("bucket[16]")), ""),
    (iceberg_facts(spec=partitioned("day")), "partitions by column 'id', which is bigint"),
    (iceberg_facts(spec=partitioned("void")), "partitions by something that is not known"),
    (iceberg_facts(specs=2), "its partitions became others"),
    (iceberg_facts(ordered=True), "sort order"),
    (iceberg_facts(equality_deletes=True), "deleted by their values"),
    (replace(iceberg_facts(), fields=(LATER,)), "rows of before a column was added have a value of it"),
    (iceberg_facts([("a", "uuid")]), "column a is Iceberg's uuid"),
    (iceberg_facts([("a", "timestamp_ns")]), "column a is Iceberg's timestamp_ns"),
    (iceberg_facts([("a", {"type": "list", "element": "long"})]), "column a is Iceberg's list"),
]


@pytest.mark.parametrize(("table", "reason"), [*REFUSED, *REFUSED_ICEBERG])
def test_a_table_of_which_more_is_to_be_kept_has_no_index(table: TableFacts | IcebergFacts, reason: str) -> None:
    assert reason in table.no_index
    assert bool(reason) is bool(table.no_index)


@pytest.mark.parametrize(
    ("rows", "columns", "reason"),
    [
        ({"a": "int"}, {"a": "int"}, ""),
        ({"a": "tinyint"}, {"a": "bigint"}, ""),
        ({"a": "bigint"}, {"a": "int"}, "its column 'a' is int, and"),
        ({"a": "decimal(9,2)"}, {"a": "decimal(12,2)"}, "its column 'a' is decimal(12,2), and"),
        ({"a": "int"}, {"a": "decimal(12,2)"}, "its column 'a' is decimal(12,2), and"),
        ({"a": "timestamp"}, {"a": "timestamp_ntz"}, "its column 'a' is timestamp_ntz, and"),
        ({"a": "variant"}, {"a": "variant"}, "its column 'a' is variant, and"),
        ({"a": "int"}, {"a": "int", "b": "int"}, "it has columns that the source's table lacks"),
    ],
)
def test_rows_go_by_an_index_only_as_they_are(rows: dict[str, str], columns: dict[str, str], reason: str) -> None:
    found = unfit({name: arrow_type(kind) for name, kind in rows.items()}, columns)
    assert found.startswith(reason)
    assert bool(found) is bool(reason)


def test_a_plan_says_which_way_small_batches_take(mirror: Mirror) -> None:
    def way(sink: Any, schema: Any = T) -> str:
        return str(sink.preview(schema, BatchId("p", "checkpoint", 1), mirror.spark).way)

    sink = mirror.target.sink

    other = table("other", id="int64")
    assert way(mirror.kept) == way(mirror.kept, other) == "by an index of its keys"
    assert way(sink(index_memory=0)) == "by MERGE, because 'index_memory' is 0"
    for options, reason in mirror.refused_options:
        assert way(sink(**options), other).startswith(f"by MERGE, because {reason}")
    assert way(sink(delete_mode="soft"), other) == "by MERGE, because its deleted rows stay"
    assert way(sink(stored_as_scd_type="2"), other) == "by MERGE, because its history is kept"
    assert way(sink(), table("keyless", key=(), id="int64")) == "by MERGE, because it has no key"
    fewer = sink(schema_change_behavior="lenient")
    assert way(fewer, table("t", id="int64")) == "by MERGE, because it has columns that the source's table lacks"
    # Columns that a batch leaves out, or adds first, are no reason against it.
    more = table("t", id="int64", a="string", b="string")
    assert way(sink(schema_change_behavior="ignore"), more) == way(mirror.kept, more) == "by an index of its keys"
    mirror.sql(mirror.refused_change[0])
    assert way(mirror.kept).startswith(f"by MERGE, because {mirror.refused_change[1]}")


def test_a_table_without_an_index_goes_by_merge_which_is_said_once(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.undo()
    statement, reason = mirror.refused_change
    mirror.sql(statement)
    caplog.set_level("INFO")
    for at in (2, 3):
        mirror.bring(Batch(T).add("u", T, at, row(1, f"new {at}")))
    assert mirror.content() == rows({**READ, 1: "new 3"})
    assert [reason in record.message for record in caplog.records if "by MERGE" in record.message] == [True]
    assert mirror.kept._indexes.sizes() == {}


def test_keys_that_need_more_memory_than_there_is_go_by_merge(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.undo()
    kept = mirror.kept._indexes
    kept.most = 100
    caplog.set_level("INFO")
    mirror.bring(Batch(T).add("u", T, 5, row(3, "new")))
    assert mirror.content() == rows({**READ, 3: "new"})
    assert "need more memory" in caplog.text
    assert "need more memory" in mirror.kept.preview(T, BatchId("p", "checkpoint", 1), mirror.spark).way
    # It fits again, when its turn comes.
    kept.most = 1000
    mirror.bring(Batch(T).add("u", T, 6, row(3, "newer")))
    assert kept.sizes() == {}
    while kept.is_left_out(mirror.kept.location(T.id)):
        pass
    mirror.bring(Batch(T).add("u", T, 7, row(3, "newest")))
    assert (len(kept.sizes()), mirror.content()) == (1, rows({**READ, 3: "newest"}))


def test_a_file_that_can_not_be_read_goes_by_merge(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.undo()

    def unreadable(self: IndexedTable[Any]) -> None:
        raise OSError("not there")

    monkeypatch.setattr(IndexedTable, "index", unreadable)
    caplog.set_level("INFO")
    mirror.bring(Batch(T).add("u", T, 5, row(3, "new")))
    assert mirror.content() == rows({**READ, 3: "new"})
    assert "can't be read (not there)" in caplog.text


@pytest.mark.parametrize("mirror", ["delta", "iceberg"], indirect=True)
def test_a_disk_that_is_full_stops_a_batch_in_one_sentence_and_leaves_nothing(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror.bring(Batch(T).add("u", T, 5, row(3, "new")))
    batch = Batch(T).add("u", T, 6, row(3, "newer")).add("d", T, 6, before=row(4, "read 4"))

    def full(self: DataFileWriter, rows: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    version = mirror.version()
    with monkeypatch.context() as patch, pytest.raises(SinkError, match=r"can't be written into the folder .*No space"):
        patch.setattr(DataFileWriter, "write", full)
        mirror.bring(batch)
    assert (mirror.version(), mirror.content()) == (version, rows({**READ, 3: "new"}))
    mirror.bring(batch)
    left = {**READ, 3: "newer"}
    del left[4]
    assert mirror.content() == rows(left)


def test_a_data_file_that_vanished_stops_a_batch_that_needs_it(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror.bring(Batch(T).add("u", T, 5, row(3, "new")))
    monkeypatch.undo()
    (name,) = {line["f"] for line in mirror.read().where("id = 7").selectExpr("input_file_name() as f").collect()}
    file = Path(unquote(urlsplit(name).path))
    content, version = file.read_bytes(), mirror.version()
    file.unlink()
    batch = Batch(T)
    for id in READ.keys() - {7}:
        batch.add("u", T, 6, row(id, "newer"))
    with pytest.raises(SinkError, match="can't be written"):
        mirror.bring(batch)
    assert mirror.version() == version
    file.write_bytes(content)
    mirror.bring(batch)
    assert mirror.content() == rows({**dict.fromkeys(READ, "newer"), 7: "read 7"})


@pytest.mark.smoke("delta-key2", "iceberg-key3")
@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("delta", ("id",)),
        ("delta", ("text",)),
        ("delta", ("id", "day", "text")),
        ("iceberg", ("id", "day", "text")),
        pytest.param("iceberg", ("id",), marks=pytest.mark.system),
        pytest.param("iceberg", ("text",), marks=pytest.mark.system),
        pytest.param("iceberg 3", ("id", "day", "text"), marks=pytest.mark.system),
    ],
)
def test_random_histories_by_both_ways_and_mixed_give_equal_tables(
    spark: Any, tmp_path: Path, kind: str, key: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexed, "YOUNG", 2)
    some = random.Random(len(key))
    schema = table("t", key=key, id="int32", **WIDE)
    ways = {
        name: made(kind, spark, tmp_path / name, index_memory=memory)
        for name, memory in {"by index": 100, "by tasks": 100, "by MERGE": 0, "mixed": 100}.items()
    }
    mixed, most = ways["mixed"], collected.MOST
    both = mixed.kept._indexes
    at = 0
    for _ in range(4):
        batch = Batch(schema)
        for _ in range(some.randrange(1, 15)):
            cells = {
                name: some.choice([*texts, None]) if name not in key else some.choice(texts[:2])
                for name, texts in CELLS.items()
            }
            image = {"id": str(some.randrange(4)), **cells}
            # Some come late.
            at += some.choice([1, 1, 1, -3])
            op = some.choice("ccud")
            batch.add(op, schema, f"{at + 100:08}/{some.randrange(10**9)}", *((None, image) if op == "d" else (image,)))
        mixed.kept._indexes = Bounded(0) if some.random() < 0.5 else both
        for name, mirror in ways.items():
            by_tasks = name == "by tasks" or (mirror is mixed and some.random() < 0.5)
            monkeypatch.setattr(collected, "MOST", 0 if by_tasks else most)
            mirror.bring(batch)
        found = {name: mirror.frame() for name, mirror in ways.items()}
        assert found["by index"] == found["by tasks"] == found["by MERGE"] == found["mixed"]
    assert all(ways[name].kept._indexes.sizes() != {} for name in ("by index", "by tasks"))
    assert ways["by MERGE"].kept._indexes.sizes() == {}

"""What a sink learns of a batch before it writes: per table its structure, counts, and which care it needs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headrace.apply import as_newest, profile
from headrace.apply.column_names import Step
from headrace.apply.profile import TableProfile
from headrace.changes import Column, LogicalType, TableId
from headrace.errors import SchemaError
from headrace.testing.change_history import Batch, pos, table

T = table()


def test_tables_are_told_apart_and_counted(spark: Any) -> None:
    other = table("other")
    rows = Batch(T, other).add("c", T, 1, {"id": "1", "a": "x", "b": "y"}).add("d", other, 2, None, {"id": "1"})
    first, second = profile(rows.rows(spark))
    assert (first.id.name, dict(first.counts)) == ("other", {"d": 1})
    assert (second.id.name, dict(second.counts), second.partial, second.key_changed) == ("t", {"c": 1}, False, False)


def test_a_batch_without_data_says_only_the_structure(spark: Any) -> None:
    (only,) = profile(Batch(T).rows(spark))
    assert only.size == 0
    assert only.schema == T
    assert not only.initial


def test_rows_without_any_structure_are_refused(spark: Any) -> None:
    with pytest.raises(SchemaError, match=r"schema of table db\.dbo\.t is unknown"):
        profile(Batch().add("c", T, 1, {"id": "1", "a": "x", "b": "y"}).rows(spark))


def test_deletes_alone_whose_messages_have_no_value_need_a_schema_of_the_users(spark: Any) -> None:
    batch = Batch().add("d", T, 1, None, {"id": "1"})
    batch.lines[-1]["schema_id"] = None
    with pytest.raises(SchemaError, match=r"only deletes of it, whose messages have no value.* a list of the tables'"):
        profile(batch.rows(spark))
    batch.structure(replace(T, id=TableId("", "dbo", "t")), "")
    (only,) = profile(batch.rows(spark))
    assert (only.schema.key, dict(only.counts)) == (("id",), {"d": 1})


GONE_BEFORE = [
    (("id",), None, None, None),
    (("id",), "0007/", None, "0007/"),
    # A key absorbs a row that is read twice at one commit; without one, the row of the earlier read has to go.
    ((), "0007/", None, "0007/s"),
    ((), "0007/", "0008/0001/1", "0008/0001/1"),
    ((), None, "0008/0001/1", "0008/0001/1"),
]


@pytest.mark.parametrize(("key", "read_again_from", "truncate_at", "before"), GONE_BEFORE)
def test_rows_of_a_target_that_were_not_read_again_go(
    key: tuple[str, ...], read_again_from: str | None, truncate_at: str | None, before: str | None
) -> None:
    schema = replace(T, key=key)
    batch = TableProfile(T.id, schema, {}, truncate_at=truncate_at, read_again_from=read_again_from).emptying
    assert batch.gone_before == before
    # Every position of a read row, and none of a later commit, sorts before it.
    if before == "0007/s":
        assert "0007/r00000:00000000/00000000" < before < "0008/00000000/1"


def test_a_structure_that_only_a_truncate_follows_does_not_take_the_key_away(spark: Any) -> None:
    keyless = replace(T, key=())
    batch = Batch(T).add("c", T, 1, {"id": "1", "a": "x", "b": "y"}).structure(keyless, 2).add("t", keyless, 3)
    (found,) = profile(batch.rows(spark))
    assert (found.schema, found.truncate_at) == (T, pos(3))


def test_rows_with_struct_images_are_refused(spark: Any) -> None:
    rows = Batch(T).rows(spark).selectExpr("op", "struct(1 as id) as after")
    with pytest.raises(SchemaError, match="these images are structs"):
        profile(rows)


@pytest.mark.parametrize("op", ["c", "t"])
def test_a_structure_that_the_user_gave_is_that_of_the_rows_that_have_it(spark: Any, op: str) -> None:
    given = replace(T, id=TableId("", "dbo", "t"))
    other = replace(T, id=TableId("", "dbo", "other"))
    batch = Batch().structure(given, "").structure(other, "")
    batch.add(op, T, 1, None if op == "t" else {"id": "1", "a": "x", "b": "y"})
    batch.lines[-1]["schema_id"] = None if op == "t" else given.fingerprint
    (found,) = profile(batch.rows(spark))
    assert (found.id, found.schema) == (T.id, T)


def test_bytes_and_texts_of_one_column_are_refused(spark: Any) -> None:
    image = {"id": "1", "a": "x", "b": "y"}
    texts, bytes_ = table(), table(id="int32", a="bytes", b="string")
    batch = Batch(bytes_).add("c", bytes_, 1, image).structure(texts, 2).add("u", texts, 3, image)
    with pytest.raises(SchemaError, match=r"Column 'a' of table db\.dbo\.t is .* in some rows of a batch and"):
        profile(batch.rows(spark))
    # Rows in front of a truncate are nowhere.
    emptied = Batch(bytes_).add("c", bytes_, 1, image).add("t", bytes_, 2).structure(texts, 3).add("c", texts, 4, image)
    assert profile(emptied.rows(spark))[0].schema == texts


def test_rows_of_a_structure_that_is_not_there_are_refused(spark: Any) -> None:
    newer = replace(T, columns=(*T.columns, Column("c", 4, LogicalType("string"))))
    with pytest.raises(SchemaError, match="which no schema row of the batch describes"):
        profile(Batch(T).add("c", newer, 1, {"id": "1", "a": "x", "b": "y", "c": "z"}).rows(spark))


@pytest.mark.parametrize(
    ("op", "after", "before", "partial", "key_changed"),
    [
        ("u", {"id": "1", "a": "x", "b": None}, None, False, False),
        ("u", {"id": "1", "a": "x"}, None, True, False),
        ("u", {"id": "2", "a": "x", "b": "y"}, {"id": "1", "a": "x", "b": "y"}, False, True),
        ("u", {"id": "2"}, {"id": "1"}, True, True),
        ("d", None, {"id": "1"}, False, False),
        ("d", None, {"id": "1", "a": "x", "b": "y"}, False, False),
    ],
)
def test_what_care_a_change_needs(
    spark: Any, op: str, after: Any, before: Any, partial: bool, key_changed: bool
) -> None:
    (found,) = profile(Batch(T).add(op, T, 1, after, before).rows(spark))
    assert (found.partial, found.key_changed) == (partial, key_changed)


def test_a_row_of_an_older_structure_lacks_the_newer_columns(spark: Any) -> None:
    newer = replace(T, columns=(*T.columns, Column("c", 4, LogicalType("string"))))
    batch = Batch(T).add("c", T, 1, {"id": "1", "a": "x", "b": "y"}).structure(newer, 2)
    (found,) = profile(batch.rows(spark))
    assert found.schema == newer
    assert found.partial


def test_the_last_truncate_counts(spark: Any) -> None:
    (found,) = profile(Batch(T).add("t", T, 3).add("t", T, 7).add("c", T, 5, {"id": "1", "a": "", "b": ""}).rows(spark))
    assert found.truncate_at == pos(7)


@pytest.mark.parametrize(
    ("snapshot", "op", "initial", "ended"),
    [
        ("true", "r", True, False),
        ("last_in_data_collection", "r", True, True),
        ("incremental", "r", False, False),
        (None, "r", False, False),
        (None, "c", False, False),
    ],
)
def test_which_rows_are_of_a_first_snapshot(spark: Any, snapshot: Any, op: str, initial: bool, ended: bool) -> None:
    (found,) = profile(Batch(T).add(op, T, 1, {"id": "1", "a": "", "b": ""}, snapshot=snapshot).rows(spark))
    assert (found.initial, found.snapshot_ended) == (initial, ended)


@pytest.mark.parametrize(
    ("order", "initial", "read_again_from"),
    [("r00000:00000000", True, "0007/"), ("rr00000200000:00000000", False, "0007/rr000002")],
)
def test_a_later_read_is_no_first_one(spark: Any, order: str, initial: bool, read_again_from: str) -> None:
    batch = Batch(T).add("r", T, f"0007/{order}/00000000", {"id": "1", "a": "", "b": ""}, snapshot="last")
    (found,) = profile(batch.rows(spark))
    assert (found.initial, found.read_again_from) == (initial, read_again_from)


RENAME = "ALTER TABLE t RENAME COLUMN a TO title"
SWAP = "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a"
R = table(id="int32", title="string", b="string")


def test_a_statement_alone_is_of_no_account_unless_it_renames(spark: Any) -> None:
    assert profile(Batch().statement(T, 1, "ALTER TABLE t ADD COLUMN z int").rows(spark)) == []
    (found,) = profile(Batch().statement(T, 1, RENAME).rows(spark))
    assert (found.schema.columns, found.steps) == ((), (Step("rename", "a", "title", captured=True),))


@pytest.mark.parametrize(
    ("batch", "columns", "renamed"),
    [
        (Batch(T).structure(R, 7).statement(T, 6, RENAME), "id title b", {T.fingerprint: {"a": "title"}}),
        (Batch(T).statement(T, 6, RENAME, after=R), "id title b", {T.fingerprint: {"a": "title"}}),
        # The rows that follow the statement come in the next batch.
        (Batch(T).add("c", T, 5, {"id": "1"}).statement(T, 6, RENAME), "id title b", {T.fingerprint: {"a": "title"}}),
        # The statement is older than what follows it: it came twice, or the name came back.
        (Batch(T).statement(T, 4, RENAME).add("c", T, 5, {"id": "1"}), "id a b", {}),
        (Batch(R).statement(R, 4, RENAME).add("c", R, 5, {"id": "1"}), "id title b", {}),
        # Of what was before the one structure there is no row.
        (Batch(T).statement(T, 4, SWAP).add("c", T, 5, {"id": "1"}), "id a b", {}),
    ],
)
def test_rows_from_before_a_rename_are_taken_for_the_columns_new_name(
    spark: Any, batch: Batch, columns: str, renamed: Any
) -> None:
    (found,) = profile(batch.rows(spark))
    assert " ".join(column.name for column in found.schema.columns) == columns
    assert found.renamed == renamed


def test_a_statement_from_another_partition_than_the_rows_may_be_later_than_they(spark: Any) -> None:
    batch = Batch(T).statement(T, 4, RENAME).add("c", T, 5, {"id": "1"})
    for line, partition in zip(batch.lines, (1, 0, 1), strict=True):
        line["message"] = ("topic", partition, 1, None, None, None, None)
    (found,) = profile(batch.rows(spark))
    assert [column.name for column in found.schema.columns] == ["id", "title", "b"]


def test_images_and_keys_come_under_the_new_names(spark: Any) -> None:
    new = table(key=("nr",), nr="int32", title="string", b="string")
    text = "ALTER TABLE t CHANGE id nr int, CHANGE a title text"
    batch = Batch(T).add("u", T, 5, {"id": "1", "a": "x"}, {"id": "1", "a": "w"}).statement(T, 6, text)
    rows = batch.structure(new, 7).add("d", new, 8, None, {"nr": "2"}).rows(spark)
    (found,) = profile(rows)
    got = as_newest(rows, found).where("op <> 'schema'").orderBy("position").select("key", "before", "after")
    assert [tuple(row) for row in got.collect()] == [
        ({"nr": "1"}, {"nr": "1", "title": "w"}, {"nr": "1", "title": "x"}),
        ({"nr": "2"}, {"nr": "2"}, None),
    ]

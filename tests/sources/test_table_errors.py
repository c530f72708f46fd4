"""Rule: where one table of a slice can't be read, an `error` row says so, and every row of the others comes once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.captured_mysql import CapturedMysql
from tests.support.captured_postgres import CapturedPostgres

from headrace.changes import TableId
from headrace.changes.one_table import about
from headrace.errors import CaptureError, ConnectError, HeadraceError, SchemaError
from headrace.sources.base import Slice
from headrace.sources.databases import Offsets
from headrace.sources.reader import ChangeStreamReader
from headrace.sources.rows import change_batch, repeat, table_column
from headrace.sources.table_errors import error_of, rows_of_others

A, B, C = (TableId("shop", "dbo", name) for name in "abc")
Row = tuple[str, str]
"""A position and a table."""


class Broken(CaptureError):
    """A special case, as sources have them."""


class Log:
    """A slice of rows in batches; at some rows of a table it can't be read.

    Args:
        rows: in order.
        size: of a batch.
        broken: the positions that can't be read, with the error.
    """

    def __init__(self, rows: list[Row], size: int, broken: dict[Row, HeadraceError]) -> None:
        self.rows, self.size, self.broken = rows, size, broken
        self.readings = 0

    def read(self, slice: Slice) -> Iterator[pa.RecordBatch]:
        self.readings += 1
        assert slice.tables is not None
        wanted = [row for row in self.rows if f"dbo.{row[1]}" in slice.tables]
        for first in range(0, len(wanted), self.size):
            part = wanted[first : first + self.size]
            for row in part:
                if row in self.broken:
                    raise self.broken[row]
            yield pa.concat_batches([batch(*row) for row in part])

    def without(self, slice: Slice, table: str) -> Slice | None:
        assert slice.tables is not None
        left = tuple(one for one in slice.tables if one != table)
        return Slice(slice.kind, {}, tables=left) if left else None


def batch(position: str, table: str) -> pa.RecordBatch:
    return change_batch(
        1,
        {
            "op": repeat("c", pa.string(), 1),
            "table": table_column(TableId("shop", "dbo", table), 1),
            "position": pa.array([position]),
        },
    )


def read(log: Log) -> list[tuple[str, str, str | None]]:
    whole = Slice("stream", {}, tables=("dbo.a", "dbo.b", "dbo.c"))
    return [
        (row["position"], row["table"]["name"], row["error"])
        for found in rows_of_others(whole, log.read, log.without)
        for row in found.to_pylist()
    ]


@given(
    st.lists(st.tuples(st.sampled_from("123456"), st.sampled_from("abc")), max_size=12, unique=True).map(sorted),
    st.integers(1, 5),
    st.sets(st.sampled_from("abc"), max_size=2),
    st.data(),
)
def test_each_row_of_the_others_comes_once_and_in_order(
    rows: list[Row], size: int, broken: set[str], data: st.DataObject
) -> None:
    troubles: dict[Row, HeadraceError] = {}
    for name in sorted(broken):
        own = [row for row in rows if row[1] == name]
        if own:
            table = TableId("shop", "dbo", name)
            troubles[data.draw(st.sampled_from(own))] = about(SchemaError(f"no {name}"), table)
    found = read(Log(rows, size, troubles))
    out = {table for _, table in troubles}
    assert [(p, t) for p, t, error in found if error is None and t not in out] == [r for r in rows if r[1] not in out]
    assert sorted(error for *_, error in found if error) == sorted(f"no {name}" for name in out)


def test_a_slice_of_that_table_alone_ends_there() -> None:
    log = Log([("1", "a"), ("2", "a")], 1, {("2", "a"): about(SchemaError("no"), A)})
    only = Slice("snapshot", {}, tables=("dbo.a",))
    found = [row for part in rows_of_others(only, log.read, log.without) for row in part.to_pylist()]
    assert ([row["op"] for row in found], log.readings) == (["c", "error"], 1)


def test_the_row_says_the_error_again() -> None:
    log = Log([("1", "a")], 1, {("1", "a"): about(Broken("Column 'n' is odd.", remedy="Mend it."), A)})
    [row] = next(rows_of_others(Slice("s", {}, tables=("dbo.a",)), log.read, log.without)).to_pylist()
    error = error_of(A, row["error"], dict(row["source"]))
    assert (type(error), str(error), error.remedy, error.table) == (
        CaptureError,
        "Column 'n' is odd. Mend it.",
        "Mend it.",
        A,
    )


@pytest.mark.parametrize("error", [SchemaError("of nobody"), ConnectError("away"), about(SchemaError("x"), B)])
def test_any_other_error_and_one_that_leaves_nothing_to_read_alone_is_raised(error: HeadraceError) -> None:
    log = Log([("1", "b")], 1, {("1", "b"): error})
    with pytest.raises(type(error)):
        list(rows_of_others(Slice("s", {}, tables=("dbo.b", "dbo.c")), log.read, lambda slice, table: slice))


def read_on(database: Any, start: dict[str, Any], **options: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """All that a reader gives after an offset, and where it ends."""
    source = "postgresql" if database.source == "postgresql" else "mysql"
    reader, rows = ChangeStreamReader(source, {**database.options, **options}), []
    reader.partitions(start, start)
    while (end := json.loads(json.dumps(reader.latestOffset()))) != start:
        for partition in reader.partitions(start, end):
            rows += [row for found in reader.read(partition) for row in found.to_pylist()]
        start = end
    return rows, start


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_change_without_its_key_keeps_no_other_table_from_being_read(
    kind: str, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue("postgres_database" if kind == "postgresql" else "mariadb_database")
    database = CapturedPostgres(server) if kind == "postgresql" else CapturedMysql(server)
    for table in "abc":
        database.create(table, "id int not null primary key, v int not null", [(1, 1), (2, 2)])
    keyed = {"message_key_columns": f"{database.schema}.b:v"}
    _, start = read_on(database, Offsets().to_json(), **keyed)
    if kind == "postgresql":
        database.execute("ALTER TABLE b REPLICA IDENTITY DEFAULT")
    with database.transaction() as cursor:
        if kind == "mariadb":
            cursor.execute("SET SESSION binlog_row_image = MINIMAL")
        for table in "abcab":
            cursor.execute(f"UPDATE {table} SET v = v + 10 WHERE id = 1")
            cursor.execute(f"DELETE FROM {table} WHERE id = 2")
            cursor.execute(f"INSERT INTO {table} VALUES (2, 3)")
    with pytest.raises(CaptureError, match="does not have all columns of the table's key"):
        read_on(database, start, **keyed)
    rows, _ = read_on(database, start, parksTables="true", **keyed)
    said = [row for row in rows if row["op"] == "error"]
    assert [(row["table"]["name"], dict(row["source"])["table_error"]) for row in said] == [("b", "CaptureError")]
    others = [(row["table"]["name"], row["op"]) for row in rows if row["op"] in "ucd" and row["table"]["name"] != "b"]
    assert others == [(table, op) for table in "aca" for op in "udc"]

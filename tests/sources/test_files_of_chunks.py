"""Rule: rows of a chunk go into a file only where the batch has no other rows of their table, and what the file does
not take is given as change rows beside what it holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.table_files import ATTEMPT, WRITTEN, WRITTEN_ROWS, TableFile, WrittenFile
from headrace.sources.base import Slice
from headrace.sources.images import constant_map
from headrace.sources.reader import only_chunks
from headrace.sources.snapshots.chunks import Chunk
from headrace.sources.snapshots.snapshot_rows import SnapshotRows
from headrace.sources.tables.masks import NO_MASKS

SCHEMA = TableSchema(TableId("d", "s", "t"), (Column("id", 1, LogicalType("int32")),), ("id",))


def chunk(table: str, kind: str = "snapshot", database: str = "d") -> tuple[str, Slice]:
    return database, Slice(kind, {}, tables=(table,))


STREAM = ("d", Slice("stream", {}))
SLICES = (
    ([], set()),
    ([chunk("s.a"), chunk("s.a"), chunk("s.b")], {0, 1, 2}),
    ([chunk("s.a"), chunk("s.b"), chunk("s.b", "markers")], {0}),
    ([chunk("s.a"), chunk("s.a", "incremental")], set()),
    ([chunk("s.a"), STREAM], set()),
    ([chunk("s.a", database="other"), STREAM], {0}),
    ([("d", Slice("snapshot", {})), chunk("s.b")], {1}),
)


@pytest.mark.parametrize("slices, places", SLICES)
def test_a_table_with_rows_of_another_kind_in_the_batch_has_no_file(
    slices: list[tuple[str, Slice]], places: set[int]
) -> None:
    assert only_chunks(slices) == places


class Even(TableFile):
    """Takes rows whose first id is even."""

    attempt = "attempt-1"

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.ended: list[str] = []

    def write(self, texts: Sequence[pa.Array], position: str) -> bool:
        taken = int(texts[0][0].as_py()) % 2 == 0
        self.ids += texts[0].to_pylist() if taken else []
        return taken

    def close(self) -> WrittenFile:
        self.ended.append("closed")
        return WrittenFile(len(self.ids), self.attempt, "{}")

    def discard(self) -> None:
        self.ended.append("discarded")


def given(file: TableFile | None, *, read: int = 0, numbered: bool = False, closing: str | None = "last") -> list[Any]:
    rows = SnapshotRows("x", SCHEMA, NO_MASKS, lambda commit, n: constant_map({"connector": "x"}, n), None)
    of = Chunk("s.t", 0, 3, None, None, "0001", None, closing, read)
    blocks = [[pa.array(ids, pa.string())] for ids in (["1", "2"], ["4", "6"], [], ["8"])]
    return [line for batch in rows.of_chunk(of, blocks, numbered=numbered, file=file) for line in batch.to_pylist()]


@pytest.mark.parametrize("closing", [None, "last_in_data_collection", "last"])
def test_rows_that_a_file_does_not_take_are_given_with_its_attempt_and_a_schema_row_says_the_rest(
    closing: str | None,
) -> None:
    file = Even()
    *rows, end = given(file, closing=closing)
    assert file.ids == ["4", "6", "8"]
    assert [(row["op"], dict(row["after"]), dict(row["source"])[ATTEMPT]) for row in rows] == [
        ("r", {"id": "1"}, "attempt-1"),
        ("r", {"id": "2"}, "attempt-1"),
    ]
    assert end["op"] == "schema"
    assert end["snapshot"] == closing
    assert dict(end["source"])[WRITTEN_ROWS] == "3"
    assert WrittenFile.from_text(dict(end["source"])[WRITTEN]) == WrittenFile(3, "attempt-1", "{}")
    assert file.ended == ["closed", "discarded"]


@pytest.mark.parametrize("read, numbered", [(1, False), (0, True)])
def test_rows_of_a_later_read_or_without_a_key_are_all_given(read: int, numbered: bool) -> None:
    file = Even()
    assert [row["op"] for row in given(file, read=read, numbered=numbered)] == ["r"] * 5
    assert not file.ended
    assert given(file, read=read, numbered=numbered) == given(None, read=read, numbered=numbered)


def test_a_reading_that_fails_leaves_no_file() -> None:
    class Full(Even):
        def write(self, texts: Sequence[pa.Array], position: str) -> bool:
            raise OSError("No space left on device")

    file = Full()
    with pytest.raises(OSError, match="No space"):
        given(file)
    assert file.ended == ["discarded"]

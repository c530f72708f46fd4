"""What marks rows of Iceberg tables as deleted stays little, and rows of format 3 keep their numbers."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.lake_mirror import Mirror, T, made

from headrace.sinks.lake import indexed
from headrace.sinks.lake.iceberg.deletes import rows_of_positions, write_positions, write_vectors
from headrace.sinks.lake.storage import Folder
from headrace.sinks.lake.vectors import unframed
from headrace.testing.change_history import Batch

ROWS = st.lists(st.integers(0, 2**40), min_size=1, unique=True).map(lambda rows: np.array(sorted(rows), np.int64))
FILES = st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1), ROWS, min_size=1, max_size=4)


@given(FILES, FILES)
def test_vectors_are_read_as_they_were_written(tmp_path_factory: pytest.TempPathFactory, a: Any, b: Any) -> None:
    folder = tmp_path_factory.mktemp("vectors")
    vectors = write_vectors(Folder(str(folder)), "s3://lake/data", {"{}": a, '{"1000":1}': b})
    (file,) = folder.iterdir()
    content = file.read_bytes()
    assert {(v.path, v.size) for v in vectors} == {(f"s3://lake/data/{file.name}", len(content))}
    read = []
    for vector in vectors:
        assert vector.offset is not None and vector.length is not None
        rows = unframed(content[vector.offset : vector.offset + vector.length], file.name)
        read.append((vector.partition, *vector.rows, rows.tolist()))
    wanted = [("{}", path, rows.tolist()) for path, rows in a.items()]
    assert read == wanted + [('{"1000":1}', path, rows.tolist()) for path, rows in b.items()]
    # The footer of the file says the same of them.
    (length,) = struct.unpack("<I", content[-12:-8])
    blobs = json.loads(content[-12 - length : -12])["blobs"]
    assert [(b["offset"], b["length"]) for b in blobs] == [(v.offset, v.length) for v in vectors]
    assert (content[:4], content[-4:], content[-16 - length : -12 - length]) == (b"PFA1",) * 3


@given(FILES)
def test_positions_are_read_as_they_were_written(tmp_path_factory: pytest.TempPathFactory, marks: Any) -> None:
    folder = tmp_path_factory.mktemp("positions")
    write_positions(Folder(str(folder)), "s3://lake/data", "{}", marks)
    (file,) = folder.iterdir()
    read = rows_of_positions(pq.ParquetFile(file))
    assert {path: rows.tolist() for path, rows in read.items()} == {path: rows.tolist() for path, rows in marks.items()}


@pytest.mark.parametrize("damage", [b"", b"\0\0\0\1", b"\0\0\0\4abcd\0\0\0\0"])
def test_a_vector_that_is_damaged_is_refused(damage: bytes) -> None:
    with pytest.raises(ValueError, match=r"the deletion vector in x\.puffin is damaged"):
        unframed(damage, "x.puffin")


def read(mirror: Mirror, count: int) -> Mirror:
    first = Batch(T)
    for n in range(count):
        snapshot = "last" if n == count - 1 else "true"
        first.add("r", T, 1, {"id": str(n), "a": f"read {n}"}, snapshot=snapshot)
    return mirror.bring(first)


def deletes(mirror: Mirror) -> list[Any]:
    """Those that the newest snapshot has."""
    found = mirror.target.table()  # type: ignore[union-attr]
    return found.session.sql(f"select * from {found.sql_name}.delete_files").collect()  # type: ignore[no-any-return]


def update(mirror: Mirror, number: int, *ids: int) -> None:
    batch = Batch(T)
    for id in ids:
        batch.add("u", T, 10 + number, {"id": str(id), "a": f"new {number}"})
    mirror.bring(batch)


def test_files_of_positions_that_add_up_become_one(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexed, "YOUNG", 4)
    mirror = read(made("iceberg", spark, tmp_path / "lake"), 400)
    most = 0
    for number in range(14):
        update(mirror, number, number, 100 + number)
        if number == 6:
            mirror.sql("delete from {} where id = 300")
        most = max(most, len(deletes(mirror)))
    expected = {n: f"read {n}" for n in range(400) if n != 300}
    expected |= {n: f"new {n % 100}" for n in (*range(14), *range(100, 114))}
    assert mirror.content() == sorted(((n, a) for n, a in expected.items()), key=repr)
    # Each of the 15 commits has brought one or more.
    assert most <= 8
    # Somebody else takes back a commit that replaced some.
    mirror.undo()
    update(mirror, 20, 113, 300)
    expected |= {13: "read 13", 113: "new 20", 300: "new 20"}
    assert mirror.content() == sorted(((n, a) for n, a in expected.items()), key=repr)


def numbers(mirror: Mirror) -> dict[int, tuple[int, int]]:
    """Of each row its number, and that of the commit that changed it last."""
    lines = mirror.read().selectExpr("id", "_row_id", "_last_updated_sequence_number as at").collect()
    return {line["id"]: (line["_row_id"], line["at"]) for line in lines}


def test_rows_of_format_3_keep_their_numbers_wherever_they_move(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexed, "YOUNG", 3)
    mirror = read(made("iceberg 3", spark, tmp_path / "lake"), 40)
    before = numbers(mirror)
    for number in range(12):
        # More than half of a file goes in the end, and small files become one.
        update(mirror, number, number, 15 + number, 100 + number)
        now = numbers(mirror)
        changed = {number, 15 + number, 100 + number}
        assert {id: n for id, n in now.items() if id not in changed} == {
            id: n for id, n in before.items() if id not in changed
        }
        assert len({row for row, _ in now.values()}) == len(now)
        assert all(now[id] != before.get(id) for id in changed)
        before = now
    assert mirror.files() <= 5


def test_rows_get_their_numbers_when_their_table_is_raised_to_format_3(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = read(made("iceberg", spark, tmp_path / "lake"), 40)
    update(mirror, 1, 1, 2)
    mirror.sql("alter table {} set tblproperties ('format-version' = '3')")
    update(mirror, 2, 3)
    before = numbers(mirror)
    monkeypatch.setattr(indexed, "YOUNG", 3)
    for number in range(3, 8):
        update(mirror, number, 10)
    after = numbers(mirror)
    del before[10], after[10]
    assert after == before
    assert mirror.files() <= 4


def test_a_table_that_is_raised_to_format_3_has_one_vector_for_each_file(spark: Any, tmp_path: Path) -> None:
    mirror = read(made("iceberg", spark, tmp_path / "lake"), 40)
    update(mirror, 1, 1, 2)
    update(mirror, 2, 3)
    mirror.sql("alter table {} set tblproperties ('format-version' = '3')")
    update(mirror, 3, 1, 4)
    update(mirror, 4, 5)
    mirror.sql("delete from {} where id = 6")
    update(mirror, 5, 7)
    expected = {n: f"read {n}" for n in range(40) if n != 6}
    expected |= {1: "new 3", 2: "new 1", 3: "new 2", 4: "new 3", 5: "new 4", 7: "new 5"}
    assert mirror.content() == sorted(expected.items(), key=repr)
    vectors = [line["referenced_data_file"] for line in deletes(mirror) if line["file_format"] == "PUFFIN"]
    assert len(vectors) == len(set(vectors)) > 0
    # What others read: an index that is made anew finds the same.
    again = mirror.successor()
    again.number = mirror.number
    update(again, 6, 8)
    assert mirror.content() == sorted((expected | {8: "new 6"}).items(), key=repr)

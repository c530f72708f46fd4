"""A Delta log says which files a version has, from commits and checkpoints alike. What is not known is not guessed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.sinks.lake.delta.live_files import LiveFiles, names_in_log
from headrace.sinks.lake.indexed import LogUnreadable
from headrace.sinks.lake.storage import Folder

VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
    "offset": 4,
    "sizeInBytes": 40,
    "cardinality": 6,
}


def add(path: str, **more: Any) -> dict[str, Any]:
    entry = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 2, "dataChange": True}
    return {"add": {**entry, **more}}


def remove(path: str) -> dict[str, Any]:
    return {"remove": {"path": path, "dataChange": True}}


def commit(table: Path, version: int, *actions: dict[str, Any]) -> None:
    (table / "_delta_log").mkdir(parents=True, exist_ok=True)
    lines = "\n".join(json.dumps(action) for action in ({"commitInfo": {}}, *actions))
    (table / "_delta_log" / f"{version:020d}.json").write_text(lines)


def checkpoint(table: Path, name: str, *adds: dict[str, Any]) -> None:
    entry = pa.struct(
        [
            ("path", pa.string()),
            ("partitionValues", pa.map_(pa.string(), pa.string())),
            ("size", pa.int64()),
            ("modificationTime", pa.int64()),
            ("dataChange", pa.bool_()),
            ("tags", pa.map_(pa.string(), pa.string())),
            (
                "deletionVector",
                pa.struct(
                    [
                        ("storageType", pa.string()),
                        ("pathOrInlineDv", pa.string()),
                        ("offset", pa.int32()),
                        ("sizeInBytes", pa.int32()),
                        ("cardinality", pa.int64()),
                        ("maxRowIndex", pa.int64()),
                    ]
                ),
            ),
            ("stats", pa.string()),
            ("stats_parsed", pa.struct([("numRecords", pa.int64())])),
        ]
    )
    rows: list[Any] = [None, *(action["add"] for action in adds)]
    path = table / "_delta_log" / name
    pq.write_table(pa.table({"add": pa.array(rows, entry)}), path)


def test_files_come_go_and_are_marked_from_version_to_version(tmp_path: Path) -> None:
    commit(tmp_path, 0, add("a"), add("b"))
    # A file that is marked goes and comes in one commit, in any order.
    commit(tmp_path, 1, add("a", deletionVector=VECTOR), remove("a"), remove("b"))
    commit(tmp_path, 2, add("c"), remove("a"))
    files = LiveFiles(Folder(str(tmp_path)))
    found = []
    for version in (0, 1, 2, 0, 2):
        files.advance(version)
        found.append({path: "deletionVector" in entry for path, entry in files.entries.items()})
    assert found == [{"a": False, "b": False}, {"a": True}, {"c": False}, {"a": False, "b": False}, {"c": False}]


@pytest.mark.parametrize("parts", [1, 2])
def test_a_checkpoint_says_of_a_file_what_its_commit_said(tmp_path: Path, parts: int) -> None:
    entries = [add("a", deletionVector=VECTOR, stats='{"numRecords":3}'), add("b", tags={"x": "y"})]
    commit(tmp_path, 5, add("c"))
    middle = [""] if parts == 1 else [f".{n:010d}.{parts:010d}" for n in range(1, parts + 1)]
    for n, name in enumerate(middle):
        checkpoint(tmp_path, f"{4:020d}.checkpoint{name}.parquet", *(entries if parts == 1 else entries[n : n + 1]))
    # Of a later checkpoint a part is missing, and another one is of a later version.
    checkpoint(tmp_path, f"{5:020d}.checkpoint.{1:010d}.{2:010d}.parquet", add("wrong"))
    checkpoint(tmp_path, f"{9:020d}.checkpoint.parquet", add("later"))
    files = LiveFiles(Folder(str(tmp_path)))
    files.advance(5)
    assert files.entries == {**{one["add"]["path"]: one["add"] for one in entries}, "c": add("c")["add"]}


def test_a_version_that_is_not_there_is_refused_and_the_next_one_is_read_from_the_start(tmp_path: Path) -> None:
    commit(tmp_path, 0, add("a"))
    files = LiveFiles(Folder(str(tmp_path)))
    files.advance(0)
    commit(tmp_path, 2, add("c"))
    with pytest.raises(LogUnreadable, match=r"00000000000000000001\.json"):
        files.advance(2)
    checkpoint(tmp_path, f"{1:020d}.checkpoint.parquet", add("b"))
    files.advance(2)
    assert {*files.entries} == {"b", "c"}


def test_names_of_files_are_decoded_and_other_places_refused(tmp_path: Path) -> None:
    files = LiveFiles(Folder(str(tmp_path)))
    assert files.location("a%20b/c.parquet") == str(tmp_path / "a b" / "c.parquet")
    for path in ("/elsewhere/a.parquet", "s3a://bucket/a.parquet", "file:/elsewhere/a.parquet"):
        with pytest.raises(LogUnreadable, match="outside of its folder"):
            files.location(path)


def test_a_log_names_files_of_all_versions_in_commits_checkpoints_and_sidecars(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        names_in_log(folder)
    commit(tmp_path, 7, add("a"), add("p=1/b%20c"), remove("gone"), add("file:/else%20where/d"))
    checkpoint(tmp_path, f"{5:020d}.checkpoint.parquet", add("e"))
    (tmp_path / "_delta_log" / "_sidecars").mkdir()
    checkpoint(tmp_path, "_sidecars/0b0a.parquet", add("f"))
    (tmp_path / "_delta_log" / f"{6:020d}.checkpoint.0b0a.json").write_text(json.dumps(add("g")) + "\n")
    (tmp_path / "_delta_log" / f"{7:020d}.crc").write_text("{")
    assert names_in_log(folder) == {"a", "b c", "gone", "d", "e", "f", "g"}

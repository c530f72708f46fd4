"""Tasks fold and write the rows of a large batch; the driver finds the last change of each key among all of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.apply import TableProfile
from headrace.errors import SchemaError, SinkError
from headrace.sinks.lake import folded_files
from headrace.sinks.lake.collected import fold_texts
from headrace.sinks.lake.delta.table import PreparedDelta
from headrace.sinks.lake.folded_files import TableToWrite, combine, fold_into_files
from headrace.sinks.lake.storage import Folder
from headrace.sinks.lake.whole_rows import CollectedRows
from headrace.testing.change_history import pos, table

IMAGE = pa.map_(pa.string(), pa.string())
KINDS = {"id": "int32", "n": "decimal(9,2)", "a": "string"}


def of_table(folder: Path, key: tuple[str, ...] = ("id",), *, decoded: bool = False) -> TableToWrite:
    schema = table("t", key=key, **KINDS)
    prepared = PreparedDelta(
        Folder(str(folder)), {"id": "int", "n": "decimal(9,2)", "a": "string"}, "_at", "", (), {}, {}, ("id",)
    )
    profile = TableProfile(schema.id, schema, {schema.fingerprint: 3}, {"u": 1}, decoded=decoded)
    return TableToWrite(profile, prepared, frozenset(), "target")


def change(at: int | str, op: str, **image: Any) -> dict[str, Any]:
    cells = [(name, None if value is None else str(value)) for name, value in image.items()]
    return {
        "position": pos(at),
        "comes": op != "d",
        "after": cells if op != "d" else None,
        "key": None,
        "before": cells if op == "d" else None,
    }


def texts(changes: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    kinds = {"position": pa.string(), "comes": pa.bool_(), "after": IMAGE, "key": IMAGE, "before": IMAGE}
    return pa.RecordBatch.from_pylist(list(changes), pa.schema(list(kinds.items())))


def written(change: CollectedRows, folder: Path) -> list[tuple[Any, ...]]:
    """The rows that come, as the files have them, and the keys that go."""
    assert change.written is not None
    found = []
    for (file, _), lost in zip(change.written.files, change.written.superseded, strict=True):
        rows = pq.read_table(folder / file.path).to_pylist()
        assert len(rows) == file.rows
        found += [tuple(row.values()) for number, row in enumerate(rows) if number not in lost]
    gone = change.rows.filter(pa.compute.invert(change.comes)).to_pylist()
    return sorted(found, key=repr) + sorted((tuple(row.values()) for row in gone), key=repr)


@pytest.mark.parametrize("key", [("id",), ("n",), ("a", "id")])
def test_however_rows_lie_in_tasks_the_last_change_of_each_key_is_one(
    tmp_path: Path, key: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = random.Random(len(key))
    monkeypatch.setattr(folded_files, "_ROWS", 7)
    asked = of_table(tmp_path, key)
    changes = [
        change(at, made.choice("cud"), id=made.randrange(6), n=f"{made.randrange(3)}.{made.choice(['5', '50'])}", a="x")
        for at in made.sample(range(1_000), 80)
    ]
    tasks: list[list[pa.RecordBatch]] = [[] for _ in range(4)]
    while changes:
        some, changes = changes[: (size := made.randrange(1, 6))], changes[size:]
        made.choice(tasks).append(texts(some))
    results = [one for batches in tasks for one in fold_into_files(batches, asked)]
    found = combine(results, asked)
    every = pa.Table.from_batches([batch for batches in tasks for batch in batches])
    expected = fold_texts(every, asked.profile, frozenset(), "_at", "target")
    assert found is not None and expected is not None
    comes = expected.rows.filter(expected.comes).select(asked.prepared.schema.names).to_pylist()
    gone = expected.rows.filter(pa.compute.invert(expected.comes)).select([*key, "_at"]).to_pylist()
    wanted = [sorted((tuple(row.values()) for row in part), key=repr) for part in (comes, gone)]
    assert written(found, tmp_path) == wanted[0] + wanted[1]
    assert comes and gone


def test_a_row_that_another_task_supersedes_stays_in_its_file_and_is_marked(tmp_path: Path) -> None:
    asked = of_table(tmp_path)
    tasks = [
        [change(1, "c", id=1, n=1, a="old"), change(2, "c", id=2, n=1, a="stays")],
        [change(3, "d", id=1, n=1, a="")],
    ]
    results = [one for task in tasks for one in fold_into_files([texts(task)], asked)]
    found = combine(results, asked)
    assert found is not None and found.written is not None
    assert [rows.tolist() for rows in found.written.superseded] == [[0]]
    assert written(found, tmp_path)[:1] == [(2, pytest.approx(1), "stays", pos(2))]
    assert found.comes.to_pylist() == [True, False]


def test_a_value_that_is_left_to_spark_leaves_no_file(tmp_path: Path) -> None:
    asked = of_table(tmp_path)
    tasks = [[change(1, "c", id=1, n=1, a="x")], [change(2, "c", id=2, n="NaN", a="x")]]
    results = [one for task in tasks for one in fold_into_files([texts(task)], asked)]
    assert [isinstance(one, list) for one in results] == [True, False]
    assert list(tmp_path.iterdir())
    assert combine(results, asked) is None
    assert not list(tmp_path.iterdir())


def test_changes_without_an_order_stop_wherever_they_lie(tmp_path: Path) -> None:
    asked = of_table(tmp_path, decoded=True)
    ats = [f"{7 + partition:020}/1/@{partition:08}" for partition in (0, 1)]
    changes = [change(at, "u", id=1, n=1, a="x") for at in ats]
    for tasks in ([changes], [[one] for one in changes]):
        results = [one for task in tasks for one in fold_into_files([texts(task)], asked)]
        with pytest.raises(SchemaError, match=r"several Kafka partitions .* for the target"):
            combine(results, asked)


def test_a_folder_that_takes_no_file_is_one_sentence_from_the_driver(tmp_path: Path) -> None:
    asked = of_table(tmp_path)
    asked = replace(asked, prepared=replace(asked.prepared, folder=Folder(str(tmp_path / "missing"))))
    results = list(fold_into_files([texts([change(1, "c", id=1, n=1, a="x")])], asked))
    with pytest.raises(SinkError, match=r"Rows can't be written into the folder .* You can repeat the batch\."):
        combine(results, asked)


def test_a_file_that_the_driver_does_not_find_stops_the_batch(tmp_path: Path) -> None:
    """As where a task runs on a machine with a disk of its own."""
    asked = of_table(tmp_path)
    results = list(fold_into_files([texts([change(1, "c", id=1, n=1, a="x")])], asked))
    (file,) = tmp_path.iterdir()
    file.rename(file.with_suffix(".elsewhere"))
    with pytest.raises(
        SinkError, match=r"the driver does not find it there\. Give the sink a folder that all machines"
    ):
        combine(results, asked)

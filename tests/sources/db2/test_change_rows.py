"""Rule: a D and an I row are an update when they stand side by side in one transaction and have one key."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.db2_change_table import COLUMNS, NATIVES, rows_of

from headrace.changes import TableId, TableSchema
from headrace.errors import CaptureError
from headrace.sources.change_tables.commit_times import CommitTimes
from headrace.sources.db2.change_rows import ChangeReader
from headrace.sources.tables.masks import NO_MASKS, TableMasks


def told(rows):
    """`d 1`, `c 2`, `u 1:a>b`."""
    found = []
    for row in rows:
        before, after = (dict(row[name] or ()) for name in ("before", "after"))
        if row["op"] == "u":
            found.append(f"u {after['ID']}:{before.get('V', '?')}>{after['V']}")
        else:
            found.append(f"{row['op']} {(after or before)['ID']}")
    return found


CASES = {
    "an update": (["1 D 1 a", "1 I 1 b"], ["u 1:a>b"]),
    "a delete beside an insert of another row": (["1 D 1 a", "1 I 2 b"], ["d 1", "c 2"]),
    "an update that changes the key": (["1 D 1 a", "1 I 9 a"], ["d 1", "c 9"]),
    "a delete and an insert in two transactions": (["1 D 1 a", "2 I 1 b"], ["d 1", "c 1"]),
    "several updates": (["1 D 1 a", "1 I 1 b", "1 D 2 a", "1 I 2 c"], ["u 1:a>b", "u 2:a>c"]),
    "two deletes and two inserts": (["1 D 1 a", "1 D 2 b", "1 I 2 c", "1 I 3 d"], ["d 1", "u 2:b>c", "c 3"]),
    "a delete and two inserts": (["1 D 1 a", "1 I 1 b", "1 I 2 c"], ["u 1:a>b", "c 2"]),
    "an insert before a delete": (["1 I 1 a", "1 D 1 a"], ["c 1", "d 1"]),
    "an update of one row after the other": (["1 D 1 a", "1 I 1 b", "1 D 1 b", "1 I 1 c"], ["u 1:a>b", "u 1:b>c"]),
    "a delete at the end": (["1 I 1 a", "1 D 2 a"], ["c 1", "d 2"]),
    "an update captured as one row": (["1 U 1 b"], ["u 1:?>b"]),
    "a value that becomes null": (["1 D 1 a", "1 I 1 -"], ["u 1:a>None"]),
}


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize(("changes", "expected"), CASES.values(), ids=CASES)
def test_rows_become_changes_wherever_a_batch_ends(changes, expected, size):
    assert told(rows_of(changes, size=size)) == expected


@pytest.mark.parametrize("size", [1, 100])
def test_without_a_key_every_delete_that_an_insert_follows_is_an_update(size):
    assert told(rows_of(["1 D 1 a", "1 I 2 b", "1 D 3 c"], key=(), size=size)) == ["u 2:a>b", "d 3"]


def test_an_update_stands_where_its_new_row_does():
    [row] = rows_of(["7 D 1 a", "7 I 1 b"])
    commit = "00000000:00000000:0000000000000007"
    assert dict(row["source"]) == {
        "connector": "db2",
        "change_lsn": "00000000:00000000:0000000000000001",
        "commit_lsn": commit,
    }
    assert row["position"] == f"{commit}/00000000:00000000:0000000000000001/0"
    assert row["key_text"] == '["1"]'


def test_positions_grow_with_the_log():
    rows = rows_of(["1 I 1 a", "1 D 1 a", "1 I 1 b", "2 D 1 b", "10 I 2 c"])
    positions = [row["position"] for row in rows]
    assert positions == sorted(positions)
    assert len(set(positions)) == len(rows) == 4


def test_operations_and_updates_without_a_change_are_left_out_where_options_say_so():
    changes = ["1 D 1 a", "1 I 1 a", "1 D 2 a", "1 I 2 b", "1 I 3 c", "1 D 4 d"]
    assert told(rows_of(changes, skip_unchanged=True)) == ["u 2:a>b", "c 3", "d 4"]
    assert told(rows_of(changes, skipped=("u", "d"))) == ["c 3"]


def test_a_row_that_no_capture_program_writes_is_an_error():
    with pytest.raises(CaptureError, match="operation other than I, U and D"):
        rows_of(["1 X 1 a"])


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize("masked", [False, True])
def test_values_before_are_put_to_their_update_wherever_a_batch_ends(size, masked):
    raw = [
        # sequence, operation, ID, V, value of V before, value of ID before
        ("1", "U", 1, "b", "a", 1), ("1", "D", 2, "x", "x", 2), ("1", "I", 2, "y", None, None),
        ("1", "U", 4, None, "z", 3),
        ("2", "D", 4, None, None, 4), ("2", "U", 5, "n", None, 5), ("2", "I", 6, "m", None, None),
    ]  # fmt: skip
    rows = [(f"{int(c):032X}", f"{n:032X}", *rest) for n, (c, *rest) in enumerate(raw)]
    batches = [
        pa.RecordBatch.from_arrays(
            [pa.array(column) for column in zip(*rows[start : start + size], strict=True)], names=list("csoivwj")
        )
        for start in range(0, len(rows), size)
    ]
    schema = TableSchema(TableId("db", "S", "T"), COLUMNS, ("ID",))
    masks = TableMasks(((1, lambda texts, _: pc.utf8_upper(texts), None),)) if masked else NO_MASKS
    options = {"before_columns": ["V", "ID"], "weighted": True, "masks": masks}
    reader = ChangeReader(schema, NATIVES, ("ID",), "t", CommitTimes.unknown(), None, **options)
    found = [row for batch in reader.read(iter(batches)) for row in batch.to_pylist()]
    expected = [
        ("u", ["1", "a"], ["1", "b"], 1), ("u", ["2", "x"], ["2", "y"], 1), ("u", ["3", "z"], ["4", None], 2),
        ("d", ["4", None], None, 1), ("u", ["5", None], ["5", "n"], 1), ("c", None, ["6", "m"], 1),
    ]  # fmt: skip

    def shown(values):
        return values and [values[0], values[1].upper() if masked and values[1] else values[1]]

    images = [
        [None if row[name] is None else [v for _, v in row[name]] for name in ("before", "after")] for row in found
    ]
    assert [(row["op"], *pair, row["transaction"]["total_order"]) for row, pair in zip(found, images, strict=True)] == [
        (op, shown(before), shown(after), weight) for op, before, after, weight in expected
    ]
    positions = [row["position"] for row in found]
    assert positions == sorted(set(positions))

"""Data files without Spark: what their columns hold, how Delta's log says it, and which rows are marked."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sinks.lake.data_files import DataFileWriter, arrow_type, write_data_file
from headrace.sinks.lake.delta.actions import added, indexed_columns, marked, removed, statistics
from headrace.sinks.lake.delta.deletion_vectors import read_vector, write_vectors
from headrace.sinks.lake.partitions import UNPARTITIONED
from headrace.sinks.lake.storage import Folder

LAST = "\U0010ffff"

BOUNDS = [
    ("bigint", [3, None, -(2**63), 2**63 - 1], -(2**63), 2**63 - 1),
    ("decimal(38,9)", [Decimal("0.000000001"), Decimal("-9" * 1)], Decimal("-9.000000000"), Decimal("0.000000001")),
    ("double", [0.0, 1.5], -0.0, 1.5),
    ("double", [-0.0, -1.5], -1.5, 0.0),
    ("double", [1.0, float("nan")], None, None),
    ("double", [1.0, float("inf")], 1.0, None),
    ("double", [float("-inf"), 1.0], None, 1.0),
    ("float", [0.1], 0.10000000149011612, 0.10000000149011612),
    ("boolean", [True, False], None, None),
    ("binary", [b"a", b"b"], None, None),
    ("string", ["b", "a" * 40], "a" * 32, "b"),
    ("string", ["z" * 33], "z" * 32, "z" * 32 + LAST),
    ("string", ["z" * 32 + LAST + "y"], "z" * 32, "z" * 32 + LAST + LAST),
    ("string", ["z" * 32 + LAST], "z" * 32, "z" * 32 + LAST),
    ("string", ['"\\\n\u0000é\U0001f600'], '"\\\n\u0000é\U0001f600', '"\\\n\u0000é\U0001f600'),
    ("string", ["\uffff", "\U00010000"], "\uffff", "\U00010000"),
    ("date", [-719162, 2932896], "0001-01-01", "9999-12-31"),
    ("date", [-719163, 2932897], None, None),
    ("timestamp_ntz", [-1, 1], "1969-12-31T23:59:59.999", "1970-01-01T00:00:00.001"),
    ("timestamp", [-1, 1_000], "1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00.001Z"),
    ("timestamp", [253402300799999999], "9999-12-31T23:59:59.999Z", None),
    ("int", [None, None], None, None),
]


def column(kind: str, values: list[Any]) -> pa.Array:
    wanted = arrow_type(kind)
    if kind in ("date", "timestamp", "timestamp_ntz"):
        return pa.array(values, pa.int32() if kind == "date" else pa.int64()).cast(wanted)
    return pa.array(values, wanted)


def said(folder: Path, rows: pa.Table, indexed: tuple[str, ...] = ("c",)) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        statistics(write_data_file(Folder(str(folder)), rows), rows.schema, indexed, {}), parse_float=Decimal
    )
    return found


@pytest.mark.parametrize(("kind", "values", "least", "greatest"), BOUNDS)
def test_statistics_hold_every_value(tmp_path: Path, kind: str, values: list[Any], least: Any, greatest: Any) -> None:
    found = said(tmp_path, pa.table({"c": column(kind, values)}))
    ends = found["minValues"].get("c"), found["maxValues"].get("c")
    assert ends == tuple(Decimal(repr(v)) if isinstance(v, float) else v for v in (least, greatest))
    if isinstance(least, float) and least == 0:
        assert str(ends[0]) == "-0.0"
    if isinstance(greatest, float) and greatest == 0:
        assert str(ends[1]) == "0.0"
    assert found["nullCount"] == {"c": values.count(None)}
    assert found["numRecords"] == len(values)
    assert found["tightBounds"] is True


@given(st.lists(st.text(alphabet=st.sampled_from(["a", "é", "\uffff", "\U00010000", LAST]), max_size=70), min_size=1))
def test_bounds_of_texts_hold_every_text(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    found = said(tmp_path_factory.mktemp("t"), pa.table({"c": pa.array(texts)}))
    assert found["minValues"]["c"].encode() <= min(text.encode() for text in texts)
    assert found["maxValues"]["c"].encode() >= max(text.encode() for text in texts)


def test_a_file_that_is_written_in_parts_is_known_as_a_whole(tmp_path: Path) -> None:
    schema = pa.schema([("c", pa.int64()), ("f", pa.float64())])
    with DataFileWriter(Folder(str(tmp_path)), schema) as writer:
        for values in ([5, None], [None, None], [-5]):
            writer.write(pa.table({"c": values, "f": [float(v) if v else None for v in values]}, schema))
        file = writer.close()
    assert (file.rows, file.size) == (5, (tmp_path / file.path).stat().st_size)
    assert (file.ranges["c"].nulls, file.ranges["c"].least, file.ranges["f"].greatest) == (3, -5, 5.0)
    assert pq.read_table(tmp_path / file.path)["c"].to_pylist() == [5, None, None, None, -5]


def test_an_attempt_that_fails_leaves_no_file(tmp_path: Path) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        DataFileWriter(Folder(str(tmp_path)), pa.schema([("c", pa.int64())])) as writer,
    ):
        writer.write(pa.table({"c": [1]}))
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_columns_have_statistics_as_the_table_says() -> None:
    names = [f"c{n}" for n in range(40)]
    assert indexed_columns(names, {}) == tuple(names[:32])
    assert indexed_columns(names, {"delta.dataSkippingNumIndexedCols": "-1"}) == tuple(names)
    assert indexed_columns(names, {"delta.dataSkippingNumIndexedCols": "0"}) == ()
    assert indexed_columns(names, {"delta.dataSkippingStatsColumns": "`c39`, C1"}) == ("c1", "c39")


@pytest.mark.parametrize(
    "rows", [[0], [5, 65_535, 65_536], list(range(70_000)), list(range(0, 200_000, 3)), [2**32 - 1, 2**32, 2**33 + 7]]
)
def test_vectors_read_as_they_were_written(tmp_path: Path, rows: list[int]) -> None:
    other = np.array([7], np.int64)
    described = write_vectors(Folder(str(tmp_path)), [other, np.array(rows, np.int64)])
    assert [one["cardinality"] for one in described] == [1, len(rows)]
    assert read_vector(Folder(str(tmp_path)), described[0]).tolist() == [7]
    assert read_vector(Folder(str(tmp_path)), described[1]).tolist() == rows
    assert len(list(tmp_path.iterdir())) == 1


def test_a_vector_in_the_log_is_read(tmp_path: Path) -> None:
    """As the protocol's text has it: rows 3, 4, 7, 11, 18 and 29."""
    given = "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
    in_log = {"storageType": "i", "pathOrInlineDv": given, "sizeInBytes": 44, "cardinality": 6}
    assert read_vector(Folder(str(tmp_path)), in_log).tolist() == [3, 4, 7, 11, 18, 29]


def test_a_damaged_vector_is_refused(tmp_path: Path) -> None:
    (described,) = write_vectors(Folder(str(tmp_path)), [np.array([1, 2], np.int64)])
    file = next(tmp_path.iterdir())
    body = bytearray(file.read_bytes())
    body[-6] ^= 1
    file.write_bytes(body)
    with pytest.raises(ValueError, match="damaged"):
        read_vector(Folder(str(tmp_path)), described)


def test_no_vector_makes_no_file(tmp_path: Path) -> None:
    assert write_vectors(Folder(str(tmp_path)), []) == []
    assert list(tmp_path.iterdir()) == []


def test_a_marked_file_keeps_what_the_log_says_of_it(tmp_path: Path) -> None:
    digits = '{"numRecords":3,"minValues":{"c":12345678901234567890.10,"t":"é"},"tightBounds":true}'
    file = write_data_file(Folder(str(tmp_path)), pa.table({"c": [1, 2, 3]}))
    entry = {**added(file, digits, UNPARTITIONED, {}, {})["add"], "tags": {"x": "y"}}
    now = marked(entry, {"cardinality": 1}, 3)["add"]
    assert now["stats"] == digits.replace('"tightBounds":true', '"tightBounds":false')
    assert (now["path"], now["tags"], now["deletionVector"]) == (file.path, {"x": "y"}, {"cardinality": 1})
    assert removed(now, 7)["remove"] == {
        "path": file.path,
        "partitionValues": {},
        "size": file.size,
        "tags": {"x": "y"},
        "deletionVector": {"cardinality": 1},
        "deletionTimestamp": 7,
        "dataChange": True,
        "extendedFileMetadata": True,
    }


def test_a_marked_file_without_statistics_says_how_many_rows_it_has() -> None:
    entry = {"path": "a.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    assert json.loads(marked(entry, {"cardinality": 1}, 9)["add"]["stats"]) == {"numRecords": 9, "tightBounds": False}

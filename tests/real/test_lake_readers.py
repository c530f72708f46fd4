"""Rule: whichever way a lake table is written, other programs read what Spark reads, and find every value by a filter.

DuckDB, deltalake and pyiceberg have an environment of their own, in which Headrace is not installed.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.environments import environment
from tests.support.lake_mirror import CELLS, WIDE, Mirror, made

from headrace.sinks.lake import collected
from headrace.testing.change_history import Batch, table

VERSION = "1.5.5"
PACKAGES = (
    f"duckdb=={VERSION}",
    f"duckdb-extension-avro=={VERSION}",
    f"duckdb-extension-delta=={VERSION}",
    f"duckdb-extension-iceberg=={VERSION}",
    "deltalake==1.6.6",
    "pyiceberg[pyarrow]==0.12.0",
)
READERS = {"delta": ("duckdb", "deltalake"), "iceberg": ("duckdb", "pyiceberg"), "iceberg 3": ("duckdb", "pyiceberg")}

pytestmark = [pytest.mark.real, pytest.mark.jvm]


def written(mirror: Mirror) -> Mirror:
    """A table that got rows with the extremes of all types, and lost and changed some of them."""
    schema = table("t", id="int32", **WIDE)

    def row(id: int, shift: int = 0) -> dict[str, str | None]:
        cells = {name: [*texts, None][(id + shift) % (len(texts) + 1)] for name, texts in CELLS.items()}
        return {"id": str(id), **cells}

    first = Batch(schema)
    for id in range(20):
        first.add("r", schema, 1, row(id), snapshot="last" if id == 19 else "true")
    mirror.bring(first)
    for number in range(2, 5):
        batch = Batch(schema).add("d", schema, 10 * number, row(number))
        for id in (5, 5 + number, 20 + number):
            batch.add("u" if id < 20 else "c", schema, 10 * number + 1, row(id, number))
        mirror.bring(batch)
    return mirror


def read_by(reader: str, kind: str, place: Path, folder: Path) -> tuple[pa.Table, list[Any]]:
    """All rows, and the cells that a filter did not find."""
    folder.mkdir()
    python = environment(f"lake-readers-{VERSION}", PACKAGES) / "python"
    program = Path(__file__).with_name("lake_reader.py")
    command = [python, program, reader, kind.removesuffix(" 3"), place, folder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    with pa.OSFile(str(folder / "rows.arrow")) as file:
        return pa.ipc.open_file(file).read_all(), json.loads((folder / "lost.json").read_text())


@pytest.mark.parametrize("way", ["index", "tasks", "MERGE"])
@pytest.mark.parametrize("kind", list(READERS))
def test_other_programs_read_what_spark_reads(
    spark: Any, tmp_path: Path, kind: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "tasks":
        monkeypatch.setattr(collected, "MOST", 0)
    mirror = written(made(kind, spark, tmp_path / "lake", index_memory=0 if way == "MERGE" else 100))
    assert bool(mirror.kept._indexes.sizes()) is (way != "MERGE")
    expected = mirror.read().orderBy("id").toArrow()
    versions = (tmp_path / "lake").rglob("*.metadata.json")
    place = tmp_path / "lake/dbo/t" if kind == "delta" else max(versions, key=lambda file: file.stat().st_mtime_ns)
    for reader in READERS[kind]:
        rows, lost = read_by(reader, kind, place, tmp_path / reader)
        rows = rows.select(expected.column_names).cast(expected.schema).sort_by("id")
        # As texts, which tell the two zeros apart and find a NaN equal to another.
        assert repr(rows.to_pylist()) == repr(expected.to_pylist()), reader
        assert lost == [], reader

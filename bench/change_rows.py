"""Rows per second from driver Arrow batches to change rows, on one core, for a 10-column table.

What it measures: `ChangeReader` and the snapshot's conversion, the whole Python path between the driver's fetch and
Spark. Beside it, in the same run, what a user would write by hand: `to_pylist` and one dict per row. Medians of the
runs; nothing is asserted.

    python bench/change_rows.py [--rows 1000000] [--runs 5]
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from headrace.changes import Column, TableId, TableSchema
from headrace.changes.types import arrow_text
from headrace.sources.change_tables.windows import CommitTimes
from headrace.sources.images import Images
from headrace.sources.sqlserver.change_rows import ChangeReader
from headrace.sources.sqlserver.types import NativeType

BATCH = 32_768
COLUMNS = [
    ("id", NativeType("bigint", 8, 19, 0)),
    ("customer", NativeType("int", 4, 10, 0)),
    ("name", NativeType("nvarchar", 100, 0, 0)),
    ("city", NativeType("varchar", 50, 0, 0)),
    ("price", NativeType("decimal", 9, 12, 2)),
    ("weight", NativeType("float", 8, 53, 0)),
    ("ordered_at", NativeType("datetime2", 8, 23, 3)),
    ("paid", NativeType("bit", 1, 1, 0)),
    ("due", NativeType("date", 3, 10, 0)),
    ("quantity", NativeType("smallint", 2, 5, 0)),
]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    # Affinity rather than hope: "on one core" must be true.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    raw = list(_change_table(arguments.rows))
    rows = sum(batch.num_rows for batch in raw)
    subjects: dict[str, Callable[[], int]] = {
        "change rows (stream, maps)": lambda: _drain(_reader().read(iter(raw))),
        "images as maps only": lambda: sum(_maps(batch) for batch in raw),
        "images as positional arrays only": lambda: sum(_arrays(batch) for batch in raw),
        "by hand: to_pylist and dicts": lambda: sum(_by_hand(batch) for batch in raw[: max(1, len(raw) // 10)]),
    }
    times: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(arguments.runs):
        for name, subject in subjects.items():
            started = time.perf_counter()
            seen = subject()
            times[name].append((time.perf_counter() - started) / seen)
    print(f"{rows:,} rows of {len(COLUMNS)} columns, median of {arguments.runs} runs, one core")
    for name, found in times.items():
        print(f"{name:40} {1 / statistics.median(found):12,.0f} rows/s")


def _change_table(rows: int) -> Iterator[pa.RecordBatch]:
    random = np.random.default_rng(7)
    for first in range(0, rows, BATCH):
        count = min(BATCH, rows - first)
        numbers = np.arange(first, first + count)
        commits = [(0x27 << 48 | int(n) // 100 + 1).to_bytes(10, "big") for n in numbers]
        changes = [(0x26 << 48 | int(n) + 1).to_bytes(10, "big") for n in numbers]
        columns = [
            pa.array(commits, pa.binary()),
            pa.array(changes, pa.binary()),
            pa.array(np.full(count, 2, dtype=np.int32)),
            pa.array([b"\x03\xff"] * count, pa.binary()),
            pa.array((numbers % 100).astype(np.int32)),
            pa.array(numbers),
            pa.array((numbers % 50_000).astype(np.int32)),
            pa.array([f"customer {n % 50_000}" for n in numbers]),
            pa.array(["Vienna" if n % 3 else "Gr\u00e4z" for n in numbers]),
            pa.array(numbers * 7 % 10**9).cast(pa.decimal128(21, 2)),
            pa.array(random.random(count)),
            pa.array(numbers * 1_000_000, pa.timestamp("us")),
            pa.array(numbers % 2 == 0),
            pa.array((numbers % 20_000).astype(np.int32)).cast(pa.date32()),
            pa.array((numbers % 100).astype(np.int16)),
        ]
        names = [
            "__$start_lsn",
            "__$seqval",
            "__$operation",
            "__$update_mask",
            "__$command_id",
            *(n for n, _ in COLUMNS),
        ]
        yield pa.RecordBatch.from_arrays(columns, names=names)


def _reader() -> ChangeReader:
    columns = tuple(Column(name, i + 1, native.logical) for i, (name, native) in enumerate(COLUMNS))
    schema = TableSchema(TableId("shop", "dbo", "orders"), columns, ("id",))
    commit = (0x27 << 48 | 1).to_bytes(10, "big").hex()
    times = CommitTimes(
        pa.array([f"{commit[:8]}:{commit[8:16]}:{commit[16:]}"]),
        pa.array([dt.datetime(2026, 1, 1, tzinfo=dt.UTC)], pa.timestamp("us", tz="UTC")),
    )
    return ChangeReader(schema, [n for _, n in COLUMNS], range(1, 11), "dbo_orders", times, dt.datetime.now(dt.UTC))


def _drain(batches: Iterator[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)


def _texts(batch: pa.RecordBatch) -> list[pa.Array]:
    return [arrow_text(batch.column(5 + i), native.logical) for i, (_, native) in enumerate(COLUMNS)]


def _maps(batch: pa.RecordBatch) -> int:
    rows = np.arange(batch.num_rows)
    return len(Images([n for n, _ in COLUMNS], _texts(batch)).maps(rows, len(rows), rows))


def _arrays(batch: pa.RecordBatch) -> int:
    texts = _texts(batch)
    rows, width = batch.num_rows, len(texts)
    picks = (np.arange(rows)[:, None] + np.arange(width)[None, :] * rows).ravel()
    cells = pa.concat_arrays(texts).take(pa.array(picks))
    return len(pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32) * width), cells))


def _by_hand(batch: pa.RecordBatch) -> int:
    names = [name for name, _ in COLUMNS]
    found = []
    for row in batch.to_pylist():
        found.append({"op": "c", "after": {name: None if row[name] is None else str(row[name]) for name in names}})
    return len(found)


if __name__ == "__main__":
    main()

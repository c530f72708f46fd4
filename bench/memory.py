"""Peak memory of the driver's JVM, the planner and each Python worker while a big snapshot and one huge commit go
through the source, with Spark's default driver of 1 GB.

A table of 8 columns is filled in bulk on the emulated SQL Server and read into Spark's `noop` sink; then one
transaction updates many of its rows, and its change rows are read the same way. Peaks are the kernel's own (`VmHWM`),
taken from /proc twice a second, since the start of each process; pages that workers share with the daemon they were
forked from count for each. The emulator's SQLite runs inside the planner and the workers, so a real server would need
less there. The process that fills and captures is another one and does not count.

    python bench/memory.py [--rows 1000000] [--changes 500000] [--worker-mb 500]

The exit code is 1 when a Python process needed more than `--worker-mb`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import headrace
from headrace.spark.session import spark_session
from headrace_emulators.sqlserver import EmulatedServer

TABLE = """
CREATE TABLE dbo.orders (
    id bigint NOT NULL PRIMARY KEY, customer int NOT NULL, name nvarchar(100), price decimal(12,2), weight float,
    ordered_at datetime2(3), quantity smallint, note nvarchar(200))
"""
BLOCK = 200_000
MEGABYTE = 1024
"""VmHWM is in kilobytes."""


def main() -> int:
    """Fill, read, print; 1 when the goal was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=500_000)
    parser.add_argument("--worker-mb", type=int, default=500)
    parser.add_argument("--driver-memory", default="1g")
    parser.add_argument(
        "--folder", default=None, help="where the emulated server is put; it needs about 1 GB per 2M rows"
    )
    arguments = parser.parse_args()
    changes = min(arguments.changes, arguments.rows)
    folder = Path(tempfile.mkdtemp(prefix="headrace-memory-", dir=arguments.folder))
    try:
        peaks = measure(folder, arguments.rows, changes, arguments.driver_memory)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    worst = max(peak for kind, _, peak in peaks if kind != "driver JVM")
    print(f"largest Python process {worst} MB, goal {arguments.worker_mb} MB")
    return int(worst > arguments.worker_mb)


def measure(folder: Path, rows: int, changes: int, driver_memory: str) -> list[tuple[str, int, int]]:
    """Run both stages; what each process needed at the most, over all stages."""
    aside(fill, folder, rows)
    spark = spark_session("memory", conf={"spark.driver.memory": driver_memory})
    headrace.register(spark)
    options = {"driver": "emulator", "hostname": str(folder / "server"), "database": "bench"}
    stream = spark.readStream.format("sqlserver_cdc").options(**options).load()
    peaks: list[tuple[str, int, int]] = []
    query = None
    for name, count in (("snapshot", rows), ("one commit", changes)):
        if name == "one commit":
            aside(change, folder, changes)
        began = time.perf_counter()
        with sampled() as found:
            query = (
                stream.writeStream.format("noop")
                .option("checkpointLocation", str(folder / "checkpoint"))
                .trigger(processingTime="100 milliseconds")
                .start()
            )
            query.processAllAvailable()
            seconds = time.perf_counter() - began
            query.stop()
        batches = [progress for progress in query.recentProgress if progress.numInputRows]
        speed = f"{count:,} rows in {seconds:.1f} s, {count / seconds:,.0f} rows/s"
        print(f"{name}: {speed}; {len(batches)} batches with rows", flush=True)
        for kind, pid, peak in found():
            print(f"  {kind:14} {pid:>8} {peak:>6} MB peak", flush=True)
            peaks.append((kind, pid, peak))
    spark.stop()
    return peaks


def aside(work: object, folder: Path, count: int) -> None:
    """Do it in a process of its own, which is gone before anything is measured."""
    began = time.perf_counter()
    process = multiprocessing.get_context("spawn").Process(target=work, args=(folder, count))
    process.start()
    process.join()
    if process.exitcode:
        sys.exit(f"{work} ended with {process.exitcode}")
    print(f"({work.__name__} {count:,} rows: {time.perf_counter() - began:.1f} s)", flush=True)


def fill(folder: Path, rows: int) -> None:
    """The table and its rows, before capture is switched on."""
    with EmulatedServer(folder / "server").create_database("bench") as database:
        database.execute(TABLE)
        for first in range(0, rows, BLOCK):
            database.load("dbo.orders", block(first, min(BLOCK, rows - first)))
        database.execute(
            "EXEC sys.sp_cdc_enable_table @source_schema = 'dbo', @source_name = 'orders', @role_name = NULL"
        )
        database.capture()


def change(folder: Path, changes: int) -> None:
    """One transaction that updates that many rows."""
    with EmulatedServer(folder / "server").database("bench") as database:
        database.execute(f"UPDATE dbo.orders SET customer = customer + 1, note = N'changed' WHERE id < {changes}")
        database.capture()


def block(first: int, count: int) -> pa.Table:
    """Rows of `dbo.orders` as the loader takes them."""
    numbers = np.arange(first, first + count)
    texts = pa.array(numbers).cast(pa.string())
    return pa.table(
        {
            "id": numbers,
            "customer": numbers % 50_000,
            "name": pc.binary_join_element_wise("customer", pa.array(numbers % 50_000).cast(pa.string()), " "),
            "price": pc.binary_join_element_wise(pa.array(numbers % 10_000).cast(pa.string()), "25", "."),
            "weight": (numbers % 1000) / 7,
            "ordered_at": pa.array(["2024-01-01 10:20:30.000"] * count),
            "quantity": numbers % 100,
            "note": pc.binary_join_element_wise("a note of some length that says nothing much about order", texts, " "),
        }
    )


@contextmanager
def sampled() -> Iterator[object]:
    """Watch every process below this one; gives a function that tells what was seen, largest first."""
    peaks: dict[int, tuple[str, int]] = {}
    ending = threading.Event()

    def watch() -> None:
        while not ending.is_set():
            for pid in below(os.getpid()):
                peak, kind = peak_of(pid), kind_of(pid)
                if kind:
                    peaks[pid] = (kind, max(peak, peaks.get(pid, ("", 0))[1]))
            ending.wait(0.5)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield lambda: sorted(((k, pid, peak // MEGABYTE) for pid, (k, peak) in peaks.items()), key=lambda p: -p[2])
    finally:
        ending.set()
        watcher.join()


def below(parent: int) -> list[int]:
    """The descendants of a process."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                above = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # Gone since it was listed.
            children.setdefault(above, []).append(int(entry.name))
    found, todo = [], [parent]
    while todo:
        todo += (mine := children.get(todo.pop(), []))
        found += mine
    return found


def kind_of(pid: int) -> str:
    """What the process is; empty for what is not ours to count, or gone."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
    if "org.apache.spark.deploy.SparkSubmit" in command:
        return "driver JVM"
    if "python_streaming_source_runner" in command:
        return "planner"
    return "Python worker" if "pyspark" in command else ""


def peak_of(pid: int) -> int:
    """The peak resident set in kilobytes."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0)


if __name__ == "__main__":
    sys.exit(main())

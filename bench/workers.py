"""Memory and start of Python workers that read and write messages, many of them on one machine, without Spark.

    python bench/workers.py [--workers 2 16] [--batches 10]

Processes are forked as PySpark's daemon forks workers, with formats loaded before the fork and without. Each decodes
and encodes Canal messages of ten columns, batches of 10,000, and then waits until all are measured: proportional set
size (pages that several share count in parts), resident and virtual size, the largest so far where the kernel keeps
it, and the CPU that it took until its first batch was decoded and encoded.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

FORMAT = "canal_json"
TYPES = {
    "id": "int", "customer": "bigint", "name": "varchar(100)", "note": "varchar(100)", "amount": "decimal(12,2)",
    "price": "double", "active": "tinyint(1)", "day": "date", "made": "datetime(6)", "code": "varchar(100)",
}  # fmt: skip


def message(number: int) -> bytes:
    """An update of one row."""
    row = {
        "id": str(number), "customer": str(number * 7), "name": f"name {number}",
        "note": f'a longer piece of text, with é and "quotes" {number % 1000}', "amount": f"{number}.25",
        "price": str(number / 3), "active": str(number % 2), "day": "2024-02-29", "made": "2017-07-14 02:40:00.000001",
        "code": f"x{number % 97}",
    }  # fmt: skip
    said = {"data": [row], "old": [{"code": "y"}], "type": "UPDATE", "database": "db", "table": "t", "es": 1, "ts": 2}
    return json.dumps({**said, "id": 1, "isDdl": False, "pkNames": ["id"], "mysqlType": TYPES}).encode()


def work(batches: int) -> float:
    """Decode and encode that many batches; the CPU until the first one was done."""
    before = time.process_time()
    import pyarrow as pa

    from headrace.changes import TableSchema
    from headrace.formats.codec import KAFKA, ArrowFormat, Facts, run_codec
    from headrace.formats.convert import format_named

    ready, first = time.process_time() - before, 0.0
    for batch in range(batches):
        lines = [
            {"topic": "t", "offset": n, "value": message(n)} for n in range(batch * 10_000, batch * 10_000 + 10_000)
        ]
        messages = pa.RecordBatch.from_pylist(lines, KAFKA)
        before = time.process_time()
        codecs = format_named(FORMAT, {})
        assert isinstance(codecs, ArrowFormat)
        rows = pa.concat_batches(list(run_codec(codecs.decoder(Facts()), [messages])))
        schema = TableSchema.from_text(rows.column("table_schema")[0].as_py())
        changes = rows.append_column("has_types", rows.column("op").is_valid())
        assert sum(made.num_rows for made in run_codec(codecs.encoder(Facts((schema,))), [changes])) >= 10_000
        first = first or ready + time.process_time() - before
    return first


def measure(workers: int, batches: int, loaded: bool) -> None:
    """Fork, let all work, print medians."""
    import pyspark.daemon  # noqa: F401 PySpark's daemon has loaded it before it forks.

    if loaded:
        from headrace.spark.daemon import load_formats

        load_formats(FORMAT)
    told, say = os.pipe()
    wait, go = os.pipe()
    children = []
    for _ in range(workers):
        child = os.fork()
        if not child:
            os.close(go)
            os.write(say, f"{work(batches):10.3f}".encode())
            os.read(wait, 1)
            os._exit(0)
        children.append(child)
    first = [float(os.read(told, 10)) for _ in children]
    found = {name: statistics.median(memory(child)[name] for child in children) for name in memory(children[0])}
    os.close(go)
    for child in children:
        os.waitpid(child, 0)
    sizes = " | ".join(f"{value / 1024:,.0f}" for value in found.values())
    print(f"| {workers} | {'yes' if loaded else 'no'} | {sizes} | {statistics.median(first):.2f} |", flush=True)


def memory(pid: int) -> dict[str, int]:
    """Sizes of a process in kB."""
    found = {}
    for file, names in (("smaps_rollup", ("Pss", "Rss")), ("status", ("VmHWM", "VmPeak"))):
        text = Path(f"/proc/{pid}/{file}").read_text()
        lines = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        found |= {name: int(lines[name].split()[0]) for name in names}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 16])
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--loaded", choices=("yes", "no"), help="one line only")
    given = parser.parse_args()
    if given.loaded:
        measure(given.workers[0], given.batches, given.loaded == "yes")
        return
    print(
        "| workers | loaded before | PSS, MB | resident, MB | largest, MB | virtual, MB | CPU of the first batch, s |"
    )
    print("|---|---|---|---|---|---|---|", flush=True)
    for workers in given.workers:
        for loaded in ("no", "yes"):
            arguments = ["--workers", str(workers), "--batches", str(given.batches), "--loaded", loaded]
            subprocess.run([sys.executable, __file__, *arguments], check=True)


if __name__ == "__main__":
    main()

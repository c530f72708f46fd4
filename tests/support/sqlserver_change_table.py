"""Rows of a change table of SQL Server as the driver gives them, read as the source reads them."""

import datetime as dt

import pyarrow as pa

from headrace.changes import Column, TableId, TableSchema
from headrace.sources.change_tables.commit_times import CommitTimes
from headrace.sources.sqlserver.change_rows import ChangeReader
from headrace.sources.sqlserver.types import NativeType

INT = NativeType("int", 4, 10, 0)
VARCHAR = NativeType("varchar", 50, 0, 0)
MAX = NativeType("nvarchar", -1, 0, 0)
TEXT = NativeType("text", 16, 0, 0)
TIME = dt.datetime(2019, 6, 5, 10, 11, 8, 470000, dt.UTC)


def table(columns, key=("id",)):
    found = tuple(Column(name, i + 1, t.logical, t.name, large=t.large) for i, (name, t) in enumerate(columns))
    return TableSchema(TableId("testDB", "dbo", "t"), found, key)


def lsn(number):
    return (0x27 << 48 | number).to_bytes(10, "big")


def lsn_text(number):
    digits = lsn(number).hex()
    return f"{digits[:8]}:{digits[8:16]}:{digits[16:]}"


def read(rows, columns, *, size=1000, key=("id",), ordinals=None, **options):
    """Rows are (commit, change, operation, mask, command, *values)."""
    arrow = {"int": pa.int32(), "varchar": pa.string(), "nvarchar": pa.string(), "text": pa.string()}
    schema = pa.schema(
        [
            ("__$start_lsn", pa.binary()),
            ("__$seqval", pa.binary()),
            ("__$operation", pa.int32()),
            ("__$update_mask", pa.binary()),
            ("__$command_id", pa.int32()),
            *((name, arrow[t.name]) for name, t in columns),
        ]
    )
    data = [(lsn(r[0]), lsn(r[1]), *r[2:]) for r in rows]
    batches = [
        pa.RecordBatch.from_arrays(
            [pa.array(c, f.type) for c, f in zip(zip(*data[i : i + size], strict=True), schema, strict=True)],
            schema=schema,
        )
        for i in range(0, len(data), size)
    ]
    commits = sorted({r[0] for r in rows})
    times = CommitTimes(
        pa.array([lsn_text(c) for c in commits]), pa.array([TIME] * len(commits), pa.timestamp("us", tz="UTC"))
    )
    reader = ChangeReader(
        table(columns, key),
        [t for _, t in columns],
        ordinals or range(1, len(columns) + 1),
        "dbo_t",
        times,
        TIME,
        **options,
    )
    return [row for batch in reader.read(iter(batches)) for row in batch.to_pylist()]


PAIR = (("id", INT), ("name", VARCHAR))

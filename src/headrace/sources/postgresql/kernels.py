"""Compile what reads PostgreSQL's log, once for a machine: `python -m headrace.sources.postgresql.kernels`.

As `headrace.formats.kernels` does for messages: a log with a row of each kind goes through the decoder. Without it the
first batch waits some seconds.
"""

from __future__ import annotations

import datetime as dt
import struct

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.formats.kernels import main
from headrace.sources.postgresql.captured_table import PostgresTable
from headrace.sources.postgresql.decode import WindowDecoder
from headrace.sources.postgresql.options import PostgresSettings
from headrace.sources.postgresql.types import TypeCatalog

_TYPES = {"id": 23, "flag": 16, "text": 25, "items": 1009, "at": 1184, "ratio": 701, "made": 1083, "raw": 17}
_ROW = (b"1", b"t", b"a", b"{a}", b"2024-02-29 01:02:03.5+00", b"0.5", b"01:02:03.5", b"\\x00")
_TABLE, _XID, _START, _COMMIT, _END = 7, 1, 100, 200, 300
_OPTIONS = {"database": "d", "provide_transaction_metadata": True, "skip_messages_without_change": True}


def compile_all() -> None:
    types = TypeCatalog()
    schema = TableSchema(TableId("d", "s", "t"), (Column("id", 1, LogicalType("int32"), "int4"),), ("id",))
    table = PostgresTable(schema, (types.resolve(_TYPES["id"]),), oid=_TABLE, leaves=(_TABLE,))
    settings = PostgresSettings.parse(_OPTIONS, owner="source 'postgresql'")
    time = dt.datetime(2024, 2, 29, tzinfo=dt.UTC)
    decoder = WindowDecoder(_START, _END, {_TABLE: table}, types, settings, "d", time)
    for _ in (*decoder.feed(_log()), *decoder.finish()):
        pass


def _log() -> list[bytes]:
    columns = [
        struct.pack(">B", name == "id") + name.encode() + b"\0" + struct.pack(">Ii", oid, -1)
        for name, oid in _TYPES.items()
    ]
    table = struct.pack(">I", _TABLE)
    new = b"N" + _tuple(_ROW)
    key = b"K" + _tuple((b"2", *[None] * (len(_ROW) - 1)))
    messages = [
        b"B" + struct.pack(">qqI", _COMMIT, 0, _XID),
        b"R" + table + b"s\0t\0d" + struct.pack(">h", len(columns)) + b"".join(columns),
        b"I" + table + new,
        b"U" + table + key + new,
        b"D" + table + key,
        b"C" + struct.pack(">Bqqq", 0, _COMMIT, _END, 0),
    ]
    return [b"w" + struct.pack(">qqq", _START, _START, 0) + message for message in messages]


def _tuple(values: tuple[bytes | None, ...]) -> bytes:
    cells = [b"n" if value is None else b"t" + struct.pack(">i", len(value)) + value for value in values]
    return struct.pack(">h", len(values)) + b"".join(cells)


if __name__ == "__main__":
    main(compile_all, "PostgreSQL's log")

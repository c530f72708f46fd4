"""Compile what reads the binary log, once for a machine: `python -m headrace.sources.mysql.kernels`.

As `headrace.formats.kernels` does for messages: a log with a row of each kind goes through the decoder. Without it the
first batch waits some seconds.
"""

from __future__ import annotations

import datetime as dt
import struct
import zlib
from collections.abc import Generator

import pyarrow as pa

from headrace.changes import Column, TableId, TableSchema
from headrace.formats.kernels import main
from headrace.sources.mysql.binlog_position import FIRST, BinlogPosition
from headrace.sources.mysql.captured_table import MysqlTable
from headrace.sources.mysql.charsets import texts_of
from headrace.sources.mysql.decode import WindowDecoder
from headrace.sources.mysql.events import ARTIFICIAL, HEADER_SIZE, EventType
from headrace.sources.mysql.options import MysqlSettings
from headrace.sources.mysql.transactions import Prepared
from headrace.sources.mysql.types import DOUBLE, LONG, VARCHAR, NativeType
from headrace.sources.mysql.window import Window

_OPTIONS = {"provide_transaction_metadata": True, "skip_messages_without_change": True}
_NATIVES = {"id": NativeType("int"), "ratio": NativeType("double"), "name": NativeType("varchar", length=9)}
_ROW = b"\0" + struct.pack("<id", 1, 0.5) + b"\x01a"
_OTHER = b"\0" + struct.pack("<id", 2, 0.5) + b"\x01b"


def compile_all() -> None:
    columns = tuple(Column(name, position, native.logical, native.name) for position, (name, native) in
                    enumerate(_NATIVES.items(), 1))  # fmt: skip
    table = MysqlTable(TableSchema(TableId("d", "", "t"), columns, ("id",)), tuple(_NATIVES.values()), ("id",))
    log = _log()
    window = Window(BinlogPosition(0, 1, FIRST), BinlogPosition(0, 1, FIRST + 1), "log", "mariadb", {table.path: table})
    for options in ({}, _OPTIONS):
        settings = MysqlSettings.parse(options, owner="source 'mysql_cdc'")
        decoder = WindowDecoder(window, settings, dt.datetime(2024, 2, 29, tzinfo=dt.UTC), _again, _earlier)
        for _ in (*decoder.feed(log), *decoder.finish()):
            pass
    texts_of(pa.array([b"a"], pa.binary()), "latin1")


def _again(_: BinlogPosition) -> Generator[bytes, None, None]:
    yield from ()


def _earlier(xid: str) -> Prepared:
    raise AssertionError(f"the log here has no {xid}")


def _log() -> bytes:
    """A file without checksums, and a transaction with a row of each kind."""
    names = b"".join(bytes([len(name)]) + name.encode() for name in _NATIVES)
    collations = b"\x02\x01\x2d"
    signs = b"\x01\x01\x00"
    fields = signs + collations + bytes([4, len(names)]) + names + b"\x08\x01\x00"
    codes, metas = bytes([LONG, DOUBLE, VARCHAR]), b"\x08" + struct.pack("<H", 36)
    described = b"\x01d\0\x01t\0" + bytes([len(codes)]) + codes + bytes([len(metas)]) + metas + b"\0" + fields
    number = struct.pack("<IH", 1, 0)
    bits = b"\x03\x07"
    events = [
        (EventType.FORMAT_DESCRIPTION, struct.pack("<H50sIB", 4, b"11-MariaDB", 0, HEADER_SIZE) + bytes(45)),
        (EventType.MARIADB_GTID, struct.pack("<QIB", 1, 0, 0) + bytes(6)),
        (EventType.TABLE_MAP, number + bytes(2) + described),
        (EventType.WRITE_ROWS_V1, number + bytes(2) + bits + _ROW + _OTHER),
        (EventType.UPDATE_ROWS_V1, number + bytes(2) + bits + b"\x07" + _ROW + _OTHER),
        (EventType.DELETE_ROWS_V1, number + b"\1\0" + bits + _OTHER),
        (EventType.XID, bytes(8)),
    ]
    # What comes before the file has said that it has no checksums has one.
    turn = struct.pack("<Q", FIRST) + b"log.000001"
    log = _event(EventType.ROTATE, turn, 0, flags=ARTIFICIAL, checksum=True)
    position = FIRST
    for kind, body in events:
        position += HEADER_SIZE + len(body)
        log += _event(kind, body, position)
    return log


def _event(kind: int, body: bytes, end: int, *, flags: int = 0, checksum: bool = False) -> bytes:
    length = HEADER_SIZE + len(body) + 4 * checksum
    data = struct.pack("<IBIIIH", 0, kind, 1, length, end, flags) + body
    return data + struct.pack("<I", zlib.crc32(data)) if checksum else data


if __name__ == "__main__":
    main(compile_all, "the binary log of MySQL and MariaDB")

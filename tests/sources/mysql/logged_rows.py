"""Rows events of a server's log, read from its files, with as much of their table maps as reading rows needs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.sources.mysql.layouts import read_rows
from headrace.sources.mysql.wire_columns import WireTables
from headrace.wire.binlog_kernels import Events
from headrace.wire.cell_kernels import Columns

TABLE_MAP, ROWS, HEADER, CHECKSUM = 19, (23, 24, 25, 30, 31, 32, 39), 19, 4
META_SIZES = {4: 1, 5: 1, 17: 1, 18: 1, 19: 1, 140: 1, 242: 1, 245: 1, 252: 1, 255: 1} | dict.fromkeys(
    (15, 16, 141, 246, 247, 248, 253, 254), 2
)


@dataclass(frozen=True)
class RowsEvent:
    kind: int
    body: bytes
    table: str
    columns: tuple[tuple[int, int], ...]


def rows_events(server, start=None):
    """All rows events of a server's newest log file, from a place on."""
    file, end = server.log_end
    data = (server.data / file).read_bytes()[:end]
    position, found, maps = start or 4, [], {}
    while position < len(data):
        kind, size = data[position + 4], int.from_bytes(data[position + 9 : position + 13], "little")
        body = data[position + HEADER : position + size - CHECKSUM]
        if kind == TABLE_MAP:
            maps[body[:6]] = _mapped(body)
        elif kind in ROWS:
            found.append(RowsEvent(kind, body, *maps[body[:6]]))
        position += size
    return found


def _mapped(body):
    schema_end = 9 + body[8] + 1
    name = body[schema_end + 1 : schema_end + 1 + body[schema_end]].decode()
    at = schema_end + 2 + body[schema_end]
    count, codes = body[at], body[at + 1 : at + 1 + body[at]]
    at += 1 + count
    at += {252: 3}.get(body[at], 1)
    columns = []
    for code in codes:
        size = META_SIZES.get(code, 0)
        columns.append((code, int.from_bytes(body[at : at + size], "little")))
        at += size
    return name, tuple(columns)


def read_images(bodies, kinds, columns):
    """The rows of events of one table: pairs of a before and an after image, each a mapping from column to text."""
    data = np.frombuffer(b"".join(bodies) or b"\0", np.uint8)
    ends = np.cumsum([len(body) for body in bodies]).astype(np.int64)
    starts = ends - np.array([len(body) for body in bodies], np.int64)
    zeros = np.zeros(len(bodies), np.int64)
    events = Events(starts, ends, np.array(kinds, np.int64), zeros)
    images, _ = read_rows(data, events, WireTables.of([columns]))
    written = [n for n, column in enumerate(columns) if column.native.needs_log_texts]
    by = np.arange(len(written), dtype=np.int64)
    images.write(chosen(written), by, [columns[n].native.log_texts for n in written])
    names = pa.array([str(n) for n in range(len(columns))], pa.string())
    every = chosen(range(len(columns)))
    sides = [images.maps(side, every, names) for side in (images.old, images.new)]
    for side in sides:
        side.validate(full=True)
    return list(zip(*(map(_image, side.to_pylist()) for side in sides), strict=True))


def _image(found):
    return None if found is None else {int(name): text for name, text in found}


def chosen(columns):
    found = list(columns)
    return Columns(np.array([0, len(found)], np.int64), np.array(found, np.int64))

"""Events that the server compressed."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import pyarrow as pa

from headrace.errors import CaptureError
from headrace.sources.mysql.events import HEADER_SIZE, Event, EventBytes, inner_events

_ZSTD, _PLAIN = 0, 255
_END, _SIZE, _KIND, _WHOLE_SIZE = range(4)
_HAS_ALGORITHM = 0x80
_QUERY_HEADER = 13


def payload_events(event: Event) -> Iterator[Event]:
    """The events of a transaction that MySQL compressed; all stand at the position of the compressed one.

    Raises:
        FormatError: it is cut off, or is not what it says.
        CaptureError: it is compressed in an unknown way.
    """
    data = EventBytes(event.body, "TRANSACTION_PAYLOAD")
    kind, size, whole = _PLAIN, None, None
    while (field := data.packed()) != _END:
        value = data.part(data.packed())
        if field == _SIZE:
            size = value.packed()
        elif field == _KIND:
            kind = value.packed()
        elif field == _WHOLE_SIZE:
            whole = value.packed()
    content = data.rest()
    if size is not None and size != len(content):
        raise data.wrong("is not as long as it says")
    if kind not in (_ZSTD, _PLAIN):
        raise CaptureError(
            f"A transaction in the binary log is compressed in the way {kind}, which is not known.",
            remedy="Run SET GLOBAL binlog_transaction_compression = OFF, and start with a new checkpoint.",
        )
    plain = pa.BufferReader(content)
    stream = pa.CompressedInputStream(plain, "zstd") if kind == _ZSTD else plain
    done = 0
    try:
        for inner in inner_events(stream.read, event.start):
            done += HEADER_SIZE + len(inner.body)
            yield inner
    except (OSError, pa.ArrowInvalid):
        raise data.wrong("can't be decompressed") from None
    if whole is not None and whole != done:
        raise data.wrong("is not as long as it says")


def plain_rows(body: bytes, *, first_version: bool, update: bool) -> bytes:
    """The body of a rows event that MariaDB compressed, as it was before.

    Args:
        body: of the event.
        first_version: whether the event has no part of a length of its own.
        update: whether it has two images of each row.

    Raises:
        FormatError: it is cut off, or is not what it says.
    """
    data = EventBytes(body, "rows")
    data.take(8)
    if not first_version:
        data.take(data.number(2) - 2)
    width = data.packed()
    data.take((width + 7) // 8 * (2 if update else 1))
    head = body[: len(body) - data.left]
    return head + _inflated(data)


def plain_query(body: bytes) -> bytes:
    """The body of a QUERY event that MariaDB compressed, as it was before.

    Raises:
        FormatError: it is cut off, or is not what it says.
    """
    data = EventBytes(body, "QUERY")
    head = data.part(_QUERY_HEADER)
    head.take(8)
    database = head.number(1)
    head.take(2)
    data.take(head.number(2) + database + 1)
    return body[: len(body) - data.left] + _inflated(data)


def _inflated(data: EventBytes) -> bytes:
    first = data.number(1)
    if first & 0xF0 != _HAS_ALGORITHM:
        raise data.wrong("is compressed in an unknown way")
    size = data.big_endian(first & 0x07)
    stream = zlib.decompressobj()
    try:
        inflated = stream.decompress(data.rest(), size + 1)
    except zlib.error:
        raise data.wrong("can't be decompressed") from None
    if len(inflated) != size or not stream.eof or stream.unused_data:
        raise data.wrong("is not as long as it says")
    return inflated

"""The events of the binary log: their frames, and what those say that are about the log itself."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import pyarrow as pa

from headrace.errors import CaptureError, FormatError
from headrace.sources.mysql.binlog_position import FIRST, file_of

_WIDTHS = {252: 2, 253: 3, 254: 8}
_ONE_BYTE = 251

ARTIFICIAL, IGNORABLE = 0x20, 0x80
_IN_USE = 0x01
_HEADER = struct.Struct("<IBIIIH")
HEADER_SIZE = _HEADER.size
_CHECKSUM_SIZE = 4
_LENGTH, _LENGTH_PLACE = struct.Struct("<I"), 9
_FLAGS_PLACE = 17
_CRC32_OF_ITSELF = 0x2144DF1C
"""The CRC32 of any bytes that their own CRC32 follows."""
_WRAP = 1 << 32
_NO_CHECKSUM, _CRC32 = 0, 1
_READ_BYTES = 1 << 20
_BINLOG_VERSION = 4
COMPRESSED_ROWS = {166: 23, 167: 24, 168: 25, 169: 30, 170: 31, 171: 32}
"""Those that MariaDB compressed, and what is inside of each."""
STATEMENT_BASED = frozenset((5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 17, 18))
"""Events of statements that are logged as text."""
ANCIENT_ROWS = frozenset((20, 21, 22))
"""Rows in a form that no server has written since version 5.1.16."""
_ZSTD, _PLAIN = 0, 255
_END, _SIZE, _KIND, _WHOLE_SIZE = range(4)
_HAS_ALGORITHM = 0x80
_QUERY_HEADER = 13


class EventBytes:
    """What is left of an event's body, or of a part of one. Numbers are little-endian.

    Args:
        data: the bytes.
        name: what the event is called in errors.
    """

    def __init__(self, data: bytes, name: str) -> None:
        self._data, self._name = data, name
        self._position, self._end = 0, len(data)

    @property
    def left(self) -> int:
        return self._end - self._position

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def big_endian(self, size: int) -> int:
        """An unsigned number of so many bytes, the highest one first."""
        return int.from_bytes(self.take(size), "big")

    def packed(self) -> int:
        """A number that says by its first byte how many follow."""
        first = self.number(1)
        if first < _ONE_BYTE:
            return first
        width = _WIDTHS.get(first)
        if width is None:
            raise self.wrong(f"has a length that begins with {first}")
        return self.number(width)

    def take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > self._end:
            raise self.wrong("is shorter than its parts")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def rest(self) -> bytes:
        return self.take(self.left)

    def short_text(self) -> bytes:
        """Bytes after one byte that says how many they are."""
        return self.take(self.number(1))

    def packed_text(self) -> bytes:
        return self.take(self.packed())

    def name(self) -> str:
        """A name in UTF-8 behind one byte with its length."""
        return self.utf8(self.short_text())

    def name_and_zero(self) -> str:
        """The same with a zero byte after it."""
        name = self.name()
        if self.number(1):
            raise self.wrong("has a name without an end")
        return name

    def utf8(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise self.wrong("has a name that is not UTF-8") from None

    def part(self, size: int) -> EventBytes:
        """The next bytes, to be read on their own."""
        return EventBytes(self.take(size), self._name)

    def finish(self) -> None:
        """See that nothing is left.

        Raises:
            FormatError: something is.
        """
        if self.left:
            raise self.wrong("is longer than its parts")

    def wrong(self, what: str) -> FormatError:
        """The error of an event that is not as it should be; who reads the log adds file and position."""
        return FormatError(f"The {self._name} event {what}.")


class EventType(IntEnum):
    QUERY = 2
    STOP = 3
    ROTATE = 4
    INTVAR = 5
    LOAD = 6
    SLAVE = 7
    CREATE_FILE = 8
    APPEND_BLOCK = 9
    EXEC_LOAD = 10
    DELETE_FILE = 11
    NEW_LOAD = 12
    RAND = 13
    USER_VAR = 14
    FORMAT_DESCRIPTION = 15
    XID = 16
    BEGIN_LOAD_QUERY = 17
    EXECUTE_LOAD_QUERY = 18
    TABLE_MAP = 19
    WRITE_ROWS_V0 = 20
    UPDATE_ROWS_V0 = 21
    DELETE_ROWS_V0 = 22
    WRITE_ROWS_V1 = 23
    UPDATE_ROWS_V1 = 24
    DELETE_ROWS_V1 = 25
    INCIDENT = 26
    HEARTBEAT = 27
    IGNORABLE = 28
    ROWS_QUERY = 29
    WRITE_ROWS = 30
    UPDATE_ROWS = 31
    DELETE_ROWS = 32
    GTID = 33
    ANONYMOUS_GTID = 34
    PREVIOUS_GTIDS = 35
    TRANSACTION_CONTEXT = 36
    VIEW_CHANGE = 37
    XA_PREPARE = 38
    PARTIAL_UPDATE_ROWS = 39
    TRANSACTION_PAYLOAD = 40
    HEARTBEAT_V2 = 41
    GTID_TAGGED = 42
    ANNOTATE_ROWS = 160
    BINLOG_CHECKPOINT = 161
    MARIADB_GTID = 162
    GTID_LIST = 163
    START_ENCRYPTION = 164
    QUERY_COMPRESSED = 165
    WRITE_ROWS_COMPRESSED_V1 = 166
    UPDATE_ROWS_COMPRESSED_V1 = 167
    DELETE_ROWS_COMPRESSED_V1 = 168
    WRITE_ROWS_COMPRESSED = 169
    UPDATE_ROWS_COMPRESSED = 170
    DELETE_ROWS_COMPRESSED = 171


ROWS = frozenset((23, 24, 25, 30, 31, 32, EventType.PARTIAL_UPDATE_ROWS))
"""Events with rows that lie there in plain."""


class Event(NamedTuple):
    """An event.

    Args:
        kind: one of `EventType`, or a number that is not known.
        time: when its statement began, in seconds since 1970.
        server: the server that wrote it first.
        flags: of the header.
        start: where it begins in its file; of an event that is in no file where the next one begins.
        body: after the header, without the checksum.
    """

    kind: int
    time: int
    server: int
    flags: int
    start: int
    body: bytes


@dataclass(frozen=True)
class FormatDescription:
    """What the first event of a file says.

    Args:
        server: the version of the server that wrote the file.
        created: when the server was started, in seconds since 1970; 0 in files that it began later.
        checksums: whether the file's events have them.
    """

    server: str
    created: int
    checksums: bool

    @property
    def mariadb(self) -> bool:
        return "mariadb" in self.server.casefold()


@dataclass(frozen=True)
class Rotate:
    """Where the log goes on.

    Args:
        file: the name of the file.
        position: the byte at which the next event begins.
    """

    file: str
    position: int


class Frames:
    """Takes events as the server sends them, and knows where in the log each one stands.

    Args:
        checksums: whether events have them before a file has said so: what the session asked for.
    """

    def __init__(self, *, checksums: bool = True) -> None:
        self._checksums = checksums
        self.file = ""
        """The name of the file that is read."""
        self.number = 0
        """Its number."""
        self.position = 0
        """Where the next event begins."""
        self.description: FormatDescription | None = None
        """What the file said of itself."""

    @property
    def checksums(self) -> bool:
        return self._checksums

    def event(self, data: bytes) -> Event:
        """One event as it came, without the byte of the packet in front.

        Raises:
            FormatError: it is cut off, its checksum is wrong, or it does not stand where the one before ended.
            CaptureError: the log is another one than before.
        """
        if len(data) < HEADER_SIZE:
            raise FormatError(f"The event is shorter than its header: {len(data)} bytes.")
        time, kind, server, length, following, flags = _HEADER.unpack_from(data)
        if length != len(data):
            raise FormatError(f"The event says that it has {length} bytes, and {len(data)} came.")
        end = length
        if kind == EventType.FORMAT_DESCRIPTION:
            self.description = read_format_description(data[HEADER_SIZE:])
            self._checksums = self.description.checksums
            if self._checksums:
                _verify(data[:_FLAGS_PLACE] + (flags & ~_IN_USE).to_bytes(2, "little") + data[HEADER_SIZE:])
        elif self._checksums:
            if length < HEADER_SIZE + _CHECKSUM_SIZE:
                raise FormatError("The event is shorter than its header and its checksum.")
            _verify(data)
            end -= _CHECKSUM_SIZE
        start = self.position
        event = Event(kind, time, server, flags, start, data[HEADER_SIZE:end])
        if flags & ARTIFICIAL or kind in (EventType.HEARTBEAT, EventType.HEARTBEAT_V2):
            if kind == EventType.ROTATE:
                self._turn(read_rotate(event.body))
            return event
        after = start + length
        if following != after % _WRAP:
            if following == 0 and not self._says_no_end(kind):
                # Sent in front of a part of a file.
                return event
            if following != 0:
                raise FormatError(f"The event says that it ends at {following}, and it ends at {after}.")
        self.position = after
        return event

    def _says_no_end(self, kind: int) -> bool:
        """Whether an event stands in the file although it does not say where it ends: MariaDB 11.4 and newer say so of
        a transaction's first and last event only, unless binlog_legacy_event_pos is on."""
        mariadb = self.description is not None and self.description.mariadb
        return mariadb and kind not in (EventType.FORMAT_DESCRIPTION, EventType.START_ENCRYPTION)

    def _turn(self, rotate: Rotate) -> None:
        if rotate.position < FIRST:
            raise FormatError(f"The server says that the log goes on at byte {rotate.position} of '{rotate.file}'.")
        try:
            base, number = file_of(rotate.file)
        except ValueError:
            raise FormatError(f"The server names '{rotate.file}' as a file of the binary log.") from None
        if self.file and file_of(self.file)[0] != base:
            raise CaptureError(
                f"The binary log goes on in '{rotate.file}' after '{self.file}', which is another log.",
                remedy="Set log_bin back to the name that it had, or start with a new checkpoint.",
            )
        if number < self.number or (number == self.number and rotate.position < self.position):
            raise FormatError(f"The server goes back to '{rotate.file}' after '{self.file}'.")
        self.file, self.number, self.position = rotate.file, number, rotate.position


def inner_events(read: Callable[[int], bytes], start: int) -> Iterator[Event]:
    """The events inside of a compressed transaction, of which no more is held than a few at a time.

    Args:
        read: gives the next plain bytes, at most so many; none at the end.
        start: where the compressed event begins, which is the position of all of them.

    Raises:
        FormatError: one is cut off.
    """
    held, at = b"", 0
    while True:
        need = HEADER_SIZE
        if len(held) - at >= HEADER_SIZE:
            time, kind, server, need, _, flags = _HEADER.unpack_from(held, at)
        if need < HEADER_SIZE:
            raise FormatError("An event in a compressed transaction is shorter than its header.")
        if len(held) - at >= need > HEADER_SIZE:
            yield Event(kind, time, server, flags, start, held[at + HEADER_SIZE : at + need])
            at += need
            continue
        more = read(max(_READ_BYTES, need))
        if not more:
            break
        held, at = held[at:] + more, 0
    if at != len(held):
        raise FormatError("A compressed transaction ends inside of an event.")


def _verify(data: bytes) -> None:
    if zlib.crc32(data) != _CRC32_OF_ITSELF:
        raise FormatError("The event's checksum is wrong.")


def read_format_description(body: bytes) -> FormatDescription:
    """A FORMAT_DESCRIPTION event, with the checksum after it.

    Raises:
        FormatError: it is cut off.
        CaptureError: the log is of another version.
    """
    data = EventBytes(body, "FORMAT_DESCRIPTION")
    version, server, created = data.number(2), data.take(50), data.number(4)
    if version != _BINLOG_VERSION or data.number(1) != HEADER_SIZE:
        raise CaptureError(
            f"The binary log is of version {version}, which is not read.",
            remedy="Read from MySQL 5.7 or MariaDB 10.5, or newer.",
        )
    data.take(data.left - _CHECKSUM_SIZE - 1)
    algorithm = data.number(1)
    if algorithm not in (_NO_CHECKSUM, _CRC32):
        raise CaptureError(
            f"The binary log has checksums of kind {algorithm}, which is not known.",
            remedy="Run SET GLOBAL binlog_checksum = 'CRC32'.",
        )
    return FormatDescription(server.partition(b"\0")[0].decode("latin-1"), created, algorithm == _CRC32)


def read_rotate(body: bytes) -> Rotate:
    """A ROTATE event.

    Raises:
        FormatError: it is cut off.
    """
    data = EventBytes(body, "ROTATE")
    position = data.number(8)
    return Rotate(data.utf8(data.rest()), position)


def read_incident(body: bytes) -> str:
    """What the server says of changes that are missing in the log.

    Raises:
        FormatError: it is cut off.
    """
    data = EventBytes(body, "INCIDENT")
    data.number(2)
    return data.short_text().decode("utf-8", "replace") if data.left else ""


def rows_query(body: bytes) -> bytes:
    """The statement in MySQL's ROWS_QUERY event. The byte with its length is too small and is not used.

    Raises:
        FormatError: it is cut off.
    """
    data = EventBytes(body, "ROWS_QUERY")
    data.number(1)
    return data.rest()


def events_in(data: bytes | memoryview) -> Iterator[bytes]:
    """Each of the events that lie one after another.

    Raises:
        FormatError: one is cut off.
    """
    position, view = 0, memoryview(data)
    while position < len(view):
        event = event_at(view, position)
        yield event
        position += len(event)


def event_at(view: memoryview, position: int) -> bytes:
    """The event that begins at a position.

    Raises:
        FormatError: it is cut off.
    """
    if len(view) - position < HEADER_SIZE:
        raise FormatError("The server sent a part of an event.")
    size = _LENGTH.unpack_from(view, position + _LENGTH_PLACE)[0]
    if not HEADER_SIZE <= size <= len(view) - position:
        raise FormatError("The server sent a part of an event.")
    return bytes(view[position : position + size])


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

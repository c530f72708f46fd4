"""The logs of a real MariaDB and a real MySQL, and events that are made by hand as the layouts of both servers say."""

import struct
import zlib
from pathlib import Path

from headrace.sources.mysql.events import EventType, Frames

_FOLDER = Path(__file__).parents[2] / "golden" / "mysql"
MARIADB, MYSQL = "mariadb_10_11.txt", "mysql_9_7.txt"


def recorded(name=MARIADB):
    """The events of a recording as they came, each in bytes."""
    lines = (_FOLDER / name).read_text().splitlines()
    return [bytes.fromhex(line.partition("\t")[2]) for line in lines if not line.startswith("#")]


def recorded_events(name=MARIADB):
    """The same, read."""
    frames = Frames()
    return [frames.event(data) for data in recorded(name)]


def bodies(kind, name=MARIADB):
    """The bodies of a recording's events of a kind."""
    return [event.body for event in recorded_events(name) if event.kind == kind]


def event(kind, body=b"", *, start=0, time=1767225600, server=1, flags=0, checksum=True, end=None):
    """An event that begins at a position."""
    length = 19 + len(body) + 4 * checksum
    following = (start + length) % (1 << 32) if end is None else end
    data = struct.pack("<IBIIIH", time, kind, server, length, following, flags) + body
    return data + struct.pack("<I", zlib.crc32(data)) if checksum else data


def format_description(start=4, *, server="9.7.4", checksums=1, **options):
    """The first event of a file."""
    body = struct.pack("<H50sIB", 4, server.encode(), 0, 19) + bytes(40) + bytes([checksums])
    return event(EventType.FORMAT_DESCRIPTION, body, start=start, **options)


def turn(file="binlog.000007", position=4):
    """The event in front of a part of a file."""
    body = struct.pack("<Q", position) + file.encode()
    return event(EventType.ROTATE, body, flags=0x20, end=0)

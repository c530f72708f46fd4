"""Rule: an event is taken only if it is whole, stands where the one before ended, and is known."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.mysql.recorded_log import bodies, event, format_description, recorded, recorded_events, turn

from headrace.errors import CaptureError, FormatError
from headrace.sources.mysql.events import (
    Event,
    EventType,
    Frames,
    inner_events,
    payload_events,
    plain_query,
    plain_rows,
    read_incident,
    rows_query,
)
from headrace.sources.mysql.statements import read_query

GIB = 1 << 30


def frames_at(position, *, file="binlog.000007"):
    frames = Frames()
    frames.event(turn(file, position))
    frames.event(format_description(end=0, flags=0))
    return frames


def test_a_recorded_log_is_read_over_all_of_its_files_with_and_without_checksums():
    frames = Frames()
    found = []
    for data in recorded():
        frames.event(data)
        found.append((frames.file, frames.description is not None and frames.description.checksums))
    assert list(dict.fromkeys(found))[1:] == [
        ("binlog.000001", True),
        ("binlog.000002", True),
        ("binlog.000003", True),
        ("binlog.000003", False),
        ("binlog.000004", False),
        ("binlog.000004", True),
    ]
    assert frames.description.mariadb


def test_an_event_begins_where_the_header_says():
    for data, found in zip(recorded(), recorded_events(), strict=True):
        length, following = struct.unpack_from("<II", data, 9)
        if following:
            assert found.start == following - length


def test_the_rest_of_a_file_is_read_from_the_middle():
    frames = Frames()
    events = recorded()
    frames.event(turn("binlog.000001", 4467))
    after = [frames.event(data) for data, e in zip(events, recorded_events(), strict=True) if e.start >= 4467]
    assert after[0].start == 4467


def test_events_of_a_transaction_need_not_say_where_they_end():
    events, position = [], 4096
    for kind, end in ((EventType.MARIADB_GTID, None), (EventType.TABLE_MAP, 0), (23, 0), (EventType.XID, None)):
        events.append(event(kind, bytes(30), start=position, end=end))
        position += len(events[-1])
    frames = Frames()
    frames.event(turn("binlog.000007", 4096))
    frames.event(format_description(end=0, flags=0, server="11.4.5-MariaDB-log"))
    length = len(events[0])
    assert [frames.event(data).start for data in events] == [4096 + n * length for n in range(4)]
    assert frames.position == position


@pytest.mark.parametrize("start", [4 * GIB - 10, 4 * GIB, 9 * GIB + 5])
def test_a_file_may_be_longer_than_the_header_can_say(start):
    frames = frames_at(start)
    first = event(EventType.XID, bytes(8), start=start)
    second = event(EventType.XID, bytes(8), start=start + len(first))
    assert [frames.event(data).start for data in (first, second)] == [start, start + len(first)]
    assert frames.position == start + len(first) + len(second)


def test_an_event_that_ends_just_at_four_gib_is_counted():
    data = event(EventType.XID, bytes(8))
    start = 4 * GIB - len(data)
    frames = frames_at(start)
    frames.event(event(EventType.XID, bytes(8), start=start))
    assert frames.position == 4 * GIB


@pytest.mark.parametrize("kind", [EventType.HEARTBEAT, EventType.HEARTBEAT_V2])
def test_a_heartbeat_stands_nowhere_in_the_log(kind):
    frames = frames_at(1000)
    frames.event(event(kind, b"binlog.000007", end=1000))
    assert frames.position == 1000


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "shorter than its header"),
        (event(EventType.XID, bytes(8), start=1000)[:-1], "says that it has 31 bytes, and 30 came"),
        (event(EventType.XID, bytes(8), start=1000)[:-1] + b"?", "checksum is wrong"),
        (event(EventType.XID, bytes(8), start=1000, checksum=False), "checksum is wrong"),
        (event(EventType.STOP, b"", start=1000, checksum=False), "shorter than its header and its checksum"),
        (event(EventType.XID, bytes(8), start=1001), "says that it ends at 1032, and it ends at 1031"),
        (turn("nonsense"), "names 'nonsense' as a file"),
        (turn("binlog.000006"), "goes back to 'binlog.000006'"),
        (turn("binlog.000008", 0), "goes on at byte 0"),
    ],
)
def test_what_is_not_whole_stops(data, said):
    with pytest.raises(FormatError, match=said):
        frames_at(1000).event(data)


def test_another_log_stops():
    with pytest.raises(CaptureError, match=r"goes on in 'other.000008' after 'binlog.000007'"):
        frames_at(1000).event(turn("other.000008"))


def test_a_checksum_of_an_unknown_kind_stops():
    frames = Frames()
    frames.event(turn())
    with pytest.raises(CaptureError, match="checksums of kind 9"):
        frames.event(format_description(checksums=9))


def test_the_flag_of_an_open_file_is_not_in_the_checksum():
    closed = format_description()
    opened = closed[:17] + b"\x01\x00" + closed[19:]
    frames = Frames()
    frames.event(turn())
    frames.event(opened)
    assert frames.position == 4 + len(opened)


@given(st.integers(0, 10**6), st.integers(0, 200), st.binary(max_size=3))
def test_a_cut_recording_gives_only_errors_of_format(number, cut, more):
    events = recorded()
    data = events[number % len(events)]
    frames = frames_at(4)
    with pytest.raises((FormatError, CaptureError)):
        frames.event(data[: min(cut, len(data) - 1)] + more[: max(0, len(data) - 1 - cut)])


def in_payload(content, kind, *, size=None, whole=None):
    fields = b"\x02\x01" + bytes([kind]) if kind < 251 else b"\x02\x03\xfc\xff\x00"
    for number, value in ((3, len(content) if whole is None else whole), (1, size)):
        if value is not None:
            fields += bytes([number]) + b"\x03\xfc" + struct.pack("<H", value)
    return Event(EventType.TRANSACTION_PAYLOAD, 0, 1, 0, 500, fields + b"\x00")


def zstd(content):
    import pyarrow as pa

    return pa.Codec("zstd").compress(content, asbytes=True)


INNER = [event(EventType.XID, bytes([n]) * 8, checksum=False, end=0) for n in range(3)]


@pytest.mark.parametrize(("kind", "packed"), [(0, zstd), (255, bytes)])
def test_a_compressed_transaction_is_all_at_its_place(kind, packed):
    content = b"".join(INNER)
    whole = in_payload(content, kind)
    found = list(payload_events(whole._replace(body=whole.body + packed(content))))
    assert [(e.kind, e.start, e.body[:1]) for e in found] == [(16, 500, b"\0"), (16, 500, b"\1"), (16, 500, b"\2")]


def test_a_compressed_transaction_with_a_huge_event_is_read():
    large = event(EventType.ROWS_QUERY, b"\xff" + b"x" * 5_000_000, checksum=False, end=0)
    content = INNER[0] + large + INNER[1]
    body = b"\x02\x01\x00\x00" + zstd(content)
    found = list(payload_events(Event(40, 0, 1, 0, 4, body)))
    assert [len(e.body) for e in found] == [8, 5_000_001, 8]


@pytest.mark.parametrize(
    "whole",
    [
        in_payload(b"", 0)._replace(body=in_payload(b"".join(INNER), 0).body + zstd(b"".join(INNER))[:-5]),
        in_payload(b"", 0)._replace(body=in_payload(b"x" * 9, 0, whole=9).body + zstd(b"".join(INNER))),
        in_payload(b"", 0)._replace(body=in_payload(b"".join(INNER), 0).body + b"no zstd"),
        in_payload(b"", 255)._replace(body=in_payload(b"".join(INNER), 255).body + b"".join(INNER)[:-1]),
        in_payload(b"", 255, size=5)._replace(body=in_payload(b"".join(INNER), 255, size=5).body + b"".join(INNER)),
        Event(40, 0, 1, 0, 4, b"\x02"),
    ],
)
def test_a_compressed_transaction_that_is_not_whole_stops(whole):
    with pytest.raises(FormatError):
        list(payload_events(whole))


def test_a_compression_without_a_name_stops():
    with pytest.raises(CaptureError, match="compressed in the way 7"):
        list(payload_events(Event(40, 0, 1, 0, 4, b"\x02\x01\x07\x00")))


def test_rows_that_mariadb_compressed_are_as_those_that_it_did_not():
    (inserted,), (updated,) = bodies(EventType.WRITE_ROWS_COMPRESSED_V1), bodies(EventType.UPDATE_ROWS_COMPRESSED_V1)
    plain = plain_rows(inserted, first_version=True, update=False)
    assert plain[8:] == bytes.fromhex("0bff07") + b"".join(
        bytes.fromhex(f"fcff{n:02x}0000000a78787878787878787878") for n in range(10, 14)
    )
    assert plain_rows(updated, first_version=True, update=True)[8:13] == bytes.fromhex("0bff07ff07")


def test_rows_of_the_second_version_have_a_part_of_any_length():
    head = bytes(8) + b"\x05\x00abc" + b"\x01\x01"
    body = head + b"\x81\x02" + zlib.compress(b"hi")
    assert plain_rows(body, first_version=False, update=False) == head + b"hi"


@pytest.mark.parametrize(
    "tail", [b"", b"\x01\x02", b"\x81\x02zz", b"\x81\x03" + zlib.compress(b"hi"), b"\x81\x01" + zlib.compress(b"hi")]
)
def test_compressed_rows_that_are_not_what_they_say_stop(tail):
    with pytest.raises(FormatError):
        plain_rows(bytes(8) + b"\x01\x01" + tail, first_version=True, update=False)


def test_a_compressed_statement_is_read():
    (body,) = bodies(EventType.QUERY_COMPRESSED)
    query = read_query(plain_query(body))
    assert (query.database, query.collation) == ("shop", 45)
    assert query.statement == b"ALTER TABLE item COMMENT '" + b"w" * 80 + b"'"


def status(*variables):
    together = b"".join(variables)
    head = struct.pack("<IIBHH", 77, 0, 4, 0, len(together))
    return head + together + b"shop\0COMMIT"


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ((), (None, None, ())),
        ((b"\x00\0\0\0\0", b"\x01" + bytes(8), b"\x06\x03std", b"\x04\x2d\0\x2d\0\x08\0"), (45, None, ())),
        ((b"\x05\x03UTC", b"\x0b\x01u\x01h", b"\x0c\x02a\0bc\0", b"\x0d\x40\x42\x0f"), (None, 1_000_000, ("a", "bc"))),
        ((b"\x0c\xfe", b"\x02\x03std\0", b"\x80\x01\0\0"), (None, 1, ())),
        ((b"\xc8whatever",), (None, None, ())),
    ],
)
def test_status_variables_are_read_as_far_as_they_are_known(variables, said):
    query = read_query(status(*variables))
    assert (query.thread, query.database, query.statement) == (77, "shop", b"COMMIT")
    assert (query.collation, query.microseconds, query.databases) == said


@given(st.integers(0, 200))
def test_a_cut_query_gives_an_error_of_format(cut):
    body = status(b"\x05\x03UTC", b"\x0c\x02a\0bc\0")
    if cut < len(body) - len(b"COMMIT"):
        with pytest.raises(FormatError):
            read_query(body[:cut])


def test_what_is_said_beside_rows():
    assert rows_query(b"\x05UPDATE a") == b"UPDATE a"
    assert read_incident(b"\x01\x00\x04lost") == "lost"


def test_events_inside_of_others_are_cut_at_their_lengths():
    data = INNER[0] + INNER[1][:9] + b"\x00\x00\x00\x00" + INNER[1][13:]
    chunks = iter([data[:10], data[10:], b""])
    with pytest.raises(FormatError, match="shorter than its header"):
        list(inner_events(lambda _: next(chunks), 4))

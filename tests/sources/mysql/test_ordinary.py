"""Law: groups that are taken together give the rows that they give event by event, wherever the log is cut."""

import itertools
import struct
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.mysql.recorded_log import event, format_description, turn

from headrace.changes import Column, TableId, TableSchema
from headrace.errors import FormatError
from headrace.sources.mysql.binlog_position import FIRST, BinlogPosition
from headrace.sources.mysql.captured_table import MysqlTable
from headrace.sources.mysql.decode import WindowDecoder
from headrace.sources.mysql.events import EventType
from headrace.sources.mysql.log_scan import LogScan
from headrace.sources.mysql.options import MysqlSettings
from headrace.sources.mysql.transactions import TransactionReader
from headrace.sources.mysql.types import LONG, NativeType
from headrace.sources.mysql.window import Window

INT = NativeType("int")
TABLE = MysqlTable(TableSchema(TableId("d", "", "t"), (Column("id", 1, INT.logical, "int"),), ("id",)), (INT,), ("id",))
UUID = bytes(range(16))


def unasked(xid):
    raise AssertionError(f"{xid} was asked for")


def described(number, name, *, key=True):
    fields = b"\x01\x01\x00\x04\x03\x02id" + (b"\x08\x01\x00" if key else b"")
    body = struct.pack("<IHH", number, 0, 1) + b"\x01d\0\x01" + name + b"\0\x01" + bytes([LONG]) + b"\0\0" + fields
    return EventType.TABLE_MAP, body


def written(number, ids, mariadb, *, last=True, kind=0):
    front = struct.pack("<IHH", number, 0, last) + (b"" if mariadb else b"\x02\x00") + b"\x01\x01"
    rows = b"".join(b"\0" + struct.pack("<i", id) for id in ids)
    if kind == 1:
        front, rows = front + b"\x01", rows * 2
    return (23 if mariadb else 30) + kind, front + rows


def query(text):
    return EventType.QUERY, struct.pack("<IIBHH", 7, 0, 1, 0, 0) + b"d\0" + text


def begin(number, mariadb, *, flags=0, timed=True):
    if mariadb:
        return [(EventType.MARIADB_GTID, struct.pack("<QIB", number, 3, flags) + bytes(8))]
    body = b"\0" + UUID + struct.pack("<Q", number)
    if timed:
        body += b"\2" + bytes(16) + (1_767_225_600_000_000 + number).to_bytes(7, "little")
    return [(EventType.GTID, body), query(b"BEGIN")]


END = (EventType.XID, bytes(8))
STATEMENTS = st.sampled_from([b"TRUNCATE t", b"CREATE TABLE u (a int)", b"ALTER TABLE t COMMENT 'x'"])
IDS = st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=3)


@st.composite
def transactions(draw, number, mariadb):
    if draw(st.integers(0, 5)) == 0:
        front = begin(number, mariadb, flags=1)[:1]
        return [*front, query(draw(STATEMENTS))]
    inner = []
    for _ in range(draw(st.integers(0, 3))):
        maps = draw(st.lists(st.tuples(st.integers(1, 4), st.sampled_from([b"t", b"u"]), st.booleans()), min_size=1))
        inner += [described(n, name, key=key) for n, name, key in maps]
        if draw(st.booleans()):
            inner.append((EventType.ANNOTATE_ROWS, b"x") if mariadb else (EventType.ROWS_QUERY, b"\1x"))
        count = draw(st.integers(1, 3))
        for n in range(count):
            chosen = draw(st.sampled_from([n for n, _, _ in maps]))
            kind = draw(st.integers(0, 2))
            inner.append(written(chosen, draw(IDS), mariadb, last=n == count - 1, kind=kind))
    end = END if draw(st.integers(0, 5)) else query(b"COMMIT")
    return [*begin(number, mariadb, flags=draw(st.sampled_from([0, 2, 12])), timed=draw(st.booleans())), *inner, end]


@st.composite
def logs(draw):
    """Events as they are sent, the places between groups, and who wrote them."""
    mariadb, checksums, silent = draw(st.booleans()), draw(st.booleans()), draw(st.booleans())
    server = "11.4-MariaDB" if mariadb else "9.7.4"
    found = [turn("log.000001"), format_description(FIRST, server=server, checksums=int(checksums))]
    position, edges = FIRST + len(found[-1]), []
    for number in range(1, draw(st.integers(1, 12)) + 1):
        edges.append(position)
        inner = draw(transactions(number, mariadb))
        for n, (kind, body) in enumerate(inner):
            ended = 0 if mariadb and silent and 0 < n < len(inner) - 1 else None
            found.append(event(kind, body, start=position, checksum=checksums, time=1_767_225_600 + number, end=ended))
            position += len(found[-1])
    return found, [*edges, position], mariadb


def rows_of(events, start, end, mariadb, feed, *, one_by_one, **options):
    connector = "mariadb" if mariadb else "mysql"
    window = Window(BinlogPosition(0, 1, start), BinlogPosition(0, 1, end), "log", connector, {TABLE.path: TABLE})
    settings = MysqlSettings.parse(options, owner="source 'mysql_cdc'")
    decoder, left, found = WindowDecoder(window, settings, None, lambda _: iter(()), unasked), iter(events), []
    with mock.patch.object(TransactionReader, "run", (lambda *_: None) if one_by_one else TransactionReader.run):
        while part := b"".join(itertools.islice(left, feed)):
            found += decoder.feed(part)
        found += decoder.finish()
    for batch in found:
        batch.validate(full=True)
    return pa.Table.from_batches(found).to_pylist() if found else []


@given(
    logs(), st.data(), st.integers(1, 40), st.sampled_from([{}, {"skipped_operations": "u"}, {"include_query": True}])
)
def test_many_groups_at_once_give_the_rows_of_one_event_after_another(log, data, feed, options):
    events, edges, mariadb = log
    start, end = sorted(data.draw(st.tuples(st.sampled_from(edges), st.sampled_from(edges))))
    given_out = rows_of(events, start, end, mariadb, feed, one_by_one=False, **options)
    assert given_out == rows_of(events, start, end, mariadb, 1000, one_by_one=True, **options)


@given(logs(), st.integers(1, 40), st.integers(0, 4), st.sampled_from([1, 300, 1 << 30]))
def test_a_look_at_many_groups_at_once_sees_what_one_at_events_sees(log, feed, commits, cut_bytes):
    events, edges, _ = log
    seen = []
    for one_by_one in (True, False):
        log_scan = LogScan(
            BinlogPosition(0, 1, edges[0]),
            BinlogPosition(0, 1, edges[-1]),
            [("d", "t")],
            commits=commits,
            cut_bytes=cut_bytes,
        )
        left = iter(events)
        with mock.patch.object(TransactionReader, "run", (lambda *_: None) if one_by_one else TransactionReader.run):
            while part := b"".join(itertools.islice(left, 1 if one_by_one else feed)):
                log_scan.take(part)
        log_scan.finish()
        seen.append(log_scan.scan)
    assert seen[0] == seen[1]


def plain(count, mariadb=True, *, silent=False):
    events, position = (
        [turn("log.000001"), format_description(FIRST, server="11.4-MariaDB" if mariadb else "9.7.4")],
        FIRST,
    )
    position += len(events[-1])
    for number in range(1, count + 1):
        for kind, body in [*begin(number, mariadb), described(1, b"t"), written(1, [number], mariadb), END]:
            ended = 0 if silent and kind not in (EventType.MARIADB_GTID, EventType.XID) else None
            events.append(event(kind, body, start=position, end=ended))
            position += len(events[-1])
    return events, position


@pytest.mark.parametrize(
    ("mariadb", "silent"), [(True, False), (True, True), (False, False)], ids=["mariadb", "mariadb 11.4", "mysql"]
)
def test_small_transactions_are_not_read_event_by_event(mariadb, silent):
    events, end = plain(1000, mariadb, silent=silent)
    with mock.patch.object(TransactionReader, "read", autospec=True, side_effect=TransactionReader.read) as read:
        rows = rows_of(events, FIRST, end, mariadb, len(events), one_by_one=False)
    assert [row["key_text"] for row in rows if row["op"] == "c"] == [f'["{n}"]' for n in range(1, 1001)]
    assert read.call_count == 2


@pytest.mark.parametrize("mariadb", [True, False], ids=["mariadb", "mysql"])
def test_the_statements_of_a_large_transaction_are_not_read_event_by_event(mariadb):
    inner = [part for n in range(20_000) for part in (described(1, b"t"), written(1, [n], mariadb))]
    events = [turn("log.000001"), format_description(FIRST, server="11.4-MariaDB" if mariadb else "9.7.4")]
    position = FIRST + len(events[-1])
    for kind, body in [*begin(1, mariadb), *inner, END]:
        events.append(event(kind, body, start=position))
        position += len(events[-1])
    with mock.patch.object(TransactionReader, "read", autospec=True, side_effect=TransactionReader.read) as read:
        rows = rows_of(events, FIRST, position, mariadb, 1001, one_by_one=False)
    assert [row["key_text"] for row in rows if row["op"] == "c"] == [f'["{n}"]' for n in range(20_000)]
    # What opens the file and the transaction, the end, and a statement where two blocks meet.
    assert read.call_count < 100


@given(st.data())
def test_damage_stops_with_the_same_error(data):
    events, end = plain(4)
    number = data.draw(st.integers(2, len(events) - 1))
    position = data.draw(st.integers(4, len(events[number]) - 1).filter(lambda at: not 9 <= at < 13))
    spoilt = bytearray(events[number])
    spoilt[position] ^= 1 << data.draw(st.integers(0, 7))
    events[number] = bytes(spoilt)
    said = []
    for one_by_one in (True, False):
        with pytest.raises(FormatError) as stopped:
            rows_of(events, FIRST, end, True, 100, one_by_one=one_by_one)
        said.append(str(stopped.value))
    assert said[0] == said[1]

"""Rule: the groups of a window give their rows and statements of captured tables; what can't be read stops."""

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.mysql.recorded_log import MYSQL, bodies, event, format_description, recorded, recorded_events, turn

from headrace.errors import CaptureError, FormatError
from headrace.sources.mysql.binlog_position import BinlogPosition
from headrace.sources.mysql.events import EventType
from headrace.sources.mysql.statements import Meaning, Named
from headrace.sources.mysql.transactions import (
    Decided,
    Prepared,
    RowsEvent,
    StatementEvent,
    TransactionEnd,
    TransactionReader,
)

ITEM, PLAIN = ("shop", "item"), ("shop", "plain")
BEGINNING, BEFORE_TEXT = BinlogPosition(0, 1, 4), BinlogPosition(0, 4, 379)


def at(file, position):
    return BinlogPosition(0, file, position)


def steps(tables=(ITEM,), start=BEGINNING, end=BEFORE_TEXT, data=None, **options):
    reader = TransactionReader(start, end, tables, **options)
    found = [step for each in data or recorded() for step in reader.read(each)]
    reader.finish()
    return found


def of(kind, found):
    return [step for step in found if isinstance(step, kind)]


def test_rows_come_with_their_group_and_where_they_stand():
    found = of(RowsEvent, steps())
    assert [(r.transaction.gtid, EventType(r.kind).name, r.position) for r in found] == [
        ("0-1-3", "WRITE_ROWS_V1", 1220),
        ("0-1-4", "UPDATE_ROWS_V1", 1584),
        ("0-1-5", "DELETE_ROWS_V1", 1945),
        ("0-1-6", "WRITE_ROWS_V1", 2378),
        ("0-1-7", "UPDATE_ROWS_V1", 2745),
        ("0-1-14", "WRITE_ROWS_V1", 4711),
        ("0-1-18", "WRITE_ROWS_V1", 5749),
        ("0-1-18", "UPDATE_ROWS_V1", 6390),
        ("0-1-21", "WRITE_ROWS_V1", 636),
    ]
    assert found[0].transaction.position == at(1, 864) and found[0].transaction.time == 1767225600_000_000
    assert found[1].query == b"UPDATE item SET price = 2.5 WHERE id = 1"


def test_ordinals_do_not_depend_on_what_is_captured():
    def ordinals(tables):
        found = of(RowsEvent, steps(tables))
        return {(r.transaction.gtid, r.position): r.ordinal for r in found}

    alone, together = ordinals([ITEM]), ordinals([ITEM, ("other", "unseen")])
    assert alone.items() < together.items()
    assert alone["0-1-18", 5749] == 0 < together["0-1-18", 5909] < alone["0-1-18", 6390]


def test_each_group_ends_where_the_next_may_begin():
    ends = of(TransactionEnd, steps([]))
    assert [e.transaction.gtid for e in ends] == [f"0-1-{n}" for n in range(1, 22)]
    in_file = [e for e in ends if e.end.file == 1]
    assert [e.end for e in in_file][:-1] == [e.transaction.position for e in in_file][1:]


def test_statements_of_captured_tables_come_and_others_do_not():
    found = of(StatementEvent, steps())
    assert [(s.transaction.gtid, s.statement.meaning, s.statement.tables) for s in found] == [
        ("0-1-2", Meaning.DEFINITION, (Named("shop", "item"),)),
        ("0-1-8", Meaning.DEFINITION, (Named("shop", "item"),)),
        ("0-1-19", Meaning.TRUNCATE, (Named("shop", "item"),)),
    ]


def test_a_prepared_transaction_is_held_until_it_is_decided():
    found = steps()
    assert of(Prepared, found) == [
        Prepared("X'61',X'62',7", at(1, 3020), at(1, 3475)),
        Prepared("X'72',X'',1", at(1, 3835), at(1, 4292)),
    ]
    assert [(d.transaction.gtid, d.xid, d.committed) for d in of(Decided, found)] == [
        ("0-1-11", "X'61',X'62',7", True),
        ("0-1-13", "X'72',X'',1", False),
    ]
    # Another table may be captured before it is decided, so that those without rows of captured tables are named too.
    assert [one.captured for one in of(Prepared, found)] == [True, True]
    assert [one.captured for one in of(Prepared, steps([PLAIN]))] == [False, False]


def test_the_rows_of_a_prepared_transaction_are_read_when_it_is_committed():
    span = [d for d, e in zip(recorded(), recorded_events(), strict=True) if 3020 <= e.start < 3475][:6]
    found = steps(start=at(1, 3020), end=at(1, 3475), data=[turn("binlog.000001", 3020), *span], prepared=True)
    assert [type(step) for step in found] == [RowsEvent, TransactionEnd]


@pytest.mark.parametrize("cut", [0, 7, 20, 21])
def test_two_windows_have_together_what_one_has(cut):
    whole = steps()
    positions = [BinlogPosition(0, 1, 4), *(e.transaction.position for e in of(TransactionEnd, whole))]
    assert steps(end=positions[cut]) + steps(start=positions[cut]) == whole if cut else True
    assert [s for s in whole if isinstance(s, TransactionEnd) and s.transaction.position < positions[cut]] == of(
        TransactionEnd, steps(end=positions[cut]) if cut else []
    )


def test_a_statement_that_changes_rows_stops_where_it_may_be_of_a_captured_table():
    with pytest.raises(CaptureError, match=r"binlog.000004, position 421.*logged as a statement.*INSERT INTO item"):
        steps(end=at(4, 567))
    assert of(TransactionEnd, steps([("elsewhere", "t")], end=at(4, 567)))[-1].transaction.gtid == "0-1-22"


def gtid(number):
    return bytes([0]) + bytes(15) + b"\x01" + struct.pack("<qBqq", number, 2, 0, 0) + bytes(7)


def said(statement, database="shop"):
    head = struct.pack("<IIBHH", 9, 0, len(database), 0, 0)
    return EventType.QUERY, head + database.encode() + b"\0" + statement.encode()


def by_hand(*parts, flags=0):
    """A log of events by MySQL, from byte 4 of a file."""
    found = [turn(), format_description()]
    position = 4 + len(found[1])
    for kind, body in parts:
        found.append(event(kind, body, start=position, flags=flags))
        position += len(found[-1])
    return found, position


MAP = (EventType.TABLE_MAP, bodies(EventType.TABLE_MAP)[0])
ROWS = (EventType.WRITE_ROWS_V1, bodies(EventType.WRITE_ROWS_V1)[0])
GTID, XID = (EventType.GTID, gtid(7)), (EventType.XID, bytes(8))


def read(*parts, tables=(ITEM,), flags=0, **options):
    data, end = by_hand(*parts, flags=flags)
    return steps(tables, BinlogPosition(0, 7, 4), BinlogPosition(0, 7, end), data, **options)


def test_groups_of_mysql_begin_with_a_statement_or_are_one():
    rows, ended, emptied, again = read(GTID, said("BEGIN"), MAP, ROWS, XID, GTID, said("TRUNCATE item"))
    assert isinstance(rows, RowsEvent) and rows.thread == 9 and isinstance(ended, TransactionEnd)
    assert emptied.statement.meaning is Meaning.TRUNCATE and again.transaction == emptied.transaction


def test_mysql_holds_what_follows_xa_start():
    xid = struct.pack("<BIII", 0, 1, 1, 0) + b"a"
    found = read(GTID, said("XA START X'61',X'',1"), MAP, ROWS, said("XA END X'61',X'',1"), (EventType.XA_PREPARE, xid))
    assert [type(step) for step in found] == [Prepared, TransactionEnd]


def test_a_recorded_log_of_mysql_gives_its_groups():
    found = steps(end=BinlogPosition(0, 2, 633), data=recorded(MYSQL))
    uuid = found[0].transaction.gtid.partition(":")[0]
    rows = of(RowsEvent, found)
    assert [
        (r.transaction.gtid.removeprefix(f"{uuid}:"), EventType(r.kind).name, r.position, r.query) for r in rows
    ] == [
        ("2", "WRITE_ROWS", 741, None),
        ("blue:1", "UPDATE_ROWS", 1155, b"UPDATE item SET name = 'y'"),
        ("3", "WRITE_ROWS", 1357, b"INSERT INTO item (id, name) VALUES (2, REPEAT('z', 10))"),
        ("4", "PARTIAL_UPDATE_ROWS", 2006, b"UPDATE item SET doc = JSON_SET(doc, '$.a', 2) WHERE id = 1"),
        ("9", "DELETE_ROWS", 558, b"DELETE FROM item WHERE id = 4"),
    ]
    assert {r.thread for r in rows} == {10}
    assert [(e.transaction.gtid.removeprefix(f"{uuid}:"), e.end.position) for e in of(TransactionEnd, found)][-3:] == [
        ("7", 3310),
        ("8", 3806),
        ("9", 633),
    ]


def test_mysql_commits_in_one_phase_where_it_prepares():
    found = [
        step
        for step in steps(end=BinlogPosition(0, 2, 633), data=recorded(MYSQL))
        if isinstance(step, (Prepared, Decided))
    ]
    assert [step.xid for step in found] == ["X'61',X'',1", "X'61',X'',1", "X'6f6e65',X'',1", "X'6f6e65',X'',1"]
    prepared, decided = found[2:]
    assert decided.committed and decided.transaction.position == prepared.start


def test_a_log_without_gtids_has_groups_too():
    found = read(said("BEGIN"), MAP, ROWS, said("COMMIT"))
    assert [(type(step), step.transaction.gtid) for step in found] == [(RowsEvent, None), (TransactionEnd, None)]


def test_a_compressed_transaction_is_a_group():
    inner = b"".join(event(kind, body, checksum=False, end=0) for kind, body in (said("BEGIN"), MAP, ROWS, XID))
    rows, ended = read(GTID, (EventType.TRANSACTION_PAYLOAD, b"\x02\x03\xfc\xff\x00\x00" + inner))
    assert isinstance(rows, RowsEvent) and isinstance(ended, TransactionEnd)


@pytest.mark.parametrize(
    ("parts", "error", "what"),
    [
        ([MAP], FormatError, "outside of one"),
        ([GTID, GTID], FormatError, "inside of another"),
        ([GTID, said("BEGIN"), ROWS], FormatError, "not described before"),
        ([GTID, said("BEGIN"), MAP, ROWS], FormatError, "ended inside of the transaction"),
        ([GTID, said("BEGIN"), MAP, ROWS, ROWS, XID], FormatError, "not described before"),
        ([GTID, said("BEGIN"), MAP, ROWS, said("ROLLBACK")], CaptureError, "rolled back.*shop.item"),
        ([GTID, said("BEGIN"), MAP, ROWS, said("ROLLBACK TO s")], CaptureError, "rolled back.*shop.item"),
        ([GTID, said("UPDATE item SET a = 1")], CaptureError, "as a statement, without its rows: UPDATE item SET"),
        ([GTID, said("DELETE FROM Shop.item", "x")], CaptureError, "as a statement"),
        ([GTID, said("FROBNICATE item")], CaptureError, "not understood"),
        ([(EventType.EXECUTE_LOAD_QUERY, b"")], CaptureError, "LOAD DATA"),
        ([(EventType.INCIDENT, b"\x01\x00\x04lost")], CaptureError, "changes are missing in its log: lost"),
        ([(EventType.WRITE_ROWS_V0, b"")], CaptureError, "form of MySQL 5.1"),
        ([(99, b"")], CaptureError, "unknown type 99"),
        ([GTID, said("BEGIN"), (EventType.STOP, b"")], CaptureError, "ends inside of a transaction"),
    ],
)
def test_what_can_not_be_read_stops(parts, error, what):
    with pytest.raises(error, match=what):
        read(*parts)


def test_an_unknown_event_that_may_be_ignored_is():
    assert read((99, b""), flags=0x80) == []


def test_a_log_that_ends_before_the_window_does_stops():
    with pytest.raises(FormatError, match="before the end of what is to be read"):
        steps(end=replace(BEFORE_TEXT, file=9), tables=[("elsewhere", "t")])


WITH_CHECKSUM = [number for number, found in enumerate(recorded_events()) if found.kind != EventType.ROTATE][1:80]


@given(st.sampled_from(WITH_CHECKSUM), st.integers(0, 400), st.integers(1, 255))
def test_damage_of_any_byte_stops(number, position, change):
    data = recorded()
    damaged = bytearray(data[number])
    damaged[position % len(damaged)] ^= change
    reader = TransactionReader(BEGINNING, BinlogPosition(0, 9, 4), [("elsewhere", "t")])
    with pytest.raises((FormatError, CaptureError)):
        for each in [*data[:number], bytes(damaged)]:
            list(reader.read(each))

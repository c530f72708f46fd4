"""Rule: a group is named as its server names it, and a set of groups keeps the holes that it has."""

import struct
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.mysql.recorded_log import MYSQL, bodies, recorded_events

from headrace.errors import FormatError
from headrace.sources.mysql.events import EventType
from headrace.sources.mysql.gtid import (
    GtidStart,
    MariadbGtidSet,
    MysqlGtidSet,
    XaPrepare,
    Xid,
    read_gtid,
    read_gtid_list,
    read_mariadb_gtid,
    read_previous_gtids,
    read_tagged_gtid,
    read_xa_prepare,
)

UUID_A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
UUID_B = "ffffffff-71ca-11e1-9e33-c80aa9429562"
A, B = UUID(UUID_A).bytes, UUID(UUID_B).bytes
TIME = 1_767_225_600_123_456
TIME_BYTES = TIME.to_bytes(7, "little")


def prefix_coded(value):
    """A number as MySQL's serialization writes it."""
    size = next((n for n in range(1, 9) if value < 1 << 7 * n), 9)
    if size == 9:
        return b"\xff" + value.to_bytes(8, "little")
    return (value << size | (1 << size - 1) - 1).to_bytes(size, "little")


def tagged(*, number=7, tag=b"blue", time=TIME, uuid=A, first=(), version=1):
    fields = [
        *first,
        (1, b"".join(map(prefix_coded, uuid))),
        (2, prefix_coded(number << 1)),
        (3, prefix_coded(len(tag)) + tag),
        (4, prefix_coded(2)),
        (5, prefix_coded(4)),
        (6, prefix_coded(time)),
        (8, prefix_coded(300)),
    ]
    content = b"".join(prefix_coded(field) + value for field, value in fields)
    return prefix_coded(version) + prefix_coded(len(content)) + prefix_coded(6) + content


def clocked(uuid=A, number=7, time=TIME_BYTES, more=b""):
    return b"\x01" + uuid + struct.pack("<qBqq", number, 2, 5, 6) + time + more


@pytest.mark.parametrize(
    ("read", "body", "start"),
    [
        (read_gtid, clocked(), GtidStart(f"{UUID_A}:7", TIME)),
        (
            read_gtid,
            clocked(time=(TIME | 1 << 55).to_bytes(7, "little"), more=bytes(7)),
            GtidStart(f"{UUID_A}:7", TIME),
        ),
        (read_gtid, clocked(bytes(16), 0), GtidStart(None, TIME)),
        (read_gtid, clocked()[:25], GtidStart(f"{UUID_A}:7", None)),
        (read_gtid, clocked()[:42], GtidStart(f"{UUID_A}:7", None)),
        (read_tagged_gtid, tagged(), GtidStart(f"{UUID_A}:blue:7", TIME)),
        (read_tagged_gtid, tagged(tag=b"", number=1 << 40), GtidStart(f"{UUID_A}:{1 << 40}", TIME)),
        (read_tagged_gtid, tagged(first=[(0, b"\x02")], uuid=B), GtidStart(f"{UUID_B}:blue:7", TIME)),
        (read_xa_prepare, struct.pack("<BIII", 0, 7, 1, 2) + b"abc", XaPrepare(Xid(b"a", b"bc", 7), False)),
        (read_xa_prepare, struct.pack("<BIII", 1, 7, 1, 2) + b"abc", XaPrepare(Xid(b"a", b"bc", 7), True)),
    ],
)
def test_what_begins_and_prepares_groups_of_mysql(read, body, start):
    assert read(body) == start


@pytest.mark.parametrize(
    ("read", "body"),
    [
        (read_gtid, clocked()[:24]),
        (read_gtid, clocked()[:30]),
        (read_gtid, clocked()[:45]),
        (read_tagged_gtid, tagged(version=2)),
        (read_tagged_gtid, tagged(first=[(40, b"\x02")])),
        (read_tagged_gtid, tagged(number=0)),
        (read_tagged_gtid, tagged()[:20]),
        (read_xa_prepare, struct.pack("<BIII", 0, 7, 1, 2) + b"ab"),
    ],
)
def test_a_group_without_a_whole_beginning_stops(read, body):
    with pytest.raises(FormatError):
        read(body)


@given(st.binary(max_size=80))
def test_any_bytes_are_a_beginning_or_an_error_of_format(body):
    for read in (read_gtid, read_tagged_gtid, read_xa_prepare, read_previous_gtids, read_gtid_list):
        try:
            assert read(body) is not None
        except FormatError as error:
            assert error.message


@pytest.mark.parametrize(
    ("extra", "without_effect"),
    [(b"", False), (bytes(6), False), (b"\x02", True), (b"\x04" + bytes(8), False), (b"\x08" + bytes(8), True)],
)
def test_an_alter_in_two_phases_has_its_effect_when_it_is_committed(extra, without_effect):
    found = read_mariadb_gtid(struct.pack("<QIB", 9, 0, 1) + extra, 5)
    assert found == GtidStart("0-5-9", standalone=True, without_effect=without_effect)


def test_groups_of_mariadb_are_those_of_the_recording():
    found = [
        read_mariadb_gtid(event.body, event.server)
        for event in recorded_events()
        if event.kind == EventType.MARIADB_GTID
    ]
    assert [start.gtid for start in found] == [f"0-1-{number}" for number in range(1, 27)]
    assert [number for number, start in enumerate(found, 1) if start.standalone] == [1, 2, 8, 11, 13, 15, 19, 24, 26]
    assert {n: s.prepared.text for n, s in enumerate(found, 1) if s.prepared} == {9: "X'61',X'62',7", 12: "X'72',X'',1"}
    assert {n: s.completed.text for n, s in enumerate(found, 1) if s.completed} == {
        11: "X'61',X'62',7",
        13: "X'72',X'',1",
    }
    assert [read_gtid_list(body).text for body in bodies(EventType.GTID_LIST)] == ["", "0-1-20", "0-1-20", "0-1-21"]


def test_a_mariadb_group_may_say_more_than_its_name():
    committed_together = struct.pack("<QIBQ", 9, 3, 0x02 | 0x80, 77) + struct.pack("<IBB", 1, 2, 0) + b"ab"
    assert read_mariadb_gtid(committed_together, 11) == GtidStart("3-11-9", completed=Xid(b"ab", b"", 1))


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("", ""),
        (f"{UUID_A}:1-5", f"{UUID_A}:1-5"),
        (f"{UUID_A}:5:1-3:4", f"{UUID_A}:1-5"),
        (f" {UUID_B.upper()}:1 ,\n{UUID_A}:2-2:9-11", f"{UUID_A}:2:9-11,{UUID_B}:1"),
        (f"{UUID_A}:1-32:tagx:1:3-4:Tagy:8", f"{UUID_A}:1-32:tagx:1:3-4:tagy:8"),
    ],
)
def test_sets_of_mysql_are_written_as_the_server_writes_them(text, same):
    assert MysqlGtidSet.of(text).text == same
    assert MysqlGtidSet.of(same) == MysqlGtidSet.of(text)


@pytest.mark.parametrize("text", ["1-2-3", f"{UUID_A}:0", f"{UUID_A}:5-3", f"{UUID_A}:a-b"])
def test_what_is_no_set_of_mysql(text):
    with pytest.raises(ValueError):
        MysqlGtidSet.of(text)


NUMBERS = st.sets(st.tuples(st.sampled_from([UUID_A, UUID_B, f"{UUID_A}:tag"]), st.integers(1, 30)))


@given(NUMBERS, NUMBERS)
def test_a_set_of_mysql_is_what_was_added_in_any_order(first, second):
    def made(numbers):
        return MysqlGtidSet().add(f"{source}:{number}" for source, number in numbers)

    assert made(first).add(f"{s}:{n}" for s, n in second) == made(first | second)
    assert MysqlGtidSet.of(made(first).text) == made(first)
    assert made(first).contains(made(second)) == (second <= first)


def test_what_a_file_of_mysql_says_of_those_before_it():
    plain = struct.pack("<Q", 2) + A + struct.pack("<5Q", 2, 1, 6, 8, 9) + B + struct.pack("<3Q", 1, 4, 5)
    assert read_previous_gtids(plain).text == f"{UUID_A}:1-5:8,{UUID_B}:4"
    head = struct.pack("<Q", 1 << 56 | 2 << 8 | 1)
    entries = A + b"\x00" + struct.pack("<3Q", 1, 1, 33) + A + b"\x08tagx" + struct.pack("<3Q", 1, 1, 2)
    assert read_previous_gtids(head + entries).text == f"{UUID_A}:1-32:tagx:1"


@pytest.mark.parametrize(
    "body", [struct.pack("<Q", 1), struct.pack("<Q", 0) + b"x", struct.pack("<Q", 1) + A + struct.pack("<3Q", 1, 5, 5)]
)
def test_what_a_file_of_mysql_may_not_say(body):
    with pytest.raises(FormatError):
        read_previous_gtids(body)


def test_positions_of_mariadb_are_the_newest_group_of_each_domain():
    state = MariadbGtidSet.of("0-11-100018,1-5-7,0-12-100020")
    assert state.text == "0-12-100020,1-5-7"
    assert state.whole_text == "0-11-100018,0-12-100020,1-5-7"
    assert state.add(["0-11-100021"]).text == "0-11-100021,1-5-7"
    assert MariadbGtidSet.of(state.add(["0-11-100021"]).whole_text) == MariadbGtidSet.of(
        "0-12-100020,0-11-100021,1-5-7"
    )


@pytest.mark.parametrize(
    ("here", "there", "contains"),
    [
        ("0-1-5", "0-1-5", True),
        ("0-1-5", "0-2-5", True),
        ("0-1-5", "0-1-6", False),
        ("0-1-5", "1-1-1", False),
        ("0-1-5,1-1-1", "1-1-1", True),
        ("", "", True),
    ],
)
def test_a_position_of_mariadb_is_ahead_of_another_in_each_domain(here, there, contains):
    assert MariadbGtidSet.of(here).contains(MariadbGtidSet.of(there)) is contains


@pytest.mark.parametrize(
    ("here", "there", "continues"),
    [
        ("0-1-5,0-2-8", "0-1-5", True),
        ("0-1-5,0-2-8", "0-1-4,0-2-7", True),
        ("0-1-4,0-2-8", "0-1-5", False),
        ("0-2-8", "0-1-5", False),
        ("0-1-5", "0-1-5,1-1-1", False),
    ],
)
def test_the_group_of_another_server_with_the_same_number_is_another_one(here, there, continues):
    assert MariadbGtidSet.of(here).continues(MariadbGtidSet.of(there)) is continues


def test_a_set_has_single_groups():
    held = MysqlGtidSet.of(f"{UUID_A}:1-5:8")
    assert [n for n in range(1, 10) if held.has(f"{UUID_A}:{n}")] == [1, 2, 3, 4, 5, 8]
    assert not held.has(f"{UUID_B}:1")
    held = MariadbGtidSet.of("0-1-5,0-2-8,3-1-1")
    assert [gtid for gtid in ("0-1-5", "0-9-8", "0-1-9", "3-1-1", "3-1-2", "4-1-1") if held.has(gtid)] == [
        *("0-1-5", "0-9-8", "3-1-1"),
    ]


def test_what_is_no_position_of_mariadb():
    with pytest.raises(ValueError):
        MariadbGtidSet.of(f"{UUID_A}:1")


def test_groups_of_mysql_are_those_of_the_recording():
    starts = [
        read_tagged_gtid(found.body) if found.kind == EventType.GTID_TAGGED else read_gtid(found.body)
        for found in recorded_events(MYSQL)
        if found.kind in (EventType.GTID, EventType.GTID_TAGGED)
    ]
    uuid = starts[0].gtid.partition(":")[0]
    assert [start.gtid.removeprefix(f"{uuid}:") for start in starts] == [
        *("1", "2", "blue:1"),
        *(str(number) for number in range(3, 12)),
    ]
    assert [start.time for start in starts] == sorted(start.time for start in starts)
    assert MysqlGtidSet().add(start.gtid for start in starts).text == f"{uuid}:1-11:blue:1"
    assert [read_previous_gtids(body).text for body in bodies(EventType.PREVIOUS_GTIDS, MYSQL)] == [
        "",
        f"{uuid}:1-8:blue:1",
    ]

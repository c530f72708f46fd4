"""Rule: rows of a change table become the changes that were made.

Paired, ordered, numbered, and with three states per column.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.sqlserver_change_table import INT, MAX, PAIR, TEXT, TIME, VARCHAR, lsn_text, read

from headrace.errors import CaptureError


def test_insert_update_and_delete_have_the_images_they_carry():
    rows = read(
        [
            (1, 1, 2, b"\x03", 1, 5, "a"),
            (2, 2, 3, b"\x02", 1, 5, "a"),
            (2, 2, 4, b"\x02", 1, 5, None),
            (3, 3, 1, b"\x03", 1, 5, None),
        ],
        PAIR,
    )
    assert [(r["op"], r["before"], r["after"], r["changed"]) for r in rows] == [
        ("c", None, [("id", "5"), ("name", "a")], None),
        ("u", [("id", "5"), ("name", "a")], [("id", "5"), ("name", None)], ["name"]),
        ("d", [("id", "5"), ("name", None)], None, None),
    ]
    assert [r["key_text"] for r in rows] == ['["5"]'] * 3
    assert [r["key"] for r in rows] == [[("id", "5")]] * 3
    assert {r["event_time"] for r in rows} == {TIME}


def test_positions_follow_the_servers_order_and_grow():
    rows = read([(1, 9, 2, b"\x03", 1, 1, "a"), (1, 3, 2, b"\x03", 2, 2, "b"), (2, 1, 1, b"\x03", 1, 1, "a")], PAIR)
    positions = [r["position"] for r in rows]
    assert positions == sorted(positions)
    assert positions[0] == f"{lsn_text(1)}/00000001:{lsn_text(9)}/2"


@pytest.mark.parametrize(
    ("rows", "serials"),
    [
        # The recorded event_serial_no: 1 for insert and delete, 2 for an update, counting on for rows of one change.
        ([(1, 1, 2, b"\x03", 1, 1, "a")], ["1"]),
        ([(1, 1, 3, b"\x02", 1, 1, "a"), (1, 1, 4, b"\x02", 1, 1, "b")], ["2"]),
        ([(1, 1, 1, b"\x03", 1, 1, "a"), (1, 1, 2, b"\x03", 2, 2, "a")], ["1", "2"]),
        ([(1, 1, n % 2 + 1, b"\x03", n, n, "a") for n in range(4)], ["1", "2", "3", "4"]),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_events_of_one_change_are_numbered(rows, serials, size):
    found = read(rows, PAIR, size=size)
    assert [dict(r["source"])["event_serial_no"] for r in found] == serials


@given(st.lists(st.sampled_from(["c", "u", "d"]), min_size=1, max_size=30), st.integers(1, 7))
def test_where_batches_end_makes_no_difference(operations, size):
    rows = []
    for number, op in enumerate(operations, start=1):
        if op == "u":
            rows += [(1, number, 3, b"\x02", number, 1, "a"), (1, number, 4, b"\x02", number, 1, "b")]
        else:
            rows.append((1, number, 2 if op == "c" else 1, b"\x03", number, 1, "a"))
    assert read(rows, PAIR, size=size) == read(rows, PAIR)
    assert [r["op"] for r in read(rows, PAIR, size=size)] == operations


def test_without_command_ids_several_updates_of_one_change_are_still_paired():
    rows = [
        (1, 1, 3, b"\x02", 0, 1, "a"),
        (1, 1, 3, b"\x02", 0, 2, "b"),
        (1, 1, 4, b"\x02", 0, 1, "A"),
        (1, 1, 4, b"\x02", 0, 2, "B"),
    ]
    assert [(dict(r["before"])["name"], dict(r["after"])["name"]) for r in read(rows, PAIR)] == [("a", "A"), ("b", "B")]


@pytest.mark.parametrize(
    "rows",
    [
        [(1, 1, 3, b"\x02", 1, 1, "a")],
        [(1, 1, 4, b"\x02", 1, 1, "a")],
        [(1, 1, 3, b"\x02", 1, 1, "a"), (2, 2, 4, b"\x02", 1, 1, "a")],
        [(1, 1, 5, b"\x03", 1, 1, "a")],
    ],
)
def test_half_an_update_or_an_unknown_operation_stops_loudly(rows):
    with pytest.raises(CaptureError, match="dbo_t"):
        read(rows, PAIR)


LARGE = (("id", INT), ("big", MAX), ("note", VARCHAR), ("old", TEXT))


def test_an_unchanged_large_value_is_absent_and_a_real_null_is_null():
    rows = read(
        [
            (1, 1, 3, b"\x04", 1, 5, None, "x", None),
            (1, 1, 4, b"\x04", 1, 5, None, None, None),
            (2, 2, 3, b"\x02", 1, 5, None, "x", None),
            (2, 2, 4, b"\x02", 1, 5, None, "x", None),
        ],
        LARGE,
    )
    assert [dict(r["after"]) for r in rows] == [
        {"id": "5", "note": None},
        {"id": "5", "big": None, "note": "x"},
    ]
    assert [dict(r["before"]) for r in rows] == [
        {"id": "5", "note": "x"},
        {"id": "5", "big": None, "note": "x"},
    ]


def test_a_delete_never_says_what_a_text_column_held():
    rows = read([(1, 1, 1, b"\x0f", 1, 5, "b", None, None)], LARGE)
    assert dict(rows[0]["before"]) == {"id": "5", "big": "b", "note": None}


def test_mask_bits_are_found_beyond_eight_columns_and_over_ordinal_holes():
    names = ["id", *(f"c{n}" for n in range(2, 11))]
    columns = [(name, INT) for name in names]
    ordinals = [1, 2, 3, 4, 5, 6, 7, 9, 10, 11]
    mask = (1 << 10 | 1 << 8 | 1 << 1).to_bytes(2, "big")
    values = range(10)
    rows = read([(1, 1, 3, mask, 1, *values), (1, 1, 4, mask, 1, *values)], columns, ordinals=ordinals)
    assert rows[0]["changed"] == ["c2", "c8", "c10"]


def test_a_table_without_a_key_has_none():
    rows = read([(1, 1, 2, b"\x03", 1, 5, "a")], PAIR, key=())
    assert rows[0]["key"] is None
    assert rows[0]["key_text"] is None

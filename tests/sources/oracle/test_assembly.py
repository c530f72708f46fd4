"""Rule: large values that come in pieces are put together by row and column; what was taken back, cut or erased is not
told as a value."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.errors import DataLossError
from headrace.sources.oracle.assembly import Assembly
from headrace.sources.oracle.ledger import Transaction
from headrace.sources.oracle.range_index import RangeIndex
from headrace.sources.oracle.source import OracleSource
from headrace.sources.oracle.staging import ROWS

SETTINGS = OracleSource.parse({"database": "x", "lob_enabled": "true"})
UPDATE = (3, """update "S"."T" set "NAME" = 'b' where "ID" = '{id}' and "NAME" = 'a';""")
LOCATOR = (
    9,
    """DECLARE loc_c CLOB; buf_c VARCHAR2(6156); BEGIN select "{column}" into loc_c from "S"."T" """
    """where "ID" = '{id}' for update; END;""",
)
WRITE = (10, "buf_c := '{text}'; dbms_lob.write(loc_c, {length}, {offset}, buf_c);")
TRIM = (11, "dbms_lob.trim(loc_c, 2);")
ERASE = (29, "e_len := 2; dbms_lob.erase(loc_c, e_len, 1);")
BACK = True


def locator(id, column="TEXT", undo=False):
    return (LOCATOR[0], LOCATOR[1].format(id=id, column=column), undo)


def write(text, offset=1, undo=False):
    return (WRITE[0], WRITE[1].format(text=text, length=len(text), offset=offset), undo)


def update(id, undo=False):
    return (UPDATE[0], UPDATE[1].format(id=id), undo)


def batch_of(rows):
    made = [
        {
            "xid": "aa", "scn": 10 + n, "thread": 1, "rs_id": f"0x1.{n}.1", "ssn": 0, "code": code, "owner": "S",
            "name": "T", "row_id": "A" * 18, "undo": undo, "time": None, "user": "U", "status": 0, "info": None,
            "sql": sql,
        }
        for n, (code, sql, undo) in enumerate(rows)
    ]  # fmt: skip
    return pa.RecordBatch.from_pylist(made, schema=ROWS)


def values(*rows):
    """The row, the large values and those that are lost, of each change."""
    return [(event.row.after["ID"], event.values, event.lost) for event in events_of(rows, SETTINGS)]


def events_of(rows, settings):
    batches = [batch_of(rows)]

    def read(columns):
        return iter(batches if columns is None else [batch.select(columns) for batch in batches])

    transaction = Transaction("aa", rows=len(rows), undo=sum(undo for *_, undo in rows), commit=99)
    return list(Assembly(transaction, read, frozenset(("S.T",)), settings).events())


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([locator(1), write("old"), locator(1, undo=BACK), write("old", undo=BACK)], []),
        (
            [locator(1), write("one"), locator(1), write("two"), locator(1, undo=BACK)],
            [("1", {"TEXT": "one"}, set())],
        ),
        (
            [locator(1), write("one"), locator(2), write("two"), locator(1, undo=BACK)],
            [("2", {"TEXT": "two"}, set())],
        ),
        (
            [locator(1), write("one"), locator(1, "NOTE"), write("two"), locator(1, "NOTE", undo=BACK)],
            [("1", {"TEXT": "one"}, set())],
        ),
        (
            [locator(1), write("one"), locator(1, undo=BACK), locator(1), write("new")],
            [("1", {"TEXT": "new"}, set())],
        ),
        ([update(1), locator(1), write("one"), locator(1, undo=BACK)], [("1", {}, set())]),
    ],
    ids=["all", "the newest", "of another row", "of another column", "and written again", "but not its row"],
)
def test_a_value_that_is_taken_back_is_found_by_row_and_column(rows, expected):
    assert values(*rows) == expected


@pytest.mark.parametrize("cut", [TRIM, ERASE], ids=["trimmed", "erased"])
def test_a_value_that_is_cut_or_erased_in_part_is_lost(cut):
    assert values(update(1), locator(1), (*cut, False)) == [("1", {}, {"TEXT"})]


def test_a_value_with_a_piece_that_can_not_be_read_is_lost_and_what_follows_it_is_told_in_order():
    settings = OracleSource.parse({"database": "x", "lob_enabled": "true", "unreadable_changes": "skip"})
    odd = (10, "nobody prints this", False)
    rows = [update(1), locator(1), write("one"), odd, write("more", 4), (3, "nor this", False), update(2)]
    found = [(event.op.value, event.row and event.row.after["ID"], event.lost) for event in events_of(rows, settings)]
    assert found == [("u", "1", {"TEXT"}), ("error", None, set()), ("error", None, set()), ("u", "2", set())]


def test_writes_may_overlap_and_leave_holes():
    assert values(locator(1), write("abc"), write("XY", 2), write("z", 6)) == [("1", {"TEXT": "aXY  z"}, set())]


def test_redo_that_logminer_misses_is_a_loss():
    rows = batch_of([(34, None, False)])
    with pytest.raises(DataLossError, match="redo is missing at SCN 10"):
        RangeIndex().take(rows)

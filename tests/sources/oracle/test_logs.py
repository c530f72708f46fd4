"""Rule: a range of the log is mined from every log that it needs or not at all; what ranges say together tells which
transactions were committed."""

from __future__ import annotations

import pytest
from tests.sources.oracle.runs import Run, data

from headrace.errors import CaptureError, DataLossError
from headrace.sources.oracle import scn
from headrace.sources.oracle.ledger import of_ranges
from headrace.sources.oracle.logs import LogFile, chosen, destination, require_whole
from headrace.sources.oracle.range_index import MinedTransaction as Mined
from headrace.sources.oracle.range_index import RangeIndex, TransactionEnd
from headrace.sources.oracle.scn import ScnRange
from headrace_emulators.oracle import logminer
from headrace_emulators.oracle.errors import DatabaseError

FAR = 2**48 - 1


def log(sequence, first, next=FAR, thread=1, name="", current=False):
    return LogFile(thread, sequence, first, next, name or f"log {sequence}", current)


def test_the_archived_copy_of_a_log_is_taken_before_the_online_one():
    online = [log(2, 200, 300, name="online 2"), log(3, 300, current=True)]
    archived = [log(1, 100, 200), log(2, 200, 300, name="archived 2")]
    assert [found.name for found in chosen(online, archived, 150, 350)] == ["log 1", "archived 2", "log 3"]
    assert [found.name for found in chosen(online, archived, 199, 299)] == ["archived 2"]


@pytest.mark.parametrize(
    ("logs", "said"),
    [
        ([log(1, 100, 200), log(2, 200)], None),
        ([log(2, 200)], "begins with SCN 200"),
        ([log(1, 100, 200), log(3, 300)], "log sequence 2 is missing"),
        ([log(1, 100, 200)], "end with SCN 200"),
        ([], "no log of it is there"),
        # A thread that was opened later begins later.
        ([log(1, 180)], None),
    ],
    ids=["whole", "begins late", "hole", "ends early", "none", "opened later"],
)
def test_a_range_needs_every_log_of_every_open_thread(logs, said):
    begun = {1: 180}
    if said is None:
        require_whole(logs, [1], 150, 250, begun)
        return
    with pytest.raises(DataLossError, match=f"{said}.*Restore the archived logs"):
        require_whole(logs, [1], 150, 250, begun)
    with pytest.raises(DataLossError, match="thread 1"):
        require_whole([*logs, log(1, 100, thread=2)], [1, 2], 150, 250, begun)


def test_the_destination_is_the_first_of_those_named_that_is_valid():
    rows = [
        (1, "LOG_ARCHIVE_DEST_1", "VALID", "LOCAL"),
        (2, "LOG_ARCHIVE_DEST_2", "VALID", "PHYSICAL"),
        (3, "X", "ERROR", "LOCAL"),
    ]
    assert destination([], rows) == 1
    assert destination(["X", "log_archive_dest_2"], rows) == 2
    with pytest.raises(CaptureError, match="archive_destination_name"):
        destination(["X"], rows)


def test_an_scn_keeps_all_its_digits():
    assert scn.number(scn.to_text(2**63 + 1)) == 2**63 + 1
    assert scn.to_text(9) < scn.to_text(10)
    with pytest.raises(ValueError, match="not an SCN"):
        scn.to_text(10**20)
    assert scn.rs_order(" 0x00034d.00006ac9.01f8 ") < scn.rs_order("0x00034d.00006aca.0010")


def ended(scn=50, *, committed=True, thread=1, rs_id="0x1.1.1"):
    return TransactionEnd(committed, scn, "2024-01-01 00:00:00", thread, rs_id, 0)


def ledger(*ranges):
    indexes = [
        (ScnRange(number * 100, number * 100 + 100), RangeIndex(transactions=transactions))
        for number, transactions in enumerate(ranges)
    ]
    return of_ranges({}, indexes)


def test_a_transaction_is_known_by_all_ranges_that_hold_its_rows():
    found = ledger(
        {"aa": Mined(start=5, rows=2, first=6, user="U")},
        {"bb": Mined(rows=1, first=110)},
        {"aa": Mined(end=ended(250))},
    ).delivered_by(0, 300)
    assert [(t.xid, t.commit, t.rows, t.user, t.ranges) for t in found] == [("aa", 250, 2, "U", [ScnRange(0, 100)])]


def test_an_id_that_is_used_again_is_another_transaction():
    found = ledger({"aa": Mined(start=5, rows=2, first=6)}, {"aa": Mined(start=105, rows=1, first=106, end=ended(150))})
    assert [(t.rows, t.start, t.ranges) for t in found.delivered_by(0, 300)] == [(1, 105, [ScnRange(100, 200)])]


def test_a_rollback_without_a_sequence_ends_the_one_transaction_that_fits():
    index = {"0a00010001000000": Mined(rows=1, first=1), "0b00010001000000": Mined(rows=1, first=1)}
    found = ledger(index, {"0a000100ffffffff": Mined(end=ended(committed=False))})
    assert [t.xid for t in found.pending(300)] == ["0b00010001000000"]


def test_a_replications_transaction_is_dropped():
    found = ledger({"aa": Mined(rows=1, first=1, replicated=True, end=ended())})
    assert found.delivered_by(0, 300) == []


def test_commits_of_one_scn_come_in_the_order_of_thread_and_record():
    found = ledger(
        {
            "aa": Mined(rows=1, first=1, end=ended(thread=2, rs_id="0x1.1.1")),
            "bb": Mined(rows=1, first=1, end=ended(thread=1, rs_id="0x1.2.1")),
            "cc": Mined(rows=1, first=1, end=ended(thread=1, rs_id="0x1.1.1")),
        }
    )
    assert [t.xid for t in found.delivered_by(0, 300)] == ["cc", "bb", "aa"]
    assert found.newest_commits(300, {}) == {"1": "50:1:bb-cc", "2": "50:2:aa"}


def test_logs_that_move_while_they_are_chosen_are_chosen_again(database, monkeypatch):
    run = Run(database)
    run.until_level()
    database.run("INSERT INTO CUSTOMERS (ID, NAME) VALUES (1, 'x')")
    start, refused = logminer.LogMiner._start, []

    def once(miner, arguments):
        if not refused:
            refused.append(True)
            raise DatabaseError(310, "archived log contains sequence 7; sequence 3 required")
        start(miner, arguments)

    monkeypatch.setattr(logminer.LogMiner, "_start", once)
    assert [values["ID"] for _, _, values in data(run.until_level())] == ["1"]
    assert refused

"""What a window of the log has is known before it is read: its groups, its cuts, and whether it has captured rows."""

from __future__ import annotations

from tests.sources.mysql.recorded_log import recorded, recorded_events

from headrace.sources.mysql.binlog_position import BinlogPosition
from headrace.sources.mysql.events import EventType, Frames
from headrace.sources.mysql.log_scan import LogScan
from headrace.sources.mysql.table_map import description, table_named
from headrace.sources.mysql.transactions import (
    Decided,
    Prepared,
    RowsEvent,
    StatementEvent,
    Step,
    TransactionEnd,
    TransactionReader,
)

WINDOW = (BinlogPosition(0, 1, 4), BinlogPosition(0, 10**9, 0))
OTHER = {("other", "t")}


def rows_log() -> list[bytes]:
    """The recording as far as it was made with binlog_format=ROW."""
    frames, found = Frames(), []
    for data in recorded():
        frames.event(data)
        if frames.number == 4:
            break
        found.append(data)
    return found


def steps(tables: set[tuple[str, str]]) -> list[Step]:
    reader = TransactionReader(*WINDOW, tables)
    return [step for data in rows_log() for step in reader.read(data)]


def all_tables() -> set[tuple[str, str]]:
    events = recorded_events()
    return {table_named(description(event.body)) for event in events if event.kind == EventType.TABLE_MAP}


def scan_window(tables: set[tuple[str, str]], *, commits: int = 0, cut_bytes: int = 1 << 30) -> LogScan:
    log_scan = LogScan(*WINDOW, tables, commits=commits, cut_bytes=cut_bytes)
    for data in rows_log():
        if log_scan.finished:
            break
        log_scan.take(data)
    return log_scan


def test_a_window_without_captured_tables_has_groups_and_no_rows() -> None:
    scan = scan_window(OTHER).scan
    ends = [step for step in steps(OTHER) if isinstance(step, TransactionEnd)]
    assert (scan.rows, scan.time) == (False, None)
    assert scan.gtids == tuple(end.transaction.gtid for end in ends if end.transaction.gtid is not None)
    assert scan.until == ends[-1].end


def test_the_last_group_with_rows_gives_the_time() -> None:
    found = steps(all_tables())
    last = [step.transaction for step in found if isinstance(step, RowsEvent | StatementEvent)][-1]
    scan = scan_window(all_tables()).scan
    assert scan.rows
    assert scan.time is not None
    assert scan.time.timestamp() * 1_000_000 == last.time


def test_so_many_groups_with_rows_end_a_window() -> None:
    ends = [step.end for step in steps(all_tables()) if isinstance(step, TransactionEnd)]
    one, two = (scan_window(all_tables(), commits=commits).scan.until for commits in (1, 2))
    assert one < two <= ends[-1]
    assert {one, two} <= set(ends)


def test_cuts_are_edges_of_groups_at_which_no_distributed_transaction_is_undecided() -> None:
    expected, held = [], set()
    for step in steps(all_tables()):
        if isinstance(step, Prepared):
            held.add(step.xid)
        elif isinstance(step, Decided):
            held.discard(step.xid)
        elif isinstance(step, TransactionEnd) and not held:
            expected.append(step.end)
    assert scan_window(all_tables(), cut_bytes=1).scan.cuts == tuple(expected[:-1])
    assert scan_window(all_tables()).scan.cuts == ()


def test_a_look_names_the_tables_with_rows_and_says_whether_tables_were_altered() -> None:
    scan = scan_window(all_tables()).scan
    rows = {table_named(step.described) for step in steps(all_tables()) if isinstance(step, RowsEvent)}
    assert (scan.tables, scan.altered) == (rows, True)
    assert scan_window(OTHER).scan.tables == set()


def test_a_distributed_transaction_has_rows_where_it_is_committed_and_is_named_until_then() -> None:
    held = next(step for step in steps(all_tables()) if isinstance(step, Prepared))
    before = LogScan(WINDOW[0], held.end, all_tables(), commits=0, cut_bytes=1 << 30)
    after = LogScan(*WINDOW, all_tables(), commits=0, cut_bytes=1 << 30)
    for data in rows_log():
        before.take(data)
        after.take(data)
    assert held in before.scan.prepared
    assert held not in after.scan.prepared


def test_a_distributed_transaction_that_was_prepared_before_the_look_is_asked_for_where_it_is_committed() -> None:
    decided = next(step for step in steps(all_tables()) if isinstance(step, Decided) and step.committed)
    asked = []

    def earlier(xid: str) -> Prepared:
        asked.append(xid)
        return Prepared(xid, WINDOW[0], WINDOW[0])

    position = decided.transaction.position
    log_scan = LogScan(
        position, position.at(position.position + 1), all_tables(), commits=1, cut_bytes=1 << 30, earlier=earlier
    )
    for data in rows_log():
        log_scan.take(data)
    assert asked == [decided.xid]
    assert log_scan.scan.rows

"""What a window of the log has is known before it is read: its groups, its cuts, and whether it has captured rows."""

from __future__ import annotations

from tests.sources.mysql.recorded_log import recorded, recorded_events

from headrace.sources.mysql.events import EventType, Frames
from headrace.sources.mysql.groups import Decided, GroupEnd, GroupReader, Prepared, RowsEvent, StatementEvent, Step
from headrace.sources.mysql.look import Look
from headrace.sources.mysql.place import Place
from headrace.sources.mysql.table_map import description, table_named

WINDOW = (Place(0, 1, 4), Place(0, 10**9, 0))
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
    reader = GroupReader(*WINDOW, tables)
    return [step for data in rows_log() for step in reader.read(data)]


def all_tables() -> set[tuple[str, str]]:
    events = recorded_events()
    return {table_named(description(event.body)) for event in events if event.kind == EventType.TABLE_MAP}


def looked(tables: set[tuple[str, str]], *, commits: int = 0, cut_bytes: int = 1 << 30) -> Look:
    look = Look(*WINDOW, tables, commits=commits, cut_bytes=cut_bytes)
    for data in rows_log():
        if look.finished:
            break
        look.take(data)
    return look


def test_a_window_without_captured_tables_has_groups_and_no_rows() -> None:
    seen = looked(OTHER).seen
    ends = [step for step in steps(OTHER) if isinstance(step, GroupEnd)]
    assert (seen.rows, seen.time) == (False, None)
    assert seen.gtids == tuple(end.group.gtid for end in ends if end.group.gtid is not None)
    assert seen.until == ends[-1].end


def test_the_last_group_with_rows_gives_the_time() -> None:
    found = steps(all_tables())
    last = [step.group for step in found if isinstance(step, RowsEvent | StatementEvent)][-1]
    seen = looked(all_tables()).seen
    assert seen.rows
    assert seen.time is not None
    assert seen.time.timestamp() * 1_000_000 == last.time


def test_so_many_groups_with_rows_end_a_window() -> None:
    ends = [step.end for step in steps(all_tables()) if isinstance(step, GroupEnd)]
    one, two = (looked(all_tables(), commits=commits).seen.until for commits in (1, 2))
    assert one < two <= ends[-1]
    assert {one, two} <= set(ends)


def test_cuts_are_edges_of_groups_at_which_no_distributed_transaction_is_undecided() -> None:
    expected, held = [], set()
    for step in steps(all_tables()):
        if isinstance(step, Prepared):
            held.add(step.xid)
        elif isinstance(step, Decided):
            held.discard(step.xid)
        elif isinstance(step, GroupEnd) and not held:
            expected.append(step.end)
    assert looked(all_tables(), cut_bytes=1).seen.cuts == tuple(expected[:-1])
    assert looked(all_tables()).seen.cuts == ()


def test_a_look_names_the_tables_with_rows_and_says_whether_tables_were_altered() -> None:
    seen = looked(all_tables()).seen
    rows = {table_named(step.described) for step in steps(all_tables()) if isinstance(step, RowsEvent)}
    assert (seen.tables, seen.altered) == (rows, True)
    assert looked(OTHER).seen.tables == set()


def test_a_distributed_transaction_has_rows_where_it_is_committed_and_is_named_until_then() -> None:
    held = next(step for step in steps(all_tables()) if isinstance(step, Prepared))
    before = Look(WINDOW[0], held.end, all_tables(), commits=0, cut_bytes=1 << 30)
    behind = Look(*WINDOW, all_tables(), commits=0, cut_bytes=1 << 30)
    for data in rows_log():
        before.take(data)
        behind.take(data)
    assert held in before.seen.prepared
    assert held not in behind.seen.prepared


def test_a_distributed_transaction_that_was_prepared_before_the_look_is_asked_for_where_it_is_committed() -> None:
    decided = next(step for step in steps(all_tables()) if isinstance(step, Decided) and step.committed)
    asked = []

    def earlier(xid: str) -> Prepared:
        asked.append(xid)
        return Prepared(xid, WINDOW[0], WINDOW[0])

    place = decided.group.place
    look = Look(place, place.at(place.position + 1), all_tables(), commits=1, cut_bytes=1 << 30, earlier=earlier)
    for data in rows_log():
        look.take(data)
    assert asked == [decided.xid]
    assert look.seen.rows

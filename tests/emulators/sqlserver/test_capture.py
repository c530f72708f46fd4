"""What the change tables hold, and when: whole transactions, after their commit and their capture, in commit order."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from headrace.testing.waiting import until
from headrace_emulators.sqlserver import EmulatedDatabase
from headrace_emulators.sqlserver.errors import DatabaseError, IntegrityError, ProgrammingError

ROWS = (
    "SELECT __$operation, __$update_mask, id, name, amount, __$command_id FROM cdc.dbo_items_CT"
    " ORDER BY __$start_lsn, __$command_id, __$seqval, __$operation"
)


def changes(database: EmulatedDatabase) -> list[tuple[Any, ...]]:
    return [
        tuple(str(v) if k == 4 and v is not None else v for k, v in enumerate(r))
        for r in database.execute(ROWS).fetchall()
    ]


def test_a_change_is_visible_only_after_commit_and_capture(items: EmulatedDatabase) -> None:
    with items.transaction() as cursor:
        cursor.execute("INSERT INTO items VALUES (1, 'a', 1)")
        other = items.connect()
        assert other.execute("SELECT COUNT(*) FROM dbo.items").fetchval() == 0
    assert other.execute("SELECT COUNT(*) FROM dbo.items").fetchval() == 1
    assert changes(items) == []
    assert items.capture() == 1
    assert changes(items) == [(2, b"\x07", 1, "a", "1.00", 1)]
    other.close()


def test_a_rollback_leaves_nothing(items: EmulatedDatabase) -> None:
    with pytest.raises(RuntimeError), items.transaction() as cursor:
        cursor.execute("INSERT INTO items VALUES (1, 'a', 1)")
        raise RuntimeError("changed my mind")
    assert items.execute("SELECT COUNT(*) FROM items").fetchval() == 0
    assert items.capture() == 0
    assert changes(items) == []


def test_a_statement_that_fails_leaves_the_rest_of_its_transaction(items: EmulatedDatabase) -> None:
    with items.transaction() as cursor:
        cursor.execute("INSERT INTO items VALUES (1, 'a', 1)")
        with pytest.raises(IntegrityError) as caught:
            cursor.execute("INSERT INTO items VALUES (2, 'b', 1), (1, 'again', 1)")
        cursor.execute("INSERT INTO items VALUES (3, 'c', 1)")
    assert caught.value.number == 2627
    items.capture()
    assert [row[2] for row in changes(items)] == [1, 3]


def test_inserts_updates_and_deletes_have_their_rows_and_masks(items: EmulatedDatabase) -> None:
    items.execute("INSERT INTO items VALUES (1, 'a', 1), (2, 'b', NULL)")
    items.execute("UPDATE items SET amount = 2.5 WHERE id = 1")
    items.execute("UPDATE items SET amount = amount WHERE id = 1")
    items.execute("DELETE FROM items WHERE id = 2")
    items.capture()
    assert changes(items) == [
        (2, b"\x07", 1, "a", "1.00", 1),
        (2, b"\x07", 2, "b", None, 2),
        (3, b"\x04", 1, "a", "1.00", 1),
        (4, b"\x04", 1, "a", "2.50", 1),
        (1, b"\x07", 2, "b", None, 1),
    ]


def test_ordinals_beyond_eight_are_in_the_first_byte(database: EmulatedDatabase) -> None:
    columns = ", ".join(f"c{i} int NULL" for i in range(1, 11))
    database.execute(f"CREATE TABLE dbo.wide (id int NOT NULL PRIMARY KEY, {columns})")
    database.execute("EXEC sys.sp_cdc_enable_table 'dbo', 'wide', @role_name = NULL")
    database.execute("INSERT INTO wide (id) VALUES (1)")
    for assignment in ("c1 = 1", "c7 = 1", "c8 = 1", "c1 = 2, c10 = 1"):
        database.execute(f"UPDATE wide SET {assignment}")
    database.capture()
    masks = database.execute(
        "SELECT __$update_mask FROM cdc.dbo_wide_CT WHERE __$operation IN (2, 4) ORDER BY __$start_lsn"
    ).fetchall()
    assert [m for (m,) in masks] == [b"\x07\xff", b"\x00\x02", b"\x00\x80", b"\x01\x00", b"\x04\x02"]


def test_a_change_of_a_key_is_a_delete_and_an_insert_under_one_sequence_value(items: EmulatedDatabase) -> None:
    items.execute("INSERT INTO items VALUES (1, 'a', 1)")
    items.execute("UPDATE items SET id = 5, name = 'b'")
    items.capture()
    assert changes(items)[1:] == [(1, b"\x07", 1, "a", "1.00", 1), (2, b"\x07", 5, "b", "1.00", 2)]
    seqvals = items.execute(
        "SELECT COUNT(DISTINCT __$seqval) FROM cdc.dbo_items_CT WHERE __$start_lsn = sys.fn_cdc_get_max_lsn()"
    )
    assert seqvals.fetchval() == 1


@pytest.mark.parametrize("step", ["+ 10", "+ 1"])
def test_a_bulk_deferred_update_shares_one_sequence_value(items: EmulatedDatabase, step: str) -> None:
    items.execute("INSERT INTO items VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)")
    items.execute(f"UPDATE items SET id = id {step}")
    items.capture()
    rows = changes(items)[3:]
    add = int(step.split()[1])
    moves = [(1, 1, 2, 1 + add), (1, 2, 2, 2 + add), (1, 3, 2, 3 + add)]
    if add == 1:
        # Keys that one row leaves and another takes must be free first: all deletes, then all inserts.
        expected = [(op, key) for op, key, _, _ in moves] + [(op, key) for _, _, op, key in moves]
    else:
        expected = [pair for op, key, other, new in moves for pair in ((op, key), (other, new))]
    assert [(r[0], r[2], r[5]) for r in rows] == [(op, key, n) for n, (op, key) in enumerate(expected, start=1)]
    found = items.execute(
        "SELECT __$seqval, COUNT(*) FROM cdc.dbo_items_CT GROUP BY __$seqval HAVING COUNT(*) > 1"
    ).fetchall()
    assert [count for _, count in found] == [6]
    assert [i for (i,) in items.execute("SELECT id FROM items ORDER BY id").fetchall()] == [1 + add, 2 + add, 3 + add]


def test_lsns_grow_and_seqvals_stay_below_the_commit(items: EmulatedDatabase) -> None:
    for i in range(1, 8):
        with items.transaction() as cursor:
            for j in range(i * 40):
                cursor.execute("INSERT INTO items VALUES (?, 'x', 1)", [i * 1000 + j])
    items.capture()
    rows = items.execute(
        "SELECT __$start_lsn, __$seqval FROM cdc.dbo_items_CT ORDER BY __$start_lsn, __$command_id"
    ).fetchall()
    assert all(len(c) == 10 and s < c for c, s in rows)
    assert [s for _, s in rows] == sorted({s for _, s in rows})
    commits = list(dict.fromkeys(c for c, _ in rows))
    assert len(commits) == 7
    mapped = items.execute(
        "SELECT start_lsn FROM cdc.lsn_time_mapping WHERE tran_id <> 0x00 ORDER BY start_lsn"
    ).fetchall()
    assert [lsn for (lsn,) in mapped] == commits


def test_transaction_times_come_from_the_clock(items: EmulatedDatabase, clock: Any) -> None:
    with items.transaction() as cursor:
        cursor.execute("INSERT INTO items VALUES (1, 'a', 1)")
        clock.move(2)
    items.capture()
    begin, end = items.execute(
        "SELECT tran_begin_time, tran_end_time FROM cdc.lsn_time_mapping WHERE tran_id <> 0x00"
    ).fetchall()[0]
    assert (begin, end) == (dt.datetime(2024, 5, 6, 7, 8, 9, 123000), dt.datetime(2024, 5, 6, 7, 8, 11, 123000))


def test_the_next_lsn_can_be_decided(items: EmulatedDatabase) -> None:
    items.lsn("00000027:00000758:0005", ["00000027:00000758:0003"])
    items.execute("INSERT INTO items VALUES (1, 'a', 1)")
    items.capture()
    row = items.execute("SELECT __$start_lsn, __$seqval FROM cdc.dbo_items_CT").fetchone()
    assert row == (bytes.fromhex("00000027000007580005"), bytes.fromhex("00000027000007580003"))
    items.execute("INSERT INTO items VALUES (2, 'a', 1)")
    items.capture()
    assert items.max_lsn() > bytes.fromhex("00000027000007580005")  # type: ignore[operator]


def test_capture_takes_whole_transactions_in_commit_order_up_to_a_limit(items: EmulatedDatabase) -> None:
    for i in range(5):
        items.execute("INSERT INTO items VALUES (?, 'x', 1), (?, 'y', 1)", [i, i + 100])
    assert items.capture(2) == 2
    assert [r[2] for r in changes(items)] == [0, 100, 1, 101]
    assert items.capture() == 3
    assert items.capture() == 0


def test_large_columns_that_do_not_change_are_left_out(database: EmulatedDatabase) -> None:
    database.execute(
        "CREATE TABLE dbo.docs (id int NOT NULL PRIMARY KEY, n int, m nvarchar(max), b varbinary(max), t text, x xml)"
    )
    database.execute("EXEC sys.sp_cdc_enable_table 'dbo', 'docs', @role_name = NULL")
    database.execute("INSERT INTO docs VALUES (1, 1, N'm1', 0x01, 't1', '<a/>')")
    database.execute("UPDATE docs SET n = 2")
    database.execute("UPDATE docs SET m = N'm2', t = 't2'")
    database.execute("DELETE FROM docs")
    database.capture()
    rows = database.execute(
        "SELECT __$operation, __$update_mask, n, m, b, t, x FROM cdc.dbo_docs_CT ORDER BY __$start_lsn, __$operation"
    )
    assert rows.fetchall() == [
        (2, b"\x3f", 1, "m1", b"\x01", "t1", "<a/>"),
        (3, b"\x02", 1, None, None, None, None),
        (4, b"\x02", 2, None, None, None, None),
        (3, b"\x14", 2, "m1", None, None, None),
        (4, b"\x14", 2, "m2", None, "t2", None),
        (1, b"\x3f", 2, "m2", b"\x01", None, "<a/>"),
    ]


def test_a_table_has_at_most_two_instances_each_with_its_own_columns(items: EmulatedDatabase) -> None:
    items.execute("INSERT INTO items VALUES (1, 'a', 1)")
    items.execute("ALTER TABLE dbo.items ADD note varchar(50) NULL, gone int NULL")
    items.execute(
        "EXEC sys.sp_cdc_enable_table @source_schema = 'dbo', @source_name = 'items', @role_name = NULL,"
        " @capture_instance = 'items_v2', @captured_column_list = '[id], [note]'"
    )
    with pytest.raises(DatabaseError, match="at most two capture instances"):
        items.execute("EXEC sys.sp_cdc_enable_table 'dbo', 'items', @capture_instance = 'items_v3', @role_name = NULL")
    items.execute("INSERT INTO items (id, name, note) VALUES (2, 'b', 'hi')")
    items.execute("UPDATE items SET name = 'B' WHERE id = 2")
    items.capture()
    assert [r[2] for r in changes(items)] == [1, 2, 2, 2]
    assert items.execute("SELECT id, note FROM cdc.items_v2_CT").fetchall() == [(2, "hi")]
    starts = dict(items.execute("SELECT capture_instance, start_lsn FROM cdc.change_tables").fetchall())
    both = items.execute(
        "SELECT a.__$seqval FROM cdc.items_v2_CT a JOIN cdc.dbo_items_CT b ON b.__$seqval = a.__$seqval"
    ).fetchall()
    assert len(both) == 1 and starts["items_v2"] > starts["dbo_items"]
    items.execute("EXEC sys.sp_cdc_disable_table 'dbo', 'items', 'dbo_items'")
    with pytest.raises(ProgrammingError) as caught:
        items.execute(ROWS)
    assert caught.value.number == 208
    items.execute("INSERT INTO items (id, note) VALUES (3, 'still')")
    items.capture()
    assert items.execute("SELECT COUNT(*) FROM cdc.items_v2_CT").fetchval() == 2


def test_dropped_columns_stay_in_the_change_table_as_null(items: EmulatedDatabase) -> None:
    items.execute("INSERT INTO items VALUES (1, 'a', 1)")
    items.execute("ALTER TABLE dbo.items DROP COLUMN name")
    items.execute("INSERT INTO items (id, amount) VALUES (2, 3)")
    items.capture()
    assert changes(items) == [(2, b"\x07", 1, "a", "1.00", 1), (2, b"\x07", 2, None, "3.00", 1)]
    assert (
        items.execute("SELECT ddl_command FROM cdc.ddl_history").fetchval() == "ALTER TABLE dbo.items DROP COLUMN name"
    )


def test_clean_up_deletes_old_rows_and_moves_the_start(items: EmulatedDatabase) -> None:
    for i in range(4):
        items.execute("INSERT INTO items VALUES (?, 'x', 1)", [i])
    items.capture()
    lsns = [lsn for (lsn,) in items.execute("SELECT __$start_lsn FROM cdc.dbo_items_CT ORDER BY 1").fetchall()]
    items.execute(
        "EXEC sys.sp_cdc_cleanup_change_table @capture_instance = 'dbo_items', @low_water_mark = ?", [lsns[2]]
    )
    assert [r[2] for r in changes(items)] == [2, 3]
    assert items.execute("SELECT start_lsn FROM cdc.change_tables").fetchval() == lsns[2]
    assert items.execute("SELECT MIN(start_lsn) FROM cdc.lsn_time_mapping").fetchval() == lsns[2]


def test_clean_up_by_retention_goes_by_commit_time(items: EmulatedDatabase, clock: Any) -> None:
    for i in range(3):
        items.execute("INSERT INTO items VALUES (?, 'x', 1)", [i])
        clock.move(3600)
    items.capture()
    items.cleanup(retention=dt.timedelta(hours=1, minutes=30))
    assert [r[2] for r in changes(items)] == [1, 2]


def test_an_idle_job_writes_dummy_rows(items: EmulatedDatabase) -> None:
    before = items.max_lsn()
    lsn = items.mark_idle()
    assert lsn == items.max_lsn() and before is not None and lsn > before
    assert items.execute("SELECT tran_id FROM cdc.lsn_time_mapping WHERE start_lsn = ?", [lsn]).fetchval() == b"\x00"


def test_the_job_runs_apart_and_can_be_stopped(items: EmulatedDatabase) -> None:
    with items.capture_job(poll=0.01, idle=0.05) as job:
        items.execute("INSERT INTO items VALUES (1, 'a', 1)")
        until(lambda: len(changes(items)) == 1, "the first change is captured")
        count = "SELECT COUNT(*) FROM cdc.lsn_time_mapping WHERE tran_id = 0x00"
        before = items.execute(count).fetchval()
        until(lambda: items.execute(count).fetchval() > before, "the job notes an idle time")
        items.execute("EXEC sys.sp_cdc_stop_job @job_type = N'capture'")
        # A look may have begun before; the next one has not.
        seen = job.looks
        until(lambda: job.looks > seen, "a look that began before has ended")
        items.execute("INSERT INTO items VALUES (2, 'a', 1)")
        seen = job.looks
        until(lambda: job.looks >= seen + 2, "two looks were made")
        assert len(changes(items)) == 1
        items.execute("EXEC sys.sp_cdc_start_job")
        until(lambda: len(changes(items)) == 2, "the second change is captured")
    sessions = items.execute("SELECT COUNT(*) FROM sys.dm_cdc_log_scan_sessions WHERE tran_count > 0").fetchval()
    assert sessions >= 2


def test_a_bulk_load_into_a_captured_table_is_one_transaction(items: EmulatedDatabase) -> None:
    assert items.load("dbo.items", [(i, f"n{i}", i / 4) for i in range(1000)]) == 1000
    assert items.capture() == 1
    rows = changes(items)
    assert len(rows) == 1000 and rows[999] == (2, b"\x07", 999, "n999", "249.75", 1000)


def test_disabling_the_database_removes_everything(items: EmulatedDatabase) -> None:
    items.execute("EXEC sys.sp_cdc_disable_db")
    assert items.execute("SELECT is_cdc_enabled FROM sys.databases WHERE name = 'testDB'").fetchval() is False
    items.execute("INSERT INTO items VALUES (1, 'a', 1)")
    items.execute("EXEC sys.sp_cdc_enable_db")
    assert items.execute("SELECT COUNT(*) FROM cdc.change_tables").fetchval() == 0

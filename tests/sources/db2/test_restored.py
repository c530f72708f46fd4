"""Rule: a database that was restored to an earlier point stops the run, also when it has moved on since; what clean-up,
an idle log or a new registration does looks like no restore."""

from __future__ import annotations

import datetime as dt
import shutil

import pytest
from tests.support.captured_shop import Db2Database, closing

from headrace.errors import PositionMismatch
from headrace.testing.captured_database import data
from headrace_emulators.db2 import EmulatedDb2

T = "id int not null primary key, v varchar(20)"
LATER = dt.datetime(2031, 1, 1)


@pytest.fixture
def database(tmp_path):
    with closing(Db2Database(tmp_path / "server")) as made:
        made.create("t", T)
        made.create("u", T)
        yield made


@pytest.fixture
def restored(database, tmp_path):
    """A run that delivered a change, and the database from a backup that lacks it."""
    shutil.copytree(tmp_path / "server", tmp_path / "backup")
    run = database.run()
    run.all()
    database.insert("t", 1, "delivered")
    database.capture()
    run.all()
    with EmulatedDb2(tmp_path / "backup").database("shop", clock=lambda: LATER) as made:
        yield run, made


def moved_on(made, run):
    for n in range(5):
        made.execute(f"INSERT INTO SHOP.U VALUES ({n}, 'another')")
    made.capture()
    run.restarted(hostname=made.path.parent)


def test_a_database_that_is_behind_what_was_delivered_is_refused(restored):
    run, made = restored
    run.restarted(hostname=made.path.parent)
    with pytest.raises(PositionMismatch, match=r"captured up to LSN .* delivered already: it was restored"):
        run.batch()


@pytest.mark.parametrize("same_place", [False, True], ids=["at another place", "at the same place"])
def test_a_database_that_has_other_transactions_where_some_were_delivered_is_refused(restored, same_place):
    run, made = restored
    if same_place:
        made.lsn(bytes.fromhex(run.offset.log["transaction"][0].replace(":", "")))
    moved_on(made, run)
    with pytest.raises(PositionMismatch, match=r"restored .* and has changed since") as caught:
        run.batch()
    assert "when_needed" in caught.value.remedy


def test_a_change_table_that_went_back_is_refused_though_everything_older_was_pruned(restored):
    run, made = restored
    moved_on(made, run)
    made.prune()
    with pytest.raises(PositionMismatch, match=r"no longer has the changes up to LSN .*CDC_SHOP_T"):
        run.batch()


def test_when_needed_reads_all_tables_again_and_says_what_is_lost(restored):
    run, made = restored
    made.execute("INSERT INTO SHOP.T VALUES (7, 'restored')")
    moved_on(made, run)
    run.restarted(snapshot_mode="when_needed")
    before = run.offset.commit
    rows = run.all()
    gaps = {row["table"]["name"]: row["error"] for row in rows if row["op"] == "gap"}
    assert set(gaps) == {"T", "U"}
    assert gaps["T"].endswith("are lost: the database was restored.")
    found = [(op, table, row["id"]) for op, table, row in data(rows)]
    assert found == [("r", "t", "7"), *(("r", "u", str(n)) for n in range(5))]
    assert all(row["position"] > before for row in rows if row["op"] == "r")
    made.execute("INSERT INTO SHOP.T VALUES (8, 'goes on')")
    made.capture()
    assert data(run.restarted().all()) == [("c", "t", {"id": "8", "v": "goes on"})]


def test_what_is_pruned_registered_again_or_idle_is_no_restore(database):
    run = database.run()
    run.all()
    for n, act in enumerate((database.clean, database.capture, lambda: database.disable("u"), database.clean)):
        database.insert("t", n, "x")
        database.capture()
        assert len(data(run.restarted().all())) == 1
        act()
        database.capture()
        run.restarted().all()
    database.enable("u")
    database.insert("u", 1, "x")
    database.insert("t", 9, "x")
    database.capture()
    assert [(op, table) for op, table, _ in data(run.all())] == [("c", "t"), ("r", "u")]

"""Rule: Db2's catalog says that a table was altered and not how, so it is read again once the changes from before are
read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.captured_shop import Db2Database, closing

from headrace.errors import CaptureError
from headrace.sources.db2.dialect import Db2
from headrace.testing.captured_database import data, replay
from headrace.testing.waiting import until


@pytest.fixture(params=["luw", "zos"])
def platform(request):
    return request.param


@pytest.fixture
def database(tmp_path):
    with closing(Db2Database(tmp_path / "server")) as made:
        made.create("t", "id int not null primary key, c int", [(1, 10), (2, 20)])
        yield made


def drop_and_add(database):
    for statement in ("DROP COLUMN C", "ADD COLUMN C INTEGER"):
        database.execute(f"ALTER TABLE SHOP.T {statement}")


def test_a_column_that_is_dropped_and_added_as_the_last_one_is_read_again(database, platform):
    run = database.run(platform=platform)
    rows = run.all()
    known = run.offset.schemas["SHOP.T"][0]["altered"]
    database.execute("UPDATE SHOP.T SET C = 11 WHERE ID = 1")
    drop_and_add(database)
    # The log is not read up to there, so what waits may still be from before.
    run.batch()
    assert run.offset.schemas["SHOP.T"][0]["altered"] == known

    def is_read_again():
        rows.extend(run.all())
        return [row["c"] for row in replay(rows).values()] == [None, None]

    with database.capturing():
        until(is_read_again, "the table is read again")
    assert run.offset.schemas["SHOP.T"][0]["altered"] > known
    assert run.all() == []


@pytest.mark.parametrize("answers", [1, 2, 3])
def test_changes_that_are_captured_while_the_server_is_asked_are_read_before_the_table_is_read_again(
    database, platform, monkeypatch, answers
):
    run = database.run(platform=platform)
    rows = run.all()
    known = run.offset.schemas["SHOP.T"][0]["altered"]
    database.execute("UPDATE SHOP.T SET C = 11 WHERE ID = 1")
    drop_and_add(database)
    asked, has_passed = [], Db2.has_passed

    class Captured:
        """A server that captures all that waits after some answers."""

        def __init__(self, server):
            self.server, self.left = server, answers

        def _answer(self, found):
            self.left -= 1
            if not self.left:
                database.capture()
            return found

        def value(self, *question):
            return self._answer(self.server.value(*question))

        def row(self, *question):
            return self._answer(self.server.row(*question))

    def passed(self, server, *about):
        asked.append(has_passed(self, Captured(server), *about))
        return asked[-1]

    def take():
        rows.extend(found := run.all())
        return found

    monkeypatch.setattr(Db2, "has_passed", passed)
    run.batch()
    assert asked == [False]
    monkeypatch.undo()
    with database.capturing():
        until(lambda: not take() and run.offset.schemas["SHOP.T"][0]["altered"] > known, "the table is read again")
    assert [row["c"] for row in replay(rows).values()] == [None, None]


@pytest.mark.parametrize("choice", ["warn", "fail"])
def test_on_rewrite_says_what_follows(database, caplog, choice):
    run = database.run(on_rewrite=choice)
    run.all()
    drop_and_add(database)
    database.capture()
    if choice == "fail":
        with pytest.raises(CaptureError, match="may have changed without a change in the log: it or its change table"):
            run.all()
        return
    assert data(run.all()) == []
    assert "headrace repair reread <pipeline> SHOP.T" in caplog.text


def test_an_offset_of_an_earlier_release_takes_the_time_over_and_reads_nothing_again(database):
    run = database.run()
    run.all()
    kept = [{name: value for name, value in run.offset.schemas["SHOP.T"][0].items() if name != "altered"}]
    run.offset = replace(run.offset, schemas={"SHOP.T": kept})
    assert run.all() == []
    database.execute("UPDATE SHOP.T SET C = 11 WHERE ID = 1")
    database.capture()
    assert data(run.all()) == [("u", "t", {"id": "1", "c": "11"})]
    assert run.offset.schemas["SHOP.T"][0]["altered"]

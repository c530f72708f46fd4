"""Capture of MySQL and MariaDB keeps the contract that Headrace ships; what can't be done is declared in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import pytest
from tests import smoke
from tests.support.captured_mysql import CapturedMysql

from headrace.errors import PositionMismatch
from headrace.sources.mysql.binlog_position import boundary
from headrace.testing import CaptureContract
from headrace.testing.captured_database import CapturedDatabase, data, replay
from headrace_emulators.mysql.server import MARIADB, MySqlServer

T = "id int not null primary key, v varchar(20)"


class TestMariadb(CaptureContract):
    """A real MariaDB, with all of each row in its log."""

    lost = "is gone"
    gaps: ClassVar[Mapping[str, str]] = {
        "test_a_table_that_is_deregistered_is_said_and_the_others_go_on": "the log has the changes of every table",
        "test_a_table_that_is_registered_again_is_snapshotted_again": "the log has the changes of every table",
        "test_a_table_that_is_not_captured_is_an_error_with_the_way_out": "the log has the changes of every table",
        "test_an_update_names_the_columns_that_it_changed": "the log does not say it",
    }

    @pytest.fixture(autouse=True)
    def on_a_real_server(self, mariadb_server: MySqlServer) -> Iterator[None]:
        self.server = mariadb_server
        with mariadb_server.changed(binlog_expire_logs_seconds=86_400):
            yield

    def captured(self, folder: Path) -> CapturedDatabase:
        # An order of keys that is not that of their letters, and in which no two of them are the same.
        return CapturedMysql(self.server.new_database("COLLATE utf8mb4_swedish_ci"))

    def test_a_table_that_is_dropped_is_said_and_the_others_go_on(self, database: CapturedDatabase) -> None:
        database.create("t", T)
        database.create("u", T)
        run = database.run()
        run.all()
        database.execute("DROP TABLE u")
        database.insert("t", 1, "x")
        rows = run.all()
        assert data(rows) == [("c", "t", {"id": "1", "v": "x"})]
        dropped = [row for row in rows if row["op"] == "schema" and dict(row["source"]).get("change") == "DROP"]
        assert {row["table"]["name"] for row in dropped} == {"u"}

    def test_a_table_that_was_dropped_and_made_again_is_read_again(self, database: CapturedDatabase) -> None:
        database.create("t", T, [(1, "one"), (2, "two")])
        run = database.run()
        rows = run.all()
        database.execute("DROP TABLE t")
        database.create("t", T, [(2, "again")])
        rows += run.all()
        assert replay(rows) == {("t", '["2"]'): {"id": "2", "v": "again"}}

    def test_a_quiet_pipeline_follows_the_log_into_its_next_file(self, database: CapturedDatabase) -> None:
        database.create("t", T)
        run = database.run()
        run.all()
        begun = boundary(run.offset.commit).file
        database.execute("FLUSH BINARY LOGS")
        assert run.all() == []
        assert boundary(run.offset.commit).file == begun + 1
        database.insert("t", 1, "x")
        assert data(run.restarted().all()) == [("c", "t", {"id": "1", "v": "x"})]

    def test_a_log_that_was_begun_anew_stops_the_run(self, database: CapturedDatabase) -> None:
        database.create("t", T)
        run = database.run()
        run.all()
        reset = "RESET MASTER" if self.server.name == MARIADB else "RESET BINARY LOGS AND GTIDS"
        database.execute(reset)
        database.insert("t", 1, "x")
        with pytest.raises(PositionMismatch, match="was begun anew"):
            run.batch()

    def test_a_distributed_transaction_has_its_rows_when_it_is_committed(self, database: CapturedDatabase) -> None:
        database.create("t", T)
        run = database.run()
        run.all()
        for xid, row in (("a", 1), ("b", 2)):
            with self.server.connect(database.schema) as session, session.cursor() as cursor:
                for sql in (f"XA START '{xid}'", f"INSERT INTO t VALUES ({row}, '{xid}')", f"XA END '{xid}'"):
                    cursor.execute(sql)
                cursor.execute(f"XA PREPARE '{xid}'")
        database.insert("t", 3, "between")
        assert data(run.all()) == [("c", "t", {"id": "3", "v": "between"})]
        database.execute("FLUSH BINARY LOGS")
        self.server.run("XA COMMIT 'a'; XA ROLLBACK 'b'", database=None)
        assert data(run.restarted().all()) == [("c", "t", {"id": "1", "v": "a"})]


@pytest.mark.smoke(*smoke.CAPTURE)
class TestMysql(TestMariadb):
    """A real MySQL, with GTIDs."""

    @pytest.fixture(autouse=True)
    def on_a_real_server(self, mysql_server: MySqlServer) -> None:
        self.server = mysql_server

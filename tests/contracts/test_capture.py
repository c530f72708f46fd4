"""Capture of every server keeps the contract that Headrace ships; what one can't do is declared in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests import smoke
from tests.live.db2 import EXAMPLE, URL, LiveDb2, settings_from
from tests.support.captured_postgres import CapturedPostgres
from tests.support.captured_shop import Db2Database, Db2WithImages, OracleDatabase, SqlServerDatabase
from tests.support.postgresql import PostgresDatabase

from headrace.sources.snapshots import chunks
from headrace.sources.stream_options import WHOLE_TABLES
from headrace.testing import CaptureContract
from headrace.testing.captured_database import CapturedDatabase, data

NOT_KNOWN = {"test_an_update_names_the_columns_that_it_changed": "Db2's change tables do not say it"}
LIVE_DB2 = settings_from()


class OurCapture(CaptureContract):
    """The contract, and what our sources share besides."""

    lost = r"the rest was cleaned|Redo logs .* are gone"

    def test_verify_reads_what_capture_lost_by_a_fault_of_its_key_ranges(
        self, database: CapturedDatabase, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rows = [(a, f"k{b}") for a in range(3) for b in range(3)]
        database.create("t", "a int not null, b varchar(5) not null, primary key (a, b)", rows)
        same = chunks._same
        # Neither true nor false where the first columns are equal.
        monkeypatch.setattr(chunks, "_same", lambda limit: f"{same(limit)} AND NULL = 1")

        def read(**options: Any) -> list[tuple[int, str]]:
            return sorted((int(row["a"]), row["b"]) for _, _, row in data(database.run(**options).all()))

        assert len(read(snapshot_chunk_rows=2)) < len(rows)
        assert read(**{name: value for name, value in WHOLE_TABLES.items() if value is not None}) == rows


class TestSqlServer(OurCapture):
    def captured(self, folder: Path) -> CapturedDatabase:
        return SqlServerDatabase(folder)


@pytest.mark.smoke(*smoke.CAPTURE)
class TestDb2(OurCapture):
    """Its changes stand in tables, as SQL Server's do."""

    gaps: ClassVar[Mapping[str, str]] = NOT_KNOWN

    def captured(self, folder: Path) -> CapturedDatabase:
        return Db2Database(folder)


@pytest.mark.smoke(*smoke.CAPTURE)
class TestDb2WithImages(OurCapture):
    gaps: ClassVar[Mapping[str, str]] = NOT_KNOWN

    def captured(self, folder: Path) -> CapturedDatabase:
        return Db2WithImages(folder)


class TestOracle(OurCapture):
    gaps: ClassVar[Mapping[str, str]] = {
        "test_a_table_that_is_not_captured_is_an_error_with_the_way_out": (
            "Oracle's log has the changes of every table; one that does not log all its columns is captured with a "
            "warning"
        )
    }

    def captured(self, folder: Path) -> CapturedDatabase:
        return OracleDatabase(folder)


class TestPostgres(OurCapture):
    """A real server, whose log says all of a row before its change."""

    lost = "slot"
    gaps: ClassVar[Mapping[str, str]] = {
        "test_an_update_names_the_columns_that_it_changed": "the log does not say it",
        "test_health_says_that_capture_works_and_how_long_changes_are_kept": "the log is kept by size and not by time",
        "test_verify_reads_what_capture_lost_by_a_fault_of_its_key_ranges": "a table of one block is read in one piece",
    }

    @pytest.fixture(autouse=True)
    def on_a_real_server(self, new_postgres_database: Callable[[], PostgresDatabase]) -> None:
        self.new_database = new_postgres_database

    def captured(self, folder: Path) -> CapturedDatabase:
        return CapturedPostgres(self.new_database())


@pytest.mark.smoke(*smoke.CAPTURE)
class TestPostgresDefaultIdentity(TestPostgres):
    """The same server as it comes: its log says the key of a row before its change, and only where that changed."""

    gaps: ClassVar[Mapping[str, str]] = {
        **TestPostgres.gaps,
        "test_changes_come_in_commit_order_with_both_images": "the log has no values before a change",
        "test_columns_keys_masks_and_operations_are_as_options_say": "the log has the key of a deleted row only",
    }

    def captured(self, folder: Path) -> CapturedDatabase:
        return CapturedPostgres(self.new_database(), identity="DEFAULT")


@pytest.mark.live
@pytest.mark.skipif(LIVE_DB2 is None, reason=f"no Db2 to run on: set {URL}, for example {EXAMPLE}")
class TestDb2Live(OurCapture):
    gaps: ClassVar[Mapping[str, str]] = NOT_KNOWN

    def captured(self, folder: Path) -> CapturedDatabase:
        assert LIVE_DB2 is not None
        return LiveDb2(LIVE_DB2)

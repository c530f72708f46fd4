"""Places in the log: their texts, and the end of what is written."""

from __future__ import annotations

import pytest
from tests.support.captured_postgres import CapturedPostgres

from headrace.sources.postgresql import lsn
from headrace.testing.captured_database import data
from headrace_emulators.postgresql.server import PostgresDatabase


def test_a_place_has_two_texts() -> None:
    place = lsn.of_server("16/B374D848")
    assert (lsn.to_server(place), lsn.to_text(place), lsn.number(lsn.to_text(place))) == (
        "16/B374D848",
        "00000016b374d848",
        place,
    )
    assert lsn.boundary(lsn.commit_before(place)) == place


@pytest.mark.parametrize(
    ("inserted", "written"),
    [("0/2000028", "0/2000000"), ("0/2002018", "0/2002000"), ("0/2002020", "0/2002020"), ("0/2000000", "0/2000000")],
)
def test_the_header_of_a_page_to_come_is_not_written(inserted: str, written: str) -> None:
    assert lsn.to_server(lsn.written_up_to(inserted)) == written


def test_a_run_reaches_the_head_of_a_server_that_rests_behind_a_new_file_of_the_log(
    postgres_database: PostgresDatabase,
) -> None:
    database = CapturedPostgres(postgres_database)
    database.create("t", "id int not null primary key")
    run = database.run()
    run.all()
    database.insert("t", 1)
    database.execute("SELECT pg_switch_wal()")
    head = run.source.head()
    assert data(run.all()) == [("c", "t", {"id": "1"})]
    assert run.offset.commit >= head

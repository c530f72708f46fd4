"""Rule: health says whether the database writes a log that can be mined, up to when it was mined, what waits of it,
and whether logs are gone before they were mined. It never mines."""

from __future__ import annotations

import datetime as dt
import sqlite3
from dataclasses import replace

import pytest
from tests.sources.oracle.runs import Run

from headrace.sources.health import CaptureState
from headrace_emulators.oracle import driver

INSERT = "INSERT INTO CUSTOMERS (ID, NAME) VALUES (:id, 'x')"


@pytest.fixture
def run(database):
    made = Run(database)
    made.until_level()
    made.batch()
    return made


def test_a_database_that_archives_and_logs_what_is_needed_is_well(run):
    health = run.source.health(run.offset)
    assert (health.state, health.remedy, health.lost, health.waiting_since) == (CaptureState.CAPTURING, "", (), None)
    assert health.behind_seconds is not None
    assert health.behind_seconds < 60


FACTS = [
    ("log_mode", "NOARCHIVELOG", "ARCHIVELOG"),
    ("supplemental", "NO", "SUPPLEMENTAL LOG DATA"),
]


@pytest.mark.parametrize(("fact", "value", "remedy"), FACTS)
def test_a_database_that_can_not_be_mined_is_not_captured(database, run, fact, value, remedy):
    database.set_fact(fact, value)
    health = run.source.health(run.offset)
    assert health.state is CaptureState.NOT_CAPTURING
    assert remedy in health.remedy


def test_what_was_mined_and_is_not_delivered_waits(database, run):
    before = run.offset
    with database.connect() as session:
        session.execute(INSERT, id=1)
        session.commit()
    while run.offset == before:
        run.batch(acknowledge=False)
    # Its batch is planned but in no sink, and what was mined is in staging.
    assert run.source.health(before).waiting_since is not None
    assert run.source.health(before).quiet_until is None
    assert run.source.health(run.offset).waiting_since is None
    assert run.source.health(run.offset).quiet_until is not None


def test_commits_that_wait_are_counted(database, run):
    before = run.offset
    with database.connect() as session:
        for id in range(3):
            session.execute(INSERT, id=id)
            session.commit()
    while run.offset == before:
        run.batch(acknowledge=False)
    assert run.source.health(before).waiting_commits == 3
    assert run.source.health(run.offset).waiting_commits == 0


@pytest.mark.parametrize(("after", "headroom"), [(0, 5), (2, 3), (9, 0)], ids=["level", "after", "far behind"])
def test_how_long_logs_are_kept_is_how_far_back_they_reach_once_some_were_deleted(database, run, after, headroom):
    health = run.source.health(run.offset)
    assert (health.retention_seconds, health.headroom_seconds) == (None, None)
    for _ in range(3):
        database.switch_log()
    run.until_level()
    database.delete_archived(keep=1)
    now = dt.datetime.now(dt.UTC)
    with sqlite3.connect(database.path) as file:
        file.execute(
            'UPDATE "sys.logs" SET first_time = ? WHERE NOT deleted AND archived',
            (f"{now - dt.timedelta(hours=5):%Y-%m-%d %H:%M:%S}",),
        )
    health = run.source.health(replace(run.offset, commit_time=now - dt.timedelta(hours=after)))
    assert health.lost == ()
    assert health.retention_seconds == pytest.approx(5 * 3600, abs=120)
    assert health.headroom_seconds == pytest.approx(headroom * 3600, abs=120)


def test_logs_that_are_gone_before_they_were_mined_are_told(database, run):
    with database.connect() as session:
        session.execute(INSERT, id=1)
        session.commit()
    database.switch_log()
    database.delete_archived()
    health = run.source.health(run.offset)
    assert health.lost == ("SHOP.CUSTOMERS",)
    assert "are gone" in health.sentence


def test_nothing_is_mined_to_answer(run, monkeypatch):
    statements = []
    monkeypatch.setattr(driver, "QUERY_LOG", statements)
    run.source.health(run.offset)
    assert statements
    assert not [sql for sql, _ in statements if "DBMS_LOGMNR" in sql or "V$LOGMNR" in sql]


def test_a_server_that_can_not_be_asked_is_unknown(database, run):
    database.path.rename(database.path.with_suffix(".away"))
    health = run.source.health(run.offset)
    database.path.with_suffix(".away").rename(database.path)
    assert health.state is CaptureState.UNKNOWN
    assert "can't be asked" in health.sentence

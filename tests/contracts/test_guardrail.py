"""Rule: no more tables are captured than `guardrail_collections_max` allows; `fail` stops the run, at its start and
where tables come later, and `warn` says it once. The same for every source."""

from __future__ import annotations

import datetime as dt

import pytest
from tests.support.captured_shop import Db2Database, OracleDatabase, SqlServerDatabase, closing

from headrace.errors import CaptureError
from headrace.sources.base import Limit
from headrace.sources.databases import Databases, Offsets
from headrace.sources.reader import source_named

NOW = dt.datetime(2026, 11, 21, 12, 0, tzinfo=dt.UTC)
KEYED = "id int not null primary key"
SENTENCE = "2 tables are captured, and 'guardrail_collections_max' allows 1."


@pytest.fixture(params=[SqlServerDatabase, Db2Database, OracleDatabase], ids=lambda kind: kind.source)
def database(request, tmp_path):
    with closing(request.param(tmp_path / "server")) as made:
        made.create("t", KEYED)
        yield made


def databases(database, **options):
    return Databases(source_named(database.source, {**database.options, "guardrail.collections.max": "1", **options}))


def test_more_tables_than_allowed_stop_a_run_that_should_fail_whoever_looks_first(database):
    fails = {"guardrail.collections.limit.action": "fail"}
    assert len(databases(database, **fails).tables()) == 1
    database.create("u", KEYED)
    for look in (lambda d: d.tables(), lambda d: d.advance(Offsets(), Limit(), NOW)):
        with pytest.raises(CaptureError) as error:
            look(databases(database, **fails))
        assert (error.value.message, error.value.remedy) == (
            SENTENCE,
            "Name fewer tables in 'tables', or raise the bound.",
        )


def test_a_table_that_comes_while_a_run_goes_on_counts(database):
    run = databases(database, **{"guardrail.collections.limit.action": "fail"})
    end = run.advance(Offsets(), Limit(), NOW)
    database.create("u", KEYED)
    with pytest.raises(CaptureError, match="2 tables are captured"):
        for _ in range(5):
            end = run.advance(end, Limit(), NOW)


def test_by_default_it_is_announced_once_and_the_run_goes_on(database, caplog):
    database.create("u", KEYED)
    run = databases(database)
    end = Offsets()
    for _ in range(3):
        end = run.advance(end, Limit(), NOW)
    assert [record.message for record in caplog.records].count(SENTENCE) == 1

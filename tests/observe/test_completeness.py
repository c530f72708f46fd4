"""Rule: complete until T means that every change committed before T is in all sinks, and is said of nothing else."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path

import pytest
from tests.observe.checkpoints import write_batch

import headrace
from headrace.errors import NewerRelease, OptionError
from headrace.observe.completeness import Completeness, of_tables
from headrace.sources.databases import Offsets
from headrace.sources.offset import Offset, TableProgress
from headrace.sources.snapshots.ad_hoc import AdHoc

NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
MINUTE = dt.timedelta(minutes=1)


def offset(minutes: int = 0, **more: object) -> Offset:
    facts = {
        "source": "sqlserver:shop",
        "commit": f"{minutes:04}",
        "commit_time": NOON + minutes * MINUTE,
        "capture_time": NOON + dt.timedelta(hours=9),
        "initial": False,
        "known": ("dbo.a", "dbo.b"),
    }
    return Offset(**{**facts, **more})  # type: ignore[arg-type]


def line(**databases: Offset) -> str:
    return Offsets(databases).to_text()


def test_only_committed_batches_count(tmp_path: Path) -> None:
    write_batch(tmp_path, 9, line(shop=offset(1)))
    write_batch(tmp_path, 10, line(shop=offset(2)))
    write_batch(tmp_path, 11, line(shop=offset(3)), committed=False)
    found = headrace.complete_until(tmp_path)
    assert found == Completeness({"dbo.a": NOON + 2 * MINUTE, "dbo.b": NOON + 2 * MINUTE}, 10)
    assert found.overall == NOON + 2 * MINUTE
    assert headrace.complete_until(f"file://{tmp_path}") == headrace.complete_until(f"file:{tmp_path}") == found


def test_a_table_in_its_snapshot_or_catching_up_is_not_complete() -> None:
    running = TableProgress("0001", 3)
    behind = TableProgress("0001", 3, done=True)
    ahead = TableProgress("0007", 3, done=True)
    tables = {"dbo.a": running, "dbo.b": behind, "dbo.c": ahead}
    found = of_tables(offset(5, known=("dbo.a", "dbo.b", "dbo.c", "dbo.d"), tables=tables))
    assert found == {"dbo.a": None, "dbo.b": None, "dbo.c": NOON + 5 * MINUTE, "dbo.d": NOON + 5 * MINUTE}
    assert Completeness(found).overall is None


def test_an_idle_mark_completes_all_tables(tmp_path: Path) -> None:
    write_batch(tmp_path, 0, line(shop=offset(0)))
    before = headrace.complete_until(tmp_path)
    # No row of any table: the offset has moved to a mark that the idle capture job wrote.
    write_batch(tmp_path, 1, line(shop=offset(5)))
    assert headrace.complete_until(tmp_path).of("dbo.b") == NOON + 5 * MINUTE > before.of("dbo.b")


def test_a_commit_without_a_time_says_nothing() -> None:
    assert of_tables(offset(commit_time=None)) == {"dbo.a": None, "dbo.b": None}


def test_nothing_is_complete_beyond_the_moment_of_planning() -> None:
    # A server's clock that was set back an hour: the time of the commit seems to lie ahead.
    assert of_tables(offset(60, capture_time=NOON))["dbo.a"] == NOON


def test_a_table_with_lost_changes_is_not_complete() -> None:
    assert of_tables(offset(gaps={"dbo.a": ("0001", "0002")})) == {"dbo.a": None, "dbo.b": NOON}


@pytest.mark.parametrize(
    ("since", "until"),
    [(NOON + 2 * MINUTE, NOON + 2 * MINUTE), (NOON + 9 * MINUTE, NOON + 5 * MINUTE), (None, None)],
)
def test_a_table_whose_rows_a_change_of_structure_may_have_changed_is_complete_until_before_that(
    since: dt.datetime | None, until: dt.datetime | None
) -> None:
    state = AdHoc().rewritten("dbo.a", keyed=True, again=True)
    stamped = replace(state, unequal={"dbo.a": ("0002", since.isoformat() if since else "")})
    assert of_tables(offset(5, ad_hoc=stamped.to_json())) == {"dbo.a": until, "dbo.b": NOON + 5 * MINUTE}


def test_several_databases_are_as_complete_as_the_last(tmp_path: Path) -> None:
    write_batch(tmp_path, 0, line(shop=offset(3), stock=offset(1, known=("dbo.a",))))
    found = headrace.complete_until(tmp_path)
    assert list(found.tables) == ["shop.dbo.a", "shop.dbo.b", "stock.dbo.a"]
    assert found.overall == NOON + MINUTE


def test_a_query_over_several_streams(tmp_path: Path) -> None:
    write_batch(tmp_path, 0, '{"orders":{"0":5}}', line(shop=offset(3)), "-", line(shop=offset(2, known=("dbo.b",))))
    assert headrace.complete_until(tmp_path).tables == {"dbo.a": NOON + 3 * MINUTE, "dbo.b": NOON + 2 * MINUTE}


def test_covers_an_instant() -> None:
    found = Completeness({"dbo.a": NOON, "dbo.b": NOON + MINUTE, "dbo.c": None})
    assert found.covers(NOON, "dbo.a", "dbo.b")
    assert not found.covers(NOON + MINUTE, "dbo.a", "dbo.b")
    assert found.covers(dt.datetime(2024, 5, 1, 14, 1, tzinfo=dt.timezone(dt.timedelta(hours=2))), "dbo.b")
    assert not found.covers(NOON)
    assert not found.covers(NOON, "dbo.unknown")
    assert not Completeness().covers(NOON)
    with pytest.raises(OptionError, match="no time zone"):
        found.covers(dt.datetime(2024, 5, 1), "dbo.a")


def test_before_the_first_batch_nothing_is_complete(tmp_path: Path) -> None:
    write_batch(tmp_path, 0, line(shop=offset()), committed=False)
    assert headrace.complete_until(tmp_path) == Completeness()


def test_what_is_no_checkpoint_of_a_database_is_said(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="does not exist"):
        headrace.complete_until(tmp_path / "typo")
    with pytest.raises(OptionError, match="Give a Spark session"):
        headrace.complete_until("s3a://bucket/checkpoints/shop")
    write_batch(tmp_path, 0, '{"orders":{"0":5}}')
    with pytest.raises(OptionError, match="captures no database"):
        headrace.complete_until(tmp_path)
    write_batch(tmp_path, 1, '{"version":99,"databases":{}}')
    with pytest.raises(NewerRelease, match="version 99"):
        headrace.complete_until(tmp_path)

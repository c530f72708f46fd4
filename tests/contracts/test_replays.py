"""Rule: a batch that was planned gives the changes that it was planned with, or stops, or says by a gap row which of
them are lost; never fewer in silence. A change table that is not the one that the batch was planned with is no help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.support.captured_shop import Db2Database, OracleDatabase, SqlServerDatabase, closing

from headrace.errors import DataLossError
from headrace.sources.base import Limit, Slice
from headrace.sources.change_tables.planner import Planner
from headrace.sources.change_tables.slicing import Slicing
from headrace.sources.offset import Offset
from headrace.testing.captured_database import CapturedDatabase, Run, replay
from headrace.testing.sources import NOW, Row

T = "id int not null primary key, v varchar(20)"
SERVERS = {
    "sqlserver": SqlServerDatabase,
    "db2": Db2Database,
    "oracle": OracleDatabase,
}


def _off(database: CapturedDatabase) -> None:
    database.disable("t")


def _off_and_on(database: CapturedDatabase) -> None:
    database.disable("t")
    database.enable("t")


def _off_and_on_with_changes(database: CapturedDatabase) -> None:
    database.disable("t")
    database.insert("t", 8, "unseen")
    database.enable("t")
    database.insert("t", 9, "seen")
    database.capture()


def _cleaned(database: CapturedDatabase) -> None:
    database.insert("other", 8, "later")
    database.capture()
    database.clean()


def _dropped(database: CapturedDatabase) -> None:
    if database.source == "db2":
        database.disable("t")
    database.execute(f"DROP TABLE {database.schema}.t")


def _made_again(database: CapturedDatabase) -> None:
    _dropped(database)
    database.create("t", T, [(7, "new")])


EVENTS: dict[str, Callable[[CapturedDatabase], None]] = {
    "nothing": lambda database: None,
    "off": _off,
    "off and on": _off_and_on,
    "off and on with changes": _off_and_on_with_changes,
    "cleaned": _cleaned,
    "dropped": _dropped,
    "made again": _made_again,
}
OPTIONS: dict[str, Row] = {
    "as usual": {},
    "losses allowed": {"fail_on_data_loss": "false"},
    "no rows are read": {"snapshot_mode": "no_data"},
    "losses allowed, no rows are read": {"fail_on_data_loss": "false", "snapshot_mode": "no_data"},
}


_WHOLE = dict.fromkeys(OPTIONS, "whole")
_CLEANED = {name: "gap" if "fail_on_data_loss" in options else "stopped" for name, options in OPTIONS.items()}
_OFF = {**_CLEANED, "as usual": "gap"}
"""Where rows are read, the table is read again as soon as it is captured."""
WANTED: dict[tuple[str, str], dict[str, str]] = {
    **{(source, "all"): _OFF for source in ("sqlserver", "db2")},
    # What a batch needs of the log is staged before it is planned.
    ("oracle", "all"): _WHOLE,
    **{(source, "nothing"): _WHOLE for source in ("sqlserver", "db2")},
    **{(source, "cleaned"): _CLEANED for source in ("sqlserver", "db2")},
}


@pytest.fixture(params=SERVERS)
def database(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[CapturedDatabase]:
    with closing(SERVERS[request.param](tmp_path / "server")) as made:
        yield made


@dataclass
class Planned:
    """A batch that was planned, read once, and is read again after something happened."""

    run: Run
    end: Offset
    first: list[Row]
    slices: list[Slice]

    @classmethod
    def next(cls, run: Run) -> Planned:
        end = run.source.advance(run.offset, Limit(), NOW)
        slices = list(run.source.plan(run.offset, end))
        return cls(run, end, _read(run, slices), slices)

    def again(self, moment: str) -> list[Row]:
        if moment == "cut into slices":
            return _read(self.run, self.slices)
        return self.run.restarted().rows(self.run.offset, self.end)


def _read(run: Run, slices: list[Slice]) -> list[Row]:
    return [row for piece in slices for batch in run.source.read(piece) for row in batch.to_pylist()]


def _of(table: str, rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["table"] and row["table"]["name"].lower() == table]


def _changes(table: str, rows: list[Row]) -> list[tuple[Any, ...]]:
    return [(row["position"], row["op"], row["after"]) for row in _of(table, rows) if row["op"] in "cud"]


def _said(position: str, gaps: list[Row]) -> bool:
    """Whether a gap row says that a change is lost."""
    unit = "scn" if any("from_scn" in dict(gap["source"]) for gap in gaps) else "lsn"
    spans = [(dict(gap["source"])[f"from_{unit}"], dict(gap["source"])[f"to_{unit}"]) for gap in gaps]
    return any(low <= position.split("/")[0] <= high for low, high in spans)


def _require_said(planned: Planned, moment: str, options: Row) -> str:
    """How a batch comes again: whole, with a gap, or not at all."""
    try:
        again = planned.again(moment)
    except DataLossError as error:
        assert error.remedy
        assert options.get("fail_on_data_loss") != "false"
        return "stopped"
    first, there = _changes("t", planned.first), _changes("t", again)
    assert len(first) == 2
    missing = [change for change in first if change not in there]
    gaps = [row for row in _of("t", again) if row["op"] == "gap"]
    assert all(_said(change[0], gaps) for change in missing), (first, again)
    return "gap" if missing else "whole"


@pytest.mark.smoke("sqlserver-*", "oracle-cleaned", "db2-off and on")
@pytest.mark.parametrize("event", EVENTS)
def test_a_batch_that_was_planned_comes_again_whole_or_stops_or_a_gap_says_what_is_lost(
    database: CapturedDatabase, event: str
) -> None:
    database.create("t", T, [(1, "one")])
    database.create("other", T)
    runs = {
        (name, metadata): database.run(provide_transaction_metadata=metadata, **options)
        for name, options in OPTIONS.items()
        for metadata in ("false", "true")
    }
    for run in runs.values():
        run.all()
    for n in (2, 3):
        database.insert("t", n, "x")
        database.insert("other", n, "x")
        database.capture()
    batches = {key: Planned.next(run) for key, run in runs.items()}
    EVENTS[event](database)
    for (name, metadata), planned in batches.items():
        for moment in ("cut into slices", "planned"):
            how = _require_said(planned, moment, OPTIONS[name])
            wanted = WANTED.get((database.source, event)) or WANTED[database.source, "all"]
            assert how == wanted[name], (name, metadata, moment)


@pytest.fixture(params=["sqlserver", "db2"])
def tables(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[CapturedDatabase]:
    """A database that keeps changes in tables."""
    with closing(SERVERS[request.param](tmp_path / "server")) as made:
        made.create("t", T, [(1, "one")])
        yield made


def _changed(database: CapturedDatabase) -> tuple[Run, list[Row]]:
    """A run that has read all but one change, and what it has read."""
    run = database.run()
    rows = run.all()
    database.insert("t", 2, "x")
    database.capture()
    return run, rows


def _happens_before(
    owner: type,
    method: str,
    event: Callable[[CapturedDatabase], None],
    database: CapturedDatabase,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Something happens before the first call of a method."""
    waiting, original = [event], getattr(owner, method)

    def instead(*arguments: Any) -> Any:
        if waiting:
            waiting.pop()(database)
        return original(*arguments)

    monkeypatch.setattr(owner, method, instead)


def test_where_a_gap_is_left_the_log_says_that_the_table_is_read_again_and_it_is(
    tables: CapturedDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    run, _ = _changed(tables)
    planned = Planned.next(run)
    _off_and_on_with_changes(tables)
    assert [row["op"] for row in planned.again("planned")] == ["gap"]
    [said] = [record.getMessage() for record in caplog.records if "its change data capture was" in record.getMessage()]
    assert said.startswith(f"Changes of table '{tables.named('t')}' from LSN ")
    assert said.endswith("The table is read again as soon as it is captured.")
    run.offset = planned.end
    assert {key[1] for key in replay(run.all())} == {f'["{n}"]' for n in (1, 2, 8, 9)}


def test_a_change_table_that_is_made_again_while_slices_are_cut_does_not_look_as_if_nothing_had_changed(
    tables: CapturedDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = _changed(tables)
    end = run.source.advance(run.offset, Limit(), NOW)
    _happens_before(Slicing, "_changed", _off_and_on, tables, monkeypatch)
    assert [row["op"] for row in run.rows(run.offset, end)] == ["gap"]


def test_a_change_table_that_is_made_again_while_a_batch_is_planned_is_not_taken_for_the_one_before(
    tables: CapturedDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, rows = _changed(tables)
    _happens_before(Planner, "_next_commit", _off_and_on_with_changes, tables, monkeypatch)
    rows += run.all()
    assert {key[1] for key in replay(rows)} == {f'["{n}"]' for n in (1, 2, 8, 9)}

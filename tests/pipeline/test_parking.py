"""Rule: an error parks a table where it is surely this table's alone and others can go on; every other error stops."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.changes import TableId, TableSchema
from headrace.changes.one_table import about, in_turn, raise_together, work_on
from headrace.errors import (
    CaptureError,
    ConnectError,
    DataLossError,
    FormatError,
    HeadraceError,
    OptionError,
    SchemaError,
    SinkError,
)
from headrace.observe.parked_tables import parked_of_text
from headrace.pipeline.fusing import Fusing
from headrace.pipeline.model import read_model
from headrace.pipeline.parking import Parking
from headrace.sources.databases import Offsets
from headrace.sources.offset import Offset, TableProgress

A, B, C = (TableId("shop", "dbo", name) for name in "abc")


def offsets(read: int = 0, **read_now: int) -> Offsets:
    """Where a batch ends that has all tables; those that are named begin to be read with that number."""
    tables = {f"dbo.{name}": TableProgress("05", read=number) for name, number in read_now.items()}
    known = ("dbo.a", "dbo.b", "dbo.c")
    return Offsets({"shop": Offset("sqlserver", "05", initial=False, known=known, tables=tables, reads=read)})


def moved() -> Offsets:
    """The end of a batch before which changes of a table were skipped or rewound."""
    [(name, end)] = offsets().databases.items()
    return Offsets({name: replace(end, tables={"dbo.a": TableProgress("04", done=True)})})


class Kept:
    """A checkpoint's file."""

    def __init__(self, *ends: Offsets) -> None:
        self.text: str | None = None
        self.ends = ends or (offsets(),) * 10

    def parking(self, parks: bool = True, **given: Any) -> Parking:
        """As a driver that starts now has it."""
        made = {"keep": self._keep, "offsets": lambda batch: self.ends[batch], "command": ["again"], **given}
        return Parking(parks=parks, kept=self.text, **made)

    def _keep(self, text: str | None) -> None:
        self.text = text

    @property
    def names(self) -> list[str]:
        return [one.table.name for one in parked_of_text(self.text)]


def of(error: HeadraceError, table: TableId, *others: HeadraceError) -> HeadraceError:
    error.others = others
    return about(error, table)


@pytest.mark.parametrize(
    ("error", "parked"),
    [
        pytest.param(of(SchemaError("no place"), A), ["a"], id="what a structure can't be"),
        pytest.param(of(SinkError("no ALTER"), A), ["a"], id="what a target refuses"),
        pytest.param(of(SchemaError("x"), A, of(FormatError("y"), B)), ["a", "b"], id="two tables at once"),
        pytest.param(SchemaError("some table"), [], id="nobody says which table"),
        pytest.param(of(SchemaError("x"), A, SinkError("disk full")), [], id="another error beside it"),
        pytest.param(of(SchemaError("x"), A, of(SchemaError("x"), B), of(SchemaError("x"), C)), [], id="every table"),
        pytest.param(ConnectError("no server"), [], id="a lost connection"),
        pytest.param(OSError("No space left on device"), [], id="a full disk"),
    ],
)
def test_what_parks_and_what_stops(error: Exception, parked: list[str]) -> None:
    kept = Kept()
    assert kept.parking().take(error, 3) is bool(parked)
    assert kept.names == parked


def test_a_pipeline_that_is_to_stop_parks_nothing() -> None:
    kept = Kept()
    assert not kept.parking(parks=False).take(of(SchemaError("x"), A), 3)
    assert kept.text is None


def test_the_last_table_that_goes_on_is_not_parked() -> None:
    kept = Kept()
    parking = kept.parking()
    assert parking.take(of(SchemaError("x"), A), 3)
    assert parking.take(of(SchemaError("x"), B), 3)
    assert not parking.take(of(SchemaError("x"), C), 4)


def test_a_table_whose_error_comes_again_without_its_rows_stops_the_run() -> None:
    parking = Kept().parking()
    assert parking.take(of(SchemaError("x"), A), 3)
    assert not parking.take(of(SchemaError("x"), A), 3)


def test_cause_and_command_are_kept_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    kept = Kept()
    kept.parking().take(of(SchemaError("Column 'v' is int.", remedy="Change it."), A), 3)
    [line] = caplog.messages
    assert line == (
        "Table dbo.a is parked: its changes are left out from batch 3 on, and the other tables go on. "
        "Column 'v' is int. Change it. Then read the table again: again dbo.a"
    )
    [one] = kept.parking().tables
    assert (one.batch, one.sentence, one.remedy, one.command) == (3, "Column 'v' is int.", "Change it.", "again dbo.a")


def test_what_follows_from_rows_of_a_parked_table_is_read_again_with_it_by_names_that_mean_no_other() -> None:
    kept = Kept()
    kept.parking(below=lambda table, batch: [C] if (table, batch) == (A, 3) else []).take(of(SchemaError("x"), A), 3)
    kept.parking().take(of(SchemaError("x"), B), 4)
    assert [one.command for one in kept.parking().tables] == ["again dbo.a dbo.c", "again dbo.b"]
    [(name, end)] = offsets().databases.items()
    several = Kept(Offsets({name: end, "crm": end}))
    several.parking().take(of(SchemaError("x"), A), 0)
    assert several.parking().tables[0].command == "again shop.dbo.a"


@pytest.mark.parametrize(
    ("parked_in", "ends", "back"),
    [
        pytest.param(0, [offsets(), offsets()], False, id="no read"),
        pytest.param(0, [offsets(), offsets(1, a=1)], True, id="a read that begins after it was parked"),
        pytest.param(1, [offsets(), offsets(1, a=1)], False, id="the read in whose first batch it was parked"),
        pytest.param(0, [offsets(), offsets(1, b=1)], False, id="a read of another table"),
        pytest.param(0, [offsets(1, a=1), offsets(1, a=1)], False, id="a read that goes on"),
        pytest.param(1, [offsets(), offsets(1, a=1), offsets(2, a=2)], True, id="a second read"),
        pytest.param(0, [offsets(), offsets(), moved()], False, id="changes that come again or are left out"),
    ],
)
def test_it_comes_back_with_the_first_batch_of_a_read(parked_in: int, ends: list[Offsets], back: bool) -> None:
    kept = Kept(*ends)
    assert kept.parking().take(of(SchemaError("x"), A), parked_in)
    for _ in range(2):
        # A replay, by another driver, does the same.
        parking = kept.parking()
        for batch in range(parked_in, len(ends)):
            parking.begin(batch)
        assert kept.names == ([] if back else ["a"])
    assert (kept.text is None) == back


def test_where_no_offset_is_left_of_the_batch_before_it_stays_parked() -> None:
    kept = Kept()
    kept.parking().take(of(SchemaError("x"), A), 0)
    Parking(parks=True, kept=kept.text, keep=kept._keep).begin(1)
    assert kept.names == ["a"]


def test_work_on_a_table_gives_its_name_to_what_only_it_can_have() -> None:
    for error, named in [
        (SchemaError("x"), A),
        (FormatError("x"), A),
        (about(SchemaError("x"), B), B),
        (about(SinkError("x"), B), B),
        (SinkError("x"), None),
        (ConnectError("x"), None),
        (CaptureError("x"), None),
        (DataLossError("x"), None),
    ]:
        with pytest.raises(type(error)) as caught, work_on(A):
            raise error
        assert caught.value.table == named


def test_all_tables_are_tried_and_their_errors_are_raised_together() -> None:
    tried = []

    def fail(table: TableId) -> None:
        tried.append(table)
        if table != B:
            raise about(SchemaError(table.name), table)

    with pytest.raises(SchemaError, match="a") as caught:
        in_turn([A, B, C], fail)
    assert tried == [A, B, C]
    assert [error.table for error in caught.value.others] == [C]
    with pytest.raises(SinkError, match="disk"):
        raise_together([about(SchemaError("x"), A), SinkError("disk")])


SQLSERVER = {"type": "sqlserver", "hostname": "db", "database": "shop", "user": "u", "password": "p"}
KAFKA = {
    "type": "kafka",
    "bootstrap.servers": "k:1",
    "topics": ["a"],
    "format": {"type": "debezium_json"},
}
DELTA, TOPICS = {"type": "delta", "path": "lake"}, {"type": "kafka", "bootstrap.servers": "k:1"}


@pytest.fixture
def choice(tmp_path: Path) -> Callable[..., str]:
    def of_file(source: dict[str, Any], sinks: list[dict[str, Any]], chosen: str | None) -> str:
        made: dict[str, Any] = {"source": source, "sinks": sinks, "pipeline": {"name": "p", "checkpoint": "state"}}
        if any(sink["type"] == "kafka" for sink in sinks):
            made["format"] = {"type": "debezium_json", "topic.prefix": "p"}
        if chosen is not None:
            made["pipeline"]["on_table_error"] = chosen
        file = tmp_path / "pipeline.yaml"
        file.write_text(json.dumps(made))
        return read_model(file).on_table_error

    return of_file


@pytest.mark.parametrize(
    ("source", "sinks", "chosen", "found"),
    [
        (SQLSERVER, [DELTA], None, "park"),
        (SQLSERVER, [DELTA], "stop", "stop"),
        (SQLSERVER, [DELTA, {**DELTA, "path": "log", "stored_as_scd_type": "append"}], None, "stop"),
        # No read brings back the versions that a history lacks.
        (SQLSERVER, [DELTA, {**DELTA, "path": "history", "stored_as_scd_type": "2"}], None, "stop"),
        (SQLSERVER, [DELTA, {**DELTA, "path": "history", "stored_as_scd_type": "2"}], "park", "park"),
        (SQLSERVER, [DELTA, TOPICS], None, "stop"),
        (SQLSERVER, [DELTA, TOPICS], "park", "park"),
        ({**SQLSERVER, "provide.transaction.metadata": "true"}, [DELTA], None, "park"),
        ({**SQLSERVER, "provide.transaction.metadata": "true"}, [DELTA, TOPICS], None, "stop"),
        ({**SQLSERVER, "snapshot.mode": "initial_only"}, [DELTA], None, "stop"),
        (KAFKA, [DELTA], None, "stop"),
    ],
)
def test_what_a_pipeline_does_by_default(
    choice: Callable[..., str], source: dict[str, Any], sinks: list[dict[str, Any]], chosen: str | None, found: str
) -> None:
    assert choice(source, sinks, chosen) == found


@pytest.mark.parametrize(
    ("source", "sinks", "why"),
    [
        (
            {**SQLSERVER, "provide.transaction.metadata": "true"},
            [DELTA, TOPICS],
            r"sink 2 \(kafka\) would lack changes of transactions whose ends count them",
        ),
        (KAFKA, [DELTA], "topics hold changes only"),
        ({**SQLSERVER, "snapshot.mode": "initial_only"}, [DELTA], "source 'sqlserver' can't do that"),
    ],
)
def test_where_no_table_can_be_parked_a_file_that_says_so_is_refused_with_its_line(
    choice: Callable[..., str], source: dict[str, Any], sinks: list[dict[str, Any]], why: str
) -> None:
    with pytest.raises(OptionError, match=rf"pipeline.yaml, line \d+: With on_table_error: park .*{why}"):
        choice(source, sinks, "park")


def test_any_other_word_is_refused(choice: Callable[..., str]) -> None:
    with pytest.raises(OptionError, match=r"Key 'pipeline.on_table_error' must be stop or park"):
        choice(SQLSERVER, [DELTA], "skip")


def test_messages_are_not_made_where_the_source_is_read_if_tables_can_be_parked(tmp_path: Path) -> None:
    made = {"source": SQLSERVER, "sinks": [TOPICS], "format": {"type": "debezium_json", "topic.prefix": "p"}}
    for chosen, fused in (("stop", True), ("park", False)):
        file = tmp_path / "pipeline.yaml"
        file.write_text(json.dumps({**made, "pipeline": {"name": "p", "checkpoint": "c", "on_table_error": chosen}}))
        model = read_model(file)
        assert Fusing.of(model).fused is fused
        # What was parked before the file said stop is left out all the same.
        assert not Fusing.of(model, parked=True).fused


def test_a_sink_names_tables_as_its_routes_do_and_the_source_s_is_parked(tmp_path: Path) -> None:
    sink = {
        **DELTA,
        "routes": [{"tables": "dbo.a", "to": "x.one"}, {"tables": "dbo.[bc]", "to": "x.all", "merge": True}],
    }
    file = tmp_path / "pipeline.yaml"
    file.write_text(json.dumps({"source": SQLSERVER, "sinks": [sink], "pipeline": {"name": "p", "checkpoint": "c"}}))
    [target] = read_model(file).targets
    for id in (A, B, C):
        target.shaping.structure(TableSchema(id, (), ()), None)
    for name, source in (("one", A), ("all", None)):
        with pytest.raises(SchemaError) as caught, Kept().parking().writing(target):
            raise of(SchemaError("x"), TableId("shop", "x", name))
        # Tables that share a target can't be read again one by one.
        assert caught.value.table == source

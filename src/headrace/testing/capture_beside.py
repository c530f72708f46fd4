"""What capture does beside its snapshot and its stream: what signals ask for, heartbeats, notifications."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from headrace.sources.base import Limit
from headrace.sources.databases import Databases, Offsets
from headrace.sources.signals import Signal
from headrace.testing.captured_database import CapturedDatabase, image, read_since, replay
from headrace.testing.contract import Contract
from headrace.testing.sources import NOW, Row

T = "id int not null primary key, v varchar(20)"


class BesideTheStreamContract(Contract):
    """The part of `CaptureContract` that is about what comes beside the stream. It gives the fixture `database`."""

    def test_a_signal_reads_a_table_again_beside_the_stream(self, database: CapturedDatabase) -> None:
        database.create("signals", "id varchar(42) not null primary key, type varchar(32), data varchar(2048)")
        database.create("t", T, [(n, "old") for n in range(5)])
        run = database.run(
            signal_data_collection=database.named("signals"),
            incremental_snapshot_chunk_size=2,
            snapshot_chunks_per_batch=1,
        )
        before = run.all()
        asked = {"data-collections": [database.named("t")]}
        run.source.signal(Signal("s", "execute-snapshot", json.dumps(asked)))
        database.update("t", "v = 'new'", "id = 3")
        with database.capturing():
            database.capture()
            rows = run.all()
        read = [row for row in rows if row["snapshot"] == "incremental"]
        assert sorted(image(row)["id"] for row in read) == ["0", "1", "2", "3", "4"]
        assert replay(rows)["t", '["3"]']["v"] == "new"
        # What is older than the read and was not read goes.
        [since] = filter(None, map(read_since, rows))
        assert max(row["position"] for row in before if row["op"] == "r") < since < min(row["position"] for row in read)
        assert not run.offset.has_open_requests

    @pytest.mark.parametrize("columns", ["n", "m,n"])
    def test_a_table_without_a_key_is_read_again_beside_the_stream_by_the_key_that_it_was_given(
        self, database: CapturedDatabase, columns: str
    ) -> None:
        database.create("signals", "id varchar(42) not null primary key, type varchar(32), data varchar(2048)")
        rows = [(1, "a", "x"), (1, "a", "y"), (1, "b", "z"), (2, "a", "x"), (3, "c", None)]
        database.create("log", "n int not null, m varchar(5) not null, v varchar(5)", rows)
        run = database.run(
            snapshot_mode="no_data",
            signal_data_collection=database.named("signals"),
            message_key_columns=f"{database.schema}.log:{columns}",
            incremental_snapshot_chunk_size=1,
            snapshot_chunks_per_batch=2,
        )
        run.all()
        asked = {"data-collections": [database.named("log")]}
        run.source.signal(Signal("s", "execute-snapshot", json.dumps(asked)))
        with database.capturing():
            database.capture()
            read_again = [row for row in run.all() if row["snapshot"] == "incremental"]
        assert Counter((image(row)["n"], image(row)["m"], image(row)["v"]) for row in read_again) == Counter(
            (str(n), m, v) for n, m, v in rows
        )
        assert [name.lower() for name, _ in read_again[0]["key"]] == columns.split(",")

    @pytest.mark.parametrize("surrogate", [{}, {"surrogate-key": "v"}], ids=["by key", "by a column"])
    def test_a_key_that_changed_in_the_window_is_left_to_its_change(
        self, database: CapturedDatabase, monkeypatch: pytest.MonkeyPatch, surrogate: dict[str, str]
    ) -> None:
        database.create("signals", "id varchar(42) not null primary key, type varchar(32), data varchar(2048)")
        database.create("t", "id int not null primary key, v varchar(20) not null", [(n, "old") for n in range(3)])
        run = database.run(signal_data_collection=database.named("signals"))
        rows = run.all()
        asked = {"data-collections": [database.named("t")], **surrogate}
        run.source.signal(Signal("s", "execute-snapshot", json.dumps(asked)))
        database.capture()

        waiting = [database.chunk_point]

        def change(point: str) -> None:
            if waiting == [point]:
                waiting.clear()
                database.delete("t", "id = 0")
                database.update("t", "v = 'new'", "id = 1")
                database.capture()

        with monkeypatch.context() as patch:
            patch.setattr("headrace.faultpoints.reach", change)
            with database.capturing():
                batch_rows = run.batch()
        assert not waiting
        wanted = ["0", "1", "2"] if database.chunks_are_moments else ["2"]
        assert sorted(image(row)["id"] for row in batch_rows if row["snapshot"] == "incremental") == wanted
        held = replay(rows + batch_rows + run.all())
        assert {key: row["v"] for (table, key), row in held.items() if table == "t"} == {'["1"]': "new", '["2"]': "old"}

    def test_a_statement_is_run_with_each_heartbeat_and_what_it_changes_is_captured(
        self, database: CapturedDatabase, caplog: pytest.LogCaptureFixture
    ) -> None:
        database.create("beats", "id int not null primary key, n int", [(1, 0)])
        name = f"{database.schema}.beats"
        options = {
            "heartbeat_interval_ms": 60_000,
            "heartbeat_action_query": f"UPDATE {name} SET n = n + 1",
        }
        planned = Databases(database.run(**options).source)
        [(only, source)] = planned.sources.items()
        end = Offsets()
        rows: list[Row] = []

        def batch(minutes: int) -> None:
            nonlocal end
            before, end = end, planned.advance(end, Limit(), NOW + timedelta(minutes=minutes))
            rows.extend(_rows(planned, before, end))
            database.capture()

        with database.capturing():
            for minutes in (0, 0, 1):
                batch(minutes)
        assert [row["op"] for row in rows if row["op"] in ("heartbeat", "u")] == ["heartbeat", "u", "heartbeat"]
        # Planning and reading again is not a heartbeat.
        planned.plan(Offsets(), end)
        source.preview(end.of(only), NOW + timedelta(minutes=9))
        batch(1)
        batch(1)
        assert [row["op"] for row in rows].count("u") == 2
        # One that fails is said, and stops nothing.
        refused = Databases(database.run(**options | {"heartbeat_action_query": f"UPDATE {name}_x SET n = 1"}).source)
        for minutes in (10, 20):
            end = refused.advance(end, Limit(), NOW + timedelta(minutes=minutes))
        assert end.of(only).heartbeat == NOW + timedelta(minutes=20)
        messages = [record.message for record in caplog.records if "'heartbeat_action_query' failed" in record.message]
        assert len(messages) == 1

    def test_notifications_say_how_snapshots_go(
        self, database: CapturedDatabase, caplog: pytest.LogCaptureFixture
    ) -> None:
        database.create("signals", "id varchar(42) not null primary key, type varchar(32), data varchar(2048)")
        database.create("t", T, [(n, "v") for n in range(3)])
        run = database.run(
            signal_data_collection=database.named("signals"),
            incremental_snapshot_chunk_size=2,
            snapshot_chunk_rows=2,
            snapshot_chunks_per_batch=1,
            **{"notification.enabled.channels": "sink,log", "notification.sink.topic.name": "notes"},
        )
        planned, end = Databases(run.source), Offsets()

        def told() -> list[dict[str, Any]]:
            nonlocal end
            sources: list[dict[str, Any]] = []
            with database.capturing():
                for _ in range(10):
                    before, end = end, planned.advance(end, Limit(), NOW)
                    rows = [row for row in _rows(planned, before, end) if row["op"] == "message"]
                    assert rows == [row for row in _rows(planned, before, end) if row["op"] == "message"]
                    sources += [dict(row["source"]) for row in rows]
            return sources

        first = told()
        table, signals = database.named("t"), database.named("signals")
        assert {(one["topic"], one["aggregate_type"]) for one in first} == {("notes", "Initial Snapshot")}
        types = [one["type"] for one in first]
        assert (types[0], types[-1]) == ("STARTED", "COMPLETED")
        scans = [json.loads(one["additional_data"]) for one in first if one["type"] == "TABLE_SCAN_COMPLETED"]
        assert sorted((scan["scanned_collection"], scan["status"]) for scan in scans) == [
            (signals, "EMPTY"),
            (table, "SUCCEEDED"),
        ]
        begun = [json.loads(one["additional_data"]) for one in first if one["type"] == "IN_PROGRESS"]
        assert table in [one["current_collection_in_progress"] for one in begun]
        run.source.signal(Signal("mine", "execute-snapshot", json.dumps({"data-collections": [table]})))
        database.capture()
        later = told()
        assert {(one["id"], one["aggregate_type"]) for one in later} == {("mine", "Incremental Snapshot")}
        assert [one["type"] for one in later] == [
            "STARTED", "IN_PROGRESS", "IN_PROGRESS", "TABLE_SCAN_COMPLETED", "COMPLETED",
        ]  # fmt: skip
        logged = [json.loads(record.message) for record in caplog.records if record.name == "headrace.notifications"]
        assert {one["id"] for one in later} <= {one["id"] for one in logged}
        assert logged[0]["additional_data"].keys() == {"connector_name"}


def _rows(databases: Databases, start: Offsets, end: Offsets) -> list[Row]:
    """The rows of a batch, those too that no source plans by itself."""
    pieces = databases.plan(start, end)
    return [row for name, piece in pieces for batch in databases.read(name, piece) for row in batch.to_pylist()]

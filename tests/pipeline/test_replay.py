"""Rule: a dead letter that can be read after a repair takes its place in the order of its partition, once."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.cli.dead_letters import group_lines, plan_lines
from headrace.errors import OptionError
from headrace.pipeline import Pipeline, load_pipeline
from headrace.pipeline.dead_letter import Replayed, ReplayedBatch
from headrace.pipeline.replay import DeadLetterGroup, ReplayPlan, SinkReplay, TableReplay
from headrace.spark.local_rows import local_rows
from headrace.testing.waiting import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT = dt.datetime(2024, 5, 1, 12, 0, tzinfo=dt.UTC)


# --- the record of what was replayed ----------------------------------------------------------------------------------


def test_offsets_are_kept_as_ranges_of_those_that_follow_one_another() -> None:
    first = Replayed().with_batch(ReplayedBatch(3, AT, 4), [("a", 0, 5, 6), ("a", 0, 9, 9), ("b", 11, 0, 0)])
    second = first.with_batch(ReplayedBatch(7, AT, 3), [("a", 0, 7, 8), ("a", 1, 1, 1)])
    assert second.letters == {"a": {0: ((5, 9),), 1: ((1, 1),)}, "b": {11: ((0, 0),)}}
    assert second.count == 7
    assert Replayed.from_text(second.to_text()) == second
    assert Replayed.from_text(None) == Replayed()


@pytest.mark.parametrize(
    "text",
    ["", "{}", '{"version": 1, "letters": {"a": [1]}, "batches": []}', '{"version": 1, "letters": {}, "batches": [1]}'],
)
def test_a_record_that_can_not_be_read_stops(text: str) -> None:
    with pytest.raises(OptionError, match=r"headrace-replayed-letters\.json"):
        Replayed.from_text(text)


# --- what people see --------------------------------------------------------------------------------------------------


def test_letters_are_listed_by_partition_and_reason() -> None:
    groups = [
        DeadLetterGroup("orders", 0, "The value is not JSON.", 2, 5, 1006, AT),
        DeadLetterGroup("orders", 1, "No key.", 1, 7, 7, None, replayed=1),
        DeadLetterGroup("orders", 1, "No table.", 3, 8, 10, AT, replayed=1),
    ]
    assert group_lines(groups) == [
        "2 dead letters: topic orders, partition 0, offsets 5 to 1,006, the newest of 2024-05-01 12:00:00 UTC. "
        "The value is not JSON.",
        "1 dead letter: topic orders, partition 1, offset 7; all replayed. No key.",
        "3 dead letters: topic orders, partition 1, offsets 8 to 10, the newest of 2024-05-01 12:00:00 UTC; "
        "1 replayed. No table.",
        "4 dead letters wait for a replay.",
    ]
    assert group_lines([]) == ["No dead letters."]


def test_a_plan_shows_tables_sinks_and_what_stops() -> None:
    plan = ReplayPlan(
        "shop",
        "/state",
        letters=5,
        readable=3,
        no_event=1,
        unreadable={"The value is not JSON.": 1},
        tables=(TableReplay("shop.orders", 3, 2),),
        sinks=(
            SinkReplay("sink 1 (delta)", "3 old changes at their place"),
            SinkReplay("sink 2 (kafka)", "3 old changes out of order", "Consumers would see them.", "Say so."),
        ),
    )
    assert plan_lines(plan) == [
        "shop: 5 dead letters (checkpoint /state)",
        "  readable   3 now",
        "  no event   1, settled without a change",
        "  unreadable 1, which stay: The value is not JSON.",
        "  table      shop.orders: 3 changes, and 2 later of the same rows",
        "  sink       sink 1 (delta): 3 old changes at their place.",
        "  sink       sink 2 (kafka): 3 old changes out of order. STOPS. Consumers would see them. Say so.",
    ]
    assert plan.all_stops == ["sink 2 (kafka): Consumers would see them. Say so."]
    assert plan_lines(ReplayPlan("shop", "/state")) == ["shop: no dead letters to replay."]


# --- through Kafka ----------------------------------------------------------------------------------------------------

ROW_TYPES = {"sqlType": {"id": 4, "n": 4, "b": 2004}, "mysqlType": {"id": "int", "n": "int", "b": "blob"}}


def canal(kind: str, id: int, n: int, b: str | None = None, old: dict[str, str | None] | None = None) -> str:
    """A message of Canal; one with bytes can't be read at first."""
    row = {"id": str(id), "n": str(n), "b": b}
    facts = {"database": "shop", "table": "orders", "pkNames": ["id"], "isDdl": False, "es": 1, "ts": 1, "type": kind}
    return json.dumps(facts | ROW_TYPES | {"data": [row], "old": [old] if old else None}, ensure_ascii=False)


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.system
def test_letters_take_their_place_and_bring_no_deleted_row_back(spark: SparkSession, tmp_path: Path) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    from headrace_emulators.kafka.broker import KafkaBroker

    def send(*values: str) -> None:
        rows = local_rows(spark, [("orders", value) for value in values], "topic string, value string")
        rows.coalesce(1).write.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap).save()

    def pipeline(**format: Any) -> Pipeline:
        servers = {"bootstrap.servers": broker.bootstrap}
        text = {
            "source": {"type": "kafka", **servers, "topics": ["orders"], "format": {"type": "fussy_canal", **format}},
            "sinks": [
                {"type": "delta", "path": "lake"},
                {"type": "delta", "path": "log", "stored_as_scd_type": "append"},
                {"type": "files", "path": "out", "format": {"type": "canal_json"}},
            ],
            "dead_letter": {"type": "kafka", **servers},
            "pipeline": {"name": "shop", "checkpoint": "state"},
        }
        file = tmp_path / "pipeline.yaml"
        file.write_text(json.dumps(text))
        return load_pipeline(file)

    def rows(folder: str) -> list[tuple[Any, ...]]:
        found = spark.read.format("delta").load(str(tmp_path / folder / "shop" / "orders"))
        shown = found.selectExpr("id", "n", "hex(b)", "int(split(_headrace_position, '/')[0])").collect()
        return sorted((tuple(row) for row in shown), key=str)

    def sent(batch: int) -> list[tuple[str, str]]:
        lines = [
            json.loads(line)
            for file in sorted((tmp_path / "out" / f"batch={batch:012}").glob("part-*"))
            for line in file.read_text().splitlines()
        ]
        values = [json.loads(line["value"]) for line in lines]
        return [(value["type"], value["data"][0]["id"]) for value in values if value["data"]]

    with KafkaBroker(tmp_path / "broker") as broker:
        send(
            canal("INSERT", 1, 1),
            canal("INSERT", 2, 1, "éé"),
            canal("UPDATE", 1, 1, "é", {"b": None}),
            canal("UPDATE", 1, 2, None, {"n": "1"}),
            canal("INSERT", 3, 1, "é"),
            canal("UPDATE", 3, 2, None, {"n": "1", "b": ""}),
            canal("DELETE", 3, 2),
            '{"broken"',
        )
        assert pipeline(refuses="é").start(spark, once=True).wait(PATIENCE)
        assert rows("lake") == [(1, 2, None, 3)]
        groups = pipeline().dead_letters(spark)
        assert [(one.letters, one.first, one.last, one.replayed) for one in groups] == [(3, 1, 4, 0), (1, 7, 7, 0)]
        before = rows("log")

        # Repaired. Sinks of messages stop it first, because their consumers would see old changes after newer ones.
        with pipeline().replay(spark, holds=False) as looked:
            assert [one.split(".")[0] for one in looked.plan.all_stops] == [
                "sink 3 (files): Its consumers would get old changes after newer ones"
            ]
            assert (looked.plan.letters, looked.plan.readable, looked.plan.tables) == (
                4,
                3,
                (TableReplay("shop.orders", 3, 3),),
            )
            with pytest.raises(OptionError, match="out-of-order"):
                looked.run()
        with pipeline().replay(spark, out_of_order="send") as prepared:
            done = prepared.run()
        assert done is not None
        assert done.letters == 3
        assert rows("lake") == [(1, 2, None, 3), (2, 1, "E9E9", 1)]
        added = rows("log")
        assert sorted(set(added) - set(before)) == [(1, 1, "E9", 2), (2, 1, "E9E9", 1), (3, 1, "E9", 4)]
        assert len(added) == len(before) + 3
        assert sent(done.batch) == [
            ("INSERT", "2"),
            ("UPDATE", "1"),
            ("UPDATE", "1"),
            ("INSERT", "3"),
            ("UPDATE", "3"),
            ("DELETE", "3"),
        ]

        # What was replayed is not replayed again, and the next run goes on behind it.
        with pipeline().replay(spark, out_of_order="send") as again:
            assert (again.plan.letters, again.plan.readable) == (1, 0)
            assert list(again.plan.unreadable.values()) == [1]
            assert again.run() is None
        assert [one.replayed for one in pipeline().dead_letters(spark)] == [3, 0]
        send(canal("INSERT", 5, 1), canal("INSERT", 6, 1, "é"), canal("INSERT", 7, 1))
        assert pipeline(refuses="é").start(spark, once=True).wait(PATIENCE)
        assert [row[0] for row in rows("lake")] == [1, 2, 5, 7]

        # Killed between the sinks and the record, a replay comes again, and changes nothing in a mirror.
        (tmp_path / "state" / "headrace-replayed-letters.json").unlink()
        with pipeline().replay(spark, out_of_order="leave-out") as whole:
            done = whole.run()
        assert done is not None
        assert done.letters == 4
        assert not (tmp_path / "out" / f"batch={done.batch:012}").exists()
        assert rows("lake") == [
            (1, 2, None, 3),
            (2, 1, "E9E9", 1),
            (5, 1, None, 8),
            (6, 1, "E9", 9),
            (7, 1, None, 10),
        ]

        # Where Kafka has forgotten what followed a letter, a row that was deleted since would come back.
        send(canal("INSERT", 8, 1, "é"), canal("INSERT", 9, 1), canal("INSERT", 10, 1))
        assert pipeline(refuses="é").start(spark, once=True).wait(PATIENCE)
        # Its answers come only as long as the client is there.
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        (deleted,) = admin.delete_records([TopicPartition("orders", 0, 13)]).values()
        deleted.result(PATIENCE)
        with pipeline().replay(spark, out_of_order="leave-out") as trimmed:
            assert "begins at offset 13, so what followed the dead letter at offset 7" in trimmed.plan.all_stops[0]
            assert "--on-trimmed continue" in trimmed.plan.all_stops[0]
        with pipeline().replay(spark, out_of_order="leave-out", on_trimmed="continue") as accepted:
            assert accepted.run() is not None
        assert (8, 1, "E9", 11) in rows("lake")

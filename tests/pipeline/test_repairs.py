"""Rule: after a repair of one table its targets have what they lacked, and the other tables have gone on as ever."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from headrace_standins import written
from tests.support.captured_shop import SqlServerDatabase, closing

from headrace.errors import OptionError
from headrace.pipeline import Pipeline, load_pipeline
from headrace.spark.local_rows import local_rows
from headrace.testing.waiting import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def loaded(folder: Path, source: dict[str, Any], *sinks: dict[str, Any]) -> Pipeline:
    made = {"source": source, "sinks": list(sinks), "pipeline": {"name": "shop", "checkpoint": "state"}}
    file = folder / "pipeline.yaml"
    file.write_text(json.dumps(made))
    return load_pipeline(file)


@pytest.mark.system
def test_a_mirror_takes_what_it_lacks_of_a_rewound_table(spark: SparkSession, tmp_path: Path) -> None:
    with closing(SqlServerDatabase(tmp_path / "server")) as database:
        for table in "ab":
            database.create(table, "id int not null primary key, v varchar(20)", [(1, "first")])
        options = {"type": "sqlserver", **database.options}
        out = {"type": "files", "path": "out", "format": {"type": "debezium_json", "topic.prefix": "p"}}
        pipeline = loaded(tmp_path, options, {"type": "delta", "path": "lake"}, out)

        def run() -> None:
            assert load_pipeline(tmp_path / "pipeline.yaml").start(spark, once=True).wait(PATIENCE)

        def mirror(table: str) -> list[tuple[int, str]]:
            found = spark.read.format("delta").load(str(tmp_path / "lake" / "dbo" / table)).select("id", "v")
            return sorted(tuple(row) for row in found.collect())

        def sent(table: str) -> int:
            lines = [
                json.loads(line)
                for file in (tmp_path / "out").glob("batch=*/part-*")
                for line in file.read_text().splitlines()
            ]
            return sum(line["topic"] == f"p.shop.dbo.{table}" for line in lines)

        run()
        location = pipeline.status(ask_source=False).databases[0].position
        for table in "ab":
            database.insert(table, 2, "second")
            database.insert(table, 3, "third")
        database.delete("a", "id = 3")
        database.capture()
        run()
        # Somebody deletes a row of each mirror by hand.
        for table in "ab":
            spark.sql(f"delete from delta.`{tmp_path / 'lake' / 'dbo' / table}` where id = 2")
        before = sent("a"), sent("b")
        repair = pipeline.rewind(["dbo.a"], location)
        assert (repair.parts[0].count, repair.parts[0].to) == (3, location)
        assert repair.do()
        database.insert("b", 4, "fourth")
        database.capture()
        run()
        assert mirror("a") == [(1, "first"), (2, "second")]
        assert mirror("b") == [(1, "first"), (3, "third"), (4, "fourth")]
        assert (sent("a") - before[0], sent("b") - before[1]) == (3 + 1, 1)

        # What a reread finds decides, also about a row that nobody ever wrote there.
        spark.sql(
            f"insert into delta.`{tmp_path / 'lake' / 'dbo' / 'b'}` select 9, 'stray', '00000000:00000000:0000/q/'"
        )
        assert pipeline.reread(["dbo.b"]).do()
        with database.capturing():
            run()
        assert mirror("b") == [(1, "first"), (2, "second"), (3, "third"), (4, "fourth")]

        database.insert("b", 5, "fifth")
        database.capture()
        assert pipeline.skip(["dbo.b"], "now").do()
        database.insert("b", 6, "sixth")
        database.capture()
        run()
        assert [id for id, _ in mirror("b")] == [1, 2, 3, 4, 6]
        assert not pipeline.status(ask_source=False).is_fine


@pytest.mark.kafka
@pytest.mark.system
def test_partitions_are_read_again_or_passed_over(spark: SparkSession, tmp_path: Path) -> None:
    from headrace_emulators.kafka.broker import KafkaBroker

    def send(*lines: str) -> None:
        rows = local_rows(spark, [("a", line) for line in lines], "topic string, value string")
        rows.coalesce(1).write.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap).save()

    def run() -> list[str]:
        before = len(written(tmp_path / "out"))
        assert pipeline.start(spark, once=True).wait(PATIENCE)
        return [text for _, _, texts in written(tmp_path / "out")[before:] for text in texts]

    with KafkaBroker(tmp_path / "broker") as broker:
        source = {
            "type": "kafka",
            "bootstrap.servers": broker.bootstrap,
            "topics": ["a"],
            "format": {"type": "lines"},
        }
        pipeline = loaded(tmp_path, source, {"type": "list_changes", "path": "out"})
        send("c 0", "c 1", "c 2")
        assert run() == ["c 0", "c 1", "c 2"]
        repair = pipeline.rewind(["a:0"], "1", spark=spark)
        assert [(part.name, part.count, part.to) for part in repair.parts] == [("a:0", 2, "1")]
        assert repair.do() == ["Batch 1 of the checkpoint says so; the next run goes on there."]
        assert run() == ["c 1", "c 2"]
        for to in ("earliest", "2000-01-01T00:00:00Z", "0"):
            assert pipeline.rewind(["a"], to, spark=spark).parts[0].count == 3
        send("c 3", "c 4")
        skip = pipeline.skip(["a"], "4", spark=spark)
        assert skip.parts[0].does == "its messages from offset 3 to 3 are left out"
        skip.do()
        # What was looked at before holds no more.
        with pytest.raises(OptionError, match="The pipeline ran meanwhile"):
            repair.do()
        assert run() == ["c 4"]
        status = pipeline.status()
        assert [(one.topic, one.first, one.upto) for one in status.skipped] == [("a", 3, 4)]
        assert not status.is_fine
        pipeline.rewind(["a"], "3", spark=spark).do()
        assert pipeline.status().is_fine
        assert run() == ["c 3", "c 4"]
        for names, to, sentence in (
            (["b"], "0", "The checkpoint has no topic or partition 'b'"),
            (["a"], "9", "holds offsets 0 to 5, and not 9"),
            (["a"], "soon", "'soon' is neither an offset nor a time with its zone"),
            (["a"], "5", "is read up to offset 5, so it can't be rewound to 5"),
            (["a"], "now", "No partition would move"),
        ):
            with pytest.raises(OptionError, match=sentence):
                pipeline.rewind(names, to, spark=spark)

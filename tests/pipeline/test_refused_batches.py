"""Rule: a sink refuses a batch in which a column has bytes in some rows and texts in others. The table is parked and
read again, and no other lacks anything.

Sources end a batch in front of such a change of structure, so that is taken out here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.errors import SchemaError
from headrace.pipeline import Pipeline, load_pipeline
from headrace.sources.postgresql import planner
from headrace.testing.waiting import PATIENCE
from headrace_emulators.postgresql.server import PostgresDatabase

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.system
@pytest.mark.jvm
def test_a_table_whose_batch_a_sink_refuses_is_parked_and_read_again(
    spark: SparkSession, tmp_path: Path, postgres_database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "can_share", lambda one, other: True)
    for table in ("t", "u"):
        postgres_database.execute(
            f"CREATE TABLE {table} (id int PRIMARY KEY, v text); INSERT INTO {table} VALUES (1, 'a')"
        )
    file = tmp_path / "pipeline.yaml"
    source = {
        "type": "postgresql",
        **postgres_database.options,
        "slot": f"r_{postgres_database.name}",
        "publication_autocreate": "filtered",
        "tables": ["public.t", "public.u"],
    }
    sink = {"type": "delta", "path": "./lake"}

    def pipeline(choice: str = "stop") -> Pipeline:
        named = {"name": "refused", "checkpoint": "./checkpoint", "on_table_error": choice}
        file.write_text(json.dumps({"source": source, "sink": sink, "pipeline": named}))
        return load_pipeline(file)

    def run(choice: str = "stop") -> None:
        assert pipeline(choice).start(spark, once=True).wait(PATIENCE)

    def rows(table: str) -> list[tuple[object, ...]]:
        found = spark.read.format("delta").load(str(tmp_path / "lake" / "public" / table))
        found = found.drop("_headrace_position").collect()
        return sorted(tuple(bytes(cell) if isinstance(cell, bytearray) else cell for cell in row) for row in found)

    run()
    for statement in (
        "INSERT INTO u VALUES (2, 'b')",
        "ALTER TABLE t ADD w text",
        "INSERT INTO t VALUES (2, 'b', 'text')",
        "ALTER TABLE t ALTER w TYPE bytea USING decode(w, 'escape')",
        "INSERT INTO t VALUES (3, 'c', 'bytes')",
    ):
        postgres_database.execute(statement)
    for _ in range(2):
        with pytest.raises(
            SchemaError, match=r"Column 'w' of table \S+public\.t is (text|bytea) in some rows of a batch"
        ):
            run()
        repair = pipeline().reread(["public.t"])
        assert any("run once with on_table_error: park" in note for note in repair.notes), repair.notes
    run("park")
    assert rows("u") == [(1, "a"), (2, "b")]
    pipeline().reread(["public.t"]).do()
    run()
    assert rows("t") == [(1, "a", None), (2, "b", b"text"), (3, "c", b"bytes")]
    assert rows("u") == [(1, "a"), (2, "b")]

"""Rule: a column that is added with one value for all rows leaves a mirror equal, and no row is read for it."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.pipeline import load_pipeline
from headrace.testing.waiting import PATIENCE
from headrace_emulators.postgresql.server import PostgresDatabase

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.system
@pytest.mark.jvm
def test_a_mirror_gets_the_value_of_a_column_that_was_added_without_a_read(
    spark: SparkSession, tmp_path: Path, postgres_database: PostgresDatabase
) -> None:
    database = postgres_database
    database.execute("CREATE TABLE item (id int PRIMARY KEY, a int); INSERT INTO item VALUES (1, 1), (2, 2), (3, 3)")
    source = {
        "type": "postgresql",
        **database.options,
        "slot": f"a_{database.name}",
        "publication_autocreate": "filtered",
        "tables": ["public.item"],
    }
    document = {
        "source": source,
        "sink": {"type": "delta", "path": "./lake"},
        "pipeline": {"name": "added", "checkpoint": "./checkpoint", "trigger": "50ms"},
    }
    (tmp_path / "pipeline.yaml").write_text(json.dumps(document))
    pipeline = load_pipeline(tmp_path / "pipeline.yaml")
    assert pipeline.start(spark, once=True).wait(PATIENCE)
    # A table is read again if it is altered before the batch after its snapshot.
    database.execute("UPDATE item SET a = 22 WHERE id = 2")
    assert pipeline.start(spark, once=True).wait(PATIENCE)
    database.execute("UPDATE item SET a = 11 WHERE id = 1")
    database.execute("ALTER TABLE item ADD price numeric(9,2) NOT NULL DEFAULT 1.5")
    database.execute("INSERT INTO item VALUES (4, 4, 7)")
    database.execute("UPDATE item SET price = 2 WHERE id = 2")
    assert pipeline.start(spark, once=True).wait(PATIENCE)
    (table,) = (tmp_path / "lake").rglob("item")
    rows = spark.read.format("delta").load(str(table)).select("id", "a", "price").orderBy("id").collect()
    texts = [(1, 11, "1.50"), (2, 22, "2.00"), (3, 3, "1.50"), (4, 4, "7.00")]
    assert [tuple(row) for row in rows] == [(id, a, Decimal(text)) for id, a, text in texts]
    assert spark.sql(f"DESCRIBE HISTORY delta.`{table}`").where("operation = 'UPDATE'").count() == 1
    # What is read again is newer than the changes from before the statement.
    found = spark.read.format("delta").load(str(table)).select("id", "_headrace_position").collect()
    positions = {row["id"]: row["_headrace_position"] for row in found}
    assert positions[3] < positions[1]

"""Columns that the server computes and does not send are left out, and nobody has to find that out by himself."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from tests.support.captured_postgres import CapturedPostgres

from headrace.changes import TableId, TableSchema
from headrace.cli.plan import lines
from headrace.pipeline import load_pipeline
from headrace.pipeline.check import check_file
from headrace.pipeline.model import read_model
from headrace.pipeline.new_file import new_file
from headrace.pipeline.plan import plan_pipeline
from headrace.sources.postgresql.captured_table import Computed, PostgresTable
from headrace.sources.postgresql.catalog import left_out
from headrace.sources.postgresql.printed import printed_tables
from headrace.sources.postgresql.publication import Member, PublicationState
from headrace.sources.postgresql.types import TypeCatalog
from headrace.testing.waiting import PATIENCE
from headrace_emulators.postgresql.server import PostgresDatabase

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SENTENCE = "Column 'gross' is computed by the server, which does not send the values"


def test_init_check_plan_run_and_verify_name_a_computed_column_that_the_log_lacks(
    postgres_database: PostgresDatabase, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = CapturedPostgres(postgres_database, "DEFAULT")
    database.create("t", "id int primary key, net int, gross int GENERATED ALWAYS AS (net * 2) STORED")
    file = tmp_path / "shop.yaml"
    source = {"type": "postgresql", **database.options}
    named = {"name": "shop", "checkpoint": str(tmp_path / "checkpoint")}
    sink = {"type": "files", "path": str(tmp_path / "out"), "format": {"type": "canal_json"}}
    file.write_text(yaml.safe_dump({"pipeline": named, "source": source, "sinks": [sink]}))

    given = {
        name: value
        for name, value in database.options.items()
        if name not in ("slot", "password", "errors_max_retries")
    }
    assert any(
        _SENTENCE in note for note in new_file("shop", "postgresql", ["files"], "debezium_json", given, "P").notes
    )
    findings = check_file(file).findings
    assert any(_SENTENCE in finding.sentence for finding in findings), findings
    assert any(_SENTENCE in line for line in lines(plan_pipeline(read_model(file))))
    run = database.run()
    with caplog.at_level(logging.WARNING):
        run.all()
    assert f"Table 'public.t': {_SENTENCE}" in caplog.text
    assert [table.left_out for table in printed_tables(run.source.settings)] == [("gross",)]


def test_a_stored_column_is_kept_equal_where_the_server_publishes_it(postgres_database: PostgresDatabase) -> None:
    if int(postgres_database.execute("SHOW server_version_num")[0][0]) < 180000:
        pytest.skip("the server does not publish computed columns before PostgreSQL 18")
    database = CapturedPostgres(postgres_database, "DEFAULT")
    database.create("t", "id int primary key, net int, gross int GENERATED ALWAYS AS (net * 2) STORED")
    database.execute("INSERT INTO t VALUES (1, 5)")
    database.execute("ALTER PUBLICATION shop SET (publish_generated_columns = stored)")
    run = database.run()
    read = [dict(row["after"]) for row in run.all() if row["op"] == "r"]
    database.execute("INSERT INTO t VALUES (2, 7)")
    database.execute("UPDATE t SET net = 9 WHERE id = 1")
    streamed = [dict(row["after"]) for row in run.all() if row["op"] in "cu"]
    assert [row["gross"] for row in (*read, *streamed)] == ["10", "14", "18"]


@pytest.mark.jvm
def test_the_transform_that_the_remedy_prints_keeps_a_computed_column_equal(
    spark: SparkSession, postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    database = postgres_database
    database.execute(
        "CREATE TABLE price (id int PRIMARY KEY, net numeric(9,2), rate numeric(3,2), "
        "gross numeric(9,2) GENERATED ALWAYS AS (net + net * rate) STORED)"
    )
    database.execute("INSERT INTO price (id, net, rate) VALUES (1, 10, 0.19), (2, 20.5, 0.07), (3, NULL, 0.07)")
    source = {
        "type": "postgresql",
        **database.options,
        "slot": f"c_{database.name}",
        "publication_autocreate": "filtered",
        "tables": ["public.price"],
    }
    sink = {"type": "delta", "path": str(tmp_path / "lake")}
    document = {"source": source, "sink": sink, "pipeline": {"name": "c", "checkpoint": str(tmp_path / "checkpoint")}}
    file = tmp_path / "pipeline.yaml"
    file.write_text(yaml.safe_dump(document))
    (remedy,) = [
        finding.remedy for finding in check_file(file).findings if finding.sentence.startswith("Column 'gross'")
    ]
    transform = remedy.split("translate: ")[1].removesuffix(".")
    file.write_text(yaml.safe_dump({**document, "transforms": [yaml.safe_load(transform)]}))

    pipeline = load_pipeline(file)
    assert pipeline.start(spark, once=True).wait(PATIENCE)
    database.execute("INSERT INTO price (id, net, rate) VALUES (4, 99.99, 0.5)")
    database.execute("UPDATE price SET rate = 0.5 WHERE id = 1")
    database.execute("UPDATE price SET net = NULL WHERE id = 2")
    assert pipeline.start(spark, once=True).wait(PATIENCE)

    (table,) = (tmp_path / "lake").rglob("price")
    mirror = spark.read.format("delta").load(str(table)).selectExpr("cast(id AS string)", "cast(gross AS string)")
    assert {tuple(row) for row in mirror.collect()} == set(database.execute("SELECT id::text, gross::text FROM price"))


@pytest.mark.parametrize(
    ("lacking", "version", "remedy"),
    [
        ({"g": "s"}, 170000, "Compute it by a transform"),
        ({"g": "s"}, 180000, 'Run: ALTER PUBLICATION "p" SET (publish_generated_columns = stored);'),
        ({"g": "v"}, 180000, "Compute it by a transform"),
        ({"g": "s", "h": "v"}, 180000, "Compute them by a transform"),
    ],
)
def test_the_remedy_is_what_the_server_offers(lacking: dict[str, str], version: int, remedy: str) -> None:
    columns = {name: Computed(kind, "(net * 2)", TypeCatalog().resolve(23)) for name, kind in lacking.items()}
    table = PostgresTable(TableSchema(TableId("db", "public", "t"), ()), (), oid=7, lacking=columns)
    assert [found.remedy.startswith(remedy) for found in left_out([table], "p", version)] == [True]


@pytest.mark.parametrize(
    ("generated", "listed", "computed", "is_published"),
    [
        (False, (), "", True),
        (False, (), "s", False),
        (True, (), "s", True),
        # No server sends what it does not store.
        (True, (), "v", False),
        (False, ("c",), "s", True),
        (True, ("d",), "s", False),
    ],
)
def test_which_computed_columns_a_publication_has(
    generated: bool, listed: tuple[str, ...], computed: str, is_published: bool
) -> None:
    members = {7: Member(1, "t", columns=listed)}
    state = PublicationState("p", 1, generated=generated, members=members)
    assert state.publishes_column(7, "c", computed) is is_published

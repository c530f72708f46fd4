"""Rule: a table that a target refuses is parked and named, the others go on, and a reread brings it back equal.

The run may end anywhere between: what is parked is known before anything else of the batch is written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.sinks.databases import KINDS, Running, fresh_database, serving
from tests.support.captured_shop import SqlServerDatabase, closing
from typer.testing import CliRunner

from headrace import complete_until
from headrace.cli.app import app
from headrace.errors import OptionError, SchemaError
from headrace.observe.checkpoint import PARKED
from headrace.pipeline import Pipeline, load_pipeline
from headrace.testing.faults import InjectedFault, arming
from headrace.testing.waiting import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = ["t01", "t02", "t03", "t04", "t05", "t06", "t12"]
TROUBLED = ["t02", "t03", "t04", "t05", "t06"]
TWICE = ["t01", "t02", "t04", "t06"]
SECOND = {
    "progress_table": "_copies",
    "routes": [{"tables": "re:dbo[.]t0[1246]", "to": "dbo.{table}_copy"}],
    "unrouted_tables": "leave_out",
}


class Shop:
    """The tables of a database in another one, some of them a second time under other names."""

    def __init__(self, spark: SparkSession, folder: Path, source: Any, target: Running) -> None:
        self.spark, self.folder, self.source, self.target = spark, folder, source, target
        for table in TABLES:
            source.create(table, "id int not null primary key, n int, v varchar(20)", [(1, 1, "a"), (2, 2, "b")])

    def pipeline(self, **settings: str) -> Pipeline:
        sink = {"type": "jdbc", "url": self.target.url, "user": "cdc", "password": "cdc", "table_name": "{table}"}
        made = {
            "source": {"type": "sqlserver", **self.source.options},
            "sinks": [sink, {**sink, **SECOND}],
            "pipeline": {"name": "shop", "checkpoint": "state", **settings},
        }
        self.file.write_text(json.dumps(made))
        return load_pipeline(self.file)

    @property
    def file(self) -> Path:
        return self.folder / "pipeline.yaml"

    def run(self, **settings: str) -> None:
        pipeline = self.pipeline(**settings)
        with self.source.capturing():
            assert pipeline.start(self.spark, once=True).wait(PATIENCE)

    def change(self, number: int) -> None:
        """Insert, change and delete a row of each table."""
        for table in TABLES:
            self.source.insert(table, number + 2, number, "c")
            self.source.update(table, f"v = 'd{number}'", f"id = {number + 1}")
            self.source.delete(table, f"id = {number}")
        self.source.capture()

    def parked(self) -> list[str]:
        file = self.folder / "state" / PARKED
        return [one["name"] for one in json.loads(file.read_text())["parked"]] if file.exists() else []

    def at_source(self, table: str) -> list[tuple[Any, ...]]:
        return sorted(map(tuple, self.source.emulated.execute(f"SELECT id, n, v FROM dbo.{table}").fetchall()))

    def rows(self, target: str) -> list[tuple[Any, ...]]:
        return sorted(self.target.ask(f"SELECT id, n, v FROM {target}"), key=repr)

    def different(self) -> set[str]:
        """The targets that differ from their source."""
        every = [(table, table) for table in TABLES] + [(table, f"{table}_copy") for table in TWICE]
        return {target for table, target in every if self.rows(target) != self.at_source(table)}


def named(caplog: pytest.LogCaptureFixture) -> set[str]:
    """The tables of which the log says that they are parked."""
    return {line.split()[1] for line in caplog.messages if "is parked" in line}


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Iterator[Shop]:
    with serving("postgresql") as server, closing(SqlServerDatabase(tmp_path / "server")) as source:
        yield Shop(spark, tmp_path, source, fresh_database("postgresql", server))


@pytest.fixture
def arm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return arming(tmp_path, monkeypatch)


@pytest.mark.system
@pytest.mark.parametrize("kind", [KINDS[0]])
def test_several_troubles_stop_no_other_table(
    kind: str, shop: Shop, arm: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    shop.run()
    assert shop.different() == set()
    shop.target.run(
        # A value that has no place.
        "ALTER TABLE t02_copy ADD CONSTRAINT no_c CHECK (v <> 'c')",
        # A type that does not fit, and one whose ALTER is refused.
        "ALTER TABLE t03 ALTER v TYPE int USING id",
        "ALTER TABLE t04_copy ALTER n TYPE smallint",
        "CREATE VIEW small AS SELECT n FROM t04_copy",
        # A trigger that says no.
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$",
        "CREATE TRIGGER no BEFORE INSERT OR UPDATE ON t05 FOR EACH ROW EXECUTE FUNCTION no()",
        # A name that is taken.
        "DROP TABLE t06_copy",
        "CREATE VIEW t06_copy AS SELECT 1 AS id, 1 AS n, 'x'::text AS v",
    )
    shop.change(1)
    # It dies when the first table is parked and nothing else is written, and before the second sink has the rest.
    for point in ("pipeline.table.parked", "pipeline.sink.1.written"):
        arm(f"{point}=raise")
        with pytest.raises((InjectedFault, SchemaError)):
            shop.run()
        assert (shop.folder / "faults" / f"{point}.hit").exists()
    assert shop.parked()
    shop.run()
    assert sorted(shop.parked()) == TROUBLED
    # The one of which the driver died before it said so is said at the next start.
    assert named(caplog) >= {f"dbo.{table}" for table in TROUBLED}
    for table in set(TABLES) - set(TROUBLED):
        assert shop.rows(table) == shop.at_source(table)
    assert shop.rows("t01_copy") == shop.at_source("t01")

    caplog.clear()
    shop.change(2)
    before = [shop.rows(table) for table in TROUBLED]
    shop.run()
    assert len([line for line in caplog.messages if "is parked since batch" in line]) == len(TROUBLED)
    assert not any("is parked:" in line for line in caplog.messages)
    assert [shop.rows(table) for table in TROUBLED] == before
    assert not {target[:3] for target in shop.different()} - set(TROUBLED)

    told = CliRunner().invoke(app, ["status", str(shop.file), "--no-source"])
    assert told.exit_code == 1
    assert f"Then read the table again: headrace repair reread {shop.file} dbo.t03" in told.output
    found = json.loads(CliRunner().invoke(app, ["status", str(shop.file), "--no-source", "--json"]).output)
    tables = found["databases"]["shop"]["tables"]
    assert [name for name, table in tables.items() if table["parked"]] == [f"dbo.{table}" for table in TROUBLED]
    assert complete_until(shop.folder / "state").of("dbo.t03") is None
    pipeline = shop.pipeline()
    with pytest.raises(OptionError, match=r"Table 'dbo\.t03' is parked .* Without --incremental"):
        pipeline.reread(["dbo.t03"], incremental=True)
    with pytest.raises(OptionError, match=r"Table 'dbo\.t03' is parked"):
        pipeline.skip(["dbo.t03"], "now")

    # One trouble is left as it is, so that table is parked again; the others come back.
    shop.target.run(
        "ALTER TABLE t02_copy DROP CONSTRAINT no_c",
        "ALTER TABLE t03 ALTER v TYPE text USING v",
        "DROP VIEW small",
        "DROP VIEW t06_copy",
    )
    repair = pipeline.reread([f"dbo.{table}" for table in TROUBLED])
    assert "Table dbo.t03 is parked. It goes on when the read begins" in " ".join(repair.notes)
    repair.do()
    arm("pipeline.table.before_return=raise")
    with pytest.raises(InjectedFault):
        shop.run()
    shop.run()
    assert shop.parked() == ["t05"]
    assert {target[:3] for target in shop.different()} == {"t05"}
    shop.target.run("DROP TRIGGER no ON t05")
    shop.pipeline().reread(["dbo.t05"]).do()
    shop.change(3)
    shop.run()
    assert shop.different() == set()
    assert not (shop.folder / "state" / PARKED).exists()
    assert shop.pipeline().status(ask_source=False).is_fine

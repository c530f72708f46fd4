"""Rule: rows of a first snapshot make the same table whether workers write them into its files or Spark does, and any
doubt about the target lets Spark do it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest

from headrace import faultpoints
from headrace.errors import HeadraceError
from headrace.pipeline import first_loads, load_pipeline
from headrace.pipeline.first_loads import no_first_loads
from headrace.sinks.lake.delta.table import DeltaTable
from headrace.sinks.lake.iceberg.table import IcebergTable
from headrace.testing.faults import arming
from headrace.testing.waiting import PATIENCE
from headrace_emulators.mysql.server import MySqlDatabase
from headrace_emulators.postgresql.server import PostgresDatabase

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OURS = ".zstd.parquet"

VALUES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("bool", ("true", "false")),
    ("int2", ("-32768", "32767")),
    ("int4", ("-2147483648", "2147483647")),
    ("int8", ("-9223372036854775808", "9223372036854775807")),
    ("oid", ("0", "4294967295")),
    ("xid8", ("'18446744073709551615'", "'0'")),
    ("numeric(12,2)", ("12.5", "-9999999999.99", "0.00")),
    ("numeric(38,0)", ("99999999999999999999999999999999999999", "-1")),
    ("numeric(38,38)", ("0.00000000000000000000000000000000000001",)),
    ("numeric(5,-2)", ("12345", "-99")),
    ("numeric(45,3)", ("123456789012345678901234567890123456789012.345", "'NaN'")),
    ("numeric", ("123456789012345678901234567890.123456789", "1e-20", "'NaN'")),
    ("float4", ("1.1", "-0.0", "'NaN'", "'Infinity'", "'-Infinity'", "3.4028235e38", "1e-45", "16777217")),
    (
        "float8",
        ("0.1", "-0.0", "'NaN'", "'Infinity'", "1.7976931348623157e308", "5e-324", "1e22", "123456789012345680"),
    ),
    (
        "text",
        ("''", "E'two\\nlines\\r\\n'", "'\"quoted\", and ''so'''", "E'\\\\N'", "'\\N'", "'NULL'", "U&'\\FEFFmark'"),
    ),
    ("text", ("' blanks '", "E'\\t'", "'Gräz \U0001f600'", "E'\\x01'", "repeat('long', 50000)")),
    ("char(5)", ("'a'", "''")),
    ("bytea", ("''", "'\\x00ff10'", "decode(repeat('ab', 5000), 'hex')")),
    ("date", ("'0001-01-01'", "'9999-12-31'", "'1582-10-10'", "'4713-01-01 BC'", "'12345-01-02'", "'2024-02-29'")),
    ("time(3)", ("'23:59:59.999'", "'24:00'")),
    ("timestamp", ("'0001-01-01'", "'9999-12-31 23:59:59.999999'", "'0044-03-15 12:00 BC'", "'10000-01-01'")),
    ("timestamp(0)", ("'1969-12-31 23:59:59'", "'2024-06-30 23:59:60'")),
    (
        "timestamptz",
        ("'2024-03-31 02:30+05:45'", "'0001-01-01 00:00+00'", "'1883-11-18 12:03:58-05'"),
    ),
    ("interval", ("'1 year 2 days 03:04:05.6'", "'-1 day'")),
    ("uuid", ("'00000000-0000-0000-0000-00000000000f'",)),
    ("json", ("'{\"a\": [1, 2.50]}'", "'null'")),
    ("jsonb", ("'{\"b\": 1e400}'",)),
    ("int4[]", ("'{1,NULL,3}'", "'{}'")),
    ("text[]", ("ARRAY['a,b', '', NULL, 'NULL', E'q\"\\n']",)),
    ("money", ("-12.34",)),
    ("inet", ("'::1'", "'10.0.0.0/8'")),
    ("bit(3)", ("B'101'",)),
    ("int4range", ("'[1,5)'", "'empty'")),
)
"""Types, and SQL for values of them; NULL comes with each."""
ODD = (
    ("date", "'infinity'"),
    ("timestamp", "'-infinity'"),
    ("timestamptz", "'infinity'"),
    ("numeric(9,2)", "'NaN'"),
    ("timestamptz", "'0044-01-01 BC'"),
)
"""Values that no file of ours takes: rows beside them go through Spark, which has a place for the last one only."""


@pytest.fixture
def arm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return arming(tmp_path, monkeypatch)


class Loads:
    """Runs of one database's pipelines into one kind of table, each with a folder."""

    def __init__(
        self, spark: SparkSession, folder: Path, database: PostgresDatabase | MySqlDatabase, kind: str = "delta"
    ) -> None:
        self.spark, self.folder, self.database, self.kind = spark, folder, database, kind

    def run(self, name: str, *, sink: dict[str, Any] | None = None, lake: str | None = None, **source: Any) -> None:
        """Run a pipeline up to the head; the same name goes on."""
        location = "path" if self.kind == "delta" else "warehouse"
        document = {
            "source": {
                **self.source(name),
                **source,
            },
            "sink": {"type": self.kind, location: f"./{lake or name}", **(sink or {})},
            "pipeline": {"name": name, "checkpoint": f"./checkpoint-{name}", "trigger": "50ms"},
        }
        file = self.folder / f"{name}.yaml"
        file.write_text(json.dumps(document))
        assert load_pipeline(file).start(self.spark, once=True).wait(PATIENCE)

    def source(self, name: str) -> dict[str, Any]:
        if isinstance(self.database, MySqlDatabase):
            return {"type": "mysql", **self.database.options, "tables": [f"{self.database.name}.*"]}
        slot = f"{name}_{self.database.name}"[:60]
        own = {"slot": slot, "publication_autocreate": "filtered", "tables": ["public.*"]}
        return {"type": "postgresql", **self.database.options, **own}

    def location(self, lake: str, table: str) -> str:
        schema = self.database.name if isinstance(self.database, MySqlDatabase) else "public"
        return str(self.folder / lake / schema / table)

    def read(self, lake: str, table: str, what: str = "") -> DataFrame:
        return self.spark.read.format(self.kind).load(self.location(lake, table) + what)

    def by_spark(self, lake: str, table: str) -> list[str]:
        """All rows as Spark reads them, as texts that tell any two values apart."""
        rows = self.read(lake, table)
        # Each run reads the tables at an LSN of its own.
        rows = rows.drop("_headrace_position")
        # Days and moments that Python has no place for are compared as numbers.
        numbers = {"date": "unix_date({})", "timestamp": "unix_micros({})", "binary": "hex({})"}
        numbers["timestamp_ntz"] = "unix_micros(cast({} as timestamp))"
        shown = [
            f"{numbers.get(field.dataType.simpleString(), '{}').format(f'`{field.name}`')} as `{field.name}`"
            for field in rows.schema
        ]
        return sorted(map(repr, rows.selectExpr(*shown).collect()))

    def by_arrow(self, lake: str, table: str) -> pa.Table:
        """The same, by another reader where there is one."""
        if self.kind == "delta":
            query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(self.location(lake, table)))
            rows = pa.table(query.execute("select * from t").read_all())
            plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
            rows = rows.cast(pa.schema([field.with_type(plain.get(field.type, field.type)) for field in rows.schema]))
        else:
            rows = self.read(lake, table).toArrow()
        return rows.select(sorted(rows.column_names)).sort_by("id")

    def names(self, lake: str, table: str) -> list[str]:
        if self.kind == "delta":
            return [Path(one).name for one in deltalake.DeltaTable(self.location(lake, table)).file_uris()]
        return [Path(row["file_path"]).name for row in self.read(lake, table, "#files").select("file_path").collect()]

    def version(self, lake: str, table: str) -> int:
        if self.kind == "delta":
            return int(deltalake.DeltaTable(self.location(lake, table)).version())
        return self.read(lake, table, "#snapshots").count()


@pytest.fixture(params=["delta", pytest.param("iceberg", marks=pytest.mark.system)])
def loads(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, postgres_database: PostgresDatabase
) -> Loads:
    return Loads(spark, tmp_path, postgres_database, request.param)


@pytest.fixture
def by_spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bool], None]]:
    """Switches to the way of all rows through Spark, and back."""
    own = first_loads.no_first_loads
    switched = [False]
    monkeypatch.setattr(
        first_loads, "no_first_loads", lambda *given: "the test says so" if switched[0] else own(*given)
    )
    yield lambda on: switched.__setitem__(0, on)


def fill(database: PostgresDatabase) -> None:
    def columns(types: Iterable[str]) -> str:
        return ", ".join(f"c{n} {kind}" for n, kind in enumerate(types))

    sql = f"create table ok (id int primary key, {columns(kind for kind, _ in VALUES)});"
    for n in range(max(len(values) for _, values in VALUES)):
        found = [values[n] if n < len(values) else "null" for _, values in VALUES]
        sql += f"insert into ok values ({n}, {', '.join(found)});"
    sql += "insert into ok (id) values (100);"
    sql += f"create table odd (id int primary key, {columns(kind for kind, _ in ODD)});"
    sql += "insert into odd select n, '2024-01-01', '2024-01-01', '2024-01-01', n, now() from generate_series(1, 20) n;"
    sql += "".join(f"insert into odd (id, c{n}) values ({100 + n}, {value});" for n, (_, value) in enumerate(ODD))
    sql += "create table empty (id int primary key); create table heap (id int); insert into heap values (1), (1);"
    sql += "alter table heap replica identity full;"
    database.execute(sql)


@pytest.mark.jvm
def test_every_value_is_the_same_by_both_ways(loads: Loads, by_spark: Callable[[bool], None]) -> None:
    fill(loads.database)
    nulls = {"unrepresentable": "null"}
    loads.run("files", sink=nulls, snapshot_chunk_rows=6)
    by_spark(True)
    loads.run("spark", sink=nulls, snapshot_chunk_rows=6)
    assert all(name.endswith(OURS) for name in loads.names("files", "ok"))
    assert not any(name.endswith(OURS) for name in loads.names("spark", "ok"))
    # Of a table with values that no column has a place for, only the rows beside them go another way.
    assert {name.endswith(OURS) for name in loads.names("files", "odd")} == {True, False}
    assert not any(name.endswith(OURS) for name in loads.names("files", "heap"))
    for table in ("ok", "odd", "heap", "empty"):
        assert loads.by_spark("files", table) == loads.by_spark("spark", table), table
    for table in ("odd",):
        one, other = (loads.by_arrow(lake, table).drop_columns("_headrace_position") for lake in ("files", "spark"))
        assert one.equals(other), table


OF_MARIADB: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("tinyint", ("-128", "127")),
    ("tinyint unsigned", ("0", "255")),
    ("tinyint(1)", ("0", "1", "7")),
    ("smallint unsigned", ("65535",)),
    ("mediumint", ("-8388608", "8388607")),
    ("int unsigned", ("4294967295",)),
    ("bigint", ("-9223372036854775808", "9223372036854775807")),
    ("bigint unsigned", ("18446744073709551615", "0")),
    ("decimal(12,2)", ("-9999999999.99", "0.10")),
    ("decimal(65,30)", ("12345678901234567890123456789012345.123456789012345678901234567890",)),
    ("float", ("1.1", "-3.4e38", "16777216")),
    ("double", ("0.1", "1.7976931348623157e308", "5e-324", "-0.0")),
    ("varchar(50)", ("''", "'two\\nlines\\r\\n'", "'\"quoted\", and so'", "'\\\\N'", "'NULL'", "' a\\0b '")),
    ("longtext", ("repeat('long', 50000)", "'Gräz'")),
    ("binary(3)", ("'a'", "x'00ff10'")),
    ("longblob", ("''", "x'00ff10'", "repeat('ab', 5000)")),
    ("bit(9)", ("b'100000001'",)),
    ("date", ("'1000-01-01'", "'9999-12-31'", "'2024-02-29'")),
    ("time(3)", ("'-838:59:58.5'", "'23:59:59.999'")),
    ("datetime(6)", ("'1000-01-01'", "'9999-12-31 23:59:59.999999'")),
    ("datetime", ("'2024-02-29 12:00:00'",)),
    ("timestamp(6) null", ("'1970-01-02 00:00:01'", "'2037-12-31 23:59:59.999999'")),
    ("year", ("1901", "2155")),
    ("json", ("'{\"a\": [1, 2.50]}'",)),
    ("enum('a','b')", ("'b'",)),
    ("set('a','b')", ("'a,b'", "''")),
    ("point", ("point(1, 2)",)),
)


@pytest.mark.system
@pytest.mark.jvm
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_every_value_of_mariadb_is_the_same_by_both_ways(
    spark: SparkSession, tmp_path: Path, mariadb_database: MySqlDatabase, by_spark: Callable[[bool], None], kind: str
) -> None:
    loads = Loads(spark, tmp_path, mariadb_database, kind)
    columns = ", ".join(f"c{n} {kind}" for n, (kind, _) in enumerate(OF_MARIADB))
    mariadb_database.execute(f"create table ok (id int primary key, {columns}) charset utf8mb4")
    for n in range(max(len(values) for _, values in OF_MARIADB)):
        found = [values[n] if n < len(values) else "null" for _, values in OF_MARIADB]
        mariadb_database.execute(f"insert into ok values ({n}, {', '.join(found)})")
    mariadb_database.execute("create table odd (id int primary key, c date)")
    mariadb_database.execute(
        "set statement sql_mode = '' for insert into odd values (1, '2024-01-01'), (2, '0000-00-00')"
    )
    for on, name in ((False, "files"), (True, "spark")):
        by_spark(on)
        loads.run(name, sink={"unrepresentable": "null"}, snapshot_chunk_rows=1)
    assert all(name.endswith(OURS) for name in loads.names("files", "ok"))
    assert {name.endswith(OURS) for name in loads.names("files", "odd")} == {True, False}
    for table in ("ok", "odd"):
        assert loads.by_spark("files", table) == loads.by_spark("spark", table), table


@pytest.mark.jvm
@pytest.mark.parametrize("kind, value", ODD[:1])
def test_a_value_that_stops_a_run_stops_it_with_the_same_sentence(
    loads: Loads, by_spark: Callable[[bool], None], kind: str, value: str
) -> None:
    loads.database.execute(f"create table odd (id int primary key, c {kind}); insert into odd values (1, {value})")
    said = []
    for on in (False, True):
        by_spark(on)
        with pytest.raises(HeadraceError) as failure:
            loads.run(f"way_{int(on)}")
        said.append(str(failure.value).replace(f"way_{int(on)}", ""))
    assert said[0] == said[1]
    assert "infinity" in said[0]


@pytest.mark.jvm
@pytest.mark.smoke("delta-before the commit")
@pytest.mark.parametrize(
    "points",
    [("before_commit@2",), ("", "before_commit@2", "before_publish@1", "after_commit@2")],
    ids=["before the commit", "all"],
)
def test_a_batch_that_stops_or_comes_again_has_its_rows_once(
    loads: Loads, arm: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, points: tuple[str, ...]
) -> None:
    loads.database.execute("""
        create table a (id int primary key, t text); insert into a select n, 'a' from generate_series(1, 50) n;
        create table b (id int primary key, t text); insert into b select n, 'b' from generate_series(1, 50) n;
    """)
    given = {"snapshot_chunk_rows": 10, "snapshot_chunks_per_batch": 7, "sink": {"max_parallel_tables": 1}}
    for point in points:
        name, _, time = point.partition("@")
        if name == "before_publish" and loads.kind == "delta":
            continue
        arm(f"sink.{loads.kind}.{name}=raise@{time}" if name else "pipeline.batch.shaped=raise@1")
        with pytest.raises(RuntimeError, match="fault injected"):
            loads.run("again", **given)
    monkeypatch.delenv("HEADRACE_FAULTPOINTS")
    loads.run("again", **given)
    versions = {table: loads.version("again", table) for table in "ab"}
    checkpoint = loads.folder / "checkpoint-again" / "commits"
    last = max(checkpoint.glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
    loads.run("again", **given)
    for table in "ab":
        assert sorted(loads.by_arrow("again", table)["id"].to_pylist()) == list(range(1, 51))
        assert loads.version("again", table) == versions[table]
        assert any(name.endswith(OURS) for name in loads.names("again", table))
    # Changes that follow find each row once.
    loads.database.execute("update a set t = 'new'; delete from b where id > 10")
    loads.run("again", **given)
    assert loads.by_arrow("again", "a")["t"].unique().to_pylist() == ["new"]
    assert loads.by_arrow("again", "b").num_rows == 10


@pytest.mark.jvm
def test_a_target_with_rows_is_left_to_spark(loads: Loads, caplog: pytest.LogCaptureFixture) -> None:
    loads.database.execute("create table t (id int primary key, t text); insert into t values (1, 'one'), (2, 'two')")
    loads.run("first", lake="lake")
    assert all(name.endswith(OURS) for name in loads.names("lake", "t"))
    loads.database.execute("update t set t = 'other' where id = 2")
    with caplog.at_level(logging.INFO):
        loads.run("second", lake="lake", sink={"takeover": True})
    assert "Rows of table 'public.t' are written by Spark: its target has other rows already" in caplog.text
    assert loads.by_arrow("lake", "t")["t"].to_pylist() == ["one", "other"]


@pytest.mark.jvm
def test_a_target_that_gets_other_rows_meanwhile_is_read_again_for(
    loads: Loads, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loads.database.execute("create table t (id int primary key, t text); insert into t values (1, 'one'), (2, 'two')")
    table = DeltaTable if loads.kind == "delta" else IcebergTable
    monkeypatch.setattr(table, "add_files", lambda *given: "somebody else came first")
    loads.run("moved")
    assert "somebody else came first. They are read once more." in caplog.text
    assert loads.by_arrow("moved", "t")["t"].to_pylist() == ["one", "two"]
    assert not any(name.endswith(OURS) for name in loads.names("moved", "t"))


@pytest.mark.jvm
@pytest.mark.parametrize("before", [pytest.param(1, marks=pytest.mark.system), 2])
def test_rows_of_others_that_come_while_a_table_is_loaded_are_no_second_ones(
    loads: Loads, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, before: int
) -> None:
    loads.database.execute(
        "create table t (id int primary key, t text); insert into t select n, 'ours' from generate_series(1, 60) n"
    )
    commits = []

    def meanwhile(point: str) -> None:
        if point == f"sink.{loads.kind}.before_commit":
            commits.append(point)
            if len(commits) == before:
                ids = loads.spark.range(1, 61, 7).selectExpr("cast(id as int) as id", "'foreign' as t")
                rows = ids.selectExpr("*", "cast(null as string) as _headrace_position")
                rows.write.format(loads.kind).mode("append").save(loads.location("moved", "t"))

    monkeypatch.setattr(faultpoints, "reach", meanwhile)
    with caplog.at_level(logging.INFO):
        loads.run("moved", snapshot_chunk_rows=10, snapshot_chunks_per_batch=2)
    found = loads.by_arrow("moved", "t")
    assert (found["id"].to_pylist(), {*found["t"].to_pylist()}) == ([*range(1, 61)], {"ours"})
    assert "the rest of its first snapshot goes by MERGE" in caplog.text


ODD_TEXTS = ("EU", "a/b=c%20d", "null", "é 😀", "~7e", " a ", "x:y?#[]{}^")


@pytest.mark.jvm
@pytest.mark.system
def test_tables_with_partitions_are_the_same_by_both_ways(loads: Loads, by_spark: Callable[[bool], None]) -> None:
    loads.database.execute("create table t (id int primary key, region text, day date, n int)")
    for number, text in enumerate((*ODD_TEXTS, None)):
        region = "null" if text is None else f"'{text}'"
        loads.database.execute(
            f"insert into t select {number} * 10 + k, {region}, date '1969-12-30' + k, k from generate_series(0, 4) k"
        )
    given = {"partition_by": ["region", "day"] if loads.kind == "delta" else ["region", "month(day)", "bucket(4, id)"]}
    for on, name in ((False, "files"), (True, "spark")):
        by_spark(on)
        loads.run(name, sink=given, snapshot_chunk_rows=9)
    assert all(name.endswith(OURS) for name in loads.names("files", "t"))
    # Rows move from partition to partition, and go.
    loads.database.execute(
        "update t set region = 'a/b=c%20d', day = day + 40 where n = 1; update t set region = null where n = 2; "
        "delete from t where n = 3"
    )
    for name in ("files", "spark"):
        loads.run(name, sink=given)
    assert loads.by_spark("files", "t") == loads.by_spark("spark", "t")
    one, other = (loads.by_arrow(lake, "t").drop_columns("_headrace_position") for lake in ("files", "spark"))
    assert one.equals(other)
    assert one.num_rows == 32


REASONS = (
    ({}, {}, ""),
    ({"on_table_error": "stop"}, {}, ""),
    ({}, {"stored_as_scd_type": "2"}, "stored_as_scd_type is not 1"),
    ({}, {"json_columns": "variant"}, "JSON columns are variants"),
    ({}, {"routes": [{"tables": "public.t", "to": "public.u"}]}, "has routes or transforms"),
)


@pytest.mark.parametrize("pipeline, sink, reason", REASONS)
def test_a_plan_says_why_spark_writes(
    tmp_path: Path, pipeline: dict[str, Any], sink: dict[str, Any], reason: str
) -> None:
    document = {
        "source": {"type": "postgresql", "hostname": "h", "database": "d", "user": "u", "tables": ["public.t"]},
        "sink": {"type": "delta", "path": "./lake", **sink},
        "pipeline": {"name": "p", "checkpoint": "./checkpoint", **pipeline},
    }
    file = tmp_path / "pipeline.yaml"
    file.write_text(json.dumps(document))
    assert reason in no_first_loads(load_pipeline(file)._model)
    assert bool(reason) == bool(no_first_loads(load_pipeline(file)._model))

"""Rule: the source is a plain streaming DataFrame: bounded batches, one table's typed columns, any of Spark's sinks."""

from __future__ import annotations

import datetime as dt
import decimal
import re
from pathlib import Path

import pytest

import headrace
from headrace.changes import TableSchema
from headrace_emulators.sqlserver import EmulatedServer

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorials" / "read_stream.md"


@pytest.fixture
def database(tmp_path):
    server = EmulatedServer(tmp_path / "server")
    with server.create_database("shop") as made:
        made.execute(
            "CREATE TABLE dbo.customers (id int NOT NULL PRIMARY KEY, name nvarchar(40), credit decimal(9,2), "
            "since date, photo varbinary(max))"
        )
        made.execute("CREATE TABLE dbo.orders (id int NOT NULL PRIMARY KEY, customer int NOT NULL)")
        for table in ("customers", "orders"):
            made.execute(
                f"EXEC sys.sp_cdc_enable_table @source_schema = 'dbo', @source_name = '{table}', @role_name = NULL"
            )
        made.execute(
            "INSERT INTO dbo.customers VALUES (1, N'Ada', 12.50, '1815-12-10', 0x0102), (2, N'Grace', NULL, NULL, NULL)"
        )
        made.execute("INSERT INTO dbo.orders VALUES (10, 1), (11, 1), (12, 2), (13, 2), (14, 2)")
        made.capture()
        server.add_login("cdc", "secret-of-cdc")
        yield made


@pytest.fixture
def options(database):
    folder = str(database.path.parent)
    return {"driver": "emulator", "hostname": folder, "database": "shop", "user": "cdc", "password": "secret-of-cdc"}


def finish(query):
    """Everything that the source has by now rests in the sink."""
    try:
        query.processAllAvailable()
    finally:
        query.stop()


def test_a_tables_typed_changes_reach_memory_tables_and_functions(spark, database, options, tmp_path):
    headrace.register(spark)
    [customers] = headrace.tables("sqlserver", table="dbo.customers", **options)
    changes = spark.readStream.format("sqlserver_cdc").options(**options).load()
    typed = headrace.typed(changes, customers)
    assert typed.schema["after"].dataType.simpleString() == (
        "struct<id:int,name:string,credit:decimal(9,2),since:date,photo:binary>"
    )
    seen = []

    def take(batch, number):
        batch.persist()
        seen.extend((row.op, row.after and row.after.name) for row in batch.orderBy("position").collect())
        batch.select("op", "position", "after.*").write.format("delta").mode("append").save(str(tmp_path / "customers"))
        batch.unpersist()

    functions = typed.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "one")).start()
    memory = typed.select("op", "position", "before", "after").writeStream.format("memory").queryName("seen").start()
    for query in (functions, memory):
        query.processAllAvailable()
    database.execute("UPDATE dbo.customers SET credit = 99.99, photo = NULL WHERE id = 2")
    database.execute("DELETE FROM dbo.orders WHERE id = 10")
    database.execute("DELETE FROM dbo.customers WHERE id = 1")
    database.capture()
    for query in (functions, memory):
        finish(query)

    assert seen == [("r", "Ada"), ("r", "Grace"), ("u", "Grace"), ("d", None)]
    rows = spark.table("seen").orderBy("position").collect()
    assert tuple(rows[0].after) == (1, "Ada", decimal.Decimal("12.50"), dt.date(1815, 12, 10), bytearray(b"\1\2"))
    assert rows[2].before.credit is None
    assert rows[2].after.credit == decimal.Decimal("99.99")
    assert rows[3].before.name == "Ada"
    assert [row.op for row in rows] == ["r", "r", "u", "d"]
    stored = spark.read.format("delta").load(str(tmp_path / "customers"))
    assert sorted((row.op, row.id) for row in stored.collect()) == [("d", None), ("r", 1), ("r", 2), ("u", 2)]
    assert stored.schema["credit"].dataType.simpleString() == "decimal(9,2)"


def test_the_schema_of_a_table_comes_from_the_server_or_from_the_streams_own_rows(spark, options, tmp_path):
    headrace.register(spark)
    schemas = headrace.tables("sqlserver", **options)
    assert [schema.id.name for schema in schemas] == ["customers", "orders"]
    rows = []
    stream = spark.readStream.format("sqlserver_cdc").options(**options).option("tables", "dbo.orders").load()
    query = stream.where("op = 'schema'").writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
    finish(query.option("checkpointLocation", str(tmp_path / "checkpoint")).start())
    assert {TableSchema.from_text(row.table_schema).fingerprint for row in rows} == {schemas[1].fingerprint}


def test_an_unknown_table_or_option_is_said_before_a_stream_starts(options):
    with pytest.raises(headrace.HeadraceError, match="dbo\\.custmers"):
        headrace.tables("sqlserver", table="dbo.custmers", **options)
    with pytest.raises(headrace.HeadraceError, match="Did you mean 'tables'"):
        headrace.tables("sqlserver", tabels="dbo.customers", **options)
    with pytest.raises(headrace.HeadraceError, match="sqlserver"):
        headrace.tables("sqlserver_cdc", **options)


def test_the_tutorials_code_runs_as_it_stands(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", TUTORIAL.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 5
    names = {}
    for block in blocks:
        exec(compile(block, str(TUTORIAL), "exec"), names)

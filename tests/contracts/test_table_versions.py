"""Rule: `tableVersion` of Qlik's metadata messages grows by one with each schema that a table gets, over restarts; a
batch that is read again says the same. The same for every source, without Spark."""

from __future__ import annotations

import json

import pytest
from tests.support.captured_shop import Db2Database, OracleDatabase, SqlServerDatabase, closing
from tests.support.streams import Stream


@pytest.fixture(params=[SqlServerDatabase, Db2Database, OracleDatabase], ids=lambda kind: kind.source)
def database(request, tmp_path):
    with closing(request.param(tmp_path / "server")) as made:
        yield made


def add_column(database, name):
    """Another schema, which is captured from the next change on."""
    column = {"sqlserver": "{} int", "db2": "COLUMN {} int", "oracle": "{} NUMBER(9)"}[database.source].format(name)
    if database.source == "db2":
        database.disable("a")
    database.execute(f"ALTER TABLE {database.schema}.a ADD {column}")
    if database.source == "db2":
        database.enable("a")
    if database.source == "sqlserver":
        # There are two at the most.
        if old := {"y": "dbo_a", "z": "a_x", "w": "a_y"}.get(name):
            database.execute(f"EXEC sys.sp_cdc_disable_table 'dbo', 'a', @capture_instance = '{old}'")
        database.execute(f"EXEC sys.sp_cdc_enable_table 'dbo', 'a', 'a_{name}', @role_name = NULL")


def test_the_version_grows_with_each_schema_over_restarts(database):
    database.create("a", "id int not null primary key, v varchar(20)", [(1, "old")])
    database.create("b", "id int not null primary key, v varchar(20)", [(1, "old")])
    options = {"log_mining_strategy": "redo_log_catalog"} if database.source == "oracle" else {}
    stream = Stream(database, **options)
    stream.go_on()
    for turn, columns in enumerate((["x"], ["y", "z"], ["w"])):
        for column in columns:
            add_column(database, column)
            for table in ("a", "b"):
                database.execute(f"INSERT INTO {database.schema}.{table} (id, v) VALUES ({ord(column)}, 'new')")
            database.capture()
            if column != "y":
                stream.go_on()
        database.execute(f"INSERT INTO {database.schema}.a (id, v) VALUES ({1000 + turn}, 'new')")
        database.capture()
        stream.go_on()
    told: dict[str, list[tuple[int, int]]] = {}
    for row in sorted(stream.messages("qlik_json"), key=lambda row: row["position"]):
        message = json.loads(row["value"])
        if message["type"] == "MD":
            lineage = message["message"]["lineage"]
            columns = message["message"]["tableStructure"]["tableColumns"]
            told.setdefault(lineage["table"].lower(), []).append((lineage["tableVersion"], len(columns)))
    # Nobody saw the schema between the two that came at once.
    assert list(dict.fromkeys(told["a"])) == [(1, 2), (2, 3), (3, 5), (4, 6)]
    assert set(told["b"]) == {(1, 2)}

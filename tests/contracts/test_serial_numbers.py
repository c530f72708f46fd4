"""Rule: sorting the messages of a table by the number they carry gives the order of the source, over restarts; a batch
that is read again has the same numbers. The same for every source and for Canal, DTS and Qlik, without Spark."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from tests.support.captured_shop import Db2Database, OracleDatabase, SqlServerDatabase, closing
from tests.support.streams import Stream

from headrace.formats.convert import format_named

KINDS = [SqlServerDatabase, Db2Database, OracleDatabase]
KEYED = "id int not null primary key, v varchar(20)"


@pytest.fixture(params=KINDS, ids=lambda kind: kind.source)
def database(request, tmp_path):
    with closing(request.param(tmp_path / "server")) as made:
        yield made


def canal(row):
    message = json.loads(row["value"])
    return None if message["isDdl"] else message["id"]


def dts(row):
    batch = pa.RecordBatch.from_pylist([{"value": row["value"]}], pa.schema([("value", pa.binary())]))
    *_, found = pa.Table.from_batches(format_named("dts_avro", {}).decoded([batch])).to_pylist()
    return int(dict(found["source"])["id"]) if found["op"] in "rcud" else None


def qlik(row):
    message = json.loads(row["value"])
    headers = message["message"].get("headers") or {}
    return headers.get("changeSequence") or None


def test_sorting_the_messages_of_a_table_by_their_numbers_gives_the_order_of_the_source(database):
    database.create("a", KEYED, [(n, "old") for n in range(5)])
    database.create("b", KEYED, [(1, "old")])
    stream = Stream(database, snapshot_chunk_rows=2, snapshot_chunks_per_batch=2, max_commits_per_trigger=5)
    stream.go_on()
    for turn in range(2):
        for n in range(10, 17):
            with database.transaction() as cursor:
                for table in ("a", "b"):
                    cursor.execute(f"INSERT INTO {database.schema}.{table} VALUES ({100 * turn + n}, 'new')")
                cursor.execute(f"UPDATE {database.schema}.a SET v = 'later' WHERE id = {100 * turn + n}")
                cursor.execute(f"DELETE FROM {database.schema}.b WHERE id = {100 * turn + n}")
        database.capture()
        stream.go_on()
    read = {"a": 5, "b": 1}
    for name, number, snapshot in (("canal_json", canal, read), ("dts_avro", dts, read), ("qlik_json", qlik, {})):
        numbers = in_order(stream.messages(name), number)
        assert {table: len(own) for table, own in numbers.items()} == {t: 28 + snapshot.get(t, 0) for t in read}
        for own in numbers.values():
            assert own == sorted(set(own)), name
        if name != "qlik_json":
            every = [number for own in numbers.values() for number in own]
            assert len(every) == len(set(every))
            assert max(every) < 2**63


def in_order(messages, number):
    """The numbers of each table's changes, in the order of the source; a full load of Qlik has none."""
    found = {}
    for row in sorted(messages, key=lambda row: row["position"]):
        if (own := number(row)) is not None:
            found.setdefault(row["topic"].lower(), []).append(own)
    return found


@pytest.mark.parametrize("transactions", ["false", "true"])
def test_a_schema_has_its_number_between_the_changes_before_and_after_it(tmp_path, transactions):
    with closing(SqlServerDatabase(tmp_path / "server")) as database:
        database.create("a", KEYED, [(1, "old")])
        database.create("b", KEYED)
        stream = Stream(database, provide_transaction_metadata=transactions, on_rewrite="warn")
        stream.go_on()
        database.insert("a", 2, "before")
        database.insert("b", 2, "before")
        database.execute("ALTER TABLE dbo.a ADD x int")
        database.execute("EXEC sys.sp_cdc_enable_table 'dbo', 'a', 'a_x', @role_name = NULL")
        database.insert("a", 3, "after", 1)
        database.insert("b", 3, "after")
        database.capture()
        stream.go_on()
    rows = [row for task in stream.tasks for batch in task for row in batch.to_pylist()]
    told = [row for row in rows if row["table"] and (row["op"] in "rcud" or dict(row["source"]).get("change"))]
    for table, ops in (("a", ["schema", "r", "c", "schema", "c"]), ("b", ["schema", "c", "c"])):
        own = sorted((row for row in told if row["table"]["name"] == table), key=lambda row: row["position"])
        numbers = [int(dict(row["source"])["id"]) for row in own]
        assert numbers == sorted(set(numbers))
        assert [row["op"] for row in own] == ops

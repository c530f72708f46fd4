"""Rule: sorting the messages of a table by the number they carry gives the order of the source, over restarts; a batch
that is read again has the same numbers. The same for every source and for Canal, DTS and Qlik, without Spark."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from captured_shop import Db2Database, OracleDatabase, SqlServerDatabase, closing

from headrace.changes import TableSchema, arrow_schema
from headrace.formats.convert import format_named
from headrace.sources.messages import Messages
from headrace.sources.reader import ChangeStreamReader

KINDS = [SqlServerDatabase, Db2Database, OracleDatabase]
KEYED = "id int not null primary key, v varchar(20)"


@pytest.fixture(params=KINDS, ids=lambda kind: kind.source)
def database(request, tmp_path):
    with closing(request.param(tmp_path / "server")) as made:
        yield made


class Stream:
    """The batches of a reader as Spark asks for them; each is read twice, by other tasks."""

    def __init__(self, database, **options):
        self._name = database.source
        self._options = {**database.options, **database.small_slices, "serialNumbers": "true", **options}
        self._end = self._reader(1).initialOffset()
        self.tasks = []

    def _reader(self, parallelism):
        options = {**self._options, "parallelism": parallelism}
        return ChangeStreamReader(self._name, {name: str(value) for name, value in options.items()})

    def go_on(self):
        """Take what is new, in one batch after the other, in a process of its own."""
        reader = self._reader(1)
        reader.partitions(self._end, self._end)
        while (end := json.loads(json.dumps(reader.latestOffset()))) != self._end:
            first = self._read(reader, end)
            again = self._read(self._reader(4), end)
            assert whole(first) == whole(again)
            self.tasks += first
            self._end = end

    def _read(self, reader, end):
        found = [list(reader.read(partition)) for partition in reader.partitions(self._end, end)]
        return [task for task in found if task]

    def messages(self, name):
        """What an encoder makes of all that was read."""
        told = {
            row["schema_id"]: TableSchema.from_text(row["table_schema"])
            for task in self.tasks
            for batch in task
            for row in batch.to_pylist()
            if row["table_schema"]
        }
        messages = Messages(format_named(name, {"topic": "${table}"}))
        return [
            row for task in self.tasks for batch in messages.of(task, [*told.values()]) for row in batch.to_pylist()
        ]


def whole(tasks):
    return pa.Table.from_batches([batch for task in tasks for batch in task], arrow_schema())


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

"""The differential suite: the change-table rows that Debezium's own connector read, read by Headrace, give its events.

Key, value, schema, headers and order on every topic, for data, schema changes and transactions, but for clocks and run
ids. Where we differ by design there is an option for the recorded way, by which the suite asks for equality; what is
left stands in `STAND_IN` and `DEFECTS`: these differences, and no others, have to be there.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import recorded
from tests.support.recorded_events import NOW, as_it_was, comparable, differences, encoded, expected

from headrace.sources.base import Limit
from headrace.sources.offset import Offset
from headrace.sources.reader import source_named
from headrace_emulators.sqlserver import EmulatedServer


@dataclass(frozen=True)
class Recording:
    """One recorded run.

    Args:
        name: its file.
        encode: options of the format that give its events.
        source: options of the source that do.
        prefix: what its data topics begin with.
    """

    name: str
    prefix: str
    encode: dict[str, Any] = field(default_factory=dict)
    source: dict[str, str] = field(default_factory=dict)


RECORDINGS = (
    Recording(
        "1.7.2_initial",
        "server1.dbo.",
        {"shape": "1.7", "null_as_default": True},
        # 1.7.2 orders the rows of one change by operation.
        {"order_in_commit": "sequence"},
    ),
    Recording(
        "3.6.1_initial",
        "server1.testDB.dbo.",
        # 3.6.1 knows the unchanged values of text, ntext, image and xml, not those of MAX columns.
        {"shape": "3", "null_as_default": True, "unavailable_max_as_null": True},
        # 3.6.1 takes the begin of a transaction for its time.
        {"commit_time": "begin"},
    ),
)


_VALUE, _DEFAULT = ".value.payload.{}.{}", ".value.schema.fields[{}].fields[{}].default"


def in_images(*columns: str) -> frozenset[str]:
    """The places of columns in the images of an event."""
    return frozenset(_VALUE.format(image, column) for image in ("before", "after") for column in columns)


def in_defaults(*columns: str) -> frozenset[str]:
    """The places of columns' defaults in the schema, and of the values that they give to rows."""
    images = ("before", "after")
    return frozenset(_DEFAULT.format(image, column) for image in images for column in columns) | in_images(*columns)


# The database behind the recordings kept six fraction digits, and filled getdate() with its own clock.
STAND_IN = in_defaults("c_time7", "c_dt2_7", "c_dto7") | in_images("c_deffn")
# A quote in a default stays doubled, in 1.7.2 the quote of a national string too, and its times lose what is below
# milliseconds.
DEFECTS = {
    "1.7.2_initial": in_defaults("c_varchar", "c_nvarchar", "c_time6"),
    "3.6.1_initial": in_defaults("c_varchar"),
}


def renamed_and_shifted(text: str) -> str:
    """The same rows in a table of another name, with a column before the others that is not captured."""
    text = text.replace("create table dbo.customers([id]", "create table dbo.customers([padding] int null, [id]")
    shifted = re.compile(r"(object_id\('cdc\.dbo_customers_CT'\),'\w+',)(\d+),")
    text = shifted.sub(lambda m: f"{m[1]}{int(m[2]) + (0 if 'index_columns' in text else 1)},", text)
    if "index_columns" in text:
        text = re.sub(r"(object_id\('cdc\.dbo_customers_CT'\),'id',1,)1", r"\g<1>2", text)
    return text.replace("customers", "clients")


def captured(folder: Path, options: dict[str, str], change: Any = as_it_was) -> pa.Table:
    """The change rows of the recorded run."""
    server = EmulatedServer(folder / "server")
    database = server.create_database("testDB", enable_cdc=False)
    source = source_named(
        "sqlserver",
        {
            "driver": "emulator",
            "hostname": str(server.directory),
            "database": "testDB",
            "tables": ",".join(change(f"dbo.{table}") for table in recorded.TABLES),
            "provide.transaction.metadata": "true",
            **options,
        },
    )
    batches: list[pa.RecordBatch] = []
    offset = Offset.nothing()
    for scripts in recorded.STEPS:
        for script in scripts:
            for statement in recorded.statements(script):
                database.execute(change(statement))
        while (end := source.advance(offset, Limit(), NOW)) != offset:
            for slice in source.plan(offset, end):
                batches += source.read(slice)
            offset = end
    return pa.Table.from_batches(batches)


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda r: r.name)
def test_every_topic_holds_the_recorded_events(recording, tmp_path, spark):
    got = encoded(spark, captured(tmp_path, recording.source), recording.encode)
    wanted = expected(recording.name)
    # 3.6.1 closed the last transaction no more, because none came after it.
    last = got["server1.transaction"].pop()
    assert last["value"]["payload"]["status"] == "END"
    assert sorted(got) == sorted(wanted)
    found: set[str] = set()
    for topic in wanted:
        assert len(got[topic]) == len(wanted[topic]), topic
        for mine, theirs in zip(got[topic], wanted[topic], strict=True):
            places = set(differences(comparable(mine), comparable(theirs)))
            allowed = STAND_IN | DEFECTS[recording.name] if topic.endswith("all_types") else frozenset[str]()
            assert places <= allowed, (topic, mine)
            found |= places
    # A difference that is no longer there is to be struck from the list.
    for place in (*in_defaults("c_varchar"), _VALUE.format("after", "c_deffn")):
        assert place in found or ".before." in place


PLACEHOLDERS = ("__debezium_unavailable_value", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==")


def as_of_3_0(message: dict[str, Any]) -> dict[str, Any]:
    """A message of 3.6.1 as 3.0.8 wrote it: what is known to differ between the two, and nothing else."""
    message = json.loads(json.dumps(message))
    message["headers"] = [h for h in message["headers"] if not h[0].startswith("__debezium.context.")]
    value = message["value"]
    if value is not None and "source" in value["payload"]:
        source = next(f for f in value["schema"]["fields"] if f["field"] == "source")
        del source["version"]
        value["payload"]["source"]["version"] = "3.0.8.Final"
        for image in ("before", "after"):
            columns = value["payload"].get(image) or {}
            columns |= {name: None for name, cell in columns.items() if cell in PLACEHOLDERS}
    return message


def test_the_first_releases_of_generation_3_have_their_own_shape(tmp_path, spark):
    got = encoded(spark, captured(tmp_path, {"commit_time": "begin"}), {"shape": "3.0", "null_as_default": True})
    got["server1.transaction"].pop()
    for topic, messages in expected("3.6.1_initial").items():
        for mine, theirs in zip(got[topic], messages, strict=True):
            places = set(differences(comparable(mine), comparable(as_of_3_0(theirs))))
            allowed = STAND_IN | DEFECTS["3.6.1_initial"] if topic.endswith("all_types") else frozenset[str]()
            assert places <= allowed, (topic, mine)


def test_a_table_of_another_name_and_shape_gives_the_same_events(tmp_path, spark):
    recording = RECORDINGS[0]
    got = encoded(spark, captured(tmp_path, recording.source, renamed_and_shifted), recording.encode)
    topic = "server1.dbo.clients"
    wanted = expected(recording.name, lambda text: text.replace("customers", "clients"))[topic]
    assert [comparable(m) for m in got[topic]] == [comparable(m) for m in wanted]

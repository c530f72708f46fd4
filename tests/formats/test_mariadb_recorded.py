"""Rows of the MySQL source become the messages that Debezium's MariaDB connector recorded of the same changes.

What differs stands in a table with its reason, and nothing else does.
"""

from __future__ import annotations

import base64
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import fastavro
import numpy as np
import pytest
from codec_rows import change_batch, sent
from confluent_kafka.schema_registry import SchemaRegistryClient
from debezium_recordings import differences, encoded, instant
from mariadb_recordings import Table, facts_of, schema_of
from postgresql_recordings import Recorded, recorded

from headrace.formats.registry.connect_avro import writer_schema
from headrace_emulators.schema_registry.server import SchemaRegistryServer

RELEASE: dict[str, Any] = {
    "shape": "3.0", "connector_version": "3.0.8.Final", "null_as_default": True, "skipped_operations": "none",
    "bigint_unsigned_handling_mode": "long", "enable_time_adjuster": True, "topic_prefix": "mdb_a",
    "schemas_enable": True,
}  # fmt: skip
"""What the recorded release does where Headrace does otherwise unless it is asked."""
TABLES = sorted(topic for topic in recorded("mariadb_a") if topic.startswith("mdb_a.gold."))


class Named(NamedTuple):
    """A difference that is meant.

    Args:
        reason: why Headrace does not do what was recorded.
        index: in a message, as a regular expression.
        read: whether only messages of the snapshot have it, or only others; null for all.
    """

    reason: str
    index: str
    read: bool | None = None


NAMED = [
    Named("the snapshot leaves zeros out that end a fraction", r"after\.c_(nn_)?timestamp\d?: .*", True),
    Named(
        "before 15 October 1582 the snapshot counts by the Julian calendar",
        r"after\.c_datetime: -12219688190000 != -12218824190000",
        True,
    ),
    Named("a comma in a label is escaped in the stream's values, too", r"after\.c_enum: 'x,y' != 'x\\\\,y'", False),
    Named(
        "a timestamp that is none is 1970 in the stream, and null in the snapshot",
        r"after\.(ts|c_timestamp6?): None != '1970-01-01T00:00:00(\.000000)?Z'",
        False,
    ),
    Named("the year 0000 became 1900", r"after\.(y|c_year): 0 != 1900", False),
    Named(
        "MariaDB's JSON is a longtext, but of a table that the stream creates the connector takes the statement's word",
        r"schema\.fields\[[01]\]\.fields\[1\]: keys .*",
        False,
    ),
    Named(
        "BOOLEAN is a tinyint(1), but of a table that the stream creates the connector takes the statement's word",
        r"schema\.fields\[[01]\]\.fields\[4\]\.(type|default): .*|(before|after)\.b: [01] != (True|False)",
        False,
    ),
]


@cache
def table_of(topic: str) -> tuple[Table, list[dict[str, Any]], list[Any]]:
    """A table of the recording, our rows of it, and their structures."""
    table = Table.of(topic)
    rows = list(table.rows())
    return table, [row for row, _ in rows], list({schema.fingerprint: schema for _, schema in rows}.values())


def event(key: Any, value: Any, headers: Any) -> list[Any]:
    """A message without the moments at which the connector looked at it."""
    key, value = (None if part is None else json.loads(part) for part in (key, value))
    for name in ("ts_ms", "ts_us", "ts_ns") if value is not None else ():
        value["payload"].pop(name)
    return [key, value, {name: json.loads(header) for name, header in headers}]


def unexplained(topic: str) -> Iterator[str | Named]:
    """The differences of a table's messages, each as what explains it where something does."""
    table, rows, structures = table_of(topic)
    messages = encoded(rows, structures, **RELEASE)
    assert {message.topic for message in messages} == {topic}
    for ours, theirs in zip(messages, table.events, strict=True):
        record = theirs.record
        got = event(ours.key, ours.value, [(h["key"], h["value"]) for h in ours.headers or ()])
        yield from explained(got, event(record["key"], record["value"], record["headers"]), theirs)


def explained(got: Any, want: Any, theirs: Recorded) -> Iterator[str | Named]:
    """The differences of a message."""
    read = theirs.value is not None and theirs.payload["op"] == "r"
    for line in differences(got, want):
        index = re.sub(r"^\[[12]\]\.(payload\.)?", "", line)
        found = [one for one in NAMED if re.fullmatch(one.index, index) and one.read in (None, read)]
        yield found[0] if found else f"{theirs.record['offset']}: {line}"


@pytest.mark.parametrize("topic", TABLES)
def test_each_row_gives_the_recorded_messages(topic: str) -> None:
    assert [one for one in unexplained(topic) if not isinstance(one, Named)] == []


def test_no_difference_is_listed_that_does_not_occur() -> None:
    used = Counter(one for topic in TABLES for one in unexplained(topic) if isinstance(one, Named))
    assert set(NAMED) - set(used) == set()


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer() as running:
        # The recorded tables change in ways that a registry would refuse.
        SchemaRegistryClient({"url": running.url}).set_compatibility(level="NONE")
        yield running


def as_avro(value: Any, schema: Mapping[str, Any]) -> Any:
    """What stands in an Avro message for a value of Connect's JSON: raw bytes, and names that Avro allows."""
    if value is None:
        return None
    if schema["type"] == "bytes":
        return base64.b64decode(value)
    if schema["type"] == "float":
        return float(np.float32(value))
    if schema["type"] != "struct":
        return value
    found = {one["field"]: as_avro(value[one["field"]], one) for one in schema["fields"]}
    return {re.sub(r"^(?=\d)", "_", re.sub(r"[^A-Za-z0-9_]", "_", name)): one for name, one in found.items()}


@pytest.mark.parametrize("topic", TABLES)
def test_messages_in_avro_say_what_the_recorded_ones_say(topic: str, registry: SchemaRegistryServer) -> None:
    table, rows, structures = table_of(topic)
    changes = change_batch([{**row, "position": f"{n:08}//"} for n, row in enumerate(rows)])
    options = {name: value for name, value in RELEASE.items() if name != "schemas_enable"}
    messages = sent("debezium_avro", changes, structures, registry=registry.url, **options)
    client = SchemaRegistryClient({"url": registry.url})

    def datum(data: bytes | None) -> Any:
        if data is None:
            return None
        schema = writer_schema(client.get_schema(int.from_bytes(data[1:5], "big")).schema_str)
        return fastavro.schemaless_reader(io.BytesIO(data[5:]), schema.plain, None)

    left: list[Any] = []
    for message, theirs in zip(messages, table.events, strict=True):
        got = [datum(message[part]) for part in ("key", "value")]
        want = [one and as_avro(one["payload"], one["schema"]) for one in (theirs.key, theirs.value)]
        for value in (got[1], want[1]):
            for name in ("ts_ms", "ts_us", "ts_ns") if value is not None else ():
                value.pop(name)
        left += [one for one in explained(got, want, theirs) if not isinstance(one, Named)]
    assert left == []


STATEMENTS = [
    Named("a snapshot's clock is one of microseconds", r"\.payload\.source\.ts_ns: .*000 != .*"),
    Named("a display width says nothing of values, and the log has none", r"columns\[\d+\]\.length: None != \d+"),
    Named(
        "whether zeros fill a number's width says nothing", r"columns\[9\]\.type(Name|Expression): 'INT UNSIGNED' .*"
    ),
    Named(
        "types are the server's own names; the connector takes the statement's words",
        r"columns\[[145]\]\.(jdbcType|type(Name|Expression)|charsetName|defaultValueExpression): "
        r".* != (1111|16|2|None|'JSON'|'BOOLEAN'|'NUMERIC'|'true')",
    ),
]
"""What differs in schema changes."""


def test_schema_changes_are_the_recorded_ones() -> None:
    records, rows = recorded("mariadb_a")["mdb_a"], []
    for n, one in enumerate(records):
        payload = one.payload
        source = payload["source"]
        row = {"op": "schema", "source": facts_of(source) | {"ddl": payload["ddl"]}, "position": f"{n:08}//"}
        row |= {"event_time": instant(source["ts_us"]), "capture_time": instant(payload["ts_ms"] * 1000)}
        row["snapshot"] = None if source["snapshot"] == "false" else source["snapshot"]
        row["table"] = {"database": payload["databaseName"] or None, "name": source["table"]}
        for change in payload["tableChanges"]:
            row["source"]["change"] = change["type"]
            if change["table"] is not None:
                columns = change["table"]["columns"]
                told = [(c["name"], c["defaultValueExpression"], c["scale"]) for c in columns]
                row["table_schema"] = schema_of(source["table"], told).to_text()
        rows.append(row)
    messages = sorted(encoded(rows, **RELEASE), key=lambda m: json.loads(m.value)["payload"]["ts_ms"])
    assert {message.topic for message in messages} == {"mdb_a"}
    used, left = set(), []
    for message, one in zip(messages, records, strict=True):
        assert json.loads(message.key) == one.key
        for line in differences(json.loads(message.value), one.value):
            index = line.removeprefix(".payload.tableChanges[0].table.")
            found = next((named for named in STATEMENTS if re.fullmatch(named.index, index)), None)
            used.add(found)
            left += [] if found else [f"{one.record['offset']}: {line}"]
    assert left == []
    assert used - {None} == set(STATEMENTS)


def test_edges_of_transactions_are_the_recorded_ones_of_those_with_captured_rows() -> None:
    records = recorded("mariadb_a")["mdb_a.transaction"]
    filled = {one.payload["id"] for one in records if one.payload["event_count"]}
    statements = {one.payload["source"]["gtid"] for one in recorded("mariadb_a")["mdb_a"]}
    ended = [one.payload["id"] for one in records if one.payload["status"] == "END"]
    rest = {one.payload["id"] for one in records} - filled
    # Each statement begins a transaction that never ends, and changes of other tables are one of no events.
    assert {id for id in rest if id not in statements} == {"0-1-10914", "0-1-10915", "0-1-10916", "0-1-10945"}
    assert not statements & set(ended)

    kept, rows = [one for one in records if one.payload["id"] in filled], []
    for one in kept:
        payload = one.payload
        counts = payload["data_collections"]
        source = {"connector": "mariadb"} | ({"data_collections": json.dumps(counts)} if counts else {})
        transaction = {"id": payload["id"], "total_order": payload["event_count"]}
        moment = instant(payload["ts_ms"] * 1000)
        op = payload["status"].lower()
        rows.append({"op": op, "transaction": transaction, "source": source, "event_time": moment})
    messages = encoded(rows, **RELEASE)
    assert {message.topic for message in messages} == {"mdb_a.transaction"}
    assert [json.loads(m.key) for m in messages] == [one.key for one in kept]
    pairs = zip(messages, kept, strict=True)
    assert [line for m, one in pairs for line in differences(json.loads(m.value), one.value)] == []

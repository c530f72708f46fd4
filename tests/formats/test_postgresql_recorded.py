"""Rows of the PostgreSQL source become the messages that Debezium's connector recorded of the same changes.

In JSON with and without schemas, and in Avro. What differs stands in a table with its reason, and nothing else does.
"""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import fastavro
import pytest
from codec_rows import change_batch, sent
from confluent_kafka.schema_registry import SchemaRegistryClient
from debezium_recordings import differences, encoded, instant
from postgresql_recordings import FOLDER, Recorded, Table, recorded
from tests.real.recording import raw_bytes, read_records

from headrace.formats.registry.connect_avro import writer_schema
from headrace_emulators.schema_registry.server import SchemaRegistryServer

RELEASE: dict[str, Any] = {
    "shape": "3.0", "connector_version": "3.0.8.Final", "null_as_default": True, "interval_handling_mode": "numeric",
    "skipped_operations": "none",
}  # fmt: skip
"""What the recorded release does where Headrace does otherwise unless it is asked."""
TABLES = sorted(topic.removeprefix("pg_a.public.") for topic in recorded() if topic.startswith("pg_a.public."))


class Named(NamedTuple):
    """A difference that is meant.

    Args:
        reason: why Headrace does not do what was recorded.
        table: where it is found.
        index: in a message, as a regular expression.
        read: whether only messages of the snapshot have it, or only others; null for all.
    """

    reason: str
    table: str
    index: str
    read: bool | None = None


NAMED = [
    Named("the snapshot reads money through a binary number", "all_types", r"after\.c_money: .*", True),
    Named("24:00 in an array became 00:00", "all_types", r"after\.a_time\[1\]: 86400000000 != 0"),
    Named(
        "an array of arrays became an array of nulls; Headrace writes null for the whole and counts it",
        "all_types",
        r"after\.a_int(2d)?: None != \[None(, None)?\]",
    ),
    Named("the stream has null for a name", "all_types", r"after\.c_name: 'a_name' != None", False),
    Named(
        "before 15 October 1582 the snapshot counts by the Julian calendar, and leaves out the era of dates",
        "all_types|special_time",
        r"after\.(d|ts|tstz|[cn]_(date|ts.*)): .*",
        True,
    ),
    Named(
        "microseconds beyond the year 294247 wrap around; Headrace writes null and counts it",
        "all_types|special_time",
        r"after\.(c_)?ts: None != -9223372036853775810",
    ),
    Named(
        "a negative scale became the scale 2046",
        "numeric_neg_scale",
        r"((schema\.)?fields\[.\]\.(type\[1\]\.)?fields\[1\]\..*(scale|precision)|after\.n): .*",
    ),
    Named("each byte of a column's name became a character", "odd_names", r".*(\uffc3\uffb6|Gr____e____).*", False),
]
UNSENT = {
    "c_int4multirange", "c_line", "c_lseg", "c_box", "c_path", "c_polygon", "c_circle", "c_tsvector", "c_tsquery",
    "c_composite", "c_pglsn",
}  # fmt: skip
"""Columns of types that the connector leaves out. Headrace sends them, as strings or JSON."""
UNLOGGED = {"g_stored"}
"""A generated column, which the connector reads in its snapshot and never again. Headrace leaves it out of both."""


@cache
def table_of(name: str) -> tuple[Table, list[dict[str, Any]], list[Any]]:
    """A table of the recording, our rows of it, and their structures."""
    table = Table(name.replace("Mixed_Case", "Mixed Case"), recorded()[f"pg_a.public.{name}"])
    rows = list(table.rows())
    return table, [row for row, _ in rows], list({schema.fingerprint: schema for _, schema in rows}.values())


def comparable(value: Any) -> Any:
    """A value without the moments at which the connector looked at it, and without columns that only one side sends."""
    if value is None:
        return None
    payload = value.get("payload", value)
    for name in ("ts_ms", "ts_us", "ts_ns"):
        payload.pop(name, None)
    for name in ("before", "after"):
        for column in (UNSENT | UNLOGGED) & set(payload.get(name) or ()):
            del payload[name][column]
    for part in value.get("schema", {}).get("fields", ()):
        if part["field"] in ("before", "after"):
            part["fields"] = [one for one in part["fields"] if one["field"] not in UNSENT | UNLOGGED]
    return value


def event(key: Any, value: Any, headers: Mapping[str, Any]) -> list[Any]:
    key, value = (None if part is None else json.loads(part) for part in (key, value))
    return [key, comparable(value), {name: json.loads(header) for name, header in headers.items()}]


def of_ours(message: Any) -> list[Any]:
    return event(message.key, message.value, {h["key"]: h["value"] for h in message.headers or ()})


def of_theirs(record: Mapping[str, Any]) -> list[Any]:
    return event(record["key"], record["value"], dict(record["headers"]))


def unexplained(name: str, table: Table, got: list[list[Any]], want: list[list[Any]]) -> Iterator[str | Named]:
    """The differences of messages, each as what explains it where something does."""
    assert len(got) == len(want)
    for ours, theirs, at in zip(got, want, table.events, strict=True):
        read = at.value is not None and at.payload["op"] == "r"
        for line in differences(ours, theirs):
            index = re.sub(r"^\[[12]\]\.(payload\.)?", "", line)
            found = [
                one
                for one in NAMED
                if re.fullmatch(one.table, name) and re.fullmatch(one.index, index) and one.read in (None, read)
            ]
            yield found[0] if found else f"{at.record['offset']}: {line}"


@pytest.mark.parametrize("schemas", [True, False], ids=["with schemas", "without"])
@pytest.mark.parametrize("name", TABLES)
def test_each_row_gives_the_recorded_messages(name: str, schemas: bool) -> None:
    table, rows, structures = table_of(name)
    prefix = "pg_a" if schemas else "pg_b"
    records = [e.record for e in recorded("postgres_a" if schemas else "postgres_b")[f"{prefix}.public.{name}"]]
    own = [facts_of(row, prefix, records) for row in rows] if not schemas else rows
    messages = encoded(own, structures, topic_prefix=prefix, schemas_enable=schemas, **RELEASE)
    assert {message.topic for message in messages} == {f"{prefix}.public.{name}"}
    found = unexplained(name, table, [of_ours(m) for m in messages], [of_theirs(r) for r in records])
    assert [one for one in found if not isinstance(one, Named)] == []


def facts_of(row: dict[str, Any], prefix: str, records: list[Any]) -> dict[str, Any]:
    """A row as another of the connectors saw it, which had a snapshot of its own."""
    if row["op"] != "r":
        return row
    source = next(payload["source"] for record in records if (payload := json.loads(record["value"])))
    facts = {name: str(source[name]) for name in ("connector", "txId", "lsn", "sequence")}
    return {**row, "source": facts, "event_time": instant(source["ts_us"])}


def test_no_difference_is_listed_that_does_not_occur() -> None:
    used: Counter[Any] = Counter()
    for name in TABLES:
        table, rows, structures = table_of(name)
        messages = encoded(rows, structures, topic_prefix="pg_a", schemas_enable=True, **RELEASE)
        used.update(
            unexplained(name, table, [of_ours(m) for m in messages], [of_theirs(e.record) for e in table.events])
        )
    assert set(NAMED) - set(used) == set()


def test_what_only_headrace_sends_is_what_the_table_holds() -> None:
    _, rows, structures = table_of("all_types")
    messages = encoded(rows, structures, topic_prefix="pg_a", **RELEASE)
    second = json.loads(messages[1].value)["after"]
    assert {name: second[name] for name in sorted(UNSENT)} == {
        "c_box": "(1,1),(0,0)", "c_circle": "<(0,0),5>", "c_composite": '{"a":1,"b":"x,y"}',
        "c_int4multirange": "{[1,3),[5,7)}", "c_line": "{1,2,3}", "c_lseg": "[(0,0),(1,1)]",
        "c_path": "((0,0),(1,1),(2,0))", "c_pglsn": "16/B374D848", "c_polygon": "((0,0),(1,1),(2,0))",
        "c_tsquery": "'fat' & 'cat'", "c_tsvector": "'a' 'cat' 'fat' 'sat'",
    }  # fmt: skip


def row_of(one: Recorded, op: str, **more: Any) -> dict[str, Any]:
    source = one.payload.get("source") or {}
    facts = {
        name: str(source[name]) for name in ("connector", "txId", "lsn", "sequence") if source.get(name) is not None
    }
    return {"op": op, "source": facts or {"connector": "postgresql"}, **more}


def test_edges_of_transactions_are_the_recorded_ones() -> None:
    records = recorded()["pg_a.transaction"]
    rows = []
    for one in records:
        payload = one.payload
        counts = json.dumps(payload["data_collections"]) if payload["data_collections"] else None
        source = {"connector": "postgresql"} | ({"data_collections": counts} if counts else {})
        transaction = {"id": payload["id"], "total_order": payload["event_count"]}
        moment = instant(payload["ts_ms"] * 1000)
        rows.append(
            {"op": payload["status"].lower(), "transaction": transaction, "source": source, "event_time": moment}
        )
    messages = encoded(rows, topic_prefix="pg_a", schemas_enable=True, **RELEASE)
    assert {message.topic for message in messages} == {"pg_a.transaction"}
    assert [json.loads(m.key) for m in messages] == [one.key for one in records]
    assert [
        line for m, e in zip(messages, records, strict=True) for line in differences(json.loads(m.value), e.value)
    ] == []


def test_logical_messages_are_the_recorded_ones() -> None:
    records = recorded()["pg_a.message"]
    rows = []
    for one in records:
        payload, said = one.payload, one.payload["message"]
        row = row_of(one, "message", transaction=payload["transaction"], table={"database": "gold"})
        row["source"] |= {**said, "transactional": "true" if payload["transaction"] else "false"}
        row |= {"event_time": instant(payload["source"]["ts_us"]), "capture_time": instant(payload["ts_ms"] * 1000)}
        rows.append(row)
    messages = encoded(rows, topic_prefix="pg_a", schemas_enable=True, **RELEASE)
    assert {message.topic for message in messages} == {"pg_a.message"}
    assert [json.loads(m.key) for m in messages] == [one.key for one in records]
    assert [
        line for m, e in zip(messages, records, strict=True) for line in differences(json.loads(m.value), e.value)
    ] == []


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer() as running:
        # The recorded tables change in ways that a registry would refuse.
        SchemaRegistryClient({"url": running.url}).set_compatibility(level="NONE")
        yield running


def of_avro(data: bytes | None, schemas: Mapping[int, str]) -> tuple[Any, Any]:
    """A message's schema and datum."""
    if data is None:
        return None, None
    text = schemas[int.from_bytes(data[1:5], "big")]
    datum = fastavro.schemaless_reader(io.BytesIO(data[5:]), writer_schema(text).plain, None)
    schema = json.loads(text)
    for part in schema["fields"]:
        if part["name"] == "before":
            row = part["type"][1]
            row["fields"] = [one for one in row["fields"] if one["name"] not in UNSENT | UNLOGGED]
    return schema, datum


@pytest.mark.parametrize("name", TABLES)
def test_each_row_gives_the_recorded_messages_in_avro(name: str, registry: SchemaRegistryServer) -> None:
    table, rows, structures = table_of(name)
    topic = f"pg_c.public.{name}"
    records = [record for record in read_records(FOLDER / "postgres_c.jsonl.gz") if record["topic"] == topic]
    file = FOLDER / "postgres_c.registry.json"
    theirs = {int(id): text for id, text in json.loads(file.read_text(encoding="utf-8")).items()}
    changes = change_batch([{**row, "position": f"{n:08}//"} for n, row in enumerate(rows)])
    messages = sent("debezium_avro", changes, structures, topic_prefix="pg_c", registry=registry.url, **RELEASE)
    client = SchemaRegistryClient({"url": registry.url})
    ids = {int.from_bytes(m[part][1:5], "big") for m in messages for part in ("key", "value") if m[part] is not None}
    ours = {id: client.get_schema(id).schema_str for id in ids}
    got, want = [], []
    for message, record, at in zip(messages, records, table.events, strict=True):
        # The connectors' snapshots were read at different times.
        read = at.value is not None and at.payload["op"] == "r"
        for found, data, schemas in ((got, message, ours), (want, record, theirs)):
            key, value = (of_avro(raw_or_not(data[part]), schemas) for part in ("key", "value"))
            datum = comparable(value[1])
            if read:
                del datum["source"]
            found.append([key, datum, value[0]])
    left = [one for one in unexplained(name, table, got, want) if not isinstance(one, Named)]
    assert [line for line in left if not line.endswith("nan != nan")] == []


def raw_or_not(data: Any) -> bytes | None:
    return data if isinstance(data, bytes) else raw_bytes(data)

"""Debezium Avro, both ways: framings, registries, schemas that come and change, and bytes that are no datum."""

from __future__ import annotations

import base64
import io
import json
import random
import struct
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import debezium_recordings as recordings
import fastavro
import pytest
from codec_rows import as_kafka, change_batch, change_rows, events_of, sent
from codec_rows import rows_of as all_rows
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from samples import registry_of, samples_of

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.texts import key_text
from headrace.errors import ConnectError, FormatError, OptionError
from headrace.formats.codec import KAFKA_COLUMNS
from headrace.formats.convert import decode, encode
from headrace.formats.registry.client import registry_given
from headrace.formats.registry.connect_avro import avro_text, writer_schema
from headrace.spark.local_rows import local_rows
from headrace_emulators.schema_registry.server import SchemaRegistryServer

DDL = ", ".join(f"{name} {kind}" for name, kind in KAFKA_COLUMNS.items())
REGISTRY = registry_of("debezium_avro")
IMPATIENT = {"registry.max.retries": "0"}
TABLE = TableSchema(
    TableId("db", "dbo", "people"),
    (
        Column("id", 1, LogicalType("int32"), nullable=False),
        Column("name", 2, LogicalType("string")),
        Column("amount", 3, LogicalType("decimal", 9, 2)),
        Column("made", 4, LogicalType("timestamp", 6)),
        Column("born", 5, LogicalType("date")),
    ),
    ("id",),
)


@pytest.fixture(scope="module")
def server() -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer() as running:
        yield running


def change(op: str, id: int, name: str | None = "x", **more: Any) -> dict[str, Any]:
    image = {
        "id": str(id),
        "name": name,
        "amount": "-12.50",
        "made": "1969-12-31 23:59:59.999999",
        "born": "0001-01-01",
    }
    row: dict[str, Any] = {
        "op": op,
        "table": {"database": "db", "schema": "dbo", "name": "people"},
        "key": {"id": str(id)},
        "key_text": key_text([str(id)]),
        "before": {**image, "name": "old"} if op in "ud" else None,
        "after": image if op in "rcu" else None,
        "event_time": recordings.instant(10**15),
        "capture_time": recordings.instant(10**15 + 5),
        "source": {"connector": "sqlserver", "commit_lsn": "00000027:00000758:0005"},
        "schema_id": TABLE.fingerprint,
    }
    if op == "t":
        row |= {"key": None, "key_text": None}
    return row | more


def rows_of(frame: Any) -> list[dict[str, Any]]:
    return [row for row in recordings.collected(frame) if row["op"] != "schema"]


def told(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(r["op"], r["table"], r["key"], r["before"], r["after"], r["source"].get("commit_lsn")) for r in rows]


def framed(values: list[bytes | None], keys: list[bytes | None] | None = None, headers: Any = None) -> list[Any]:
    given = keys or [None] * len(values)
    return [
        ("srv.inventory.t", 0, n, None, key, value, headers)
        for n, (key, value) in enumerate(zip(given, values, strict=True))
    ]


def pairs(headers: Any) -> list[tuple[str, Any]] | None:
    return None if headers is None else [(header["key"], header["value"]) for header in headers]


def sample(case: str) -> Any:
    return next(s for s in samples_of("debezium_avro") if s.case == case)


def events(lines: list[Any], **options: Any) -> list[dict[str, Any]]:
    """The change rows of messages, without Spark and without those that announce structures."""
    rows = [row.asDict(recursive=True) for row in events_of("debezium_avro", lines, **options)]
    return [row for row in rows if row["op"] != "schema"]


def sent_by(server: SchemaRegistryServer, rows: list[dict[str, Any]], **options: Any) -> list[dict[str, Any]]:
    """The messages of rows of `TABLE`, without Spark."""
    url = server.apicurio_url if str(options.get("framing")).startswith("apicurio") else server.url
    changes = change_batch([{"position": f"{n:08}//", **row} for n, row in enumerate(rows, 1)])
    return sent("debezium_avro", changes, [TABLE], registry=url, **options)


@pytest.mark.parametrize("framing", ["confluent", "confluent-header", "apicurio8", "apicurio-header"])
def test_what_is_encoded_is_decoded_in_every_framing(server: SchemaRegistryServer, framing: str) -> None:
    data = [change("c", 1), change("u", 1), change("d", 1, name=None), change("t", 0)]
    moved = change("u", 2)
    moved["before"] = {**moved["before"], "id": "3"}
    found = sent_by(server, [*data, moved], topic_prefix=f"s-{framing}", skipped_operations="none", framing=framing)
    headers = [
        {h["key"]: h["value"] for h in message["headers"] or ()} for message in found if message["value"] is not None
    ]
    names = {name for of_message in headers for name in of_message if not name.startswith("__debezium")}
    assert (
        names
        == {
            "confluent": set(),
            "apicurio8": set(),
            "confluent-header": {"__key_schema_id", "__value_schema_id"},
            "apicurio-header": {f"apicurio.{s}.{n}" for s in ("key", "value") for n in ("globalId", "encoding")},
        }[framing]
    )
    url = server.apicurio_url if framing.startswith("apicurio") else server.url
    back = events(as_kafka(found), registry=url, framing=framing)
    assert [r["op"] for r in back] == ["c", "u", "d", "tombstone", "t", "d", "tombstone", "c"]
    assert told([r for r in back if r["op"] != "tombstone"])[:4] == told(data)
    assert [r["key"] for r in back[-3:]] == [{"id": "3"}, {"id": "3"}, {"id": "2"}]
    # What names the other key of a changed one is JSON in any format of keys.
    texts = {
        name: json.loads(value)
        for of_message in headers
        for name, value in of_message.items()
        if name in ("__debezium.newkey", "__debezium.oldkey")
    }
    assert texts == {"__debezium.newkey": {"id": 2}, "__debezium.oldkey": {"id": 3}}
    assert f"s-{framing}.db.dbo.people-value" in server.store.names()


def test_confluents_own_deserializer_reads_what_is_encoded(server: SchemaRegistryServer) -> None:
    [message] = sent_by(server, [change("u", 7)], topic_prefix="own", context_headers=False)
    read = AvroDeserializer(SchemaRegistryClient({"url": server.url}))
    value = read(message["value"], SerializationContext(message["topic"], MessageField.VALUE))
    assert (value["op"], value["after"]["name"], str(value["after"]["amount"])) == ("u", "x", "-12.50")
    assert (value["after"]["made"], value["after"]["born"], value["before"]["name"]) == (-1, -719162, "old")
    assert read(message["key"], SerializationContext(message["topic"], MessageField.KEY)) == {"id": 7}


def test_schemas_are_written_as_connects_converters_write_them(server: SchemaRegistryServer) -> None:
    sent_by(server, [change("c", 1)], topic_prefix="as_is")
    value = json.loads(server.store.content(server.store.version("as_is.db.dbo.people-value", "latest").content))
    assert (value["name"], value["namespace"], value["connect.name"]) == (
        "Envelope",
        "as_is.db.dbo.people",
        "as_is.db.dbo.people.Envelope",
    )
    row = value["fields"][0]["type"][1]
    assert value["fields"][1] == {"name": "after", "type": ["null", "Value"], "default": None}
    assert {f["name"]: f["type"] for f in row["fields"]} == {
        "id": "int",
        "name": ["null", "string"],
        "amount": [
            "null",
            {
                "type": "bytes",
                "scale": 2,
                "precision": 9,
                "connect.version": 1,
                "connect.parameters": {"scale": "2", "connect.decimal.precision": "9"},
                "connect.name": "org.apache.kafka.connect.data.Decimal",
                "logicalType": "decimal",
            },
        ],
        "made": ["null", {"type": "long", "connect.version": 1, "connect.name": "io.debezium.time.MicroTimestamp"}],
        "born": ["null", {"type": "int", "connect.version": 1, "connect.name": "io.debezium.time.Date"}],
    }


def test_every_recorded_schema_comes_back_byte_for_byte() -> None:
    file = Path(__file__).parents[1] / "golden" / "real_debezium" / "postgres_c.registry.json"
    recorded = json.loads(file.read_text())
    assert len(recorded) > 40
    for text in recorded.values():
        assert avro_text(writer_schema(text).connect) == text


def test_bits_without_null_that_a_new_row_does_not_carry_are_written_and_read_as_absent(
    server: SchemaRegistryServer,
) -> None:
    columns = [
        Column(name, n, LogicalType("string"), native_type="varbit", nullable=False) for n, name in enumerate("ab")
    ]
    bits = TableSchema(TableId("d", "s", "t"), tuple(columns), ("a",))
    row = change("u", 1) | {"key": {"a": "01"}, "key_text": '["01"]', "before": None, "after": {"a": "01"}}
    row |= {"position": "1//", "table": {"database": "d", "schema": "s", "name": "t"}, "schema_id": bits.fingerprint}
    changes = change_batch([row | {"source": {"connector": "postgresql"}}])
    found = sent("debezium_avro", changes, [bits], registry=server.url, topic_prefix="x")
    (back,) = events(as_kafka(found), registry=server.url)
    assert set(back["after"]) == {"a"}


def test_a_schema_that_can_not_be_used_is_an_error_row() -> None:
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Other"]}]}
    union = {"type": "record", "name": "U", "fields": [{"name": "u", "type": []}]}
    twice = {"type": "record", "name": "T", "fields": [{"name": "t", "type": "int"}, {"name": "t", "type": "string"}]}
    values = [b"\0\0\0\0\1\0", b"\0\0\0\0\2\0\0", b"\0\0\0\0\3\0\0"]
    rows = events(framed(values), registry={1: node, 2: union, 3: twice})
    assert [r["error"] for r in rows] == [
        "The schema of id 1 can't be used to read the value: The schema names an undefined type: 'Other'.",
        "The schema of id 2 can't be used to read the value: The schema has a union of no types.",
        "The schema of id 3 can't be used to read the value: 'T' has two fields named 't'.",
    ]


def test_what_is_no_datum_is_an_error_row_that_keeps_the_message() -> None:
    good = sample("create").message[5]
    key = sample("create").message[4]
    huge = good[:5] + b"\2\2" + b"\xfe\xff\xff\xff\x0f" * 4
    headers = [("h", b"1")]
    values = [good[:-1], good + b"\0", b"\0\0\0", huge, b"\0\0\0\0\1", b"", good, None]
    keys = [key, key, key, key, key, key, b"\0\0\0\0\3", key[:5] + b"\xff" * 12]
    rows = events(framed(values, keys, headers), registry=REGISTRY)
    assert [r["op"] for r in rows] == ["error"] * 8
    assert [r["error"] for r in rows] == [
        "The value is not an Avro datum of its schema.",
        "The value is not an Avro datum of its schema.",
        "The value is shorter than a schema id.",
        "The value is not an Avro datum of its schema.",
        "The value is not an Avro datum of its schema.",
        "The value does not begin with the byte 00 and a schema id.",
        "The key is not an Avro datum of its schema.",
        "The key is not an Avro datum of its schema.",
    ]
    kept = [(r["message"]["key"], r["message"]["value"], pairs(r["message"]["headers"])) for r in rows]
    assert kept == list(zip(keys, values, [headers] * 8, strict=True))


def test_headers_of_rows_are_the_messages_own() -> None:
    line = list(sample("create").message)
    lines = [(*line[:6], None), (*line[:6], []), (*line[:6], [("a", b"1"), ("a", None)])]
    rows = events(lines, registry=REGISTRY)
    assert [pairs(r["message"]["headers"]) for r in rows] == [None, [], [("a", b"1"), ("a", None)]]
    assert [(r["message"]["key"], r["message"]["value"]) for r in rows] == [(None, None)] * 3


def test_rows_without_a_time_are_refused_in_words(server: SchemaRegistryServer) -> None:
    one = change("c", 1, event_time=None)
    assert len(sent_by(server, [one], topic_prefix="s")) == 1
    with pytest.raises(FormatError) as refused:
        sent_by(server, [one, change("c", 2, event_time=None, capture_time=None)], topic_prefix="s")
    assert refused.value.message == (
        "Change rows of topic s.db.dbo.people have no time, and Debezium's Avro schemas need one."
    )
    assert refused.value.remedy == "Fill event_time or capture_time."


def test_a_registry_that_is_down_stops_the_batch_unless_the_ids_are_known(spark: Any) -> None:
    with SchemaRegistryServer() as server:
        for id, schema in (REGISTRY or {}).items():
            server.store.put(id, schema)
        options = {"format": "debezium_avro", "registry": server.url, **IMPATIENT}
        lines = [s.message for s in samples_of("debezium_avro")][:2]
        messages = local_rows(spark, lines, DDL)
        assert [r["op"] for r in rows_of(decode(messages, **options))] == ["c", "d"]
        server.stop()
        assert [r["op"] for r in rows_of(decode(messages, **options))] == ["c", "d"]
        new = local_rows(spark, [sample("evolved_schema_id_2").message], DDL)
        with pytest.raises(ConnectError, match=r"does not answer .schema id 2"):
            decode(new, **options)
        server.start()
        assert [r["op"] for r in rows_of(decode(new, **options))] == ["c"]


def test_framing_none_takes_the_schema_of_an_option_or_of_a_header() -> None:
    good = sample("create").message
    value, key = good[5][5:], good[4][5:]
    bare = framed([value], [key])
    named = framed(
        [value], [key], [("__value_schema_id", b"\0\0\0\0\1"), ("apicurio.key.globalId", struct.pack(">q", 3))]
    )
    assert REGISTRY is not None
    [row] = events(bare, framing="none", value_schema=REGISTRY[1], key_schema=REGISTRY[3])
    assert (row["op"], row["key"], row["after"]["s"]) == ("c", {"id": "1"}, "x")
    [row] = events(bare, framing="none", registry={1: REGISTRY[1]})
    assert (row["op"], row["after"]["s"]) == ("c", "x")
    [row] = events(named, framing="none", registry=REGISTRY)
    assert (row["op"], row["key"], row["after"]["s"]) == ("c", {"id": "1"}, "x")
    [row] = events(bare, framing="none", registry=REGISTRY)
    assert row["error"] == "The value names no schema, and the options give none for it."
    with pytest.raises(OptionError, match="Option 'registry' of format 'debezium_avro' is missing"):
        events(bare, framing="none")


def test_headers_that_name_no_schema_are_said() -> None:
    value = sample("create").message[5][5:]
    guid = uuid.uuid4().bytes
    cases = [
        ("confluent-header", [], "The value has no header __value_schema_id."),
        ("confluent-header", [("__value_schema_id", b"\2")], "The header that names the value's schema has no id."),
        (
            "confluent-header",
            [("__value_schema_id", b"\1" + guid)],
            f"The schema registry has no schema of guid {uuid.UUID(bytes=guid)} (of the value).",
        ),
        ("apicurio-header", [], "The value has no header apicurio.value.globalId or contentId."),
        (
            "apicurio-header",
            [("apicurio.value.contentId", struct.pack(">q", 1)), ("apicurio.value.encoding", b"JSON")],
            "The value is not encoded as binary Avro.",
        ),
    ]
    for framing in ("confluent-header", "apicurio-header"):
        mine = [case for case in cases if case[0] == framing]
        lines = [("t", 0, n, None, None, value, headers) for n, (_, headers, _) in enumerate(mine)]
        rows = events(lines, framing=framing, registry=REGISTRY)
        assert [r["error"] for r in rows] == [said for _, _, said in mine]


def test_of_headers_with_one_name_the_last_counts() -> None:
    value = sample("create").message[5][5:]
    ids = [("__value_schema_id", b"\0\0\0\0\x09"), ("x", None), ("__value_schema_id", b"\0\0\0\0\1")]
    lines = [("t", 0, n, None, None, value, headers) for n, headers in enumerate((None, ids, ids[::-1]))]
    rows = events(lines, framing="confluent-header", registry=REGISTRY)
    assert [(r["op"], r["error"]) for r in rows] == [
        ("error", "The value has no header __value_schema_id."),
        ("c", None),
        ("error", "The schema registry has no schema of id 9 (of the value)."),
    ]


def test_many_schemas_in_one_batch() -> None:
    assert REGISTRY is not None
    schemas, values, expected = {}, [], []
    for number in range(150):
        columns = [{"name": f"c{n}", "type": ["null", "string"]} for n in range(1 + number % 3)]
        schema = json.loads(json.dumps(REGISTRY[1]).replace("srv.inventory.t", f"srv.inventory.t{number}"))
        row = schema["fields"][0]["type"][1]
        row["fields"] = [{"name": "id", "type": "int"}, *columns]
        schemas[1000 + number] = schema
        stream = io.BytesIO(b"\0" + (1000 + number).to_bytes(4, "big"))
        stream.seek(5)
        after = {"id": number, **{c["name"]: f"v{number}" for c in columns}}
        fastavro.schemaless_writer(
            stream,
            fastavro.parse_schema(schema),
            {
                "after": after,
                "source": {
                    "version": "3", "connector": "mysql", "name": "srv", "ts_ms": 5, "db": "inventory",
                    "table": f"t{number}", "pos": 1,
                },
                "op": "c",
            },
        )  # fmt: skip
        values.append(stream.getvalue())
        expected.append((f"t{number}", {name: str(value) for name, value in after.items()}))
    rows = events(framed(values), registry=schemas)
    assert [(r["table"]["name"], r["after"]) for r in rows] == expected


def new_schema_arrives(server: SchemaRegistryServer, folder: Path, spark: Any, start: Any) -> list[Any]:
    """Run a stream over two files; the schema of the second is registered while the stream runs."""
    assert REGISTRY is not None
    server.store.put(1, REGISTRY[1])
    server.store.put(3, REGISTRY[3])
    local_rows(spark, [sample("create").message], DDL).write.parquet(str(folder / "in" / "1"))
    query = start(spark.readStream.schema(DDL).option("recursiveFileLookup", "true").parquet(str(folder / "in")))
    try:
        query.processAllAvailable()
        server.store.put(2, REGISTRY[2])
        local_rows(spark, [sample("evolved_schema_id_2").message], DDL).write.parquet(str(folder / "in" / "2"))
        query.processAllAvailable()
    finally:
        query.stop()
    found = spark.read.parquet(str(folder / "out")).where("op <> 'schema'").orderBy("position").collect()
    return [(row.op, row.error, (row.after or {}).get("added")) for row in found]


def test_a_new_schema_id_is_read_without_a_restart(spark: Any, tmp_path: Path) -> None:
    with SchemaRegistryServer() as server:

        def in_batches(messages: Any) -> Any:
            def write(batch: Any, number: int) -> None:
                rows = decode(batch, format="debezium_avro", registry=server.url)
                rows.write.mode("append").parquet(str(tmp_path / "batches" / "out"))

            return messages.writeStream.foreachBatch(write).start()

        found = new_schema_arrives(server, tmp_path / "batches", spark, in_batches)
        assert found == [("c", None, None), ("c", None, "n")]
    with SchemaRegistryServer() as server:

        def in_a_stream(messages: Any) -> Any:
            rows = decode(messages, format="debezium_avro", registry=server.url)
            folder = tmp_path / "stream"
            return rows.writeStream.option("checkpointLocation", str(folder / "check")).start(
                str(folder / "out"), format="parquet"
            )

        found = new_schema_arrives(server, tmp_path / "stream", spark, in_a_stream)
        assert found == [("c", None, None), ("c", None, "n")]


def test_spark_gives_the_rows_of_the_codec(spark: Any) -> None:
    lines = [s.message for s in samples_of("debezium_avro")]
    rows = recordings.collected(
        decode(local_rows(spark, lines, DDL).coalesce(1), format="debezium_avro", registry=REGISTRY)
    )
    alone = change_rows("debezium_avro", lines, registry=REGISTRY)
    named = [(row["position"], row["op"], row["before"], row["after"], row["error"]) for row in rows]
    assert named == [(row["position"], row["op"], row["before"], row["after"], row["error"]) for row in alone]


def test_executors_ask_no_registry_for_a_batch(spark: Any) -> None:
    """What a task reads, it reads by the schemas that the driver fetched, wherever the ids stand."""
    with SchemaRegistryServer() as server:
        for id, schema in (REGISTRY or {}).items():
            server.store.put(id, schema)
        lines = [sample("create").message, sample("evolved_schema_id_2").message]
        headed = [(*line[:4], None, line[5][5:], [("x", None), ("__value_schema_id", line[5][:5])]) for line in lines]
        options = {"format": "debezium_avro", "registry": server.url, **IMPATIENT}
        in_front = decode(local_rows(spark, lines, DDL), **options)
        in_headers = decode(local_rows(spark, headed, DDL), framing="confluent-header", **options)
        asked = len(server.requests)
        server.stop()
        assert [r["op"] for r in rows_of(in_front)] == [r["op"] for r in rows_of(in_headers)] == ["c", "c"]
        assert len(server.requests) == asked


def test_spark_writes_the_messages_of_the_codec_and_executors_register_nothing(
    spark: Any, server: SchemaRegistryServer
) -> None:
    data = [change("c", 1), change("d", 1), change("u", 2, key=None, key_text=None)]
    changes = recordings.rows(spark, data, [TABLE])
    encoded = encode(changes, format="debezium_avro", topic_prefix="same", registry=server.url)
    asked = len(server.requests)
    found = [row.asDict(recursive=True) for row in sorted(encoded.collect(), key=lambda row: row.position)]
    assert len(server.requests) == asked
    alone = sent_by(server, data, topic_prefix="same")
    assert [(m["topic"], m["key"], m["value"]) for m in found] == [(m["topic"], m["key"], m["value"]) for m in alone]
    assert [pairs(m["headers"]) for m in found] == [pairs(m["headers"]) for m in alone]


def test_a_mapping_must_know_what_is_written(spark: Any) -> None:
    changes = recordings.rows(spark, [change("c", 1)], [TABLE])
    with pytest.raises(OptionError, match=r"has no schema for subject 's\.db\.dbo\.people-(key|value)'"):
        encode(changes, format="debezium_avro", topic_prefix="s", registry={1: '"string"'})


TYPED = TableSchema(
    TableId("inventory", "", "t"),
    tuple(
        Column(name, n, LogicalType.parse(kind))
        for n, (name, kind) in enumerate(
            {
                "id": "int32", "d": "date", "t": "time(6)", "ts": "timestamp(6)", "z": "zoned_timestamp(9)",
                "dec": "decimal(10,2)", "j": "json", "b": "bytes", "kd": "date", "kts": "timestamp(3)", "s": "string",
                "l": "int64", "f": "float64", "ok": "boolean", "added": "string",
            }.items(),
            1,
        )
    ),
)  # fmt: skip


def test_one_tables_events_become_structs() -> None:
    """With two schemas of the table, a placeholder, a tombstone, a truncate and what can't be read."""
    lines = [s.message for s in samples_of("debezium_avro") if s.data["framing"] == "confluent" and s.case != "type_v"]
    offset = len(lines)
    lines.append((None, 0, 900 + offset, None, sample("create").message[4], None, None))
    maps = {(r["position"], r["op"]): r for r in change_rows("debezium_avro", lines, registry=REGISTRY)}
    found = all_rows("debezium_avro", lines, registry=REGISTRY, schema=TYPED)
    typed = sorted((r for r in found if r.op not in ("schema", None)), key=lambda row: row.position)
    assert len(typed) == len(lines)
    for row in typed:
        whole = maps[row.position, row.op]
        assert (row.key, row.key_text, row.error) == (whole["key"], whole["key_text"], whole["error"])
        assert row.source == whole["source"] or row.op not in ("c", "u", "d", "t")
        for side in ("before", "after"):
            image, absent = row[side], set(row[f"{side}_absent"] or ())
            if whole[side] is None:
                assert image is None
                continue
            carried = {name for name, text in whole[side].items() if text is not None and name != "v"}
            assert {name for name in TYPED_NAMES if image[name] is not None} == carried & set(TYPED_NAMES)
            assert absent == set(TYPED_NAMES) - set(whole[side])
            for name in carried:
                assert str(image[name]) in encodings(whole[side][name]), name


TYPED_NAMES = [column.name for column in TYPED.columns]


def encodings(text: str) -> set[str]:
    """How Python may print the typed value of a canonical text: booleans, milliseconds and bytes are its own."""
    own = {text, text.capitalize(), f"{text}000"}
    if text == "AP8Q":
        own.add(str(bytearray(base64.b64decode(text))))
    return own


def test_a_decimal_that_avro_refuses_is_read() -> None:
    """A scale beyond the precision, which PostgreSQL's numeric(2,4) and numeric(5,-2) give."""
    assert REGISTRY is not None
    odd = json.loads(json.dumps(REGISTRY[1]))
    for field in odd["fields"][0]["type"][1]["fields"]:
        if field["name"] == "dec":
            field["type"][1] |= {"scale": 4, "precision": 2, "connect.parameters": {"scale": "4"}}
    stream = io.BytesIO(b"\0\0\0\0\1")
    stream.seek(5)
    source = {
        "version": "3",
        "connector": "mysql",
        "name": "srv",
        "ts_ms": 5,
        "db": "inventory",
        "table": "t",
        "pos": 1,
    }
    plain = fastavro.parse_schema(writer_schema(json.dumps(odd)).plain)
    fastavro.schemaless_writer(
        stream, plain, {"after": {"id": 1, "dec": b"\x0c"}, "source": source | {"snapshot": None}, "op": "c"}
    )
    [row] = events(framed([stream.getvalue()]), registry={1: odd})
    assert row["after"]["dec"] == "0.0012"


def test_random_bytes_are_rows() -> None:
    rng = random.Random(11)
    values = [b"\0\0\0\0" + bytes([rng.choice([1, 2, 4, 5])]) + rng.randbytes(rng.randrange(120)) for _ in range(2000)]
    found = [row["op"] for row in events(framed(values), registry=REGISTRY)]
    assert len(found) == 2000
    assert found.count("error") > 1990


def test_the_registry_is_shown_without_its_credentials() -> None:
    given = registry_given("http://me:s3cret@127.0.0.1:1")
    assert "s3cret" not in f"{given}{given!r}{given.shown}"


def test_a_notification_is_an_avro_record_with_a_map(server: SchemaRegistryServer) -> None:
    facts = {
        "topic": "notes",
        "id": "mine",
        "type": "COMPLETED",
        "aggregate_type": "Initial Snapshot",
        "additional_data": '{"data_collections":"dbo.a"}',
        "timestamp": "1559729470000",
    }
    [found] = sent_by(server, [{"op": "message", "source": facts}], topic_prefix="s")
    assert found["topic"] == "notes"
    (number,) = struct.unpack(">I", found["value"][1:5])
    with urllib.request.urlopen(f"{server.url}/schemas/ids/{number}") as answer:
        schema = fastavro.parse_schema(json.loads(json.load(answer)["schema"]))
    assert fastavro.schemaless_reader(io.BytesIO(found["value"][5:]), schema, None) == {
        "id": "mine",
        "type": "COMPLETED",
        "aggregate_type": "Initial Snapshot",
        "additional_data": {"connector_name": "s", "data_collections": "dbo.a"},
        "timestamp": 1_559_729_470_000,
    }

"""Qlik Avro: envelope and registry, whatever the names and types, and back."""

from __future__ import annotations

import base64
import datetime as dt
import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from codec_rows import arrow_format, as_kafka, change_batch, rows_of, sent
from hypothesis import HealthCheck, Phase, given, settings
from pyspark.sql import DataFrame, SparkSession
from tests.support.qlik_messages import (
    KAFKA,
    POOLS,
    TABLE,
    assert_same,
    by_offset,
    change_frame,
    changes_of,
    messages,
    schema_row,
    streamed,
)

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.errors import OptionError
from headrace.formats.codec import Facts
from headrace.formats.convert import decode, encode
from headrace.formats.qlik import avro_message
from headrace.formats.qlik.avro_schema import ENVELOPE, avro_names, data_schema, described
from headrace.formats.qlik.metadata import read_avro
from headrace.formats.registry.connect_avro import writer_schema
from headrace.spark.local_rows import local_rows

GOLDEN = Path(__file__).parents[1] / "golden" / "qlik_avro"
SAMPLES = {
    line["case"]: base64.b64decode(line["value"]["base64"])
    for line in map(json.loads, (GOLDEN / "samples.jsonl").read_text().splitlines())
}
REGISTRY = json.loads((GOLDEN / "registry.json").read_text())


def frame(spark: SparkSession, values: list[bytes]) -> DataFrame:
    return local_rows(spark, messages(values), KAFKA).coalesce(1)


def decoded(values: list[bytes], **options: Any) -> list[Any]:
    """The change rows of values."""
    return rows_of("qlik_avro", messages(values), **options)


def test_what_can_not_be_read_says_why() -> None:
    insert, framed = SAMPLES["dt_schema_id_insert"], SAMPLES["confluent_insert"]
    values = [
        insert,
        framed,
        SAMPLES["dt_embedded_schema_delete"][:-3],
        b"atMSG\x04XX" + insert[8:],
        b"atMSG\x04DT\x00\x00\x00" + insert[44:],
        b"\x00\x00\x00\x00\x63" + framed[5:],
        b"hello",
    ]
    found = by_offset(decoded(values, registry=REGISTRY))
    assert [found[n].op for n in range(len(values))] == ["error", "c", *["error"] * 5]
    wanted = [
        "The metadata message of schema 87A6",
        None,
        "The envelope can't be read",
        "The envelope is of type neither",
        "The envelope names no schema",
        "The schema registry has no schema",
        "The value does not begin",
    ]
    assert [str(found[n].error)[: len(w)] for n, w in enumerate(wanted) if w] == [w for w in wanted if w]
    assert all(found[n].message.value == values[n] for n in (0, 2, 6))
    alone = by_offset(decoded([framed]))
    assert alone[0].error.startswith("The message names a schema of a registry, and option 'registry' is not set")


def test_metadata_is_found_in_the_batch_or_given(tmp_path: Path) -> None:
    insert, metadata = SAMPLES["dt_schema_id_insert"], SAMPLES["md_embedded_schema"]
    found = by_offset(decoded([insert, metadata]))
    assert (found[0].table.name, found[0].key_text, found[0].after["ID"]) == ("KIT", '["2"]', "2")
    path = tmp_path / "metadata.avro"
    path.write_bytes(metadata)
    for given_metadata in (metadata, str(path)):
        found = by_offset(decoded([insert], metadata=given_metadata))
        assert found[0].table.name == "KIT"


def test_a_stream_reads_by_arrow_what_a_batch_reads(spark: SparkSession, tmp_path: Path) -> None:
    cases = ("dt_schema_id_update", "confluent_insert", "logical_types_confluent", "wrong_magic")
    values = [SAMPLES[case] for case in cases]
    options: dict[str, Any] = {"registry": REGISTRY, "metadata": SAMPLES["md_embedded_schema"]}
    frame(spark, values).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(KAFKA).parquet(str(tmp_path / "in"))
    rows = decode(stream, format="qlik_avro", **options)
    writer = rows.writeStream.format("memory").queryName("qlik_avro").option("checkpointLocation", str(tmp_path / "c"))
    writer.trigger(availableNow=True).start().awaitTermination()

    def seen(rows: list[Any]) -> list[Any]:
        images = [(r.position, r.op, str(sorted((r.after or {}).items())), r.error) for r in rows]
        return sorted(image for image in images if image[1] != "schema")

    batch = decode(frame(spark, values), format="qlik_avro", **options)
    assert seen(spark.table("qlik_avro").collect()) == seen(batch.collect())


def test_an_envelope_may_stand_in_a_frame() -> None:
    cases = ("dt_schema_id_update", "dt_embedded_schema_delete", "md_embedded_schema")
    values = [SAMPLES[case] for case in cases]
    framed = [b"\0\0\0\0\x05" + value for value in values]
    plain = {"registry": REGISTRY}

    def meaning(rows: list[Any]) -> list[Any]:
        return [(row.op, row.before, row.after, row.table, row.changed, row.schema_id, row.error) for row in rows]

    assert meaning(decoded(framed, **plain)) == meaning(decoded(values, **plain))
    assert [row.op for row in decoded(framed)] == ["schema", "u", "schema", "d", "schema"]
    for count in (1, 2):
        assert meaning(decoded(framed[:count], **plain)) == meaning(decoded(values[:count], **plain))


def test_a_structure_gives_typed_structs() -> None:
    ddl = "ID bigint, AMT decimal(38,6), D date, TS timestamp, B binary, OK boolean, F double"
    (found,) = decoded([SAMPLES["logical_types_confluent"]], registry=REGISTRY, schema=ddl)
    row = found.after
    assert found.error is None and row.ID == 9007199254740993 and bytes(row.B) == b"\x00\xff"
    assert row.OK and row.F == 0.1 and str(row.AMT) == "12345678901234567890123456789012.123456"
    assert dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC) == row.TS


def test_names_that_avro_does_not_allow_come_back() -> None:
    names = ["a b", "a_b", "a-b", "1", "列", "ok"]
    columns = tuple(Column(name, n, LogicalType("string")) for n, name in enumerate(names, 1))
    schema = TableSchema(TableId("", "s", "t"), columns)
    made = avro_names(schema)
    assert len(set(made.values())) == len(names) and made["a_b"] == "a_b" and made["ok"] == "ok"
    text = json.dumps(data_schema(schema, "task"))
    found, told = described(text), described(text, ["q", *names[1:]])
    assert found is not None and told is not None
    assert [c.name for c in found.schema.columns] == names
    assert found.renamed == {v: k for k, v in made.items() if v != k}
    assert [c.name for c in told.schema.columns] == ["q", *names[1:]]
    assert described('{"type":"record","name":"x","fields":[]}') is None and described("5") is None


def test_options_that_do_not_fit_are_refused() -> None:
    for options, sentence in (
        ({"envelope": False}, "'registry'"),
        ({"registry": REGISTRY, "framing": "apicurio8"}, "framing"),
        ({"value_schema": "{"}, "value_schema"),
    ):
        with pytest.raises(OptionError, match=sentence):
            arrow_format("qlik_avro", **options).prepare_encoding(Facts((TABLE,)))


def named(change: dict[str, Any]) -> dict[str, Any]:
    """The change with the table's name as Avro can spell it: the only place for it without an envelope."""
    written = {part: name and re.sub(r"[^A-Za-z0-9_]", "_", name) for part, name in change["table"].items()}
    return {**change, "table": written}


# The first example is the simplest one there is; shrinking would take minutes.
@settings(max_examples=5, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(POOLS)
def test_decode_of_encode_is_identity_for_every_type(drawn: Any) -> None:
    from headrace_emulators.schema_registry.server import SchemaRegistryServer

    # In Avro no field can be left out, and a full load has no mask.
    changes = changes_of(drawn, whole_reads=True)
    rows = change_batch([schema_row(TABLE), *changes])
    with SchemaRegistryServer() as server:
        for options in ({}, {"registry": server.url}):
            made = sent("qlik_avro", rows, [TABLE], **options)
            found = rows_of("qlik_avro", as_kafka(made), **options)
            assert_same(found, [named(change) for change in changes] if options else changes)
            structure = TableSchema.from_text(next(row.table_schema for row in found if row.op == "schema"))
            assert [c.name for c in structure.columns] == [c.name for c in TABLE.columns]
    first = read_avro(ENVELOPE, sent("qlik_avro", rows, [TABLE])[0]["value"])
    assert base64.b64decode(first["magic"]) == b"atMSG" and first["headers"] is None


def test_spark_registers_schemas_and_reads_them_back(spark: SparkSession) -> None:
    from headrace_emulators.schema_registry.server import SchemaRegistryServer

    changes = changes_of(({c.name: ["1"] for c in TABLE.columns[1:]}, random.Random(1)))[:3]
    changes = [{**change, "before": change["before"] and {"id": "1"}, "changed": None} for change in changes]
    changes = [{**change, "after": change["after"] and {"id": "1"}} for change in changes]
    with SchemaRegistryServer() as server:
        made = encode(change_frame(spark, changes), format="qlik_avro", schema=[TABLE], registry=server.url).collect()
        back = decode(frame(spark, [bytes(row.value) for row in made]), format="qlik_avro", registry=server.url)
        assert sorted(row.op for row in back.collect() if row.op != "schema") == sorted(c["op"] for c in changes)


def test_headers_have_the_structures_id_on_request() -> None:
    rows = change_batch([schema_row(TABLE), streamed(0, "u", "5", "1")])
    made = sent("qlik_avro", rows, [TABLE], external_schema_id=True)
    (row,) = [row for row in rows_of("qlik_avro", as_kafka(made)) if row.op == "u"]
    assert row.source["externalSchemaId"] == row.source["messageSchemaId"]
    assert row.source["streamPosition"] == "5/1/1" and re.fullmatch("[0-9]{35}", row.source["changeSequence"])


def test_reading_messages_leaves_a_schema_as_it_is_for_other_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = replace(TABLE, columns=tuple(replace(c, name=f"{c.name} !") for c in TABLE.columns), key=())
    row = {**streamed(0, "c", "5", "1"), "key": None, "key_text": None, "schema_id": odd.fingerprint}
    row["after"] = {"id !": "1"}
    made = as_kafka(sent("qlik_avro", change_batch([schema_row(odd), row]), [odd]))
    read: list[str] = []
    monkeypatch.setattr(avro_message, "writer_schema", lambda text: read.append(text) or writer_schema(text))
    (found,) = [row for row in rows_of("qlik_avro", made) if row.op == "c"]
    assert "id !" in dict(found.after)
    assert read and [t for t in read if repr(writer_schema(t).plain) != repr(writer_schema.__wrapped__(t).plain)] == []


def test_the_task_names_the_namespace() -> None:
    schema = replace(TABLE, id=TableId("db", "S", "T"))
    assert data_schema(schema, "my task")["namespace"] == "com.attunity.queue.msg.my_task.S.T"

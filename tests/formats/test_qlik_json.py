"""Qlik JSON: metadata as state, masks, both layouts, and back."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from codec_rows import as_kafka, change_batch, changes_of_messages, rows_of, sent
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
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

from headrace.changes import TableSchema
from headrace.errors import FormatError, OptionError
from headrace.formats.convert import decode, encode
from headrace.formats.qlik.masks import ColumnBits, hex_texts, mask_bytes
from headrace.spark.local_rows import local_rows

GOLDEN = Path(__file__).parents[1] / "golden" / "qlik_json" / "samples.jsonl"
SAMPLES = {line["case"]: line["value"] for line in map(json.loads, GOLDEN.read_text().splitlines())}
METADATA = SAMPLES["metadata_message"]
SCHEMA_ID = "87A672B0AA76C4DB0A30F50F4A9F848C"


def data(operation: Any, data: Any = None, before: Any = None, id: str | None = None, **headers: Any) -> str:
    """A data message: in the envelope where it names a schema id."""
    said = {"operation": operation, "timestamp": "2023-09-11T03:23:25.000", **headers}
    message = {"data": data, "beforeData": before, "headers": said}
    if id is None:
        return json.dumps(message)
    envelope = {"magic": "atMSG", "type": "DT", "headers": None, "messageSchemaId": id, "messageSchema": None}
    return json.dumps({**envelope, "message": message})


def decoded(values: list[Any], **options: Any) -> list[Any]:
    """The change rows of values."""
    return rows_of("qlik_json", messages(values), **options)


def frame(spark: SparkSession, values: list[Any]) -> DataFrame:
    return local_rows(spark, messages(values), KAFKA).coalesce(1)


TEN = {f"c{n}": str(n) for n in range(1, 11)}
NULLED = {**TEN, "c9": None, "c10": None}
# Options, message, and what it gives: op, before, after, changed; or the beginning of its error.
MEANINGS: list[tuple[str, Any, Any]] = [
    ("big", data("INSERT", NULLED, columnMask="01FF"), ("c", None, {**TEN, "c9": None, "c10": ...}, None)),
    ("little", data("INSERT", NULLED, columnMask="FF01"), ("c", None, {**TEN, "c9": None, "c10": ...}, None)),
    ("auto", data("INSERT", NULLED, columnMask="FF01"), ("c", None, {**TEN, "c9": None, "c10": ...}, None)),
    ("auto", data("INSERT", NULLED, columnMask="01FF"), ("c", None, {**TEN, "c9": None, "c10": ...}, None)),
    ("big", data("INSERT", NULLED, columnMask="FF"), ("c", None, NULLED, None)),
    ("big", data("INSERT", NULLED, columnMask="1ff"), ("c", None, {**TEN, "c9": None, "c10": ...}, None)),
    ("big", data("UPDATE", TEN, {**TEN, "c2": "x"}, changeMask="0002"), ("u", {**TEN, "c2": "x"}, TEN, ["c2"])),
    ("auto", data("UPDATE", TEN, {**TEN, "c2": "x"}, changeMask="0200"), ("u", {**TEN, "c2": "x"}, TEN, ["c2"])),
    ("auto", data("UPDATE", TEN, {**TEN, "c2": "x"}, changeMask="0002"), ("u", {**TEN, "c2": "x"}, TEN, ["c2"])),
    ("big", data("UPDATE", TEN, changeMask="0200"), ("u", None, TEN, ["c10"])),
    ("big", data("UPDATE", TEN, changeMask=""), ("u", None, TEN, None)),
    ("big", data("refresh", {"a": 1.50}, timestamp=""), ("r", None, {"a": "1.5"}, None)),
    ("big", '{"data":{"a":1.50,"b":[2.0]},"headers":{"operation":"INSERT"}}',
     ("c", None, {"a": "1.50", "b": "[2.0]"}, None)),
    ("big", data("DELETE", {"a": "1"}), ("d", {"a": "1"}, None, None)),
    ("big", data("DELETE", None, {"a": "1"}), ("d", {"a": "1"}, None, None)),
    ("big", None, ("tombstone", None, None, None)),
    ("big", data("INSERT", {"a": "1"}, id="nobody"), "The metadata message of schema nobody is unknown"),
    ("big", data("INSERT", {"a": "1"}, changeMask="XY"), "The changeMask is not hexadecimal"),
    ("big", data("INSERT", {"a": "1"}, columnMask="-1"), "The columnMask is not hexadecimal"),
    ("big", data("INSERT"), "The message has no data"),
    ("big", data("DELETE"), "A delete has neither"),
    ("big", data("UPSERT", {"a": "1"}), "Unknown operation: UPSERT"),
    ("big", data(None, {"a": "1"}), "The headers have no operation"),
    ("big", '{"data":{"a":"1"}}', "The message has no headers"),
    ("big", data("INSERT", {"a": "1"}, timestamp="yesterday"), "The timestamp can't be read"),
    ("big", '{"magic":"atMSG","type":"XX","message":{}}', "The envelope is of type neither"),
    ("big", '{"magic":"atMSG","type":"MD","message":{"schemaId":"x","tableStructure":{"tableColumns":{}}}}',
     "The metadata message can't be read"),
    ("big", data("INSERT", {"a": "1"}) + data("INSERT", {"a": "2"}), "Unexpected data after"),
    ("big", data("INSERT", {"a": "1"}) + "}", "Unexpected data after"),
    ("big", "[]", "The value is not a JSON object"),
    ("big", b"\xff", "The value is not UTF-8"),
]  # fmt: skip


def test_each_message_means_what_the_table_says() -> None:
    wrong = {}
    for order in ("big", "little", "auto"):
        cases = [(value, wanted) for o, value, wanted in MEANINGS if o == order]
        found = by_offset(decoded([v for v, _ in cases], mask_byte_order=order))
        for n, (value, wanted) in enumerate(cases):
            row = found[n]
            if isinstance(wanted, str):
                if row.op != "error" or not row.error.startswith(wanted) or row.message.value is None:
                    wrong[value] = (row.op, row.error)
                continue
            op, *images, changed = wanted
            cut = [i and {k: v for k, v in i.items() if v is not ...} for i in images]
            if (row.op, row.before, row.after, row.changed) != (op, *cut, changed):
                wrong[order, value] = (row.op, row.before, row.after, row.changed, row.error)
    assert wrong == {}


def test_metadata_says_table_key_and_ordinals_wherever_it_stands() -> None:
    moved = json.loads(METADATA)
    columns = moved["message"]["tableStructure"]["tableColumns"]
    columns["ID"] |= {"ordinal": 3, "primaryKeyPosition": 2}
    columns["V"] |= {"ordinal": 1, "primaryKeyPosition": 1}
    columns["T"] = {**columns["V"], "ordinal": 5, "type": "DATETIME", "scale": 3, "primaryKeyPosition": 0}
    moved["message"]["schemaId"] = "moved"
    row = {"ID": "1", "NAME": "a", "V": "x", "T": "2020-01-01T00:00:00.000"}
    values = [
        data("UPDATE", row, {**row, "V": "y"}, id="moved", changeMask="01"),
        data("INSERT", {"ID": "1", "NAME": None, "V": "x"}, id=SCHEMA_ID, columnMask="05"),
        json.dumps(moved["message"]),
        METADATA,
        METADATA,
    ]
    rows = decoded(values)
    found = by_offset(rows)
    assert found[0].changed == ["V"] and found[0].key_text == '["x","1"]'
    assert found[0].after["T"] == "2020-01-01 00:00:00.000"
    assert (found[0].table.schema, found[0].table.name, found[1].key_text) == ("SCOTT", "KIT", '["1"]')
    assert found[1].after == {"ID": "1", "V": "x"}
    schemas = [row for row in rows if row.op == "schema"]
    structures = {row.schema_id: TableSchema.from_text(row.table_schema) for row in schemas}
    assert structures[found[0].schema_id].key == ("V", "ID")
    assert [str(c.logical) for c in structures[found[0].schema_id].columns] == [
        "string",
        "string",
        "decimal(38,0)",
        "timestamp(3)",
    ]
    of_messages = {row.message.offset: row.source for row in schemas if row.source}
    assert sorted(of_messages) == [2, 3, 4]
    assert of_messages[3] == {"server": "srv1", "task": "task1", "tableVersion": "1",
                              "timestamp": "2023-09-11T03:20:00.000", "schemaId": SCHEMA_ID}  # fmt: skip


@pytest.mark.parametrize("way", ["text", "list", "mapping", "file"])
def test_metadata_can_be_given(tmp_path: Path, way: str) -> None:
    path = tmp_path / "metadata.jsonl"
    path.write_text(METADATA + "\n")
    given = {"text": METADATA, "list": [METADATA], "mapping": json.loads(METADATA), "file": str(path)}[way]
    rows = decoded([data("INSERT", {"ID": "1", "NAME": "n", "V": "x"}, id=SCHEMA_ID)], metadata=given)
    assert [row.op for row in sorted(rows, key=lambda row: row.position)] == ["schema", "c"]
    assert {row.table.name for row in rows} == {"KIT"}


def test_options_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    wrong = (
        ({"metadata": str(tmp_path / "absent.json")}, "can't be read"),
        ({"metadata": '{"a": 1}'}, "not a metadata message"),
        ({"metadata_topic": "m"}, "without 'bootstrap_servers'"),
        ({"mask_byte_order": "middle"}, "mask_byte_order"),
    )
    for options, sentence in wrong:
        with pytest.raises(OptionError, match=sentence):
            decoded([], **options)


@pytest.mark.kafka
def test_the_metadata_topic_is_read_when_decode_is_called(spark: SparkSession, bootstrap: str) -> None:
    values = [data("INSERT", {"ID": "1", "NAME": "n", "V": "x"}, id=SCHEMA_ID)]
    line = local_rows(spark, [(METADATA,)], "value string")
    line.write.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", "meta").save()
    options = {"metadata_topic": "meta", "bootstrap_servers": bootstrap}
    rows = decode(frame(spark, values), format="qlik_json", **options).collect()
    assert by_offset(rows)[0].table.name == "KIT"


def test_a_stream_decodes_what_a_batch_does_with_the_metadata_given(spark: SparkSession, tmp_path: Path) -> None:
    values = [v for o, v, _ in MEANINGS if o == "big"] + [
        METADATA,
        data("INSERT", {"ID": "1", "NAME": None, "V": "x"}, id=SCHEMA_ID, columnMask="05"),
    ]
    frame(spark, values).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(KAFKA).parquet(str(tmp_path / "in"))
    rows = decode(stream, format="qlik_json", metadata=METADATA)
    writer = rows.writeStream.format("memory").queryName("qlik").option("checkpointLocation", str(tmp_path / "c"))
    writer.trigger(availableNow=True).start().awaitTermination()

    def seen(rows: list[Any]) -> list[Any]:
        images = [[str(sorted((image or {}).items())) for image in (r.before, r.after)] for r in rows]
        facts = [(r.position, r.op, i, r.changed or [], r.error) for r, i in zip(rows, images, strict=True)]
        return sorted(fact for fact in facts if not (fact[1] == "schema" and "/0/" in fact[0]))

    assert seen(spark.table("qlik").collect()) == seen(decode(frame(spark, values), format="qlik_json").collect())


def test_a_structure_gives_typed_structs() -> None:
    values = [
        data("INSERT", {"ID": "1", "N": "2.50", "V": None, "T": "2020-01-01T00:00:00.123"}, columnMask="0B"),
        data("UPDATE", {"ID": "1", "V": None}, {"ID": "1", "N": None}, id="nobody", changeMask="02"),
        data("INSERT", {"ID": "x"}),
        METADATA,
    ]
    rows = decoded(values, schema="ID int, N decimal(5,2), V string, T timestamp_ntz", keys="ID")
    found = by_offset(rows)
    assert tuple(found[0].after)[2:] == (None, dt.datetime(2020, 1, 1, 0, 0, 0, 123000))
    assert str(found[0].after.N) == "2.50" and found[0].after_absent == ["V"] and found[0].key_text == '["1"]'
    assert (found[1].before_absent, found[1].after_absent) == (["V", "T"], ["N", "T"])
    assert found[2].error == "Column 'ID' can't hold x exactly: it is int."
    assert [row.op for row in rows if row.message.offset == 3] == ["schema"]


@given(st.lists(st.lists(st.booleans(), max_size=40), min_size=1, max_size=8), st.sampled_from(["big", "little"]))
def test_masks_are_what_a_number_says(rows: list[list[bool]], order: str) -> None:
    counts, flags = np.array([len(row) for row in rows]), np.array([flag for row in rows for flag in row], bool)
    little = order == "little"
    texts = hex_texts(mask_bytes(flags, counts, np.ones(len(rows), bool), little=little))
    masks = ColumnBits(texts)
    for number, (row, text) in enumerate(zip(rows, texts.to_pylist(), strict=True)):
        value = sum(1 << index for index, flag in enumerate(row) if flag)
        assert text == value.to_bytes((len(row) + 7) // 8, order).hex().upper()
        assert masks.set_indexes(number, little) == [index for index, flag in enumerate(row) if flag]
        indexes = np.arange(len(row))
        found = masks.bit(np.full(len(row), number), indexes, np.full(len(row), little))
        assert found.tolist() == [int(flag) for flag in row]
        assert masks.bit(np.array([number]), np.array([8 * len(text)]), np.array([little])).tolist() == [-1]


def test_keys_envelopes_and_topics_are_options() -> None:
    values = [METADATA, data("DELETE", {"ID": "1", "NAME": "n", "V": None}, id=SCHEMA_ID)]
    rows = changes_of_messages("qlik_json", messages(values))
    structures = [TableSchema.from_text(text) for text in set(rows.column("table_schema").to_pylist()) - {None}]
    bare = sent("qlik_json", rows, structures, envelope=False, key="schema_table")
    assert len(bare) == 1 and bare[0]["key"] == b"SCOTT.KIT"
    value = json.loads(bare[0]["value"])
    assert value["headers"]["schema"] == "SCOTT" and value["data"] == {"ID": "1", "NAME": "n", "V": None}
    assert (value["headers"]["changeMask"], value["headers"]["columnMask"]) == ("01", "07")
    assert "externalSchemaId" not in value["headers"]
    options = {"metadata_topic": "meta", "key": "none", "server": "s", "task": "k", "topic": "x"}
    full = sent("qlik_json", rows, structures, **options)
    told = [(row["topic"], json.loads(row["value"])) for row in full]
    assert [(topic, value["type"]) for topic, value in told] == [("meta", "MD"), ("meta", "MD"), ("x", "DT")]
    assert all(row["key"] is None for row in full)
    lineage = told[0][1]["message"]["lineage"]
    assert lineage["tableVersion"] == 1 and lineage["task"] == "task1"


def test_spark_puts_a_metadata_message_in_front_of_each_structure(spark: SparkSession) -> None:
    rows = change_frame(spark, changes_of(({c.name: ["1"] for c in TABLE.columns[1:]}, random.Random(1)))[:3])
    made = encode(rows, format="qlik_json", schema=[TABLE]).orderBy("position").collect()
    assert [json.loads(row.value)["type"] for row in made] == ["MD", "DT", "DT", "DT"]


# The first example is the simplest one there is; shrinking would take minutes.
@settings(max_examples=5, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(POOLS)
def test_decode_of_encode_is_identity_for_every_type(drawn: Any) -> None:
    changes = changes_of(drawn)
    made = sent("qlik_json", change_batch([schema_row(TABLE), *changes]), [TABLE])
    assert json.loads(made[0]["value"])["type"] == "MD"
    rows = rows_of("qlik_json", as_kafka(made))
    assert_same(rows, changes)
    structure = TableSchema.from_text(next(row.table_schema for row in rows if row.op == "schema"))
    assert structure.key == TABLE.key
    assert [str(c.logical) for c in structure.columns] == [str(c.logical) for c in TABLE.columns]


def headers_of(rows: list[dict[str, Any]], **options: Any) -> list[dict[str, Any]]:
    """The headers of the data messages of rows."""
    made = [json.loads(message["value"]) for message in sent("qlik_json", change_batch(rows), [TABLE], **options)]
    return [value["message"]["headers"] for value in made if value["type"] == "DT"]


COMMITS = st.lists(st.integers(0, 2**80 - 1), min_size=1, max_size=8, unique=True).map(sorted)


@given(COMMITS, st.lists(st.integers(1, 5), min_size=8, max_size=8), st.sets(st.integers(0, 8)))
def test_the_change_sequence_is_the_sources_order_over_all_tables_and_restarts(
    commits: list[int], sizes: list[int], restarts: set[int]
) -> None:
    batches: list[list[dict[str, Any]]] = [[]]
    for index, (commit, size) in enumerate(zip(commits, sizes, strict=False)):
        if index in restarts:
            batches.append([])
        word = f"{commit:020x}"
        batches[-1] += [
            streamed(n, "ud"[n % 2], f"{word[:8]}:{word[8:16]}:{word[16:]}", f"{n:08x}") for n in range(size * 3)
        ]
    rows = [row for batch in batches for row in batch]
    numbers = [headers["changeSequence"] for batch in batches for headers in headers_of(batch)]
    assert numbers == [headers["changeSequence"] for headers in headers_of(rows)]
    assert all(re.fullmatch("[0-9]{35}", number) for number in numbers)
    # One order over all tables.
    assert numbers == sorted(set(numbers))


def test_a_structure_that_was_said_is_not_said_again() -> None:
    other = dataclasses.replace(TABLE, key=())
    rows = [schema_row(TABLE), streamed(0, "u", "5", "1"), schema_row(TABLE), schema_row(other), schema_row(TABLE)]
    made = [json.loads(message["value"]) for message in sent("qlik_json", change_batch(rows), [TABLE, other])]
    assert [value["type"] for value in made] == ["MD", "DT", "MD"]


def test_the_time_of_metadata_is_that_of_the_change_else_of_the_batch() -> None:
    change, batch = (dt.datetime(2024, 5, 6, 7, 8, second, tzinfo=dt.UTC) for second in (9, 10))
    rows = [schema_row(TABLE) | {"event_time": time, "capture_time": batch} for time in (change, None)]
    made = [json.loads(sent("qlik_json", change_batch([row]), [TABLE])[0]["value"]) for row in rows]
    said = [value["message"]["lineage"]["timestamp"] for value in made]
    assert [time[:19] for time in said] == ["2024-05-06T07:08:09", "2024-05-06T07:08:10"]


def test_a_delete_sorts_behind_the_update_of_the_same_commit() -> None:
    update, delete = headers_of([streamed(0, "u", "5", "1"), streamed(3, "d", "5", "2")])
    assert update["operation"] == "UPDATE" and update["changeSequence"] < delete["changeSequence"]


def test_the_number_that_a_change_came_with_is_kept() -> None:
    (headers,) = headers_of([streamed(0, "u", "5", "1", source={"changeSequence": "7", "streamPosition": "p"})])
    assert (headers["changeSequence"], headers["streamPosition"]) == ("7", "p")


def test_a_position_that_is_no_number_is_refused() -> None:
    with pytest.raises(FormatError, match="can't be written as a number"):
        headers_of([streamed(0, "u", "x" * 20, "1")])


def test_headers_say_where_the_stream_is_and_of_a_full_load_nothing() -> None:
    read, update = headers_of([streamed(0, "r", "5", "r"), streamed(1, "u", "6", "1")])
    assert read == {
        **dict.fromkeys(("changeSequence", "timestamp", "streamPosition", "transactionId"), ""),
        **dict.fromkeys(("changeMask", "columnMask", "transactionEventCounter", "transactionLastEvent")),
        "operation": "REFRESH",
    }
    assert (update["streamPosition"], update["timestamp"]) == ("6/1/1", "2020-01-02T03:04:06.678")


def test_metadata_has_the_fields_of_the_data_and_headers_the_structures_id_on_request() -> None:
    rows = [schema_row(TABLE), streamed(0, "u", "5", "1")]
    first, second = sent("qlik_json", change_batch(rows), [TABLE], external_schema_id=True)
    metadata, message = json.loads(first["value"])["message"], json.loads(second["value"])
    record = json.loads(metadata["dataSchema"])
    data = next(field["type"] for field in record["fields"] if field["name"] == "data")
    assert len(data["fields"]) == len(TABLE.columns) and data["fields"][0]["type"] == ["null", "int"]
    assert message["message"]["headers"]["externalSchemaId"] == metadata["schemaId"] == message["messageSchemaId"]

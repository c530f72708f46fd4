"""Decoding what was encoded gives the change rows back, for every logical type and its extremes."""

from __future__ import annotations

import random
import re

import debezium_recordings as recordings
import pytest
from codec_rows import change_rows
from tests.support.debezium_round_trips import (
    NAMES,
    TABLE,
    as_kafka,
    comparable,
    random_change,
    random_image,
)

from headrace.changes import TableSchema


@pytest.mark.parametrize(
    ("shape", "known", "schemas"), [("3", False, True), ("1.7", False, True), ("3", True, False), ("3", True, True)]
)
def test_decode_of_encode_is_identity(shape: str, known: bool, schemas: bool) -> None:
    rng = random.Random(7)
    data = [random_change(rng, n) for n in range(200)]
    if shape == "1.7":
        # That shape writes null for what a change does not carry, so it can't be told apart any more.
        for row in data:
            for image in ("before", "after"):
                if row[image] is not None and len(row[image]) < len(TABLE.columns):
                    row[image] = (
                        None if row["op"] == "u" and image == "before" else random_image(rng, int(row["key"]["id"]))
                    )
    messages = recordings.encoded(data, [TABLE], topic_prefix="server1", shape=shape, schemas_enable=schemas)
    options = {"schema": [TABLE], "topic_prefix": "server1", "shape": shape} if known else {}
    decoded = change_rows("debezium_json", as_kafka(messages), **options)
    assert decoded[0]["op"] == "schema"
    assert [row["error"] for row in decoded if row["op"] == "error"] == []
    structure = TableSchema.from_text(decoded[0]["table_schema"])
    kinds = [str(c.logical) for c in TABLE.columns]
    assert [(c.name, str(c.logical)) for c in structure.columns] == list(zip(NAMES, kinds, strict=True))
    assert structure.key == TABLE.key
    rows = [row for row in decoded[1:] if row["op"] != "tombstone"]
    assert {row["schema_id"] for row in rows} == {structure.fingerprint}
    assert len(rows) == len(data)
    for ours, original in zip(rows, data, strict=True):
        assert recordings.differences(comparable(ours), comparable(original)) == []
    tombstones = [row for row in decoded if row["op"] == "tombstone"]
    assert [row["key"] for row in tombstones] == [row["key"] for row in data if row["op"] == "d"]
    assert all(re.sub(r"\W", "_", row["table"]["name"]) == "every__type_" for row in tombstones)

"""Change rows to Maxwell messages: one message per row; members that say nothing are left out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.change_columns import BLANK, SourceFacts, empty_as_null
from headrace.formats.change_messages import (
    RowSchemas,
    are,
    counted,
    first_of,
    integers,
    message_batch,
    operations,
    picked,
    quoted,
    rows_of,
    table_part,
    topics,
    where,
)
from headrace.formats.codec import MESSAGES, Codec, Facts, in_order
from headrace.formats.images import Image
from headrace.formats.maxwell.decode import DATA, DDL
from headrace.wire.json_writer import Part, members, messages, objects, string_lists
from headrace.wire.spans import Array

_TYPES = {op: kind for kind, op in DATA.items()}
_START = rf"(?i){BLANK}*+"
_STATEMENTS = tuple(
    (re.compile(_START + pattern), kind)
    for pattern, kind in (
        (r"CREATE\s+(?:TEMPORARY\s+)?TABLE\b", "table-create"),
        (r"DROP\s+(?:TEMPORARY\s+)?TABLE\b", "table-drop"),
        (r"CREATE\s+(?:DATABASE|SCHEMA)\b", "database-create"),
        (r"ALTER\s+(?:DATABASE|SCHEMA)\b", "database-alter"),
        (r"DROP\s+(?:DATABASE|SCHEMA)\b", "database-drop"),
    )
)
_ID = re.compile(r"[0-9]{1,18}")


class MaxwellEncoder(Codec):
    """Writes messages; it holds nothing but what its facts say."""

    schema = MESSAGES

    def __init__(self, facts: Facts, topic: str) -> None:
        self._known, self._topic = RowSchemas(facts), topic

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        batches = []
        rows = rows_of(batch, tuple(_TYPES))
        if rows.size:
            kept = picked(batch, rows)
            schema_number = self._known.of(kept)
            batches.append((rows, self._messages(kept, self._values(kept, schema_number), schema_number)))
        tombstones = rows_of(batch, ("tombstone",))
        tombstones = tombstones[batch.column("key").is_valid().to_numpy(zero_copy_only=False)[tombstones]]
        if tombstones.size:
            kept = picked(batch, tombstones)
            nothing = pa.nulls(tombstones.size, pa.string())
            batches.append((tombstones, self._messages(kept, nothing, np.full(tombstones.size, -1))))
        statements = [
            (int(number), text)
            for number in rows_of(batch, ("schema",))
            if (text := _statement(batch, int(number))) is not None
        ]
        if statements:
            numbers = np.array([number for number, _ in statements])
            kept, texts = picked(batch, numbers), pa.array([text for _, text in statements], pa.string())
            batches.append((numbers, self._messages(kept, texts, np.full(numbers.size, -1))))
        if batches:
            yield in_order(batches)

    def _messages(self, rows: pa.RecordBatch, values: pa.StringArray, schema_number: Array) -> pa.RecordBatch:
        keys = Image.of_maps(rows.column("key"))
        plain = self._known.plain(keys, schema_number)
        names = pc.binary_join_element_wise("pk.", keys.names, "")
        columns = objects(keys.entries, names, keys.values, plain)
        empty = pc.equal(columns, "{}")
        after = pc.if_else(empty, "}", pc.binary_replace_slice(columns, 0, 1, ","))
        database, table = (Part(table_part(rows, name), quoted=True) for name in ("database", "name"))
        texts = messages(['{"database":', database, ',"table":', table, Part(after)], rows.num_rows)
        key = where(keys.entries.present, texts)
        return message_batch(rows, topics(rows, self._topic), values, key)

    def _values(self, rows: pa.RecordBatch, schema_number: Array) -> pa.StringArray:
        is_delete = are(rows, "d")
        before, after = (self._known.image(rows, name) for name in ("before", "after"))
        old = before.where(are(rows, "u")).changed_from(after, rows.column("changed"))
        after, before = after.where(~is_delete), before.where(is_delete)
        image = first_of(self._known.json(after, schema_number), self._known.json(before, schema_number))
        keys = Image.of_maps(rows.column("key"))
        entries = keys.entries
        key = string_lists(entries.offsets, keys.values, entries.present, self._known.plain(keys, schema_number))
        transaction = rows.column("transaction")
        order = pc.struct_field(transaction, "total_order")
        order = pc.subtract(pc.if_else(pc.greater(order, 0), order, None), 1)
        facts = SourceFacts(rows)
        index = pc.binary_join_element_wise(facts.texts("file"), facts.texts("pos"), ":")
        thread = pc.coalesce(facts.texts("thread_id"), facts.texts("thread"))
        commit = pc.if_else(pc.equal(facts.texts("commit"), "true"), "true", pa.scalar(None, pa.string()))
        return members(
            {
                "database": Part(table_part(rows, "database"), quoted=True),
                "table": Part(empty_as_null(table_part(rows, "name")), quoted=True),
                "query": Part(facts.texts("query"), quoted=True),
                "type": Part(operations(rows, _TYPES), quoted=True),
                "ts": Part(counted(rows.column("event_time"), 1_000_000)),
                "xid": Part(_ids(pc.struct_field(transaction, "id"))),
                "xoffset": Part(order.cast(pa.string())),
                "commit": Part(commit),
                "position": Part(pc.coalesce(facts.texts("position"), index), quoted=True),
                "gtid": Part(facts.texts("gtid"), quoted=True),
                "server_id": Part(integers(facts.texts("server_id"))),
                "thread_id": Part(integers(thread)),
                "primary_key": Part(key),
                "primary_key_columns": Part(self._known.keys(rows, schema_number)),
                "data": Part(image),
                "old": Part(self._known.json(old, schema_number)),
            },
            rows.num_rows,
        )


def _ids(texts: pa.StringArray) -> pa.StringArray:
    """Ids of transactions as JSON: MySQL's are numbers, those of other sources texts."""
    codes = texts.dictionary_encode()
    quoted_ids = [text if _ID.fullmatch(text) else quoted(text) for text in codes.dictionary.to_pylist()]
    return pa.array(quoted_ids, pa.string()).take(codes.indices)


def _statement(batch: pa.RecordBatch, number: int) -> str | None:
    """The message of a DDL text; None where the row has none."""
    row: dict[str, Any] = {name: batch.column(name)[number].as_py() for name in ("table", "source")}
    source, table = dict(row["source"] or ()), row["table"] or {}
    sql = SourceFacts(batch.slice(number, 1)).statements()[0].as_py()
    if sql is None:
        return None
    stated = source.get("type")
    kind = next((kind for pattern, kind in _STATEMENTS if pattern.match(sql)), "table-alter")
    ts = counted(batch.column("event_time").slice(number, 1), 1000)[0].as_py()
    parts = [
        ("database", quoted(table.get("database") or "")),
        ("table", quoted(table["name"]) if table.get("name") else None),
        ("type", quoted(stated if stated in DDL else kind)),
        ("ts", ts),
        ("commit", "true" if source.get("commit") == "true" else None),
        ("sql", quoted(sql)),
    ]
    return "{" + ",".join(f'"{name}":{text}' for name, text in parts if text is not None) + "}"

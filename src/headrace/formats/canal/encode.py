"""Change rows to Canal messages: one message per row, all keys in Canal's order, values as strings.

The parts of a message that its table decides (`mysqlType`, `sqlType`, `pkNames`) are JSON texts made once per table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import TableSchema
from headrace.formats.canal.decode import BEFORE_DDL
from headrace.formats.canal.types import mysql_type_of
from headrace.formats.canal.values import CanalEncoding
from headrace.formats.change_columns import SourceFacts
from headrace.formats.change_messages import (
    RowSchemas,
    are,
    counted,
    integers,
    message_batch,
    operations,
    picked,
    quoted,
    rows_of,
    table_part,
    topics,
)
from headrace.formats.codec import MESSAGES, Codec, Facts, in_order
from headrace.formats.images import Image
from headrace.wire.json_writer import Part, messages, to_text
from headrace.wire.spans import Array

_TYPES = {"c": "INSERT", "u": "UPDATE", "d": "DELETE"}
_ROWS = ("r", "c", "u", "d")
_DDL_TYPES = tuple(
    (re.compile(BEFORE_DDL + pattern), word)
    for pattern, word in (
        (r"CREATE\s+(?:UNIQUE\s+|FULLTEXT\s+|SPATIAL\s+)?INDEX\b", "CINDEX"),
        (r"DROP\s+INDEX\b", "DINDEX"),
        (r"CREATE\s+(?:TEMPORARY\s+)?TABLE\b", "CREATE"),
        (r"DROP\s+(?:TEMPORARY\s+)?TABLE\b", "ERASE"),
        (r"ALTER\s+TABLE\b", "ALTER"),
        (r"RENAME\s+TABLE\b", "RENAME"),
        (r"TRUNCATE\b", "TRUNCATE"),
    )
)
_NATIVE_DDL = ("CREATE", "ALTER", "ERASE", "TRUNCATE", "RENAME", "CINDEX", "DINDEX")


@dataclass(frozen=True)
class EncodeSettings:
    """How messages are written.

    Args:
        dts: whether as Alibaba DTS writes them: INIT for snapshot rows, whole old rows, short DDL messages.
        zone: the zone that instants are written in; UTC where None.
        base64: whether bytes are written as base64 and not as characters.
        topic: the template of topics.
        with_key: whether messages get the row's key as Kafka key.
    """

    dts: bool
    zone: str | None
    base64: bool
    topic: str
    with_key: bool


@dataclass(frozen=True)
class _TableTexts:
    """What a schema says in each message of its rows: JSON texts, and how values are written."""

    mysql_types: str
    sql_types: str
    encodings: dict[str, CanalEncoding] = field(default_factory=dict)

    @classmethod
    def of(cls, schema: TableSchema, writing: EncodeSettings) -> _TableTexts:
        types = {c.name: mysql_type_of(c, zoned=writing.zone is not None) for c in schema.columns}
        encodings = {c.name: CanalEncoding.of(c, base64=writing.base64, zone=writing.zone) for c in schema.columns}
        return cls(
            to_text({name: encoded.text for name, encoded in types.items()}),
            to_text({name: encoded.sql_type for name, encoded in types.items()}),
            {name: encoding for name, encoding in encodings.items() if encoding is not None},
        )


class CanalEncoder(Codec):
    """Writes messages; it holds nothing but what its facts say."""

    schema = MESSAGES

    def __init__(self, facts: Facts, writing: EncodeSettings) -> None:
        self._writing, self._known = writing, RowSchemas(facts)
        self._table_texts = [_TableTexts.of(schema, writing) for schema in self._known.all]
        self._encodings = list(dict.fromkeys(s for known in self._table_texts for s in known.encodings.values()))
        self._encoded_as = [
            {name: self._encodings.index(encoding) + 1 for name, encoding in known.encodings.items()}
            for known in self._table_texts
        ]

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        rows = rows_of(batch, _ROWS)
        others = [
            (int(number), text)
            for number in rows_of(batch, ("t", "schema"))
            if (text := self._statement(batch, int(number))) is not None
        ]
        batches = []
        if rows.size:
            kept = picked(batch, rows)
            batches.append((rows, self._messages(kept, self._values(kept))))
        if others:
            numbers = np.array([number for number, _ in others])
            values = pa.array([text for _, text in others], pa.string())
            batches.append((numbers, self._messages(batch.take(pa.array(numbers)), values)))
        if batches:
            yield in_order(batches)

    def _messages(self, rows: pa.RecordBatch, values: pa.StringArray) -> pa.RecordBatch:
        key = rows.column("key_text") if self._writing.with_key else None
        return message_batch(rows, topics(rows, self._writing.topic), values, key)

    def _values(self, rows: pa.RecordBatch) -> pa.StringArray:
        schema_number = self._known.of(rows)
        before, after = (self._image(rows, name, schema_number) for name in ("before", "after"))
        old = before.where(are(rows, "u"))
        if not self._writing.dts:
            old = old.changed_from(after, rows.column("changed"))
        data = pc.if_else(pa.array(are(rows, "d")), before.json(), after.json())
        types = operations(rows, {**_TYPES, "r": "INIT" if self._writing.dts else "INSERT"})
        typed = rows.column("has_types").to_numpy(zero_copy_only=False).astype(bool) & (schema_number >= 0)
        facts = _Facts(rows)
        return messages(
            [
                '{"data":', Part(_in_array(data)), ',"database":', Part(table_part(rows, "database"), quoted=True),
                ',"es":', Part(facts.es), ',"gtid":', Part(facts.gtid, quoted=True), ',"id":', Part(facts.id),
                ',"isDdl":false,"mysqlType":', Part(self._of_tables("mysql_types", np.where(typed, schema_number, -1))),
                ',"old":', Part(_in_array(old.json())), ',"pkNames":', Part(self._known.keys(rows, schema_number)),
                ',"sql":"","sqlType":', Part(self._of_tables("sql_types", np.where(typed, schema_number, -1))),
                ',"table":', Part(table_part(rows, "name"), quoted=True), ',"ts":', Part(facts.ts),
                ',"type":"', Part(types), '"}',
            ],
            rows.num_rows,
        )  # fmt: skip

    def _image(self, rows: pa.RecordBatch, name: str, schema_number: Array) -> Image:
        return self._with_texts(self._known.image(rows, name), schema_number)

    def _with_texts(self, image: Image, schema_number: Array) -> Image:
        return image.with_texts(schema_number, self._encoded_as, dict(enumerate((s.wire for s in self._encodings), 1)))

    def _of_tables(self, name: str, schema_number: Array) -> pa.StringArray:
        texts = pa.array([getattr(known, name) for known in self._table_texts], pa.string())
        return texts.take(pa.array(schema_number, mask=schema_number < 0))

    def _statement(self, batch: pa.RecordBatch, number: int) -> str | None:
        """The message of a truncate or of a DDL text; None where the row has no text to give."""
        row: dict[str, Any] = {
            name: batch.column(name)[number].as_py() for name in ("op", "table", "source", "event_time", "capture_time")
        }
        source, table = dict(row["source"] or ()), row["table"] or {}
        sql = SourceFacts(batch.slice(number, 1)).statements()[0].as_py()
        if row["op"] == "schema" and sql is None:
            return None
        name = table.get("name") or ""
        if row["op"] == "t":
            sql = sql or "TRUNCATE TABLE `" + name.replace("`", "``") + "`"
        kind = _ddl_type(row["op"], source.get("type"), sql or "")
        facts = _Facts(batch.slice(number, 1))
        es, ts, id = (
            "null" if (value := fact[0].as_py()) is None else value for fact in (facts.es, facts.ts, facts.id)
        )
        gtid, table_name = quoted(source.get("gtid") or ""), quoted(name)
        database, text = quoted(table.get("database") or ""), quoted(sql or "")
        if self._writing.dts:
            return (
                f'{{"database":{database},"es":{es},"id":{id},"isDdl":true,"sql":{text},"table":{table_name},"ts":{ts},'
                '"type":"DDL"}'
            )
        return (
            f'{{"data":null,"database":{database},"es":{es},"gtid":{gtid},"id":{id},"isDdl":true,"mysqlType":null,'
            f'"old":null,"pkNames":null,"sql":{text},"sqlType":null,"table":{table_name},"ts":{ts},"type":"{kind}"}}'
        )


class _Facts:
    """What messages say beside their rows. `id`, `gtid` and `ts` are those of a Canal message a row came from."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self.es = counted(rows.column("event_time"), 1000)
        facts = SourceFacts(rows)
        self.id = integers(facts.texts("id")).fill_null("0")
        self.gtid = facts.texts("gtid").fill_null("")
        stated = integers(facts.texts("ts"))
        self.ts = (
            pc.coalesce(stated, counted(rows.column("capture_time"), 1000).cast(pa.string()))
            if stated.null_count
            else stated
        )


def _in_array(texts: pa.StringArray) -> pa.StringArray:
    """JSON texts as arrays of one; null stays null."""
    return pc.binary_join_element_wise("[", texts, "]", "")


def _ddl_type(op: str, stated: str | None, sql: str) -> str:
    if op == "t":
        return "TRUNCATE"
    if stated in _NATIVE_DDL:
        return str(stated)
    return next((word for pattern, word in _DDL_TYPES if pattern.match(sql)), "QUERY")

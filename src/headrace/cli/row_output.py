"""Change rows as `headrace decode` prints them: for a person, or one JSON object per line."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from headrace.changes import Column, TableId, TableSchema
from headrace.changes.row import Operation
from headrace.changes.texts import text_image
from headrace.formats.given import logical_type

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField

Row = dict[str, Any]
"""A change row as plain values: maps as dicts from column to text, times as ISO 8601, key and value of the message as
bytes."""

_LONGEST = 200
_NULL = "NULL"
_NOT_SENT = "(not sent)"
_ARROW = " -> "
_WORDS = {
    Operation.READ: "read",
    Operation.CREATE: "create",
    Operation.UPDATE: "update",
    Operation.DELETE: "delete",
    Operation.TRUNCATE: "truncate",
}


def collect_rows(changes: DataFrame) -> list[Row]:
    """All change rows on the driver. Images may be maps or structs; either way they come as dicts of canonical text
    without the columns that the message did not carry."""
    selected = []
    for field in changes.schema.fields:
        kind = field.dataType.simpleString()
        if kind == "timestamp":
            selected.append(f"unix_micros({field.name}) as {field.name}")
        elif field.name in ("before", "after") and kind.startswith("struct"):
            selected.append(f"{text_image(field.name, _schema_of(field), f'{field.name}_absent')} as {field.name}")
        elif field.name == "message":
            parts = "message.topic, message.partition, message.offset, unix_micros(message.timestamp) as timestamp"
            selected.append(f"struct({parts}, message.key, message.value, message.headers) as message")
        else:
            selected.append(f"`{field.name}`")
    rows: list[Row] = changes.selectExpr(*selected).toArrow().to_pylist()
    return [_plain(row) for row in rows]


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    """The same for change rows with map images that are in this process already."""
    import pyarrow as pa

    rows: list[Row] = []
    for batch in batches:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        for name in ("event_time", "capture_time"):
            columns[name] = columns[name].cast(pa.int64())
        message = columns["message"]
        parts = dict(zip((field.name for field in message.type), message.flatten(), strict=True))
        parts["timestamp"] = parts["timestamp"].cast(pa.int64())
        columns["message"] = pa.StructArray.from_arrays(list(parts.values()), list(parts))
        rows += [_plain(row) for row in pa.RecordBatch.from_pydict(columns).to_pylist()]
    return rows


def _schema_of(field: StructField) -> TableSchema:
    columns: Any = field.dataType
    return TableSchema(
        TableId("", "", ""),
        tuple(Column(c.name, n, logical_type(c.dataType, c.name)) for n, c in enumerate(columns.fields, 1)),
        (),
    )


def _plain(row: Row) -> Row:
    plain = dict(row)
    for name in ("key", "before", "after", "source"):
        plain[name] = None if row[name] is None else dict(row[name])
    for name in ("event_time", "capture_time"):
        plain[name] = time_text(row[name])
    if row["message"] is not None:
        plain["message"] = {**row["message"], "timestamp": time_text(row["message"]["timestamp"])}
    return plain


def time_text(micros: int | None) -> str | None:
    """An instant of any year as ISO 8601."""
    import numpy as np

    return None if micros is None else f"{np.datetime64(micros, 'us')}Z"


def error_row(text: bytes, why: str) -> Row:
    """The `error` row of input that is not a message."""
    from headrace.changes import arrow_schema

    message = {"topic": None, "partition": None, "offset": None, "timestamp": None, "key": None, "headers": None}
    return {**dict.fromkeys(arrow_schema().names), "op": "error", "message": {**message, "value": text}, "error": why}


# --- JSON ---------------------------------------------------------------------------------------------------------


def json_line(row: Row, line: int | None) -> str:
    """A change row as one line of JSON, with the number of the line that it was read from."""
    message = row["message"]
    if message is not None:
        headers = message["headers"]
        message = {
            **message,
            "key": _bytes_json(message["key"]),
            "value": _bytes_json(message["value"]),
            "headers": headers and [{"key": h["key"], "value": _bytes_json(h["value"])} for h in headers],
        }
    return json.dumps({"line": line, **row, "message": message}, ensure_ascii=False)


def _bytes_json(data: bytes | None) -> str | dict[str, str] | None:
    """Bytes as `--input records` takes them again."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


# --- for a person -------------------------------------------------------------------------------------------------


def text_lines(row: Row, line: int | None) -> Iterator[str]:
    """A change row as lines: what happened where, then the columns; a value that has changed as `old -> new`."""
    where = "" if line is None else f"line {line}: "
    if row["op"] == Operation.ERROR:
        yield f"{where}error: {row['error']}"
        yield from _raw_lines(row["message"])
        return
    facts = [" ".join(filter(None, (_WORDS.get(row["op"], row["op"]), table_name(row["table"]))))]
    if row["key"]:
        facts.append("key " + ", ".join(f"{name}={shown(text)}" for name, text in row["key"].items()))
    if row["snapshot"]:
        facts.append(f"snapshot {row['snapshot']}")
    if row["transaction"] is not None:
        facts.append(f"transaction {row['transaction']['id']}")
    if row["event_time"]:
        facts.append(row["event_time"])
    yield where + "; ".join(facts)
    yield from _columns(row["before"], row["after"])
    if row["changed"] is not None:
        yield f"  changed: {', '.join(map(shown, row['changed'])) or 'nothing'}"
    if row["table_schema"] is not None:
        yield f"  schema: {_schema_text(row['table_schema'])}"
    if row["source"]:
        yield "  source: " + ", ".join(f"{name}={shown(text)}" for name, text in row["source"].items())


def _raw_lines(message: Mapping[str, Any] | None) -> Iterator[str]:
    for part in ("key", "value"):
        data = message[part] if message is not None else None
        if data is not None:
            yield f"  {part}: {shown(_raw(data))}"


def _raw(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"base64 {base64.b64encode(data).decode()}"


def table_name(table: Mapping[str, str | None] | None) -> str:
    """`database.schema.table` without the parts that are not known."""
    return ".".join(part for part in (table or {}).values() if part)


def _columns(before: Mapping[str, str | None] | None, after: Mapping[str, str | None] | None) -> Iterator[str]:
    if before is None or after is None:
        image: Mapping[str, str | None] = (after if before is None else before) or {}
        cells = {name: shown(text) for name, text in image.items()}
    else:
        cells = {name: _change(before, after, name) for name in dict.fromkeys([*after, *before])}
    width = min(max(map(len, cells), default=0), 40)
    for name, cell in cells.items():
        yield f"  {shown(name):{width}}  {cell}"


def _change(before: Mapping[str, str | None], after: Mapping[str, str | None], name: str) -> str:
    if name in before and name in after and before[name] == after[name]:
        return shown(after[name])
    old, new = (shown(image[name]) if name in image else _NOT_SENT for image in (before, after))
    return f"{old}{_ARROW}{new}"


def shown(text: str | None) -> str:
    """A value in one line: as JSON if it could be mistaken for something else, and shortened if it is long."""
    if text is None:
        return _NULL
    if len(text) > _LONGEST:
        return f"{shown(text[:_LONGEST])}... ({len(text):,} characters)"
    odd = text in ("", _NULL, _NOT_SENT) or text != text.strip() or _ARROW in text or not text.isprintable()
    return json.dumps(text, ensure_ascii=not text.isprintable()) if odd else text


def _schema_text(text: str) -> str:
    schema = TableSchema.from_json(json.loads(text))
    columns = (f"{shown(c.name)} {c.logical}{'' if c.nullable else ' not null'}" for c in schema.columns)
    key = f"; key {', '.join(schema.key)}" if schema.key else ""
    return ", ".join(columns) + key


def counts_text(operations: Iterable[str], messages: int, silent: int) -> str:
    """`5 messages: 3 create, 1 error; 1 is not an event`."""
    counts: dict[str, int] = {}
    for operation in operations:
        word = _WORDS.get(Operation(operation), operation)
        counts[word] = counts.get(word, 0) + 1
    listed = ", ".join(f"{count} {word}" for word, count in counts.items()) or "no rows"
    text = f"{messages} message{'' if messages == 1 else 's'}: {listed}"
    if silent:
        text += f"; {silent} {'is not an event' if silent == 1 else 'are not events'}"
    return f"{text}."

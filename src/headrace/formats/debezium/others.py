"""Messages that are no rows in the ordinary form: schema changes, edges of transactions, heartbeats, logical messages,
and what can't be read. Each is looked at by itself."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.formats.change_columns import FIRST_MS, LAST_MS, error_row, present, single_row
from headrace.formats.debezium.message import TRANSACTION, Messages
from headrace.formats.debezium.payload import Converter
from headrace.formats.debezium.refused import CONNECTORS, FORMS, foreign_form
from headrace.formats.debezium.schemas import DecodeSettings
from headrace.formats.debezium.table_changes import table_changes
from headrace.formats.debezium.values import HEX, URL_SAFE, FieldEncoding
from headrace.wire.json_exact import ARRAY
from headrace.wire.names import Names

EVENT_FORM = "The value does not have the form of a Debezium event."
OWN_FACTS = ("ts_ms", "ts_us", "ts_ns", "snapshot", "db", "schema", "table")
"""What the source block says that the change row has in columns of its own."""

_OPERATIONS = "r, c, u, d, t, m"
_LSN = re.compile(r"[0-9a-f]{8}:[0-9a-f]{8}:[0-9a-f]{4}")
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_MESSAGE = Names([("prefix", "content")])
_CONTENT = {"hex": FieldEncoding(HEX), "base64-url-safe": FieldEncoding(URL_SAFE)}
"""How the content of a logical message is written where it is not in base64, as rows have it."""
_SERVER = Names([("serverName",)])


def other_rows(
    batch: pa.RecordBatch, messages: Messages, reading: DecodeSettings, number: int, converter: Converter
) -> list[dict[str, Any]]:
    """The rows of a message that is not ordinary: events, no event (its `op` is null), or an error."""
    one = _Message(batch, messages, reading, number, converter)
    problem = one.problem()
    if problem is None:
        return one.rows()
    return [error_row(batch, number, problem)]


class _Message:
    def __init__(
        self, batch: pa.RecordBatch, messages: Messages, reading: DecodeSettings, number: int, converter: Converter
    ) -> None:
        self._batch, self._messages, self._reading, self._number = batch, messages, reading, number
        self._converter = converter

    def _text(self, name: str) -> str | None:
        return self._messages.text(name, self._number)

    def _fact(self, name: str) -> str | None:
        return self._messages.source.text(name, self._number)

    def problem(self) -> str | None:
        """Why it can't be read; None where it can."""
        messages, number = self._messages, self._number
        for part in (messages.value, messages.key):
            if number in part.problems:
                return part.problems[number]
        key_kind = messages.key.tape.kinds(messages.key.at[number : number + 1])[0]
        if key_kind == ARRAY:
            return "The key is not a JSON object."
        if messages.empty[number]:
            return None
        refused = None if messages.flat[number] else CONNECTORS.get(self._fact("connector") or "")
        if refused is not None and self._text("op") is not None:
            return refused
        form = foreign_form(messages.tape, messages.value.at[number : number + 1])[0]
        if form >= 0:
            return FORMS[form]
        if not messages.form[number] or not self._has_integers():
            return EVENT_FORM
        kind = self._kind()
        if kind is None:
            return "The value is not a data change event."
        if kind == "data" and self._text("op") != "m":
            return f"The operation is not one of {_OPERATIONS}."
        return None

    def _has_integers(self) -> bool:
        texts = [self._text(name) for name in ("ts_ms", "event_count")]
        return all(text is None or _INTEGER.fullmatch(text) for text in texts)

    def _kind(self) -> str | None:
        """What the message is: `data`, `begin`, `end`, `schema`, `heartbeat`, `none` for what is not an event."""
        messages, number = self._messages, self._number
        has_image = any(self._text(name) is not None for name in ("before", "after"))
        has_source = bool(messages.has_source[number])
        op, status = self._text("op"), self._text("status")
        if op is not None or messages.flat[number]:
            return "data" if has_source or has_image or op in ("t", "m") else None
        if status in ("BEGIN", "END") and self._text("id") is not None:
            return status.lower()
        if has_source and (self._text("tableChanges") is not None or self._text("ddl") is not None):
            return "schema"
        if self._text("aggregate_type") is not None and self._text("type") is not None:
            return "none"
        if self._text("ts_ms") is not None and not has_source and not has_image and self._is_heartbeat():
            return "heartbeat"
        return None

    def _is_heartbeat(self) -> bool:
        key, number = self._messages.key, self._number
        at = np.ascontiguousarray(key.at[number : number + 1])
        schema = int(self._messages.value.schema[number])
        topic = self._batch.column("topic")[number].as_py()
        return bool(
            key.tape.is_value(key.tape.fields(at, _SERVER)[0])[0]
            or (schema >= 0 and '.Heartbeat"' in self._converter.values.texts[schema])
            or (topic is not None and topic.startswith(self._reading.heartbeats))
        )

    def rows(self) -> list[dict[str, Any]]:
        kind = self._kind()
        if self._messages.empty[self._number]:
            return [self._row("tombstone")]
        if kind == "schema":
            return self._schema_rows()
        if kind == "data":
            return [self._logical_message()]
        moment = _moment(self._text("ts_ms"), None)
        if kind == "heartbeat":
            row = self._row("heartbeat") | {"event_time": moment, "source": []}
            return [row if moment is None else row | {"capture_time": moment}]
        if kind == "none":
            return [self._row(None) | {"event_time": moment}]
        id, count = self._text("id"), self._text("event_count")
        lsn = id if id is not None and _LSN.fullmatch(id) else None
        # The message does not name its connector; an LSN of this form is SQL Server's.
        facts = {
            "connector": "sqlserver" if lsn else None,
            "commit_lsn": lsn,
            "data_collections": self._text("data_collections"),
        }
        return [
            self._row(kind)
            | {
                "event_time": moment,
                "transaction": {"id": id, "total_order": None if count is None else int(count)},
                "source": present(facts),
            }
        ]

    def _row(self, op: str | None, index: int = 0) -> dict[str, Any]:
        return single_row(self._batch, self._number, index or None) | {"op": op}

    def _facts(self) -> dict[str, str | None] | None:
        """The facts of the source block; None without one."""
        messages, number = self._messages, self._number
        at = messages.index("source", np.array([number]))
        if not messages.tape.is_value(at)[0]:
            return None
        members = messages.tape.members(at)
        names, texts = (messages.tape.texts(part).to_pylist() for part in (members.names, members.values))
        return {name: text for name, text in zip(names, texts, strict=True) if name not in OWN_FACTS}

    def _schema_rows(self) -> list[dict[str, Any]]:
        payload = self._messages.tape.text(self._messages.value.at[self._number])
        try:
            changes = table_changes(json.loads(payload or "null"))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            changes = []
        return [self._schema_row(change, index) for index, change in enumerate(changes or [{}])]

    def _schema_row(self, change: Mapping[str, Any], index: int) -> dict[str, Any]:
        facts = (self._facts() or {}) | {"ddl": None, "change": None}
        table = {
            "database": _first(change.get("database"), self._text("databaseName"), self._fact("db")),
            "schema": _first(change.get("schema"), self._text("schemaName"), self._fact("schema")),
            "name": _first(change.get("name"), self._fact("table")),
        }
        return self._row("schema", index) | {
            "table": table,
            "event_time": _moment(self._fact("ts_ms"), self._fact("ts_us")),
            "snapshot": self._snapshot(),
            "source": present(facts | {"change": change.get("change"), "ddl": self._text("ddl")}),
            "schema_id": change.get("id"),
            "table_schema": change.get("text"),
        }

    def _snapshot(self) -> str | None:
        snapshot = self._fact("snapshot")
        return None if snapshot == "false" else snapshot

    def _logical_message(self) -> dict[str, Any]:
        messages, number = self._messages, self._number
        tape = messages.tape
        at = messages.index("message", np.array([number]))
        prefix, content = (tape.text(token[0]) for token in tape.fields(at, _MESSAGE))
        encoding = _CONTENT.get(self._reading.binary)
        if content is not None and encoding is not None:
            content = encoding.text(content)
        facts = (self._facts() or {}) | {"prefix": prefix, "content": content, "db": self._fact("db") or None}
        id, *orders = (messages.transaction.text(name, number) for name in TRANSACTION)
        transaction = dict(zip(TRANSACTION, (id, *(_order(order) for order in orders)), strict=True))
        has_transaction = self._text("transaction") is not None
        return self._row("message") | {
            "event_time": _moment(self._fact("ts_ms"), self._fact("ts_us")),
            "snapshot": self._snapshot(),
            "transaction": transaction if has_transaction else None,
            "source": present(facts),
        }


def _first(*texts: str | None) -> str:
    return next((text for text in texts if text is not None), "")


def _order(text: str | None) -> int | None:
    """An order of a transaction; 0, which no change has, is one that the writer did not know."""
    return None if text is None or not _INTEGER.fullmatch(text) else int(text) or None


def _moment(millis: str | None, micros: str | None) -> int | None:
    """An instant in microseconds; None beyond the years 1 to 9999, and for what is not a number."""
    for text, unit in ((micros, 1), (millis, 1000)):
        if text is not None and _INTEGER.fullmatch(text):
            moment = int(text) * unit
            return moment if FIRST_MS * 1000 <= moment <= LAST_MS * 1000 + 999 else None
    return None

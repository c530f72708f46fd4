"""The change rows of a window, made one message at a time by the exact reader: what the decoder has to give, too."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from headrace.changes.texts import key_text
from headrace.sources.postgresql.pgoutput import (
    Begin,
    Cell,
    Commit,
    Delete,
    Insert,
    Keepalive,
    Message,
    Origin,
    Truncate,
    Unchanged,
    Update,
    Values,
    read,
)
from headrace.sources.postgresql.relation import Relation
from headrace.sources.stream_options import events_of_key_change
from headrace.sources.tables.masks import Masks

Row = dict[str, Any]
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_NOTHING = (
    "op", "table", "key", "key_text", "before", "after", "position", "event_time", "transaction", "source", "schema_id",
    "table_schema",
)  # fmt: skip


class ExactRows:
    """Reads one window.

    Args:
        start, end: its boundaries.
        table_of: the captured table of a relation, with that under the names that rows have; null for none.
        settings: the source's options.
        capture_time: when the batch was planned.
    """

    def __init__(self, start: int, end: int, table_of: Any, settings: Any, capture_time: dt.datetime) -> None:
        self._start, self._end, self._table_of, self._settings = start, end, table_of, settings
        self._capture_time = capture_time
        self._relations: dict[int, Any] = {}
        self._announced: dict[int, str] = {}
        self._previous = start
        self._begin = Begin(0, 0, 0)
        self._origin: Origin | None = None
        self._ordinal = 0
        self._events: dict[str, int] = {}

    def rows(self, payloads: Iterable[bytes]) -> Iterator[Row]:
        """The rows in their order."""
        for payload in payloads:
            message = read(payload)
            if isinstance(message, Keepalive):
                continue
            content = message.content
            if isinstance(content, Begin):
                if content.commit >= self._end:
                    return
                self._begin, self._origin, self._ordinal, self._events = content, None, 0, {}
            elif isinstance(content, Commit):
                if self._events and self._settings.provide_transaction_metadata:
                    yield self._edge("end", "z", sum(self._events.values()))
                self._previous = content.end
            elif isinstance(content, Origin):
                self._origin = content
            elif isinstance(content, Relation):
                self._relations[content.oid] = self._table_of(content) or (content, None)
            else:
                yield from self._of(message.start, content)

    def _of(self, place: int, content: Any) -> Iterator[Row]:
        if isinstance(content, Message) and not content.transactional:
            if self._start < content.lsn <= self._end and self._keeps(content):
                commit = f"{content.lsn - 1:016x}"
                row = self._row("message", f"{commit}/0000000001/", place)
                row["source"] = self._source(place, xid=False) | self._said(content)
                row["event_time"] = self._capture_time
                yield row
            return
        if isinstance(content, Insert | Update | Delete | Truncate | Message):
            self._ordinal += 1
        if self._begin.commit < self._start:
            return
        if isinstance(content, Message) and self._keeps(content):
            row = self._row("message", self._position(), place)
            row["source"] |= self._said(content)
            yield from self._numbered(row, "message", 1)
        elif isinstance(content, Truncate) and "t" not in self._settings.skipped_operations:
            found = [(sub, oid) for sub, oid in enumerate(content.oids) if self._relations[oid][1] is not None]
            # The schema rows of all come before, as their positions say.
            made = [list(self._change("t", oid, place, None, None, False, f"{sub:05}")) for sub, oid in found]
            yield from sorted((row for rows in made for row in rows), key=lambda row: row["position"])
        elif isinstance(content, Insert):
            yield from self._change("c", content.oid, place, None, content.new, False)
        elif isinstance(content, Update):
            yield from self._change("u", content.oid, place, content.old, content.new, content.by_key)
        elif isinstance(content, Delete):
            yield from self._change("d", content.oid, place, content.old, None, content.by_key)

    def _change(
        self, op: str, oid: int, place: int, old: Values | None, new: Values | None, by_key: bool, sub: str = ""
    ) -> Iterator[Row]:
        relation, table = self._relations[oid]
        if table is None or op in self._settings.skipped_operations:
            return
        if by_key and old is not None:
            old = tuple(Unchanged() if value is None else value for value in old)
        if old is not None and new is not None:
            new = tuple(o if isinstance(n, Unchanged) else n for o, n in zip(old, new, strict=True))
        before, after = (self._image(table, relation, values) for values in (old, new))
        key_of = after if after is not None else before
        key = None if not table.schema.key or key_of is None else {name: key_of[name] for name in table.schema.key}
        if op == "u" and self._settings.skip_messages_without_change and before == after:
            return
        moved = op == "u" and before is not None and any(before.get(n, key[n]) != key[n] for n in table.schema.key)
        weight = events_of_key_change(self._settings.skipped_operations) if moved else 1
        if not weight and self._settings.provide_transaction_metadata:
            return
        row = self._row(op, self._position(sub), place)
        row |= {
            "table": dict(zip(("database", "schema", "name"), table.id.__dict__.values(), strict=True)),
            "key": key,
            "key_text": None if key is None else key_text(list(key.values())),
            "before": before,
            "after": after,
            "schema_id": table.schema.fingerprint,
        }
        rows = list(self._numbered(row, table.id.path, weight))
        if self._announced.get(oid) != table.schema.fingerprint:
            self._announced[oid] = table.schema.fingerprint
            announced = self._row("schema", self._position(sub, schema=True), place)
            said = {"table": row["table"], "schema_id": row["schema_id"], "table_schema": table.schema.to_text()}
            rows.insert(len(rows) - 1, announced | said)
        yield from rows

    def _image(self, table: Any, relation: Relation, values: Values | None) -> dict[str, str | None] | None:
        if values is None:
            return None
        names = [column.name for column in relation.columns]
        masks = Masks.of(self._settings).of_table(table.schema, table.natives)
        found: dict[str, str | None] = {}
        for number, (column, native) in enumerate(zip(table.schema.columns, table.natives, strict=True)):
            value: Cell = values[names.index(column.name)]
            if isinstance(value, Unchanged):
                continue
            text = native.texts(pa.array([value], pa.string()))
            for place, change, length in masks.changes:
                text = change(text, length) if place == number else text
            found[column.name] = text[0].as_py()
        return found

    def _numbered(self, row: Row, collection: str, weight: int) -> Iterator[Row]:
        if self._settings.provide_transaction_metadata:
            if not self._events:
                yield self._edge("begin", "", None)
            total, own = sum(self._events.values()), self._events.get(collection, 0)
            row["transaction"] = {"id": self._id, "total_order": total + 1, "data_collection_order": own + 1}
            self._events[collection] = own + weight
        yield row

    def _edge(self, op: str, order: str, total: int | None) -> Row:
        row = self._row(op, f"{self._begin.commit:016x}/{order}/", self._begin.commit)
        row["transaction"] = {"id": self._id, "total_order": total, "data_collection_order": None}
        if op == "end":
            found = [{"data_collection": name, "event_count": count} for name, count in self._events.items()]
            row["source"]["data_collections"] = json.dumps(found, separators=(",", ":"), ensure_ascii=False)
        return row

    @property
    def _id(self) -> str:
        return f"{self._begin.xid}:{self._begin.commit}"

    def _position(self, sub: str = "", *, schema: bool = False) -> str:
        order = f"{self._ordinal - 1:010}s" if schema else f"{self._ordinal:010}"
        return f"{self._begin.commit:016x}/{order}/{sub}"

    def _row(self, op: str, position: str, place: int) -> Row:
        row: Row = dict.fromkeys(_NOTHING)
        time = _EPOCH + dt.timedelta(microseconds=self._begin.time)
        return row | {"op": op, "position": position, "event_time": time, "source": self._source(place)}

    def _source(self, place: int, *, xid: bool = True) -> dict[str, str]:
        found = {"connector": "postgresql"}
        if xid:
            found["txId"] = str(self._begin.xid)
        found |= {"lsn": str(place), "sequence": f'["{self._previous}","{place}"]'}
        if xid and self._origin is not None:
            found |= {"origin": self._origin.name, "origin_lsn": str(self._origin.commit)}
        return found

    def _said(self, message: Message) -> dict[str, str]:
        content = base64.b64encode(message.content).decode()
        said = {"prefix": message.prefix, "content": content, "transactional": str(message.transactional).lower()}
        return {"db": self._settings.database, **said}

    def _keeps(self, message: Message) -> bool:
        return bool(self._settings.messages) and message.prefix != self._settings.signal_prefix

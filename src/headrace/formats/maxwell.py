"""Maxwell's JSON: one message per row of MySQL's binlog.

Messages of rows are read together, every other message by itself. Members of a message that say nothing are left
out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import TableId
from headrace.changes.images import constant
from headrace.changes.texts import key_text
from headrace.formats.base import FormatSettings, topic_option
from headrace.formats.change_columns import (
    BLANK,
    SourceFacts,
    empty_as_null,
    error_row,
    lower,
    numbered,
    origin_columns,
    present,
    single_row,
    snapshot_column,
    table_column,
    table_parts,
    transaction_column,
    whole_within,
)
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
from headrace.formats.codec import (
    MESSAGES,
    ArrowFormat,
    Codec,
    Facts,
    all_rows,
    change_batch,
    change_schema,
    in_order,
    kafka_batch,
)
from headrace.formats.features import Feature
from headrace.formats.given_tables import ResolvedTables, TableOptions, image_columns
from headrace.formats.images import Image
from headrace.formats.json_images import ObjectImage
from headrace.formats.json_messages import JsonMessages, unread
from headrace.formats.recognition import Evidence, Sample
from headrace.wire import typed
from headrace.wire.arrays import map_of
from headrace.wire.json_exact import ARRAY, OBJECT
from headrace.wire.json_writer import Part, members, messages, objects, string_lists
from headrace.wire.spans import Array
from headrace.wire.tape import Tape

DATA = {"insert": "c", "update": "u", "delete": "d", "bootstrap-insert": "r"}
"""The types of messages of rows, and the operation of their rows."""
DDL = ("table-create", "table-alter", "table-drop", "database-create", "database-alter", "database-drop")
NO_EVENT = ("bootstrap-start", "bootstrap-complete")
HEARTBEAT = "heartbeat"
FACTS = ("position", "gtid", "server_id", "thread_id", "schema_id", "query", "commit")
"""Fields that a row's `source` keeps by their names."""

_FIELDS = (
    "database", "table", "type", "ts", "xid", "xoffset", "sql", "data", "old", "primary_key_columns", *FACTS,
)  # fmt: skip
_TYPE_NUMBERS = {kind: number for number, kind in enumerate(DATA)}

FIRST_SECOND, LAST_MS = -62_135_596_800, 253_402_300_799_999
# Seconds reach this number in the year 5138, milliseconds passed it in 1973.
MILLISECONDS = 100_000_000_000
_CODES = constant(list(DATA.values()))
_C, _U, _D, _R = (list(DATA.values()).index(op) for op in "cudr")
_MOST = 2**63 - 2
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
_KINDS = re.compile(r"(insert|update|delete|bootstrap-\w+|(table|database)-(create|alter|drop))")


class Messages(JsonMessages):
    """What the engine found in a batch of messages.

    `ordinary` says which are of rows and can be read; `op` is the index of their type in `DATA`.
    """

    def __init__(self, values: pa.BinaryArray, keys: pa.BinaryArray) -> None:
        tape = Tape(values)
        super().__init__(tape, tape.root, _FIELDS)
        self.op: Array = numbered(self.texts("type"), _TYPE_NUMBERS, lower)
        is_object = tape.kinds(tape.root) == OBJECT
        self.is_form: Array = is_object & self.holds(OBJECT, "data", "old") & self.holds(ARRAY, "primary_key_columns")
        self.ordinary: Array = self.is_form & (self.op >= 0) & tape.is_value(self.every("data"))
        self.keys = KafkaKeys(keys)

    def key_names(self, rows: Array) -> pa.StringArray:
        """The key columns that messages name, else their Kafka keys, as JSON arrays; null where neither does."""
        offsets, items = self.tape.items(self.index("primary_key_columns", rows))
        named = string_lists(offsets, self.tape.texts(items), np.diff(offsets) > 0)
        return pc.coalesce(named, self.keys.names(rows)) if named.null_count else named


class KafkaKeys:
    """Maxwell's Kafka keys: `{"database":..,"table":..,"pk.id":..}`, read where they are asked for."""

    def __init__(self, keys: pa.BinaryArray) -> None:
        self._keys = keys

    def names(self, rows: Array) -> pa.StringArray:
        """The key columns as JSON arrays of texts; null where a key names none."""
        if self._keys.null_count == len(self._keys):
            return pa.nulls(rows.size, pa.string())
        tape = Tape(self._keys.take(pa.array(rows)))
        members = tape.members(tape.root)
        names = tape.texts(members.names)
        kept = pc.starts_with(names, "pk.").to_numpy(zero_copy_only=False)
        row = np.repeat(np.arange(rows.size), np.diff(members.offsets))[kept]
        counts = np.bincount(row, minlength=rows.size)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        columns = pc.utf8_slice_codeunits(names.filter(pa.array(kept)), 3)
        return string_lists(offsets, columns, counts > 0)

    def parts(self, number: int) -> dict[str, str | None]:
        """The members of one key; none where it is not an object."""
        tape = Tape(self._keys.slice(number, 1))
        members = tape.members(tape.root)
        names, values = tape.texts(members.names), tape.texts(members.values)
        return dict(zip(names.to_pylist(), values.to_pylist(), strict=True))


def other_row(batch: pa.RecordBatch, messages: Messages, number: int) -> dict[str, Any]:
    """The row of a message that is not ordinary: a tombstone, DDL, no event (its `op` is null), or an error."""
    value = batch.column("value")[number].as_py()
    if value is None:
        return _tombstone(batch, messages, number)
    problem = _problem(value, messages, number)
    if problem is not None:
        return error_row(batch, number, problem)
    kind = lower(messages.text("type", number) or "")
    row = _row(batch, messages, number)
    if kind == HEARTBEAT:
        return row | {"op": "heartbeat"}
    if kind not in DDL:
        return row
    facts = [("type", kind), ("ddl", messages.text("sql", number) or "")]
    return row | {"op": "schema", "source": [*row["source"], *facts]}


def _row(batch: pa.RecordBatch, messages: Messages, number: int) -> dict[str, Any]:
    ts = messages.text("ts", number)
    moment = whole_within(ts, FIRST_SECOND, LAST_MS)
    facts = {"connector": "mysql"} | {name: messages.text(name, number) for name in FACTS}
    facts["commit"] = "true" if facts["commit"] == "true" else None
    # Where it is not a time, the fact is all that is left of it.
    facts["ts"] = ts if moment is None else None
    xid = messages.text("xid", number)
    return single_row(batch, number) | {
        "table": table_parts(messages.text("database", number), None, messages.text("table", number)),
        "event_time": None if moment is None else (moment if moment >= MILLISECONDS else moment * 1000) * 1000,
        "transaction": None if xid is None else {"id": xid},
        "source": present(facts),
    }


def _tombstone(batch: pa.RecordBatch, messages: Messages, number: int) -> dict[str, Any]:
    parts = messages.keys.parts(number)
    key = [(name[3:], value) for name, value in parts.items() if name.startswith("pk.")]
    return single_row(batch, number) | {
        "op": "tombstone",
        "table": table_parts(parts.get("database"), None, parts.get("table")),
        "key": key or None,
        "key_text": key_text([value for _, value in key]) if key else None,
    }


def _problem(value: bytes, messages: Messages, number: int) -> str | None:
    """Why a message can't be read; None where it can."""
    if not messages.is_form[number]:
        return unread(value, messages.tape.verdict[number], "of Maxwell's form")
    kind = messages.text("type", number)
    if kind is None:
        return "The message has no type."
    if lower(kind) not in (*DATA, *DDL, *NO_EVENT, HEARTBEAT):
        return f"Unknown type {kind}."
    has_data = messages.tape.is_value(messages.every("data")[number])
    return "The message has no data." if lower(kind) in DATA and not has_data else None


class MaxwellDecoder(Codec):
    """Reads messages; what it remembers is which tables it knows."""

    def __init__(self, given: TableOptions) -> None:
        self._given = given
        self.schema = change_schema(given.typed)
        self._tables = ResolvedTables(given)

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        batch = kafka_batch(batch)
        messages = Messages(batch.column("value"), batch.column("key"))
        rows = np.flatnonzero(messages.ordinary)
        problems: dict[int, str] = {}
        whole = self._columns(batch, messages, rows, problems)
        yield all_rows(whole, rows, problems, batch, lambda number: [other_row(batch, messages, number)])

    def _columns(
        self, batch: pa.RecordBatch, messages: Messages, rows: Array, problems: dict[int, str]
    ) -> pa.RecordBatch:
        tape, count, op = messages.tape, rows.size, messages.op[rows]
        head = {name: messages.index(name, rows) for name in ("database", "table", "ts", "xid", "xoffset", *FACTS)}
        table = table_column(tape.texts(head["database"]), tape.texts(head["table"]))
        known = self._tables.numbers(table, messages.key_names(rows))
        data, old = messages.index("data", rows), messages.index("old", rows)
        old[(op != _U) | ~tape.is_value(old)] = -1
        self._tables.write_canonical(tape, np.concatenate([data, old]), np.tile(known, 2))
        nothing = np.int32(-1)
        laid = old >= 0
        before = ObjectImage.of(tape, np.where((op == _D) | laid, data, nothing), old)
        after = ObjectImage.of(tape, np.where(op == _D, nothing, data))
        ts, xid, xoffset = (
            typed.integers(tape, head["ts"]),
            tape.texts(head["xid"]),
            typed.integers(tape, head["xoffset"]),
        )
        is_time = pc.fill_null(pc.and_(pc.greater_equal(ts, FIRST_SECOND), pc.less_equal(ts, LAST_MS)), False)
        in_time = pc.if_else(is_time, ts, None)
        millis = pc.if_else(pc.greater_equal(in_time, MILLISECONDS), in_time, pc.multiply(in_time, 1000))
        counted = pc.and_(pc.greater_equal(xoffset, 0), pc.less_equal(xoffset, _MOST))
        order = pc.add(pc.if_else(counted, xoffset, None), 1)
        columns: dict[str, pa.Array] = {
            **origin_columns(batch, rows),
            **self._tables.columns(table, after.or_else(before), known),
            "op": _CODES.take(pa.array(op)),
            "changed": ObjectImage.of(tape, old).names(),
            "event_time": millis.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC")),
            "snapshot": snapshot_column(op == _R),
            "transaction": transaction_column(xid, total_order=order),
            "source": self._source(messages, head, is_time),
        }
        images = {"after": after, "before": before}
        columns |= image_columns(
            images, columns["key"], self._given, self.schema, rows, problems, self._tables.given(known)
        )
        return change_batch(columns, self.schema, count)

    def _source(self, messages: Messages, head: dict[str, Array], is_time: pa.BooleanArray) -> pa.MapArray:
        tape, nothing = messages.tape, pa.scalar(None, pa.string())
        facts = {name: tape.texts(head[name]) for name in FACTS}
        facts["commit"] = pc.if_else(pc.equal(facts["commit"], "true"), "true", nothing)
        # Where it is not a time, the fact is all that is left of it.
        facts["ts"] = pc.if_else(is_time, nothing, tape.texts(head["ts"]))
        return map_of([("connector", pa.repeat("mysql", len(is_time))), *facts.items()])


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


class MaxwellSettings(FormatSettings):
    """Of the format `maxwell_json`."""

    topic: str = topic_option("maxwell")


class MaxwellJson(ArrowFormat):
    """Maxwell's messages: one row change each, and the table changes that it sees.

    Decoding: insert, update, delete; bootstrap-insert is a snapshot row, and bootstrap-start and bootstrap-complete
    are no event, and heartbeat is one; table and database changes give a `schema` row with the text in
    `source['ddl']`. The old image of an update is the new one with `old` laid over it, and `changed` names what
    `old` holds. `ts` is in seconds (in milliseconds where it is too large for that, as in table changes) and
    becomes `event_time`; `xid` is the transaction's id and `xoffset` counts in it from 0, `total_order` from 1; the
    last row of a transaction has `source['commit']`. The key is named by `primary_key_columns`, else by Maxwell's
    Kafka key.

    Encoding: numbers are JSON numbers, booleans JSON booleans, all else strings, bytes as base64; snapshot rows are
    bootstrap-insert. The Kafka key is Maxwell's (`{"database":..,"table":..,"pk.id":..}`), null for a table without a
    key. A change of a key is one update. Rows that know their position in MySQL's log say it: `position`, `gtid`,
    `server_id`, `thread_id`, and the statement as `query`; `xid` is the GTID where the transaction's id is one.

    Ordering: the offset. Idempotence: the rows alone decide the bytes. Process: executors; nothing is
    asked when `decode` is called.
    """

    name = "maxwell_json"
    settings: MaxwellSettings
    reads = frozenset(
        (
            Feature.READ, Feature.TOMBSTONE, Feature.DDL, Feature.BEFORE, Feature.WHOLE_BEFORE, Feature.ABSENT,
            Feature.CHANGED, Feature.KEY, Feature.KEY_CHANGE, Feature.DATABASE, Feature.EVENT_TIME, Feature.READ_TIME,
            Feature.TRANSACTION, Feature.TRANSACTION_ORDER, Feature.SOURCE,
        )
    )  # fmt: skip
    writes = frozenset(
        (
            Feature.READ, Feature.TOMBSTONE, Feature.DDL, Feature.BEFORE, Feature.WHOLE_BEFORE, Feature.CHANGED,
            Feature.KEY, Feature.KEY_CHANGE, Feature.DATABASE, Feature.EVENT_TIME,
            Feature.READ_TIME, Feature.TRANSACTION,
            Feature.TRANSACTION_ORDER,
        )
    )  # fmt: skip

    written_columns = (
        "op", "table", "key", "before", "after", "changed", "before_absent", "after_absent", "position", "event_time",
        "transaction", "source", "schema_id",
    )  # fmt: skip

    @classmethod
    def recognise(cls, message: Sample) -> Evidence | None:
        """A lower-case `type` beside `database` and `ts`."""
        fields = message.fields
        kind = fields.get("type")
        if not isinstance(kind, str) or not _KINDS.fullmatch(kind) or "database" not in fields or "ts" not in fields:
            return None
        return Evidence("a lower-case `type` beside `database` and `ts`")

    def decoder(self, facts: Facts) -> MaxwellDecoder:
        return MaxwellDecoder(TableOptions.of(self.settings, facts))

    def encoder(self, facts: Facts) -> MaxwellEncoder:
        return MaxwellEncoder(facts, self.settings.topic)

    def name_for(self, table: TableId, connector: str = "") -> str:
        return f"{table.database}.{table.name}"

"""SharePlex messages to change rows: those of rows together, every other message by itself.

A message that is not of a row, or can't be read, becomes one row that is found by reading it by itself. `Messages`
has the fields of a batch's messages and says which of them are of rows in the ordinary form.

| operation | `data` | `key` | change row |
|---|---|---|---|
| insert | the new row | | `after` = data |
| update | the changed columns | the old row | `before` = key, `after` = key overlaid with data |
| update without key | what it has | | `after` = data, no `before` |
| delete | the old row (else in key) | | `before` |
| update before, update after | the old row, the new row | | one update, where both stand in one task |

A column that stands in `data` as null was set to null; one that does not stand there did not change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes.images import constant
from headrace.changes.texts import key_text
from headrace.formats.change_columns import (
    error_row,
    numbered,
    origin_columns,
    present,
    single_row,
    transaction_column,
    upper,
)
from headrace.formats.codec import Codec, all_rows, change_batch, change_schema, kafka_batch
from headrace.formats.given_tables import ResolvedTables, TableOptions, image_columns
from headrace.formats.given_values import misfit
from headrace.formats.json_images import ObjectImage
from headrace.formats.json_messages import JsonMessages, filled, key_names, unread
from headrace.wire.arrays import map_of
from headrace.wire.json_exact import ABSENT, NULL, OBJECT
from headrace.wire.names import Names
from headrace.wire.spans import Array
from headrace.wire.tape import Tape
from headrace.wire.typed import TypedColumn, instants, integers

_WORDS = {
    "c": ("INS", "INSERT"),
    "u": ("UPD", "UPDATE"),
    "d": ("DEL", "DELETE"),
    "old": ("UPDATE BEFORE",),
    "new": ("UPDATE AFTER",),
    "t": ("TRUNC", "TRUNCATE"),
    "drop": ("DROP COLUMN",),
    "ddl": ("DDL",),
    "end": ("COMMIT",),
}
KINDS = list(_WORDS)
C, U, D, OLD, NEW = range(5)
"""The kinds of messages of rows, as indexes in `KINDS`; others are decoded one by one."""
_KIND_NUMBERS = {word: number for number, kind in enumerate(KINDS) for word in _WORDS[kind]}

_PARTS = Names([("meta", "data", "key")])
META = ("time", "userid", "op", "scn", "rowid", "trans", "seq", "size", "table", "idx", "posttime")
"""What `meta` may hold."""
_PART = r'(?:"(?:[^"]|"")+"|[^."]+)'
_TABLE = re.compile(rf"{_PART}(?:[.]{_PART}){{0,2}}")
_EACH_PART = re.compile(_PART)
TABLE = pa.struct([("database", pa.string()), ("schema", pa.string()), ("name", pa.string())])


class Messages(JsonMessages):
    """What the engine found in a batch of messages.

    `kind` is the index of an operation in `KINDS`, -1 where it is none; `data` and `key` are objects that have members,
    because an empty one says as little as none. `ordinary` says which are of rows and can be read.
    """

    def __init__(self, values: pa.BinaryArray) -> None:
        tape = Tape(values)
        parts = tape.fields(tape.root, _PARTS)
        super().__init__(tape, parts[0], META)
        self.has_meta: Array = tape.is_value(parts[0])
        are_objects = np.isin(tape.kinds(parts), (ABSENT, NULL, OBJECT)).all(axis=0)
        self.is_form: Array = (tape.kinds(tape.root) == OBJECT) & are_objects
        self.data, self.key = (filled(tape, part) for part in parts[1:])
        self.kind: Array = numbered(self.texts("op"), _KIND_NUMBERS, _normal)
        is_row = self.kind >= 0
        is_row &= self.kind <= NEW
        has_image: Array = (self.data >= 0) | ((self.kind != C) & (self.key >= 0))
        self.times = self._times()
        self.tables, self.bad_tables = self._tables()
        self.bad_times: Array = np.zeros(len(values), bool)
        self.bad_times[self.times.refused] = True
        self.ordinary: Array = self.is_form & is_row & has_image & ~self.bad_times & ~self.bad_tables

    def _times(self) -> TypedColumn:
        """The commit times, in UTC where they say no zone. What is blank is none."""
        at = self.every("time").copy()
        blank = pc.fill_null(pc.equal(pc.utf8_trim(self.tape.texts(at), " "), ""), False)
        at[blank.to_numpy(zero_copy_only=False)] = -1
        return instants(self.tape, at)

    def _tables(self) -> tuple[pa.StructArray, Array]:
        """The tables, null where a message says none, and which can't be read."""
        codes = self.texts("table").dictionary_encode()
        parts = [table_of(text) for text in codes.dictionary.to_pylist()]
        bad = np.array([*(part is None for part in parts), False])
        lines = [None if part is None else dict(zip(TABLE.names, part, strict=True)) for part in parts]
        indices = codes.indices.fill_null(len(parts))
        return pa.array([*lines, None], TABLE).take(indices), bad[indices.to_numpy(zero_copy_only=False)]

    def numbers(self, name: str, rows: Array) -> pa.Int64Array:
        """`seq` or `size` of some messages, else its part of `idx`."""
        stated = integers(self.tape, self.index(name, rows))
        if not stated.null_count:
            return stated
        parts = pc.extract_regex(self.texts("idx", rows), r"^\s*(?P<seq>[0-9]{1,18})/(?P<size>[0-9]{1,18})\s*$")
        return pc.coalesce(stated, pc.struct_field(parts, name).cast(pa.int64()))

    def members(self, at: int) -> dict[str, str | None]:
        """The members of one object by name; none where the value is not an object."""
        member_texts = self.tape.members(np.array([at], np.int32))
        self.tape.compact(member_texts.values)
        names, values = self.tape.texts(member_texts.names), self.tape.texts(member_texts.values)
        return dict(zip(names.to_pylist(), values.to_pylist(), strict=True))


def _normal(word: str) -> str:
    """An operation as it stands in the list: in capitals, with blanks."""
    return upper(word.strip(" ")).replace("_", " ")


def table_of(text: str) -> tuple[str | None, str | None, str] | None:
    """`OWNER.TABLE`, the table alone, or three parts, quoted or not; None where it is none of them."""
    if not _TABLE.fullmatch(text):
        return None
    parts = [p[1:-1].replace('""', '"') if p.startswith('"') else p for p in _EACH_PART.findall(text)]
    return (parts[-3] if len(parts) > 2 else None, parts[-2] if len(parts) > 1 else None, parts[-1])


_FACTS = ("scn", "rowid", "userid", "posttime")


def other_row(batch: pa.RecordBatch, messages: Messages, number: int) -> dict[str, Any]:
    """The row of a message that is not ordinary: an event without images, or an error."""
    value = batch.column("value")[number].as_py()
    if value is None:
        return single_row(batch, number) | {"op": "tombstone", "source": None}
    problem = _problem(value, messages, number)
    if problem is not None:
        return error_row(batch, number, problem)
    rows = np.array([number])
    kind = KINDS[messages.kind[number]]
    seq, size = (messages.numbers(name, rows)[0].as_py() for name in ("seq", "size"))
    facts = {"connector": "oracle"} | {name: messages.text(name, number) for name in _FACTS}
    facts["size"] = None if size is None else str(size)
    members = messages.members(messages.data[number])
    op = kind
    if kind == "drop":
        op = "schema"
        facts |= {"ddl_kind": "drop_column", "columns": key_text(list(members)) if members else None}
    elif kind == "ddl":
        statement = members.get("ddl") if members.get("ddl") is not None else members.get("sql")
        op = "t" if (statement or "").lstrip().lower().split(None, 1)[:1] == ["truncate"] else "schema"
        facts["ddl"] = statement
    trans = messages.text("trans", number)
    moment = messages.times.values[number]
    return single_row(batch, number) | {
        "op": op,
        "table": messages.tables[number].as_py(),
        "event_time": moment.value,
        "transaction": None if trans is None and seq is None else {"id": trans, "total_order": seq},
        "source": present(facts),
    }


def _problem(value: bytes, messages: Messages, number: int) -> str | None:
    """Why a message can't be read; None where it can."""
    if not messages.is_form[number]:
        return unread(value, messages.tape.verdict[number], "whose meta, data and key are objects")
    if not messages.has_meta[number]:
        return "The message has no meta."
    op, kind = messages.text("op", number), messages.kind[number]
    if op is None:
        return "The message has no meta.op."
    if kind < 0:
        return f"Unknown operation: {op[:80]}."
    if messages.bad_times[number]:
        return f"The time can't be read: {messages.text('time', number)}."
    if messages.bad_tables[number]:
        return f"The table can't be read: {messages.text('table', number)}."
    if kind > NEW or messages.ordinary[number]:
        return None
    if kind == C:
        return "An insert has no data."
    in_old = kind in (D, OLD)
    return "A deleted or old row has neither data nor key." if in_old else "An update has neither data nor key."


_CODES = constant(["c", "u", "d", None, "u"])
"""Operations by the index of a kind; the first half of an update gives no row."""


class SharePlexDecoder(Codec):
    """Reads messages; what it remembers is which tables it knows, and first halves of updates.

    Args:
        given: what the user said of the tables.
        pair: whether the old image of an UPDATE AFTER is that of the UPDATE BEFORE in front of it.
    """

    def __init__(self, given: TableOptions, *, pair: bool) -> None:
        self._given, self._pair = given, pair
        self.schema = change_schema(given.typed)
        self._tables = ResolvedTables(given)
        self._halves: pa.RecordBatch | None = None

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        batch = kafka_batch(batch)
        # First halves that still wait are read once more, with the messages in which their second ones may be.
        waiting = 0 if self._halves is None else self._halves.num_rows
        if self._halves is not None:
            batch = pa.concat_batches([self._halves, batch])
        messages = Messages(batch.column("value"))
        old = _old_objects(messages)
        if self._pair:
            left = _paired(batch, messages, old)
            self._halves = batch.take(pa.array(left)) if left else None
        rows = np.flatnonzero(messages.ordinary)
        problems: dict[int, str] = {}
        whole = self._columns(batch, messages, rows, old[rows], problems)
        decoded = all_rows(whole, rows, problems, batch, lambda number: [other_row(batch, messages, number)])
        yield decoded.slice(waiting)

    def _columns(
        self, batch: pa.RecordBatch, messages: Messages, rows: Array, old: Array, problems: dict[int, str]
    ) -> pa.RecordBatch:
        tape, kind, nothing = messages.tape, messages.kind[rows], np.int32(-1)
        data, key_part = messages.data[rows], messages.key[rows]
        is_update = (kind == U) | (kind == NEW)
        laid = is_update & (key_part >= 0) & (data >= 0)
        new = np.where(kind == C, data, np.where(is_update, np.where(key_part >= 0, key_part, data), nothing))
        over = np.where(laid, data, nothing)
        table = messages.tables.take(pa.array(rows))
        keys = batch.column("key").take(pa.array(rows))
        known = self._tables.numbers(table, key_names(keys))
        wrong = self._tables.write_canonical(tape, np.concatenate([old, new, over]), np.tile(known, 3))
        before = ObjectImage.of(tape, np.where(kind == OLD, nothing, old))
        after = ObjectImage.of(tape, new, over)
        newest = ObjectImage.of(tape, np.where(kind == D, old, new), over)
        seq, size, trans = messages.numbers("seq", rows), messages.numbers("size", rows), messages.texts("trans", rows)
        facts = {
            "scn": messages.texts("scn", rows),
            "rowid": messages.texts("rowid", rows),
            "userid": messages.texts("userid", rows),
            "size": size.cast(pa.string()),
            "posttime": messages.texts("posttime", rows),
        }
        columns: dict[str, pa.Array] = {
            **origin_columns(batch, rows),
            **self._tables.columns(table, newest, known),
            "op": _CODES.take(pa.array(kind)),
            "changed": ObjectImage.of(tape, over).names(),
            "event_time": messages.times.values.take(pa.array(rows)),
            "transaction": transaction_column(trans, pc.or_(trans.is_valid(), seq.is_valid()), total_order=seq),
            "source": map_of([("connector", pa.repeat("oracle", rows.size)), *facts.items()]),
        }
        if self._given.typed is not None:
            declared = {column.name: column for column in self._given.typed.columns}
            for number, column, at in wrong:
                row = number % max(1, rows.size)
                if declared[column].logical.spark_type == "binary":
                    problems.setdefault(int(rows[row]), misfit(declared[column], tape.text(at) or ""))
        images = {"before": before, "after": after}
        columns |= image_columns(
            images, columns["key"], self._given, self.schema, rows, problems, self._tables.given(known)
        )
        return change_batch(columns, self.schema, rows.size)


def _old_objects(messages: Messages) -> Array:
    """The row before, or a deleted row, of each message; -1 where it has none."""
    kind, nothing = messages.kind, np.int32(-1)
    whole = np.where(messages.data >= 0, messages.data, messages.key)
    old = np.where(np.isin(kind, (D, OLD)), whole, np.where(np.isin(kind, (U, NEW)), messages.key, nothing))
    return old.astype(np.int32)


def _paired(batch: pa.RecordBatch, messages: Messages, old: Array) -> list[int]:
    """Give second halves of updates the old images of their first ones; the first halves that still wait."""
    last: dict[tuple[object, ...], int | None] = {}
    halves = np.flatnonzero(messages.is_form & np.isin(messages.kind, (OLD, NEW)))
    if not halves.size:
        return []
    seq = messages.numbers("seq", halves).to_pylist()
    order = dict(zip(halves.tolist(), seq, strict=True))
    identity = [messages.texts(name, halves).to_pylist() for name in ("table", "trans", "rowid")]
    offsets = batch.column("offset")
    for index, number in enumerate(halves.tolist()):
        where = (batch.column("topic")[number].as_py(), batch.column("partition")[number].as_py())
        of = (*where, *(column[index] for column in identity))
        first = last.get(of)
        last[of] = number if messages.kind[number] == OLD else None
        if messages.kind[number] != NEW or first is None:
            continue
        # Without a row id only the very next message can be the other half.
        beside = identity[2][index] is not None or offsets[number].as_py() == (offsets[first].as_py() or 0) + 1
        here, there = order[number], order[first]
        if beside and (here is None or there is None or here - there in (0, 1)):
            old[number] = old[first]
    return sorted(number for number in last.values() if number is not None)

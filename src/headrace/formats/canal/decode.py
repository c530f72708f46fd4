"""Canal messages to change rows.

1. The engine reads a batch of messages. Those of rows in the ordinary form go on together; every other message
   (tombstones, DDL, heartbeats, what can't be read) is looked at by itself, in `others`.
2. What messages say of their tables is read once for each distinct text (`structures`).
3. The rows of a message are laid beside their old rows; values are spelled as canonical text; images, keys and facts
   become columns. A message with a value that can't be read is one `error` row, never part of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.announced import Announcer
from headrace.formats.canal.message import DATA, FIELDS, Messages
from headrace.formats.canal.others import other_row
from headrace.formats.canal.structures import Known, Reading, Told, known_of
from headrace.formats.change_columns import (
    FIRST_MS,
    LAST_MS,
    error_row,
    message_column,
    positions,
    struct_column,
    table_column,
)
from headrace.formats.codec import Codec, change_schema, in_order, kafka_batch
from headrace.formats.json_images import ObjectImage, Refused
from headrace.formats.numbered import Numbered
from headrace.formats.words import empty_as_null
from headrace.wire.arrays import map_of
from headrace.wire.names import Names
from headrace.wire.spans import Array
from headrace.wire.tape import Tape
from headrace.wire.typed import integers

_CODES = pa.array(list(DATA.values()), pa.string())
_C, _U, _D, _R = (list(DATA.values()).index(op) for op in "cudr")
NO_BYTES = "A column of bytes holds a character that stands for none."
MISFIT = "A value of column '{}' does not fit its type {}."


@dataclass
class _Rows:
    """The rows of a batch's ordinary messages.

    Args:
        message: which message each row is of.
        place: its place in it.
        op: a number of `_CODES`.
        known: which of the codec's known structures it follows.
        data: its object in `data`, or in `old` where that stands alone.
        old: its object in `old`; -1 where it has none.
    """

    message: Array
    place: Array
    op: Array
    known: Array
    data: Array
    old: Array


class CanalDecoder(Codec):
    """Reads messages; what it remembers is which structures it knows and has announced."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self.schema = change_schema(reading.typed)
        self._known = Numbered[Told, Known](lambda told: known_of(told, reading))
        self._announcer = Announcer(self.schema)

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The change rows of messages, in their order."""
        batch = kafka_batch(batch)
        messages = Messages(batch.column("value"), legacy_old=self._reading.legacy_old)
        rows = self._rows(messages)
        problems: dict[int, str] = {}
        self._spell(messages.tape, rows, problems)
        whole = self._columns(batch, messages, rows, problems)
        plain = np.zeros(batch.num_rows, bool)
        plain[rows.message] = True
        odd = [self._row(error_row(batch, number, problem, 0)) for number, problem in sorted(problems.items())] + [
            self._row(other_row(batch, messages, int(number))) for number in np.flatnonzero(~plain)
        ]
        places = np.array([*sorted(problems), *np.flatnonzero(~plain)], np.int64)
        if problems:
            kept = ~np.isin(rows.message, list(problems))
            whole = whole.filter(pa.array(kept))
            rows = _Rows(*(part[kept] for part in vars(rows).values()))
        structures = [known.announced for known in self._known.all]
        made = self._announcer.announce(batch, rows.message, rows.known, structures)
        made.append((rows.message, whole))
        if odd:
            made.append((places, pa.concat_batches(odd)))
        yield in_order(made)

    def _row(self, row: dict[str, object]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([row], self.schema)

    def _rows(self, messages: Messages) -> _Rows:
        tape = messages.tape
        offsets, data = tape.items(np.where(messages.ordinary, messages.rows, np.int32(-1)))
        message = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        place = np.arange(len(data)) - offsets[message]
        old_offsets, old_items = tape.items(np.where(messages.ordinary, messages.old_rows, np.int32(-1)))
        old = np.full(len(data), -1, np.int32)
        paired = np.diff(old_offsets)[message] > 0
        old[paired] = old_items[(old_offsets[message] + place)[paired]]
        # A null in `old` says nothing.
        old[~tape.is_value(old)] = -1
        known = self._identify(messages)[message]
        return _Rows(message, place, messages.op[message], known, data, old)

    def _identify(self, messages: Messages) -> Array:
        """The number of what each message's table is known as; 0 for those that are not ordinary."""
        told = np.stack([messages.every(name) for name in ("mysqlType", "sqlType", "pkNames", "database", "table")])
        ordinary = np.flatnonzero(messages.ordinary)
        found = np.zeros(messages.count, np.int64)
        if not ordinary.size:
            return found
        told = np.ascontiguousarray(told[:, ordinary])
        groups = messages.tape.groups(told)
        numbers = []
        for row in groups.first:
            key = Told(*messages.tape.texts(np.ascontiguousarray(told[:, row])).to_pylist())
            numbers.append(self._known.number(key))
        found[ordinary] = np.array(numbers)[groups.of]
        return found

    def _spell(self, tape: Tape, rows: _Rows, problems: dict[int, str]) -> None:
        """Write canonical texts in place of what the wire has; note messages whose bytes are none."""
        names = Names([list(known.spellings) for known in self._known.all])
        if not names.width or not rows.message.size:
            return
        group = rows.known.astype(np.int32)
        at = np.concatenate([tape.fields(image, names, group) for image in (rows.data, rows.old)], axis=1)
        message = np.tile(rows.message, 2)
        of = np.tile(rows.known, 2)
        tokens, texts = [], []
        for number in np.unique(rows.known):
            for place, (name, spelling) in enumerate(self._known.all[number].spellings.items()):
                here = np.flatnonzero((of == number) & (at[place] >= 0))
                places = at[place, here]
                there = tape.is_value(places)
                here, places = here[there], np.ascontiguousarray(places[there])
                if not here.size:
                    continue
                made = spelling.canonical(tape.texts(places))
                if made.null_count:
                    wrong = made.is_null().to_numpy(zero_copy_only=False)
                    problem = NO_BYTES if self._reading.typed is None else MISFIT.format(name, "binary")
                    problems.update(dict.fromkeys(map(int, message[here[wrong]]), problem))
                    made = made.fill_null("")
                tokens.append(places)
                texts.append(made)
        if tokens:
            tape.replace(np.concatenate(tokens), pa.concat_arrays(texts))

    def _columns(
        self, batch: pa.RecordBatch, messages: Messages, rows: _Rows, problems: dict[int, str]
    ) -> pa.RecordBatch:
        tape, count = messages.tape, rows.message.size
        before, after = self._images(tape, rows)
        key, key_text = after.or_else(before).key([known.key_names for known in self._known.all], rows.known)
        head = {name: messages.place(name, rows.message) for name in FIELDS}
        es = integers(tape, head["es"])
        known_es = pc.fill_null(pc.and_(pc.greater_equal(es, FIRST_MS), pc.less_equal(es, LAST_MS)), False)
        gtid = empty_as_null(tape.texts(head["gtid"]))
        ids = [known.schema_id for known in self._known.all]
        of_batch = batch.take(pa.array(rows.message)) if not _is_range(rows.message, batch.num_rows) else batch
        columns: dict[str, pa.Array] = {
            "op": _CODES.take(pa.array(rows.op)),
            "table": table_column(tape.texts(head["database"]), tape.texts(head["table"])),
            "key": key,
            "key_text": key_text,
            "changed": ObjectImage.of(tape, np.where(rows.op == _U, rows.old, np.int32(-1))).names(),
            "position": positions(of_batch.column("offset"), rows.place),
            "event_time": pc.if_else(known_es, es, None)
            .cast(pa.timestamp("ms", "UTC"))
            .cast(pa.timestamp("us", "UTC")),
            "capture_time": of_batch.column("timestamp"),
            "snapshot": pc.if_else(pa.array(rows.op == _R), "true", pa.scalar(None, pa.string())),
            "transaction": struct_column(self.schema.field("transaction").type, {"id": gtid}, gtid.is_valid()),
            "source": map_of(
                [
                    ("connector", pa.array(["mysql"]).take(pa.array(np.zeros(count, np.int64)))),
                    ("id", tape.texts(head["id"])),
                    ("ts", tape.texts(head["ts"])),
                    ("gtid", gtid),
                    # Where it is no time, the fact is all that is left of it.
                    ("es", pc.if_else(known_es, pa.scalar(None, pa.string()), tape.texts(head["es"]))),
                    ("sql", empty_as_null(tape.texts(head["sql"]))),
                ]
            ),
            "schema_id": pa.array(ids, pa.string()).take(pa.array(rows.known)),
            "message": message_column(of_batch),
        }
        for name, image in (("before", before), ("after", after)):
            if self._reading.typed is None:
                columns[name] = image.map()
            else:
                kind, zone = self.schema.field(name).type, self._reading.zone
                columns[name], columns[f"{name}_absent"], refused = image.structs(self._reading.typed, kind, zone)
                self._refuse(refused, rows, problems)
        return pa.RecordBatch.from_arrays(
            [columns.get(f.name, pa.nulls(count, f.type)) for f in self.schema], schema=self.schema
        )

    def _images(self, tape: Tape, rows: _Rows) -> tuple[ObjectImage, ObjectImage]:
        nothing = np.full(rows.message.size, -1, np.int32)
        updates, has_old = rows.op == _U, rows.old >= 0
        laid = np.where(updates, rows.old, nothing)
        first, second = np.where(rows.op == _D, rows.data, nothing), np.where(rows.op != _D, rows.data, nothing)
        if self._reading.legacy_old:
            return ObjectImage.of(tape, np.where(updates, rows.data, first)), ObjectImage.of(tape, second, laid)
        first = np.where(updates & has_old, rows.data, first)
        return ObjectImage.of(tape, first, laid), ObjectImage.of(tape, second)

    def _refuse(self, refused: Sequence[Refused], rows: _Rows, problems: dict[int, str]) -> None:
        """Note the messages with a value that its column can't hold. A zero date of MySQL is none: no type has it."""
        for row, column, text in refused:
            kind = column.logical.spark_type
            if kind not in ("date", "timestamp", "timestamp_ntz") or "-00" not in text:
                problems.setdefault(int(rows.message[row]), MISFIT.format(column.name, kind))


def _is_range(numbers: Array, count: int) -> bool:
    return bool(numbers.size == count and (numbers == np.arange(count)).all())

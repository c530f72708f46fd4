"""Change rows to Debezium's messages.

A row becomes its events: one, or two where its key changed (a delete and a create). A tombstone follows each delete.
Rows are written by the form of their source block, mostly one for a batch. What a table says of all its events (topic,
schemas) is made once in a task. The rows that are no data (schema changes, edges of transactions, heartbeats) are
written one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import TableId
from headrace.changes.texts import key_text
from headrace.errors import FormatError
from headrace.formats.change_messages import counted, picked, rows_of, unknown_schema
from headrace.formats.codec import MESSAGES, Codec, Facts, in_order
from headrace.formats.debezium.column_types import OWN_WAYS, possible_ways, wire_type
from headrace.formats.debezium.connect_fields import Opening, with_schema
from headrace.formats.debezium.events import (
    DATA,
    DELETE,
    HAS_AFTER,
    HAS_BEFORE,
    LETTERS,
    MOVED_FROM,
    MOVED_TO,
    EventImages,
    Events,
    Layouts,
)
from headrace.formats.debezium.headers import ContextHeaders
from headrace.formats.debezium.metadata import (
    EDGES,
    HEARTBEAT,
    LOGICAL,
    SCHEMA,
    Message,
    MetadataEncoder,
    is_notification,
)
from headrace.formats.debezium.source_blocks import SourceBlocks, Tables, connectors, nanoseconds
from headrace.formats.debezium.values import nearest_timestamp
from headrace.formats.debezium.written import (
    EncodeSettings,
    TableTexts,
    WrittenColumn,
    WrittenSchema,
    nameless_route,
    odd_texts,
    prepared,
)
from headrace.formats.encoding import OutOfRange
from headrace.wire.json_rows import Cells
from headrace.wire.json_writer import Part, messages
from headrace.wire.spans import Array

_OF_METADATA = (
    "op", "table", "position", "event_time", "capture_time", "snapshot", "transaction", "source", "table_schema",
)  # fmt: skip
_REMEDY_OF_KEY = "Write times as text or in microseconds (time.precision.mode: isostring or microseconds)."
_REMEDY = (
    f"{_REMEDY_OF_KEY.removesuffix('.')}, or write null or the nearest value instead "
    "(event.converting.failure.handling.mode: warn)."
)


class DebeziumEncoder(Codec):
    """Writes messages. It keeps what schemas and tables say, and counts what the wire does not hold.

    Args:
        facts: the schemas.
        writing: how messages are written.
        opening: what stands in front of a payload, by the text of its schema.
    """

    schema = MESSAGES

    def __init__(self, facts: Facts, writing: EncodeSettings, opening: Opening = with_schema) -> None:
        self._writing, self._typed, self._opening = writing, facts.typed, opening
        self._schemas = (facts.typed,) if facts.typed is not None else facts.tables
        self._by_id = {schema.fingerprint: number for number, schema in enumerate(self._schemas)}
        self._by_table: dict[TableId, int] = {}
        for number, schema in enumerate(self._schemas):
            self._by_table.setdefault(schema.id, number)
        self._nameless = len(self._schemas) == 1 and not self._schemas[0].id.name
        self._all_alike = facts.typed is not None or (writing.single and self._nameless)
        self._met: dict[tuple[int, int], int] = {}
        self._written: list[WrittenSchema] = []
        self._layouts = Layouts([])
        self._blocks: dict[int, SourceBlocks] = {}
        self._said: dict[tuple[int, int, TableId | None], TableTexts] = {}
        self._headers = ContextHeaders(writing.topics.prefix, writing.run_id) if self._has_context else None
        self._metadata = MetadataEncoder(writing, opening)
        self._taken = [op for op in DATA if op not in writing.skipped]

    @property
    def _has_context(self) -> bool:
        return self._writing.context and self._writing.shape.name == "3"

    @property
    def may_lose(self) -> bool:
        """Whether a column may have values that the wire does not hold, and that are replaced."""
        modes = self._writing.modes
        return not modes.failing and any(
            wire_type(column, replace(modes, connector=name)).limited
            for schema in self._schemas
            for name in ("", *possible_ways(schema))
            for column in schema.columns
        )

    def check(self) -> None:
        """Whether the options fit the schemas.

        Raises:
            OptionError: two columns become one field, a router's field is a column, or its topic is none.
        """
        writing = self._writing
        if writing.rules.adjustment != "none":
            for schema in self._schemas:
                writing.rules.names(schema)
        if writing.topics.route is not None:
            if self._nameless:
                raise nameless_route()
            for schema in self._schemas:
                writing.router_field(schema)

    def feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        batches = []
        rows = rows_of(batch, self._taken)
        if rows.size:
            batches += self._of_data(picked(batch, rows), rows)
        others = rows_of(batch, (*EDGES, HEARTBEAT, SCHEMA, LOGICAL))
        if others.size:
            batches += self._of_metadata(batch, others)
        if batches:
            yield in_order(batches)

    # -------------------------------------------------------------------------------------------------- data events

    def _of_data(self, rows: pa.RecordBatch, numbers: Array) -> list[tuple[Array, pa.RecordBatch]]:
        times = pc.coalesce(rows.column("event_time"), rows.column("capture_time"))
        rows = rows.set_column(rows.schema.get_field_index("event_time"), "event_time", times)
        tables = Tables(rows)
        kind = pc.index_in(rows.column("op"), pa.array(DATA)).to_numpy().astype(np.int64)
        index = np.zeros(rows.num_rows, np.int64)
        connector = connectors(rows)
        names = [*connector.dictionary.to_pylist(), None]
        of = connector.indices.fill_null(len(names) - 1).to_numpy(zero_copy_only=False).astype(np.int64)
        way = np.array([OWN_WAYS.index(name) + 1 if name in OWN_WAYS else 0 for name in names])[of]
        events = Events(rows, numbers, kind, index, self._schema_numbers(rows, tables, way), connector)
        pairs, at = np.unique(of * len(tables.ids) + tables.at, return_inverse=True)
        forms = np.array(
            [self._writing.forms.number(names[p // len(tables.ids)], tables.ids[p % len(tables.ids)]) for p in pairs]
        )[at]
        distinct = np.unique(forms)
        if distinct.size == 1:
            return [self._of_form(int(distinct[0]), events)]
        return [self._of_form(int(form), events.only(np.flatnonzero(forms == form))) for form in distinct]

    def _schema_numbers(self, rows: pa.RecordBatch, tables: Tables, way: Array) -> Array:
        """The number of each row's schema, among those that were met.

        Args:
            rows: the rows.
            tables: their tables.
            way: the number of the row's connector in `OWN_WAYS`, from 1; 0 for another.
        """
        if self._all_alike:
            ways, index = np.unique(way, return_inverse=True)
            return np.array([self._meet(0, way=one) for one in ways.tolist()], np.int64)[index]
        ids = rows.column("schema_id").dictionary_encode()
        texts = [*ids.dictionary.to_pylist(), None]
        of = ids.indices.fill_null(len(texts) - 1).to_numpy(zero_copy_only=False).astype(np.int64)
        width = len(OWN_WAYS) + 1
        pairs, at = np.unique((of * len(tables.ids) + tables.at) * width + way, return_inverse=True)
        numbers = np.empty(pairs.size, np.int64)
        for n, pair in enumerate(pairs // width):
            id, table = texts[pair // len(tables.ids)], tables.ids[pair % len(tables.ids)]
            number = self._by_id.get(id) if id is not None else None
            # Given schemas go by table: a single one whatever rows name, several only where rows name none.
            if number is None and self._writing.given and (id is None or self._writing.single):
                number = self._by_table.get(table)
            if number is None:
                raise unknown_schema(rows, int(np.flatnonzero(at == n)[0]))
            numbers[n] = self._meet(number, way=int(pairs[n] % width))
        return numbers[at]

    def _meet(self, number: int, *, way: int) -> int:
        met = self._met.get((number, way))
        if met is None:
            writing, typed = self._writing, self._typed is not None
            written = WrittenSchema(
                self._schemas[number],
                replace(writing.modes, connector=("", *OWN_WAYS)[way]),
                writing.rules,
                placeholder=writing.shape.placeholder,
                typed=typed,
            )
            met = self._met[number, way] = len(self._written)
            self._written.append(written)
        return met

    def _of_form(self, form: int, events: Events) -> tuple[Array, pa.RecordBatch]:
        """The messages of rows of one form, and the numbers of their rows."""
        if len(self._layouts.written) < len(self._written):
            self._layouts = Layouts(self._written)
        images = EventImages(self._layouts, events, typed=self._typed is not None)
        changed = images.key_moved()
        if changed.any():
            events = self._split(events, changed)
            images = EventImages(self._layouts, events, typed=self._typed is not None)
        if not events.row.size:
            return events.row, pa.RecordBatch.from_pylist([], MESSAGES)
        writing, rows = self._writing, events.rows
        tables = Tables(rows)
        table_texts, group = self._groups(form, events, tables)
        values = self._values(form, events, images, tables, table_texts, group)
        keys = self._keys(events, images, table_texts, group)
        topics = pa.array([one.topic for one in table_texts], pa.string()).take(pa.array(group))
        headers = self._key_headers(events, images, table_texts, group)
        position = rows.column("position")
        row, index, kind = events.row, events.index, events.kind
        connector: pa.Array = events.connector
        deleted = (kind == DELETE) | (kind == MOVED_FROM)
        if writing.tombstones and deleted.any():
            at = np.repeat(np.arange(kind.size), 1 + deleted)
            second = np.concatenate([np.zeros(1, np.bool_), at[1:] == at[:-1]])
            number = pa.array(at)
            topics, keys, position, connector = (c.take(number) for c in (topics, keys, position, connector))
            values = values.take(pa.array(at, mask=second))
            headers = None if headers is None else [headers[n] for n in at]
            row, index = row[at], index[at] + second
        later = np.flatnonzero(index)
        if later.size:
            suffixed = pc.binary_join_element_wise(position, pa.array([f":{n}" for n in index.tolist()]), "")
            position = pc.if_else(pa.array(index > 0), suffixed, position)
        columns = [
            topics,
            pa.nulls(row.size, pa.int32()),
            keys.cast(pa.binary()),
            values.cast(pa.binary()),
            self._header_column(form, connector, headers, row.size),
            position,
        ]
        return row, pa.RecordBatch.from_arrays(columns, schema=MESSAGES)

    def _split(self, events: Events, changed: Array) -> Events:
        """Events with two of them in place of each update that changed a key, as far as they are not skipped."""
        writing = self._writing
        kinds = [kind for kind, op in ((MOVED_FROM, "d"), (MOVED_TO, "c")) if op not in writing.skipped]
        at = np.repeat(np.arange(changed.size), np.where(changed, len(kinds), 1))
        chosen = events.only(at)
        of_moved = np.flatnonzero(changed[at])
        chosen.kind[of_moved] = np.tile(np.array(kinds, np.int64), int(changed.sum()))
        after = 1 + writing.tombstones if len(kinds) > 1 else 0
        chosen.index[of_moved] = np.where(chosen.kind[of_moved] == MOVED_TO, after, 0)
        return chosen

    # ------------------------------------------------------------------------------------------- what tables say

    def _groups(self, form: int, events: Events, tables: Tables) -> tuple[list[TableTexts], Array]:
        """What tables say, and the number of what is said of each event."""
        keys: list[tuple[int, TableId | None]]
        if self._nameless:
            keys, at = [(0, id) for id in tables.ids], tables.at
        else:
            distinct, at = np.unique(events.schema_number, return_inverse=True)
            keys = [(int(number), None) for number in distinct]
        table_texts = []
        for schema_number, id in keys:
            known = self._said.get((form, schema_number, id))
            if known is None:
                known = self._said[form, schema_number, id] = TableTexts.of(
                    self._writing, self._writing.forms.blocks[form], self._written[schema_number], id, self._opening
                )
            table_texts.append(known)
        return table_texts, at

    # ---------------------------------------------------------------------------------------------------- values

    def _values(
        self,
        form: int,
        events: Events,
        images: EventImages,
        tables: Tables,
        table_texts: list[TableTexts],
        group: Array,
    ) -> pa.StringArray:
        writing, rows, block = self._writing, events.rows, self._writing.forms.blocks[form]
        before, after = (self._image_json(events, images, name) for name in ("before", "after"))
        transaction = rows.column("transaction")
        none = transaction.is_null().to_numpy(zero_copy_only=False)
        source = self._blocks.setdefault(form, SourceBlocks(block)).json(rows, tables, events.connector)
        openings = pa.array([text for one in table_texts for text in one.value], pa.string())
        clock = self._clock(rows.column("capture_time"))
        operation: list[str | Part] = [',"op":"', Part(LETTERS, at=events.kind), '"', *clock]
        block_of = self._transaction(transaction, none, events.kind, seldom=block.flag)
        rest = [*block_of, *operation] if writing.shape.transaction_first else [*operation, *block_of]
        parts = [
            Part(openings, at=2 * group + none), Part(before), ',"after":', Part(after), ',"source":', *source, *rest,
            "}}" if writing.value_schemas else "}",
        ]  # fmt: skip
        return messages(_joined(parts), rows.num_rows)

    def _image_json(self, events: Events, images: EventImages, name: str) -> pa.StringArray:
        held = np.isin(events.kind, HAS_BEFORE if name == "before" else HAS_AFTER)
        layouts = self._layouts

        def written(column: int, texts: pa.StringArray, rows: Array) -> Sequence[str]:
            return self._odd(events.rows, layouts.rows[column], texts, rows, in_key=False)

        cells = prepared(images.cells(name, held), layouts.rows)
        as_null = None
        if self._writing.modes.recorded_placeholders:
            as_null = events.kind == DELETE
        return cells.json(written, as_null)

    def _clock(self, moments: pa.TimestampArray) -> list[str | Part]:
        parts: list[str | Part] = [',"ts_ms":', Part(counted(moments, 1000))]
        if self._writing.shape.fine_times:
            parts += [',"ts_us":', Part(moments.cast(pa.int64())), ',"ts_ns":', Part(nanoseconds(moments))]
        return parts

    @staticmethod
    def _transaction(transaction: pa.StructArray, none: Array, kind: Array, *, seldom: bool) -> list[str | Part]:
        """The block of the transaction; where it is seldom, nothing is written for none."""
        if none.all():
            return [] if seldom else [',"transaction":null']
        # A changed key is two events of its transaction: the row carries the number of the first.
        # One that is not known is 0, which no change has: Debezium's schema wants a number.
        parts: list[str | Part] = ['{"id":', Part(pc.struct_field(transaction, "id"), quoted=True)]
        for name in ("total_order", "data_collection_order"):
            order = pc.struct_field(transaction, name)
            number = np.where(
                order.is_valid().to_numpy(zero_copy_only=False),
                order.fill_null(0).to_numpy() + (kind == MOVED_TO),
                0,
            )
            parts += [f',"{name}":', Part(pa.array(number))]
        if seldom:
            parts_of_all = messages([',"transaction":', *parts, "}"], none.size)
            return [Part(pc.if_else(pa.array(none), "", parts_of_all))]
        parts_of_all = messages([*parts, "}"], none.size)
        return [',"transaction":', Part(pc.if_else(pa.array(none), pa.scalar(None, pa.string()), parts_of_all))]

    # ------------------------------------------------------------------------------------------------------ keys

    def _keys(self, events: Events, images: EventImages, table_texts: list[TableTexts], group: Array) -> pa.StringArray:
        """The keys of events as texts; null for a table without one."""
        old = np.isin(events.kind, (DELETE, MOVED_FROM))
        keyed = self._layouts.keyed[events.schema_number]
        key_texts = self._key_json(events, images, keyed, old, from_map=events.kind != MOVED_FROM)
        keys = _between([one.key for one in table_texts], group, key_texts)
        if not keyed.all():
            return pc.coalesce(keys, self._unkeyed(events, ~keyed, table_texts, group))
        return keys

    def _key_json(
        self, events: Events, images: EventImages, asked: Array, old: Array, *, from_map: Array
    ) -> pa.StringArray:
        """The payloads of keys without the brace that closes them; null where a row has none, or is not asked for."""
        layouts = self._layouts

        def written(column: int, texts: pa.StringArray, rows: Array) -> Sequence[str]:
            return self._odd(events.rows, layouts.key_columns[column], texts, rows, in_key=True)

        prepared_cells = (prepared(cells, layouts.key_columns) for cells in images.keys(old, asked, from_map))
        parts = [cells.json(written) for cells in prepared_cells]
        return parts[0] if len(parts) == 1 else pc.coalesce(*parts)

    def _unkeyed(self, events: Events, asked: Array, table_texts: list[TableTexts], group: Array) -> pa.StringArray:
        """The keys of rows whose schema says no key, but which have one themselves."""
        keys = events.rows.column("key")
        asked = asked & keys.is_valid().to_numpy(zero_copy_only=False)
        layouts = self._layouts
        asked &= layouts.has_columns[events.schema_number]
        if not asked.any():
            return pa.nulls(asked.size, pa.string())

        def written(column: int, texts: pa.StringArray, rows: Array) -> Sequence[str]:
            return self._odd(events.rows, layouts.any_columns[column], texts, rows, in_key=True)

        cells = Cells.of_maps(layouts.any_key, keys, events.schema_number, asked)
        prepared_texts = prepared(cells, layouts.any_columns).json(written)
        if not self._writing.key_schemas:
            return prepared_texts
        openings: list[str | None] = [None] * asked.size
        for row in np.flatnonzero(asked).tolist():
            names = [name for name, _ in keys[row].as_py()]
            opening, closing = self._written[int(events.schema_number[row])].any_key_schema(names)
            openings[row] = self._opening(f"{opening}{table_texts[group[row]].base}{closing}")
        return pc.binary_join_element_wise(pa.array(openings, pa.string()), prepared_texts, "}", "")

    def _key_headers(
        self, events: Events, images: EventImages, table_texts: list[TableTexts], group: Array
    ) -> list[tuple[str, str] | None] | None:
        """For each event of a changed key the name of a header and the other key."""
        away, here = events.kind == MOVED_FROM, events.kind == MOVED_TO
        if not (away.any() or here.any()):
            return None
        # The other key: the new one for the delete, the old one for the create.
        key_texts = self._key_json(events, images, away | here, here, from_map=away)
        texts = _between([one.header for one in table_texts], group, key_texts).to_pylist()
        names = np.where(away, "__debezium.newkey", "__debezium.oldkey")
        return [
            (str(name), text) if moved and text is not None else None
            for name, text, moved in zip(names, texts, away | here, strict=True)
        ]

    def _header_column(
        self, form: int, connector: pa.DictionaryArray, keys: list[tuple[str, str] | None] | None, count: int
    ) -> pa.ListArray:
        name = self._writing.forms.blocks[form].connector.name
        if self._headers is None:
            if keys is None:
                return pa.nulls(count, MESSAGES.field("headers").type)
            headers = [None if key is None else [{"key": key[0], "value": key[1].encode()}] for key in keys]
            return pa.array(headers, MESSAGES.field("headers").type)
        return self._headers.column(name or connector, keys, count)

    # ------------------------------------------------------------------------------------------------ odd values

    def _odd(
        self, rows: pa.RecordBatch, written: WrittenColumn, texts: pa.StringArray, at: Array, *, in_key: bool
    ) -> Sequence[str]:
        """The JSON of texts that kernels leave."""
        odd = odd_texts(texts, written)
        lost: list[OutOfRange] = []
        for n, text in enumerate(odd):
            if text is None:
                odd[n] = self._instead(rows, int(at[n]), written, texts[n].as_py(), lost, in_key=in_key)
        if lost:
            columns = Counter(column for one in lost for column in one.columns)
            self.out_of_range = self.out_of_range.plus(OutOfRange(columns, min(one.first for one in lost)))
        return [text or "null" for text in odd]

    def _instead(
        self, rows: pa.RecordBatch, row: int, written: WrittenColumn, text: str, lost: list[OutOfRange], *, in_key: bool
    ) -> str:
        """What stands for a text that does not fit, and is added to what is lost; raises where nothing may."""
        column, wire, modes = written.column, written.wire, self._writing.modes
        table = rows.column("table")[row].as_py() or {}
        key = rows.column("key")[row].as_py()
        key_said = "none" if key is None else key_text([value for _, value in key])
        beyond = wire.limited is not None and wire.limited(text)
        nearest = "null" if column.nullable else _text(nearest_timestamp(text))
        if nearest is None and written.json.null != "null":
            nearest = written.json.null
        if beyond and nearest is not None and not modes.failing and not in_key:
            id = TableId(*(table.get(part) or "" for part in ("database", "schema", "name")))
            lost.append(OutOfRange({(id, column.name): 1}, f"table {id.path}, column {column.name}, key {key_said}"))
            return nearest
        raise _misfit(table, written, key_said, beyond=beyond, in_key=in_key)

    # -------------------------------------------------------------------------------------------------- metadata

    def _of_metadata(self, batch: pa.RecordBatch, numbers: Array) -> list[tuple[Array, pa.RecordBatch]]:
        """The messages of rows that are no data, made one by one."""
        rows = batch.select(_OF_METADATA).take(pa.array(numbers))
        times = pc.coalesce(rows.column("event_time"), rows.column("capture_time"))
        rows = rows.set_column(rows.schema.get_field_index("event_time"), "event_time", times)
        lines = rows.to_pylist()
        of_metadata, kept = [], []
        headers: list[Any] = []
        for n, line in enumerate(lines):
            line["source"] = dict(line["source"] or ())
            if not self._metadata.takes(line):
                continue
            kept.append(n)
            headers.append(None)
            if line["op"] in EDGES:
                of_metadata.append(self._metadata.edge(line))
            elif line["op"] == HEARTBEAT:
                of_metadata.append(self._metadata.heartbeat(line))
            elif is_notification(line):
                of_metadata.append(self._metadata.notification(line))
            else:
                message, context = self._with_source(rows.slice(n, 1), line)
                of_metadata.append(message)
                headers[-1] = context
        if not of_metadata:
            return []
        partition = [None if lines[n]["op"] in (*EDGES, LOGICAL) else 0 for n in kept]
        columns = [
            pa.array([message.topic for message in of_metadata], pa.string()),
            pa.array(partition, pa.int32()),
            pa.array([message.key.encode() for message in of_metadata], pa.binary()),
            pa.array([message.value.encode() for message in of_metadata], pa.binary()),
            pa.array(headers, MESSAGES.field("headers").type),
            pa.array([message.position for message in of_metadata], pa.string()),
        ]
        return [(numbers[kept], pa.RecordBatch.from_arrays(columns, schema=MESSAGES))]

    def _with_source(self, row: pa.RecordBatch, line: dict[str, Any]) -> tuple[Message, Any]:
        """A schema change or logical message, and its headers."""
        connector, is_logical = line["source"].get("connector"), line["op"] == LOGICAL
        if is_logical:
            # It is of no table, and the block wants one.
            defaults = (line["source"].get("db") or "", "", "")
            parts = [part.fill_null(text) for part, text in zip(row.column("table").flatten(), defaults, strict=True)]
            named = pa.StructArray.from_arrays(parts, fields=list(row.schema.field("table").type))
            row = row.set_column(row.schema.get_field_index("table"), "table", named)
        tables = Tables(row)
        form = self._writing.forms.number(connector, tables.ids[0])
        block = self._writing.forms.blocks[form]
        names = pa.array([connector], pa.string()).dictionary_encode()
        parts = self._blocks.setdefault(form, SourceBlocks(block)).json(row, tables, names)
        source = messages(_joined(parts), 1)[0].as_py()
        if is_logical:
            transaction = row.column("transaction")
            none, kind = transaction.is_null().to_numpy(zero_copy_only=False), np.zeros(1, np.int64)
            rendered = messages(_joined(self._transaction(transaction, none, kind, seldom=False)), 1)[0].as_py()
            message = self._metadata.logical_message(line, form, source, rendered.removeprefix(',"transaction":'))
        else:
            message = self._metadata.schema_change(line, form, source)
        headers = None
        if self._headers is not None:
            headers = self._headers.column(block.connector.name or names, None, 1)[0].as_py()
        return message, headers


def _between(pieces: Sequence[tuple[str, str]], at: Array, texts: pa.StringArray) -> pa.StringArray:
    """Texts with what opens and closes them; null stays null."""
    opening, closing = (pa.array(texts_between, pa.string()) for texts_between in zip(*pieces, strict=True))
    texts_between = messages([Part(opening, at=at), Part(texts), Part(closing, at=at)], len(texts))
    return (
        pc.if_else(texts.is_valid(), texts_between, pa.scalar(None, pa.string())) if texts.null_count else texts_between
    )


def _joined(parts: Sequence[str | Part]) -> list[str | Part]:
    """The same parts, with constants beside each other as one."""
    joined: list[str | Part] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return joined


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


def _misfit(
    table: dict[str, str | None], written: WrittenColumn, key: str, *, beyond: bool, in_key: bool
) -> FormatError:
    column, wire = written.column, written.wire
    path = ".".join(part for part in table.values() if part is not None)
    kind = wire.semantic or wire.connect
    if not beyond:
        return FormatError(
            f"A value of table {path}, column '{column.name}', can't be written as {kind}: "
            f"it is not of the type {column.logical}."
        )
    remedy = _REMEDY_OF_KEY if in_key else _REMEDY
    if column.logical.kind == "decimal":
        remedy = "Write decimals as text (decimal.handling.mode: string)."
    return FormatError(
        f"A value of table {path}, column {column.name!r}, key {key}, can't be written as {kind}.",
        remedy=remedy,
    )

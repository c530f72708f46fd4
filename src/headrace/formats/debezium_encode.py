"""The plan of an encode: change rows to Debezium messages in three projections, whatever the number of tables.

1. Each row becomes its messages (a delete and its tombstone; a changed key gives delete, tombstone and create).
2. Maps become arrays in the table's column order, by position where the map has the expected columns. Structs stay.
3. `to_json` writes the images from typed values, chosen by the row's structure, and the source block, chosen by its
   connector; the event is these texts one after the other.

Column expressions are chosen by a table number, so that a batch of many tables is read once. Tables of equal structure
share theirs, and what is only text (topics, schemas) is looked up by the number. The rows that are no data (schema
changes, transaction edges, heartbeats) go the same way, past the expressions of the tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.changes import TableSchema
from headrace.changes.typed import literal
from headrace.errors import OptionError
from headrace.formats.debezium_connectors import Block, Forms
from headrace.formats.debezium_images import Images
from headrace.formats.debezium_metadata import EDGES, HEARTBEAT, KINDS, SCHEMA, Metadata
from headrace.formats.debezium_schema import (
    FieldRules,
    Shape,
    adjusted,
    envelope_fields,
    key_schema,
    row_schema,
    to_text,
)
from headrace.formats.debezium_tables import Tables
from headrace.formats.debezium_topics import Topics
from headrace.formats.debezium_values import ValueModes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

NEW_KEY_HEADER = "__debezium.newkey"
OLD_KEY_HEADER = "__debezium.oldkey"
_CONTEXT = "__debezium.context."
# Message kinds. The capital letters are the three messages of a change of key.
_DELETES, _TOMBSTONES, _MOVED_AWAY = "'d', 'D'", "'x', 'X'", "'D', 'X'"
_HAS_BEFORE, _HAS_AFTER = f"kind in ('u', {_DELETES})", "kind in ('r', 'c', 'u', 'C')"
_IS_MOVED = f"kind in ({_MOVED_AWAY}, 'C')"
_COUNTS = ("total_order", "data_collection_order")
_HEADER = "struct<key:string,value:binary>"
# Stands for the name of a table's schemas while a schema's text is cut there.
_BASE = "headrace.name.of.the.table"


@dataclass(frozen=True)
class EncodePlan:
    """What an encode needs to know besides the rows.

    Args:
        tables: the structures present, and how a row's is known.
        topics: where the messages go.
        shape: the generation of events.
        forms: the source blocks.
        modes: how values are written.
        schema_names: how schema names are adjusted, `avro` or `none`.
        rules: how columns become fields.
        value_schemas: whether values carry their schema.
        key_schemas: whether keys (and key headers) carry their schema.
        tombstones: whether a delete is followed by a null value.
        skipped: operations that give no message.
        context: whether the context headers of shape 3 are written.
        run_id: what stands in their `runId`.
        schema_changes: whether schema changes are written.
        structs: whether the images are structs (of the one table) and not maps.
        observed: what counts the values that the wire does not hold.
        schema_text: how the constant parts of schemas are written; as they are, but for messages that become Avro.
    """

    tables: Tables
    topics: Topics
    shape: Shape
    forms: Forms
    modes: ValueModes
    schema_names: str
    rules: FieldRules
    value_schemas: bool
    key_schemas: bool
    tombstones: bool
    skipped: frozenset[str]
    context: bool
    run_id: str
    schema_changes: bool
    structs: bool
    observed: Observation | str
    schema_text: Callable[[str], str] = str

    @property
    def _metadata(self) -> Metadata:
        return Metadata(
            topics=self.topics,
            shape=self.shape,
            forms=self.forms,
            schema_changes=self.schema_changes,
            value_schemas=self.value_schemas,
            key_schemas=self.key_schemas,
        )

    @property
    def _images(self) -> Images:
        return Images(self.structs, self.modes, self.rules, self.shape.placeholder)

    def apply(self, changes: DataFrame) -> DataFrame:
        """The messages, lazily."""
        messages = self._messages(self._observed(self._rows(changes)))
        return self._written(messages if self.structs else self._read_out(self._imaged(messages)))

    def _rows(self, changes: DataFrame) -> DataFrame:
        wanted = ", ".join(literal(op) for op in ("r", "c", "u", "d", "t") if op not in self.skipped)
        # A filter, because Spark leaves out a projected check whose result nobody reads.
        rows = changes.where(
            f"case when op in ({wanted}) then {self.tables.known(checked=not self.structs)} "
            f"else {self._metadata.taken} end"
        )
        absent = ("before_absent", "after_absent") if self.structs else ()
        return rows.selectExpr(
            "op",
            "table",
            "before",
            "after",
            *absent,
            "key",
            "position",
            "coalesce(event_time, capture_time) as event_time",
            "capture_time",
            "snapshot",
            "transaction",
            "source",
            *self._images.wholes(self.tables.any),
            f"if(op = {SCHEMA}, table_schema, null) as table_schema",
            f"{'0' if self.structs else self.tables.number()} as t",
            f"{self.forms.number()} as form",
        )

    def _observed(self, rows: DataFrame) -> DataFrame:
        """The same rows, with those values counted in whose place something else is written."""
        from pyspark.sql import functions as sf

        none = "cast(null as array<string>)"
        columns = self.tables.choice(self._images.out_of_range, none)
        if columns in (none, "null"):
            return rows
        lost = f"if(op in ('r', 'c', 'u', 'd'), array_compact({columns}), {none})"
        table = "concat_ws('.', nullif(table.schema, ''), table.name)"
        first = f"concat('table ', {table}, ', column ', lost[0], ', key ', coalesce(to_json(map_values(key)), 'none'))"
        counted = rows.withColumn("lost", sf.expr(lost)).observe(
            self.observed,
            sf.expr("sum(coalesce(size(lost), 0))").alias("values"),
            sf.expr(f"min(if(size(lost) > 0, {first}, null))").alias("first"),
        )
        return counted.drop("lost")

    def _messages(self, rows: DataFrame) -> DataFrame:
        moved = self.tables.choice(self._images.key_moved, "false")
        delete = ["x"] if self.tombstones else []
        kinds = {
            "moved": ["D", *(k.upper() for k in delete), "C"],
            "d": ["d", *delete],
        }
        if "d" in self.skipped:
            kinds["moved"] = ["C"]
        if "c" in self.skipped:
            kinds["moved"] = [k for k in kinds["moved"] if k != "C"]
        words = {name: f"array({', '.join(map(literal, letters))})" for name, letters in kinds.items()}
        if not kinds["moved"]:
            words["moved"] = "cast(array() as array<string>)"
        kind = (
            f"case op when 'u' then if(before is not null and {moved}, {words['moved']}, array('u')) "
            f"when 'd' then {words['d']} else array(op) end"
        )
        return rows.selectExpr("*", f"posexplode({kind}) as (place, kind)")

    def _imaged(self, messages: DataFrame) -> DataFrame:
        images = self._images
        made = []
        for name, image, held in (("b", "before", _HAS_BEFORE), ("a", "after", _HAS_AFTER)):
            present = f"{held} and {image} is not null"
            made += [
                f"if({present}, {images.laid_out(self.tables, image)}, null) as {name}",
                f"if({present}, {images.left_out(self.tables, image)}, null) as {name}_gone",
            ]
        return messages.selectExpr(
            "t",
            "form",
            "kind",
            "op",
            "table",
            *made,
            *self._keys(),
            # The messages of one change keep their order where a sink sorts by position.
            f"{self._position()} as position",
            "event_time",
            "capture_time",
            "snapshot",
            "transaction",
            "source",
            "table_schema",
        )

    def _position(self) -> str:
        return f"if(place = 0, {self._metadata.position()}, concat(position, ':', place))"

    def _keys(self) -> list[str]:
        """The maps that keys are made of: the message's own, and the other one of a changed key."""
        keyed = self.tables.constant(lambda s: "true" if s.key else "false")
        key = f"if({keyed}, coalesce(key, if(op = 'd', before, after)), key)"
        return [
            f"if(kind in ({_MOVED_AWAY}), before, {key}) as key",
            f"case when kind in ({_MOVED_AWAY}) then {key} when kind = 'C' then before end as other",
        ]

    def _read_out(self, rows: DataFrame) -> DataFrame:
        """Images, keys and headers as JSON.

        A projection of its own, because the event takes each image twice, and Spark would write it twice.
        """
        images = self._images
        return rows.selectExpr(
            "t",
            "form",
            "kind",
            "op",
            "table",
            *(f"{images.json(self.tables, name)} as {name}" for name in ("b", "a")),
            "b_gone",
            "a_gone",
            f"{self._key()} as key",
            f"{self._headers()} as headers",
            "position",
            "event_time",
            "capture_time",
            "snapshot",
            "transaction",
            "source",
            "table_schema",
        )

    def _written(self, rows: DataFrame) -> DataFrame:
        metadata = self._metadata
        return rows.selectExpr(
            f"if(kind in ({KINDS}), {metadata.topic()}, {self._topic()}) as topic",
            f"if(kind in ({SCHEMA}, {HEARTBEAT}), 0, null) as partition",
            f"{self._key()} as key" if self.structs else "key",
            f"cast(case when kind in ({_TOMBSTONES}) then null when kind in ({KINDS}) then {metadata.value()} "
            f"else {self._value()} end as binary) as value",
            f"{self._headers()} as headers" if self.structs else "headers",
            f"{self._position()} as position" if self.structs else "position",
        )

    def _topic(self) -> str:
        """The topic of a data row."""
        return self._named(lambda s, database: self.topics.of(s.id, database=database), self.topics.of_rows)

    def _base(self, *, routed: bool = True) -> str:
        """The name of a data row's schemas, without its last part."""
        topic = self.topics.of if routed else self.topics.unrouted

        def of_rows(*, database: bool) -> str:
            name = self.topics.of_rows(database=database)
            if self.schema_names == "none":
                return name
            return f"regexp_replace(regexp_replace({name}, '[^A-Za-z0-9_.]', '_'), '^[^A-Za-z_]', '_')"

        return self._named(lambda s, database: adjusted(topic(s.id, database=database), self.schema_names), of_rows)

    def _named(self, make: Callable[[TableSchema, bool], str], of_rows: Callable[..., str]) -> str:
        """A text made of a table's name, which some connectors write without the database."""
        if self.tables.nameless:
            usual, other = of_rows(database=True), of_rows(database=False)
        else:
            usual = self.tables.text(lambda s: make(s, True))
            other = self.tables.text(lambda s: make(s, False))
        return self.forms.choice(lambda block: usual if block.connector.database_in_topic else other)

    def _value(self) -> str:
        # Null in one part would make all of them null, and null is a tombstone.
        if self.structs:
            before = self._images.event_json(self.tables, "before", _HAS_BEFORE)
            after = self._images.event_json(self.tables, "after", _HAS_AFTER)
        else:
            before, after = (self._images.without(name, f"{name}_gone") for name in ("b", "a"))
        parts = ["'{\"before\":'", before, "',\"after\":'", after, "',\"source\":'", self.forms.choice(Block.sql)]
        operation = ['\',"op":"\'', "case kind when 'D' then 'd' when 'C' then 'c' else op end", "'\"'", *self._clock()]
        # A changed key is two events of its transaction: the row carries the number of the first.
        # One that is not known is 0, which no change has: Debezium's schema wants a number.
        counted = ", ".join(f"'{name}', coalesce(transaction.{name} + if(kind = 'C', 1L, 0L), 0L)" for name in _COUNTS)
        block = _json(f"named_struct('id', transaction.id, {counted})")
        always = f"concat(',\"transaction\":', if(transaction is null, 'null', {block}))"
        seldom = f"if(transaction is null, '', concat(',\"transaction\":', {block}))"
        transaction = [self.forms.choice(lambda form: seldom if form.flag else always)]
        parts += [*transaction, *operation] if self.shape.transaction_first else [*operation, *transaction]
        payload = f"concat({', '.join(parts)}, '}}')"
        return f"concat({self._opening()}, {payload}, '}}')" if self.value_schemas else payload

    def _clock(self) -> list[str]:
        fields = [("ts_ms", "unix_millis(capture_time)")]
        if self.shape.fine_times:
            # Nanoseconds end in the year 2262.
            nanos = "try_multiply(unix_micros(capture_time), 1000L)"
            fields += [("ts_us", "unix_micros(capture_time)"), ("ts_ns", nanos)]
        parts = []
        for name, count in fields:
            parts += [f"',\"{name}\":'", f"coalesce(cast({count} as string), 'null')"]
        return parts

    def _opening(self) -> str:
        """The value's schema, up to the payload: only the rows' own part depends on the table."""
        text = self.schema_text
        row = self.tables.text(lambda s: text(self._cut(row_schema(s, _BASE, self.modes, self.rules))[0]))
        end = self._cut(row_schema(self.tables.any, _BASE, self.modes, self.rules))[1].removesuffix("}")
        rests = {
            with_block: ",".join(to_text(f) for f in envelope_fields(self.shape, transaction=with_block))
            for with_block in (True, False)
        }

        def behind(form: Block) -> str:
            source = f",{to_text(form.schema())},"
            always = literal(text(f"{source}{rests[True]}"))
            return f"if(transaction is null, {literal(text(source + rests[False]))}, {always})" if form.flag else always

        version = f',"version":{self.shape.envelope_version}' if self.shape.envelope_version is not None else ""
        parts = [
            literal('{"schema":{"type":"struct","fields":['),
            row, "base", literal(f'{end},"field":"before"}},'),
            row, "base", literal(f'{end},"field":"after"}}'),
            self.forms.choice(behind),
            literal('],"optional":false,"name":"'), "base", literal(f'.Envelope"{version}}},"payload":'),
        ]  # fmt: skip
        base = self._base()
        return f"concat({', '.join(base if part == 'base' else part for part in parts)})"

    @staticmethod
    def _cut(schema: dict[str, object]) -> tuple[str, str]:
        """A schema's text before and behind the name of the table."""
        first, _, last = to_text(schema).partition(_BASE)
        return first, last

    def _key(self) -> str:
        """The key as bytes; null for a table without one."""
        own = f"if(kind in ({KINDS}), {self._metadata.key()}, {self._key_text(header=False)})"
        return f"cast({own} as binary)"

    def _key_text(self, *, header: bool) -> str:
        """The text of a data row's key; in a header the other one of a changed key, as it was before any routing."""
        images, route = self._images, None if header else self.topics.route

        def field(schema: TableSchema) -> tuple[str, str] | None:
            if route is None or route.key_field is None or self.topics.routed(schema.id) is None:
                return None
            if route.key_field in {self.rules.names(schema)[name] for name in schema.key}:
                raise OptionError(
                    f"The key of table {schema.id} has a column '{route.key_field}' already.",
                    remedy="Set 'key_field_name' to another name.",
                )
            return route.key_field, route.key_value(self.topics.unrouted(schema.id))

        def key_json(schema: TableSchema) -> str:
            if not self.structs or not schema.key:
                return images.key_json(schema, "other" if header else "key", field(schema))
            if header:
                return images.struct_key_json(schema, "kind = 'C'", _IS_MOVED, None, None)
            old = f"kind in ({_DELETES}, {_TOMBSTONES})"
            return images.struct_key_json(schema, old, "kind <> 't'", field(schema), "key")

        payload = self.tables.choice(key_json)
        if not self.key_schemas:
            return payload

        def schema_text(schema: TableSchema) -> tuple[str, str]:
            added = field(schema)
            found = key_schema(schema, _BASE, self.modes, self.rules, table_field=added[0] if added else None)
            return self._cut(found)

        opening = self.tables.choice(
            lambda s: (
                literal(f'{{"schema":{self.schema_text(schema_text(s)[0])}') if s.key else images.unkeyed_schema(s)
            )
        )
        end = literal(f'{schema_text(self.tables.any)[1]},"payload":')
        return f"concat({opening}, {self._base(routed=not header)}, {end}, {payload}, '}}')"

    def _headers(self) -> str:
        name = f"if(kind = 'C', '{OLD_KEY_HEADER}', '{NEW_KEY_HEADER}')"
        key = f"cast({self._key_text(header=True)} as binary)"
        # A lambda, because Spark keeps a projection that holds one out of whole-stage code: many columns would make
        # one method there, too long for the JIT or for Java; outside, Spark splits it.
        keys = f"transform(array(kind), o -> named_struct('key', {name}, 'value', {key}))"
        moved = _IS_MOVED if self.structs else "other is not null"
        keys = f"if({moved}, {keys}, cast(null as array<{_HEADER}>))"
        if not (self.context and self.shape.name == "3"):
            return keys
        context = self.forms.choice(self._context)
        both = f"if({moved}, concat({keys}, {context}), {context})"
        return f"if(kind in ({EDGES}, {HEARTBEAT}), null, {both})"

    def _context(self, form: Block) -> str:
        words = (
            ("connectorLogicalName", self.topics.prefix),
            ("taskId", "0"),
            ("connectorName", form.connector.name),
            ("runId", self.run_id),
        )
        entries = []
        for word, text in words:
            value = literal(_header_text(text))
            if word == "connectorName" and not text:
                start, end = _header_text(_BASE).split(f'"{_BASE}"')
                said = "to_json(array(coalesce(source['connector'], '')))"
                value = f"concat({literal(start)}, substr({said}, 2, length({said}) - 2), {literal(end)})"
            entries.append(f"named_struct('key', '{_CONTEXT}{word}', 'value', cast({value} as binary))")
        return f"array({', '.join(entries)})"


def _header_text(text: str) -> str:
    return json.dumps({"schema": {"type": "string", "optional": False}, "payload": text}, separators=(",", ":"))


def _json(struct: str) -> str:
    return f"to_json({struct}, map('ignoreNullFields', 'false'))"

"""The plan of an encode: change rows to Debezium messages in three projections, whatever the number of tables.

1. Each row becomes its messages (a delete and its tombstone; a changed key gives delete, tombstone and create).
2. Images become arrays in the table's column order, by position where the map has the expected columns.
3. One `to_json` per table, chosen by the row's structure, writes the payload from typed values.

Column expressions are chosen by a table number, so that a batch of many tables is read once. The rows that are no data
(schema changes, transaction edges, heartbeats) go the same way, past the expressions of the tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.changes import Column, TableSchema
from headrace.changes.typed import literal
from headrace.errors import OptionError
from headrace.formats.debezium_metadata import EDGES, HEARTBEAT, KINDS, SCHEMA, Metadata
from headrace.formats.debezium_schema import FieldRules, Shape, adjusted, key_schema, to_text, value_schema
from headrace.formats.debezium_topics import Topics
from headrace.formats.debezium_values import ValueModes, absent_text, wire_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CONNECTOR = "sqlserver"
NEW_KEY_HEADER = "__debezium.newkey"
OLD_KEY_HEADER = "__debezium.oldkey"
_CONTEXT = "__debezium.context."
# Message kinds. The capital letters are the three messages of a change of key.
_DELETES, _TOMBSTONES, _MOVED_AWAY = "'d', 'D'", "'x', 'X'", "'D', 'X'"
_WITH_AFTER = "'r', 'c', 'u', 'C'"
_COUNTS = ("total_order", "data_collection_order")
_HEADER = "struct<key:string,value:binary>"


@dataclass(frozen=True)
class EncodePlan:
    """What an encode needs to know besides the rows.

    Args:
        schemas: the structures present, one per fingerprint.
        topics: where the messages go.
        shape: the generation of events.
        version: what stands in `source.version`.
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
    """

    schemas: Sequence[TableSchema]
    topics: Topics
    shape: Shape
    version: str
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

    @property
    def _metadata(self) -> Metadata:
        return Metadata(
            topics=self.topics,
            shape=self.shape,
            source=self._source(),
            schema_changes=self.schema_changes,
            value_schemas=self.value_schemas,
            key_schemas=self.key_schemas,
        )

    def apply(self, changes: DataFrame) -> DataFrame:
        """The messages, lazily."""
        rows = self._rows(changes)
        messages = self._messages(rows)
        return self._written(self._positional(messages))

    def _rows(self, changes: DataFrame) -> DataFrame:
        wanted = ", ".join(literal(op) for op in ("r", "c", "u", "d", "t") if op not in self.skipped)
        unknown = (
            "raise_error(concat('Change rows of table ', concat_ws('.', table.database, table.schema, table.name), "
            "' follow a structure that no schema row describes (schema_id ', coalesce(schema_id, 'null'), "
            "'). Keep the schema rows in the batch, or give the option schema.'))"
        )
        known = ", ".join(literal(schema.fingerprint) for schema in self.schemas) or "''"
        # A filter, because Spark leaves out a projected check whose result nobody reads.
        rows = changes.where(
            f"case when op in ({wanted}) then coalesce(schema_id in ({known}), false) or {unknown} "
            f"else {self._metadata.taken} end"
        )
        numbers = " ".join(f"when {literal(s.fingerprint)} then {n}" for n, s in enumerate(self.schemas))
        return rows.selectExpr(
            "op",
            "table",
            "before",
            "after",
            "coalesce(key, if(op = 'd', before, after)) as key",
            "position",
            "event_time",
            "capture_time",
            "snapshot",
            "transaction",
            "source",
            f"if(op = {SCHEMA}, table_schema, null) as table_schema",
            f"case schema_id {numbers} end as t" if numbers else "0 as t",
        )

    def _messages(self, rows: DataFrame) -> DataFrame:
        moved = self._choice(self._key_moved, "false")
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

    @staticmethod
    def _key_moved(schema: TableSchema) -> str | None:
        """Whether an update changed the key: a key column that the old image carries and that differs."""
        tests = [
            f"(map_contains_key(before, {name}) and not (before[{name}] <=> key[{name}]))"
            for name in map(literal, schema.key)
        ]
        return f"({' or '.join(tests)})" if tests else None

    def _positional(self, messages: DataFrame) -> DataFrame:
        names = self._choice(lambda s: _array([column.name for column in s.columns]))
        fill = place = None
        if self.shape.placeholder:
            fill = self._choice(lambda s: _array([absent_text(column, self.modes) for column in s.columns]))
            # Recorded of 3.6.1: in deletes, what the change table never holds is null.
            place = f"if(op = 'd', null, {fill}[i])" if self.modes.recorded_placeholders else f"{fill}[i]"

        def values(image: str) -> str:
            absent = f"transform({names}, k -> {image}[k])"
            if fill is not None:
                absent = f"transform({names}, (k, i) -> if(map_contains_key({image}, k), {image}[k], {place}))"
            return f"if(map_keys({image}) = {names}, map_values({image}), {absent})"

        return messages.selectExpr(
            "t",
            "kind",
            "op",
            "table",
            f"if(kind in ('u', {_DELETES}) and before is not null, {values('before')}, null) as b",
            f"if(kind in ({_WITH_AFTER}) and after is not null, {values('after')}, null) as a",
            f"if(kind in ({_MOVED_AWAY}), before, key) as key",
            f"case when kind in ({_MOVED_AWAY}) then key when kind = 'C' then before end as other",
            # The messages of one change keep their order where a sink sorts by position.
            f"if(place = 0, {self._metadata.position()}, concat(position, ':', place)) as position",
            "coalesce(event_time, capture_time) as event_time",
            "capture_time",
            "snapshot",
            "transaction",
            "source",
            "table_schema",
        )

    def _written(self, rows: DataFrame) -> DataFrame:
        metadata = self._metadata
        value = self._choice(self._payload)
        if self.value_schemas:
            opening = self._choice(lambda s: literal(f'{{"schema":{to_text(self._value_schema(s))},"payload":'))
            value = f"concat({opening}, {value}, '}}')"
        topic = self._choice(lambda s: literal(self.topics.of(s.id)))
        return rows.selectExpr(
            f"if(kind in ({KINDS}), {metadata.topic()}, {topic}) as topic",
            f"if(kind in ({SCHEMA}, {HEARTBEAT}), 0, null) as partition",
            f"if(kind in ({KINDS}), cast({metadata.key()} as binary), {self._key('key')}) as key",
            f"cast(case when kind in ({_TOMBSTONES}) then null when kind in ({KINDS}) then {metadata.value()} "
            f"else {value} end as binary) as value",
            f"{self._headers()} as headers",
            "position",
        )

    def _choice(self, make: Callable[[TableSchema], str | None], otherwise: str = "null") -> str:
        """One expression per table, chosen by the row's table number."""
        made = [(number, make(schema)) for number, schema in enumerate(self.schemas)]
        different = {expression for _, expression in made}
        if len(different) == 1:
            return different.pop() or otherwise
        branches = " ".join(f"when {number} then {expression}" for number, expression in made if expression is not None)
        return f"case t {branches} else {otherwise} end" if branches else otherwise

    def _base(self, topic: str) -> str:
        return adjusted(topic, self.schema_names)

    def _value_schema(self, schema: TableSchema) -> dict[str, object]:
        return value_schema(schema, self._base(self.topics.of(schema.id)), self.shape, self.modes, self.rules)

    def _payload(self, schema: TableSchema) -> str:
        fields = [("before", self._row(schema, "b")), ("after", self._row(schema, "a")), ("source", self._source())]
        times = [
            ("op", "case kind when 'D' then 'd' when 'C' then 'c' else op end"),
            *_times("capture_time", self.shape.fine_times),
        ]
        # A changed key is two events of its transaction: the row carries the number of the first.
        counted = ", ".join(f"'{name}', transaction.{name} + if(kind = 'C', 1L, 0L)" for name in _COUNTS)
        block = f"if(transaction is null, null, named_struct('id', transaction.id, {counted}))"
        transaction = ("transaction", block)
        fields += [transaction, *times] if self.shape.transaction_first else [*times, transaction]
        return _json(fields)

    def _row(self, schema: TableSchema, image: str) -> str:
        names = self.rules.names(schema)
        fields = [
            (names[column.name], self._value(f"{image}[{number}]", column))
            for number, column in enumerate(schema.columns)
        ]
        return f"if({image} is null, null, {_named_struct(fields)})"

    def _value(self, text: str, column: Column) -> str:
        return wire_value(text, column, self.modes)

    def _source(self) -> str:
        if self.shape.name == "1.7":
            # The old generation knows three marks only.
            mark = (
                "case when snapshot is null then 'false' when snapshot in ('last', 'incremental') then snapshot "
                "else 'true' end"
            )
        else:
            mark = "coalesce(snapshot, 'false')"
        times = _times("event_time", self.shape.fine_times)
        foreign = (
            "raise_error(concat('Change rows of connector ', coalesce(source['connector'], 'null'), "
            f"' can\\'t be written as Debezium JSON yet; {CONNECTOR} can.'))"
        )
        return _named_struct(
            [
                ("version", literal(self.version)),
                ("connector", f"if(source['connector'] <=> '{CONNECTOR}', '{CONNECTOR}', {foreign})"),
                ("name", literal(self.topics.prefix)),
                times[0],
                ("snapshot", mark),
                ("db", "table.database"),
                ("sequence", "cast(null as string)"),
                *times[1:],
                ("schema", "table.schema"),
                ("table", "table.name"),
                ("change_lsn", "source['change_lsn']"),
                ("commit_lsn", "source['commit_lsn']"),
                ("event_serial_no", "cast(source['event_serial_no'] as bigint)"),
            ]
        )

    def _key(self, image: str, *, header: bool = False) -> str:
        """The key as bytes, from the map column that holds it; null for a table without one.

        In a header it is the key as it was before any routing.
        """

        def written(schema: TableSchema) -> str | None:
            if not schema.key:
                return None
            names = self.rules.names(schema)
            fields = [
                (names[column.name], self._value(f"{image}[{literal(column.name)}]", column))
                for column in schema.key_columns
            ]
            unrouted = self.topics.unrouted(schema.id)
            routed = None if header else self.topics.routed(schema.id)
            field = self.topics.route.key_field if routed and self.topics.route else None
            if field is not None and self.topics.route is not None:
                if field in (name for name, _ in fields):
                    raise OptionError(
                        f"The key of table {schema.id} has a column '{field}' already.",
                        remedy="Set 'key_field_name' to another name.",
                    )
                fields.append((field, literal(self.topics.route.key_value(unrouted))))
            payload = _json(fields)
            if not self.key_schemas:
                return payload
            found = key_schema(schema, self._base(routed or unrouted), self.modes, self.rules, table_field=field)
            opening = f'{{"schema":{to_text(found)},"payload":'
            return f"concat({literal(opening)}, {payload}, '}}')"

        return f"if({image} is null, null, cast({self._choice(written)} as binary))"

    def _headers(self) -> str:
        name = f"if(kind = 'C', '{OLD_KEY_HEADER}', '{NEW_KEY_HEADER}')"
        # A lambda, because Spark keeps a projection that holds one out of whole-stage code: many columns would make
        # one method there, too long for the JIT or for Java; outside, Spark splits it.
        keys = f"transform(array(other), o -> named_struct('key', {name}, 'value', {self._key('o', header=True)}))"
        keys = f"if(other is null, cast(null as array<{_HEADER}>), {keys})"
        if not (self.context and self.shape.name == "3"):
            return keys
        keys = f"coalesce({keys}, cast(array() as array<{_HEADER}>))"
        words = (
            ("connectorLogicalName", self.topics.prefix),
            ("taskId", "0"),
            ("connectorName", CONNECTOR),
            ("runId", self.run_id),
        )
        entries = ", ".join(
            f"named_struct('key', '{_CONTEXT}{word}', 'value', cast({literal(_header_text(text))} as binary))"
            for word, text in words
        )
        return f"if(kind in ({EDGES}, {HEARTBEAT}), null, concat({keys}, array({entries})))"


def _times(column: str, fine: bool) -> list[tuple[str, str]]:
    times = [("ts_ms", f"unix_millis({column})")]
    if fine:
        times += [("ts_us", f"unix_micros({column})"), ("ts_ns", f"unix_micros({column}) * 1000L")]
    return times


def _header_text(text: str) -> str:
    return json.dumps({"schema": {"type": "string", "optional": False}, "payload": text}, separators=(",", ":"))


def _named_struct(fields: Sequence[tuple[str, str]]) -> str:
    return f"named_struct({', '.join(f'{literal(name)}, {expression}' for name, expression in fields)})"


def _json(fields: Sequence[tuple[str, str]]) -> str:
    return f"to_json({_named_struct(fields)}, map('ignoreNullFields', 'false'))"


def _array(texts: Sequence[str | None]) -> str:
    items = ", ".join("cast(null as string)" if text is None else literal(text) for text in texts)
    return f"array({items})"

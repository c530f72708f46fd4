"""The images and keys of Debezium's events, as Spark SQL, from maps of canonical texts and from typed structs.

A column that an image does not carry has the unavailable-value placeholder where Debezium has one for its type, and
else is left out of the JSON object, so that it stays told from NULL; generations without the placeholder write null.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.changes import Column, TableSchema
from headrace.changes.typed import literal, quote, typed_value
from headrace.formats.debezium_schema import FieldRules, key_schema, to_text
from headrace.formats.debezium_tables import Tables
from headrace.formats.debezium_values import (
    ValueModes,
    absent_text,
    out_of_range,
    typed_wire_value,
    wire_type,
    wire_value,
)


@dataclass(frozen=True)
class Images:
    """How the images of one encode are written.

    Args:
        structs: whether they are structs and not maps.
        modes: how values are written.
        rules: how columns become fields.
        placeholder: whether columns that an image does not carry are told from NULL.
    """

    structs: bool
    modes: ValueModes
    rules: FieldRules
    placeholder: bool

    def key_moved(self, schema: TableSchema) -> str | None:
        """Whether an update changed the key: a key column that the old image carries and that differs."""
        if self.structs:
            tests = [
                f"(not coalesce(array_contains(before_absent, {literal(name)}), false) "
                f"and not (before.{quote(name)} <=> after.{quote(name)}))"
                for name in schema.key
            ]
        else:
            tests = [
                f"(map_contains_key(before, {name}) and not (before[{name}] <=> key[{name}]))"
                for name in map(literal, schema.key)
            ]
        return f"({' or '.join(tests)})" if tests else None

    def wholes(self, schema: TableSchema) -> list[str]:
        """Columns beside struct images: numbers of which a wire value takes several looks."""
        made = []
        for place, column in enumerate(schema.columns):
            whole = wire_type(column, self.modes).whole
            if self.structs and whole is not None and not self._defaulted(column):
                made += [
                    f"{whole(f'{image}.{quote(column.name)}')} as {_whole(image, place)}"
                    for image in ("before", "after")
                ]
        return made

    def out_of_range(self, schema: TableSchema) -> str | None:
        """Spark SQL for the columns of a row whose values the wire does not hold, by name, as an array of texts with
        nulls; null where all are held.
        """
        found = []
        for column in schema.columns:
            values = [self._of_image(image, column) for image in ("before", "after")]
            tests = [out_of_range(column, value, self.modes, typed=self.structs) for value in values]
            found += [f"if({test}, {literal(column.name)}, null)" for test in tests if test is not None]
        return f"array({', '.join(found)})" if found else None

    def _of_image(self, image: str, column: Column) -> str:
        return f"{image}.{quote(column.name)}" if self.structs else f"{image}[{literal(column.name)}]"

    def _defaulted(self, column: Column) -> bool:
        return self.modes.null_as_default and column.nullable and column.default is not None

    def laid_out(self, tables: Tables, image: str) -> str:
        """A map as an array of its texts in the order of the table's columns."""
        names = _names(tables)
        values = f"transform({names}, k -> {image}[k])"
        if self.placeholder:
            fill = tables.constant(lambda s: _array([absent_text(column, self.modes) for column in s.columns]))
            # Recorded of 3.6.1: in deletes, what the change table never holds is null.
            place = f"if(op = 'd', null, {fill}[i])" if self.modes.recorded_placeholders else f"{fill}[i]"
            values = f"transform({names}, (k, i) -> if(map_contains_key({image}, k), {image}[k], {place}))"
        return f"if(map_keys({image}) = {names}, map_values({image}), {values})"

    def left_out(self, tables: Tables, image: str) -> str:
        """The fields of the columns that are left out of the JSON, as `"name":null`; null for none."""
        if not self.placeholder or self.modes.recorded_placeholders:
            return "cast(null as array<string>)"
        names = tables.constant(lambda s: _array([c.name for c in self._without_placeholder(s)]))
        fields = tables.constant(
            lambda s: _array([self._null_field(s, column) for column in self._without_placeholder(s)])
        )
        if self.structs:
            return f"filter({fields}, (f, i) -> array_contains({image}_absent, {names}[i]))"
        gone = f"filter({fields}, (f, i) -> not map_contains_key({image}, {names}[i]))"
        return f"if(map_keys({image}) = {_names(tables)}, null, {gone})"

    def _without_placeholder(self, schema: TableSchema) -> list[Column]:
        return [column for column in schema.columns if absent_text(column, self.modes) is None]

    def _null_field(self, schema: TableSchema, column: Column) -> str:
        return f"{json.dumps(self.rules.names(schema)[column.name], ensure_ascii=False)}:null"

    def event_json(self, tables: Tables, image: str, held: str) -> str:
        """A struct image's JSON as it stands in the event: without what is left out, and the text `null` for null.

        Args:
            held: Spark SQL: whether the message has this image.
        """
        row = self.json(tables, image)
        present = f"when not ({held}) or {image} is null then 'null'"
        if not self.placeholder or self.modes.recorded_placeholders:
            return f"case {present} else {row} end"
        less = _without(row, self.left_out(tables, image))
        return f"case {present} when {image}_absent is null then {row} else {less} end"

    def json(self, tables: Tables, image: str) -> str:
        """An image's JSON, with null for what is left out; null where the image is."""

        def row(schema: TableSchema) -> str:
            names = self.rules.names(schema)
            fields = [
                (names[column.name], self._value(image, place, column)) for place, column in enumerate(schema.columns)
            ]
            return _json(fields) if fields else "'{}'"

        return f"if({image} is null, null, {tables.choice(row)})"

    @staticmethod
    def without(json_text: str, gone: str) -> str:
        """An image's JSON without the fields that are left out; the text `null` for null."""
        return (
            f"case when {json_text} is null then 'null' when {gone} is null then {json_text} "
            f"else {_without(json_text, gone)} end"
        )

    def _value(self, image: str, place: int, column: Column) -> str:
        if not self.structs:
            return wire_value(f"{image}[{place}]", column, self.modes)
        wire = wire_type(column, self.modes)
        if wire.of_whole is not None and not self._defaulted(column):
            value = wire.of_whole(_whole(image, place))
        else:
            value = typed_wire_value(f"{image}.{quote(column.name)}", column, self.modes)
        text = absent_text(column, self.modes) if self.placeholder else None
        if text is None:
            return value
        # A binary value is written as base64, so its placeholder is binary too.
        raw = column.logical.kind == "bytes" and self.modes.binary in ("bytes", "base64")
        stand_in = typed_value(literal(text), column) if raw else wire_value(literal(text), column, self.modes)
        return f"if(array_contains({image}_absent, {literal(column.name)}), {stand_in}, {value})"

    def key_json(self, schema: TableSchema, image: str, added: tuple[str, str] | None) -> str:
        """A key's JSON; null where there is none.

        Args:
            image: the column that holds it.
            added: a field that a router adds, and its text.
        """
        if not schema.key:
            # Nobody told the key of the structure, but the row may.
            every = self._key_fields(schema, [column.name for column in schema.columns], "key")
            return f"if(key is null, null, to_json({_named_struct(every)}))" if every else "null"
        more = [] if added is None else [(added[0], literal(added[1]))]
        return f"if({image} is null, null, {_json(self._key_fields(schema, schema.key, image) + more)})"

    def struct_key_json(
        self, schema: TableSchema, old: str, present: str, added: tuple[str, str] | None, otherwise: str | None
    ) -> str:
        """The same from struct images.

        Args:
            old: Spark SQL: whether it is the key of `before`, not of `after`.
            present: Spark SQL: whether there is a key at all.
            added: as `key_json` has it.
            otherwise: the map that holds the key where that image is null; null for none.
        """
        more = [] if added is None else [(added[0], literal(added[1]))]
        names = self.rules.names(schema)
        fields = []
        for column in schema.key_columns:
            value = f"if({old}, before.{quote(column.name)}, after.{quote(column.name)})"
            fields.append((names[column.name], typed_wire_value(value, column, self.modes, in_key=True)))
        missing = "null"
        if otherwise is not None:
            by_map = _json(self._key_fields(schema, schema.key, otherwise) + more)
            missing = f"if({otherwise} is null, null, {by_map})"
        image = f"if({old}, before is null, after is null)"
        return f"case when not ({present}) then null when {image} then {missing} else {_json(fields + more)} end"

    def _key_fields(self, schema: TableSchema, key: Sequence[str], image: str) -> list[tuple[str, str]]:
        names = self.rules.names(schema)
        return [
            (names[name], wire_value(f"{image}[{literal(name)}]", schema.column(name), self.modes, in_key=True))
            for name in key
        ]

    def unkeyed_schema(self, schema: TableSchema) -> str:
        """The opening of a key's schema where only the row knows its key."""
        if not schema.columns:
            return "null"
        every = TableSchema(schema.id, schema.columns, tuple(column.name for column in schema.columns))
        fields = key_schema(every, "", self.modes, self.rules)["fields"]
        pairs = ", ".join(
            f"{literal(column.name)}, {literal(to_text(field))}"
            for column, field in zip(schema.columns, fields, strict=True)
        )
        found = f"array_join(transform(map_keys(key), k -> try_element_at(map({pairs}), k)), ',')"
        return f"""concat('{{"schema":{{"type":"struct","fields":[', {found}, '],"optional":false,"name":"')"""


def _whole(image: str, place: int) -> str:
    return f"{image}_{place}_whole"


def _without(json_text: str, gone: str) -> str:
    """The quotes of a string are escaped in JSON, so what looks like the field is the field."""
    one = "replace(replace(replace(j, concat(',', f), ''), concat('{', f, ','), '{'), concat('{', f, '}'), '{}')"
    return f"aggregate({gone}, {json_text}, (j, f) -> {one})"


def _names(tables: Tables) -> str:
    return tables.constant(lambda s: _array([column.name for column in s.columns]))


def _array(texts: Sequence[str | None]) -> str:
    items = ", ".join("cast(null as string)" if text is None else literal(text) for text in texts)
    return f"array({items})" if texts else "cast(array() as array<string>)"


def _named_struct(fields: Sequence[tuple[str, str]]) -> str:
    return f"named_struct({', '.join(f'{literal(name)}, {expression}' for name, expression in fields)})"


def _json(fields: Sequence[tuple[str, str]]) -> str:
    return f"to_json({_named_struct(fields)}, map('ignoreNullFields', 'false'))"

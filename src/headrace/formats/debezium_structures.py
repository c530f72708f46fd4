"""Which structure a Debezium message follows: found as text by Spark SQL, read once per distinct text in Python.

The text has parts with a separator that no JSON text can hold: what it is about, the schema of the value and of the
key as far as they came, and where the row belongs.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.changes import TableId, TableSchema
from headrace.changes.typed import literal
from headrace.errors import OptionError
from headrace.formats.debezium_fields import FieldText, field_text, table_of
from headrace.formats.debezium_options import field_rules, value_modes
from headrace.formats.debezium_parts import parts
from headrace.formats.debezium_schema import SHAPES, key_schema, value_schema
from headrace.formats.debezium_table_changes import CHANGES_DDL, payload_of, table_changes
from headrace.formats.debezium_texts import FIELD_DDL
from headrace.formats.debezium_topics import topics
from headrace.formats.structures import Structure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PLAN_DDL = (
    f"struct<names:array<string>,columns:array<string>,fields:array<{FIELD_DDL}>,key_names:array<string>,"
    f"key_columns:array<string>,key_fields:array<{FIELD_DDL}>,changes:{CHANGES_DDL}>"
)
"""What the expressions need: the fields of a row and of a key in order (name on the wire, column, how it is read), or
the tables of a schema change."""

DESCRIBED = ("value_schema", "key_schema", "source_block")
"""The columns that `with_described` adds."""

_SEPARATOR = "\x1e"
_HAS_SCHEMA = "(value_schema is not null or key_schema is not null)"


def structure_text(*, given: bool, unwrapped: str | None) -> str:
    """Spark SQL for the text by which a message's structure is found; null where it says none. It speaks of the columns
    that `with_described` adds.

    Args:
        given: whether the user gave structures.
        unwrapped: what the names of added fields begin with, where rows are flat.
    """
    text = "cast(value as string)"
    change = (
        f"contains({text}, '\"tableChanges\"') and contains({text}, '\"databaseName\"') "
        f"and not contains({text}, '\"op\":') and not contains({text}, '\"op\" :')"
    )
    names = ("db", "schema", "table")
    if unwrapped is None:
        place = [f"regexp_extract(source_block, {_member(name)}, 1)" for name in names]
    else:
        place = [_any_fact(text, (f"{unwrapped}{name}", f"{unwrapped}source_{name}")) for name in names]
    described = _joined("if(value is null, 'T', 'E')", "value_schema", "key_schema", *place, "topic")
    found = f"else {described}" if given else f"when {_HAS_SCHEMA} then {described}"
    return f"case when {change} then {_joined(literal('C'), text)} {found} end"


def with_described(messages: DataFrame, *, given: bool) -> DataFrame:
    """Beside the messages with their places: the schemas' texts, and the text from the source block on, where the block
    is asked for its table. Each is looked for once, because the texts are long."""
    text = "cast(value as string)"
    blocks = (
        f"when contains({text}, {literal(start)}) then substring_index({text}, {literal(start)}, -1)"
        for start in ('"source":{', '"source": {')
    )
    schemas = messages.selectExpr("*", *(f"{parts(name).schema} as {name}_schema" for name in ("value", "key")))
    asked = "true" if given else _HAS_SCHEMA
    return schemas.selectExpr("*", f"if({asked}, case {' '.join(blocks)} end, null) as source_block")


def _joined(*values: str) -> str:
    filled = ", ".join(f"coalesce({value}, '')" for value in values)
    return f"concat_ws('\\u001e', {filled})"


def _member(name: str) -> str:
    """A pattern, as an SQL literal, for a member of that name whose value is a text."""
    return literal(f'"{re.escape(name)}": ?"((?:[^"\\\\]|\\\\.){{0,300}})"')


def _any_fact(text: str, names: Sequence[str]) -> str:
    found = [f"nullif(regexp_extract({text}, {_member(name)}, 1), '')" for name in names]
    return f"coalesce({', '.join(found)})"


@dataclass(frozen=True)
class StructureReader:
    """Reads a text that `structure_text` found; used on the driver and in executors, so it holds plain data only.

    Args:
        table_field: the key field by which a router tells tables apart; no part of a key.
        binary: how bytes stand as text.
        unwrapped: what the names of added fields begin with, where rows are flat.
        keys: the key columns that the user names, for messages without a key.
        given: the user's structures by topic, each with the fields of its row and of its key on the wire.
        whole_topics: whether those topics are whole; else they are what a topic ends with.
        shared: topics without a database that several of the tables could have: there only the message tells.
    """

    table_field: str
    binary: str
    unwrapped: str | None = None
    keys: tuple[str, ...] = ()
    given: Mapping[str, tuple[TableSchema, Sequence[Any], Sequence[Any]]] = field(default_factory=dict)
    whole_topics: bool = True
    shared: frozenset[str] = frozenset()

    def __call__(self, text: str) -> Structure:
        """The structure, or none for a text that is none."""
        kind, _, rest = text.partition(_SEPARATOR)
        try:
            if kind == "C":
                return Structure(None, _plan(changes=table_changes(payload_of(rest))))
            found = self._described(*rest.split(_SEPARATOR))
            # A tombstone announces nothing.
            return Structure(None, found.plan) if kind == "T" else found
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return Structure(None)

    def _described(self, value: str, key: str, db: str, schema: str, table: str, topic: str) -> Structure:
        key_fields = [f for f in _fields(key) if f.get("field") != self.table_field]
        envelope = _connect(value) if value else None
        row = None if envelope is None else self._row_fields(envelope)
        id = TableId(*(json.loads(f'"{part}"') for part in (db, schema, table)))
        known = self._given(topic, id)
        if known is not None:
            return self._known(known, row, key_fields)
        key_texts = {f["field"]: field_text(f, None, self.binary) for f in key_fields}
        if row is None:
            return Structure(None, _plan(key=(list(key_texts), list(key_texts), list(key_texts.values()))))
        names = [f["field"] for f in row]
        if not id.name:
            id = _id_of_name(str((envelope or {}).get("name") or ""), topic)
        structure = table_of(id, row, list(key_texts) or self.keys)
        row_plan = (names, names, [field_text(f, None, self.binary) for f in row])
        plan = _plan(row=row_plan, key=(list(key_texts), list(key_texts), list(key_texts.values())) if key else None)
        return Structure(structure, plan)

    def _given(self, topic: str, id: TableId) -> tuple[TableSchema, Sequence[Any], Sequence[Any]] | None:
        """The given structure of a message by its topic; another database's table in that topic is another table."""
        found = self.given.get(topic)
        if found is None and not self.whole_topics:
            # The longest first, so that a table of another schema is not taken for it.
            ends = [topic[n + 1 :] for n, char in enumerate(topic) if char in "._-"]
            topic = next((end for end in ends if end in self.given or end in self.shared), topic)
            found = self.given.get(topic)
        if found is None and topic in self.shared:
            return next((given for given in self.given.values() if given[0].id == id), None)
        if found is None or not id.database or found[0].id.database in ("", id.database):
            return found
        return next((given for given in self.given.values() if given[0].id == id), None)

    def _known(
        self,
        known: tuple[TableSchema, Sequence[Any], Sequence[Any]],
        row: Sequence[Mapping[str, Any]] | None,
        key: Sequence[Mapping[str, Any]],
    ) -> Structure:
        """A given structure; how values stand on the wire is what the message's own schema says, where it has one."""
        schema, fields, key_fields = known
        columns = {f["field"]: c for f, c in zip(fields, schema.columns, strict=True)}

        def read(found: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str], list[FieldText]]:
            names = [f["field"] for f in found]
            texts = [
                field_text(f, columns[f["field"]].logical if f["field"] in columns else None, self.binary)
                for f in found
            ]
            return names, [columns[name].name if name in columns else name for name in names], texts

        return Structure(schema, _plan(row=read(row or fields), key=read(key or key_fields)))

    def _row_fields(self, envelope: Mapping[str, Any]) -> list[Mapping[str, Any]] | None:
        """The fields of a row in a value's schema; none where it is no data change event's."""
        fields = envelope.get("fields") or []
        if self.unwrapped is not None:
            row = [f for f in fields if not str(f.get("field")).startswith(self.unwrapped)]
            control = str(envelope.get("name") or "").startswith("io.debezium.connector.")
            return None if control else row
        by_name = {f.get("field"): f for f in fields}
        found = by_name.get("after") or by_name.get("before")
        if "op" not in by_name or found is None:
            return None
        return list(found.get("fields") or [])


def _plan(
    row: tuple[Sequence[str], Sequence[str], Sequence[FieldText]] | None = None,
    key: tuple[Sequence[str], Sequence[str], Sequence[FieldText]] | None = None,
    changes: Sequence[Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    def part(found: Any, number: int) -> Any:
        return None if found is None else list(found[number])

    return {
        "names": part(row, 0),
        "columns": part(row, 1),
        "fields": None if row is None else [text.plan for text in row[2]],
        "key_names": part(key, 0),
        "key_columns": part(key, 1),
        "key_fields": None if key is None else [text.plan for text in key[2]],
        "changes": None if changes is None else [dict(change) for change in changes],
    }


def _connect(opening: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(opening + "}}")["schema"]
    return found


def _fields(opening: str) -> list[Mapping[str, Any]]:
    return list(_connect(opening).get("fields") or []) if opening else []


def _id_of_name(name: str, topic: str) -> TableId:
    """Where a row belongs by the name of its schema (`prefix.db.schema.table.Value`) or its topic."""
    found = (name.rpartition(".")[0] or topic).split(".")[1:] or [topic]
    database, schema, table = ["", "", "", *found][-3:]
    return TableId(database, schema, table)


def given_reader(settings: Mapping[str, Any], tables: Sequence[TableSchema]) -> StructureReader:
    """The reader of messages of given tables.

    Raises:
        OptionError: two structures can't be told apart by their topics.
    """
    shape, prefix, modes = SHAPES[settings["shape"]], settings["topic_prefix"], value_modes(settings)
    names, rules = topics(settings, shape), field_rules(settings, shape)
    found: dict[str, tuple[TableSchema, Sequence[Any], Sequence[Any]]] = {}
    whole: dict[str, TableSchema] = {}
    # Some connectors' topics do not carry the database.
    bare = [names.of(TableId("", schema.id.schema, schema.id.name)) for schema in tables]
    shared = {topic for topic, times in Counter(bare).items() if times > 1}
    for schema, short in zip(tables, bare, strict=True):
        topic = names.of(schema.id)
        taken = whole.get(topic)
        if taken is not None and taken.id == schema.id:
            raise OptionError(
                f"Option 'schema' of format 'debezium_json' holds two structures of table {schema.id}.",
                remedy="Keep the one that the messages follow.",
            )
        if taken is not None:
            raise OptionError(
                f"Tables {taken.id} and {schema.id} share the topic '{topic}', so a structure can't be told by it.",
                remedy="Decode messages with schemas, without the option 'schema'.",
            )
        whole[topic] = schema
        envelope = value_schema(schema, topic, shape, modes, rules)
        row = next(f for f in envelope["fields"] if f["field"] == "after")["fields"]
        found[topic] = (schema, row, key_schema(schema, topic, modes, rules)["fields"])
        if short not in shared:
            found.setdefault(short, found[topic])
    return StructureReader(
        table_field=settings["key_field_name"],
        binary=settings["binary_handling_mode"],
        unwrapped=settings["unwrapped_prefix"] if settings["unwrapped"] else None,
        keys=tuple(settings["keys"]),
        given=found,
        whole_topics=bool(prefix),
        shared=frozenset(shared - set(whole)),
    )

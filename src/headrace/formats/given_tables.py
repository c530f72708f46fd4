"""What is known about tables whose messages have no types: the user's schemas, and the key columns.

Without a schema, texts stay as they came. With one, those of times and bytes become canonical texts; a message with a
value that its column can't hold is an error.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import TableSchema
from headrace.formats.change_columns import schema_ids
from headrace.formats.given_values import UnfitValue, misfits, note_misfits
from headrace.formats.json_images import ObjectImage, Unread, write_canonical
from headrace.formats.schema_columns import Numbered, numbers_of
from headrace.wire.names import Names
from headrace.wire.spans import Array
from headrace.wire.tape import Tape

if TYPE_CHECKING:
    from headrace.formats.base import FormatSettings
    from headrace.formats.codec import Facts

_CODES = {"date": "d", "timestamp": "t", "instant": "i", "zoned_timestamp": "i", "bytes": "b"}
# A day, and midnight after it at most.
_DAY = r"^[+-]?[0-9]{4,}-[0-9]{1,2}-[0-9]{1,2}[T ]00:00(:00([.]0+)?)?Z?$"
_ZONED = r"(Z|[+-][0-9]{2}:?[0-9]{2}(:?[0-9]{2})?)$"


@dataclass(frozen=True)
class TableOptions:
    """What the options say about the tables.

    Args:
        tables: of several tables, for images that are maps.
        typed: of the one table whose images are structs.
        keys: the key columns, where nothing else says them.
        hex: whether bytes are written as hex, and not as base64.
        messages_first: whether key columns that a message names outrank `keys`.
        nulls: whether null stands in structs for a value of the source that Spark's type has no place for.
    """

    tables: tuple[TableSchema, ...] = ()
    typed: TableSchema | None = None
    keys: tuple[str, ...] = ()
    hex: bool = False
    messages_first: bool = True
    nulls: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether there are schemas, so that none that messages say are used."""
        return self.typed is not None or bool(self.tables)

    @classmethod
    def of(cls, settings: FormatSettings, facts: Facts, **more: Any) -> TableOptions:
        """What a format's options say, and what the driver found out; `more` are fields of few formats."""
        nulls = settings.unrepresentable == "null"
        return cls(facts.tables, facts.typed, settings.keys, nulls=nulls, **more)

    def schema_of(self, parts: Sequence[str | None]) -> TableSchema | None:
        """The schema of a table. A part of the name that one side lacks (database, schema) counts as equal."""
        if self.typed is not None:
            return self.typed
        for schema in self.tables:
            own_parts = (schema.id.database, schema.id.schema, schema.id.name)
            if all(not ours or not theirs or ours == theirs for ours, theirs in zip(own_parts, parts, strict=True)):
                return schema
        return None

    def codes_of(self, schema: TableSchema | None) -> dict[str, str]:
        """How texts of columns become canonical; without the columns whose texts stay as they are."""
        codes = {}
        for column in () if schema is None else schema.columns:
            code = _CODES.get(column.logical.kind)
            if code is None or (code == "b" and not self.hex):
                continue
            # Typed columns read all text forms by themselves.
            as_text = column.logical.spark_type == "string" or schema is None or column.name in schema.key
            if self.typed is None or code == "b" or as_text:
                codes[column.name] = code
        return codes


@dataclass(frozen=True)
class ResolvedTable:
    """What rows of one table that name the same key have in common."""

    schema: TableSchema | None
    key_names: tuple[str, ...]
    codes: Mapping[str, str]


class ResolvedTables:
    """Remembers what was found out of each table."""

    def __init__(self, given: TableOptions) -> None:
        self._given = given
        self._known = Numbered(self._known_of)

    @property
    def known(self) -> list[ResolvedTable]:
        """What was found out, by number."""
        return self._known.all

    def numbers(self, table: pa.StructArray, named: pa.StringArray) -> Array:
        """The number in `known` of each row's table.

        Args:
            table: the tables.
            named: the key columns that a message names, as a JSON array of texts; null where it names none.
        """
        return numbers_of(self._known, [*table.flatten(), named])

    def _known_of(self, description: tuple[str | None, ...]) -> ResolvedTable:
        schema = self._given.schema_of(description[:3])
        return ResolvedTable(schema, self._key_names(schema, description[3]), self._given.codes_of(schema))

    def _key_names(self, schema: TableSchema | None, named: str | None) -> tuple[str, ...]:
        given, schema_key = self._given, () if schema is None else schema.key
        if given.typed is not None and schema_key:
            return schema_key
        announced = tuple(dict.fromkeys(name for name in json.loads(named or "[]") if name is not None))
        return (
            (announced or given.keys or schema_key) if given.messages_first else (given.keys or schema_key or announced)
        )

    def given(self, of: Array) -> Given | None:
        """The schemas of rows by these numbers; None where the user gave none for maps."""
        return Given([known.schema for known in self.known], of) if self._given.tables else None

    def columns(self, table: pa.StructArray, newest: ObjectImage, of: Array) -> dict[str, pa.Array]:
        """The columns that say which table and row changes are of.

        Args:
            table: the tables.
            newest: the images that hold the key.
            of: the number in `known` of each row's table.
        """
        key, key_text = newest.key([known.key_names for known in self.known], of)
        ids = schema_ids([known.schema for known in self.known], of)
        return {"table": table, "key": key, "key_text": key_text, "schema_id": ids}

    def write_canonical(self, tape: Tape, objects: Array, of: Array) -> list[Unread]:
        return write_canonical(tape, objects, of, [known.codes for known in self.known], canonical)


def canonical(tape: Tape, at: Array, code: str) -> pa.StringArray:
    """Texts of one kind of column in the canonical text form; null for text that is not hex, if hex is expected."""
    texts = tape.texts(at)
    if code == "d":
        midnight = pc.match_substring_regex(texts, _DAY)
        return pc.if_else(midnight, pc.replace_substring_regex(texts, "[T Z].*$", ""), texts)
    if code == "t":
        return pc.replace_substring(pc.replace_substring_regex(texts, "Z$", ""), "T", " ")
    if code == "i":
        whole = pc.or_(pc.invert(pc.match_substring(texts, ":")), pc.match_substring_regex(texts, _ZONED))
        zoned = pc.replace_substring(texts, " ", "T")
        return pc.if_else(whole, zoned, pc.binary_join_element_wise(zoned, "Z", ""))
    return pa.array([_base64_of_hex(text) for text in texts.to_pylist()], pa.string())


def _base64_of_hex(text: str) -> str | None:
    try:
        # An odd first digit is a byte by itself, as in Spark and Oracle.
        raw = bytes.fromhex(text if len(text) % 2 == 0 else "0" + text)
    except ValueError:
        return None
    return base64.b64encode(raw).decode() if text.isalnum() or not text else None


class Given(NamedTuple):
    """The schemas that the user gave for images that are maps, and the number of each row's."""

    schemas: Sequence[TableSchema | None]
    of: Array


def unfit_values(image: ObjectImage, known: Given | None) -> list[UnfitValue]:
    """The values of maps that the columns of their schemas can't hold."""
    if known is None or not any(known.schemas):
        return []

    def columns_of(some: Array, names: list[str]) -> Array:
        return ObjectImage(image.tape, image.base[some], image.over[some]).fields(Names([names]))

    return misfits(image.tape, image.present, known.of, known.schemas, columns_of)


def image_columns(
    images: Mapping[str, ObjectImage],
    key: pa.MapArray,
    given: TableOptions,
    schema: pa.Schema,
    rows: Array,
    problems: dict[int, str],
    known: Given | None = None,
) -> dict[str, pa.Array]:
    """Images as columns of change rows: maps, or structs with the names that each image does not carry.

    Args:
        images: by the column's name, in the order in which their problems count.
        key: the keys of rows.
        given: what the user said of the tables; images are maps where that is not one schema.
        schema: the change rows'.
        rows: the message of each row.
        problems: takes the first problem of a message.
        known: the schemas that the user gave for maps.
    """
    columns: dict[str, pa.Array] = {}
    for name, image in images.items():
        if given.typed is None:
            refused = unfit_values(image, known)
            columns[name] = image.map()
        else:
            columns[name], columns[f"{name}_absent"], refused = image.structs(given.typed, schema.field(name).type)
        note_misfits(refused, key, rows, problems, nulls=given.nulls)
    return columns

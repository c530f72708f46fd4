"""What data messages are read by: the metadata that their schema id names, else what else is known of their table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from headrace.changes import TableSchema
from headrace.formats.given_tables import TableOptions
from headrace.formats.qlik.avro_schema import Description
from headrace.formats.qlik.metadata import MetadataMessage


@dataclass(frozen=True)
class DecodeSettings:
    """How messages are read.

    Args:
        order: the option `mask_byte_order`.
        given: what the user said of the tables.
        metadata: what is known, by schema id.
        lenient: whether a message may name metadata that is not known.
    """

    order: str
    given: TableOptions
    metadata: Mapping[str, MetadataMessage] = field(default_factory=dict)
    lenient: bool = False


class ResolvedTable:
    """What data messages that tell the same have in common.

    Args:
        facts: the schema id, the schema and the name of the table, the key columns that Kafka's key names (JSON).
        description: what the Avro schema of the messages says of their columns; None in JSON.
        reading: how messages are read.
    """

    def __init__(self, facts: Sequence[str | None], description: Description | None, reading: DecodeSettings) -> None:
        self._id, self._said, self._named = facts[0], facts[1:3], facts[3]
        self._description, self._reading = description, reading
        self._metadata = None if self._id is None else reading.metadata.get(self._id)

    @property
    def is_unknown(self) -> bool:
        """Whether the messages name metadata that nobody has said, and must not be read without."""
        is_read = self._metadata is not None or self._description is not None or self._reading.lenient
        return self._id is not None and not is_read

    @property
    def unknown(self) -> str:
        """Why messages can't be read that follow unknown metadata."""
        return unknown(self._id or "")

    @cached_property
    def table(self) -> dict[str, Any] | None:
        own_name = None if self._own is None else (self._own.id.schema, self._own.id.name)
        return table_parts(*(own_name or self._said))

    @cached_property
    def _own(self) -> TableSchema | None:
        """The table schema of messages, from metadata or from their Avro schema."""
        if self._description is None:
            return None if self._metadata is None else self._metadata.schema
        if self._metadata is None:
            return self._description.schema
        # Values come as the types that the Avro schema has.
        types = {column.name: column.logical for column in self._description.schema.columns}
        schema = self._metadata.schema
        return TableSchema(
            schema.id, tuple(replace(c, logical=types.get(c.name, c.logical)) for c in schema.columns), schema.key
        )

    @cached_property
    def schema(self) -> TableSchema | None:
        given = self._reading.given
        if given.typed is not None:
            return given.typed
        return self._own or self._given

    @cached_property
    def _given(self) -> TableSchema | None:
        table = self.table or {}
        return self._reading.given.schema_of((None, table.get("schema"), table.get("name")))

    @property
    def checked(self) -> TableSchema | None:
        """The schema of the user's that values are held against; None where the messages say their own."""
        return self._given if self._own is None else None

    @property
    def announced(self) -> TableSchema | None:
        """The schema that a `schema` row tells before the first message; None where the user gave it."""
        return None if self._reading.given.typed is not None else self._own

    @cached_property
    def ordinals(self) -> tuple[str | None, ...] | None:
        """The columns by ordinal; None where only the messages say them."""
        if self._metadata is not None:
            return self._metadata.ordinals
        return None if self._description is None else tuple(c.name for c in self._description.schema.columns)

    @cached_property
    def codes(self) -> Mapping[str, str]:
        """How the texts of JSON become canonical, by column."""
        if self._description is not None:
            return {}
        given = self._reading.given
        own_codes = {} if self._metadata is None else replace(given, typed=None).codes_of(self._metadata.schema)
        if self._metadata is not None and given.typed is None:
            return own_codes
        return {**given.codes_of(given.typed if given.typed is not None else self._given), **own_codes}

    @property
    def own_key(self) -> tuple[str, ...]:
        """The key columns that need no Kafka key: those of the metadata, of the given schema, or given by name."""
        given = self._reading.given
        typed = () if given.typed is None else given.typed.key
        stated_key = () if self._metadata is None else self._metadata.schema.key
        listed = () if self._given is None else self._given.key
        return typed or stated_key or listed or tuple(dict.fromkeys(given.keys))

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        return self.own_key or tuple(dict.fromkeys(json.loads(self._named or "[]")))


def unknown(id: str) -> str:
    """Why a message of an unknown schema can't be read."""
    return (
        f"The metadata message of schema {id} is unknown. Read the metadata topic together with the data, or set "
        "option 'metadata'."
    )


def table_parts(schema: str | None, name: str | None) -> dict[str, Any] | None:
    """The table of a row; None where a message says no part of it."""
    return {"database": None, "schema": schema or None, "name": name or None} if schema or name else None

"""What a table is: its name and its schema.

A `TableSchema` turns canonical text into typed columns and back. Its JSON is a superset of the `tableChanges[].table`
of a Debezium schema change event, so that a schema row and a schema-change message say the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from headrace.changes.types import LogicalType


@dataclass(frozen=True, order=True)
class TableId:
    """Where a table lives; `database` may be empty where a format does not say it."""

    database: str
    schema: str
    name: str

    @property
    def path(self) -> str:
        """`schema.name`, as users write it in include lists; `database.name` where the database system has no schemas.

        No two tables of a source's database have the same.
        """
        return ".".join(part for part in (self.schema or self.database, self.name) if part)

    @property
    def full_path(self) -> str:
        """`database.schema.name`."""
        return ".".join(part for part in (self.database, self.schema, self.name) if part)

    @property
    def quoted(self) -> str:
        r"""Debezium's id of a table: `"db"."schema"."name"`."""
        return ".".join(f'"{part}"' for part in (self.database, self.schema, self.name) if part)

    def __str__(self) -> str:
        return self.full_path


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Args:
        name: as in the source, any characters.
        position: 1-based position in the source table.
        logical: what its values mean.
        native_type: the source's own type name in lower case (`nvarchar`, `int identity`).
        length: characters or bytes, or the digits of a decimal, as the source declares them.
        scale: digits after the point, or fraction digits of a time.
        nullable: whether the source table allows NULL.
        default: the default as canonical text, where it is a constant that could be understood.
        default_expression: the default as the source writes it.
        identity: the source numbers it.
        generated: the source computes it.
        jdbc_type: the number that Debezium's schema-change events carry, where known.
        large: a value that the source may leave out of a change when it did not change (MAX, LOB, TOAST).
        comment: its comment in the source's catalog.
        masked: its values are hidden behind asterisks or hashes.
        truncated_to: how many characters are left of its values, where more may have been there.
        enum_values: the labels of an enum type in their order, also where the column holds arrays of it.
        charset: the character set of its texts in the source, where each column may have its own.
    """

    name: str
    position: int
    logical: LogicalType
    native_type: str = ""
    length: int | None = None
    scale: int | None = None
    nullable: bool = True
    default: str | None = None
    default_expression: str | None = None
    identity: bool = False
    generated: bool = False
    jdbc_type: int | None = None
    large: bool = False
    comment: str | None = None
    masked: bool = False
    truncated_to: int | None = None
    enum_values: tuple[str, ...] | None = None
    charset: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Debezium's column, and beside it what Debezium doesn't have (`logicalType`, `default`, `large`...)."""
        hiding = {"masked": True} if self.masked else {}
        cut = {"truncatedTo": self.truncated_to} if self.truncated_to is not None else {}
        return {
            "name": self.name,
            "jdbcType": self.jdbc_type,
            "nativeType": None,
            "typeName": self.native_type,
            "typeExpression": self.native_type,
            "charsetName": self.charset,
            "length": self.length,
            "scale": self.scale,
            "position": self.position,
            "optional": self.nullable,
            "autoIncremented": self.identity,
            "generated": self.generated,
            "comment": self.comment,
            "defaultValueExpression": self.default_expression,
            "enumValues": None if self.enum_values is None else list(self.enum_values),
            "logicalType": str(self.logical),
            "default": self.default,
            "large": self.large,
            **hiding,
            **cut,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Column:
        """Read `to_json`'s form back."""
        return cls(
            name=data["name"],
            position=data["position"],
            logical=LogicalType.parse(data["logicalType"]),
            native_type=data.get("typeName") or "",
            length=data.get("length"),
            scale=data.get("scale"),
            nullable=data.get("optional", True),
            default=data.get("default"),
            default_expression=data.get("defaultValueExpression"),
            identity=data.get("autoIncremented", False),
            generated=data.get("generated", False),
            jdbc_type=data.get("jdbcType"),
            large=data.get("large", False),
            comment=data.get("comment"),
            masked=data.get("masked", False),
            truncated_to=data.get("truncatedTo"),
            enum_values=None if data.get("enumValues") is None else tuple(data["enumValues"]),
            charset=data.get("charsetName"),
        )


LIST_SCHEMAS = (
    "Set option 'schema' of the source's format to a list of the tables' schemas (docs/apply.md); where a pipeline of "
    "Headrace writes the messages, `headrace tables` of its file prints the list."
)
"""What to do where messages do not have the types of columns."""


@dataclass(frozen=True)
class TableSchema:
    """A table's schema at one time: what the images of its change rows follow.

    Args:
        id: where the table lives.
        columns: in source order.
        key: names of the key columns in key order; empty when the table has none.
        comment: the table's comment in the source's catalog.
        primary_key: the table's own key, where its change rows have another one because the user wants it so.
        charset: the character set of new columns in the source, where each table may have its own.
    """

    id: TableId
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    comment: str | None = None
    primary_key: tuple[str, ...] | None = None
    charset: str | None = None
    _by_name: Mapping[str, Column] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_name = {column.name: column for column in self.columns}
        if len(by_name) != len(self.columns):
            raise ValueError(f"table {self.id} has two columns with the same name")
        missing = [name for name in self.key if name not in by_name]
        if missing:
            raise ValueError(f"key column {missing[0]!r} of table {self.id} is not among its columns")
        object.__setattr__(self, "_by_name", by_name)

    def column(self, name: str) -> Column:
        """The column of that name.

        Raises:
            KeyError: there is none.
        """
        return self._by_name[name]

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """The key's columns in key order."""
        return tuple(self._by_name[name] for name in self.key)

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits that are the same for the same schema, over processes and releases; stands in `schema_id`.

        Comments do not count: they change no value.
        """
        data = self.to_json()
        data.pop("comment")
        for column in data["columns"]:
            column.pop("comment")
        text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """The schema as JSON values; `id` is Debezium's quoted form, `tableId` the parts."""
        return {
            "id": self.id.quoted,
            "tableId": [self.id.database, self.id.schema, self.id.name],
            "defaultCharsetName": self.charset,
            "primaryKeyColumnNames": list(self.key if self.primary_key is None else self.primary_key),
            **({"messageKeyColumnNames": list(self.key)} if self.primary_key is not None else {}),
            "columns": [column.to_json() for column in self.columns],
            "comment": self.comment,
        }

    def to_text(self) -> str:
        """The schema as one line of JSON, as in `table_schema` of a `schema` row."""
        return json.dumps(self.to_json(), separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TableSchema:
        """Read `to_json`'s form back."""
        primary = tuple(data.get("primaryKeyColumnNames") or ())
        named = data.get("messageKeyColumnNames")
        return cls(
            id=TableId(*data["tableId"]),
            columns=tuple(Column.from_json(column) for column in data["columns"]),
            key=primary if named is None else tuple(named),
            comment=data.get("comment"),
            primary_key=None if named is None else primary,
            charset=data.get("defaultCharsetName"),
        )

    @classmethod
    def from_text(cls, text: str) -> TableSchema:
        """Read `to_text`'s form back."""
        return cls.from_json(json.loads(text))

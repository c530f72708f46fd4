"""A captured table: its schema, the capture instance that is read, and its rows as canonical texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from headrace.changes import Column, TableId, TableSchema
from headrace.changes.one_table import about
from headrace.changes.types import LogicalType
from headrace.errors import CaptureError
from headrace.sources.rows import rows_per_fetch
from headrace.sources.tables.columns import say_left_out
from headrace.sources.tables.keys import UniqueKey
from headrace.sources.tables.table_rules import SourceTable, TableRules, no_column_left
from headrace.sources.tables.unmatched import TableColumns


class NativeType(Protocol):
    """A column's declared type as a server's catalog has it; immutable, and compared by value."""

    @property
    def name(self) -> str:
        """The base type's name."""

    @property
    def logical(self) -> LogicalType:
        """What the values mean."""

    @property
    def large(self) -> bool:
        """Whether a change table may leave a value out that an update did not change."""

    @property
    def length(self) -> int | None:
        """How many characters, bytes or digits a value has at the most."""

    @property
    def width(self) -> int:
        """About how many bytes a value takes at the most; of a large one what it often takes."""

    @property
    def declaration(self) -> str:
        """The type as SQL writes it."""

    @property
    def marker(self) -> str:
        """The parameter for a bound value, of the column's own type."""

    def projection(self, expression: str) -> str:
        """How an expression of this type is selected."""

    def bound(self, text: str) -> object:
        """A canonical text as the parameter of `marker`."""

    def texts(self, values: pa.Array) -> pa.Array:
        """Canonical text of a fetched column.

        Raises:
            ValueError: what was fetched is not what the type is fetched as.
        """

    def to_json(self) -> list[Any]:
        """What `Dialect.native` makes the type of again."""


class NativeTypes(Protocol):
    """Knows a server's declared types."""

    def native(self, *parts: Any) -> NativeType:
        """A type out of its JSON form."""


class UnreadableValue(CaptureError):
    """A value came in a form that can't be what its column is declared as. The error doesn't show it."""


ARROW_ROWS = 32_768
"""The most rows per Arrow batch: large enough that Python's share is small."""


@dataclass(frozen=True)
class CaptureInstance:
    """One change table of a source table.

    Args:
        name: what the server knows it by: SQL Server's capture instance, or the quoted name of Db2's change table.
        start_lsn: the oldest LSN it still holds everything after; None until the capture job first ran.
        columns: captured column names with their ordinal in the change table.
        has_command_id: whether the change table has `__$command_id` (older servers do not).
        object_id: the change table's id, by which an instance is known from a later one of the same name.
        before_images: captured columns whose value before an update stands in a column of its own, and that column.
    """

    name: str
    start_lsn: str | None
    columns: tuple[tuple[str, int], ...]
    has_command_id: bool
    object_id: int = 0
    before_images: tuple[tuple[str, str], ...] = ()

    def same(self, other: CaptureInstance) -> bool:
        """Whether both are one change table; a later one of the same name is another."""
        return (self.name, self.object_id) == (other.name, other.object_id)


@dataclass(frozen=True)
class CapturedTable(SourceTable[NativeType]):
    """A source table as one of its capture instances shows it: the captured columns that the table still has.

    Args:
        instance: the capture instance that is read.
        numbers: what the catalog tells each column from a later one of its name by; empty where it has no such number.
        altered: what is another one when table or change table is altered; empty where the log has the statements.
        dropped: the names that captured columns had, and no column has now.
    """

    own_parts: ClassVar = ("since", "instance", "numbers", "altered", "dropped")
    instance: CaptureInstance = field(kw_only=True)
    numbers: tuple[int, ...] = field(default=(), kw_only=True)
    altered: str = field(default="", kw_only=True)
    dropped: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def batch_rows(self) -> int:
        """Rows per fetch: fewer where rows are wide, and few where nothing bounds them."""
        width = sum(native.width for native in self.natives)
        return rows_per_fetch(width, large=any(native.large for native in self.natives), most=ARROW_ROWS)

    def same_rows(self, other: CapturedTable) -> bool:
        """Whether rows are read alike: the same change table and the same schema."""
        return (
            self.instance.same(other.instance)
            and self.instance.before_images == other.instance.before_images
            and self.natives == other.natives
            and self.schema.fingerprint == other.schema.fingerprint
        )

    def numbered_as(self, shown: CapturedTable | None) -> CapturedTable:
        """With the numbers that the catalog shows, where an earlier release kept none; 0 for columns that are gone."""
        if self.numbers or shown is None or not shown.numbers:
            return self
        numbers = dict(zip((column.name for column in shown.schema.columns), shown.numbers, strict=True))
        return replace(self, numbers=tuple(numbers.get(column.name, 0) for column in self.schema.columns))

    def retyped_as(self, shown: CapturedTable) -> CapturedTable:
        """With the types that its columns have now.

        A server that gives a captured column another type converts what the change table holds, also of commits from
        before.
        """
        pairs = list(zip(shown.schema.columns, shown.natives, strict=True))
        now = {column.name: (column, native) for column, native in pairs}
        retyped = [
            (replace(now[c.name][0], position=c.position, nullable=c.nullable), now[c.name][1])
            if c.name in now and now[c.name][1] != native
            else (c, native)
            for c, native in zip(self.schema.columns, self.natives, strict=True)
        ]
        schema = replace(self.schema, columns=tuple(column for column, _ in retyped))
        return replace(self, schema=schema, natives=tuple(native for _, native in retyped))

    def to_json(self) -> dict[str, Any]:
        """JSON values, without what a column lacks."""
        values = super().to_json()
        columns = values["schema"]["columns"]
        columns = [{name: value for name, value in c.items() if not _lacking(name, value)} for c in columns]
        return {**values, "schema": {**values["schema"], "columns": columns}}

    def _own_json(self) -> Mapping[str, Any]:
        # Without the instance's start, which the clean-up moves.
        instance = self.instance
        return {
            "instance": [
                instance.name,
                [list(column) for column in instance.columns],
                instance.has_command_id,
                instance.object_id,
                *([[list(pair) for pair in instance.before_images]] if instance.before_images else []),
            ],
            **({"numbers": list(self.numbers)} if self.numbers else {}),
            **({"altered": self.altered} if self.altered else {}),
            **({"dropped": list(self.dropped)} if self.dropped else {}),
        }

    @classmethod
    def _own_fields(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        name, columns, has_command_id, object_id, *rest = data["instance"]
        before_images = tuple((column, holder) for column, holder in (rest[0] if rest else ()))
        return {
            "instance": CaptureInstance(
                name, None, tuple((n, o) for n, o in columns), has_command_id, object_id, before_images
            ),
            "numbers": tuple(data.get("numbers", ())),
            "altered": data.get("altered", ""),
            "dropped": tuple(data.get("dropped", ())),
        }


def _lacking(name: str, value: object) -> bool:
    """Whether a part of a column is what is read when it is left out."""
    return value is None or (value is False and name != "optional")


def column_texts(
    schema: TableSchema, natives: Sequence[NativeType], batch: pa.RecordBatch, first: int = 0
) -> list[pa.Array]:
    """What the driver fetched as canonical text, column by column.

    Args:
        schema: the table's schema.
        natives: the declared type per column.
        batch: rows whose columns are those of the table, after others.
        first: how many others.

    Raises:
        UnreadableValue: a column came in a form that can't be what it is declared as.
    """
    arrays = []
    for number, (column, native) in enumerate(zip(schema.columns, natives, strict=True)):
        arrays.append(_texts(schema.id, column.name, native, batch.column(first + number)))
    return arrays


def named_texts(table: CapturedTable, names: Sequence[str], batch: pa.RecordBatch) -> list[pa.Array]:
    """The same for some columns of a table, in the given order."""
    return [_texts(table.id, name, table.native(name), batch.column(number)) for number, name in enumerate(names)]


def _texts(table: TableId, column: str, native: NativeType, values: pa.Array) -> pa.Array:
    try:
        return native.texts(values)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        # What Arrow says holds the value.
        error = UnreadableValue(
            f"Column '{column}' of table '{table.path}' is declared {native.declaration}, but the driver gave "
            f"{values.type}, with a value that can't be converted.",
            remedy="Leave the column out with 'column_exclude_list', and report it; or let 'unreadable_changes' leave "
            "such changes out.",
        )
        raise about(error, table) from None


@dataclass(frozen=True)
class CatalogTable:
    """A captured table as the catalog shows it now, once for each of its capture instances.

    Args:
        id: where it lives.
        versions: oldest instance first.
        columns: all columns of the table, whether their values are captured or not.
    """

    id: TableId
    versions: tuple[CapturedTable, ...]
    columns: tuple[str, ...] = ()

    @property
    def newest(self) -> CapturedTable:
        """The instance with the newest schema among those that have begun; a single one that has not begun yet."""
        begun = [version for version in self.versions if version.instance.start_lsn is not None]
        return begun[-1] if begun else self.versions[-1]

    def of(self, instance: CaptureInstance) -> CapturedTable | None:
        """The table as an instance that is known from before shows it now; None when that instance is gone."""
        same = (
            v for v in self.versions if (v.instance.name, v.instance.object_id) == (instance.name, instance.object_id)
        )
        return next(same, None)


def columns_of(table: CatalogTable) -> TableColumns:
    """A table as names and patterns of the options are held against it."""
    captured = {name for version in table.versions for name in version.names}
    return TableColumns(table.id, table.columns, tuple(name for name in table.columns if name in captured))


def captured_table(
    rules: TableRules,
    id: TableId,
    columns: Sequence[tuple[Column, NativeType]],
    keys: Sequence[UniqueKey],
    instance: CaptureInstance,
    comment: str | None,
) -> CapturedTable:
    """A table as its capture instance shows it.

    Args:
        rules: what the options say.
        id: where it lives.
        columns: the captured columns that the table still has, of types that can be captured.
        keys: primary key and unique indexes, in the order they are preferred.
        instance: the capture instance that is read.
        comment: what the catalog says of the table.

    Raises:
        CaptureError: the key can't be as the options say.
        OptionError: no column is left, or a mask can't be applied.
    """
    computed = [column for column, _ in columns if column.generated]
    if computed:
        why = "change tables hold NULL for computed columns"
        say_left_out(id.full_path, tuple((c.name, c.native_type) for c in computed), why)
    usable = [(column, native) for column, native in columns if not column.generated]
    if not usable:
        raise no_column_left(id)
    table = rules.chosen(id, usable, keys, comment)
    return CapturedTable(table.schema, table.natives, table.chunk_key, table.protected, instance=instance)

"""What the options make of each table: its columns, its key, and how its snapshot is cut."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.errors import OptionError
from headrace.settings import Settings
from headrace.sources.offset import Recent, all_known
from headrace.sources.tables.columns import ColumnFilter
from headrace.sources.tables.keys import UniqueKey, choose_keys
from headrace.sources.tables.masks import Declared, Masks


class DeclaredType(Declared, Protocol):
    """The declared type of a column, as an offset keeps it."""

    def to_json(self) -> Any:
        """JSON values."""


Native = TypeVar("Native", bound=DeclaredType)

_PARTS = frozenset(["schema", "natives", "chunk_key", "protected"])
_SCHEMA_PARTS = TableSchema(TableId("", "", ""), (), primary_key=()).to_json().keys()
_COLUMN_PARTS = Column("", 0, LogicalType("string"), masked=True, truncated_to=0).to_json().keys()


@dataclass(frozen=True)
class SourceTable(Generic[Native]):
    """A captured table.

    Args:
        schema: its columns and key.
        natives: the declared type per column.
        chunk_key: the columns by which a snapshot is cut into key ranges; empty for a table that is read in one piece.
        protected: the columns whose values the options keep back or change.
        columns: all columns of the table, where it comes from the catalog.

    Attributes:
        own_parts: what a source adds to the JSON values of a table, by name.
    """

    own_parts: ClassVar[tuple[str, ...]] = ()
    schema: TableSchema
    natives: tuple[Native, ...]
    chunk_key: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    columns: tuple[str, ...] = field(default=(), compare=False, kw_only=True)

    @property
    def id(self) -> TableId:
        """Where the table lives."""
        return self.schema.id

    @property
    def names(self) -> tuple[str, ...]:
        """Its columns that are captured, those too whose values the options keep back."""
        return tuple(dict.fromkeys([*(column.name for column in self.schema.columns), *self.protected]))

    @property
    def row_key(self) -> tuple[str, ...]:
        """The columns by which rows are known again: a key of the table's own, else the one that the user named for it.

        Empty where neither is there.
        """
        named = self.schema.key if self.schema.primary_key is not None else ()
        return self.chunk_key or named

    def cut_by(self, columns: Sequence[str]) -> Self:
        """The same table, cut into ranges of other columns; none means its own."""
        return replace(self, chunk_key=tuple(columns)) if columns else self

    def can_cut(self, column: str) -> bool:
        """Whether the server compares and orders the values of a column as they are kept in a bound."""
        return not self.schema.column(column).large

    def native(self, name: str) -> Native:
        """A column's declared type."""
        return self.natives[[column.name for column in self.schema.columns].index(name)]

    def to_json(self) -> dict[str, Any]:
        """JSON values, as an offset keeps them."""
        return {
            "schema": self.schema.to_json(),
            "natives": [native.to_json() for native in self.natives],
            "chunk_key": list(self.chunk_key),
            **({"protected": list(self.protected)} if self.protected else {}),
            **self._own_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], native_of: Callable[[Any], Native]) -> Self:
        """Read `to_json`'s form back.

        Args:
            data: that form.
            native_of: reads a declared type.

        Raises:
            NewerRelease: a later release wrote it.
        """
        _require_known(data, cls.own_parts)
        return cls(
            TableSchema.from_json(data["schema"]),
            tuple(map(native_of, data["natives"])),
            tuple(data["chunk_key"]),
            tuple(data.get("protected", ())),
            **cls._own_fields(data),
        )

    def _own_json(self) -> Mapping[str, Any]:
        """The parts named in `own_parts`; one may be left out."""
        return {}

    @classmethod
    def _own_fields(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """The fields of the class that `_own_json` gave."""
        return {}


Kept = TypeVar("Kept", bound=SourceTable[Any])


class KeptTables(Generic[Kept]):
    """Reads the tables that offsets keep.

    Args:
        kind: the class of the source's tables.
        native_of: reads a declared type.
    """

    def __init__(self, kind: type[Kept], native_of: Callable[[Any], DeclaredType]) -> None:
        self._kind, self._native_of = kind, native_of
        self._recent: Recent[dict[str, Kept]] = Recent()

    def one(self, data: Mapping[str, Any]) -> Kept:
        """A table as `SourceTable.to_json` gave it.

        Raises:
            NewerRelease: a later release wrote it.
        """
        return self._kind.from_json(data, self._native_of)

    def __call__(self, schemas: Mapping[str, Any]) -> dict[str, Kept]:
        """The tables of an offset by path; not to be changed, because it is cached.

        Raises:
            NewerRelease: a later release wrote one of them.
        """
        return self._recent.of(schemas, lambda: {path: self.one(data) for path, data in schemas.items()})


def _require_known(data: Mapping[str, Any], own: Collection[str]) -> None:
    all_known(data, _PARTS.union(own))
    all_known(data["schema"], _SCHEMA_PARTS)
    for column in data["schema"]["columns"]:
        all_known(column, _COLUMN_PARTS)


class TableRules:
    """Makes captured tables of what a catalog shows.

    Args:
        columns: the columns whose values are wanted.
        keys: patterns of `message_key_columns`.
        masks: what is done to values.
        whole: a table that no list makes smaller: the signal table, whose columns are known by their position.
    """

    def __init__(
        self, columns: ColumnFilter | None = None, keys: Sequence[str] = (), masks: Masks | None = None, whole: str = ""
    ) -> None:
        self._columns = columns or ColumnFilter()
        self._keys = tuple(keys)
        self._masks = masks or Masks()
        self._whole = whole.strip().casefold()

    @classmethod
    def of(cls, settings: Settings) -> TableRules:
        """The rules that the options say.

        Raises:
            OptionError: options contradict each other, or one of them is malformed.
        """
        whole = settings.get("signal_data_collection", "")
        return cls(ColumnFilter.of(settings), settings.get("message_key_columns", ()), Masks.of(settings), whole)

    def keeps(self, id: TableId, column: str) -> bool:
        """Whether the values of a column that is not in the key are wanted."""
        return self._whole in (id.path.casefold(), id.full_path.casefold()) or self._columns.keeps(id, column)

    def chosen(
        self,
        id: TableId,
        columns: Sequence[tuple[Column, Native]],
        keys: Sequence[UniqueKey],
        comment: str | None = None,
    ) -> SourceTable[Native]:
        """A table with the columns that are wanted.

        Args:
            id: where it lives.
            columns: its columns that can be captured.
            keys: primary key and unique indexes, preferred ones first.
            comment: what the catalog says of the table.

        Raises:
            CaptureError: the key can't be as the options say.
            OptionError: no column is left, or a mask can't be applied.
        """
        chosen = choose_keys(id, [column for column, _ in columns], keys, self._keys)
        kept = [(c, n) for c, n in columns if c.name in chosen.message or self.keeps(id, c.name)]
        if columns and not kept:
            raise no_column_left(id)
        names = [column.name for column, _ in kept]
        schema = TableSchema(id, numbered(kept), chosen.message, comment, chosen.primary_of(names))
        natives = tuple(native for _, native in kept)
        return self.described(schema, natives, chosen.chunk(names), [column.name for column, _ in columns])

    def described(
        self,
        schema: TableSchema,
        natives: tuple[Native, ...],
        chunk_key: tuple[str, ...],
        all_columns: Sequence[str],
    ) -> SourceTable[Native]:
        """A table whose schema says what is done to values.

        Args:
            schema: as its columns are declared.
            natives: the declared type per column.
            chunk_key: as `SourceTable.chunk_key`.
            all_columns: those too that are left out.
        """
        schema = self._masks.described(schema, natives)
        names = [column.name for column in schema.columns]
        masked = {names[index] for index, _, _ in self._masks.of_table(schema, natives).changes}
        hidden = (name for name in all_columns if name in masked or self._columns.hides(schema.id, name, names))
        return SourceTable(schema, natives, chunk_key, tuple(dict.fromkeys(hidden)))


def numbered(columns: Sequence[tuple[Column, Native]]) -> tuple[Column, ...]:
    """Columns with their positions in a table that has no others."""
    return tuple(replace(column, position=index) for index, (column, _) in enumerate(columns, 1))


def no_column_left(id: TableId) -> OptionError:
    """The error of a table of which the options leave nothing."""
    return OptionError(
        f"No column of table '{id.path}' is left to capture.",
        remedy="Look at 'column_include_list', 'column_exclude_list' and the types of its columns.",
    )

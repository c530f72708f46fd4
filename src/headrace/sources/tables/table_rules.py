"""What the options make of each table: its columns, its key, and how its snapshot is cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.changes import Column, TableId, TableSchema
from headrace.errors import OptionError
from headrace.settings import Settings
from headrace.sources.tables.columns import ColumnFilter
from headrace.sources.tables.keys import UniqueKey, choose_keys
from headrace.sources.tables.masks import Masks
from headrace.sources.tables.source_table import Native, SourceTable


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

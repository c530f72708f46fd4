"""What the options make of a table as the catalog shows it: its columns, its key, the key of its snapshot's chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.changes import Column, TableId, TableSchema
from headrace.errors import OptionError
from headrace.options import Options
from headrace.sources.change_tables.captured_table import CapturedTable, CaptureInstance
from headrace.sources.change_tables.native import NativeType
from headrace.sources.snapshots.select_overrides import SelectOverrides
from headrace.sources.tables.columns import ColumnFilter, say_left_out
from headrace.sources.tables.keys import UniqueKey, choose_keys
from headrace.sources.tables.masks import Masks


class TableRules:
    """The options that shape tables, checked once.

    Args:
        columns: the columns whose values are wanted.
        keys: patterns of `message_key_columns`.
        masks: what is done to values.
        whole: a table that no list makes smaller: the signal table, whose columns are known by their place.

    Raises:
        OptionError: options contradict each other.
    """

    def __init__(
        self, columns: ColumnFilter | None = None, keys: Sequence[str] = (), masks: Masks | None = None, whole: str = ""
    ) -> None:
        self._columns = columns or ColumnFilter()
        self._keys = tuple(keys)
        self._masks = masks or Masks()
        self._whole = whole.strip().casefold()

    @classmethod
    def of(cls, settings: Options) -> TableRules:
        """The rules that the options say.

        Raises:
            OptionError: options contradict each other, or one of them is malformed.
        """
        SelectOverrides.of(settings)
        whole = settings["signal_data_collection"]
        return cls(ColumnFilter.of(settings), settings["message_key_columns"], Masks.of(settings), whole)

    def table(
        self,
        id: TableId,
        columns: Sequence[tuple[Column, NativeType]],
        keys: Sequence[UniqueKey],
        instance: CaptureInstance,
        comment: str | None,
    ) -> CapturedTable:
        """A table as it is captured.

        Key columns are kept whatever the lists say, because a row without its key names nobody.

        Args:
            id: where the table lives.
            columns: the captured columns that the table still has, of types that can be captured.
            keys: primary key and unique indexes, in the order they are preferred.
            instance: the capture instance that is read.
            comment: what the catalog says of the table.

        Raises:
            CaptureError: the key can't be as asked.
            OptionError: no column is left, or a mask can't be done as asked.
        """
        computed = [column for column, _ in columns if column.generated]
        if computed:
            why = "change tables hold NULL for computed columns"
            say_left_out(id.full_path, tuple((c.name, c.native_type) for c in computed), why)
        usable = [(column, native) for column, native in columns if not column.generated]
        chosen = choose_keys(id, [column for column, _ in usable], keys, self._keys)
        whole = self._whole in (id.path.casefold(), id.full_path.casefold())
        kept = [(c, n) for c, n in usable if whole or c.name in chosen.message or self._columns.keeps(id, c.name)]
        if not kept:
            raise OptionError(
                f"No column of table '{id.path}' is left to capture.",
                remedy="Look at 'column_include_list', 'column_exclude_list' and the types of its columns.",
            )
        natives = tuple(native for _, native in kept)
        numbered = _numbered([column for column, _ in kept])
        schema = TableSchema(
            id, numbered, chosen.message, comment, chosen.primary_of([column.name for column in numbered])
        )
        schema = self._masks.described(schema, natives)
        chunk_key = chosen.chunk([column.name for column in schema.columns])
        names = {column.name for column in schema.columns}
        masked = {schema.columns[place].name for place, _, _ in self._masks.of_table(schema, natives).changes}
        protected = tuple(c.name for c, _ in usable if c.name in masked or self._columns.hides(id, c.name, names))
        return CapturedTable(schema, natives, instance, chunk_key, protected)


def _numbered(columns: Sequence[Column]) -> tuple[Column, ...]:
    return tuple(replace(column, position=place) for place, column in enumerate(columns, start=1))

"""What the options make of a table as the catalog shows it: its columns, its key, the key of its snapshot's chunks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace

from headrace.changes import Column, TableId, TableSchema
from headrace.errors import OptionError
from headrace.options import Options, shown_name
from headrace.sources.oracle.captured_table import OracleTable
from headrace.sources.oracle.types import NativeType
from headrace.sources.tables.columns import ColumnFilter
from headrace.sources.tables.keys import UniqueKey, choose_keys
from headrace.sources.tables.masks import FAMILIES, Masks

_SHAPING = ("column_include_list", "column_exclude_list", "message_key_columns", "signal_data_collection", *FAMILIES)


class TableRules:
    """The options that shape tables, checked once.

    Args:
        settings: the source's options.

    Raises:
        OptionError: options contradict each other, or one of them is malformed.
    """

    def __init__(self, settings: Options) -> None:
        self._columns = ColumnFilter.of(settings)
        self._keys = settings["message_key_columns"]
        self._masks = Masks.of(settings)
        self._whole = settings["signal_data_collection"].strip().casefold()
        given = {name: settings[name] for name in _SHAPING if settings[name]}
        # Names of hashes have their salt in them.
        given |= {name: {shown_name(n): p for n, p in given[name].items()} for name in FAMILIES if name in given}
        kept_back = [name for name in given if name not in ("message_key_columns", "signal_data_collection")]
        if kept_back and settings["include_redo_sql"]:
            raise OptionError(
                f"Options 'include_redo_sql' and '{kept_back[0]}' are both given, but a redo statement holds all "
                "values of its row.",
                remedy="Keep one of them.",
            )
        text = json.dumps(given, sort_keys=True)
        self.digest = hashlib.sha256(text.encode()).hexdigest()[:12] if given else ""
        """Another one where tables may have another shape; empty where nothing was asked for."""

    def table(
        self, id: TableId, columns: Sequence[tuple[Column, NativeType]], keys: Sequence[UniqueKey]
    ) -> OracleTable:
        """A table as it is captured.

        Key columns are kept whatever the lists say, because a row without its key names nobody.

        Args:
            id: where the table lives.
            columns: its columns of types that can be captured.
            keys: primary key and unique constraints whose columns are among these and never NULL, preferred ones first.

        Raises:
            CaptureError: the key can't be as asked.
            OptionError: no column is left, or a mask can't be done as asked.
        """
        chosen = choose_keys(id, [column for column, _ in columns], keys, self._keys)
        kept = [(c, n) for c, n in columns if c.name in chosen.message or self._keeps(id, c.name)]
        if columns and not kept:
            raise OptionError(
                f"No column of table '{id.path}' is left to capture.",
                remedy="Look at 'column_include_list', 'column_exclude_list' and the types of its columns.",
            )
        names = [column.name for column, _ in kept]
        table = self._shaped(id, kept, chosen.message, chosen.chunk(names), chosen.primary_of(names))
        return replace(table, protected=self._protected(table, [column.name for column, _ in columns]))

    def reshaped(self, known: OracleTable, found: OracleTable) -> OracleTable:
        """A table that was shaped by other options, as these shape it.

        What the log says of it is still to be read by the schema that it had there: so a column that is known stays
        as it was, unless it is not wanted any more, and others come in.

        Args:
            known: as the offset has it.
            found: as the server's catalog shows it now, shaped by these options.
        """
        now = {column.name: column for column in found.schema.columns}
        old = {column.name for column in known.schema.columns}
        kept = [
            (now.get(column.name, column) if _native(found, column.name) == native else column, native)
            for column, native in zip(known.schema.columns, known.natives, strict=True)
            if column.name in found.schema.key or self._keeps(known.id, column.name)
        ]
        fresh = zip(found.schema.columns, found.natives, strict=True)
        kept += [(column, native) for column, native in fresh if column.name not in old]
        names = {column.name for column, _ in kept}
        keyed = found.schema if names.issuperset(found.schema.key) else known.schema
        chunk_key = known.chunk_key if names.issuperset(known.chunk_key) else ()
        table = self._shaped(known.id, kept, keyed.key, chunk_key, keyed.primary_key)
        return replace(table, protected=self._protected(table, [*table.names, *found.columns]))

    def _protected(self, table: OracleTable, columns: Sequence[str]) -> tuple[str, ...]:
        """The columns whose values the options keep back or change."""
        masked = self._masks.of_table(table.schema, table.natives).changes
        names = {table.schema.columns[place].name for place, _, _ in masked}
        there = table.names
        hidden = (name for name in columns if name in names or self._columns.hides(table.id, name, there))
        return tuple(dict.fromkeys(hidden))

    def _keeps(self, id: TableId, column: str) -> bool:
        # The signal table's columns are known by their place, so no list makes it smaller.
        return self._whole in (id.path.casefold(), id.full_path.casefold()) or self._columns.keeps(id, column)

    def _shaped(
        self,
        id: TableId,
        kept: Sequence[tuple[Column, NativeType]],
        key: tuple[str, ...],
        chunk: tuple[str, ...],
        primary: tuple[str, ...] | None,
    ) -> OracleTable:
        columns = tuple(replace(column, position=place) for place, (column, _) in enumerate(kept, 1))
        natives = tuple(native for _, native in kept)
        schema = self._masks.described(TableSchema(id, columns, key, primary_key=primary), natives)
        table = OracleTable(schema, natives, chunk)
        return table if all(table.native(name).chunks for name in chunk) else replace(table, chunk_key=())


def _native(table: OracleTable, name: str) -> NativeType | None:
    """A column's declared type; null where the table has no such column."""
    return next((n for c, n in zip(table.schema.columns, table.natives, strict=True) if c.name == name), None)

"""What the options make of a table as the catalog shows it: its columns, its key, the key of its snapshot's chunks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace

from headrace.changes import Column, TableId, TableSchema
from headrace.errors import OptionError
from headrace.options import shown_name
from headrace.sources.oracle.captured_table import OracleTable
from headrace.sources.oracle.options import OracleSettings
from headrace.sources.oracle.types import NativeType
from headrace.sources.tables.keys import UniqueKey
from headrace.sources.tables.masks import FAMILIES
from headrace.sources.tables.source_table import SourceTable
from headrace.sources.tables.table_rules import TableRules, numbered

_SHAPING = ("column_include_list", "column_exclude_list", "message_key_columns", "signal_data_collection", *FAMILIES)


class OracleTableRules:
    """The rules of one source.

    Args:
        settings: the source's options.

    Attributes:
        digest: another one where tables may look different; empty without options that change them.

    Raises:
        OptionError: options contradict each other, or one of them is malformed.
    """

    def __init__(self, settings: OracleSettings) -> None:
        self._rules = TableRules.of(settings)
        given = {name: value for name in _SHAPING if (value := settings.get(name))}
        # Names of hashes have their salt in them.
        given |= {name: {shown_name(n): p for n, p in given[name].items()} for name in FAMILIES if name in given}
        kept_back = [name for name in given if name not in ("message_key_columns", "signal_data_collection")]
        if kept_back and settings.include_redo_sql:
            raise OptionError(
                f"Options 'include_redo_sql' and '{kept_back[0]}' are both given, but a redo statement holds all "
                "values of its row.",
                remedy="Keep one of them.",
            )
        text = json.dumps(given, sort_keys=True)
        self.digest = hashlib.sha256(text.encode()).hexdigest()[:12] if given else ""

    def table(
        self, id: TableId, columns: Sequence[tuple[Column, NativeType]], keys: Sequence[UniqueKey]
    ) -> OracleTable:
        """A captured table.

        Args:
            id: where it lives.
            columns: its columns of types that can be captured.
            keys: primary key and unique constraints whose columns are among these and never NULL, preferred ones first.

        Raises:
            CaptureError: the key can't be as the options say.
            OptionError: no column is left, or a mask can't be applied.
        """
        return _oracle_table(self._rules.chosen(id, columns, keys))

    def reshaped(self, known: OracleTable, catalogued: OracleTable) -> OracleTable:
        """A table that was captured under other options, as these change it.

        Its changes in the log are still to be read by the schema that it had there: so a column that is known stays
        as it was, unless it is not wanted any more, and others come in.

        Args:
            known: as the offset has it.
            catalogued: as the server's catalog shows it now, under these options.
        """
        now = {column.name: column for column in catalogued.schema.columns}
        old = {column.name for column in known.schema.columns}
        kept = [
            (now.get(column.name, column) if _native(catalogued, column.name) == native else column, native)
            for column, native in zip(known.schema.columns, known.natives, strict=True)
            if column.name in catalogued.schema.key or self._rules.keeps(known.id, column.name)
        ]
        fresh = zip(catalogued.schema.columns, catalogued.natives, strict=True)
        kept += [(column, native) for column, native in fresh if column.name not in old]
        names = [column.name for column, _ in kept]
        keyed = catalogued.schema if set(names).issuperset(catalogued.schema.key) else known.schema
        chunk_key = known.chunk_key if set(names).issuperset(known.chunk_key) else ()
        schema = TableSchema(known.id, numbered(kept), keyed.key, primary_key=keyed.primary_key)
        natives = tuple(native for _, native in kept)
        table = _oracle_table(self._rules.described(schema, natives, chunk_key, [*names, *catalogued.columns]))
        return replace(table, dropped=known.dropped)


def _oracle_table(table: SourceTable[NativeType]) -> OracleTable:
    cuts = all(table.native(name).chunks for name in table.chunk_key)
    return OracleTable(table.schema, table.natives, table.chunk_key if cuts else (), table.protected)


def _native(table: OracleTable, name: str) -> NativeType | None:
    """A column's declared type; None where the table has no such column."""
    return next((n for c, n in zip(table.schema.columns, table.natives, strict=True) if c.name == name), None)

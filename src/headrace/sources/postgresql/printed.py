"""Tables of PostgreSQL as the server prints them, for `headrace verify`.

Source: PostgreSQL's documentation of its data types and of `format`, which prints by the output function of a type.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pyarrow as pa

from headrace.sources.postgresql.captured_table import PostgresTable
from headrace.sources.postgresql.catalog import captured_tables
from headrace.sources.postgresql.connection import Connection, connect
from headrace.sources.postgresql.options import PostgresSettings
from headrace.sources.postgresql.refusals import identifier
from headrace.sources.postgresql.types import NativeType
from headrace.sources.printed_tables import ROWS, Printed, PrintedTable, printed_number
from headrace.sources.snapshots.select_overrides import SelectOverrides
from headrace.sources.tables.columns import ColumnFilter
from headrace.sources.tables.masks import Masks

# Of its own, so that a setting that other sessions lack is a difference.
_SETTINGS = (
    "SET statement_timeout = 0; SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0; "
    "SET row_security = off; SET search_path = pg_catalog; SET timezone = 'UTC'; SET datestyle = 'ISO, YMD'; "
    "SET intervalstyle = 'postgres'; SET extra_float_digits = 1; SET bytea_output = 'hex'; SET lc_monetary = 'C'"
)
_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_END = "ROLLBACK"
_KIND = """
SELECT c.relkind::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s
"""
_PARTITIONED = "p"


def printed_tables(settings: PostgresSettings) -> Iterator[PrintedTable]:
    """The captured tables, one after another in one snapshot of the database; each is read before the next comes."""
    with connect(settings) as connection:
        connection.run(_SETTINGS)
        connection.run(_BEGIN)
        tables = captured_tables(connection, settings.database, settings, strict=True)
        for table in tables.values():
            yield _printed_table(connection, table, settings)
        connection.run(_END)


def _printed_table(connection: Connection, table: PostgresTable, settings: PostgresSettings) -> PrintedTable:
    id = table.id
    name = f"{identifier(id.schema)}.{identifier(id.name)}"
    # The rows of tables that inherit are theirs; those of partitions are the partitioned table's.
    whole = name if connection.value(_KIND, (id.schema, id.name)) == _PARTITIONED else f"ONLY {name}"
    select = SelectOverrides.of(settings).select(id)
    origin = whole if select is None else f"({select}\n) t"
    shown = ", ".join(
        f"CASE WHEN num_nulls({column}) = 0 THEN format('%s', {column}) END"
        for column in (identifier(one.name) for one in table.schema.columns)
    )
    keeps = ColumnFilter.of(settings)
    captured = {column.name for column in table.schema.columns}
    names = connection.column_names(f"SELECT * FROM {name} LIMIT 0")
    return PrintedTable(
        table.schema,
        int(connection.value(f"SELECT count(*) FROM {origin}")),
        tuple(one for one in names if one not in captured and keeps.keeps(id, one)),
        connection.printed_rows(f"SELECT {shown} FROM {origin}", ROWS),
        tuple(map(_text_of, table.natives)),
        Masks.of(settings).of_table(table.schema, table.natives),
    )


def _text_of(native: NativeType) -> Printed | None:
    kind = native.logical.kind
    if kind == "boolean":
        return lambda text: "true" if text == "t" else "false"
    if kind in ("float32", "float64"):
        return printed_number(kind)
    if kind == "bytes":
        return lambda text: base64.b64encode(bytes.fromhex(text.removeprefix("\\x"))).decode()
    if kind == "instant":
        return _instant
    if native.name == "money":
        return lambda text: text.replace("$", "").replace(",", "")
    if kind == "nested":
        # Values inside of values have one reader.
        return lambda text: str(native.texts(pa.array([text], pa.string()))[0].as_py())
    return None


def _instant(text: str) -> str:
    if text.endswith(("infinity", " BC")):
        return text
    return text.replace(" ", "T").removesuffix("+00") + "Z"

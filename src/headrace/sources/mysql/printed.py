"""Tables of MySQL and MariaDB as the server prints them, for `headrace verify`.

The server converts texts of all character sets, and the driver decodes them. Source: MySQL's and MariaDB's manuals of
CAST, CONVERT and HEX, and of the internal form of geometries.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator

from headrace.changes import LogicalType
from headrace.sources.mysql.captured_table import MysqlTable
from headrace.sources.mysql.catalog import Catalog
from headrace.sources.mysql.charsets import BINARY
from headrace.sources.mysql.connection import Connection, connect
from headrace.sources.mysql.options import MysqlSettings
from headrace.sources.mysql.refusals import identifier
from headrace.sources.mysql.snapshot_statements import quoted
from headrace.sources.mysql.types import NativeType
from headrace.sources.printed_tables import ROWS, Printed, PrintedTable, printed_number
from headrace.sources.snapshots.select_overrides import SelectOverrides
from headrace.sources.tables.columns import ColumnFilter
from headrace.sources.tables.masks import Masks

# Of its own, so that a limit that other sessions keep is a difference. Who sets max_join_size forbids large selects.
_SETTINGS = (
    "SET SESSION max_join_size = 18446744073709551615, sql_big_selects = 1, sql_select_limit = 18446744073709551615, "
    "time_zone = '+00:00', sql_mode = ''"
)
_NO_TIME_LIMIT = {True: "SET SESSION max_statement_time = 0", False: "SET SESSION max_execution_time = 0"}
_BEGIN = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"
_END = "ROLLBACK"
_BYTES = frozenset(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "vector", "bit"))
_GEOMETRY = (
    "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection",
)  # fmt: skip
_WHOLE_POINT = 25


def printed_tables(settings: MysqlSettings) -> Iterator[PrintedTable]:
    """The captured tables, one after another in one snapshot of the server; each is read before the next comes."""
    with connect(settings) as connection:
        connection.run(_SETTINGS)
        connection.run(_NO_TIME_LIMIT[connection.server.is_mariadb])
        tables = Catalog(connection, settings).captured(strict=True)
        connection.run(_BEGIN)
        for table in tables.values():
            yield _printed_table(connection, table, settings)
        connection.run(_END)


def _printed_table(connection: Connection, table: MysqlTable, settings: MysqlSettings) -> PrintedTable:
    select = SelectOverrides.of(settings, for_mysql=True).select(table.id)
    origin = quoted(table.id) if select is None else f"({select}\n) t"
    columns = list(zip(table.schema.columns, table.natives, strict=True))
    shown = ", ".join(_shown(native, identifier(column.name)) for column, native in columns)
    keeps = ColumnFilter.of(settings)
    captured = {column.name for column in table.schema.columns}
    names = connection.column_names(f"SELECT * FROM {quoted(table.id)} LIMIT 0")
    return PrintedTable(
        table.schema,
        int(connection.value(f"SELECT count(*) FROM {origin}")),
        tuple(name for name in names if name not in captured and keeps.keeps(table.id, name)),
        connection.printed_rows(f"SELECT {shown} FROM {origin}", ROWS),
        tuple(map(_text_of, table.natives)),
        Masks.of(settings).of_table(table.schema, table.natives),
    )


def _shown(native: NativeType, column: str) -> str:
    if native.kind in _BYTES or native.kind in _GEOMETRY or native.charset == BINARY:
        return f"HEX({column})"
    if native.kind in ("float", "double"):
        # The server prints a FLOAT with six digits; times one it is a DOUBLE of the same value.
        return f"CAST({column} * 1e0 AS CHAR)"
    if native.charset is not None:
        return f"CONVERT({column} USING utf8mb4)"
    return f"CAST({column} AS CHAR)"


def _text_of(native: NativeType) -> Printed | None:
    if native.kind in ("float", "double"):
        return printed_number(native.logical.kind)
    if native.kind == "bit":
        return _bits(native.length or 1)
    if native.kind in _GEOMETRY:
        return _geometry
    if native.kind == "vector":
        return _vector
    if native.kind in _BYTES or native.charset == BINARY:
        return lambda text: base64.b64encode(bytes.fromhex(text)).decode()
    if native.kind == "year" or native.unsigned:
        return _without_zeros
    if native.kind == "timestamp":
        return lambda text: text.replace(" ", "T") + "Z"
    return None


def _without_zeros(text: str) -> str:
    """A number without the zeros that ZEROFILL and YEAR print in front."""
    rest = text.lstrip("0")
    return rest if rest[:1].isdecimal() else f"0{rest}"


def _bits(length: int) -> Printed:
    if length == 1:
        return lambda text: "true" if int(text, 16) else "false"
    return lambda text: base64.b64encode(int(text, 16).to_bytes((length + 7) // 8, "little")).decode()


def _vector(text: str) -> str:
    data, single = bytes.fromhex(text), LogicalType("float32")
    import numpy as np

    return f"[{','.join(single.to_text(number) for number in np.frombuffer(data, '<f4'))}]"


def _geometry(text: str) -> str:
    """Four bytes of the reference system, then the well-known binary; points show their coordinates as well."""
    data = bytes.fromhex(text)
    system, wkb = int.from_bytes(data[:4], "little"), data[4:]
    fields: dict[str, object] = {"wkb": base64.b64encode(wkb).decode(), "srid": system}
    if len(data) == _WHOLE_POINT and wkb[:5] == b"\x01\x01\x00\x00\x00":
        x, y = struct.unpack("<dd", wkb[5:])
        fields = {"x": x, "y": y, **fields}
    return json.dumps(fields, separators=(",", ":"))

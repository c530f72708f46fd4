"""Reads a lake table in an environment of its own, where Headrace is not installed.

    python lake_reader.py PROGRAM FORMAT TABLE RESULT

TABLE is Delta's folder or Iceberg's metadata file. Into the folder RESULT go all rows (`rows.arrow`), and for each cell
that is no NULL and no NaN whether a filter for its value finds the row (`lost.json`, empty where all do).
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

Find = Callable[[str, Any], list[int]]
"""The ids of rows whose column has a value."""


def by_duckdb(form: str, table: str) -> tuple[pa.Table, Find]:
    import duckdb

    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'")
    # Iceberg's manifests are Avro.
    for name in (["avro"] if form == "iceberg" else []) + [form]:
        [extension] = Path(sys.prefix).glob(f"lib/*/site-packages/duckdb_extension_{name}/**/{name}.duckdb_extension")
        connection.execute(f"load '{extension}'")
    scan = f"{form}_scan('{table}')"

    def find(column: str, value: Any) -> list[int]:
        return [id for (id,) in connection.execute(f'select id from {scan} where "{column}" = ?', [value]).fetchall()]

    rows = connection.execute(f"select * from {scan}").to_arrow_table()
    return rows, find


def by_deltalake(form: str, table: str) -> tuple[pa.Table, Find]:
    import deltalake

    assert form == "delta"
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(table))
    rows = pa.table(query.execute("select * from t").read_all())

    def find(column: str, value: Any) -> list[int]:
        text = value.hex() if isinstance(value, bytes) else str(value).replace("'", "''")
        kind = rows.schema.field(column).type
        constant = f"x'{text}'" if isinstance(value, bytes) else f"arrow_cast('{text}', '{_name(kind)}')"
        found = pa.table(query.execute(f'select id from t where "{column}" = {constant}').read_all())
        return list(found["id"].to_pylist())

    return rows, find


def _name(kind: pa.DataType) -> str:
    """An Arrow type as DataFusion names it."""
    names = {pa.bool_(): "Boolean", pa.float32(): "Float32", pa.float64(): "Float64", pa.date32(): "Date32"}
    if pa.types.is_string(kind) or pa.types.is_string_view(kind) or pa.types.is_large_string(kind):
        return "Utf8"
    if pa.types.is_decimal(kind):
        return f"Decimal128({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        zone = "None" if kind.tz is None else f'Some("{kind.tz}")'
        return f"Timestamp(Microsecond, {zone})"
    return names.get(kind) or str(kind).title()


def by_pyiceberg(form: str, table: str) -> tuple[pa.Table, Find]:
    from pyiceberg.expressions import EqualTo
    from pyiceberg.table import StaticTable

    assert form == "iceberg"
    known = StaticTable.from_metadata(table)

    def find(column: str, value: Any) -> list[int]:
        if hasattr(value, "isoformat"):
            value = value.isoformat()
        return list(known.scan(row_filter=EqualTo(column, value), selected_fields=("id",)).to_arrow()["id"].to_pylist())

    return known.scan().to_arrow(), find


PROGRAMS = {"duckdb": by_duckdb, "deltalake": by_deltalake, "pyiceberg": by_pyiceberg}


def main(program: str, form: str, table: str, result: str) -> None:
    rows, find = PROGRAMS[program](form, table)
    folder = Path(result)
    with pa.OSFile(str(folder / "rows.arrow"), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(rows)
    lost = []
    for row in rows.to_pylist():
        for column, value in row.items():
            if value is None or (isinstance(value, float) and math.isnan(value)):
                continue
            if row["id"] not in find(column, value):
                lost.append([row["id"], column, repr(value)])
    (folder / "lost.json").write_text(json.dumps(lost))


if __name__ == "__main__":
    main(*sys.argv[1:])

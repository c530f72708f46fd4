"""The tables as a feed's own messages tell them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from headrace.changes import TableSchema


def told_tables(rows: Iterable[Mapping[str, Any]]) -> list[TableSchema]:
    """The tables as the `schema` rows of data messages name them, each with all columns that it ever had.

    A column whose type changed has the last one.
    """
    found: dict[str, TableSchema] = {}
    for row in sorted(rows, key=lambda row: row["position"]):
        # The topic of schema changes is the prefix alone; it tells the database's types, not those of the messages.
        if row["op"] != "schema" or row["table_schema"] is None or "." not in row["message"]["topic"]:
            continue
        schema = TableSchema.from_json(json.loads(row["table_schema"]))
        known = found.get(str(schema.id))
        columns = {column.name: column for table in (known, schema) if table for column in table.columns}
        key = schema.key or (known.key if known else ())
        found[str(schema.id)] = TableSchema(schema.id, tuple(columns.values()), key)
    return list(found.values())

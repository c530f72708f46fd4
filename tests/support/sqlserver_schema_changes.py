"""Changes of schemas in SQL Server."""

from __future__ import annotations

import json

DISABLE = "EXEC sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = N'{}', @capture_instance = N'{}'"


def by_position(rows):
    return sorted(rows, key=lambda row: row["position"])


def changes(rows):
    """Schema changes and data in order: what changed, and which columns an image has."""
    found = []
    for row in by_position(rows):
        source = dict(row["source"] or [])
        if row["op"] == "schema":
            if "change" in source:
                columns = [c["name"] for c in json.loads(row["table_schema"])["columns"]]
                found.append((source["change"], row["table"]["name"], columns))
        elif row["op"] in ("r", "c", "u", "d"):
            found.append((row["op"], row["table"]["name"], [name for name, _ in row["after"] or row["before"]]))
        else:
            found.append((row["op"], row["table"] and row["table"]["name"], None))
    return found

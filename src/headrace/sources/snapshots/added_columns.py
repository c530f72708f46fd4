"""Columns that were added with one value for all rows from before: mirrors get it, and no row is read.

A change of structure has no row in the log, and a catalog may show it before the stream has passed it. But it is newer
than all that earlier batches brought, and the rows of the batch say by their structure which of them are from before.
So a `schema` row at the end of the batch reports the value: targets give it to all rows that they have, and then apply
the changes of the batch, in which rows of an older structure have it too. Batches report it until the stream has passed
the change, but only the first one gives it to the rows of targets.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from headrace.changes import Operation
from headrace.changes.position import ADDED_COLUMNS, Position, order_of_read
from headrace.sources.markers import Marker
from headrace.sources.offset import Offset
from headrace.sources.snapshots.ad_hoc import AdHoc
from headrace.sources.tables.source_table import SourceTable

_ORDER = "j"
"""Sorts after the rows that were read beside the stream (`i`)."""


def added_column_markers(
    start: Offset, end: Offset, connector: str, tables: Mapping[str, SourceTable[Any]]
) -> Iterator[Marker]:
    """The marker rows that report the values of added columns with the batch (start, end].

    Args:
        start: where the batch before ended.
        end: where this one does.
        connector: the connector's name in events.
        tables: the tables of the offset by path.
    """
    reported = frozenset(AdHoc.from_json(start.ad_hoc).added)
    found = sorted(AdHoc.from_json(end.ad_hoc).added, key=lambda one: (one.table, one.column))
    for number, (path, columns) in enumerate(groupby(found, key=lambda one: one.table)):
        if path not in tables:
            continue
        values = {column.column: [column.value, "" if column in reported else column.before] for column in columns}
        facts = {"connector": connector, ADDED_COLUMNS: json.dumps(values)}
        schema = tables[path].schema
        # After everything of the batch, so that its structure is the newest.
        position = Position(end.commit, f"{order_of_read(end.reads)}{_ORDER}{number:06x}")
        yield Marker(Operation.SCHEMA, position, facts, schema.id, schema=schema)

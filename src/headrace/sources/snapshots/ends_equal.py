"""Whole tables that are read beside the stream end equal: rows that the source no longer has leave the mirrors.

Chunks only bring rows. A row that the source has no more is one that is older than the read and that no chunk found:
all that a chunk found stands after the commit at which the read began. A chunk may leave a row out because its key is
changed after the batch; then the change brings it. So the end is announced where the stream has passed all that the
log had after the last chunk was read. It is a `schema` row with the position from which the read began; mirrors remove
what is older, and messages have none of it.

A table that was altered while it was read, or of which changes are lost, is read once more: what its chunks left out is
not known.

Where a column was added with one value for all rows from before, mirrors get the value and no row is read. A change of
structure has no row in the log, and a catalog may show it before the stream has passed it. But it is newer than all
that earlier batches brought, and the rows of the batch say by their structure which of them are from before. So a
`schema` row at the end of the batch reports the value: targets give it to all rows that they have, and then apply the
changes of the batch, in which rows of an older structure have it too. Batches report it until the stream has passed the
change, but only the first one gives it to the rows of targets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any

from headrace.changes import Operation
from headrace.changes.position import ADDED_COLUMNS, READ_AGAIN_FROM, Position, order_of_read
from headrace.sources.offset import Offset
from headrace.sources.rows import Marker
from headrace.sources.signals import say
from headrace.sources.snapshots.ad_hoc import AdHoc
from headrace.sources.snapshots.requests import Request
from headrace.sources.tables.table_rules import SourceTable

_CHANGES = frozenset("cud")


def is_told(skipped_operations: Iterable[str]) -> bool:
    """Whether the stream brings every change: one that leaves some out can't tell which rows are not there."""
    return _CHANGES.isdisjoint(skipped_operations)


def say_read_once_more(table: str) -> None:
    """Tell the user that a table begins again."""
    say(f"Table '{table}' was altered while it was read beside the stream: it is read from its beginning.")


def with_ends(
    state: AdHoc,
    *,
    reached: str,
    head: Callable[[], str],
    captured: Collection[str],
    is_altered: Callable[[Request], bool] = lambda _: False,
) -> AdHoc:
    """The state with the tables that end with this batch. Runs in the driver.

    Args:
        state: as no batch has read a further chunk yet.
        reached: the commit up to which sinks have all changes when they take the end.
        head: asks for the commit up to which the log is written now. The batch with the last chunk is done.
        captured: the paths of the tables.
        is_altered: whether chunks may be missing, because the table is not what it was when its read began; it is read
            once more then.
    """
    asked = ""
    ending = []
    for request in state.ending:
        if request.table not in captured:
            continue
        if not request.upto:
            asked = asked or head()
            request = replace(request, upto=asked)
        ending.append(replace(request, announced=request.upto <= reached))
    state = replace(state, ending=tuple(ending))
    altered = {request.number for request in state.announced if is_altered(request)}
    if altered:
        state = replace(
            state, ending=tuple(replace(r, announced=r.announced and r.number not in altered) for r in state.ending)
        ).restart(lambda request: request.number in altered)
    for request in state.announced:
        say(
            f"Table '{request.table}' was read again beside the stream. Rows that it no longer has go from tables that "
            "are kept equal; topics, files and change logs keep them."
        )
    return state


def end_markers(start: Offset, end: Offset, connector: str, tables: Mapping[str, SourceTable[Any]]) -> Iterator[Marker]:
    """The rows that end the tables which end with the batch (start, end].

    Args:
        start: where the batch before ended.
        end: where this one does.
        connector: the connector's name in events.
        tables: the tables of the offset by path.
    """
    if end.ad_hoc == start.ad_hoc:
        return
    for request in AdHoc.from_json(end.ad_hoc).announced:
        schema = tables[request.table].schema
        facts = {"connector": connector, READ_AGAIN_FROM: request.since}
        yield Marker(Operation.SCHEMA, request.end_position(end.commit, end.reads), facts, schema.id, schema=schema)


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
    added = sorted(AdHoc.from_json(end.ad_hoc).added, key=lambda one: (one.table, one.column))
    for number, (path, columns) in enumerate(groupby(added, key=lambda one: one.table)):
        if path not in tables:
            continue
        values = {column.column: [column.value, "" if column in reported else column.before] for column in columns}
        facts = {"connector": connector, ADDED_COLUMNS: json.dumps(values)}
        schema = tables[path].schema
        # After everything of the batch, so that its structure is the newest.
        position = Position(end.commit, f"{order_of_read(end.reads)}{_ORDER}{number:06x}")
        yield Marker(Operation.SCHEMA, position, facts, schema.id, schema=schema)

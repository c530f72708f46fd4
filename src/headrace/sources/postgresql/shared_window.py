"""Where a window has to end because one batch can't have a table's rows from before and after an ALTER.

A column that was text and is bytes now has canonical texts of both kinds, and a sink gives a batch one type. The log is
read through for that, but only where the catalog showed such a change.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headrace.changes import LogicalType
from headrace.sources.postgresql import lsn, pgoutput
from headrace.sources.postgresql.captured_table import PostgresTable
from headrace.sources.postgresql.options import PostgresSettings
from headrace.sources.postgresql.relation import Relation
from headrace.sources.postgresql.slots import copy_reader
from headrace.sources.postgresql.stream_state import StreamState
from headrace.sources.postgresql.types import TypeCatalog
from headrace.sources.tables.shared_batches import can_share

_WAIT_SECONDS = 1.0


def altered_tables(state: StreamState, now: Mapping[str, PostgresTable]) -> frozenset[int]:
    """The oids of tables whose structures on both sides of a change can't share a batch.

    Args:
        state: what the offset at the batch's end keeps of the log.
        now: its tables.
    """
    before = state.earlier.before(now)
    return frozenset(
        table.oid for path, table in before.items() if not can_share(_logicals(table), _logicals(now[path]))
    )


def shared_end(
    settings: PostgresSettings, start: int, end: int, oids: Collection[int], types: TypeCatalog
) -> str | None:
    """The commit at which a window has to end; None where its transactions can share a batch.

    One transaction that has rows from both sides of an ALTER of its own is never cut.

    Args:
        settings: the source's options.
        start: the boundary at which the window begins.
        end: the boundary at which it ends.
        oids: the tables whose rows count.
        types: what is known of types.
    """
    seen: dict[int, dict[str, LogicalType]] = {}
    opened: dict[int, dict[str, LogicalType]] = {}
    commit, inside = 0, False
    with copy_reader(settings, start) as reader:
        while True:
            for payload in reader.receive(_WAIT_SECONDS):
                message = pgoutput.read(payload)
                if isinstance(message, pgoutput.Keepalive):
                    if not inside and message.lsn >= end:
                        return None
                    continue
                content = message.content
                if isinstance(content, pgoutput.Begin):
                    if content.commit >= end:
                        return None
                    commit, inside = content.commit, True
                elif isinstance(content, pgoutput.Commit):
                    seen, opened, inside = {**seen, **opened}, {}, False
                    if content.end >= end:
                        return None
                elif isinstance(content, pgoutput.TypeMessage):
                    types = types.with_logged(content.oid, content.schema, content.name)
                elif isinstance(content, Relation) and content.oid in oids and commit >= start:
                    shape = {c.name: types.resolve(c.oid, c.typmod).logical for c in content.columns}
                    if content.oid in seen and not can_share(seen[content.oid], shape):
                        return lsn.commit_before(commit)
                    opened[content.oid] = shape


def _logicals(table: PostgresTable) -> dict[str, LogicalType]:
    return {column.name: column.logical for column in table.schema.columns}

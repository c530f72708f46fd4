"""What the statements of a window made of the captured tables, when the catalog may be newer than the window."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from headrace.changes import LogicalType, TableId
from headrace.errors import HeadraceError
from headrace.settings import Settings
from headrace.sources.mysql.captured_table import MysqlTable
from headrace.sources.mysql.stream_state import States
from headrace.sources.mysql.table_states import TableStatement, states_of
from headrace.sources.tables.keys import UniqueKey
from headrace.sources.tables.rewrites import Rewrite, can_share
from headrace.sources.tables.table_rules import TableRules


@dataclass(frozen=True)
class AlteredTables:
    """The captured tables at the end of a window.

    Args:
        found: by path, as they are there.
        states: how those that it alters are in it.
        unsure: those that may be as they are behind it only.
        dropped: by path, the names of columns that went away and did not come back.
        rewrites: what is not proven harmless.
        replaced: the paths of tables of which all rows may be others.
        lagging: the paths of tables whose catalog does not show yet, perhaps, what the statements say.
        cut: the position at which the window has to end, because one batch can't have what is in front of it and what
            is behind; None for none.
    """

    found: Mapping[str, MysqlTable]
    states: States
    unsure: tuple[str, ...] = ()
    dropped: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rewrites: tuple[Rewrite, ...] = ()
    replaced: tuple[str, ...] = ()
    lagging: tuple[str, ...] = ()
    cut: str | None = None


def altered_tables(
    known: Mapping[str, MysqlTable],
    unsure: Collection[str],
    shown: Mapping[str, MysqlTable],
    statements: Sequence[TableStatement],
    later: Sequence[TableStatement] | None,
    begin: str,
    dropped: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    read_at: Mapping[str, str] = MappingProxyType({}),
) -> AlteredTables:
    """Follow the captured tables through a window.

    Args:
        known: as they are at its start.
        unsure: those of them that may be as they are behind it only.
        shown: as the catalog has them now.
        statements: those of the window.
        later: those between the window's end and a position that the log reached when the catalog was read; None where
            that is not known.
        begin: where the window begins, as `BinlogPosition.text`.
        dropped: see `StreamState`.
        read_at: for tables whose read is newer than the stream, the commit at which they are read: they are known as
            they were then, so statements up to it are in that already.
    """
    gone = {path: names for path, names in dropped.items() if path in known}
    tables, states, still = dict(shown), dict[str, tuple[tuple[str, MysqlTable | None], ...]](), list[str]()
    rewrites, replaced, lagging, cuts = list[Rewrite](), list[str](), list[str](), list[str]()
    for path, table in known.items():
        since = read_at.get(path, "")
        concerning = [statement for statement in statements if statement.position > since and statement.concerns(path)]
        later_statements = (
            None if later is None else [one for one in later if one.position > since and one.concerns(path)]
        )
        before = None if path in unsure else table
        if not concerning:
            if path in shown and (later_statements is None or later_statements):
                # What the catalog shows may come after the window.
                tables[path] = table if is_altered(table, shown[path]) else shown[path]
                still += [path] if path in unsure else []
            continue
        chain = [*concerning, *(later_statements or ())]
        after = None if later_statements is None else shown.get(path)
        changed = states_of(path, before, chain, after, proven=len(concerning), dropped=gone.pop(path, ()))
        if changed.dropped:
            gone[path] = changed.dropped
        last = changed.states[len(concerning) - 1]
        if path in shown:
            tables[path] = last or shown[path]
            still += [] if last else [path]
        states[path] = (
            ("", before),
            *((one.position, at) for one, at in zip(concerning, changed.states, strict=False)),
        )
        cuts += _cut(states[path], begin)
        if changed.rewrite is not None:
            rewrites.append(changed.rewrite)
        if changed.is_replaced:
            replaced.append(path)
        elif not changed.fits and path in shown:
            lagging.append(path)
    return AlteredTables(
        tables, states, tuple(still), gone, tuple(rewrites), tuple(replaced), tuple(lagging), min(cuts, default=None)
    )


def is_altered(known: MysqlTable, shown: MysqlTable) -> bool:
    """Whether a table's structure or engine is another one than the offset has it, whatever the options say of it."""
    if known.engine and shown.engine and known.engine != shown.engine:
        return True
    if known.structure and shown.structure:
        return known.structure != shown.structure
    columns = [(column.name, column.nullable) for column in known.schema.columns]
    now = [(column.name, column.nullable) for column in shown.schema.columns]
    return (columns, known.natives) != (now, shown.natives)


def under_options(known: MysqlTable, settings: Settings) -> MysqlTable:
    """A table as an offset has it, with what the options say now of its columns and key."""
    key = known.schema.key if known.schema.primary_key is None else known.schema.primary_key
    names = [column.name for column in known.schema.columns]
    keys = [UniqueKey(key, primary=True)] if key and set(key) <= set(names) else []
    columns = list(zip(known.schema.columns, known.natives, strict=True))
    id = TableId(known.id.database, known.id.schema, known.id.name)
    try:
        table = TableRules.of(settings).chosen(id, columns, keys, known.schema.comment)
    except HeadraceError:
        # The options fit the table as it is now.
        return known
    return replace(
        known, schema=table.schema, natives=table.natives, chunk_key=table.chunk_key, protected=table.protected
    )


def _cut(states: Sequence[tuple[str, MysqlTable | None]], begin: str) -> list[str]:
    """The first position at which a table is one that can't share a batch with what it was from the start on."""
    before: list[dict[str, LogicalType]] = []
    for position, table in states:
        if table is None:
            before = before if position > begin else []
            continue
        logicals = {column.name: column.logical for column in table.schema.columns}
        if position > begin and not all(can_share(other, logicals) for other in before):
            return [position]
        before = [*before, logicals] if position > begin else [logicals]
    return []

"""The options that sources of every kind have in common: columns and operations, signals, heartbeats."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from headrace.options import OTHER_NAMES, Names, folder, items
from headrace.settings import Settings, option
from headrace.sources.snapshots.chunks import collections
from headrace.sources.snapshots.select_overrides import selects
from headrace.sources.tables.columns import patterns
from headrace.sources.tables.keys import message_keys

_HIGHEST_PORT = 65535
_OLD_MODES = {"schema_only": "no_data", "schema_only_recovery": "recovery"}
_OPERATIONS = ("c", "u", "d", "t")


def operations(given: object) -> tuple[str, ...]:
    """Operations by their letters, with commas between; used as an option's kind.

    Raises:
        ValueError: a letter is none of c, u, d and t.
    """
    names = tuple(part.lower() for part in items(given))
    unknown = next((letter for letter in names if letter not in (*_OPERATIONS, "none")), None)
    if unknown is not None:
        raise ValueError(f"'{unknown}' is none of c, u, d, t and none")
    return tuple(letter for letter in names if letter != "none")


def events_of_key_change(skipped: Collection[str]) -> int:
    """For how many events an update that changes the key counts: for a delete and a create, where neither is skipped.

    Args:
        skipped: the operations that are not read.
    """
    return 2 - ("c" in skipped) - ("d" in skipped)


def snapshot_mode(text: str) -> str:
    """A snapshot mode under its present name; used as an option's kind."""
    mode = text.strip().lower()
    return _OLD_MODES.get(mode, mode)


def port(given: object) -> str:
    """The number of a TCP port, as text; used as an option's kind.

    Raises:
        ValueError: it is none.
    """
    text = str(given).strip()
    if not text.isdecimal() or not 0 < int(text) <= _HIGHEST_PORT:
        raise ValueError("a port is a number from 1 to 65535")
    return text


WHOLE_TABLES: Mapping[str, Any] = {
    "snapshot_mode": "initial_only",
    "snapshot_include_collection_list": None,
    "snapshot_chunk_rows": 0,
    "signal_path": None,
}
"""How a source is read to be compared with its mirrors: each table in one piece, so that the key ranges by which it was
captured have no say in what it should hold."""


class ChunkSettings(Settings):
    """How snapshots are cut."""

    snapshot_chunk_rows: int = option(
        "Rows per snapshot chunk; one chunk is read by one task. 0 reads each table in one piece, without key ranges.",
        default=100_000,
        minimum=0,
    )
    snapshot_chunks_per_batch: int = option(
        "Snapshot chunks per batch. A batch is what is lost when a run is killed.",
        default=4,
        minimum=1,
    )


class LogSettings(Settings):
    """What of a database's own log becomes rows."""

    table: str = option(
        "One table, in place of 'tables'.",
        default="",
        names=Names("tables", "selects"),
    )
    tables_excluded: tuple[str, ...] = option(
        "Tables to leave out, in the form of 'tables'.",
        default=(),
        aliases=("table.exclude.list",),
        names=Names("tables", "protects"),
    )
    provide_transaction_metadata: bool = option(
        "Whether changes carry their place in their transaction, with BEGIN and END of each.",
        default=False,
        aliases=("provide.transaction.metadata",),
    )


class HeartbeatSettings(Settings):
    """How far the source was read, now and then."""

    heartbeat_interval_ms: int = option(
        "How often a heartbeat says how far the source was read, in milliseconds; 0 for never.",
        default=0,
        minimum=0,
        aliases=("heartbeat.interval.ms",),
    )
    heartbeat_action_query: str = option(
        "A statement that is run in each database with each heartbeat, such as an update of a row of a captured table; "
        "in a session and a transaction of its own. Where it fails, that is logged and the stream goes on.",
        default="",
        aliases=("heartbeat.action.query",),
    )


class RetrySettings(Settings):
    """How often is tried again what may pass."""

    errors_max_retries: int = option(
        "How often in a row planning a batch, or reading a part of it, is tried again when the server can't be "
        "reached, breaks the connection or refuses for a reason that passes (deadlock, failover, too many requests); "
        "-1 for no bound. The first contact of a run is not repeated.",
        default=10,
        minimum=-1,
        aliases=("errors.max.retries",),
    )
    errors_retry_delay_initial_ms: int = option(
        "The pause before the first of these attempts, in milliseconds; each later pause is twice as long.",
        default=300,
        minimum=0,
        aliases=("errors.retry.delay.initial.ms",),
    )
    errors_retry_delay_max_ms: int = option(
        "The longest of these pauses, in milliseconds.",
        default=10_000,
        minimum=0,
        aliases=("errors.retry.delay.max.ms",),
    )


class SignalSettings(Settings):
    """How a running stream receives requests."""

    signal_data_collection: str = option(
        "The signal table: schema.table or database.schema.table with three columns id, type, data. It must be "
        "captured; rows inserted into it ask for ad-hoc snapshots. Filters in it go to the server as SQL, so mind who "
        "may write to it.",
        default="",
        aliases=("signal.data.collection",),
        names=Names("tables", "selects"),
    )
    signal_path: str = option(
        "A folder that the driver can read, whose files are signals, for those who write nothing to the source. In a "
        "pipeline whose checkpoint is a local folder it is beside that, with -signals after its name.",
        default="",
        kind=folder,
        beside_checkpoint="-signals",
    )
    incremental_snapshot_chunk_size: int = option(
        "Rows per chunk of an ad-hoc snapshot; a task holds one chunk in memory. A batch has up to "
        "'snapshot_chunks_per_batch' of them.",
        default=1024,
        minimum=1,
        aliases=("incremental.snapshot.chunk.size",),
    )


class ColumnSettings(Settings):
    """What is captured of a table, and how it leaves."""

    column_include_list: tuple[str, ...] = option(
        "The columns whose values are captured, as regular expressions of schema.table.column that match as a whole, "
        "with commas between. Key columns are captured whatever this says.",
        default=(),
        kind=patterns,
        aliases=("column.include.list",),
        names=Names("columns", "chooses"),
    )
    column_exclude_list: tuple[str, ...] = option(
        "The columns whose values are not captured, in the same form; they are not read from the server. Key columns "
        "are captured all the same.",
        default=(),
        kind=patterns,
        aliases=("column.exclude.list",),
        names=Names("columns", "protects"),
    )
    message_key_columns: tuple[str, ...] = option(
        "The key of tables that should have another one than their primary key: schema.table:column,column with "
        "semicolons between, tables and columns as regular expressions. Chunks of snapshots follow the primary key or "
        "a unique index all the same; an ad-hoc snapshot of a table without one follows this key.",
        default=(),
        kind=message_keys,
        aliases=("message.key.columns",),
        names=Names("captured columns", "chooses"),
    )
    column_mask_with: Mapping[str, tuple[str, ...]] | None = option(
        "`column.mask.with.<n>.chars`: character columns, in the form of 'column_include_list', whose values become n "
        "asterisks. Null stays null.",
        default=None,
        name="column.mask.with.*",
        kind=patterns,
        names=Names("columns", "protects"),
    )
    column_mask_hash: Mapping[str, tuple[str, ...]] | None = option(
        "`column.mask.hash.v2.<algorithm>.with.salt.<salt>`: character columns whose values become a salted hash in "
        "hex, cut to the column's length. Without `v2.` the hash is that of the value as Java serialises it. "
        "`.with.salt.<salt>` may be left out where 'column_mask_salt' is set.",
        default=None,
        name="column.mask.hash.*",
        kind=patterns,
        names=Names("columns", "protects"),
    )
    column_truncate_to: Mapping[str, tuple[str, ...]] | None = option(
        "`column.truncate.to.<n>.chars`: character columns whose values keep their first n characters (code points).",
        default=None,
        name="column.truncate.to.*",
        kind=patterns,
        names=Names("columns", "protects"),
    )
    unmatched_patterns: str = option(
        "What a name or pattern does that stands for no captured table or column, in any of the lists above, in a "
        "transform, a route or a sink: `fail` stops the run before the first row, `warn` logs it. One with `optional:` "
        "in front may stand for nothing.",
        default="fail",
        choices=("fail", "warn"),
    )
    column_mask_salt: str = option(
        "The salt of hashes. Needed where Spark passes the options on and the salt has letters: it makes names of "
        "options, but not their values, lower-case.",
        default="",
        in_other_names=True,
    )
    skipped_operations: tuple[str, ...] = option(
        "Changes that are not read: c, u, d, with commas between; none for all changes.",
        default=(),
        kind=operations,
        aliases=("skipped.operations",),
        names=OTHER_NAMES,
    )
    skip_messages_without_change: bool = option(
        "Whether an update gives no row when the columns that are captured have the same values before and after it.",
        default=False,
        aliases=("skip.messages.without.change",),
    )


class SelectSettings(Settings):
    """Which tables snapshots read, and what is read in place of one."""

    snapshot_include_collection_list: tuple[str, ...] = option(
        "The only captured tables that are read before their changes follow: names, wildcards or regular expressions, "
        "as in 'tables', with commas between. Of the others only the changes are streamed. Without it all are read. "
        "Ad-hoc snapshots read any captured table.",
        default=(),
        kind=collections,
        aliases=("snapshot.include.collection.list",),
        names=Names("tables", "chooses"),
    )
    snapshot_select_statement_overrides: Mapping[str, str | None] | None = option(
        "Tables whose snapshot is read by a SELECT of yours, in one chunk: a mapping from schema.table to the "
        "statement (as JSON where options are text), or the tables, with the statements in options of their own.",
        default=None,
        kind=selects,
        aliases=("snapshot.select.statement.overrides",),
        names=Names("tables", "chooses"),
    )
    snapshot_select_statement_override: Mapping[str, str] | None = option(
        "`snapshot.select.statement.overrides.<schema>.<table>`: the statement for one table.",
        default=None,
        name="snapshot.select.statement.overrides.*",
        kind=str,
        names=Names("tables", "chooses"),
    )

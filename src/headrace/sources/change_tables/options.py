"""The options that every source with change tables has, with Debezium's names beside ours."""

from __future__ import annotations

from headrace.options import Option
from headrace.sources.change_tables.column_rules import patterns
from headrace.sources.change_tables.message_keys import message_keys
from headrace.sources.change_tables.select_overrides import selects
from headrace.sources.change_tables.table_rules import operations

_OLD_MODES = {"schema_only": "no_data", "schema_only_recovery": "recovery"}


def snapshot_mode(text: str) -> str:
    """A snapshot mode under its present name; used as an option's kind."""
    return _OLD_MODES.get(text.strip().lower(), text.strip().lower())


LOGIN: tuple[Option, ...] = (
    Option("user", str, "The login.", default="", aliases=("database.user", "username")),
    Option(
        "password",
        str,
        "The login's password; appears in no log, plan or error.",
        default="",
        aliases=("database.password",),
    ),
)
"""Who connects."""
SHARED: tuple[Option, ...] = (
    Option(
        "errors_max_retries",
        int,
        "How often in a row planning a batch, or reading a part of it, is tried again when the server can't be "
        "reached, breaks the connection or refuses for a reason that passes (deadlock, failover, too many requests); "
        "-1 for no bound. The first contact of a run is not repeated.",
        default=10,
        minimum=-1,
        aliases=("errors.max.retries",),
    ),
    Option(
        "errors_retry_delay_initial_ms",
        int,
        "The pause before the first of these attempts, in milliseconds; each later pause is twice as long.",
        default=300,
        minimum=0,
        aliases=("errors.retry.delay.initial.ms",),
    ),
    Option(
        "errors_retry_delay_max_ms",
        int,
        "The longest of these pauses, in milliseconds.",
        default=10_000,
        minimum=0,
        aliases=("errors.retry.delay.max.ms",),
    ),
    Option(
        "tables",
        list,
        "The tables to capture: schema.table, with * and ? as wildcards, or a regular expression (after re:, or where "
        "it means no table as it stands). Empty means all that have change data capture.",
        default=(),
        aliases=("table.include.list",),
    ),
    Option(
        "tables_excluded",
        list,
        "Tables that are left out of all that have change data capture; written as in 'tables', which can't be given "
        "beside it.",
        default=(),
        aliases=("table.exclude.list",),
    ),
    Option(
        "table",
        str,
        "One table to capture, in place of 'tables'.",
        default="",
    ),
    Option(
        "snapshot_mode",
        snapshot_mode,
        "initial reads all tables once, then streams; initial_only ends there; no_data (schema_only) only streams; "
        "always reads again at every start; when_needed reads a table again whose changes were lost; recovery takes "
        "the structures from the server again and goes on where the checkpoint stands.",
        default="initial",
        choices=("initial", "initial_only", "no_data", "always", "when_needed", "recovery"),
        aliases=("snapshot.mode",),
    ),
    Option(
        "snapshot_locking_mode",
        str,
        "exclusive locks tables while repeatable_read looks at their structure, and while exclusive reads them; none "
        "never locks them.",
        default="exclusive",
        choices=("exclusive", "none"),
        aliases=("snapshot.locking.mode",),
    ),
    Option(
        "snapshot_lock_timeout_ms",
        int,
        "How long a snapshot waits for the locks of the modes exclusive and repeatable_read, in milliseconds; -1 waits "
        "for ever. How long any read may take is `query_timeout_ms`.",
        default=10_000,
        minimum=-1,
        aliases=("snapshot.lock.timeout.ms",),
    ),
    Option(
        "fail_on_data_loss",
        bool,
        "Whether the run stops when changes that it needs were cleaned on the server. Otherwise it goes on with what "
        "is left, and a `gap` row says what is missing.",
        default=True,
    ),
    Option(
        "provide_transaction_metadata",
        bool,
        "Whether changes carry their place in their transaction, with BEGIN and END of each. Tables are then read "
        "together in commit order, by as many tasks as there are ranges of commits.",
        default=False,
        aliases=("provide.transaction.metadata",),
    ),
    Option(
        "heartbeat_interval_ms",
        int,
        "How often a heartbeat says how far the source was read, in milliseconds; 0 for never.",
        default=0,
        minimum=0,
        aliases=("heartbeat.interval.ms",),
    ),
    Option(
        "snapshot_chunk_rows",
        int,
        "Rows per snapshot chunk; one chunk is read by one task.",
        default=100_000,
        minimum=1,
    ),
    Option(
        "snapshot_chunks_per_batch",
        int,
        "Snapshot chunks per batch. A batch is what is lost when a run is killed.",
        default=4,
        minimum=1,
    ),
    Option(
        "signal_data_collection",
        str,
        "The signal table: schema.table or database.schema.table with three columns id, type, data. It must be "
        "captured; rows inserted into it ask for ad-hoc snapshots. Filters in it go to the server as SQL, so mind who "
        "may write to it.",
        default="",
        aliases=("signal.data.collection",),
    ),
    Option(
        "signal_path",
        str,
        "A folder that the driver can read, whose files are signals, for those who write nothing to the source. In a "
        "pipeline whose checkpoint is a local folder it is beside that, with -signals after its name.",
        default="",
    ),
    Option(
        "incremental_snapshot_chunk_size",
        int,
        "Rows per chunk of an ad-hoc snapshot; a task holds one chunk in memory. A batch has up to "
        "'snapshot_chunks_per_batch' of them.",
        default=1024,
        minimum=1,
        aliases=("incremental.snapshot.chunk.size",),
    ),
    Option(
        "max_commits_per_trigger",
        int,
        "Commits per batch when streaming; 0 for no bound. A commit is never split.",
        default=50_000,
        minimum=0,
        aliases=("max.iteration.transactions",),
    ),
    Option(
        "commits_per_slice",
        int,
        "Commits of one table that one task reads; a larger window is read by several tasks at once.",
        default=10_000,
        minimum=1,
    ),
    Option(
        "column_include_list",
        patterns,
        "The columns whose values are captured, as regular expressions of schema.table.column that match as a whole, "
        "with commas between. Key columns are captured whatever this says.",
        default=(),
        aliases=("column.include.list",),
    ),
    Option(
        "column_exclude_list",
        patterns,
        "The columns whose values are not captured, in the same form; they are not read from the server. Key columns "
        "are captured all the same.",
        default=(),
        aliases=("column.exclude.list",),
    ),
    Option(
        "message_key_columns",
        message_keys,
        "The key of tables that should have another one than their primary key: schema.table:column,column with "
        "semicolons between, tables and columns as regular expressions. Chunks of snapshots follow the primary key or "
        "a unique index all the same.",
        default=(),
        aliases=("message.key.columns",),
    ),
    Option(
        "column.mask.with.*",
        patterns,
        "`column.mask.with.<n>.chars`: character columns, in the form of 'column_include_list', whose values become n "
        "asterisks. Null stays null.",
        default=None,
    ),
    Option(
        "column.mask.hash.*",
        patterns,
        "`column.mask.hash.v2.<algorithm>.with.salt.<salt>`: character columns whose values become a salted hash in "
        "hex, cut to the column's length. Without `v2.` the hash is that of the value as Java serialises it. "
        "`.with.salt.<salt>` may be left out where 'column_mask_salt' is set.",
        default=None,
    ),
    Option(
        "column.truncate.to.*",
        patterns,
        "`column.truncate.to.<n>.chars`: character columns whose values keep their first n characters (code points).",
        default=None,
    ),
    Option(
        "column_mask_salt",
        str,
        "The salt of hashes. Needed where Spark passes the options on and the salt has letters: it makes names of "
        "options, but not their values, lower-case.",
        default="",
    ),
    Option(
        "skipped_operations",
        operations,
        "Changes that are not read: c, u, d, with commas between; none for all changes.",
        default=(),
        aliases=("skipped.operations",),
    ),
    Option(
        "skip_messages_without_change",
        bool,
        "Whether an update gives no row when the columns that are captured have the same values before and after it.",
        default=False,
        aliases=("skip.messages.without.change",),
    ),
    Option(
        "snapshot_select_statement_overrides",
        selects,
        "Tables whose snapshot is read by a SELECT of yours, in one chunk: a mapping from schema.table to the "
        "statement (as JSON where options are text), or the tables, with the statements in options of their own.",
        default=None,
        aliases=("snapshot.select.statement.overrides",),
    ),
    Option(
        "snapshot.select.statement.overrides.*",
        str,
        "`snapshot.select.statement.overrides.<schema>.<table>`: the statement for one table.",
        default=None,
    ),
    Option(
        "capture_timeout_seconds",
        int,
        "How long a chunk of an ad-hoc snapshot, or the snapshot of a table without a key, waits until the capture job "
        "has passed it.",
        default=120,
        minimum=1,
    ),
)
"""What is read, how a snapshot is taken, and how batches are cut."""

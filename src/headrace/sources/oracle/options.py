"""The options of the Oracle source, with Debezium's names beside ours."""

from __future__ import annotations

from headrace.options import OTHER_NAMES, Names, folder
from headrace.passwords import PasswordSettings
from headrace.settings import option
from headrace.sources.notifications import NotificationSettings
from headrace.sources.oracle.logs import strategy
from headrace.sources.stream_options import (
    ChunkSettings,
    ColumnSettings,
    HeartbeatSettings,
    LogSettings,
    SelectSettings,
    SignalSettings,
    port,
    snapshot_mode,
)
from headrace.sources.table_errors import UnreadableSettings
from headrace.sources.tables.lost import LostTableSettings
from headrace.sources.tables.rewrites import RewriteSettings
from headrace.sources.tables.selection import GuardrailSettings


class OracleSettings(
    HeartbeatSettings,
    SignalSettings,
    ColumnSettings,
    SelectSettings,
    LostTableSettings,
    GuardrailSettings,
    NotificationSettings,
    PasswordSettings,
    ChunkSettings,
    LogSettings,
    UnreadableSettings,
    RewriteSettings,
):
    """What users set on the Oracle source."""

    hostname: str = option(
        "The server's name or address; for the emulator the folder of the emulated server.",
        default="",
        aliases=("database.hostname",),
    )
    database: str = option(
        "The service of the database, of a container database that of its root.",
        aliases=("database.dbname",),
    )
    pdb: str = option(
        "The pluggable database whose tables are captured; empty for a database without any.",
        default="",
        aliases=("database.pdb.name",),
    )
    port: str = option(
        "The listener's TCP port; 1521 when empty.",
        default="",
        kind=port,
        aliases=("database.port",),
    )
    dsn: str = option(
        "An address in Oracle's own form (`host:port/service`, a descriptor or an alias), in place of 'hostname', "
        "'port' and 'database'.",
        default="",
        aliases=("database.url",),
    )
    user: str = option(
        "The user; of a container database a common user.",
        default="",
        aliases=("database.user",),
    )
    password: str = option(
        "The user's password; appears in no log, plan or error.",
        default="",
        aliases=("database.password",),
    )
    driver: str = option(
        "Who speaks to the server: oracledb (thin mode), or oracle-emulator.",
        default="oracledb",
    )
    connect_timeout_ms: int = option(
        "How long a connection may take to be made, in milliseconds; 0 for the driver's own time.",
        default=10_000,
        minimum=0,
    )
    query_timeout_ms: int = option(
        "How long one call may take, in milliseconds; 0 for ever.",
        default=0,
        minimum=0,
        aliases=("database.query.timeout.ms",),
    )
    staging_location: str = option(
        "Where mined ranges of the log are kept until their transactions are delivered: a folder or URL that the "
        "driver and all executors reach. What is lost there is mined again. In a pipeline whose checkpoint is a local "
        "folder it is beside that, with -staging after its name.",
        default="",
        kind=folder,
        beside_checkpoint="-staging",
    )
    tables: tuple[str, ...] = option(
        "The tables to capture: schema.table with shell wildcards, or regular expressions (after `re:` where nothing "
        "else tells); without it all tables that log all their columns.",
        default=(),
        aliases=("table.include.list",),
        names=Names("tables", "selects"),
    )
    snapshot_mode: str = option(
        "initial reads all rows and goes on with changes; initial_only ends there; no_data (schema_only) takes changes "
        "only; always reads again at every start, when the changes since the last run are in; when_needed reads again "
        "where redo logs with changes are gone, or the undo that a snapshot needs, and stops like the others where the "
        "database was restored to an older state; recovery takes changes only, and at a restart the schemas from the "
        "catalog again.",
        default="initial",
        kind=snapshot_mode,
        choices=("initial", "initial_only", "no_data", "always", "when_needed", "recovery"),
        aliases=("snapshot.mode",),
    )
    fail_on_data_loss: bool = option(
        "Whether the run stops when redo logs that it needs are gone. Otherwise it goes on with the oldest that are "
        "there, and a `gap` row for each table says what is missing.",
        default=True,
    )
    max_commits_per_trigger: int = option(
        "Commits per batch when streaming; 0 for no bound. A commit is never split.",
        default=50_000,
        minimum=0,
    )
    rows_per_slice: int = option(
        "About how many mined rows one task makes changes of; a larger transaction has a task of its own.",
        default=50_000,
        minimum=1,
    )
    mining_range_scns: int = option(
        "SCNs that one session mines at a time. While more than one range waits, they are mined by several tasks at "
        "once.",
        default=100_000,
        minimum=1,
        aliases=("log.mining.batch.size.default",),
    )
    log_mining_strategy: str = option(
        "Where LogMiner has the names of tables and columns from. online_catalog: from the catalog as it is, so that a "
        "change of a table that was altered before it is mined can't be read. redo_log_catalog: from a dictionary that "
        "the source has written into the redo logs, behind which definitions are followed; it costs large logs.",
        default="online_catalog",
        kind=strategy,
        choices=("online_catalog", "redo_log_catalog"),
        aliases=("log.mining.strategy",),
    )
    dictionary_logs: int = option(
        "With redo_log_catalog: a new dictionary is written when more logs than so many were filled since the last. "
        "The logs since the last one are read with each range.",
        default=20,
        minimum=1,
    )
    mining_sessions: int = option(
        "How many ranges are mined at once, each in a session.",
        default=4,
        minimum=1,
    )
    flush_table: str = option(
        "A table of one column SCN NUMBER(19), of the user's own, that is written and committed so that the log writer "
        "puts its buffer on disk; made when it is not there. Empty to write nothing: then a change waits until others "
        "follow it.",
        default="LOG_MINING_FLUSH",
        aliases=("log.mining.flush.table.name",),
        names=OTHER_NAMES,
    )
    rac_nodes: tuple[str, ...] = option(
        "Addresses of a cluster's other nodes (host:port/service), on which the flush table is written too.",
        default=(),
        aliases=("rac.nodes",),
        names=OTHER_NAMES,
    )
    archive_log_only: bool = option(
        "Whether only archived logs are read; changes then wait for the log switch.",
        default=False,
        aliases=("log.mining.archive.log.only.mode",),
    )
    archive_destination_name: tuple[str, ...] = option(
        "The archive destinations whose copies are read, the first that is valid; without it the first valid local.",
        default=(),
        aliases=("archive.destination.name", "log.mining.archive.destination.name"),
        names=OTHER_NAMES,
    )
    lob_enabled: bool = option(
        "Whether CLOB, NCLOB, BLOB and XMLTYPE values are captured; otherwise they are absent from changes and from "
        "the snapshot.",
        default=False,
        aliases=("lob.enabled",),
    )
    users_excluded: tuple[str, ...] = option(
        "Users whose transactions are left out, in capitals; SYS and SYSTEM always are.",
        default=(),
        aliases=("log.mining.username.exclude.list",),
        names=OTHER_NAMES,
    )
    include_redo_sql: bool = option(
        "Whether changes carry their redo statement, which holds the row's values.",
        default=False,
        aliases=("log.mining.include.redo.sql",),
    )
    relaxed_quotes: bool = option(
        "Whether quotes in values may stand undoubled, as LogMiner prints extended strings.",
        default=False,
        aliases=("log.mining.sql.relaxed.quote.detection",),
    )

"""The options of the PostgreSQL source, with Debezium's names beside ours."""

from __future__ import annotations

from headrace.options import OTHER_NAMES, Names, items
from headrace.passwords import PasswordSettings
from headrace.settings import option
from headrace.sources.notifications import NotificationSettings
from headrace.sources.stream_options import (
    ChunkSettings,
    ColumnSettings,
    HeartbeatSettings,
    LogSettings,
    RetrySettings,
    SelectSettings,
    SignalSettings,
    port,
    snapshot_mode,
)
from headrace.sources.tables.lost import LostTableSettings
from headrace.sources.tables.rewrites import AddedColumnSettings
from headrace.sources.tables.selection import GuardrailSettings


class PostgresSettings(
    RetrySettings,
    HeartbeatSettings,
    SignalSettings,
    ColumnSettings,
    SelectSettings,
    LostTableSettings,
    AddedColumnSettings,
    GuardrailSettings,
    NotificationSettings,
    PasswordSettings,
    ChunkSettings,
    LogSettings,
):
    """What users set on the PostgreSQL source."""

    hostname: str = option(
        "The server's name or address, or the folder of its socket.",
        default="localhost",
        aliases=("database.hostname",),
    )
    port: str = option(
        "The server's TCP port; 5432 when empty.",
        default="",
        kind=port,
        aliases=("database.port",),
    )
    database: str = option(
        "The database whose tables are captured.",
        aliases=("database.dbname",),
    )
    user: str = option(
        "The role that reads; it needs the attribute REPLICATION.",
        default="",
        aliases=("database.user",),
    )
    password: str = option(
        "The role's password; appears in no log, plan or error.",
        default="",
        aliases=("database.password",),
    )
    sslmode: str = option(
        "How the connection is encrypted, in the words of libpq.",
        default="prefer",
        choices=("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
        aliases=("database.sslmode",),
    )
    sslrootcert: str = option(
        "A file with the certificates of authorities that are trusted.",
        default="",
        aliases=("database.sslrootcert",),
    )
    sslcert: str = option(
        "A file with the client's certificate.",
        default="",
        aliases=("database.sslcert",),
    )
    sslkey: str = option(
        "A file with the key of the client's certificate.",
        default="",
        aliases=("database.sslkey",),
    )
    connect_timeout_ms: int = option(
        "How long a connection may take to be made, in milliseconds; 0 for the driver's own time.",
        default=10_000,
        minimum=0,
    )
    slot: str = option(
        "The replication slot that keeps the log for this pipeline. It is made at the first start, and each pipeline "
        "needs its own.",
        default="headrace",
        aliases=("slot.name",),
        names=OTHER_NAMES,
    )
    publication: str = option(
        "The publication that says which tables are streamed; named as the slot when empty.",
        default="",
        aliases=("publication.name",),
        names=OTHER_NAMES,
    )
    publication_autocreate: str = option(
        "filtered makes the publication with the captured tables where it is not there, and adds and drops tables of "
        "one that is Headrace's own; disabled uses the publication as it is.",
        default="filtered",
        choices=("filtered", "disabled"),
        aliases=("publication.autocreate.mode",),
    )
    tables: tuple[str, ...] = option(
        "The tables to capture: schema.table with shell wildcards, or regular expressions (after `re:` where nothing "
        "else tells); without it all tables of the publication, or of the database where there is none yet.",
        default=(),
        aliases=("table.include.list",),
        names=Names("tables", "selects"),
    )
    snapshot_mode: str = option(
        "initial reads all rows and goes on with changes; initial_only ends there; no_data (schema_only) takes changes "
        "only; always reads again at every start, when the changes since the last run are in; when_needed reads again "
        "where the slot is gone or has lost changes, and stops like the others where the server was restored to an "
        "older state; recovery takes changes only, and at a restart the schemas from the catalog again.",
        default="initial",
        kind=snapshot_mode,
        choices=("initial", "initial_only", "no_data", "always", "when_needed", "recovery"),
        aliases=("snapshot.mode",),
    )
    fail_on_data_loss: bool = option(
        "Whether the run stops when changes that it needs are gone with the slot. Otherwise it goes on with a new "
        "slot, and a `gap` row for each table says what is missing.",
        default=True,
    )
    snapshot_lock_timeout_ms: int = option(
        "How long the snapshot waits for the lock (ACCESS SHARE) that keeps a table from being altered or truncated "
        "while it is read, in milliseconds.",
        default=10_000,
        minimum=0,
        aliases=("snapshot.lock.timeout.ms",),
    )
    snapshot_max_hold_s: int = option(
        "How long the snapshot of the first read is held open, in seconds, which keeps VACUUM from removing rows that "
        "died since. After that tables are read as they are, and the stream brings their changes.",
        default=4 * 3600,
        minimum=0,
    )
    slot_creation_timeout_s: int = option(
        "How long making the slot may wait for transactions that were open before it, in seconds.",
        default=60,
        minimum=1,
    )
    max_commits_per_trigger: int = option(
        "Commits per batch when streaming; 0 for no bound. A commit is never split.",
        default=0,
        minimum=0,
    )
    max_wal_per_batch: int = option(
        "About how many bytes of the log one batch reads, those of other tables and databases included.",
        default=256 * 1024 * 1024,
        minimum=1,
    )
    max_readers: int = option(
        "How many ranges of the log are read at once while much of it waits. Each takes a slot and a sender of the "
        "server for as long as it reads.",
        default=4,
        minimum=1,
    )
    min_wal_per_reader: int = option(
        "How many bytes of the log a range has at the least before another reader takes part.",
        default=128 * 1024 * 1024,
        minimum=1,
    )
    messages: bool = option(
        "Whether logical messages (pg_logical_emit_message) become rows.",
        default=False,
    )
    message_prefix_include_list: tuple[str, ...] = option(
        "The prefixes of logical messages that become rows, as regular expressions with commas between; without it "
        "all.",
        default=(),
        kind=items,
        aliases=("message.prefix.include.list",),
        names=OTHER_NAMES,
    )
    message_prefix_exclude_list: tuple[str, ...] = option(
        "The prefixes of logical messages that are left out, in the same form.",
        default=(),
        kind=items,
        aliases=("message.prefix.exclude.list",),
        names=OTHER_NAMES,
    )
    signal_prefix: str = option(
        "The prefix of logical messages that are signals, their content a JSON object with id, type and data; empty "
        "for none.",
        default="",
        names=OTHER_NAMES,
    )

    @property
    def publication_name(self) -> str:
        return self.publication or self.slot

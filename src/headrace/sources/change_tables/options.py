"""The options that every source with change tables has, with Debezium's names beside ours."""

from __future__ import annotations

from headrace.options import Names
from headrace.passwords import PasswordSettings
from headrace.settings import option
from headrace.sources.notifications import NotificationSettings
from headrace.sources.stream_options import (
    ChunkSettings,
    ColumnSettings,
    HeartbeatSettings,
    RetrySettings,
    SelectSettings,
    SignalSettings,
    snapshot_mode,
)
from headrace.sources.table_errors import UnreadableSettings
from headrace.sources.tables.lost import LostTableSettings
from headrace.sources.tables.rewrites import RewriteSettings
from headrace.sources.tables.selection import GuardrailSettings


class LoginSettings(PasswordSettings):
    user: str = option(
        "The login.",
        default="",
        aliases=("database.user", "username"),
    )
    password: str = option(
        "The login's password; appears in no log, plan or error.",
        default="",
        aliases=("database.password",),
    )


class ChangeTableSettings(
    RetrySettings,
    HeartbeatSettings,
    SignalSettings,
    ColumnSettings,
    SelectSettings,
    LostTableSettings,
    GuardrailSettings,
    NotificationSettings,
    ChunkSettings,
    UnreadableSettings,
    RewriteSettings,
):
    """What is read, how a snapshot is taken, and how batches are cut.

    The first fields are options of each source, which says them in its own words.
    """

    database: str
    user: str
    driver: str
    snapshot_isolation_mode: str
    server_timezone: str
    tables: tuple[str, ...] = option(
        "The tables to capture: schema.table, with * and ? as wildcards, or a regular expression (after re:, or "
        "where it means no table as it stands). Without it all that have change data capture.",
        default=(),
        aliases=("table.include.list",),
        names=Names("tables", "selects"),
    )
    tables_excluded: tuple[str, ...] = option(
        "Tables that are left out of all that have change data capture; written as in 'tables', which can't be given "
        "beside it.",
        default=(),
        aliases=("table.exclude.list",),
        names=Names("tables", "protects"),
    )
    table: str = option(
        "One table to capture, in place of 'tables'.",
        default="",
        names=Names("tables", "selects"),
    )
    snapshot_mode: str = option(
        "initial reads all tables once, then streams; initial_only ends there; no_data (schema_only) only streams; "
        "always reads again at every start; when_needed reads a table again whose changes were lost, and all of a "
        "database that was restored, once it is captured beyond what was delivered; recovery takes the schemas from "
        "the server again and continues from the checkpoint.",
        kind=snapshot_mode,
        default="initial",
        choices=("initial", "initial_only", "no_data", "always", "when_needed", "recovery"),
        aliases=("snapshot.mode",),
    )
    snapshot_locking_mode: str = option(
        "exclusive locks tables while repeatable_read looks at their schemas, and while exclusive reads them; none "
        "never locks them.",
        default="exclusive",
        choices=("exclusive", "none"),
        aliases=("snapshot.locking.mode",),
    )
    snapshot_lock_timeout_ms: int = option(
        "How long a snapshot waits for the locks of the modes exclusive and repeatable_read, in milliseconds; -1 "
        "waits for ever. How long any read may take is `query_timeout_ms`.",
        default=10_000,
        minimum=-1,
        aliases=("snapshot.lock.timeout.ms",),
    )
    fail_on_data_loss: bool = option(
        "Whether the run stops when changes that it needs were cleaned on the server. Otherwise it goes on with what "
        "is left, and a `gap` row says what is missing.",
        default=True,
    )
    provide_transaction_metadata: bool = option(
        "Whether changes carry their place in their transaction, with BEGIN and END of each. Tables are then read "
        "together in commit order, by as many tasks as there are ranges of commits.",
        default=False,
        aliases=("provide.transaction.metadata",),
    )
    max_commits_per_trigger: int = option(
        "Commits per batch when streaming; 0 for no bound. A commit is never split.",
        default=50_000,
        minimum=0,
        aliases=("max.iteration.transactions",),
    )
    commits_per_slice: int = option(
        "Commits of one table that one task reads; a larger window is read by several tasks at once.",
        default=10_000,
        minimum=1,
    )
    capture_timeout_seconds: int = option(
        "How long a chunk of an ad-hoc snapshot, or the snapshot of a table without a key, waits until the capture "
        "job has passed it.",
        default=120,
        minimum=1,
    )

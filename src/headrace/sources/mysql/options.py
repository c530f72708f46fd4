"""The options of the source for MySQL and MariaDB, with Debezium's names beside ours."""

from __future__ import annotations

from headrace.options import OTHER_NAMES, Names
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
from headrace.sources.tables.rewrites import FAIL, REREAD, WARN, AddedColumnSettings
from headrace.sources.tables.selection import GuardrailSettings

_LARGEST_ID = 2**32 - 1


def server_ids(given: object) -> str:
    """The numbers of our readers, one number or `first-last`; used as an option's kind.

    Raises:
        ValueError: it is neither.
    """
    text = str(given).strip()
    first, _, last = text.partition("-")
    numbers = [first, last or first]
    if not all(number.strip().isdecimal() for number in numbers):
        raise ValueError("server ids are a number, or two with a hyphen between, such as 5400-6400")
    low, high = map(int, numbers)
    if not 0 < low <= high <= _LARGEST_ID:
        raise ValueError(f"server ids are numbers from 1 to {_LARGEST_ID}, the lower one first")
    return text


class MysqlSettings(
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
    """What users set on the source for MySQL and MariaDB."""

    hostname: str = option(
        "The server's name or address.",
        default="localhost",
        aliases=("database.hostname",),
    )
    port: str = option(
        "The server's TCP port; 3306 when empty.",
        default="",
        kind=port,
        aliases=("database.port",),
    )
    user: str = option(
        "The login; it needs the right REPLICATION SLAVE.",
        default="",
        aliases=("database.user",),
    )
    password: str = option(
        "The login's password; appears in no log, plan or error.",
        default="",
        aliases=("database.password",),
    )
    sslmode: str = option(
        "How the connection is encrypted: disabled; preferred, if the server can; required; verify_ca, with a "
        "certificate of a trusted authority; verify_identity, with one for this host name.",
        default="preferred",
        choices=("disabled", "preferred", "required", "verify_ca", "verify_identity"),
        aliases=("database.ssl.mode",),
    )
    sslrootcert: str = option(
        "A file with the certificates of authorities that are trusted; those of the system when empty.",
        default="",
    )
    sslcert: str = option("A file with the client's certificate.", default="")
    sslkey: str = option("A file with the key of the client's certificate.", default="")
    connect_timeout_ms: int = option(
        "How long a connection may take to be made, in milliseconds.",
        default=10_000,
        minimum=1,
        aliases=("connect.timeout.ms",),
    )
    server_id: str = option(
        "The numbers by which the server knows our readers, such as 5400-6400. It throws out the older of two readers "
        "with one number, so they are ours alone, replicas included. Without it each reader takes one that nobody "
        "is likely to have.",
        default="",
        kind=server_ids,
        aliases=("database.server.id",),
    )
    databases: tuple[str, ...] = option(
        "The databases whose tables are captured: names with shell wildcards, or regular expressions; without it all "
        "but those of the server itself.",
        default=(),
        aliases=("database.include.list",),
        names=OTHER_NAMES,
    )
    databases_excluded: tuple[str, ...] = option(
        "Databases to leave out, in the same form.",
        default=(),
        aliases=("database.exclude.list",),
        names=OTHER_NAMES,
    )
    tables: tuple[str, ...] = option(
        "The tables to capture: database.table with shell wildcards, or regular expressions (after `re:` where nothing "
        "else tells); without it all tables of the databases.",
        default=(),
        aliases=("table.include.list",),
        names=Names("tables", "selects"),
    )
    snapshot_mode: str = option(
        "initial reads all rows and goes on with changes; initial_only ends there; no_data (schema_only) takes changes "
        "only; always reads again at every start, when the changes since the last run are in; when_needed reads again "
        "where needed files of the log are gone, and stops like the others where the server was restored to an older "
        "state; recovery takes changes only, and at a restart the schemas from the server again.",
        default="initial",
        kind=snapshot_mode,
        choices=("initial", "initial_only", "no_data", "always", "when_needed", "recovery"),
        aliases=("snapshot.mode",),
    )
    fail_on_data_loss: bool = option(
        "Whether the run stops when changes that it needs were purged on the server. Otherwise it goes on with what is "
        "left, and a `gap` row for each table says what is missing.",
        default=True,
    )
    snapshot_lock_timeout_ms: int = option(
        "How long a snapshot waits for the locks of tables that it can't read without, in milliseconds.",
        default=10_000,
        minimum=0,
        aliases=("snapshot.lock.timeout.ms",),
    )
    max_commits_per_trigger: int = option(
        "Commits per batch when streaming; 0 for no bound. A commit is never split.",
        default=0,
        minimum=0,
    )
    max_log_per_batch: int = option(
        "About how many bytes of the log one batch reads, those of other tables and databases included.",
        default=256 * 1024 * 1024,
        minimum=1,
    )
    max_readers: int = option(
        "How many ranges of the log are read at once while much of it waits.",
        default=4,
        minimum=1,
    )
    min_log_per_reader: int = option(
        "How many bytes of the log a range has at the least before another reader takes part.",
        default=128 * 1024 * 1024,
        minimum=1,
    )
    on_cascade: str = option(
        "What happens to rows that a foreign key deletes or changes by CASCADE or SET NULL, which MariaDB and MySQL "
        "before 9.6 do not log. With reread they are looked up in a table that a sink keeps, by the rows that they "
        "refer to, and their changes are given to all sinks in the same batch; where that can't be, the log says so "
        "once for each table. With warn the log says so and nothing is looked up; with fail the run stops at such a "
        "foreign key.",
        default=REREAD,
        choices=(REREAD, WARN, FAIL),
    )
    include_query: bool = option(
        "Whether changes carry the statement that made them, where the server logs it (binlog_rows_query_log_events, "
        "on MariaDB binlog_annotate_row_events).",
        default=False,
        aliases=("include.query",),
    )

"""The options of the SQL Server source, with Debezium's names beside ours."""

from __future__ import annotations

from headrace.options import Option
from headrace.sources.sqlserver.clock import parse_timezone

OPTIONS: tuple[Option, ...] = (
    Option(
        "hostname",
        str,
        "The server's name or address; for the emulator the folder of the emulated server.",
        aliases=("database.hostname",),
    ),
    Option("database", str, "The database to capture.", aliases=("database.dbname", "database.names")),
    Option("port", str, "The server's TCP port.", default="", aliases=("database.port",)),
    Option("instance", str, "A named instance on the server.", default="", aliases=("database.instance",)),
    Option("user", str, "The login.", default="", aliases=("database.user", "username")),
    Option(
        "password",
        str,
        "The login's password; appears in no log, plan or error.",
        default="",
        aliases=("database.password",),
    ),
    Option(
        "authentication",
        str,
        "The driver's authentication mode, such as ActiveDirectoryMSI; empty for user and password.",
        default="",
        aliases=("database.authentication",),
    ),
    Option(
        "encrypt",
        str,
        "Whether the connection is encrypted.",
        default="yes",
        choices=("yes", "no", "true", "false", "strict", "mandatory", "optional"),
        aliases=("database.encrypt",),
    ),
    Option(
        "trust_server_certificate",
        str,
        "Accept the server's certificate without checking it.",
        default="no",
        choices=("yes", "no", "true", "false"),
        aliases=("database.trustServerCertificate",),
    ),
    Option(
        "application_intent",
        str,
        "ReadOnly sends the reads to a readable secondary.",
        default="",
        aliases=("database.applicationIntent",),
    ),
    Option(
        "driver",
        str,
        "The DB-API driver that opens connections: mssql-python, emulator, or one registered by an entry point.",
        default="mssql-python",
    ),
    Option(
        "tables",
        list,
        "The tables to capture: schema.table, with * and ? as wildcards, or a regular expression after re:. "
        "Empty means all that have change data capture.",
        default=(),
        aliases=("table.include.list",),
    ),
    Option(
        "table",
        str,
        "One table to capture, in place of 'tables'.",
        default="",
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
        "server_timezone",
        parse_timezone,
        "The time zone of the server's clock (IANA name, or +02:00): SQL Server keeps commit times as local times. "
        "Unset, the server's present offset from UTC is used.",
        default="",
        aliases=("database.server.timezone",),
    ),
    Option(
        "capture_timeout_seconds",
        int,
        "How long the snapshot of a table without a key waits until the capture job has passed it.",
        default=120,
        minimum=1,
    ),
)

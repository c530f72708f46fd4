"""The options of the SQL Server source, with Debezium's names beside ours."""

from __future__ import annotations

from typing import Any

from headrace.options import items
from headrace.settings import Settings, option
from headrace.sources.change_tables.clock import parse_timezone
from headrace.sources.change_tables.options import ChangeTableSettings, LoginSettings
from headrace.sources.stream_options import port


def database_names(given: Any) -> str:
    """The names of databases with commas between, from a list or from such a text."""
    return ",".join(items(given))


class SqlServerServer(Settings):
    hostname: str = option(
        "The server's name or address; for the emulator the folder of the emulated server.",
        aliases=("database.hostname",),
    )
    database: str = option(
        "The database to capture, or several: a list, or with commas between.",
        kind=database_names,
        aliases=("database.dbname", "database.names"),
    )
    port: str = option(
        "The server's TCP port.",
        kind=port,
        default="",
        aliases=("database.port",),
    )
    instance: str = option(
        "A named instance on the server.",
        default="",
        aliases=("database.instance",),
    )


class SqlServerLoginSettings(Settings):
    """How the server is connected to and read."""

    authentication: str = option(
        "How the login is made when not by user and password: Kerberos (the ticket of the process), "
        "ActiveDirectoryMSI (with the client id of a user-assigned identity as 'user'), "
        "ActiveDirectoryServicePrincipal, ActiveDirectoryPassword, ActiveDirectoryIntegrated, ActiveDirectoryDefault.",
        default="",
        aliases=("database.authentication",),
    )
    encrypt: str = option(
        "Whether the connection is encrypted.",
        default="yes",
        choices=("yes", "no", "true", "false", "strict", "mandatory", "optional"),
        aliases=("database.encrypt",),
    )
    trust_server_certificate: str = option(
        "Accept the server's certificate without checking it.",
        default="no",
        choices=("yes", "no", "true", "false"),
        aliases=("database.trustServerCertificate",),
    )
    hostname_in_certificate: str = option(
        "The name that the server's certificate must hold, when it is not 'hostname'.",
        default="",
        aliases=("database.hostNameInCertificate",),
    )
    server_certificate: str = option(
        "A file with the very certificate that the server must show; for 'encrypt' strict.",
        default="",
        aliases=("database.serverCertificate",),
    )
    multi_subnet_failover: str = option(
        "Whether all addresses of an availability group's listener are tried at once.",
        default="no",
        choices=("yes", "no", "true", "false"),
        aliases=("database.multiSubnetFailover",),
    )
    application_intent: str = option(
        "ReadOnly sends the reads to a readable secondary.",
        default="",
        aliases=("database.applicationIntent",),
    )
    connect_timeout_ms: int = option(
        "How long a login may take, in milliseconds; 0 for as long as the driver allows (15 seconds).",
        default=15_000,
        minimum=0,
        aliases=("connect.timeout.ms",),
    )
    query_timeout_ms: int = option(
        "How long the server may take to answer a statement, in milliseconds; 0 for no bound. Reads of whole tables "
        "(snapshots in one session, of tables without a key, and by a SELECT of yours) have none.",
        default=600_000,
        minimum=0,
        aliases=("database.query.timeout.ms",),
    )
    driver: str = option(
        "The DB-API driver that opens connections: mssql-python, emulator, or one registered by an entry point.",
        default="mssql-python",
    )
    snapshot_isolation_mode: str = option(
        "How snapshots see the tables. read_committed, repeatable_read and read_uncommitted read chunks in parallel "
        "and resume after the last finished chunk; snapshot and exclusive read everything in one session.",
        default="read_committed",
        choices=("exclusive", "repeatable_read", "snapshot", "read_committed", "read_uncommitted"),
        aliases=("snapshot.isolation.mode",),
    )
    commit_time: str = option(
        "What counts as the time of a change: the end of its transaction, or its begin, as Debezium has it when it "
        "reads change tables directly.",
        default="end",
        choices=("end", "begin"),
    )
    order_in_commit: str = option(
        "command keeps the server's order of commands; sequence orders by sequence value and operation, as Debezium "
        "does in its function mode and before version 3.4, so that all deletes of a bulk update of keys come first.",
        default="command",
        choices=("command", "sequence"),
    )
    server_timezone: str = option(
        "The time zone of the server's clock (IANA or Windows name, or +02:00): SQL Server keeps commit times as "
        "local times. Unset, the server is asked (SQL Server 2022 or later, Azure); of an older one the present "
        "offset from UTC is used.",
        kind=parse_timezone,
        default="",
        aliases=("database.server.timezone",),
    )


class SqlServerSettings(SqlServerServer, LoginSettings, SqlServerLoginSettings, ChangeTableSettings):
    """Of the source `sqlserver`."""

"""The options of the SQL Server source, with Debezium's names beside ours."""

from __future__ import annotations

from headrace.options import Option
from headrace.sources.change_tables.clock import parse_timezone
from headrace.sources.change_tables.options import LOGIN, SHARED
from headrace.sources.stream_options import port

OPTIONS: tuple[Option, ...] = (
    Option(
        "hostname",
        str,
        "The server's name or address; for the emulator the folder of the emulated server.",
        aliases=("database.hostname",),
    ),
    Option(
        "database",
        str,
        "The database to capture, or several with commas between.",
        aliases=("database.dbname", "database.names"),
    ),
    Option("port", port, "The server's TCP port.", default="", aliases=("database.port",)),
    Option("instance", str, "A named instance on the server.", default="", aliases=("database.instance",)),
    *LOGIN,
    Option(
        "authentication",
        str,
        "How the login is made when not by user and password: Kerberos (the ticket of the process), ActiveDirectoryMSI "
        "(with the client id of a user-assigned identity as 'user'), ActiveDirectoryServicePrincipal, "
        "ActiveDirectoryPassword, ActiveDirectoryIntegrated, ActiveDirectoryDefault.",
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
        "hostname_in_certificate",
        str,
        "The name that the server's certificate must hold, when it is not 'hostname'.",
        default="",
        aliases=("database.hostNameInCertificate",),
    ),
    Option(
        "server_certificate",
        str,
        "A file with the very certificate that the server must show; for 'encrypt' strict.",
        default="",
        aliases=("database.serverCertificate",),
    ),
    Option(
        "multi_subnet_failover",
        str,
        "Whether all addresses of an availability group's listener are tried at once.",
        default="no",
        choices=("yes", "no", "true", "false"),
        aliases=("database.multiSubnetFailover",),
    ),
    Option(
        "application_intent",
        str,
        "ReadOnly sends the reads to a readable secondary.",
        default="",
        aliases=("database.applicationIntent",),
    ),
    Option(
        "connect_timeout_ms",
        int,
        "How long a login may take, in milliseconds; 0 for as long as the driver allows (15 seconds).",
        default=15_000,
        minimum=0,
        aliases=("connect.timeout.ms",),
    ),
    Option(
        "query_timeout_ms",
        int,
        "How long the server may take to answer a statement, in milliseconds; 0 for no bound. Reads of whole tables "
        "(snapshots in one session, of tables without a key, and by a SELECT of yours) have none.",
        default=600_000,
        minimum=0,
        aliases=("database.query.timeout.ms",),
    ),
    Option(
        "driver",
        str,
        "The DB-API driver that opens connections: mssql-python, emulator, or one registered by an entry point.",
        default="mssql-python",
    ),
    Option(
        "snapshot_isolation_mode",
        str,
        "How snapshots see the tables. read_committed, repeatable_read and read_uncommitted read chunks in parallel "
        "and resume after the last finished chunk; snapshot and exclusive read everything in one session.",
        default="read_committed",
        choices=("exclusive", "repeatable_read", "snapshot", "read_committed", "read_uncommitted"),
        aliases=("snapshot.isolation.mode",),
    ),
    Option(
        "commit_time",
        str,
        "What counts as the time of a change: the end of its transaction, or its begin, as Debezium has it when it "
        "reads change tables directly.",
        default="end",
        choices=("end", "begin"),
    ),
    Option(
        "order_in_commit",
        str,
        "command keeps the server's order of commands; sequence orders by sequence value and operation, as Debezium "
        "does in its function mode and before version 3.4, so that all deletes of a bulk update of keys come first.",
        default="command",
        choices=("command", "sequence"),
    ),
    Option(
        "server_timezone",
        parse_timezone,
        "The time zone of the server's clock (IANA or Windows name, or +02:00): SQL Server keeps commit times as local "
        "times. Unset, the server is asked (SQL Server 2022 or later, Azure); of an older one the present offset from "
        "UTC is used.",
        default="",
        aliases=("database.server.timezone",),
    ),
    *SHARED,
)

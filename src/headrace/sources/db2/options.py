"""The options of the Db2 source, with Debezium's names beside ours."""

from __future__ import annotations

from headrace.options import Option
from headrace.sources.change_tables.clock import parse_timezone
from headrace.sources.change_tables.options import LOGIN, SHARED
from headrace.sources.db2.statements import LUW, ZOS
from headrace.sources.stream_options import port

_PLATFORMS = {"z": ZOS, "z/os": ZOS}
"""Other names of platforms, Debezium's among them."""


def platform(text: str) -> str:
    """A platform whatever its case; used as an option's kind."""
    name = text.strip().lower()
    return _PLATFORMS.get(name, name)


OPTIONS: tuple[Option, ...] = (
    Option(
        "hostname",
        str,
        "The server's name or address; for the emulator the folder of the emulated server.",
        aliases=("database.hostname",),
    ),
    Option("database", str, "The database to capture (on z/OS the location).", aliases=("database.dbname",)),
    Option("port", port, "The server's TCP port; 50000 unless set.", default="", aliases=("database.port",)),
    *LOGIN,
    Option(
        "authentication",
        str,
        "How the login is made, as the driver's keyword AUTHENTICATION has it: SERVER, SERVER_ENCRYPT, KERBEROS, "
        "CERTIFICATE, TOKEN and others.",
        default="",
    ),
    Option("security", str, "SSL for an encrypted connection.", default="", choices=("", "SSL")),
    Option(
        "ssl_server_certificate",
        str,
        "A file with the certificate that the server must show, or with that of its authority.",
        default="",
    ),
    Option(
        "connect_timeout_ms",
        int,
        "How long a login may take, in milliseconds; 0 for as long as the driver allows.",
        default=15_000,
        minimum=0,
        aliases=("connect.timeout.ms",),
    ),
    Option(
        "query_timeout_ms",
        int,
        "How long the server may take for any reply, in milliseconds; 0 for no bound. It also counts while a snapshot "
        "is read.",
        default=0,
        minimum=0,
        aliases=("database.query.timeout.ms",),
    ),
    Option(
        "driver",
        str,
        "The DB-API driver that opens connections: ibm-db, db2-emulator, or one registered by an entry point.",
        default="ibm-db",
    ),
    Option(
        "platform",
        platform,
        "Where the server runs: luw (Linux, UNIX, Windows) or zos. The catalog differs.",
        default=LUW,
        choices=(LUW, ZOS),
        aliases=("db2.platform",),
    ),
    Option(
        "capture_schema",
        str,
        "The schema of SQL Replication's control tables.",
        default="ASNCDC",
        aliases=("cdc.control.schema",),
    ),
    Option(
        "snapshot_isolation_mode",
        str,
        "How snapshots see the tables. read_committed, repeatable_read and read_uncommitted read chunks in parallel "
        "and resume after the last finished chunk; exclusive reads everything in one session.",
        default="read_committed",
        choices=("exclusive", "repeatable_read", "read_committed", "read_uncommitted"),
        aliases=("snapshot.isolation.mode",),
    ),
    Option(
        "server_timezone",
        parse_timezone,
        "The time zone of the server's clock (IANA name, or +02:00): Db2 keeps commit times as local times. Unset, the "
        "server's present offset from UTC is used.",
        default="",
        aliases=("database.server.timezone",),
    ),
    *SHARED,
)

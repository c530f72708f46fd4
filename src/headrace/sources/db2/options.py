"""The options of the Db2 source, with Debezium's names beside ours."""

from __future__ import annotations

from headrace.settings import Settings, option
from headrace.sources.change_tables.clock import parse_timezone
from headrace.sources.change_tables.options import ChangeTableSettings, LoginSettings
from headrace.sources.db2.statements import LUW, ZOS
from headrace.sources.stream_options import port

_PLATFORMS = {"z": ZOS, "z/os": ZOS}
"""Other names of platforms, Debezium's among them."""


def platform(text: str) -> str:
    """A platform whatever its case; used as an option's kind."""
    name = text.strip().lower()
    return _PLATFORMS.get(name, name)


class Db2Server(Settings):
    hostname: str = option(
        "The server's name or address; for the emulator the folder of the emulated server.",
        aliases=("database.hostname",),
    )
    database: str = option(
        "The database to capture (on z/OS the location).",
        aliases=("database.dbname",),
    )
    port: str = option(
        "The server's TCP port; 50000 unless set.",
        kind=port,
        default="",
        aliases=("database.port",),
    )


class Db2LoginSettings(Settings):
    """How the server is connected to and read."""

    authentication: str = option(
        "How the login is made, as the driver's keyword AUTHENTICATION has it: SERVER, SERVER_ENCRYPT, KERBEROS, "
        "CERTIFICATE, TOKEN and others.",
        default="",
    )
    security: str = option(
        "SSL for an encrypted connection.",
        default="",
        choices=("", "SSL"),
    )
    ssl_server_certificate: str = option(
        "A file with the certificate that the server must show, or with that of its authority.",
        default="",
    )
    connect_timeout_ms: int = option(
        "How long a login may take, in milliseconds; 0 for as long as the driver allows.",
        default=15_000,
        minimum=0,
        aliases=("connect.timeout.ms",),
    )
    query_timeout_ms: int = option(
        "How long the server may take for any reply, in milliseconds; 0 for no bound. It also counts while a "
        "snapshot is read.",
        default=0,
        minimum=0,
        aliases=("database.query.timeout.ms",),
    )
    driver: str = option(
        "The DB-API driver that opens connections: ibm-db, db2-emulator, or one registered by an entry point.",
        default="ibm-db",
    )
    platform: str = option(
        "Where the server runs: luw (Linux, UNIX, Windows) or zos. The catalog differs.",
        kind=platform,
        default=LUW,
        choices=(LUW, ZOS),
        aliases=("db2.platform",),
    )
    capture_schema: str = option(
        "The schema of SQL Replication's control tables.",
        default="ASNCDC",
        aliases=("cdc.control.schema",),
    )
    snapshot_isolation_mode: str = option(
        "How snapshots see the tables. read_committed, repeatable_read and read_uncommitted read chunks in parallel "
        "and resume after the last finished chunk; exclusive reads everything in one session.",
        default="read_committed",
        choices=("exclusive", "repeatable_read", "read_committed", "read_uncommitted"),
        aliases=("snapshot.isolation.mode",),
    )
    server_timezone: str = option(
        "The time zone of the server's clock (IANA name, or +02:00): Db2 keeps commit times as local times. Unset, "
        "the server's present offset from UTC is used.",
        kind=parse_timezone,
        default="",
        aliases=("database.server.timezone",),
    )


class Db2Settings(Db2Server, LoginSettings, Db2LoginSettings, ChangeTableSettings):
    """Of the source `db2`."""

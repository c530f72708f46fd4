"""What a PostgreSQL server answers when it refuses, as sentences with the statement that mends it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.errors import CaptureError, ConnectError, HeadraceError
from headrace.sources.connection import LostConnection

_WITH_VALUES = ("22", "23")
_GONE = ("08", "57P")
_TOO_MANY = "53300"
_DENIED = "42501"
_NO_SLOT_FREE = "53400"
_NOT_READY = "55000"
_UNSUPPORTED = "0A000"

_WAL_LEVEL = re.compile(r"wal_level\W+>=?\W*logical")
_DENIED_OBJECT = re.compile(r"permission denied for (table|schema|database|publication|view) (.+)")
_NO_PUBLICATION = re.compile('publication ".+" does not exist')
_IN_RECOVERY = re.compile(r"while in recovery|during recovery|recovery is in progress")

SET_WAL_LEVEL = (
    "Run: ALTER SYSTEM SET wal_level = logical; and restart the server. On RDS and Aurora set rds.logical_replication "
    "= 1 in the parameter group, on Cloud SQL cloudsql.logical_decoding = on."
)
MORE_SLOTS = (
    "Drop slots that nobody uses (SELECT slot_name, active FROM pg_replication_slots; SELECT "
    "pg_drop_replication_slot('name');), or run: ALTER SYSTEM SET max_replication_slots = 20; and restart the server."
)
MORE_SENDERS = "Run: ALTER SYSTEM SET max_wal_senders = 20; and restart the server."
ON_PRIMARY = "Set 'hostname' to the primary server."


class PostgresError(CaptureError):
    """The server refused a statement.

    Attributes:
        sqlstate: the five characters of the server's error code.
    """

    sqlstate = ""


@dataclass(frozen=True)
class Endpoint:
    """Where a session is or is to be, for sentences.

    Args:
        server: host and port.
        database: its name.
        user: the role; empty where libpq chooses it.
        replicates: whether it is a replication session.
    """

    server: str
    database: str
    user: str
    replicates: bool

    def __str__(self) -> str:
        return f"database '{self.database}' on '{self.server}'"

    @property
    def role(self) -> str:
        return identifier(self.user) if self.user else "<role>"


def identifier(name: str) -> str:
    """A name in quotes, whatever it holds."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    quoted = "'" + text.replace("'", "''") + "'"
    # Without the E a backslash means what standard_conforming_strings says.
    return "E" + quoted.replace("\\", "\\\\") if "\\" in text else quoted


def grant_replication(role: str) -> str:
    """The statement that lets a role, written as an identifier, replicate."""
    return f"Run: ALTER ROLE {role} REPLICATION; or on RDS and Aurora: GRANT rds_replication TO {role};"


def refused(endpoint: Endpoint, sqlstate: str, message: str, detail: str = "") -> HeadraceError:
    """The error for what the server answers to a statement.

    Args:
        endpoint: where the session is.
        sqlstate: the server's code; empty where the connection broke without one.
        message: the server's sentence.
        detail: what it adds.
    """
    if sqlstate == "57P01":
        return LostConnection(
            f"The server ended a session in {endpoint} ({message}).",
            remedy="It was shut down, the session was terminated, or its slot was invalidated; the run goes on where "
            "it stopped if the slot is still there.",
        )
    if not sqlstate or sqlstate.startswith(_GONE):
        return LostConnection(
            f"The connection to {endpoint} broke ({message}).",
            remedy="Check the server and the network; the run goes on where it stopped.",
        )
    if sqlstate.startswith(_WITH_VALUES):
        # The server's sentence would show a value of a row.
        text = f"The server refuses a statement in {endpoint} with the error code {sqlstate}."
    else:
        text = f"In {endpoint}: {'. '.join(part.rstrip('.') for part in (message, detail) if part)}."
    error = PostgresError(text, remedy=_remedy(endpoint, sqlstate, message))
    error.sqlstate = sqlstate
    return error


def _remedy(endpoint: Endpoint, sqlstate: str, message: str) -> str:
    if sqlstate == _DENIED:
        denied = _DENIED_OBJECT.search(message)
        if "row-level security" in message:
            return f"Run: ALTER ROLE {endpoint.role} BYPASSRLS;"
        if denied and denied[1] in ("table", "view"):
            return f"Run: GRANT SELECT ON {denied[2]} TO {endpoint.role};"
        if denied and denied[1] == "schema":
            return f"Run: GRANT USAGE ON SCHEMA {denied[2]} TO {endpoint.role};"
        if "replication" in message.lower() or "wal sender" in message.lower():
            return grant_replication(endpoint.role)
        return "Ask `headrace check --level privileges` which rights are missing."
    if sqlstate == _NO_SLOT_FREE:
        return MORE_SLOTS
    if sqlstate == _TOO_MANY:
        return MORE_SENDERS if endpoint.replicates else ""
    if sqlstate == _NOT_READY and _WAL_LEVEL.search(message):
        return SET_WAL_LEVEL
    if _NO_PUBLICATION.search(message):
        return (
            "Make the publication again, and start with a new slot and a new checkpoint: what was written without it "
            "can't be decoded any more."
        )
    if sqlstate in (_NOT_READY, _UNSUPPORTED) and _IN_RECOVERY.search(message):
        return ON_PRIMARY
    return ""


def not_connected(endpoint: Endpoint, text: str) -> HeadraceError:
    """The error for a session that could not be begun.

    libpq gives no code for it, only sentences in English or in the server's language; what isn't known is passed on.

    Args:
        endpoint: where the session was to be.
        text: libpq's sentences, without the password.
    """
    words = {
        "server": endpoint.server,
        "user": endpoint.user,
        "database": endpoint.database,
        "role": endpoint.role,
        "quoted": identifier(endpoint.database),
        "said": text.strip().rstrip("."),
    }
    for sign, sentence, remedy in _REFUSED_LOGINS:
        if re.search(sign, text, re.IGNORECASE):
            return ConnectError(sentence.format(**words), remedy=remedy.format(**words))
    if re.search(_NOT_NOW, text, re.IGNORECASE):
        return LostConnection(
            "Server '{server}' takes no session now ({said}).".format(**words),
            remedy="It may in a moment; where all connections are in use, raise max_connections.",
        )
    return LostConnection(
        "Server '{server}' can't be reached ({said}).".format(**words),
        remedy="Check 'hostname', 'port' and the network.",
    )


_NOT_NOW = "too many clients|remaining connection slots|starting up|shutting down|not yet accepting|in recovery mode"
_REFUSED_LOGINS = (
    (
        r"GSSAPI(?!.*Cannot contact)",
        "Server '{server}' asks for Kerberos, and user '{user}' has no ticket here that it takes ({said}).",
        "Run kinit, or name a keytab in the environment variable KRB5_CLIENT_KTNAME; 'hostname' must be the name in "
        "the server's principal.",
    ),
    (
        r"pg_hba\.conf.*(?:no encryption|SSL off)",
        "pg_hba.conf of server '{server}' lets user '{user}' into database '{database}' only with TLS, if at all.",
        "Set 'sslmode' to require; or add a line for connections without TLS and run: SELECT pg_reload_conf();",
    ),
    (
        r"pg_hba\.conf",
        "pg_hba.conf of server '{server}' has no line that lets user '{user}' into database '{database}'.",
        "Add the line: host {quoted} {role} <address of this machine>/32 scram-sha-256; then run: "
        "SELECT pg_reload_conf();",
    ),
    (
        r"authentication failed|no password supplied|role .+ does not exist",
        "Server '{server}' refused the login of user '{user}'.",
        "Check 'user' and 'password'.",
    ),
    (
        r"replication role to start walsender|permission denied to start WAL sender",
        "Role '{user}' may not open a replication session on server '{server}'.",
        grant_replication("{role}"),
    ),
    (
        r"server does not support SSL",
        "Server '{server}' offers no TLS, which 'sslmode' asks for.",
        "Run on the server: ALTER SYSTEM SET ssl = on; or set 'sslmode' to prefer.",
    ),
    (
        r"certificate",
        "The connection to server '{server}' fails at a certificate ({said}).",
        "Check 'sslrootcert', 'sslcert' and 'sslkey', and that 'hostname' is the name in the server's certificate.",
    ),
    (
        r"permission denied for database",
        "User '{user}' may not connect to database '{database}' on server '{server}'.",
        "Run: GRANT CONNECT ON DATABASE {quoted} TO {role};",
    ),
    (r"database .+ does not exist", "Server '{server}' has no database '{database}'.", "Check 'database'."),
    (
        r"requested standby connections exceeds|max_wal_senders",
        "All of max_wal_senders of server '{server}' are in use.",
        MORE_SENDERS,
    ),
    (
        r"unsupported startup parameter|unrecognized configuration parameter",
        "Server '{server}' refuses the settings of a session ({said}).",
        "Connect to PostgreSQL 14 or newer itself, not to a pooler.",
    ),
)

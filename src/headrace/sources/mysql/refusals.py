"""What a MySQL or MariaDB server answers when it refuses, as sentences with the statement that mends it."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import CaptureError, ConnectError, DataLossError, HeadraceError
from headrace.sources.connection import LostConnection

_LOST = frozenset((0, 1053, 1077, 1080, 1152, 1153, 1158, 1159, 1160, 1161, 1184, 1927, 2006, 2013, 2014, 4031))
"""The server shuts down, ended the session, or the socket broke."""
_NOT_NOW = frozenset((1040, 1203, 1226, 2002, 2003))
_LOGIN = frozenset((1044, 1045, 1698, 1862, 3118, 4151))
_DENIED = frozenset((1142, 1143, 1227, 1370))
_PASSING = frozenset((1205, 1213, 3572))
_DUMP = 1236
_NO_PLUGIN, _NO_TLS = 2059, 2026

NEW_CHECKPOINT = "Use another checkpoint, which begins with a new snapshot, or set 'snapshot_mode' to when_needed."
KEEP_LONGER = (
    "Keep it longer from now on (SET PERSIST binlog_expire_logs_seconds = 604800; on MariaDB SET GLOBAL and the option "
    "file; on RDS CALL mysql.rds_set_configuration('binlog retention hours', 168);)."
)


class MysqlError(CaptureError):
    """The server refused a statement or a dump.

    Attributes:
        number: the server's number of the error.
    """

    number = 0


class PassingError(MysqlError):
    """It refused for a reason that passes: a deadlock, or a lock that another session holds."""


class TakenServerId(LostConnection):
    """Another reader came with the same server id, and the server threw this one out."""


@dataclass(frozen=True)
class Endpoint:
    """Where a session is or is to be, for sentences.

    Args:
        server: host and port.
        user: the login.
    """

    server: str
    user: str

    def __str__(self) -> str:
        return f"server '{self.server}'"

    @property
    def login(self) -> str:
        """The login in statements; from which host is not known here."""
        return f"{literal(self.user)}@'%'"


def identifier(name: str) -> str:
    """A name in backticks, whatever it holds."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A text as a constant in SQL, under any sql_mode."""
    if "\\" in text:
        return "_utf8mb4 x'" + text.encode().hex() + "'"
    return "'" + text.replace("'", "''") + "'"


def refused(endpoint: Endpoint, number: int, message: str) -> HeadraceError:
    """The error for what the server answers to a statement.

    Args:
        endpoint: where the session is.
        number: the server's; 0 where the connection broke without one.
        message: the server's sentence.
    """
    if number in _LOST or 2000 <= number < 3000:
        return LostConnection(
            f"The connection to {endpoint} broke ({message or number}).",
            remedy="Check the server and the network; the run goes on where it stopped.",
        )
    if number == _DUMP:
        return _dump_refused(endpoint, message)
    kind = PassingError if number in _PASSING else MysqlError
    # Other sentences may show a value of a row.
    if number in _DENIED or 1046 <= number <= 1064 or number in (1146, 1193):
        error = kind(f"On {endpoint}: {message.rstrip('.')} (error {number}).", remedy=_remedy(endpoint, number))
    else:
        error = kind(f"On {endpoint} a statement fails with error {number}.", remedy=_remedy(endpoint, number))
    error.number = number
    return error


def session_refused(endpoint: Endpoint, error: MysqlError) -> ConnectError:
    """The error for a server, or what stands in front of it, that takes no settings of a session.

    Args:
        endpoint: where the session is.
        error: what the server answered to them.
    """
    return ConnectError(
        f"Server '{endpoint.server}' refuses the settings of a session without which its limits would leave out rows "
        f"or change values (error {error.number}).",
        remedy="Connect to the server itself and not to a proxy, as a login that may SET time_zone, sql_mode, "
        "sql_select_limit and the time-outs of its own session.",
    )


def _remedy(endpoint: Endpoint, number: int) -> str:
    if number == 1227:
        return f"Run: GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {endpoint.login};"
    if number in _DENIED:
        return "Ask `headrace check --level privileges` which rights are missing."
    return ""


def _dump_refused(endpoint: Endpoint, message: str) -> HeadraceError:
    lowered = message.lower()
    if "same server_uuid/server_id" in lowered or "same server_id" in lowered:
        return TakenServerId(
            f"On {endpoint} another reader has the same server id, and this one was thrown out.",
            remedy="Give each pipeline and each replica numbers of its own with 'server_id'.",
        )
    if any(
        sign in lowered for sign in ("could not find first log file", "purged required", "could not find gtid state")
    ):
        return DataLossError(
            f"The binary log of {endpoint} does not have what is to be read any more ({message.rstrip('.')}).",
            remedy=f"{KEEP_LONGER} {NEW_CHECKPOINT}",
        )
    if "max_allowed_packet" in lowered:
        error = MysqlError(
            f"An event in the binary log of {endpoint} is larger than the server's max_allowed_packet.",
            remedy="Run: SET GLOBAL max_allowed_packet = 1073741824; and where there is it, SET GLOBAL "
            "replica_max_allowed_packet = 1073741824;",
        )
    else:
        # A position in or after the last event is one of another log: a restored server, or a log that was reset.
        error = MysqlError(
            f"The binary log of {endpoint} can't be read from where it is to be ({message.rstrip('.')}).",
            remedy="Look whether the server was restored or its log reset. Then use another checkpoint, which begins "
            "with a new snapshot.",
        )
    error.number = _DUMP
    return error


def not_connected(endpoint: Endpoint, number: int, text: str) -> HeadraceError:
    """The error for a session that could not be begun.

    Args:
        endpoint: where the session was to be.
        number: the server's or the driver's number; 0 where there is none.
        text: the sentence, without the password.
    """
    reason = text.strip().rstrip(".")
    if number in _LOGIN:
        return ConnectError(
            f"Server '{endpoint.server}' refused the login of user '{endpoint.user}'.",
            remedy="Check 'user' and 'password', and that the user may come from this machine (user@host).",
        )
    if "cryptography" in reason or "PyNaCl" in reason or number == _NO_PLUGIN:
        return ConnectError(
            f"Server '{endpoint.server}' asks for a kind of login that the driver lacks a part for ({reason}).",
            remedy="Set 'sslmode' to required; or run: pip install 'PyMySQL[rsa,ed25519]'.",
        )
    if "certificate" in reason.lower():
        return ConnectError(
            f"The connection to server '{endpoint.server}' fails at a certificate ({reason}).",
            remedy="Check 'sslrootcert', and that 'hostname' is the name in the server's certificate.",
        )
    if number == _NO_TLS or "SSL is required" in reason:
        return ConnectError(
            f"Server '{endpoint.server}' offers no TLS, which 'sslmode' asks for.",
            remedy="Set ssl_cert and ssl_key on the server; or set 'sslmode' to preferred.",
        )
    if number == 3159:
        return ConnectError(
            f"Server '{endpoint.server}' takes connections with TLS only.", remedy="Set 'sslmode' to required."
        )
    if number in _NOT_NOW and number not in (2002, 2003):
        return LostConnection(
            f"Server '{endpoint.server}' takes no session now ({reason}).",
            remedy="It may in a moment; where all connections are in use, raise max_connections.",
        )
    return LostConnection(
        f"Server '{endpoint.server}' can't be reached ({reason}).", remedy="Check 'hostname', 'port' and the network."
    )

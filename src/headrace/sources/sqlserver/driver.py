"""The real driver: Microsoft's mssql-python, with its Arrow fetch.

A driver is a function `connect(settings)` that gives a DB-API connection whose cursors also have
`arrow_reader(batch_size)`, and heed the connection's `timeout` (seconds, 0 for none) where the driver can. The emulator
is another driver of the same form, so that the same SQL text goes through both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.errors import OptionError

_SWITCHES = {"true": "yes", "false": "no"}
"""ODBC knows only yes and no (and for `encrypt` mandatory, optional and strict)."""
_INTENTS = ("ReadOnly", "ReadWrite")
_KERBEROS = "Kerberos"
_MODES = (
    _KERBEROS,
    "SqlPassword",
    "ActiveDirectoryDefault",
    "ActiveDirectoryDeviceCode",
    "ActiveDirectoryIntegrated",
    "ActiveDirectoryInteractive",
    "ActiveDirectoryMSI",
    "ActiveDirectoryPassword",
    "ActiveDirectoryServicePrincipal",
)
_JDBC_MODES = {"activedirectorymanagedidentity": "ActiveDirectoryMSI", "javakerberos": _KERBEROS}
"""What Microsoft's JDBC driver calls some of them."""


def connect(settings: Mapping[str, Any]) -> Any:
    """Open a connection to a server.

    The driver keeps closed connections and gives them out again, with everything in them that a session sets put back.
    The server sees them all as the program `MSSQL-Python`: the driver allows no other name.

    Args:
        settings: hostname, port, instance, database, user, password, authentication, encrypt, trust_server_certificate,
            hostname_in_certificate, server_certificate, multi_subnet_failover, application_intent, connect_timeout_ms;
            empty ones are left out.

    Raises:
        OptionError: the driver is not installed, or has no such mode of authentication or intent.
        Exception: whatever the driver raises; `headrace.sources.sqlserver.connection` turns it into a ConnectError.
    """
    try:
        import mssql_python
    except ImportError as error:
        raise OptionError(
            "The SQL Server driver mssql-python is not installed.", remedy="Run: pip install 'headrace[sqlserver]'."
        ) from error
    attributes: dict[int, int | str | bytes] = {}
    if settings.get("connect_timeout_ms"):
        attributes[mssql_python.SQL_ATTR_LOGIN_TIMEOUT] = -(-int(settings["connect_timeout_ms"]) // 1000)
    return mssql_python.connect(connection_string(settings), autocommit=True, attrs_before=attributes)


def connection_string(settings: Mapping[str, Any]) -> str:
    """The ODBC connection string; never logged, because it holds the password.

    Raises:
        OptionError: there is no such mode of authentication, or no such intent.
    """
    server = settings["hostname"]
    if settings.get("instance"):
        server += "\\" + settings["instance"]
    if settings.get("port"):
        server += "," + str(settings["port"])
    mode = _one_of("authentication", settings.get("authentication"), _MODES, _JDBC_MODES)
    parts = {
        "Server": server,
        "Database": settings["database"],
        "UID": settings.get("user"),
        "PWD": settings.get("password"),
        "Authentication": None if mode == _KERBEROS else mode,
        "Trusted_Connection": "yes" if mode == _KERBEROS else None,
        "Encrypt": _switch(settings.get("encrypt")),
        "TrustServerCertificate": _switch(settings.get("trust_server_certificate")),
        "HostnameInCertificate": settings.get("hostname_in_certificate"),
        "ServerCertificate": settings.get("server_certificate"),
        "MultiSubnetFailover": _switch(settings.get("multi_subnet_failover")),
        "ApplicationIntent": _one_of("application_intent", settings.get("application_intent"), _INTENTS),
    }
    return ";".join(f"{name}={_braced(str(value))}" for name, value in parts.items() if value) + ";"


def _switch(value: object) -> str:
    text = str(value or "").strip().lower()
    return _SWITCHES.get(text, text)


def _one_of(
    option: str, value: str | None, allowed: Sequence[str], others: Mapping[str, str] | None = None
) -> str | None:
    if not value:
        return None
    wanted = value.strip().lower()
    names = {name.lower(): name for name in allowed} | dict(others or {})
    if wanted not in names:
        raise OptionError(f"Option '{option}' can't be '{value}'.", remedy=f"Use one of {', '.join(allowed)}.")
    return names[wanted]


def _braced(value: str) -> str:
    """A value as ODBC reads it whatever characters it has."""
    return (
        "{" + value.replace("}", "}}") + "}" if any(c in value for c in ";{}[]=") or value != value.strip() else value
    )

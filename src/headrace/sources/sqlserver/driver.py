"""The real driver: Microsoft's mssql-python, with its Arrow fetch.

A driver is a function `connect(settings)` that gives a DB-API connection whose cursors also have
`arrow_reader(batch_size)`, and heed the connection's `timeout` (seconds, 0 for none) where the driver can. The emulator
is another driver of the same form, so that the same SQL text goes through both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.errors import OptionError


def connect(settings: Mapping[str, str]) -> Any:
    """Open a connection to a server.

    Args:
        settings: hostname, port, instance, database, user, password, encrypt, trust_server_certificate,
            application_intent, authentication, connect_timeout_ms; empty ones are left out.

    Raises:
        OptionError: the driver is not installed.
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


def connection_string(settings: Mapping[str, str]) -> str:
    """The ODBC connection string; never logged, because it holds the password."""
    server = settings["hostname"]
    if settings.get("instance"):
        server += "\\" + settings["instance"]
    if settings.get("port"):
        server += "," + str(settings["port"])
    parts = {
        "SERVER": server,
        "DATABASE": settings["database"],
        "UID": settings.get("user"),
        "PWD": settings.get("password"),
        "Encrypt": settings.get("encrypt"),
        "TrustServerCertificate": settings.get("trust_server_certificate"),
        "ApplicationIntent": settings.get("application_intent"),
        "Authentication": settings.get("authentication"),
    }
    return ";".join(f"{name}={_braced(str(value))}" for name, value in parts.items() if value) + ";"


def _braced(value: str) -> str:
    """A value as ODBC reads it whatever characters it has."""
    return (
        "{" + value.replace("}", "}}") + "}" if any(c in value for c in ";{}[]=") or value != value.strip() else value
    )

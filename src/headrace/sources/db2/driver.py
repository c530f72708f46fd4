"""The real driver: IBM's ibm_db, by its DB-API module.

A driver is a function `connect(settings)` that gives an `ibm_db_dbi` connection in which each statement is a
transaction of its own. The emulator is another driver of the same form, so that the same SQL text goes through both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.errors import OptionError

_NAMES = {
    "hostname": "HOSTNAME",
    "port": "PORT",
    "database": "DATABASE",
    "user": "UID",
    "password": "PWD",
    "security": "SECURITY",
    "ssl_server_certificate": "SSLSERVERCERTIFICATE",
    "authentication": "AUTHENTICATION",
}


def connect(settings: Mapping[str, Any]) -> Any:
    """Open a connection to a server.

    Args:
        settings: hostname, port, database, user, password, security, ssl_server_certificate, authentication,
            connect_timeout_ms, query_timeout_ms; empty ones are left out.

    Raises:
        OptionError: the driver is not installed, or a setting can't be written into a connection string.
        Exception: whatever the driver raises; `headrace.sources.db2.connection` turns it into a ConnectError.
    """
    try:
        import ibm_db
        import ibm_db_dbi
    except ImportError as error:
        raise OptionError(
            "The Db2 driver ibm_db is not installed.", remedy="Run: pip install 'headrace[db2]'."
        ) from error
    options = {ibm_db.SQL_ATTR_AUTOCOMMIT: ibm_db.SQL_AUTOCOMMIT_ON}
    return ibm_db_dbi.connect(connection_string(settings), conn_options=options)


def connection_string(settings: Mapping[str, Any]) -> str:
    """The connection string; never logged, because it holds the password.

    Raises:
        OptionError: a setting holds a semicolon, which the driver takes for the end of it.
    """
    parts = {keyword: str(settings.get(name) or "") for name, keyword in _NAMES.items()}
    odd = next((name for name, keyword in _NAMES.items() if ";" in parts[keyword]), None)
    if odd is not None:
        raise OptionError(
            f"Option '{odd}' holds a semicolon, which the driver can't take.", remedy="Use another value."
        )
    parts["PORT"] = parts["PORT"] or "50000"
    parts["PROTOCOL"] = "TCPIP"
    # Whole seconds are all that the driver knows.
    for name, keyword in (("connect_timeout_ms", "CONNECTTIMEOUT"), ("query_timeout_ms", "RECEIVETIMEOUT")):
        milliseconds = int(settings.get(name) or 0)
        parts[keyword] = str(-(-milliseconds // 1000)) if milliseconds else ""
    return "".join(f"{keyword}={value};" for keyword, value in parts.items() if value)

"""The real driver: Oracle's python-oracledb in its thin mode, with its Arrow fetch.

A driver is a function `connect(settings)` that gives a DB-API connection which also has
`fetch_df_batches(statement, parameters, size)` and heeds `call_timeout` (milliseconds). The emulator is another driver
of the same form, so that the same SQL text goes through both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.errors import OptionError

_PORT = 1521


def connect(settings: Mapping[str, Any]) -> Any:
    """Open a connection to a database.

    Args:
        settings: hostname, port, database (the service's name), dsn (an address or alias that stands for these three),
            user, password, connect_timeout_ms.

    Raises:
        OptionError: the driver is not installed.
        Exception: whatever the driver raises; `headrace.sources.oracle.connection` turns it into a ConnectError.
    """
    try:
        import oracledb
    except ImportError as error:
        raise OptionError(
            "The Oracle driver oracledb is not installed.", remedy="Run: pip install 'headrace[oracle]'."
        ) from error
    # LOBs as texts and bytes: a locator would need a round trip for each value.
    oracledb.defaults.fetch_lobs = False
    address: dict[str, Any] = {"dsn": settings["dsn"]}
    if not settings.get("dsn"):
        address = {
            "host": settings["hostname"],
            "port": int(settings.get("port") or _PORT),
            "service_name": settings["database"],
        }
    seconds = -(-int(settings.get("connect_timeout_ms") or 0) // 1000)
    if seconds:
        address["tcp_connect_timeout"] = seconds
    return oracledb.connect(user=settings.get("user"), password=settings.get("password"), **address)

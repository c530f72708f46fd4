"""Connections to SQL Server: what the driver's errors mean."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from headrace.errors import ConnectError, HeadraceError
from headrace.sources.change_tables.connection import (
    Connection,
    Denied,
    MissingObject,
    PassingRefusal,
    StatementError,
)
from headrace.sources.connection import LostConnection
from headrace.sources.sqlserver import statements
from headrace.sources.sqlserver.dialect import SqlServer

_INVALID_OBJECT = re.compile(r"Invalid object name '([^']+)'", re.IGNORECASE)
_DENIED = re.compile(r"(\w+) permission was denied on the object '(.+)', database '.+', schema '(.+)'", re.IGNORECASE)
_TIMED_OUT = re.compile(r"(?<!connection )(?<!login )timeout expired", re.IGNORECASE)
# The driver reports no error numbers, so its words have to do; the words before `DDBC Error` follow the SQLSTATE.
_BROKEN = re.compile(
    "communication link failure|connection timeout expired|connection not open|connection failure during"
    "|connection is (?:broken|closed|not open)|(?:tcp|ssl) provider|transport-level error|forcibly closed"
    "|session is in the kill state|not (?:found or|found, or) (?:was )?not accessible",
    re.IGNORECASE,
)
_AWAY = re.compile(
    "is not currently available|service is currently busy|error processing your request|not enough resources"
    "|too many (?:create or update )?operations|limit for the database is|too busy to support requests"
    "|availability group|is being recovered|middle of a restore|shut ?down is in progress|deadlock"
    "|serialization failure",
    re.IGNORECASE,
)
_BROKEN_NUMBERS = frozenset((-2, 20, 64, 121, 233, 596, 10053, 10054, 10060))
_AWAY_NUMBERS = frozenset(
    (922, 927, 976, 978, 983, 1205, 4221, 6005, 10928, 10929, 40143, 40197, 40501, 40540, 40613, 49918, 49919, 49920)
)


class SqlServerConnection(Connection):
    """A connection to one database of SQL Server.

    Args:
        driver: the driver's name.
        settings: what the driver needs, and `query_timeout_ms`.
    """

    def __init__(self, driver: str, settings: Mapping[str, Any]) -> None:
        super().__init__(driver, settings, SqlServer())

    def begin(self) -> None:
        self.run(statements.BEGIN)

    def end(self) -> None:
        self.run(statements.END)

    def _connect_error(self, error: Exception) -> HeadraceError:
        text = self._clean(error)
        lowered = text.lower()
        number = getattr(error, "number", None)
        if number == 4060 or "cannot open database" in lowered:
            # Looked for first, because it goes on with "The login failed"; for a moment also true during a failover.
            return LostConnection(
                f"Server '{self._where}' has no database '{self._database}' that user '{self._user}' may open.",
                remedy="Check 'database'.",
            )
        if number == 18456 or "login failed" in lowered:
            return ConnectError(
                f"Server '{self._where}' refused the login of user '{self._user}'.",
                remedy="Check 'user' and 'password', and that the login may connect to the database.",
            )
        if "access token" in lowered:
            return ConnectError(
                f"No access token for server '{self._where}' could be had ({text}).",
                remedy="Check 'authentication', the identity that the process runs as, and its way to Microsoft Entra.",
            )
        if "connection string attribute" in lowered or "connection string parsing failed" in lowered:
            return ConnectError(
                f"The driver refuses an option of the connection to server '{self._where}' ({text}).",
                remedy="Correct the option that it names.",
            )
        if "failed to load the driver" in lowered:
            return ConnectError(
                "The SQL Server driver mssql-python lacks system libraries.",
                remedy="Install them; on Debian: apt-get install libltdl7 libkrb5-3 libgssapi-krb5-2.",
            )
        return LostConnection(
            f"Server '{self._where}' can't be reached ({text}).",
            remedy="Check 'hostname', 'port', the network and 'encrypt'.",
        )

    def _statement_error(self, error: Exception) -> HeadraceError:
        text = self._clean(error)
        number = getattr(error, "number", None)
        denied = _DENIED.search(text)
        if denied:
            permission, name, schema = denied.groups()
            path = f"{schema}.{name}"
            quoted = ".".join(f"[{part.replace(']', ']]')}]" for part in (schema, name))
            verb = "read" if permission.upper() == "SELECT" else f"do {permission.upper()} on"
            return Denied(
                f"User '{self._user}' may not {verb} '{path}' in database '{self._database}'.",
                remedy=f"Grant it: GRANT {permission.upper()} ON {quoted} TO [{self._user.replace(']', ']]')}].",
            )
        missing = _INVALID_OBJECT.search(text)
        if missing:
            return MissingObject(
                f"Database '{self._database}' has no object '{missing[1]}'.",
                remedy="Check that change data capture is enabled and was not switched off meanwhile.",
            )
        if number == 208 or "base table or view not found" in text.lower():
            # As a server says it in another language than English.
            return MissingObject(
                f"Database '{self._database}' has no such object ({text}).",
                remedy="Check that change data capture is enabled and was not switched off meanwhile.",
            )
        server_text = f"server '{self._where}', database '{self._database}'"
        if _TIMED_OUT.search(text):
            return LostConnection(
                f"No answer from {server_text} within {self._patience} milliseconds.",
                remedy="See what blocks the server, or raise 'query_timeout_ms'.",
            )
        if number in _BROKEN_NUMBERS or _BROKEN.search(text):
            return LostConnection(
                f"The connection to {server_text} broke ({text}).",
                remedy="Check the server and the network; the run goes on where it stopped.",
            )
        if number in _AWAY_NUMBERS or _AWAY.search(text):
            return PassingRefusal(f"{server_text[0].upper()}{server_text[1:]}: {text}.")
        return StatementError(f"{server_text[0].upper()}{server_text[1:]}: {text}.")

"""The oldest release of SQL Server whose catalog has what is asked for."""

from __future__ import annotations

from headrace.errors import CaptureError
from headrace.sources.change_tables.statements import Queries
from headrace.sources.sqlserver import statements

_OLDEST, _NAME = 13, "SQL Server 2016"
_OWN_NUMBERS = (5, 8)
"""Azure SQL Database and Azure SQL Managed Instance have numbers of their own."""


def too_old(server: Queries) -> CaptureError | None:
    """Why a server can't be read, where its release is why."""
    ((major, edition),) = server.rows(statements.SERVER_VERSION)
    if major is None or int(major) >= _OLDEST or int(edition or 0) in _OWN_NUMBERS:
        return None
    return CaptureError(
        f"The server is version {int(major)} of SQL Server; {_NAME} (version {_OLDEST}) is the oldest that can "
        "be read.",
        remedy=f"Upgrade it to {_NAME} or later. Standard edition captures changes from {_NAME} SP1 on.",
    )

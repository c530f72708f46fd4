"""The time zone that SQL Server reports for its clock."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa

from headrace.sources.change_tables import clock
from headrace.sources.change_tables.connection import PassingRefusal, StatementError
from headrace.sources.change_tables.statements import Queries
from headrace.sources.sqlserver import statements

_SAYS_ITS_ZONE = 16
"""The first version that reports its zone: SQL Server 2022."""
_CLOUD = (5, 8)
"""Azure SQL Database and Azure SQL Managed Instance report it, whatever version they claim to have."""
_LOCAL = pa.timestamp("us")


def reported_zone(server: Queries, local: dt.datetime, minutes: int) -> str | None:
    """The zone that the server reports; None when it can't, when it is unknown here, or when its clock is not in it."""
    try:
        ((major, edition),) = server.rows(statements.SERVER_VERSION)
        if int(major or 0) < _SAYS_ITS_ZONE and int(edition or 0) not in _CLOUD:
            return None
        name = server.value(statements.SERVER_ZONE)
    except PassingRefusal:
        raise
    except StatementError:
        return None
    try:
        zone = clock.parse_timezone(str(name or ""))
        meant = clock.readings(pa.array([local], _LOCAL), zone)
    except (ValueError, pa.ArrowException):
        return None
    # Windows can be set not to change the clock for daylight saving, whatever its zone does.
    shown = clock.to_instants(pa.array([local], _LOCAL), clock.offset_text(minutes))[0].as_py()
    return zone if shown in [reading[0].as_py() for reading in meant] else None

"""What the announcements of the PostgreSQL source say."""

from __future__ import annotations

from headrace.sources.log.markers import LogMarkers
from headrace.sources.postgresql import lsn

CONNECTOR = "postgresql"


class PostgresMarkers(LogMarkers):
    """Those of one database.

    Args:
        database: its name.
    """

    def __init__(self, database: str) -> None:
        super().__init__(CONNECTOR, database)

    def facts(self, commit: str) -> dict[str, str]:
        return {"connector": self.connector, "lsn": str(lsn.number(commit))}

    def lost(self, after: str, upto: str) -> tuple[dict[str, str], str, str]:
        low, high = lsn.to_server(lsn.boundary(after)), lsn.to_server(lsn.number(upto))
        span = f"that were committed from {low} to {high}"
        return {"from_lsn": low, "to_lsn": high}, span, "the slot did not keep their log"

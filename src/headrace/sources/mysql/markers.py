"""What the announcements of the MySQL source say."""

from __future__ import annotations

from headrace.changes import TableId
from headrace.sources.log.markers import LogMarkers
from headrace.sources.mysql.binlog_position import boundary, file_name
from headrace.sources.mysql.connection import MARIADB, MYSQL
from headrace.sources.mysql.stream_state import LogState


def connector(kind: str) -> str:
    """The connector's name in events, by the kind of a server."""
    return MARIADB if kind == MARIADB else MYSQL


def table_id(path: str) -> TableId:
    """The table of a path, `database.table`."""
    database, _, name = path.partition(".")
    return TableId(database, "", name)


class MysqlMarkers(LogMarkers):
    """Those of one server.

    Args:
        log: the server and its log.
    """

    def __init__(self, log: LogState) -> None:
        super().__init__(connector(log.kind))
        self._log = log

    def facts(self, commit: str) -> dict[str, str]:
        position = boundary(commit)
        file = file_name(self._log.base, position.file)
        return {"connector": self.connector, "file": file, "pos": str(position.position)}

    def table_id(self, path: str) -> TableId:
        return table_id(path)

    def lost(self, after: str, upto: str) -> tuple[dict[str, str], str, str]:
        low, high = (f"{file_name(self._log.base, p.file)}:{p.position}" for p in map(boundary, (after, upto)))
        return {"from": low, "to": high}, f"from {low} to {high}", "the server did not keep these files of its log"

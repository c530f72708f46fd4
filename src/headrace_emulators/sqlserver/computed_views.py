"""System views whose rows are made when they are read: databases, row counts, services."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

from headrace_emulators.engine import database_files as files
from headrace_emulators.sqlserver import catalog as catalogs
from headrace_emulators.sqlserver.catalog import quoted
from headrace_emulators.sqlserver.storage import SqlServerStorage
from headrace_emulators.sqlserver.types import DEFAULT_COLLATION

_SYSTEM = ("master", "tempdb", "model", "msdb")


class ComputedViews:
    """Fills the views for one connection.

    Args:
        storage: the connection.
    """

    def __init__(self, storage: SqlServerStorage) -> None:
        self._storage = storage

    def fill(self, name: str) -> None:
        """Make the rows of a view, in a temporary table that statements find before anything else of that name."""
        rows = list(getattr(self, "_rows_of_" + name.split(".")[1])())
        columns = catalogs.columns_of(catalogs.COMPUTED_TABLES[name])
        body = ", ".join(catalogs.column_definition(c.name, c.type) for c in columns)
        self._storage.sqlite.execute(f"CREATE TEMP TABLE IF NOT EXISTS {quoted(name)} ({body})")
        self._storage.sqlite.execute(f"DELETE FROM temp.{quoted(name)}")
        self._storage.sqlite.executemany(
            f"INSERT INTO temp.{quoted(name)} VALUES ({', '.join('?' * len(columns))})", rows
        )

    def _rows_of_databases(self) -> Iterator[tuple[object, ...]]:
        paths = files.databases(self._storage.path.parent)
        for number, name in enumerate(self._storage.database_names(), 1):
            enabled, created = 0, "2003-04-08 09:13:36.390"
            snapshot, committed = 0, 0
            if number <= len(_SYSTEM):
                snapshot = int(name in ("master", "msdb"))
            else:
                state = _settings(paths[name])
                enabled = int(bool(state["captured"]))
                snapshot = int(state.get("allow_snapshot_isolation") == "ON")
                committed = int(state.get("read_committed_snapshot") == "ON")
                created = str(state["created"])
            words = "ON" if snapshot else "OFF"
            yield (
                name, number, created, 160, DEFAULT_COLLATION, 0, 0, "ONLINE", snapshot, words, committed, enabled
            )  # fmt: skip

    def _rows_of_cdc_jobs(self) -> Iterator[tuple[object, ...]]:
        paths = files.databases(self._storage.path.parent)
        for number, name in enumerate(self._storage.database_names(), 1):
            if number > len(_SYSTEM):
                state = _settings(paths[name])
                if state["captured"]:
                    for job in jobs(state):
                        yield (number, *job)

    def _counts(self) -> Iterator[tuple[int, int, int]]:
        paths = {t.object_id: t.path for t in self._storage.catalog().tables.values() if t.object_id}
        rows = self._storage.sqlite.execute(
            'SELECT object_id, index_id FROM "sys.indexes" ORDER BY object_id, index_id'
        ).fetchall()
        counts: dict[int, int] = {}
        for number, index in rows:
            if number in paths:
                if number not in counts:
                    (counts[number],) = self._storage.sqlite.execute(
                        f"SELECT COUNT(*) FROM {quoted(paths[number])}"
                    ).fetchone()
                yield number, index, counts[number]

    def _rows_of_partitions(self) -> Iterator[tuple[object, ...]]:
        for number, index, count in self._counts():
            # All rows are in the first; a test sets how many partitions a table has.
            for partition in range(1, int(self._storage.state(f"partitions.{number}", "1")) + 1):
                yield (number * 256 + index, number, index, partition, count if partition == 1 else 0)

    _rows_of_dm_db_partition_stats = _rows_of_partitions

    def _rows_of_dm_db_log_space_usage(self) -> Iterator[tuple[object, ...]]:
        # The log is as full as transactions wait in it for the capture job: 60 kB each, as a block of it has.
        (waiting,) = self._storage.sqlite.execute('SELECT COUNT(*) FROM "emulator.transactions"').fetchone()
        used = (waiting + 1) * 61_440
        total = max(8 * 1024 * 1024, used * 2)
        yield (
            self._storage.database_names().index(self._storage.name) + 1,
            total,
            used,
            100.0 * used / total,
            used,
        )

    def _rows_of_dm_server_services(self) -> Iterator[tuple[object, ...]]:
        (agent,) = self._storage.sqlite.execute("SELECT value FROM \"emulator.state\" WHERE name = 'agent'").fetchone()
        yield ("SQL Server (MSSQLSERVER)", 2, "Automatic", 4, "Running", 1)
        running = int(agent) == 4
        yield (
            "SQL Server Agent (MSSQLSERVER)",
            2,
            "Automatic",
            int(agent),
            "Running" if running else "Stopped",
            2 if running else None,
        )


def _settings(path: Path) -> dict[str, object]:
    """The settings in a database's file, and whether it is enabled for capture."""
    other = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        state: dict[str, object] = dict(other.execute('SELECT name, value FROM "emulator.state"').fetchall())
        state["captured"] = (
            other.execute("SELECT 1 FROM \"sys.objects\" WHERE name = 'change_tables' COLLATE BINARY").fetchone()
            is not None
        )
    finally:
        other.close()
    return state


def jobs(state: Mapping[str, object]) -> list[tuple[object, ...]]:
    """The capture job and the clean-up job of a database, as msdb.dbo.cdc_jobs has them.

    Each is job_type, job_id, maxtrans, maxscans, continuous, pollinginterval in seconds, retention in minutes,
    threshold.

    Args:
        state: the settings in the database's file.
    """
    return [
        ("capture", "6D3C3B2E-0000-4000-8000-000000000001", 500, 10, 1, int(str(state.get("polling", "5"))), 0, 0),
        ("cleanup", "6D3C3B2E-0000-4000-8000-000000000002", 0, 0, 0, 0, int(str(state.get("retention", "4320"))), 5000),
    ]  # fmt: skip

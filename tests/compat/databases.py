"""The emulated databases of the kept offsets: opened from what was kept, or made by `make.py`."""

from __future__ import annotations

import itertools
import json
import lzma
from pathlib import Path
from typing import Any

from tests.support.captured_shop import Db2Database, OracleDatabase, SqlServerDatabase

from headrace.sources.databases import Databases, Offsets
from headrace.sources.reader import source_named
from headrace.testing.captured_database import CapturedDatabase
from headrace.testing.sources import Row

HERE = Path(__file__).parent
VERSIONS = sorted(folder.name for folder in HERE.iterdir() if (folder / "offsets").is_dir())
"""The releases of which something is kept; one of development is what main had."""
SOURCES = ("sqlserver", "db2", "oracle")
"""Those whose databases are emulated here."""
LOG_SOURCES = ("postgresql", "mysql")
"""Those whose databases are real servers (`log_databases`)."""


PHASES = {
    "snapshot",
    "stream",
    "a table added",
    "ad-hoc snapshot",
    "ad-hoc snapshot paused",
    "ad-hoc snapshot resumed",
    "blocking snapshot",
}

LARGER = {"incremental_snapshot_chunk_size": "100", "snapshot_chunk_rows": "100", "snapshot_chunks_per_batch": "10"}
"""What goes on goes on in fewer batches, because each waits for capture."""


class KeptSqlServer(SqlServerDatabase):
    """SQL Server as it was left."""

    def __init__(self, folder: Path) -> None:
        from headrace_emulators.sqlserver import EmulatedServer

        self.emulated = EmulatedServer(folder).database("shop")


class KeptDb2(Db2Database):
    """Db2 as it was left."""

    def __init__(self, folder: Path) -> None:
        from headrace_emulators.db2 import EmulatedDb2

        self.emulated = EmulatedDb2(folder).database("shop")


KEPT: dict[str, type[CapturedDatabase]] = {"sqlserver": KeptSqlServer, "db2": KeptDb2, "oracle": OracleDatabase}
"""An Oracle of the emulator is opened as it is made."""
MADE: dict[str, type[CapturedDatabase]] = {"sqlserver": SqlServerDatabase, "db2": Db2Database, "oracle": OracleDatabase}


def offsets_file(version: str, source: str) -> Path:
    """Offsets and what was delivered up to each."""
    return HERE / version / "offsets" / f"{source}.jsonl.xz"


def server_file(version: str, source: str) -> Path:
    """The database that the offsets are of."""
    return HERE / version / "offsets" / f"{source}.server.tar.xz"


class Stream:
    """A source as its stream drives it, over all databases that the options name; offsets go through their text."""

    def __init__(self, source: str, options: Row, offset: str | None = None) -> None:
        self.databases = Databases(source_named(source, dict(options)))
        self.offsets = Offsets() if offset is None else Offsets.from_json(json.loads(offset))

    def batch(self) -> list[Row]:
        """The rows of the next batch; none when there is nothing new."""
        from headrace.sources.base import Limit
        from headrace.testing.sources import NOW

        end = self.databases.advance(self.offsets, Limit(), NOW)
        if end == self.offsets:
            return []
        end = Offsets.from_json(json.loads(end.to_text()))
        rows = [
            row
            for database, piece in self.databases.plan(self.offsets, end)
            for batch in self.databases.read(database, piece)
            for row in batch.to_pylist()
        ]
        self.offsets = end
        return rows

    def rest(self) -> list[Row]:
        """The rows of all batches until there is nothing new."""
        rows: list[Row] = []
        while True:
            before = self.offsets
            rows += self.batch()
            if self.offsets == before:
                return rows


def held(rows: list[Row], before: dict[str, Any]) -> dict[str, Any]:
    """What the tables hold after these rows: the image of each key, by database and table.

    Args:
        rows: in any order.
        before: what they held.
    """
    tables = {name: dict(images) for name, images in before.items()}
    changes = [row for row in rows if row["op"] in "rcud" and row["key"]]
    for row in sorted(changes, key=lambda row: (row["table"]["database"] or "", row["position"])):
        images = tables.setdefault(f"{row['table']['database']}.{row['table']['name']}", {})
        old = dict(row["before"] or {})
        key = [old[name] for name, _ in row["key"] if name in old]
        if row["op"] in "ud" and len(key) == len(row["key"]):
            images.pop(json.dumps(key, separators=(",", ":")), None)
        images.pop(row["key_text"], None)
        if row["op"] != "d":
            images[row["key_text"]] = dict(row["after"])
    return tables


def kept_offsets(version: str, source: str) -> list[dict[str, Any]]:
    """The offsets of a source in the order of its run, with what was delivered up to each."""
    with lzma.open(offsets_file(version, source), "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def chosen(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each phase the first and the last."""
    found = []
    for _, group in itertools.groupby(entries, lambda entry: entry["phase"]):
        phase = list(group)
        found += [phase[place] for place in sorted({0, len(phase) - 1})]
    return found

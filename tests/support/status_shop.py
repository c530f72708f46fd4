"""A shop whose pipeline commands look at."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

from tests.observe.checkpoints import write_batch
from typer.testing import CliRunner

from headrace.cli.app import app
from headrace.sources.base import Limit
from headrace.sources.databases import Offsets
from headrace.sources.offset import Offset
from headrace.sources.reader import source_named
from headrace_emulators.sqlserver import EmulatedServer


class Shop:
    """A database with a table of five rows, and a pipeline file with a checkpoint that batches are written to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = EmulatedServer(folder / "server")
        self.database = self.server.create_database("shop")
        self.database.execute("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)")
        self.database.execute("EXEC sys.sp_cdc_enable_table @source_schema='dbo', @source_name='t', @role_name=NULL")
        for key in range(5):
            self.database.execute("INSERT INTO dbo.t VALUES (?)", (key,))
        self.database.capture()
        self.options: dict[str, Any] = {
            "driver": "emulator",
            "hostname": str(folder / "server"),
            "database": "shop",
            "snapshot_chunk_rows": "2",
            "snapshot_chunks_per_batch": "1",
        }
        self.sinks: list[dict[str, Any]] = [{"type": "memory"}]
        self.offset = Offset.nothing()
        self.batches = 0

    def batch(self) -> None:
        """One batch, committed."""
        self.offset = source_named("sqlserver", self.options).advance(self.offset, Limit(), dt.datetime.now(dt.UTC))
        write_batch(self.folder / "state", self.batches, Offsets({"shop": self.offset}).to_text())
        self.batches += 1

    def level(self) -> None:
        """Batches until the snapshot is through."""
        for _ in range(4):
            self.batch()
        assert self.offset.is_level

    def file(self, **source: str) -> str:
        """The pipeline's file."""
        text = {
            "source": {"type": "sqlserver", **self.options, **source},
            "sinks": self.sinks,
            "pipeline": {"name": "shop", "checkpoint": "state"},
        }
        file = self.folder / "pipeline.yaml"
        file.write_text(json.dumps(text))
        return str(file)

    def status(self, *arguments: str, **source: str) -> tuple[int, str]:
        """Exit code and what was printed."""
        done = CliRunner().invoke(app, ["status", self.file(**source), *arguments])
        return done.exit_code, done.output

    def json(self, *arguments: str, **source: str) -> tuple[int, Any]:
        """Exit code and the JSON that was printed."""
        code, text = self.status("--json", *arguments, **source)
        return code, json.loads(text)

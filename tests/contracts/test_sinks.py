"""The sinks that keep no tables keep the contract of any sink."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from headrace.sinks.base import Sink
from headrace.sinks.files import FilesSink
from headrace.sinks.memory import MemorySink
from headrace.testing import SinkContract


class TestFiles(SinkContract):
    def sink(self, folder: Path) -> Sink:
        return FilesSink.of({"path": str(folder / "files")})

    def content(self, folder: Path) -> list[str]:
        files = sorted((folder / "files").glob("batch=*/part-*.txt"))
        return [json.loads(line)["value"] for file in files for line in file.read_text().splitlines()]


class TestMemory(SinkContract):
    gaps: ClassVar[Mapping[str, str]] = {
        "test_a_checkpoint_does_not_write_into_the_target_of_another": "it lives in one process"
    }

    def sink(self, folder: Path) -> Sink:
        return MemorySink.of({"name": str(folder)})

    def content(self, folder: Path) -> list[str]:
        kept = MemorySink.batches(str(folder)).values()
        return [row["after"]["v"] for rows in kept for row in rows if row["op"] in ("c", "u")]

"""The toy's source, format and sink keep the contracts that Headrace ships."""

from __future__ import annotations

import itertools
import json
import sqlite3
from pathlib import Path

from toy_csv_line import CsvLine
from toy_journal import Journal
from toy_sqlite import SqliteMessages

from headrace.testing import FormatContract, SinkContract, SourceContract


class TestJournal(SourceContract):
    def source(self, folder: Path) -> Journal:
        (folder / "orders.jsonl").touch()
        return Journal.of({"path": str(folder / "orders.jsonl"), "columns": "id,v"})

    def commit(self, folder: Path, *values: str) -> None:
        journal = folder / "orders.jsonl"
        before = [json.loads(line) for line in journal.read_text().splitlines()]
        ids = itertools.count(sum(len(commit["changes"]) for commit in before))
        changes = [{"op": "c", "before": None, "after": {"id": str(next(ids)), "v": value}} for value in values]
        commit = {"commit": len(before) + 1, "time": "2026-05-01T12:00:00+00:00", "changes": changes}
        with journal.open("a") as file:
            file.write(json.dumps(commit) + "\n")

    def lose(self, folder: Path) -> None:
        journal = folder / "orders.jsonl"
        journal.write_text(journal.read_text().splitlines(keepends=True)[-1])


class TestCsvLine(FormatContract):
    def format(self) -> CsvLine:
        return CsvLine.of({})


class TestSqlite(SinkContract):
    def sink(self, folder: Path) -> SqliteMessages:
        return SqliteMessages.of({"path": str(folder / "messages.db")})

    def content(self, folder: Path) -> list[str]:
        if not (folder / "messages.db").exists():
            return []
        with sqlite3.connect(folder / "messages.db") as connection:
            return [value.decode() for (value,) in connection.execute("SELECT value FROM messages ORDER BY rowid")]

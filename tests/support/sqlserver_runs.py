"""Runs of SQL Server's source, and what its rows say."""

from __future__ import annotations

import datetime as dt
import json

from headrace.sources.base import Limit
from headrace.sources.offset import Offset
from headrace.sources.reader import source_named

NOW = dt.datetime(2026, 11, 21, 12, 0, tzinfo=dt.UTC)


ENABLE = "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{}', @role_name = NULL"


def create(database, name, columns, rows=()):
    quoted = "[" + name.replace("]", "]]") + "]"
    database.execute(f"CREATE TABLE dbo.{quoted} ({columns})")
    database.execute(ENABLE.format(name.replace("'", "''")))
    with database.transaction() as cursor:
        for row in rows:
            cursor.execute(f"INSERT INTO dbo.{quoted} VALUES ({', '.join('?' * len(row))})", row)
    database.capture()


class Run:
    """The source as Spark drives it: advance, plan, read, again."""

    def __init__(self, database, **options):
        self.options = {
            "driver": "emulator",
            **database.settings,
            "capture_timeout_seconds": "5",
            **{name: str(value) for name, value in options.items()},
        }
        self.source = source_named("sqlserver", self.options)
        self.offset = Offset.nothing()

    def with_options(self, **options):
        """The same place, read by a run with other options; the offset goes through its JSON, as in a checkpoint."""
        self.options |= options
        self.source = source_named("sqlserver", self.options)
        self.offset = Offset.from_json(json.loads(self.offset.to_text()))
        return self

    def batch(self):
        """The rows of the next batch; none when there is nothing new."""
        end = self.source.advance(self.offset, Limit(), NOW)
        rows = [] if end == self.offset else rows_of(self.source, self.offset, end)
        self.offset = end
        return rows

    def all(self):
        """The rows of all batches until there is nothing new."""
        rows = []
        while True:
            before = self.offset
            rows += self.batch()
            if self.offset == before:
                return rows


def rows_of(source, start, end):
    return [row for piece in source.plan(start, end) for batch in source.read(piece) for row in batch.to_pylist()]


def data(rows):
    return [
        (r["op"], r["table"]["name"], dict(r["after"] or r["before"])) for r in rows if r["op"] not in ("schema", "gap")
    ]


def replay(rows):
    """What tables hold after the rows, keyed by table and key."""
    held = {}
    for row in sorted((r for r in rows if r["op"] != "schema"), key=lambda r: r["position"]):
        key = (row["table"]["name"], row["key_text"])
        if row["op"] == "d":
            held.pop(key, None)
        else:
            held[key] = dict(row["after"])
    return held


def clean(database):
    """The clean-up job, up to now."""
    database.mark_idle()
    database.cleanup(low_lsn=database.max_lsn())

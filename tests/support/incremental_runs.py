"""Ad-hoc snapshots of SQL Server beside the stream, and gates in them."""

from __future__ import annotations

import datetime as dt
import itertools
import json

from headrace.sources.base import Limit
from headrace.sources.offset import Offset
from headrace.sources.reader import source_named

SIGNALS = itertools.count(1)


NOW = dt.datetime(2026, 11, 21, 12, 0, tzinfo=dt.UTC)


ENABLE = "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'{}', @role_name = NULL"


def ahead():
    """A clock of which commits are later than what a reader just saw, so that no test has to wait for one."""
    return dt.datetime.now(dt.UTC).replace(tzinfo=None) + dt.timedelta(seconds=1)


def signal_table(database):
    create(database, "signals", "a varchar(42) not null primary key, b varchar(32) not null, c varchar(2048)")


def create(database, name, columns, rows=()):
    database.execute(f"CREATE TABLE dbo.[{name}] ({columns})")
    database.execute(ENABLE.format(name))
    with database.transaction() as cursor:
        for row in rows:
            cursor.execute(f"INSERT INTO dbo.[{name}] VALUES ({', '.join('?' * len(row))})", row)
    database.capture()


def send(database, type, data=None, id=None):
    text = data if data is None or isinstance(data, str) else json.dumps(data)
    with database.transaction() as cursor:
        number = id or f"s{next(SIGNALS)}"
        cursor.execute("INSERT INTO dbo.signals VALUES (?, ?, ?)", (number, type, text))
    database.capture()


def execute(database, *tables, **more):
    send(database, "execute-snapshot", {"data-collections": list(tables), **more})


class Gates:
    """What happens at named points of a read: statements of other people, and the capture job."""

    def __init__(self, database):
        self.database = database
        self.at = {}
        self.captures = True

    def reach(self, name):
        for statement in self.at.pop(name, ()):
            self.database.execute(statement)
        if name == "source.incremental.wait" and self.captures:
            self.database.capture()
            self.database.mark_idle()


class Run:
    """The source as Spark drives it: advance, plan, read, again."""

    def __init__(self, database, **options):
        self.options = {
            "driver": "emulator",
            **database.settings,
            "signal_data_collection": "dbo.signals",
            "incremental_snapshot_chunk_size": "2",
            "snapshot_chunks_per_batch": "1",
            "capture_timeout_seconds": "2",
            **{name: None if value is None else str(value) for name, value in options.items()},
        }
        self.source = source_named("sqlserver", self.options)
        self.offset = Offset.nothing()

    def restarted(self, **options):
        self.options |= options
        self.source = source_named("sqlserver", self.options)
        self.offset = Offset.from_json(json.loads(self.offset.to_text()))
        return self

    def batch(self):
        """The rows of the next batch; null when there is none."""
        start, self.offset = self.offset, self.source.advance(self.offset, Limit(), NOW)
        return None if self.offset == start else rows_of(self.source, start, self.offset)

    def all(self):
        rows = []
        for _ in range(60):
            found = self.batch()
            if found is None:
                return rows
            rows += found
        raise AssertionError("the source never rests")


def rows_of(source, start, end):
    return [row for piece in source.plan(start, end) for batch in source.read(piece) for row in batch.to_pylist()]


def read_again(rows, *names):
    """The rows that were read beside the stream, as the values of some columns."""
    found = [dict(r["after"]) for r in rows if r["op"] == "r" and r["snapshot"] == "incremental"]
    return [tuple(row[name] for name in names) for row in found]


def mirror(rows, held=None):
    """What a table that takes these rows holds: a row is taken when it is newer than what is there."""
    held = {} if held is None else held
    for row in rows:
        if row["op"] not in ("r", "c", "u", "d"):
            continue
        key = (row["table"]["name"], row["key_text"])
        known = held.get(key)
        if known is None or known[0] <= row["position"]:
            held[key] = (row["position"], None if row["op"] == "d" else dict(row["after"]))
    return held


def contents(held, name):
    return sorted(tuple(image.values()) for (table, _), (_, image) in held.items() if table == name and image)


def in_source(database, name):
    rows = database.execute(f"SELECT * FROM dbo.[{name}]")
    return sorted(tuple(None if v is None else str(v) for v in row) for row in rows)

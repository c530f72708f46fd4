"""The Oracle source as Spark drives it, on an emulated database."""

from __future__ import annotations

import datetime as dt
import json

from headrace.sources.base import Limit
from headrace.sources.offset import Offset
from headrace.sources.reader import source_named

NOW = dt.datetime(2026, 11, 21, 12, 0, tzinfo=dt.UTC)


class Run:
    """Advance, plan, read, again; time moves on by ten seconds from batch to batch."""

    def __init__(self, database, **options):
        self.options = {
            **database.settings,
            "user": "C##MINER",
            "staging_location": str(database.directory / "staging"),
            "tables": "SHOP.*",
            **{name: None if value is None else str(value) for name, value in options.items()},
        }
        # An empty list is an error; without one, whatever logs all its columns is captured.
        for name in ("tables", "tables_excluded"):
            if not self.options.get(name):
                self.options.pop(name, None)
        self.source = source_named("oracle", self.options)
        self.offset = Offset.nothing()
        self.now = NOW

    def restarted(self, **options):
        """The same place, read by a new process; the offset goes through its JSON, as in a checkpoint."""
        self.options |= {name: str(value) for name, value in options.items()}
        self.source = source_named("oracle", self.options)
        self.offset = Offset.from_json(json.loads(self.offset.to_text()))
        return self

    def batch(self, *, acknowledge=True, upto=""):
        """The rows of the next batch; none when there is nothing new."""
        self.now += dt.timedelta(seconds=10)
        end = self.source.advance(self.offset, Limit(upto=upto), self.now)
        rows = [] if end == self.offset else self.rows_of(self.offset, end)
        if acknowledge:
            self.source.acknowledge(end)
        self.offset = end
        return rows

    def rows_of(self, start, end):
        """The rows of a batch, in position order."""
        rows = [r for piece in self.source.plan(start, end) for b in self.source.read(piece) for r in b.to_pylist()]
        return sorted(rows, key=lambda row: row["position"])

    def until_level(self):
        """The rows of all batches up to what the log offers now."""
        rows, head = [], self.source.head()
        while self.offset.is_nothing or self.offset.commit < head or not self.offset.is_level:
            rows += self.batch(upto=head)
        return rows


def image(pairs):
    """A map as a dictionary."""
    return None if pairs is None else dict(pairs)


def data(rows):
    """Operation, table and image of the rows that are data."""
    return [
        (row["op"], row["table"]["name"], image(row["after"] if row["after"] is not None else row["before"]))
        for row in rows
        if row["op"] not in ("schema", "begin", "end")
    ]


INSERT = "INSERT INTO CUSTOMERS (ID, NAME, CREDIT) VALUES (:id, :name, :credit)"


def add(connection, *ids, name="x"):
    """Insert customers."""
    for id in ids:
        connection.execute(INSERT, id=id, name=name, credit="0.50")


def row(id, name="x", credit="0.50"):
    """A customer as an image."""
    return {"ID": str(id), "NAME": name, "CREDIT": credit}

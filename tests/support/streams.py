"""What readers give, batch after batch, as Spark asks for it; without Spark."""

from __future__ import annotations

import json

import pyarrow as pa

from headrace.changes import TableSchema, arrow_schema
from headrace.formats.convert import format_named
from headrace.sources.messages import Messages
from headrace.sources.reader import ChangeStreamReader


class Stream:
    """The batches of a reader as Spark asks for them; each is read twice, by other tasks."""

    def __init__(self, database, **options):
        self._name = database.source
        self._options = {**database.options, **database.small_slices, "serialNumbers": "true", **options}
        self._end = self._reader(1).initialOffset()
        self.tasks = []

    def _reader(self, parallelism):
        options = {**self._options, "parallelism": parallelism}
        return ChangeStreamReader(self._name, {name: str(value) for name, value in options.items()})

    def go_on(self):
        """Take what is new, in one batch after the other, in a process of its own."""
        reader = self._reader(1)
        reader.partitions(self._end, self._end)
        while (end := json.loads(json.dumps(reader.latestOffset()))) != self._end:
            first = self._read(reader, end)
            again = self._read(self._reader(4), end)
            assert whole(first) == whole(again)
            self.tasks += first
            self._end = end

    def _read(self, reader, end):
        found = [list(reader.read(partition)) for partition in reader.partitions(self._end, end)]
        return [task for task in found if task]

    def messages(self, name):
        """What an encoder makes of all that was read."""
        told = {
            row["schema_id"]: TableSchema.from_text(row["table_schema"])
            for task in self.tasks
            for batch in task
            for row in batch.to_pylist()
            if row["table_schema"]
        }
        messages = Messages(format_named(name, {"topic": "${table}"}))
        return [
            row for task in self.tasks for batch in messages.of(task, [*told.values()]) for row in batch.to_pylist()
        ]


def whole(tasks):
    return pa.Table.from_batches([batch for task in tasks for batch in task], arrow_schema())

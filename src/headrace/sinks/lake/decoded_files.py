"""Data files that are written by the tasks that decode messages, so that the rows never enter the JVM.

A table qualifies by its last batch: many whole rows, applied by the index of its keys. Before the next batch is
committed, the target is inspected like for any batch. If it no longer is what the tasks assumed, their files are
deleted and the batch is read again.
"""

from __future__ import annotations

import base64
import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from headrace.apply import TableProfile
from headrace.apply.plain_changes import PLAIN, plain_changes
from headrace.apply.sequence import SUFFIX
from headrace.changes.row import Operation, arrow_schema
from headrace.changes.table import TableId
from headrace.changes.table_files import DecodedRowWriter, FoldedPart
from headrace.errors import SinkError
from headrace.sinks.lake import folded_files
from headrace.sinks.lake.folded_files import TableToWrite, TaskResult

LEAST = 5_000
"""Fewer rows of a table in a task are not worth a file; Spark gets them."""
_ROWS = 250_000
_BYTES = 64 << 20
"""How many rows of a table, and bytes of all tables, a task buffers before it writes a file."""
_MOST_DOUBLINGS = 10


@dataclass(frozen=True)
class DecoderTable:
    """A table whose rows a decoding task may write.

    Args:
        table: the target as of the last batch.
        columns: how many columns a row of the table has.
    """

    table: TableToWrite
    columns: int


class DecoderTables:
    """Remembers which tables of a sink the decoding tasks of the next batch may write. Lives in the driver."""

    def __init__(self) -> None:
        self._tables: dict[TableId, tuple[str, DecoderTable]] = {}
        self._failures: Counter[TableId] = Counter()
        self._batches_left_out: dict[TableId, int] = {}

    def remember(self, table: TableToWrite | None, id: TableId) -> None:
        """Record how the rows of a table were written in a batch; None where decoding tasks can't write them."""
        left_out = self._batches_left_out.get(id, 0)
        self._batches_left_out[id] = max(0, left_out - 1)
        if table is None or left_out or len(table.profile.columns) != 1:
            self._tables.pop(id, None)
            return
        ((schema_id, columns),) = table.profile.columns.items()
        if schema_id is not None:
            without_rows = replace(table, profile=replace(table.profile, counts={}, folded=()))
            self._tables[id] = schema_id, DecoderTable(without_rows, columns)

    def leave_out(self, id: TableId) -> None:
        """Exclude a table whose files could not be used, for twice as many batches each time in a row."""
        self._tables.pop(id, None)
        self._failures[id] += 1
        self._batches_left_out[id] = 2 ** min(self._failures[id], _MOST_DOUBLINGS)

    def reset_failures(self, id: TableId) -> None:
        """Forget the failures of a table whose files were used."""
        self._failures.pop(id, None)

    def matches(self, table: TableToWrite) -> bool:
        """Whether the decoding tasks assumed of a table what is true of it now."""
        remembered = self._tables.get(table.profile.id)
        if remembered is None:
            return False
        before, now = remembered[1].table, table.profile
        has_same_types = (before.profile.schema, before.profile.lacks) == (now.schema, now.lacks)
        return has_same_types and replace(before, profile=now) == table

    def delete_files(self, table: TableProfile) -> None:
        """Delete the files that decoding tasks wrote, before any commit was tried with them."""
        remembered = self._tables.get(table.id)
        if remembered is not None:
            folded_files.delete_files(task_results(table), remembered[1].table)

    def writer_factory(self, topic_ids: Mapping[str, str]) -> Callable[[], DecodedRowWriter] | None:
        """What makes the writer of each decoding task; None where no table qualifies.

        Args:
            topic_ids: the id of each topic, where the broker reports it.
        """
        tables, least = dict(self._tables.values()), LEAST
        return (lambda: LakeRowWriter(tables, topic_ids, least)) if tables else None


class LakeRowWriter(DecodedRowWriter):
    """Buffers rows of the tables that it knows until they are worth a file. Lives in one attempt of a task.

    Args:
        tables: by `schema_id`.
        topic_ids: the id of each topic, where the broker reports it.
        least: how many rows of a table are worth a file.
    """

    def __init__(self, tables: Mapping[str, DecoderTable], topic_ids: Mapping[str, str], least: int = LEAST) -> None:
        self._tables = tables
        self._least = least
        self._topic_ids = topic_ids
        self._buffers: dict[str, list[pa.RecordBatch]] = {}
        self._rows: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    def write(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Buffer the data rows of known tables; write a file where a buffer is full."""
        schema_ids = rows.column("schema_id").dictionary_encode()
        known = [code for code, name in enumerate(schema_ids.dictionary.to_pylist()) if name in self._tables]
        if not known:
            yield rows
            return
        codes = schema_ids.indices
        is_buffered = pc.and_(pc.is_in(rows.column("op"), PLAIN), pc.is_in(codes, pa.array(known, codes.type)))
        for code in known:
            is_own = pc.fill_null(pc.and_(is_buffered, pc.equal(codes, code)), False)
            if is_own.true_count:
                own_rows = rows.filter(is_own) if is_own.false_count else rows
                self._buffer(schema_ids.dictionary[code].as_py(), own_rows)
        if is_buffered.false_count:
            yield rows.filter(pc.invert(is_buffered))
        for schema_id in [name for name, count in self._rows.items() if count >= _ROWS]:
            yield from self._flush(schema_id)
        if self._bytes.total() >= _BYTES:
            yield from self._flush(max(self._bytes, key=lambda name: self._bytes[name]))

    def _buffer(self, schema_id: str, rows: pa.RecordBatch) -> None:
        self._buffers.setdefault(schema_id, []).append(rows)
        self._rows[schema_id] += rows.num_rows
        self._bytes[schema_id] += rows.nbytes

    def close(self) -> Iterator[pa.RecordBatch]:
        for schema_id in [*self._buffers]:
            yield from self._flush(schema_id)

    def _flush(self, schema_id: str) -> Iterator[pa.RecordBatch]:
        """The report of a file; the rows themselves, where they are few or not plain."""
        buffered = self._buffers.pop(schema_id)
        del self._bytes[schema_id]
        report = self._write_file(schema_id, buffered) if self._rows.pop(schema_id) >= self._least else None
        if report is None:
            yield from buffered
        else:
            yield report

    def _write_file(self, schema_id: str, buffered: Sequence[pa.RecordBatch]) -> pa.RecordBatch | None:
        table, rows = self._tables[schema_id], pa.Table.from_batches(buffered)
        changes = plain_changes(rows, table.columns, self._topic_ids)
        result = None if changes is None else folded_files.fold_and_write(changes, table.table)
        if isinstance(result, SinkError):
            raise result
        if changes is None or not isinstance(result, list):
            # Spark can read the text of the value, or reports what is wrong with it.
            return None
        return _report(rows, changes, result)


def _report(rows: pa.Table, changes: pa.Table, result: TaskResult) -> pa.RecordBatch:
    """The `schema` row that carries the result of a task to the driver."""
    counts = {line["values"]: line["counts"] for line in pc.value_counts(rows.column("op")).to_pylist()}
    ends = pc.min_max(rows.column("event_time")).as_py()
    times = None if ends["min"] is None else (ends["min"].timestamp(), ends["max"].timestamp())
    positions = changes.column("position")
    sequences = sorted(pc.unique(pc.utf8_slice_codeunits(positions, -SUFFIX)).to_pylist())
    part = FoldedPart(counts, times, tuple(sequences), base64.b64encode(pickle.dumps(result)).decode())
    first = rows.slice(0, 1).combine_chunks()
    filled = {
        "op": pa.array([Operation.SCHEMA.value]),
        "position": pa.array([pc.max(positions).as_py()]),
        "source": pa.array([[*part.to_source().items()]], pa.map_(pa.string(), pa.string())),
        **{name: first.column(name).chunk(0) for name in ("table", "schema_id", "capture_time", "message")},
    }
    schema = arrow_schema()
    columns = [filled.get(field.name, pa.nulls(1, field.type)) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def task_results(table: TableProfile) -> list[TaskResult]:
    return [pickle.loads(base64.b64decode(part.results)) for part in table.folded]

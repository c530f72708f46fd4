"""Arrow batches of change rows: the form in which sources hand rows to Spark, with the rows that are no data."""

from __future__ import annotations

import datetime as dt
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Operation, Position, TableId, TableSchema, arrow_schema
from headrace.changes.texts import key_text
from headrace.wire.arrays import map_array, offsets_of

BATCH_BYTES = 16 * 1024 * 1024
"""Bytes per Arrow batch. What is made of one takes several times as much."""
FETCH_BYTES = 64 * 1024 * 1024
"""Bytes per fetch, by the declared lengths of columns, which values rarely fill."""
LARGE_ROWS = 16
"""Rows per fetch where a column has no length that bounds it."""
_IN_MEMORY = 32 * 1024 * 1024


@cache
def _schema() -> pa.Schema:
    return arrow_schema()


def change_batch(length: int, columns: dict[str, pa.Array]) -> pa.RecordBatch:
    """A batch of change rows; columns that are not given are null."""
    schema = _schema()
    arrays = [columns[f.name] if f.name in columns else pa.nulls(length, f.type) for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def repeat(value: object, kind: pa.DataType, length: int) -> pa.Array:
    """The same value in every row."""
    return pa.repeat(pa.scalar(value, kind), length)


def table_column(id: TableId, length: int) -> pa.Array:
    """The column `table` of rows that all belong to one table."""
    fields = [repeat(part, pa.string(), length) for part in (id.database, id.schema, id.name)]
    return pa.StructArray.from_arrays(fields, names=["database", "schema", "name"])


def instants(time: dt.datetime | None, length: int) -> pa.Array:
    """The same instant in every row."""
    return repeat(time, pa.timestamp("us", tz="UTC"), length)


def schema_batch(
    schema: TableSchema,
    position: Position,
    capture_time: dt.datetime | None,
    connector: str,
    *,
    snapshot: str | None = None,
    facts: Mapping[str, str] | None = None,
) -> pa.RecordBatch:
    """One `schema` row: how the rows of a table that follow it are to be read.

    Args:
        schema: what it says.
        position: where the row stands.
        capture_time: when the batch was planned.
        connector: the connector's name in events.
        snapshot: the mark that ends the table's snapshot, where no row is left to carry it.
        facts: what else stands in `source`.
    """
    source = [("connector", connector), *(facts or {}).items()]
    return change_batch(
        1,
        {
            "op": pa.array([Operation.SCHEMA.value]),
            "table": table_column(schema.id, 1),
            "position": pa.array([position.text]),
            "capture_time": instants(capture_time, 1),
            "source": pa.array([source], _schema().field("source").type),
            "snapshot": pa.array([snapshot], pa.string()),
            "schema_id": pa.array([schema.fingerprint]),
            "table_schema": pa.array([schema.to_text()]),
        },
    )


def with_fact(rows: pa.RecordBatch, name: str, texts: pa.Array) -> pa.RecordBatch:
    """Change rows with one fact more in `source`, which is the last; rows whose text is null stay as they are."""
    index = rows.schema.get_field_index("source")
    source, given = rows.column(index), texts.is_valid().to_numpy(zero_copy_only=False)
    ends = source.offsets.to_numpy()
    begin, count = int(ends[0]), int(ends[-1] - ends[0])
    offsets = offsets_of(np.diff(ends) + given)
    is_new = np.zeros(offsets[-1], bool)
    is_new[offsets[1:][given] - 1] = True
    names = np.cumsum(~is_new) - 1
    values = names.copy()
    names[is_new] = count
    values[is_new] = count + np.flatnonzero(given)
    keys = pa.concat_arrays([source.keys.slice(begin, count), pa.array([name])]).take(pa.array(names))
    items = pa.concat_arrays([source.items.slice(begin, count), texts]).take(pa.array(values))
    present = given | source.is_valid().to_numpy(zero_copy_only=False)
    facts = map_array(offsets, keys, items, present).cast(source.type)
    return rows.set_column(index, rows.schema.field(index), facts)


def with_transactions_of(database: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Change rows whose transactions' ids begin with the name of their database."""
    index = rows.schema.get_field_index("transaction")
    given = rows.column(index)
    id, *orders = given.flatten()
    fields = [pc.binary_join_element_wise(database, id, ":"), *orders]
    structs = pa.StructArray.from_arrays(fields, fields=list(given.type), mask=given.is_null())
    return rows.set_column(index, rows.schema.field(index), structs)


@dataclass
class Tally:
    """What was counted of a transaction so far.

    Args:
        events: all of them.
        by_table: those of each table, by its number, in the order in which the tables came.
    """

    events: int = 0
    by_table: dict[int, int] = field(default_factory=dict)

    def collections(self, names: Sequence[str]) -> str:
        """The counts of all tables, as the fact `data_collections` of an END.

        Args:
            names: `database.schema.table` by the table's number.
        """
        parts = [
            {"data_collection": names[table], "event_count": count} for table, count in self.by_table.items() if count
        ]
        return json.dumps(parts, separators=(",", ":"), ensure_ascii=False)


def number_events(
    groups: np.ndarray, tables: np.ndarray, weights: np.ndarray, tallies: Sequence[Tally]
) -> tuple[np.ndarray, np.ndarray]:
    """The number of each event in its transaction, and in it among those of its table; counts them, too.

    Args:
        groups: the number of each event's transaction; they ascend.
        tables: the number of its table.
        weights: for how many events it counts; what follows it has a number that is higher by that.
        tallies: what was counted before of each transaction; it is counted on.
    """
    total = _running(groups, weights, np.array([tally.events for tally in tallies], np.int64))
    width = int(tables.max(initial=0)) + 1
    pairs, firsts, groups_of = np.unique(groups * width + tables, return_index=True, return_inverse=True)
    of_group, of_table = (part.tolist() for part in np.divmod(pairs, width))
    before = [tallies[group].by_table.get(table, 0) for group, table in zip(of_group, of_table, strict=True)]
    in_table = _running(groups_of, weights, np.array(before, np.int64))
    counts = np.bincount(groups_of, weights).astype(np.int64).tolist()
    # In order of first appearance, as the list of collections has it.
    for pair in np.argsort(firsts).tolist():
        tally, table = tallies[of_group[pair]], of_table[pair]
        tally.by_table[table] = tally.by_table.get(table, 0) + counts[pair]
        tally.events += counts[pair]
    return total, in_table


def _running(groups: np.ndarray, weights: np.ndarray, before: np.ndarray) -> np.ndarray:
    """The number of each event in its group: that of its first message, after what was counted before."""
    order = np.argsort(groups, kind="stable")
    sorted_groups, sorted_weights = groups[order], weights[order]
    sums = np.cumsum(sorted_weights) - sorted_weights
    starts = np.searchsorted(sorted_groups, np.arange(len(before)))
    numbers: np.ndarray = np.empty(len(groups), dtype=np.int64)
    numbers[order] = sums - sums[np.minimum(starts, len(groups) - 1)][sorted_groups] + before[sorted_groups] + 1
    return numbers


def rows_per_fetch(width: int, *, large: bool, most: int) -> int:
    """How many rows a driver fetches at once.

    Args:
        width: bytes of a row at the most.
        large: whether a column may hold any number of bytes.
        most: the most rows.
    """
    return min(LARGE_ROWS, most) if large else max(1, min(most, FETCH_BYTES // max(width, 1)))


def sized(batches: Iterable[pa.RecordBatch], rows: int, *, fetched: int) -> Iterator[pa.RecordBatch]:
    """The same rows, in batches of at most so many rows and about `BATCH_BYTES`; a row is never divided.

    Args:
        batches: of any size. Only what is needed is taken at a time.
        rows: the most rows of a batch.
        fetched: rows per fetch. Where they are few, fetches are put together.
    """
    if fetched > LARGE_ROWS:
        for batch in batches:
            yield from _parts(batch, rows)
        return
    held: list[pa.RecordBatch] = []
    size = count = 0
    for batch in batches:
        for part in _parts(batch, rows):
            full = size + part.nbytes > BATCH_BYTES or count + part.num_rows > rows
            if held and (full or held[0].schema != part.schema):
                yield _joined(held)
                held, size, count = [], 0, 0
            held.append(part)
            size, count = size + part.nbytes, count + part.num_rows
    if held:
        yield _joined(held)


def _parts(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    count = batch.num_rows
    if count > 1 and (count > rows or batch.nbytes > BATCH_BYTES):
        yield from _parts(batch.slice(0, count // 2), rows)
        yield from _parts(batch.slice(count // 2), rows)
    elif count:
        yield batch


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


class Spool:
    """Columns of text that wait until they may be given: in memory first, then in a temporary file of the worker."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115
        self._writer: pa.RecordBatchStreamWriter | None = None

    def add(self, texts: Sequence[pa.Array]) -> None:
        """Keep a batch."""
        batch = pa.record_batch([text.cast(pa.string()) for text in texts], names=[str(n) for n in range(len(texts))])
        if self._writer is None:
            self._writer = pa.ipc.new_stream(pa.PythonFile(self._file, "w"), batch.schema)
        self._writer.write_batch(batch)

    def __iter__(self) -> Iterator[list[pa.Array]]:
        """The batches in their order; may be asked once, when all are kept."""
        if self._writer is not None:
            self._writer.close()
            self._file.seek(0)
            with pa.ipc.open_stream(pa.PythonFile(self._file, "r")) as reader:
                for batch in reader:
                    yield batch.columns
        self._file.close()


Image = Mapping[str, str | None]
"""A row as canonical texts by column. A column that is not in it is absent, which is not NULL."""


@dataclass(frozen=True)
class ChangeRow:
    """One change, for sources that read row by row.

    Args:
        op: what it did.
        schema: that of its table.
        position: where it stands.
        before, after: the row; None where the log has no such image.
        event_time: when it was committed.
        source: the source's facts, the connector's name among them.
    """

    op: Operation
    schema: TableSchema
    position: Position
    before: Image | None
    after: Image | None
    event_time: dt.datetime | None
    source: Mapping[str, str]


def change_rows(rows: Sequence[ChangeRow], capture_time: dt.datetime | None) -> pa.RecordBatch:
    """Changes as Arrow, all captured at one time; each key is that of the newer image.

    Per-row Python: a source of many rows makes columns.
    """
    schema, lines = _schema(), []
    for row in rows:
        image = row.before if row.after is None else row.after
        key = None if image is None else [(name, image[name]) for name in row.schema.key]
        lines.append(
            {
                "op": row.op.value,
                "table": asdict(row.schema.id),
                "key": key or None,
                "key_text": key_text([text for _, text in key]) if key else None,
                "before": None if row.before is None else list(row.before.items()),
                "after": None if row.after is None else list(row.after.items()),
                "position": row.position.text,
                "event_time": row.event_time,
                "capture_time": capture_time,
                "source": list(row.source.items()),
                "schema_id": row.schema.fingerprint,
            }
        )
    return pa.RecordBatch.from_pylist(lines, schema=schema)


@dataclass(frozen=True)
class Marker:
    """A row that is not data: a schema, a gap or a heartbeat.

    Args:
        op: which of them.
        position: where it stands.
        source: the source's facts, the connector's name among them.
        table: the table that it is about; None where it is about none.
        schema: the table's schema, where it announces one.
        snapshot: as in the change row.
        event_time: when it happened.
        capture_time: None for that of the batch.
        error: which changes are lost.
    """

    op: Operation
    position: Position
    source: Mapping[str, str]
    table: TableId | None = None
    schema: TableSchema | None = None
    snapshot: str | None = None
    event_time: dt.datetime | None = None
    capture_time: dt.datetime | None = None
    error: str | None = None


def marker_batch(markers: Sequence[Marker], capture_time: dt.datetime | None) -> pa.RecordBatch:
    """The rows of markers, all captured at one time; see `Marker` for what each has."""
    schema = arrow_schema()
    rows = []
    for marker in markers:
        table, new = marker.table, marker.schema
        rows.append(
            {
                **dict.fromkeys(schema.names),
                "op": marker.op.value,
                "table": None if table is None else asdict(table),
                "position": marker.position.text,
                "source": list(marker.source.items()),
                "schema_id": None if new is None else new.fingerprint,
                "table_schema": None if new is None else new.to_text(),
                "snapshot": marker.snapshot,
                "event_time": marker.event_time,
                "capture_time": marker.capture_time or capture_time,
                "error": marker.error,
            }
        )
    return pa.RecordBatch.from_pylist(rows, schema=schema)

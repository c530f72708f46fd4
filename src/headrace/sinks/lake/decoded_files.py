"""Rows of messages that the tasks write into data files which decode them, so that no row passes through the JVM.

A batch of many whole rows of a table, which goes by the index of its keys, lets the tasks that decode the next batch
write at once. What is true of the table then is found out as for any batch before its commit; if it is not what the
tasks went by, the files are deleted and the batch is read once more.
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
from headrace.changes.operation import Operation
from headrace.changes.row import arrow_schema
from headrace.changes.table import TableId
from headrace.changes.table_files import FoldedPart, RowTaker
from headrace.errors import SinkError
from headrace.sinks.lake.folded_files import TableToWrite, TaskResult, delete_files, fold_and_write

LEAST = 5_000
"""How many rows of a table are worth a file of their own; Spark gets fewer."""
_ROWS = 250_000
_BYTES = 64 << 20
"""How many rows of a table, and bytes of those of all tables, a task holds before it writes some."""
_MOST_RESTS = 10


@dataclass(frozen=True)
class TableToDecode:
    """A table whose rows a task may write.

    Args:
        table: it, as its last batch had it.
        columns: how many columns the structure of its rows has.
    """

    table: TableToWrite
    columns: int


class TablesToDecode:
    """The tables of a sink whose next messages may be written where they are decoded. Used in the driver."""

    def __init__(self) -> None:
        self._tables: dict[TableId, tuple[str, TableToDecode]] = {}
        self._failures: Counter[TableId] = Counter()
        self._rests: dict[TableId, int] = {}

    def keep(self, table: TableToWrite | None, id: TableId) -> None:
        """Say how rows of a table are written after a batch; None where these tasks can't write them.

        Args:
            table: as the batch had it.
            id: the table's.
        """
        rests = self._rests.get(id, 0)
        self._rests[id] = max(0, rests - 1)
        if table is None or rests or len(table.profile.columns) != 1:
            self._tables.pop(id, None)
            return
        ((structure, columns),) = table.profile.columns.items()
        if structure is not None:
            given = replace(table, profile=replace(table.profile, counts={}, folded=()))
            self._tables[id] = structure, TableToDecode(given, columns)

    def leave_out(self, id: TableId) -> None:
        """Files of a table could not be used: more and more batches of it go without."""
        self._tables.pop(id, None)
        self._failures[id] += 1
        self._rests[id] = 2 ** min(self._failures[id], _MOST_RESTS)

    def forgive(self, id: TableId) -> None:
        """Files of a table were used."""
        self._failures.pop(id, None)

    def is_as_given(self, table: TableToWrite) -> bool:
        """Whether tasks wrote rows of a table as they are to be written now."""
        given = self._tables.get(table.profile.id)
        if given is None:
            return False
        known, now = given[1].table, table.profile
        same = (known.profile.schema, known.profile.lacks) == (now.schema, now.lacks)
        return same and replace(known, profile=now) == table

    def discard(self, table: TableProfile) -> None:
        """Delete what tasks wrote of a table, where no commit was tried with it."""
        given = self._tables.get(table.id)
        if given is not None:
            delete_files(results_of(table), given[1].table)

    def taker(self, topic_ids: Mapping[str, str]) -> Callable[[], RowTaker] | None:
        """Makes what takes rows in a task; None where no table is known.

        Args:
            topic_ids: the id of each topic, where the broker tells it.
        """
        tables, least = dict(self._tables.values()), LEAST
        return (lambda: FilingTaker(tables, topic_ids, least)) if tables else None


class FilingTaker(RowTaker):
    """Holds rows of the tables that it knows until they are worth a file.

    Args:
        tables: by `schema_id`.
        topic_ids: the id of each topic, where the broker tells it.
        least: how many rows of a table are worth a file.
    """

    def __init__(self, tables: Mapping[str, TableToDecode], topic_ids: Mapping[str, str], least: int = LEAST) -> None:
        self._tables = tables
        self._least = least
        self._topic_ids = topic_ids
        self._held: dict[str, list[pa.RecordBatch]] = {}
        self._rows: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    def take(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Hold rows, and write those of a table where there are many."""
        structures = rows.column("schema_id").dictionary_encode()
        known = [code for code, name in enumerate(structures.dictionary.to_pylist()) if name in self._tables]
        if not known:
            yield rows
            return
        takes = pc.and_(
            pc.is_in(rows.column("op"), PLAIN), pc.is_in(structures.indices, pa.array(known, structures.indices.type))
        )
        for code in known:
            own = pc.fill_null(pc.and_(takes, pc.equal(structures.indices, code)), False)
            if own.true_count:
                self._hold(structures.dictionary[code].as_py(), rows.filter(own) if own.false_count else rows)
        if takes.false_count:
            yield rows.filter(pc.invert(takes))
        for structure in [name for name, count in self._rows.items() if count >= _ROWS]:
            yield from self._given(structure)
        if self._bytes.total() >= _BYTES:
            yield from self._given(max(self._bytes, key=lambda name: self._bytes[name]))

    def _hold(self, structure: str, rows: pa.RecordBatch) -> None:
        self._held.setdefault(structure, []).append(rows)
        self._rows[structure] += rows.num_rows
        self._bytes[structure] += rows.nbytes

    def close(self) -> Iterator[pa.RecordBatch]:
        """Write, or give, what is held."""
        for structure in [*self._held]:
            yield from self._given(structure)

    def _given(self, structure: str) -> Iterator[pa.RecordBatch]:
        """What was folded of a table's rows; the rows themselves, where they are few or say more than that."""
        held = self._held.pop(structure)
        del self._bytes[structure]
        found = self._folded(structure, held) if self._rows.pop(structure) >= self._least else None
        if found is None:
            yield from held
        else:
            yield found

    def _folded(self, structure: str, held: Sequence[pa.RecordBatch]) -> pa.RecordBatch | None:
        known, rows = self._tables[structure], pa.Table.from_batches(held)
        changes = plain_changes(rows, known.columns, self._topic_ids)
        result = None if changes is None else fold_and_write(changes, known.table)
        if changes is None or not isinstance(result, list):
            if isinstance(result, SinkError):
                raise result
            # Spark reads such texts, or says what is wrong with them.
            return None
        return _report(rows, changes, result)


def _report(rows: pa.Table, changes: pa.Table, result: TaskResult) -> pa.RecordBatch:
    """The `schema` row that says what was folded."""
    counts = {line["values"]: line["counts"] for line in pc.value_counts(rows.column("op")).to_pylist()}
    ends = pc.min_max(rows.column("event_time")).as_py()
    times = None if ends["min"] is None else (ends["min"].timestamp(), ends["max"].timestamp())
    positions = changes.column("position")
    sequences = sorted(pc.unique(pc.utf8_slice_codeunits(positions, -SUFFIX)).to_pylist())
    folded = FoldedPart(counts, times, tuple(sequences), base64.b64encode(pickle.dumps(result)).decode())
    first = rows.slice(0, 1).combine_chunks()
    own = {
        "op": pa.array([Operation.SCHEMA.value]),
        "position": pa.array([pc.max(positions).as_py()]),
        "source": pa.array([[*folded.to_source().items()]], pa.map_(pa.string(), pa.string())),
        **{name: first.column(name).chunk(0) for name in ("table", "schema_id", "capture_time", "message")},
    }
    schema = arrow_schema()
    columns = [own[field.name] if field.name in own else pa.nulls(1, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def results_of(table: TableProfile) -> list[TaskResult]:
    """What the tasks reported of a table that decoded a batch."""
    return [pickle.loads(base64.b64decode(one.results)) for one in table.folded]

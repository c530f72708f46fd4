"""Events of transactions become change rows, some thousand at a time.

The events are those of committed transactions, read from staging.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headrace import faultpoints
from headrace.changes import Operation, Position
from headrace.sources.offset import Key
from headrace.sources.oracle import scn
from headrace.sources.oracle.assembly import Assembly, Event, own_rows
from headrace.sources.oracle.captured_table import OracleTable, owners_and_names
from headrace.sources.oracle.connection import Connection
from headrace.sources.oracle.key_shifts import in_free_order
from headrace.sources.oracle.ledger import Transaction
from headrace.sources.oracle.mining import mine
from headrace.sources.oracle.options import OracleSettings
from headrace.sources.oracle.row_images import ImageReader, RowImage, RowImages, UnreadableValue
from headrace.sources.oracle.scn import ScnRange
from headrace.sources.oracle.staging import Staging
from headrace.sources.rows import BATCH_BYTES, change_batch, instants
from headrace.sources.stream_options import events_of_key_change
from headrace.sources.table_errors import FAIL, WARN
from headrace.sources.tables.masks import Masks

_LOG = logging.getLogger("headrace.sources")
CONNECTOR = "oracle"
BATCH = 5_000
_MAP = pa.map_(pa.string(), pa.string())
_TEXTS = pa.list_(pa.string())
_TABLE = pa.struct([("database", pa.string()), ("schema", pa.string()), ("name", pa.string())])
_TRANSACTION = pa.struct([("id", pa.string()), ("total_order", pa.int64()), ("data_collection_order", pa.int64())])
_INSTANT = pa.timestamp("us", tz="UTC")


@dataclass(slots=True)
class _ChangeRow:
    """A change, or the begin or end of a transaction.

    Args:
        op, position, event_time, source: as in change rows.
        table: the captured table; None for a begin or end.
        images: of the changed row.
        transaction: the position in the transaction; None without `provide_transaction_metadata`.
        error: why the change can't be read.
    """

    op: Operation
    position: str
    event_time: dt.datetime | None
    source: RowImage
    table: ImageReader | None = None
    images: RowImages = field(default_factory=RowImages)
    transaction: _Place | None = None
    error: str | None = None

    @property
    def schema_id(self) -> str | None:
        """Which schema its images follow; None without any."""
        return None if self.table is None or self.error is not None else self.table.fingerprint


class _Place(NamedTuple):
    """The position of a change in its transaction; of a begin or end how many changes that has."""

    id: str
    total_order: int | None
    data_collection_order: int | None


def instant(text: str | None, zone: str) -> dt.datetime | None:
    """A time of the server's clock as an instant."""
    return None if text is None else dt.datetime.fromisoformat(f"{text}{zone}")


def commit_text(transaction: Transaction) -> str:
    return scn.to_text(transaction.commit or 0)


def order_text(transaction: Transaction) -> str:
    """The position of a transaction among those of the same SCN: its commit's redo thread and record."""
    return f"{transaction.thread:04x}:{scn.rs_order(transaction.rs_id)}:{transaction.ssn:08x}"


class ChangeRows:
    """Makes change rows of events.

    Args:
        tables: the captured tables by path.
        settings: the source's options.
        capture_time: when the batch was planned.
    """

    def __init__(
        self, tables: Mapping[str, OracleTable], settings: OracleSettings, capture_time: dt.datetime | None
    ) -> None:
        masks = Masks.of(settings)
        self._tables = {path: ImageReader(table, masks) for path, table in tables.items()}
        self._settings = settings
        self._capture_time = capture_time
        self._numbered = settings.provide_transaction_metadata
        self._skipped = frozenset(settings.skipped_operations)
        self._key_change_events = events_of_key_change(self._skipped)
        self._skips_unchanged = settings.skip_messages_without_change

    def rows(self, transactions: Iterable[tuple[Transaction, Iterator[Event]]]) -> Iterator[pa.RecordBatch]:
        """The change rows of some transactions, in the order given."""
        change_rows: list[_ChangeRow] = []
        size = 0
        for transaction, events in transactions:
            for row in self._of(transaction, events):
                change_rows.append(row)
                size += row.images.size
                if len(change_rows) >= BATCH or size >= BATCH_BYTES:
                    yield self._batch(change_rows)
                    change_rows, size = [], 0
                    faultpoints.reach("source.stream.batch")
        if change_rows:
            yield self._batch(change_rows)
            faultpoints.reach("source.stream.batch")

    def _of(self, transaction: Transaction, events: Iterator[Event]) -> Iterator[_ChangeRow]:
        commit, order = commit_text(transaction), order_text(transaction)
        time = instant(transaction.time, transaction.zone)
        start = instant(transaction.start_time, transaction.zone)
        facts = {
            "connector": CONNECTOR,
            "txId": transaction.xid,
            "commit_scn": str(transaction.commit),
            "commit_ts_ms": None if time is None else str(_millis(time)),
            "start_scn": None if transaction.start is None else str(transaction.start),
            "start_ts_ms": None if start is None else str(_millis(start)),
        }
        common: RowImage = [(name, text) for name, text in facts.items() if text is not None]
        written, total, counts = 0, 0, dict[str, int]()
        wanted = (event for event in events if event.op not in self._skipped)
        for event, place, number in in_free_order(wanted, self._keys):
            sub = f"{place.scn:016x}{scn.rs_order(place.rs_id)}{place.ssn:08x}" + (f":{number:06x}" if number else "")
            position = Position(commit, f"{order}:1", sub).text
            if event.op is Operation.ERROR:
                source = self._facts(common, transaction, event, written + 1)
                known = self._tables.get(event.path)
                yield _ChangeRow(event.op, position, time, source, known, error=event.error)
                continue
            table = self._tables[event.path]
            # Rows that go round in a circle have become deletes and inserts.
            unwanted = event.op in self._skipped
            if unwanted or (self._skips_unchanged and event.op is Operation.UPDATE and not table.changes(event)):
                continue
            try:
                images = RowImages() if event.op is Operation.TRUNCATE else table.images(event)
            except UnreadableValue as error:
                mode = self._settings.unreadable_changes
                if mode == FAIL:
                    raise
                if mode == WARN:
                    _LOG.warning("A change is left out, at position %s. %s", position, error.message)
                source = self._facts(common, transaction, event, written + 1)
                yield _ChangeRow(Operation.ERROR, position, time, source, table, error=error.message)
                continue
            count = self._events_of(event, table, images)
            if self._numbered and count == 0 and event.op is Operation.UPDATE:
                continue
            if count and not total:
                yield self._edge(Operation.BEGIN, transaction, f"{order}:0", time, facts, None)
            source = self._facts(common, transaction, event, written + 1)
            row = _ChangeRow(event.op, position, time, source, table, images)
            written += max(count, 1)
            if count:
                row.transaction = _Place(transaction.xid, total + 1, counts.get(event.path, 0) + 1)
                total += count
                counts[event.path] = counts.get(event.path, 0) + count
            yield row
        if total:
            yield self._edge(Operation.END, transaction, f"{order}:2", time, facts, (total, counts))

    def _events_of(self, event: Event, table: ImageReader, images: RowImages) -> int:
        """For how many events of its transaction a change counts; a truncate, which formats leave out, for none."""
        if not self._numbered or event.op is Operation.TRUNCATE:
            return 0
        return self._key_change_events if event.op is Operation.UPDATE and table.key_changes(images) else 1

    def _keys(self, event: Event) -> tuple[Key, Key] | None:
        return self._tables[event.path].keys(event)

    def _edge(
        self,
        op: Operation,
        transaction: Transaction,
        order: str,
        time: dt.datetime | None,
        facts: Mapping[str, str | None],
        counts: tuple[int, dict[str, int]] | None,
    ) -> _ChangeRow:
        source = {name: text for name, text in facts.items() if text is not None}
        if counts is not None:
            entries = [
                {"data_collection": self._tables[path].full_path, "event_count": count}
                for path, count in counts[1].items()
            ]
            source["data_collections"] = json.dumps(entries, separators=(",", ":"), ensure_ascii=False)
        position = Position(commit_text(transaction), order).text
        place = _Place(transaction.xid, None if counts is None else counts[0], None)
        return _ChangeRow(op, position, time, list(source.items()), transaction=place)

    def _facts(self, facts: RowImage, transaction: Transaction, event: Event, number: int) -> RowImage:
        user = event.user if event.user not in (None, "UNKNOWN") else transaction.user
        entries = [
            *facts,
            ("scn", str(event.scn)),
            ("rs_id", event.rs_id),
            ("ssn", str(event.ssn)),
            ("redo_thread", str(event.thread)),
            ("txSeq", str(number)),
        ]
        if user is not None:
            entries.append(("user_name", user))
        if event.row_id is not None:
            entries.append(("row_id", event.row_id))
        if self._settings.include_redo_sql:
            entries.append(("redo_sql", event.sql))
        return entries

    def _batch(self, rows: list[_ChangeRow]) -> pa.RecordBatch:
        count = len(rows)
        columns = {
            "op": pa.array([row.op.value for row in rows], pa.string()),
            "table": pa.array([None if row.table is None else row.table.id for row in rows], _TABLE),
            "position": pa.array([row.position for row in rows], pa.string()),
            "event_time": pa.array([row.event_time for row in rows], _INSTANT),
            "capture_time": instants(self._capture_time, count),
            "source": pa.array([row.source for row in rows], _MAP),
            "schema_id": pa.array([row.schema_id for row in rows], pa.string()),
            "error": pa.array([row.error for row in rows], pa.string()),
            "before": pa.array([row.images.before for row in rows], _MAP),
            "after": pa.array([row.images.after for row in rows], _MAP),
            "key": pa.array([row.images.key for row in rows], _MAP),
            "key_text": pa.array([row.images.key_text for row in rows], pa.string()),
            "changed": pa.array([row.images.changed for row in rows], _TEXTS),
        }
        if self._numbered:
            places = [None if row.transaction is None else row.transaction._asdict() for row in rows]
            columns["transaction"] = pa.array(places, _TRANSACTION)
        return change_batch(count, columns)


def _millis(time: dt.datetime) -> int:
    return (time - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)


_ROWS_IN_MEMORY = 200_000
_BYTES_IN_MEMORY = 128 * 1024 * 1024


def committed_rows(
    connect: Callable[[str], Connection],
    transactions: Sequence[Transaction],
    tables: Mapping[str, OracleTable],
    mark: Sequence[str],
    settings: OracleSettings,
    capture_time: dt.datetime | None,
) -> Iterator[pa.RecordBatch]:
    """The changes of some transactions, in the order given.

    Ranges that staging has lost are mined again, whoever lost them.

    Args:
        connect: opens connections.
        transactions: in the order of their commits.
        tables: those that they changed, by path.
        mark: what was mined, see `Staging`.
        settings: the source's options.
        capture_time: when the batch was planned.
    """
    staging = Staging(settings.staging_location, mark)
    for scns in sorted({scns for transaction in transactions for scns in transaction.ranges}):
        if staging.index(scns) is None:
            mine(lambda: connect(""), scns, owners_and_names(tables), settings, staging)
    paths = frozenset(tables)
    together = sum(transaction.rows for transaction in transactions) <= _ROWS_IN_MEMORY
    held = _all_rows(staging, transactions) if together else None

    def events(transaction: Transaction) -> Iterator[Event]:
        def read(columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
            if held is not None:
                ended = held.get(transaction.xid)
                return iter([] if ended is None else own_rows(transaction, ended))
            return own_rows(transaction, _streamed(staging, transaction, columns))

        return Assembly(transaction, read, paths, settings).events()

    rows = ChangeRows(tables, settings, capture_time)
    yield from rows.rows((transaction, events(transaction)) for transaction in transactions)


def _all_rows(staging: Staging, transactions: Sequence[Transaction]) -> dict[str, list[pa.RecordBatch]] | None:
    """The rows of some small transactions, each range read once; None where they are too large to be held."""
    by_range: dict[ScnRange, set[str]] = {}
    for transaction in transactions:
        for scns in transaction.ranges:
            by_range.setdefault(scns, set()).add(transaction.xid)
    batches: list[pa.RecordBatch] = []
    size = 0
    for scns, xids in sorted(by_range.items()):
        for batch in staging.rows(scns, xids):
            batches.append(batch)
            size += batch.nbytes
            if size > _BYTES_IN_MEMORY:
                return None
    if not batches:
        return {}
    table = pa.Table.from_batches(batches).combine_chunks()
    encoded = table.column("xid").combine_chunks().dictionary_encode()
    order = pc.sort_indices(pa.table({"i": encoded.indices}), sort_keys=[("i", "ascending")])
    table = table.take(order)
    counts = pc.value_counts(encoded.indices).to_pylist()
    names = encoded.dictionary.to_pylist()
    rows_by_transaction: dict[str, list[pa.RecordBatch]] = {}
    start = 0
    for entry in sorted(counts, key=lambda entry: entry["values"]):
        rows_by_transaction[names[entry["values"]]] = table.slice(start, entry["counts"]).to_batches()
        start += entry["counts"]
    return rows_by_transaction


def _streamed(staging: Staging, transaction: Transaction, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    names = None if columns is None else [*columns, "scn"]
    for scns in transaction.ranges:
        yield from staging.rows(scns, [transaction.xid], names)

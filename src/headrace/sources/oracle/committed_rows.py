"""The changes of committed transactions, read from staging."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headrace.sources.oracle.assembly import Assembly, Event, own_rows
from headrace.sources.oracle.captured_table import OracleTable, owners_and_names
from headrace.sources.oracle.change_rows import ChangeRows
from headrace.sources.oracle.connection import Connection
from headrace.sources.oracle.ledger import Transaction
from headrace.sources.oracle.mining import mine
from headrace.sources.oracle.options import OracleSettings
from headrace.sources.oracle.scn import ScnRange
from headrace.sources.oracle.staging import Staging

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
                found = held.get(transaction.xid)
                return iter([] if found is None else own_rows(transaction, found))
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
    found: dict[str, list[pa.RecordBatch]] = {}
    start = 0
    for entry in sorted(counts, key=lambda entry: entry["values"]):
        found[names[entry["values"]]] = table.slice(start, entry["counts"]).to_batches()
        start += entry["counts"]
    return found


def _streamed(staging: Staging, transaction: Transaction, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    names = None if columns is None else [*columns, "scn"]
    for scns in transaction.ranges:
        yield from staging.rows(scns, [transaction.xid], names)

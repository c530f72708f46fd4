"""Slices: what one task does, how it is described to it, and how it is done.

A description holds JSON values only and everything that the task needs. A task that finds a mined range gone mines it
again, whoever lost it.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Operation, Position, TableId
from headrace.errors import DataLossError
from headrace.options import Options
from headrace.sources.base import Slice
from headrace.sources.offset import Offset, time_of, time_text
from headrace.sources.oracle import scn
from headrace.sources.oracle.assembly import Assembly, Event, own_rows
from headrace.sources.oracle.change_rows import CONNECTOR, ChangeRows, instant
from headrace.sources.oracle.connection import Connection
from headrace.sources.oracle.incremental import read_incremental
from headrace.sources.oracle.ledger import Transaction
from headrace.sources.oracle.mining import mine
from headrace.sources.oracle.snapshot_read import read_chunk
from headrace.sources.oracle.staging import Range, Staging
from headrace.sources.oracle.structure import OracleTable
from headrace.sources.rows import change_batch, schema_batch, table_column
from headrace.sources.snapshots.ad_hoc import IncrementalChunk
from headrace.sources.snapshots.chunks import LAST_OF_TABLE, Chunk

MINE, SNAPSHOT, STRUCTURES, TRANSACTIONS = "mine", "snapshot", "structures", "transactions"
ASKED, HEARTBEAT, EMPTY, GAPS = "asked", "heartbeat", "empty", "gaps"
_GAP_ORDER = "g"
"""Order of a gap: after everything of the commit before it."""
_SCHEMA_ORDER = "s"
"""Order of a stream's schema row: after everything of the commit before the window."""
_DEFINITION_ORDER = "0"
"""Order of a definition in its commit: before every change."""
_HEARTBEAT_ORDER = "z"
"""Order of a heartbeat: after everything of its commit."""
_ROWS_IN_MEMORY = 200_000
_BYTES_IN_MEMORY = 128 * 1024 * 1024
_CHANGES = {"CREATE": "CREATE", "DROP": "DROP"}
Connect = Callable[[str], Connection]
_LOG = logging.getLogger("headrace.sources")


def mine_slice(range: Range, tables: Sequence[str], mark: Sequence[str]) -> Slice:
    """The task that mines a range; it gives no rows."""
    return Slice(MINE, {"range": [range.low, range.high], "tables": list(tables), "mark": list(mark)}, tables=())


def snapshot_slice(table: Mapping[str, Any], chunk: Chunk, end: Offset) -> Slice:
    """The task that reads one chunk."""
    details = {**table, "chunk": chunk.to_json(), "capture_time": time_text(end.capture_time)}
    return Slice(SNAPSHOT, details, tables=(chunk.table,))


def empty_slice(table: Mapping[str, Any], position: Position, end: Offset) -> Slice:
    """The task that says that a table to be read has no row."""
    details = {"table": table, "position": position.text, "capture_time": time_text(end.capture_time)}
    return Slice(EMPTY, details)


def asked_slice(table: Mapping[str, Any], chunk: IncrementalChunk, end: Offset) -> Slice:
    """The task that reads one chunk of an ad-hoc snapshot."""
    details = {
        "table": table,
        "asked": chunk.to_json(),
        "commit": end.commit,
        "capture_time": time_text(end.capture_time),
    }
    return Slice(ASKED, details, tables=(chunk.table,))


def gaps_slice(database: str, end: Offset) -> Slice:
    """The task that says which changes are lost."""
    details = {"database": database, "gaps": {path: list(gap) for path, gap in sorted(end.gaps.items())}}
    return Slice(GAPS, {**details, "capture_time": time_text(end.capture_time)})


def heartbeat_slice(end: Offset) -> Slice:
    """The task that says how far the source was read."""
    details = {"commit": end.commit, "time": time_text(end.commit_time), "capture_time": time_text(end.heartbeat)}
    return Slice(HEARTBEAT, details)


def structures_slice(tables: Sequence[Mapping[str, Any]], after: str, definitions: Sequence[Any], end: Offset) -> Slice:
    """The task that says how tables look, and what was defined."""
    return Slice(
        STRUCTURES,
        {
            "tables": list(tables),
            "after": after,
            "definitions": list(definitions),
            "capture_time": time_text(end.capture_time),
        },
    )


def transactions_slice(
    transactions: Sequence[Transaction], structures: Mapping[str, Any], mark: Sequence[str], end: Offset
) -> Slice:
    """The task that gives the changes of some transactions, in commit order."""
    return Slice(
        TRANSACTIONS,
        {
            "transactions": [transaction.to_json() for transaction in transactions],
            "structures": dict(structures),
            "mark": list(mark),
            "capture_time": time_text(end.capture_time),
        },
    )


def read_slice(connect: Connect, slice: Slice, settings: Options) -> Iterator[pa.RecordBatch]:
    """The change rows of a slice, in position order."""
    details = slice.details
    if slice.kind == MINE:
        staging = Staging(settings["staging_location"], details["mark"])
        range = Range(*details["range"])
        if staging.index(range) is None:
            try:
                mine(lambda: connect(""), range, _pairs(details["tables"]), settings, staging)
            except DataLossError as error:
                # It gives no rows here. Who plans the next batch misses the range, and does what the options say.
                _LOG.warning("%s", error)
        return
    capture_time = time_of(details["capture_time"])
    if slice.kind == SNAPSHOT:
        with connect(settings["pdb"]) as connection:
            yield from read_chunk(
                connection, OracleTable.from_json(details), Chunk.from_json(details["chunk"]), settings, capture_time
            )
    elif slice.kind == ASKED:
        asked = IncrementalChunk.from_json(details["asked"])
        with connect(settings["pdb"]) as connection:
            yield from read_incremental(
                connection, OracleTable.from_json(details["table"]), asked, details["commit"], settings, capture_time
            )
    elif slice.kind == EMPTY:
        schema = OracleTable.from_json(details["table"]).schema
        yield schema_batch(schema, Position.parse(details["position"]), capture_time, CONNECTOR, snapshot=LAST_OF_TABLE)
    elif slice.kind == GAPS:
        for path, (after, upto) in details["gaps"].items():
            yield _gap(details["database"], path, after, upto, capture_time)
    elif slice.kind == HEARTBEAT:
        yield _heartbeat(details["commit"], time_of(details["time"]), capture_time)
    elif slice.kind == STRUCTURES:
        for data in details["tables"]:
            schema = OracleTable.from_json(data).schema
            yield schema_batch(schema, Position(details["after"], _SCHEMA_ORDER), capture_time, CONNECTOR)
        for definition in details["definitions"]:
            yield _definition(definition, capture_time)
    else:
        yield from _changes(connect, details, settings, capture_time)


def _changes(
    connect: Connect, details: Mapping[str, Any], settings: Options, capture_time: dt.datetime | None
) -> Iterator[pa.RecordBatch]:
    tables = {path: OracleTable.from_json(data) for path, data in details["structures"].items()}
    transactions = [Transaction.from_json(data) for data in details["transactions"]]
    staging = Staging(settings["staging_location"], details["mark"])
    for range in sorted({range for transaction in transactions for range in transaction.ranges}):
        if staging.index(range) is None:
            mine(lambda: connect(""), range, _pairs(list(tables)), settings, staging)
    paths = frozenset(tables)
    rows = ChangeRows(tables, settings, capture_time)
    together = sum(transaction.rows for transaction in transactions) <= _ROWS_IN_MEMORY
    held = _all_rows(staging, transactions) if together else None

    def events(transaction: Transaction) -> Iterator[Event]:
        def read(columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
            if held is not None:
                found = held.get(transaction.xid)
                return iter([] if found is None else own_rows(transaction, found))
            return own_rows(transaction, _streamed(staging, transaction, columns))

        return Assembly(transaction, read, paths, settings).events()

    yield from rows.rows((transaction, events(transaction)) for transaction in transactions)


def _all_rows(staging: Staging, transactions: Sequence[Transaction]) -> dict[str, list[pa.RecordBatch]] | None:
    """The rows of some small transactions, each range read once; null where they are too large to be held."""
    by_range: dict[Range, set[str]] = {}
    for transaction in transactions:
        for range in transaction.ranges:
            by_range.setdefault(range, set()).add(transaction.xid)
    batches: list[pa.RecordBatch] = []
    size = 0
    for range, xids in sorted(by_range.items()):
        for batch in staging.rows(range, xids):
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
    for range in transaction.ranges:
        yield from staging.rows(range, [transaction.xid], names)


def _gap(database: str, path: str, after: str, upto: str, capture_time: dt.datetime | None) -> pa.RecordBatch:
    """The row that says that changes of a table are lost."""
    owner, _, name = path.partition(".")
    low, high = scn.number(after) + 1, scn.number(upto)
    facts = [("connector", CONNECTOR), ("from_scn", str(low)), ("to_scn", str(high))]
    return change_batch(
        1,
        {
            "op": pa.array([Operation.GAP.value]),
            "table": table_column(TableId(database, owner, name), 1),
            "position": pa.array([Position(after, _GAP_ORDER).text]),
            "capture_time": pa.array([capture_time], pa.timestamp("us", tz="UTC")),
            "source": pa.array([facts], pa.map_(pa.string(), pa.string())),
            "error": pa.array(
                [
                    f"Changes of table '{path}' with SCNs from {low} to {high} are lost, or some of them: their redo "
                    "logs are gone."
                ]
            ),
        },
    )


def _heartbeat(commit: str, time: dt.datetime | None, capture_time: dt.datetime | None) -> pa.RecordBatch:
    return change_batch(
        1,
        {
            "op": pa.array([Operation.HEARTBEAT.value]),
            "position": pa.array([Position(commit, _HEARTBEAT_ORDER).text]),
            "event_time": pa.array([time], pa.timestamp("us", tz="UTC")),
            "capture_time": pa.array([capture_time], pa.timestamp("us", tz="UTC")),
            "source": pa.array(
                [[("connector", CONNECTOR), ("commit_scn", str(scn.number(commit)))]], pa.map_(pa.string(), pa.string())
            ),
        },
    )


def _definition(definition: Mapping[str, Any], capture_time: dt.datetime | None) -> pa.RecordBatch:
    """The row that says what was defined, in the words of who did it."""
    table = definition.get("structure")
    schema = None if table is None else OracleTable.from_json(table).schema
    owner, _, name = str(definition["table"]).partition(".")
    word = str(definition["sql"]).split(maxsplit=1)[0].upper()
    facts = {
        "connector": CONNECTOR,
        "change": definition.get("change") or _CHANGES.get(word, "ALTER"),
        "ddl": definition["sql"],
        "scn": str(definition["scn"]),
        "commit_scn": str(definition["commit"]),
        "rs_id": definition["rs_id"],
        "txId": definition["xid"],
        "user_name": definition["user"],
    }
    position = Position(scn.to_text(definition["commit"]), _DEFINITION_ORDER, str(definition["scn"]))
    source = [(name, text) for name, text in facts.items() if text is not None]
    return change_batch(
        1,
        {
            "op": pa.array([Operation.SCHEMA.value]),
            "table": table_column(TableId(definition["database"], owner, name), 1),
            "position": pa.array([position.text]),
            "event_time": pa.array([instant(definition["time"], definition["zone"])], pa.timestamp("us", tz="UTC")),
            "capture_time": pa.array([capture_time], pa.timestamp("us", tz="UTC")),
            "source": pa.array([source], pa.map_(pa.string(), pa.string())),
            "schema_id": pa.array([None if schema is None else schema.fingerprint], pa.string()),
            "table_schema": pa.array([None if schema is None else schema.to_text()], pa.string()),
        },
    )


def _pairs(paths: Sequence[str]) -> list[tuple[str, str]]:
    return [(path.partition(".")[0], path.partition(".")[2]) for path in paths]

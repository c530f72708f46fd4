"""Events of transactions become change rows, some thousand at a time.

Per-row Python, because LogMiner prints a statement per row: parsing gives a dictionary for each, and values are decoded
from them one by one.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache

import pyarrow as pa

from headrace import faultpoints
from headrace.changes import Position
from headrace.changes.key_text import key_text
from headrace.errors import CaptureError
from headrace.options import Options
from headrace.sources.batch_sizes import BATCH_BYTES
from headrace.sources.oracle import scn
from headrace.sources.oracle.assembly import Event
from headrace.sources.oracle.captured_table import OracleTable
from headrace.sources.oracle.key_shifts import Key, in_free_order
from headrace.sources.oracle.ledger import Transaction
from headrace.sources.oracle.types import NativeType
from headrace.sources.rows import change_batch, instants
from headrace.sources.stream_options import events_of_key_change
from headrace.sources.tables.masks import Change, Masks

CONNECTOR = "oracle"
BATCH = 5_000
_MAP = pa.map_(pa.string(), pa.string())
_TEXTS = pa.list_(pa.string())
_TABLE = pa.struct([("database", pa.string()), ("schema", pa.string()), ("name", pa.string())])
_TRANSACTION = pa.struct([("id", pa.string()), ("total_order", pa.int64()), ("data_collection_order", pa.int64())])
_INSTANT = pa.timestamp("us", tz="UTC")
Image = list[tuple[str, str | None]]


def instant(text: str | None, zone: str) -> dt.datetime | None:
    """A time of the server's clock as an instant."""
    return None if text is None else dt.datetime.fromisoformat(f"{text}{zone}")


def commit_text(transaction: Transaction) -> str:
    """The commit as positions have it."""
    return scn.to_text(transaction.commit or 0)


def order_text(transaction: Transaction) -> str:
    """The place of a transaction among those of the same SCN: its commit's redo thread and record."""
    return f"{transaction.thread:04x}:{scn.rs_order(transaction.rs_id)}:{transaction.ssn:08x}"


class ChangeRows:
    """Makes change rows of events.

    Args:
        tables: the captured tables by path.
        settings: the source's options.
        capture_time: when the batch was planned.
    """

    def __init__(self, tables: Mapping[str, OracleTable], settings: Options, capture_time: dt.datetime | None) -> None:
        masks = Masks.of(settings)
        self._tables = {path: ImageReader(table, masks) for path, table in tables.items()}
        self._settings = settings
        self._capture_time = capture_time
        self._numbered = settings["provide_transaction_metadata"]
        self._skipped = frozenset(settings["skipped_operations"])
        self._key_change_events = events_of_key_change(self._skipped)
        self._skips_unchanged = settings["skip_messages_without_change"]

    def rows(self, transactions: Iterable[tuple[Transaction, Iterator[Event]]]) -> Iterator[pa.RecordBatch]:
        """The change rows of some transactions, in the order given."""
        made: list[dict[str, object]] = []
        size = 0
        for transaction, events in transactions:
            for row in self._of(transaction, events):
                made.append(row)
                size += _size(row)
                if len(made) >= BATCH or size >= BATCH_BYTES:
                    yield self._batch(made)
                    made, size = [], 0
                    faultpoints.reach("source.stream.batch")
        if made:
            yield self._batch(made)
            faultpoints.reach("source.stream.batch")

    def _of(self, transaction: Transaction, events: Iterator[Event]) -> Iterator[dict[str, object]]:
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
        common: Image = [(name, text) for name, text in facts.items() if text is not None]
        written, total, counts = 0, 0, dict[str, int]()
        wanted = (event for event in events if event.op not in self._skipped)
        for event, place, number in in_free_order(wanted, self._keys):
            table = self._tables[event.path]
            # Rows that go round in a circle have become deletes and inserts.
            unwanted = event.op in self._skipped
            if unwanted or (self._skips_unchanged and event.op == "u" and not table.changes(event)):
                continue
            images = {} if event.op == "t" else table.images(event)
            count = self._events_of(event, table, images)
            if self._numbered and count == 0 and event.op == "u":
                continue
            if count and not total:
                yield self._edge("begin", transaction, f"{order}:0", time, facts, None)
            sub = f"{place.scn:016x}{scn.rs_order(place.rs_id)}{place.ssn:08x}" + (f":{number:06x}" if number else "")
            row: dict[str, object] = {
                "op": event.op,
                "table": table.id,
                "position": Position(commit, f"{order}:1", sub).text,
                "event_time": time,
                "source": self._facts(common, transaction, event, written + 1),
                "schema_id": table.fingerprint,
                **images,
            }
            written += max(count, 1)
            if count:
                row["transaction"] = (transaction.xid, total + 1, counts.get(event.path, 0) + 1)
                total += count
                counts[event.path] = counts.get(event.path, 0) + count
            yield row
        if total:
            yield self._edge("end", transaction, f"{order}:2", time, facts, (total, counts))

    def _events_of(self, event: Event, table: ImageReader, images: Mapping[str, object]) -> int:
        """For how many events of its transaction a change counts; a truncate, which formats leave out, for none."""
        if not self._numbered or event.op == "t":
            return 0
        return self._key_change_events if event.op == "u" and table.key_changes(images) else 1

    def _keys(self, event: Event) -> tuple[Key, Key] | None:
        return self._tables[event.path].keys(event)

    def _edge(
        self,
        op: str,
        transaction: Transaction,
        order: str,
        time: dt.datetime | None,
        facts: Mapping[str, str | None],
        counts: tuple[int, dict[str, int]] | None,
    ) -> dict[str, object]:
        source = {name: text for name, text in facts.items() if text is not None}
        if counts is not None:
            found = [
                {"data_collection": self._tables[path].full_path, "event_count": count}
                for path, count in counts[1].items()
            ]
            source["data_collections"] = json.dumps(found, separators=(",", ":"), ensure_ascii=False)
        return {
            "op": op,
            "position": Position(commit_text(transaction), order).text,
            "event_time": time,
            "source": list(source.items()),
            "transaction": (transaction.xid, None if counts is None else counts[0], None),
        }

    def _facts(self, facts: Image, transaction: Transaction, event: Event, number: int) -> Image:
        user = event.user if event.user not in (None, "UNKNOWN") else transaction.user
        found = [
            *facts,
            ("scn", str(event.scn)),
            ("rs_id", event.rs_id),
            ("ssn", str(event.ssn)),
            ("redo_thread", str(event.thread)),
            ("txSeq", str(number)),
        ]
        if user is not None:
            found.append(("user_name", user))
        if event.row_id is not None:
            found.append(("row_id", event.row_id))
        if self._settings["include_redo_sql"]:
            found.append(("redo_sql", event.sql))
        return found

    def _batch(self, rows: list[dict[str, object]]) -> pa.RecordBatch:
        def column(name: str, kind: pa.DataType) -> pa.Array:
            return pa.array([row.get(name) for row in rows], kind)

        count = len(rows)
        transactions = [row.get("transaction") for row in rows]
        columns = {
            "op": column("op", pa.string()),
            "table": column("table", _TABLE),
            "position": column("position", pa.string()),
            "event_time": column("event_time", _INSTANT),
            "capture_time": instants(self._capture_time, count),
            "source": column("source", _MAP),
            "schema_id": column("schema_id", pa.string()),
            "before": column("before", _MAP),
            "after": column("after", _MAP),
            "key": column("key", _MAP),
            "key_text": column("key_text", pa.string()),
            "changed": column("changed", _TEXTS),
        }
        if self._numbered:
            names = ("id", "total_order", "data_collection_order")
            columns["transaction"] = pa.array(
                [None if t is None else dict(zip(names, t, strict=True)) for t in transactions],  # type: ignore[call-overload]
                _TRANSACTION,
            )
        return change_batch(count, columns)


class ImageReader:
    """Reads the images of one table.

    Args:
        table: it.
        masks: what is done to values before they are given out.
    """

    def __init__(self, table: OracleTable, masks: Masks) -> None:
        self.id = {"database": table.id.database, "schema": table.id.schema, "name": table.id.name}
        self.full_path = table.id.full_path
        self.fingerprint = table.schema.fingerprint
        self._path = table.id.path
        self._columns = [
            (column.name, native, _plain_reader(native), native.large, native.family == "XMLTYPE")
            for column, native in zip(table.schema.columns, table.natives, strict=True)
        ]
        self._key = table.schema.key
        names = [column.name for column in table.schema.columns]
        changes = masks.of_table(table.schema, table.natives).changes
        self._masks = {names[place]: _single(change, length) for place, change, length in changes}

    def images(self, event: Event) -> dict[str, object]:
        """Before, after, key and what changed.

        Raises:
            CaptureError: a value is not of its column's form, or the row's key is not in the statement.
        """
        row = event.row
        assert row is not None
        before = self._image(event, row.before, row.shape.before_calls, large=False)
        after = self._image(event, row.after, row.shape.after_calls, large=True)
        found: dict[str, object] = {"before": before, "after": after}
        if event.op == "u":
            names = {column[0] for column in self._columns}
            changed = [n for n in (*row.shape.changed, *event.values, *event.lost) if n in names]
            found["changed"] = list(dict.fromkeys(changed))
        if self._key:
            image = dict((after if after is not None else before) or [])
            missing = next((name for name in self._key if name not in image), None)
            if missing is not None:
                raise CaptureError(
                    f"A change of table {self._path} does not say the key column '{missing}' (SCN {event.scn}).",
                    remedy=f"Run ALTER TABLE {self._path} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS, and take a new "
                    "snapshot.",
                )
            values = [image[name] for name in self._key]
            found["key"] = list(zip(self._key, values, strict=True))
            found["key_text"] = key_text(values)
        return found

    def changes(self, event: Event) -> bool:
        """Whether an update changes a captured column, or may do so."""
        row = event.row
        assert row is not None
        before, after = row.before or {}, row.after or {}
        for name, *_ in self._columns:
            if name in event.values or name in event.lost:
                return True
            if name in row.shape.changed and (name not in before or before[name] != after.get(name)):
                return True
        return False

    def keys(self, event: Event) -> tuple[Key, Key] | None:
        """The keys before and after an update as they are printed; null when it does not change the key."""
        row = event.row
        if row is None or row.before is None or row.after is None or not any(n in row.shape.changed for n in self._key):
            return None
        before, after = (tuple(image.get(name) for name in self._key) for image in (row.before, row.after))
        return None if before == after or not all(name in row.before for name in self._key) else (before, after)

    def key_changes(self, row: Mapping[str, object]) -> bool:
        """Whether an update gives the row another key."""
        before, after = (dict(row[name] or []) for name in ("before", "after"))  # type: ignore[call-overload]
        return any(name in before and before[name] != after.get(name) for name in self._key)

    def _image(
        self, event: Event, texts: Mapping[str, str | None] | None, calls: frozenset[str], *, large: bool
    ) -> Image | None:
        if texts is None:
            return None
        row = event.row
        unsupported = row.shape.unsupported if row is not None else frozenset()
        found: Image = []
        for name, native, plain, is_large, is_document in self._columns:
            if large and name in event.values:
                found.append((name, _large(event.values[name])))
                continue
            if name not in texts or name in unsupported or (large and name in event.lost):
                continue
            text = texts[name]
            if is_large and not large and event.op != "c":
                # What is said of a large value before a change is never the value.
                continue
            if is_document and text is None and event.op == "u":
                found.append((name, None))
                continue
            try:
                found.append((name, native.from_redo(text, True) if name in calls else plain(text)))
            except ValueError as error:
                raise CaptureError(
                    f"The value of column '{name}' of table {self._path} can't be read: {error} (SCN {event.scn}).",
                    remedy="Leave the table out, or report it with the column's type.",
                ) from None
        if not self._masks:
            return found
        return [(name, self._masks[name](text) if name in self._masks else text) for name, text in found]


def _single(change: Change, length: int | None) -> Callable[[str | None], str | None]:
    """A mask for one value at a time."""

    @lru_cache(maxsize=4096)
    def masked(text: str | None) -> str | None:
        found: str | None = change(pa.array([text], pa.string()), length)[0].as_py()
        return found

    return masked


def _large(value: str | bytes | None) -> str | None:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


@lru_cache(maxsize=1024)
def _plain_reader(native: NativeType) -> Callable[[str | None], str | None]:
    """Reads a literal of a type; most are what they stand for."""
    if native.logical.kind in ("string", "xml"):
        return lambda text: text or None
    decode = native.decoder()
    return lambda text: None if not text else decode(text)


def _size(row: Mapping[str, object]) -> int:
    """About how many characters a row's images have."""
    images: Iterator[Image] = (row[name] for name in ("before", "after") if row.get(name))  # type: ignore[misc]
    return sum(len(text) for image in images for _, text in image if text)


def _millis(time: dt.datetime) -> int:
    return (time - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)

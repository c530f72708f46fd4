"""A source that gives messages: its workers encode the change rows that they have just read.

So a row crosses from Python to the JVM once, as bytes. The messages are those that the format makes of the same rows
behind the source: one codec for each task, over all of the task's rows in their order.

A task's messages wait until all of them have been inspected: in memory, and many of them in a file.
"""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, NamedTuple, Self

import pyarrow as pa

from headrace.changes import TableSchema
from headrace.changes.direct_producer import Delivery, DirectProducer
from headrace.errors import OptionError
from headrace.formats.base import MESSAGE_DDL, Format
from headrace.formats.codec import MESSAGES, ArrowFormat, Codec, Facts, parts
from headrace.formats.convert import format_named
from headrace.formats.encoding import OutOfRange
from headrace.wire.lines import lines

_MOST_IN_MEMORY = 64 << 20


class Spool:
    """Batches of Arrow of one schema, read once in the order in which they came. To be closed.

    Args:
        most: how many bytes stay in memory; what comes behind them goes to a temporary file of this machine, which is
            gone with the process.
    """

    def __init__(self, most: int = _MOST_IN_MEMORY) -> None:
        self._left = most
        self._first: list[pa.RecordBatch] = []
        self._file: IO[bytes] | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._first = []
        if self._file is not None:
            self._file.close()

    def add(self, batch: pa.RecordBatch) -> None:
        self._left -= batch.nbytes
        if self._left >= 0:
            self._first.append(batch)
            return
        if self._writer is None:
            self._left = -1
            self._file = tempfile.TemporaryFile(prefix="headrace-")  # noqa: SIM115
            self._writer = pa.ipc.new_stream(self._file, batch.schema)
        self._writer.write_batch(batch)

    def all(self) -> Iterator[pa.RecordBatch]:
        """The batches; those in memory are let go one by one."""
        first, self._first = self._first[::-1], []
        while first:
            yield first.pop()
        if self._writer is not None and self._file is not None:
            self._writer.close()
            self._file.seek(0)
            yield from pa.ipc.open_stream(self._file)


_COUNTS = (
    "counted struct<database: string, table_path: string, op: string, rows: bigint, newest: timestamp, "
    "oldest: timestamp, out_of_range: string, bytes: bigint, left: string>"
)
"""Behind the messages of each task stands one row for each table and operation that says how many changes there were.

`counted` is null for messages, and all else is null where it is not. The first row of a task says what its format did
not hold (`OutOfRange`), how much memory its messages take, and, where workers send messages themselves, why it left its
own to Spark; that is null where it sent them.
"""
_LINES = pa.schema([("line", pa.string()), ("position", pa.string())])
_COUNTED = pa.struct(
    [
        ("database", pa.string()),
        ("table_path", pa.string()),
        ("op", pa.string()),
        ("rows", pa.int64()),
        ("newest", pa.timestamp("us", tz="UTC")),
        ("oldest", pa.timestamp("us", tz="UTC")),
        ("out_of_range", pa.string()),
        ("bytes", pa.int64()),
        ("left", pa.string()),
    ]
)


class _Counted(NamedTuple):
    database: str | None
    table_path: str
    op: str | None


class _Count(NamedTuple):
    """How many there are, and when the newest and the oldest were committed."""

    rows: int
    newest: dt.datetime | None
    oldest: dt.datetime | None


def not_encodable(format: Format) -> str | None:
    """Why a source's workers can't encode in a format; None where they can."""
    if not isinstance(format, ArrowFormat):
        return f"format '{format.name}' is encoded by Spark"
    if not format.encodes_alone:
        return f"format '{format.name}' is prepared on the driver for each batch"
    if format.settings.schema is not None:
        return f"format '{format.name}' is given the option 'schema'"
    return None


@dataclass(frozen=True)
class Messages:
    """What the workers of a source make of its change rows.

    Args:
        format: how they are encoded.
        counted: whether counts of the changes follow.
        lines: whether each message is a line of JSON (`wire.lines`), as files hold it.
        direct_producer: where workers send messages, so that they give none but those that they can't send; None where
            they give all.
    """

    format: ArrowFormat
    counted: bool = False
    lines: bool = False
    direct_producer: DirectProducer | None = None

    @classmethod
    def named(
        cls,
        name: str,
        options: Mapping[str, Any],
        *,
        counted: bool = False,
        lines: bool = False,
        direct_producer: DirectProducer | None = None,
    ) -> Messages:
        """Messages of a format by its name.

        Raises:
            OptionError: the format or an option is unknown or malformed, or workers can't encode in it.
        """
        format = format_named(name, dict(options))
        reason = not_encodable(format)
        if reason is not None or not isinstance(format, ArrowFormat):
            raise OptionError(
                f"A source can't give messages of format '{name}': {reason}.",
                remedy="Read change rows, and encode them with headrace.encode inside foreachBatch.",
            )
        # Malformed options are reported here, and not by a task.
        format.check(writes=True)
        return cls(format, counted, lines, direct_producer)

    @property
    def ddl(self) -> str:
        """The columns of what is given, for Spark."""
        columns = "line string, position string" if self.lines else MESSAGE_DDL
        return f"{columns}, {_COUNTS}" if self.counted else columns

    def of(
        self, rows: Iterable[pa.RecordBatch], schemas: Sequence[TableSchema], delivery: Delivery | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The messages of a task's change rows, in their order.

        Args:
            rows: all of them.
            schemas: those that they follow, but for those that `schema` rows among them say first.
            delivery: sends the messages, which are then not given, all or none.
        """
        encoding = _Encoding(self.format, schemas)
        if not self.counted:
            yield from map(self._shown, encoding.of(map(_with_types, rows)))
            return
        counts: dict[_Counted, _Count] = {}
        size = 0
        messages = map(self._shown, encoding.of(_with_types(_counting(batch, counts)) for batch in rows))
        left = messages if delivery is None else _left(messages, delivery)
        for shown in left:
            size += shown.nbytes
            yield shown.append_column("counted", pa.nulls(shown.num_rows, _COUNTED))
        if counts:
            reason = "" if delivery is None else delivery.refusal
            yield _counts(_LINES if self.lines else MESSAGES, counts, encoding.out_of_range, size, reason)

    def _shown(self, messages: pa.RecordBatch) -> pa.RecordBatch:
        if not self.lines:
            return messages
        return pa.RecordBatch.from_arrays([lines(messages), messages.column("position")], schema=_LINES)


def _left(messages: Iterator[pa.RecordBatch], delivery: Delivery) -> Iterator[pa.RecordBatch]:
    """The messages that can't be sent, which are all or none; the others are sent."""
    with Spool() as spool:
        for batch in messages:
            spool.add(batch)
            delivery.inspect(batch)
            if delivery.refusal:
                break
        if not delivery.refusal:
            delivery.send(spool.all())
            return
        yield from spool.all()
    yield from messages


class _Encoding:
    """Encodes a task's change rows by the schemas that are known, and by those that its own `schema` rows bring.

    Args:
        format: how rows are encoded.
        schemas: what is known before.
    """

    def __init__(self, format: ArrowFormat, schemas: Sequence[TableSchema]) -> None:
        self._format = format
        self._known = {schema.fingerprint: schema for schema in schemas}
        self._encoder = self._made()
        self._encoder.check()
        self._lost = OutOfRange()

    @property
    def out_of_range(self) -> OutOfRange:
        """The values that the format could not hold."""
        return self._lost.plus(self._encoder.out_of_range)

    def of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if self._learns(batch):
                yield from self._encoder.finish()
                self._lost = self.out_of_range
                self._encoder = self._made()
            for part in parts(batch):
                yield from self._encoder.feed(part)
        yield from self._encoder.finish()

    def _made(self) -> Codec:
        return self._format.encoder(Facts(tuple(self._known[fingerprint] for fingerprint in sorted(self._known))))

    def _learns(self, batch: pa.RecordBatch) -> bool:
        """Whether a batch says schemas that are not known yet."""
        texts = batch.column("table_schema").drop_null().unique().to_pylist()
        learned = {schema.fingerprint: schema for schema in map(TableSchema.from_text, texts)}
        fresh = learned.keys() - self._known.keys()
        self._known |= {fingerprint: learned[fingerprint] for fingerprint in fresh}
        return bool(fresh)


def _with_types(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.append_column("has_types", rows.column("schema_id").is_valid())


def _counting(rows: pa.RecordBatch, counts: dict[_Counted, _Count]) -> pa.RecordBatch:
    """The same rows, counted by table and operation."""
    database, schema, name = rows.column("table").flatten()
    time = rows.column("event_time")
    columns = {"database": database, "schema": schema, "name": name, "op": rows.column("op"), "time": time}
    grouped = pa.table(columns).group_by(["database", "schema", "name", "op"])
    for line in grouped.aggregate([("time", "max"), ("time", "min"), ([], "count_all")]).to_pylist():
        path = ".".join(part for part in (line["schema"] or None, line["name"]) if part is not None)
        key = _Counted(line["database"], path, line["op"])
        number, newest, oldest = counts.get(key, _Count(0, None, None))
        last = [time for time in (newest, line["time_max"]) if time is not None]
        begin = [time for time in (oldest, line["time_min"]) if time is not None]
        counts[key] = _Count(number + line["count_all"], max(last, default=None), min(begin, default=None))
    return rows


def _counts(
    columns: pa.Schema,
    counts: Mapping[_Counted, _Count],
    lost: OutOfRange,
    size: int,
    left: str,
) -> pa.RecordBatch:
    nothing = {"out_of_range": None, "bytes": 0, "left": None}
    listed: list[dict[str, Any]] = [{**key._asdict(), **count._asdict(), **nothing} for key, count in counts.items()]
    listed[0] |= {"out_of_range": lost.to_text(), "bytes": size, "left": left or None}
    arrays = [pa.nulls(len(listed), field.type) for field in columns]
    return pa.RecordBatch.from_arrays([*arrays, pa.array(listed, _COUNTED)], names=[*columns.names, "counted"])

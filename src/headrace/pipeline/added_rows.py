"""Change rows that a batch adds to those of its source, and how they are kept until the batch rests in all sinks.

A sink that has the batch already holds what they say, so that a replay would look up something else. They are kept
before the first sink gets them; a replay of the batch takes them from there.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.apply.cascades import Added, position_after
from headrace.changes import TableId, TableSchema
from headrace.changes.row import CHANGE_ROW_DDL, Operation, arrow_schema
from headrace.changes.texts import key_text
from headrace.observe.checkpoint import CASCADES
from headrace.observe.progress import BatchCount
from headrace.pipeline.checkpoint import Checkpoint
from headrace.spark.local_rows import local_rows
from headrace.versions import require_readable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FORM = 1
_NEWER = "Restore the newest copy of the checkpoint that this release wrote."
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_FACT = "cascade"
"""The source's fact that names the foreign key which changed a row."""


@dataclass(frozen=True)
class Cause:
    """What a change of the log says that those which follow from it say too.

    Args:
        event_time, capture_time: microseconds since 1970.
        transaction: its id; None where the source does not say it.
        source: the source's own facts.
    """

    event_time: int | None
    capture_time: int | None
    transaction: str | None
    source: Mapping[str, str | None]


Line = dict[str, Any]
"""A change row in JSON values."""


def lines_of(added: Sequence[Added], causes: Mapping[str, Cause], schemas: Mapping[TableId, TableSchema]) -> list[Line]:
    """Change rows, each table's schema before its first one."""
    lines: list[Line] = []
    announced: set[TableId] = set()
    shift: Counter[str] = Counter()
    for one in added:
        schema, cause = schemas[one.table], causes[one.cause.position]
        if one.table not in announced:
            announced.add(one.table)
            position = position_after(one.cause.position, one.number + shift[one.cause.position])
            shift[one.cause.position] += 1
            lines.append(_line(Operation.SCHEMA, schema, position, cause) | {"table_schema": schema.to_text()})
        position = position_after(one.cause.position, one.number + shift[one.cause.position])
        image = one.before if one.after is None else one.after
        key = [(name, image.get(name)) for name in schema.key]
        line = _line(one.op, schema, position, cause)
        lines.append(
            line
            | {
                "key": key,
                "key_text": key_text([text for _, text in key]),
                "before": _pairs(one.before, schema),
                "after": None if one.after is None else _pairs(one.after, schema),
                "source": [*line["source"], (_FACT, one.key.name)],
            }
        )
    return lines


def _pairs(image: Mapping[str, str | None], schema: TableSchema) -> list[tuple[str, str | None]]:
    return [(column.name, image[column.name]) for column in schema.columns if column.name in image]


def _line(op: str, schema: TableSchema, position: str, cause: Cause) -> Line:
    return {
        "op": str(op),
        "table": [schema.id.database, schema.id.schema, schema.id.name],
        "position": position,
        "event_time": cause.event_time,
        "capture_time": cause.capture_time,
        "transaction": cause.transaction,
        "source": list(cause.source.items()),
        "schema_id": schema.fingerprint,
    }


def rows_of(spark: SparkSession, lines: Iterable[Line]) -> DataFrame:
    """The same as a DataFrame of change rows."""
    columns = arrow_schema().names
    rows = []
    for line in lines:
        times = {name: _time(line[name]) for name in ("event_time", "capture_time")}
        id = line["transaction"]
        whole = {**line, **times, "transaction": None if id is None else {"id": id}}
        rows.append([whole.get(name) for name in columns])
    return local_rows(spark, rows, CHANGE_ROW_DDL)


def _time(micros: int | None) -> dt.datetime | None:
    return None if micros is None else _EPOCH + dt.timedelta(microseconds=micros)


def counts_with(counts: Sequence[BatchCount], lines: Iterable[Line], *, several: bool) -> list[BatchCount]:
    """A batch's counts with those of added rows.

    Args:
        counts: rows by table and operation.
        lines: the added rows.
        several: whether names of tables begin with their database.
    """
    by_key = {(count.id, count.op): count for count in counts}
    for line in lines:
        id = TableId(*line["table"])
        path = ".".join(filter(None, (id.database if several else "", id.schema, id.name)))
        time = _time(line["event_time"])
        known = by_key.get((id, line["op"]), BatchCount(path, line["op"], 0, time, time, id))
        times = [one for one in (known.oldest, known.newest, time) if one is not None]
        by_key[id, line["op"]] = replace(
            known, rows=known.rows + 1, oldest=min(times, default=None), newest=max(times, default=None)
        )
    return sorted(by_key.values(), key=lambda count: (count.table, count.op))


class KeptRows:
    """The added rows of the batch that is being written, in the checkpoint.

    Args:
        checkpoint: it.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._batch: int | None = None
        self._is_read = False

    def of(self, batch: int) -> list[Line] | None:
        """Those of a batch; None where it was not written before. Those of a batch before it are removed.

        Raises:
            NewerRelease: a later release wrote them.
        """
        if self._is_read and self._batch is None:
            return None
        self._is_read = True
        text = self._checkpoint.text(CASCADES)
        data = None if text is None else json.loads(text)
        if data is None:
            self._batch = None
            return None
        require_readable(data["version"], _FORM, what=f"The checkpoint's file '{CASCADES}'", remedy=_NEWER)
        if (data["batch"], data["offsets"]) == (batch, self._checkpoint.offsets_hash(batch)):
            self._batch = batch
            return list(data["rows"])
        self._checkpoint.remove(CASCADES)
        self._batch = None
        return None

    def keep(self, batch: int, lines: Sequence[Line]) -> None:
        offsets = self._checkpoint.offsets_hash(batch)
        data = {"version": _FORM, "batch": batch, "offsets": offsets, "rows": list(lines)}
        self._checkpoint.keep(CASCADES, json.dumps(data, separators=(",", ":"), ensure_ascii=False))
        self._batch = batch

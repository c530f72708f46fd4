"""The actions of a Delta commit as lines of JSON: files that come, go, and keep some of their rows.

What a file's entry in the log has beside what is written here stays as it is.

By the statistics of a data file readers skip it, so they hold every value of the file. Where a text form would lose
something, the bound is made wider, or left out: then nothing is known, and the file is read.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headrace.sinks.lake.data_files import ColumnRange, DataFile, Ordered
from headrace.sinks.lake.partitions import Partitioning, delta_value

Entry = Mapping[str, Any]
"""What stands in the log of a file: the inside of its `add`."""
Action = dict[str, Any]


def added(
    file: DataFile,
    statistics: str,
    partitioning: Partitioning,
    columns: Mapping[str, str],
    names: Mapping[str, str],
    *,
    new: bool = True,
) -> Action:
    """A new file.

    Args:
        file: the file.
        statistics: as `headrace.sinks.lake.delta.actions` has them.
        partitioning: the table's.
        columns: the table's, with Spark's types.
        names: those that they have in the log, where these are not their own.
        new: whether its rows are, and do not come from files that go.
    """
    pairs = zip(partitioning.columns, file.partition.values, strict=True)
    values = {names.get(name, name): delta_value(value, columns[name]) for name, value in pairs}
    return {
        "add": {
            "path": file.path,
            "partitionValues": values,
            "size": file.size,
            "modificationTime": file.modified,
            "dataChange": new,
            "stats": statistics,
        }
    }


def removed(entry: Entry, now: int, *, moved: bool = False) -> Action:
    """A file that goes.

    Args:
        entry: the file.
        now: milliseconds since 1970.
        moved: whether its rows stay, in another file.
    """
    kept = ("path", "partitionValues", "size", "tags", "deletionVector")
    action = {name: entry[name] for name in kept if entry.get(name) is not None}
    return {"remove": {**action, "deletionTimestamp": now, "dataChange": not moved, "extendedFileMetadata": True}}


def marked(entry: Entry, vector: Mapping[str, Any], rows: int) -> Action:
    """A file that stays, with these rows marked; the commit also needs the one `removed` that it takes the place of.

    Args:
        entry: the file as it was.
        vector: of all rows that are marked now.
        rows: how many the file has, marked ones too.
    """
    known = json.loads(entry.get("stats") or "{}", parse_float=_Digits, parse_int=_Digits)
    # Its values may be those of rows that are gone.
    statistics = _text({**known, "numRecords": rows, "tightBounds": False})
    return {"add": {**entry, "dataChange": True, "stats": statistics, "deletionVector": dict(vector)}}


class _Digits(str):
    """A number of JSON with its own digits, which none of Python's numbers keeps."""

    __slots__ = ()


def _text(value: Any) -> str:
    if isinstance(value, _Digits):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name, ensure_ascii=False)}:{_text(v)}" for name, v in value.items()) + "}"
    if isinstance(value, list):
        return f"[{','.join(map(_text, value))}]"
    return json.dumps(value, ensure_ascii=False)


INDEXED = "delta.dataSkippingNumIndexedCols"
_NAMED = "delta.dataSkippingStatsColumns"
INDEXED_ANYWAY = 32
_LONGEST_TEXT = 32
_LAST_LETTER = "\U0010ffff"
_EPOCH = dt.datetime(1970, 1, 1)
_MILLISECOND = 1000


def indexed_columns(columns: Sequence[str], properties: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of a table of plain columns that have statistics.

    Args:
        columns: all of them, in order.
        properties: the table's.
    """
    named = properties.get(_NAMED)
    if named is not None:
        wanted = {name.strip().strip("`").lower() for name in named.split(",")}
        return tuple(name for name in columns if name.lower() in wanted)
    most = int(properties.get(INDEXED, INDEXED_ANYWAY))
    return tuple(columns) if most < 0 else tuple(columns[:most])


def statistics(file: DataFile, schema: pa.Schema, indexed: Sequence[str], names: Mapping[str, str]) -> str:
    """The JSON text of a file's statistics.

    Args:
        file: the file.
        schema: its columns.
        indexed: the columns that have statistics.
        names: those that columns have in the log, where these are not their own.
    """
    least, greatest, nulls = {}, {}, {}
    for name in indexed:
        known, kind, stored = file.ranges[name], schema.field(name).type, names.get(name, name)
        nulls[stored] = str(known.nulls)
        ends = _bounds(known, kind)
        if ends[0] is not None:
            least[stored] = ends[0]
        if ends[1] is not None:
            greatest[stored] = ends[1]
    parts = (("minValues", least), ("maxValues", greatest), ("nullCount", nulls))
    written = (f'"{title}":{{{_members(values)}}}' for title, values in parts)
    return f'{{"numRecords":{file.rows},{",".join(written)},"tightBounds":true}}'


def _members(values: Mapping[str, str]) -> str:
    return ",".join(f"{json.dumps(name, ensure_ascii=False)}:{value}" for name, value in values.items())


def _bounds(known: ColumnRange, kind: pa.DataType) -> tuple[str | None, str | None]:
    """Least and greatest value as JSON; None for none."""
    least, greatest = known.least, known.greatest
    if least is None or greatest is None:
        return _number(least, kind), _number(greatest, kind)
    if pa.types.is_string(kind):
        assert isinstance(least, str) and isinstance(greatest, str)
        return json.dumps(least[:_LONGEST_TEXT], ensure_ascii=False), json.dumps(_ceiling(greatest), ensure_ascii=False)
    if pa.types.is_date32(kind):
        return _day(least), _day(greatest)
    if pa.types.is_timestamp(kind):
        # Statistics have milliseconds.
        assert isinstance(least, int) and isinstance(greatest, int)
        return _moment(least // _MILLISECOND, kind), _moment(-(-greatest // _MILLISECOND), kind)
    return _number(least, kind), _number(greatest, kind)


def _number(value: Ordered | None, kind: pa.DataType) -> str | None:
    if value is None:
        return None
    if isinstance(value, Decimal):
        return format(value, "f")
    return repr(value)


def _ceiling(text: str) -> str:
    """A text of about the longest length that is not less."""
    if len(text) <= _LONGEST_TEXT:
        return text
    for end in range(_LONGEST_TEXT, len(text)):
        if text[end] != _LAST_LETTER:
            return text[:end] + _LAST_LETTER
    return text


def _day(days: Ordered) -> str | None:
    assert isinstance(days, int)
    try:
        return f'"{(_EPOCH + dt.timedelta(days=days)).date().isoformat()}"'
    except OverflowError:
        return None


def _moment(milliseconds: int, kind: pa.DataType) -> str | None:
    try:
        moment = _EPOCH + dt.timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
    return f'"{moment.isoformat(timespec="milliseconds")}{"Z" if kind.tz else ""}"'

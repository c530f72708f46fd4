"""Statistics of a data file as Delta's log has them, by which readers skip files.

They hold every value of the file. Where a text form would lose something, the bound is made wider, or left out: then
nothing is known, and the file is read.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal

import pyarrow as pa

from headrace.sinks.lake.data_files import ColumnRange, DataFile, Ordered

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

"""Where keys of a batch can be in a target, as a condition: formats skip files whose statistics contradict it.

Keys that lie apart make several ranges, so that a few old keys among young ones don't open every file between.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any

from headrace.changes.typed import literal, quote

MOST = 16
"""The most ranges of a column. Each row of a file that is read is compared with them, and Delta's log keeps the
condition of each commit."""
_WORTH = 64
"""A gap counts if it is more than this part of the distance from the least key to the greatest."""
_PREFIX = 12
_LONGEST = 64
_EPOCH = dt.datetime(1970, 1, 1)
_COLLECTED = {
    "date": "unix_date({})",
    "timestamp": "unix_micros({})",
    "timestamp_ntz": "timestampdiff(microsecond, timestamp_ntz'1970-01-01 00:00:00', {})",
}
"""Days and moments are numbers here, because Python has no year beyond 9999."""
_BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}


def comparable(kind: str) -> bool:
    """Whether statistics of files are compared with constants of this Spark type."""
    return kind in _COLLECTED or kind in _BITS or kind == "string" or kind.startswith("decimal")


def collected(name: str, kind: str) -> str:
    """Spark SQL for a key column of a folded row, as `ranges` takes its values."""
    return _COLLECTED.get(kind, "{}").format(f"row.{quote(name)}")


def within(column: str, kind: str, spans: Sequence[tuple[Any, Any]]) -> str:
    """Spark SQL that is true of every row whose column is in one of the spans; empty where that can't be said.

    Args:
        column: the target's column, quoted.
        kind: its Spark type.
        spans: least and greatest values, as `collected` gives them.
    """
    try:
        each = [
            f"{column} >= {constant(least, kind)} and {column} <= {constant(greatest, kind)}"
            for least, greatest in (_loosened(*span, kind) for span in spans)
        ]
    except OverflowError:
        return ""
    return each[0] if len(each) == 1 else f"({' or '.join(each)})"


def ranges(values: Sequence[Any]) -> list[tuple[Any, Any]]:
    """At most `MOST` ranges, in order, that hold all of the values (at least one): parted where the widest gaps are.

    Where the gaps are less than half of the whole, it is one range.
    """
    ordered = sorted(set(values))
    indexes = [_number(value) for value in ordered]
    whole = indexes[-1] - indexes[0]
    steps = [(indexes[n] - indexes[n - 1], n) for n in range(1, len(ordered))]
    gaps = sorted((gap for gap in steps if gap[0] > whole / _WORTH), reverse=True)[: MOST - 1]
    if 2 * sum(distance for distance, _ in gaps) < whole:
        gaps = []
    cuts = [0, *sorted(n for _, n in gaps), len(ordered)]
    return [(ordered[start], ordered[end - 1]) for start, end in pairwise(cuts)]


def _number(value: Any) -> Any:
    """A number that grows with the value, so that distances can be compared."""
    if not isinstance(value, str):
        return value
    return int.from_bytes(value.encode(errors="surrogatepass")[:_PREFIX].ljust(_PREFIX, b"\0"))


def _loosened(least: Any, greatest: Any, kind: str) -> tuple[Any, Any]:
    """A range a little wider, whose ends change less often.

    Numbers are part of the code that Spark compiles for a query, so each new one is compiled again. Texts are not, but
    the condition of each commit stays in Delta's log.
    """
    if isinstance(least, str):
        return least[:_LONGEST], ceiling(greatest)
    if not isinstance(least, int):
        return least, greatest
    grain = 1 << max(0, (greatest - least).bit_length() - 3)
    least, greatest = least // grain * grain, -(-greatest // grain) * grain
    if kind in _BITS:
        # Beyond the column's type Spark would compare another type, for which files have no statistics.
        least, greatest = max(least, -(1 << _BITS[kind])), min(greatest, (1 << _BITS[kind]) - 1)
    return least, greatest


def ceiling(text: str) -> str:
    """A text that is not less, and not long where that can be."""
    short = text[:_LONGEST] + chr(sys.maxunicode)
    return text if len(text) <= _LONGEST or short < text else short


def constant(value: Any, kind: str) -> str:
    """A value of a key column as a constant of Spark SQL.

    Raises:
        OverflowError: Python has no such day.
    """
    if kind == "date":
        return f"date'{(_EPOCH + dt.timedelta(days=value)).date()}'"
    if kind in ("timestamp", "timestamp_ntz"):
        return f"{kind}'{_EPOCH + dt.timedelta(microseconds=value)}{'Z' if kind == 'timestamp' else ''}'"
    if isinstance(value, Decimal):
        return f"{value:f}BD"
    return literal(value) if isinstance(value, str) else str(value)

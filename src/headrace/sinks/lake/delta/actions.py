"""The actions of a Delta commit as lines of JSON: files that come, go, and keep some of their rows.

What a file's entry in the log has beside what is written here stays as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from headrace.sinks.lake.data_files import DataFile
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
        statistics: as `headrace.sinks.lake.delta.statistics` has them.
        partitioning: the table's.
        columns: the table's, with Spark's types.
        names: those that they have in the log, where these are not their own.
        new: whether its rows are, and do not come from files that go.
    """
    found = zip(partitioning.columns, file.partition.values, strict=True)
    values = {names.get(name, name): delta_value(value, columns[name]) for name, value in found}
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
    found = {name: entry[name] for name in kept if entry.get(name) is not None}
    return {"remove": {**found, "deletionTimestamp": now, "dataChange": not moved, "extendedFileMetadata": True}}


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

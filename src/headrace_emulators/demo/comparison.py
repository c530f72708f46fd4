"""Is the mirror the source? Compared row by row, by code that shares nothing with the pipeline that made the mirror.

The source is read with `sqlite3` from the emulated database's file, the mirror with the `deltalake` package; values are
compared exactly, rows as a multiset, so that duplicates in tables without a key count too.

    python -m headrace_emulators.demo.comparison SOURCE.sqlite LAKE_FOLDER
"""

from __future__ import annotations

import datetime as dt
import json
import re
import sqlite3
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

OURS = "_headrace_position"
"""The mirror's own column, which the source does not have."""

_SHOWN = 10
_SIDE = "source minus mirror"
_INTERNAL = re.compile(r"(cdc|sys|emulator|sqlite)[._]")
_ESCAPE = re.compile(r"[^A-Za-z0-9_.\-]")
_SOURCE_ZONED = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? [+-]\d\d:\d\d$"
# A message counts nanoseconds, also of a column with only seven digits; every digit is compared.
_TICKS = r"^(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d\.\d{7}$"
_NANOSECONDS = r"^(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d\.\d{9}$"
_MIRROR_ZONED = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$"


@dataclass(frozen=True)
class Difference:
    """One way in which a table's mirror is not its source.

    Args:
        table: `schema.name`.
        what: `lost`, `extra` or `changed` rows; or a sentence about the whole table.
        key: the row's key, or its first columns where the table has none; empty for a whole table.
        columns: the names of the columns that differ, for a changed row.
    """

    table: str
    what: str
    key: str = ""
    columns: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.key:
            return f"{self.table}: {self.what}"
        sentences = {
            "lost": "is in the source and not in the mirror",
            "extra": "is in the mirror and not in the source",
            "changed": f"differs in {', '.join(self.columns)}",
        }
        return f"{self.table} {self.key} {sentences[self.what]}"


@dataclass
class TableComparison:
    """One table's rows on both sides, and the rows that differ (a changed row counts once)."""

    table: str
    source_rows: int = 0
    mirror_rows: int = 0
    differing: int = 0
    differences: list[Difference] = field(default_factory=list)


@dataclass
class Comparison:
    """What `compare` found."""

    tables: list[TableComparison]

    @property
    def equal(self) -> bool:
        """Whether every table of the mirror holds exactly the source's rows."""
        return not any(table.differing for table in self.tables)

    @property
    def differences(self) -> list[Difference]:
        """Of each table the first few."""
        return [difference for table in self.tables for difference in table.differences]

    def __str__(self) -> str:
        if self.equal:
            counts = ", ".join(f"{t.table} {t.source_rows:,}" for t in self.tables)
            return f"mirror equals source: {counts} rows"
        lines = [
            f"{t.table}: {t.differing:,} differ ({t.source_rows:,} rows in the source, {t.mirror_rows:,} in the mirror)"
            for t in self.tables
            if t.differing
        ]
        return "\n".join(["mirror differs from source", *lines, *(f"  {d}" for d in self.differences[:_SHOWN])])


def compare(
    source: Path, lake: Path | Callable[[str], pa.Table | None], tables: Sequence[str] | None = None
) -> Comparison:
    """Compare an emulated database with the Delta tables at `<lake>/<schema>/<table>`, or with tables of another kind.

    Args:
        source: the database's file; it is opened read-only.
        lake: the folder of the mirrors; or what gives the rows of a mirror by `schema.name`, None where there is none.
        tables: `schema.name` of the tables to compare; by default all user tables of the source.

    Raises:
        FileNotFoundError: the source file does not exist.
    """
    if not source.is_file():
        raise FileNotFoundError(f"The source file {source} does not exist.")
    database = sqlite3.connect(f"file:{quote(str(source.absolute()))}?mode=ro", uri=True)
    try:
        names = list(tables) if tables is not None else _user_tables(database)
        rows = lake if callable(lake) else lambda name: _delta_rows(lake, name)
        return Comparison([_compare_table(database, rows, name) for name in names])
    finally:
        database.close()


def _user_tables(database: sqlite3.Connection) -> list[str]:
    if _is_db2(database):
        rows = database.execute('SELECT SOURCE_OWNER, SOURCE_TABLE, GLOBAL_RECORD FROM "ASNCDC.IBMSNAP_REGISTER"')
        return sorted(f"{owner}.{table}" for owner, table, global_record in rows if global_record == "N")
    if _has_catalog(database):
        names = _table_names(database)
        captured = database.execute('SELECT source_object_id FROM "cdc.change_tables"').fetchall()
        return sorted({names[number] for (number,) in captured if number in names})
    found = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
    return [name for (name,) in found if "." in name and not _INTERNAL.match(name)]


def _delta_rows(lake: Path, name: str) -> pa.Table | None:
    from deltalake import DeltaTable, QueryBuilder

    folder = lake.joinpath(*(_ESCAPE.sub(_escaped, part) for part in name.split(".", 1)))
    if not DeltaTable.is_deltatable(str(folder)):
        return None
    # Its other readers know no rows that are marked as deleted.
    query = QueryBuilder().register("mirror", DeltaTable(str(folder)))
    return pa.table(query.execute("select * from mirror").read_all())


def _compare_table(
    database: sqlite3.Connection, mirrored: Callable[[str], pa.Table | None], name: str
) -> TableComparison:
    result = TableComparison(name)
    cursor = database.execute(f"SELECT * FROM {_identifier(name)}")
    columns = [described[0] for described in cursor.description]
    rows = cursor.fetchall()
    result.source_rows = len(rows)
    mirror = mirrored(name)
    if mirror is None:
        return _whole(result, "there is no mirror", len(rows))
    if OURS in mirror.column_names:
        mirror = mirror.drop_columns([OURS])
    result.mirror_rows = mirror.num_rows
    if set(mirror.column_names) != set(columns):
        odd = sorted(set(mirror.column_names) ^ set(columns))
        return _whole(result, f"the columns are not the same ({', '.join(odd)})", max(len(rows), mirror.num_rows))

    key = _key(database, name)
    lists: list[Any] = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    left, right = {}, {}
    for column, values in zip(columns, lists, strict=True):
        left[column], right[column] = _alike(values, mirror[column])
    surplus = _surplus(pa.table(left), pa.table(right))
    if surplus.num_rows:
        _explain(result, surplus, key)
    return result


def _is_db2(database: sqlite3.Connection) -> bool:
    found = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'ASNCDC.IBMSNAP_REGISTER'").fetchone()
    return found is not None


def _has_catalog(database: sqlite3.Connection) -> bool:
    """Whether the file is an emulated database, with a catalog of what is captured, and not just tables."""
    wanted = ("cdc.change_tables", "sys.objects", "sys.schemas", "sys.indexes", "sys.index_columns", "sys.columns")
    found = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
    return found.issuperset(wanted)


def _key(database: sqlite3.Connection, table: str) -> list[str]:
    if _is_db2(database):
        schema, _, name = table.partition(".")
        bodies = database.execute('SELECT schema, name, body FROM "emulator.tables"').fetchall()
        body = next(json.loads(text) for s, n, text in bodies if (s, n) == (schema, name))
        return next((list(key["columns"]) for key in body["keys"] if key["primary"]), [])
    if not _has_catalog(database):
        infos = database.execute(f"PRAGMA table_info({_identifier(table)})").fetchall()
        return [info[1] for info in sorted(infos, key=lambda info: info[5]) if info[5]]
    # Joined here and not in SQL: the file's texts have collations that only the emulator knows.
    number = next((number for number, path in _table_names(database).items() if path == table), None)
    indexes = database.execute('SELECT object_id, index_id, is_primary_key FROM "sys.indexes"').fetchall()
    index = next((id for object_id, id, primary in indexes if object_id == number and primary), None)
    parts = database.execute('SELECT object_id, index_id, key_ordinal, column_id FROM "sys.index_columns"').fetchall()
    columns = database.execute('SELECT object_id, column_id, name FROM "sys.columns"').fetchall()
    named = {column_id: name for object_id, column_id, name in columns if object_id == number}
    key = sorted((ordinal, column) for object_id, id, ordinal, column in parts if (object_id, id) == (number, index))
    return [named[column] for _, column in key]


def _table_names(database: sqlite3.Connection) -> dict[int, str]:
    schemas = dict(database.execute('SELECT schema_id, name FROM "sys.schemas"').fetchall())
    objects = database.execute('SELECT object_id, schema_id, name FROM "sys.objects"').fetchall()
    return {number: f"{schemas[schema]}.{name}" for number, schema, name in objects if schema in schemas}


def _whole(result: TableComparison, what: str, rows: int) -> TableComparison:
    result.differing = max(1, rows)
    result.differences.append(Difference(result.table, what))
    return result


def _surplus(source: pa.Table, mirror: pa.Table) -> pa.Table:
    """The rows that one side has more often than the other, with how much more often: plus for the source."""
    names = source.column_names
    both = pa.concat_tables(
        [
            source.append_column(_SIDE, pa.array(np.full(source.num_rows, 1, np.int64))),
            mirror.append_column(_SIDE, pa.array(np.full(mirror.num_rows, -1, np.int64))),
        ]
    )
    grouped = both.group_by(names).aggregate([(_SIDE, "sum")])
    return grouped.filter(pc.not_equal(grouped[f"{_SIDE}_sum"], 0))


def _explain(result: TableComparison, surplus: pa.Table, key: Sequence[str]) -> None:
    """Pair what is left over by key: a key on both sides is a changed row."""
    names = [name for name in surplus.column_names if name != f"{_SIDE}_sum"]
    lost: dict[Any, list[dict[str, Any]]] = {}
    extra: dict[Any, list[dict[str, Any]]] = {}
    shown = list(key) or names[:3]
    for row in surplus.to_pylist():
        count = row.pop(f"{_SIDE}_sum")
        side = lost if count > 0 else extra
        identity = tuple(row[name] for name in (key or names))
        side.setdefault(identity, []).extend([row] * abs(count))
    found: list[Difference] = []
    for identity in sorted({*lost, *extra}, key=repr):
        before, after = lost.get(identity, []), extra.get(identity, [])
        row = (before or after)[0]
        label = "(" + ", ".join(f"{name} {_shown(row[name])}" for name in shown) + ")"
        for one, other in zip(before, after, strict=False):
            changed = tuple(name for name in names if one[name] != other[name])
            found.append(Difference(result.table, "changed", label, changed))
        found += [Difference(result.table, "lost", label)] * max(0, len(before) - len(after))
        found += [Difference(result.table, "extra", label)] * max(0, len(after) - len(before))
    result.differing = len(found)
    result.differences = found[:_SHOWN]


def _alike(values: Sequence[Any], mirror: pa.ChunkedArray) -> tuple[pa.Array, pa.ChunkedArray]:
    """A source column as the mirror's Arrow type; both as text where a source value does not fit that type."""
    kind = mirror.type
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        mirror, kind = mirror.cast(pa.string()), pa.string()
    elif pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        mirror, kind = mirror.cast(pa.binary()), pa.binary()
    try:
        source = _as_arrow(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError, OverflowError):
        return pa.array([None if v is None else str(v) for v in values], pa.string()), _texts(mirror)
    if pa.types.is_string(kind) and _all_match(source, _SOURCE_ZONED) and _all_match(mirror, _MIRROR_ZONED):
        source = _shortest(pa.array([_zoned(text) for text in source.to_pylist()], pa.string()))
        mirror = _shortest(mirror)
    if pa.types.is_string(kind) and _all_match(source, _TICKS) and _all_match(mirror, _NANOSECONDS):
        source = pc.binary_join_element_wise(source, "00", "")
    return source, mirror


def _as_arrow(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_boolean(kind):
        return pa.array([None if v is None else bool(v) for v in values], kind)
    if pa.types.is_float32(kind):
        # The file keeps a 32-bit number widened to 64 bits; narrowing gives it back exactly.
        return pc.cast(pa.array(values, pa.float64()), kind, safe=False)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_binary(kind):
        return pa.array(values, kind)
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.array([None if v is None else _instant(str(v)) for v in values], kind)
    if pa.types.is_time(kind):
        return pa.array([None if v is None else _clock(str(v)) for v in values], kind)
    texts = pa.array([v if v is None or isinstance(v, str) else str(v) for v in values], pa.string())
    return texts if pa.types.is_string(kind) else pc.cast(texts, kind)


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array([None if v is None else str(v) for v in column.to_pylist()], pa.string())])


def _clock(text: str) -> dt.time:
    """A time of day; finer ones than Python has are refused, and so compared as text."""
    clock, _, fraction = text.partition(".")
    if fraction[6:].strip("0"):
        raise ValueError(f"{text} is finer than microseconds")
    return dt.time.fromisoformat(f"{clock}.{fraction[:6]:0<6}")


def _instant(text: str) -> dt.datetime:
    moment = dt.datetime.fromisoformat(text.replace(" +", "+").replace(" -", "-"))
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)


def _all_match(texts: pa.Array | pa.ChunkedArray, pattern: str) -> bool:
    present = texts.drop_null()
    return len(present) > 0 and bool(pc.all(pc.match_substring_regex(present, pattern)).as_py())


def _shortest(texts: Any) -> Any:
    """Zoned times without zeros at the end of the fraction: messages don't know how many digits a column has."""
    texts = pc.replace_substring_regex(texts, r"(\.\d*?)0+(Z|[+-]\d\d:\d\d)$", r"\1\2")
    return pc.replace_substring_regex(texts, r"\.(Z|[+-]\d\d:\d\d)$", r"\1")


def _zoned(text: str | None) -> str | None:
    """A source's zoned time in the mirror's spelling: that of ISO 8601, with Z for UTC."""
    if text is None:
        return None
    day, clock, offset = text.split(" ")
    return f"{day}T{clock}{'Z' if offset == '+00:00' else offset}"


def _shown(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _escaped(match: re.Match[str]) -> str:
    """How the lake spells a character that is not plain in a folder's name."""
    return "".join(f"~{byte:02x}" for byte in match[0].encode())


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `python -m headrace_emulators.demo.comparison SOURCE.sqlite LAKE`: 0 equal, 1 different, 2 not comparable."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if len(given) != 2:
        print("usage: python -m headrace_emulators.demo.comparison SOURCE.sqlite LAKE_FOLDER", file=sys.stderr)
        return 2
    try:
        comparison = compare(Path(given[0]), Path(given[1]))
    except FileNotFoundError as error:
        print(f"{error}", file=sys.stderr)
        return 2
    print(comparison)
    return 0 if comparison.equal else 1


if __name__ == "__main__":
    sys.exit(main())

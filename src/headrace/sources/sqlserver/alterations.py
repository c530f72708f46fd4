"""What alterations of a SQL Server table did to rows that were there: the statements of `cdc.ddl_history`, and the
structure before and after with the numbers of its columns. Pure; no database.

The server gives a column that is dropped and added again another number, and keeps the number of one that is renamed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from headrace.changes import Column
from headrace.sources.change_tables.captured_table import CapturedTable, NativeType
from headrace.sources.tables.rewrites import Rewrite

_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_NAME = r"(?:\[(?:[^\]]|\]\])*\]|\"[^\"]*\"|[\w@#$]+)"
_ALTER = re.compile(rf"\s*ALTER\s+TABLE\s+{_NAME}(?:\s*\.\s*{_NAME}){{0,2}}\s+(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
_HARMLESS = re.compile(
    r"(?:WITH\s+(?:NO)?CHECK\s+)?(?:ADD|DROP|CHECK|NOCHECK|ENABLE|DISABLE|REBUILD|SET)\b", re.IGNORECASE
)
"""What adds or drops columns shows in the structure; the rest of it concerns constraints, triggers and storage."""
_COLUMN = re.compile(rf"ALTER\s+COLUMN\s+(?P<name>{_NAME})\s+(?P<type>.+)", re.IGNORECASE | re.DOTALL)
_MARKED = re.compile(r"(?:ADD|DROP)\b", re.IGNORECASE)
"""ALTER COLUMN c ADD MASKED, DROP PERSISTED and the like change no value that is kept."""
_TYPE = re.compile(
    r"(?P<name>\w+)\s*(?:\(\s*(?P<sizes>max|\d+(?:\s*,\s*\d+)?)\s*\))?"
    r"(?:\s+COLLATE\s+(?P<collation>\w+))?(?:\s+(?:NOT\s+)?NULL)?(?:\s+WITH\s*\(.*\))?\s*;?\s*",
    re.IGNORECASE | re.DOTALL,
)
_SYNONYMS = {"integer": "int", "dec": "decimal", "rowversion": "timestamp"}
_SIZES = {
    "char": "1", "varchar": "1", "nchar": "1", "nvarchar": "1", "binary": "1", "varbinary": "1", "decimal": "18,0",
    "numeric": "18,0", "time": "7", "datetime2": "7", "datetimeoffset": "7",
}  # fmt: skip
"""What a type without sizes has."""
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_CODE_PAGES = frozenset(("char", "varchar", "text"))
"""Types whose characters depend on the collation."""
_FIXED = frozenset(("char", "nchar", "binary"))
"""Types whose values are filled up to their length."""


@dataclass(frozen=True)
class _Captured:
    column: Column
    native: NativeType
    number: int | None


def altered(
    before: CapturedTable, after: CapturedTable, statements: Iterable[str], has_values: Callable[[str], bool]
) -> tuple[tuple[str, ...], Rewrite | None]:
    """The names that columns had and none has now, and what happened to rows as far as it is not proven harmless.

    Args:
        before: the table as it was read.
        after: as it is read from now on.
        statements: what altered it in that time and concerns its change table.
        has_values: asks whether a column that may be NULL is not NULL in some row now.
    """
    old, new = _columns(before), _columns(after)
    reasons = [reason for statement in statements for reason in _said(statement, new)]
    constants: dict[str, str | None] = {}
    gone = set(before.dropped)
    numbers = {old_column.number: name for name, old_column in old.items() if old_column.number is not None}
    for name, now in new.items():
        was = old.get(name)
        other = was is not None and None not in (was.number, now.number) and was.number != now.number
        if was is not None and not other:
            if _converts(was.native, now.native):
                reasons.append(f"column '{name}' was {_shown(was.native)} and is {_shown(now.native)}")
            continue
        former = None if now.number is None else numbers.get(now.number)
        if former is not None and former not in new and name not in gone:
            # It was captured under another name all the time.
            continue
        column = now.column
        if column.default_expression is not None or column.identity or not column.nullable or has_values(name):
            reasons.append(f"column '{name}' is captured from now on, and rows from before have values in it")
        elif other or name in gone:
            # A mirror still holds what the former column of that name had.
            constants[name] = None
    dropped = tuple(sorted((gone | set(old)) - set(new)))
    if not reasons and not constants:
        return dropped, None
    changed = [f"column '{name}' is another one than before, and NULL" for name in constants]
    return dropped, Rewrite(
        after.id.path, " and ".join(dict.fromkeys(reasons or changed)), {} if reasons else constants
    )


def _columns(table: CapturedTable) -> dict[str, _Captured]:
    numbers = table.numbers or (None,) * len(table.natives)
    parts = zip(table.schema.columns, table.natives, numbers, strict=True)
    return {column.name: _Captured(column, native, number) for column, native, number in parts}


def _said(statement: str, columns: dict[str, _Captured]) -> Iterator[str]:
    """What a statement did to captured columns that the structure after it does not show."""
    match = _ALTER.match(_COMMENT.sub(" ", statement))
    rest = match["rest"] if match else ""
    altered_column = _COLUMN.match(rest)
    if altered_column is None:
        if not _HARMLESS.match(rest):
            yield f"it was altered by {' '.join(rest.split()[:1]).upper() or 'a statement that is not known'}"
        return
    name = _plain(altered_column["name"])
    column = next((column for known, column in columns.items() if known.lower() == name.lower()), None)
    if column is None or _MARKED.match(altered_column["type"]):
        return
    if not _declares(altered_column["type"], column.native):
        yield f"column '{column.column.name}' had another type in between"


def _plain(name: str) -> str:
    return name[1:-1].replace("]]", "]") if name[0] in '["' else name


def _declares(text: str, native: NativeType) -> bool:
    """Whether a declaration is that of the type that the column has now."""
    match = _TYPE.fullmatch(text.strip())
    if match is None:
        return False
    name = _SYNONYMS.get(match["name"].lower(), match["name"].lower())
    sizes = re.sub(r"\s", "", match["sizes"] or _SIZES.get(name, "")).lower()
    if name in ("decimal", "numeric") and "," not in sizes:
        sizes += ",0"
    wanted = f"{name}({sizes})" if sizes else name
    collation = getattr(native, "collation", "")
    return wanted == native.declaration and (match["collation"] or collation).lower() == collation.lower()


def _converts(was: NativeType, now: NativeType) -> bool:
    """Whether values of the one type may be others in the other."""
    if was == now:
        return False
    if was.name in _INTEGERS and now.name in _INTEGERS:
        return _INTEGERS.index(now.name) < _INTEGERS.index(was.name)
    if was.name != now.name or now.name in _FIXED:
        return True
    if now.name in _CODE_PAGES and getattr(was, "collation", "") != getattr(now, "collation", ""):
        return True
    a, b = was.logical, now.logical
    if (a.kind, b.kind) == ("decimal", "decimal"):
        whole = [(kind.precision or 0) - (kind.scale or 0) for kind in (a, b)]
        return whole[1] < whole[0] or (b.scale or 0) < (a.scale or 0)
    if a.kind in ("time", "timestamp", "zoned_timestamp"):
        return b.digits < a.digits
    return (now.length or 0) < (was.length or 0)


def _shown(native: NativeType) -> str:
    collation = getattr(native, "collation", "")
    return f"{native.declaration} {collation}" if collation else native.declaration

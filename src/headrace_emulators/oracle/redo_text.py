"""SQL_REDO as LogMiner prints it, made from row changes. Shares nothing with the parser that reads it.

Session settings (`NLS_TIMESTAMP_FORMAT` and others) decide how LogMiner prints times; here they are always those that
the source sets, and a session that mines without them is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headrace_emulators.oracle.types import NATIONAL, Declared, plain

INLINE_BYTES = 3964
"""A LOB of up to so many bytes is in the row, and so in the statement."""
PIECE = 1000
"""Characters or bytes of a LOB that one piece writes."""
Columns = Sequence[tuple[str, Declared]]


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


_NAME = re.compile(r"""'(?:[^']|'')*'|"([^"]*)"(\."[^"]*")?""")


def nameless(sql: str | None, object_id: int) -> str | None:
    """A statement as it is printed where the dictionary does not know the table's structure: numbers for names, and
    values in an inner form (which is not Oracle's here, since nobody may read it)."""
    if sql is None:
        return None
    columns: dict[str, int] = {}

    def shown(found: re.Match[str]) -> str:
        if found[0].startswith("'"):
            return f"HEXTORAW('{found[0][1:-1].encode().hex()}')"
        if found[2]:
            return f'"UNKNOWN"."OBJ# {object_id}"'
        return f'"COL {columns.setdefault(found[1], len(columns) + 1)}"'

    return _NAME.sub(shown, sql)


def out_of_row(kind: Declared, value: Any) -> bool:
    """Whether a value is written piece by piece after the statement."""
    if not kind.large or value is None:
        return False
    if kind.family == "XMLTYPE":
        return True
    return len(value if isinstance(value, bytes) else value.encode()) > INLINE_BYTES


def printed(kind: Declared, value: Any) -> str:
    if value is None:
        return "NULL"
    family = kind.family
    if out_of_row(kind, value):
        return "EMPTY_BLOB()" if family == "BLOB" else "NULL" if family == "XMLTYPE" else "EMPTY_CLOB()"
    if family in ("NUMBER", "FLOAT"):
        return f"'{plain(value)}'"
    if family in ("BINARY_FLOAT", "BINARY_DOUBLE"):
        return f"'{_floating(value, 9 if family == 'BINARY_FLOAT' else 17)}'"
    if family in ("RAW", "BLOB"):
        return f"HEXTORAW('{value.hex().upper()}')"
    if family == "DATE":
        return f"TO_DATE('{value}', 'YYYY-MM-DD HH24:MI:SS')"
    if family.startswith("TIMESTAMP"):
        if "LOCAL" in family:
            return f"TO_TIMESTAMP_TZ('{value} +00:00')"
        return f"TO_TIMESTAMP_TZ('{value}')" if "ZONE" in family else f"TO_TIMESTAMP('{value}')"
    if family.startswith("INTERVAL"):
        return f"TO_{'YM' if 'YEAR' in family else 'DS'}INTERVAL('{value}')"
    if family in NATIONAL and not value.isascii():
        return _unistr(value)
    return quoted(value)


def insert(table: str, columns: Columns, row: Mapping[str, Any]) -> str:
    names = ",".join(f'"{name}"' for name, _ in columns)
    values = ",".join(printed(kind, row[name]) for name, kind in columns)
    return f"insert into {table}({names}) values ({values});"


def update(table: str, columns: Columns, before: Mapping[str, Any], changed: Mapping[str, Any], rowid: str) -> str:
    """An update of some columns; the conditions name what supplemental logging gives."""
    kinds = dict(columns)
    sets = ", ".join(f'"{name}" = {printed(kinds[name], value)}' for name, value in changed.items())
    return f"update {table} set {sets} where {_conditions(columns, before, rowid)};"


def delete(table: str, columns: Columns, before: Mapping[str, Any], rowid: str) -> str:
    return f"delete from {table} where {_conditions(columns, before, rowid)};"


def pieces(
    table: str, columns: Columns, row: Mapping[str, Any], key: Sequence[str], name: str
) -> Iterator[tuple[int, str]]:
    """The operation codes and statements that write one large value of a row."""
    kind, value = dict(columns)[name], row[name]
    keyed = [(n, k) for n, k in columns if n in key] or [(n, k) for n, k in columns if not k.large]
    where = _conditions(keyed, row, "")
    if kind.family == "XMLTYPE":
        yield 68, f'XML DOC BEGIN:  select "{name}" from {table} where {where}'
        data = value.encode()
        for start in range(0, len(data), PIECE):
            part = data[start : start + PIECE]
            yield 70, f"XML_REDO := HEXTORAW('{part.hex().upper()}'):{len(part)}"
        yield 71, "XML DOC END"
        return
    letter = "b" if kind.family == "BLOB" else "c"
    yield (
        9,
        (
            "DECLARE \n loc_c CLOB; \n buf_c VARCHAR2(6156); \n loc_b BLOB; \n buf_b RAW(6156); \n loc_nc NCLOB; \n "
            f'buf_nc NVARCHAR2(6156); \nBEGIN\n select "{name}" into loc_{letter} from {table} '
            f"where {where} for update;\n"
        ),
    )
    for start in range(0, len(value), PIECE):
        part = value[start : start + PIECE]
        shown = f"HEXTORAW('{part.hex().upper()}')" if isinstance(part, bytes) else quoted(part)
        write = f"dbms_lob.write(loc_{letter}, {len(part)}, {start + 1}, buf_{letter})"
        yield 10, f" buf_{letter} := {shown}; \n {write};\n"


def _conditions(columns: Columns, row: Mapping[str, Any], rowid: str) -> str:
    found = []
    for name, kind in columns:
        if kind.large or name not in row:
            continue
        value = row[name]
        found.append(f'"{name}" IS NULL' if value is None else f'"{name}" = {printed(kind, value)}')
    return " and ".join(found) if found else f"ROWID = '{rowid}'"


def _unistr(text: str) -> str:
    units = text.encode("utf-16-be", "surrogatepass")
    shown = []
    for place in range(0, len(units), 2):
        unit = int.from_bytes(units[place : place + 2], "big")
        letter = chr(unit)
        if letter == "\\":
            shown.append("\\\\")
        elif letter == "'":
            shown.append("''")
        else:
            shown.append(letter if 32 <= unit < 127 else f"\\{unit:04X}")
    return "UNISTR('" + "".join(shown) + "')"


def _floating(value: float, digits: int) -> str:
    if math.isnan(value):
        return "Nan"
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    mantissa, exponent = f"{value:.{digits - 1}E}".split("E")
    return f"{mantissa}E{exponent[0]}{int(exponent[1:]):03}"

"""CREATE, ALTER, DROP and TRUNCATE TABLE, as far as demos and tests need them."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass

from headrace_emulators.oracle.catalog import Table, find_table
from headrace_emulators.oracle.errors import DatabaseError, NotSupportedError
from headrace_emulators.oracle.types import Declared, declared

_NAME = r'(?:"[^"]+"|[A-Za-z][\w$#]*)'
_TABLE = rf"(?:(?P<owner>{_NAME})\s*\.\s*)?(?P<name>{_NAME})"
_CREATE = re.compile(rf"CREATE\s+TABLE\s+{_TABLE}\s*\((?P<body>.*)\)\s*", re.IGNORECASE | re.DOTALL)
_ALTER = re.compile(rf"ALTER\s+TABLE\s+{_TABLE}\s+(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
_DROP = re.compile(rf"DROP\s+TABLE\s+{_TABLE}(?:\s+PURGE)?\s*", re.IGNORECASE)
_TRUNCATE = re.compile(rf"TRUNCATE\s+TABLE\s+{_TABLE}\s*", re.IGNORECASE)
_SUPPLEMENTAL = re.compile(r"(ADD|DROP)\s+SUPPLEMENTAL\s+LOG\s+DATA\s*\(\s*ALL\s*\)\s*COLUMNS\s*", re.IGNORECASE)
_ADD = re.compile(r"ADD\s*(?:\((?P<within>.*)\)|(?P<plain>[^(].*))\s*", re.IGNORECASE | re.DOTALL)
_DROP_COLUMN = re.compile(
    rf"(?:DROP|SET\s+UNUSED)\s+(?:COLUMN\s+(?P<one>{_NAME})|\(\s*(?P<other>{_NAME})\s*\))\s*", re.IGNORECASE
)
_MODIFY = re.compile(
    rf"MODIFY\s*\(?\s*(?P<column>{_NAME})\s+(?P<type>[A-Z]\w*(?:\s*\([^)]*\))?)\s*\)?\s*", re.IGNORECASE
)
_PARTITION = re.compile(rf"(?:DROP|TRUNCATE)\s+PARTITION\s+(?P<partition>{_NAME})\s*", re.IGNORECASE)
_RENAME = re.compile(rf"RENAME\s+COLUMN\s+(?P<old>{_NAME})\s+TO\s+(?P<new>{_NAME})\s*", re.IGNORECASE)
_KEY = re.compile(
    rf"(?:CONSTRAINT\s+(?P<named>{_NAME})\s+)?(?P<kind>PRIMARY\s+KEY|UNIQUE)\s*\((?P<columns>(?:\"[^\"]*\"|[^)\"])*)\)\s*",
    re.IGNORECASE,
)
_COLUMN = re.compile(rf"(?P<name>{_NAME})\s+(?P<type>.+)", re.DOTALL)
_VIRTUAL = re.compile(
    r"\s+(?:GENERATED\s+ALWAYS\s+)?AS\s*\((?P<expression>.*)\)(?:\s+VIRTUAL)?\s*", re.IGNORECASE | re.DOTALL
)
_CONSTRAINTS = (
    ("identity", re.compile(r"\s+GENERATED\b.*?\bAS\s+IDENTITY(?:\s*\([^)]*\))?", re.IGNORECASE)),
    ("primary", re.compile(r"\s+PRIMARY\s+KEY", re.IGNORECASE)),
    ("unique", re.compile(r"\s+UNIQUE", re.IGNORECASE)),
    ("not null", re.compile(r"\s+NOT\s+NULL", re.IGNORECASE)),
    ("null", re.compile(r"\s+NULL", re.IGNORECASE)),
    ("default", re.compile(r"\s+DEFAULT\s+(?P<value>'(?:[^']|'')*'|[-+.\w]+)", re.IGNORECASE)),
)


@dataclass(frozen=True)
class Change:
    """What a definition did.

    Args:
        owner: the schema.
        name: the table.
        table: the table as it is now; None when it is gone.
        emptied: the table, where its rows are to go.
        partition: the condition that these rows meet.
    """

    owner: str
    name: str
    table: Table | None
    emptied: Table | None = None
    partition: str = "1 = 1"


def apply(connection: sqlite3.Connection, user: str, sql: str, scn: int) -> Change:
    """Carry a definition out.

    Raises:
        DatabaseError: as a server would answer.
    """
    for pattern, action in (
        (_CREATE, _create),
        (_ALTER, _alter),
        (_DROP, _drop),
        (_TRUNCATE, _truncate),
    ):
        found = pattern.fullmatch(sql)
        if found:
            return action(connection, _folded(found["owner"]) or user, _folded(found["name"]), found, scn)
    raise NotSupportedError(" ".join(sql.split()[:3]))


def _folded(name: str | None) -> str:
    if not name:
        return ""
    return name[1:-1] if name.startswith('"') else name.upper()


def _create(connection: sqlite3.Connection, owner: str, name: str, found: re.Match[str], scn: int) -> Change:
    execute = connection.execute
    if execute('SELECT 1 FROM "sys.objects" WHERE owner = ? AND name = ?', (owner, name)).fetchone():
        raise DatabaseError(955, "name is already used by an existing object")
    number = int(execute("SELECT value FROM \"sys.facts\" WHERE name = 'objects'").fetchone()[0]) + 1
    execute("UPDATE \"sys.facts\" SET value = ? WHERE name = 'objects'", (number,))
    execute("INSERT INTO \"sys.objects\" VALUES (?, ?, ?, ?, 1, 'TABLE', 0, ?)", (number, owner, name, scn, scn))
    execute(
        f'CREATE TABLE "data.{number}" (_id INTEGER PRIMARY KEY, _row INTEGER, _from_scn INTEGER, _from_xid BLOB,'
        " _to_scn INTEGER, _to_xid BLOB)"
    )
    place = 0
    for part in _parts(found["body"]):
        key = _KEY.fullmatch(part)
        if key:
            kind = "P" if key["kind"].upper().startswith("P") else "U"
            columns = [_folded(column.strip()) for column in _parts(key["columns"])]
            _add_key(connection, number, _folded(key["named"]) or f"SYS_C{number}{kind}", kind, columns)
        else:
            place += 1
            _add_column(connection, number, place, part)
    execute(f'CREATE INDEX "data.{number}.row" ON "data.{number}" (_row)')
    for edge in ("from", "to"):
        execute(f'CREATE INDEX "data.{number}.{edge}" ON "data.{number}" (_{edge}_xid) WHERE _{edge}_xid IS NOT NULL')
    table = find_table(connection, owner, name)
    for place, unique in enumerate(table.keys):
        execute(f'CREATE INDEX "data.{number}.key{place}" ON "data.{number}" ({", ".join(map(_quoted, unique))})')
    return Change(owner, name, table)


def _add_column(connection: sqlite3.Connection, number: int, place: int, text: str) -> None:
    match = _COLUMN.fullmatch(text.strip())
    if match is None:
        raise NotSupportedError(f"column {text}")
    name, rest = _folded(match["name"]), match["type"]
    computed = _VIRTUAL.search(rest)
    rest = rest[: computed.start()] if computed else rest
    found: dict[str, str] = {}
    for word, pattern in _CONSTRAINTS:
        while hit := pattern.search(rest):
            found[word] = (hit.groupdict().get("value") or "") if word == "default" else word
            rest = rest[: hit.start()] + rest[hit.end() :]
    kind: Declared = declared(rest.replace(" ON NULL", ""))
    nullable = not ({"not null", "primary", "identity"} & set(found))
    connection.execute(
        'INSERT INTO "sys.columns" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)',
        (number, place, name, kind.name, kind.length, kind.precision, kind.scale, nullable, found.get("default"),
         "identity" in found, computed is not None),
    )  # fmt: skip
    formula = f" GENERATED ALWAYS AS ({computed['expression']}) VIRTUAL" if computed else ""
    connection.execute(f'ALTER TABLE "data.{number}" ADD COLUMN {_quoted(name)} {kind.storage}{formula}')
    if "default" in found:
        (value,) = connection.execute(f"SELECT {found['default']}").fetchone()
        connection.execute(f'UPDATE "data.{number}" SET {_quoted(name)} = ?', (kind.kept(value),))
    for word, letter in (("primary", "P"), ("unique", "U")):
        if word in found:
            _add_key(connection, number, f"SYS_C{number}{letter}{place}", letter, [name])


def _add_key(connection: sqlite3.Connection, number: int, name: str, kind: str, columns: list[str]) -> None:
    for ordinal, column in enumerate(columns, 1):
        connection.execute('INSERT INTO "sys.keys" VALUES (?, ?, ?, ?, ?)', (number, name, kind, ordinal, column))
        if kind == "P":
            connection.execute(
                'UPDATE "sys.columns" SET nullable = 0 WHERE object_id = ? AND name = ?', (number, column)
            )


def _alter(connection: sqlite3.Connection, owner: str, name: str, found: re.Match[str], scn: int) -> Change:
    table, rest, execute = find_table(connection, owner, name), found["rest"].strip(), connection.execute
    if hit := _SUPPLEMENTAL.fullmatch(rest):
        execute('UPDATE "sys.objects" SET all_columns = ? WHERE object_id = ?', (hit[1].upper() == "ADD", table.number))
        return Change(owner, name, table)
    if rest.upper() in ("LOGGING", "NOLOGGING"):
        fact = f"nologging.{table.number}"
        execute('DELETE FROM "sys.facts" WHERE name = ?', (fact,))
        if rest.upper() == "NOLOGGING":
            execute('INSERT INTO "sys.facts" VALUES (?, ?)', (fact, "YES"))
        return Change(owner, name, table)
    if hit := _RENAME.fullmatch(rest):
        old, new = _folded(hit["old"]), _folded(hit["new"])
        _require_column(table, old)
        execute('UPDATE "sys.columns" SET name = ? WHERE object_id = ? AND name = ?', (new, table.number, old))
        execute(
            'UPDATE "sys.keys" SET column_name = ? WHERE object_id = ? AND column_name = ?', (new, table.number, old)
        )
        execute(f'ALTER TABLE "data.{table.number}" RENAME COLUMN {_quoted(old)} TO {_quoted(new)}')
    elif hit := _DROP_COLUMN.fullmatch(rest):
        old = _folded(hit["one"] or hit["other"])
        _require_column(table, old)
        if any(old in key for key in table.keys):
            raise DatabaseError(12992, "cannot drop parent key column")
        execute('DELETE FROM "sys.columns" WHERE object_id = ? AND name = ?', (table.number, old))
        execute(f'ALTER TABLE "data.{table.number}" DROP COLUMN {_quoted(old)}')
    elif hit := _PARTITION.fullmatch(rest):
        fact = f"partition.{table.number}.{_folded(hit['partition'])}"
        row = execute('SELECT value FROM "sys.facts" WHERE name = ?', (fact,)).fetchone()
        if row is None:
            raise DatabaseError(2149, "Specified partition does not exist")
        return Change(owner, name, table, emptied=table, partition=str(row[0]))
    elif hit := _MODIFY.fullmatch(rest):
        column, kind = _folded(hit["column"]), declared(hit["type"])
        _require_column(table, column)
        _convert(connection, table, column, kind)
    elif hit := _ADD.fullmatch(rest):
        for part in _parts(hit["within"] or hit["plain"]):
            place = execute('SELECT max(column_id) FROM "sys.columns" WHERE object_id = ?', (table.number,)).fetchone()
            _add_column(connection, table.number, int(place[0]) + 1, part)
    else:
        raise NotSupportedError(f"ALTER TABLE {rest}")
    execute('UPDATE "sys.objects" SET version = version + 1, changed_scn = ? WHERE object_id = ?', (scn, table.number))
    return Change(owner, name, find_table(connection, owner, name))


def _convert(connection: sqlite3.Connection, table: Table, name: str, kind: Declared) -> None:
    """Give a column another type, with its values."""
    if dict(table.columns)[name].storage != kind.storage:
        raise NotSupportedError(f"MODIFY to {kind.name} of a type that is kept otherwise")
    data, column = f'"data.{table.number}"', _quoted(name)
    for id, value in connection.execute(f"SELECT _id, {column} FROM {data}").fetchall():
        connection.execute(f"UPDATE {data} SET {column} = ? WHERE _id = ?", (kind.kept(value), id))
    connection.execute(
        'UPDATE "sys.columns" SET type = ?, length = ?, precision = ?, scale = ? WHERE object_id = ? AND name = ?',
        (kind.name, kind.length, kind.precision, kind.scale, table.number, name),
    )


def _require_column(table: Table, name: str) -> None:
    if name not in dict(table.columns):
        raise DatabaseError(904, f'"{name}": invalid identifier')


def _drop(connection: sqlite3.Connection, owner: str, name: str, found: re.Match[str], scn: int) -> Change:
    table = find_table(connection, owner, name)
    for catalog in ("objects", "columns", "keys"):
        connection.execute(f'DELETE FROM "sys.{catalog}" WHERE object_id = ?', (table.number,))
    connection.execute(f'DROP TABLE "data.{table.number}"')
    return Change(owner, name, None)


def _truncate(connection: sqlite3.Connection, owner: str, name: str, found: re.Match[str], scn: int) -> Change:
    table = find_table(connection, owner, name)
    connection.execute('UPDATE "sys.objects" SET changed_scn = ? WHERE object_id = ?', (scn, table.number))
    return Change(owner, name, table, emptied=table)


def _quoted(name: str) -> str:
    return f'"{name}"'


def _parts(body: str) -> list[str]:
    """The body of CREATE TABLE, cut at its commas."""
    parts, depth, quote, start = [], 0, "", 0
    for place, letter in enumerate(body):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "()":
            depth += 1 if letter == "(" else -1
        elif letter == "," and depth == 0:
            parts.append(body[start:place].strip())
            start = place + 1
    parts.append(body[start:].strip())
    return parts

"""The database of a drawn pipeline: an emulated server and a plain model of it, written by the same statements."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.search.drawn import AdHoc, Alter, Change, Clean, Commit, Off, On, Pipeline, Step, Table, Value
from tests.support.captured_shop import Db2Database, Db2WithImages, OracleDatabase, SqlServerDatabase

from headrace.testing.captured_database import CapturedDatabase

SERVERS: dict[str, type[CapturedDatabase]] = {
    "sqlserver": SqlServerDatabase,
    "db2": Db2Database,
    "db2-images": Db2WithImages,
    "oracle": OracleDatabase,
}
SIGNALS = "SIGNALS"
ADDED = "ADDED_"
"""How columns begin that came later; nothing is held against them."""
SALT = "Pepper"
LONG = {"sqlserver": "nvarchar(2000)", "db2": "VARCHAR(2000)", "oracle": "VARCHAR2(2000)"}
TYPES = {
    "sqlserver": {"int": "int", "text": "nvarchar(80)", "number": "decimal(9,2)"},
    "db2": {"int": "INTEGER", "text": "VARCHAR(320)", "number": "DECIMAL(9,2)"},
    "oracle": {"int": "NUMBER(10)", "text": "VARCHAR2(320)", "number": "NUMBER(9,2)"},
}
Row = tuple[Value, ...]
Event = tuple[Row | None, Row | None]
"""A row before and after a change."""
Image = tuple[tuple[str, str | None], ...]
"""A row as a sink sees it: columns with their texts."""


class IntegrityError(Exception):
    """A server would refuse it."""


class Database:
    """An emulated server and what it should hold.

    Attributes:
        rows: of each table, in no order.
        commits: the changes of each transaction by table; none of what was there before capture began.
        refused: how many transactions the server refused.
        off: tables that are not captured now.
        broken: tables some of whose changes were not captured.
        cleaned: whether captured changes were forgotten.
    """

    def __init__(self, pipeline: Pipeline, folder: Path) -> None:
        self.pipeline = pipeline
        self.server = SERVERS[pipeline.server](folder)
        self.schema = self.server.schema
        self.rows: list[list[Row]] = [[] for _ in pipeline.tables]
        self.commits: list[dict[int, list[Event]]] = []
        self.refused = 0
        self.signals = 0
        self.off: set[int] = set()
        self.broken: set[int] = set()
        self.cleaned = False
        self._instances = 1
        self._instances_of: dict[str, str] = {}
        self._superseded: list[tuple[str, str]] = []
        self._unseen: set[int] = set()
        self._added = 0
        self._kinds = TYPES[self.server.source]
        if self.server.source == "sqlserver":
            self.execute(f"ALTER DATABASE {self.quoted('shop')} SET ALLOW_SNAPSHOT_ISOLATION ON")
        for number, table in enumerate(pipeline.tables):
            self._create(number, table)
        if self.has_signals:
            text, long = self._kinds["text"], LONG[self.server.source]
            columns = f"ID {text} NOT NULL PRIMARY KEY, KIND {text}, DATA {long}"
            self.execute(f"CREATE TABLE {self.path(SIGNALS)} ({columns})")
            self._enable(SIGNALS)
        self.server.capture()

    @property
    def has_signals(self) -> bool:
        return any(isinstance(step, AdHoc) for step in self.pipeline.steps)

    def close(self) -> None:
        self.server.emulated.close()  # type: ignore[attr-defined]

    def quoted(self, name: str) -> str:
        if self.server.source == "sqlserver":
            return f"[{name.replace(']', ']]')}]"
        return '"' + name.replace('"', '""') + '"'

    def path(self, table: str) -> str:
        return f"{self.quoted(self.schema)}.{self.quoted(table)}"

    def execute(self, sql: str, values: Sequence[Value] = ()) -> None:
        with self._transaction() as run:
            run(sql, values)

    def capture(self) -> None:
        self.server.capture()

    def look(self) -> None:
        """The pipeline has planned a batch that knows each table's newest instance, and has done it."""
        self._unseen.clear()

    def pass_time(self) -> None:
        """What an idle capture program writes, so that who waits for it sees that it is awake."""
        self.server.capture()
        if self.server.source == "sqlserver":
            self.server.emulated.mark_idle()  # type: ignore[attr-defined]

    def happen(self, step: Step) -> None:
        """What is no change of rows."""
        if isinstance(step, Clean):
            self.server.capture()
            self.server.clean()
            self.cleaned = True
        elif isinstance(step, Off) and step.table not in self.off:
            self.server.capture()
            self._disable(self.pipeline.tables[step.table].name)
            self.off.add(step.table)
            self.broken.add(step.table)
        elif isinstance(step, On) and step.table in self.off:
            self._enable(self.pipeline.tables[step.table].name)
            self.off.discard(step.table)
        elif isinstance(step, Alter) and step.table not in self.off:
            self._alter(step.table)

    def is_even(self, number: int, row: Row) -> bool:
        """Whether a filter lets a row through."""
        return int(row[self.pipeline.tables[number].place("v")] or 0) % 2 == 0

    def commit(self, commit: Commit) -> None:
        """One transaction on the server and, unless it is refused, in the model."""
        rows = [list(held) for held in self.rows]
        events: dict[int, list[Event]] = {}
        try:
            with self._transaction() as run:
                for change in commit.changes:
                    found = self._run(run, rows, change)
                    if found:
                        events.setdefault(change.table, []).extend(found)
                    self._require_unique(change.table, rows[change.table])
        except Exception as error:
            if not _is_refusal(error):
                raise
            self.refused += 1
            return
        self.rows = rows
        if events:
            self.commits.append(events)

    def signal(self, asked: AdHoc) -> None:
        """Ask for tables again."""
        self.signals += 1
        # Names in signals are regular expressions unless one names the table as it stands.
        tables = [f"{self.schema}.{self.pipeline.tables[number].name}" for number in asked.tables]
        data = json.dumps({"data-collections": tables, "type": asked.kind})
        self.execute(
            f"INSERT INTO {self.path(SIGNALS)} VALUES (?, ?, ?)", (f"s{self.signals}", "execute-snapshot", data)
        )

    def image(self, number: int, row: Row) -> Image:
        """A row as the options let it out."""
        table = self.pipeline.tables[number]
        what = {place: done for table_number, place, done in self.pipeline.column_options if table_number == number}
        found = []
        for place, (column, value) in enumerate(zip(table.columns, row, strict=True)):
            text = None if value is None or (value == "" and self.server.source == "oracle") else str(value)
            done = what.get(place, "")
            if done == "left out":
                continue
            if text is not None and done:
                text = {
                    "masked": "***",
                    "cut": text[:2],
                    "hashed": hashlib.sha256((SALT + text).encode()).hexdigest(),
                }[done]
            found.append((column.name, text))
        return tuple(sorted(found))

    def _run(self, run: Any, rows: list[list[Row]], change: Change) -> list[Event]:
        table, held = self.pipeline.tables[change.table], rows[change.table]
        path, n = self.path(table.name), table.place("n")
        where = f"WHERE {self.quoted(table.columns[n].name)} >= ? AND {self.quoted(table.columns[n].name)} <= ?"
        span = (change.low, change.high)
        if change.kind == "insert":
            names = ", ".join(self.quoted(column.name) for column in table.columns)
            run(f"INSERT INTO {path} ({names}) VALUES ({', '.join('?' * len(change.row))})", change.row)
            held.append(change.row)
            return [(None, change.row)]
        met = [row for row in held if change.low <= int(row[n] or 0) <= change.high]
        if change.kind == "delete":
            run(f"DELETE FROM {path} {where}", span)
            rows[change.table] = [row for row in held if row not in met]
            return [(row, None) for row in met]
        if change.kind == "shift":
            key = next(i for i, column in enumerate(table.columns) if column.role == "key")
            name = self.quoted(table.columns[key].name)
            run(f"UPDATE {path} SET {name} = {name} + {change.by} {where}", span)
            new = {i: _shifted(row, key, change.by) for i, row in enumerate(held) if row in met}
        else:
            sets = ", ".join(f"{self.quoted(table.columns[place].name)} = ?" for place, _ in change.values)
            run(f"UPDATE {path} SET {sets} {where}", (*(value for _, value in change.values), *span))
            values = dict(change.values)
            new = {
                i: tuple(values.get(place, value) for place, value in enumerate(row))
                for i, row in enumerate(held)
                if row in met
            }
        events: list[Event] = [(held[i], row) for i, row in new.items()]
        for i, row in new.items():
            held[i] = row
        return events

    def _require_unique(self, number: int, rows: list[Row]) -> None:
        """Servers take one NULL for another in a unique index; the emulated ones, on SQLite, do not."""
        table = self.pipeline.tables[number]
        places = [i for i, column in enumerate(table.columns) if column.role == "key"]
        keys = [tuple(row[i] for i in places) for row in rows]
        open_keys = [key for key in keys if None in key]
        if table.key == "unique" and len(set(open_keys)) < len(open_keys):
            raise IntegrityError("a key with NULL is taken")

    def _create(self, number: int, table: Table) -> None:
        key = table.key_columns
        never = key if table.key == "primary" else ()
        columns = [
            f"{self.quoted(c.name)} {self._kinds[c.kind]}{' NOT NULL' if c.name in never else ''}"
            for c in table.columns
        ]
        names = ", ".join(self.quoted(name) for name in key)
        if table.key == "primary":
            columns.append(f"PRIMARY KEY ({names})")
        if table.key == "unique" and self.server.source == "oracle":
            # Of which the source takes none whose columns take NULL.
            columns.append(f"UNIQUE ({names})")
        self.execute(f"CREATE TABLE {self.path(table.name)} ({', '.join(columns)})")
        if table.key == "unique" and self.server.source != "oracle":
            self.execute(f"CREATE UNIQUE INDEX {self.quoted(f'IX{number}')} ON {self.path(table.name)} ({names})")
        for row in table.rows:
            self.commit(Commit((Change(number, "insert", row=row),)))
        self.commits.clear()
        self._enable(table.name)

    def _alter(self, number: int) -> None:
        name = self.pipeline.tables[number].name
        self._added += 1
        add = f"ALTER TABLE {self.path(name)} ADD {self.quoted(f'{ADDED}{self._added}')} {self._kinds['int']}"
        if self.server.source == "oracle":
            self.execute(add)
            return
        self.server.capture()
        if self.server.source == "db2":
            self._disable(name)
            self.execute(add)
            self._enable(name)
            self.broken.add(number)
            return
        # The second instance is made at once, and the first goes when a third is made.
        if number in self._unseen:
            self.broken.add(number)
        self._unseen.add(number)
        old = self._instances_of.get(name, f"dbo_{name}")
        self.execute(add)
        self._instances += 1
        self._enable(name, instance=f"i{self._instances}")
        self._superseded.append((name, old))

    def _disable(self, name: str) -> None:
        if self.server.source == "sqlserver":
            for table, old in [*self._superseded, (name, self._instances_of.get(name, f"dbo_{name}"))]:
                if table == name:
                    self.execute(
                        f"EXEC sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = {_literal(name)}, "
                        f"@capture_instance = {_literal(old)}"
                    )
            self._superseded = [pair for pair in self._superseded if pair[0] != name]
        elif self.server.source == "db2":
            self.server.emulated.deregister(self.schema, name)  # type: ignore[attr-defined]
        else:
            self.execute(f"ALTER TABLE {self.path(name)} DROP SUPPLEMENTAL LOG DATA (ALL) COLUMNS")

    def _enable(self, name: str, instance: str = "") -> None:
        if self.server.source == "sqlserver":
            for table, old in self._superseded:
                if table == name:
                    # A table has two instances at the most.
                    self.execute(
                        f"EXEC sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = {_literal(name)}, "
                        f"@capture_instance = {_literal(old)}"
                    )
            self._superseded = [pair for pair in self._superseded if pair[0] != name]
            self._instances_of[name] = instance or f"dbo_{name}"
            self.execute(
                f"EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = {_literal(name)}, "
                f"@role_name = NULL, @capture_instance = {_literal(self._instances_of[name])}"
            )
        elif self.server.source == "db2":
            split = {} if self.pipeline.server == "db2" else {"split_updates": False, "before_prefix": "X"}
            self.server.emulated.register(self.schema, name, **split)  # type: ignore[attr-defined]
        else:
            self.execute(f"ALTER TABLE {self.path(name)} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS")

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        if self.server.source != "oracle":
            with self.server.transaction() as cursor:
                yield cursor.execute
            return
        with self.server.emulated.connect() as connection:  # type: ignore[attr-defined]

            def run(sql: str, values: Sequence[Value] = ()) -> None:
                connection.execute(_named(sql), **{f"p{i}": value for i, value in enumerate(values)})

            yield run
            connection.commit()


def _literal(text: str) -> str:
    return "N'" + text.replace("'", "''") + "'"


def _named(sql: str) -> str:
    """The statement with named parameters; a question mark inside of a quoted name is none."""
    parts = sql.split('"')
    count = 0
    for i in range(0, len(parts), 2):
        while "?" in parts[i]:
            parts[i] = parts[i].replace("?", f":p{count}", 1)
            count += 1
    return '"'.join(parts)


def _shifted(row: Row, key: int, by: int) -> Row:
    value = row[key]
    return (*row[:key], value if value is None else int(value) + by, *row[key + 1 :])


def _is_refusal(error: Exception) -> bool:
    """Whether a server refuses a change for what it does to a key, or for a value that does not fit."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & {"IntegrityError", "DataError"}) or "overflow" in str(error) or "larger than" in str(error)

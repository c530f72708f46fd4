"""One connection's work: statements in, results out, transactions, and the log of what they change."""

from __future__ import annotations

import datetime as dt
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace_emulators.db2 import types
from headrace_emulators.db2.catalog import Catalog, Column
from headrace_emulators.db2.definitions import Definitions
from headrace_emulators.db2.errors import (
    Error,
    IntegrityError,
    ProgrammingError,
    busy,
    duplicate,
    not_emulated,
    null_refused,
)
from headrace_emulators.db2.log import TransactionLog
from headrace_emulators.db2.registrations import Registrations
from headrace_emulators.db2.syntax import Reader, keeps_locks
from headrace_emulators.db2.translation import Output, Translation, Translator
from headrace_emulators.engine import database_files as files

QUERY_LOG = "HEADRACE_EMULATOR_QUERY_LOG"
"""The environment variable that names a file to which each executed statement is appended, one per line."""
Clock = Callable[[], dt.datetime]
_BUSY_SECONDS = 60.0
_ISOLATIONS = ("UR", "CS", "RS", "RR", "RESET")
_FORMAT = re.compile(r"YYYY|MM|DD|HH24|MI|SS|FF\d*")


def utc_now() -> dt.datetime:
    """The server's clock, which runs in UTC."""
    return dt.datetime.now(dt.UTC).replace(tzinfo=None)


@dataclass
class Result:
    """What a statement gave.

    Args:
        columns: names and types; empty when it is no query.
        rows: stored values, read as they are asked for.
        rowcount: rows changed, -1 for a query.
    """

    columns: tuple[Output, ...]
    rows: Iterator[tuple[Any, ...]]
    rowcount: int = -1


class Session:
    """A connection to one database file.

    Args:
        path: the SQLite file.
        user: the login; names without a schema are in its schema.
        clock: gives transaction times, naive and in UTC.
    """

    def __init__(self, path: Path, *, user: str = "DB2INST1", clock: Clock = utc_now) -> None:
        self.path = path
        self.database = files.name_of(path)
        self.user = user
        self.schema = user.upper()
        self.clock = clock
        self.autocommit = True
        self.sqlite = sqlite3.connect(
            path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        self.sqlite.execute("PRAGMA synchronous = OFF")
        self.sqlite.execute("PRAGMA recursive_triggers = OFF")
        self.sqlite.create_collation("db2_text", types.compare_texts)
        self.sqlite.create_collation("db2_number", types.compare_numbers)
        self.catalog = Catalog(self.sqlite)
        self.log = TransactionLog(self.sqlite, self.now)
        self.definitions = Definitions(self.sqlite, self.catalog, self.now)
        self.registrations = Registrations(self)
        self._failure: Error | None = None
        self._translations: dict[str, Translation] = {}
        self._register_functions()

    # The clock.

    def now(self) -> str:
        """The time as stored text of a TIMESTAMP, as the database's own clock shows it."""
        local = self.clock() + dt.timedelta(minutes=self.zone_minutes)
        return f"{local:%Y-%m-%d %H:%M:%S.%f}"

    @property
    def zone_minutes(self) -> int:
        """How far the server's clock is ahead of UTC."""
        return int(self.state("zone", "0"))

    # What the emulator remembers.

    def state(self, name: str, default: str = "") -> str:
        """One remembered value."""
        row = self.sqlite.execute('SELECT value FROM "emulator.state" WHERE name = ?', (name,)).fetchone()
        return default if row is None else str(row[0])

    def set_state(self, name: str, value: str) -> None:
        """Remember a value."""
        with self.writing():
            self.sqlite.execute('INSERT OR REPLACE INTO "emulator.state" VALUES (?, ?)', (name, value))

    # Statements.

    def execute(self, text: str, parameters: Sequence[object] = ()) -> Result:
        """Run one statement.

        Raises:
            Error: as a server would answer.
        """
        _record(text)
        reader = Reader(text)
        first, second = reader.word(), reader.word(1)
        values = [types.bound(p) for p in parameters]
        if first in ("SELECT", "(", "INSERT", "UPDATE", "DELETE"):
            return self._translated(text, values)
        if first in ("CREATE", "ALTER", "DROP"):
            with self.writing():
                self.definitions.run(reader, self.schema)
                self.registrations.follow()
        elif first == "CALL":
            with self.writing():
                self.registrations.call(reader)
        elif first == "VALUES":
            with self.writing():
                answer = self.registrations.service(reader)
            return Result((("1", types.parse_type("VARCHAR(1000)")),), iter([(answer,)]))
        elif (first, second) == ("LOCK", "TABLE"):
            self._lock(reader)
        elif first == "SET":
            self._set(reader)
        elif first in ("COMMIT", "ROLLBACK"):
            self.commit() if first == "COMMIT" else self.rollback()
        else:
            raise not_emulated(f"the statement {first} {second}")
        return Result((), iter(()), -1)

    def _translated(self, text: str, values: list[object]) -> Result:
        if self.catalog.refresh():
            self._translations.clear()
        found = self._translations.get(text)
        if found is None:
            found = self._translations[text] = Translator(self.catalog.find, self.schema).translate(text)
        if len(values) != len(found.parameters):
            raise ProgrammingError(
                -313, "07001", f"{len(values)} host variables for {len(found.parameters)} parameter markers."
            )
        used = [values[place] for place in found.parameters]
        if found.written is None:
            if keeps_locks(text):
                self._hold_writers()
            return Result(found.columns, self._rows(self._sqlite(found.sql, used)))
        with self.writing():
            rows = self._sqlite(found.sql, used).rowcount
        return Result((), iter(()), rows)

    def _rows(self, cursor: sqlite3.Cursor) -> Iterator[tuple[Any, ...]]:
        while True:
            try:
                block = cursor.fetchmany(1024)
            except sqlite3.Error as error:
                raise self.translated(error) from error
            if not block:
                return
            yield from block

    def _sqlite(self, sql: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        try:
            return self.sqlite.execute(sql, values)
        except sqlite3.Error as error:
            raise self.translated(error) from error

    def translated(self, error: sqlite3.Error) -> Error:
        """An SQLite error as Db2 would word it."""
        failure, self._failure = self._failure, None
        if failure is not None:
            return failure
        text = str(error)
        if text.startswith("UNIQUE constraint failed"):
            return duplicate(text.rsplit(": ", 1)[1].split(",")[0].rpartition(".")[0])
        if text.startswith("NOT NULL constraint failed"):
            return null_refused(text.rsplit(".", 1)[1])
        if isinstance(error, sqlite3.IntegrityError):
            return IntegrityError(-545, "23513", f"The requested operation is not allowed: {text}.")
        if isinstance(error, sqlite3.OperationalError) and ("locked" in text or "busy" in text):
            return busy()
        return ProgrammingError(-901, "58004", f"The emulator failed: {text}.")

    def _set(self, reader: Reader) -> None:
        reader.expect("SET")
        reader.expect("CURRENT")
        if reader.accept("ISOLATION"):
            reader.accept("=")
            level = reader.name()
            if level not in _ISOLATIONS:
                raise not_emulated(f"the isolation {level}")
        elif reader.accept("LOCK", "TIMEOUT"):
            reader.accept("=")
            seconds = None if reader.accept("NULL") else reader.integer()
            wait = _BUSY_SECONDS if seconds is None or seconds < 0 else seconds
            self.sqlite.execute(f"PRAGMA busy_timeout = {int(wait * 1000)}")
        elif reader.accept("SCHEMA"):
            reader.accept("=")
            self.schema = reader.name()
        else:
            raise reader.unexpected()
        reader.finish()

    def _lock(self, reader: Reader) -> None:
        reader.expect("LOCK", "TABLE")
        schema, name = reader.path(self.schema)
        reader.expect("IN")
        if not reader.accept("SHARE") and not reader.accept("EXCLUSIVE"):
            raise reader.unexpected()
        reader.expect("MODE")
        reader.finish()
        self.definitions.table(schema, name)
        self._hold_writers()

    def _hold_writers(self) -> None:
        """Keep others from writing until the transaction ends; with autocommit it ends with the statement."""
        if not self.autocommit and not self.sqlite.in_transaction:
            # There is one writer at a time here, so a lock of a table is one of the database.
            self._begin()

    # Transactions.

    def _begin(self) -> None:
        try:
            self.sqlite.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise self.translated(error) from error
        self.log.begin()

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """A write: a transaction of its own with autocommit, else a part of the one that is open."""
        nested = self.sqlite.in_transaction
        if not nested:
            self._begin()
        self.sqlite.execute('SAVEPOINT "emulator statement"')
        try:
            yield self
        except BaseException:
            if self.sqlite.in_transaction:
                self.sqlite.execute('ROLLBACK TO "emulator statement"')
                self.sqlite.execute('RELEASE "emulator statement"')
                self.catalog.forget()
            if not nested and self.autocommit:
                self.rollback()
            raise
        self.sqlite.execute('RELEASE "emulator statement"')
        if not nested and self.autocommit:
            self.commit()

    def commit(self) -> None:
        """End the transaction; what it changed in registered tables is in the log now."""
        if self.sqlite.in_transaction:
            self.log.commit()
            self.sqlite.execute("COMMIT")

    def rollback(self) -> None:
        """Undo the transaction."""
        if self.sqlite.in_transaction:
            self.sqlite.execute("ROLLBACK")
            self.catalog.forget()

    def close(self) -> None:
        """Close; what was not committed is undone."""
        self.sqlite.close()

    # Functions.

    def _register_functions(self) -> None:
        register = self._register
        register("db2_now", 0, self.now, deterministic=False)
        register("db2_today", 0, lambda: self.now()[:10], deterministic=False)
        register("db2_timezone", 0, self._timezone, deterministic=False)
        register("db2_cast", 2, lambda value, kind: types.converter(kind, cut=True)(value))
        register("db2_assign", 4, _assign)
        register("db2_arithmetic", 3, types.arithmetic)
        register("db2_hex", 1, lambda value: None if value is None else bytes(value).hex().upper())
        register("db2_char", 2, _char)
        register("db2_minute_before", 1, _minute_before)
        register("db2_format", 2, _formatted)
        register("db2_like", 2, _like)
        register("db2_identity", 2, self._identity, deterministic=False)
        self.log.register(register)

    def _register(self, name: str, count: int, function: Callable[..., Any], *, deterministic: bool = True) -> None:
        def guarded(*arguments: Any) -> Any:
            try:
                return function(*arguments)
            except Error as error:
                # SQLite drops what a function raises.
                self._failure = error
                raise

        self.sqlite.create_function(name, count, guarded, deterministic=deterministic)

    def _timezone(self) -> str:
        minutes = self.zone_minutes
        number = abs(minutes) // 60 * 10000 + abs(minutes) % 60 * 100
        return str(-number if minutes < 0 else number)

    def _identity(self, path: str, name: str) -> int:
        schema, _, table_name = path.partition(".")
        column = self.definitions.table(schema, table_name).column(name)
        assert isinstance(column, Column)
        key = f"identity {path} {name}"
        row = self.sqlite.execute('SELECT value FROM "emulator.state" WHERE name = ?', (key,)).fetchone()
        number = column.start if row is None else int(row[0]) + 1
        self.sqlite.execute('INSERT OR REPLACE INTO "emulator.state" VALUES (?, ?)', (key, number))
        return number


def _assign(value: Any, declaration: str, column: str, nullable: int) -> Any:
    if value is None and not nullable:
        raise null_refused(column)
    return types.converter(declaration)(value)


def _char(value: Any, style: str) -> Any:
    if value is None:
        return None
    text = str(value)
    return text.replace(":", ".") if style == "ISO" and text[2] == ":" else text


def _minute_before(value: Any) -> Any:
    if value is None:
        return None
    moment = dt.datetime.fromisoformat(str(value)[:26]) - dt.timedelta(minutes=1)
    return f"{moment:%Y-%m-%d %H:%M:%S.%f}"


def _formatted(value: Any, pattern: str) -> Any:
    """VARCHAR_FORMAT of a stored timestamp."""
    if value is None:
        return None
    text = str(value)
    fraction = text[20:].ljust(12, "0")
    words = ("YYYY", "MM", "DD", "HH24", "MI", "SS")
    parts = dict(zip(words, re.split(r"[- :.]", text), strict=False))

    def part(found: re.Match[str]) -> str:
        word = found[0]
        return fraction[: int(word[2:] or 6)] if word.startswith("FF") else parts[word]

    return _FORMAT.sub(part, pattern)


def _like(value: Any, pattern: Any) -> Any:
    if value is None or pattern is None:
        return None
    made = "".join(".*" if c == "%" else "." if c == "_" else re.escape(c) for c in str(pattern))
    return int(re.fullmatch(made, str(value), re.DOTALL) is not None)


def _record(text: str) -> None:
    path = os.environ.get(QUERY_LOG)
    if path:
        with Path(path).open("a", encoding="utf-8") as log:
            log.write(" ".join(text.split()) + "\n")

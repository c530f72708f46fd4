"""A Db2 database file as one connection has it open: its clock, catalog, log and definitions."""

from __future__ import annotations

import datetime as dt
import re
import sqlite3
from pathlib import Path
from typing import Any

from headrace_emulators.db2 import types
from headrace_emulators.db2.catalog import Catalog, Column
from headrace_emulators.db2.definitions import Definitions
from headrace_emulators.db2.errors import Error, IntegrityError, ProgrammingError, busy, duplicate, null_refused
from headrace_emulators.db2.log import TransactionLog
from headrace_emulators.engine.functions import FunctionHost
from headrace_emulators.engine.storage import Clock, Storage, utc_now

_FORMAT = re.compile(r"YYYY|MM|DD|HH24|MI|SS|FF\d*")


class Db2Storage(Storage):
    """A connection to one database file.

    Args:
        path: the SQLite file.
        clock: gives transaction times, naive and in UTC.
    """

    log: TransactionLog

    def __init__(self, path: Path, clock: Clock = utc_now) -> None:
        super().__init__(path, clock)
        self.sqlite.create_collation("db2_text", types.compare_texts)
        self.sqlite.create_collation("db2_number", types.compare_numbers)
        self.catalog = Catalog(self.sqlite)
        self.log = TransactionLog(self.sqlite, self.now)
        self.definitions = Definitions(self.sqlite, self.catalog, self.now)
        self._functions = FunctionHost(self.sqlite, lambda name, error: error if isinstance(error, Error) else None)
        self._register_functions()

    def now(self) -> str:
        """The time as stored text of a TIMESTAMP, as the database's own clock shows it."""
        local = self.clock() + dt.timedelta(minutes=self.zone_minutes)
        return f"{local:%Y-%m-%d %H:%M:%S.%f}"

    @property
    def zone_minutes(self) -> int:
        """How far the server's clock is ahead of UTC."""
        return int(self.state("zone", "0"))

    def changed(self) -> None:
        """The catalog's rows changed without a change of SQLite's own schema."""
        self.catalog.forget()

    def translated(self, error: sqlite3.Error) -> Error:
        failure = self._functions.take_failure()
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

    # Functions.

    def _register_functions(self) -> None:
        register = self._functions.register
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

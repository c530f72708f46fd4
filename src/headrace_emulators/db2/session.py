"""One connection's work: statements in, results out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headrace_emulators.db2 import capture, types
from headrace_emulators.db2.errors import ProgrammingError, not_emulated
from headrace_emulators.db2.registrations import Registrations
from headrace_emulators.db2.storage import Db2Storage
from headrace_emulators.db2.syntax import Reader, keeps_locks
from headrace_emulators.db2.translation import Translation, Translator
from headrace_emulators.engine import result
from headrace_emulators.engine.session import Session
from headrace_emulators.engine.storage import BUSY_SECONDS, Clock, record_query, utc_now

_ISOLATIONS = ("UR", "CS", "RS", "RR", "RESET")
Result = result.Result[types.Db2Type]


class Db2Session(Session):
    """A connection to one database file.

    Args:
        path: the SQLite file.
        user: the login; names without a schema are in its schema.
        clock: gives transaction times, naive and in UTC.
    """

    storage: Db2Storage

    def __init__(self, path: Path, *, user: str = "DB2INST1", clock: Clock = utc_now) -> None:
        self.storage = Db2Storage(path, clock)
        self.registrations = Registrations(self.storage)
        self._schema = user.upper()
        self._translations: dict[str, Translation] = {}

    def execute(self, text: str, parameters: Sequence[object] = ()) -> Result:
        """Run one statement.

        Raises:
            Error: as a server would answer.
        """
        record_query(text)
        reader = Reader(text)
        first, second = reader.word(), reader.word(1)
        values = [types.bound(p) for p in parameters]
        if first in ("SELECT", "(", "INSERT", "UPDATE", "DELETE"):
            return self._translated(text, values)
        if first in ("CREATE", "ALTER", "DROP"):
            with self.storage.writing():
                self.storage.definitions.run(reader, self._schema)
                self.registrations.follow()
        elif first == "CALL":
            with self.storage.writing():
                self.registrations.call(reader)
        elif first == "VALUES":
            with self.storage.writing():
                answer = capture.service(self.storage, reader)
                self.registrations.follow()
            return Result((("1", types.parse_type("VARCHAR(1000)")),), iter([(answer,)]))
        elif (first, second) == ("LOCK", "TABLE"):
            self._lock(reader)
        elif first == "SET":
            self._set(reader)
        elif first in ("COMMIT", "ROLLBACK"):
            self.storage.commit() if first == "COMMIT" else self.storage.rollback()
        else:
            raise not_emulated(f"the statement {first} {second}")
        return Result()

    def _translated(self, text: str, values: list[object]) -> Result:
        catalog = self.storage.catalog
        if catalog.refresh():
            self._translations.clear()
        found = self._translations.get(text)
        if found is None:
            found = self._translations[text] = Translator(catalog.find, self._schema).translate(text)
        if len(values) != len(found.parameters):
            raise ProgrammingError(
                -313, "07001", f"{len(values)} host variables for {len(found.parameters)} parameter markers."
            )
        used = [values[place] for place in found.parameters]
        if found.written is None:
            if keeps_locks(text):
                self._hold_writers()
            return Result(found.columns, self.storage.rows(self.storage.execute(found.sql, used)))
        with self.storage.writing():
            rows = self.storage.execute(found.sql, used).rowcount
        return Result(rowcount=rows)

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
            wait = BUSY_SECONDS if seconds is None or seconds < 0 else seconds
            self.storage.sqlite.execute(f"PRAGMA busy_timeout = {int(wait * 1000)}")
        elif reader.accept("SCHEMA"):
            reader.accept("=")
            self._schema = reader.name()
        else:
            raise reader.unexpected()
        reader.finish()

    def _lock(self, reader: Reader) -> None:
        reader.expect("LOCK", "TABLE")
        schema, name = reader.path(self._schema)
        reader.expect("IN")
        if not reader.accept("SHARE") and not reader.accept("EXCLUSIVE"):
            raise reader.unexpected()
        reader.expect("MODE")
        reader.finish()
        self.storage.definitions.table(schema, name)
        self._hold_writers()

    def _hold_writers(self) -> None:
        """Keep others from writing until the transaction ends; with autocommit it ends with the statement."""
        if self.storage.explicit:
            # There is one writer at a time here, so a lock of a table is one of the database.
            self.storage.begin_write()

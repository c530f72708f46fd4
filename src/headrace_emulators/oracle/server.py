"""An emulated Oracle database as demos and tests control it: make it, connect to it, switch its logs, lose them."""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from headrace_emulators.oracle import files
from headrace_emulators.oracle.catalog import find_table
from headrace_emulators.oracle.driver import Connection, connect
from headrace_emulators.oracle.redo_log import RedoLog

FIRST_SCN = 1_000_000


class EmulatedOracle:
    """A database in a folder.

    Args:
        directory: the server's folder, which is the option `hostname`.
        name: the database's name, which is the option `database`.
        pdb: a pluggable database in it whose tables these are; empty for a database without any.
        threads: redo threads (instances).
        records_per_log: after so many records a redo thread switches its log by itself; 0 for never.
        csf_bytes: how long the piece of a statement is at the most.
    """

    def __init__(
        self,
        directory: Path | str,
        name: str = "ORCL",
        *,
        pdb: str = "",
        threads: int = 1,
        records_per_log: int = 0,
        csf_bytes: int = 4000,
    ) -> None:
        self.directory = Path(directory)
        self.name = name.upper()
        self.threads = threads
        self.path = files.path_of(self.directory, name)
        made = not self.path.exists()
        if made:
            files.create(self.path)
        else:
            files.bring_forward(self.path)
        self._connection = files.opened(self.path)
        self._log = RedoLog(self._connection, records_per_log)
        if made:
            facts = {
                "name": self.name, "pdb": pdb.upper(), "cdb": "YES" if pdb else "NO", "dbid": 1_700_000_000,
                "scn": FIRST_SCN, "resetlogs": 1, "log_mode": "ARCHIVELOG", "supplemental": "YES",
                "supplemental_all": "NO", "objects": 70_000, "transactions": 0, "undo_scn": 0,
                "records_per_log": records_per_log, "csf_bytes": csf_bytes,
            }  # fmt: skip
            with self._writing():
                for fact, value in facts.items():
                    self._log.put_fact(fact, value)
                for thread in range(1, threads + 1):
                    self._log.begin_thread(thread, self._now())

    @property
    def settings(self) -> dict[str, str]:
        """What a source needs to read this database."""
        return {"driver": "oracle-emulator", "hostname": str(self.directory), "database": self.name}

    def connect(self, user: str = "SHOP", *, instance: int = 1) -> Connection:
        return connect({"hostname": self.directory, "database": self.name, "user": user, "instance": instance})

    def run(self, *statements: str, user: str = "SHOP") -> None:
        """Statements that are committed together."""
        with self.connect(user) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()

    @property
    def scn(self) -> int:
        return int(self._log.fact("scn"))

    def set_fact(self, name: str, value: object) -> None:
        """Change a fact, such as `log_mode` or `supplemental`."""
        with self._writing():
            self._log.put_fact(name, value)

    def switch_log(self, thread: int = 1, *, archive: bool = True) -> None:
        with self._writing():
            self._log.switch(thread, self._now(), archive=archive)

    def delete_archived(self, thread: int = 1, *, keep: int = 0) -> None:
        """Remove a thread's archived logs, and the online copies of them, but for the newest ones."""
        with self._writing():
            self._connection.execute(
                'UPDATE "sys.logs" SET deleted = 1, online = 0 WHERE thread = ? AND next_scn IS NOT NULL AND'
                ' sequence <= (SELECT max(sequence) FROM "sys.logs" WHERE thread = ?) - 1 - ?',
                (thread, thread, keep),
            )

    def forget_undo(self) -> None:
        """What was there before now can't be read as of an SCN any more."""
        self.set_fact("undo_scn", self.scn)

    def rows(self, owner: str, name: str) -> list[dict[str, object]]:
        """What a table holds, committed."""
        table = find_table(self._connection, owner, name)
        names = [column for column, _ in table.columns]
        shown = ", ".join(f'"{column}"' for column in names)
        found = self._connection.execute(
            f'SELECT {shown} FROM "data.{table.number}" WHERE _from_scn IS NOT NULL AND _to_scn IS NULL'
        )
        return [dict(zip(names, row, strict=True)) for row in found]

    def publish(self, path: Path, owner: str) -> Path:
        """Write the committed rows of a schema's tables into a plain SQLite file, for a comparison."""
        path.unlink(missing_ok=True)
        target = sqlite3.connect(path)
        names = [
            name for (name,) in self._connection.execute('SELECT name FROM "sys.objects" WHERE owner = ?', (owner,))
        ]
        for name in names:
            table = find_table(self._connection, owner, name)
            columns = ", ".join(f'"{column}" {kind.storage.partition(" ")[0]}' for column, kind in table.columns)
            key = ", ".join(f'"{column}"' for column in table.key)
            target.execute(f'CREATE TABLE "{owner}.{name}" ({columns}{f", PRIMARY KEY ({key})" if key else ""})')
            places = ", ".join("?" * len(table.columns))
            rows = (tuple(row.values()) for row in self.rows(owner, name))
            target.executemany(f'INSERT INTO "{owner}.{name}" VALUES ({places})', rows)
        target.commit()
        target.close()
        return path

    def close(self) -> None:
        """Close this handle; the file stays."""
        self._connection.close()

    def __enter__(self) -> EmulatedOracle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    @staticmethod
    def _now() -> str:
        return f"{dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M:%S}"

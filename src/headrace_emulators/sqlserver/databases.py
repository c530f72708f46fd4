"""Making, changing and dropping databases: CREATE, ALTER and DROP DATABASE."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from headrace_emulators.engine import database_files as files
from headrace_emulators.sqlserver import catalog
from headrace_emulators.sqlserver.collations import register_collations
from headrace_emulators.sqlserver.errors import ProgrammingError, no_database
from headrace_emulators.sqlserver.reader import StatementReader
from headrace_emulators.sqlserver.storage import SqlServerStorage
from headrace_emulators.sqlserver.types import DEFAULT_COLLATION, check_collation

_OPTIONS = frozenset(("ALLOW_SNAPSHOT_ISOLATION", "READ_COMMITTED_SNAPSHOT"))


def create_file(path: Path, now: str) -> None:
    """Make an empty database in a file that does not exist yet.

    Args:
        path: the file.
        now: the time as stored text of a datetime.
    """
    made = sqlite3.connect(path, isolation_level=None)
    try:
        made.execute("PRAGMA journal_mode = WAL")
        register_collations(made)
        made.execute("BEGIN")
        catalog.create(made, now)
        made.execute("COMMIT")
    finally:
        made.close()


def bring_forward(path: Path) -> None:
    """Give the file of a database that an earlier release made what its catalog lacks."""
    made = sqlite3.connect(path, isolation_level=None)
    try:
        known = {row[1] for row in made.execute('PRAGMA table_info("sys.columns")').fetchall()}
        if "is_masked" not in known:
            made.execute("BEGIN")
            register_collations(made)
            made.execute('ALTER TABLE "sys.columns" ADD COLUMN "is_masked" INTEGER DEFAULT 0')
            made.execute('ALTER TABLE "sys.columns" ADD COLUMN "encryption_type" INTEGER')
            for name in ("sys.security_policies", "sys.security_predicates"):
                made.execute(catalog.table_sql(name))
            made.execute("COMMIT")
    finally:
        made.close()


def is_database(path: Path) -> bool:
    made = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return made.execute("SELECT 1 FROM sqlite_master WHERE name = 'emulator.state'").fetchone() is not None
    except sqlite3.DatabaseError:
        return False
    finally:
        made.close()


def change_databases(storage: SqlServerStorage, statement: str) -> None:
    """Carry out CREATE, ALTER or DROP DATABASE. Settings other than those of snapshots have no effect here."""
    reader = StatementReader(statement)
    if reader.accept("CREATE", "DATABASE"):
        name = reader.name()
        if reader.accept("COLLATE"):
            collation = reader.name()
            check_collation(collation)
            if collation.lower() != DEFAULT_COLLATION.lower():
                raise reader.unknown(f"a database with the collation {collation}")
        if files.find(storage.path.parent, name) is not None:
            raise ProgrammingError(f"Database '{name}' already exists. Choose a different database name.", 1801)
        create_file(storage.path.parent / f"{name}{files.SUFFIX}", storage.now())
    elif reader.accept("ALTER", "DATABASE"):
        _alter(storage, reader)
    else:
        reader.expect("DROP", "DATABASE")
        _drop(storage, reader)


def _alter(storage: SqlServerStorage, reader: StatementReader) -> None:
    name = reader.name()
    if name.upper() == "CURRENT":
        name = storage.name
    path = files.find(storage.path.parent, name)
    if path is None:
        raise no_database(name)
    if not reader.accept("SET"):
        return
    option = reader.name()
    if option.upper() not in _OPTIONS:
        return
    value = reader.next().text.upper()
    if value not in ("ON", "OFF"):
        raise reader.unknown(f"the value {value} of {option}")
    if path == storage.path:
        storage.set_state(option.lower(), value)
        return
    other = sqlite3.connect(path, isolation_level=None)
    try:
        other.execute('INSERT OR REPLACE INTO "emulator.state" VALUES (?, ?)', (option.lower(), value))
    finally:
        other.close()


def _drop(storage: SqlServerStorage, reader: StatementReader) -> None:
    optional = reader.accept("IF", "EXISTS")
    name = reader.name()
    path = files.find(storage.path.parent, name)
    if path is None:
        if not optional:
            raise ProgrammingError(
                f"Cannot drop the database '{name}', because it does not exist or you do not have permission.", 3701
            )
        return
    if path == storage.path:
        raise ProgrammingError(f'Cannot drop database "{name}" because it is currently in use.', 3702)
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)

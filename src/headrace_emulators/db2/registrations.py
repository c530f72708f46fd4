"""SQL Replication's registrations: its control tables, the procedures that fill them, and what is logged for them."""

from __future__ import annotations

from dataclasses import replace

from headrace_emulators.db2.catalog import Column, Key, Table, quoted
from headrace_emulators.db2.errors import ProgrammingError, not_emulated, undefined
from headrace_emulators.db2.storage import Db2Storage
from headrace_emulators.db2.syntax import Reader, statements
from headrace_emulators.db2.types import parse_type

SCHEMA = "ASNCDC"
REGISTER, UOW = f"{SCHEMA}.IBMSNAP_REGISTER", f"{SCHEMA}.IBMSNAP_UOW"
HEADER = ("IBMSNAP_COMMITSEQ", "IBMSNAP_INTENTSEQ", "IBMSNAP_OPERATION")
_SEQUENCE = parse_type("VARCHAR(16) FOR BIT DATA")

CONTROL_TABLES = f"""
CREATE TABLE {REGISTER} (SOURCE_OWNER VARCHAR(128) NOT NULL, SOURCE_TABLE VARCHAR(128) NOT NULL,
  SOURCE_VIEW_QUAL SMALLINT NOT NULL, GLOBAL_RECORD CHAR(1) NOT NULL, SOURCE_STRUCTURE SMALLINT NOT NULL,
  STATE CHAR(1) NOT NULL, SYNCHPOINT VARCHAR(16) FOR BIT DATA, SYNCHTIME TIMESTAMP,
  CD_OWNER VARCHAR(128), CD_TABLE VARCHAR(128), PHYS_CHANGE_OWNER VARCHAR(128), PHYS_CHANGE_TABLE VARCHAR(128),
  CD_OLD_SYNCHPOINT VARCHAR(16) FOR BIT DATA, CD_NEW_SYNCHPOINT VARCHAR(16) FOR BIT DATA,
  BEFORE_IMG_PREFIX VARCHAR(4), CHG_UPD_TO_DEL_INS CHAR(1), CHGONLY CHAR(1),
  RECAPTURE CHAR(1), CONFLICT_LEVEL CHAR(1), ARCH_LEVEL CHAR(4),
  PRIMARY KEY (SOURCE_OWNER, SOURCE_TABLE, SOURCE_VIEW_QUAL));
CREATE TABLE {UOW} (IBMSNAP_UOWID CHAR(10) FOR BIT DATA NOT NULL, IBMSNAP_COMMITSEQ VARCHAR(16) FOR BIT DATA NOT NULL,
  IBMSNAP_LOGMARKER TIMESTAMP NOT NULL, IBMSNAP_AUTHTKN VARCHAR(30) NOT NULL, IBMSNAP_AUTHID VARCHAR(128) NOT NULL,
  IBMSNAP_REJ_CODE CHAR(1) NOT NULL, IBMSNAP_APPLY_QUAL CHAR(18), PRIMARY KEY (IBMSNAP_COMMITSEQ, IBMSNAP_LOGMARKER));
CREATE TABLE {SCHEMA}.IBMSNAP_CAPPARMS (RETENTION_LIMIT INTEGER, PRUNE_INTERVAL INTEGER, AUTOPRUNE CHAR(1));
CREATE TABLE {SCHEMA}.IBMSNAP_CAPMON (MONITOR_TIME TIMESTAMP NOT NULL, SYNCHTIME TIMESTAMP NOT NULL)
"""

_ACTIVATION = (
    f"CREATE TRIGGER {quoted('capture begins')} AFTER UPDATE OF STATE ON {quoted(REGISTER)}"
    " WHEN NEW.STATE = 'A' AND OLD.STATE <> 'A' AND NEW.GLOBAL_RECORD = 'N' BEGIN"
    f" UPDATE {quoted(REGISTER)} SET CD_OLD_SYNCHPOINT = db2_capture_begins() WHERE rowid = NEW.rowid; END"
)
"""The Capture program notes in a registration from where on it captures the table, at each time that it begins."""


class Registrations:
    """The registrations of a database.

    Args:
        storage: the connection.
    """

    def __init__(self, storage: Db2Storage) -> None:
        self._storage = storage

    def create(self) -> None:
        """Make the control tables, as the setup of SQL Replication does."""
        storage = self._storage
        for sql in statements(CONTROL_TABLES):
            storage.definitions.run(Reader(sql), SCHEMA)
        storage.sqlite.execute(
            f"INSERT INTO {quoted(REGISTER)} (SOURCE_OWNER, SOURCE_TABLE, SOURCE_VIEW_QUAL, GLOBAL_RECORD,"
            " SOURCE_STRUCTURE, STATE, SYNCHPOINT, SYNCHTIME) VALUES ('', '', 0, 'Y', 1, 'A', ?, ?)",
            (storage.log.end(), storage.now()),
        )
        storage.sqlite.execute(f"INSERT INTO {quoted(SCHEMA + '.IBMSNAP_CAPPARMS')} VALUES (10080, 300, 'Y')")

    def call(self, reader: Reader) -> None:
        """CALL ASNCDC.ADDTABLE or REMOVETABLE."""
        reader.expect("CALL")
        schema, name = reader.path(SCHEMA)
        if schema != SCHEMA or name not in ("ADDTABLE", "REMOVETABLE"):
            raise undefined(f"{schema}.{name}")
        reader.expect("(")
        owner = reader.constant()
        reader.expect(",")
        table = reader.constant()
        reader.expect(")")
        reader.finish()
        self.add(owner, table) if name == "ADDTABLE" else self.remove(owner, table)

    def add(self, owner: str, name: str) -> None:
        """Register a table: makes its change table; the registration is inactive until its STATE is set to A."""
        storage = self._storage
        source = storage.definitions.table(owner, name)
        odd = next((c.name for c in source.columns if c.type.name == "BOOLEAN"), None)
        if odd is not None:
            raise not_emulated(f"capture of the BOOLEAN column {odd}, which SQL Replication does not do")
        storage.catalog.altered(source, storage.now(), captured=True)
        columns = (
            Column(HEADER[0], _SEQUENCE, False),
            Column(HEADER[1], _SEQUENCE, False),
            Column(HEADER[2], parse_type("CHAR(1)"), False),
            *(replace(c, default=None, identity="", nullable=True) for c in source.columns),
        )
        change_table = f"CDC_{owner}_{name}"
        key = Key(f"IXCDC_{owner}_{name}", HEADER[:2])
        storage.definitions.create(Table(SCHEMA, change_table, 0, columns, (key,)))
        storage.sqlite.execute(
            f"INSERT INTO {quoted(REGISTER)} (SOURCE_OWNER, SOURCE_TABLE, SOURCE_VIEW_QUAL, GLOBAL_RECORD,"
            " SOURCE_STRUCTURE, STATE, CD_OWNER, CD_TABLE, PHYS_CHANGE_OWNER, PHYS_CHANGE_TABLE, CHG_UPD_TO_DEL_INS,"
            " CHGONLY, RECAPTURE, CONFLICT_LEVEL, ARCH_LEVEL) VALUES (?, ?, 0, 'N', 1, 'I', ?, ?, ?, ?, 'Y', 'N', 'Y',"
            " '0', '0801')",
            (owner, name, SCHEMA, change_table, SCHEMA, change_table),
        )
        self.follow()

    def remove(self, owner: str, name: str) -> None:
        """Take a registration away, and its change table."""
        storage = self._storage
        row = storage.sqlite.execute(
            f"SELECT CD_OWNER, CD_TABLE FROM {quoted(REGISTER)} WHERE SOURCE_OWNER = ? AND SOURCE_TABLE = ?",
            (owner, name),
        ).fetchone()
        if row is None:
            raise ProgrammingError(-438, "38F0A", f"The table {owner}.{name} is not registered.")
        storage.definitions.drop(storage.definitions.table(*row))
        storage.sqlite.execute(
            f"DELETE FROM {quoted(REGISTER)} WHERE SOURCE_OWNER = ? AND SOURCE_TABLE = ?", (owner, name)
        )
        source = storage.catalog.find(owner, name)
        if source is not None:
            storage.catalog.altered(source, storage.now(), captured=False)
        self.follow()

    # What is logged.

    def follow(self) -> None:
        """Let the log follow the registrations: a table of pending rows, and triggers that fill it."""
        storage = self._storage
        execute = storage.sqlite.execute
        if storage.catalog.find(*REGISTER.split(".")) is None:
            return
        for (trigger,) in execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'capture %'"
        ).fetchall():
            execute(f"DROP TRIGGER {quoted(trigger)}")
        execute(_ACTIVATION)
        wanted = set()
        for owner, name, cd_owner, cd_name, split, prefix in execute(
            "SELECT SOURCE_OWNER, SOURCE_TABLE, CD_OWNER, CD_TABLE, CHG_UPD_TO_DEL_INS, BEFORE_IMG_PREFIX"
            f" FROM {quoted(REGISTER)} WHERE GLOBAL_RECORD = 'N'"
        ).fetchall():
            source, changes = storage.catalog.find(owner, name), storage.catalog.find(cd_owner, cd_name)
            if source is None or changes is None:
                continue
            columns = [c for c in changes.columns if c.name not in HEADER and source.column(c.name) is not None]
            before = {c.name: changes.column(f"{prefix}{c.name}") for c in columns if prefix}
            befores = {name: c for name, c in before.items() if c is not None and source.column(c.name) is None}
            wanted.add(pending(changes.path))
            self._pending(changes, [*columns, *befores.values()])
            for sql in self._triggers(source, changes, columns, befores, split == "Y"):
                execute(sql)
        for (name,) in execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'emulator.pending.%'"
        ).fetchall():
            if name not in wanted:
                execute(f"DROP TABLE {quoted(name)}")

    def _pending(self, changes: Table, columns: list[Column]) -> None:
        execute = self._storage.sqlite.execute
        table = quoted(pending(changes.path))
        known = [row[1] for row in execute(f"PRAGMA table_info({table})").fetchall()]
        if not known:
            execute(
                f'CREATE TABLE {table} ("emulator id" INTEGER PRIMARY KEY, "emulator tran" INTEGER,'
                ' "emulator seq" BLOB, "emulator op" TEXT)'
            )
        for column in columns:
            if column.name not in known:
                execute(f"ALTER TABLE {table} ADD COLUMN {quoted(column.name)} {column.type.column}")

    @staticmethod
    def _triggers(
        source: Table, changes: Table, columns: list[Column], befores: dict[str, Column], split: bool
    ) -> list[str]:
        names = "".join(f", {quoted(c.name)}" for c in (*columns, *befores.values()))

        def record(operation: str, image: str) -> str:
            values = "".join(f", {image}.{quoted(c.name)}" for c in columns)
            # Of an inserted row there is nothing before; of a deleted one both columns have the value that it had.
            values += "".join(", NULL" if operation == "I" else f", OLD.{quoted(name)}" for name in befores)
            target = quoted(pending(changes.path))
            return (
                f'INSERT INTO {target} ("emulator tran", "emulator seq", "emulator op"{names})'
                f" SELECT db2_tran(), db2_seq(), '{operation}'{values};"
            )

        active = (
            f"(SELECT STATE FROM {quoted(REGISTER)} WHERE CD_OWNER = {_text(changes.schema)} AND CD_TABLE ="
            f" {_text(changes.name)}) = 'A'"
        )
        updated = record("D", "OLD") + record("I", "NEW") if split else record("U", "NEW")
        events = {"INSERT": record("I", "NEW"), "DELETE": record("D", "OLD"), "UPDATE": updated}
        return [
            f"CREATE TRIGGER {quoted(f'capture {event} {source.path}')} AFTER {event} ON {quoted(source.path)}"
            f" WHEN {active} BEGIN {body} END"
            for event, body in events.items()
        ]


def pending(path: str) -> str:
    """The table in which changes wait for the Capture program."""
    return f"emulator.pending.{path}"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"

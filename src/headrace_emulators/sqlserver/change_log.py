"""The transaction log: what a running transaction changed, by triggers, until the capture job takes it.

Each capture instance has a table of pending rows in the shape of its change table. Triggers fill it inside the
transaction
that changes the source table, so a rollback leaves nothing; its commit gives the transaction its LSN and times.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace_emulators.engine.functions import FunctionHost
from headrace_emulators.sqlserver import lsn as lsns
from headrace_emulators.sqlserver.catalog import Catalog, TableInfo, quoted
from headrace_emulators.sqlserver.errors import Error
from headrace_emulators.sqlserver.types import LARGE_KINDS, SqlType

Now = Callable[[], str]


class TransactionLog:
    """The log records of one connection's transaction.

    Args:
        connection: the SQLite connection.
        now: the time as stored text of a datetime.
    """

    def __init__(self, connection: sqlite3.Connection, now: Now) -> None:
        self._connection = connection
        self._now = now
        self._position = b""
        self._number = 0
        self._begin_time = ""
        self._begin_lsn = b""
        self._commands = 0
        self._at = 0
        self._statement: bytes | None = None
        self._forced_commit: bytes | None = None
        self._forced_records: list[bytes] = []
        self._open = False
        self.enabled = True

    def register(self, host: FunctionHost[Error]) -> None:
        """Give the triggers their functions."""
        for name, count, function in (
            ("cdc_tick", 1, self._tick),
            ("cdc_number", 0, lambda: self._number),
            ("cdc_seqval", 0, lambda: self._position),
            ("cdc_statement_seqval", 0, self._statement_seqval),
            ("cdc_command", 1, lambda offset: self._at + offset),
            ("cdc_logging", 0, lambda: int(self.enabled)),
        ):
            host.register_plain(name, count, function)
        host.register("cdc_mask", -1, _mask)

    def begin(self) -> None:
        """A write transaction began; nothing is logged yet."""
        self._open = False
        self._begin_time = self._now()

    def statement(self) -> None:
        """A statement began: its changes of key columns will share one sequence value."""
        self._statement = None

    def force(self, commit: bytes | str, records: Sequence[bytes | str] = ()) -> None:
        """Decide the commit LSN of the next logged transaction, and the sequence values of its records, in order."""
        self._forced_commit = lsns.to_bytes(commit)
        self._forced_records = [lsns.to_bytes(r) for r in records]

    def _start(self) -> None:
        state = dict(
            self._connection.execute(
                "SELECT name, value FROM \"emulator.state\" WHERE name IN ('lsn', 'next_tran')"
            ).fetchall()
        )
        self._open = True
        self._number = int(state["next_tran"])
        # Rows of the catalog may have been written by hand, with LSNs that this log did not give.
        self._position = lsns.next_block(max(bytes.fromhex(state["lsn"]), self._newest_mapped()))
        if self._forced_commit is not None:
            file, block, _ = lsns.parts(self._forced_commit)
            self._position = lsns.made(file, block, 1)
        self._begin_lsn = self._position
        self._commands = self._at = 0

    def _newest_mapped(self) -> bytes:
        there = self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'cdc.lsn_time_mapping'").fetchone()
        if there is None:
            return b""
        (newest,) = self._connection.execute('SELECT MAX(start_lsn) FROM "cdc.lsn_time_mapping"').fetchone()
        return b"" if newest is None else bytes(newest)

    def open(self) -> None:
        """Make the transaction a logged one, even if it changes no captured row."""
        if not self._open:
            self._start()

    def _tick(self, commands: int) -> int:
        if not self._open:
            self._start()
        self._position = self._forced_records.pop(0) if self._forced_records else lsns.after(self._position)
        self._at = self._commands + 1
        self._commands += commands
        return self._at

    def _statement_seqval(self) -> bytes:
        if self._statement is None:
            self._statement = self._position
        return self._statement

    def commit(self, *, dummy: bool = False) -> bytes | None:
        """Write the commit record, in the transaction that is about to commit.

        Args:
            dummy: no transaction of a user (an idle mark, or the enabling of an instance).

        Returns:
            The commit LSN; None when nothing was logged.
        """
        if not self._open:
            return None
        self._open = False
        commit = self._forced_commit or lsns.after(self._position)
        self._forced_commit, self._forced_records = None, []
        number = b"\0" if dummy else self._number.to_bytes(6, "big")
        self._connection.execute(
            'INSERT INTO "emulator.transactions" VALUES (?, ?, ?, ?, ?, ?, ?)',
            (self._number, commit, self._begin_lsn, self._begin_time, self._now(), number, self._commands),
        )
        # A block holds what fits into 60 kB; the next transaction starts after it.
        grown = lsns.next_block(commit, 1 + min(self._commands // 8, 0x70))
        self._connection.executemany(
            'UPDATE "emulator.state" SET value = ? WHERE name = ?',
            [(grown.hex(), "lsn"), (str(self._number + 1), "next_tran")],
        )
        return commit


def _mask(size: int, *words: int) -> bytes:
    value = 0
    for word in reversed(words):
        value = value << 32 | word
    return value.to_bytes(size, "big")


@dataclass(frozen=True)
class Instance:
    """A capture instance as the log needs it.

    Args:
        name: the capture instance.
        columns: (column of the source table, ordinal in the mask, type); columns dropped from the source are left out.
        ordinals: all ordinals, with the dropped ones.
        keys: the columns of the index that identifies a row.
    """

    name: str
    columns: tuple[tuple[str, int, SqlType], ...]
    ordinals: tuple[tuple[str, int, SqlType], ...]
    keys: tuple[str, ...]

    @property
    def pending(self) -> str:
        """The SQLite table of rows that wait for the capture job."""
        return quoted(f"emulator.pending.{self.name}")

    @property
    def mask_bytes(self) -> int:
        return (max(o for _, o, _ in self.ordinals) + 7) // 8

    @property
    def full_mask(self) -> bytes:
        """The mask of inserts and deletes: all columns of the instance."""
        return sum(1 << (o - 1) for _, o, _ in self.ordinals).to_bytes(self.mask_bytes, "big")


def instances_of(connection: sqlite3.Connection, catalog: Catalog, table: TableInfo) -> list[Instance]:
    """The capture instances of a source table that a log is kept for, oldest first."""
    found = []
    present = {c.name.lower(): c for c in table.columns}
    for number, name in connection.execute(
        'SELECT object_id, capture_instance FROM "cdc.change_tables" WHERE source_object_id = ? ORDER BY'
        " create_date, object_id",
        (table.object_id,),
    ).fetchall():
        if not has_pending(connection, name):
            continue
        change_table = catalog.find("cdc", f"{name}_CT")
        assert change_table is not None
        ordinals = tuple(
            (column, ordinal, change_table.column(column).type)
            for column, ordinal in connection.execute(
                'SELECT column_name, column_ordinal FROM "cdc.captured_columns" WHERE object_id = ? ORDER BY'
                " column_ordinal",
                (number,),
            ).fetchall()
        )
        keys = connection.execute(
            'SELECT column_name FROM "cdc.index_columns" WHERE object_id = ? ORDER BY index_ordinal', (number,)
        ).fetchall()
        kept = tuple(c for c in ordinals if c[0].lower() in present)
        found.append(Instance(name, kept, ordinals, tuple(k for (k,) in keys if k.lower() in present)))
    return found


def has_pending(connection: sqlite3.Connection, instance: str) -> bool:
    """Whether an instance has a log, which those made by sp_cdc_enable_table have."""
    name = f"emulator.pending.{instance}"
    return (
        connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)).fetchone()
        is not None
    )


def written(connection: sqlite3.Connection, instance: str) -> bool:
    """Whether a script wrote an instance by hand, and it got its log afterwards."""
    return (
        connection.execute('SELECT 1 FROM "emulator.state" WHERE name = ?', (f"written.{instance}",)).fetchone()
        is not None
    )


def create_pending(connection: sqlite3.Connection, instance: str, ordinals: Sequence[tuple[str, int, SqlType]]) -> None:
    """Make the table of pending rows of a new instance."""
    columns = "".join(f", c{ordinal} {declared.kind.affinity}" for _, ordinal, declared in ordinals)
    connection.execute(
        f"CREATE TABLE {quoted('emulator.pending.' + instance)} (id INTEGER PRIMARY KEY, tran INTEGER, seqval BLOB,"
        " op INTEGER,"
        f" mask BLOB, command INTEGER{columns})"
    )


def pending_columns(instance: Instance) -> str:
    return "tran, seqval, op, mask, command" + "".join(f", c{o}" for _, o, _ in instance.columns)


def drop_triggers(connection: sqlite3.Connection, table: TableInfo) -> None:
    for event in ("insert", "delete", "update", "key"):
        connection.execute(f"DROP TRIGGER IF EXISTS {quoted(f'emulator.log.{table.object_id}.{event}')}")


def create_triggers(connection: sqlite3.Connection, catalog: Catalog, table: TableInfo) -> None:
    drop_triggers(connection, table)
    instances = instances_of(connection, catalog, table)
    if not instances:
        return
    path = quoted(table.path)
    keys = list(dict.fromkeys(k for i in instances for k in i.keys))
    captured = list(dict.fromkeys(c for i in instances for c, _, _ in i.columns))
    moved = " OR ".join(_differs(k) for k in keys) or "0"
    touched = " OR ".join(_differs(c) for c in captured)
    bodies = {
        "insert": ("AFTER INSERT", "cdc_logging()", 1, [_row(i, "NEW", 2, "cdc_seqval()", 0) for i in instances]),
        "delete": ("AFTER DELETE", "cdc_logging()", 1, [_row(i, "OLD", 1, "cdc_seqval()", 0) for i in instances]),
        "update": (
            "AFTER UPDATE",
            f"cdc_logging() AND NOT ({moved}) AND ({touched})",
            1,
            [text for i in instances for text in (_half(i, "OLD", 3), _half(i, "NEW", 4))],
        ),
        "key": (
            "AFTER UPDATE",
            f"cdc_logging() AND ({moved})",
            2,
            [
                text
                for i in instances
                for text in (
                    _row(i, "OLD", 1, "cdc_statement_seqval()", 0),
                    _row(i, "NEW", 2, "cdc_statement_seqval()", 1),
                )
            ],
        ),
    }
    for event, (when, condition, commands, statements) in bodies.items():
        name = quoted(f"emulator.log.{table.object_id}.{event}")
        connection.execute(
            f"CREATE TRIGGER {name} {when} ON {path} FOR EACH ROW WHEN {condition} BEGIN SELECT cdc_tick({commands});"
            f" {' '.join(s + ';' for s in statements)} END"
        )


def _differs(column: str) -> str:
    # Compared byte by byte: a change of case is a change, under every collation.
    return f"(OLD.{quoted(column)} COLLATE BINARY IS NOT NEW.{quoted(column)})"


def _row(instance: Instance, image: str, operation: int, seqval: str, offset: int) -> str:
    cells = [
        "NULL" if operation == 1 and declared.name in LARGE_KINDS else f"{image}.{quoted(name)}"
        for name, _, declared in instance.columns
    ]
    return (
        f"INSERT INTO {instance.pending} ({pending_columns(instance)}) VALUES (cdc_number(), {seqval}, {operation},"
        f" x'{instance.full_mask.hex()}', cdc_command({offset}), {', '.join(cells)})"
    )


def _half(instance: Instance, image: str, operation: int) -> str:
    cells = []
    for name, _, declared in instance.columns:
        cell = f"{image}.{quoted(name)}"
        if declared.name in LARGE_KINDS and operation == 3:
            cell = "NULL"
        elif declared.large:
            cell = f"CASE WHEN {_differs(name)} THEN {cell} END"
        cells.append(cell)
    words: dict[int, list[str]] = {}
    for name, ordinal, _ in instance.columns:
        words.setdefault((ordinal - 1) // 32, []).append(f"{_differs(name)} * {1 << ((ordinal - 1) % 32)}")
    mask = ", ".join(" + ".join(words.get(i, ["0"])) for i in range(max(words) + 1))
    # An update that leaves all columns of this instance alone is a change for other instances at most.
    changed = " OR ".join(_differs(name) for name, _, _ in instance.columns)
    return (
        f"INSERT INTO {instance.pending} ({pending_columns(instance)}) SELECT cdc_number(), cdc_seqval(), {operation},"
        f" cdc_mask({instance.mask_bytes}, {mask}), cdc_command(0), {', '.join(cells)} WHERE {changed}"
    )

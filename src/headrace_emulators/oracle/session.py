"""A session: transactions that may be open beside others, row versions, and the redo that changes leave.

Tables keep versions of rows with the SCNs between which they were seen, so that several transactions can be open though
SQLite has one writer, and `AS OF SCN` reads what was there. Each statement is a write of its own to the file; what
belongs to an open transaction is marked with its XID.
"""

from __future__ import annotations

import datetime as dt
import itertools
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlglot import exp

from headrace_emulators.oracle import definitions, files, redo_dictionary, redo_text
from headrace_emulators.oracle.catalog import Table, find_table
from headrace_emulators.oracle.dialect import folded, parsed, sqlite_text
from headrace_emulators.oracle.errors import DatabaseError, IntegrityError, NotSupportedError, refusal_of
from headrace_emulators.oracle.flashback import Flashback
from headrace_emulators.oracle.logminer import LogMiner
from headrace_emulators.oracle.redo_log import RedoLog, Scripted

START, COMMIT, ROLLBACK = 6, 7, 36
INSERT, DELETE, UPDATE, DDL = 1, 2, 3, 5
_LOADED_AT_ONCE = 10_000
_SAVEPOINT = re.compile(r"\s*SAVEPOINT\s+(\w+)\s*", re.IGNORECASE)
_ROLLBACK_TO = re.compile(r"\s*ROLLBACK\s+TO\s+(?:SAVEPOINT\s+)?(\w+)\s*", re.IGNORECASE)
_ALTER_SESSION = re.compile(r"\s*ALTER\s+SESSION\s+SET\s+(.*)", re.IGNORECASE | re.DOTALL)
_SETTING = re.compile(r"(\w+)\s*=\s*(?:'([^']*)'|(\w+[$]?\w*))")
_DDL = re.compile(r"\s*(CREATE|ALTER|DROP|TRUNCATE|RENAME)\b", re.IGNORECASE)
_LOCK = re.compile(r"\s*LOCK\s+TABLE\b", re.IGNORECASE)


@dataclass
class Result:
    """What a statement gave."""

    columns: tuple[str, ...] = ()
    rows: Sequence[tuple[Any, ...]] | Iterator[tuple[Any, ...]] = ()
    count: int = -1


@dataclass
class Undo:
    """One row change of the open transaction."""

    table: Table
    operation: int
    row: int
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    changed: dict[str, Any] = field(default_factory=dict)


class Session:
    """One user's session on one instance (redo thread).

    Args:
        path: the database's file.
        user: who.
        thread: the instance.
        clock: gives the server's time.
    """

    def __init__(self, path: Path, *, user: str = "SHOP", thread: int = 1, script: Scripted | None = None) -> None:
        self.connection = files.opened(path)
        self.user = user.upper()
        self.thread = thread
        self.script = script
        self.log = RedoLog(self.connection, self._records_per_log())
        self.miner = LogMiner(self.connection)
        self.flashback = Flashback(self.log)
        self.settings: dict[str, str] = {}
        self.container = ""
        self._xid: bytes | None = None
        self._undo: list[Undo] = []
        self._savepoints: dict[str, int] = {}

    def close(self) -> None:
        """Close; an open transaction is rolled back."""
        if self._xid is not None:
            self.rollback()
        self.connection.close()

    @property
    def in_transaction(self) -> bool:
        return self._xid is not None

    @property
    def xid(self) -> str:
        """The open transaction's id in hexadecimal digits; empty without one."""
        return "" if self._xid is None else self._xid.hex()

    # Statements.

    def execute(self, sql: str, parameters: Mapping[str, Any] | None = None) -> Result:
        """Run one statement of Oracle's SQL.

        Raises:
            DatabaseError: as a server would answer, or because the emulator does not know it.
        """
        given = dict(parameters or {})
        text = sql.strip().rstrip(";") if not sql.strip().upper().startswith(("BEGIN", "DECLARE")) else sql.strip()
        try:
            return self._run(text, given)
        except sqlite3.Error as error:
            raise refusal_of(error) from None

    def _run(self, text: str, given: dict[str, Any]) -> Result:
        if found := _ALTER_SESSION.fullmatch(text):
            self._alter_session(found[1])
            return Result()
        if found := _SAVEPOINT.fullmatch(text):
            self._savepoints[found[1].upper()] = len(self._undo)
            return Result()
        if found := _ROLLBACK_TO.fullmatch(text):
            self.rollback_to(found[1])
            return Result()
        if _LOCK.match(text):
            return Result()
        if self.flashback.call(text, given, in_transaction=self.in_transaction):
            return Result()
        if redo_dictionary.is_build(text):
            with self.writing(begin=False):
                redo_dictionary.build(self.log, self.thread, self.now(), self.container)
            return Result()
        if text.upper().startswith("BEGIN"):
            self.miner.call(text, given)
            return Result()
        if _DDL.match(text):
            self.ddl(text)
            return Result()
        tree = parsed(text)
        if isinstance(tree, exp.Insert):
            return Result(count=self._insert(tree, given))
        if isinstance(tree, exp.Update):
            return Result(count=self._update(tree, given))
        if isinstance(tree, exp.Delete):
            return Result(count=self._delete(tree, given))
        if isinstance(tree, exp.Commit):
            self.commit()
            return Result()
        if isinstance(tree, exp.Rollback):
            self.rollback()
            return Result()
        if isinstance(tree, exp.Query):
            return self._query(tree, given)
        raise NotSupportedError(type(tree).__name__.upper())

    def _alter_session(self, text: str) -> None:
        found = {name.upper(): quoted or plain for name, quoted, plain in _SETTING.findall(text)}
        if not found:
            raise DatabaseError(922, "missing or invalid option")
        if "CONTAINER" in found:
            pdb = str(self.log.fact("pdb") or "")
            if found["CONTAINER"].upper() not in (pdb.upper(), "CDB$ROOT") or not pdb:
                raise DatabaseError(65011, f"Pluggable database {found['CONTAINER']} does not exist.")
            self.container = found["CONTAINER"].upper()
        self.settings.update({name: value for name, value in found.items() if name != "CONTAINER"})
        self.miner.settings = self.settings

    def _query(self, tree: Any, given: dict[str, Any]) -> Result:
        names = {table.name.upper() for table in tree.find_all(exp.Table)}
        mined = "V$LOGMNR_CONTENTS" in names
        if names & {"V$LOGMNR_CONTENTS", "V$LOGMNR_LOGS"}:
            self.miner.show(mined=mined)
        self._see_tables(tree, given)
        cursor = self.connection.execute(sqlite_text(tree), _named(given))
        columns = tuple(described[0].upper() for described in cursor.description)
        rows: Iterator[tuple[Any, ...]] = iter(cursor)
        if mined:
            rows = self.miner.split(columns, rows)
        return Result(columns, rows)

    def _see_tables(self, tree: Any, given: dict[str, Any]) -> None:
        """Put in the place of each table the rows of it that this session sees."""
        for place, node in enumerate(list(tree.find_all(exp.Table))):
            name = folded(node.this) if isinstance(node.this, exp.Identifier) else ""
            if not name or name == "DUAL" or name.startswith(("V$", "GV$", "ALL_", "DBA_", "REDACTION_", "SESSION_")):
                if node.args.get("db") is not None:
                    node.set("db", None)
                continue
            table = find_table(self.connection, folded(node.args.get("db")) or self.user, name)
            version = node.args.get("version")
            scn: Any = self.flashback.scn
            if version is not None:
                of = version.expression
                scn = given[of.name] if isinstance(of, exp.Placeholder) else int(of.name)
            if scn is not None:
                self.flashback.require(table, int(scn))
            alias = node.alias or f"t{place}"
            seen: Any = exp.maybe_parse(self._seen(table, None if scn is None else int(scn)), dialect="sqlite")
            node.replace(exp.Subquery(this=seen, alias=exp.TableAlias(this=exp.to_identifier(alias, quoted=True))))

    def _seen(self, table: Table, scn: int | None, first: str = "") -> str:
        names = [name for name, _ in table.columns] + ([] if first else list(table.virtual))
        columns = ", ".join(f'"{name}"' for name in names)
        own = f"x'{self._xid.hex()}'" if self._xid is not None and scn is None else "NULL"
        at = 2**62 if scn is None else scn
        return (
            f'SELECT {first}{columns} FROM "data.{table.number}" WHERE (_from_scn <= {at} OR _from_xid = {own})'
            f" AND (_to_scn IS NULL OR _to_scn > {at}) AND (_to_xid IS NULL OR _to_xid <> coalesce({own}, x''))"
        )

    # Changes.

    def _insert(self, tree: exp.Insert, given: dict[str, Any]) -> int:
        target = tree.this
        named: list[str] = []
        if isinstance(target, exp.Schema):
            named = [folded(name) for name in target.expressions]
            target = target.this
        table = find_table(self.connection, folded(target.args.get("db")) or self.user, folded(target.this))
        source = tree.expression
        self._see_tables(source, given)
        rows = self.connection.execute(sqlite_text(source), _named(given)).fetchall()
        names = named or [name for name, _ in table.columns]
        return self.insert(table, [dict(zip(names, row, strict=True)) for row in rows])

    def insert(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> int:
        """Insert rows; columns that are not named take their default."""
        kinds = dict(table.columns)
        with self.writing():
            scn = self._change_scn()
            records = []
            for given in rows:
                unknown = set(given) - set(kinds)
                if unknown:
                    raise DatabaseError(904, f'"{min(unknown)}": invalid identifier')
                row = {
                    name: kind.kept(given[name]) if name in given else self._default(table, name)
                    for name, kind in table.columns
                }
                self._check(table, row, None)
                number = self._store(table, None, row)
                self._undo.append(Undo(table, INSERT, number, None, row))
                sql = redo_text.insert(table.quoted, table.columns, row)
                records.append(self._record(table, INSERT, number, sql, scn))
                records += self._pieces(table, row, list(kinds), number, scn)
            self.log.append(self.thread, records, self.script)
        return len(rows)

    def load(self, owner: str, name: str, rows: Iterable[tuple[Any, ...]]) -> int:
        """Insert whole rows, as many as there are, in a time that bulk loads need; holds some thousand at a time.

        Values are given as they are kept, and no key is checked: that is the caller's business.
        """
        table = find_table(self.connection, owner, name)
        names = [column for column, _ in table.columns]
        first = self.connection.execute(f'SELECT coalesce(max(_row), 0) + 1 FROM "data.{table.number}"').fetchone()[0]
        columns = ", ".join(["_row", "_from_xid", *(f'"{column}"' for column in names)])
        places = ", ".join("?" * (len(names) + 2))
        given, number = iter(rows), int(first)
        while chunk := list(itertools.islice(given, _LOADED_AT_ONCE)):
            with self.writing():
                scn = self._change_scn()
                numbered = list(enumerate(chunk, number))
                self.connection.executemany(
                    f'INSERT INTO "data.{table.number}" ({columns}) VALUES ({places})',
                    ((place, self._xid, *row) for place, row in numbered),
                )
                records = []
                for place, row in numbered:
                    sql = redo_text.insert(table.quoted, table.columns, dict(zip(names, row, strict=True)))
                    records.append(self._record(table, INSERT, place, sql, scn))
                self.log.append(self.thread, records)
            number += len(chunk)
        if number > first and all(undo.table.number != table.number for undo in self._undo):
            # So that the commit knows the table; the load itself can't be taken back to a savepoint.
            self._undo.append(Undo(table, INSERT, -1, None, {}))
        return number - int(first)

    def _default(self, table: Table, name: str) -> Any:
        if name in table.identities:
            number = int(self.log.fact(f"identity.{table.number}") or 1)
            self.log.put_fact(f"identity.{table.number}", number + 1)
            return number
        text = table.defaults.get(name)
        if text is None:
            return None
        return dict(table.columns)[name].kept(self.connection.execute(f"SELECT {text}").fetchone()[0])

    def _update(self, tree: exp.Update, given: dict[str, Any]) -> int:
        target = tree.this
        table = find_table(self.connection, folded(target.args.get("db")) or self.user, folded(target.this))
        sets = [(folded(pair.this.this), pair.expression) for pair in tree.expressions]
        new = dict(sets)
        rows = self._chosen(table, tree.args.get("where"), given, new)
        return self.update(table, rows)

    def update(self, table: Table, rows: Sequence[tuple[int, dict[str, Any], dict[str, Any]]]) -> int:
        """Update rows: number, what they hold, and new values of some columns."""
        kinds = dict(table.columns)
        with self.writing():
            scn = self._change_scn()
            records = []
            # Keys may move among the rows of one statement, so that they are checked when all are written.
            for number, before, given in rows:
                changed = {name: kinds[name].kept(value) for name, value in given.items()}
                after = {**before, **changed}
                self._check_nulls(table, after)
                self._lock(table, number)
                self._store(table, number, after)
                self._undo.append(Undo(table, UPDATE, number, before, after, changed))
                small = {n: v for n, v in changed.items() if not redo_text.out_of_row(kinds[n], v)}
                if small:
                    sql = redo_text.update(table.quoted, table.columns, before, small, table.rowid(number))
                    records.append(self._record(table, UPDATE, number, sql, scn))
                records += self._pieces(table, after, list(changed), number, scn)
            unique = {name for key in table.keys for name in key}
            for number, _, given in rows:
                if set(given) & unique:
                    written = next(u.after for u in reversed(self._undo) if u.row == number and u.table is table)
                    self._check_keys(table, written or {}, number)
            self.log.append(self.thread, records, self.script)
        return len(rows)

    def _delete(self, tree: exp.Delete, given: dict[str, Any]) -> int:
        target = tree.this
        table = find_table(self.connection, folded(target.args.get("db")) or self.user, folded(target.this))
        rows = self._chosen(table, tree.args.get("where"), given, {})
        return self.delete(table, [(number, dict(before)) for number, before, _ in rows])

    def delete(self, table: Table, rows: Sequence[tuple[int, dict[str, Any]]]) -> int:
        with self.writing():
            scn = self._change_scn()
            records = []
            for number, before in rows:
                self._lock(table, number)
                self._store(table, number, None)
                self._undo.append(Undo(table, DELETE, number, before, None))
                sql = redo_text.delete(table.quoted, table.columns, before, table.rowid(number))
                records.append(self._record(table, DELETE, number, sql, scn))
            self.log.append(self.thread, records, self.script)
        return len(rows)

    def _chosen(
        self, table: Table, where: exp.Expression | None, given: dict[str, Any], sets: Mapping[str, exp.Expression]
    ) -> list[tuple[int, dict[str, Any], dict[str, Any]]]:
        condition = "" if where is None else " " + sqlite_text(where)
        values = "".join(", " + sqlite_text(expression) for expression in sets.values())
        seen = self._seen(table, None, "_row, ")
        sql = f"SELECT _row, * {values} FROM ({seen}) AS t{condition}"
        names = [name for name, _ in table.columns]
        found = []
        for row in self.connection.execute(sql, _named(given)).fetchall():
            before = dict(zip(names, row[2:], strict=False))
            found.append((int(row[0]), before, dict(zip(sets, row[2 + len(names) :], strict=True))))
        return found

    def _check(self, table: Table, row: Mapping[str, Any], number: int | None) -> None:
        self._check_nulls(table, row)
        self._check_keys(table, row, number)

    def _check_nulls(self, table: Table, row: Mapping[str, Any]) -> None:
        for name in table.required:
            if row[name] is None:
                raise IntegrityError(1400, f'cannot insert NULL into ("{table.owner}"."{table.name}"."{name}")')

    def _check_keys(self, table: Table, row: Mapping[str, Any], number: int | None) -> None:
        for key in table.keys:
            values = [row[name] for name in key]
            if None in values:
                continue
            same = " AND ".join(f'"{name}" = ?' for name in key)
            others = self.connection.execute(
                f'SELECT _row FROM "data.{table.number}" WHERE {same} AND _to_scn IS NULL AND _to_xid IS NULL'
                " AND _row <> ?",
                (*values, -1 if number is None else number),
            ).fetchone()
            if others is not None:
                raise IntegrityError(1, f"unique constraint ({table.owner}.{table.name}) violated")

    def _lock(self, table: Table, number: int) -> None:
        other = self.connection.execute(
            f'SELECT 1 FROM "data.{table.number}" WHERE _row = ? AND (_from_xid <> ? OR _to_xid <> ?)',
            (number, self._xid, self._xid),
        ).fetchone()
        if other is not None:
            # A server would wait.
            raise DatabaseError(54, "resource busy and acquire with NOWAIT specified or timeout expired")

    def _store(self, table: Table, number: int | None, row: Mapping[str, Any] | None) -> int:
        """End a row's version and begin the next one."""
        execute = self.connection.execute
        if number is not None:
            execute(
                f'UPDATE "data.{table.number}" SET _to_xid = ? WHERE _row = ? AND _to_scn IS NULL AND _to_xid IS NULL',
                (self._xid, number),
            )
        else:
            number = int(execute(f'SELECT coalesce(max(_row), 0) + 1 FROM "data.{table.number}"').fetchone()[0])
        if row is not None:
            places = ", ".join("?" * (len(row) + 2))
            names = ", ".join(["_row", "_from_xid", *(f'"{name}"' for name in row)])
            execute(
                f'INSERT INTO "data.{table.number}" ({names}) VALUES ({places})', (number, self._xid, *row.values())
            )
        return number

    def _pieces(
        self, table: Table, row: Mapping[str, Any], names: Sequence[str], number: int, scn: int
    ) -> list[dict[str, Any]]:
        kinds = dict(table.columns)
        records = []
        for name in names:
            if redo_text.out_of_row(kinds[name], row[name]):
                for code, sql in redo_text.pieces(table.quoted, table.columns, row, table.key, name):
                    records.append({**self._record(table, code, number, sql, scn), "row_id": "A" * 18})
        return records

    def _record(
        self, table: Table | None, code: int, number: int | None, sql: str | None, scn: int, **more: Any
    ) -> dict[str, Any]:
        record = {
            "operation_code": code,
            "scn": scn,
            "xid": self._xid,
            "time": self.now(),
            "username": self.user,
            "sql_redo": sql,
            **more,
        }
        if table is not None:
            record |= {"owner": table.owner, "name": table.name, "object_id": table.number, "version": table.version}
            record["row_id"] = "A" * 18 if number is None else table.rowid(number)
        return record

    # Transactions.

    def begin(self, xid: str | None = None) -> str:
        """Begin a transaction, as the first change does; its id may be given."""
        with self.writing(begin=False):
            number = int(self.log.fact("transactions")) + 1
            self.log.put_fact("transactions", number)
            made = (10 * self.thread + number % 10).to_bytes(2, "little") + (number % 32).to_bytes(2, "little")
            given = xid or (self.script.xid if self.script else None)
            self._xid = bytes.fromhex(given) if given else made + number.to_bytes(4, "little")
            scn = self.log.next_scn(self.script.scn if self.script else None)
            self.connection.execute(
                'INSERT OR REPLACE INTO "sys.transactions" VALUES (?, ?, ?, ?, ?)',
                (self._xid, self.thread, scn, self.now(), self.user),
            )
            self.log.append(self.thread, [self._record(None, START, None, "set transaction read write;", scn)])
        return self.xid

    def commit(self, scn: int | None = None) -> int:
        """End the transaction; gives its commit SCN, 0 when there was nothing to commit."""
        if self._xid is None:
            return 0
        with self.writing(begin=False):
            at = self.log.next_scn(scn or (self.script.commit if self.script else None))
            for table in {id(u.table): u.table for u in self._undo}.values():
                self._settle(table, at)
            self.log.append(self.thread, [self._record(None, COMMIT, None, "commit;", at)])
            self.log.flush(self.thread, at, self.now())
        self._end()
        return at

    def _settle(self, table: Table, scn: int) -> None:
        for edge in ("from", "to"):
            self.connection.execute(
                f'UPDATE "data.{table.number}" SET _{edge}_scn = ?, _{edge}_xid = NULL WHERE _{edge}_xid = ?',
                (scn, self._xid),
            )

    def rollback(self) -> None:
        if self._xid is None:
            return
        with self.writing(begin=False):
            self._undo_to(0)
            at = self.log.next_scn()
            self.log.append(self.thread, [self._record(None, ROLLBACK, None, "rollback;", at)])
            self.log.flush(self.thread, at, self.now())
        self._end()

    def rollback_to(self, savepoint: str) -> None:
        """Undo what came after a savepoint.

        Raises:
            DatabaseError: the savepoint does not exist.
        """
        place = self._savepoints.get(savepoint.upper())
        if place is None:
            raise DatabaseError(1086, f"savepoint '{savepoint}' never established in this session or is invalid")
        with self.writing(begin=False):
            self._undo_to(place)

    def _undo_to(self, place: int) -> None:
        while len(self._undo) > place:
            undo = self._undo.pop()
            table, number, scn = undo.table, undo.row, self.log.next_scn()
            execute = self.connection.execute
            if undo.after is not None:
                execute(
                    f'DELETE FROM "data.{table.number}" WHERE _row = ? AND _from_xid = ? AND _to_xid IS NULL',
                    (number, self._xid),
                )
            if undo.before is not None:
                execute(
                    f'UPDATE "data.{table.number}" SET _to_xid = NULL WHERE _id = (SELECT max(_id) FROM'
                    f' "data.{table.number}" WHERE _row = ? AND _to_xid = ?)',
                    (number, self._xid),
                )
            rowid = table.rowid(number)
            if undo.operation == INSERT:
                code, sql = DELETE, redo_text.delete(table.quoted, table.columns, {}, rowid)
            elif undo.operation == DELETE:
                code, sql = INSERT, redo_text.insert(table.quoted, table.columns, undo.before or {})
            else:
                old = {name: (undo.before or {})[name] for name in undo.changed}
                code, sql = UPDATE, redo_text.update(table.quoted, table.columns, {}, old, rowid)
            self.log.append(self.thread, [self._record(table, code, number, sql, scn, rollback=1)])

    def _end(self) -> None:
        with self.writing(begin=False):
            self.connection.execute('DELETE FROM "sys.transactions" WHERE xid = ?', (self._xid,))
        self._xid = None
        self._undo.clear()
        self._savepoints.clear()

    def ddl(self, sql: str) -> None:
        """Run a definition: it ends the open transaction, and is one of its own."""
        self.commit()
        self.begin()
        try:
            with self.writing():
                scn = self._change_scn()
                change = definitions.apply(self.connection, self.user, sql, scn)
                record = self._record(change.table, DDL, None, sql + ";", scn, owner=change.owner, name=change.name)
                self.log.append(self.thread, [record], self.script)
        except BaseException:
            self.rollback()
            raise
        if change.emptied is not None:
            with self.writing(begin=False):
                self._empty(change.emptied, change.partition)
        self.commit()

    def _empty(self, table: Table, partition: str) -> None:
        self.connection.execute(
            f'UPDATE "data.{table.number}" SET _to_scn = ? WHERE _to_scn IS NULL AND _to_xid IS NULL AND {partition}',
            (int(self.log.fact("scn")) + 1,),
        )

    # Its clock and its file.

    def now(self) -> str:
        """The server's time, in whole seconds."""
        if self.script is not None and self.script.time is not None:
            return self.script.time
        return f"{dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M:%S}"

    def _change_scn(self) -> int:
        return self.log.next_scn(self.script.scn if self.script else None)

    def _records_per_log(self) -> int:
        row = self.connection.execute("SELECT value FROM \"sys.facts\" WHERE name = 'records_per_log'").fetchone()
        return int(row[0])

    @contextmanager
    def writing(self, *, begin: bool = True) -> Iterator[None]:
        """One write to the file, whole or not at all; begins a transaction where there is none."""
        if begin and self._xid is None:
            self.begin()
        if self.connection.in_transaction:
            yield
            return
        self.connection.execute("BEGIN IMMEDIATE")
        undone = len(self._undo)
        try:
            yield
        except BaseException:
            self.connection.execute("ROLLBACK")
            del self._undo[undone:]
            raise
        self.connection.execute("COMMIT")


def _named(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _bound(value) for name, value in given.items()}


def _bound(value: Any) -> Any:
    if isinstance(value, (dt.datetime, dt.date)):
        return value.isoformat(" ") if isinstance(value, dt.datetime) else f"{value} 00:00:00"
    return value if value is None or isinstance(value, (int, float, str, bytes)) else str(value)

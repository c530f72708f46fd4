"""Permissions to read: GRANT, DENY and REVOKE of SELECT, and error 229 for logins without one."""

from __future__ import annotations

from collections.abc import Iterable

from headrace_emulators.sqlserver.catalog import TableInfo
from headrace_emulators.sqlserver.errors import ProgrammingError
from headrace_emulators.sqlserver.reader import StatementReader
from headrace_emulators.sqlserver.storage import SqlServerStorage

_ALL_POWERFUL = ("sa", "dbo")
_DATABASE = "database"
_UNMASKED = "unmasked"
"""Where it is kept that a login sees through masks."""


class Permissions:
    """What the login of one connection may do.

    Every login may read everything at first, as a member of db_datareader may. A DENY takes that away, and a REVOKE
    undoes the DENY. A REVOKE without a DENY takes reading away too: it ends that membership as far as
    the object goes. A GRANT gives it back. `sa` is never refused.

    Args:
        storage: the connection.
        user: the login.
    """

    def __init__(self, storage: SqlServerStorage, user: str) -> None:
        self._user = user.lower()
        self._storage = storage
        self._hidden: set[str] = set()
        self._unmasked = True

    def change(self, statement: str) -> None:
        """Carry out GRANT, DENY or REVOKE."""
        reader = StatementReader(statement)
        word = reader.next().text.upper()
        reader.accept("GRANT", "OPTION", "FOR")
        actions = {action.strip().upper() for action in reader.until("ON", "TO", "FROM").split(",")}
        securable = self._securable(reader) if reader.accept("ON") else _DATABASE
        if not reader.accept("TO"):
            reader.expect("FROM")
        users = [reader.name().lower()]
        while reader.accept(","):
            users.append(reader.name().lower())
        if actions == {"UNMASK"}:
            securable = _UNMASKED
        elif not actions & {"SELECT", "CONTROL", "ALL"}:
            # Other permissions are not looked at, since reading is all that a source does.
            return
        with self._storage.writing():
            for user in users:
                denied = self._storage.sqlite.execute(
                    'DELETE FROM "emulator.permissions" WHERE grantee = ? AND securable = ? RETURNING state',
                    (user, securable),
                ).fetchall()
                if word == "REVOKE" and denied == [("DENY",)]:
                    continue
                self._storage.sqlite.execute(
                    'INSERT INTO "emulator.permissions" VALUES (?, ?, ?)', (user, securable, word)
                )

    @staticmethod
    def _securable(reader: StatementReader) -> str:
        first = reader.name()
        if reader.accept(":", ":") or reader.accept("::"):
            if first.upper() == "SCHEMA":
                return f"schema::{reader.name()}".lower()
            if first.upper() == "DATABASE":
                reader.name()
                return _DATABASE
            first = reader.name()
        parts = [first]
        while reader.accept("."):
            parts.append(reader.name())
        if reader.word() == "(":
            reader.parenthesised()
        return ".".join(parts[-2:] if len(parts) > 1 else ["dbo", *parts]).lower()

    def check(self, tables: Iterable[TableInfo]) -> None:
        """Read what is refused to this login now; raises error 229 when one of the tables is."""
        self._hidden, self._unmasked = set(), self._user in _ALL_POWERFUL
        if self._user in _ALL_POWERFUL:
            return
        rows = self._storage.sqlite.execute(
            'SELECT securable, state FROM "emulator.permissions" WHERE grantee = ?', (self._user,)
        )
        states = dict(rows.fetchall())
        self._hidden = {securable for securable, state in states.items() if state != "GRANT"}
        granted = {securable for securable, state in states.items() if state == "GRANT"}
        self._unmasked = states.get(_UNMASKED) == "GRANT"
        denied = {securable for securable, state in states.items() if state == "DENY"}
        for table in tables:
            path, schema = table.path.lower(), f"schema::{table.schema.lower()}"
            scopes = (path, schema, *([_DATABASE] if table.object_id else []))
            if any(s in denied for s in scopes) or (
                any(s in self._hidden for s in scopes) and not any(s in granted for s in scopes)
            ):
                raise ProgrammingError(
                    f"The SELECT permission was denied on the object '{table.name}', database"
                    f" '{self._storage.name}', schema '{table.schema}'.",
                    229,
                )

    def allowed(self, securable: str | None, kind: str | None, permission: str | None, *part: str | None) -> int:
        """HAS_PERMS_BY_NAME; SQLite calls it while a statement runs, so it answers from what was read before."""
        del part
        if str(permission or "").upper() == "UNMASK":
            return int(self._unmasked)
        if str(permission or "").upper() not in ("SELECT", "CONTROL"):
            return 1
        parts = [p.strip("[] ").lower() for p in str(securable or "").split(".")]
        if str(kind or "").upper() == "SCHEMA":
            return int(not {f"schema::{parts[-1]}", _DATABASE} & self._hidden)
        path = parts[-2:] if len(parts) > 1 else ["dbo", *parts]
        return int(not {".".join(path), f"schema::{path[0]}", _DATABASE} & self._hidden)

"""Definitions in the log, and what tables are captured after them. Pure; no database."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from headrace.sources.oracle.alterations import altered
from headrace.sources.oracle.captured_table import OracleTable, tables_of
from headrace.sources.oracle.catalog import Selection
from headrace.sources.oracle.ledger import Ledger, Transaction
from headrace.sources.oracle.range_index import RangeIndex
from headrace.sources.oracle.scn import ScnRange
from headrace.sources.tables.rewrites import Rewrite

_ADDS = re.compile(r"^\s*ALTER\s+TABLE\s+\S+\s+ADD\b", re.IGNORECASE)
_TAKES = re.compile(r"\b(DROP|RENAME|MODIFY|UNUSED)\b", re.IGNORECASE)
_TABLES = ("CREATE TABLE", "ALTER TABLE", "DROP TABLE", "RENAME")
_NO_LOGGING = re.compile(
    r"ALTER\s+TABLE\b.*\bDROP\s+SUPPLEMENTAL\s+LOG\s+DATA\s*\(\s*ALL\s*\)\s*COLUMNS", re.IGNORECASE | re.DOTALL
)

_CREATE, _ALTER, _DROP = "CREATE", "ALTER", "DROP"


@dataclass(frozen=True)
class Definition:
    """A DDL statement of a committed transaction.

    Args:
        commit: the SCN of its commit.
        table: `owner.name`.
        sql: the statement.
        scn: of its record.
        rs_id: the record.
        xid: its transaction.
        user: who ran it; None when not known.
        time: when it was committed, by the server's clock.
        zone: the offset of that clock.
        change: what it means for the stream where that is not its first word: `CREATE` takes a table in,
            `DROP` leaves one out; None otherwise.
    """

    commit: int
    table: str
    sql: str
    scn: int
    rs_id: str
    xid: str
    user: str | None
    time: str | None
    zone: str
    change: str | None = None

    @property
    def kind(self) -> str:
        """`CREATE`, `ALTER` or `DROP`."""
        word = self.sql.split(maxsplit=1)[0].upper()
        return self.change or (word if word in (_CREATE, _DROP) else _ALTER)

    @property
    def only_adds(self) -> bool:
        return _ADDS.search(self.sql) is not None and _TAKES.search(self.sql) is None

    def to_json(self) -> dict[str, Any]:
        """JSON values, for offsets and slices."""
        values = asdict(self)
        if self.change is None:
            del values["change"]
        return values

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Definition:
        """Read `to_json`'s form back; other keys are left."""
        return cls(**{field.name: data[field.name] for field in fields(cls) if field.name in data})


def definitions_of(
    ledger: Ledger, indexes: Mapping[ScnRange, RangeIndex], selection: Selection, after: int, upto: int
) -> list[Definition]:
    """Definitions of tables that are captured or would be, in the order of their commits.

    Args:
        ledger: the transactions of the ranges.
        indexes: what the mined ranges hold.
        selection: which tables the options mean.
        after: commits after this SCN.
        upto: commits up to and with this one.
    """
    commits = {t.xid: (t.commit, t) for t in ledger.committed if t.commit is not None and after < t.commit <= upto}
    definitions = []
    for index in indexes.values():
        for xid, owner, name, sql, at, rs_id in index.definitions:
            text = str(sql or "").strip()
            if xid not in commits or not owner or not name or not selection.means(owner, name):
                continue
            if text.upper().startswith(_TABLES):
                commit, t = commits[xid]
                statement = text.rstrip(";")
                definitions.append(
                    Definition(commit, f"{owner}.{name}", statement, at, rs_id, xid, t.user, t.time, t.zone)
                )
    return sorted(definitions, key=lambda definition: definition.commit)


def only_defines(transaction: Transaction, indexes: Mapping[ScnRange, RangeIndex]) -> bool:
    count = sum(1 for r in transaction.ranges for d in indexes[r].definitions if d.xid == transaction.xid)
    return count >= transaction.rows


class TablesAfter:
    """Which tables are captured after definitions, and how they look.

    Args:
        known: those that were captured before.
        schemas: how they looked.
        uncaptured: those that were captured, and are no more or not whole.

    Attributes:
        known, schemas: the same afterwards.
        partial: tables that are captured on, though they do not log all their columns any more.
        fresh: tables that came in with rows that the log does not have: they existed, and were not captured or not
            whole.
        recreated: tables that were dropped, and created again under their name.
        applied: the definitions, with `change` where that is not their first word.
        rewrites: what they may have done to rows that were there.
    """

    def __init__(self, known: Iterable[str], schemas: Mapping[str, Any], uncaptured: Collection[str] = ()) -> None:
        self.known = list(known)
        self.partial = {path for path in self.known if path in uncaptured}
        self._gone = {path for path in uncaptured if path not in self.known}
        self.schemas = dict(schemas)
        self.fresh: list[str] = []
        self.recreated: list[str] = []
        self.applied: list[Definition] = []
        self.rewrites: list[Rewrite] = []

    def follow(
        self,
        definitions: Sequence[Definition],
        captured: Mapping[str, OracleTable],
        *,
        logs_all: Callable[[str], bool],
        by_logging: bool,
    ) -> None:
        """Take definitions in, in their order.

        Args:
            definitions: of tables that the options mean.
            captured: the captured tables as the server's catalog shows them now.
            logs_all: whether a table logs all its columns now.
            by_logging: whether tables are captured because they log all their columns.
        """
        for definition in definitions:
            path, sql = definition.table, definition.sql.upper()
            self.applied.append(definition)
            if _NO_LOGGING.match(sql):
                if by_logging and path in self.known:
                    self.applied[-1] = replace(definition, change=_DROP)
                    self._leave_out(path)
                    continue
                if path in self.known and not logs_all(path):
                    self.partial.add(path)
            table = captured.get(path)
            if table is None:
                # Dropped now or by a later definition; until then its last schema serves.
                if sql.startswith("DROP"):
                    self._leave_out(path)
                continue
            # The statement that creates it again may come with a later batch.
            dropped = sql.startswith("DROP TABLE") and path in self.known
            if (dropped or (sql.startswith("CREATE") and path in self._gone)) and path not in self.recreated:
                self.recreated.append(path)
            if path in self.schemas and sql.startswith("ALTER"):
                table, rewrite = altered(definition.sql, tables_of.one(self.schemas[path]), table)
                self.rewrites += [] if rewrite is None else [rewrite]
            self.schemas[path] = table.to_json()
            if path in self.partial and logs_all(path):
                self.partial.discard(path)
                self.fresh.append(path)
            if path not in self.known:
                self.known.append(path)
                if not sql.startswith("CREATE"):
                    self.applied[-1] = replace(definition, change=_CREATE)
                    self.fresh.append(path)

    def _leave_out(self, path: str) -> None:
        self.schemas.pop(path, None)
        self.known = [name for name in self.known if name != path]
        self.fresh = [name for name in self.fresh if name != path]
        self.recreated = [name for name in self.recreated if name != path]
        self.partial.discard(path)
        self._gone.add(path)

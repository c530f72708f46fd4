"""Definitions in the log, and what tables are captured after them. Pure; no database."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from headrace.sources.oracle.catalog import Selection
from headrace.sources.oracle.ledger import Ledger, Transaction
from headrace.sources.oracle.staging import Range
from headrace.sources.oracle.structure import OracleTable
from headrace.sources.signals import say_once
from headrace.sources.tables.unlogged import read_again, say_altered

_PARTITION = re.compile(r"ALTER\s+TABLE\b.*\b(EXCHANGE|TRUNCATE|DROP)\s+(SUB)?PARTITIONS?\b", re.IGNORECASE | re.DOTALL)
_TABLES = ("CREATE TABLE", "ALTER TABLE", "DROP TABLE", "RENAME")
_NO_LOGGING = re.compile(
    r"ALTER\s+TABLE\b.*\bDROP\s+SUPPLEMENTAL\s+LOG\s+DATA\s*\(\s*ALL\s*\)\s*COLUMNS", re.IGNORECASE | re.DOTALL
)


def definitions_of(
    ledger: Ledger, indexes: Mapping[Range, Mapping[str, Any]], selection: Selection, after: int, upto: int
) -> list[dict[str, Any]]:
    """Definitions of tables that are captured or would be, in the order of their commits.

    Args:
        ledger: the transactions of the ranges.
        indexes: what the mined ranges say.
        selection: which tables the options mean.
        after: commits after this SCN.
        upto: commits up to and with this one.
    """
    commits = {t.xid: t for t in ledger.committed if t.commit is not None and after < t.commit <= upto}
    found = []
    for index in indexes.values():
        for xid, owner, name, sql, at, rs_id in index["definitions"]:
            transaction = commits.get(xid)
            text = str(sql or "").strip()
            if transaction is None or not owner or not name or not selection.means(owner, name):
                continue
            if text.upper().startswith(_TABLES):
                found.append(
                    {"commit": transaction.commit, "table": f"{owner}.{name}", "sql": text.rstrip(";"), "scn": at,
                     "rs_id": rs_id, "xid": xid, "user": transaction.user,
                     "time": transaction.time, "zone": transaction.zone}
                )  # fmt: skip
    return sorted(found, key=lambda definition: definition["commit"])


def only_defines(transaction: Transaction, indexes: Mapping[Range, Mapping[str, Any]]) -> bool:
    """Whether a transaction has definitions and nothing else."""
    count = sum(1 for r in transaction.ranges for d in indexes[r]["definitions"] if d[0] == transaction.xid)
    return count >= transaction.rows


class TablesAfter:
    """Which tables are captured after definitions, and how they look.

    Args:
        known: those that were captured before.
        structures: how they looked.
        uncaptured: those that were captured, and are no more or not whole.

    Attributes:
        known, structures: the same afterwards.
        partial: tables that are captured on, though they do not log all their columns any more.
        fresh: tables that came in with rows that the log does not tell: they were there, and not captured or not whole.
        made_again: tables that were dropped, and made again under their name.
        told: the definitions, with `change` where it is not what their first word says.
    """

    def __init__(self, known: Iterable[str], structures: Mapping[str, Any], uncaptured: Collection[str] = ()) -> None:
        self.known = list(known)
        self.partial = {path for path in self.known if path in uncaptured}
        self._gone = {path for path in uncaptured if path not in self.known}
        self.structures = dict(structures)
        self.fresh: list[str] = []
        self.made_again: list[str] = []
        self.told: list[dict[str, Any]] = []

    def follow(
        self,
        definitions: Sequence[Mapping[str, Any]],
        found: Mapping[str, OracleTable],
        *,
        logs_all: Callable[[str], bool],
        by_logging: bool,
    ) -> None:
        """Take definitions in, in their order.

        Args:
            definitions: of tables that the options mean.
            found: the captured tables as the server's catalog shows them now.
            logs_all: whether a table logs all its columns now.
            by_logging: whether tables are captured because they log all their columns.
        """
        for definition in definitions:
            path, sql = definition["table"], definition["sql"].upper()
            told = dict(definition)
            self.told.append(told)
            if _NO_LOGGING.match(sql):
                if by_logging and path in self.known:
                    told["change"] = "DROP"
                    self._leave_out(path)
                    continue
                if path in self.known and not logs_all(path):
                    self.partial.add(path)
            if (moved := _PARTITION.match(sql)) is not None:
                say_once(
                    f"A partition of table '{path}' was changed as a whole ({moved[1]} PARTITION): no change tells "
                    f"which rows came or went. {read_again(path)}"
                )
            table = found.get(path)
            if table is None:
                # Dropped now or by a later definition; until then its last structure serves.
                if sql.startswith("DROP"):
                    self._leave_out(path)
                continue
            # The statement that makes it again may come with a later batch.
            dropped = sql.startswith("DROP TABLE") and path in self.known
            if (dropped or (sql.startswith("CREATE") and path in self._gone)) and path not in self.made_again:
                self.made_again.append(path)
            if path in self.structures and not sql.startswith("CREATE"):
                say_altered(OracleTable.from_json(self.structures[path]).schema, table.schema)
            self.structures[path] = table.to_json()
            if path in self.partial and logs_all(path):
                self.partial.discard(path)
                self.fresh.append(path)
            if path not in self.known:
                self.known.append(path)
                if not sql.startswith("CREATE"):
                    told["change"] = "CREATE"
                    self.fresh.append(path)

    def _leave_out(self, path: str) -> None:
        self.structures.pop(path, None)
        self.known = [name for name in self.known if name != path]
        self.fresh = [name for name in self.fresh if name != path]
        self.made_again = [name for name in self.made_again if name != path]
        self.partial.discard(path)
        self._gone.add(path)

"""What a mined range holds, without its rows: its transactions, definitions and tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import DataLossError
from headrace.sources.oracle.redo_codes import COMMIT, CONTROL, DDL, MARKER, MISSING, START

_UTC = "+00:00"


@dataclass(frozen=True)
class TransactionEnd:
    """Where a transaction ends.

    Args:
        committed: whether it is committed, and not rolled back.
        scn, thread, rs_id, ssn: of the record.
        time: when, by the server's clock.
    """

    committed: bool
    scn: int
    time: str | None
    thread: int
    rs_id: str
    ssn: int


@dataclass(slots=True)
class MinedTransaction:
    """What one range has of a transaction.

    Args:
        start: the SCN at which it begins; None where that is in another range.
        start_time: when, by the server's clock.
        user: whose; None when not known.
        first: the SCN of its first row in the range; None without rows.
        rows: how many rows of it are in the range.
        undo: how many of them take others back.
        replicated: whether it is a replication's.
        end: where it ends; None where that is in another range.
    """

    start: int | None = None
    start_time: str | None = None
    user: str | None = None
    first: int | None = None
    rows: int = 0
    undo: int = 0
    replicated: bool = False
    end: TransactionEnd | None = None

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            "start": self.start,
            "start_time": self.start_time,
            "user": self.user,
            "first": self.first,
            "rows": self.rows or None,
            "undo": self.undo if self.rows else None,
            "marker": self.replicated or None,
        }
        data = {name: value for name, value in data.items() if value is not None}
        if self.end is not None:
            data |= {
                "end": "commit" if self.end.committed else "rollback",
                "scn": self.end.scn,
                "time": self.end.time,
                "thread": self.end.thread,
                "rs_id": self.end.rs_id,
                "ssn": self.end.ssn,
            }
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> MinedTransaction:
        """Read `to_json`'s form back."""
        end = None
        if "end" in data:
            committed = data["end"] == "commit"
            end = TransactionEnd(committed, data["scn"], data["time"], data["thread"], data["rs_id"], data["ssn"])
        return cls(
            data.get("start"),
            data.get("start_time"),
            data.get("user"),
            data.get("first"),
            data.get("rows", 0),
            data.get("undo", 0),
            data.get("marker", False),
            end,
        )

    def followed_by(self, later: MinedTransaction) -> MinedTransaction | None:
        """What two ranges have of it together; None where the later one has another transaction of the same id."""
        if self.end is not None or later.start is not None:
            return None
        return MinedTransaction(
            self.start,
            self.start_time,
            self.user or later.user,
            later.first if self.first is None else self.first,
            self.rows + later.rows,
            self.undo + later.undo,
            self.replicated or later.replicated,
            later.end,
        )


class MinedDefinition(NamedTuple):
    """A DDL statement in a range, whether its transaction is committed or not."""

    xid: str
    owner: str | None
    name: str | None
    sql: str | None
    scn: int
    rs_id: str


@dataclass
class RangeIndex:
    """What a range holds.

    Args:
        zone: the offset of the server's clock.
        transactions: by id.
        definitions: in mined order.
        tables: owner and name of those that have rows in it.
        rows: how many it has.
    """

    zone: str = _UTC
    transactions: dict[str, MinedTransaction] = field(default_factory=dict)
    definitions: list[MinedDefinition] = field(default_factory=list)
    tables: list[tuple[str, str]] = field(default_factory=list)
    rows: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "transactions": {xid: mined.to_json() for xid, mined in self.transactions.items()},
            "definitions": [list(definition) for definition in self.definitions],
            "tables": [list(table) for table in self.tables],
            "zone": self.zone,
            "rows": self.rows,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RangeIndex:
        """Read `to_json`'s form back."""
        return cls(
            data["zone"],
            {xid: MinedTransaction.from_json(mined) for xid, mined in data["transactions"].items()},
            [MinedDefinition(*definition) for definition in data["definitions"]],
            [(owner, name) for owner, name in data["tables"]],
            data["rows"],
        )

    def take(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Take in a batch of mined rows; gives those that carry changes.

        Raises:
            DataLossError: LogMiner reports missing SCNs.
        """
        codes = batch.column("code")
        control = pc.is_in(codes, value_set=pa.array(CONTROL, codes.type))
        for row in batch.filter(control).to_pylist():
            self._note(row)
        rows = batch.filter(pc.invert(control))
        if rows.num_rows:
            self._count(rows)
        return rows

    def _note(self, row: Mapping[str, Any]) -> None:
        code = row["code"]
        if code == MISSING:
            raise DataLossError(
                f"LogMiner reports that redo is missing at SCN {row['scn']} of thread {row['thread']}.",
                remedy="Restore the logs, or take a new snapshot with a new checkpoint.",
            )
        mined = self.transactions.setdefault(row["xid"], MinedTransaction())
        if code == START:
            mined.start, mined.start_time = row["scn"], row["time"]
            mined.user = row["user"] or mined.user
        elif code == MARKER:
            mined.replicated = True
        else:
            mined.end = TransactionEnd(code == COMMIT, row["scn"], row["time"], row["thread"], row["rs_id"], row["ssn"])

    def _count(self, rows: pa.RecordBatch) -> None:
        counted = pa.table(
            {
                "xid": rows.column("xid"),
                "undo": pc.cast(rows.column("undo"), pa.int64()),
                "scn": rows.column("scn"),
                "user": rows.column("user"),
            }
        ).group_by("xid")
        sums = counted.aggregate([("xid", "count"), ("undo", "sum"), ("scn", "min"), ("user", "max")])
        columns = [sums.column(name).to_pylist() for name in ("xid", "xid_count", "undo_sum", "scn_min", "user_max")]
        for xid, count, undo, first, user in zip(*columns, strict=True):
            mined = self.transactions.setdefault(xid, MinedTransaction())
            if mined.first is None:
                mined.first = first
                mined.user = mined.user or user
            mined.rows += count
            mined.undo += undo
        pairs = pa.table({"o": rows.column("owner"), "n": rows.column("name")}).group_by(["o", "n"]).aggregate([])
        named = {
            (owner, name) for owner, name in zip(*(pairs.column(c).to_pylist() for c in "on"), strict=True) if name
        }
        self.tables = sorted({*self.tables, *named})
        definitions = rows.filter(pc.equal(rows.column("code"), DDL)).select(MinedDefinition._fields)
        self.definitions += [MinedDefinition(**row) for row in definitions.to_pylist()]
        self.rows += rows.num_rows

    def of_transactions(self, xids: Collection[str]) -> RangeIndex:
        transactions = {xid: mined for xid, mined in self.transactions.items() if xid in xids}
        definitions = [definition for definition in self.definitions if definition.xid in xids]
        rows = sum(mined.rows for mined in transactions.values())
        return RangeIndex(self.zone, transactions, definitions, self.tables, rows)


def joined_index(indexes: Sequence[RangeIndex]) -> RangeIndex | None:
    """The index of a range that is made of others, oldest first; None where one index can't hold it.

    That is where a transaction ends in one and its id is used again in a later one: an index knows an id once.
    """
    transactions: dict[str, MinedTransaction] = {}
    for index in indexes:
        for xid, mined in index.transactions.items():
            known = transactions.get(xid)
            together = mined if known is None else known.followed_by(mined)
            if together is None:
                return None
            transactions[xid] = together
    if len({index.zone for index in indexes}) > 1:
        return None
    return RangeIndex(
        indexes[0].zone,
        transactions,
        [definition for index in indexes for definition in index.definitions],
        sorted({table for index in indexes for table in index.tables}),
        sum(index.rows for index in indexes),
    )

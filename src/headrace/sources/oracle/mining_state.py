"""How far the log is mined, and what of it is not delivered: what the offset of an Oracle database keeps in `log`.

The driver decides from it which ranges are mined next, which are mined beyond the last offset, and which are merged.
Offsets name the ranges that hold what is not delivered, so they are kept few; a range is mined once
and lies in staging.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Any

from headrace.sources.base import Limit
from headrace.sources.offset import Offset, all_known
from headrace.sources.oracle import scn
from headrace.sources.oracle.definitions import Definition
from headrace.sources.oracle.ledger import OpenTransaction, Transaction
from headrace.sources.oracle.options import OracleSettings
from headrace.sources.oracle.range_index import RangeIndex
from headrace.sources.oracle.scn import ScnRange
from headrace.sources.oracle.staging import Staging

_PARTS = frozenset(
    ["scn", "mined", "ranges", "mining", "open", "commit_scn", "resetlogs", "window", "definitions", "rules"]
)


@dataclass(frozen=True)
class MiningState:
    """The state of mining where a batch ends.

    Args:
        needed_after: everything after this SCN has to be in the log if all staging were lost.
        mined: ranges are mined up to this SCN.
        resetlogs: the database's incarnation.
        rules: a digest of the options that decide how tables look; None where an earlier release left none.
        ranges: mined ranges that hold rows of transactions that are not delivered.
        mining: ranges that tasks of the batch mine.
        open: open transactions, by id.
        newest_commits: the newest delivered commits of each redo thread: `scn:thread:xid`.
        window: the ranges whose transactions are in the batch.
        definitions: the definitions of captured tables that take effect in the batch.
    """

    needed_after: int
    mined: int
    resetlogs: str
    rules: str | None
    ranges: tuple[ScnRange, ...] = ()
    mining: tuple[ScnRange, ...] = ()
    open: Mapping[str, OpenTransaction] = field(default_factory=dict)
    newest_commits: Mapping[str, str] = field(default_factory=dict)
    window: tuple[ScnRange, ...] = ()
    definitions: tuple[Definition, ...] = ()

    @classmethod
    def of(cls, offset: Offset) -> MiningState:
        """The state that an offset keeps; not before the first batch."""
        return cls.from_json(offset.log)

    def in_offset(self, offset: Offset) -> Offset:
        return replace(offset, log=self.to_json())

    def settled(self) -> MiningState:
        """The state after a batch without streamed rows."""
        return replace(self, window=(), definitions=())

    def mined_again(self, size: int) -> MiningState:
        """The state in which ranges are mined again from the beginning of the oldest open transaction.

        Args:
            size: how many SCNs a range has.
        """
        low = min([self.needed_after, *(transaction.start - 1 for transaction in self.open.values())])
        cuts = [*range(low, self.mined, size), self.mined]
        again = tuple(ScnRange(after, upto) for after, upto in pairwise(cuts))
        return replace(self, ranges=again, mining=(), needed_after=low)

    @property
    def unfinished(self) -> tuple[ScnRange, ...]:
        """The ranges that later batches read."""
        return (*self.ranges, *self.mining)

    def to_json(self) -> dict[str, Any]:
        return {
            "scn": str(self.needed_after),
            "mined": str(self.mined),
            "ranges": _to_json(self.ranges),
            "mining": _to_json(self.mining),
            "open": {xid: list(transaction) for xid, transaction in self.open.items()},
            "commit_scn": dict(self.newest_commits),
            "resetlogs": self.resetlogs,
            "window": _to_json(self.window),
            "definitions": [definition.to_json() for definition in self.definitions],
            **({} if self.rules is None else {"rules": self.rules}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> MiningState:
        """Read `to_json`'s form back.

        Raises:
            NewerRelease: a later release wrote it.
        """
        all_known(data, _PARTS)
        return cls(
            needed_after=int(data["scn"]),
            mined=int(data["mined"]),
            resetlogs=data["resetlogs"],
            rules=data.get("rules"),
            ranges=_from_json(data["ranges"]),
            mining=_from_json(data["mining"]),
            open={xid: OpenTransaction(*values) for xid, values in data["open"].items()},
            newest_commits=data["commit_scn"],
            window=_from_json(data["window"]),
            definitions=tuple(map(_definition, data["definitions"])),
        )


def _definition(data: Mapping[str, Any]) -> Definition:
    all_known(data, {field.name for field in fields(Definition)})
    return Definition.from_json(data)


def _to_json(ranges: Iterable[ScnRange]) -> list[list[int]]:
    return [scns.to_json() for scns in ranges]


def _from_json(data: Iterable[Sequence[int]]) -> tuple[ScnRange, ...]:
    return tuple(map(ScnRange.from_json, data))


_JOINED = 8
"""So many ranges are made one, as long as they have few rows."""
_JOINED_ROWS = 100_000
_FEW_ROWS = 1_000
_MOST_RANGES = 64
"""So many ranges' SCNs a joined one may span: where staging is lost, one session mines them."""
Mined = dict[ScnRange, RangeIndex]
"""What mined ranges hold."""


class MinedRanges:
    """The ranges of one database's log, as a planner needs them.

    Args:
        settings: the source's options.
        mine: the index of a range, which is mined where that is not known.
        staging: where mined ranges of tables of these schemas are.
        ahead: ranges that this process mined beyond the last offset, in order; it is kept.
        restarted: whether this process has planned no batch yet.
    """

    def __init__(
        self,
        settings: OracleSettings,
        *,
        mine: Callable[[ScnRange, Mapping[str, Any]], RangeIndex],
        staging: Callable[[Mapping[str, Any]], Staging],
        ahead: list[ScnRange],
        restarted: bool,
    ) -> None:
        self._settings = settings
        self._mine = mine
        self._staging = staging
        self._ahead = ahead
        self._restarted = restarted

    def mined(self, scns: ScnRange) -> None:
        self._ahead.append(scns)

    def forget_up_to(self, mined: int) -> None:
        """An offset names what is mined up to an SCN."""
        self._ahead[:] = [scns for scns in self._ahead if scns.high > mined]

    def join(self, schemas: Mapping[str, Any]) -> None:
        """Make few ranges of the many that a quiet hour leaves and that no offset names."""
        groups: list[list[ScnRange]] = [[]]
        size = 0
        for scns in self._ahead:
            rows = self._mine(scns, schemas).rows
            if size + rows > _JOINED_ROWS and groups[-1]:
                groups.append([])
                size = 0
            groups[-1].append(scns)
            size += rows
        for group in groups:
            joined = self._staging(schemas).joined(group) if len(group) >= _JOINED else None
            if joined is not None:
                index = self._ahead.index(group[0])
                self._ahead[index : index + len(group)] = [joined[0]]

    def fewer(
        self, ranges: list[ScnRange], pending: Sequence[Transaction], indexes: Mined, end: Offset
    ) -> list[ScnRange]:
        """The ranges that open transactions need, the newest small ones of them made one.

        Otherwise a transaction that writes all the time would name one for each batch. A range is put together with
        newer ones when they have as many rows, so a row is written a few times and not once per batch.
        """
        commit = scn.number(end.commit)
        xids = {transaction.xid for transaction in pending}
        group: list[ScnRange] = []
        total = 0
        for scns in reversed([scns for scns in ranges if scns.high <= commit]):
            mined = indexes[scns].transactions
            rows = sum(mined[xid].rows for xid in xids if xid in mined)
            span = (group[0].high if group else scns.high) - scns.low
            much = rows > total + _FEW_ROWS or total + rows > _JOINED_ROWS
            if group and (much or span > _MOST_RANGES * self._settings.mining_range_scns):
                break
            group.append(scns)
            total += rows
        group.reverse()
        if len(group) < _JOINED:
            return ranges
        merged = self._staging(end.schemas).merged(group, xids, [indexes[scns] for scns in group])
        if merged is None:
            return ranges
        return [merged if scns == group[0] else scns for scns in ranges if scns not in group[1:]]

    def known_ahead(self, reached: int, schemas: Mapping[str, Any]) -> list[ScnRange]:
        """What this process, or one before it, mined already beyond an offset; forgotten where it does not follow."""
        if self._restarted:
            return self._staged_ahead(reached, schemas)
        ahead = [scns for scns in self._ahead if scns.low >= reached]
        if ahead and ahead[0].low != reached:
            ahead = []
        self._ahead[:] = ahead
        return ahead

    def _staged_ahead(self, reached: int, schemas: Mapping[str, Any]) -> list[ScnRange]:
        """What staging has beyond an offset: an idle stream names nothing of it, and its logs may be gone."""
        ahead = self._staging(schemas).following(reached)
        self._ahead[:] = ahead
        return list(ahead)

    def wanted(self, reached: int, upper: int, limit: Limit, after: int) -> list[ScnRange]:
        if limit.upto:
            upper = min(upper, max(scn.number(limit.upto), after))
        size = self._settings.mining_range_scns
        ranges: list[ScnRange] = []
        while reached < upper and len(ranges) < self._settings.mining_sessions:
            high = min(upper, reached + size)
            ranges.append(ScnRange(reached, high))
            reached = high
        return ranges

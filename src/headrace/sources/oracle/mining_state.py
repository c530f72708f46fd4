"""How far the log is mined, and what of it is not delivered: what the offset of an Oracle database keeps in `log`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Any

from headrace.sources.offset import Offset, all_known
from headrace.sources.oracle.definitions import Definition
from headrace.sources.oracle.ledger import OpenTransaction
from headrace.sources.oracle.scn import ScnRange

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
        """The offset with this state."""
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
        """JSON values, as checkpoints have them."""
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

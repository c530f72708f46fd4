"""The offset of a captured database: where a batch ends, as Spark keeps it in its checkpoint.

One JSON object. `commit` is the position up to which every table has been delivered, but for the tables named in
`tables`, which lag behind (they are in their snapshot, or catching up after it). The schemas of all tables stand in
it too, packed, because they decide how rows are read: no second log of schemas can be lost or disagree. So its size
grows with tables, never with rows.

It has a version, and a name for each part. A part that is new is left out where nothing needs it, so that an earlier
release can go on; a part that a release does not know stops it (`headrace.versions`).
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import threading
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Generic, TypeVar

from headrace.versions import require_known, require_readable

VERSION = 2
"""Raised only when a part that earlier releases know changes its meaning; a new part needs no new version."""
_REMEDY = "Go on with that release, or start with a new checkpoint."
Made = TypeVar("Made")

Key = tuple[str | None, ...]
"""A key as canonical texts in key order."""

_TABLE_PARTS = frozenset(["commit", "chunk", "lower", "last", "bounds", "rows", "done", "empty", "read"])
_PARTS = frozenset(
    ["version", "source", "commit", "commit_time", "capture_time", "clock", "initial", "known", "tables", "structures"]
) | frozenset(["heartbeat", "gaps", "ad_hoc", "uncaptured", "log", "reads", "versions", "skipped"])


@dataclass(frozen=True)
class TableProgress:
    """A table that is not yet where the rest of the database is.

    Args:
        commit: changes of this table up to this commit are contained in its snapshot; its stream goes on after it.
        chunk: how many snapshot chunks lie behind, before the batch that ends here.
        lower: the key up to which those chunks reach; None at the beginning of the table.
        last: the greatest key when the table's snapshot began. Rows after it came later, so the stream brings them;
            without it the snapshot of a table that grows at its end would never end.
        bounds: the upper key bounds of the chunks of the batch that ends here, in order, each a tuple of canonical
            texts (an element may be null); null for "to the end of the table".
        rows: an estimate of the table's rows when its snapshot began, for progress displays; -1 when unknown.
        done: the snapshot is complete with this batch; changes after `commit` follow.
        empty: it is complete because the table had no row.
        read: 0 for the table's first snapshot; later ones count on, over all tables.
    """

    commit: str
    chunk: int = 0
    lower: Key | None = None
    last: Key | None = None
    bounds: tuple[Key | None, ...] = ()
    rows: int = -1
    done: bool = False
    empty: bool = False
    read: int = 0

    def rows_of_batch(self, chunk_rows: int) -> int:
        """About how many rows the chunks of the batch that ends here have; 0 where that is unknown.

        Args:
            chunk_rows: how many rows a chunk has; 0 where a table is read in one piece.
        """
        most = len(self.bounds) * chunk_rows
        left = max(0, self.rows - self.chunk * chunk_rows)
        return 0 if not self.bounds else left if not chunk_rows else most if self.rows < 0 else min(most, left)

    def advanced(self) -> TableProgress:
        """The same position, seen from a batch that holds no chunk of this table."""
        lower = self.bounds[-1] if self.bounds else self.lower
        return replace(self, chunk=self.chunk + len(self.bounds), lower=lower, bounds=())

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "commit": self.commit,
            "chunk": self.chunk,
            "lower": None if self.lower is None else list(self.lower),
            "last": None if self.last is None else list(self.last),
            "bounds": [None if b is None else list(b) for b in self.bounds],
            "rows": self.rows,
            "done": self.done,
            **({"empty": True} if self.empty else {}),
            **({"read": self.read} if self.read else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TableProgress:
        """Read `to_json`'s form back.

        Raises:
            NewerRelease: a later release wrote it.
        """
        all_known(data, _TABLE_PARTS)
        bounds = tuple(key_of(bound) for bound in data["bounds"])
        lower, last = key_of(data["lower"]), key_of(data["last"])
        empty = data.get("empty", False)
        read = data.get("read", 0)
        return cls(data["commit"], data["chunk"], lower, last, bounds, data["rows"], data["done"], empty, read)


@dataclass(frozen=True)
class Offset:
    """Where a batch ends.

    Args:
        source: the source's name and the database's identity; an offset of another database is refused.
        commit: everything up to and with this commit is delivered (but for `tables`); empty before the first batch.
        commit_time: when that commit was made, for lag; None when unknown.
        capture_time: when the batch was planned; changes only when something else does.
        clock: the source's offset from UTC (`+02:00`) when the batch was planned, where its commit times are local.
        initial: the first snapshot is still running, so nothing is streamed yet.
        known: the tables (`schema.name`) that have been captured; one that is included later is snapshotted first.
        tables: the tables that lag behind `commit`.
        schemas: how each known table is read, in the source's own words (JSON values).
        heartbeat: when the last heartbeat was planned; None without heartbeats.
        gaps: changes that the batch that ends here does not have, because they were lost: for each table the commits
            after which and before which. Only where the options prefer losing to stopping.
        ad_hoc: the ad-hoc snapshots that were requested, in the words of
            `headrace.sources.snapshots.ad_hoc` (JSON values).
        uncaptured: tables that were captured, that the options still mean, and that are not captured now; each with the
            commit up to which its changes are delivered.
        log: what a source that reads the database's own log has to know of it besides `commit`, in the source's words
            (JSON values).
        reads: how many times tables were read again.
        versions: how often the schemas of tables changed (`headrace.sources.table_versions`).
        skipped: tables of which changes were left out because a user asked for that: the commits after which and up to
            which. A table that is read again since is not among them.
    """

    source: str = ""
    commit: str = ""
    commit_time: dt.datetime | None = None
    capture_time: dt.datetime | None = None
    clock: str = ""
    initial: bool = True
    known: tuple[str, ...] = ()
    tables: Mapping[str, TableProgress] = field(default_factory=dict)
    schemas: Mapping[str, Any] = field(default_factory=dict)
    heartbeat: dt.datetime | None = None
    gaps: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    ad_hoc: Mapping[str, Any] = field(default_factory=dict)
    uncaptured: Mapping[str, str] = field(default_factory=dict)
    log: Mapping[str, Any] = field(default_factory=dict)
    reads: int = 0
    versions: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    skipped: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @classmethod
    def nothing(cls) -> Offset:
        """The offset before the first batch."""
        return cls()

    def captures_newly(self, before: Offset, table: str) -> bool:
        """Whether a table's snapshot begins with the batch that ends here, for the first time or again."""
        progress, earlier = self.tables.get(table), before.tables.get(table)
        if progress is None:
            return False
        if earlier is None or progress.commit != earlier.commit or progress.read != earlier.read:
            return True
        return earlier.done and not progress.done

    def begins_to_read(self, before: Offset, table: str) -> bool:
        """Whether a table's rows are read from the first one on with the batch that ends here, or it has none. Not so
        where changes alone come again or are left out.
        """
        progress = self.tables.get(table)
        if progress is None or (progress.done and not progress.bounds and not progress.empty):
            return False
        return self.captures_newly(before, table)

    def next_read(self, table: str) -> int:
        """The number of a table's read that begins after this offset: 0 where it was never captured."""
        return self.reads + 1 if table in self.tables_seen else 0

    def counting_reads(self, before: Offset) -> Offset:
        """The same end of a batch, with the reads that begin in it."""
        return replace(self, reads=max([before.reads, *(progress.read for progress in self.tables.values())]))

    def brings_more_than(self, before: Offset) -> bool:
        """Whether the batch that ends here has anything but a heartbeat."""
        plain = replace(before, heartbeat=None, capture_time=None, commit_time=None, clock="")
        return replace(self, heartbeat=None, capture_time=None, commit_time=None, clock="") != plain

    def finds_empty(self, before: Offset, table: str) -> bool:
        """Whether the batch that ends here found a table empty whose snapshot was to be read."""
        progress, earlier = self.tables.get(table), before.tables.get(table)
        if progress is None or not progress.empty:
            return False
        if earlier is None or not earlier.empty:
            return True
        return (earlier.commit, earlier.read) != (progress.commit, progress.read)

    @property
    def tables_seen(self) -> tuple[str, ...]:
        """The tables that have been captured, captured now or not."""
        return tuple(dict.fromkeys((*self.known, *self.uncaptured)))

    @property
    def is_nothing(self) -> bool:
        """Whether no batch has ended yet."""
        return not self.commit

    @property
    def is_level(self) -> bool:
        """Whether every table is delivered up to `commit`: no snapshot is running and none has to catch up."""
        return not self.initial and all(p.done and p.commit >= self.commit for p in self.tables.values())

    @property
    def has_open_requests(self) -> bool:
        """Whether an ad-hoc snapshot has something left to read that nothing holds up."""
        return bool(self.ad_hoc.get("running", False))

    @property
    def unequal(self) -> dict[str, tuple[str, dt.datetime | None]]:
        """The tables whose rows a change of structure may have changed, until they were read again as a whole; each
        with the commit up to which all is right, and the time of that, if known."""
        since = self.ad_hoc.get("unequal", {})
        return {path: (commit, time_of(time or None)) for path, (commit, time) in since.items()}

    def to_json(self) -> dict[str, Any]:
        """JSON values, the form that Spark keeps."""
        return {
            "version": VERSION,
            "source": self.source,
            "commit": self.commit,
            "commit_time": time_text(self.commit_time),
            "capture_time": time_text(self.capture_time),
            "clock": self.clock,
            "initial": self.initial,
            "known": list(self.known),
            "tables": {name: progress.to_json() for name, progress in sorted(self.tables.items())},
            "structures": _packed(self.schemas),
            "heartbeat": time_text(self.heartbeat),
            "gaps": {name: list(gap) for name, gap in sorted(self.gaps.items())},
            "ad_hoc": dict(self.ad_hoc),
            **({"uncaptured": dict(sorted(self.uncaptured.items()))} if self.uncaptured else {}),
            **({"log": dict(self.log)} if self.log else {}),
            **({"reads": self.reads} if self.reads else {}),
            **({"versions": {path: list(of) for path, of in sorted(self.versions.items())}} if self.versions else {}),
            **({"skipped": {path: list(gap) for path, gap in sorted(self.skipped.items())}} if self.skipped else {}),
        }

    def to_text(self) -> str:
        """The JSON on one line."""
        return json.dumps(self.to_json(), separators=(",", ":"))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Offset:
        """Read an offset from a checkpoint.

        Raises:
            NewerRelease: a later release wrote it.
        """
        of_known_version(data)
        all_known(data, _PARTS)
        return cls(
            source=data["source"],
            commit=data["commit"],
            commit_time=time_of(data["commit_time"]),
            capture_time=time_of(data["capture_time"]),
            clock=data["clock"],
            initial=data["initial"],
            known=tuple(data["known"]),
            tables={name: TableProgress.from_json(p) for name, p in data["tables"].items()},
            schemas=_unpacked(data["structures"]),
            heartbeat=time_of(data["heartbeat"]),
            gaps={name: (after, before) for name, (after, before) in data["gaps"].items()},
            ad_hoc=data["ad_hoc"],
            uncaptured=data.get("uncaptured", {}),
            log=data.get("log", {}),
            reads=data.get("reads", 0),
            versions={path: (number, id) for path, (number, id) in data.get("versions", {}).items()},
            skipped={path: (after, upto) for path, (after, upto) in data.get("skipped", {}).items()},
        )


def of_known_version(data: Mapping[str, Any]) -> None:
    """Stop at an offset whose version this release does not read.

    Raises:
        NewerRelease: a later release wrote it.
    """
    require_readable(data["version"], VERSION, what="The offset in the checkpoint", remedy=_REMEDY)


def all_known(data: Mapping[str, Any], parts: Collection[str]) -> None:
    """Stop at a part of an offset that this release does not know: leaving it out would lose what it says.

    Args:
        data: a part of an offset whose keys are names, not tables or other data.
        parts: the names that this release and earlier ones write there.

    Raises:
        NewerRelease: a later release wrote it.
    """
    require_known(data, parts, what="The offset in the checkpoint", remedy=_REMEDY)


def key_of(data: Sequence[str | None] | None) -> Key | None:
    """A key from a JSON value."""
    return None if data is None else tuple(data)


def time_text(time: dt.datetime | None) -> str | None:
    """A time as a JSON value."""
    return None if time is None else time.isoformat()


def time_of(text: str | None) -> dt.datetime | None:
    """A time from a JSON value."""
    return None if text is None else dt.datetime.fromisoformat(text)


class Recent(Generic[Made]):
    """What was made of the last few objects, known by their identity: for objects that are large and never change.

    An idle source is polled every second, with the offset that it gave the second before.
    """

    def __init__(self, size: int = 16) -> None:
        self._size = size
        self._kept: dict[int, tuple[object, Made]] = {}
        self._lock = threading.Lock()

    def of(self, thing: object, make: Callable[[], Made]) -> Made:
        """What was made of an object, made now where it is not known."""
        kept = self._kept.get(id(thing))
        return kept[1] if kept is not None and kept[0] is thing else self.keep(thing, make())

    def keep(self, thing: object, value: Made) -> Made:
        """Remember; the oldest is forgotten where there are too many."""
        with self._lock:
            self._kept.pop(id(thing), None)
            while len(self._kept) >= self._size:
                self._kept.pop(next(iter(self._kept)))
            self._kept[id(thing)] = (thing, value)
        return value


_TEXTS: Recent[str] = Recent()


def _packed(schemas: Mapping[str, Any]) -> str:
    """Schemas are many and alike: packed they are a twentieth."""

    def pack() -> str:
        text = json.dumps(schemas, separators=(",", ":"), sort_keys=True)
        return base64.b64encode(zlib.compress(text.encode(), 6)).decode()

    return _TEXTS.of(schemas, pack)


@lru_cache(maxsize=16)
def _unpacked(text: str) -> Mapping[str, Any]:
    schemas: Mapping[str, Any] = json.loads(zlib.decompress(base64.b64decode(text)))
    _TEXTS.keep(schemas, text)
    return schemas

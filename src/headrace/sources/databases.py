"""One or several databases of a server behind one stream: each keeps a planner and an offset of its own.

Positions of different databases are never compared, so their windows are independent; a batch is the sum of what each
database has to give.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from headrace.changes import TableId, TableSchema
from headrace.changes.foreign_key import Cascade, ForeignKey
from headrace.changes.table_files import TableFiles
from headrace.sources.base import ONE_CHUNK, Limit, Slice, Source
from headrace.sources.health import Health
from headrace.sources.heartbeat_action import HeartbeatAction
from headrace.sources.notifications import KIND, Notifications, rows_of
from headrace.sources.offset import VERSION, Offset, all_known, of_known_version
from headrace.sources.rows import with_transactions_of
from headrace.sources.serial_numbers import next_batch
from headrace.sources.snapshots.ad_hoc import with_reads_settled
from headrace.sources.table_versions import next_versions, versions_of
from headrace.sources.tables.selection import require_few
from headrace.sources.tables.unmatched import Unmatched, gone_table, require_matched

_PARTS = frozenset(["version", "databases", "batch"])
_Part = TypeVar("_Part")
Heads = Mapping[str, str]
"""The newest complete commit of each database."""


@dataclass(frozen=True)
class Offsets:
    """Where a batch ends in each database: the form that Spark keeps in its checkpoint.

    Args:
        databases: the offset of each database, by its name.
        batch: the number of the batch that ends here (`sources.serial_numbers`), greater than that of every batch
            before; 0 where an earlier release planned it.
    """

    databases: Mapping[str, Offset] = field(default_factory=dict)
    batch: int = 0

    def of(self, database: str) -> Offset:
        """One database's offset; before its first batch where it is not among them."""
        return self.databases.get(database, Offset.nothing())

    def to_json(self) -> dict[str, Any]:
        parts = {name: offset.to_json() for name, offset in sorted(self.databases.items()) if not offset.is_nothing}
        return {"version": VERSION, "databases": parts, **({"batch": self.batch} if self.batch else {})}

    def to_text(self) -> str:
        return json.dumps(self.to_json(), separators=(",", ":"))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Offsets:
        """Read offsets from a checkpoint.

        Raises:
            NewerRelease: a later release wrote them.
        """
        of_known_version(data)
        all_known(data, _PARTS)
        return cls({name: Offset.from_json(part) for name, part in data["databases"].items()}, data.get("batch", 0))

    @classmethod
    def from_text(cls, text: str | None) -> Offsets | None:
        """The offsets in a text of `to_text`, as Spark keeps it; None where there is none.

        Raises:
            NewerRelease: a later release wrote it.
        """
        return None if text is None else cls.from_json(json.loads(text))

    def reached(self, heads: Heads) -> bool:
        """Whether everything is delivered up to these commits, and no snapshot is running.

        An ad-hoc snapshot, which runs beside the stream, does not count.
        """
        offsets = {name: self.of(name) for name in heads}
        return all(
            not offset.is_nothing and offset.commit >= heads[name] and offset.is_level
            for name, offset in offsets.items()
        )

    def finished(self, heads: Heads) -> bool:
        """Whether everything is delivered up to these commits, ad-hoc snapshots that nothing holds up too."""
        return self.reached(heads) and not any(self.of(name).has_open_requests for name in heads)

    def merged(self) -> Offset:
        """One offset that says the same for displays: the oldest times, and every table that lags behind.

        With one database it is that database's offset; with several, tables carry their database's name.
        """
        if len(self.databases) == 1:
            return next(iter(self.databases.values()))
        commit = ", ".join(f"{name} {offset.commit}" for name, offset in sorted(self.databases.items()))
        times = [offset.commit_time for offset in self.databases.values() if offset.commit_time is not None]
        tables = {
            # Level tables are left out, those that catch up stay after any commit.
            f"{name}.{path}": replace(progress, commit="")
            for name, offset in self.databases.items()
            for path, progress in offset.tables.items()
            if not (progress.done and progress.commit >= offset.commit)
        }
        unequal = self._by_table(lambda offset: offset.ad_hoc.get("unequal", {}))
        return Offset(
            commit=commit,
            commit_time=min(times, default=None),
            initial=any(offset.initial for offset in self.databases.values()),
            known=tuple(f"{name}.{path}" for name, offset in self.databases.items() for path in offset.known),
            tables=tables,
            gaps=self._by_table(lambda offset: offset.gaps),
            uncaptured=self._by_table(lambda offset: offset.uncaptured),
            skipped=self._by_table(lambda offset: offset.skipped),
            ad_hoc={"unequal": unequal} if unequal else {},
        )

    def _by_table(self, part: Callable[[Offset], Mapping[str, _Part]]) -> dict[str, _Part]:
        """What all offsets say of tables, which carry their database's name."""
        return {
            f"{name}.{path}": fact for name, offset in self.databases.items() for path, fact in part(offset).items()
        }


class Databases:
    """The planner and reader of one stream over all databases that its source's options name.

    Instances are pickled to executors with their sources.
    """

    def __init__(self, source: Source) -> None:
        self._settings = source.settings
        self._sources = dict(source.databases())
        self._action = HeartbeatAction(source.settings)
        self._notifications = Notifications(source.settings)
        self._matched = False
        self._captured = 0

    @property
    def sources(self) -> Mapping[str, Source]:
        return self._sources

    def tables(self, offsets: Offsets | None = None) -> Sequence[TableSchema]:
        """What is captured now, database after database; `offsets` says what is known from before.

        Raises:
            HeadraceError: as `Source.tables`; a name or pattern of the options stands for nothing; there are more than
                the options allow.
        """
        known = offsets or Offsets()
        schemas = [s for name, source in self._sources.items() for s in source.tables(known.of(name).tables_seen)]
        require_matched(self._settings, self.unmatched(known))
        require_few(self._settings, len(schemas))
        return schemas

    def schemas(self, offsets: Offsets) -> Sequence[TableSchema]:
        """The schemas that rows before `offsets` had."""
        return [s for name, source in self._sources.items() for s in source.schemas(offsets.of(name))]

    @property
    def may_cascade(self) -> bool:
        """Whether there can be foreign keys whose actions no log carries."""
        return any(type(source).cascades is not Source.cascades for source in self._sources.values())

    def cascades(self, start: Offsets | None = None, end: Offsets | None = None) -> Sequence[Cascade]:
        cascades_of_all: list[Cascade] = []
        for name, source in self._sources.items():
            of = [None if offsets is None else offsets.of(name) for offsets in (start, end)]
            cascades_of_all += source.cascades(*of)
        return cascades_of_all

    def still_there(
        self, key: ForeignKey, rows: Sequence[Mapping[str, str | None]], offsets: Offsets
    ) -> Sequence[bool]:
        for name, source in self._sources.items():
            if key.child in {schema.id for schema in source.schemas(offsets.of(name))}:
                return source.still_there(key, rows, offsets.of(name))
        return [False] * len(rows)

    def without(self, name: str, slice: Slice, table: str) -> Slice | None:
        return self._sources[name].without(slice, table)

    def gone(self, offsets: Offsets, tables: Sequence[TableSchema]) -> Sequence[TableId]:
        """The tables that were captured and are not among these."""
        there = {schema.id for schema in tables}
        paths = ((name, path) for name in self._sources for path in offsets.of(name).tables_seen)
        return [id for id in (gone_table(path, name).id for name, path in paths) if id not in there]

    def unmatched(self, offsets: Offsets) -> Sequence[Unmatched]:
        """The names and patterns of the options that stand for nothing in any database, as each was seen last."""
        first, *others = [source.unmatched(offsets.of(name)) for name, source in self._sources.items()]
        elsewhere = [{(one.option, one.text) for one in other} for other in others]
        return [one for one in first if all((one.option, one.text) in other for other in elsewhere)]

    def head(self, offsets: Offsets | None = None) -> Heads:
        """The newest complete commit of each database, to be compared with those of offsets."""
        known = offsets or Offsets()
        return {name: source.head_after(known.of(name)) for name, source in self._sources.items()}

    def health(self, offsets: Offsets | None) -> Mapping[str, Health]:
        """How each database is; `offsets` says what is in all sinks."""
        known = offsets or Offsets()
        return {name: source.health(known.of(name)) for name, source in self._sources.items()}

    def advance(self, start: Offsets, limit: Limit, now: dt.datetime, goal: Heads | None = None) -> Offsets:
        """Where the next batch ends; `start` itself when no database has anything new.

        Args:
            start: where the batch before ended.
            limit: how far it may go in each database.
            now: becomes the batch's capture time.
            goal: the commits beyond which it must not go, of a run that should end. A heartbeat alone is not a batch of
                such a run.
        """
        ends = {
            name: _counting_versions(
                source,
                start.of(name),
                with_reads_settled(
                    start.of(name),
                    source.advance(start.of(name), replace(limit, upto=(goal or {}).get(name, limit.upto)), now),
                ),
            )
            for name, source in self._sources.items()
        }
        if not self._matched:
            require_matched(self._settings, self.unmatched(start))
            self._matched = True
        captured = sum(len(end.known) for end in ends.values())
        if captured != self._captured:
            require_few(self._settings, captured)
            self._captured = captured
        if all(ends[name] == start.of(name) for name in ends):
            return start
        if goal is not None and not any(ends[name].brings_more_than(start.of(name)) for name in ends):
            return start
        for name, source in self._sources.items():
            if ends[name].heartbeat != start.of(name).heartbeat:
                self._action.run(name, source)
        # A database that is no longer named keeps its position, in case it comes back.
        return Offsets({**start.databases, **ends}, next_batch(start.batch, now))

    def finished(self, offsets: Offsets, heads: Heads, now: dt.datetime, restarted: Collection[str] = ()) -> bool:
        """Whether a run that should end at these commits is there: all is delivered up to them, and planning the next
        batch finds nothing more to do, be it a new table, another snapshot, a signal or changes that are lost.

        Args:
            offsets: what is in all sinks.
            heads: the commits.
            now: the time.
            restarted: the databases of which the run has planned no batch yet.

        Raises:
            HeadraceError: as `advance`: the run can't go on from there.
        """
        if not offsets.finished(heads):
            return False
        if any(source.has_signals(offsets.of(name)) for name, source in self._sources.items()):
            return False
        for name, source in self._sources.items():
            start = offsets.of(name)
            end = source.preview(start, now, replace(ONE_CHUNK, upto=heads[name]), restarted=name in restarted)
            if end is not None and end.brings_more_than(start):
                return False
        return True

    def plan(self, start: Offsets, end: Offsets) -> list[tuple[str, Slice]]:
        slices: list[tuple[str, Slice]] = []
        for name, source in self._sources.items():
            first, last = start.of(name), end.of(name)
            if first != last:
                prefix = f"{name}." if len(self._sources) > 1 else ""
                notifying = self._notifications.planned(name, first, last, prefix=prefix)
                slices += [(name, slice) for slice in (*source.plan(first, last), *notifying)]
        return slices

    def versions(self, end: Offsets) -> dict[str, int]:
        """The versions of the schemas that the rows of the batch may follow that ends here, by their fingerprints;
        without first ones.
        """
        numbers: dict[str, int] = {}
        for name, source in self._sources.items():
            if end.of(name).versions:
                numbers |= versions_of(end.of(name).versions, source.schemas(end.of(name)))
        return numbers

    def read(self, database: str, slice: Slice, files: TableFiles | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of one slice, without those that files take.

        Databases number their transactions each for itself, so that of several the ids say the database too.
        """
        if slice.kind == KIND:
            yield rows_of(slice)
            return
        source = self._sources[database]
        rows = source.read(slice) if files is None else source.read_to_files(slice, files)
        yield from rows if len(self._sources) == 1 else map(partial(with_transactions_of, database), rows)

    @property
    def no_files(self) -> str:
        """Why rows of first snapshots can't be written into files by the workers that read them, as the end of a
        sentence; empty where they can."""
        for source in self._sources.values():
            if type(source).read_to_files is Source.read_to_files:
                return f"source '{source.name}' gives all rows to Spark"
        return ""

    @property
    def knows_schemas(self) -> bool:
        """Whether the schemas of a slice's rows are known before it is read."""
        return all(source.knows_schemas for source in self._sources.values())

    def schemas_in(self, database: str, slice: Slice) -> Sequence[TableSchema]:
        """The schemas that the rows of a slice follow; makes no request."""
        if slice.kind == KIND:
            return ()
        return self._sources[database].schemas_in(slice)

    def acknowledge(self, offsets: Offsets) -> None:
        """Everything up to here rests in all sinks."""
        for name, source in self._sources.items():
            source.acknowledge(offsets.of(name))


def _counting_versions(source: Source, start: Offset, end: Offset) -> Offset:
    if end.schemas == start.schemas:
        return end if end.versions == start.versions else replace(end, versions=start.versions)
    return replace(end, versions=next_versions(start.versions, source.schemas(start), source.schemas(end)))

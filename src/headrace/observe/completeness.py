"""Up to which source time everything has arrived: what a downstream job waits for.

It is read from the checkpoint alone, so it needs neither the pipeline nor the source, and only counts batches that rest
in all sinks.
"""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.errors import OptionError
from headrace.observe.checkpoint import batch_offsets, committed_batch, open_folder
from headrace.observe.parked_tables import ParkedTable, of_database, parked_tables
from headrace.sources.databases import Offsets
from headrace.sources.offset import Offset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Completeness:
    """Up to which source time everything has arrived in all sinks.

    A time is an instant by the source's clock: every change of the table that the source committed before it is there.
    Null means that nothing is known to be complete yet, as while a table is in its snapshot.

    Args:
        tables: the instant of each table that the pipeline has captured, by `schema.name`; with several databases by
            `database.schema.name`.
        batch: the newest batch that rests in all sinks; None before the first.
    """

    tables: Mapping[str, dt.datetime | None] = field(default_factory=dict)
    batch: int | None = None

    @property
    def overall(self) -> dt.datetime | None:
        """The instant of the table that is furthest behind; None when any has none, or there are no tables."""
        times = [time for time in self.tables.values() if time is not None]
        return min(times) if times and len(times) == len(self.tables) else None

    def of(self, table: str) -> dt.datetime | None:
        """One table's instant; None too for a table that the pipeline has not captured."""
        return self.tables.get(table)

    def covers(self, instant: dt.datetime, *tables: str) -> bool:
        """Whether every change that was committed before an instant is in all sinks.

        Args:
            instant: with a time zone.
            tables: those that matter; all of the pipeline when none is named.

        Raises:
            OptionError: the instant has no time zone.
        """
        if instant.tzinfo is None:
            raise OptionError(
                f"The time {instant.isoformat()} has no time zone.",
                remedy="Give it one: datetime.combine(day, time(), tzinfo=ZoneInfo('Europe/Vienna')).",
            )
        times = [self.of(table) for table in tables] if tables else [self.overall]
        return all(time is not None and time >= instant for time in times)


def complete_until(checkpoint: str | os.PathLike[str], *, spark: SparkSession | None = None) -> Completeness:
    """Up to which source time everything has arrived in all sinks, per table and overall.

        if headrace.complete_until("/data/checkpoints/shop").covers(midnight): ...

    Reads Spark's checkpoint, and nothing else: the pipeline may run or not. Works for pipelines and for queries on
    `spark.readStream.format("sqlserver_cdc")` that capture a database.

    Args:
        checkpoint: path or URL of the checkpoint's folder.
        spark: a classic session, for a checkpoint that is not on this machine.

    Raises:
        OptionError: there is no such checkpoint, it can't be read, or it belongs to a stream that captures no database.
        PositionMismatch: another release wrote it.
    """
    folder = open_folder(checkpoint, spark)
    if not folder.exists():
        raise OptionError(f"Checkpoint '{os.fspath(checkpoint)}' does not exist.", remedy="Check the path.")
    batch = committed_batch(folder)
    if batch is None:
        return Completeness()
    parsed = [offsets_of(line) for line in batch_offsets(folder, batch) if line is not None]
    databases = [offsets for offsets in parsed if offsets is not None]
    if not databases:
        raise OptionError(
            f"The checkpoint '{os.fspath(checkpoint)}' belongs to a stream that captures no database.",
            remedy="Name the checkpoint of the pipeline whose source is the database.",
        )
    return completeness(databases, batch, parked_tables(folder))


def offsets_of(line: str) -> Offsets | None:
    """The captured databases in a line of Spark's offset log; None for another kind of source."""
    try:
        data = json.loads(line)
    except ValueError:
        return None
    return Offsets.from_json(data) if isinstance(data, dict) and "databases" in data else None


def completeness(streams: Iterable[Offsets], batch: int | None, parked: Collection[ParkedTable] = ()) -> Completeness:
    """The completeness that offsets say; a table that several streams carry is as far as the last of them.

    Args:
        streams: the offsets.
        batch: the number of the batch that ends there.
        parked: the tables whose changes are left out.
    """
    tables: dict[str, dt.datetime | None] = {}
    for offsets in streams:
        for database, offset in offsets.databases.items():
            out = of_database(parked, database, several=len(offsets.databases) > 1)
            for path, until in of_tables(offset, out).items():
                name = path if len(offsets.databases) == 1 else f"{database}.{path}"
                other = tables.get(name, until)
                tables[name] = None if until is None or other is None else min(until, other)
    return Completeness(tables, batch)


def of_tables(offset: Offset, parked: Collection[str] = ()) -> dict[str, dt.datetime | None]:
    """Up to which instant each table of a database is complete when this offset's batch is in all sinks.

    Args:
        offset: the database's.
        parked: the paths of the tables whose changes are left out.
    """
    until = _utc(offset.commit_time)
    planned = _utc(offset.capture_time)
    if until is not None and planned is not None:
        # Nothing that was committed after the batch was planned can be in it, whatever a clock that was set back says.
        until = min(until, planned)
    times = {path: until if path not in parked and _level(offset, path) else None for path in offset.tables_seen}
    for path, (_, since) in offset.unequal.items():
        # What was committed before the change of structure is there.
        level, right = times.get(path), _utc(since)
        if level is not None:
            times[path] = None if right is None else min(level, right)
    return times


def _level(offset: Offset, path: str) -> bool:
    advanced = offset.tables.get(path)
    level = advanced is None or (advanced.done and advanced.commit >= offset.commit)
    return level and path not in offset.gaps and path not in offset.uncaptured


def _utc(time: dt.datetime | None) -> dt.datetime | None:
    return time.replace(tzinfo=dt.UTC) if time is not None and time.tzinfo is None else time

"""One table's trouble does not stop the others: the table is parked, and comes back when it is read again.

A parked table's rows are left out of every sink, from the batch on that met the trouble, so that the sinks stay equal
to each other. It is recorded in the checkpoint before anything else of that batch is written, so that a replay leaves
the same rows out. Where the batch was written in part, what each target has of it stays: a target of another table
finds the batch done, and one of the parked table is brought back by the read.
"""

from __future__ import annotations

import datetime as dt
import logging
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.changes import TableId
from headrace.changes.one_table import raise_together
from headrace.changes.row import Operation
from headrace.changes.typed import same_table
from headrace.errors import HeadraceError, OptionError
from headrace.faultpoints import reach
from headrace.observe.parked_tables import ParkedTable, of_database, parked_of_text, parked_text
from headrace.observe.progress import BatchCount
from headrace.pipeline.kafka_source import KafkaTopics
from headrace.pipeline.target import Target
from headrace.sources.base import Source
from headrace.sources.databases import Offsets
from headrace.sources.table_errors import KIND, error_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOG = logging.getLogger("headrace.pipeline")
STOP, PARK = "stop", "park"
CHOICES = (STOP, PARK)


def on_table_error(chosen: str | None, source: Source | KafkaTopics, targets: Sequence[Target]) -> str:
    """What a pipeline does when one table can't be read or written.

    Args:
        chosen: what its file says; None where it says nothing.
        source: where changes come from.
        targets: where they go.

    Raises:
        OptionError: tables can't be parked here.
    """
    why = _never(source, targets)
    if chosen == PARK and why:
        raise OptionError(f"With on_table_error: park {why}.", remedy="Set it to stop, or leave it out.")
    if chosen is not None:
        return chosen
    come_back = all(target.sink.keeps_tables and not target.sink.keeps_versions for target in targets)
    return PARK if come_back and not why else STOP


def _never(source: Source | KafkaTopics, targets: Sequence[Target]) -> str:
    """Why no table can be parked, as the end of a sentence; empty where tables can."""
    if isinstance(source, KafkaTopics):
        return "a table would have to be read again, and topics hold changes only"
    if not source.reads_again:
        return f"a table would have to be read again, and source '{source.name}' can't do that"
    counts = [target.label for target in targets if target.format is not None and source.counted_operations is not None]
    if counts:
        return f"{counts[0]} would lack changes of transactions whose ends count them (provide.transaction.metadata)"
    return ""


@dataclass(frozen=True)
class _Trouble:
    """An error with the source's table that it is about."""

    table: TableId
    error: HeadraceError


class Parking:
    """Which tables of a pipeline are parked. Lives in the driver; used by one batch at a time.

    Args:
        parks: whether tables are parked; where not, an error stops the run, and what was parked stays so.
        kept: what the checkpoint has of it.
        keep: writes that; null for nothing.
        offsets: where a batch ends, by its number; null where that is not known.
        command: what reads a table again, word by word up to its name.
        below: the tables whose rows the database deletes or changes with those of a table, without a change in its log;
            takes the number of a batch; None for none. They are read again with it, because they may lack what follows
            from its rows.
    """

    def __init__(
        self,
        *,
        parks: bool = False,
        kept: str | None = None,
        keep: Callable[[str | None], None] = lambda text: None,
        offsets: Callable[[int], Offsets | None] = lambda batch: None,
        command: Sequence[str] = ("headrace", "repair", "reread", "PIPELINE"),
        below: Callable[[TableId, int], Collection[TableId]] | None = None,
    ) -> None:
        self._parks = parks
        self._keep = keep
        self._offsets = offsets
        self._command = command
        self._below = below
        self._parked = parked_of_text(kept)

    @property
    def tables(self) -> tuple[ParkedTable, ...]:
        return self._parked

    def say_parked(self) -> None:
        """Log which tables are parked; for the start of a run."""
        for one in self._parked:
            _LOG.warning("Table %s is parked since batch %d. %s", one.table.path, one.batch, one.text)

    def begin(self, batch: int) -> None:
        """Take back the tables whose read begins with a batch. The two ends of the batch decide that, so a replay does
        the same.
        """
        if not self._parked:
            return
        before, end = (Offsets() if number < 0 else self._offsets(number) for number in (batch - 1, batch))
        if before is None or end is None:
            return
        several = len(end.databases) > 1
        back = {
            one.table
            for name, offset in end.databases.items()
            for path, one in of_database(self._parked, name, several=several).items()
            if one.batch < batch and offset.begins_to_read(before.of(name), path)
        }
        if not back:
            return
        reach("pipeline.table.before_return")
        self._set([one for one in self._parked if one.table not in back])
        for table in sorted(back):
            _LOG.warning("Table %s is read again and no longer parked.", table.path)

    def going_on(
        self, rows: DataFrame, counts: Sequence[BatchCount], batch: int
    ) -> tuple[DataFrame, Sequence[BatchCount]]:
        """The rows and counts of a batch without those of parked tables. Lazy."""
        out = self.out(batch)
        if not out:
            return rows, counts
        return rows.where(f"not ({_are_of(out)})"), [count for count in counts if count.id not in out]

    def out(self, batch: int) -> list[TableId]:
        return [one.table for one in self._parked if one.batch <= batch]

    @contextmanager
    def writing(self, target: Target) -> Iterator[None]:
        """Errors of a sink, which knows tables by the names that they have there, as those of the source's tables."""
        try:
            yield
        except HeadraceError as error:
            for one in (error, *error.others):
                if one.table is not None:
                    one.table = target.shaping.source_of(one.table)
            raise

    def refuse_unreadable(self, rows: DataFrame, counts: Sequence[BatchCount], batch: int) -> None:
        """Raise what the workers of the source said of tables that they can't read (`headrace.sources.table_errors`).

        Args:
            rows: the batch as the source gives it.
            counts: its rows by table and operation.
            batch: its number.

        Raises:
            HeadraceError: with the table, and the others of which they said so.
        """
        out = self.out(batch)
        if not self._parks or not any(count.op == Operation.ERROR and count.id not in out for count in counts):
            return
        error_rows = rows.where(f"op = 'error' and map_contains_key(source, '{KIND}')").select(
            "table", "error", "source"
        )
        unreadable: dict[TableId, HeadraceError] = {}
        for row in error_rows.collect():
            table = TableId(row["table"]["database"] or "", row["table"]["schema"] or "", row["table"]["name"] or "")
            if table not in out:
                unreadable[table] = error_of(table, row["error"], row["source"])
        if unreadable:
            raise_together([unreadable[table] for table in sorted(unreadable)])

    def take(self, error: BaseException, batch: int) -> bool:
        """Park the tables whose trouble an error is, if it is nobody else's; whether the batch can go on without them.

        Args:
            error: what the batch met.
            batch: its number.
        """
        troubles, end = _troubles(error), self._offsets(batch)
        if not self._parks or not troubles or end is None:
            return False
        if not self._leaves_some({one.table for one in troubles}, batch, end):
            return False
        now = dt.datetime.now(dt.UTC)
        failures = [
            ParkedTable(
                *(one.table, batch, now, one.error.message, one.error.remedy),
                command=shlex.join([*self._command, *self._named(one.table, end, batch)]),
            )
            for one in {trouble.table: trouble for trouble in reversed(troubles)}.values()
        ]
        tables = {one.table for one in failures}
        reach("pipeline.table.before_park")
        failures.sort(key=lambda one: one.table)
        self._set([one for one in self._parked if one.table not in tables] + failures)
        reach("pipeline.table.parked")
        for one in failures:
            _LOG.warning(
                "Table %s is parked: its changes are left out from batch %d on, and the other tables go on. %s",
                one.table.path,
                batch,
                one.text,
            )
        return True

    def _named(self, table: TableId, end: Offsets, batch: int) -> list[str]:
        every = dict.fromkeys([table, *(self._below(table, batch) if self._below else ())])
        return [one.full_path if len(end.databases) > 1 else one.path for one in every]

    def _set(self, parked: Sequence[ParkedTable]) -> None:
        self._keep(parked_text(parked) if parked else None)
        self._parked = tuple(parked)

    def _leaves_some(self, more: Collection[TableId], batch: int, end: Offsets) -> bool:
        """Whether some table would go on. What stops every table is not a trouble of one, and a pipeline without a
        table that goes on does nothing that a stop would hinder.
        """
        if any(one.batch == batch and one.table in more for one in self._parked):
            return False
        out = {one.table for one in self._parked} | set(more)
        several = len(end.databases) > 1
        return any(
            not any(id.path == path and (not several or id.database == name) for id in out)
            for name, offset in end.databases.items()
            for path in offset.tables_seen
        )


def _troubles(error: BaseException) -> list[_Trouble]:
    """What an error says of tables; nothing where some of it is not about one table."""
    if not isinstance(error, HeadraceError):
        return []
    every = (error, *error.others)
    return [_Trouble(one.table, one) for one in every] if all(one.table is not None for one in every) else []


def _are_of(tables: Iterable[TableId]) -> str:
    """Spark SQL that is true of the rows of some tables, and never null."""
    return " or ".join(f"({same_table(table)})" for table in tables)

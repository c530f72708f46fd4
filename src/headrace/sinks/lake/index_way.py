"""Whole rows are applied by an index of the table's keys, instead of a MERGE."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.apply import TableProfile
from headrace.changes.table import TableId
from headrace.sinks.base import BatchId, FilesUnusable
from headrace.sinks.lake import collected, decoded_files, folded_files
from headrace.sinks.lake.data_files import arrow_type
from headrace.sinks.lake.decoded_files import DecoderTables
from headrace.sinks.lake.indexed import unfit
from headrace.sinks.lake.layout import LakePlan, TargetLayout
from headrace.sinks.lake.merge import Values
from headrace.sinks.lake.options import LakeSettings
from headrace.sinks.lake.refusals import explained
from headrace.sinks.lake.table import LakeTable
from headrace.sinks.lake.table_files import PreparedTable
from headrace.sinks.lake.whole_rows import CollectedRows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Work:
    """One table of a batch, with its target inspected and the plan for it."""

    table: TableProfile
    target: LakeTable
    plan: LakePlan


class IndexWay:
    """Decides which tables go this way, and applies their rows. Lives in the driver.

    The driver collects the rows of small batches. Rows of large batches are written by tasks: by those that decode
    them, where these know the table from the batch before, else by those of a Spark job.

    Args:
        settings: the sink's options.
        properties: the properties of tables that are created.
        prepare: how files of a target are written, or why none can be; None where the sink writes no files.
    """

    def __init__(
        self,
        settings: LakeSettings,
        properties: Callable[[LakeTable], Mapping[str, str]],
        prepare: Callable[[LakeTable, TableProfile, TargetLayout], PreparedTable | str] | None,
    ) -> None:
        self._settings = settings
        self._properties = properties
        self._prepare = prepare
        self.decoder_tables = DecoderTables()

    def reason_against(self, work: Work) -> str | None:
        """Why small batches of a table go by MERGE, as the end of a sentence; empty where they go by an index of its
        keys. None where no index is kept of it."""
        settings, target, plan = self._settings, work.target, work.plan
        if target.indexes is None or settings.stored_as_scd_type == "append":
            return None
        reasons = {
            "its history is kept": settings.stored_as_scd_type == "2",
            "its deleted rows stay": bool(settings.mark),
            "nulls keep the values of rows": settings.ignore_null_updates,
            "it has no key": not work.table.schema.key,
        }
        why = next((reason for reason, is_so in reasons.items() if is_so), "")
        why = why or target.no_index(None if plan.exists else self._properties(target)) or ""
        if not why and plan.exists:
            casts = plan.evolution.casts or {}
            rows = {c.name: arrow_type(casts.get(c.name, c.logical.spark_type)) for c in work.table.schema.columns}
            rows |= {column.name: arrow_type(column.type) for column in plan.layout.own}
            why = unfit(rows, plan.evolution.columns_after(target.types()))
        return why

    def is_possible(self, work: Work) -> bool:
        """Whether the last change of each key is all that the batch says, and an index finds the rows of these keys."""
        if not collected.is_simple(work.table) or work.plan.changes_columns:
            return False
        with explained(work.table.id.full_path, work.target, work.table.id):
            return self.reason_against(work) == ""

    def collect(self, rows: DataFrame, works: Sequence[Work]) -> dict[TableId, pa.Table]:
        """Collect the rows of small tables that go this way. Runs one Spark job if there are any."""
        small: dict[TableId, Work] = {}
        room = collected.MOST
        for work in sorted(works, key=lambda one: one.table.size):
            table, plan = work.table, work.plan
            if table.size > min(room, collected.MOST_OF_TABLE):
                break
            if plan.exists and not (plan.append or plan.done or table.folded) and self.is_possible(work):
                small[table.id] = work
                room -= table.size
        if not small or not collected.are_small(rows):
            return {}
        return collected.collect_texts(rows, [work.table for work in small.values()])

    def apply(self, rows: DataFrame, work: Work, values: Values, batch: BatchId, texts: pa.Table | None) -> bool:
        """Apply the rows of a table in one commit; False where that is impossible, and nothing has happened.

        Args:
            rows: the change rows of the batch.
            work: the table.
            values: how its columns are written.
            batch: the batch.
            texts: the rows of the table, if they were collected.

        Raises:
            FilesUnusable: decoding tasks wrote rows of the table, and these can't be applied.
        """
        target, refused = work.target, False
        change = None if values.kept or values.variants else self._change(rows, work, values, texts)

        def by_index() -> None:
            nonlocal refused
            refused = change is None or not target.replace_by_index(change)

        if change is not None:
            target.commit(batch, work.table.id.full_path, by_index, by_index=True)
            if not refused:
                if work.table.folded:
                    self.decoder_tables.reset_failures(work.table.id)
                return True
            if change.written is not None:
                change.written.discard()
        if work.table.folded:
            self.decoder_tables.delete_files(work.table)
            reason = "not all of its rows are plain changes, or its target changed"
            raise FilesUnusable.because(work.table.id, reason)
        return False

    def _change(self, rows: DataFrame, work: Work, values: Values, texts: pa.Table | None) -> CollectedRows | None:
        table = work.table
        if texts is not None:
            return collected.fold_texts(texts, table, values.nullable_key, values.position, work.target.label)
        to_write = self._to_write(work, values)
        if to_write is None:
            return None
        results: list[folded_files.TaskResult] = []
        if table.folded:
            if not self.decoder_tables.matches(to_write):
                return None
            results = decoded_files.task_results(table)
        if table.size > sum(sum(part.counts.values()) for part in table.folded):
            results += folded_files.results_of(rows, to_write)
        return folded_files.combine(results, to_write)

    def _to_write(self, work: Work, values: Values) -> folded_files.TableToWrite | None:
        """What tasks that write the table's rows know of it; None where these go another way."""
        table, target = work.table, work.target
        if self._prepare is None or table.size > folded_files.MOST or not self.is_possible(work):
            return None
        prepared = self._prepare(target, table, work.plan.layout)
        if isinstance(prepared, str):
            return None
        return folded_files.TableToWrite(table, prepared, values.nullable_key, target.label)

    def remember(self, work: Work, values: Values) -> None:
        """Let the decoding tasks of the next batch write rows of a table that had many rows and went this way."""
        table = work.table
        is_wanted = table.decoded and table.size >= decoded_files.LEAST and not self._settings.sequence_by
        is_plain = is_wanted and not (values.kept or values.variants)
        self.decoder_tables.remember(self._to_write(work, values) if is_plain else None, table.id)

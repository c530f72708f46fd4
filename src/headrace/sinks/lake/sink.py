"""What the sinks of lakehouse tables share: a batch is looked at whole, then each table has its own commit."""

from __future__ import annotations

import datetime as dt
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

from headrace import faultpoints
from headrace.apply import (
    TableProfile,
    as_newest,
    carried,
    change_log,
    history,
    in_one_task,
    parted,
    profile,
    sequenced,
)
from headrace.apply.change_log import rows_left
from headrace.apply.standing_rows import needs_target_rows
from headrace.changes.one_table import in_turn, work_on
from headrace.changes.refusal import StopReason
from headrace.changes.row import Operation
from headrace.changes.table import TableId, TableSchema
from headrace.changes.table_files import DecodedRowWriter, TableFiles
from headrace.changes.typed import quote
from headrace.errors import SchemaError
from headrace.sinks.base import BatchId, FilesUnusable, OrphanFile, Sink, TargetPreview
from headrace.sinks.evolution import KEEPING, RENAMING, Evolution, TargetColumn, changes_told
from headrace.sinks.lake import history as lake_history
from headrace.sinks.lake import merge as lake_merge
from headrace.sinks.lake import upkeep
from headrace.sinks.lake.index_way import IndexWay, Work
from headrace.sinks.lake.layout import TargetLayout
from headrace.sinks.lake.merge import seen_by
from headrace.sinks.lake.options import LakeSettings, refuse_contradictions, tracked, written
from headrace.sinks.lake.refusals import explained, refuse_shared
from headrace.sinks.lake.sessions import SMALL, can_clone, expect_many_rows, session_for
from headrace.sinks.lake.table import TRIES, LakeTable, TargetMoved
from headrace.sinks.lake.table_files import LakeFiles, PreparedTable, place_of
from headrace.sinks.lake.target_columns import own_columns, wanted_layout
from headrace.sinks.lake.upkeep import Upkeep
from headrace.sinks.lake.variants import VARIANT, as_variant, variants_in, with_documents
from headrace.sinks.misfits import KeptType, KeptValues, kept_types
from headrace.sinks.table_sink import given_steps, rows_left_by, side_by_side

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


_OTHER_LOGIN = "its folder needs another login than the sink's"


class LakeSink(Sink):
    """Mirrors source tables as tables of a lakehouse. Subclasses say which, and where a source table's mirror lies."""

    guarantee: ClassVar[Literal["exactly-once", "at-least-once"]] = "exactly-once"
    takes: ClassVar[Literal["messages", "changes"]] = "changes"
    settings: LakeSettings
    looks_with_spark: ClassVar[bool] = True
    reads_back: ClassVar[Literal["no", "snapshot", "live"]] = "snapshot"
    fault_point: ClassVar[str]
    files: ClassVar[type[LakeFiles] | None] = None

    def __init__(self, settings: LakeSettings) -> None:
        super().__init__(settings)
        self._kept = KeptValues(settings.unrepresentable)
        self._nulled: Mapping[TableId, Mapping[str, int]] = {}
        refuse_contradictions(settings)
        self.upkeep = Upkeep(settings)
        prepare = None if self.files is None else self._prepared_for_files
        self.index_way = IndexWay(settings, self.new_table_properties, prepare)

    @abstractmethod
    def target(self, session: SparkSession, id: TableId) -> LakeTable:
        """The mirror of a source table, in a session of its own."""

    @abstractmethod
    def location(self, id: TableId) -> str:
        """Where the mirror of a source table lies, as messages name it; makes no request."""

    @abstractmethod
    def new_table_properties(self, target: LakeTable) -> dict[str, str]:
        """Properties of the table when it is created."""

    def write(self, rows: DataFrame, batch: BatchId) -> None:
        """Bring the mirrors of all tables in the batch up to its end: tables side by side, each in its own commit.

        When one table fails, others of the batch may be committed; a retry of the batch finds them done and does the
        rest.

        Raises:
            SinkError: a target belongs to another pipeline or checkpoint, or can't be written.
            SchemaError: a target can't carry the structure or a change; nothing of the batch is in that table.
        """
        spark = rows.sparkSession
        rows = in_one_task(self.sequenced(rows))
        tables = in_turn(profile(rows, given_steps(self.settings)), self._written)
        # Every target is looked at before the first is touched.
        workers = self.settings.max_parallel_tables if can_clone(spark) else 1
        targets: list[tuple[TableProfile, LakeTable]] = []
        try:
            in_turn(tables, lambda table: targets.append((table, self._target(spark, table))))
            refuse_shared(target for _, target in targets)
            works = side_by_side(spark, targets, lambda targeted: self._plan_table(targeted, batch), workers=workers)
            inspected = [(targeted, work) for targeted, work in zip(targets, works, strict=True) if work is not None]
            kept = {targeted[0].id: self._kept_types(work) for targeted, work in inspected}
            self._nulled = self._kept.nulled(rows, [work.table for _, work in inspected], kept)
            texts = self.index_way.collect(rows, [work for _, work in inspected])
            with parted(rows, [table for table in tables if table.id not in texts]) as rows_of:
                side_by_side(
                    spark,
                    inspected,
                    lambda targeted: self._bring_to_end(
                        rows_of(targeted[0][0]), *targeted, batch, texts.get(targeted[1].table.id)
                    ),
                    workers=workers,
                )
        finally:
            for _, target in targets:
                target.release()

    def _written(self, table: TableProfile) -> TableProfile:
        with work_on(table.id):
            return written(self.settings, table)

    def _target(self, spark: SparkSession, table: TableProfile) -> LakeTable:
        with work_on(table.id):
            return self.target(session_for(spark, table.size), table.id)

    def nulled(self) -> Mapping[TableId, Mapping[str, int]]:
        """By `unrepresentable: null`."""
        return self._nulled

    @property
    def keeps_tables(self) -> bool:
        return self.settings.stored_as_scd_type != "append"

    @property
    def takes_old_values(self) -> bool:
        """Its mirrors do. A history takes them from rows that are read, which say since when they were there."""
        return self.settings.stored_as_scd_type == "1"

    @property
    def keeps_versions(self) -> bool:
        return self.settings.stored_as_scd_type == "2"

    def sequenced(self, rows: DataFrame, epochs: Mapping[str, str] | None = None) -> DataFrame:
        """The rows with positions that say their sequence (`headrace.apply.sequence`); a change log keeps all as is."""
        if self.settings.stored_as_scd_type == "append":
            return rows
        return sequenced(rows, self.settings.sequence_by, epochs)

    def preview(self, schema: TableSchema, batch: BatchId, spark: SparkSession | None) -> TargetPreview:
        if spark is None:
            return TargetPreview(self.location(schema.id))
        table = written(self.settings, TableProfile(schema.id, schema, {}, steps=given_steps(self.settings)(schema.id)))
        target = self.target(session_for(spark, 0), schema.id)
        try:
            work = self._plan_work(table, target, batch)
        finally:
            target.release()
        assert work is not None
        why = self.index_way.reason_against(work)
        way = "" if why is None else f"by MERGE, because {why}" if why else "by an index of its keys"
        return TargetPreview(target.location, work.plan.exists, changes_told(work.plan.evolution), way)

    def now(self, spark: SparkSession, schema: TableSchema) -> DataFrame | None:
        """The rows of a source table's mirror that are true now, without our columns; None where there is no mirror.

        Of a change log that are the rows that its changes leave, laid over one another in order.

        Raises:
            SchemaError: a change log of a table without a key does not have whole rows.
        """
        stored_as = self.settings.stored_as_scd_type
        target = self.target(session_for(spark, SMALL + 1), schema.id)
        if not target.exists:
            return None
        rows = target.read()
        rows = with_documents(rows, variants_in(rows))
        if stored_as == "append":
            return rows_left(rows, self._kept.schema(schema), self.settings.position_column)
        rows = rows.where(f"{lake_history.END} is null") if stored_as == "2" else self._live(rows)
        return rows.drop(*(column.name for column in own_columns(self.settings)))

    def _live(self, rows: DataFrame) -> DataFrame:
        """Rows of a mirror without those that are marked as deleted."""
        mark = self.settings.mark
        return rows.where(f"not coalesce({quote(mark)}, false)") if mark in rows.columns else rows

    def expected(self, rows: DataFrame, table: TableProfile) -> DataFrame:
        """The rows that are true after the last change, in the columns that are written."""
        table = written(self.settings, table)
        left = rows_left_by(rows, table, ignore_nulls=self.settings.ignore_null_updates)
        rows_left = left.selectExpr(*(f"row.{quote(column.name)}" for column in table.schema.columns))
        target = self.target(session_for(rows.sparkSession, 0), table.id)
        try:
            return with_documents(rows_left, variants_in(target.read()) if target.exists else ())
        finally:
            target.release()

    def _plan_table(self, inspected: tuple[TableProfile, LakeTable], batch: BatchId) -> Work | None:
        with work_on(inspected[0].id):
            return self._plan_work(*inspected, batch)

    def _plan_work(self, table: TableProfile, target: LakeTable, batch: BatchId) -> Work | None:
        stored_as = self.settings.stored_as_scd_type
        if table.key_unknown:
            with explained(table.id.full_path, target, table.id):
                if target.exists:
                    table = table.keyed_by(target.kept_key())
                elif stored_as != "append":
                    # There is nothing to empty. The table is made when a row says what its key is.
                    return None
        schema = table.schema
        if not schema.columns:
            return self._plan_names(table, target, batch)
        if stored_as == "2" and not schema.key:
            raise SchemaError(
                f"Table {schema.id} has no key, so it can't have a history.",
                remedy="Add a key, or store it as a change log (stored_as_scd_type: append).",
            )
        if self.settings.mark and not schema.key:
            raise SchemaError(
                f"Table {schema.id} has no key, so each update of a row would leave a deleted one.",
                remedy="Add a key, or send the table to a sink with delete_mode hard.",
            )
        layout = wanted_layout(self.settings, schema)
        with explained(table.id.full_path, target, table.id):
            plan = target.plan(
                layout,
                batch,
                takeover=self.settings.takeover,
                behavior=self.settings.schema_change_behavior,
                rows=bool(table.size),
                first_read=table.initial,
                first_read_ends=table.snapshot_ended,
                append_only=stored_as == "append"
                or (not schema.key and table.inserts_only and table.read_again_from is None),
                steps=table.steps,
            )
        left_out = plan.evolution.left_out
        return Work(target.limited(table.selecting(lambda name: name not in left_out), layout), target, plan)

    def _plan_names(self, table: TableProfile, target: LakeTable, batch: BatchId) -> Work | None:
        """What is to be done where statements say new names, and neither a structure nor rows came with them."""
        if self.settings.schema_change_behavior not in RENAMING or not target.exists:
            return None
        stored_as = self.settings.stored_as_scd_type
        with explained(table.id.full_path, target, table.id):
            plan = target.plan_names(
                table.id.full_path,
                table.steps,
                batch.owner,
                own_columns=frozenset(column.name for column in own_columns(self.settings)),
                stored_as=stored_as,
                takeover=self.settings.takeover,
            )
        return None if plan is None else Work(table, target, plan)

    def _bring_to_end(
        self,
        rows: DataFrame,
        inspected: tuple[TableProfile, LakeTable],
        work: Work,
        batch: BatchId,
        texts: pa.Table | None,
    ) -> None:
        """Bring a table up to the batch; look again where somebody else (who compacts it, say) was faster."""
        with work_on(work.table.id):
            for _ in range(TRIES - 1):
                try:
                    self._bring(rows, work, batch, texts)
                    return
                except TargetMoved:
                    again = self._plan_work(*inspected, batch)
                    if again is None:
                        return
                    work = again
            self._bring(rows, work, batch, texts)

    def _bring(self, rows: DataFrame, work: Work, batch: BatchId, texts: pa.Table | None) -> None:
        table, target = work.table, work.target
        with explained(table.id.full_path, target, table.id):
            if work.plan.done:
                self.index_way.decoder_tables.delete_files(table)
                return
            follows = self.settings.schema_change_behavior not in KEEPING
            if self.settings.stored_as_scd_type == "2" and work.plan.exists and follows:
                final = [column.name for column in table.schema.columns] or None
                lake_history.rename_unseen(target, table.steps, table.id.full_path, final)
            target.prepare(work.plan, properties=self.new_table_properties(target))
            vanished = work.plan.exists and table.read_again_from is not None
            if work.plan.exists and table.old_values:
                self._give_old_values(work)
            if not table.size and (not vanished or self.settings.stored_as_scd_type == "append"):
                return
            faultpoints.reach(f"{self.fault_point}.before_commit")
            values = self._values(work)
            if table.written:
                self._add_files(rows, work, values, batch)
            elif not self.index_way.apply(rows, work, values, batch, texts):
                if not work.plan.append and not target.small:
                    expect_many_rows(target.session, rows.sparkSession)
                with self._carried(as_newest(rows, table), work) as whole:
                    self._commit(whole, work, values, batch)
            faultpoints.reach(f"{self.fault_point}.after_commit")
            self.index_way.remember(work, values)
        self.upkeep.after_commit(target)

    def decoded_row_writer(self, topic_ids: Mapping[str, str]) -> Callable[[], DecodedRowWriter] | None:
        """For tables whose last batch had many rows and was applied by the index of their keys."""
        return self.index_way.decoder_tables.writer_factory(topic_ids)

    def leave_out(self, table: TableId) -> None:
        """The next batches of the table go without files of decoding tasks."""
        self.index_way.decoder_tables.leave_out(table)

    def _values(self, work: Work) -> lake_merge.Values:
        """How the columns of the batch's rows are written."""
        columns = work.table.schema.columns
        return lake_merge.Values(
            columns=tuple(column.name for column in columns),
            key=work.table.schema.key,
            nullable=frozenset(column.name for column in columns if column.nullable),
            position=self.settings.position_column,
            kept=self._kept_types(work),
            insert_partial=self.settings.missing_row == "insert",
            deleted=self.settings.mark,
            variants=work.plan.variants,
        )

    def _kept_types(self, work: Work) -> dict[str, KeptType]:
        """The columns whose types the target keeps."""
        kinds = {column.name: column.logical.spark_type for column in work.table.schema.columns}
        return kept_types(work.plan.evolution.casts, kinds, str(work.table.id), nulls=self._kept.nulls)

    def _give_old_values(self, work: Work) -> None:
        """Give the rows of the target the values that they have in columns which were added.

        Raises:
            SchemaError: the target keeps a history.
        """
        source = work.table.id
        if self.settings.stored_as_scd_type == "append":
            return
        if not self.takes_old_values:
            raise SchemaError(
                f"Rows of table {source} from before have one value in a new column, and a history takes it from rows "
                "that are read only.",
                remedy="Name the table in the source's option 'reread_added_columns', and read it again: headrace "
                f"repair reread pipeline.yaml {source.path}",
            )
        if lake_merge.give_old_values(work.table, work.target, self._values(work)):
            faultpoints.reach("sink.lake.old_values")

    @contextmanager
    def _carried(self, rows: DataFrame, work: Work) -> Iterator[DataFrame]:
        """The rows, in which key changes carry what the target's row of the old key has."""
        table, target, stored_as = work.table, work.target, self.settings.stored_as_scd_type
        if stored_as == "append" or not (needs_target_rows(table) or (table.key_changed and table.partial)):
            yield rows
            return
        there = self._live(target.read())
        there = with_documents(there, variants_in(there))
        have = {name.lower() for name in there.columns}
        fields = ", ".join(
            f"cast({quote(c.name)} as {c.logical.spark_type}) as {quote(c.name)}"
            for c in table.schema.columns
            if c.name.lower() in have
        )
        position = quote(self.settings.position_column)
        since, until, lasting = position, "null", table.emptying
        if stored_as == "2":
            since, until = f"{lake_history.START}.position", f"{lake_history.END}.position"
            # What was there before a truncate has versions too.
            lasting = replace(table, truncate_at=None)
        standing = there.selectExpr(
            f"struct({fields}) as row", f"{since} as since", f"cast({until} as string) as until"
        )
        with (
            seen_by(target, standing) as view,
            carried(rows, lasting, lambda _: rows.sparkSession.table(view)) as whole,
        ):
            yield whole

    def _commit(self, rows: DataFrame, work: Work, values: lake_merge.Values, batch: BatchId) -> None:
        table, target = work.table, work.target
        source, ignore_nulls = table.id.full_path, self.settings.ignore_null_updates
        stored_as = self.settings.stored_as_scd_type
        if stored_as == "append":
            log = change_log(rows, table, self.settings.position_column)
            variants = work.plan.variants
            log = log.selectExpr(
                *(as_variant(quote(n)) + f" as {quote(n)}" if n in variants else quote(n) for n in log.columns)
            )
            lake_history.append_changes(target, log, tuple(log.columns), source, batch)
        elif stored_as == "2":
            versions = lake_history.History(
                events=history.change_events(rows, table, ignore_nulls=ignore_nulls),
                truncates=None if table.truncate_at is None else history.truncates(rows, table),
                values=values,
                columns=tuple(TargetColumn(c.name, c.logical.spark_type) for c in table.schema.columns),
                tracked=tracked(self.settings, table),
                source=source,
                read_again_from=table.read_again_from,
                size=table.size,
            )
            if work.plan.append:
                lake_history.append_first(target, versions, batch)
            else:
                lake_history.bring(target, versions, batch, self.new_table_properties(target))
        else:
            if work.plan.append:
                commit = lake_merge.append(rows, table, target, values)
            elif table.schema.key:
                self._merge(rows, work, values, batch)
                return
            else:
                commit = lake_merge.merge_keyless(rows, table.emptying, target, values)
            target.commit(batch, source, commit)

    def _add_files(self, rows: DataFrame, work: Work, values: lake_merge.Values, batch: BatchId) -> None:
        """Commit what workers wrote of a first snapshot, under the conditions by which its rows would be appended."""
        table, target = work.table, work.target
        if not work.plan.append or not table.initial or work.plan.evolution != Evolution():
            raise FilesUnusable.because(table.id, "its target has other rows by now, or other columns")

        def add() -> None:
            with lake_merge.beside_files(rows, table, target, values) as left:
                reason = target.add_files([file.action for file in table.written if file.rows], left)
            if reason:
                raise FilesUnusable.because(table.id, reason)

        target.commit(batch, table.id.full_path, add)

    def table_files(
        self, spark: SparkSession, tables: Sequence[TableSchema], batch: BatchId
    ) -> tuple[TableFiles | None, Mapping[str, str]]:
        """The folders of those tables that hold only rows of this owner's first snapshot and can take our files.

        The one rule: rows go into files where a batch would append them without a look at the target
        (`LakeTable.plan`). So the target was created by this pipeline from this checkpoint, and no streamed change,
        no further read and no other structure has come since; the snapshot's chunks have no key in common; and the
        batch's number in the commit keeps a replay out.
        """
        files: dict[str, PreparedTable] = {}
        reasons: dict[str, str] = {}
        login: str | None = None
        for schema in tables:
            prepared: PreparedTable | str = self.no_files(schema)
            if not prepared:
                with work_on(schema.id):
                    prepared = self._prepared(spark, schema, batch)
            if isinstance(prepared, PreparedTable) and not prepared.folder.storage.is_local:
                login = self.storage_login(spark) if login is None else login
                prepared = prepared if prepared.folder.storage.login == login else _OTHER_LOGIN
            if isinstance(prepared, str):
                reasons[schema.id.path] = prepared
            else:
                files[place_of(schema)] = prepared
        return (self.files(files) if self.files is not None and files else None), reasons

    def orphan_files(self, spark: SparkSession, id: TableId, before: dt.datetime) -> Sequence[OrphanFile]:
        target = self.target(spark, id)
        try:
            return upkeep.orphans_of(target, before) if target.exists else ()
        finally:
            target.release()

    def delete_orphans(self, spark: SparkSession, id: TableId, files: Sequence[OrphanFile]) -> None:
        """Delete files that `orphan_files` has just found."""
        target = self.target(spark, id)
        try:
            upkeep.delete_orphans(target, files)
        finally:
            target.release()

    def no_files(self, schema: TableSchema | None = None) -> str:
        """Only rows of tables with a key that are kept as they are now go into files."""
        settings = self.settings
        if self.files is None:
            return f"{self.name} tables are written by Spark"
        reasons = {
            "stored_as_scd_type is not 1": settings.stored_as_scd_type != "1",
            "JSON columns are variants": settings.json_columns == VARIANT,
            "it has no key": schema is not None and not schema.key,
        }
        return next((reason for reason, is_so in reasons.items() if is_so), "")

    def _prepared(self, spark: SparkSession, schema: TableSchema, batch: BatchId) -> PreparedTable | str:
        """Make a target ready for files; or why it takes none."""
        counts = {Operation.READ.value: 1}
        steps = given_steps(self.settings)(schema.id)
        table = self._written(TableProfile(schema.id, schema, {}, counts, initial=True, steps=steps))
        target = self._target(spark, table)
        try:
            work = self._plan_work(table, target, batch)
            if work is None or work.plan.done or not work.plan.append or work.plan.evolution != Evolution():
                return "its target has other rows already, or other columns, or this batch"
            with explained(schema.id.full_path, target, schema.id):
                target.prepare(work.plan, properties=self.new_table_properties(target))
                return self._prepared_for_files(target, work.table, work.plan.layout)
        finally:
            target.release()

    def _prepared_for_files(self, target: LakeTable, table: TableProfile, layout: TargetLayout) -> PreparedTable | str:
        """How files of a target are written; or why it takes none, as the end of a sentence."""
        raise TypeError(f"Sink '{self.name}' has no files that workers write.")

    def _merge(self, rows: DataFrame, work: Work, values: lake_merge.Values, batch: BatchId) -> None:
        """One MERGE; where late changes would have got into the rows of others, another one without them."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        table, target, source = work.table.emptying, work.target, work.table.id.full_path
        ignore_nulls = self.settings.ignore_null_updates
        try:
            target.commit(batch, source, lake_merge.merge(rows, table, target, values, ignore_nulls=ignore_nulls))
        except (PySparkException, Py4JError) as failure:
            if StopReason.LATE_CHANGE not in str(failure):
                raise
            keys = (f"{quote(name)} as h{number}" for number, name in enumerate(table.schema.key))
            there = target.read().selectExpr(*keys, f"{quote(values.position)} as at")
            with seen_by(target, there) as view:
                known = rows.sparkSession.table(view)
                again = lake_merge.merge(rows, table, target, values, ignore_nulls=ignore_nulls, known=known)
                target.commit(batch, source, again)

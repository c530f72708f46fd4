"""`headrace.apply_changes`: changes into a table of one's own, in AUTO CDC's words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.apply.auto_cdc import FlatChanges, flat_changes
from headrace.changes.table import TableId
from headrace.changes.typed import quote
from headrace.errors import OptionError
from headrace.settings import option
from headrace.sinks.base import BatchId, offsets_hash
from headrace.sinks.evolution import KEEPING, TargetColumn
from headrace.sinks.folder import Folder, absolute
from headrace.sinks.lake import history as lake_history
from headrace.sinks.lake import merge as lake_merge
from headrace.sinks.lake.catalog import NamePattern, escaped, identifier
from headrace.sinks.lake.delta.table import DeltaTable
from headrace.sinks.lake.iceberg.table import IcebergTable
from headrace.sinks.lake.layout import TargetLayout
from headrace.sinks.lake.options import LakeSettings
from headrace.sinks.lake.refusals import explained
from headrace.sinks.lake.sessions import SMALL, session_for
from headrace.sinks.lake.sink import LakeSink
from headrace.sinks.lake.table import LakeTable
from headrace.sinks.misfits import kept_types
from headrace.sinks.table_sink import given_steps

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_CHANGE_ROW = {"op", "table", "key", "before", "after", "position", "schema_id", "table_schema"}
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


def apply_changes(
    df: DataFrame,
    target: str,
    keys: Sequence[str | Column] | None = None,
    sequence_by: str | Column | None = None,
    *,
    ignore_null_updates: bool = False,
    apply_as_deletes: str | Column | None = None,
    apply_as_truncates: str | Column | None = None,
    column_list: Sequence[str | Column] | None = None,
    except_column_list: Sequence[str | Column] | None = None,
    stored_as_scd_type: int | str = 1,
    track_history_column_list: Sequence[str | Column] | None = None,
    track_history_except_column_list: Sequence[str | Column] | None = None,
    name: str = "apply_changes",
    batch_id: int | None = None,
    **options: Any,
) -> DataStreamWriter | None:
    """Bring changes into a Delta or Iceberg table, whatever order they come in.

    The words and their meaning are those of AUTO CDC (`create_auto_cdc_flow`), so that moving between them is a change
    of the function's name. A DataFrame that is at rest is applied at once, in one commit per target; so it is inside a
    `foreachBatch` function, for as many targets as you call it for. Of a stream the answer is its writer, to be given a
    checkpoint and started.

    Order: per key by `sequence_by`; of a delete and an upsert at one place the delete counts. Idempotence: inside a
    stream the commit carries the query's and the batch's number, and a replayed batch changes nothing; without them a
    repeated change has no effect on a table, but a change log would have it twice. Late
    changes: a change older than what the target has of its key does not win, and with type 2 it gets its own version at
    its place. Deletes are remembered beside the target (`<target>_headrace_unseen`), so that late changes bring no row
    back. Runs in the driver, which starts Spark jobs.

    Args:
        df: changes, one per row, with the table's columns; or Headrace's change rows of any tables, which say
            themselves what the keys, the order, the deletes and the columns are.
        target: a folder (with a `/`), which is a Delta table; or a name in a catalogue. For change rows `{database}`,
            `{schema}` and `{table}` in it stand for the source's.
        keys: the columns that tell one row from another.
        sequence_by: the column or expression by which changes are ordered; several as a `struct`. Never null.
        ignore_null_updates: a null leaves the target's value as it is.
        apply_as_deletes: which changes are deletes (`"op = 'D'"`).
        apply_as_truncates: which ones empty the table; with type 2 they end all versions.
        column_list: the columns to write; all by default.
        except_column_list: the columns not to write.
        stored_as_scd_type: 1 keeps the newest row per key, 2 every version with `__START_AT` and `__END_AT`, `append`
            each change as a row of a change log.
        track_history_column_list: with type 2, the columns whose changes make a version.
        track_history_except_column_list: with type 2, those whose changes do not.
        name: who writes, where several flows share a target's history.
        batch_id: the batch's number, where it is not called inside `foreachBatch` and yet must not be applied twice.
        options: `schema_change_behavior`, `renamed_columns`, `takeover`, `missing_row`, `position_column`, and for
            change rows `delete_mode` and `deleted_column`, as the sinks have them.

    Raises:
        OptionError: words exclude each other, or a column does not exist.
        SinkError: the target belongs to somebody else, or can't be written.
        SchemaError: the target can't carry the columns, or a change has no place in the order.
    """
    words = {
        "ignore_null_updates": ignore_null_updates,
        "apply_as_deletes": apply_as_deletes,
        "apply_as_truncates": apply_as_truncates,
        "column_list": column_list,
        "except_column_list": except_column_list,
        "stored_as_scd_type": stored_as_scd_type,
        "track_history_column_list": track_history_column_list,
        "track_history_except_column_list": track_history_except_column_list,
    }
    if df.isStreaming:

        def write(batch: DataFrame, number: int) -> None:
            apply_changes(batch, target, keys, sequence_by, name=name, batch_id=number, **words, **options)  # type: ignore[arg-type]

        return df.writeStream.foreachBatch(write)
    sink = _Targets(_settings(words, {**options, "target": target}))
    batch = _batch(df.sparkSession, name, batch_id)
    if set(df.columns) >= _CHANGE_ROW:
        given = [
            word for word in ("keys", "sequence_by") if {"keys": keys, "sequence_by": sequence_by}[word] is not None
        ]
        given += [word for word in ("apply_as_deletes", "apply_as_truncates") if words[word] is not None]
        if given:
            raise OptionError(
                f"Change rows say themselves what '{given[0]}' would say.", remedy="Leave it out, or give flat rows."
            )
        sink.write_changes(df, batch)
        return None
    if sink.settings.mark:
        raise OptionError(
            "Flat changes can't be applied with delete_mode soft, because a delete does not say the row's values.",
            remedy="Give change rows (headrace.decode), or leave 'delete_mode' out.",
        )
    if keys is None or sequence_by is None:
        raise OptionError(
            "apply_changes needs keys and sequence_by.",
            remedy="Name the columns that identify a row and that order its changes.",
        )
    changes = flat_changes(
        df,
        keys=keys,
        sequence_by=sequence_by,
        ignore_null_updates=ignore_null_updates,
        apply_as_deletes=apply_as_deletes,
        apply_as_truncates=apply_as_truncates,
        column_list=column_list,
        except_column_list=except_column_list,
    )
    _Flat(sink, changes, words, batch).write(df)
    return None


def _settings(words: dict[str, Any], options: dict[str, Any]) -> TargetsSettings:
    given = {word: value for word, value in words.items() if value is not None and not word.startswith("apply_as")}
    for word, value in given.items():
        if word.endswith("_list"):
            given[word] = [one if isinstance(one, str) else _plain_name(one) for one in value]
    return TargetsSettings.parse({**given, **options}, owner="apply_changes")


def _plain_name(column: Column) -> str:
    text = str(column)
    return text.removeprefix("Column<'").removesuffix("'>")


def _batch(spark: SparkSession, name: str, number: int | None) -> BatchId | None:
    """Which batch of which query it is, as Spark's streaming thread knows."""
    query = None
    offsets = ""
    if hasattr(spark, "_jsparkSession"):
        query = spark.sparkContext.getLocalProperty(_QUERY)
        batch_text = spark.sparkContext.getLocalProperty(_BATCH)
        if number is None and query is not None and batch_text is not None:
            number = int(batch_text)
        if query is not None and batch_text is not None and number == int(batch_text):
            offsets = _offsets(spark, query, number)
    return None if number is None else BatchId(name, query or "by-hand", number, offsets)


def _offsets(spark: SparkSession, query: str, number: int) -> str:
    """A hash of where a batch of a running query ends, by its checkpoint; empty where that is not found."""
    jvm: Any = spark.sparkContext._jvm
    running = spark._jsparkSession.sharedState().activeStreamingQueries().get(jvm.java.util.UUID.fromString(query))
    if running is None:
        return ""
    text = Folder(spark, str(running.resolvedCheckpointRoot())).read(f"offsets/{number}")
    return "" if text is None else offsets_hash(text)


class TargetsSettings(LakeSettings):
    """Of `apply_changes`."""

    target: str = option("Where the changes go.")


class _Targets(LakeSink):
    """The tables that a text names."""

    name: ClassVar[str] = "apply_changes"
    fault_point: ClassVar[str] = "apply_changes"
    settings: TargetsSettings

    def __init__(self, settings: TargetsSettings) -> None:
        super().__init__(settings)
        self._folder = settings.target if "/" in settings.target else None
        # A folder has no dots between its parts, but the same placeholders.
        quoted = quote(settings.target) if self._folder else settings.target
        self._pattern = NamePattern.parse(quoted, option="target")

    def check(self) -> None:
        """Nothing is known before the first batch."""

    def target(self, session: SparkSession, id: TableId) -> LakeTable:
        if self._folder is not None:
            return DeltaTable(session, absolute(*self._pattern.of(id, escaped)))
        kind = session.conf.get(f"spark.sql.catalog.{self._pattern.parts[0]}", None) or ""
        is_iceberg = kind.startswith("org.apache.iceberg")
        parts = self._pattern.of(id, escaped if is_iceberg else identifier)
        return IcebergTable(session, parts) if is_iceberg else DeltaTable(session, parts)

    def location(self, id: TableId) -> str:
        return ".".join(self._pattern.of(id, str))

    def new_table_properties(self, target: LakeTable) -> dict[str, str]:
        return {}

    def write_changes(self, rows: DataFrame, batch: BatchId | None) -> None:
        from pyspark import StorageLevel

        if batch is None:
            raise OptionError(
                "Change rows outside a stream need batch_id.",
                remedy="Pass the batch's number, by which the targets recognise a repeated batch.",
            )
        rows = rows.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            self.write(rows, batch)
        finally:
            rows.unpersist()


class _Flat:
    """One flat batch on its way into one target."""

    def __init__(self, sink: _Targets, changes: FlatChanges, words: dict[str, Any], batch: BatchId | None) -> None:
        self._sink = sink
        self._changes = changes
        self._batch = batch
        self._stored_as = sink.settings.stored_as_scd_type
        self._ignore_nulls: bool = words["ignore_null_updates"]
        self._position = sink.settings.position_column

    def write(self, df: DataFrame) -> None:
        """Look at the target, bring it into layout, and commit."""
        changes, settings = self._changes, self._sink.settings
        target = self._sink.target(session_for(df.sparkSession, SMALL + 1), TableId("", "", ""))
        source = target.flat_source
        columns = tuple(TargetColumn(name, kind) for name, kind in changes.columns)
        sequence = TargetColumn(self._position, changes.sequence, "Headrace: place of the row's last change")
        added = {"2": lake_history.columns(changes.sequence), "1": (sequence,), "append": (sequence, _DELETED)}
        beside = () if self._stored_as == "append" else lake_history.UNSEEN_COLUMNS
        layout = TargetLayout(
            source, columns, changes.key, added[self._stored_as], stored_as=self._stored_as, beside=beside
        )
        steps = given_steps(settings)(TableId("", "", ""))
        try:
            with explained(source, target):
                plan = target.plan(
                    layout,
                    self._batch,
                    takeover=settings.takeover,
                    behavior=settings.schema_change_behavior,
                    rows=True,
                    first_read=False,
                    first_read_ends=False,
                    append_only=self._stored_as == "append",
                    steps=steps,
                )
                if plan.done:
                    return
                if plan.exists and settings.schema_change_behavior not in KEEPING:
                    lake_history.rename_unseen(target, steps, source, [column.name for column in columns])
                target.prepare(plan, properties={})
                left_out = plan.evolution.left_out
                values = lake_merge.Values(
                    columns=tuple(column.name for column in columns if column.name not in left_out),
                    key=changes.key,
                    nullable=frozenset(changes.key),
                    position=self._position,
                    kept=kept_types(
                        plan.evolution.casts, dict(changes.columns), source, nulls=settings.unrepresentable == "null"
                    ),
                    insert_partial=True,
                )
                self._commit(target, values, source)
            self._sink.upkeep.after_commit(target)
        finally:
            target.release()

    def _commit(self, target: LakeTable, values: lake_merge.Values, source: str) -> None:
        changes = self._changes
        if self._stored_as == "append":
            log = changes.events.selectExpr(
                *(f"row.{quote(name)} as {quote(name)}" for name in values.columns),
                f"at as {quote(self._position)}",
                f"deleted as {_DELETED.name}",
            )
            lake_history.append_changes(target, log, tuple(log.columns), source, self._batch)
            return
        types = dict(changes.columns)
        work = lake_history.History(
            events=changes.events,
            truncates=changes.truncates,
            values=values,
            columns=tuple(TargetColumn(name, types[name]) for name in values.columns),
            tracked=self._tracked(values.columns),
            source=source,
        )
        if self._stored_as == "2":
            lake_history.bring(target, work, self._batch, {})
        else:
            lake_history.bring_newest(target, work, self._batch, ignore_nulls=self._ignore_nulls)

    def _tracked(self, columns: Sequence[str]) -> tuple[str, ...]:
        only = self._sink.settings.track_history_column_list
        never = self._sink.settings.track_history_except_column_list
        for word, listed in (("track_history_column_list", only), ("track_history_except_column_list", never)):
            for name in listed:
                if name not in columns:
                    raise OptionError(f"{word} names '{name}', which is no column.", remedy="Name a column to write.")
        rest = [name for name in columns if name not in self._changes.key]
        return tuple(name for name in rest if (name in only if only else name not in never))


_DELETED = TargetColumn("_headrace_deleted", "boolean", "Headrace: whether the change is a delete")

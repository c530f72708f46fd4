"""What a run would do from its checkpoint: asked of the source, the checkpoint and the targets. Nothing is changed."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from headrace.changes import TableSchema
from headrace.errors import HeadraceError
from headrace.observe.checkpoint import CheckpointFolder, batch_offsets, committed_batch, open_folder
from headrace.observe.completeness import offsets_of
from headrace.observe.kept_offsets import check_checkpoint, checkpoint_id
from headrace.pipeline.cascades import described
from headrace.pipeline.first_loads import no_first_loads
from headrace.pipeline.fusing import Fusing
from headrace.pipeline.kafka_source import KafkaTopics
from headrace.pipeline.model import Model
from headrace.pipeline.shaping.table_transform import require_columns
from headrace.pipeline.shared_places import refuse_shared_places, refuse_tables_alike
from headrace.pipeline.target import Target
from headrace.pipeline.unmatched import unmatched_in
from headrace.sinks.base import BatchId
from headrace.sources.base import Source
from headrace.sources.databases import Databases, Offsets
from headrace.sources.offset import Offset
from headrace.sources.tables.unmatched import require_matched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Snapshot = Literal["none", "begins", "goes on", "catches up"]
REWRITES_ARE_SAID = (
    "Tables whose rows a change of structure may have changed are not read again, because all sinks take messages; the "
    "log says so (on_rewrite: warn). Set 'on_rewrite' to choose."
)
_NEW = "a checkpoint that is not there yet"


@dataclass(frozen=True)
class SinkPlan:
    """Where a table's changes would go in one sink.

    Args:
        sink: the sink as messages name it.
        place: topic or table; empty where the sink has no place per table, or where nobody can say before the rows.
        exists: whether the target is there; None where nobody looked.
        changes: what would be done to its structure.
        way: how small batches would go there; empty where there is one way only.
        load: how rows of the table's first snapshot would get there, as the end of a sentence; empty where none would,
            or there is one way only.
        left_out: whether the sink's routes keep the table from it.
        stop: why the run would stop there; empty where it would not.
        remedy: what to do about that.
    """

    sink: str
    place: str = ""
    exists: bool | None = None
    changes: tuple[str, ...] = ()
    way: str = ""
    load: str = ""
    left_out: bool = False
    stop: str = ""
    remedy: str = ""


@dataclass(frozen=True)
class TablePlan:
    """One table.

    Args:
        table: `schema.name`; with several databases the database stands in front.
        key: the names of its key columns; empty for a table without a key.
        columns: how many columns are captured.
        snapshot: whether its rows would be read: `begins`, `goes on`, `catches up` (they are, and changes made
            meanwhile follow), or `none`.
        rows: about how many rows the table has, as the source's catalog says; -1 where nobody asked or knows.
        chunks: in how many key ranges they are read, at the least; None where that is unknown or nothing is read.
        chunks_done: chunks that are in all sinks already.
        after: the position after which its changes follow; empty where none do.
        targets: one for each sink, in order.
    """

    table: str
    key: tuple[str, ...]
    columns: int
    snapshot: Snapshot
    rows: int = -1
    chunks: int | None = None
    chunks_done: int = 0
    after: str = ""
    targets: tuple[SinkPlan, ...] = ()


@dataclass(frozen=True)
class PipelinePlan:
    """What a run would do.

    Args:
        name: the pipeline's.
        checkpoint: path or URL.
        batch: the newest batch that is in all sinks; None for a pipeline that was never started.
        source: what the source is, in words.
        tables: what is captured; empty where the source is Kafka.
        gone: tables that were captured up to now and that the options no longer mean.
        uncaptured: tables that were captured, that the options still mean, and that are not captured now.
        unmatched: names and patterns of the options that stand for nothing, and that stop nothing, as sentences.
        cascades: what foreign keys do to tables without a change in the log, and what happens then, as sentences.
        lacking: columns that the log lacks, as sentences.
        topics: for Kafka the topics that are read, or the pattern.
        begin: for Kafka where reading would begin, by topic and partition; empty before the first batch.
        sinks: each sink with its format and what a repeated batch does.
        encoding: where messages are made, and what stands against making them where the source is read; empty where
            no sink takes messages.
        rewrites: what happens to tables whose rows a change of structure may have changed, where that follows from the
            sinks; empty where the options say it, or where they are read again.
        unsaid: what messages do not say because the source does not name transactions, and what readers may not expect
            of values, as sentences.
    """

    name: str
    checkpoint: str
    batch: int | None
    source: str
    tables: tuple[TablePlan, ...] = ()
    gone: tuple[str, ...] = ()
    uncaptured: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = ()
    cascades: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    begin: Mapping[str, Mapping[str, int]] | None = None
    sinks: tuple[str, ...] = ()
    encoding: str = ""
    rewrites: str = ""
    unsaid: tuple[str, ...] = ()

    @property
    def stops(self) -> list[tuple[str, SinkPlan]]:
        """The targets at which the run would stop, with their tables."""
        return [(table.table, target) for table in self.tables for target in table.targets if target.stop]

    def to_json(self) -> dict[str, Any]:
        """JSON values under stable names."""
        return {
            "name": self.name,
            "checkpoint": self.checkpoint,
            "batch": self.batch,
            "source": self.source,
            "tables": [_table_json(table) for table in self.tables],
            "gone": list(self.gone),
            "uncaptured": list(self.uncaptured),
            "unmatched": list(self.unmatched),
            "cascades": list(self.cascades),
            "lacking": list(self.lacking),
            "topics": list(self.topics),
            "begin": None if self.begin is None else {topic: dict(ends) for topic, ends in self.begin.items()},
            "sinks": list(self.sinks),
            "encoding": self.encoding,
            "rewrites": self.rewrites,
            "unsaid": list(self.unsaid),
        }


def plan_pipeline(model: Model, spark: SparkSession | None = None) -> PipelinePlan:
    """What a run of a pipeline would do now. Nothing is written, locked or mined, and a run is not disturbed.

    Args:
        model: the checked file.
        spark: a classic session, for sinks and checkpoints that are looked at with one; of such sinks only the places
            are said without it.

    Raises:
        HeadraceError: as a run's first batch: the source can't be reached, a table is not captured, changes are lost.
    """
    folder = open_folder(model.checkpoint, spark)
    check_checkpoint(folder, kind=model.source_type)
    batch = committed_batch(folder)
    lines = [] if batch is None else batch_offsets(folder, batch)
    line = lines[0] if lines else None
    plan = PipelinePlan(
        name=model.name,
        checkpoint=model.checkpoint,
        batch=batch,
        source=model.source_type,
        sinks=tuple(_sink_text(target) for target in model.targets),
        encoding=Fusing.of(model).text if any(target.format is not None for target in model.targets) else "",
        rewrites=REWRITES_ARE_SAID if model.warns_of_rewrites else "",
        unsaid=unsaid_of_transactions(model),
    )
    if isinstance(model.source, KafkaTopics):
        topics = tuple(model.source.settings.topics) or (model.source.settings.topics_pattern,)
        begin: Mapping[str, Mapping[str, int]] = json.loads(line) if line else {}
        return replace(plan, source=f"kafka, read as {model.source.format.name}", topics=topics, begin=begin)
    offsets = (offsets_of(line) if line else None) or Offsets()
    next_batch = BatchId(model.name, _checkpoint_id(folder), 0 if batch is None else batch + 1)
    databases = Databases(model.source)
    sources = databases.sources
    for target in model.targets:
        target.shaping.remember(databases.schemas(offsets))
    captured: list[TableSchema] = []
    tables: list[TablePlan] = []
    gone: list[str] = []
    uncaptured: list[str] = []
    lacking: list[str] = []
    for name, source in sources.items():
        prefix = f"{name}." if len(sources) > 1 else ""
        start = offsets.of(name)
        schemas = {schema.id.path: schema for schema in source.tables(start.tables_seen)}
        captured += schemas.values()
        end = source.preview(start, dt.datetime.now(dt.UTC)) or _guessed(source, start, schemas)
        for path, schema in schemas.items():
            targets = tuple(_target(model, target, schema, next_batch, spark) for target in model.targets)
            found_table = _table(source, path, schema, start, end)
            if found_table.snapshot in ("begins", "goes on"):
                pairs = zip(model.targets, targets, strict=True)
                targets = tuple(replace(one, load=_load(model, target, schema, one)) for target, one in pairs)
            tables.append(replace(found_table, table=prefix + path, targets=targets))
        uncaptured += [prefix + path for path in end.uncaptured]
        lacking += [f"Table '{prefix}{one.table}': {one.sentence} {one.remedy}" for one in source.left_out()]
        left = (path for path in start.tables_seen if path not in end.tables_seen and path not in schemas)
        gone += [prefix + path for path in left]
    unmatched = [
        *databases.unmatched(offsets),
        *unmatched_in(model.targets, captured, databases.gone(offsets, captured)),
    ]
    require_matched(model.source.settings, unmatched)
    refuse_shared_places(model.targets, (schema.id for schema in captured), model.source_type)
    refuse_tables_alike(model.targets, (schema.id for schema in captured), model.source_type)
    remarks = {
        f"In messages of {target.label}: {remark}": None
        for target in model.targets
        if target.format is not None
        for remark in target.format.remarks(captured)
    }
    return replace(
        plan,
        unsaid=(*plan.unsaid, *remarks),
        source=", database ".join(filter(None, (model.source_type, ", ".join(sources)))),
        tables=tuple(tables),
        gone=tuple(gone),
        uncaptured=tuple(uncaptured),
        unmatched=tuple(one.sentence for one in unmatched),
        cascades=tuple(one.sentence for one in described(databases.cascades(), model.targets)),
        lacking=tuple(lacking),
    )


def unsaid_of_transactions(model: Model) -> tuple[str, ...]:
    """What messages do not say because the source does not name transactions, as sentences."""
    if model.source.settings.get("provide_transaction_metadata") is not False:
        return ()
    return tuple(
        f"Messages of {target.label} say no {target.format.of_transactions}. Set 'provide_transaction_metadata' of the "
        "source if readers need them."
        for target in model.targets
        if target.format is not None and target.format.of_transactions
    )


def _guessed(source: Source, start: Offset, tables: Mapping[str, TableSchema]) -> Offset:
    """What the next batch would begin with, for a source that can't say."""
    known = tuple(dict.fromkeys([*(path for path in start.known if path in tables), *tables]))
    return replace(start, known=known, commit=start.commit or source.head())


def _table(source: Source, path: str, schema: TableSchema, start: Offset, end: Offset) -> TablePlan:
    snapshots = source.snapshots
    before, progress = start.tables.get(path), end.tables.get(path)
    plan = TablePlan(
        path, schema.key, len(schema.columns), "none", after=end.commit if start.is_nothing else start.commit
    )
    if progress is not None:
        plan = replace(plan, rows=progress.rows)
    only_streamed = progress is not None and progress.done and not progress.bounds and not progress.empty
    if progress is not None and end.begins_to_read(start, path) and snapshots.reads_tables:
        rows = snapshots.chunk_rows if schema.key else 0
        chunks = None if progress.rows < 0 else -(-progress.rows // rows) if rows else 1
        plan = replace(plan, snapshot="begins", chunks=chunks, after=progress.commit)
    elif before is not None and not before.done:
        done = before.chunk + len(before.bounds)
        plan = replace(plan, snapshot="goes on", rows=before.rows, chunks_done=done, after=before.commit)
    elif progress is not None and only_streamed and path in start.known and progress != before:
        plan = replace(plan, snapshot="catches up", after=progress.commit)
    elif before is not None and before.commit < start.commit:
        plan = replace(plan, snapshot="catches up", after=before.commit)
    elif path not in start.known:
        plan = replace(plan, after=end.commit if progress is None else progress.commit)
    return replace(plan, after="") if snapshots.ends_stream else plan


def _target(model: Model, target: Target, schema: TableSchema, batch: BatchId, spark: SparkSession | None) -> SinkPlan:
    try:
        shaped = target.shaping.structure(schema, spark)
        if shaped is None:
            return SinkPlan(target.label, left_out=True)
        if spark is None:
            require_columns(target.shaping.transforms, schema)
        if target.format is not None:
            return SinkPlan(target.label, target.format.topic_for(shaped.id, model.source_type) or "")
        preview = target.sink.preview(shaped, batch, spark)
    except HeadraceError as error:
        return SinkPlan(target.label, stop=error.message, remedy=error.remedy)
    if preview is None:
        return SinkPlan(target.label)
    return SinkPlan(target.label, preview.place, preview.exists, preview.changes, preview.way)


def _load(model: Model, target: Target, schema: TableSchema, preview: SinkPlan) -> str:
    """How rows of a table's first snapshot get into a sink, as `SinkPlan.load`."""
    if preview.stop or preview.left_out or target.sink.files is None:
        return ""
    reason = no_first_loads(model, schema)
    if reason:
        return f"by Spark, because {reason}"
    return f"into its files where they are read{', if it has no others' if preview.exists else ''}"


def _checkpoint_id(folder: CheckpointFolder) -> str:
    """The id that Spark keeps in the checkpoint, by which targets know who writes to them."""
    return checkpoint_id(folder) or _NEW


def _sink_text(target: Target) -> str:
    format = "" if target.format is None else f" as {target.format.name}"
    return f"{target.label}{format}, {target.sink.guarantee}"


def _table_json(table: TablePlan) -> dict[str, Any]:
    return {
        "table": table.table,
        "key": list(table.key),
        "columns": table.columns,
        "snapshot": table.snapshot,
        "rows": table.rows if table.rows >= 0 else None,
        "chunks": table.chunks,
        "chunks_done": table.chunks_done,
        "after": table.after or None,
        "targets": [
            {
                "sink": target.sink,
                "place": target.place or None,
                "exists": target.exists,
                "changes": list(target.changes),
                "way": target.way or None,
                "load": target.load or None,
                "left_out": target.left_out,
                "stop": target.stop or None,
                "remedy": target.remedy or None,
            }
            for target in table.targets
        ],
    }


def needs_spark(model: Model) -> bool:
    """Whether the targets of a pipeline, or expressions of its transforms, can only be looked at with Spark."""
    return any(target.sink.looks_with_spark or target.shaping.has_sql for target in model.targets)

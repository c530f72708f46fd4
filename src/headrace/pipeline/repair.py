"""Repairs of single tables, shown before they are done: read again, rewound, or skipped, while the others go on.

A repair of a captured database is a signal, so it is followed by the run that is there, or by the next one. A repair of
Kafka's partitions is a batch of the checkpoint, which only a stopped pipeline takes (`pipeline.topic_moves`).
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from headrace.changes import TableId, TableSchema
from headrace.errors import CaptureError, HeadraceError, OptionError
from headrace.observe.checkpoint import committed_batch, local_path, open_folder, planned_batch
from headrace.observe.kept_offsets import check_checkpoint
from headrace.observe.parked_tables import ParkedTable, of_database, parked_tables
from headrace.pipeline.checkpoint import holder, known_offsets
from headrace.pipeline.model import Model
from headrace.pipeline.target import Target
from headrace.registry import did_you_mean
from headrace.sources.base import Source
from headrace.sources.databases import Databases, Offsets
from headrace.sources.offset import Offset
from headrace.sources.signals import EXECUTE, REWIND, SKIP, Signal, chosen, signal_data
from headrace.sources.table_versions import Kind, TableMove

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RepairKind = Literal["reread", "rewind", "skip"]


@dataclass(frozen=True)
class RepairedPart:
    """One table, or one partition of a topic.

    Args:
        name: `schema.name`, with several databases after the database; or the topic and its partition.
        does: what is done, as a sentence without its end.
        count: about how many rows are read, or changes come again or are left out; None where that is not known.
        at: the place up to which its changes are delivered; empty where that does not matter.
        to: the place after which they go on; empty where that does not matter.
        sinks: what each sink gets, in order: the sink with the place in it, and a sentence without its end.
    """

    name: str
    does: str
    count: int | None = None
    at: str = ""
    to: str = ""
    sinks: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """JSON values under stable names."""
        return {
            "name": self.name,
            "does": self.does,
            "count": self.count,
            "at": self.at or None,
            "to": self.to or None,
            "sinks": [{"sink": sink, "effect": effect} for sink, effect in self.sinks],
        }


@dataclass(frozen=True)
class Repair:
    """A repair that was looked at, and can be done.

    Args:
        kind: which.
        pipeline: the pipeline's name.
        checkpoint: path or URL.
        parts: what it does, table by table.
        notes: what else to know, as sentences.
        do: does it, and gives what was done, as sentences.
    """

    kind: RepairKind
    pipeline: str
    checkpoint: str
    parts: tuple[RepairedPart, ...]
    notes: tuple[str, ...] = ()
    do: Callable[[], Sequence[str]] = field(default=tuple, repr=False, compare=False)

    def to_json(self) -> dict[str, Any]:
        """JSON values under stable names."""
        return {
            "repair": self.kind,
            "pipeline": self.pipeline,
            "checkpoint": self.checkpoint,
            "parts": [part.to_json() for part in self.parts],
            "notes": list(self.notes),
        }


def reread_tables(
    model: Model,
    tables: Sequence[str],
    *,
    incremental: bool = False,
    filter: str = "",
    spark: SparkSession | None = None,
) -> Repair:
    """Tables that are read again, as in the first snapshot or beside their stream, so that rows which the source no
    longer has go from tables that are kept equal.

    Args:
        model: the checked file.
        tables: names or regular expressions.
        incremental: whether to read beside the stream of the table, which then does not wait.
        filter: a SQL predicate of the rows that are read, of an incremental read; rows that vanished stay.
        spark: a classic session, for a checkpoint that is not on this machine.

    Raises:
        OptionError: a table is not captured, or can't be read so; the pipeline was never started.
        HeadraceError: the source can't be asked.
    """
    if filter and not incremental:
        raise OptionError("A whole table has no filter.", remedy="Add --incremental to read some rows only.")
    pipeline_state = _PipelineState(model, spark)
    kind = "incremental" if incremental else "blocking"
    parts, named = [], []
    tables_to_read = pipeline_state.chosen(tables)
    if incremental:
        pipeline_state.refuse_parked(tables_to_read, "Without --incremental it is read again and goes on.")
    for schema, database in tables_to_read:
        rows = pipeline_state.estimate(database, schema.id)
        does = "some of its rows are read" if filter else "all its rows are read"
        waits = "beside its changes" if incremental else "and its changes wait until then"
        ends_equal = not incremental or (not filter and pipeline_state.source.ends_equal)
        sinks = pipeline_state.sinks(schema, partial(_reread_effect, vanished=ends_equal))
        parts.append(RepairedPart(pipeline_state.name(schema.id), f"{does} again, {waits}", rows, sinks=sinks))
        named.append(pipeline_state.signal_name(schema.id))
    notes = [
        f"Table {one.table.path} is parked. It goes on when the read begins, unless the cause is still there: {one.why}"
        for one in pipeline_state.parked_among(tables_to_read)
    ]
    data = signal_data(EXECUTE, named, kind=kind, filter=filter or None)
    signal = Signal(_id(), EXECUTE, data)
    pipeline_state.source.check_signal(signal)
    return with_notes(pipeline_state.repair("reread", parts, [signal]), *notes)


def move_tables(
    model: Model, tables: Sequence[str], kind: Kind, to: str, *, spark: SparkSession | None = None
) -> Repair:
    """Tables whose changes come again since a place (`rewind`), or are left out up to one (`skip`).

    Args:
        model: the checked file.
        tables: names or regular expressions.
        kind: which.
        to: a place as the source's tools write it, or a time with its zone, or `now`.
        spark: a classic session, for a checkpoint that is not on this machine.

    Raises:
        OptionError: the source, or a table, can't be moved there; the pipeline was never started.
        HeadraceError: the source can't be asked.
    """
    pipeline_state = _PipelineState(model, spark)
    parts, signals = [], []
    tables_to_move = pipeline_state.chosen(tables)
    pipeline_state.refuse_parked(tables_to_move, "Read it again: headrace repair reread.")
    for schema, database in tables_to_move:
        offset = pipeline_state.offsets.of(database)
        plan = pipeline_state.sources[database].move(TableMove(schema.id.path, kind, to), offset)
        position = plan.move.to + ("" if plan.time is None else f" ({_shown(plan.time)})")
        delivered = f"delivered up to {plan.at}"
        does = (
            f"its changes after {position} come again"
            if kind == "rewind"
            else f"its changes up to {position} are left out"
        )
        effect = _rewind_effect if kind == "rewind" else _skip_effect
        sinks = pipeline_state.sinks(schema, effect)
        name = pipeline_state.name(schema.id)
        parts.append(RepairedPart(name, f"{does} ({delivered})", plan.changes, plan.at, plan.move.to, sinks))
        type = REWIND if kind == "rewind" else SKIP
        data = signal_data(type, [pipeline_state.signal_name(schema.id)], position=plan.move.to)
        signals.append(Signal(_id(), type, data))
    return pipeline_state.repair(kind, parts, signals)


class _PipelineState:
    """What a pipeline of a captured database is like now."""

    def __init__(self, model: Model, spark: SparkSession | None) -> None:
        if not isinstance(model.source, Source):
            raise OptionError(
                f"Pipeline '{model.name}' reads Kafka, which has no tables to read again.",
                remedy="Rewind a topic: headrace repair rewind PIPELINE TOPIC --to earliest.",
            )
        self.model = model
        self.source = model.source
        folder = open_folder(model.checkpoint, spark)
        check_checkpoint(folder, kind=model.source_type)
        self.offsets: Offsets = known_offsets(model.checkpoint, spark)
        if not self.offsets.databases:
            raise OptionError(
                f"Pipeline '{model.name}' has no finished batch yet, so there is nothing to repair.",
                remedy="Run it first.",
            )
        self.parked = parked_tables(folder)
        self.planned = planned_batch(folder) != committed_batch(folder)
        self.databases = Databases(model.source)
        self.sources = self.databases.sources
        self._several = len(self.sources) > 1
        self._captured = [
            (schema, name)
            for name, source in self.sources.items()
            for schema in source.tables(self.offsets.of(name).tables_seen)
        ]

    def chosen(self, tables: Sequence[str]) -> list[tuple[TableSchema, str]]:
        """The captured tables that names or regular expressions mean, each once."""
        ids = [schema.id for schema, _ in self._captured]
        meant: dict[TableId, None] = {}
        for pattern in tables:
            matches = chosen(pattern, ids)
            if not matches:
                raise OptionError(
                    f"No captured table matches '{pattern}'.", remedy=did_you_mean(pattern, [id.path for id in ids])
                )
            meant |= dict.fromkeys(matches)
        return [(schema, name) for schema, name in self._captured if schema.id in meant]

    def parked_among(self, tables: Sequence[tuple[TableSchema, str]]) -> list[ParkedTable]:
        several = len(self.sources) > 1
        parked = (of_database(self.parked, name, several=several).get(schema.id.path) for schema, name in tables)
        return [one for one in parked if one is not None]

    def refuse_parked(self, tables: Sequence[tuple[TableSchema, str]], remedy: str) -> None:
        """Stop at a parked table, which comes back by a read of all its rows alone.

        Raises:
            OptionError: one is parked.
        """
        for one in self.parked_among(tables):
            raise OptionError(
                f"Table '{one.table.path}' is parked since batch {one.batch}, so its targets lack changes.",
                remedy=remedy,
            )

    def name(self, id: TableId) -> str:
        return id.full_path if self._several else id.path

    def signal_name(self, id: TableId) -> str:
        return id.full_path if self._several else id.path

    def estimate(self, database: str, id: TableId) -> int | None:
        """About how many rows a table has, where its source knows."""
        offset: Offset | None = None
        with suppress(HeadraceError):
            # Only for show.
            offset = self.sources[database].preview(Offset.nothing(), dt.datetime.now(dt.UTC))
        progress = None if offset is None else offset.tables.get(id.path)
        return None if progress is None or progress.rows < 0 else progress.rows

    def sinks(self, schema: TableSchema, effect: Callable[[Target], str]) -> tuple[tuple[str, str], ...]:
        effects = []
        for target in self.model.targets:
            destination = target.shaping.routes.destination(schema.id)
            if destination is None:
                continue
            location = destination.id.path
            if target.format is not None:
                with suppress(HeadraceError):
                    # A format that names topics by rows does not say them now.
                    location = target.format.topic_for(destination.id, self.model.source_type) or location
            effects.append((f"{target.label} {location}", effect(target)))
        return tuple(effects)

    def repair(self, kind: RepairKind, parts: Sequence[RepairedPart], signals: Sequence[Signal]) -> Repair:
        return Repair(
            kind,
            self.model.name,
            self.model.checkpoint,
            tuple(parts),
            tuple(self._notes()),
            partial(self._send, tuple(signals)),
        )

    def _notes(self) -> list[str]:
        notes = []
        by = holder(self.model.checkpoint)
        if by is not None:
            notes.append(f"The pipeline runs (process {by.process}) and takes this with one of its next batches.")
        elif local_path(self.model.checkpoint) is not None:
            notes.append("The pipeline is not running; its next run takes this.")
            if self.planned:
                notes.append(
                    "A batch was planned and not finished; the next run delivers it first, as it was planned. If that "
                    "stops at one of these tables, run once with on_table_error: park, and repair the table then."
                )
        else:
            notes.append("A run takes this with one of its next batches.")
        return notes

    def _send(self, signals: Sequence[Signal]) -> list[str]:
        places: list[str] = []
        for signal in signals:
            try:
                answers = self.source.signal(signal)
            except CaptureError as error:
                sent = f" {_counted(len(places), 'signal')} of this repair were sent before." if places else ""
                raise CaptureError(f"{error.message}{sent}", remedy=error.remedy) from error
            places += [f"Signal '{signal.id}' ({signal.type}) is in {location}." for location in answers]
        return places


def _reread_effect(target: Target, *, vanished: bool) -> str:
    if target.sink.keeps_tables:
        rest = "rows that the source no longer has go" if vanished else "rows that the source no longer has stay"
        return f"gets every row as it is, and {rest}"
    if target.format is not None:
        return "gets a message for every row again, as a read"
    return "gets every row once more, as a read"


def _rewind_effect(target: Target) -> str:
    if target.sink.keeps_tables:
        return "takes the changes that it lacks; those that it has change nothing"
    return "gets these changes again" if target.format is not None else "gets these changes once more"


def _skip_effect(target: Target) -> str:
    if target.sink.keeps_tables:
        return "lacks these changes until the table is read again"
    return "never gets these changes"


def with_notes(repair: Repair, *notes: str) -> Repair:
    return replace(repair, notes=(*repair.notes, *notes))


def _shown(time: dt.datetime) -> str:
    return time.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _id() -> str:
    return f"headrace-{uuid.uuid4().hex[:12]}"

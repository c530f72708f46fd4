"""Dead letters replayed after a repair: decoded again, and given to the sinks in their right order.

A dead letter is older than what came later for its row. So a replay reads the messages that followed it in its
partition too, and gives the sinks the changes of the letters together with the later changes of the same rows. Sinks
that keep tables go by the position: they take what is new in that, and leave what they have. A change log takes the
letters alone. Consumers of messages get old changes out of order, so such sinks stop a replay unless the user says
what to do.

A replay is a batch of the checkpoint that ends where the batch before ended. So targets know it by its number, and the
next run goes on after it.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from headrace.changes.row import DATA_OPERATIONS
from headrace.changes.typed import literal
from headrace.errors import OptionError
from headrace.faultpoints import reach
from headrace.formats.codec import KAFKA_COLUMNS, kafka_columns
from headrace.formats.convert import read
from headrace.observe.checkpoint import REPLAYED
from headrace.observe.kept_offsets import check_checkpoint, checkpoint_id
from headrace.observe.progress import ProgressBoard
from headrace.pipeline.batch import BatchWriter
from headrace.pipeline.batch_inputs import Delivery, MessageInput
from headrace.pipeline.checkpoint import Checkpoint, held
from headrace.pipeline.dead_letter import DeadLetters, Replayed, ReplayedBatch
from headrace.pipeline.kafka_source import TopicIds
from headrace.pipeline.model import Model
from headrace.pipeline.recover import recover
from headrace.pipeline.target import Target
from headrace.spark.local_rows import local_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

OutOfOrder = Literal["send", "leave-out"]
OnTrimmed = Literal["fail", "continue"]
_IDS_DDL = "topic string, partition int, first bigint, last bigint"
_PLACE = ("topic", "partition", "offset")
_AT = tuple(f"message.{name} as _{name}" for name in _PLACE)
_TABLE = "to_json(table)"
_DATA = ", ".join(literal(op) for op in DATA_OPERATIONS)
_NAME = "concat_ws('.', coalesce(nullif(table.schema, ''), nullif(table.database, '')), table.name)"
_IMAGE_KEY = (
    "if({0} is not null and forall(map_keys(key), k -> map_contains_key({0}, k)), "
    "to_json(transform(map_keys(key), k -> {0}[k])), null)"
)
_KEYS = (
    f"array_compact(array_distinct(array(to_json(map_values(key)), {_IMAGE_KEY.format('after')}, "
    f"{_IMAGE_KEY.format('before')})))"
)
"""Spark SQL for the keys that a change is about: an update may say another one in each image."""


@dataclass(frozen=True)
class DeadLetterGroup:
    """Dead letters of one partition that have the same reason.

    Args:
        topic: where the messages came from.
        partition: its partition.
        reason: why they could not be read.
        letters: how many there are.
        first: the least of their offsets.
        last: the greatest of their offsets.
        newest: when the newest of the messages was sent.
        replayed: how many of them were replayed.
    """

    topic: str
    partition: int
    reason: str
    letters: int
    first: int
    last: int
    newest: dt.datetime | None
    replayed: int = 0


@dataclass(frozen=True)
class TableReplay:
    """What a replay does to one table.

    Args:
        table: `schema.name`.
        changes: the changes of dead letters.
        later: later changes of the same rows, which come with them.
    """

    table: str
    changes: int
    later: int = 0


@dataclass(frozen=True)
class SinkReplay:
    """What a replay does to one sink.

    Args:
        sink: the sink as messages name it.
        effect: what happens there, as a sentence.
        stop: why the replay would stop there; empty where it would not.
        remedy: what to do about that.
    """

    sink: str
    effect: str
    stop: str = ""
    remedy: str = ""


@dataclass(frozen=True)
class ReplayPlan:
    """What a replay would do.

    Args:
        name: the pipeline's.
        checkpoint: path or URL.
        letters: the dead letters that were not replayed yet.
        readable: how many of them give changes now.
        no_event: how many of them are no events, which settles them.
        unreadable: how many still can't be read, by reason; they stay.
        tables: what becomes of each table.
        sinks: what becomes of each sink.
        stops: why the replay would stop, besides what sinks say: sentences with their remedies.
        notes: what else to know, as sentences.
    """

    name: str
    checkpoint: str
    letters: int = 0
    readable: int = 0
    no_event: int = 0
    unreadable: Mapping[str, int] = field(default_factory=dict)
    tables: tuple[TableReplay, ...] = ()
    sinks: tuple[SinkReplay, ...] = ()
    stops: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def all_stops(self) -> list[str]:
        return [*self.stops, *(f"{sink.sink}: {sink.stop} {sink.remedy}".rstrip() for sink in self.sinks if sink.stop)]

    @property
    def does_nothing(self) -> bool:
        """Whether no dead letter would be settled."""
        return not self.readable and not self.no_event

    def to_json(self) -> dict[str, Any]:
        """JSON values under stable names."""
        return {
            "name": self.name,
            "checkpoint": self.checkpoint,
            "letters": self.letters,
            "readable": self.readable,
            "no_event": self.no_event,
            "unreadable": dict(self.unreadable),
            "tables": [{"table": t.table, "changes": t.changes, "later_changes": t.later} for t in self.tables],
            "sinks": [{"sink": s.sink, "effect": s.effect, "stop": s.stop or None} for s in self.sinks],
            "stops": self.all_stops,
            "notes": list(self.notes),
        }


def list_dead_letters(model: Model, spark: SparkSession) -> list[DeadLetterGroup]:
    """The dead letters of a pipeline, by partition and reason. Reads the sink of dead letters; changes nothing.

    Raises:
        OptionError: the pipeline keeps no dead letters.
        SinkError: their sink can't be read back.
    """
    from pyspark.sql import functions as sf

    kept = _dead_letters_of(model).kept(spark, model.name)
    if kept is None:
        return []
    done = Replayed.from_text(Checkpoint(spark, model.checkpoint).text(REPLAYED))
    marked = _within(kept, spark, done, "leftouter").selectExpr("*", "first is not null as replayed")
    grouped = marked.groupBy("topic", "partition", "reason").agg(
        sf.count("*").alias("letters"),
        sf.min("offset").alias("first"),
        sf.max("offset").alias("last"),
        sf.max(sf.expr("unix_micros(timestamp)")).alias("newest"),
        sf.count_if("replayed").alias("replayed"),
    )
    groups = []
    for row in grouped.orderBy("topic", "partition", "first", "reason").collect():
        newest = None if row["newest"] is None else dt.datetime.fromtimestamp(row["newest"] / 1e6, dt.UTC)
        counted = (row["topic"], row["partition"], row["reason"] or "", row["letters"], row["first"], row["last"])
        groups.append(DeadLetterGroup(*counted, newest, row["replayed"]))
    return groups


@contextmanager
def prepared_replay(
    model: Model,
    spark: SparkSession,
    *,
    topic: str = "",
    out_of_order: OutOfOrder | None = None,
    on_trimmed: OnTrimmed = "fail",
    holds: bool = True,
) -> Iterator[Replay]:
    """A replay that is looked at before it is run. Reads dead letters and topics; writes nothing before `Replay.run`.

    Args:
        model: the checked file.
        spark: a classic session, with the pipeline's jars.
        topic: only letters of this topic; empty for all.
        out_of_order: what sinks of messages get: `send` the changes of letters and again the later ones of their rows,
            `leave-out` nothing. None stops where there is such a sink.
        on_trimmed: what to do where Kafka no longer has all that followed a letter, so that a row which was deleted
            since would come back: `fail`, or `continue` and take that.
        holds: whether to keep runs from the checkpoint meanwhile; a plan alone needs not.

    Raises:
        OptionError: the pipeline keeps no dead letters, runs, or has a batch that is not finished.
        DataLossError: a topic was deleted and made again.
        HeadraceError: the sink of dead letters or Kafka can't be read.
    """
    letters = _dead_letters_of(model)
    checkpoint = Checkpoint(spark, model.checkpoint)
    confirm: Callable[[], None] = _not_held
    with ExitStack() as cleanup:
        if holds:
            confirm = cleanup.enter_context(held(checkpoint, f"{model.name} (replay)", model.lease_seconds))
        check_checkpoint(checkpoint.folder, kind=model.source_type)
        yield Replay(model, spark, letters, checkpoint, cleanup, confirm, topic, out_of_order, on_trimmed)


class Replay:
    """A prepared replay. Made by `prepared_replay`; runs in the driver."""

    def __init__(
        self,
        model: Model,
        spark: SparkSession,
        letters: DeadLetters,
        checkpoint: Checkpoint,
        cleanup: ExitStack,
        confirm: Callable[[], None],
        topic: str,
        out_of_order: OutOfOrder | None,
        on_trimmed: OnTrimmed,
    ) -> None:
        self._model = model
        self._spark = spark
        self._letters = letters
        self._source = letters.source
        self._checkpoint = checkpoint
        self._cleanup = cleanup
        self._confirm = confirm
        self._topic = topic
        self._out_of_order = out_of_order
        self._on_trimmed = on_trimmed
        self._done = Replayed.from_text(checkpoint.text(REPLAYED))
        self._trimmed: list[str] = []

    @cached_property
    def plan(self) -> ReplayPlan:
        """What it would do. Decodes the letters and what followed them, in Spark jobs.

        Raises:
            HeadraceError: as `prepared_replay`.
        """
        plan = ReplayPlan(self._model.name, self._checkpoint.location)
        if self._waiting is None:
            return plan
        total = self._waiting.count()
        if not total:
            return plan
        verdicts = self._verdicts
        readable = verdicts.where("readable and not unreadable").count()
        unreadable = {
            row["reason"] or "": row["count"]
            for row in verdicts.where("unreadable").groupBy("reason").count().orderBy("reason").collect()
        }
        tables = self._tables()
        return replace(
            plan,
            letters=total,
            readable=readable,
            no_event=total - readable - sum(unreadable.values()),
            unreadable=unreadable,
            tables=tuple(tables),
            sinks=tuple(self._effect(target, tables) for target in self._model.targets) if readable else (),
            stops=tuple(self._stops()) if readable else (),
            notes=tuple(self._trimmed) if self._on_trimmed == "continue" else (),
        )

    def run(self) -> ReplayedBatch | None:
        """Replay; None where there is nothing to replay.

        Where it fails or is killed half-way it can be repeated: targets of tables go by position, sinks of messages get
        their messages again.

        Raises:
            OptionError: the plan stops.
            HeadraceError: a sink can't be written.
        """
        if self.plan.all_stops:
            raise OptionError(self.plan.all_stops[0])
        if self.plan.does_nothing:
            return None
        self._confirm()
        at = dt.datetime.now(dt.UTC)
        number = self._checkpoint.plan_batch()
        if self.plan.readable:
            self._write(number)
        reach("pipeline.replay.written")
        self._checkpoint.commit_batch(number)
        reach("pipeline.replay.committed")
        done = ReplayedBatch(number, at, self.plan.readable + self.plan.no_event)
        settled = self._verdicts.where("not unreadable").select(*_PLACE)
        self._checkpoint.keep(REPLAYED, self._done.with_batch(done, _ranges(settled)).to_text())
        return done

    def _write(self, number: int) -> None:
        delivery = Delivery(
            self._model.targets,
            ProgressBoard(),
            connector=self._model.source_type,
            holds=self._confirm,
            share=self._share,
        )
        decoded = MessageInput(decode=lambda rows: rows, on_error="drop", topic_ids=self._topic_ids.confirm)
        writer = BatchWriter(self._model.name, decoded, delivery, offsets=self._checkpoint.offsets_hash)
        id = checkpoint_id(self._checkpoint.folder)
        assert id is not None
        writer.begin(id)
        try:
            writer(self._rows, number)
        except Exception as error:
            failure = writer.failure or error
            raise recover(failure) or failure from None

    def _share(self, target: Target, rows: DataFrame) -> DataFrame | None:
        """What a sink gets of the batch."""
        if target.sink.keeps_tables:
            return rows
        if target.sink.takes == "messages":
            return rows if self._out_of_order == "send" else None
        return rows.where("op = 'schema'").unionByName(self._from_dead_letters(rows.where("op <> 'schema'")))

    # What there is to replay.

    @cached_property
    def _waiting(self) -> DataFrame | None:
        """The letters that were not replayed, of batches that rest in all sinks."""
        kept = self._letters.kept(self._spark, self._model.name)
        if kept is None:
            return None
        if self._topic:
            kept = kept.where(f"topic = {literal(self._topic)}")
        ends = [(t, p, 0, end - 1) for t, partitions in self._ends.items() for p, end in partitions.items()]
        finished = _join_ranges(kept, local_rows(self._spark, ends, _IDS_DDL), "leftsemi")
        return self._persisted(_within(finished, self._spark, self._done, "leftanti"))

    @cached_property
    def _ends(self) -> Mapping[str, Mapping[int, int]]:
        """Where the committed batch ends, by topic and partition."""
        text = self._checkpoint.committed_offset()
        return {t: {int(p): end for p, end in ends.items()} for t, ends in json.loads(text or "{}").items()}

    @cached_property
    def _topic_ids(self) -> TopicIds:
        ids = self._source.ids(self._spark.sparkContext._jvm)
        return TopicIds(ids, self._checkpoint.topic_ids(), lambda text: None, fail_on_data_loss=True)

    @cached_property
    def _decoded(self) -> DataFrame:
        """The letters, and what followed them in their partitions, as change rows."""
        assert self._waiting is not None
        self._topic_ids.confirm()
        messages = kafka_columns(self._waiting)
        later = self._later()
        if later is not None:
            places = self._waiting.select(*_PLACE)
            messages = messages.unionByName(later.join(places, list(_PLACE), "leftanti").select(*KAFKA_COLUMNS))
        # A format may know from one message how to read those after it.
        ordered = messages.repartition("topic", "partition").sortWithinPartitions(*_PLACE)
        return self._persisted(read(self._source.format, ordered))

    def _later(self) -> DataFrame | None:
        """The messages after the first letter of each partition, up to where the checkpoint is; None where no sink
        needs them."""
        if not any(t.sink.keeps_tables or t.sink.takes == "messages" for t in self._model.targets):
            return None
        assert self._waiting is not None
        held = self._source.head(self._spark)
        begin: dict[str, dict[str, int]] = {}
        end: dict[str, dict[str, int]] = {}
        firsts = self._waiting.groupBy("topic", "partition").agg({"offset": "min"})
        for row in firsts.selectExpr("topic", "partition", "`min(offset)` as first").collect():
            topic, partition, upto = row["topic"], row["partition"], self._ends[row["topic"]][row["partition"]]
            there = held.get(topic, {}).get(str(partition))
            oldest = upto if there is None else min(there.first, upto)
            if oldest > row["first"] + 1:
                self._trimmed.append(
                    f"Partition {partition} of topic '{topic}' begins at offset {oldest:,}, so what followed the dead "
                    f"letter at offset {row['first']:,} is no longer all there: a row that was deleted since would "
                    "come back."
                )
            start = max(oldest, row["first"])
            if start < upto:
                begin.setdefault(topic, {})[str(partition)] = start
                end.setdefault(topic, {})[str(partition)] = upto
        if not begin:
            return None
        return self._source.read_between(self._spark, begin, end)

    @cached_property
    def _verdicts(self) -> DataFrame:
        """For each letter whether it is `readable` or `unreadable`, and the `reason`."""
        from pyspark.sql import functions as sf

        rows = self._from_dead_letters(self._decoded).selectExpr(*_AT, "op", "error")
        verdicts = rows.groupBy(*(f"_{name}" for name in _PLACE)).agg(
            sf.expr("bool_or(op is not null and op <> 'error')").alias("readable"),
            sf.expr("coalesce(bool_or(op = 'error'), false)").alias("unreadable"),
            sf.expr("max(if(op = 'error', error, null))").alias("reason"),
        )
        return self._persisted(
            verdicts.selectExpr(*(f"_{name} as {name}" for name in _PLACE), "readable", "unreadable", "reason")
        )

    @cached_property
    def _rows(self) -> DataFrame:
        """The batch: the changes of letters, later changes of the same rows, and the structures of their tables."""
        from pyspark.sql import functions as sf

        known = self._decoded.where("op is not null and op <> 'error'")
        ours = self._from_dead_letters(known.where("op <> 'schema'"))
        changed = ours.where(f"op in ({_DATA})")
        about = self._persisted(changed.selectExpr(f"{_TABLE} as _table", f"explode_outer({_KEYS}) as _key").distinct())
        theirs = self._from_dead_letters(known).where("table is not null")
        tables = sf.broadcast(theirs.selectExpr(f"{_TABLE} as _table").distinct())
        of_tables = known.selectExpr("*", f"{_TABLE} as _table", f"{_KEYS} as _keys").join(tables, "_table", "leftsemi")
        others = _away(of_tables.where(f"op in ({_DATA})"), self._places)
        # A change of key is about two rows, either of which may be one of the letters'.
        same = others.selectExpr("*", *_AT, "explode(_keys) as _key").join(about, ["_table", "_key"], "leftsemi")
        same = same.dropDuplicates(["_topic", "_partition", "position"])
        chosen = [of_tables.where("op = 'schema'"), others.where("op = 't'"), same]
        columns = known.columns
        rows = ours.select(*columns)
        for part in chosen:
            rows = rows.unionByName(part.select(*columns))
        return self._persisted(rows)

    @cached_property
    def _places(self) -> DataFrame:
        """Where the letters stand, as columns `_topic`, `_partition` and `_offset`."""
        from pyspark.sql import functions as sf

        assert self._waiting is not None
        return sf.broadcast(self._waiting.selectExpr(*(f"{name} as _{name}" for name in _PLACE)))

    def _from_dead_letters(self, rows: DataFrame) -> DataFrame:
        return rows.join(self._places, _same_place(rows, self._places), "leftsemi")

    def _persisted(self, frame: DataFrame) -> DataFrame:
        from pyspark import StorageLevel

        kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
        self._cleanup.callback(kept.unpersist)
        return kept

    # What it does.

    def _tables(self) -> list[TableReplay]:
        rows = self._rows.where(f"op in ({_DATA})")
        by_table: dict[str, list[int]] = {}
        for column, part in enumerate((self._from_dead_letters(rows), _away(rows, self._places))):
            for row in part.selectExpr(f"{_NAME} as name").groupBy("name").count().collect():
                by_table.setdefault(row["name"], [0, 0])[column] = row["count"]
        return [TableReplay(name, changes, later) for name, (changes, later) in sorted(by_table.items())]

    def _effect(self, target: Target, tables: list[TableReplay]) -> SinkReplay:
        changes, later = sum(t.changes for t in tables), sum(t.later for t in tables)
        old = _counted(changes, "old change")
        if target.sink.keeps_tables:
            return SinkReplay(target.label, f"{old} at their place; what is newer in a row stays as it is")
        if target.sink.takes == "changes":
            return SinkReplay(target.label, f"{old} behind what it has, each with its own position")
        if self._out_of_order == "leave-out":
            return SinkReplay(target.label, "nothing, so its consumers never get these changes")
        effect = f"{old} out of order, and again {_counted(later, 'later change')} of the same rows, in order"
        if self._out_of_order == "send":
            return SinkReplay(target.label, effect)
        return SinkReplay(
            target.label,
            effect,
            "Its consumers would get old changes after newer ones.",
            "Say --out-of-order send to send them, followed by the later changes of the same rows, or --out-of-order "
            "leave-out to leave them out of this sink.",
        )

    def _stops(self) -> list[str]:
        """Why it would stop, besides what sinks say."""
        stops = []
        if self._trimmed and self._on_trimmed == "fail":
            stops.append(f"{self._trimmed[0]} Say --on-trimmed continue if no such row was deleted.")
        if any(target.sink.keeps_tables for target in self._model.targets):
            stops += [
                f"Later changes of table '{table}' carry only some columns, so rows that have them can't take what a "
                "dead letter says of the others. Read the table again where it is captured."
                for table in self._with_partial_changes()
            ]
        return stops

    def _with_partial_changes(self) -> list[str]:
        """The tables of which a later change of a letter's row lacks columns."""
        schemas = self._rows.where("op = 'schema' and table_schema is not null")
        columns = "json_array_length(get_json_object(table_schema, '$.columns'))"
        sizes = schemas.groupBy("schema_id").agg({"table_schema": "first"})
        sizes = sizes.selectExpr("schema_id", "`first(table_schema)` as table_schema").selectExpr(
            "schema_id", f"{columns} as _columns"
        )
        later = _away(self._rows.where("op in ('r', 'c', 'u')"), self._places)
        partial = later.join(sizes, "schema_id").where("size(after) < _columns")
        return sorted(row["name"] for row in partial.selectExpr(f"{_NAME} as name").distinct().collect())


def _not_held() -> None:
    """Nothing is written without the checkpoint."""
    raise OptionError("A replay that only looks can't be run.", remedy="Prepare it with holds=True.")


def _dead_letters_of(model: Model) -> DeadLetters:
    if model.dead_letters is None:
        raise OptionError(
            f"Pipeline '{model.name}' keeps no dead letters.",
            remedy="Add a section 'dead_letter' to its file; messages that can't be read from then on are kept.",
        )
    return model.dead_letters


def _same_place(rows: DataFrame, places: DataFrame) -> Column:
    from pyspark.sql import functions as sf

    return (
        (sf.expr("message.topic") == places["_topic"])
        & (sf.expr("message.partition") == places["_partition"])
        & (sf.expr("message.offset") == places["_offset"])
    )


def _away(rows: DataFrame, places: DataFrame) -> DataFrame:
    return rows.join(places, _same_place(rows, places), "leftanti")


def _within(letters: DataFrame, spark: SparkSession, done: Replayed, how: str) -> DataFrame:
    return _join_ranges(letters, local_rows(spark, done.ranges(), _IDS_DDL), how)


def _join_ranges(letters: DataFrame, ranges: DataFrame, how: str) -> DataFrame:
    from pyspark.sql import functions as sf

    named = sf.broadcast(ranges.selectExpr("topic as _t", "partition as _p", "first", "last"))
    joined = letters.join(named, sf.expr("topic = _t and partition = _p and offset between first and last"), how)
    return joined.drop("_t", "_p")


def _ranges(places: DataFrame) -> list[tuple[str, int, int, int]]:
    """Offsets as ranges of those that follow one another."""
    numbered = places.selectExpr(
        "*", "offset - row_number() over (partition by topic, partition order by offset) as _r"
    )
    from pyspark.sql import functions as sf

    grouped = numbered.groupBy("topic", "partition", "_r").agg(sf.min("offset"), sf.max("offset"))
    return [(row[0], row[1], row[3], row[4]) for row in grouped.collect()]


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"

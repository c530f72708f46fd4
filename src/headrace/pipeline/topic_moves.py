"""Partitions of Kafka that are read again, or passed over, by command; and the record of what was passed over.

Spark's checkpoint says where each partition goes on. A move is a batch of its own in the checkpoint that ends at the
new places and has no rows. So it takes a stopped pipeline, and needs nothing of the next run.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.errors import OptionError
from headrace.observe.checkpoint import SKIPPED
from headrace.observe.kept_offsets import check_checkpoint
from headrace.observe.messages import SkippedMessages, skipped_messages, skipped_text
from headrace.pipeline.checkpoint import Checkpoint, check_free, held
from headrace.pipeline.kafka_source import KafkaTopics, OffsetRange, TopicIds
from headrace.pipeline.model import Model
from headrace.pipeline.repair import Repair, RepairedPart
from headrace.registry import did_you_mean
from headrace.sources.table_versions import NOW, Kind, time_of_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EARLIEST = "earliest"
_PARTITION = re.compile(r"(.+):(\d+)", re.DOTALL)
Held = Mapping[str, Mapping[str, OffsetRange]]


def move_topics(model: Model, spark: SparkSession, names: Sequence[str], kind: Kind, to: str) -> Repair:
    """Topics, or single partitions of them (`topic:0`), whose messages are read again since a place, or passed over up
    to one.

    Args:
        model: the checked file of a pipeline that reads Kafka.
        spark: a classic session, with Kafka's client.
        names: topics and partitions.
        kind: back or forward.
        to: an offset, a time with its zone, `earliest`, or `now`.

    Raises:
        OptionError: the pipeline runs, or was never started; a name or place is none.
        DataLossError: a topic was deleted and made again.
        ConnectError: Kafka can't be asked.
    """
    source = model.source
    assert isinstance(source, KafkaTopics)
    check_free(model.checkpoint)
    checkpoint = Checkpoint(spark, model.checkpoint)
    check_checkpoint(checkpoint.folder, kind=model.source_type)
    text = checkpoint.committed_offset()
    if text is None:
        raise OptionError(
            f"Pipeline '{model.name}' has no finished batch yet, so there is nothing to repair.", remedy="Run it first."
        )
    ends: dict[str, dict[str, int]] = json.loads(text)
    jvm = spark.sparkContext._jvm
    TopicIds(source.ids(jvm), checkpoint.topic_ids(), lambda text: None, fail_on_data_loss=True).confirm()
    places = _places(source, jvm, source.held(jvm), ends, _partitions(names, ends), kind, to)
    moved = {topic: {**offsets, **places.get(topic, {})} for topic, offsets in ends.items()}
    parts = tuple(
        _part(model, kind, topic, partition, ends[topic][partition], offset)
        for topic, offsets in places.items()
        for partition, offset in offsets.items()
    )
    notes = []
    if kind == "rewind" and model.keeps_tables:
        notes.append(
            "While it catches up, tables may show rows again that were deleted since; then they have what they had."
        )
    return Repair(
        kind,
        model.name,
        model.checkpoint,
        parts,
        tuple(notes),
        partial(_moved, model, checkpoint, ends, moved),
    )


def _partitions(names: Sequence[str], ends: Mapping[str, Mapping[str, int]]) -> list[tuple[str, str]]:
    partitions: dict[tuple[str, str], None] = {}
    for name in names:
        one = _PARTITION.fullmatch(name)
        if name in ends:
            partitions |= {(name, partition): None for partition in sorted(ends[name], key=int)}
        elif one is not None and one[2] in ends.get(one[1], {}):
            partitions[one[1], one[2]] = None
        else:
            raise OptionError(
                f"The checkpoint has no topic or partition '{name}'.",
                remedy=did_you_mean(name, sorted(ends)) + " A partition is written as topic:0.",
            )
    return list(partitions)


def _places(
    source: KafkaTopics,
    jvm: Any,
    held: Held,
    ends: Mapping[str, Mapping[str, int]],
    wanted: Sequence[tuple[str, str]],
    kind: Kind,
    to: str,
) -> dict[str, dict[str, int]]:
    """Where each partition goes on; those that stay where they are left out.

    Raises:
        OptionError: none would move, or one can't be moved there.
    """
    text = to.strip().lower()
    offsets: dict[str, dict[str, int]] = {}
    time = time_of_text(to)
    by_time = {} if time is None else source.offsets_at(jvm, wanted, time)
    for topic, partition in wanted:
        there = held.get(topic, {}).get(partition)
        if there is None:
            raise OptionError(f"Partition {partition} of topic '{topic}' is not there any more.", remedy="Name others.")
        at = ends[topic][partition]
        if text == EARLIEST and kind == "rewind":
            offset = there.first
        elif text == NOW:
            offset = there.end
        elif text.isdecimal():
            offset = int(text)
        elif time is not None:
            offset = by_time.get((topic, partition), there.end)
        else:
            raise OptionError(
                f"'{to}' is neither an offset nor a time with its zone.",
                remedy="Write an offset such as 1200, a time such as 2024-05-01T12:00:00Z, "
                + ("or earliest." if kind == "rewind" else "or now."),
            )
        if not there.first <= offset <= there.end:
            raise OptionError(
                f"Partition {partition} of topic '{topic}' holds offsets {there.first:,} to {there.end:,}, and not "
                f"{offset:,}.",
                remedy="Name a place in between.",
            )
        if offset < at if kind == "rewind" else offset > at:
            offsets.setdefault(topic, {})[partition] = offset
        elif text.isdecimal():
            raise OptionError(
                f"Partition {partition} of topic '{topic}' is read up to offset {at:,}, so it can't "
                f"{'be rewound' if kind == 'rewind' else 'skip'} to {offset:,}.",
                remedy=f"Name {'an earlier' if kind == 'rewind' else 'a later'} place.",
            )
    if not offsets:
        raise OptionError(
            "No partition would move.", remedy=f"Name {'an earlier' if kind == 'rewind' else 'a later'} place."
        )
    return offsets


def _part(model: Model, kind: Kind, topic: str, partition: str, at: int, offset: int) -> RepairedPart:
    count = abs(at - offset)
    if kind == "rewind":
        does = f"its messages from offset {offset:,} on are read again (read up to {at:,})"
    else:
        does = f"its messages from offset {at:,} to {offset - 1:,} are left out"
    sinks = []
    for target in model.targets:
        if kind == "skip":
            kept = target.sink.keeps_tables
            effect = "lacks what these messages say" if kept else "never gets what these messages say"
        elif target.sink.keeps_tables:
            effect = "takes the changes that it lacks; those that it has change nothing"
        else:
            effect = "gets these changes again" if target.format is not None else "gets these changes once more"
        sinks.append((target.label, effect))
    return RepairedPart(f"{topic}:{partition}", does, count, str(at), str(offset), tuple(sinks))


def _moved(
    model: Model,
    checkpoint: Checkpoint,
    ends: Mapping[str, Mapping[str, int]],
    moved: Mapping[str, Mapping[str, int]],
) -> Sequence[str]:
    """Put the batch into the checkpoint that ends at the new places."""
    now = dt.datetime.now(dt.UTC)
    with held(checkpoint, f"{model.name} (repair)", model.lease_seconds):
        if json.loads(checkpoint.committed_offset() or "{}") != ends:
            raise OptionError("The pipeline ran meanwhile; nothing was done.", remedy="Look at the repair again.")
        batch = checkpoint.plan_batch(json.dumps(moved, separators=(",", ":")))
        # Before the commit, so that nothing is passed over without a record.
        record = _recorded(skipped_messages(checkpoint.folder), ends, moved, now)
        if record or checkpoint.text(SKIPPED) is not None:
            checkpoint.keep(SKIPPED, skipped_text(record))
        checkpoint.commit_batch(batch)
    return [f"Batch {batch:,} of the checkpoint says so; the next run goes on there."]


def _recorded(
    before: Sequence[SkippedMessages],
    ends: Mapping[str, Mapping[str, int]],
    moved: Mapping[str, Mapping[str, int]],
    now: dt.datetime,
) -> list[SkippedMessages]:
    """What is passed over with a move, and was passed over before and is not read again with it."""
    skipped = []
    for one in before:
        at = moved.get(one.topic, {}).get(str(one.partition), one.upto)
        if at > one.first:
            upto = min(one.upto, at)
            skipped.append(SkippedMessages(one.topic, one.partition, one.first, upto, one.at))
    for topic, partitions in moved.items():
        for partition, offset in partitions.items():
            at = ends[topic][partition]
            if offset > at:
                skipped.append(SkippedMessages(topic, int(partition), at, offset, now))
    return skipped

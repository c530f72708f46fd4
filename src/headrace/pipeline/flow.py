"""What flows from where to where in a pipeline."""

from __future__ import annotations

from headrace.observe.flow import Flow, SinkTarget
from headrace.pipeline.kafka_source import KafkaTopics
from headrace.pipeline.model import Model
from headrace.pipeline.target import Target


def flow_of(model: Model) -> Flow:
    """The flow of a checked file. It names databases, topics and types; no server and no folder."""
    source = model.source
    if isinstance(source, KafkaTopics):
        names = tuple(source.settings.topics) or tuple(filter(None, [source.settings.topics_pattern]))
        format = source.format.name
    else:
        names, format = tuple(filter(None, source.databases())), ""
    return Flow(
        source=model.source_type,
        names=names,
        format=format,
        sinks=tuple(map(_sink, model.targets)),
        dead_letters="" if model.dead_letters is None else model.dead_letters.type,
    )


def _sink(target: Target) -> SinkTarget:
    return SinkTarget(
        label=target.label,
        type=target.type,
        guarantee=target.sink.guarantee,
        format="" if target.format is None else target.format.name,
        transforms=len(target.shaping.transforms),
        routes=len(target.shaping.routes.routes),
    )

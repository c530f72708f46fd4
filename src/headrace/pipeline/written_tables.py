"""The tables that a pipeline captures, and what its sinks get of them, asked of the source before a run.

The picture of the flow and lineage, which has names of its own for tables and topics, are made of the same facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.changes import TableId, TableSchema
from headrace.changes.dataset import Dataset
from headrace.errors import HeadraceError, OptionError, first_of
from headrace.observe.flow import Flow, SinkTarget
from headrace.observe.open_lineage import Lineage, Touched
from headrace.pipeline.checkpoint import known_offsets
from headrace.pipeline.kafka_source import KafkaTopics
from headrace.pipeline.model import Model
from headrace.pipeline.target import Target
from headrace.sources.base import Source
from headrace.sources.databases import Databases

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def captured_tables(model: Model, source: Source) -> tuple[list[TableSchema], list[HeadraceError]]:
    """The tables of all databases, and why those of some are not known."""
    schemas: list[TableSchema] = []
    errors: list[HeadraceError] = []
    try:
        known = known_offsets(model.checkpoint)
    except HeadraceError as error:
        return schemas, [error]
    for name, database in Databases(source).sources.items():
        try:
            schemas += database.tables(known.of(name).tables_seen)
        except HeadraceError as error:
            errors.append(error)
    return schemas, errors


def names_at(model: Model, target: Target, captured: Sequence[TableSchema]) -> tuple[list[TableId], list[str]]:
    """The tables that a sink would get, by the names that they have there, and the topics of their messages.

    A table that a transform or route does not fit is left out: the next level tells it.
    """
    tables: dict[TableId, None] = {}
    topics: dict[str, None] = {}
    for schema in captured:
        try:
            shaped = target.shaping.structure(schema, None)
            if shaped is None:
                continue
            topic = None if target.format is None else target.format.topic_for(shaped.id, model.source_type)
        except HeadraceError:
            continue
        tables[shaped.id] = None
        if topic is not None:
            topics[topic] = None
    return list(tables), list(topics)


def written_tables(model: Model, start: Callable[[], SparkSession]) -> list[TableSchema]:
    """The captured tables as the first sink of messages gets them, without those that its routes leave out.

    Args:
        model: the pipeline.
        start: begins a session, which reads expressions of transforms where there are any.

    Raises:
        HeadraceError: the source can't be asked, no sink takes messages, or a transform does not fit a table.
    """
    target = next((target for target in model.targets if target.format is not None), None)
    if isinstance(model.source, KafkaTopics) or target is None:
        raise OptionError(
            f"Pipeline '{model.name}' writes no messages of a database's tables.",
            remedy="Name the pipeline that writes what is to be read.",
        )
    captured, errors = captured_tables(model, model.source)
    if errors:
        raise first_of(errors)
    spark = start() if target.shaping.has_sql else None
    shaped = (target.shaping.structure(schema, spark) for schema in captured)
    return [schema for schema in shaped if schema is not None]


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


def lineage_of_database(model: Model, source: Source, tables: Iterable[TableSchema]) -> Lineage:
    """What flows from a database.

    Args:
        model: the pipeline.
        source: where it reads.
        tables: the schemas of its tables; of several of one table the last counts.
    """
    by_id = {schema.id: schema for schema in tables}
    inputs = [Touched(dataset, schema) for id, schema in by_id.items() if (dataset := source.dataset(id)) is not None]
    return Lineage(_ordered(inputs), _ordered(_outputs(model, by_id)))


def lineage_of_topics(model: Model, source: KafkaTopics, topics: Iterable[str], tables: Iterable[TableId]) -> Lineage:
    """What flows from topics.

    Args:
        model: the pipeline.
        source: where it reads.
        topics: those that were read.
        tables: those that their messages were about.
    """
    inputs = [Touched(Dataset.of_topic(source.settings.bootstrap_servers, topic)) for topic in topics]
    return Lineage(_ordered(inputs), _ordered(_outputs(model, dict.fromkeys(tables))))


def _outputs(model: Model, tables: Mapping[TableId, TableSchema | None]) -> Iterator[Touched]:
    for target in model.targets:
        for id, schema in tables.items():
            try:
                written = _written(model, target, id)
            except HeadraceError:
                # The batch that has such rows says it.
                continue
            if written is not None:
                yield Touched(written, _schema(target, schema))


def _written(model: Model, target: Target, table: TableId) -> Dataset | None:
    destination = target.shaping.routes.destination(table)
    if destination is None:
        return None
    topic = None if target.format is None else target.format.topic_for(destination.id, model.source_type)
    return target.sink.dataset(destination.id, topic)


def _schema(target: Target, schema: TableSchema | None) -> TableSchema | None:
    """The columns of a mirror by what their values mean, for the target has types of its own; None where transforms
    decide, and of messages."""
    if schema is None or not target.sink.keeps_tables or target.shaping.transforms:
        return None
    return replace(schema, columns=tuple(replace(column, native_type="") for column in schema.columns))


def _ordered(touched: Iterable[Touched]) -> tuple[Touched, ...]:
    """Each dataset once: several tables may go to one topic or folder."""
    by_dataset: dict[Dataset, Touched] = {}
    for one in touched:
        first = by_dataset.setdefault(one.dataset, one)
        if first != one:
            by_dataset[one.dataset] = Touched(one.dataset)
    return tuple(by_dataset[dataset] for dataset in sorted(by_dataset))

"""Which tables and topics a pipeline reads and writes, by the names that lineage has for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from headrace.changes import TableId, TableSchema
from headrace.changes.dataset import Dataset
from headrace.errors import HeadraceError
from headrace.observe.open_lineage import Lineage, Touched
from headrace.pipeline.kafka_source import KafkaTopics
from headrace.pipeline.model import Model
from headrace.pipeline.target import Target


def lineage_of_database(model: Model, tables: Iterable[TableSchema]) -> Lineage:
    """What flows from a database.

    Args:
        model: the pipeline.
        tables: the schemas of its tables; of several of one table the last counts.
    """
    source = model.source
    assert not isinstance(source, KafkaTopics)
    found = {schema.id: schema for schema in tables}
    inputs = [Touched(dataset, schema) for id, schema in found.items() if (dataset := source.dataset(id)) is not None]
    return Lineage(_ordered(inputs), _ordered(_outputs(model, found)))


def lineage_of_topics(model: Model, topics: Iterable[str], tables: Iterable[TableId]) -> Lineage:
    """What flows from topics.

    Args:
        model: the pipeline.
        topics: those that were read.
        tables: those that their messages were about.
    """
    source = model.source
    assert isinstance(source, KafkaTopics)
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
    found: dict[Dataset, Touched] = {}
    for one in touched:
        first = found.setdefault(one.dataset, one)
        if first != one:
            found[one.dataset] = Touched(one.dataset)
    return tuple(found[dataset] for dataset in sorted(found))

"""The tables that a pipeline captures, and what its sinks get of them, asked of the source before a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from headrace.changes import TableId, TableSchema
from headrace.errors import HeadraceError, OptionError, first_of
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
    found: list[TableSchema] = []
    errors: list[HeadraceError] = []
    try:
        known = known_offsets(model.checkpoint)
    except HeadraceError as error:
        return found, [error]
    for name, database in Databases(source).sources.items():
        try:
            found += database.tables(known.of(name).tables_seen)
        except HeadraceError as error:
            errors.append(error)
    return found, errors


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

"""Asks what `Pipeline.status` tells: the checkpoint, who holds it, and the source."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError
from headrace.observe.checkpoint import MESSAGE_COUNTS, batch_offsets, committed_batch, local_path, open_folder
from headrace.observe.completeness import offsets_of
from headrace.observe.kept_figures import FILE as FIGURES
from headrace.observe.kept_figures import KeptFigures
from headrace.observe.kept_offsets import check_checkpoint
from headrace.observe.messages import KeptCounts
from headrace.observe.parked_tables import ParkedTable, of_database, parked_tables
from headrace.observe.skipped_messages import skipped_messages
from headrace.observe.status import DatabaseStatus, PipelineStatus, database_status
from headrace.pipeline.checkpoint import holder
from headrace.pipeline.kafka_source import KafkaTopics
from headrace.pipeline.lease import FOLDER as LEASES
from headrace.pipeline.lease import LeaseHolder, lease_holder
from headrace.pipeline.model import Model
from headrace.sources.base import Source
from headrace.sources.databases import Databases, Offsets
from headrace.sources.offset import Offset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pipeline_status(model: Model, spark: SparkSession | None, *, ask_source: bool) -> PipelineStatus:
    """Where a pipeline stands now. Nothing is written, and a run is not disturbed."""
    folder = open_folder(model.checkpoint, spark)
    check_checkpoint(folder, kind=model.source_type)
    batch = committed_batch(folder)
    lines = [] if batch is None else batch_offsets(folder, batch)
    line = lines[0] if lines else None
    here = local_path(model.checkpoint) is not None
    leased = here or bool(folder.names(LEASES))
    by = holder(model.checkpoint) if here else lease_holder(folder)
    status = PipelineStatus(
        name=model.name,
        checkpoint=model.checkpoint,
        batch=batch,
        running=by is not None if leased else None,
        process=None if by is None else by.process,
        host="" if not isinstance(by, LeaseHolder) else by.host,
        run=KeptFigures.from_text(folder.text(FIGURES)),
    )
    counts = KeptCounts.from_text(folder.text(MESSAGE_COUNTS)).up_to(batch)
    source = model.source
    if isinstance(source, KafkaTopics):
        return replace(
            status, topics=json.loads(line) if line else {}, messages=counts, skipped=skipped_messages(folder)
        )
    offsets = (offsets_of(line) if line else None) or Offsets()
    now = dt.datetime.now(dt.UTC)
    captured = Databases(source).sources
    parked, several = parked_tables(folder), len(captured) > 1
    found = [
        _database(name, one, offsets.of(name), now, ask_source, of_database(parked, name, several=several))
        for name, one in captured.items()
    ]
    return replace(status, databases=tuple(found), messages=counts or None)


def _database(
    name: str, source: Source, offset: Offset, now: dt.datetime, ask: bool, parked: Mapping[str, ParkedTable]
) -> DatabaseStatus:
    if not ask:
        return database_status(name, offset, None, None, now, asked=False, parked=parked)
    health = source.health(offset)
    try:
        head = source.head_after(offset)
    except HeadraceError as error:
        if not health.sentence:
            health = replace(health, sentence=f"The source can't be asked: {error.message}", remedy=error.remedy)
        return database_status(name, offset, None, health, now, parked=parked)
    return database_status(name, offset, head, health, now, parked=parked)

"""Files of a pipeline's lake tables that no version of them names: shown, and deleted while no run is at work."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.changes import TableId
from headrace.errors import OptionError, first_of
from headrace.pipeline.checkpoint import Checkpoint, held
from headrace.pipeline.model import Model
from headrace.pipeline.target import Target
from headrace.pipeline.written_tables import captured_tables, names_at
from headrace.sinks.base import OrphanFile, Sink
from headrace.sources.base import Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST_HOURS = 24
"""A batch of another pipeline that writes for so long before it commits is not expected."""


@dataclass(frozen=True)
class TableOrphans:
    """The orphans of one table.

    Args:
        target: the sink.
        table: the table, as the sink's rows name it.
        files: its orphans.
    """

    target: Target
    table: TableId
    files: tuple[OrphanFile, ...]

    @property
    def name(self) -> str:
        """The sink and the table, as people see them."""
        return f"{self.target.label} {self.table.path}"

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


@dataclass(frozen=True)
class Orphans:
    """The orphans of a pipeline's tables, which can be deleted.

    Args:
        pipeline: the pipeline's name.
        checkpoint: path or URL.
        hours: only files that were written longer ago are among them.
        parts: the tables that have some.
        do: deletes those that still are orphans, and gives what was done, as sentences. No run may be at work.
    """

    pipeline: str
    checkpoint: str
    hours: int
    parts: tuple[TableOrphans, ...]
    do: Callable[[], Sequence[str]] = field(default=tuple, repr=False, compare=False)

    def to_json(self) -> dict[str, Any]:
        """JSON values under stable names."""
        return {
            "repair": "orphans",
            "pipeline": self.pipeline,
            "checkpoint": self.checkpoint,
            "older_than_hours": self.hours,
            "tables": [
                {
                    "sink": one.target.label,
                    "table": one.table.path,
                    "bytes": one.size,
                    "files": [
                        {"path": file.path, "bytes": file.size, "written": file.modified.isoformat()}
                        for file in one.files
                    ],
                }
                for one in self.parts
            ],
        }


def find_orphans(model: Model, spark: SparkSession, *, hours: int = LEAST_HOURS) -> Orphans:
    """List the files of a pipeline's lake tables that no retained version of them names. Nothing is deleted yet.

    Args:
        model: the checked file.
        spark: a classic session, with the jars of the sinks.
        hours: only files that were written longer ago are listed.

    Raises:
        OptionError: `hours` is too few, or the pipeline has no tables whose files it writes.
        HeadraceError: the source can't be asked for its tables, or files can't be listed.
    """
    if hours < LEAST_HOURS:
        raise OptionError(
            f"Files younger than {LEAST_HOURS} hours may belong to a batch that is at work.",
            remedy=f"Give {LEAST_HOURS} hours or more.",
        )
    if not isinstance(model.source, Source):
        raise OptionError(
            f"Pipeline '{model.name}' reads Kafka, and does not know its tables before it reads.",
            remedy="Delete files that no version names by VACUUM (Delta) or remove_orphan_files (Iceberg).",
        )
    targets = [target for target in model.targets if type(target.sink).orphan_files is not Sink.orphan_files]
    if not targets:
        raise OptionError(
            f"Pipeline '{model.name}' has no sink that writes data files of tables.",
            remedy="Only Delta and Iceberg sinks have files that no version of a table names.",
        )
    before = dt.datetime.now(dt.UTC) - dt.timedelta(hours=hours)
    captured, errors = captured_tables(model, model.source)
    if errors:
        raise first_of(errors)

    parts = tuple(
        TableOrphans(target, table, tuple(files))
        for target in targets
        for table in names_at(model, target, captured)[0]
        if (files := target.sink.orphan_files(spark, table, before))
    )

    def do() -> list[str]:
        with held(Checkpoint(spark, model.checkpoint), model.name, model.lease_seconds):
            return [_delete(part, spark, before) for part in parts]

    return Orphans(model.name, model.checkpoint, hours, parts, do)


def _delete(shown: TableOrphans, spark: SparkSession, before: dt.datetime) -> str:
    sink, known = shown.target.sink, {file.path for file in shown.files}
    files = [file for file in sink.orphan_files(spark, shown.table, before) if file.path in known]
    if files:
        sink.delete_orphans(spark, shown.table, files)
    size = sum(file.size for file in files)
    return f"{shown.name}: {len(files):,} {'file' if len(files) == 1 else 'files'}, {size:,} bytes, deleted."

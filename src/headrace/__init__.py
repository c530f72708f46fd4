"""Headrace: change data capture for Apache Spark.

    headrace.register(spark)                               # spark.readStream.format("sqlserver_cdc")
    headrace.encode(df, format="debezium_json", **options) # change rows -> topic, key, value, headers
    headrace.decode(df, format="debezium_json", **options) # Kafka messages -> change rows
    headrace.typed(df, table_schema)                       # change rows of one table -> typed before / after structs
    headrace.tables("sqlserver", **options)                # -> the TableSchemas of what is captured
    headrace.apply_changes(df, target, keys, sequence_by)  # changes into a Delta or Iceberg table, SCD 1 or 2
    headrace.load_pipeline("pipeline.yaml").start(spark)   # -> RunningPipeline
    headrace.complete_until(checkpoint)                    # -> up to which source time everything has arrived

Everything is loaded when first used, so that `import headrace` costs nothing on executors.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from headrace.versions import __version__

if TYPE_CHECKING:
    from headrace.changes import Column as Column
    from headrace.changes import LogicalType as LogicalType
    from headrace.changes import TableId as TableId
    from headrace.changes import TableSchema as TableSchema
    from headrace.changes.typed import typed as typed
    from headrace.errors import HeadraceError as HeadraceError
    from headrace.formats.base import Format as Format
    from headrace.formats.convert import decode as decode
    from headrace.formats.convert import encode as encode
    from headrace.observe.completeness import complete_until as complete_until
    from headrace.pipeline import load_pipeline as load_pipeline
    from headrace.settings import Settings as Settings
    from headrace.settings import option as option
    from headrace.sinks.apply_changes import apply_changes as apply_changes
    from headrace.sinks.base import Sink as Sink
    from headrace.sources.base import Source as Source
    from headrace.sources.reader import register as register
    from headrace.sources.reader import tables as tables

_LAZY = {
    "Column": "headrace.changes",
    "LogicalType": "headrace.changes",
    "TableId": "headrace.changes",
    "TableSchema": "headrace.changes",
    "typed": "headrace.changes.typed",
    "HeadraceError": "headrace.errors",
    "Format": "headrace.formats.base",
    "decode": "headrace.formats.convert",
    "encode": "headrace.formats.convert",
    "complete_until": "headrace.observe.completeness",
    "apply_changes": "headrace.sinks.apply_changes",
    "load_pipeline": "headrace.pipeline",
    "Settings": "headrace.settings",
    "option": "headrace.settings",
    "Sink": "headrace.sinks.base",
    "Source": "headrace.sources.base",
    "register": "headrace.sources.reader",
    "tables": "headrace.sources.reader",
}

__all__ = ["__version__", *_LAZY]


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'headrace' has no attribute '{name}'")
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return sorted(__all__)

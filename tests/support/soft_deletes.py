"""Targets that keep deleted rows, marked."""

from __future__ import annotations

from typing import Any

from tests.support.delta_target import DeltaTarget
from tests.support.iceberg_target import IcebergTarget

from headrace.changes import TableSchema
from headrace.sinks.base import Sink
from headrace.testing.table_target import TableTarget

OURS = ("_headrace_position", "_headrace_deleted")


class _Soft(TableTarget):
    keeps_deleted = True

    def sink(self, **options: Any) -> Sink:
        return super().sink(**{"delete_mode": "soft", **options})  # type: ignore[safe-super]

    def content(self, schema: TableSchema) -> list[tuple[Any, ...]]:
        found = [
            (*(value for name, value in row.items() if name not in OURS), row["_headrace_deleted"])
            for row in self.rows(schema)  # type: ignore[attr-defined]
        ]
        return sorted(found, key=repr)


class SoftDelta(_Soft, DeltaTarget):
    """A Delta target with `delete_mode: soft`."""


class SoftIceberg(_Soft, IcebergTarget):
    """An Iceberg target with `delete_mode: soft`."""

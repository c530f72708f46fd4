"""A sink under test with its tables, and the tables and rows that tests write."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, settings

from headrace.changes import TableSchema
from headrace.sinks.base import BatchId, Sink
from headrace.testing.change_history import Batch, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = table()
K = table("k", key=())
A = {"id": "1", "a": "x", "b": "y"}
B = {"id": "2", "a": "z", "b": None}
TEXTS = {"id": "string", "a": "string", "b": "string"}
FEW = settings(
    max_examples=3,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors, HealthCheck.too_slow],
)


class TableTarget(ABC):
    """A sink, and what its tables hold."""

    spark: SparkSession
    """In which batches are written."""
    examples: int = 0
    """How many tables of their own tests have made so far."""
    has_years_before_christ: bool = True
    """Whether its dates go on before the year 1."""
    keeps_tables: bool = True
    """Whether it has rows that it can ask for, and not a log of changes alone."""
    keeps_deleted: bool = False
    """Whether deleted rows stay; each row of `content` then ends with whether it is one."""

    @abstractmethod
    def sink(self, **options: Any) -> Sink:
        """A new sink with these options beside those that every test needs."""

    def write(self, batch: Batch, number: int = 0, owner: str = "p", **options: Any) -> None:
        """Write a batch by a new sink with these options beside those that every test needs."""
        self.sink(**options).write(batch.rows(self.spark), BatchId(owner, "checkpoint", number))

    @abstractmethod
    def content(self, schema: TableSchema) -> list[tuple[Any, ...]]:
        """The rows of a source table's mirror without our column, sorted by their `repr`; empty where it is not."""

    def version_of(self, schema: TableSchema) -> int | None:
        """A number that each commit changes; None where there is no table, or no such number."""
        return None

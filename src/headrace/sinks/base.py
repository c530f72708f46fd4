"""The contract of a sink: a batch written twice is a batch written once, or is said to repeat."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from headrace.changes.table import TableId, TableSchema
from headrace.options import Option, Options
from headrace.sinks.rights import Rights

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class BatchId:
    """Which batch of which run of which pipeline; the same for a replay of the same batch.

    Args:
        pipeline: the pipeline's name.
        checkpoint: the id that Spark keeps in the checkpoint; a new checkpoint has a new one and starts at number 0
            again.
        number: Spark's batch number.
    """

    pipeline: str
    checkpoint: str
    number: int

    @property
    def owner(self) -> str:
        """Who may write to a target: this pipeline from this checkpoint."""
        return f"{self.pipeline}/{self.checkpoint}"


@dataclass(frozen=True)
class TargetPreview:
    """What a sink would do with a table's target before the first row.

    Args:
        place: the target as messages name it.
        exists: whether it is there; null where nobody looked.
        changes: what would be done to its structure, each as a short sentence; empty where nothing.
    """

    place: str
    exists: bool | None = None
    changes: tuple[str, ...] = ()


class Sink(ABC):
    """Where changes rest. Message sinks take encoded messages (`MESSAGE_DDL`), table sinks take change rows.

    Attributes:
        guarantee: what a replayed batch does. `exactly-once`: nothing. `at-least-once`: the same messages again, byte
            for byte.
        takes: `messages` or `changes`.
        looks_with_spark: whether `preview` needs a session to look at a target.
        takes_errors: whether `error` rows rest in it like others, so that messages which can't be read are not lost.
    """

    name: ClassVar[str]
    options: ClassVar[tuple[Option, ...]]
    guarantee: ClassVar[Literal["exactly-once", "at-least-once"]]
    takes: ClassVar[Literal["messages", "changes"]]
    looks_with_spark: ClassVar[bool] = False
    takes_errors: ClassVar[bool] = False

    def __init__(self, options: Options) -> None:
        self.settings = options

    @abstractmethod
    def check(self) -> None:
        """Whether the target can be written, before anything is. Runs in the driver, at the start of a run.

        Raises:
            SinkError: it can't; one sentence with a remedy. Nothing was created.
        """

    def reach(self) -> str:
        """What `check` looks at, and more where that takes a client that a run has anyway. For `headrace check`.

        Runs in a process without Spark; writes nothing.

        Returns:
            What was found, as one sentence.

        Raises:
            HeadraceError: as `check`.
        """
        self.check()
        return "Can be used."

    def rights(self, tables: Sequence[TableId], topics: Sequence[str]) -> Rights | None:
        """Whether the login may do what the pipeline would do; null for a sink that has nobody to ask.

        Runs in a process without Spark, after `reach`; leaves nothing behind.

        Args:
            tables: those that would be written, by the names that they have in the sink; none where the source can't
                say them beforehand.
            topics: for a sink that takes messages, where they would go.

        Raises:
            HeadraceError: the target can't be asked.
        """
        return Rights("What its login may do is not asked; the first write shows it.", known=False)

    def preview(self, schema: TableSchema, batch: BatchId, spark: SparkSession | None) -> TargetPreview | None:
        """What would be done to the target of a table; null for a sink that has no target per table.

        Runs in the driver; changes nothing.

        Args:
            schema: the table as the source has it now.
            batch: the batch that would be written next.
            spark: a session, for sinks that look with one; without it they only say the place.

        Raises:
            SinkError: the target belongs to another pipeline or checkpoint, or can't be looked at.
            SchemaError: the target can't carry the structure.
        """
        return None

    @abstractmethod
    def write(self, rows: DataFrame, batch: BatchId) -> None:
        """Write one batch, the whole of it or (as far as the target can) nothing. Runs in the driver, which starts
        Spark jobs.

        `rows` is persisted by the caller and may be read several times. Messages of one key are written in position
        order.

        Raises:
            SinkError: the target belongs to another pipeline or checkpoint, or can't be written.
            SchemaError: the target can't carry the rows; raised before the first row that doesn't fit is written.
        """

"""The contract of a sink: a batch written twice is a batch written once, or is said to repeat."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from headrace.options import Option, Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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


class Sink(ABC):
    """Where changes rest. Message sinks take encoded messages (`MESSAGE_DDL`), table sinks take change rows.

    Attributes:
        guarantee: what a replayed batch does. `exactly-once`: nothing. `at-least-once`: the same messages again, byte
            for byte.
        takes: `messages` or `changes`.
    """

    name: ClassVar[str]
    options: ClassVar[tuple[Option, ...]]
    guarantee: ClassVar[Literal["exactly-once", "at-least-once"]]
    takes: ClassVar[Literal["messages", "changes"]]

    def __init__(self, options: Options) -> None:
        self.settings = options

    @abstractmethod
    def check(self) -> None:
        """Whether the target can be written, before anything is. Runs in the driver, at the start of a run.

        Raises:
            SinkError: it can't; one sentence with a remedy. Nothing was created.
        """

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

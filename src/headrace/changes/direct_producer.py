"""How messages leave the worker that made them for where they rest, so that they do not pass through Spark."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa


class Delivery(ABC):
    """The messages of one task, looked at one batch of Arrow after the other before the first of them is sent.

    Attributes:
        refusal: why nothing of this task is sent, as the end of a sentence; empty where it can be sent. Once it is not
            empty it stays.
    """

    refusal: str = ""

    @abstractmethod
    def inspect(self, messages: pa.RecordBatch) -> None:
        """Look at messages that will be sent; sends nothing.

        Args:
            messages: the next ones, with the columns of `MESSAGE_DDL`.
        """

    @abstractmethod
    def send(self, messages: Iterable[pa.RecordBatch]) -> None:
        """Send all of them in their order and wait until they rest. Called once, where `refusal` is empty.

        Args:
            messages: exactly those that were looked at.

        Raises:
            SinkError: some of them may not rest. Others may, so a replay repeats them.
        """


class Unsent(Delivery):
    """Sends nothing, for a reason that is known beforehand."""

    def __init__(self, refusal: str) -> None:
        self.refusal = refusal

    def inspect(self, messages: pa.RecordBatch) -> None:
        """Nothing to look for."""

    def send(self, messages: Iterable[pa.RecordBatch]) -> None:
        """Not called."""
        raise TypeError(f"These messages are not sent: {self.refusal}.")


@dataclass(frozen=True)
class DirectProducer(ABC):
    """Where the workers of a source send their messages. Pickled to executors; holds secrets, and shows none."""

    sink: ClassVar[str]
    """The registered name of the sink that it belongs to."""

    @abstractmethod
    def to_text(self) -> str:
        """All of it as one line of text, for `from_text`. Holds secrets."""

    @classmethod
    @abstractmethod
    def from_text(cls, text: str) -> DirectProducer:
        """Read `to_text`'s form back."""

    @abstractmethod
    def delivery(self, batch: int) -> Delivery:
        """Begin to send a task's messages, which no other task of the batch may write beside it. Runs in a worker.

        Args:
            batch: Spark's number of the batch.
        """

"""A batch's messages, and the count of the values that a wire type does not hold: dates beyond its first and last."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

_WAIT_SECONDS = 10.0
_numbers = itertools.count(1)


@dataclass(frozen=True)
class OutOfRange:
    """Values in whose place null stands, or the nearest one where a column has no NULL.

    Args:
        values: how many there are.
        first: table, column and key of the first one; empty where there is none.
    """

    values: int = 0
    first: str = ""

    def with_one(self, place: str) -> OutOfRange:
        """The same and one more value; the first is the least by its text."""
        return OutOfRange(self.values + 1, min(self.first or place, place))


@dataclass(frozen=True)
class EncodedBatch:
    """What a format made of a batch.

    Args:
        messages: the messages.
        observation: counts `OutOfRange` when the messages are computed; null where the format holds all values.
    """

    messages: DataFrame
    observation: Observation | None = None

    def out_of_range(self) -> OutOfRange:
        """What was counted, to be asked after the messages were written."""
        if self.observation is None:
            return OutOfRange()
        found: list[dict[str, Any]] = []
        # Where nobody computed the messages, Spark would wait for it without end.
        asking = threading.Thread(target=lambda: found.append(self.observation.get), daemon=True)  # type: ignore[union-attr]
        asking.start()
        asking.join(_WAIT_SECONDS)
        said = found[0] if found else {}
        return OutOfRange(int(said.get("values") or 0), said.get("first") or "")


def observation_name(format: str) -> str:
    """The name under which a query's observed metrics have what `OutOfRange` says."""
    return f"headrace.encode.{format}.{next(_numbers)}"


def observed_batch(encode: Callable[[Observation], DataFrame]) -> EncodedBatch:
    """A batch whose plan counts into an observation, as far as `encode` puts it there."""
    from pyspark.sql import Observation

    observation = Observation()
    messages = encode(observation)
    # It is in no plan where no column can hold such a value.
    return EncodedBatch(messages, observation if getattr(observation, "_jo", None) is not None else None)

"""A batch's messages, and the count of the values that a wire type does not hold: dates beyond its first and last."""

from __future__ import annotations

import itertools
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.changes.table import TableId

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

_WAIT_SECONDS = 10.0
_numbers = itertools.count(1)


@dataclass(frozen=True)
class OutOfRange:
    """Values in whose place null stands, or the nearest one where a column has no NULL.

    Args:
        columns: how many there are by table and column.
        first: table, column and key of the first one by its text; empty where there is none.
    """

    columns: Mapping[tuple[TableId, str], int] = field(default_factory=dict)
    first: str = ""

    @property
    def values(self) -> int:
        """How many there are in all."""
        return sum(self.columns.values())

    def plus(self, more: OutOfRange) -> OutOfRange:
        """Both together."""
        firsts = [one.first for one in (self, more) if one.first]
        return OutOfRange(Counter(self.columns) + Counter(more.columns), min(firsts, default=""))

    def since(self, earlier: OutOfRange) -> OutOfRange:
        """What was added to an earlier count."""
        return OutOfRange(Counter(self.columns) - Counter(earlier.columns), self.first)

    def to_text(self) -> str | None:
        """As a task hands it to the driver; None where no value is counted."""
        columns = [[id.database, id.schema, id.name, name, n] for (id, name), n in self.columns.items()]
        return json.dumps([columns, self.first], ensure_ascii=False) if columns else None

    @classmethod
    def of_texts(cls, texts: Iterable[str | None]) -> OutOfRange:
        """What `to_text` wrote in several tasks, together."""
        whole = cls()
        for columns, first in (json.loads(text) for text in texts if text):
            whole = whole.plus(cls({(TableId(*id), name): n for *id, name, n in columns}, first))
        return whole


@dataclass(frozen=True)
class EncodedBatch:
    """What a format made of a batch.

    Args:
        messages: the messages.
        observation: counts `OutOfRange` when the messages are computed; None where the format holds all values.
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
        return OutOfRange.of_texts((found[0] if found else {}).get("lost", "").split("\n"))


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

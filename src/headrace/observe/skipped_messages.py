"""The messages of Kafka that a user passed over (`headrace repair skip`), as the checkpoint keeps them."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from headrace.observe.checkpoint import SKIPPED, CheckpointFolder, reading
from headrace.versions import require_readable

_VERSION = 1


@dataclass(frozen=True)
class SkippedMessages:
    """Messages that a user passed over.

    Args:
        topic: their topic.
        partition: their partition.
        first: the first offset.
        upto: the first offset that was read again.
        at: when.
    """

    topic: str
    partition: int
    first: int
    upto: int
    at: dt.datetime

    def to_json(self) -> dict[str, Any]:
        """JSON values under stable names."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "first": self.first,
            "upto": self.upto,
            "at": self.at.isoformat(),
        }


def skipped_messages(folder: CheckpointFolder) -> tuple[SkippedMessages, ...]:
    """What was passed over and was not read since.

    Raises:
        OptionError: the record can't be read.
    """
    text = folder.text(SKIPPED)
    if text is None:
        return ()
    with reading(SKIPPED, without="Delete it only if you know which messages were passed over."):
        data = json.loads(text)
        require_readable(
            data["version"], _VERSION, what=f"The checkpoint's '{SKIPPED}'", remedy="Look at it with that release."
        )
        return tuple(
            SkippedMessages(
                one["topic"],
                int(one["partition"]),
                int(one["first"]),
                int(one["upto"]),
                dt.datetime.fromisoformat(one["at"]),
            )
            for one in data["skipped"]
        )


def skipped_text(messages: Iterable[SkippedMessages]) -> str:
    """What was passed over, as the checkpoint keeps it."""
    return json.dumps({"version": _VERSION, "skipped": [message.to_json() for message in messages]})

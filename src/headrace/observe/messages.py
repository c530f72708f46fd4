"""What became of messages that gave no change, or not all of it: how many could not be read and why, and more.

The checkpoint keeps which messages a user skipped (`headrace repair skip`).
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.observe.checkpoint import SKIPPED, CheckpointFolder, reading
from headrace.versions import require_readable

MOST_REASONS = 50
"""How many different reasons are counted; further ones count as `OTHER_REASONS`."""

OTHER_REASONS = "other reasons"


@dataclass(frozen=True)
class MessageCounts:
    """Messages without changes, or without some values, counted.

    Args:
        errors: how many could not be read, by reason.
        no_event: how many are not events (heartbeats that a format does not pass on, control
            records).
        dead_letters: how many of the unreadable ones the dead-letter sink has.
        left_out: how many of the unreadable ones no sink has.
        shortened: how many changes were sent without their large values, because Kafka would not take them whole.
        out_of_range: how many values were sent as null or as the nearest one, by table and column, because the format
            does not hold them; under empty names those that an earlier release counted.
        nulled: how many values are NULL in tables, by table and column, because columns have no place for them.
    """

    errors: Mapping[str, int] = field(default_factory=dict)
    no_event: int = 0
    dead_letters: int = 0
    left_out: int = 0
    shortened: int = 0
    out_of_range: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    nulled: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.errors or self.no_event or self.shortened or self.out_of_range or self.nulled)

    @property
    def unreadable(self) -> int:
        """How many could not be read, for whatever reason."""
        return sum(self.errors.values())

    def plus(self, more: MessageCounts) -> MessageCounts:
        """Both together, with no more than `MOST_REASONS` reasons."""
        errors = dict(self.errors)
        for reason, count in more.errors.items():
            known = reason in errors or len(errors) < MOST_REASONS
            name = reason if known else OTHER_REASONS
            errors[name] = errors.get(name, 0) + count
        return MessageCounts(
            errors,
            self.no_event + more.no_event,
            self.dead_letters + more.dead_letters,
            self.left_out + more.left_out,
            self.shortened + more.shortened,
            _together(self.out_of_range, more.out_of_range),
            _together(self.nulled, more.nulled),
        )

    def to_json(self) -> dict[str, Any]:
        """JSON values under stable names."""
        return {
            "unreadable": self.unreadable,
            "reasons": dict(self.errors),
            "no_event": self.no_event,
            "dead_letters": self.dead_letters,
            "left_out": self.left_out,
            "shortened": self.shortened,
            "out_of_range": sum(sum(columns.values()) for columns in self.out_of_range.values()),
            "out_of_range_columns": {table: dict(columns) for table, columns in self.out_of_range.items()},
            "nulled": {table: dict(columns) for table, columns in self.nulled.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> MessageCounts:
        """Back from `to_json`, also of a release that said less."""
        reasons, letters = dict(data["reasons"]), int(data["dead_letters"])
        left_out = int(data.get("left_out", sum(reasons.values()) - letters))
        shortened, beyond = (int(data.get(name, 0)) for name in ("shortened", "out_of_range"))
        columns = data.get("out_of_range_columns", {"": {"": beyond}} if beyond else {})
        return cls(reasons, int(data["no_event"]), letters, left_out, shortened, columns, data.get("nulled", {}))

    def reasons_text(self, most: int = 3) -> str:
        """The commonest reasons with their counts: `2 x The value is not JSON.`"""
        ordered = sorted(self.errors.items(), key=lambda found: (-found[1], found[0]))
        text = "; ".join(f"{count:,} x {reason}" for reason, count in ordered[:most])
        left = len(ordered) - most
        return f"{text}; {left} more reason{'' if left == 1 else 's'}" if left > 0 else text


def _together(first: Mapping[str, Mapping[str, int]], second: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    return {
        table: dict(Counter(first.get(table, {})) + Counter(second.get(table, {})))
        for table in sorted({*first, *second})
    }


@dataclass(frozen=True)
class KeptCounts:
    """The counts of all runs on a checkpoint, kept beside Spark's own files. A batch that is repeated counts once.

    Args:
        batch: the newest batch that was counted.
        before: the counts up to the batch before it.
        of_batch: its own.
    """

    batch: int = -1
    before: MessageCounts = MessageCounts()
    of_batch: MessageCounts = MessageCounts()

    def up_to(self, committed: int | None) -> MessageCounts:
        """The counts of what rests in all sinks, when that is everything up to the batch `committed`."""
        in_sinks = committed is not None and self.batch <= committed
        return self.before.plus(self.of_batch) if in_sinks else self.before

    def counted(self, batch: int, counts: MessageCounts) -> KeptCounts:
        """With one batch more, or with the newest one once more."""
        return KeptCounts(batch, self.before if batch <= self.batch else self.before.plus(self.of_batch), counts)

    def to_text(self) -> str:
        before, of_batch = self.before.to_json(), self.of_batch.to_json()
        return json.dumps({"batch": self.batch, "before": before, "of_batch": of_batch}, ensure_ascii=False)

    @classmethod
    def from_text(cls, text: str | None) -> KeptCounts:
        """Back from `to_text`; nothing was counted where there is none, or what is there can't be read."""
        try:
            data = json.loads(text or "")
            parts = [MessageCounts.from_json(data[name]) for name in ("before", "of_batch")]
            return cls(int(data["batch"]), *parts)
        except (ValueError, KeyError, TypeError):
            # A run does not depend on the counts.
            return cls()


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

"""What a format says of a message that may be its own (`Format.recognise`)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

FormatOptions = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Sample:
    """One message.

    Args:
        value: its bytes; None for Kafka's None.
        key: the same of its key.
        headers: its record headers' names.
    """

    value: bytes | None
    key: bytes | None = None
    headers: tuple[str, ...] = ()

    @property
    def is_object(self) -> bool:
        """Whether the value begins as a JSON object does."""
        return self.value is not None and self.value.lstrip()[:1] == b"{"

    @cached_property
    def fields(self) -> dict[str, Any]:
        """The value's fields where it is a JSON object, else none."""
        if self.value is None or not self.is_object:
            return {}
        try:
            parsed = json.loads(self.value)
        except (ValueError, RecursionError):
            return {}
        return parsed if isinstance(parsed, dict) else {}


@dataclass(frozen=True)
class Evidence:
    """Why a message may be of a format.

    Args:
        why: what was seen, to be read after `because`.
        options: options of the format without which the message can't be read.
        sure: whether it speaks for this format alone. What also others may have written counts only where no format is
            sure.
    """

    why: str
    options: FormatOptions = ()
    sure: bool = True

"""What flows from where to where, for a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class SinkTarget:
    """Where changes rest.

    Args:
        label: the sink as messages name it (`sink 2 (delta)`), under which its time is counted too.
        type: its registered name.
        guarantee: what a repeated batch does.
        format: that of its messages; empty where it takes change rows.
        transforms: how many transforms its rows go through.
        routes: how many routes it has.
    """

    label: str
    type: str
    guarantee: str = ""
    format: str = ""
    transforms: int = 0
    routes: int = 0


@dataclass(frozen=True)
class Flow:
    """The way from a source to its sinks.

    Args:
        source: the source's registered name, or `kafka`.
        names: its databases or topics.
        format: in which topics are read; empty for a database.
        sinks: in their order.
        dead_letters: the type of the sink of messages that can't be read; empty where there is none.
    """

    source: str = ""
    names: Sequence[str] = ()
    format: str = ""
    sinks: Sequence[SinkTarget] = field(default_factory=tuple)
    dead_letters: str = ""

    def to_json(self) -> Mapping[str, Any]:
        """JSON values under stable names."""
        return asdict(self)

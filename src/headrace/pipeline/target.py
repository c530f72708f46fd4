"""A sink of a pipeline with what comes before it: the rows it gets, and the format of its messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import OptionError
from headrace.formats.base import Format
from headrace.pipeline.shaping.shape import Shaping
from headrace.sinks.base import Sink


@dataclass(frozen=True)
class Target:
    """One sink, and for a sink that takes messages the format that makes them.

    Args:
        type: the sink's registered name.
        sink: made from its options.
        format: None for a sink that takes change rows.
        format_key: the same text for the same format with the same options, so that a batch is encoded once for both.
        label: how messages call it (`sink 2 (delta)`).
        shaping: what rows go through before: transforms and routes.
        format_options: what the user gave to the format; may hold secrets.
    """

    type: str
    sink: Sink
    format: Format | None
    format_key: str
    label: str
    shaping: Shaping = field(default_factory=Shaping)
    format_options: Mapping[str, Any] = field(default_factory=dict, repr=False)


def session_settings(sinks: Sequence[tuple[str, Sink]]) -> dict[str, str]:
    """Spark settings that these sinks need from a session's start.

    Args:
        sinks: each with its label.

    Raises:
        OptionError: two of them need different ones.
    """
    settings: dict[str, tuple[str, str]] = {}
    for label, sink in sinks:
        for name, value in sink.session_settings.items():
            other, first = settings.setdefault(name, (label, value))
            if first != value:
                raise OptionError(
                    f"{other[:1].upper()}{other[1:]} and {label} need different values of Spark's setting '{name}'.",
                    remedy="Set the same catalogue in both, or write to one of them in a pipeline of its own.",
                )
    return {name: value for name, (_, value) in settings.items()}

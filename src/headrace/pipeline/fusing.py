"""Whether the workers of a pipeline's source encode what they read, so that nothing but messages leaves them.

The messages are the same either way, byte for byte, so a restart may change the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.changes.direct_producer import DirectProducer
from headrace.errors import OptionError
from headrace.formats.convert import format_named
from headrace.options import as_text
from headrace.pipeline.kafka_source import KafkaTopics
from headrace.pipeline.shared_places import may_meet
from headrace.sources.databases import Databases
from headrace.sources.messages import not_encodable

if TYPE_CHECKING:
    from headrace.pipeline.model import Model
    from headrace.pipeline.target import Target

_DIRECT_PRODUCER = "format.outlet.secret"
"""An option whose name Spark redacts."""
_WHERE_READ = "where the source is read"


@dataclass(frozen=True)
class Fusing:
    """How a pipeline's messages are made.

    Args:
        options: those of the source's reader that make it give messages; none where it gives change rows. They may hold
            secrets.
        reason: why it gives change rows; empty where it gives messages.
        unsent: why Spark sends the messages that the workers make; empty where these workers send them, or no sink's
            messages can be sent by workers.
    """

    options: Mapping[str, str] = field(repr=False)
    reason: str = ""
    unsent: str = ""

    @property
    def fused(self) -> bool:
        """Whether workers of the source encode."""
        return not self.reason

    @property
    def sends(self) -> bool:
        """Whether workers of the source also send what they encode."""
        return _DIRECT_PRODUCER in self.options

    @property
    def text(self) -> str:
        if not self.fused:
            return f"behind the source, because {self.reason}"
        if self.sends:
            return f"{_WHERE_READ}, and sent from there"
        return f"{_WHERE_READ}, and sent by Spark, because {self.unsent}" if self.unsent else _WHERE_READ

    @classmethod
    def of(cls, model: Model, *, parked: bool = False) -> Fusing:
        """What suits a pipeline.

        Args:
            model: its file.
            parked: whether changes of parked tables are left out.
        """
        reason = "tables that can't be written are parked" if parked or model.parks else _reason(model)
        if reason:
            return cls({}, reason)
        target = model.targets[0]
        assert target.format is not None
        options = {f"format.{name}": text for name, text in _texts(target).items()}
        lines = all(one.sink.takes_lines for one in model.targets)
        asked = {"format": target.format.name, "format.counts": "true", "format.lines": str(lines).lower()}
        direct_producer = _direct_producer(model)
        if isinstance(direct_producer, str):
            return cls({**asked, **options}, unsent=direct_producer)
        return cls({**asked, **options, _DIRECT_PRODUCER: f"{direct_producer.sink} {direct_producer.to_text()}"})


def _direct_producer(model: Model) -> DirectProducer | str:
    """Where workers send the messages that all targets take, or why they don't."""
    if len(model.targets) == 1:
        return model.targets[0].sink.direct_producer()
    return (
        "there are several sinks" if any(target.sink.direct_producers is not None for target in model.targets) else ""
    )


def _reason(model: Model) -> str:
    if isinstance(model.source, KafkaTopics):
        return "the source is Kafka"
    if not Databases(model.source).knows_schemas:
        return f"source '{model.source_type}' learns schemas while it reads"
    first = model.targets[0]
    for target in model.targets:
        if target.format is None:
            return f"{target.label} takes change rows"
        if not target.shaping.changes_nothing:
            return f"{target.label} has routes or transforms"
        if target.format_key != first.format_key:
            return f"{first.label} and {target.label} take different messages"
        if target.sink.largest_value is not None:
            return f"{target.label} leaves out large columns"
    if may_meet(model.targets):
        return "sinks may write to one place"
    assert first.format is not None
    if first.format.announces_structures:
        # Which ones the sinks have, the checkpoint says, batch by batch.
        return f"format '{first.format.name}' announces each structure once"
    reason = not_encodable(first.format)
    if reason is not None:
        return reason
    try:
        again = format_named(first.format.name, dict(_texts(first)))
    except OptionError:
        again = None
    if again is None or again.settings != first.format.settings:
        return f"options of format '{first.format.name}' can't be handed to the source"
    return ""


def _texts(target: Target) -> Mapping[str, str]:
    """A format's options as Spark hands them over: names in lower case, values as text."""
    return {name.lower(): as_text(value) for name, value in target.format_options.items() if value is not None}

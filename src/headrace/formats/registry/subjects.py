"""Schemas of messages that are written: registered under subjects that are named after topics, and how they are named.

A batch's are registered by the driver, which looks for those that occur by a job over its rows without their images. A
stream outside of `foreachBatch` has no such moment, so there tasks register what they meet. A registration is repeated
without harm.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from headrace.errors import HeadraceError
from headrace.formats.registry.client import Registered, Registry
from headrace.formats.registry.framing import Side


class Subject(NamedTuple):
    """A schema in its place: the topic, the part of messages, and the Avro schema as text."""

    topic: str
    side: Side
    schema: str


class SchemaName(NamedTuple):
    """How messages name a schema: the bytes in front of each datum, and their headers."""

    prefix: bytes
    headers: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True)
class Subjects:
    """Where schemas are registered; picklable.

    Args:
        framing: one of the names of `framing.FRAMINGS`.
        registry: where.
        known: what the registry answered of the schemas of a batch; None where it is to be asked.
    """

    framing: str
    registry: Registry
    known: Mapping[Subject, Registered] | None = None

    @property
    def is_named(self) -> bool:
        return self.framing != "none"

    def registered(self, subjects: Iterable[Subject]) -> Subjects:
        """The same, with these schemas registered, so that no task asks the registry.

        Raises:
            ConnectError: the registry can't be asked, or refuses a schema.
            OptionError: a mapping that lacks one.
        """
        return replace(self, known={subject: self._ask(subject) for subject in sorted(subjects)})

    def named(self, subject: Subject) -> SchemaName:
        """How messages name a schema.

        Raises:
            ConnectError: the registry is to be asked, and can't be, or refuses the schema.
            OptionError: a mapping that lacks it.
            HeadraceError: the batch has another schema than when its schemas were registered.
        """
        if not self.is_named:
            return SchemaName(b"", ())
        if self.known is not None and subject not in self.known:
            raise HeadraceError(
                f"A {subject.side} of topic '{subject.topic}' follows a schema that no row had when the schemas of the "
                "batch were registered.",
                remedy="Persist the changes before they are encoded.",
            )
        ids = self._ask(subject) if self.known is None else self.known[subject]
        return SchemaName(self._prefix(ids), self._headers(ids, subject.side))

    def _ask(self, subject: Subject) -> Registered:
        return self.registry.registered(f"{subject.topic}-{subject.side}", subject.schema)

    def _prefix(self, ids: Registered) -> bytes:
        if self.framing == "confluent":
            return b"\0" + ids.id.to_bytes(4, "big")
        return b"\0" + ids.global_or_id.to_bytes(8, "big") if self.framing == "apicurio8" else b""

    def _headers(self, ids: Registered, side: Side) -> tuple[tuple[str, bytes], ...]:
        if self.framing == "confluent-header":
            named = b"\0" + ids.id.to_bytes(4, "big") if ids.guid is None else b"\1" + uuid.UUID(ids.guid).bytes
            return ((f"__{side}_schema_id", named),)
        if self.framing == "apicurio-header":
            global_id = ids.global_or_id.to_bytes(8, "big")
            return ((f"apicurio.{side}.globalId", global_id), (f"apicurio.{side}.encoding", b"BINARY"))
        return ()

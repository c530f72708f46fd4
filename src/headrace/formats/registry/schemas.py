"""The schemas of a batch's messages: which ones they name, and what these say.

A registry is asked by the driver: a job over the first bytes of the messages finds the ids that occur, and the schemas
go to the tasks. A stream outside of `foreachBatch` has no such moment, so there tasks ask for ids that they have not
seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.errors import FormatError, HeadraceError
from headrace.formats.registry.client import Registry, SchemaRef
from headrace.formats.registry.connect_avro import WriterSchema, writer_schema
from headrace.formats.registry.framing import LONGEST, SIDES, Framing, Side
from headrace.formats.registry.settings import RegistrySettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Head = tuple[Side, bytes]

MOST_HEADS = 20_000
"""How many distinct schema ids a batch may name; more means that the framing is another one."""


@dataclass(frozen=True)
class ResolvedSchema:
    """What a head stands for: a schema and its text, or the sentence why there is none that can be used.

    `known` says that this stays so: a schema that is missing may be registered later.
    """

    schema: WriterSchema | None
    text: str | None = None
    problem: str | None = None
    known: bool = True


@dataclass(frozen=True)
class SchemaSource:
    """Where the schemas of heads come from; picklable.

    Args:
        framing: how heads name schemas.
        registry: who knows them.
        key: the Avro schema given for keys (framing `none`).
        value: the same for values.
        fetched: what the registry said of the schemas of a batch; None where it is to be asked.
    """

    framing: Framing
    registry: Registry
    key: str | None = None
    value: str | None = None
    fetched: Mapping[SchemaRef, str | None] | None = None

    @classmethod
    def of(
        cls, settings: RegistrySettings, registry: Registry, *, key: str | None = None, value: str | None = None
    ) -> SchemaSource:
        """As a format's options say. The only schema that a registry holds is that of values where none is given."""
        if value is None and len(registry.schemas) == 1:
            value = next(iter(registry.schemas.values()))
        return cls(Framing(settings.framing, key is not None, value is not None), registry, key, value)

    def resolved(self, heads: Sequence[Head]) -> dict[Head, ResolvedSchema]:
        """What each head stands for.

        Raises:
            ConnectError: the registry is to be asked, and can't be.
            HeadraceError: the batch has another head than when its schemas were fetched.
        """
        refs = {head: self.framing.ref(head) for _, head in heads}
        texts = self._texts(ref for ref in refs.values() if ref is not None)
        return {(side, head): self._resolved(side, head, refs[head], texts) for side, head in heads}

    def _texts(self, refs: Iterable[SchemaRef]) -> Mapping[SchemaRef, str | None]:
        if self.fetched is None:
            return self.registry.fetched(refs)
        for ref in refs:
            if ref not in self.fetched:
                raise HeadraceError(
                    f"A message names schema {ref}, which no message named when the batch was read first.",
                    remedy="Persist the messages before they are decoded.",
                )
        return self.fetched

    def _resolved(
        self, side: Side, head: bytes, ref: SchemaRef | None, texts: Mapping[SchemaRef, str | None]
    ) -> ResolvedSchema:
        if self.framing.is_given(head):
            text, name = self.key if side == "key" else self.value, f"given for the {side}"
        elif ref is None:
            return ResolvedSchema(None, problem=f"The header that names the {side}'s schema has no id.")
        else:
            text, name = texts.get(ref), f"of {ref}"
        if text is None:
            problem = f"The schema registry has no schema {name} (of the {side})."
            return ResolvedSchema(None, problem=problem, known=False)
        try:
            return ResolvedSchema(writer_schema(text), text)
        except FormatError as error:
            return ResolvedSchema(None, text, f"The schema {name} can't be used to read the {side}: {error}")

    def of_batch(self, messages: DataFrame) -> SchemaSource:
        """The same, with the schemas of all messages of a batch in it, so that no task asks the registry.

        Runs on the driver, with a job over the batch; not where the option `registry` holds the schemas themselves.

        Raises:
            ConnectError: the registry can't be asked.
            HeadraceError: there are more than `MOST_HEADS` ids.
        """
        if self.registry.url is None:
            return self
        refs = {self.framing.ref(head) for head in _heads_in(messages, self.framing)} - {None}
        named = [ref for ref in refs if ref is not None]
        return replace(self, fetched=dict.fromkeys(named) | self.registry.fetched(named))


def _heads_in(messages: DataFrame, framing: Framing) -> set[bytes]:
    from pyspark.sql import functions as F  # noqa: N812

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        seen: set[bytes] = set()
        for batch in batches:
            for side in SIDES:
                seen.update(framing.heads(batch, side).heads)
            _bounded(seen)
        yield pa.RecordBatch.from_pydict({"head": pa.array(sorted(seen), pa.binary())})

    headers = [] if framing.in_front else ["headers"]
    parts = messages.select(*(F.substring(side, 1, LONGEST).alias(side) for side in SIDES), *headers)
    return _bounded({bytes(row.head) for row in parts.mapInArrow(run, "head binary").collect()})


def _bounded(heads: set[bytes]) -> set[bytes]:
    if len(heads) > MOST_HEADS:
        raise HeadraceError(
            f"The batch names more than {MOST_HEADS} Avro schemas.",
            remedy="Check the option 'framing', or read less at once.",
        )
    return heads

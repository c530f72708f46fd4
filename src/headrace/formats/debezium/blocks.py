"""Source blocks: the fields that a connector's has in a generation, and which of them a row has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.changes import TableId
from headrace.formats.debezium.connect_fields import plain, struct
from headrace.formats.debezium.connectors import (
    CONNECTORS,
    DOCUMENTED_ORACLE,
    ORACLE,
    SECOND,
    Connector,
    EventShape,
    Fact,
)


@dataclass(frozen=True)
class SourceBlock:
    """A source block of one connector in one generation.

    Args:
        connector: whose.
        shape: the generation.
        prefix: the server's logical name.
        always: the version that stands in it whatever the rows say; None for that of the event that a row comes from.
        named_schema: whether it has the field `schema`.
        documented: whether it is the short one of Oracle's documented row events of generation 2.3, which leaves out
            the database and the table.
    """

    connector: Connector
    shape: EventShape
    prefix: str
    always: str | None
    named_schema: bool
    documented: bool = False

    @property
    def version(self) -> str:
        """The version, where a row does not come from an event that says another."""
        return (self.connector.version if self.shape.generation == SECOND else None) or self.shape.connector_version

    @property
    def flag(self) -> bool:
        """Whether `snapshot` is true or false, and a transaction is written only where there is one."""
        return self.shape.generation == SECOND and (self.connector.flag or self.documented)

    @property
    def marks_three(self) -> bool:
        """Whether `snapshot` knows three marks only, as the old generations."""
        return self.shape.generation <= SECOND

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The connector's own facts in this generation."""
        if self.documented:
            return DOCUMENTED_ORACLE
        return tuple(fact for fact in self.connector.facts if fact.since <= self.shape.generation)

    def schema(self) -> dict[str, Any]:
        """The Connect schema of the block, as the field `source`."""
        name = f"{self.connector.namespace}.Source"
        return struct(self._fields(), optional=False, name=name, version=self.shape.source_version, field="source")

    def _fields(self) -> list[dict[str, Any]]:
        facts = [fact.schema() for fact in self.facts]
        if self.documented:
            return [
                plain("string", "version", optional=True),
                plain("string", "name"),
                plain("int64", "ts_ms", optional=True),
                *facts,
                plain("boolean", "snapshot", optional=True),
            ]
        snapshot: dict[str, Any] = {
            "type": "string",
            "optional": True,
            "name": "io.debezium.data.Enum",
            "version": 1,
            "parameters": {"allowed": self.shape.snapshot_marks},
            "default": "false",
            "field": "snapshot",
        }
        if self.flag:
            snapshot = {"type": "boolean", "optional": True, "default": False, "field": "snapshot"}
        sure = bool(self.connector.name)
        return [
            plain("string", "version"),
            plain("string", "connector", optional=not sure),
            plain("string", "name"),
            plain("int64", "ts_ms"),
            snapshot,
            plain("string", "db"),
            *([] if self.flag else [plain("string", "sequence", optional=True)]),
            *([plain("int64", name, optional=True) for name in ("ts_us", "ts_ns")] if self.shape.fine_times else []),
            *([plain("string", "schema", optional=not sure)] if self.named_schema else []),
            plain("string", "table", optional=self.connector.schema is not True),
            *facts,
        ]


@dataclass(frozen=True)
class Forms:
    """All source blocks that one encode can write; a row's form is the number of its block.

    Args:
        blocks: those of `CONNECTORS`, in their order, then the further ones.
    """

    blocks: tuple[SourceBlock, ...]

    @classmethod
    def of(cls, shape: EventShape, prefix: str, version: str | None) -> Forms:
        """All of one generation; the rest as for a block."""
        blocks = [SourceBlock(one, shape, prefix, version, one.schema is not False) for one in CONNECTORS]
        # Not so in these databases, but a transform may have named a schema: then it is said.
        blocks += [SourceBlock(one, shape, prefix, version, True) for one in CONNECTORS if one.schema is False]
        if shape.generation == SECOND:
            blocks.append(SourceBlock(ORACLE, shape, prefix, version, True, documented=True))
        return cls(tuple(blocks))

    def number(self, connector: str | None, table: TableId) -> int:
        number = _NUMBERS.get(connector or "", 0)
        for other in range(len(CONNECTORS), len(self.blocks)):
            block = self.blocks[other]
            if number and block.connector is CONNECTORS[number]:
                return other if (not table.database if block.documented else table.schema) else number
        return number


_NUMBERS = {connector.name: number for number, connector in enumerate(CONNECTORS)}

"""What is known of a captured table, as the offset keeps it and slices carry it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.changes import TableSchema
from headrace.sources.mysql.types import NativeType
from headrace.sources.offset import Recent
from headrace.sources.tables.table_rules import SourceTable, known_table

_INNODB = "innodb"


@dataclass(frozen=True)
class MysqlTable(SourceTable[NativeType]):
    """A captured table, as the catalog shows it.

    Args:
        engine: what stores it, in lower case; empty where the log alone says what it is.
        structure: a hash of all of its columns and unique keys, where it comes from the catalog: two tables with one
            hash hold the same rows. It does not depend on the options. Empty where it is not known.
    """

    engine: str = _INNODB
    structure: str = field(default="", compare=False)

    @property
    def path(self) -> str:
        """`database.table`."""
        return self.id.path

    @property
    def has_snapshots(self) -> bool:
        """Whether a transaction sees it as it was when the transaction began."""
        return self.engine == _INNODB

    def to_json(self) -> dict[str, Any]:
        """JSON values, as an offset keeps them."""
        return {
            "schema": self.schema.to_json(),
            "natives": [native.to_json() for native in self.natives],
            "chunk_key": list(self.chunk_key),
            "engine": self.engine,
            **({"protected": list(self.protected)} if self.protected else {}),
            **({"structure": self.structure} if self.structure else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> MysqlTable:
        """Read `to_json`'s form back."""
        return cls(
            TableSchema.from_json(data["schema"]),
            tuple(map(NativeType.from_json, data["natives"])),
            tuple(data["chunk_key"]),
            tuple(data.get("protected", ())),
            data["engine"],
            structure=data.get("structure", ""),
        )


def table_of_json(data: Mapping[str, Any]) -> MysqlTable:
    """A table as an offset keeps it.

    Raises:
        NewerRelease: a later release wrote it.
    """
    return MysqlTable.from_json(known_table(data, "engine", "structure"))


_TABLES: Recent[dict[str, MysqlTable]] = Recent()


def tables_of(schemas: Mapping[str, Any]) -> dict[str, MysqlTable]:
    """The tables of an offset by path; not to be changed, because it is cached.

    Raises:
        NewerRelease: a later release wrote one of them.
    """
    return _TABLES.of(
        schemas,
        lambda: {
            path: MysqlTable.from_json(known_table(data, "engine", "structure")) for path, data in schemas.items()
        },
    )

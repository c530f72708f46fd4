"""What is known of a captured table, as the offset keeps it and slices carry it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from headrace.sources.mysql.types import NativeType
from headrace.sources.tables.table_rules import KeptTables, SourceTable

_INNODB = "innodb"


@dataclass(frozen=True)
class MysqlTable(SourceTable[NativeType]):
    """A captured table, as the catalog shows it.

    Args:
        engine: what stores it, in lower case; empty where the log alone says what it is.
        structure: a hash of all of its columns and unique keys, where it comes from the catalog: two tables with one
            hash hold the same rows. It does not depend on the options. Empty where it is not known.
    """

    own_parts: ClassVar = ("engine", "structure")
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

    def _own_json(self) -> Mapping[str, Any]:
        return {"engine": self.engine, **({"structure": self.structure} if self.structure else {})}

    @classmethod
    def _own_fields(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"engine": data["engine"], "structure": data.get("structure", "")}


tables_of = KeptTables(MysqlTable, NativeType.from_json)

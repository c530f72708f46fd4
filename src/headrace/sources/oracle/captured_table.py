"""What is known of a captured table, as the offset keeps it and slices carry it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from headrace.sources.oracle.types import NativeType
from headrace.sources.rows import rows_per_fetch
from headrace.sources.tables.table_rules import KeptTables, SourceTable

_MOST_ROWS = 10_000
_NUMBER_BYTES = 40


@dataclass(frozen=True)
class OracleTable(SourceTable[NativeType]):
    """A captured table.

    Args:
        dropped: the names that captured columns had, and no column has now.
    """

    own_parts: ClassVar = ("dropped",)
    dropped: tuple[str, ...] = ()

    @property
    def batch_rows(self) -> int:
        """Rows per fetch: fewer where rows are wide, and few where nothing bounds them."""
        width = sum(max(native.length or 0, _NUMBER_BYTES) for native in self.natives)
        return rows_per_fetch(width, large=any(native.large for native in self.natives), most=_MOST_ROWS)

    def texts(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """What the driver fetched of its columns, as canonical texts."""
        return [native.texts(batch.column(number)) for number, native in enumerate(self.natives)]

    def can_cut(self, column: str) -> bool:
        """Whether it is not a large value, and of a type whose bounds are exact."""
        return super().can_cut(column) and self.native(column).chunks

    def _own_json(self) -> Mapping[str, Any]:
        return {"dropped": list(self.dropped)} if self.dropped else {}

    @classmethod
    def _own_fields(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"dropped": tuple(data.get("dropped", ()))}


tables_of = KeptTables(OracleTable, lambda native: NativeType(*native))


def owners_and_names(paths: Iterable[str]) -> list[tuple[str, str]]:
    """Owner and name of tables that are given as `owner.name`."""
    return [(path.partition(".")[0], path.partition(".")[2]) for path in paths]

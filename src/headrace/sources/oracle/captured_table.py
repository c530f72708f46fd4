"""What is known of a captured table, as the offset keeps it and slices carry it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.changes import TableSchema
from headrace.sources.offset import Recent
from headrace.sources.oracle.types import NativeType
from headrace.sources.rows import rows_per_fetch
from headrace.sources.tables.table_rules import SourceTable, known_table

_MOST_ROWS = 10_000
_NUMBER_BYTES = 40


@dataclass(frozen=True)
class OracleTable(SourceTable[NativeType]):
    """A captured table.

    Args:
        dropped: the names that captured columns had, and no column has now.
    """

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

    def to_json(self) -> dict[str, Any]:
        """JSON values, as an offset keeps them."""
        return {
            "schema": self.schema.to_json(),
            "natives": [[n.name, n.length, n.precision, n.scale] for n in self.natives],
            "chunk_key": list(self.chunk_key),
            **({"protected": list(self.protected)} if self.protected else {}),
            **({"dropped": list(self.dropped)} if self.dropped else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> OracleTable:
        """Read `to_json`'s form back."""
        return cls(
            TableSchema.from_json(data["schema"]),
            tuple(NativeType(*native) for native in data["natives"]),
            tuple(data["chunk_key"]),
            tuple(data.get("protected", ())),
            dropped=tuple(data.get("dropped", ())),
        )


_TABLES: Recent[dict[str, OracleTable]] = Recent()


def tables_of(schemas: Mapping[str, Any]) -> dict[str, OracleTable]:
    """The tables of an offset by path; not to be changed, because it is cached.

    Raises:
        NewerRelease: a later release wrote one of them.
    """
    return _TABLES.of(
        schemas,
        lambda: {path: OracleTable.from_json(known_table(data, "dropped")) for path, data in schemas.items()},
    )


def owners_and_names(paths: Iterable[str]) -> list[tuple[str, str]]:
    """Owner and name of tables that are given as `owner.name`."""
    return [(path.partition(".")[0], path.partition(".")[2]) for path in paths]

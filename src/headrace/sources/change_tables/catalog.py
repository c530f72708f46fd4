"""The captured tables as the catalog shows them now."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.changes import TableId
from headrace.sources.change_tables.captured_table import CapturedTable, CaptureInstance
from headrace.sources.tables.unmatched import TableColumns


@dataclass(frozen=True)
class CatalogTable:
    """A captured table as the catalog shows it now, once for each of its capture instances.

    Args:
        id: where it lives.
        versions: oldest instance first.
        columns: all columns of the table, whether their values are captured or not.
    """

    id: TableId
    versions: tuple[CapturedTable, ...]
    columns: tuple[str, ...] = ()

    @property
    def newest(self) -> CapturedTable:
        """The instance with the newest schema among those that have begun; a single one that has not begun yet."""
        begun = [version for version in self.versions if version.instance.start_lsn is not None]
        return begun[-1] if begun else self.versions[-1]

    def of(self, instance: CaptureInstance) -> CapturedTable | None:
        """The table as an instance that is known from before shows it now; None when that instance is gone."""
        same = (
            v for v in self.versions if (v.instance.name, v.instance.object_id) == (instance.name, instance.object_id)
        )
        return next(same, None)


def columns_of(table: CatalogTable) -> TableColumns:
    """A table as names and patterns of the options are held against it."""
    captured = {name for version in table.versions for name in version.names}
    return TableColumns(table.id, table.columns, tuple(name for name in table.columns if name in captured))

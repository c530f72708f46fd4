"""Rule: no two tables of a source have one folder."""

from __future__ import annotations

import pytest

from headrace.changes import TableId
from headrace.sinks.lake.delta.table import folder_of


@pytest.mark.parametrize(
    ("table", "folder"),
    [
        (TableId("sales", "dbo", "orders"), "lake/dbo/orders"),
        (TableId("sales", "", "orders"), "lake/sales/orders"),
        (TableId("archive", "", "orders"), "lake/archive/orders"),
        (TableId("", "", "orders"), "lake/orders"),
        (TableId("", "a/b", ".c d"), "lake/a~2fb/~2ec~20d"),
    ],
)
def test_a_mirror_lies_in_the_folder_of_its_schema_or_of_its_database(table: TableId, folder: str) -> None:
    assert folder_of("lake/", table) == folder

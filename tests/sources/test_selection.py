"""Rule: every source selects tables by the same lists, and no two of the selected tables have one path."""

from __future__ import annotations

import pytest

from headrace.changes import TableId
from headrace.errors import CaptureError
from headrace.sources.tables.selection import FoundTable, TableSelection, require_own_paths

TABLES = [("shop", "orders"), ("shop", "Orders"), ("a", "b.c"), ("a.b", "c"), ("a", "c")]


def selected(include: list[str], exclude: list[str]) -> list[tuple[str, str]]:
    found = [FoundTable(*names, number, True) for number, names in enumerate(TABLES)]
    selection = TableSelection("db", include, exclude)
    chosen = selection.among(found, lambda table, database: CaptureError(f"{table} {database}"), "")
    return [(table.schema, table.name) for table in chosen]


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        (["shop.Orders"], [], [("shop", "Orders")]),
        (["shop.*"], ["shop.Orders"], [("shop", "orders")]),
        (["shop.orders"], ["shop.Orders"], [("shop", "orders")]),
        (["shop.*"], ["shop.ORDERS"], []),
        ([], ["a.b.c", "shop.orders"], [("shop", "Orders"), ("a", "c")]),
    ],
)
def test_lists_select_tables(include: list[str], exclude: list[str], expected: list[tuple[str, str]]) -> None:
    assert selected(include, exclude) == expected


@pytest.mark.parametrize("include", [[], ["a.b.c"], ["a*.*"]])
def test_two_tables_of_one_path_are_refused(include: list[str]) -> None:
    with pytest.raises(
        CaptureError, match=r"Two tables are called 'a\.b\.c': one of schema 'a', and one of schema 'a\.b'"
    ):
        selected(include, [])


def test_two_tables_of_one_path_are_refused_where_there_are_no_schemas() -> None:
    with pytest.raises(CaptureError, match=r"one of database 'a', and one of database 'a\.b'.*databases_excluded"):
        require_own_paths([TableId("a", "", "b.c"), TableId("a.b", "", "c")])

"""Rule: a pattern means the same tables in every source's list, and in routes and transforms but for what is said."""

from __future__ import annotations

import pytest

from headrace.changes import TableId
from headrace.changes.table_pattern import TablePattern, matching, table_patterns

SHOP = ["dbo.cust", "dbo.customers", "dbo.t1", "dbo.t2", "dbo2.cust", "sales.cust", "dbo.a(b"]


def ids(paths: list[str], database: str = "sales") -> list[TableId]:
    return [TableId(database, *path.split(".", 1)) for path in paths]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("dbo.cust", "dbo.cust"),
        ("DBO.Cust", "dbo.cust"),
        ("cust", ""),
        ("dbo.cust*", "dbo.cust dbo.customers"),
        ("dbo.t?", "dbo.t1 dbo.t2"),
        ("dbo.t[2-9]", "dbo.t2"),
        ("dbo.t[!1]", "dbo.t2"),
        ("*.cust", "dbo.cust dbo2.cust sales.cust"),
        # A glob's wildcard does not stand for the database, which may be in front by its name.
        ("s*.cust", "sales.cust"),
        ("sales.dbo.cust", "dbo.cust"),
        ("Sales.dbo.t*", "dbo.t1 dbo.t2"),
        ("sales.*2", "dbo.t2"),
        # The database and a schema of it have one name.
        ("sales.c*", "sales.cust"),
        ("other.dbo.cust", ""),
        # A schema, not an expression of all that begins like it.
        ("dbo.*", "dbo.cust dbo.customers dbo.t1 dbo.t2 dbo.a(b"),
        # Debezium's, which mean no table as a glob.
        ("dbo.cust.*", "dbo.cust dbo.customers"),
        (r"dbo\.cust(omers)?", "dbo.cust dbo.customers"),
        (r"sales\.dbo\.t\d", "dbo.t1 dbo.t2"),
        (r"dbo2?\.cust", "dbo.cust dbo2.cust"),
        # Ours, of schema.table only, so that one can say what not.
        (r"re:dbo\.cust(omers)?", "dbo.cust dbo.customers"),
        (r"re:(?!dbo\.).*", "dbo2.cust sales.cust"),
        (r"re:sales\.dbo\.cust", ""),
        # A name, whatever characters it has.
        ("dbo.a(b", "dbo.a(b"),
    ],
)
def test_what_a_pattern_of_a_source_means(text: str, meant: str) -> None:
    found = TablePattern(text, in_source=True).among(ids(SHOP), lambda table: table)
    assert " ".join(table.path for table in found) == meant


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("dbo.Cust", "dbo.Cust"),
        ("sales.dbo.cust", "dbo.cust"),
        ("dbo.CUST", "dbo.cust dbo.Cust"),
        ("optional:dbo.Cust", "dbo.Cust"),
        ("dbo.Cus?", "dbo.cust dbo.Cust"),
    ],
)
def test_a_name_means_the_table_that_is_called_so_letter_by_letter_where_there_is_one(text: str, meant: str) -> None:
    found = TablePattern(text, in_source=True).among(ids(["dbo.cust", "dbo.Cust"]), lambda table: table)
    assert " ".join(table.path for table in found) == meant


@pytest.mark.parametrize(
    ("text", "of_source", "of_route"),
    [
        ("dbo.cust", True, True),
        ("sales.dbo.cust", True, True),
        ("dbo.*", True, True),
        ("s*.cust", False, True),
        (r"dbo\.cust|dbo\.t1", True, False),
        ("dbo.cu.*", False, False),
        (r"re:dbo\.c.*", True, True),
        (r"re:sales\.dbo\.c.*", False, True),
    ],
)
def test_a_table_alone_in_a_source_and_in_a_route(text: str, of_source: bool, of_route: bool) -> None:
    table = TableId("sales", "dbo", "cust")
    assert TablePattern(text, in_source=True).matches(table) == of_source
    assert TablePattern(text).matches(table) == of_route


@pytest.mark.parametrize("in_source", [True, False])
def test_what_is_no_expression_is_told(in_source: bool) -> None:
    with pytest.raises(ValueError, match=r"'re:\(' is not a regular expression"):
        TablePattern("re:(", in_source)
    if in_source:
        with pytest.raises(ValueError, match=r"'dbo.\(' is not a regular expression"):
            TablePattern("dbo.(", in_source).among(ids(SHOP), lambda table: table)


def test_a_name_goes_before_patterns() -> None:
    patterns = table_patterns("dbo.*, dbo.cust")
    found = matching(patterns, TableId("", "dbo", "cust"))
    assert found is not None
    assert (found.text, found.is_name) == ("dbo.cust", True)
    assert [pattern.text for pattern in table_patterns("re:a,b")] == ["re:a,b"]

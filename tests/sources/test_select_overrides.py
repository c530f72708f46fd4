"""Rule: a SELECT of the user's becomes a derived table that SQL Server takes, or is refused."""

from __future__ import annotations

import pytest

from headrace.changes import TableId
from headrace.errors import OptionError
from headrace.sources.snapshots.select_overrides import SelectOverrides, derived, selects

OFFSET = "\nOFFSET 0 ROWS"


@pytest.mark.parametrize(
    ("select", "wanted"),
    [
        ("SELECT * FROM t", "SELECT * FROM t"),
        ("SELECT * FROM t ;\n -- done", "SELECT * FROM t "),
        ("select * from t order by a", "select * from t order by a" + OFFSET),
        ("SELECT * FROM t ORDER BY a OFFSET 5 ROWS", "SELECT * FROM t ORDER BY a OFFSET 5 ROWS"),
        ("SELECT TOP 5 * FROM t ORDER BY a", "SELECT TOP 5 * FROM t ORDER BY a"),
        ("SELECT DISTINCT TOP (5) a FROM t ORDER BY a", "SELECT DISTINCT TOP (5) a FROM t ORDER BY a"),
        ("SELECT a, ROW_NUMBER() OVER (ORDER BY a) AS n FROM t", None),
        ("SELECT [order by] AS [x]]y], ' ORDER BY ' AS s FROM t", None),
        ("SELECT a /* ORDER BY a */ FROM t -- ORDER BY a", None),
        ("SELECT a FROM (SELECT TOP 3 a FROM t ORDER BY a) AS x ORDER BY a", ...),
        ("SELECT TOP 1 a FROM t UNION ALL SELECT a FROM u ORDER BY a", ...),
        ("(SELECT a FROM t) EXCEPT (SELECT a FROM u)", None),
        ("/* all */ SELECT a FROM t", None),
    ],
)
def test_an_order_gets_an_offset_where_the_server_asks_for_one(select, wanted):
    assert derived(select, "dbo.t") == (select if wanted is None else select + OFFSET if wanted is ... else wanted)


@pytest.mark.parametrize("select", ["", "UPDATE t SET a = 1", "SELECT a FROM t) AS x, (SELECT 1 AS b", "SELECT (1"])
def test_what_is_not_one_select_is_refused(select):
    with pytest.raises(OptionError, match=r"for table 'dbo\.t'"):
        derived(select, "dbo.t")


def test_the_longer_name_of_a_table_decides():
    overrides = SelectOverrides({"dbo.T": "SELECT 1 AS a", "Shop.dbo.t": "SELECT 2 AS a"})
    assert overrides.select(TableId("shop", "dbo", "t")) == "SELECT 2 AS a"
    assert overrides.select(TableId("other", "dbo", "t")) == "SELECT 1 AS a"
    assert overrides.select(TableId("shop", "x", "t")) is None


def test_the_option_is_taken_in_any_form():
    assert selects({"dbo.t": "SELECT a, b FROM t"}) == {"dbo.t": "SELECT a, b FROM t"}
    assert selects('{"dbo.t": "SELECT a, b FROM t"}') == {"dbo.t": "SELECT a, b FROM t"}
    assert selects("dbo.t, dbo.u") == {"dbo.t": None, "dbo.u": None}
    with pytest.raises(ValueError, match="not a JSON object"):
        selects("{dbo.t")


@pytest.mark.parametrize(
    "select",
    [
        "SELECT * FROM t ORDER BY a",
        "SELECT * FROM t ORDER BY a LIMIT 5",
        "SELECT `it's`, 'it\\'s (' AS s FROM t # it's",
        "SELECT a -- it's\nFROM t",
        "SELECT a - --1 AS b FROM t",
    ],
)
def test_mysql_takes_an_order_as_it_is_and_has_quotes_and_comments_of_its_own(select):
    assert derived(select, "shop.t", for_mysql=True) == select

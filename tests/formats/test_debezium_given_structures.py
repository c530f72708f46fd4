"""Messages without a schema find the structures that the user gave: by their topic, else by what they say."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.errors import OptionError
from headrace.formats.debezium.format import DebeziumJson
from headrace.formats.debezium.schemas import GivenTables, given_tables


def table(database: str, schema: str, name: str, column: str = "id") -> TableSchema:
    return TableSchema(TableId(database, schema, name), (Column(column, 1, LogicalType.parse("int32")),), (column,))


NORTH, SOUTH = table("north", "dbo", "orders", "n"), table("south", "dbo", "orders", "s")
ITEMS = table("north", "dbo", "items", "i")


def reader(tables: Sequence[TableSchema], **options: str) -> GivenTables:
    return given_tables(DebeziumJson.parse(options), tables)


def found(of: GivenTables, topic: str, *index: str) -> TableSchema | None:
    """The structure of a message of that topic whose source block says that place (database, schema, table)."""
    given = of.find(topic, TableId(*(index or ("", "", ""))))
    return None if given is None else given.schema


@pytest.mark.parametrize(
    ("topic", "index", "expected"),
    [
        pytest.param("server1.north.dbo.orders", (), NORTH, id="the whole topic"),
        pytest.param("server1.south.dbo.orders", (), SOUTH, id="the whole topic of the other"),
        pytest.param("server1.dbo.items", (), ITEMS, id="a topic without a database"),
        pytest.param("server1.dbo.orders", ("south", "dbo", "orders"), SOUTH, id="a shared topic: the message says it"),
        pytest.param("server1.dbo.orders", ("north", "dbo", "orders"), NORTH, id="a shared topic: the other one"),
        pytest.param("server1.dbo.orders", (), None, id="a shared topic and a message that says nothing"),
        pytest.param("server1.dbo.orders", ("east", "dbo", "orders"), None, id="a third database's"),
        pytest.param("server1.other", (), None, id="another topic"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("options", [{}, {"topic_prefix": "server1"}])
def test_tables_of_two_databases_are_never_taken_for_each_other(
    topic: str, index: tuple[str, ...], expected: TableSchema | None, order: int, options: dict[str, str]
) -> None:
    assert found(reader([NORTH, SOUTH, ITEMS][::order], **options), topic, *index) == expected


def test_two_structures_of_one_table_are_refused() -> None:
    with pytest.raises(OptionError, match="two schemas for table"):
        reader([NORTH, table("north", "dbo", "orders", "x")])

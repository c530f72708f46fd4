"""Rule: a table's structure survives JSON, and its fingerprint changes exactly when the structure does."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.changes import Column, LogicalType, TableId, TableSchema

ID = TableId("testDB", "dbo", "customers")
CUSTOMERS = TableSchema(
    ID,
    (
        Column("id", 1, LogicalType("int32"), "int identity", 10, 0, nullable=False, identity=True, jdbc_type=4),
        Column("email", 2, LogicalType("string"), "varchar", 255, nullable=False, jdbc_type=12),
        Column("note", 3, LogicalType("string"), "nvarchar", 100, default="it's", default_expression="(N'it''s')"),
    ),
    ("id",),
)

names = st.text(min_size=1, max_size=12)
kinds = st.sampled_from(["int32", "decimal(10,2)", "timestamp(7)", "string", "bytes"]).map(LogicalType.parse)
columns = st.builds(
    Column,
    name=names,
    position=st.integers(1, 100),
    logical=kinds,
    nullable=st.booleans(),
    default=st.none() | st.text(max_size=5),
    large=st.booleans(),
    comment=st.none() | st.text(max_size=5),
    masked=st.booleans(),
    truncated_to=st.none() | st.integers(0, 100),
)


@st.composite
def schemas(draw):
    found = draw(st.lists(columns, min_size=1, max_size=6, unique_by=lambda c: c.name))
    key = draw(st.lists(st.sampled_from([c.name for c in found]), unique=True, max_size=3))
    return TableSchema(TableId(draw(names), draw(names), draw(names)), tuple(found), tuple(key))


@given(schemas())
def test_a_structure_comes_back_from_its_text(schema):
    again = TableSchema.from_text(schema.to_text())
    assert again == schema
    assert again.fingerprint == schema.fingerprint


def test_the_json_is_debeziums_table_and_more():
    table = CUSTOMERS.to_json()
    assert table["id"] == '"testDB"."dbo"."customers"'
    assert table["primaryKeyColumnNames"] == ["id"]
    first = table["columns"][0]
    for name, value in {
        "name": "id",
        "jdbcType": 4,
        "nativeType": None,
        "typeName": "int identity",
        "typeExpression": "int identity",
        "charsetName": None,
        "length": 10,
        "scale": 0,
        "position": 1,
        "optional": False,
        "autoIncremented": True,
        "generated": False,
        "comment": None,
        "defaultValueExpression": None,
        "enumValues": None,
    }.items():
        assert first[name] == value, name
    json.dumps(table)


@pytest.mark.parametrize(
    "change",
    [
        {"logical": LogicalType("int64")},
        {"nullable": True},
        {"name": "identifier"},
        {"default": "7"},
        {"length": 11},
        {"masked": True},
        {"truncated_to": 5},
        {"enum_values": ("sad", "ok")},
    ],
)
def test_the_fingerprint_changes_with_the_structure(change):
    other = dataclasses.replace(CUSTOMERS.columns[0], **change)
    key = (change.get("name", "id"),)
    changed = TableSchema(ID, (other, *CUSTOMERS.columns[1:]), key)
    assert changed.fingerprint != CUSTOMERS.fingerprint
    assert TableSchema.from_text(changed.to_text()) == changed


def test_the_primary_key_is_said_beside_the_key_that_the_user_named():
    named = dataclasses.replace(CUSTOMERS, key=("email",), primary_key=CUSTOMERS.key)
    assert named.to_json()["primaryKeyColumnNames"] == ["id"]
    assert TableSchema.from_text(named.to_text()) == named
    assert "messageKeyColumnNames" not in CUSTOMERS.to_json()


def test_the_fingerprint_does_not_change_with_a_comment():
    other = dataclasses.replace(CUSTOMERS.columns[0], comment="who it is")
    commented = TableSchema(ID, (other, *CUSTOMERS.columns[1:]), CUSTOMERS.key, comment="people")
    assert commented.fingerprint == CUSTOMERS.fingerprint


def test_two_columns_of_one_name_are_refused():
    with pytest.raises(ValueError, match="two columns with the same name"):
        TableSchema(ID, (CUSTOMERS.columns[0], CUSTOMERS.columns[0]))


def test_a_key_column_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="key column 'nope'"):
        TableSchema(ID, CUSTOMERS.columns, ("nope",))


def test_paths_leave_out_what_is_not_known():
    assert TableId("", "dbo", "t").full_path == "dbo.t"
    assert TableId("db", "dbo", "t").path == "dbo.t"


def test_where_there_are_no_schemas_a_path_has_the_database():
    assert TableId("shop", "", "orders").path == "shop.orders" == TableId("shop", "", "orders").full_path
    assert TableId("", "", "orders").path == "orders"

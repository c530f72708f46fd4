"""What an Arrow fetch delivers per type is what mssql-python delivers: types, and values cut as it cuts them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace_emulators.sqlserver import EmulatedDatabase
from headrace_emulators.sqlserver.errors import NotSupportedError

GOLDEN = json.loads((Path(__file__).parents[2] / "golden/sqlserver/arrow_types.json").read_text("utf-8"))["types"]
FORMATS = {
    "b": pa.bool_(), "C": pa.uint8(), "s": pa.int16(), "i": pa.int32(), "l": pa.int64(), "f": pa.float32(),
    "g": pa.float64(), "U": pa.large_string(), "Z": pa.large_binary(), "tdD": pa.date32(), "ttn": pa.time64("ns"),
    "tsu:": pa.timestamp("us"), "tsu:+00:00": pa.timestamp("us", "+00:00"),
}  # fmt: skip


def _meant(text: str) -> pa.DataType:
    if text.startswith("d:"):
        precision, scale = text[2:].split(",")
        return pa.decimal128(int(precision), int(scale))
    return FORMATS[text]


def _shown(array: pa.Array) -> str:
    value = array[0]
    if pa.types.is_large_binary(array.type):
        return str(value.as_py().hex())
    return str(array.cast(pa.string())[0].as_py())


@pytest.fixture
def typed(database: EmulatedDatabase) -> EmulatedDatabase:
    columns = [f"c{i} {entry['sql']} NULL" for i, entry in enumerate(GOLDEN)]
    database.execute(f"CREATE TABLE dbo.typed (id int NOT NULL PRIMARY KEY, {', '.join(columns)})")
    database.execute("EXEC sys.sp_cdc_enable_table 'dbo', 'typed', @role_name = NULL")
    given = [(i, entry["value"]) for i, entry in enumerate(GOLDEN) if entry["value"] is not None]
    names, values = (", ".join(part) for part in zip(*((f"c{i}", value) for i, value in given), strict=True))
    database.execute(f"INSERT INTO dbo.typed (id, {names}) VALUES (1, {values})")
    database.execute("INSERT INTO dbo.typed (id) VALUES (2)")
    database.capture()
    return database


@pytest.mark.parametrize("source", ["dbo.typed", "cdc.dbo_typed_CT"])
def test_every_type_is_fetched_as_the_real_driver_fetches_it(typed: EmulatedDatabase, source: str) -> None:
    fetched = [(i, entry) for i, entry in enumerate(GOLDEN) if entry["format"] is not None]
    cursor = typed.cursor().execute(f"SELECT {', '.join(f'c{i}' for i, _ in fetched)} FROM {source} ORDER BY id")
    table: Any = cursor.arrow_reader().read_all()
    for (i, entry), column in zip(fetched, table.columns, strict=True):
        array = column.combine_chunks()
        assert array.type == _meant(entry["format"]), entry["sql"]
        assert str(array.type) == entry["arrow"], entry["sql"]
        if entry["text"] is not None:
            assert _shown(array) == entry["text"], entry["sql"]
            assert array[1].as_py() is None, f"c{i}"


def test_an_empty_result_has_the_same_schema(typed: EmulatedDatabase) -> None:
    chosen = [i for i, entry in enumerate(GOLDEN) if entry["format"] is not None]
    text = f"SELECT {', '.join(f'c{i}' for i in chosen)} FROM dbo.typed"
    full = typed.cursor().execute(text).arrow_reader().schema
    assert typed.cursor().execute(text + " WHERE id = 3").arrow_reader().schema == full


def test_a_sql_variant_is_refused_with_its_column(typed: EmulatedDatabase) -> None:
    (number,) = [i for i, entry in enumerate(GOLDEN) if entry["format"] is None]
    cursor = typed.cursor().execute(f"SELECT id, c{number} FROM dbo.typed")
    with pytest.raises(NotSupportedError, match=rf"column - c{number}, Type - -150, column ID - 2"):
        cursor.arrow_reader()


def test_sys_columns_has_the_numbers_of_every_type(typed: EmulatedDatabase) -> None:
    typed.script("CREATE TYPE dbo.Phone FROM varchar(20) NOT NULL\nALTER TABLE dbo.typed ADD phone dbo.Phone NULL")
    sql = (
        "SELECT t.name, c.system_type_id, c.user_type_id, c.max_length FROM sys.columns AS c JOIN sys.types AS t"
        " ON t.user_type_id = c.user_type_id WHERE c.object_id = OBJECT_ID('{}')"
    )
    found = {name: rest for name, *rest in typed.execute(sql.format("dbo.typed")).fetchall()}
    assert found["hierarchyid"] == [240, 128, 892]
    assert found["geometry"] == [240, 129, -1] and found["geography"] == [240, 130, -1]
    assert found["sql_variant"] == [98, 98, 8016] and found["timestamp"] == [189, 189, 8]
    assert found["xml"] == [241, 241, -1] and found["Phone"] == [167, 257, 20]
    captured = {name: rest for name, *rest in typed.execute(sql.format("cdc.dbo_typed_CT")).fetchall()}
    assert "timestamp" not in captured and captured["binary"][0] == 173
    base = (
        "SELECT b.name FROM sys.types AS u JOIN sys.types AS b ON b.user_type_id = CASE WHEN u.system_type_id = 240"
        " THEN u.user_type_id ELSE u.system_type_id END WHERE u.name = ?"
    )
    shown = [typed.execute(base, [n]).fetchval() for n in ("Phone", "geography", "sysname")]
    assert shown == ["varchar", "geography", "nvarchar"]


def test_clr_values_have_their_methods(database: EmulatedDatabase) -> None:
    database.script(
        "CREATE TABLE dbo.places (id int PRIMARY KEY, node hierarchyid, shape geometry, spot geography)\n"
        "INSERT INTO dbo.places VALUES (1, '/1/-7/80/5199/',"
        " geometry::STGeomFromText('POLYGON ((0 0, 1 0, 1 1, 0 0))', 4), geography::Point(47.5, -122.25, 4326))"
    )
    row = database.execute(
        "SELECT p.node.ToString(), p.node.GetLevel(), p.[shape].ToString(), p.shape.STSrid, p.spot.Lat, p.spot.Long,"
        " p.spot.STAsBinary() FROM dbo.places AS p WHERE p.node = '/1/-7/80/5199/'"
    ).fetchone()
    assert row is not None
    assert row[:6] == ("/1/-7/80/5199/", 4, "POLYGON ((0 0, 1 0, 1 1, 0 0))", 4, 47.5, -122.25)
    assert row[6].hex() == "0101000000" + "0000000000905ec0" + "0000000000c04740"

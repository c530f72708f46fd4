"""What the server prints of each type, and the canonical text that it becomes."""

from __future__ import annotations

import base64
import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.changes import LogicalType
from headrace.sources.postgresql.nested import written
from headrace.sources.postgresql.types import BUILT_IN, CatalogType, NativeType, TypeCatalog

_MOOD, _PAIR, _MONEY, _HSTORE, _GEOMETRY, _VECTOR, _PAIRS, _SHORT = range(20_000, 20_008)
CATALOG = TypeCatalog(
    {
        _MOOD: CatalogType("mood", "e", labels=("sad", "ok", "x,y")),
        _PAIR: CatalogType(
            "pair", "c", True, fields=(("a", 23, -1), ("b", 25, -1), ("sums", 1231, (14 << 16 | 2) + 4))
        ),
        _MONEY: CatalogType("money2", "d", base=1700, typmod=(14 << 16 | 2) + 4),
        _HSTORE: CatalogType("hstore", variable=True),
        _GEOMETRY: CatalogType("geometry", variable=True),
        _VECTOR: CatalogType("vector", variable=True),
        _PAIRS: CatalogType("_pair", variable=True, element=_PAIR),
        _SHORT: CatalogType("short", "d", base=1043, typmod=24),
    }
)
_BY_NAME = {known.name: oid for oid, known in {**BUILT_IN, **CATALOG.types}.items()}


def _native(name: str, typmod: int = -1) -> NativeType:
    return CATALOG.resolve(_BY_NAME[name], typmod)


def _numeric(precision: int, scale: int) -> int:
    return ((precision << 16) | (scale & 0x7FF)) + 4


def _text(native: NativeType, printed: str) -> str | None:
    # With a null on each side, and as a part of a longer column.
    values = pa.array(["", None, printed, None], pa.string()).slice(1)
    before, text, after = native.texts(values).to_pylist()
    assert before is None and after is None
    found: str | None = text
    return found


@pytest.mark.parametrize(
    ("name", "typmod", "printed", "logical", "canonical"),
    [
        ("int2", -1, "-5", "int16", "-5"),
        ("int8", -1, "-9223372036854775808", "int64", "-9223372036854775808"),
        ("oid", -1, "4294967295", "int64", "4294967295"),
        ("xid8", -1, "18446744073709551615", "uint64", "18446744073709551615"),
        ("numeric", -1, "1.50", "decimal", "1.50"),
        ("numeric", -1, "NaN", "decimal", "NaN"),
        ("numeric", -1, "-Infinity", "decimal", "-Infinity"),
        ("numeric", _numeric(12, 2), "9999999999.99", "decimal(12,2)", "9999999999.99"),
        ("numeric", _numeric(5, -2), "12300", "decimal(7,0)", "12300"),
        ("numeric", _numeric(2, 4), "0.0012", "decimal(4,4)", "0.0012"),
        ("numeric", _numeric(65, 30), "1." + "9" * 30, "decimal(65,30)", "1." + "9" * 30),
        ("money2", -1, "1.50", "decimal(14,2)", "1.50"),
        ("float4", -1, "1.6777216e+07", "float32", LogicalType("float32").to_text(16777216.0)),
        ("float4", -1, "0.1", "float32", "0.1"),
        ("float8", -1, "1", "float64", "1.0"),
        ("float8", -1, "-0", "float64", "-0.0"),
        ("float8", -1, "1e+15", "float64", "1000000000000000.0"),
        ("float8", -1, "1e-05", "float64", "1e-05"),
        ("float8", -1, "1.7976931348623157e+308", "float64", "1.7976931348623157e+308"),
        ("float8", -1, "NaN", "float64", "NaN"),
        ("float8", -1, "-Infinity", "float64", "-Infinity"),
        ("money", -1, "-$92,233,720,368,547,758.08", "decimal(19,2)", "-92233720368547758.08"),
        ("bool", -1, "t", "boolean", "true"),
        ("bool", -1, "f", "boolean", "false"),
        ("bpchar", 14, "a   ", "string", "a   "),
        ("text", -1, "", "string", ""),
        ("bytea", -1, r"\x00ff10", "bytes", "AP8Q"),
        ("bytea", -1, r"\x", "bytes", ""),
        ("date", -1, "2026-11-22", "date", "2026-11-22"),
        ("date", -1, "infinity", "date", "infinity"),
        ("date", -1, "0044-03-15 BC", "date", "0044-03-15 BC"),
        ("date", -1, "5874897-12-31", "date", "5874897-12-31"),
        ("time", -1, "24:00:00", "time(6)", "24:00:00.000000"),
        ("time", 2, "01:02:03.4", "time(2)", "01:02:03.40"),
        ("time", 0, "01:02:03", "time(0)", "01:02:03"),
        ("timetz", -1, "01:02:03.5-15:59:59", "string", "01:02:03.5-15:59:59"),
        ("timestamp", -1, "2026-01-02 03:04:05.1", "timestamp(6)", "2026-01-02 03:04:05.100000"),
        ("timestamp", 0, "2026-01-02 03:04:05", "timestamp(0)", "2026-01-02 03:04:05"),
        ("timestamp", 3, "2026-01-02 03:04:05", "timestamp(3)", "2026-01-02 03:04:05.000"),
        ("timestamp", -1, "-infinity", "timestamp(6)", "-infinity"),
        ("timestamp", -1, "4713-01-01 00:00:00 BC", "timestamp(6)", "4713-01-01 00:00:00 BC"),
        ("timestamp", -1, "294276-12-31 23:59:59.9", "timestamp(6)", "294276-12-31 23:59:59.9"),
        ("timestamptz", -1, "2026-01-01 21:34:05.1+00", "instant(6)", "2026-01-01T21:34:05.100000Z"),
        ("timestamptz", 0, "2026-01-01 21:34:05+00", "instant(0)", "2026-01-01T21:34:05Z"),
        ("timestamptz", -1, "infinity", "instant(6)", "infinity"),
        ("timestamptz", -1, "0044-03-15 00:00:00+00 BC", "instant(6)", "0044-03-15 00:00:00+00 BC"),
        ("interval", -1, "10 mons 3 days -04:05:06.7", "interval", "10 mons 3 days -04:05:06.7"),
        ("uuid", -1, "123e4567-e89b-12d3-a456-426655440000", "uuid", "123e4567-e89b-12d3-a456-426655440000"),
        ("json", -1, '{"b": 1.10,  "a": 1}', "json", '{"b": 1.10,  "a": 1}'),
        ("xml", -1, "<r/>", "xml", "<r/>"),
        ("mood", -1, "x,y", "string", "x,y"),
        ("short", -1, "abc", "string", "abc"),
        ("inet", -1, "10.0.0.1", "string", "10.0.0.1"),
        ("bit", 1, "1", "string", "1"),
        ("int4range", -1, "[1,6)", "string", "[1,6)"),
        ("int4multirange", -1, "{[1,3),[5,8)}", "string", "{[1,3),[5,8)}"),
        ("point", -1, "(1.5,-2)", "string", "(1.5,-2)"),
        ("geometry", -1, "0101000020E6100000000000000000F03F0000000000000040", "bytes",
         "AQEAACDmEAAAAAAAAAAA8D8AAAAAAAAAQA=="),
        ("vector", -1, "[1,2.5]", "nested", "[1,2.5]"),
        ("int2vector", -1, "1 2", "nested", "[1,2]"),
        ("_int4", -1, "{1,NULL,3}", "nested", "[1,null,3]"),
        ("_int4", -1, "{}", "nested", "[]"),
        ("_int4", -1, "{{1,2},{3,4}}", "nested", "[[1,2],[3,4]]"),
        ("_int4", -1, "[2:3]={7,8}", "nested", "[2:3]={7,8}"),
        ("_text", -1, r'{a,NULL,"NULL","","x y","q\"\\,{}"}', "nested", r'["a",null,"NULL","","x y","q\"\\,{}"]'),
        ("_text", -1, "[0:0]={a}", "nested", "[0:0]={a}"),
        ("_text", -1, '{"a\nb"}', "nested", r'["a\nb"]'),
        ("_bool", -1, "{t,f,NULL}", "nested", "[true,false,null]"),
        ("_float8", -1, "{1,NaN,1.5}", "nested", '[1.0,"NaN",1.5]'),
        ("_numeric", _numeric(10, 3), "{1.500,NULL}", "nested", '["1.500",null]'),
        ("_timestamp", 3, '{"2026-01-02 03:04:05.1"}', "nested", '["2026-01-02 03:04:05.100"]'),
        ("_bytea", -1, r'{"\\x00ff",NULL}', "nested", '["AP8=",null]'),
        ("_jsonb", -1, r'{"{\"a\": 1}"}', "nested", r'["{\"a\": 1}"]'),
        ("_box", -1, "{(1,1),(0,0);(3,3),(2,2)}", "nested", '["(1,1),(0,0)","(3,3),(2,2)"]'),
        ("pair", -1, r'(1,"a ""b"" \\",{1.50})', "nested", r'{"a":1,"b":"a \"b\" \\","sums":["1.50"]}'),
        ("pair", -1, '(,"",)', "nested", '{"a":null,"b":"","sums":null}'),
        ("pair", -1, "(1,2)", "nested", "(1,2)"),
        ("_pair", -1, r'{"(1,\"x y\",{NULL})",NULL}', "nested", '[{"a":1,"b":"x y","sums":[null]},null]'),
        ("_pair", -1, '{"(1,2)"}', "nested", '["(1,2)"]'),
        ("hstore", -1, r'"a"=>"1", "b"=>NULL, "q\"\\"=>"x=>y, "', "nested", r'{"a":"1","b":null,"q\"\\":"x=>y, "}'),
        ("hstore", -1, "", "nested", "{}"),
    ],
)  # fmt: skip
def test_a_printed_value_becomes_the_canonical_text_of_its_type(
    name: str, typmod: int, printed: str, logical: str, canonical: str
) -> None:
    native = _native(name, typmod)
    assert str(native.logical) == logical
    assert _text(native, printed) == canonical


def test_a_type_that_nobody_knows_is_a_string_as_printed() -> None:
    native = TypeCatalog().resolve(99_999, 7)
    assert native.logical == LogicalType("string")
    assert _text(native, "whatever") == "whatever"


@pytest.mark.parametrize(
    ("name", "typmod", "large"),
    [
        ("int4", -1, False),
        ("name", -1, False),
        ("text", -1, True),
        ("numeric", -1, True),
        ("numeric", _numeric(12, 2), False),
        ("numeric", _numeric(65, 30), True),
        ("money2", -1, False),
        ("varchar", 4 + 5, False),
        ("varchar", 4 + 255, True),
        ("short", -1, True),
        ("inet", -1, False),
        ("bit", 10, False),
        ("_int4", -1, True),
        ("mood", -1, False),
        ("pair", -1, True),
    ],
)
def test_a_type_is_large_where_its_values_may_be_stored_out_of_line(name: str, typmod: int, large: bool) -> None:
    assert _native(name, typmod).large is large


@pytest.mark.parametrize(
    ("name", "typmod", "length", "scale"),
    [
        ("numeric", _numeric(5, -2), 5, -2),
        ("numeric", _numeric(2, 4), 2, 4),
        ("numeric", _numeric(1000, 1000), 1000, 1000),
        ("money2", -1, 14, 2),
        ("varchar", 104, 100, None),
        ("bpchar", 14, 10, None),
        ("bit", 10, 10, None),
        ("timestamp", 3, None, 3),
        ("text", -1, None, None),
        ("numeric", -1, None, None),
    ],
)
def test_length_and_scale_are_those_of_the_declaration(
    name: str, typmod: int, length: int | None, scale: int | None
) -> None:
    native = _native(name, typmod)
    assert (native.length, native.scale) == (length, scale)


def test_types_are_the_same_after_json() -> None:
    assert TypeCatalog.from_json(json.loads(json.dumps(CATALOG.to_json()))) == CATALOG
    for oid in _BY_NAME.values():
        native = CATALOG.resolve(oid, 4)
        assert NativeType.from_json(json.loads(json.dumps(native.to_json()))) == native


@given(st.lists(st.one_of(st.none(), st.floats(width=32)), max_size=20))
def test_binary_numbers_have_our_digits(numbers: list[float | None]) -> None:
    for kind, name, width in (("float32", "float4", np.float32), ("float64", "float8", np.float64)):
        # In another spelling with enough digits.
        printed = [None if n is None else _server_float(n, 9 if kind == "float32" else 17) for n in numbers]
        wanted = [None if n is None else LogicalType(kind).to_text(width(n)) for n in numbers]
        assert _native(name).texts(pa.array(printed, pa.string())).to_pylist() == wanted


def _server_float(number: float, digits: int) -> str:
    text = f"{number:.{digits - 1}e}"
    return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(text, text)


_TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)


@given(
    st.recursive(
        st.lists(st.none() | _TEXTS, min_size=1, max_size=4), lambda inner: st.lists(inner, min_size=1, max_size=2)
    )
)
def test_an_array_is_read_as_the_server_quotes_it(value: list[object]) -> None:
    text = _text(_native("_text"), _array(value))
    assert text is not None and json.loads(text) == value


def _array(value: object) -> str:
    if isinstance(value, list):
        return "{" + ",".join(map(_array, value)) + "}"
    if value is None:
        return "NULL"
    text = str(value)
    if text == "" or text.upper() == "NULL" or any(c in '{},"\\ \t\n\v\f\r' for c in text):
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return text


@given(st.none() | _TEXTS, st.lists(st.none() | st.integers(0, 9), max_size=3))
def test_a_composite_value_is_read_as_the_server_quotes_it(text: str | None, sums: list[int | None]) -> None:
    numbers = [None if n is None else f"{n}.00" for n in sums]
    found = _text(_native("pair"), f"(7,{_quoted(text)},{_quoted(_array(numbers))})")
    assert found is not None and json.loads(found) == {"a": 7, "b": text, "sums": numbers}


def _quoted(text: str | None) -> str:
    if text is None:
        return ""
    if text == "" or any(c in '(),"\\ \t\n\v\f\r' for c in text):
        return '"' + text.replace("\\", "\\\\").replace('"', '""') + '"'
    return text


@pytest.mark.parametrize("name", sorted(_BY_NAME))
def test_a_column_of_nulls_only_stays_as_it_is(name: str) -> None:
    for values in ([], [None], [None, None]):
        assert _native(name).texts(pa.array(values, pa.string())).to_pylist() == values


@given(
    st.lists(st.none() | st.text('{},"\\ \nNULab1é'), max_size=6),
    st.sampled_from(["_text", "_int4", "_numeric", "_box"]),
)
def test_whatever_is_printed_kernels_read_arrays_as_python_does(printed: list[str | None], name: str) -> None:
    values = pa.array(printed, pa.string())
    native = _native(name)
    assert native.texts(values).to_pylist() == written(native, values)


@given(st.dictionaries(_TEXTS, st.none() | _TEXTS, max_size=4))
def test_an_hstore_is_read_as_the_server_quotes_it(pairs: dict[str, str | None]) -> None:
    def quoted(text: str | None) -> str:
        return "NULL" if text is None else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    printed = ", ".join(f"{quoted(key)}=>{quoted(value)}" for key, value in pairs.items())
    text = _text(_native("hstore"), printed)
    assert text is not None and json.loads(text) == pairs
    assert [text] == written(_native("hstore"), pa.array([printed], pa.string()))


@given(st.lists(st.none() | st.binary(max_size=9)))
def test_bytes_become_base64(values: list[bytes | None]) -> None:
    printed = pa.array([None if value is None else "\\x" + value.hex() for value in values], pa.string())
    wanted = [None if value is None else base64.b64encode(value).decode() for value in values]
    assert _native("bytea").texts(printed).to_pylist() == wanted


@pytest.mark.parametrize("printed", ["\\x0", "\\x0g", "\\"])
def test_bytes_that_are_not_in_hex_digits_stop(printed: str) -> None:
    with pytest.raises(ValueError, match="not printed in hex digits"):
        _text(_native("bytea"), printed)

"""Rule: what kernels write for a text is what plain Python says of it, for every logical type and any text."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.smoke import examples
from tests.support.debezium_values import VALUES

from headrace.changes import Column, LogicalType
from headrace.formats.debezium.column_types import wire_type
from headrace.formats.debezium.values import java_text, java_texts
from headrace.formats.debezium.wire_types import ValueModes
from headrace.formats.debezium.written import WrittenColumn, odd_texts
from headrace.wire.json_columns import ODD, JsonColumn, JsonColumns
from headrace.wire.json_rows import Cells
from headrace.wire.spans import Array
from headrace.wire.typed_exact import value_of

MODES = [
    ValueModes(),
    ValueModes(times="connect", decimals="double"),
    ValueModes(times="nanoseconds", decimals="string", binary="hex"),
    ValueModes(times="isostring", binary="base64-url-safe"),
]
NEAR = st.text(st.sampled_from('0123456789-+.:TZ eE/truefalsn_aA"\\\u00e9'), max_size=32)

NUMBERS = st.from_regex(r"-?[0-9]{1,9}([.][0-9]{1,9})?([eE][+-]?[0-9]{1,3})?", fullmatch=True) | st.floats(
    allow_nan=False, allow_infinity=False
).map(repr)


def written(column: Column, modes: ValueModes, texts: list[str], *, by_kernels: bool) -> list[str]:
    """The JSON of texts; `refused` for those that do not fit."""
    wire = wire_type(column, modes)
    json_column = JsonColumn("c", "", wire.code if by_kernels else ODD, wire.first, wire.second)

    def written(_: int, odd: pa.StringArray, rows: Array) -> list[str]:
        return [text or "refused" for text in odd_texts(odd, WrittenColumn(column, wire, json_column))]

    values = pa.array(texts, pa.string())
    columns = JsonColumns([("", [json_column], "")])
    cells = Cells.of_columns(columns, [values], np.ones(len(texts), np.bool_), None)
    found: list[str] = cells.json(written).to_pylist()
    return found


@pytest.mark.parametrize("kind", [*VALUES, "decimal(9,2)", "decimal(19,4)", "time(0)", "timestamp(0)"])
@settings(max_examples=examples(60), deadline=None)
@given(modes=st.sampled_from(MODES), data=st.data())
def test_kernels_write_what_python_says(kind: str, modes: ValueModes, data: st.DataObject) -> None:
    ordinary = VALUES.get(kind, st.decimals(-(10**6), 10**6, places=2).map(str))
    texts = data.draw(st.lists(st.one_of(ordinary, NEAR, st.text(max_size=9)), min_size=1, max_size=12))
    native = data.draw(st.sampled_from(["", "number", "uniqueidentifier", "money"]))
    column = Column("c", 1, LogicalType.parse(kind), native)
    assert written(column, modes, texts, by_kernels=True) == written(column, modes, texts, by_kernels=False)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0.0"), (-0.0, "-0.0"), (1.0, "1.0"), (0.001, "0.001"), (0.000999, "9.99E-4"), (9999999.0, "9999999.0"),
        (1e7, "1.0E7"), (123456789.125, "1.23456789125E8"), (1e22, "1.0E22"), (5e-324, "4.9E-324"),
        (2e-323, "2.0E-323"), (1.7976931348623157e308, "1.7976931348623157E308"), (float("nan"), '"NaN"'),
        (float("-inf"), '"-Infinity"'), (0.1, "0.1"), (100.0, "100.0"), (-12.5, "-12.5"),
    ],
)  # fmt: skip
def test_binary_numbers_are_spelled_as_java_spells_them(number: float, text: str) -> None:
    word = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(repr(number), repr(number))
    assert java_texts(pa.array([word]), single=False) == [text]
    column = Column("c", 1, LogicalType("float64"))
    assert written(column, ValueModes(), [word], by_kernels=True) == [text]


@pytest.mark.parametrize(("kind", "single"), [("float64", False), ("float32", True)])
@settings(max_examples=examples(200), deadline=None)
@given(texts=st.lists(NUMBERS, min_size=1, max_size=20))
def test_kernels_spell_numbers_as_java_does(kind: str, single: bool, texts: list[str]) -> None:
    arrow = pa.float32() if single else pa.float64()
    values = [value_of(text, arrow) for text in texts]
    fewest = pa.array([0.0 if value is None else value for value in values], arrow).cast(pa.string()).to_pylist()
    wanted = [None if v is None else java_text(text, v) for text, v in zip(fewest, values, strict=True)]
    assert java_texts(pa.array(texts), single=single) == wanted
    column = Column("c", 1, LogicalType(kind))
    found = written(column, ValueModes(), texts, by_kernels=True)
    assert found == ["refused" if text is None else text for text in wanted]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_comes_back_as_it_was(number: float) -> None:
    (text,) = java_texts(pa.array([repr(number)]), single=False)
    assert text is not None
    assert float(json.loads(text)) == number

"""Rule: rows spelled for loading read back as they were, whatever is in them and however the batch is divided."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.changes import LogicalType
from headrace.sinks.jdbc.database import parse_address
from headrace.sinks.jdbc.mariadb import MariaDb
from headrace.sinks.jdbc.postgresql import Postgres
from headrace.sinks.jdbc.text import column_texts, hex_texts, texts

COPY = Postgres(parse_address("postgresql://h/d", None, None)).encoding
VALUES = MariaDb(parse_address("mariadb://h/d", None, None)).encoding
TEXT = LogicalType("string")
BYTES = LogicalType("bytes")
ROWS = st.lists(
    st.tuples(
        st.none() | st.text(st.sampled_from("ab\\'\"\t\n\r\0,()N%é☃\U0001f600"), max_size=6),
        st.none() | st.binary(max_size=4),
        st.none() | st.booleans(),
    ),
    max_size=9,
)


def spell(rows: list[Any], encoding: Any, most_bytes: int) -> bytes:
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([None, *(row[n] for row in rows)], kind)
            for n, kind in enumerate((pa.string(), pa.binary(), pa.bool_()))
        ],
        ["a", "b", "c"],
    )
    # Without the first row, so that the arrays do not begin where their buffers do.
    found = texts(batch.slice(1), [TEXT, BYTES, LogicalType("boolean")], encoding, most_bytes=most_bytes)
    return b"".join(bytes(memoryview(text)) for text in found)


UNESCAPED = {"\\\\": "\\", "\\t": "\t", "\\n": "\n", "\\r": "\r", "\\0": "\0", "''": "'"}


def unescaped(text: str, pattern: str = r"\\.") -> str:
    return re.sub(pattern, lambda found: UNESCAPED[found[0]], text, flags=re.DOTALL)


@given(rows=ROWS, most_bytes=st.sampled_from([1, 64, 1 << 20]))
def test_rows_for_copy_read_back(rows: list[Any], most_bytes: int) -> None:
    lines = spell(rows, COPY, most_bytes).decode().split("\n")
    assert lines.pop() == ""
    found = []
    for line in lines:
        text, raw, flag = (None if value == r"\N" else unescaped(value) for value in line.split("\t"))
        found.append(
            (
                text,
                None if raw is None else bytes.fromhex(raw.removeprefix("\\x")),
                {"true": True, "false": False, None: None}[flag],
            )
        )
    assert found == rows


@given(rows=ROWS, most_bytes=st.sampled_from([1, 64, 1 << 20]))
def test_rows_for_an_insert_read_back(rows: list[Any], most_bytes: int) -> None:
    whole = spell(rows, VALUES, most_bytes).decode()
    line = r"\((NULL|'(?:[^'\\]|\\.|'')*'),(NULL|x'[0-9a-f]*'),(NULL|'[01]')\),"
    assert re.fullmatch(f"(?:{line})*", whole, flags=re.DOTALL)
    found = [
        (
            None if text == "NULL" else unescaped(text[1:-1], r"\\.|''"),
            None if raw == "NULL" else bytes.fromhex(raw[2:-1]),
            None if flag == "NULL" else flag == "'1'",
        )
        for text, raw, flag in re.findall(line, whole, flags=re.DOTALL)
    ]
    assert found == rows


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_bytes_of_any_arrow_kind_are_hex(kind: Any) -> None:
    values = pa.array([b"\x00", None, b"", b"\xff\x01"], kind)
    assert column_texts(values, BYTES, VALUES).to_pylist() == ["x'00'", "NULL", "x''", "x'ff01'"]
    assert hex_texts(values.slice(3).cast(pa.binary())).to_pylist() == ["ff01"]
    assert hex_texts(pa.array([], pa.binary())).to_pylist() == []


def test_texts_are_of_the_size_that_was_asked_for() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(["x" * 1000] * 64)], ["a"])
    sizes = [text.size for text in texts(batch, [TEXT], COPY, most_bytes=8_000)]
    assert sum(sizes) == 64 * 1001
    assert max(sizes) <= 8_000 + 1001


@given(days=st.lists(st.integers(-1_700_000, 100_000), max_size=9))
def test_postgresql_counts_years_before_christ_from_1_and_mariadb_from_0(days: list[int]) -> None:
    dates = pa.array([None, *days], pa.int32()).cast(pa.date32())
    plain = column_texts(dates, LogicalType("date"), VALUES).to_pylist()
    for shown, copied in zip(plain, column_texts(dates, LogicalType("date"), COPY).to_pylist(), strict=True):
        year = int(re.split("(?<=.)-", shown.strip("'"))[0]) if shown != "NULL" else None
        if year is None:
            assert copied == r"\N"
        elif year > 0:
            assert copied == shown.strip("'")
        else:
            assert copied == f"{1 - year:04}{shown.strip(chr(39))[-6:]} BC"

"""Rule: what COPY prints as CSV becomes the same values, NULL apart from empty text, whatever they hold."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.postgresql.snapshot_read import csv_columns

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=20)
ODD = st.sampled_from(["", "\\.", "\\N", "NULL", "\n", "\r", "\r\n", '"', '""', ",", " ", "'", "\ufeff", "#"])
ROWS = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.lists(st.none() | TEXT | ODD, min_size=width, max_size=width), min_size=1)
)


def printed(row):
    """A row as the server writes it: a value in quotes where it needs them, and an empty field for NULL."""

    def field(value):
        if value is None:
            return ""
        plain = value and not set(value) & set('",\r\n') and not (value == "\\." and len(row) == 1)
        return value if plain else '"' + value.replace('"', '""') + '"'

    return (",".join(map(field, row)) + "\n").encode()


def read(blocks, width):
    return [
        row for columns in csv_columns(blocks, width) for row in zip(*(c.to_pylist() for c in columns), strict=True)
    ]


@given(ROWS)
def test_values_are_what_was_printed(rows):
    assert read([b"".join(map(printed, rows))], len(rows[0])) == list(map(tuple, rows))


@given(ROWS, st.integers(1, 5))
def test_blocks_of_rows_give_the_same_rows(rows, size):
    parts = [b"".join(map(printed, rows[n : n + size])) for n in range(0, len(rows), size)]
    assert read(parts, len(rows[0])) == list(map(tuple, rows))


def test_null_and_empty_text_of_a_single_column_are_kept_apart():
    assert read([b'\n""\nx\n\n'], 1) == [(None,), ("",), ("x",), (None,)]


def test_a_value_that_is_larger_than_all_others_together_is_read():
    huge = "line\n" * 4_000_000
    assert read([printed(["1", None, "a"]) + printed(["2", huge, '"'])], 3) == [("1", None, "a"), ("2", huge, '"')]


@pytest.mark.parametrize("text", ["true", "NaN", "1e5", "2026-01-01", "007", "null", "N/A", "-0"])
def test_nothing_is_taken_for_anything_but_text(text):
    assert read([f"{text}\n".encode()], 1) == [(text,)]


def test_the_quoting_of_this_test_is_that_of_csv():
    rows = [["a,b", 'say "hi"', "x\ny"], ["", "plain", " "]]
    assert list(csv.reader(io.StringIO(b"".join(map(printed, rows)).decode(), newline=""))) == rows

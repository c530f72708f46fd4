"""Rows that COPY gives as CSV, as columns of text. Pure; bytes in, Arrow out."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyarrow import csv

_MARK = codecs.BOM_UTF8


def csv_columns(blocks: Iterable[bytes], count: int) -> Iterator[list[pa.Array]]:
    """The columns of rows, block by block.

    NULL is an empty field without quotes, and empty text is one with quotes. A value may have line ends, quotes and
    commas, and may be as large as the server can send.

    Args:
        blocks: whole rows, as many as there are.
        count: how many columns a row has.
    """
    names = [str(number) for number in range(count)]
    # A row of one column that is NULL is an empty line.
    parsing = csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)
    conversion = csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    for block in blocks:
        if block.startswith(_MARK):
            # Arrow leaves out the first one, which is part of a value here.
            block = _MARK + block
        # Arrow cuts what it reads into pieces, and fails where a row is in more than two.
        reading = csv.ReadOptions(column_names=names, block_size=len(block) + 1, use_threads=False)
        table = csv.read_csv(
            pa.BufferReader(block), read_options=reading, parse_options=parsing, convert_options=conversion
        )
        yield [column.combine_chunks() for column in table.columns]

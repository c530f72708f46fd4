"""Stored values as Arrow columns and as Python values, typed as the real driver types them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace_emulators.sqlserver.errors import NotSupportedError
from headrace_emulators.sqlserver.scope import Output
from headrace_emulators.sqlserver.types import BIGINT, FLOAT, NVARCHAR_MAX, SqlType


def inferred(values: list[Any]) -> SqlType:
    """The type of a column without a declared one, from its values."""
    for value in values:
        if isinstance(value, int):
            return BIGINT
        if isinstance(value, float):
            return FLOAT
        if isinstance(value, bytes):
            return SqlType("varbinary", -1)
        if isinstance(value, str):
            return NVARCHAR_MAX
    return SqlType("int")


def column(values: list[Any] | tuple[Any, ...], declared: SqlType) -> pa.Array:
    """One Arrow column of stored values. Conversions run over the whole column, never value by value."""
    family = declared.family
    if family in ("int", "float", "binary", "clr"):
        return pa.array(values, declared.arrow)
    if family == "bit":
        return pa.array(values, pa.uint8()).cast(pa.bool_())
    if family in ("string", "guid"):
        return pa.array(values, declared.arrow)
    texts = pa.array(values, pa.string())
    if family in ("decimal", "date"):
        return texts.cast(declared.arrow)
    if family == "time":
        return pc.binary_join_element_wise("1970-01-01 ", texts, "").cast(pa.timestamp("ns")).cast(pa.time64("ns"))
    if family == "datetime":
        # The driver's timestamps end at microseconds, so the seventh digit is lost, as on the real one.
        short = pc.utf8_slice_codeunits(texts, 0, 26) if declared.scale == 7 else texts
        return short.cast(pa.timestamp("us"))
    short = pc.replace_substring_regex(texts, r"(\.\d{6})\d ", r"\1 ")
    return pc.replace_substring_regex(short, r" ([+-]\d\d:\d\d)$", r"\1").cast(declared.arrow)


class ArrowStream:
    """Batches of a result, read on demand.

    Args:
        columns: names and types.
        rows: stored values.
        batch_size: rows per batch.
    """

    def __init__(self, columns: tuple[Output, ...], rows: Iterator[tuple[Any, ...]], batch_size: int) -> None:
        self._rows = rows
        self._size = batch_size
        self._first = list(islice(rows, batch_size))
        self._types = [
            declared if declared is not None else inferred([row[i] for row in self._first])
            for i, (_, declared) in enumerate(columns)
        ]
        fields = []
        for number, ((name, _), declared) in enumerate(zip(columns, self._types, strict=True), 1):
            if declared.family == "variant":
                raise NotSupportedError(
                    f"Unsupported data type for Arrow batch fetch for column - {name}, Type - -150, column ID -"
                    f" {number}"
                )
            fields.append(pa.field(name, declared.arrow))
        self.schema = pa.schema(fields)

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        rows, self._first = self._first, []
        while rows:
            columns = zip(*rows, strict=True)
            arrays = [column(values, t) for values, t in zip(columns, self._types, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)
            rows = list(islice(self._rows, self._size))


def _moment(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text[:26])


def _zoned(text: str) -> dt.datetime:
    date, clock, zone = text.split(" ")
    return dt.datetime.fromisoformat(f"{date}T{clock[:15]}{zone}")


_PYTHON: dict[str, Callable[[Any], Any]] = {
    "bit": bool, "decimal": Decimal, "date": dt.date.fromisoformat,
    "time": lambda text: dt.time.fromisoformat(text[:15]),
    "datetime": _moment, "offset": _zoned,
}  # fmt: skip


def python_rows(columns: tuple[Output, ...], rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Rows of Python values: bool, int, float, Decimal, str, bytes, date, time, datetime."""
    converters = [(i, _PYTHON[t.family]) for i, (_, t) in enumerate(columns) if t is not None and t.family in _PYTHON]
    if not converters:
        return rows
    return (_converted(row, converters) for row in rows)


def _converted(row: tuple[Any, ...], converters: list[tuple[int, Callable[[Any], Any]]]) -> tuple[Any, ...]:
    values = list(row)
    for i, convert in converters:
        if values[i] is not None:
            values[i] = convert(values[i])
    return tuple(values)

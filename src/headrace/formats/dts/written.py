"""Values of DTS records as they are written: the branch of the union, by the column's type and the text's text form.

A text that its column's type does not have (a time finer than the record's unit, a number that is none) is written as
Character, so that nothing is lost.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Column, TableSchema
from headrace.changes.images import constant
from headrace.formats.dts.schemas import Branch
from headrace.formats.dts.types import number_of
from headrace.formats.dts.values import NOT_FINITE, is_day
from headrace.formats.schema_columns import ABSENT, SchemaColumns
from headrace.wire import text_forms
from headrace.wire.spans import Array
from headrace.wire.tape import Tape
from headrace.wire.typed import TypedColumn
from headrace.wire.typed_exact import bytes_of

_CODES = {
    "boolean": "o", "int8": "n", "int16": "n", "int32": "n", "int64": "n", "uint64": "n", "decimal": "d",
    "float32": "f", "float64": "f", "bytes": "b", "date": "D", "time": "T", "timestamp": "l", "instant": "i",
    "zoned_timestamp": "z", "json": "j", "xml": "x", "uuid": "u",
}  # fmt: skip
_WIDTHS = {"int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint64": 8}
_OBJECTS = {"o": "BOOL", "j": "JSON", "x": "XML", "u": "UUID"}
_LETTERS = "tndfbyDTlizojxu"
"""The codes of columns; a column's is its index here."""
_NUMBER = {letter: index for index, letter in enumerate(_LETTERS)}
_IS_CODE = {
    letters: np.array([letter in letters for letter in _LETTERS] + [False])
    for letters in (*_LETTERS, "DTlizy", "".join(_OBJECTS))
}
"""For some letters, which codes are theirs; the last is that of a value without a text."""
_OBJECT_NAMES = constant([_OBJECTS.get(letter, "") for letter in _LETTERS])
_YEAR = re.compile(r"\s*[+-]?[0-9]{1,10}\s*")
_NO_TEXTS = constant([])
_NULL = -1
_MOST_SECONDS = 9_223_372_036_853


class DtsColumns(SchemaColumns):
    def __init__(self, schemas: Sequence[TableSchema]) -> None:
        super().__init__(schemas)
        kinds = [column.logical for column in self.all]
        self.code: Array = np.array([_NUMBER[_letter(column)] for column in self.all], np.int8)
        self.width: Array = np.array([_WIDTHS.get(kind.kind, 8) for kind in kinds], np.int64)
        decimals = [(k.precision or 0, k.scale or 0) if k.kind == "decimal" else (0, 0) for k in kinds]
        self.precision: Array = np.array([precision for precision, _ in decimals], np.int64)
        self.scale: Array = np.array([scale for _, scale in decimals], np.int64)
        self.fields = _fields(schemas)


def _letter(column: Column) -> str:
    kind = column.logical.kind
    # A year is a DateTime of nothing else.
    return "y" if column.native_type == "year" and kind in _WIDTHS else _CODES.get(kind, "t")


def _fields(schemas: Sequence[TableSchema]) -> pa.ListArray:
    """The fields of each schema, as MySQL's records have them and as PostgreSQL's."""
    rows = []
    for schema in schemas:
        for kind in ("m", "p"):
            numbers = [13 if kind == "m" and _letter(c) == "y" else number_of(c, kind) for c in schema.columns]
            rows.append([{"name": c.name, "number": n} for c, n in zip(schema.columns, numbers, strict=True)])
    return pa.array(rows, pa.list_(pa.struct([("name", pa.string()), ("number", pa.int32())])))


def written_values(plans: DtsColumns, column: Array, texts: pa.StringArray, at: Array, micro: Array) -> pa.UnionArray:
    """Values as the union of a record.

    Args:
        plans: what columns are written as.
        column: the number of each value's column in them.
        texts: canonical texts.
        at: the number of each value's text; one that is null is null, and `ABSENT` says that there is none.
        micro: whether the fraction of a DateTime is written in microseconds.
    """
    return _Values(plans, column, texts, at, micro).union()


class _Values:
    def __init__(self, plans: DtsColumns, column: Array, texts: pa.StringArray, at: Array, micro: Array) -> None:
        self._plans, self._column, self._texts, self._micro = plans, column, texts, micro
        if texts.null_count:
            null = np.append(texts.is_null().to_numpy(zero_copy_only=False), [False, False])
            at = np.where(null[at], _NULL, at)
        self._at = at.astype(np.int32)
        self._branch: Array = np.zeros(at.size, np.int8)
        self._branch[at >= 0] = Branch.CHARACTER
        self._branch[at == ABSENT] = Branch.EMPTY
        self._code: Array = np.where(at >= 0, plans.code[column], np.int8(-1)) if at.size else np.zeros(0, np.int8)

    def union(self) -> pa.UnionArray:
        branch, plans = self._branch, self._plans
        dated = self._rows("DTlizy")
        moments = _Moments(self._texts, self._at[dated], self._code[dated], self._micro[dated])
        branch[dated] = moments.branch
        whole = self._rows("n")
        branch[whole[text_forms.integers(self._texts, self._at[whole])]] = Branch.INTEGER
        self._decimals()
        floats, binary = self._floats(), self._binary()
        branch[self._rows("".join(_OBJECTS))] = Branch.TEXT_OBJECT
        rows = [np.flatnonzero(branch == number) for number in Branch]
        index = np.zeros(branch.size, np.int32)
        for held in rows:
            index[held] = np.arange(held.size)
        number = np.zeros(branch.size, np.int64)
        number[dated] = np.arange(dated.size)
        of_integers, of_decimals = self._column[rows[Branch.INTEGER]], self._column[rows[Branch.DECIMAL]]
        names = plans.code[self._column[rows[Branch.TEXT_OBJECT]]]
        nothing = np.zeros(len(floats), np.int64)
        children = [
            pa.nulls(rows[0].size),
            _record(plans.width[of_integers], self._taken(rows[Branch.INTEGER])),
            _record(_constant("utf8mb4", rows[Branch.CHARACTER].size), self._taken(rows[Branch.CHARACTER])),
            _record(self._taken(rows[Branch.DECIMAL]), plans.precision[of_decimals], plans.scale[of_decimals]),
            _record(floats, nothing, nothing),
            moments.timestamps(number[rows[Branch.TIMESTAMP]]),
            moments.date_times(number[rows[Branch.DATE_TIME]]),
            moments.zoned(number[rows[Branch.ZONED]]),
            _record(_NO_TEXTS, _NO_TEXTS),
            _record(_NO_TEXTS, _NO_TEXTS),
            _record(_constant("BLOB", len(binary)), binary),
            _record(_taken(_OBJECT_NAMES, names), self._taken(rows[Branch.TEXT_OBJECT])),
            pa.array(np.ones(rows[Branch.EMPTY].size, np.int64)),
        ]
        return pa.UnionArray.from_dense(pa.array(branch), pa.array(index), children)

    def _rows(self, letters: str) -> Array:
        return np.flatnonzero(_IS_CODE[letters][self._code])

    def _taken(self, rows: Array) -> pa.DictionaryArray:
        return _taken(self._texts, self._at[rows])

    def _picked(self, rows: Array) -> pa.StringArray:
        return self._texts.take(pa.array(self._at[rows]))

    def _decimals(self) -> None:
        rows = self._rows("d")
        fine = text_forms.numbers(self._texts, self._at[rows])
        if not fine.all():
            odd = rows[~fine]
            words = pc.is_in(self._picked(odd), pa.array(NOT_FINITE)).to_numpy(zero_copy_only=False)
            self._branch[odd[words]] = Branch.DECIMAL
        self._branch[rows[fine]] = Branch.DECIMAL

    def _floats(self) -> pa.DoubleArray:
        """The numbers of texts that a binary number can hold, though rounded."""
        rows = self._rows("f")
        texts = self._picked(rows)
        column = TypedColumn(Tape.of_texts(texts), np.arange(rows.size, dtype=np.int32), pa.float64())
        fine = column.values.is_valid()
        infinite = pc.is_inf(column.values).fill_null(False)
        if pc.any(infinite).as_py():
            # A number beyond the range would become infinite.
            fine = pc.and_(fine, pc.or_(pc.invert(infinite), pc.ends_with(texts, "Infinity")))
        self._branch[rows[fine.to_numpy(zero_copy_only=False)]] = Branch.FLOAT
        return column.values.filter(fine)

    def _binary(self) -> pa.BinaryArray:
        rows = self._rows("b")
        values = [bytes_of(text) for text in self._picked(rows).to_pylist()]
        self._branch[rows[[value is not None for value in values]]] = Branch.BINARY_OBJECT
        return pa.array([value for value in values if value is not None], pa.binary())


class _Moments:
    """Days and clocks of columns of these codes: the branch of each, and their parts."""

    def __init__(self, texts: pa.StringArray, at: Array, code: Array, micro: Array) -> None:
        moments = text_forms.moments(texts, at)
        self._texts, self._at, self._found = texts, at, moments
        no_zone, whole = moments.zone == 0, moments.has_day & moments.has_clock & (moments.sign == 1)
        unit = np.where(micro, 1_000, 1)
        fits = moments.fine & (moments.nanos % unit == 0)
        is_date_time = _IS_CODE["D"][code] & moments.has_day & ~moments.has_clock & no_zone
        is_date_time |= _IS_CODE["T"][code] & moments.has_clock & ~moments.has_day & no_zone
        is_date_time |= _IS_CODE["l"][code] & whole & no_zone
        self.branch: Array = np.full(at.size, Branch.CHARACTER, np.int8)
        self.branch[is_date_time & fits] = Branch.DATE_TIME
        self.branch[_IS_CODE["z"][code] & whole & ~no_zone & fits] = Branch.ZONED
        # An instant has microseconds whatever the source, and no zone but UTC.
        instant = _IS_CODE["i"][code] & whole & moments.fine & (moments.zone == 1) & (moments.nanos % 1_000 == 0)
        self._seconds, has_second = _seconds(moments)
        self.branch[instant & has_second] = Branch.TIMESTAMP
        sign = moments.sign[:, None]
        fraction = sign * (moments.nanos // unit)[:, None]
        self._parts: Array = np.concatenate([moments.day, sign * moments.clock, fraction], axis=1)
        self._given: Array = np.repeat(
            np.stack([moments.has_day, moments.has_clock, moments.digits > 0], axis=1), (3, 3, 1), axis=1
        )
        for row in np.flatnonzero(_IS_CODE["y"][code]):
            text = texts[int(at[row])].as_py()
            year = int(text) if _YEAR.fullmatch(text) else 2**31
            if -(2**31) <= year < 2**31:
                self.branch[row] = Branch.DATE_TIME
                self._parts[row, 0] = year
                self._given[row] = [True, *[False] * 6]

    def date_times(self, rows: Array) -> pa.StructArray:
        parts, given = self._parts[rows], self._given[rows]
        return _record(*(pa.array(parts[:, n], mask=~given[:, n]) for n in range(7)))

    def timestamps(self, rows: Array) -> pa.StructArray:
        return _record(self._seconds[rows], self._found.nanos[rows] // 1_000)

    def zoned(self, rows: Array) -> pa.StructArray:
        texts = self._texts.take(pa.array(self._at[rows])).to_pylist()
        zones = [text[-size:] for text, size in zip(texts, self._found.zone[rows].tolist(), strict=True)]
        return _record(self.date_times(rows), pa.array(zones, pa.string()))


def _seconds(moments: text_forms.Moments) -> tuple[Array, Array]:
    """Seconds since 1970 of moments in UTC, and which of them there are."""
    year, month, day = moments.day.astype(np.int64).T
    hour, minute, second = moments.clock.astype(np.int64).T
    # Any 400 years have the same leap years.
    fine = is_day(year % 400 + 2_000, month, day) & (hour < 24) & (minute < 60) & (second < 60)
    early = month <= 2
    year, month = year - early, month + 12 * early
    days = 365 * year + year // 4 - year // 100 + year // 400 + (153 * month - 457) // 5 + day - 719_469
    seconds = ((days * 24 + hour) * 60 + minute) * 60 + second
    return seconds, fine & (np.abs(seconds) <= _MOST_SECONDS)


def _record(*columns: pa.Array | Array) -> pa.StructArray:
    arrays = [column if isinstance(column, pa.Array) else pa.array(column) for column in columns]
    return pa.StructArray.from_arrays(arrays, names=[str(number) for number in range(len(arrays))])


def _taken(texts: pa.StringArray, at: Array) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(at.astype(np.int32)), texts)


def _constant(text: str, count: int) -> pa.DictionaryArray:
    return _taken(pa.array([text]), np.zeros(count, np.int32))

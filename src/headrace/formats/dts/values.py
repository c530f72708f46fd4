"""Values of DTS images as canonical texts, by the branch of their union.

Whole columns where their form is the usual one, one by one where it is not.

Texts come as bytes with MySQL's name of their character set. Typed columns take what their types can hold; what they
can't hold is found by its canonical text and the form in which it came.
"""

from __future__ import annotations

import base64
import codecs
import functools
import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Column, LogicalType, TableSchema
from headrace.changes.row import arrow_type
from headrace.changes.types import arrow_text
from headrace.formats.change_columns import absent_column, struct_column
from headrace.formats.dts.types import BOOLEAN_OID, FLOAT_NUMBERS, TEXTUAL_OBJECTS, TEXTUAL_OIDS
from headrace.formats.given_values import UnfitValue, refused_rows
from headrace.wire import text_forms
from headrace.wire.arrays import fixed_texts
from headrace.wire.avro_tape import AvroTape
from headrace.wire.json_exact import NULL
from headrace.wire.spans import Array
from headrace.wire.tape import Tape
from headrace.wire.typed import TypedColumn
from headrace.wire.typed_exact import bytes_of, moment_of

UTF_8 = frozenset(("utf8mb4", "utf8", "utf8mb3", "utf-8", "ascii", "us-ascii", "al32utf8"))
"""Read as UTF-8, of which ASCII is a part."""

CP1252 = frozenset(("latin1", "cp1252", "windows-1252", "dec8", "hp8", "swe7", "geostd8", "armscii8"))

_PYTHON = {
    "sjis": "shift_jis", "ujis": "euc_jp", "eucjpms": "euc_jp", "euckr": "euc_kr", "tis620": "tis-620",
    "koi8r": "koi8-r", "koi8u": "koi8-u", "latin2": "iso8859-2", "latin5": "iso8859-9", "latin7": "iso8859-13",
    "greek": "iso8859-7", "hebrew": "iso8859-8", "keybcs2": "cp852", "macce": "mac-latin2", "macroman": "mac-roman",
    "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be", "ucs2": "utf-16-be",
    # Python has no such codec: only its ASCII is read, and other bytes are refused.
    "euc-tw": "ascii",
}  # fmt: skip
"""MySQL's names of character sets, and Python's. A name that is not here is tried as it is."""

# Five bytes have no character; they keep their number, so that nothing is lost.
_GAPS = {byte: chr(byte) for byte in (0x81, 0x8D, 0x8F, 0x90, 0x9D)}
_CP1252 = "".join(_GAPS.get(byte) or bytes([byte]).decode("cp1252") for byte in range(256))


def is_bytes(charset: str) -> bool:
    """Whether values are bytes, not text: charset `binary`, none, or one that nobody knows."""
    name = charset.lower()
    return name in ("binary", "") or not (name in UTF_8 or name in CP1252 or _codec(name) is not None)


def text(charset: str, value: bytes) -> str | None:
    """The text of bytes in a character set; None where the bytes are none."""
    name = charset.lower()
    if name in CP1252:
        return value.decode("latin-1").translate(_TABLE)
    codec = "utf-8" if name in UTF_8 else _codec(name)
    try:
        return None if codec is None else value.decode(codec)
    except UnicodeError:
        return None


_TABLE = {byte: ord(character) for byte, character in enumerate(_CP1252)}


@functools.cache
def _codec(name: str) -> str | None:
    try:
        codec = codecs.lookup(_PYTHON.get(name, name))
    except (LookupError, ValueError):
        return None
    # Not a codec of texts: `hex`, `zip` and the like.
    return codec.name if getattr(codec, "_is_text_encoding", True) else None


ABSENT = "N"
"""The form of a value that the log did not have."""

# Seconds that Arrow writes as days of four-digit years.
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
_MOST_SECONDS = 9_000_000_000_000
NOT_FINITE = ("NaN", "Infinity", "-Infinity", "~")
"""What a Decimal can be beside a number."""
_ZONE = re.compile(r"[+-][0-9]{1,2}(:?[0-9]{2}){0,2}|[A-Za-z][A-Za-z0-9_+/:-]*")
_TRUE, _FALSE = ("t", "true", "1"), ("f", "false", "0")
_FLOAT64, _FLOAT32 = LogicalType("float64"), LogicalType("float32")


@dataclass(frozen=True)
class DtsValues:
    """Values that were read.

    Args:
        texts: canonical texts; null for null, for what is absent, and for what can't be read.
        forms: a letter for each (`types.FORMS`); empty for null.
    """

    texts: pa.StringArray
    forms: Array

    @property
    def absent(self) -> Array:
        return self.forms == ABSENT

    @property
    def unreadable(self) -> Array:
        return self.texts.is_null().to_numpy(zero_copy_only=False) & (self.forms != "") & ~self.absent


@dataclass(frozen=True)
class ValueReader:
    """Reads values of one batch.

    Args:
        tape: where they are.
        at: their indexes.
        number: the `dataTypeNumber` of each one's field.
        kind: whose numbers these are: `m`, `p` or `x`.
        micro: whether the fraction of a DateTime is microseconds.
    """

    tape: AvroTape
    at: Array
    number: Array
    kind: Array
    micro: Array

    def read(self) -> DtsValues:
        branch = np.where(self.tape.kinds(self.at) == NULL, 0, self.tape.branch[self.at])
        forms = np.full(self.at.size, "", "U1")
        order: list[Array] = []
        texts: list[pa.StringArray] = []
        # In the order of the branches behind null.
        readers = (
            self._integers, self._characters, self._decimals, self._floats, self._timestamps, self._date_times,
            self._zoned, self._binary_geometries, self._text_geometries, self._binary_objects, self._text_objects,
            self._empty,
        )  # fmt: skip
        for index in np.unique(branch):
            rows = np.flatnonzero(branch == index)
            order.append(rows)
            if index == 0:
                texts.append(pa.nulls(rows.size, pa.string()))
                continue
            values, form = readers[index - 1](rows)
            texts.append(values)
            forms[rows] = form
        if not order:
            return DtsValues(pa.array([], pa.string()), forms)
        back = np.argsort(np.concatenate(order), kind="stable")
        return DtsValues(pa.concat_arrays(texts).take(pa.array(back)), forms)

    def _field(self, rows: Array, index: int) -> Array:
        return np.ascontiguousarray(self.tape.records(self.at[rows], index + 1)[index])

    def _text(self, at: Array) -> pa.StringArray:
        """Texts; null where they are no UTF-8."""
        fine = self.tape.is_text(at)
        return self.tape.texts(at if fine.all() else np.where(fine, at, np.int32(-1)))

    def _integers(self, rows: Array) -> tuple[pa.StringArray, Array | str]:
        texts = self._text(self._field(rows, 1))
        return _where(text_forms.integers(texts, np.arange(rows.size, dtype=np.int32)), texts), "n"

    def _decimals(self, rows: Array) -> tuple[pa.StringArray, Array | str]:
        texts = self._text(self._field(rows, 0))
        fine = text_forms.numbers(texts, np.arange(rows.size, dtype=np.int32))
        if not fine.all():
            fine |= pc.is_in(texts, pa.array(NOT_FINITE)).to_numpy(zero_copy_only=False)
        return _where(fine, texts), "d"

    def _characters(self, rows: Array) -> tuple[pa.StringArray, Array | str]:
        sets = self._text(self._field(rows, 0)).fill_null("").dictionary_encode()
        at = self._field(rows, 1)
        names = sets.dictionary.to_pylist()
        if all(name.lower() in UTF_8 for name in names):
            return self._text(at), "t"
        codes = sets.indices.to_numpy(zero_copy_only=False)
        binary = np.array([is_bytes(name) for name in names])[codes]
        decoded = [
            _base64(value) if is_bytes(names[code]) else text(names[code], value)
            for value, code in zip(self.tape.bytes(at).to_pylist(), codes, strict=True)
        ]
        return pa.array(decoded, pa.string()), np.where(binary, "b", "t")

    def _floats(self, rows: Array) -> tuple[pa.StringArray, Array | str]:
        values = self.tape.doubles(self._field(rows, 0))
        texts = arrow_text(pa.array(values), _FLOAT64)
        narrow = np.zeros(rows.size, bool)
        for kind, number in FLOAT_NUMBERS.items():
            narrow |= (self.kind[rows] == kind) & (self.number[rows] == number)
        if narrow.any():
            with np.errstate(over="ignore", invalid="ignore"):
                singles = values.astype(np.float32)
                narrow &= (singles.astype(np.float64) == values) | np.isnan(values)
            texts = pc.if_else(pa.array(narrow), arrow_text(pa.array(singles), _FLOAT32), texts)
        return texts, "f"

    def _timestamps(self, rows: Array) -> tuple[pa.StringArray, Array | str]:
        second, micro = (self.tape.numbers(self._field(rows, index)) for index in (0, 1))
        fine = (np.abs(second) <= _MOST_SECONDS) & (micro >= 0) & (micro <= 999_999)
        usual = fine & (second >= _FIRST_SECOND) & (second <= _LAST_SECOND)
        moments = pa.array(np.where(usual, second * 1_000_000 + micro, 0), pa.timestamp("us"))
        texts = pc.binary_join_element_wise(pc.replace_substring(moments.cast(pa.string()), " ", "T"), "Z", "")
        if usual.all():
            return texts, "i"
        written = texts.to_pylist()
        for row in np.flatnonzero(~usual):
            written[row] = _far_instant(int(second[row]), int(micro[row])) if fine[row] else None
        return pa.array(written, pa.string()), "i"

    def _date_times(self, rows: Array) -> tuple[pa.StringArray, Array | str]:
        return self._moments(self.at[rows], self.micro[rows])

    def _moments(self, at: Array, micro: Array) -> tuple[pa.StringArray, Array]:
        fields = self.tape.records(at, 7)
        given = self.tape.tokens.kind[fields] != NULL
        parts = np.stack([self.tape.numbers(np.ascontiguousarray(line)) for line in fields])
        year, month, day, hour, minute, second, fraction = parts
        has_day = given[:3].all(axis=0) & is_day(year, month, day)
        plain_day = has_day & ~given[3:6].any(axis=0) & (np.abs(fraction) <= 999_999_999)
        clock = given[3] & (hour >= 0) & (hour < 24) & (minute >= 0) & (minute < 60) & (second >= 0) & (second < 60)
        whole = has_day & clock & (fraction == 0)
        micros = has_day & clock & micro & (fraction > 0) & (fraction <= 999_999)
        nanos = has_day & clock & ~micros & (fraction > 0) & (fraction <= 999_999_999)
        small = (parts[3:6] >= 0).all(axis=0) & (parts[3:6] <= 99).all(axis=0)
        plain_clock = ~given[:3].any(axis=0) & given[3:6].all(axis=0) & small & (fraction == 0)
        forms_written = (
            (plain_day, b"0000-00-00", "D", slice(3)),
            (plain_clock, b"00:00:00", "T", slice(3, 6)),
            (whole, b"0000-00-00 00:00:00", "l", slice(6)),
            (micros, b"0000-00-00 00:00:00.000000", "l", slice(7)),
            (nanos, b"0000-00-00 00:00:00.000000000", "L", slice(7)),
        )
        forms = np.full(at.size, "t", "U1")
        order, texts = [], []
        plain = np.zeros(at.size, bool)
        for mask, template, form, written in forms_written:
            plain |= mask
            chosen = np.flatnonzero(mask)
            forms[chosen] = form
            order.append(chosen)
            texts.append(fixed_texts(template, [part[chosen] for part in parts[written]]))
        others = np.flatnonzero(~plain)
        converted = [
            date_time([int(v) if g else None for v, g in zip(parts[:, n], given[:, n], strict=True)], bool(micro[n]))
            for n in others
        ]
        forms[others] = [form for _, form in converted]
        order.append(others)
        texts.append(pa.array([text for text, _ in converted], pa.string()))
        back = np.argsort(np.concatenate(order), kind="stable")
        return pa.concat_arrays(texts).take(pa.array(back)), forms

    def _zoned(self, rows: Array) -> tuple[pa.StringArray, Array | str]:
        moments, forms = self._moments(self._field(rows, 0), self.micro[rows])
        zones = self._text(self._field(rows, 1)).to_pylist()
        texts = []
        for row, (moment, zone) in enumerate(zip(moments.to_pylist(), zones, strict=True)):
            zone = (zone or "").strip()
            text = f"{moment}{zone}" if moment is not None and _ZONE.fullmatch(zone) else None
            texts.append(text)
            # A time without a day, or of a zone that nobody knows, is a text.
            known = (
                forms[row] in ("l", "L") and text is not None and moment_of(f"{moment[:19]}{zone}", "UTC") is not None
            )
            forms[row] = "z" if known else "t"
        return pa.array(texts, pa.string()), forms

    def _binary_geometries(self, rows: Array) -> tuple[pa.StringArray, Array | str]:
        return _base64_texts(self.tape.bytes(self._field(rows, 1))), "b"

    def _text_geometries(self, rows: Array) -> tuple[pa.StringArray, Array | str]:
        return self._text(self._field(rows, 1)), "t"

    def _binary_objects(self, rows: Array) -> tuple[pa.StringArray, Array | str]:
        types = pc.utf8_upper(self._text(self._field(rows, 0)).fill_null(""))
        textual = pc.is_in(types, pa.array(TEXTUAL_OBJECTS)).to_numpy(zero_copy_only=False)
        textual |= (self.kind[rows] == "p") & np.isin(self.number[rows], TEXTUAL_OIDS)
        at = self._field(rows, 1)
        texts, forms = self._words(self._text(at), types, rows)
        if textual.all():
            return texts, forms
        bytes_ = _base64_texts(self.tape.bytes(at))
        return pc.if_else(pa.array(textual), texts, bytes_), np.where(textual, forms, "b")

    def _text_objects(self, rows: Array) -> tuple[pa.StringArray, Array | str]:
        types = pc.utf8_upper(self._text(self._field(rows, 0)).fill_null(""))
        return self._words(self._text(self._field(rows, 1)), types, rows)

    def _words(self, texts: pa.StringArray, types: pa.StringArray, rows: Array) -> tuple[pa.StringArray, Array]:
        boolean = pc.is_in(types, pa.array(["BOOL", "BOOLEAN"])).to_numpy(zero_copy_only=False)
        boolean |= (self.kind[rows] == "p") & (self.number[rows] == BOOLEAN_OID)
        forms = np.full(rows.size, "t", "U1")
        if not boolean.any():
            return texts, forms
        words = pc.utf8_lower(texts.fill_null(""))
        is_true, is_false = (
            boolean & pc.is_in(words, pa.array(sorted(accepted))).to_numpy(zero_copy_only=False)
            for accepted in (_TRUE, _FALSE)
        )
        forms[is_true | is_false] = "o"
        return pc.if_else(pa.array(is_true), "true", pc.if_else(pa.array(is_false), "false", texts)), forms

    def _empty(self, rows: Array) -> tuple[pa.StringArray, Array | str]:
        symbols = self.tape.numbers(self.at[rows])
        return pa.nulls(rows.size, pa.string()), np.where(symbols == 1, ABSENT, "")


def _where(fine: Array, texts: pa.StringArray) -> pa.StringArray:
    return texts if fine.all() else pc.if_else(pa.array(fine), texts, pa.scalar(None, pa.string()))


def is_day(year: Array, month: Array, day: Array) -> Array:
    """Whether there is such a day in the years 1 to 9999."""
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    longest = np.where(np.isin(month, (4, 6, 9, 11)), 30, np.where(month != 2, 31, np.where(leap, 29, 28)))
    return (year >= 1) & (year <= 9999) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= longest)


def date_time(parts: list[int | None], micro: bool) -> tuple[str | None, str]:
    """A DateTime's text and form; the text is None where no part is given.

    A zero date, and any other that no calendar has, is of form `t`.
    """
    year, month, day, hour, minute, second, fraction = parts
    clock_parts = [hour or 0, minute or 0, second or 0, fraction or 0]
    if abs(clock_parts[3]) > 999_999_999:
        return None, "t"
    has_date, has_time = month is not None or day is not None, any(p is not None for p in (hour, minute, second))
    if year is not None and not has_date and not has_time:
        return str(year), "y"
    digits = 6 if micro and abs(clock_parts[3]) < 1_000_000 else 9
    negative = min(clock_parts) < 0
    hours, minutes, seconds, finer = map(abs, clock_parts)
    clock = f"{'-' if negative else ''}{hours:02}:{minutes:02}:{seconds:02}"
    clock += f".{finer:0{digits}}" if finer else ""
    if year is None and not has_date:
        return (clock, "T") if has_time else (None, "t")
    date = f"{_year(year)}-{_two(month or 0)}-{_two(day or 0)}"
    real = bool(is_day(*(np.array(part or 0) for part in (year, month, day))))
    if not has_time:
        return date, "D" if real else "t"
    is_clock = hour is not None and 0 <= hour <= 23 and minutes < 60 and seconds < 60 and not negative
    form = "L" if finer and digits == 9 else "l"
    return f"{date} {clock}", form if real and is_clock else "t"


def _year(year: int | None) -> str:
    if year is None:
        return "0000"
    return f"+{year}" if year > 9999 else f"-{abs(year):04}" if year < 0 else f"{year:04}"


def _two(number: int) -> str:
    return f"0{number}" if number < 10 else str(number)


def _far_instant(second: int, micro: int) -> str:
    """An instant beyond the years of four digits."""
    days, in_day = divmod(second, 86_400)
    # 400 years have as many days as any other 400.
    cycles, rest = divmod(days + 719_528, 146_097)
    near = np.datetime64(rest - 719_528 + 4 * 146_097, "D")
    year, month, day = str(near).split("-")
    clock = f"{in_day // 3600:02}:{in_day // 60 % 60:02}:{in_day % 60:02}.{micro:06}"
    return f"{_year(int(year) + 400 * (cycles - 4))}-{month}-{day}T{clock}Z"


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _base64_texts(values: pa.BinaryArray) -> pa.StringArray:
    return pa.array([None if value is None else _base64(value) for value in values.to_pylist()], pa.string())


_INSTANTS = ("i", "z")


def typed_image(
    values: DtsValues, index: Array, present: Array, schema: TableSchema, kind: pa.StructType
) -> tuple[pa.StructArray, pa.ListArray, list[UnfitValue]]:
    """The structs, the columns that they do not carry, and the values that their columns can't hold.

    Args:
        values: all values.
        index: for each row and column, the number of its value; -1 where there is none.
        present: which rows have an image.
        schema: the columns.
        kind: the structs' type.
    """
    columns, refused = _columns(values, index, schema)
    carried = np.append(~values.absent, False)[index]
    left_out = ~carried & present[:, None]
    absent = absent_column([column.name for column in schema.columns], left_out)
    return struct_column(kind, columns, pa.array(present)), absent, refused


def unfit_values(values: DtsValues, index: Array, schema: TableSchema) -> list[UnfitValue]:
    """The values of maps that the columns of the user's schema can't hold, without those of some source."""
    return [column for column in _columns(values, index, schema, texts=True)[1] if not column.is_of_source]


def _columns(
    values: DtsValues, index: Array, schema: TableSchema, *, texts: bool = False
) -> tuple[dict[str, pa.Array], list[UnfitValue]]:
    """The columns of structs, and what they can't hold; with `texts` a text is not bytes, as maps have base64
    there.
    """
    tape = Tape.of_texts(values.texts)
    refused: list[UnfitValue] = []
    columns = {}
    forms = np.append(values.forms, "")
    for number, column in enumerate(schema.columns):
        at = np.ascontiguousarray(index[:, number], np.int32)
        form = forms[at]
        if texts and column.logical.spark_type == "binary":
            wrong = np.flatnonzero((form != "b") & tape.is_value(at))
        else:
            columns[column.name], wrong = _column(tape, at, form, column)
        refused += [UnfitValue(int(row), column, tape.text(at[row]) or "") for row in wrong]
    return columns, refused


def _column(tape: Tape, at: Array, form: Array, column: Column) -> tuple[pa.Array, Array]:
    """The column, and the rows whose value it can't hold."""
    types, kind = pa.types, arrow_type(column.logical)
    if types.is_binary(kind):
        parts = [
            None if text is None else bytes_of(text) if letter == "b" else text.encode()
            for text, letter in zip(tape.texts(at).to_pylist(), form, strict=True)
        ]
        return pa.array(parts, kind), np.zeros(0, np.int64)
    read = TypedColumn(tape, at, kind)
    if not types.is_timestamp(kind):
        return read.values, refused_rows(tape, at, column, read)
    # A clock without a zone is not an instant, and an instant no clock.
    of_other = np.isin(form, _INSTANTS) == (kind.tz is None)
    there = tape.is_value(at)
    wrong = np.union1d(read.refused, np.flatnonzero(of_other & there))
    mask = np.zeros(at.size, bool)
    mask[wrong] = True
    return pc.if_else(pa.array(mask), pa.scalar(None, kind), read.values), wrong

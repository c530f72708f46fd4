"""Declared types of columns: how their values are kept, and how they are checked.

Values are kept as SQLite values: numbers without fraction of up to 18 digits as integers, other numbers as plain
digits, times as texts with all digits of their type, bytes as blobs.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import Any

from headrace_emulators.oracle.errors import DatabaseError, NotSupportedError

LOBS = frozenset(("CLOB", "NCLOB", "BLOB", "XMLTYPE"))
NATIONAL = frozenset(("NCHAR", "NVARCHAR2", "NCLOB"))
_CHARACTERS = frozenset(("CHAR", "VARCHAR2", "NCHAR", "NVARCHAR2"))
_SYNONYMS = {
    "INTEGER": "NUMBER(38,0)", "INT": "NUMBER(38,0)", "SMALLINT": "NUMBER(38,0)", "VARCHAR": "VARCHAR2",
    "REAL": "FLOAT(63)", "DOUBLE PRECISION": "FLOAT(126)", "DECIMAL": "NUMBER", "NUMERIC": "NUMBER",
}  # fmt: skip
_DECLARED = re.compile(r"([A-Z_0-9 ]+?)\s*(?:\(\s*(\*|\d+)\s*(?:CHAR|BYTE)?\s*(?:,\s*(-?\d+)\s*)?\))?", re.IGNORECASE)
_TIMESTAMP = re.compile(r"TIMESTAMP\s*(?:\((\d)\))?\s*(WITH LOCAL TIME ZONE|WITH TIME ZONE)?", re.IGNORECASE)
_YEARS = re.compile(r"INTERVAL YEAR\s*(?:\((\d)\))?\s*TO MONTH", re.IGNORECASE)
_DAYS = re.compile(r"INTERVAL DAY\s*(?:\((\d)\))?\s*TO SECOND\s*(?:\((\d)\))?", re.IGNORECASE)
_KNOWN = _CHARACTERS | LOBS | {"NUMBER", "FLOAT", "DATE", "BINARY_FLOAT", "BINARY_DOUBLE", "RAW", "ROWID"}


@dataclass(frozen=True)
class Declared:
    """A column's type.

    Args:
        name: as `ALL_TAB_COLUMNS.DATA_TYPE` has it (`TIMESTAMP(6) WITH TIME ZONE`).
        length: bytes or characters.
        precision: digits, None where not declared.
        scale: digits after the point, fraction digits of a time.
    """

    name: str
    length: int = 0
    precision: int | None = None
    scale: int | None = None

    @cached_property
    def family(self) -> str:
        """The name without its parentheses."""
        return re.sub(r"\(\d+\)", "", self.name)

    @property
    def large(self) -> bool:
        """Whether its values are LOBs or documents."""
        return self.family in LOBS

    @property
    def whole(self) -> bool:
        """Whether values are kept as SQLite's integers."""
        return self.name == "NUMBER" and self.precision is not None and self.scale == 0 and self.precision <= 18

    @property
    def storage(self) -> str:
        """The column's declaration in SQLite."""
        if self.whole:
            return "INTEGER"
        if self.name in ("NUMBER", "FLOAT"):
            return "TEXT COLLATE ORACLE_NUMBER"
        if self.name in ("BINARY_FLOAT", "BINARY_DOUBLE"):
            return "REAL"
        return "BLOB" if self.name in ("RAW", "BLOB") else "TEXT"

    def kept(self, value: Any) -> Any:
        """A given value as it is kept; `''` is NULL.

        Raises:
            DatabaseError: as the server refuses it.
        """
        if value is None or value == "" or value == b"":
            return None
        family = self.family
        if family in ("NUMBER", "FLOAT"):
            return self._number(value)
        if family in ("BINARY_FLOAT", "BINARY_DOUBLE"):
            return float(value)
        if family in ("RAW", "BLOB"):
            given = bytes(value) if not isinstance(value, str) else bytes.fromhex(value)
            self._fits(len(given), self.length)
            return given
        if family in _CHARACTERS:
            text = str(value)
            self._fits(len(text), self.length)
            return text.ljust(self.length) if family in ("CHAR", "NCHAR") else text
        if family == "DATE":
            return f"{_moment(value):%Y-%m-%d %H:%M:%S}"
        if family.startswith("TIMESTAMP"):
            return self._timestamp(value)
        return str(value)

    def _fits(self, given: int, most: int) -> None:
        if most and given > most:
            raise DatabaseError(12899, f"value too large for column (actual: {given}, maximum: {most})")

    def _number(self, value: Any) -> Any:
        try:
            number = Decimal(str(value))
        except InvalidOperation:
            raise DatabaseError(1722, "invalid number") from None
        if self.scale is not None and self.precision is not None:
            number = _rounded(number, self.scale)
            if number.copy_abs() >= Decimal(10) ** (self.precision - self.scale):
                raise DatabaseError(1438, "value larger than specified precision allowed for this column")
        if self.whole:
            return int(number)
        text = format(number, "f")
        if "." in text:
            text = text.rstrip("0").rstrip(".")
        return "0" if text in ("-0", "") else text

    def _timestamp(self, value: Any) -> str:
        digits = 6 if self.scale is None else self.scale
        text = value if isinstance(value, str) else value.isoformat(" ")
        match = re.fullmatch(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d+))?\s*(Z|[+-]\d\d:\d\d)?", text)
        if match is None:
            raise DatabaseError(1858, "a non-numeric character was found where a numeric was expected")
        day, clock, fraction, zone = match.groups()
        shown = f"{day} {clock}" + (f".{(fraction or '').ljust(digits, '0')[:digits]}" if digits else "")
        if "LOCAL" in self.name:
            moment = dt.datetime.fromisoformat(f"{day}T{clock}{zone or '+00:00'}").astimezone(dt.UTC)
            return f"{moment:%Y-%m-%d %H:%M:%S}" + shown[19:]
        return f"{shown} {'+00:00' if zone in (None, 'Z') else zone}" if "ZONE" in self.name else shown


def declared(text: str) -> Declared:
    """Read a type as `CREATE TABLE` spells it.

    Raises:
        NotSupportedError: the emulator does not know it.
    """
    text = " ".join(text.upper().split())
    found = _TIMESTAMP.fullmatch(text)
    if found:
        digits = int(found[1]) if found[1] else 6
        return Declared(f"TIMESTAMP({digits})" + (f" {found[2]}" if found[2] else ""), 11, None, digits)
    if found := _YEARS.fullmatch(text):
        return Declared(f"INTERVAL YEAR({found[1] or 2}) TO MONTH", 5, int(found[1] or 2), 0)
    if found := _DAYS.fullmatch(text):
        return Declared(f"INTERVAL DAY({found[1] or 2}) TO SECOND({found[2] or 6})", 11, int(found[1] or 2),
                        int(found[2] or 6))  # fmt: skip
    match = _DECLARED.fullmatch(text)
    if match is None:
        raise NotSupportedError(f"type {text}")
    name, first, second = match.groups()
    synonym = _SYNONYMS.get(name)
    if synonym and "(" in synonym:
        return declared(synonym)
    name = synonym or name
    if name not in _KNOWN:
        raise NotSupportedError(f"type {text}")
    if name == "NUMBER":
        if first is None:
            return Declared("NUMBER", 22)
        if first == "*":
            return Declared("NUMBER", 22, None, int(second or 0))
        return Declared("NUMBER", 22, int(first), int(second or 0))
    if name == "FLOAT":
        return Declared("FLOAT", 22, int(first or 126))
    return Declared(name, int(first or (1 if name in ("CHAR", "NCHAR") else 0)))


def _rounded(number: Decimal, scale: int) -> Decimal:
    step = Decimal(1).scaleb(-scale)
    return (number / step).to_integral_value() * step if number.copy_abs() < Decimal(10) ** 27 else number


def _moment(value: Any) -> dt.datetime:
    if isinstance(value, dt.datetime):
        return value
    if isinstance(value, dt.date):
        return dt.datetime(value.year, value.month, value.day)
    try:
        return dt.datetime.fromisoformat(str(value))
    except ValueError:
        raise DatabaseError(1861, "literal does not match format string") from None


def plain(value: Any) -> str:
    """A kept number as Oracle's `TM9` prints it: without the zero before the point."""
    text = str(value)
    return re.sub(r"^(-?)0\.", r"\1.", text)

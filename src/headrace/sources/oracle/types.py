"""Oracle's types: what they mean, how a snapshot asks for them, and what LogMiner prints of them.

`''` is NULL in Oracle, so it is null in images. Numbers never pass through a double: a snapshot has them as text from
the server, and redo prints them as text.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes.types import LogicalType, arrow_text, base64_texts
from headrace.sources.oracle.redo import unistr_text

LARGE = frozenset(("CLOB", "NCLOB", "BLOB", "XMLTYPE"))
_TEXTUAL = frozenset(("CHAR", "NCHAR", "VARCHAR2", "NVARCHAR2", "CLOB", "NCLOB", "ROWID"))
_JDBC = {
    "CHAR": 1, "NCHAR": -15, "VARCHAR2": 12, "NVARCHAR2": -9, "CLOB": 2005, "NCLOB": 2011, "BLOB": 2004, "RAW": -3,
    "ROWID": -8, "NUMBER": 2, "FLOAT": 6, "BINARY_FLOAT": 100, "BINARY_DOUBLE": 101, "DATE": 93, "XMLTYPE": 2009,
}  # fmt: skip
_CALL = re.compile(r"([A-Z_]+)\s*\(\s*'((?:[^']|'')*)'\s*(?:,\s*'((?:[^']|'')*)'\s*)?\)", re.IGNORECASE)
_PLAIN_INTEGER = re.compile(r"-?[0-9]+")
_MOMENT = re.compile(r"\s*(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d*))?\s*(Z|[+-]\d\d:\d\d)?\s*")


class Unreadable(ValueError):
    """A printed value is not of the form that its type is printed in. It does not contain the value."""


@dataclass(frozen=True)
class NativeType:
    """A column's declared type as `ALL_TAB_COLUMNS` has it.

    Args:
        name: `DATA_TYPE`, such as `NUMBER` or `TIMESTAMP(6) WITH TIME ZONE`.
        length: characters or bytes.
        precision: digits; None where not declared.
        scale: digits after the point, or fraction digits; None where not declared.
    """

    name: str
    length: int = 0
    precision: int | None = None
    scale: int | None = None

    def to_json(self) -> list[Any]:
        """JSON values, as an offset keeps them."""
        return [self.name, self.length, self.precision, self.scale]

    @cached_property
    def family(self) -> str:
        """The name without its parentheses."""
        return re.sub(r"\(\d+\)", "", self.name)

    @property
    def large(self) -> bool:
        """Whether a change leaves the value out when it did not change."""
        return self.family in LARGE

    @property
    def supported(self) -> bool:
        return self.family in _JDBC or self.family.startswith(("TIMESTAMP", "INTERVAL"))

    @property
    def logical(self) -> LogicalType:
        family = self.family
        if family in ("NUMBER", "FLOAT"):
            return self._number()
        if family in ("BINARY_FLOAT", "BINARY_DOUBLE"):
            return LogicalType("float32" if family == "BINARY_FLOAT" else "float64")
        if family in ("RAW", "BLOB"):
            return LogicalType("bytes")
        if family == "DATE":
            return LogicalType("timestamp", 0)
        if family.startswith("TIMESTAMP"):
            digits = 6 if self.scale is None else self.scale
            kind = "instant" if "LOCAL" in family else "zoned_timestamp" if "ZONE" in family else "timestamp"
            return LogicalType(kind, digits)
        if family.startswith("INTERVAL"):
            return LogicalType("interval")
        return LogicalType("xml" if family == "XMLTYPE" else "string")

    def _number(self) -> LogicalType:
        if self.family == "FLOAT" or self.scale is None:
            return LogicalType("decimal")
        precision, scale = 38 if self.precision is None else self.precision, self.scale
        if scale > 0:
            return LogicalType("decimal", max(precision, scale), scale)
        width = precision - scale
        for limit, kind in ((3, "int8"), (5, "int16"), (10, "int32"), (19, "int64")):
            if width < limit:
                return LogicalType(kind)
        return LogicalType("decimal", width, 0)

    @property
    def jdbc_type(self) -> int:
        """java.sql.Types (or Oracle's own) number, as schema-change events carry it."""
        family = self.family
        if family.startswith("TIMESTAMP"):
            return -102 if "LOCAL" in family else -101 if "ZONE" in family else 93
        if family.startswith("INTERVAL"):
            return -103 if "YEAR" in family else -104
        return _JDBC[family]

    @property
    def shown_length(self) -> int | None:
        """Characters, bytes or digits, as the source declares them."""
        if self.family == "NUMBER":
            return 38 if self.precision is None else self.precision
        if self.family == "FLOAT":
            return self.precision
        return self.length if self.family in _TEXTUAL | {"RAW"} and not self.large else None

    @property
    def chunks(self) -> bool:
        """Whether a snapshot may be cut by a key of this type."""
        return self.family in ("NUMBER", "CHAR", "VARCHAR2", "DATE") or self.family == "TIMESTAMP"

    def projection(self, column: str) -> str:
        """The SQL that fetches a (quoted) column without loss."""
        family = self.family
        if family in ("NUMBER", "FLOAT"):
            return f"TO_CHAR({column}, 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''')"
        if family == "DATE":
            return f"TO_CHAR({column}, 'YYYY-MM-DD HH24:MI:SS')"
        if family.startswith("TIMESTAMP"):
            if "LOCAL" in family:
                return f"TO_CHAR(SYS_EXTRACT_UTC({column}), 'YYYY-MM-DD HH24:MI:SS.FF9')"
            form = 'YYYY-MM-DD"T"HH24:MI:SS.FF9TZH:TZM' if "ZONE" in family else "YYYY-MM-DD HH24:MI:SS.FF9"
            return f"TO_CHAR({column}, '{form}')"
        if family.startswith("INTERVAL"):
            return f"TO_CHAR({column})"
        if family == "ROWID":
            return f"ROWIDTOCHAR({column})"
        return f"XMLSERIALIZE(CONTENT {column} AS CLOB)" if family == "XMLTYPE" else column

    def marker(self, name: str) -> str:
        """The parameter for a key value that is given as canonical text."""
        family = self.family
        if family == "NUMBER":
            return f"TO_NUMBER(:{name})"
        if family == "DATE":
            return f"TO_DATE(:{name}, 'YYYY-MM-DD HH24:MI:SS')"
        if family == "TIMESTAMP":
            return f"TO_TIMESTAMP(:{name}, 'YYYY-MM-DD HH24:MI:SS.FF9')"
        return f":{name}"

    def texts(self, values: pa.Array) -> pa.Array:
        """Canonical text of a column that a snapshot fetched.

        Raises:
            ValueError: what was fetched is not what the type is fetched as.
        """
        logical = self.logical
        if pa.types.is_null(values.type):
            return pa.nulls(len(values), pa.string())
        if logical.kind in ("float32", "float64"):
            return arrow_text(values, logical)
        if logical.kind == "bytes":
            return base64_texts(values)
        texts = pc.cast(values, pa.string())
        if logical.kind in ("string", "xml", "interval"):
            return texts
        return pa.array(self.decoded(texts.to_pylist()), pa.string())

    def decoded(self, printed: Sequence[str | None]) -> list[str | None]:
        """Canonical texts of printed values, without the calls around them; null stays null.

        Raises:
            Unreadable: one is not of the form that its type is printed in.
        """
        logical = self.logical
        if logical.kind in ("string", "xml"):
            return [text if text else None for text in printed]
        make = self.decoder()
        return [None if text is None or text == "" else make(text) for text in printed]

    def decoder(self) -> Callable[[str], str]:
        """What makes canonical text of one printed value that is not NULL; it raises `Unreadable`."""
        logical = self.logical
        if logical.kind in ("int8", "int16", "int32", "int64"):
            return _integer
        if logical.kind == "decimal":
            scale = logical.scale
            return lambda text: _decimal(text, scale)
        if logical.kind in ("float32", "float64"):
            kind: Any = np.float32 if logical.kind == "float32" else np.float64
            return lambda text: logical.to_text(kind(_floating(text)))
        if logical.kind == "bytes":
            return _bytes
        if logical.kind in ("timestamp", "instant", "zoned_timestamp"):
            return lambda text: _moment(text, logical)
        return lambda text: text

    def from_redo(self, text: str | None, call: bool) -> str | None:
        """The canonical text of one value as LogMiner printed it.

        Args:
            text: a literal's text, or a call as printed.
            call: whether it is a call.

        Raises:
            Unreadable: it is not of the form that its type is printed in.
        """
        if text is None:
            return None
        if call:
            text = self._argument(text)
            if text == "" and self.large:
                return ""
        return self.decoded([text])[0]

    def _argument(self, call: str) -> str:
        national = unistr_text(call)
        if national is not None:
            return national
        if call.upper().rstrip(" ()") in ("EMPTY_CLOB", "EMPTY_BLOB"):
            return ""
        match = _CALL.fullmatch(call.strip())
        if match is None:
            raise Unreadable(f"a call that {self.name} is not printed as")
        name, argument = match[1].upper(), match[2].replace("''", "'")
        if name == "HEXTORAW":
            return argument if self.logical.kind == "bytes" else bytes.fromhex(argument).decode("utf-8", "replace")
        if not name.startswith("TO_"):
            raise Unreadable(f"a call that {self.name} is not printed as")
        return argument


def _integer(text: str) -> str:
    if _PLAIN_INTEGER.fullmatch(text):
        return text
    return _decimal(text, 0)


def _decimal(text: str, scale: int | None) -> str:
    try:
        return LogicalType("decimal", None, scale).to_text(Decimal(text))
    except (ArithmeticError, ValueError):
        raise Unreadable("no number") from None


def _floating(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise Unreadable("no floating-point number") from None


def _bytes(text: str) -> str:
    try:
        return base64.b64encode(bytes.fromhex(text)).decode()
    except ValueError:
        raise Unreadable("no hexadecimal digits") from None


def _moment(text: str, logical: LogicalType) -> str:
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise Unreadable("no time of the form YYYY-MM-DD HH24:MI:SS.FF TZH:TZM")
    day, clock, fraction, zone = match.groups()
    fraction = (fraction or "").ljust(logical.digits, "0")
    if fraction[logical.digits :].strip("0"):
        raise Unreadable(f"more than {logical.digits} fraction digits")
    tail = f".{fraction[: logical.digits]}" if logical.digits else ""
    if logical.kind == "timestamp":
        return f"{day} {clock}{tail}"
    if logical.kind == "instant":
        if zone not in (None, "Z", "+00:00", "-00:00"):
            raise Unreadable("a local time of another zone than that of the session")
        return f"{day}T{clock}{tail}Z"
    return f"{day}T{clock}{tail}{'Z' if zone in (None, 'Z', '+00:00', '-00:00') else zone}"

"""Canal's values as canonical text and back, for the columns whose text on the wire is not the canonical one.

An enum is the number of its label (from 1), a set a mask of its labels, bytes are written as the characters of the same
numbers (ISO-8859-1), so is a geometry with the number of its reference system in front, a boolean is a number, as
bits are, and a `timestamp` is local to the zone of the server's session.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Column
from headrace.formats.canal.types import GEOMETRIES, MysqlType
from headrace.wire.typed_exact import moment_of

# MySQL's timestamps have no year 0, and Python no way to print it.
_LOCAL = re.compile(r"((?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2})[ T]([0-9]{2}:[0-9]{2}:[0-9]{2})([.][0-9]+)?")
_INSTANT = re.compile(r"((?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2})T([0-9]{2}:[0-9]{2}:[0-9]{2})([.][0-9]+)?Z")
_DIGITS = re.compile(r"[0-9]+")
_INTEGER = re.compile(r"-?[0-9]+")
_BASE64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_MOST_LABELS = 64


@dataclass(frozen=True)
class CanalEncoding:
    """How Canal writes the values of a column, where that is not their canonical text.

    Args:
        code: enum, set, bytes, base64, boolean, bits, geometry or instant.
        labels: of an enum or set.
        zone: of an instant.
        size: of bits, in bytes.
    """

    code: str
    labels: tuple[str, ...] = ()
    zone: str = "UTC"
    size: int = 0

    @classmethod
    def of(cls, column: Column, *, base64: bool = False, zone: str | None = None) -> CanalEncoding | None:
        """The text form of a column; None where the wire's text is the canonical one.

        Args:
            column: with MySQL's type as its native type, where known.
            base64: whether bytes come as base64 already.
            zone: of its texts, where it is an instant; UTC where None.
        """
        kind = column.logical.kind
        parsed = MysqlType.parse(column.native_type)
        if parsed.word in ("enum", "set") and (parsed.labels or column.enum_values):
            return cls(parsed.word, parsed.labels or column.enum_values or ())
        if parsed.word == "bit" and kind == "bytes":
            return cls("bits", size=((column.length or 64) + 7) // 8)
        if parsed.word in GEOMETRIES and kind == "nested":
            return cls("geometry")
        if kind == "bytes":
            return cls("base64" if base64 else "bytes")
        if kind == "boolean":
            return cls("boolean")
        return cls("instant", zone=zone or "UTC") if kind == "instant" else None

    def canonical(self, texts: pa.StringArray) -> pa.StringArray:
        """Canonical texts; null where a text of a column of bytes stands for none. Null stays null."""
        if self.code == "base64":
            return pc.if_else(pc.match_substring_regex(texts, _BASE64), texts, None)
        return _each(texts, self.canonical_text)

    def wire(self, texts: pa.StringArray) -> pa.StringArray:
        """What Canal writes for canonical texts; a text that does not fit stays. Null stays null."""
        return texts if self.code == "base64" else _each(texts, self.wire_text)

    def canonical_text(self, text: str) -> str | None:
        """One canonical text. What is not a number of a label stays, because other writers write labels."""
        if self.code == "enum":
            # 0 is MySQL's empty text for a refused value.
            if text == "0":
                return ""
            number = int(text) if _DIGITS.fullmatch(text) and len(text) < 20 else 0
            return self.labels[number - 1] if 1 <= number <= len(self.labels) else text
        if self.code == "set":
            mask = int(text) if _DIGITS.fullmatch(text) and len(text) < 30 else -1
            if mask < 0 or mask >= 1 << min(len(self.labels), _MOST_LABELS):
                return text
            return ",".join(label for bit, label in enumerate(self.labels) if mask >> bit & 1)
        if self.code == "bytes":
            try:
                return base64.b64encode(text.encode("latin-1")).decode()
            except UnicodeEncodeError:
                return None
        if self.code == "boolean":
            # MySQL's booleans are numbers, and every number but 0 is true.
            return "false" if text in ("0", "false") else "true" if _INTEGER.fullmatch(text) else text
        if self.code == "bits":
            number = int(text) if _DIGITS.fullmatch(text) and len(text) < 21 else 1 << 64
            fits = number < 1 << 8 * self.size
            return base64.b64encode(number.to_bytes(self.size, "little")).decode() if fits else None
        if self.code == "geometry":
            return _geometry(text)
        match = _LOCAL.fullmatch(text)
        # The fraction stays as it is. What has an offset already, and what is not a time (a zero date), stays.
        moment = None if match is None else moment_of(f"{match[1]} {match[2]}", self.zone)
        return text if match is None or moment is None else _instant_text(moment, "T") + (match[3] or "") + "Z"

    def wire_text(self, text: str) -> str:
        if self.code == "enum":
            return str(self.labels.index(text) + 1) if text in self.labels else text or "0"
        if self.code == "set":
            parts = text.split(",")
            if text == "" or len(self.labels) > _MOST_LABELS or not set(parts) <= set(self.labels):
                return text or "0"
            return str(sum(1 << bit for bit, label in enumerate(self.labels) if label in parts))
        if self.code == "bytes":
            try:
                return base64.b64decode(text, validate=True).decode("latin-1")
            except (binascii.Error, ValueError):
                return text
        if self.code == "boolean":
            return {"true": "1", "false": "0"}.get(text, text)
        if self.code == "bits":
            return _whole_number(text)
        return _geometry_bytes(text) if self.code == "geometry" else self._local_text(text)

    def _local_text(self, text: str) -> str:
        match = _INSTANT.fullmatch(text)
        moment = None if match is None else moment_of(f"{match[1]} {match[2]}", "UTC")
        if match is None or moment is None:
            return text
        return _instant_text(moment + ahead_of_utc(moment, self.zone) * 1_000_000, " ") + (match[3] or "")


def ahead_of_utc(moment: int, zone: str) -> int:
    """Seconds that a zone is ahead of UTC at an instant (microseconds since 1970)."""
    import datetime as dt
    import zoneinfo

    if zone == "UTC":
        return 0
    if zone[:1] in "+-":
        minutes = int(zone[1:3]) * 60 + int(zone[4:6])
        return -60 * minutes if zone[0] == "-" else 60 * minutes
    at = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=moment)
    try:
        ahead = at.astimezone(zoneinfo.ZoneInfo(zone)).utcoffset()
    except OverflowError:
        return 0
    return 0 if ahead is None else int(ahead.total_seconds())


def _whole_number(text: str) -> str:
    """Bytes, the lowest first, as the number that they are."""
    try:
        return str(int.from_bytes(base64.b64decode(text, validate=True), "little"))
    except (binascii.Error, ValueError):
        return text


def _geometry_bytes(text: str) -> str:
    """A geometry as the server holds it: the number of its reference system, then its well-known binary."""
    try:
        parsed = json.loads(text)
        data = base64.b64decode(parsed["wkb"], validate=True)
        return (int(parsed["srid"] or 0).to_bytes(4, "little") + data).decode("latin-1")
    except (binascii.Error, ValueError, KeyError, TypeError, OverflowError):
        return text


def _geometry(text: str) -> str | None:
    try:
        data = text.encode("latin-1")
    except UnicodeEncodeError:
        return None
    wkb = base64.b64encode(data[4:]).decode()
    return json.dumps({"wkb": wkb, "srid": int.from_bytes(data[:4], "little")})


def _instant_text(moment: int, between: str) -> str:
    import datetime as dt

    try:
        at = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=moment)
    except OverflowError:
        at = dt.datetime.max if moment > 0 else dt.datetime.min
    return at.replace(microsecond=0).isoformat(between)


def _each(texts: pa.StringArray, convert: object) -> pa.StringArray:
    codes = texts.dictionary_encode()
    converted = [convert(text) for text in codes.dictionary.to_pylist()]  # type: ignore[operator]
    return pa.array(converted, pa.string()).take(codes.indices)

"""hierarchyid, geometry and geography: the bytes that SQL Server keeps of them, and their texts."""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from headrace_emulators.sqlserver.errors import ProgrammingError

# Ordinals of a node's path by their size: the first one, the prefix, and the bits where `x` is a bit of the distance
# from the first and the rest is fixed. After each comes 1 for the end of a level.
_ORDINALS = (
    (-4168, "000110", "xxxxx0xxx0x1xxx"), (-72, "0010", "xx0x1xxx"), (-8, "00111", "xxx"), (0, "01", "xx"),
    (4, "100", "xx"), (8, "101", "xxx"), (16, "110", "xx0x1xxx"), (80, "1110", "xxx0xxx0x1xxx"),
    (1104, "11110", "xxxxx0xxx0x1xxx"), (5200, "", ""),
)  # fmt: skip
_SPATIAL = {"POINT": 1, "LINESTRING": 2, "POLYGON": 3}
_VALID, _ONE_POINT, _ONE_LINE = 0x04, 0x08, 0x10
_WKT = re.compile(r"\s*(POINT|LINESTRING|POLYGON)\s*(\(.*\)|EMPTY)\s*", re.IGNORECASE | re.DOTALL)


def _refused(kind: str, text: str) -> ProgrammingError:
    return ProgrammingError(
        "A .NET Framework error occurred during execution of user-defined routine or aggregate"
        f' "{kind}": the input could not be parsed (the emulator reads whole levels from -4168 to 5199 of a'
        " hierarchyid, and POINT, LINESTRING and POLYGON with two coordinates).",
        6522,
    )


def hierarchy_bytes(path: str) -> bytes:
    """The bytes of a node such as `/1/2/`; raises error 6522 for what is none."""
    if not re.fullmatch(r"/(-?\d+/)*", path):
        raise _refused("hierarchyid", path)
    bits = ""
    for level in path.strip("/").split("/") if path != "/" else ():
        number = int(level)
        found = next((a for a, b in itertools.pairwise(_ORDINALS) if a[0] <= number < b[0]), ("", "", ""))
        if not found[1]:
            raise _refused("hierarchyid", path)
        first, prefix, pattern = found
        digits = iter(format(number - int(first), f"0{pattern.count('x')}b"))
        bits += prefix + "".join(next(digits) if c == "x" else c for c in pattern) + "1"
    size = (len(bits) + 7) // 8
    return int(bits.ljust(size * 8, "0"), 2).to_bytes(size, "big") if size else b""


def hierarchy_text(raw: bytes) -> str:
    """The path of a node; raises error 6522 for bytes that are none of the levels that `hierarchy_bytes` writes."""
    bits = "".join(format(b, "08b") for b in raw)
    path = "/"
    while "1" in bits:
        for first, prefix, pattern in _ORDINALS[:-1]:
            body = bits[len(prefix) : len(prefix) + len(pattern)]
            fits = all(p == "x" or p == b for p, b in zip(pattern, body, strict=False))
            end = len(prefix) + len(pattern)
            if bits.startswith(prefix) and len(body) == len(pattern) and fits and bits[end : end + 1] == "1":
                path += f"{first + int(''.join(b for p, b in zip(pattern, body, strict=True) if p == 'x'), 2)}/"
                bits = bits[end + 1 :]
                break
        else:
            raise _refused("hierarchyid", raw.hex())
    return path


@dataclass(frozen=True)
class Shape:
    """A point, a line or a polygon with two coordinates per point.

    Args:
        kind: POINT, LINESTRING or POLYGON.
        figures: the points of each line or ring, in the order of the text (longitude first for geography).
        srid: the spatial reference.
    """

    kind: str
    figures: tuple[tuple[tuple[float, float], ...], ...]
    srid: int

    @classmethod
    def parse(cls, text: str, srid: int) -> Shape:
        """Read well-known text; raises error 6522."""
        found = _WKT.fullmatch(text)
        if found is None or found[2].upper() == "EMPTY":
            raise _refused("geometry", text)
        kind = found[1].upper()
        body = found[2][1:-1]
        rings = re.findall(r"\(([^()]*)\)", body) if kind == "POLYGON" else [body]
        try:
            figures = tuple(
                tuple((float(x), float(y)) for x, y in (p.split() for p in ring.split(","))) for ring in rings
            )
        except ValueError:
            raise _refused("geometry", text) from None
        return cls(kind, figures, srid)

    @classmethod
    def read(cls, raw: bytes, *, geography: bool) -> Shape:
        """Read the bytes that SQL Server keeps; raises error 6522."""
        srid, version, flags = struct.unpack_from("<iBB", raw)
        if version != 1 or flags & ~(_VALID | _ONE_POINT | _ONE_LINE):
            raise _refused("geometry", raw.hex())
        short = 1 if flags & _ONE_POINT else 2 if flags & _ONE_LINE else 0
        count = short or struct.unpack_from("<i", raw, 6)[0]
        at = 6 if short else 10
        points = [_turned(struct.unpack_from("<dd", raw, at + 16 * i), geography) for i in range(count)]
        if short:
            return cls("POINT" if short == 1 else "LINESTRING", (tuple(points),), srid)
        at += 16 * count
        (figures,) = struct.unpack_from("<i", raw, at)
        starts = [struct.unpack_from("<Bi", raw, at + 4 + 5 * i)[1] for i in range(figures)]
        at += 4 + 5 * figures
        kind = struct.unpack_from("<iiiB", raw, at)[3]
        names = {number: name for name, number in _SPATIAL.items()}
        ends = [*starts[1:], count]
        return cls(names[kind], tuple(tuple(points[a:b]) for a, b in zip(starts, ends, strict=True)), srid)

    def stored(self, *, geography: bool) -> bytes:
        """The bytes that SQL Server keeps: latitude before longitude for geography."""
        points = [_turned(p, geography) for figure in self.figures for p in figure]
        body = b"".join(struct.pack("<dd", *p) for p in points)
        if self.kind == "POINT":
            return struct.pack("<iBB", self.srid, 1, _VALID | _ONE_POINT) + body
        if self.kind == "LINESTRING" and len(points) == 2:
            return struct.pack("<iBB", self.srid, 1, _VALID | _ONE_LINE) + body
        head = struct.pack("<iBBi", self.srid, 1, _VALID, len(points)) + body
        figures, start = struct.pack("<i", len(self.figures)), 0
        for number, figure in enumerate(self.figures):
            # A line is a stroke; a polygon has one outer ring and then inner ones.
            figures += struct.pack("<Bi", 1 if self.kind == "LINESTRING" else 2 if number == 0 else 0, start)
            start += len(figure)
        return head + figures + struct.pack("<iiiB", 1, -1, 0, _SPATIAL[self.kind])

    @property
    def wkb(self) -> bytes:
        """Well-known binary, as STAsBinary gives it."""
        out = struct.pack("<BI", 1, _SPATIAL[self.kind])
        if self.kind == "POLYGON":
            out += struct.pack("<I", len(self.figures))
        for figure in self.figures:
            out += b"" if self.kind == "POINT" else struct.pack("<I", len(figure))
            out += b"".join(struct.pack("<dd", *p) for p in figure)
        return out

    @property
    def text(self) -> str:
        """Well-known text, as ToString gives it."""
        figures = [", ".join(f"{_number(x)} {_number(y)}" for x, y in figure) for figure in self.figures]
        inner = ", ".join(f"({f})" for f in figures) if self.kind == "POLYGON" else figures[0]
        return f"{self.kind} ({inner})"


def _turned(point: Sequence[float], geography: bool) -> tuple[float, float]:
    return (point[1], point[0]) if geography else (point[0], point[1])


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def stored(kind: str, text: str, srid: int | None = None) -> bytes:
    if kind == "hierarchyid":
        return hierarchy_bytes(text)
    geography = kind == "geography"
    return Shape.parse(text, (4326 if geography else 0) if srid is None else srid).stored(geography=geography)


def method(kind: str, name: str, raw: bytes | None) -> object:
    """What a method or property of a value gives.

    hierarchyid has ToString and GetLevel; the other two have ToString, STAsText, STAsBinary, STGeometryType and STSrid,
    and points STX and STY or Lat and Long.

    Raises:
        ProgrammingError: the type has no such method (6506).
    """
    if raw is None:
        return None
    if kind == "hierarchyid":
        if name == "TOSTRING":
            return hierarchy_text(raw)
        if name == "GETLEVEL":
            return hierarchy_text(raw).count("/") - 1
    else:
        shape = Shape.read(raw, geography=kind == "geography")
        x, y = shape.figures[0][0]
        found: dict[str, object] = {
            "TOSTRING": shape.text, "STASTEXT": shape.text, "STASBINARY": shape.wkb, "STSRID": shape.srid,
            "STGEOMETRYTYPE": {"POINT": "Point", "LINESTRING": "LineString", "POLYGON": "Polygon"}[shape.kind],
        }  # fmt: skip
        if shape.kind == "POINT":
            found |= {"LONG": x, "LAT": y} if kind == "geography" else {"STX": x, "STY": y}
        if name in found:
            return found[name]
    raise ProgrammingError(f"Could not find method '{name}' for type '{kind}' in assembly.", 6506)

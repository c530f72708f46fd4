"""SQL Server's data types: how they are declared, described in the catalog, kept in SQLite and given to Arrow."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from headrace_emulators.sqlserver.errors import NotSupportedError, ProgrammingError

DEFAULT_COLLATION = "SQL_Latin1_General_CP1_CI_AS"


@dataclass(frozen=True)
class Kind:
    """What all types of one name have in common.

    Args:
        family: bit, int, float, decimal, string, binary, date, time, datetime, offset, guid, clr or variant.
        system_type_id: the number in sys.types.
        affinity: how SQLite declares the column.
        rank: data type precedence; in a comparison the lower rank is converted to the higher.
        bytes: fixed length, 0 where it depends.
        digits: precision as sys.columns shows it, 0 where it depends.
        user: the number of the type itself, where types share a system_type_id.
    """

    family: str
    system_type_id: int
    affinity: str
    rank: int
    bytes: int = 0
    digits: int = 0
    user: int = 0

    @property
    def user_type_id(self) -> int:
        return self.user or self.system_type_id


KINDS: dict[str, Kind] = {
    "image": Kind("binary", 34, "BLOB", 4, 16),
    "text": Kind("string", 35, "TEXT", 5, 16),
    "uniqueidentifier": Kind("guid", 36, "TEXT", 6, 16),
    "date": Kind("date", 40, "TEXT", 16, 3, 10),
    "time": Kind("time", 41, "TEXT", 15),
    "datetime2": Kind("datetime", 42, "TEXT", 19),
    "datetimeoffset": Kind("offset", 43, "TEXT", 20),
    "tinyint": Kind("int", 48, "INTEGER", 9, 1, 3),
    "smallint": Kind("int", 52, "INTEGER", 10, 2, 5),
    "int": Kind("int", 56, "INTEGER", 11, 4, 10),
    "smalldatetime": Kind("datetime", 58, "TEXT", 17, 4, 16),
    "real": Kind("float", 59, "REAL", 13, 4, 24),
    "money": Kind("decimal", 60, "TEXT", 12, 8, 19),
    "datetime": Kind("datetime", 61, "TEXT", 18, 8, 23),
    "float": Kind("float", 62, "REAL", 14, 8, 53),
    "ntext": Kind("string", 99, "TEXT", 5, 16),
    "bit": Kind("bit", 104, "INTEGER", 8, 1, 1),
    "decimal": Kind("decimal", 106, "TEXT", 12),
    "numeric": Kind("decimal", 108, "TEXT", 12),
    "smallmoney": Kind("decimal", 122, "TEXT", 12, 4, 10),
    "bigint": Kind("int", 127, "INTEGER", 12, 8, 19),
    "varbinary": Kind("binary", 165, "BLOB", 1),
    "varchar": Kind("string", 167, "TEXT", 2),
    "binary": Kind("binary", 173, "BLOB", 1),
    "char": Kind("string", 175, "TEXT", 2),
    "timestamp": Kind("binary", 189, "BLOB", 1, 8),
    "nvarchar": Kind("string", 231, "TEXT", 3),
    "nchar": Kind("string", 239, "TEXT", 3),
    "sql_variant": Kind("variant", 98, "", 22, 8016),
    "hierarchyid": Kind("clr", 240, "BLOB", 23, 892, user=128),
    "geometry": Kind("clr", 240, "BLOB", 24, -1, user=129),
    "geography": Kind("clr", 240, "BLOB", 25, -1, user=130),
    "xml": Kind("string", 241, "TEXT", 21, -1),
}
LARGE_KINDS = frozenset(("text", "ntext", "image"))
_SIZED = frozenset(("varbinary", "varchar", "binary", "char", "nvarchar", "nchar"))
_SYNONYMS = {
    "rowversion": "timestamp", "integer": "int", "dec": "decimal", "character": "char", "character varying": "varchar",
    "char varying": "varchar", "national character": "nchar", "national character varying": "nvarchar",
    "binary varying": "varbinary", "double precision": "float",
}  # fmt: skip
_MONEY = {"money": (19, 4), "smallmoney": (10, 4)}
_DECLARATION = re.compile(r"\s*\[?([a-z][a-z0-9_ ]*?)\]?\s*(?:\(\s*(\d+|max)\s*(?:,\s*(\d+)\s*)?\))?\s*", re.IGNORECASE)
_COLLATES = {
    "string": DEFAULT_COLLATION,
    "decimal": "emulator_decimal",
    "guid": "emulator_guid",
    "offset": "emulator_instant",
}


@dataclass(frozen=True)
class SqlType:
    """A declared type.

    Args:
        name: the base name in lower case.
        length: characters or bytes of the sized types, -1 for MAX.
        precision: digits of decimal types.
        scale: digits after the point, or fraction digits of seconds.
        collation: SQL Server's name of a string's collation; empty for the database's.
    """

    name: str
    length: int = 0
    precision: int = 0
    scale: int = 0
    collation: str = ""

    @property
    def kind(self) -> Kind:
        return KINDS[self.name]

    @property
    def family(self) -> str:
        """The family of types that values can be compared within."""
        return self.kind.family

    @property
    def large(self) -> bool:
        """Whether a change table leaves an unchanged value out."""
        return self.length == -1 or self.name in LARGE_KINDS or self.name in ("xml", "geometry", "geography")

    @property
    def wide(self) -> bool:
        """Whether characters count two bytes."""
        return self.name in ("nchar", "nvarchar")

    @property
    def declaration(self) -> str:
        if self.name in _SIZED:
            return f"{self.name}({'max' if self.length == -1 else self.length})"
        if self.name in ("decimal", "numeric"):
            return f"{self.name}({self.precision},{self.scale})"
        if self.name in ("time", "datetime2", "datetimeoffset"):
            return f"{self.name}({self.scale})"
        return self.name

    @property
    def collate(self) -> str:
        """The SQLite collation that orders values as SQL Server does; empty where SQLite's own order is right."""
        if self.family == "string" and self.collation:
            return sqlite_collation(self.collation, wide=self.wide or self.name in ("ntext", "xml"))
        return _COLLATES.get(self.family, "")

    @property
    def max_length(self) -> int:
        """Bytes, as sys.columns shows them."""
        if self.name in _SIZED:
            return self.length * 2 if self.wide and self.length > 0 else self.length
        if self.name in ("decimal", "numeric"):
            return 5 if self.precision <= 9 else 9 if self.precision <= 19 else 13 if self.precision <= 28 else 17
        if self.name in ("time", "datetime2", "datetimeoffset"):
            step = 0 if self.scale <= 2 else 1 if self.scale <= 4 else 2
            return {"time": 3, "datetime2": 6, "datetimeoffset": 8}[self.name] + step
        return self.kind.bytes

    @property
    def shown_precision(self) -> int:
        """Precision, as sys.columns shows it."""
        base = {"time": 8, "datetime2": 19, "datetimeoffset": 26}.get(self.name)
        if base is not None:
            return base + (self.scale + 1 if self.scale else 0)
        return self.precision or self.kind.digits

    @property
    def shown_scale(self) -> int:
        """Scale, as sys.columns shows it."""
        return 3 if self.name == "datetime" else self.scale

    @property
    def arrow(self) -> pa.DataType:
        """What the driver's Arrow fetch gives for it; raises error 0 for sql_variant, which it can't fetch."""
        return _arrow(self)


def _arrow(declared: SqlType) -> pa.DataType:
    if declared.family == "decimal":
        return pa.decimal128(declared.precision, declared.scale)
    if declared.family == "int":
        return {"tinyint": pa.uint8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64()}[declared.name]
    if declared.family == "float":
        return pa.float32() if declared.name == "real" else pa.float64()
    if declared.family == "variant":
        raise NotSupportedError("Unsupported data type for Arrow batch fetch, Type - -150.")
    return {
        "bit": pa.bool_(), "string": pa.large_string(), "guid": pa.large_string(), "binary": pa.large_binary(),
        "clr": pa.large_binary(), "date": pa.date32(), "time": pa.time64("ns"), "datetime": pa.timestamp("us"),
        "offset": pa.timestamp("us", "+00:00"),
    }[declared.family]  # fmt: skip


_COLLATION = re.compile(
    r"(?:SQL_)?\w+?_(?:BIN|BIN2|C[IS]_A[IS](?:_KS)?(?:_WS)?(?:_VSS)?(?:_SC)?)(?:_UTF8)?", re.IGNORECASE
)


def check_collation(name: str) -> None:
    """Refuse an unknown collation (error 448)."""
    if _COLLATION.fullmatch(name) is None:
        raise ProgrammingError(f"Invalid collation '{name}'.", 448)


@lru_cache(maxsize=1024)
def sqlite_collation(name: str, *, wide: bool) -> str:
    """The SQLite collation for one of SQL Server's.

    Args:
        name: of `_BIN` and `_BIN2` the order is that of codes; of others case and accents count as the name has it.
        wide: whether characters are Unicode; else codes are those of the code page.
    """
    upper = name.upper()
    if "_BIN" in upper:
        return "emulator_codes" if wide or upper.endswith("_UTF8") else "emulator_code_page"
    plain = upper.startswith("SQL_")
    case, accent = "_CS_" in upper, "_AS" in upper
    if plain and accent and not case:
        return DEFAULT_COLLATION
    return f"emulator_{'sql' if plain else 'words'}_{'cs' if case else 'ci'}_{'as' if accent else 'ai'}"


CASE_SENSITIVE = frozenset((
    "emulator_codes", "emulator_code_page", "emulator_sql_cs_as", "emulator_sql_cs_ai", "emulator_words_cs_as",
    "emulator_words_cs_ai",
))  # fmt: skip
"""SQLite collations that distinguish upper from lower case."""


@lru_cache(maxsize=4096)
def parse_type(text: str, collation: str = "") -> SqlType:
    """Read a declaration such as `decimal(10,2)` or `[nvarchar](max)`.

    Raises:
        ProgrammingError: no such type (error 2715).
    """
    found = _DECLARATION.fullmatch(text)
    name = " ".join(found[1].lower().split()) if found else ""
    name = _SYNONYMS.get(name, name)
    if found is None or (name not in KINDS and name not in ("sysname", "float")):
        raise ProgrammingError(f"Cannot find data type {text.strip()}.", 2715)
    first, second = found[2], found[3]
    if name == "sysname":
        return SqlType("nvarchar", 128, collation=collation)
    if name in _MONEY:
        return SqlType(name, 0, *_MONEY[name])
    if name in ("decimal", "numeric"):
        return SqlType(name, 0, int(first or 18), int(second or 0))
    if name in ("time", "datetime2", "datetimeoffset"):
        return SqlType(name, scale=int(first if first is not None else 7))
    if name == "float":
        return SqlType("real" if first and int(first) <= 24 else "float")
    if name in _SIZED:
        length = -1 if first and first.lower() == "max" else int(first or 1)
        return SqlType(name, length, collation=collation)
    return SqlType(name, collation=collation if KINDS[name].family == "string" else "")


def cast_type(text: str) -> SqlType:
    """The type of a CAST: as declared, but a sized type without a size has 30 characters or bytes, not 1."""
    declared = parse_type(text)
    return SqlType(declared.name, 30) if declared.name in _SIZED and "(" not in text else declared


INT, BIGINT, BIT, FLOAT = SqlType("int"), SqlType("bigint"), SqlType("bit"), SqlType("float")
SYSNAME, NVARCHAR_MAX, LSN = SqlType("nvarchar", 128), SqlType("nvarchar", -1), SqlType("binary", 10)
DATETIME, DATETIME2, DATETIMEOFFSET = (
    SqlType("datetime"),
    SqlType("datetime2", scale=7),
    SqlType("datetimeoffset", scale=7),
)

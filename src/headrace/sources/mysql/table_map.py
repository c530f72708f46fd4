"""What the log says of a table before its rows: a TABLE_MAP event.

With `binlog_row_metadata=FULL` it names all that is needed to read rows: columns, signs, collations, labels, the
primary key. With less it says only how values lie in the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from headrace.errors import CaptureError
from headrace.sources.mysql.events import EventBytes

NAME = "TABLE_MAP"
_ID_AND_FLAGS = 8
GEOMETRY, STRING, ENUM, SET, VECTOR = 255, 254, 247, 248, 242
_META_SIZES = {
    **dict.fromkeys((0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 12, 13, 14), 0),
    **dict.fromkeys((4, 5, 17, 18, 19, 140, VECTOR, 245, 249, 250, 251, 252, GEOMETRY), 1),
    **dict.fromkeys((15, 16, 141, 246, ENUM, SET, 253, STRING), 2),
}
"""How many bytes of `meta` each type has."""
_NUMERIC = frozenset((0, 1, 2, 3, 4, 5, 8, 9, 13, 246))
_CHARACTER = frozenset((15, 249, 250, 251, 252, 253, STRING))
_MYSQL_CHARACTER = _CHARACTER | {VECTOR}
_MARIADB_CHARACTER = _CHARACTER | {GEOMETRY, 140, 141}
T = TypeVar("T")


class _Field(IntEnum):
    SIGNEDNESS = 1
    DEFAULT_CHARSET = 2
    COLUMN_CHARSET = 3
    COLUMN_NAME = 4
    SET_LABELS = 5
    ENUM_LABELS = 6
    GEOMETRY_TYPE = 7
    PRIMARY_KEY = 8
    PRIMARY_KEY_WITH_PREFIX = 9
    DEFAULT_LABEL_CHARSET = 10
    COLUMN_LABEL_CHARSET = 11
    VISIBILITY = 12
    VECTOR_DIMENSION = 13


@dataclass(frozen=True)
class MapColumn:
    """A column as a TABLE_MAP has it. What it does not say is None.

    Args:
        code: its type on the wire.
        meta: what stands beside the type: one byte, or two with the first one low.
        nullable: whether it may be NULL.
        name: its name.
        unsigned: whether a number has no sign.
        collation: the number of its collation; of ENUM and SET that of the labels.
        labels: those of ENUM and SET, in the bytes of their collation's character set.
        geometry: which geometry it holds, 0 for any.
        dimension: how many numbers a vector has at the most.
        visible: whether `SELECT *` shows it.
    """

    code: int
    meta: int
    nullable: bool
    name: str | None = None
    unsigned: bool | None = None
    collation: int | None = None
    labels: tuple[bytes, ...] | None = None
    geometry: int | None = None
    dimension: int | None = None
    visible: bool | None = None

    @property
    def real(self) -> int:
        """The type: that of ENUM and SET too, which come as strings."""
        first = self.meta & 0xFF
        return first if self.code == STRING and first in (ENUM, SET) else self.code


@dataclass(frozen=True)
class KeyPart:
    """A column of a primary key.

    Args:
        column: its number in the table, from 0.
        prefix: how many characters of it the key has; 0 for all.
    """

    column: int
    prefix: int = 0


@dataclass(frozen=True)
class TableMap:
    """A table as it was when the rows that follow were changed.

    Args:
        database: the database it is in.
        name: what it was called.
        columns: in the order of a row's values.
        primary_key: in key order; empty where there is none or the log does not say it.
    """

    database: str
    name: str
    columns: tuple[MapColumn, ...]
    primary_key: tuple[KeyPart, ...] = ()

    @property
    def named(self) -> bool:
        """Whether columns have their names, so that nothing else is needed to read rows."""
        return all(column.name is not None for column in self.columns)


def table_id(body: bytes) -> int:
    """The number by which rows events speak of the table; it means nothing beyond its statement."""
    return EventBytes(body, NAME).number(6)


def description(body: bytes) -> bytes:
    """What describes the table: all but its number, which changes with each restart."""
    return body[_ID_AND_FLAGS:]


def table_named(described: bytes) -> tuple[str, str]:
    """Database and name of the table that a description is of.

    Raises:
        FormatError: it is cut off.
    """
    data = EventBytes(described, NAME)
    return data.name_and_zero(), data.name_and_zero()


def read_table_map(described: bytes, *, mariadb: bool) -> TableMap:
    """A whole description.

    Args:
        described: as `description` has it.
        mariadb: whether MariaDB wrote it, which counts other columns among those with a collation.

    Raises:
        FormatError: a part is cut off or contradicts another.
        CaptureError: a column is of an unknown type.
    """
    data = EventBytes(described, NAME)
    database, name = data.name_and_zero(), data.name_and_zero()
    codes = data.take(data.packed())
    metas = data.part(data.packed())
    columns = []
    for number, code in enumerate(codes, 1):
        size = _META_SIZES.get(code)
        if size is None:
            raise CaptureError(
                f"Column {number} of table '{database}.{name}' is of type {code} on the wire, which is not known.",
                remedy="Leave the table out of 'tables'.",
            )
        columns.append((code, metas.number(size)))
    metas.finish()
    nulls = _low_bits(data, len(codes))
    plain = [MapColumn(code, meta, null) for (code, meta), null in zip(columns, nulls, strict=True)]
    fields = _Fields(plain, _MARIADB_CHARACTER if mariadb else _MYSQL_CHARACTER)
    while data.left:
        kind = data.number(1)
        fields.read(kind, data.part(data.packed()))
    return TableMap(database, name, fields.columns(), fields.primary_key)


class _Fields:
    def __init__(self, plain: Sequence[MapColumn], character: frozenset[int]) -> None:
        self._plain = plain
        self._count = len(plain)
        reals = [column.real for column in plain]
        self._numeric = [n for n, code in enumerate(reals) if code in _NUMERIC]
        self._character = [n for n, code in enumerate(reals) if code in character]
        self._labelled = [n for n, code in enumerate(reals) if code in (ENUM, SET)]
        self._of_code = {code: [n for n, real in enumerate(reals) if real == code] for code in set(reals)}
        self._names: dict[int, str] = {}
        self._unsigned: dict[int, bool] = {}
        self._collations: dict[int, int] = {}
        self._labels: dict[int, tuple[bytes, ...]] = {}
        self._geometries: dict[int, int] = {}
        self._dimensions: dict[int, int] = {}
        self._visible: dict[int, bool] = {}
        self.primary_key: tuple[KeyPart, ...] = ()

    def read(self, kind: int, data: EventBytes) -> None:
        """Read one field; one of an unknown kind is left out, as its length allows."""
        match kind:
            case _Field.SIGNEDNESS:
                self._unsigned |= zip(self._numeric, _high_bits(data, len(self._numeric)), strict=True)
            case _Field.DEFAULT_CHARSET:
                self._collations |= _with_default(data, self._character)
            case _Field.COLUMN_CHARSET:
                self._collations |= _each(data, self._character, data.packed)
            case _Field.COLUMN_NAME:
                self._names |= _each(data, range(self._count), data.name)
            case _Field.SET_LABELS:
                self._labels |= _each(data, self._of_code.get(SET, ()), lambda: _texts(data))
            case _Field.ENUM_LABELS:
                self._labels |= _each(data, self._of_code.get(ENUM, ()), lambda: _texts(data))
            case _Field.GEOMETRY_TYPE:
                self._geometries |= _each(data, self._of_code.get(GEOMETRY, ()), data.packed)
            case _Field.PRIMARY_KEY:
                self.primary_key = self._key(data, lambda: KeyPart(data.packed()))
            case _Field.PRIMARY_KEY_WITH_PREFIX:
                self.primary_key = self._key(data, lambda: KeyPart(data.packed(), data.packed()))
            case _Field.DEFAULT_LABEL_CHARSET:
                self._collations |= _with_default(data, self._labelled)
            case _Field.COLUMN_LABEL_CHARSET:
                self._collations |= _each(data, self._labelled, data.packed)
            case _Field.VISIBILITY:
                self._visible |= zip(range(self._count), _high_bits(data, self._count), strict=True)
            case _Field.VECTOR_DIMENSION:
                self._dimensions |= _each(data, self._of_code.get(VECTOR, ()), data.packed)
            case _:
                return
        data.finish()

    def columns(self) -> tuple[MapColumn, ...]:
        return tuple(
            MapColumn(
                column.code,
                column.meta,
                column.nullable,
                self._names.get(n),
                self._unsigned.get(n),
                self._collations.get(n),
                self._labels.get(n),
                self._geometries.get(n),
                self._dimensions.get(n),
                self._visible.get(n),
            )
            for n, column in enumerate(self._plain)
        )

    def _key(self, data: EventBytes, part: Callable[[], KeyPart]) -> tuple[KeyPart, ...]:
        parts = []
        while data.left:
            parts.append(part())
            if parts[-1].column >= self._count:
                raise data.wrong("has a key of columns that the table has not")
        return tuple(parts)


def _each(data: EventBytes, columns: Sequence[int], value: Callable[[], T]) -> dict[int, T]:
    return {column: value() for column in columns}


def _with_default(data: EventBytes, columns: Sequence[int]) -> dict[int, int]:
    """A value for all of these columns, and others for some by their position among them."""
    numbers = dict.fromkeys(columns, data.packed())
    while data.left:
        index = data.packed()
        if index >= len(columns):
            raise data.wrong("has a collation of a column that the table has not")
        numbers[columns[index]] = data.packed()
    return numbers


def _texts(data: EventBytes) -> tuple[bytes, ...]:
    return tuple(data.packed_text() for _ in range(data.packed()))


def _low_bits(data: EventBytes, count: int) -> list[bool]:
    octets = data.take((count + 7) // 8)
    return [bool(octets[n >> 3] >> (n & 7) & 1) for n in range(count)]


def _high_bits(data: EventBytes, count: int) -> list[bool]:
    """Bits with the highest of each byte first."""
    octets = data.take((count + 7) // 8)
    return [bool(octets[n >> 3] << (n & 7) & 0x80) for n in range(count)]

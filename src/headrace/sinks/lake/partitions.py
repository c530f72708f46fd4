"""Partitions of lakehouse tables: all rows of a data file have the same partition values.

A value comes from one column: its own, or a part of it as Iceberg's specification computes it. Files of several
partitions never become one. Where a file of a partition lies is all one to both formats, which keep the values in
their logs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.changes.table import TableId
from headrace.changes.typed import quote
from headrace.errors import OptionError
from headrace.options import bare, items
from headrace.sinks.lake.catalog import escaped

IDENTITY, PLAIN = "identity", "plain"
_UNITS = {"year": "Y", "month": "M", "day": "D", "hour": "h"}
_NUMBERED = ("bucket", "truncate")
_CALL = re.compile(rf"({'|'.join(_UNITS)})\((.+)\)|({'|'.join(_NUMBERED)})\(\s*([1-9][0-9]{{0,8}})\s*,\s*(.+)\)")
_OUTSIDE = re.compile(r",(?![^(]*\))")
_ICEBERG = re.compile(r"(\w+)(?:\[([0-9]+)\])?")
_LONGEST_FOLDER = 200
_INTEGERS = frozenset(["tinyint", "smallint", "int", "bigint"])
_MOMENTS = frozenset(["timestamp", "timestamp_ntz"])
_PLAIN = _INTEGERS | {"boolean", "date", "string", "decimal"}
_TAKES: dict[str, Collection[str]] = {
    IDENTITY: _PLAIN | _MOMENTS,
    # Delta writes moments of partitions in several ways.
    PLAIN: _PLAIN,
    **dict.fromkeys(("year", "month", "day"), _MOMENTS | {"date"}),
    "hour": _MOMENTS,
    "bucket": _INTEGERS | _MOMENTS | {"date", "string", "decimal", "binary"},
    "truncate": _INTEGERS | {"string", "decimal", "binary"},
}
"""The Spark types of columns, without digits, of which there are such values."""


@dataclass(frozen=True)
class PartitionField:
    """One value by which a table is partitioned.

    Args:
        column: where it comes from.
        transform: what of the column it is; one of Iceberg's transforms.
        number: of buckets, or how much a truncated value has.
    """

    column: str
    transform: str = IDENTITY
    number: int = 0

    @property
    def ddl(self) -> str:
        """As Spark's `partitioned by` has it."""
        if self.transform in (IDENTITY, PLAIN):
            return quote(self.column)
        if self.transform in _UNITS:
            return f"{self.transform}s({quote(self.column)})"
        return f"{self.transform}({self.number}, {quote(self.column)})"

    def takes(self, kind: str) -> bool:
        """Whether a column of this Spark type has such values."""
        return kind.partition("(")[0] in _TAKES.get(self.transform, ())

    def of(self, values: pa.Array) -> pa.Array:
        """The partition values of a column's values; null of null."""
        if self.transform in (IDENTITY, PLAIN):
            return values
        if self.transform in _UNITS:
            unit = _UNITS[self.transform]
            return _numbers(values, lambda numbers: _moments(values.type, numbers).astype(f"datetime64[{unit}]"))
        if self.transform == "bucket":
            return _numbers(values, lambda _: (_hashes(values) & 0x7FFFFFFF) % self.number, pa.int32())
        kind = values.type
        if pa.types.is_string(kind):
            return pc.utf8_slice_codeunits(values, 0, self.number)
        if pa.types.is_binary(kind):
            return pc.binary_slice(values, 0, self.number)
        if pa.types.is_decimal(kind):
            grain = Decimal(self.number).scaleb(-kind.scale)
            codes = values.dictionary_encode()
            least = [value - (value % grain + grain) % grain for value in codes.dictionary.to_pylist()]
            return pa.array(least, pa.decimal128(38, kind.scale)).take(codes.indices)
        return _numbers(values, lambda numbers: numbers - np.mod(numbers, self.number), kind)


@dataclass(frozen=True)
class Partition:
    """Some of a table's rows.

    Args:
        values: its partition values, as Python has them. Days and moments are numbers: of days and microseconds,
            or of a transform's units since 1970.
        folder: for its files, relative to the table's, with `/` at its end; empty for that itself.
    """

    values: tuple[Any, ...] = ()
    folder: str = ""


WHOLE = Partition()
"""All rows of a table without partitions."""


@dataclass(frozen=True)
class Partitioning:
    """By what a table is partitioned; without a field it has no partitions."""

    fields: tuple[PartitionField, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(field.column for field in self.fields)

    @property
    def parts(self) -> list[tuple[str, str, int]]:
        return [(field.column, field.transform, field.number) for field in self.fields]

    @property
    def ddl(self) -> str:
        """What follows the format in `create table`; empty for none."""
        return f" partitioned by ({', '.join(field.ddl for field in self.fields)})" if self.fields else ""

    def odd_column(self, columns: Mapping[str, str]) -> str:
        """The first column that has no such values, as the end of a sentence; empty for none.

        Args:
            columns: those of the table, with Spark's types.
        """
        odd = (field for field in self.fields if not field.takes(columns.get(field.column, "")))
        return next((f"column '{field.column}', which is {columns.get(field.column)}" for field in odd), "")

    def loses(self, partition: Partition) -> bool:
        """Whether the format's log would have null for one of the values: for an empty text, in Delta."""
        pairs = zip(self.fields, partition.values, strict=True)
        return any(field.transform == PLAIN and value == "" for field, value in pairs)

    def split(self, rows: pa.Table) -> list[tuple[Partition, pa.Table]]:
        """The rows by partition, in their order; none where there are no rows."""
        if not rows.num_rows:
            return []
        if not self.fields:
            return [(WHOLE, rows)]
        kinds = [field.of(_one(rows.column(field.column))) for field in self.fields]
        indexes = np.zeros(rows.num_rows, np.int64)
        for values in kinds:
            coded = values.dictionary_encode(null_encoding="encode")
            _, indexes = np.unique(indexes * len(coded.dictionary) + coded.indices.to_numpy(), return_inverse=True)
        order = np.argsort(indexes, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(indexes[order])) + 1)
        return [
            (self._partition([values[int(part[0])] for values in kinds]), rows.take(pa.array(part))) for part in parts
        ]

    def _partition(self, scalars: Sequence[pa.Scalar]) -> Partition:
        values = tuple(map(_plain, scalars))
        named = zip(self.fields, values, strict=True)
        parts = [f"{escaped(field.column)}={escaped(f'{value}')}/" for field, value in named]
        # A file system takes no longer names, and to formats folders mean nothing.
        return Partition(values, "".join(parts) if max(map(len, parts)) <= _LONGEST_FOLDER else "")


UNPARTITIONED = Partitioning()


def partitioning_of(listed: Sequence[str], table: TableId, columns: Collection[str]) -> Partitioning:
    """How a new table is partitioned.

    Args:
        listed: as the option `partition_by` has it.
        table: the source's table.
        columns: those of the target.

    Raises:
        OptionError: something is not a column, and no part of one.
    """
    fields = []
    for field in map(parse_field, listed):
        names = {f"{prefix}{name}": name for name in columns for prefix in ("", f"{table.name}.", f"{table.path}.")}
        if field.column in names:
            fields.append(PartitionField(names[field.column], field.transform, field.number))
    return Partitioning(tuple(fields))


def listed_fields(given: Any) -> tuple[str, ...]:
    """The kind of an option that lists columns and parts of columns; in text a comma within brackets divides nothing.

    Raises:
        OptionError: one is another call.
    """
    fields = tuple(items(given, _OUTSIDE.split))
    for text in fields:
        parse_field(text)
    return fields


def parse_field(text: str) -> PartitionField:
    """`region`, `day(created)` or `bucket(16, id)`.

    Raises:
        OptionError: it is another call.
    """
    text = bare(text).strip()
    call = _CALL.fullmatch(text)
    if call:
        unit, of_unit, numbered, number, of_number = call.groups()
        if unit:
            return PartitionField(of_unit.strip(), unit)
        return PartitionField(of_number.strip(), numbered, int(number))
    if re.fullmatch(r"\w+\(.*\)", text):
        raise OptionError(
            f"'{text}' of option 'partition_by' is no way to partition a table.",
            remedy="Write a column, year(column), month(column), day(column), hour(column), bucket(16, column) or "
            "truncate(4, column).",
            option="partition_by",
        )
    return PartitionField(text)


def column_of(text: str) -> str:
    """The column that `day(created)` or `bucket(16, id)` names."""
    return parse_field(text).column


def of_iceberg(column: str, transform: str) -> PartitionField | None:
    """A field of a table that is there; None for a transform that is not known here.

    Args:
        column: its source.
        transform: as Iceberg writes it, `bucket[16]`.
    """
    match = _ICEBERG.fullmatch(transform)
    if match is None or match[1] not in _TAKES.keys() - {PLAIN} or (match[1] in _NUMBERED) != bool(match[2]):
        return None
    return PartitionField(column, match[1], int(match[2] or 0))


def iceberg_value(field: PartitionField, kind: str, value: Any) -> Any:
    """A partition's value as Iceberg's JSON has single values.

    Args:
        field: which one.
        kind: the Spark type of its column.
        value: as a `Partition` has it.
    """
    if value is None or field.transform in ("bucket", "year", "month", "hour"):
        return value
    if field.transform == "day" or kind == "date":
        return str(np.datetime64(value, "D"))
    if kind in _MOMENTS:
        return str(np.datetime64(value, "us")) + ("+00:00" if kind == "timestamp" else "")
    if isinstance(value, Decimal):
        return f"{value:f}"
    return value.hex().upper() if isinstance(value, bytes) else value


def delta_value(value: Any, kind: str) -> str | None:
    """A partition's value as Delta's log has it. An empty text is null there, as in every writer of Delta.

    Args:
        value: as a `Partition` has it.
        kind: the Spark type of its column.
    """
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if kind == "date":
        return str(np.datetime64(value, "D"))
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays([pa.array([], column.type), *column.chunks])


def _plain(value: pa.Scalar) -> Any:
    if pa.types.is_date32(value.type) or pa.types.is_timestamp(value.type):
        return value.value
    return value.as_py()


def _integers(values: pa.Array) -> NDArray[np.int64]:
    integers = values.cast(pa.int32()) if pa.types.is_date32(values.type) else values
    filled: NDArray[np.int64] = pc.fill_null(integers.cast(pa.int64()), 0).to_numpy()
    return filled


def _numbers(
    values: pa.Array, compute: Callable[[NDArray[np.int64]], NDArray[Any]], kind: pa.DataType | None = None
) -> pa.Array:
    numbered = not (pa.types.is_string(values.type) or pa.types.is_binary(values.type))
    given = _integers(values) if numbered and not pa.types.is_decimal(values.type) else np.empty(0, np.int64)
    numbers = pa.array(compute(given).astype(np.int64), mask=~values.is_valid().to_numpy(zero_copy_only=False))
    # Java's numbers go on with the least one after the greatest.
    return numbers.cast(kind or pa.int32(), safe=False)


def _moments(kind: pa.DataType, moments: NDArray[np.int64]) -> NDArray[np.datetime64]:
    return moments.astype("datetime64[D]" if pa.types.is_date32(kind) else "datetime64[us]")


def _hashes(values: pa.Array) -> NDArray[np.uint32]:
    """Iceberg's hash of each value (32 bits of Murmur 3): of its eight bytes, or of what it is written with."""
    kind = values.type
    if pa.types.is_decimal(kind):
        # Arrow has no bytes of them as Java's numbers have them; each value comes to Python once.
        codes = values.dictionary_encode()
        texts = [_bytes(value.as_py(), kind.scale) for value in codes.dictionary]
        return _hashes_of_bytes(pa.array(texts, pa.binary()).take(codes.indices))
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _hashes_of_bytes(values.cast(pa.binary()))
    parts = _integers(values).astype("<i8").view("<u4").reshape(-1, 2)
    return _finished(_mixed(_mixed(np.zeros(len(parts), np.uint32), parts[:, 0]), parts[:, 1]), np.uint32(8))


def _bytes(value: Decimal, scale: int) -> bytes:
    whole = int(value.scaleb(scale))
    return whole.to_bytes((whole if whole >= 0 else ~whole).bit_length() // 8 + 1, "big", signed=True)


def _hashes_of_bytes(values: pa.Array) -> NDArray[np.uint32]:
    filled = pc.fill_null(values, b"")
    _, offsets, data = filled.buffers()
    ends = np.frombuffer(offsets, np.int32)[filled.offset : filled.offset + len(filled) + 1].astype(np.int64)
    octets = np.frombuffer(data or b"", np.uint8).astype(np.uint32)
    sizes = np.diff(ends)
    state = np.zeros(len(sizes), np.uint32)
    left = np.arange(len(sizes))
    for at in range(int(sizes.max(initial=0)) // 4):
        left = left[sizes[left] >= 4 * at + 4]
        indexes = ends[left] + 4 * at
        block = np.zeros(len(left), np.uint32)
        for n in range(4):
            block |= octets[indexes + n] << np.uint32(8 * n)
        state[left] = _mixed(state[left], block)
    tails = np.zeros(len(sizes), np.uint32)
    for n in range(3):
        longer = np.flatnonzero(sizes % 4 > n)
        tails[longer] |= octets[ends[longer] + sizes[longer] // 4 * 4 + n] << np.uint32(8 * n)
    # Of nothing it is zero.
    return _finished(state ^ _scrambled(tails), sizes.astype(np.uint32))


def _scrambled(block: NDArray[np.uint32]) -> NDArray[np.uint32]:
    return _turned(block * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)


def _mixed(state: NDArray[np.uint32], block: NDArray[np.uint32]) -> NDArray[np.uint32]:
    return _turned(state ^ _scrambled(block), 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _turned(bits: NDArray[np.uint32], by: int) -> NDArray[np.uint32]:
    return (bits << np.uint32(by)) | (bits >> np.uint32(32 - by))


def _finished(state: NDArray[np.uint32], length: np.uint32 | NDArray[np.uint32]) -> NDArray[np.uint32]:
    state = state ^ length
    state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return state ^ (state >> np.uint32(16))

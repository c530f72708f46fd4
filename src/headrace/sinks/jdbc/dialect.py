"""How a database writes what a mirror needs: names, types, structure, and the statements that apply a staged batch.

A batch comes as rows of a staging table whose columns have Headrace's own names, which can't clash with the source's:

| column | meaning |
|---|---|
| `l` | by which attempt of which task the row was brought; rows of attempts that failed are never looked at |
| `o` | `d` delete, `u` upsert of a whole row, `p` upsert of a row that may lack values; without a key `i` insert |
| `p` | position of the key's last change |
| `m` | null: every column is written. Otherwise a `1` (write it) or `0` (keep the target's) per column beside the key |
| `f` | position of the first change that had a part in the row; null where no change lacks columns |
| `n` | without a key: how many rows of the target a delete stands for |
| `c0`, `c1`, ... | the values, typed as in the target |

There is at most one row per key and attempt (see `headrace.apply.fold`).

A column is widened only to a type that holds every value of its own.
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from headrace.apply.sequence import END, GIVEN, MARK, SUFFIX
from headrace.changes.table import Column, TableSchema
from headrace.changes.types import LogicalType
from headrace.errors import SchemaError
from headrace.sinks.column_rules import ColumnRules

POSITION = Column("", 0, LogicalType("string"))
_STAGE = "_headrace_stage_"
BATCH_OFFSETS = "batch_offsets"
"""The progress table's column for a batch's number with the hash of its offsets; earlier releases made none."""
FORMAT_VERSION = "format_version"
"""The progress table's column for the version of a target's layout; without it 1. Earlier releases made none, and none
is added to their tables before a layout needs it."""
_LABEL = re.compile(r"[0-9a-z]+")


@dataclass(frozen=True, order=True)
class TableName:
    """Where a table lies in a database; what MariaDB calls a database is a schema here."""

    schema: str
    name: str

    def __str__(self) -> str:
        return ".".join(part for part in (self.schema, self.name) if part)


def stage_of(mirror: TableName) -> TableName:
    text = hashlib.sha256(mirror.name.encode()).hexdigest()[:16]
    return TableName(mirror.schema, f"{_STAGE}{text}")


@dataclass(frozen=True)
class Mirror:
    """A table of a database that is kept equal to a source table.

    Args:
        name: where it lies.
        source: the source table's structure.
        position_column: the name of our column in it.
    """

    name: TableName
    source: TableSchema
    position_column: str

    @property
    def stage(self) -> TableName:
        """The table that takes the rows of a batch before they are applied; it lies beside the mirror."""
        return stage_of(self.name)

    @cached_property
    def key(self) -> tuple[tuple[str, str], ...]:
        """Key columns: the name, and the name in the staging table."""
        return tuple((name, self._staged[name]) for name in self.source.key)

    @cached_property
    def rest(self) -> tuple[tuple[str, str], ...]:
        """The columns beside the key, in the order of the mask: the name, and the name in the staging table."""
        return tuple((name, staged) for name, staged in self._staged.items() if name not in self.source.key)

    @property
    def all(self) -> tuple[tuple[str, str], ...]:
        """All columns of the source: the name, and the name in the staging table."""
        return tuple(self._staged.items())

    @cached_property
    def _staged(self) -> Mapping[str, str]:
        return {column.name: f"c{number}" for number, column in enumerate(self.source.columns)}


class TargetDialect(ABC):
    """What differs between databases in SQL. Says statements; runs none.

    Attributes:
        title: the database's name as people write it.
        lacks: regular expressions of canonical texts that it has no place for, by kind of logical type; those aside
            that Spark has none for.
        rules: the names of columns that it takes; other names have the same length.
        folds_names: whether two names that differ only in case are one.
    """

    title: ClassVar[str]
    lacks: ClassVar[Mapping[str, str]] = {}
    rules: ClassVar[ColumnRules]
    folds_names: ClassVar[bool] = False
    mark: ClassVar[str] = '"'

    def quote(self, name: str) -> str:
        return self.mark + name.replace(self.mark, self.mark * 2) + self.mark

    def table(self, name: TableName) -> str:
        return ".".join(self.quote(part) for part in (name.schema, name.name) if part)

    def literal(self, text: str) -> str:
        return "'" + text.replace("'", "''") + "'"

    @abstractmethod
    def column_types(self, schema: TableSchema) -> dict[str, str]:
        """The type of each column of a mirror, as the database's catalog writes it; ours has the name ''."""

    @abstractmethod
    def create_table(self, mirror: Mirror) -> list[str]:
        """Create the mirror with its key, comments and our column."""

    def refuse_names(self, mirror: Mirror) -> None:
        """Stop where a name can't stand in this database.

        Raises:
            SchemaError: a name is too long, is ours, or two columns would be one.
        """
        rules, source = self.rules, mirror.source
        rules.refuse(source.id, (column.name for column in source.columns), (mirror.position_column,))
        for name in (mirror.name.schema, mirror.name.name, mirror.position_column):
            if rules.length(name) > rules.most or "\0" in name:
                raise SchemaError(
                    f"The name '{name}' of table {source.id} does not fit {self.title}, which takes "
                    f"{rules.most} {rules.unit}.",
                    remedy="Leave the table out of the capture, or set the sink's option 'table_name' or "
                    "'position_column'.",
                )

    def folded(self, name: str) -> str:
        return self.rules.folded(name)

    def _position(self, mirror: Mirror) -> str:
        return self.quote(mirror.position_column)

    def older(self, mirror: Mirror, staged: str = "s.p") -> str:
        """SQL: is the target's row older than the change?"""
        return self.before(f"t.{self._position(mirror)}", staged)

    def before(self, at: str, position: str) -> str:
        """SQL: is a position unknown, or earlier than another, compared byte by byte?"""
        return f"({at} IS NULL OR {at} < {position})"

    def same_key(self, mirror: Mirror) -> str:
        """SQL: does the target's row have the change's key?"""
        return " AND ".join(f"t.{self.quote(name)} = s.{staged}" for name, staged in mirror.key)

    def taken(self, labels: Sequence[str]) -> str:
        """SQL: was the staged row brought by an attempt that counts?"""
        if not labels:
            return "1 = 0"
        for label in labels:
            if not _LABEL.fullmatch(label):
                raise ValueError(f"not a label: {label!r}")
        return f"s.l IN ({', '.join(self.literal(label) for label in sorted(labels))})"

    def chosen(self, mirror: Mirror, name: str, staged: str, old: str) -> str:
        """SQL: the change's value, or the target's own where the change does not carry the column."""
        index = [candidate for candidate, _ in mirror.rest].index(name) + 1
        return f"CASE WHEN s.m IS NULL OR SUBSTR(s.m, {index}, 1) = '1' THEN s.{staged} ELSE {old} END"

    def drop_column(self, mirror: Mirror, name: str) -> str:
        return f"ALTER TABLE {self.table(mirror.name)} DROP COLUMN {self.quote(name)}"

    def rename_column(self, mirror: Mirror, name: str, new: str) -> str:
        return f"ALTER TABLE {self.table(mirror.name)} RENAME COLUMN {self.quote(name)} TO {self.quote(new)}"

    def truncate(self, mirror: Mirror, position: str) -> str:
        """Drop the rows that were there before a truncate."""
        older = self.before(self._position(mirror), self.literal(position))
        return f"DELETE FROM {self.table(mirror.name)} WHERE {older}"

    def give(self, mirror: Mirror, labels: Sequence[str], names: Sequence[str], position: str) -> str:
        """Give columns of the rows that are older than a position the values of the one staged row."""
        staged, taken = dict(mirror.all), f"FROM {self.table(mirror.stage)} s WHERE {self.taken(labels)}"
        values = ", ".join(f"{self.quote(name)} = (SELECT s.{staged[name]} {taken})" for name in names)
        older = self.before(self._position(mirror), self.literal(position))
        return f"UPDATE {self.table(mirror.name)} SET {values} WHERE {older}"

    def count_staged(self, mirror: Mirror, labels: Sequence[str]) -> str:
        return f"SELECT COUNT(*) FROM {self.table(mirror.stage)} s WHERE {self.taken(labels)}"

    def count_null_keys(self, mirror: Mirror, labels: Sequence[str]) -> str:
        """Count the rows to be kept whose key holds NULL."""
        null = " OR ".join(f"s.{staged} IS NULL" for _, staged in mirror.key)
        return (
            f"SELECT COUNT(*) FROM {self.table(mirror.stage)} s WHERE {self.taken(labels)} AND s.o <> 'd' AND ({null})"
        )

    def disordered(self, kept: str, new: str) -> str:
        """SQL: do two positions say nothing about which is later? As `headrace.apply.sequence` has it."""
        marked = f"{kept} LIKE '%{MARK}%' AND {new} LIKE '%{MARK}%'"
        other = f"RIGHT({kept}, {SUFFIX}) <> RIGHT({new}, {SUFFIX})"
        both = f"{kept} LIKE '{GIVEN}%' AND {new} LIKE '{GIVEN}%'"
        same = " = ".join(f"SUBSTR({at}, 1, POSITION('{END}' IN {at}))" for at in (kept, new))
        old = "'____________________/%'"
        return (
            f"(CASE WHEN {marked} THEN CASE WHEN {both} THEN {other} AND {same} WHEN {kept} LIKE '{GIVEN}%' THEN TRUE "
            f"WHEN {new} LIKE '{GIVEN}%' THEN FALSE ELSE {other} END "
            f"WHEN {kept} LIKE '%{MARK}%' THEN {new} NOT LIKE {old} "
            f"WHEN {new} LIKE '%{MARK}%' THEN {kept} NOT LIKE {old} ELSE FALSE END)"
        )

    def count_disordered(self, mirror: Mirror, labels: Sequence[str]) -> str:
        """Count the changes of which it is not known whether they are later than the target's row."""
        at = f"t.{self._position(mirror)}"
        return (
            f"SELECT COUNT(*) FROM {self.table(mirror.stage)} s "
            f"JOIN {self.table(mirror.name)} t ON {self.same_key(mirror)} "
            f"WHERE {self.taken(labels)} AND {self.disordered(at, 's.p')}"
        )

    def count_unclear(self, mirror: Mirror, position: str) -> str:
        """Count the rows of which it is not known whether a truncate is later."""
        unclear = self.disordered(f"t.{self._position(mirror)}", self.literal(position))
        return f"SELECT COUNT(*) FROM {self.table(mirror.name)} t WHERE {unclear}"

    def count_missing(self, mirror: Mirror, labels: Sequence[str]) -> str:
        """Count the changes that lack values which the target does not have either."""
        first = self.quote(mirror.source.key[0])
        return (
            f"SELECT COUNT(*) FROM {self.table(mirror.stage)} s "
            f"LEFT JOIN {self.table(mirror.name)} t ON {self.same_key(mirror)} "
            f"WHERE {self.taken(labels)} AND s.o = 'p' "
            f"AND (t.{first} IS NULL OR (s.m IS NULL AND {self.older(mirror)}))"
        )

    def count_late(self, mirror: Mirror, labels: Sequence[str]) -> str:
        """Count the changes laid over others of which one is no newer than the target's row."""
        return (
            f"SELECT COUNT(*) FROM {self.table(mirror.stage)} s "
            f"JOIN {self.table(mirror.name)} t ON {self.same_key(mirror)} "
            f"WHERE {self.taken(labels)} AND s.f IS NOT NULL AND {self.older(mirror)} "
            f"AND NOT {self.older(mirror, 's.f')}"
        )

    @abstractmethod
    def create_stage(self, mirror: Mirror) -> list[str]:
        """Drop what is left of the staging table and create it."""

    def drop_stage(self, mirror: Mirror) -> str:
        return f"DROP TABLE IF EXISTS {self.table(mirror.stage)}"

    @abstractmethod
    def create_schema(self, schema: str) -> str:
        """Create a schema, if it is not there."""

    @abstractmethod
    def create_progress(self, progress: TableName) -> str:
        """Create the table that says which batch each target has, if it is not there."""

    def add_batch_offsets(self, progress: TableName) -> str:
        """Give the table the column that an earlier release did not make."""
        return f"ALTER TABLE {self.table(progress)} ADD COLUMN {BATCH_OFFSETS} text"

    @abstractmethod
    def add_column(self, mirror: Mirror, column: Column) -> list[str]:
        """Add a column to the mirror."""

    @abstractmethod
    def text_of(self, value: str, column: Column) -> str:
        """SQL for the text of a mirror's value that Spark reads as the source's type; of bytes their hex digits."""

    @abstractmethod
    def widen_column(self, mirror: Mirror, column: Column) -> str:
        """Give a column of the mirror its newer, wider type."""

    @abstractmethod
    def apply_keyed(self, mirror: Mirror, labels: Sequence[str], *, partial: bool) -> list[str]:
        """Bring a table with a key up to the staged batch.

        Args:
            mirror: the target.
            labels: which staged rows count.
            partial: some row has a mask.
        """

    @abstractmethod
    def apply_keyless(self, mirror: Mirror, labels: Sequence[str], *, deletes: bool) -> list[str]:
        """Bring a table without a key up to the staged batch.

        Args:
            mirror: the target.
            labels: which staged rows count.
            deletes: some row is a delete.
        """


_INTEGER_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "integer": 10, "bigint": 19, "bigint unsigned": 20}
_UNBOUNDED = {"varchar": ("longtext", "text"), "varbinary": ("longblob",)}
_FLOATS = {"float": "double", "real": "double precision"}
_TYPE = re.compile(r"([a-z ]+?)(?:\((\d+)(?:,(\d+))?\))?((?: with| without) time zone)?")


def holds(wide: str, narrow: str) -> bool:
    """Whether every value of one type is one of the other, written the same.

    Args:
        wide: a type as a catalog writes it (`numeric(12,2)`, `bigint unsigned`).
        narrow: another one of the same database.
    """
    if wide == narrow:
        return True
    a, b = _TYPE.fullmatch(wide), _TYPE.fullmatch(narrow)
    if a is None or b is None or (wide == "tinyint(1)") != (narrow == "tinyint(1)"):
        return False
    base, other = a[1], b[1]
    if other in _INTEGER_DIGITS:
        signed = base != "bigint unsigned"
        if base in _INTEGER_DIGITS:
            return signed and other != "bigint unsigned" and _INTEGER_DIGITS[base] >= _INTEGER_DIGITS[other]
        return base in ("numeric", "decimal") and _whole_digits(a) >= _INTEGER_DIGITS[other]
    if other in ("numeric", "decimal") and base == other:
        return _whole_digits(a) >= _whole_digits(b) and _scale(a) >= _scale(b)
    if _FLOATS.get(other) == base or base in _UNBOUNDED.get(other, ()):
        return True
    if base != other or a[4] != b[4] or other not in ("varchar", "varbinary", "time", "timestamp", "datetime"):
        return False
    # PostgreSQL's times have six digits where none are given, MariaDB's have none.
    untold = 6 if a[4] else 0
    return int(a[2] or untold) >= int(b[2] or untold) if a[2] or b[2] else True


def _whole_digits(kind: re.Match[str]) -> float:
    return float("inf") if kind[2] is None else int(kind[2]) - int(kind[3] or 0)


def _scale(kind: re.Match[str]) -> float:
    return float("inf") if kind[2] is None else int(kind[3] or 0)

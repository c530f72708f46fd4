"""SQL Server, Oracle and Db2: the statements that would keep their tables equal, as MERGE. They were never run.

`JdbcSink` does not connect to these databases. The statements are for people who bring a staged batch in by means of
their own; they expect the staging table that `headrace.sinks.jdbc.dialect` describes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from headrace.changes.table import TableSchema
from headrace.changes.types import LogicalType
from headrace.sinks.jdbc.dialect import Dialect, Mirror

_PRECISE = ("time", "timestamp", "instant", "zoned_timestamp")


class MergeDialect(Dialect):
    """A database that has MERGE.

    Attributes:
        types: the type by kind; `{}` stands for fraction digits.
        most_fraction_digits: with more, a time is text.
        most_decimal_digits: with more, a decimal is text.
        position_type: our column's, which must compare byte by byte.
        text: the type of a text of any length.
        key_text: the type of a text of a key, `{}` for its length.
        key_bytes: the type of bytes of a key, `{}` for their length.
        key_length: how long a text or bytes of a key may be where the source does not say it.
    """

    types: ClassVar[Mapping[str, str]]
    most_fraction_digits: ClassVar[int]
    most_decimal_digits: ClassVar[int]
    position_type: ClassVar[str]
    text: ClassVar[str]
    key_text: ClassVar[str]
    key_bytes: ClassVar[str]
    key_length: ClassVar[int] = 255

    def column_types(self, schema: TableSchema) -> dict[str, str]:
        """The type of each column; texts and bytes of a key have a length."""
        types = {"": self.position_type}
        for column in schema.columns:
            kind = self._type(column.logical)
            if column.name in schema.key and kind in (self.text, self.types["bytes"]):
                pattern = self.key_text if kind == self.text else self.key_bytes
                kind = pattern.format(min(column.length or self.key_length, self.key_length))
            types[column.name] = kind
        return types

    def _type(self, logical: LogicalType) -> str:
        kind = logical.kind
        if kind in _PRECISE:
            fits = logical.digits <= self.most_fraction_digits and kind in self.types
            return self.types[kind].format(logical.digits) if fits else self.text
        if kind == "decimal":
            if logical.precision is None or logical.precision > self.most_decimal_digits:
                return self.text
            return self.types[kind].format(f"{logical.precision},{logical.scale or 0}")
        return self.types.get(kind, self.text)

    def create_table(self, mirror: Mirror) -> list[str]:
        """Create the mirror with its key; where the database has comments, with them."""
        types = self.column_types(mirror.source)
        lines = [
            f"{self.quote(column.name)} {types[column.name]}{' NOT NULL' if column.name in mirror.source.key else ''}"
            for column in mirror.source.columns
        ]
        lines.append(f"{self._position(mirror)} {types['']}")
        if mirror.source.key:
            lines.append(f"PRIMARY KEY ({', '.join(self.quote(name) for name in mirror.source.key)})")
        return [f"CREATE TABLE {self.table(mirror.name)} ({', '.join(lines)})", *self._comments(mirror)]

    def _comments(self, mirror: Mirror) -> list[str]:
        table = self.table(mirror.name)
        found = [
            f"COMMENT ON COLUMN {table}.{self.quote(column.name)} IS {self.literal(column.comment)}"
            for column in mirror.source.columns
            if column.comment
        ]
        if mirror.source.comment:
            found.append(f"COMMENT ON TABLE {table} IS {self.literal(mirror.source.comment)}")
        return found

    def create_stage(self, mirror: Mirror) -> list[str]:
        """Create the staging table."""
        types = self.column_types(mirror.source)
        columns = ", ".join(f"{staged} {types[name]}" for name, staged in mirror.all)
        return [
            f"CREATE TABLE {self.table(mirror.stage)} (l VARCHAR(64), o CHAR(1), p {types['']}, "
            f"m VARCHAR({max(1, len(mirror.rest))}), n {self.types['int64']}, {columns})"
        ]

    def apply_keyed(self, mirror: Mirror, labels: Sequence[str], *, partial: bool) -> list[str]:
        """The MERGE of a staged batch into a table with a key.

        Args:
            mirror: the target.
            labels: which staged rows count.
            partial: some row has a mask.
        """
        source = f"(SELECT * FROM {self.table(mirror.stage)} s WHERE {self.taken(labels)})"
        names = [*(name for name, _ in mirror.all), mirror.position_column]
        sets = []
        for name, staged in mirror.rest:
            new = self.chosen(mirror, name, staged, f"t.{self.quote(name)}") if partial else f"s.{staged}"
            sets.append(f"{self.quote(name)} = {new}")
        sets.append(f"{self._position(mirror)} = s.p")
        return [
            self._merge(
                mirror,
                source,
                sets=", ".join(sets),
                names=", ".join(self.quote(name) for name in names),
                values=", ".join([*(f"s.{staged}" for _, staged in mirror.all), "s.p"]),
            )
        ]

    @abstractmethod
    def _merge(self, mirror: Mirror, source: str, *, sets: str, names: str, values: str) -> str:
        """One MERGE with these parts."""


class SqlServerDialect(MergeDialect):
    """SQL Server 2016 and newer."""

    title: ClassVar[str] = "SQL Server"
    name_limit: ClassVar[int] = 128
    folds_names: ClassVar[bool] = True
    most_fraction_digits: ClassVar[int] = 7
    most_decimal_digits: ClassVar[int] = 38
    position_type: ClassVar[str] = "varchar(255) COLLATE Latin1_General_BIN2"
    text: ClassVar[str] = "nvarchar(max)"
    # A key has 900 bytes; only a binary collation tells every two texts apart.
    key_text: ClassVar[str] = "nvarchar({}) COLLATE Latin1_General_BIN2"
    key_bytes: ClassVar[str] = "varbinary({})"
    types: ClassVar[Mapping[str, str]] = {
        "boolean": "bit",
        "int8": "smallint",
        "int16": "smallint",
        "int32": "int",
        "int64": "bigint",
        "uint64": "decimal(20,0)",
        "decimal": "decimal({})",
        "float32": "real",
        "float64": "float(53)",
        "uuid": "uniqueidentifier",
        "bytes": "varbinary(max)",
        "date": "date",
        "time": "time({})",
        "timestamp": "datetime2({})",
        "instant": "datetimeoffset({})",
        "zoned_timestamp": "datetimeoffset({})",
    }

    def quote(self, name: str) -> str:
        """A name in brackets."""
        return "[" + name.replace("]", "]]") + "]"

    def literal(self, text: str) -> str:
        """A text in any script."""
        return "N" + super().literal(text)

    def rename_column(self, mirror: Mirror, name: str, new: str) -> str:
        """The procedure that renames; it takes the old name quoted and the new one as it is."""
        old = self.literal(f"{self.table(mirror.name)}.{self.quote(name)}")
        return f"EXEC sp_rename {old}, {self.literal(new)}, 'COLUMN'"

    def letter(self, text: str, place: int) -> str:
        """SQL: one letter of a text, the first being 1."""
        return f"SUBSTRING({text}, {place}, 1)"

    def _comments(self, mirror: Mirror) -> list[str]:
        place = (
            f"@level0type = N'SCHEMA', @level0name = {self.literal(mirror.name.schema)}, "
            f"@level1type = N'TABLE', @level1name = {self.literal(mirror.name.name)}"
        )
        adding = "EXEC sys.sp_addextendedproperty @name = N'MS_Description', @value ="
        found = [
            f"{adding} {self.literal(column.comment)}, {place}, "
            f"@level2type = N'COLUMN', @level2name = {self.literal(column.name)}"
            for column in mirror.source.columns
            if column.comment
        ]
        if mirror.source.comment:
            found.append(f"{adding} {self.literal(mirror.source.comment)}, {place}")
        return found

    def _merge(self, mirror: Mirror, source: str, *, sets: str, names: str, values: str) -> str:
        # HOLDLOCK: without it two MERGEs could both find a key missing. A MERGE must end with a semicolon here.
        older = self.older(mirror)
        return (
            f"MERGE INTO {self.table(mirror.name)} WITH (HOLDLOCK) AS t USING {source} AS s "
            f"ON {self.same_key(mirror)} "
            f"WHEN MATCHED AND s.o = 'd' AND {older} THEN DELETE "
            f"WHEN MATCHED AND s.o <> 'd' AND {older} THEN UPDATE SET {sets} "
            f"WHEN NOT MATCHED AND s.o <> 'd' THEN INSERT ({names}) VALUES ({values});"
        )


class OracleDialect(MergeDialect):
    """Oracle 12.2 and newer."""

    title: ClassVar[str] = "Oracle"
    name_limit: ClassVar[int] = 128
    name_unit: ClassVar[str] = "bytes"
    most_fraction_digits: ClassVar[int] = 9
    most_decimal_digits: ClassVar[int] = 38
    position_type: ClassVar[str] = "VARCHAR2(255 BYTE)"
    text: ClassVar[str] = "CLOB"
    key_text: ClassVar[str] = "VARCHAR2({} CHAR)"
    key_bytes: ClassVar[str] = "RAW({})"
    types: ClassVar[Mapping[str, str]] = {
        "boolean": "NUMBER(1,0)",
        "int8": "NUMBER(3,0)",
        "int16": "NUMBER(5,0)",
        "int32": "NUMBER(10,0)",
        "int64": "NUMBER(19,0)",
        "uint64": "NUMBER(20,0)",
        "decimal": "NUMBER({})",
        "float32": "BINARY_FLOAT",
        "float64": "BINARY_DOUBLE",
        "uuid": "CHAR(36 CHAR)",
        "bytes": "BLOB",
        "date": "DATE",
        "timestamp": "TIMESTAMP({})",
        "instant": "TIMESTAMP({}) WITH TIME ZONE",
        "zoned_timestamp": "TIMESTAMP({}) WITH TIME ZONE",
    }

    def before(self, at: str, position: str) -> str:
        """SQL: is a position unknown or earlier? Bytes are compared, whatever the session's sorting."""
        return f"({at} IS NULL OR UTL_RAW.CAST_TO_RAW({at}) < UTL_RAW.CAST_TO_RAW({position}))"

    def _merge(self, mirror: Mirror, source: str, *, sets: str, names: str, values: str) -> str:
        # Oracle deletes only rows that the same MERGE has updated.
        return (
            f"MERGE INTO {self.table(mirror.name)} t USING {source} s ON ({self.same_key(mirror)}) "
            f"WHEN MATCHED THEN UPDATE SET {sets} WHERE {self.older(mirror)} DELETE WHERE s.o = 'd' "
            f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values}) WHERE s.o <> 'd'"
        )


class Db2Dialect(MergeDialect):
    """Db2 11.1 for Linux, UNIX and Windows, and newer."""

    title: ClassVar[str] = "Db2"
    name_limit: ClassVar[int] = 128
    name_unit: ClassVar[str] = "bytes"
    most_fraction_digits: ClassVar[int] = 9
    most_decimal_digits: ClassVar[int] = 31
    # FOR BIT DATA compares bytes, whatever the database's collation.
    position_type: ClassVar[str] = "VARCHAR(255) FOR BIT DATA"
    text: ClassVar[str] = "CLOB(2147483647)"
    key_text: ClassVar[str] = "VARCHAR({} CODEUNITS32)"
    key_bytes: ClassVar[str] = "VARBINARY({})"
    types: ClassVar[Mapping[str, str]] = {
        "boolean": "BOOLEAN",
        "int8": "SMALLINT",
        "int16": "SMALLINT",
        "int32": "INTEGER",
        "int64": "BIGINT",
        "uint64": "DECIMAL(20,0)",
        "decimal": "DECIMAL({})",
        "float32": "REAL",
        "float64": "DOUBLE",
        "uuid": "CHAR(36)",
        "bytes": "BLOB(2147483647)",
        "date": "DATE",
        "timestamp": "TIMESTAMP({})",
        # Db2 has no zones: instants are in UTC.
        "instant": "TIMESTAMP({})",
        "zoned_timestamp": "TIMESTAMP({})",
    }

    def _merge(self, mirror: Mirror, source: str, *, sets: str, names: str, values: str) -> str:
        older = self.older(mirror)
        return (
            f"MERGE INTO {self.table(mirror.name)} AS t USING {source} AS s ON {self.same_key(mirror)} "
            f"WHEN MATCHED AND s.o = 'd' AND {older} THEN DELETE "
            f"WHEN MATCHED AND s.o <> 'd' AND {older} THEN UPDATE SET {sets} "
            f"WHEN NOT MATCHED AND s.o <> 'd' THEN INSERT ({names}) VALUES ({values}) ELSE IGNORE"
        )

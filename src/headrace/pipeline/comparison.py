"""Two tables compared: counts, then checksums of chunks of keys, then the rows of the chunks that differ."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.changes.typed import literal, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHUNK_ROWS = 50_000
_MOST_CHUNKS = 4096
_INTEGER_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}


@dataclass(frozen=True)
class Difference:
    """A row that is not the same in both.

    Args:
        kind: `missing` in the target, `extra` there, or `different`; without a key also how often a row is there.
        key: the key's values as JSON; without a key the whole row's.
        columns: names of the columns that differ.
    """

    kind: str
    key: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """What a comparison found.

    Args:
        expected: rows of the source.
        actual: rows of the target.
        chunks: how many chunks were compared.
        differing_chunks: how many of them differ.
        differing_rows: how many rows differ.
        differences: the first of them, by key.
    """

    expected: int
    actual: int
    chunks: int
    differing_chunks: int = 0
    differing_rows: int = 0
    differences: tuple[Difference, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether every row is the same in both."""
        return self.differing_chunks == 0


def compare(
    expected: DataFrame, actual: DataFrame, key: Sequence[str], *, most: int = 20, chunks: int | None = None
) -> Comparison:
    """Compare two tables row by row, cheaply where they are equal. Runs Spark jobs from the driver; changes nothing.

    Each side is read once for the checksums, which are grouped by a hash of the key; only chunks whose number of rows
    or checksum differs are read again and joined. NULL equals NULL, and nothing else.

    Args:
        expected: the source's rows.
        actual: the target's, with the same columns in any order, in types that hold the source's values.
        key: names of the key columns; without any, rows are told apart by all their values.
        most: how many differences to give back.
        chunks: how many chunks; by default one for every 50,000 rows of the source.
    """
    from pyspark.sql import functions as sf

    columns = expected.columns
    types = {field.name: field.dataType.simpleString() for field in expected.schema}
    others = {field.name: field.dataType.simpleString() for field in actual.schema}
    shared = {name: _shared(types[name], others.get(name, types[name])) for name in columns}
    expected = expected.selectExpr(*(_as(name, types[name], shared[name]) for name in columns))
    actual = actual.selectExpr(*(_as(name, "", shared[name]) for name in columns))
    if chunks is None:
        chunks = min(_MOST_CHUNKS, expected.count() // CHUNK_ROWS + 1)
    names = ", ".join(quote(name) for name in (key or columns))
    everything = ", ".join(f"{quote(name)}, {quote(name)} is null" for name in columns)
    in_chunk = f"pmod(xxhash64({names}), {chunks})"

    def sums(side: DataFrame) -> dict[int, tuple[int, object]]:
        lines = (
            side.selectExpr(f"{in_chunk} as chunk", f"cast(xxhash64({everything}) as decimal(38,0)) as sum")
            .groupBy("chunk")
            .agg(sf.count("*").alias("n"), sf.sum("sum").alias("sum"))
        )
        return {row["chunk"]: (row["n"], row["sum"]) for row in lines.collect()}

    left, right = sums(expected), sums(actual)
    differ = sorted(chunk for chunk in {*left, *right} if left.get(chunk) != right.get(chunk))
    rows = sum(n for n, _ in left.values())
    there = sum(n for n, _ in right.values())
    if not differ:
        return Comparison(rows, there, chunks)
    wanted = f"{in_chunk} in ({', '.join(map(str, differ))})"
    joined = _joined(expected.where(wanted), actual.where(wanted), columns, names).where("kind is not null")
    first = joined.orderBy("k").limit(most).collect()
    return Comparison(
        rows,
        there,
        chunks,
        differing_chunks=len(differ),
        differing_rows=joined.count(),
        differences=tuple(Difference(row["kind"], row["k"], tuple(row["columns"] or ())) for row in first),
    )


def _as(name: str, type: str, shared: str) -> str:
    """Spark SQL for a column in the type in which it is compared; a value that this type can't hold is NULL."""
    return quote(name) if type == shared else f"try_cast({quote(name)} as {shared}) as {quote(name)}"


def _shared(source: str, target: str) -> str:
    """The type in which values of both are compared: the source's, unless it would round or lose the target's."""
    one, other = _digits(source), _digits(target)
    if source == target or one is None or other is None:
        return source
    if source in _INTEGER_DIGITS and target in _INTEGER_DIGITS:
        return source if one > other else target
    scale = max(one[1], other[1])
    return f"decimal({min(38, max(one[0], other[0]) + scale)},{scale})"


def _digits(type: str) -> tuple[int, int] | None:
    """The digits of a number before and after the point; None for other types."""
    if (match := re.fullmatch(r"decimal\((\d+),(\d+)\)", type)) is not None:
        return int(match[1]) - int(match[2]), int(match[2])
    return (_INTEGER_DIGITS[type], 0) if type in _INTEGER_DIGITS else None


def _joined(expected: DataFrame, actual: DataFrame, columns: Sequence[str], names: str) -> DataFrame:
    """Rows side by side by key; equal rows that are there several times are one row with their number."""
    from pyspark.sql import functions as sf

    fields = ", ".join(quote(name) for name in columns)

    def counted(rows: DataFrame, name: str) -> DataFrame:
        grouped = rows.selectExpr(f"struct({names}) as k", f"struct({fields}) as row").groupBy("k", "row")
        return grouped.agg(sf.count("*").alias("n")).alias(name)

    both = counted(expected, "e").join(counted(actual, "a"), sf.expr("e.k <=> a.k"), "full_outer")
    changed = ", ".join(f"if(e.row.{quote(name)} <=> a.row.{quote(name)}, null, {literal(name)})" for name in columns)
    return both.selectExpr(
        "case when a.k is null then 'missing' when e.k is null then 'extra' "
        "when not (e.row <=> a.row) or e.n <> a.n then 'different' end as kind",
        "to_json(coalesce(e.k, a.k), map('ignoreNullFields', 'false')) as k",
        f"if(e.k is null or a.k is null, null, array_compact(array({changed}))) as columns",
    )

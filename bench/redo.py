"""Statements per second of the redo parser, one process, one core.

    python bench/redo.py [--statements 50000] [--repeat 5]

LogMiner's statements over 20 tables of 10 to 15 columns: a third inserts, a half updates of one to three columns, the
rest deletes; a fifth of them with all columns in the conditions. Values never repeat, shapes do. A quarter of the
tables has no nullable column, the others one to three, null in a fifth of the rows; one text of forty holds a quote.

Beside it, in the same run: lists of rows instead of one after another; `parse` called for each; a quote in every
text; half of all columns nullable, so that hardly two statements are alike in their NULLs; every statement with a
column of its own, the worst case, in which nothing that is known helps; what a user would write by hand, a regular
expression per value; and cutting the statements at their quotes, which Python can't do without. Medians of the
processor's time, so that what else runs matters less.
"""

from __future__ import annotations

import argparse
import random
import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.sources.oracle.redo import RedoSyntaxError, parse, parse_many
from headrace.sources.oracle.redo.parser import forget_shapes

KINDS = ("number", "word", "number", "flag", "date", "word", "number", "flag", "word", "number", "timestamp", "flag")


@dataclass(frozen=True)
class Table:
    """A table: its name, its columns with what their values are, how many of the last may be null, usual updates."""

    name: str
    columns: tuple[tuple[str, str], ...]
    nullable: int
    updates: tuple[tuple[int, ...], ...]


class Workload:
    """Statements as LogMiner prints them, the same for the same seed.

    Args:
        quotes: the share of texts that hold a quote.
        nulls: whether half of each table's columns are nullable and mostly null.
        fresh: whether every statement has a column name of its own.
    """

    def __init__(self, *, quotes: float = 0.025, nulls: bool = False, fresh: bool = False) -> None:
        self._random = random.Random(7)
        self._quotes, self._nulls, self._fresh, self._made = quotes, 0.5 if nulls else 0.2, fresh, 0
        self._tables = [
            Table(
                f"T{number}",
                tuple((f"C{place}", KINDS[(place + number) % len(KINDS)]) for place in range(10 + number % 6)),
                7 if nulls else number % 4,
                tuple(tuple(sorted(self._random.sample(range(1, 10), size))) for size in (1, 1, 2, 3)),
            )
            for number in range(20)
        ]

    def statement(self) -> str:
        """The next statement."""
        self._made += 1
        table = self._random.choice(self._tables)
        columns = table.columns
        if self._fresh:
            columns = ((f"N{self._made}", columns[0][1]), *columns[1:])
        name = f'"APP"."{table.name}"'
        nullable = {column for column, _ in columns[len(columns) - table.nullable :]}
        values = {
            column: "NULL" if column in nullable and self._random.random() < self._nulls else self._value(kind)
            for column, kind in columns
        }
        drawn = self._random.random()
        if drawn < 0.34:
            names = ",".join(f'"{column}"' for column in values)
            return f"insert into {name}({names}) values ({','.join(values.values())});"
        logged = values if self._random.random() < 0.2 else dict(list(values.items())[:3])
        where = " and ".join(
            f'"{column}" IS NULL' if value == "NULL" else f'"{column}" = {value}' for column, value in logged.items()
        )
        if drawn < 0.84:
            chosen = [columns[place] for place in self._random.choice(table.updates)]
            sets = ", ".join(f'"{column}" = {self._value(kind)}' for column, kind in chosen)
            return f"update {name} set {sets} where {where};"
        return f"delete from {name} where {where};"

    def _value(self, kind: str) -> str:
        pick = self._random
        if kind == "number":
            return f"'{pick.randrange(10**6)}'"
        if kind == "flag":
            return f"'{pick.choice('YN')}'"
        if kind == "word":
            letters = "".join(pick.choices("abcdefghijklmnopqrstuvwxyz ", k=pick.randrange(3, 14)))
            return f"'{letters}''s'" if pick.random() < self._quotes else f"'{letters}'"
        day = f"2026-{pick.randrange(1, 13):02}-{pick.randrange(1, 29):02} 0{pick.randrange(10)}:30:00"
        return f"TO_DATE('{day}', 'YYYY-MM-DD HH24:MI:SS')" if kind == "date" else f"TO_TIMESTAMP('{day}.123456')"


_BY_HAND = re.compile(r"""(?:"(\w+)"\s*=\s*)?('(?:[^']|'')*'|\bNULL\b|[A-Z_]+\('(?:[^']|'')*'(?:, '[^']*')?\))""")


def by_hand(statements: Sequence[str]) -> int:
    """Every value with the name before it; neither the kind of statement, the table nor the two images."""
    return sum(len([(name, value.replace("''", "'")) for name, value in _BY_HAND.findall(sql)]) for sql in statements)


def at_quotes(statements: Sequence[str]) -> int:
    """Nothing but the cut that every parse begins with."""
    return sum(len(sql.split("'")) for sql in statements)


def in_turn(statements: Sequence[str]) -> int:
    """`parse_many`, each row dropped when the next is read."""
    rows = 0
    for row in parse_many(statements):
        rows += 1
        if row.__class__ is RedoSyntaxError:
            raise SystemExit("a statement could not be read")
    return rows


def in_lists(statements: Sequence[str]) -> int:
    """`parse_many`, a thousand rows kept at a time."""
    return sum(len(list(parse_many(statements[first : first + 1000]))) for first in range(0, len(statements), 1000))


def one_by_one(statements: Sequence[str]) -> int:
    """`parse` for each."""
    for sql in statements:
        parse(sql)
    return len(statements)


def always_new(statements: Sequence[str]) -> int:
    """`parse_many` that has seen no shape before."""
    forget_shapes()
    return in_turn(statements)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--statements", type=int, default=50_000)
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    subjects: tuple[tuple[str, Callable[[Sequence[str]], int], Workload, int], ...] = (
        ("parse_many", in_turn, Workload(), given.statements),
        ("parse_many, in lists of a thousand", in_lists, Workload(), given.statements),
        ("parse, one by one", one_by_one, Workload(), given.statements),
        ("parse_many, quotes in every text", in_turn, Workload(quotes=1), given.statements),
        ("parse_many, NULLs everywhere", in_turn, Workload(nulls=True), given.statements),
        ("parse_many, every shape new", always_new, Workload(fresh=True), given.statements // 10),
        ("by hand: a regular expression", by_hand, Workload(), given.statements // 10),
        ("cut at quotes, nothing else", at_quotes, Workload(), given.statements),
    )
    print("| what | statements/s | characters on average | shapes per thousand |\n|---|---|---|---|")
    for what, subject, workload, count in subjects:
        statements = [workload.statement() for _ in range(count)]
        subject(statements)  # To warm up: shapes are new once.
        times = []
        for _ in range(given.repeat):
            start = time.process_time()
            subject(statements)
            times.append(time.process_time() - start)
        shapes = len({tuple(sql.split("'")[::2]) for sql in statements}) * 1000 / count
        length = statistics.mean(map(len, statements))
        print(f"| {what} | {count / statistics.median(times):,.0f} | {length:,.0f} | {shapes:,.1f} |", flush=True)


if __name__ == "__main__":
    main()

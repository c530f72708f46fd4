"""Decoded changes, replayed by key, against the tables that a database held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.real.database_texts import canonical, plain, same
from tests.real.losses import Cell, Loss
from tests.real.replay import ABSENT, Held, Table, replayed

Row = Mapping[str, str | None]


def compared(
    comparison: Comparison,
    rows: Iterable[Mapping[str, Any]],
    truth: Mapping[str, Sequence[Row]],
    natives: Mapping[str, Mapping[str, str]],
    *,
    earlier_names: Mapping[str, str] | None = None,
    adjusted: Callable[[str, Held], Held] = lambda _table, row: row,
    column_name: Callable[[str], str] = str,
) -> Comparison:
    """Replay change rows by key and compare what is left with what each table held.

    Args:
        comparison: takes the result.
        rows: decoded change rows of all topics of one producer.
        truth: the rows of each table, as the database's client prints them.
        natives: the columns' types in the database, by table.
        earlier_names: the name that a renamed table had before; its older rows are in that name's topic.
        adjusted: what a reader who knows the tables' history makes of a replayed row.
        column_name: what the producer calls a column.
    """
    rows = list(rows)
    tables = {topic.rpartition(".")[2]: table for topic, table in replayed(rows).items()}
    keys = {row["message"]["topic"].rpartition(".")[2]: list(row["key"]) for row in rows if row["key"] is not None}
    for name, lines in truth.items():
        names = [known.replace(" ", "_") for known in ((earlier_names or {}).get(name), name) if known]
        merged = Table()
        for table in (tables[known] for known in names if known in tables):
            merged.rows |= {key: adjusted(name, row) for key, row in table.rows.items()}
            merged.keyless += table.keyless
        key = next((keys[known] for known in names if known in keys), [])
        called = [{column_name(column): text for column, text in line.items()} for line in lines]
        kinds = {column_name(column): native for column, native in natives.get(name, {}).items()}
        comparison.table(name, kinds, key, called, merged)
    return comparison


@dataclass
class Comparison:
    """What differs, and which losses explained something.

    Args:
        database: `mariadb` or `postgres`.
        losses: what the producer loses, the first that explains a value counts.
        unknown_columns: `table.column` that messages carry and the table no longer has, with the reason.
    """

    database: str
    losses: Sequence[Loss]
    unknown_columns: Mapping[str, str] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)
    used: Counter[str] = field(default_factory=Counter)
    values: int = 0

    def table(
        self, name: str, natives: Mapping[str, str], key: Sequence[str], truth: Iterable[Row], got: Table
    ) -> None:
        """Compare one table: its keys, and every value of every row."""
        rows = list(truth)
        if not key:
            self._keyless(name, natives, rows, got)
            return
        held = {tuple(_short(row.values.get(k)) for k in key): row for row in got.rows.values()}
        for row in rows:
            found = held.pop(tuple(_short(self._sent(name, natives, row, k)) for k in key), None)
            if found is None:
                self.differences.append(f"{name}: no row with the key {[row[k] for k in key]}")
                continue
            where = f"{name}{[row[k] for k in key]}"
            for column, text in row.items():
                cell = Cell(self.database, f"{name}.{column}", natives[column], text, dict(row), found.snapshot)
                self._value(where, cell, found.values.get(column, ABSENT))
            for column in found.values.keys() - row.keys():
                place = f"{name}.{column}"
                if place not in self.unknown_columns:
                    self.differences.append(f"{where}: the table has no column {column}")
                else:
                    self.used[self.unknown_columns[place]] += 1
        self.differences += [f"{name}: the table has no row with the key {list(key)}" for key in held]

    def _value(self, where: str, cell: Cell, got: str | None) -> None:
        self.values += 1
        wanted = cell.canonical
        if same(wanted, got, cell.native) or (cell.native == "float" and _six_digits(wanted) == _six_digits(got)):
            return
        for loss in self.losses:
            if loss.explains(cell, got):
                self.used[loss.reason] += 1
                return
        self.differences.append(f"{where}.{cell.place.rpartition('.')[2]} {cell.native}: {cell.text!r} != {got!r}")

    def _sent(self, name: str, natives: Mapping[str, str], row: Row, column: str) -> str | None:
        """A key's value as the producer sends it."""
        cell = Cell(self.database, f"{name}.{column}", natives[column], row[column], dict(row), snapshot=False)
        return next((loss.sent(cell) for loss in self.losses if loss.when(cell)), cell.canonical)

    def _keyless(self, name: str, natives: Mapping[str, str], rows: list[Row], got: Table) -> None:
        def known(row: Row) -> tuple[tuple[str, str], ...]:
            return tuple(sorted((column, _short(text)) for column, text in row.items()))

        wanted = Counter(known({c: canonical(self.database, natives[c], t) for c, t in row.items()}) for row in rows)
        found = Counter(known(row) for row in got.keyless)
        self.values += sum(len(row) for row in rows)
        if wanted != found:
            self.differences.append(f"{name}: {wanted - found} are missing, {found - wanted} are too many")


def _short(text: str | None) -> str:
    return "NULL" if text is None else plain(text)


def _six_digits(text: str | None) -> str | None:
    """MariaDB's client prints a float with six digits."""
    return None if text is None else f"{float(text):.6g}"

"""Keys with values that no type of Spark has, as far as a database can be asked for them cheaply.

A target can't tell such rows apart, so a batch that has one stops, and a check names them before the first.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MisfitKey:
    """A key column that has such a value, or may have it.

    Args:
        table: `schema.name`.
        column: the column.
        value: the value.
        certain: whether a row has it; else the database did not say in time.
    """

    table: str
    column: str
    value: str
    certain: bool

    @property
    def sentence(self) -> str:
        """What is wrong, without the table."""
        has = "has" if self.certain else "may have"
        said = f"Its key column '{self.column}' {has} the value {self.value}"
        said += "" if self.certain else " (the server takes it, and did not look through the table in time)"
        return f"{said}. Tables that are kept equal have no place for it, and a batch with such a row stops."

"""Variables of a batch: DECLARE, SET, and what SELECT assigns."""

from __future__ import annotations

from dataclasses import dataclass

from headrace_emulators.sqlserver.conversion import assigning
from headrace_emulators.sqlserver.errors import ProgrammingError
from headrace_emulators.sqlserver.reader import StatementReader
from headrace_emulators.sqlserver.types import SqlType


@dataclass
class Variable:
    """A variable with its value as SQLite holds it."""

    type: SqlType
    value: object = None


class Variables:
    """The variables of one batch; their names may be in any case."""

    def __init__(self) -> None:
        self._known: dict[str, Variable] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def declare(self, name: str, declared: SqlType) -> None:
        """Make a variable; raises error 134 if it exists."""
        if name.lower() in self._known:
            raise ProgrammingError(
                f"The variable name '@{name}' has already been declared. Variable names must be unique within a query"
                " batch or stored procedure.",
                134,
            )
        self._known[name.lower()] = Variable(declared)

    def find(self, name: str) -> Variable:
        """A variable; raises error 137 unless it is declared."""
        found = self._known.get(name.lower())
        if found is None:
            raise ProgrammingError(f'Must declare the scalar variable "@{name}".', 137)
        return found

    def assign(self, name: str, value: object) -> None:
        """Give a variable a value, converted to its type; a text that is too long is cut."""
        variable = self.find(name)
        if isinstance(value, str) and variable.type.family == "string" and variable.type.length > 0:
            value = value[: variable.type.length]
        variable.value = assigning(variable.type.declaration, f"@{name}")(value)

    @property
    def types(self) -> tuple[tuple[str, SqlType], ...]:
        """Names and types: what a translation of a statement depends on."""
        return tuple((name, variable.type) for name, variable in self._known.items())


def read_declarations(text: str) -> list[tuple[str, SqlType, str]]:
    """Name, type and expression (empty without one) of each variable of a DECLARE."""
    reader = StatementReader(text)
    reader.expect("DECLARE")
    found = []
    while True:
        reader.expect("@")
        name = reader.name()
        reader.accept("AS")
        if reader.word() in ("TABLE", "CURSOR"):
            raise reader.unknown(f"DECLARE ... {reader.word()}")
        declared = reader.type()
        found.append((name, declared, reader.until(",") if reader.accept("=") else ""))
        if not reader.accept(","):
            reader.finish()
            return found


def read_assignment(text: str) -> tuple[str, str]:
    """Name and expression of `SET @x = ...` or `SET @x += ...`."""
    reader = StatementReader(text)
    reader.expect("SET")
    reader.expect("@")
    name = reader.name()
    operator = ""
    if not reader.accept("="):
        operator = reader.next().text
        if operator not in ("+", "-", "*", "/", "%"):
            raise reader.unknown(f"the assignment {operator}")
        reader.expect("=")
    expression = reader.until()
    return name, f"@{name} {operator} ({expression})" if operator else expression

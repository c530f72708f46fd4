"""Running a batch: one statement after another, conditions, loops, TRY and CATCH, variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headrace_emulators.sqlserver.batches import Attempt, Block, Choice, Loop, Simple, Statement, statements
from headrace_emulators.sqlserver.errors import Error, ProgrammingError
from headrace_emulators.sqlserver.reader import StatementReader
from headrace_emulators.sqlserver.result import Result
from headrace_emulators.sqlserver.variables import Variables, read_assignment, read_declarations

_MOST_TURNS = 1_000_000


Run = Callable[[str, str, list[object]], tuple[Result, int]]
"""Runs a statement: its first words in upper case, its text, the parameters to come; gives the result, and how many
parameters were taken."""


@dataclass
class BatchState:
    """What a connection keeps while it runs a batch, and the messages of all batches.

    Args:
        variables: of the batch.
        caught: the error that the innermost CATCH handles.
        messages: of PRINT and RAISERROR.
    """

    variables: Variables = field(default_factory=Variables)
    caught: Error | None = None
    messages: list[str] = field(default_factory=list)

    def error(self, part: str) -> object:
        """The `number`, `message` or `line` of the error that is handled; null without one."""
        error = self.caught
        return None if error is None else {"number": error.number, "message": str(error), "line": error.line}[part]


class _Returned(Exception):
    pass


class _Broken(Exception):
    pass


class _Continued(Exception):
    pass


def run_batch(state: BatchState, run: Run, text: str, values: Sequence[object]) -> Result:
    """Run a batch and give the result of its last query, or of its last statement.

    Args:
        state: of the connection.
        run: runs one statement that does not control the flow.
        text: the batch.
        values: one for each `?`, in order.

    Raises:
        Error: as a server would answer; `statement` and `line` are the place in the batch.
    """
    outer, state.variables = state.variables, Variables()
    batch = _Batch(state, run, list(values))
    try:
        batch.block(statements(text))
    except _Returned:
        return batch.result
    finally:
        state.variables = outer
    if batch.used < len(values):
        raise ProgrammingError(
            f"The SQL contains {batch.used} parameter markers, but {len(values)} parameters were supplied.", 0
        )
    return batch.result


class _Batch:
    def __init__(self, state: BatchState, run: Run, values: list[object]) -> None:
        self._state = state
        self._run = run
        self._values = values
        self.used = 0
        self._kept = False
        self.result = Result(rowcount=0)

    def block(self, block: Block) -> None:
        for statement in block.statements:
            self._one(statement)

    def _one(self, statement: Statement) -> None:
        if isinstance(statement, Simple):
            try:
                self._simple(statement)
            except Error as error:
                if not error.statement:
                    error.statement, error.line = statement.text, statement.line
                raise
        elif isinstance(statement, Block):
            self.block(statement)
        elif isinstance(statement, Choice):
            if self._holds(statement.condition):
                self._one(statement.yes)
            elif statement.no is not None:
                self._one(statement.no)
        elif isinstance(statement, Loop):
            self._loop(statement)
        else:
            self._attempt(statement)

    def _loop(self, loop: Loop) -> None:
        turns = 0
        while self._holds(loop.condition):
            turns += 1
            if turns > _MOST_TURNS:
                raise ProgrammingError(f"The SQL Server emulator stops a WHILE after {_MOST_TURNS} turns.")
            try:
                self._one(loop.body)
            except _Broken:
                return
            except _Continued:
                continue

    def _attempt(self, attempt: Attempt) -> None:
        try:
            self.block(attempt.body)
        except Error as error:
            if error.number == 0:
                # What the emulator can't do is never caught: a script would take it for an error of the server.
                raise
            before, self._state.caught = self._state.caught, error
            try:
                self.block(attempt.handler)
            finally:
                self._state.caught = before

    def _holds(self, condition: str) -> bool:
        return self._value(f"SELECT CASE WHEN {condition} THEN 1 ELSE 0 END") == 1

    def _value(self, query: str) -> object:
        result, used = self._run("SELECT", query, self._values[self.used :])
        self.used += used
        row = next(result.rows, None)
        return None if row is None else row[0]

    def _simple(self, statement: Simple) -> None:
        words = statement.words.split(" ")
        first = words[0]
        if self.result.columns and not self._kept:
            # What comes now may change what the query before would still have to read.
            self.result.rows, self._kept = iter(list(self.result.rows)), True
        if first == "DECLARE":
            for name, declared, expression in read_declarations(statement.text):
                value = self._value(f"SELECT {expression}") if expression else None
                self._state.variables.declare(name, declared)
                self._state.variables.assign(name, value)
        elif first == "SET" and words[1:2] == ["@"]:
            name, expression = read_assignment(statement.text)
            self._state.variables.assign(name, self._value(f"SELECT {expression}"))
        elif first == "PRINT":
            shown = self._value(f"SELECT CAST({statement.text[5:]} AS nvarchar(max))")
            self._state.messages.append("" if shown is None else str(shown))
        elif first in ("RAISERROR", "THROW"):
            self._raise(statement.text)
        elif first == "RETURN":
            raise _Returned
        elif first == "BREAK":
            raise _Broken
        elif first == "CONTINUE":
            raise _Continued
        else:
            made, used = self._run(statement.words, statement.text, self._values[self.used :])
            self.used += used
            if made.columns or not self.result.columns:
                self.result, self._kept = made, False

    def _raise(self, text: str) -> None:
        reader = StatementReader(text)
        if reader.accept("THROW"):
            if reader.done:
                if self._state.caught is None:
                    raise ProgrammingError(
                        "To rethrow an error, a THROW statement must be used inside a CATCH block. Insert the THROW"
                        " statement inside a CATCH block, or add error parameters to the THROW statement.",
                        10704,
                    )
                raise self._state.caught
            number = int(str(self._value(f"SELECT {reader.until(',')}")))
            reader.expect(",")
            raise ProgrammingError(str(self._value(f"SELECT {reader.until(',')}")), number)
        reader.expect("RAISERROR")
        reader.expect("(")
        message = str(self._value(f"SELECT {reader.until(',')}"))
        reader.expect(",")
        severity = int(str(self._value(f"SELECT {reader.until(',')}")))
        if severity <= 10:
            self._state.messages.append(message)
            return
        raise ProgrammingError(message, 50000)

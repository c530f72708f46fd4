"""Sequences: CREATE, ALTER and DROP SEQUENCE, and NEXT VALUE FOR."""

from __future__ import annotations

from headrace_emulators.sqlserver.errors import ProgrammingError, invalid_object
from headrace_emulators.sqlserver.reader import StatementReader
from headrace_emulators.sqlserver.storage import SqlServerStorage
from headrace_emulators.sqlserver.types import KINDS, SqlType

_LIMITS = {"tinyint": (0, 255), "smallint": (-(2**15), 2**15 - 1), "int": (-(2**31), 2**31 - 1)}
_LARGEST = (-(2**63), 2**63 - 1)


def define_sequence(storage: SqlServerStorage, statement: str) -> None:
    """Carry out CREATE, ALTER or DROP SEQUENCE.

    Args:
        storage: in a write transaction.
        statement: its text.
    """
    reader = StatementReader(statement)
    word = reader.next().text.upper()
    reader.expect("SEQUENCE")
    optional = word == "DROP" and reader.accept("IF", "EXISTS")
    _, schema, name = reader.path()
    found = _row(storage, schema, name)
    if word == "DROP":
        reader.finish()
        if found is None and not optional:
            raise ProgrammingError(
                f"Cannot drop the sequence object '{schema}.{name}', because it does not exist or you do not have"
                " permission.",
                3701,
            )
        for path in ("sys.sequences", "sys.objects"):
            storage.sqlite.execute(f'DELETE FROM "{path}" WHERE object_id = ?', (found[0] if found else None,))
        return
    declared = reader.type() if word == "CREATE" and reader.accept("AS") else SqlType("bigint")
    options = _options(reader)
    if word == "ALTER":
        if found is None:
            raise invalid_object(f"{schema}.{name}")
        for column, value in (("increment", options.get("INCREMENT")), ("current_value", options.get("RESTART"))):
            if value is not None:
                storage.sqlite.execute(
                    f'UPDATE "sys.sequences" SET {column} = ?, is_used = 0 WHERE object_id = ?', (value, found[0])
                )
        return
    low, high = _LIMITS.get(declared.name, _LARGEST)
    increment = options.get("INCREMENT", 1)
    start = options.get("START", low if increment > 0 else high)
    number = storage.definitions.new_object(name, schema, "SO", "SEQUENCE_OBJECT")
    storage.sqlite.execute(
        'INSERT INTO "sys.sequences" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0)',
        (name, number, start, increment, options.get("MINVALUE", low), options.get("MAXVALUE", high),
         options.get("CYCLE", 0), start, KINDS[declared.name].system_type_id),
    )  # fmt: skip


def _options(reader: StatementReader) -> dict[str, int]:
    found: dict[str, int] = {}
    while not reader.done:
        no = reader.accept("NO")
        word = reader.next().text.upper()
        if word in ("START", "RESTART") or word == "INCREMENT":
            if reader.accept("WITH") or reader.accept("BY"):
                found[word] = reader.integer()
        elif word in ("MINVALUE", "MAXVALUE"):
            if not no:
                found[word] = reader.integer()
        elif word == "CYCLE":
            found[word] = int(not no)
        elif word == "CACHE":
            if not no and not reader.done and reader.word().isdigit():
                reader.integer()
        else:
            raise reader.unknown(f"the sequence option {word}")
    return found


def _row(storage: SqlServerStorage, schema: str, name: str) -> tuple[int, ...] | None:
    row = storage.sqlite.execute(
        "SELECT q.object_id, q.current_value, q.increment, q.minimum_value, q.maximum_value, q.is_cycling, q.is_used,"
        ' q.start_value FROM "sys.sequences" AS q JOIN "sys.objects" AS o ON o.object_id = q.object_id'
        ' JOIN "sys.schemas" AS s ON s.schema_id = o.schema_id WHERE s.name = ? AND q.name = ?',
        (schema, name),
    ).fetchone()
    return None if row is None else tuple(int(v) for v in row)


class Sequences:
    """The numbers that one connection takes from sequences. Taken numbers do not come back with a rollback.

    A function called inside a statement may not query SQLite, so the state is read before the statement and kept
    after it.

    Args:
        storage: the connection.
    """

    def __init__(self, storage: SqlServerStorage) -> None:
        self._storage = storage
        self._states: dict[str, list[int]] = {}

    def find(self, schema: str, name: str) -> str:
        """The key of a sequence for `next`; raises error 208 without one."""
        if _row(self._storage, schema, name) is None:
            raise invalid_object(f"{schema}.{name}")
        return f"{schema}.{name}".lower()

    def prepare(self, names: tuple[str, ...]) -> None:
        """Read where sequences are before a statement takes numbers from them."""
        for key in names:
            schema, name = key.split(".", 1)
            row = _row(self._storage, schema, name)
            if row is None:
                raise invalid_object(key)
            self._states[key] = list(row)

    def next(self, key: str) -> int:
        """The next number of a sequence; raises error 11728 when there is none."""
        state = self._states[key]
        _, current, increment, low, high, cycles, used, _ = state
        value = current + increment if used else current
        if not low <= value <= high:
            if not cycles:
                raise ProgrammingError(
                    f"The sequence object '{key.split('.', 1)[1]}' has reached its minimum or maximum value. Restart"
                    " the sequence object to allow new values to be generated.",
                    11728,
                )
            value = low if increment > 0 else high
        state[1], state[6] = value, 1
        return value

    def keep(self, names: tuple[str, ...]) -> None:
        """Write down where sequences are after a statement."""
        for key in names:
            state = self._states[key]
            self._storage.sqlite.execute(
                'UPDATE "sys.sequences" SET current_value = ?, is_used = ? WHERE object_id = ?',
                (state[1], state[6], state[0]),
            )

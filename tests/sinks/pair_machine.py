"""A small source database with any course of events, sent in batches through a format into a target.

The database has tables with a key, with a key of two columns and without one: a snapshot, then changes of every kind,
and columns that are added. What happens and in which order is hypothesis's choice; the values come from seeds that it
draws too, because a choice for each change would be too many to make a course shorter in sensible time. After each
write the target must hold what the plain model has.

What a format has no place for stands in its list of features, and is left out by that list: partial images, truncates,
bytes.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from tests.formats.column_values import random_text

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.formats.features import Feature
from headrace.testing.change_history import Batch, Model

COLUMNS = [
    ("id", "int32", "int"),
    ("part", "string", "varchar(20)"),
    ("amount", "decimal(12,2)", "decimal(12,2)"),
    ("huge", "decimal(38,10)", "decimal(38,10)"),
    ("day", "date", "date"),
    ("made", "timestamp(6)", "datetime(6)"),
    ("note", "string", "longtext"),
    ("picture", "bytes", "blob"),
]
ADDED = [("extra", "decimal(9,3)", "decimal(9,3)"), ("remark", "string", "varchar(50)")]
KEYS = {"orders": ("id",), "lines": ("part", "id"), "events": ()}
PARTS = ["a", "A", "\u00e4", "a b", "q'\"\\"]
"""Keys that a careless comparison takes for one another."""
ABSENT_KINDS = {"debezium_avro": ("string", "bytes")}
"""Where a format tells only columns of some types that an image does not carry: Avro has a placeholder for these."""
NAMES = st.sampled_from(list(KEYS))
SEEDS = st.integers(0, 2**32)
CHANGES = (
    ["insert"] * 4 + ["update"] * 5 + ["update_partly"] * 3 + ["move"] * 2 + ["delete"] * 3 + ["delete_and_insert"]
)


class SmallDatabase:
    """Tables, their rows, and the change rows of what happens to them; the batch that is being filled too.

    Args:
        kept: what the format can carry.
        absent: the kinds of columns that a partial image may lack; None for all.
    """

    def __init__(self, kept: frozenset[Feature], absent: tuple[str, ...] | None = None) -> None:
        self.kept = kept
        self.absent = absent
        self.rng = random.Random(0)
        self.schemas = {name: self._schema(name) for name in KEYS}
        self.rows: dict[str, list[dict[str, str | None]]] = {name: [] for name in KEYS}
        self.models = {name: Model(schema) for name, schema in self.schemas.items()}
        self.at = 0
        self.batch = self._opened()

    def _schema(self, name: str) -> TableSchema:
        key = KEYS[name]
        made = [
            Column(n, i, LogicalType.parse(kind), native, nullable=n not in key)
            for i, (n, kind, native) in enumerate(COLUMNS, 1)
            if kind != "bytes" or Feature.BYTES in self.kept
        ]
        return TableSchema(TableId("shop", "dbo", name), tuple(made), key)

    def _opened(self) -> Batch:
        batch = Batch()
        for schema in self.schemas.values():
            self.at += 1
            batch.structure(schema, self.at)
        return batch

    def next_batch(self) -> Batch:
        """What happened since the last batch; the models have it from now on."""
        batch = self.batch
        for name, model in self.models.items():
            model.schema = self.schemas[name]
            for row in model.keyed.values():
                row |= {column.name: row.get(column.name) for column in model.schema.columns}
            width = len(model.schema.columns)
            model.bag = [(at, (*row, *[None] * (width - len(row)))) for at, row in model.bag]
            model.apply(line for line in batch.lines if line["table"]["name"] == name)
        self.batch = self._opened()
        return batch

    def change(self, rng: random.Random, count: int) -> None:
        """Changes of every kind that the format can carry, in any table."""
        self.rng = rng
        for _ in range(count):
            name = rng.choice(list(KEYS))
            if rng.random() < 0.01 and Feature.TRUNCATE in self.kept:
                self.truncate(name)
            else:
                getattr(self, rng.choice(CHANGES))(name)

    def read(self, name: str, size: int) -> None:
        """The rows that are there at the beginning."""
        for _ in range(size):
            self.insert(name, op="r")

    def insert(self, name: str, op: str = "c") -> None:
        schema, row = self.schemas[name], self._drawn(name)
        if not schema.key or not self._taken(name, row):
            self.rows[name].append(row)
            self._tell(op, name, row)

    def delete(self, name: str) -> dict[str, str | None] | None:
        rows = self.rows[name]
        if not rows:
            return None
        row = rows.pop(self.rng.randrange(len(rows)))
        self._tell("d", name, None, row)
        return row

    def delete_and_insert(self, name: str) -> None:
        """A row goes, and another one with its key comes at once."""
        row = self.delete(name)
        if row is not None:
            self.rows[name].append({**self._drawn(name), **{k: row[k] for k in self.schemas[name].key}})
            self._tell("c", name, self.rows[name][-1])

    def move(self, name: str) -> None:
        """A row gets another key."""
        rows, schema = self.rows[name], self.schemas[name]
        if not rows or not schema.key:
            return
        number = self.rng.randrange(len(rows))
        moved = {**rows[number], **{k: self._value(schema.column(k)) for k in schema.key}}
        if not self._taken(name, moved):
            self._tell("u", name, moved, rows[number])
            rows[number] = moved

    def update(self, name: str, *, partly: bool = False) -> None:
        rows, schema, rng = self.rows[name], self.schemas[name], self.rng
        if not rows:
            return
        number = rng.randrange(len(rows))
        old, new = rows[number], self._drawn(name)
        rest = [column.name for column in schema.columns if column.name not in schema.key]
        changed = set(rng.sample(rest, rng.randrange(1, 4)))
        rows[number] = {n: new[n] if n in changed else value for n, value in old.items()}
        if not (partly and schema.key and Feature.ABSENT in self.kept):
            self._tell("u", name, rows[number], old)
            return
        whole = {c.name for c in schema.columns if self.absent is not None and c.logical.kind not in self.absent}
        told = {*schema.key, *changed, *whole}
        before = {n: value for n, value in old.items() if n in told}
        self._tell("u", name, {n: value for n, value in rows[number].items() if n in told}, before)

    def update_partly(self, name: str) -> None:
        """An update whose images lack columns, where the format can say so."""
        self.update(name, partly=True)

    def truncate(self, name: str) -> None:
        self.rows[name].clear()
        self._tell("t", name, None)

    def add_column(self, name: str) -> None:
        """A column comes, and a row that has it: most formats tell a structure with the rows only."""
        old = self.schemas[name]
        known = {column.name for column in old.columns}
        rest = [column for column in ADDED if column[0] not in known]
        if rest:
            n, kind, native = rest[0]
            new = Column(n, len(old.columns) + 1, LogicalType.parse(kind), native)
            self.schemas[name] = TableSchema(old.id, (*old.columns, new), old.key)
            self.rows[name] = [{**row, n: None} for row in self.rows[name]]
            self.at += 1
            self.batch.structure(self.schemas[name], self.at)
        if self.rows[name]:
            self.update(name)
        else:
            self.insert(name)

    def _taken(self, name: str, row: dict[str, str | None]) -> bool:
        key = self.schemas[name].key
        return any(all(row[k] == other[k] for k in key) for other in self.rows[name])

    def _tell(self, op: str, name: str, after: Any, before: Any = None) -> None:
        self.at += 1
        moment = dt.datetime(2024, 2, 29, 23, 59, 58, tzinfo=dt.UTC) + dt.timedelta(milliseconds=self.at)
        self.batch.add(op, self.schemas[name], self.at, after, before, snapshot="true" if op == "r" else None)
        self.batch.lines[-1] |= {"event_time": moment, "capture_time": moment, "source": {"connector": "mysql"}}

    def _value(self, column: Column) -> str | None:
        if column.name == "part":
            return self.rng.choice(PARTS)
        if column.name == "id":
            return str(self.rng.randrange(-3, 60))
        return None if self.rng.random() < 0.15 else random_text(column.logical, self.rng)

    def _drawn(self, name: str) -> dict[str, str | None]:
        return {column.name: self._value(column) for column in self.schemas[name].columns}


class PairMachine(RuleBasedStateMachine):
    """A database, a format and a target. Subclasses are made with the last two (`machine_through`)."""

    kept: frozenset[Feature]
    absent: tuple[str, ...] | None
    begin: Callable[[], Callable[[SmallDatabase, Batch, int, int], None]]

    @initialize(seed=SEEDS, size=st.integers(20, 40), apart=st.sampled_from([True, False]))
    def read_the_tables(self, seed: int, size: int, apart: bool) -> None:
        """The snapshot, as a batch of its own or together with the first changes."""
        self.database = SmallDatabase(self.kept, self.absent)
        self.database.rng = random.Random(seed)
        for name in KEYS:
            self.database.read(name, size)
        self.written = 0
        self.write_batch = type(self).begin()
        # A format that tells no structures is read with the newest one, in which an old change of key lacks a column.
        if apart or Feature.TYPES not in self.kept:
            self.write(1)

    # The simplest choices, which hypothesis tries first, are a course that is worth its time.
    @rule(seed=SEEDS, count=st.integers(100, 200), added=st.sampled_from([*KEYS, None]), times=st.sampled_from([2, 1]))
    def change_and_write(self, seed: int, count: int, added: str | None, times: int) -> None:
        rng = random.Random(seed)
        # Where the format tells no structures its reader is given one, which is then that of the whole batch.
        before = count // 2 if Feature.TYPES in self.kept else 0
        self.database.change(rng, before)
        if added is not None:
            self.database.add_column(added)
        self.database.change(rng, count - before)
        self.write(times)

    def write(self, times: int) -> None:
        self.write_batch(self.database, self.database.next_batch(), self.written, times)
        self.written += 1


def machine_through(
    kept: frozenset[Feature],
    absent: tuple[str, ...] | None,
    begin: Callable[[], Callable[[SmallDatabase, Batch, int, int], None]],
) -> type[PairMachine]:
    """The machine for a pair.

    Args:
        kept: what the format can carry.
        absent: the kinds of columns that its partial images may lack; None for all.
        begin: makes a target without rows, and gives what writes a batch of a number a number of times to it and then
            compares it with the models.
    """
    return type("MachineThroughPair", (PairMachine,), {"kept": kept, "absent": absent, "begin": staticmethod(begin)})

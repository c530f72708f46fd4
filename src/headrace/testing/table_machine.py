"""A source table with any course of events, a target that takes them in batches, and the plain model of both.

The machine does what databases, schedulers and failures do: rows come, change, move and go, tables are emptied and get
columns, batches are written, written again, fail in the middle, and hold changes that were there before. After each
write the target must hold what the model has.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from headrace.changes import Column, LogicalType, TableSchema
from headrace.testing.change_history import Batch, Model, table
from headrace.testing.faults import InjectedFault

KEYS = st.sampled_from("1234")
NUMBERS = st.integers(0, 3)
VALUES = st.sampled_from(["x", "y", "ü'\n", "", None])


class TableMachine(RuleBasedStateMachine):
    """One table. Subclasses are made with a target (`machine_on`)."""

    target: Any
    arm: Callable[[str], None]
    fault_point: str
    made = 0

    @initialize()
    def create(self) -> None:
        type(self).made += 1
        self.schema: TableSchema = table(f"course_{self.made}", id="string", a="string", b="string")
        self.rows: dict[str, dict[str, str | None]] = {}
        self.model = Model(self.schema, keeps_deleted=self.target.keeps_deleted)
        self.batch = Batch(self.schema)
        self.written: list[Batch] = []
        self.late: list[Any] = []
        self.at = 0
        self.repeated = False
        for key in "123":
            self.put(key, "x", "y")

    @property
    def changed(self) -> bool:
        """Whether the batch says more than the table's structure."""
        return len(self.batch.lines) > 1

    def change(self, op: str, after: Any, before: Any = None) -> None:
        self.at += 1
        self.batch.add(op, self.schema, self.at, after, before)

    def key(self, number: int) -> str:
        """The key of a row that is there."""
        return sorted(self.rows)[number % len(self.rows)]

    @rule(key=KEYS, a=VALUES, b=VALUES)
    def put(self, key: str, a: str | None, b: str | None) -> None:
        old = self.rows.get(key)
        row = {**(old or dict.fromkeys(c.name for c in self.schema.columns)), "id": key, "a": a, "b": b}
        self.rows[key] = row
        self.change("u" if old else "c", row, old)

    @precondition(lambda self: self.rows)
    @rule(number=NUMBERS, b=VALUES)
    def put_one_column(self, number: int, b: str | None) -> None:
        key = self.key(number)
        self.rows[key] = {**self.rows[key], "b": b}
        self.change("u", {"id": key, "b": b}, {"id": key})

    @precondition(lambda self: 0 < len(self.rows) < 4)
    @rule(number=NUMBERS, other=NUMBERS)
    def move(self, number: int, other: int) -> None:
        free = sorted({*"1234"} - {*self.rows})
        key, new = self.key(number), free[other % len(free)]
        old = self.rows.pop(key)
        self.rows[new] = {**old, "id": new}
        self.change("u", self.rows[new], old)

    @precondition(lambda self: self.rows)
    @rule(number=NUMBERS)
    def delete(self, number: int) -> None:
        self.change("d", None, self.rows.pop(self.key(number)))

    @precondition(lambda self: len(self.rows) > 2)
    @rule()
    def truncate(self) -> None:
        self.rows.clear()
        self.change("t", None)

    @precondition(lambda self: len(self.schema.columns) < 5)
    @rule()
    def add_a_column(self) -> None:
        new = Column(f"c{len(self.schema.columns)}", len(self.schema.columns) + 1, LogicalType("string"))
        self.schema = replace(self.schema, columns=(*self.schema.columns, new))
        self.rows = {key: {**row, new.name: None} for key, row in self.rows.items()}
        self.at += 1
        self.batch.structure(self.schema, self.at)

    @precondition(lambda self: self.changed)
    @rule()
    def write(self) -> None:
        self.next_batch()
        self.send(len(self.written) - 1)

    @precondition(lambda self: self.written and not self.repeated)
    @rule()
    def write_again(self) -> None:
        self.repeated = True
        self.send(len(self.written) - 1)

    @precondition(lambda self: self.changed)
    @rule(moment=st.sampled_from(["before_commit", "after_commit"]))
    def fail_and_write_again(self, moment: str) -> None:
        batch = self.next_batch()
        if any(line["op"] in "cudt" for line in batch.lines):
            self.arm(f"{self.fault_point}.{moment}=raise")
            with contextlib.suppress(InjectedFault):
                self.target.write(batch, len(self.written) - 1, owner=self.schema.id.name)
            self.arm("")
        self.send(len(self.written) - 1)

    @precondition(lambda self: self.written and not self.late)
    @rule()
    def changes_come_late_once_more(self) -> None:
        lines = [line for line in self.written[-1].lines if line["op"] in "cu" and len(line["after"] or {}) > 2]
        late = [line for line in lines if (line["after"] or {}).get("id") in self.rows]
        # With the structures that they follow, as every batch has.
        structures = [line for line in self.written[-1].lines if line["op"] == "schema"]
        self.late += [*structures, *late] if late else []

    def teardown(self) -> None:
        # What was not written yet is, so that no course ends unseen.
        if hasattr(self, "batch") and (self.batch.lines or self.late):
            self.next_batch()
            self.send(len(self.written) - 1)

    def next_batch(self) -> Batch:
        batch, self.batch = self.batch, Batch(self.schema)
        self.model.schema = self.schema
        for row in self.model.keyed.values():
            row |= {column.name: row.get(column.name) for column in self.schema.columns}
        self.model.apply(batch.lines)
        batch.lines += self.late
        self.late = []
        self.written.append(batch)
        self.repeated = False
        return batch

    def send(self, number: int) -> None:
        self.target.write(self.written[number], number, owner=self.schema.id.name)
        assert self.target.content(self.model.schema) == self.model.content()


def machine_on(target: Any, arm: Callable[[str], None], fault_point: str) -> type[TableMachine]:
    """The machine for a target."""
    return type(
        "MachineOnTarget", (TableMachine,), {"target": target, "arm": staticmethod(arm), "fault_point": fault_point}
    )

"""Tables whose keys are checked at the end of a transaction, and what logs and messages say of their changes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

from headrace.apply import carried, fold, profile, sequenced
from headrace.changes import Column
from headrace.spark.local_rows import local_rows
from headrace.testing.change_history import Batch, from_message, table

T = table(key=("case", "id"), case="string", id="int32", a="string", b="string")
BARE = table("bare", key=("case", "id"), case="string", id="int32")


@dataclass
class Database:
    """A table whose keys are checked at the end of a transaction, and what its log says row by row."""

    case: str
    schema: Any = T
    rows: dict[str, dict[str, str | None]] = field(default_factory=dict)
    log: list[list[tuple[str, Any, Any]]] = field(default_factory=list)
    seen: int = 0

    def image(self, row: str) -> dict[str, str | None]:
        return {name: self.rows[row].get(name) for name in (c.name for c in self.schema.columns)}

    def begin(self) -> None:
        self.log.append([])

    def insert(self, key: int, a: str | None = None) -> str:
        self.seen += 1
        row = f"row {self.seen}"
        self.rows[row] = {"case": self.case, "id": str(key), "a": row if a is None else a, "b": None}
        self.log[-1].append(("c", self.image(row), None))
        return row

    def change(self, row: str, **values: str) -> None:
        before = self.image(row)
        self.rows[row] |= values
        self.log[-1].append(("u", self.image(row), before))

    def delete(self, row: str) -> None:
        self.log[-1].append(("d", None, self.image(row)))
        del self.rows[row]

    def content(self) -> set[tuple[Any, ...]]:
        return {tuple(self.image(row).values()) for row in self.rows}


MAPPINGS = [(order, onto) for order in permutations("123") for onto in ("234", "213", "231", "312", "321")]


def mapped(case: str, order: Sequence[str], onto: Sequence[str], schema: Any = T, a: str | None = None) -> Database:
    """One statement that gives each of three rows another's key, row by row in this order."""
    made = Database(case, schema)
    made.begin()
    rows = {key: made.insert(int(key), a) for key in "123"}
    made.begin()
    new = dict(zip("123", onto, strict=True))
    for key in order:
        made.change(rows[key], id=new[key])
    return made


def gone(schema: Any = T, a: str | None = None, kind: str = "") -> list[Database]:
    """Rows that were for a time at a key that has none in the end."""
    made = []
    for case in ("inserted and deleted", "moved and deleted", "moved on", "swapped by a free key", "set and deleted"):
        made.append(Database(f"{kind} {case}".strip(), schema))
        made[-1].begin()
        first, second = made[-1].insert(1, a), made[-1].insert(2, a)
        made[-1].begin()
        if case in ("inserted and deleted", "set and deleted"):
            row = made[-1].insert(9, a)
            if case.startswith("set"):
                made[-1].change(row, b="x")
            made[-1].delete(row)
        else:
            made[-1].change(first, id="9")
            if case == "moved on":
                made[-1].change(first, id="8", b="x")
            elif case == "moved and deleted":
                made[-1].delete(first)
            else:
                made[-1].change(second, id="1")
                made[-1].change(first, id="2")
    return made


def random_database(case: str, draw: random.Random) -> Database:
    """Transactions of any changes of rows and keys; no two rows have one key when a transaction ends."""
    made = Database(case)
    for _ in range(4):
        made.begin()
        for _ in range(draw.randint(1, 7)):
            what, key = draw.choice(["insert", "move", "move", "move", "set", "delete"]), draw.randint(1, 4)
            if what == "insert" or not made.rows:
                made.insert(key)
                continue
            row = draw.choice(sorted(made.rows))
            if what == "move":
                made.change(row, id=str(key), **draw.choice([{}, {"b": draw.choice("xy")}]))
            elif what == "set":
                made.change(row, b=draw.choice("xyz"))
            else:
                made.delete(row)
        standing: dict[str | None, list[str]] = {}
        for row in sorted(made.rows):
            standing.setdefault(made.rows[row]["id"], []).append(row)
        doubled = [row for rows in standing.values() for row in draw.sample(rows, len(rows))[1:]]
        free = [key for key in map(str, range(1, 40)) if key not in standing]
        for row in doubled:
            if draw.random() < 0.3:
                made.delete(row)
            else:
                made.change(row, id=free.pop(draw.randrange(len(free))))
    return made


HEADERS = {"d": "__debezium.newkey", "c": "__debezium.oldkey"}


def messages(
    batch: Batch,
    made: Database,
    connector: str,
    *,
    pairs: bool,
    headers: bool,
    before: str,
    transaction: bool = True,
    partitions: int = 1,
) -> None:
    """The log of a database as messages of one partition of its own, which follow those that the batch has.

    Args:
        batch: gets them.
        made: the database.
        connector: as the source block says it.
        pairs: a change of key is a delete and a create.
        headers: they have headers that say so.
        before: what images before say: `whole`, `key`, or `filled`: null where they are not the key.
        transaction: the transaction is known.
        partitions: how many there are; a key is always in the same one.
    """
    for number, changes in enumerate(made.log):
        for op, after, old in changes:
            if old is not None and before != "whole":
                keys = {name: old[name] for name in made.schema.key}
                old = keys if before == "key" else {**dict.fromkeys(old), **keys}
            moved = op == "u" and after["id"] != old["id"]
            for one in [("d", None, old), ("c", after, None)] if pairs and moved else [(op, after, old)]:
                place = f"{len(batch.lines):020}/1/"
                partition = int((one[1] or one[2])["id"]) % partitions
                source = {"connector": connector}
                from_message(batch.add(one[0], made.schema, place, *one[1:]), made.case, partition, source)
                batch.lines[-1]["transaction"] = (f"{made.case}:{number}", None, None) if transaction else None
                if moved and headers:
                    batch.lines[-1]["message"]["headers"] = [(HEADERS[one[0]], b"{}")] if one[0] in HEADERS else None


def written(
    spark: Any, parts: Sequence[Batch], events: Callable[[Any, Any], None] | None = None
) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """What a mirror holds after the batches, per key.

    Args:
        spark: the session.
        parts: the batches.
        events: is given the changes of each batch, as a history gets them, with the profile of their table.
    """
    held: dict[tuple[Any, ...], tuple[str, tuple[Any, ...]]] = {}

    def standing(columns: Sequence[Column]) -> Any:
        fields = ", ".join(f"{c.name}: {c.logical.spark_type}" for c in columns)
        rows = [
            (tuple(int(v) if v and c.logical.spark_type == "int" else v for c, v in zip(columns, row, strict=True)), at)
            for at, row in held.values()
        ]
        stood = local_rows(spark, rows, f"row struct<{fields}>, since string")
        return stood.selectExpr("row", "since", "cast(null as string) as until")

    for batch in parts:
        rows = sequenced(batch.rows(spark))
        for found in profile(rows):
            columns = found.schema.columns
            with carried(rows, found, lambda _, columns=columns: standing(columns)) as whole:
                lines = fold(whole, found).collect()
                if events is not None:
                    events(whole, found)
            for line in lines:
                values = {name: None if v is None else str(v) for name, v in line["row"].asDict().items()}
                key = tuple(values[name] for name in found.schema.key)
                if key in held and held[key][0] >= line["position"]:
                    continue
                held.pop(key, None)
                if line["op"] == "upsert":
                    assert line["whole"]
                    held[key] = (line["position"], tuple(values.values()))
    return {key: row for key, (_, row) in held.items()}

"""Rows that take over each other's keys in one transaction: all of them are there in the end, and no other is."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

import pytest

from headrace.apply import carried, fold, profile
from headrace.apply.history import change_events, ordered, versions
from headrace.changes.position import Position
from headrace.changes.refusal import refused
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


def at(transaction: int, number: int) -> str:
    return Position(f"{transaction:08}", f"{number:04}").text


def batches(databases: Sequence[Database], cuts: Sequence[Sequence[int]]) -> list[Batch]:
    """All logs in as many batches as there are cuts, of which each says per database the transactions that it has."""
    out, done = [], [0] * len(databases)
    for cut in cuts:
        batch = Batch(databases[0].schema)
        for number, (database, upto) in enumerate(zip(databases, cut, strict=True)):
            for transaction in range(done[number], upto):
                for place, (op, after, before) in enumerate(database.log[transaction]):
                    batch.add(op, database.schema, at(transaction + 1, place), after, before)
                    batch.lines[-1]["source"] = {"connector": "postgresql"}
            done[number] = upto
        out.append(batch)
    return out


def written(spark: Any, parts: Sequence[Batch]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """What a mirror holds after the batches, per key."""
    held: dict[tuple[Any, ...], tuple[str, tuple[Any, ...]]] = {}
    for batch in parts:
        rows = batch.rows(spark)
        for found in profile(rows):
            with carried(rows, found) as whole:
                lines = fold(whole, found).collect()
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


def test_any_transactions_cut_between_any_of_them_leave_the_rows_of_the_database(spark: Any) -> None:
    draw = random.Random(33)
    databases = [random_database(f"{number}", draw) for number in range(400)]
    cuts = [sorted(draw.randint(0, 4) for _ in range(2)) for _ in databases]
    parts = batches(databases, [[cut[0] for cut in cuts], [cut[1] for cut in cuts], [4] * len(databases)])
    held = set(written(spark, [parts[0], parts[0], *parts[1:], parts[2]]).values())
    differing = {
        database.case: (database.log, database.content())
        for database in databases
        if {row for row in held if row[0] == database.case} != database.content()
    }
    assert not differing


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


@pytest.mark.parametrize("schema", [T, BARE], ids=["equal rows", "keys alone"])
def test_rows_that_are_equal_are_none_lost(spark: Any, schema: Any) -> None:
    databases = [mapped(f"{n}", *mapping, schema=schema, a="same") for n, mapping in enumerate(MAPPINGS)]
    # The key of a circle by way of a free one never had a row.
    by_a_free_key = Database("free", schema)
    by_a_free_key.begin()
    first, second = by_a_free_key.insert(1, "same"), by_a_free_key.insert(2, "same")
    by_a_free_key.begin()
    for row, key in ((first, "9"), (second, "1"), (first, "2")):
        by_a_free_key.change(row, id=key)
    databases.append(by_a_free_key)
    held = written(spark, batches(databases, [[1] * len(databases), [2] * len(databases)]))
    assert set(held.values()) == set().union(*(database.content() for database in databases))


HEADERS = {"d": "__debezium.newkey", "c": "__debezium.oldkey"}


def messages(
    batch: Batch, made: Database, connector: str, *, pairs: bool, headers: bool, before: str, transaction: bool = True
) -> None:
    """The log of a database as messages of one partition, which follow those that the batch has.

    Args:
        batch: gets them.
        made: the database.
        connector: as the source block says it.
        pairs: a change of key is a delete and a create.
        headers: they have headers that say so.
        before: what images before say: `whole`, `key`, or `filled`: null where they are not the key.
        transaction: the transaction is known.
    """
    for number, changes in enumerate(made.log):
        for op, after, old in changes:
            if old is not None and before != "whole":
                keys = {name: old[name] for name in made.schema.key}
                old = keys if before == "key" else {**dict.fromkeys(old), **keys}
            moved = op == "u" and after["id"] != old["id"]
            for one in [("d", None, old), ("c", after, None)] if pairs and moved else [(op, after, old)]:
                place = f"{len(batch.lines):020}/1/@1a2b3c4d"
                from_message(batch.add(one[0], made.schema, place, *one[1:]), "t", 0, {"connector": connector})
                batch.lines[-1]["transaction"] = (f"{made.case}:{number}", None, None) if transaction else None
                if moved and headers:
                    batch.lines[-1]["message"]["headers"] = [(HEADERS[one[0]], b"{}")] if one[0] in HEADERS else None


@pytest.mark.parametrize(
    ("connector", "said"),
    [
        ("oracle", {"pairs": False, "headers": False, "before": "whole"}),
        ("oracle", {"pairs": False, "headers": False, "before": "whole", "transaction": False}),
        ("mysql", {"pairs": False, "headers": False, "before": "whole", "transaction": False}),
        ("oracle", {"pairs": True, "headers": False, "before": "whole"}),
        ("oracle", {"pairs": True, "headers": True, "before": "whole", "transaction": False}),
        ("postgresql", {"pairs": True, "headers": True, "before": "whole"}),
    ],
)
def test_messages_of_keys_that_move_along_lose_no_row(spark: Any, connector: str, said: Any) -> None:
    databases, batch = [mapped(f"{n}", *mapping) for n, mapping in enumerate(MAPPINGS)], Batch(T)
    for made in databases:
        messages(batch, made, connector, **said)
    held = written(spark, [batch, batch])
    assert set(held.values()) == set().union(*(made.content() for made in databases))


def gone() -> list[Database]:
    """Rows that were for a time at a key that has none in the end."""
    made = []
    for case in ("inserted and deleted", "moved and deleted", "moved on", "swapped by a free key", "set and deleted"):
        made.append(Database(case))
        made[-1].begin()
        first, second = made[-1].insert(1), made[-1].insert(2)
        made[-1].begin()
        if case in ("inserted and deleted", "set and deleted"):
            row = made[-1].insert(9)
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


# Debezium fills images of MySQL and PostgreSQL; Oracle's have the whole row.
@pytest.mark.parametrize(
    ("connector", "before"),
    [("oracle", "whole"), *((name, before) for name in ("mysql", "postgresql") for before in ("whole", "filled"))],
)
@pytest.mark.parametrize("pairs", [False, True])
def test_what_left_a_key_in_its_transaction_is_not_there(spark: Any, connector: str, pairs: bool, before: str) -> None:
    batch = Batch(T)
    for made in gone():
        messages(batch, made, connector, pairs=pairs, headers=pairs, before=before)
        # Messages come at least once.
        messages(batch, made, connector, pairs=pairs, headers=pairs, before=before)
    held = written(spark, [batch])
    assert set(held.values()) == set().union(*(made.content() for made in gone()))


@pytest.mark.parametrize(("onto", "stops"), [("234", True), ("456", False)])
def test_images_that_do_not_tell_which_row_left_a_key_stop_the_batch(spark: Any, onto: str, stops: bool) -> None:
    made, batch = mapped("1", "123", onto), Batch(T)
    messages(batch, made, "oracle", pairs=False, headers=False, before="key")
    if not stops:
        assert set(written(spark, [batch]).values()) == made.content()
        return
    with pytest.raises(Exception, match="USER_RAISED_EXCEPTION") as caught:
        written(spark, [batch])
    error = refused(str(caught.value))
    assert error is not None
    assert error.message.startswith("Table db.dbo.t has rows that take over each other's keys in one transaction")


def test_a_history_has_a_version_of_each_row_at_its_key(spark: Any) -> None:
    databases = [mapped(f"{n}", *mapping) for n, mapping in enumerate(MAPPINGS)]
    (batch,) = batches(databases, [[2] * len(databases)])
    rows = batch.rows(spark)
    (found,) = profile(rows)
    names = [column.name for column in T.columns]
    events = ordered(change_events(rows, found), T.key, names, names)
    standing = versions(events, T.key).where("end is null").collect()
    held = {tuple(None if v is None else str(v) for v in line["row"]) for line in standing}
    assert held == set().union(*(made.content() for made in databases))

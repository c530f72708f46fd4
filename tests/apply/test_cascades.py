# ruff: noqa: E501
"""Rule: the log's changes and those that foreign keys add to them leave what the database has, in each table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.smoke import examples

from headrace.apply.cascades import Added, Change, Image, RowKey, added_changes
from headrace.changes.foreign_key import Action, ForeignKey
from headrace.changes.table import TableId

NAMES = "abcd"
COLUMNS = ("u", "f", "g")
"""The columns beside `id`: one that is unique, so that others may refer to it, and two that refer."""


def table(name: str) -> TableId:
    return TableId("shop", "", name)


def foreign_key(text: str, on_delete: Action = "cascade", on_update: Action = "", *, matches: str = "") -> ForeignKey:
    """`orders.customer > customers.id`, columns with `+` between."""
    child, parent = (part.split(".") for part in text.split(" > "))
    names = tuple(child[1].split("+"))
    found = ForeignKey(text, table(child[0]), names, table(parent[0]), tuple(parent[1].split("+")), on_delete,
                       on_update, (matches,) * len(names))  # type: ignore[arg-type]  # fmt: skip
    return found


class Kept:
    """Rows before the first change, and the changes of the log: gives no more than is asked for."""

    def __init__(self, rows: Mapping[TableId, Iterable[Image]], changes: Sequence[Change]) -> None:
        self._rows = {name: list(images) for name, images in rows.items()}
        self._changes = changes

    def rows(self, key: ForeignKey, to: Collection[str]) -> Iterable[Image]:
        return [image for image in self._rows.get(key.child, ()) if key.of_child(image) in to]

    def changes(self, key: ForeignKey, to: Collection[str], rows: Collection[RowKey]) -> Iterable[Change]:
        for change in self._changes:
            images = [image for image in (change.before, change.after) if image is not None]
            if change.table == key.child and (
                change.op == "t" or any(key.of_child(image) in to or (image["id"],) in rows for image in images)
            ):
                yield change


def added_to(
    keys: Sequence[ForeignKey], rows: Mapping[TableId, Iterable[Image]], changes: Sequence[Change]
) -> list[Added]:
    row_keys = {key.child: ("id",) for key in keys}
    causes = [change for change in changes if change.op in "du"]
    return added_changes(keys, row_keys, causes, Kept(rows, changes))


def row(id: int, **columns: str | None) -> Image:
    return {"id": str(id), **columns}


def deleted(position: int, name: str, image: Image, *, checked: bool = True) -> Change:
    return Change(f"{position}/", table(name), "d", image, None, checked)


def updated(position: int, name: str, before: Image, **after: str | None) -> Change:
    return Change(f"{position}/", table(name), "u", before, {**before, **after})


def created(position: int, name: str, image: Image) -> Change:
    return Change(f"{position}/", table(name), "c", None, image)


C1, O1, O2 = row(1), row(10, customer="1"), row(20, customer="2")
I1 = row(100, order="10")
CASCADE = foreign_key("orders.customer > customers.id")
NULLS = foreign_key("orders.customer > customers.id", "set null", "set null")
MOVES = foreign_key("orders.customer > customers.id", "", "cascade")
ITEMS = foreign_key("items.order > orders.id")
TREE = foreign_key("nodes.up > nodes.id")
PAIR = foreign_key("orders.customer+shop > customers.id+shop", "cascade", "cascade")
FOLDED = foreign_key("orders.customer > customers.id", matches="c")
PADDED = foreign_key("orders.customer > customers.id", matches="p")


@pytest.mark.parametrize(
    ("keys", "rows", "changes", "expected"),
    [
        pytest.param([CASCADE], {"orders": [O1, O2]}, [deleted(1, "customers", C1)], ["1/k00000001 d orders 10"], id="children go"),
        pytest.param([NULLS], {"orders": [O1]}, [deleted(1, "customers", C1)], ["1/k00000001 u orders 10 customer=None"], id="set to null"),
        pytest.param([MOVES], {"orders": [O1]}, [updated(1, "customers", C1, id="7")], ["1/k00000001 u orders 10 customer=7"], id="moved along"),
        pytest.param([MOVES], {"orders": [O1]}, [updated(1, "customers", row(1, title="a"), title="b")], [], id="another column"),
        pytest.param([MOVES], {"orders": [O1]}, [deleted(1, "customers", C1)], [], id="a delete that the database would refuse"),
        pytest.param([CASCADE, ITEMS], {"orders": [O1, O2], "items": [I1, row(101, order="20")]}, [deleted(1, "customers", C1)],
                     ["1/k00000001 d orders 10", "1/k00000002 d items 100"], id="and theirs"),
        pytest.param([NULLS, ITEMS], {"orders": [O1], "items": [I1]}, [deleted(1, "customers", C1)],
                     ["1/k00000001 u orders 10 customer=None"], id="nothing refers to what was set to null"),
        pytest.param([TREE], {"nodes": [row(2, up="1"), row(3, up="2"), row(4, up="3"), row(5, up="9")]}, [deleted(1, "nodes", row(1, up=None))],
                     ["1/k00000001 d nodes 2", "1/k00000002 d nodes 3", "1/k00000003 d nodes 4"], id="a tree"),
        pytest.param([TREE], {"nodes": [row(1, up="1")]}, [deleted(1, "nodes", row(1, up="1"))], [], id="a row that refers to itself"),
        pytest.param([PAIR], {"orders": [row(10, customer="1", shop="x"), row(11, customer="1", shop=None), row(12, customer="1", shop="y")]},
                     [deleted(1, "customers", row(1, shop="x"))], ["1/k00000001 d orders 10"], id="two columns, one of them NULL"),
        pytest.param([PAIR], {"orders": [row(10, customer="1", shop="x")]}, [updated(1, "customers", row(1, shop="x"), shop="z")],
                     ["1/k00000001 u orders 10 customer=1 shop=z"], id="one of two columns"),
        pytest.param([CASCADE], {"orders": [O1]}, [deleted(1, "customers", C1, checked=False)], [], id="foreign keys were off"),
        pytest.param([CASCADE], {"orders": [O1]}, [deleted(1, "orders", O1), deleted(2, "customers", C1)], [], id="deleted by the application before"),
        pytest.param([CASCADE], {"orders": [O1]}, [updated(1, "orders", O1, customer="2"), deleted(2, "customers", C1)], [], id="moved to another before"),
        pytest.param([CASCADE], {"orders": [O2]}, [updated(1, "orders", O2, customer="1"), deleted(2, "customers", C1)], ["2/k00000001 d orders 20"], id="moved here before"),
        pytest.param([CASCADE], {}, [created(1, "orders", O1), deleted(2, "customers", C1)], ["2/k00000001 d orders 10"], id="created in the batch"),
        pytest.param([CASCADE], {"orders": [O1]}, [deleted(1, "customers", C1), created(2, "customers", C1), created(3, "orders", O1)],
                     ["1/k00000001 d orders 10"], id="and again after"),
        pytest.param([CASCADE], {"orders": [O1]}, [deleted(2, "customers", C1), Change("1/", table("orders"), "t")], [], id="emptied before"),
        pytest.param([FOLDED], {"orders": [row(10, customer="Ab ")]}, [deleted(1, "customers", {"id": "aB"})], ["1/k00000001 d orders 10"], id="case and spaces"),
        pytest.param([PADDED], {"orders": [row(10, customer="a "), row(11, customer="A")]}, [deleted(1, "customers", {"id": "a"})],
                     ["1/k00000001 d orders 10"], id="spaces alone"),
        pytest.param([CASCADE, foreign_key("orders.payer > customers.id", "set null")], {"orders": [row(10, customer="1", payer="1")]},
                     [deleted(1, "customers", C1)], ["1/k00000001 d orders 10"], id="two ways to one row"),
        pytest.param([MOVES, CASCADE], {"orders": [O1]}, [updated(1, "customers", C1, id="7"), deleted(2, "customers", row(7))],
                     ["1/k00000001 u orders 10 customer=7", "2/k00000001 d orders 10"], id="moved along, then deleted"),
    ],
)  # fmt: skip
def test_what_follows_from_changes(
    keys: list[ForeignKey], rows: dict[str, list[Image]], changes: list[Change], expected: list[str]
) -> None:
    found = added_to(keys, {table(name): images for name, images in rows.items()}, changes)
    texts = []
    for one in found:
        changed = [f"{name}={text}" for name, text in (one.after or {}).items() if name in one.key.columns]
        texts.append(" ".join([one.position, one.op, one.table.name, one.before["id"] or "", *changed]))
    assert texts == expected


class RefusedError(Exception):
    """The engine refuses a statement."""


Rows = dict[str, dict[str, str | None]]


def test_rows_that_are_known_to_be_unchanged_are_left_alone() -> None:
    rows = {table("orders"): [O1, row(11, customer="1")], table("items"): [I1, row(101, order="11")]}
    keys, changes = [CASCADE, ITEMS], [deleted(1, "customers", C1)]
    row_keys = {key.child: ("id",) for key in keys}
    found = added_changes(keys, row_keys, changes, Kept(rows, changes), {(CASCADE, ("10",))})
    assert [(one.table.name, one.before["id"]) for one in found] == [("orders", "11"), ("items", "101")]


@dataclass
class Engine:
    """A database that carries out the actions of foreign keys by itself, and logs what statements say."""

    keys: list[ForeignKey]
    tables: dict[TableId, Rows]
    log: list[Change] = field(default_factory=list)

    def delete(self, name: TableId, id: str, *, checked: bool) -> None:
        before = dict(self.tables[name][id])
        self._delete(name, id, checked=checked)
        self._log(name, "d", before, None, checked=checked)

    def update(self, name: TableId, id: str, column: str, value: str | None, *, checked: bool) -> None:
        before = dict(self.tables[name][id])
        after = {**before, column: value}
        if column in ("id", "u") and any(other[column] == value for other in self.tables[name].values()):
            raise RefusedError
        if checked and any(key.child == name and column in key.columns for key in self.keys):
            self._require_parents(name, after)
        self._update(name, id, after, checked=checked, seen=(name,))
        self._log(name, "u", before, after, checked=checked)

    def insert(self, name: TableId, image: dict[str, str | None], *, checked: bool) -> None:
        if any(other[column] == image[column] for other in self.tables[name].values() for column in ("id", "u")):
            raise RefusedError
        if checked:
            self._require_parents(name, image)
        self.tables[name][str(image["id"])] = dict(image)
        self._log(name, "c", None, image, checked=checked)

    def _log(self, name: TableId, op: str, before: Image | None, after: Image | None, *, checked: bool) -> None:
        self.log.append(Change(f"{len(self.log):06d}/", name, op, before, after, checked))

    def _require_parents(self, name: TableId, image: Image) -> None:
        for key in self.keys:
            values = [image[column] for column in key.columns]
            if key.child == name and None not in values:
                there = self.tables[key.parent].values()
                own = [image] if key.parent == name else []
                if not any([one[other] for other in key.referenced] == values for one in (*there, *own)):
                    raise RefusedError

    def _children(self, key: ForeignKey, parent: Image) -> list[str]:
        values = [parent[other] for other in key.referenced]
        if None in values:
            return []
        # In the order of their keys, as an index gives them.
        found = sorted(self.tables[key.child].items())
        return [id for id, image in found if [image[column] for column in key.columns] == values]

    def _delete(self, name: TableId, id: str, *, checked: bool) -> None:
        parent = self.tables[name].pop(id)
        for key in self.keys if checked else ():
            if key.parent != name:
                continue
            for child in self._children(key, parent):
                if child not in self._children(key, parent):
                    continue
                if not key.on_delete:
                    raise RefusedError
                if key.on_delete == "cascade":
                    self._delete(key.child, child, checked=True)
                else:
                    image = self.tables[key.child][child]
                    nulled = {**image, **dict.fromkeys(key.columns)}
                    self._update(key.child, child, nulled, checked=True, seen=(key.child,))

    def _update(
        self, name: TableId, id: str, after: dict[str, str | None], *, checked: bool, seen: tuple[TableId, ...]
    ) -> None:
        before = self.tables[name].pop(id)
        self.tables[name][str(after["id"])] = after
        for key in self.keys if checked else ():
            changed = [other for other in key.referenced if before[other] != after[other]]
            if key.parent != name or not changed:
                continue
            for child in self._children(key, before):
                if child not in self._children(key, before):
                    continue
                if not key.on_update or key.child in seen:
                    raise RefusedError
                values = [after[other] if key.on_update == "cascade" else None for other in key.referenced]
                image = {**self.tables[key.child][child], **dict(zip(key.columns, values, strict=True))}
                self._update(key.child, child, image, checked=True, seen=(*seen, key.child))


ACTIONS: tuple[Action, ...] = ("", "cascade", "cascade", "cascade", "set null")
VALUES = "1234567"


def random_keys(random: Random) -> list[ForeignKey]:
    found = []
    for child in NAMES:
        for column in ("f", "g"):
            # A column that refers may be referred to as well.
            parent, other = random.choice(NAMES), random.choice(("id", "id", "u", "f"))
            if random.random() < 0.7 and (parent, other) != (child, column):
                on_update = random.choice(ACTIONS) if parent != child else ""
                found.append(foreign_key(f"{child}.{column} > {parent}.{other}", random.choice(ACTIONS), on_update))
    return sorted(found, key=lambda key: key.name)


def step(random: Random, engine: Engine) -> None:
    """A statement, which is undone where the engine refuses it."""
    before = {name: dict(found) for name, found in engine.tables.items()}
    name, checked = table(random.choice(NAMES)), random.random() < 0.9
    there = sorted(engine.tables[name])
    try:
        if len(there) < 3 or random.random() < 0.4:
            image = {"id": random.choice(VALUES), "u": random.choice(VALUES), "f": None, "g": None}
            for key in engine.keys:
                parents = sorted(engine.tables[key.parent].items())
                if key.child == name and parents and random.random() < 0.8:
                    image[key.columns[0]] = random.choice(parents)[1][key.referenced[0]]
            engine.insert(name, image, checked=checked)
        elif random.random() < 0.5:
            engine.delete(name, random.choice(there), checked=checked)
        else:
            column = random.choice(("id", *COLUMNS))
            engine.update(name, random.choice(there), column, random.choice(VALUES), checked=checked)
    except RefusedError:
        engine.tables = before


def run(seed: int) -> int:
    """Batches of random statements, each followed by a mirror; how many changes foreign keys added."""
    random, count = Random(seed), 0
    keys = random_keys(random)
    engine = Engine(keys, {table(name): {} for name in NAMES})
    mirror: dict[TableId, Rows] = {table(name): {} for name in NAMES}
    for _ in range(8):
        for _ in range(random.randrange(1, 16)):
            step(random, engine)
        rows = {name: list(found.values()) for name, found in mirror.items()}
        added = added_to([key for key in keys if key.clauses], rows, engine.log)
        count += len(added)
        positions = [one.position for one in added]
        assert positions == sorted(set(positions))
        every = [*engine.log, *(Change(one.position, one.table, one.op, one.before, one.after) for one in added)]
        for change in sorted(every, key=lambda one: one.position):
            if change.before is not None:
                del mirror[change.table][str(change.before["id"])]
            if change.after is not None:
                mirror[change.table][str(change.after["id"])] = dict(change.after)
        assert mirror == engine.tables
        engine.log.clear()
    return count


@given(st.integers(0, 2**32))
@settings(max_examples=examples(150), deadline=None)
def test_mirrors_have_what_the_database_has_after_each_batch(seed: int) -> None:
    run(seed)


def test_foreign_keys_add_many_changes_to_random_transactions() -> None:
    assert sum(map(run, range(40))) > 100

"""What the offset keeps of structures until the stream has passed their change, and what they say of names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

import pytest

from headrace.apply.column_names import steps_of
from headrace.changes import Column, TableId, TableSchema
from headrace.sources.offset import Offset
from headrace.sources.postgresql.captured_table import PostgresTable
from headrace.sources.postgresql.earlier_structures import EarlierStructures, statement
from headrace.sources.postgresql.options import PostgresSettings
from headrace.sources.postgresql.relation import Relation, RelationColumn, table_of, under_known_names
from headrace.sources.postgresql.stream_state import LogState, StreamState
from headrace.sources.postgresql.types import CatalogType, TypeCatalog

_SETTINGS = PostgresSettings.parse({"database": "db"}, owner="source")
_TYPES = TypeCatalog()
_INT, _OID = 23, 7
Columns = dict[str, int]
"""Names with the catalog's numbers."""


def _table(columns: Columns, key: Sequence[str] = ("id",), *, last: int = 0, name: str = "t") -> PostgresTable:
    native = _TYPES.resolve(_INT)
    found = tuple(
        Column(column, place, native.logical, native.name, nullable=column not in key)
        for place, column in enumerate(columns, 1)
    )
    numbers = tuple(columns.values())
    schema = TableSchema(TableId("db", "public", name), found, tuple(key))
    return PostgresTable(
        schema, (native,) * len(found), tuple(key), (), _OID, "f", (_OID,), numbers, last or max(numbers)
    )


@pytest.mark.parametrize(
    ("before", "after", "steps"),
    [
        ({"id": 1, "a": 2}, {"id": 1, "a": 2}, ""),
        ({"id": 1, "a": 2}, {"id": 1, "b": 2}, "rename a b"),
        ({"id": 1, "a": 2}, {"id": 1, "b": 3}, "drop a, add b"),
        ({"id": 1, "a": 2, "b": 3}, {"id": 1, "b": 2, "c": 3}, "rename b c, rename a b"),
        ({"id": 1, "A b": 2}, {"id": 1, 'c"d': 2}, 'rename A b c"d'),
        # A column is renamed, and a new one has its name.
        ({"id": 1, "a": 2}, {"id": 1, "b": 2, "a": 3}, "rename a b, add a"),
        # Values of another column under a name: the table is read again.
        ({"id": 1, "a": 2}, {"id": 1, "a": 3}, ""),
        ({"id": 1, "a": 2, "b": 3}, {"id": 1, "b": 2, "a": 3}, ""),
        ({"id": 1, "a": 2, "b": 3}, {"id": 1, "a": 3}, ""),
        # Not captured before, because of the options.
        ({"id": 1, "b": 3}, {"id": 1, "a": 2, "b": 3}, ""),
    ],
)
def test_what_numbers_say_of_names(before: Columns, after: Columns, steps: str) -> None:
    text = statement(_table(before), _table(after))
    found = [f"{step.kind} {step.name} {step.to}".strip() for step in steps_of(text, "postgresql")]
    assert ", ".join(found) == steps


@pytest.mark.parametrize(
    ("states", "columns", "key", "numbers"),
    [
        # Rows from before the change, from behind it, and between two.
        ([{"id": 1, "a": 2}, {"nr": 1, "a": 2}], "id a", "id", (1, 2)),
        ([{"nr": 1, "a": 2}, {"id": 1, "a": 2}], "nr a", "nr", (1, 2)),
        ([{"id": 1, "a": 2}, {"nr": 1, "a": 2}], "x a", "x", (1, 2)),
        ([{"a": 1, "id": 2, "b": 3}, {"a": 1, "nr": 2, "b": 3}], "a x b", "x", (1, 2, 3)),
        ([{"id": 1, "a": 3}, {"nr": 1, "a": 3}], "x y a", "x", (1, 2, 3)),
        # The last one, which was there before and is there after.
        ([{"id": 1, "a": 2}, {"nr": 1, "b": 2}], "x y", "x", (1, 2)),
        # Nothing proves that a name is a column's: the place of one that is not captured may be its own.
        ([{"id": 1, "a": 4}, {"nr": 1, "a": 4}], "x y a", "", (0, 0, 4)),
    ],
)
def test_the_key_under_full_is_found_by_the_numbers_of_columns(
    states: list[Columns], columns: str, key: str, numbers: tuple[int, ...]
) -> None:
    relation = Relation(_OID, "public", "t", "f", tuple(RelationColumn(name, _INT) for name in columns.split()))
    tables = [_table(state, [name for name, number in state.items() if name in ("id", "nr")]) for state in states]
    found = table_of(relation, tables, _TYPES, _SETTINGS, "db")
    assert found.schema.key == tuple(key.split())
    assert (found.numbers or (0,)) == numbers


def test_a_name_that_no_look_at_the_catalog_showed_is_the_newest_one_where_its_column_is_known() -> None:
    before, now = _table({"id": 1, "a": 2, "b": 3}), _table({"id": 1, "d": 2, "a": 3})
    columns = (RelationColumn(name, _INT) for name in ("id", "x", "y"))
    found = under_known_names(Relation(_OID, "public", "t", "d", tuple(columns)), [before, now], now, _TYPES)
    assert [column.name for column in found.columns] == ["id", "d", "a"]


def test_what_the_log_describes_one_after_another_says_what_happened_to_names() -> None:
    before, now = _table({"id": 1, "a": 2, "b": 3, "c": 4}), _table({"id": 1, "d": 2, "c": 4, "e": 5})
    described = [
        table_of(
            Relation(_OID, "public", "t", "d", tuple(RelationColumn(n, _INT, key=n == "id") for n in names.split())),
            [before, now],
            _TYPES,
            _SETTINGS,
            "db",
        )
        for names in ("id a b c", "id d b c", "id d c e")
    ]
    assert [statement(one, other) for one, other in pairwise([before, *described, now])] == [
        "",
        'ALTER TABLE "public"."t" RENAME COLUMN "a" TO "d"',
        'ALTER TABLE "public"."t" DROP COLUMN "b"; ALTER TABLE "public"."t" ADD COLUMN "e"',
        "",
    ]


def test_an_earlier_table_comes_back_as_it_was() -> None:
    before = _table({"id": 1, "a": 2, "b": 3, "c": 5})
    now = _table({"nr": 1, "a": 2, "c": 5, "d": 6}, ("nr",))
    kept = EarlierStructures().with_changes({"t": before}, {"t": now}, _TYPES, _TYPES, "0a")
    kept = EarlierStructures.from_json(json.loads(json.dumps(kept.to_json())))
    assert kept.before({"t": now}) == {"t": before}
    # A later change keeps the oldest one.
    later = _table({"nr": 1, "x": 2}, ("nr",), last=6)
    again = kept.with_changes({"t": now}, {"t": later}, _TYPES, _TYPES, "0b")
    assert again.before({"t": later}) == {"t": before}
    assert (again.after(f"{10:016x}").until, bool(again.after("0b"))) == ("0b", False)
    # What is as it was before is no change.
    assert not again.with_changes({"t": later}, {"t": before}, _TYPES, _TYPES, "0c")


def test_types_that_are_gone_or_others_are_kept() -> None:
    before = TypeCatalog(
        {
            50: CatalogType("same", "e", labels=("a",), numbers=(1,)),
            51: CatalogType("gone", "d", base=_INT),
            52: CatalogType("more", "c", fields=(("x", _INT, -1),), numbers=(1,)),
            53: CatalogType("renamed", "c", fields=(("x", _INT, -1),), numbers=(1,)),
            54: CatalogType("other", "c", fields=(("x", _INT, -1),), numbers=(1,)),
        }
    )
    now = TypeCatalog(
        {
            50: before.types[50],
            52: CatalogType("more", "c", fields=(("x", _INT, -1), ("y", _INT, -1)), numbers=(1, 2)),
            53: CatalogType("renamed", "c", fields=(("y", _INT, -1),), numbers=(1,)),
            54: CatalogType("other", "c", fields=(("y", _INT, -1),), numbers=(2,)),
        }
    )
    kept = EarlierStructures().with_changes({}, {}, before, now, "0a").types
    assert kept.keys() == {51, 52, 53, 54}
    assert now.with_gone(kept).resolve(51).name == "int4"
    names = {
        (oid, count): None if (fields := now.before(kept).resolve(oid).fields_of(count)) is None else fields[-1][0]
        for oid, count in ((52, 1), (52, 2), (53, 1), (54, 1))
    }
    # A value with as many attributes before and after, which are others, may be of either.
    assert names == {(52, 1): "x", (52, 2): "y", (53, 1): "x", (54, 1): None}


def test_tables_that_one_migration_alters_make_an_offset_hardly_larger() -> None:
    wide = {"id": 1} | {f"column_{number}": number for number in range(2, 101)}
    before = {f"public.t{n}": _table(wide, name=f"t{n}") for n in range(100)}
    now = {f"public.t{n}": _table(wide | {"added": 101}, name=f"t{n}") for n in range(100)}
    kept = EarlierStructures().with_changes(before, now, _TYPES, _TYPES, "0a")
    sizes = []
    for earlier in (EarlierStructures(), kept):
        state = StreamState(LogState("1", 1, "slot", "pub", 7), "c", _TYPES, earlier=earlier)
        schemas = {path: table.to_json() for path, table in now.items()}
        sizes.append(len(Offset("postgresql:db", "0001", schemas=schemas, log=state.to_json()).to_text()))
    assert sizes[1] < 1.2 * sizes[0], sizes

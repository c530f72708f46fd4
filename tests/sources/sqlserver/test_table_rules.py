"""Rule: a key is the named one, the primary key, or a unique index; what can't be captured is left out and said.

The catalog's rows are given by hand, so that types and capture instances occur that the emulator does not make.
"""

from __future__ import annotations

import itertools
import logging

import pytest

from headrace.sources.sqlserver.catalog import captured_tables
from headrace.sources.tables.selection import TableSelection
from headrace.sources.tables.table_rules import TableRules

INT, VARCHAR = ("int", 4, 10, 0), ("varchar", 20, 0, 0)
DATABASES = (f"db{number}" for number in itertools.count())
"""A warning is given once for a table, so every test has a database of its own."""


class Catalog:
    """A connection that knows one table: columns as (name, type, computed), keys as (primary, columns)."""

    def __init__(self, columns, keys=(), captured=None):
        self.columns = list(columns)
        self.keys = list(keys)
        self.captured = captured or [name for name, *_ in columns]

    def rows(self, sql, parameters=()):
        del parameters
        ids = {name: number for number, (name, *_) in enumerate(self.columns, start=1)}
        if "FROM sys.databases" in sql:
            return [("d", 1)]
        if "t.is_ms_shipped" in sql:
            return [("dbo", "t", 7, 1)]
        if "sys.default_constraints" in sql:
            return [
                (7, name, ids[name], *kind, 1, 0, int(computed), None, None, None, None)
                for name, kind, computed in self.columns
            ]
        if "FROM sys.indexes" in sql:
            return [
                (7, number, int(primary), ids[name])
                for number, (primary, names) in enumerate(self.keys, start=1)
                for name in names
            ]
        if "cdc.captured_columns" in sql:
            return [(99, name, ids[name], number) for number, name in enumerate(self.captured, start=1)]
        if "c.name =" in sql:
            return [(99,)]
        if "t.capture_instance, t.object_id" in sql:
            return [(7, "dbo_t", 99, b"\0" * 10, None)]
        return []


def captured(catalog, rules=None, database=None):
    [table] = captured_tables(catalog, TableSelection(database or next(DATABASES)), rules or TableRules())
    return table.newest


PLAIN = (("a", INT, False), ("b", VARCHAR, False), ("c", INT, False))


@pytest.mark.parametrize(
    ("keys", "only", "named", "key", "chunk"),
    [
        ([(True, "ba"), (False, "c")], None, (), "ba", "ba"),
        ([(False, "c"), (False, "a")], None, (), "c", "c"),
        # A primary key of which columns are missing is cut short, and can't order chunks.
        ([(True, "ab"), (False, "c")], "bc", (), "b", "c"),
        ([(True, "ab")], "bc", (), "b", ""),
        ([(True, "a"), (False, "c")], "bc", (), "", "c"),
        ([(False, "ab"), (False, "c")], "bc", (), "c", "c"),
        ([], None, (), "", ""),
        ([(True, "a")], None, (r"dbo\.t\.c", r"dbo\.t\.[bc]"), "cb", "a"),
        ([], None, (r"DBO\.T\.B",), "b", ""),
    ],
)
def test_keys(keys, only, named, key, chunk):
    table = captured(Catalog(PLAIN, keys, list(only) if only else None), TableRules(keys=named))
    assert ("".join(table.schema.key), "".join(table.chunk_key)) == (key, chunk)


def test_a_primary_key_that_is_cut_short_is_announced_once(caplog):
    database = next(DATABASES)
    with caplog.at_level(logging.WARNING, "headrace.sources"):
        for _ in range(3):
            captured(Catalog(PLAIN, [(True, "ab")], ["b", "c"]), database=database)
    [record] = caplog.records
    assert record.getMessage().startswith(f"The primary key of table '{database}.dbo.t' is used without 'a'")


@pytest.mark.parametrize("kind", ["sql_variant", "geometry", "geography", "vector"])
def test_types_that_are_not_captured_are_left_out_and_announced_once(kind, caplog):
    database = next(DATABASES)
    catalog = Catalog((*PLAIN, ("where", (kind, -1, 0, 0), False), ("more", (kind, -1, 0, 0), False)))
    with caplog.at_level(logging.WARNING, "headrace.sources"):
        tables = [captured(catalog, database=database) for _ in range(3)]
    assert [c.name for c in tables[0].schema.columns] == ["a", "b", "c"]
    [record] = caplog.records
    assert record.getMessage() == (
        f"Columns 'where' ({kind}), 'more' ({kind}) of table '{database}.dbo.t' left out: values of such types are not "
        "captured."
    )


def test_computed_columns_are_left_out_because_changes_do_not_hold_them(caplog):
    with caplog.at_level(logging.WARNING, "headrace.sources"):
        table = captured(Catalog((("a", INT, False), ("twice", INT, True)), [(True, "a")]))
    assert [c.name for c in table.schema.columns] == ["a"]
    assert "'twice' (int)" in caplog.text
    assert "change tables hold NULL for computed columns" in caplog.text


def test_clr_types_and_hierarchyid_are_bytes():
    kinds = (("h", ("hierarchyid", 892, 0, 0), False), ("p", ("clr", -1, 0, 0), False))
    table = captured(Catalog(kinds))
    assert [str(c.logical) for c in table.schema.columns] == ["bytes", "bytes"]
    assert [n.projection("x") for n in table.natives] == ["CONVERT(varbinary(892), x)", "CONVERT(varbinary(max), x)"]
    assert [c.large for c in table.schema.columns] == [False, True]

"""Rule: an alteration of a captured table is proven harmless by statements, structures and numbers of columns, or the
table is read again."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.support.incremental_runs import Gates
from tests.support.sqlserver_runs import Run, create, replay

from headrace.changes import Column, TableId, TableSchema
from headrace.errors import CaptureError
from headrace.sources.change_tables.captured_table import CapturedTable, CaptureInstance
from headrace.sources.sqlserver.alterations import altered
from headrace.sources.sqlserver.types import NativeType
from headrace_emulators.sqlserver import EmulatedServer

INT, BIG = NativeType("int", 4, 10, 0), NativeType("bigint", 8, 19, 0)
LATIN, CYRILLIC = "Latin1_General_CI_AS", "Cyrillic_General_CI_AS"


def text(length, collation=LATIN, name="varchar"):
    return NativeType(name, length, 0, 0, collation)


def decimal(digits, scale):
    return NativeType("decimal", 9, digits, scale)


def clock(digits):
    return NativeType("datetime2", 8, 27, digits)


def table(*columns, dropped=()):
    """Columns as name, type, number and facts; an `id` is in front."""
    columns = [("id", INT, 1, {}), *((*column, {})[:4] for column in columns)]
    found = tuple(
        Column(name, place, native.logical, native.name, length=native.length, scale=native.shown_scale, **facts)
        for place, (name, native, _, facts) in enumerate(columns, 1)
    )
    return CapturedTable(
        TableSchema(TableId("shop", "dbo", "t"), found, ("id",)),
        tuple(native for _, native, _, _ in columns),
        ("id",),
        instance=CaptureInstance("dbo_t", None, (), True, 7),
        numbers=tuple(number for _, _, number, _ in columns),
        dropped=dropped,
    )


NINE = table(("c", text(9), 2))
ONLY = table()


@pytest.mark.parametrize(
    ("before", "after", "statement"),
    [
        (NINE, NINE, "ALTER TABLE dbo.t ADD other int NOT NULL DEFAULT 5"),
        (NINE, NINE, "alter table [dbo].[t] with nocheck add constraint k check (id > 0)"),
        (NINE, NINE, "ALTER TABLE t DROP CONSTRAINT k"),
        (NINE, NINE, "ALTER TABLE t -- nightly\n REBUILD WITH (DATA_COMPRESSION = PAGE)"),
        (NINE, NINE, "ALTER TABLE t ALTER COLUMN other int NOT NULL"),
        (NINE, NINE, "ALTER TABLE t ALTER COLUMN c varchar(9) NOT NULL"),
        (NINE, NINE, "ALTER TABLE t ALTER COLUMN c ADD MASKED WITH (FUNCTION = 'default()')"),
        (NINE, table(("c", text(20), 2)), "ALTER TABLE t ALTER COLUMN [C] VarChar ( 20 ) COLLATE Latin1_General_CI_AS"),
        (NINE, ONLY, "ALTER TABLE t DROP COLUMN c"),
        (table(("c", INT, 2)), table(("c", BIG, 2)), "ALTER TABLE t ALTER COLUMN c bigint"),
        (table(("c", decimal(9, 2), 2)), table(("c", decimal(10, 3), 2)), "ALTER TABLE t ALTER COLUMN c decimal(10,3)"),
        (table(("c", clock(3), 2)), table(("c", clock(7), 2)), "ALTER TABLE t ALTER COLUMN c datetime2"),
        (
            table(("c", text(9, name="nvarchar"), 2)),
            table(("c", text(9, CYRILLIC, name="nvarchar"), 2)),
            f"ALTER TABLE t ALTER COLUMN c nvarchar(4) COLLATE {CYRILLIC}",
        ),
        # The new instance of a table whose column was renamed, or got one that is NULL in all rows.
        (NINE, table(("d", text(9), 2)), None),
        (ONLY, table(("c", INT, 2)), None),
    ],
)  # fmt: skip
def test_what_is_proven_harmless(before, after, statement):
    _, rewrite = altered(before, after, [statement] if statement else [], lambda column: False)
    assert rewrite is None


@pytest.mark.parametrize(
    ("before", "after", "statement", "reason"),
    [
        (NINE, table(("c", text(5), 2)), None, f"column 'c' was varchar(9) {LATIN} and is varchar(5) {LATIN}"),
        (NINE, table(("c", text(9, CYRILLIC), 2)), None, f"is varchar(9) {CYRILLIC}"),
        (table(("c", BIG, 2)), table(("c", INT, 2)), None, "was bigint and is int"),
        (table(("c", decimal(9, 2), 2)), table(("c", decimal(9, 3), 2)), None, "is decimal(9,3)"),
        (table(("c", clock(7), 2)), table(("c", clock(3), 2)), None, "is datetime2(3)"),
        (table(("c", text(9, name="char"), 2)), table(("c", text(12, name="char"), 2)), None, "is char(12)"),
        (NINE, table(("c", INT, 2)), None, "is int"),
        # To another type and back, between two looks.
        (NINE, NINE, "ALTER TABLE t ALTER COLUMN c varchar(5)", "column 'c' had another type in between"),
        (NINE, NINE, f"ALTER TABLE t ALTER COLUMN c varchar(9) COLLATE {CYRILLIC}", "another type in between"),
        (NINE, NINE, "ALTER TABLE t ALTER COLUMN c dbo.code NOT NULL", "another type in between"),
        (NINE, NINE, "ALTER TABLE t SWITCH PARTITION 2 TO old", "it was altered by SWITCH"),
        (NINE, NINE, "EXEC frob t", "a statement that is not known"),
        (ONLY, table(("c", INT, 2, {"default_expression": "((5))"})), None, "column 'c' is captured from now on"),
        (ONLY, table(("c", INT, 2, {"nullable": False})), None, "column 'c' is captured from now on"),
        (ONLY, table(("c", INT, 2, {"identity": True, "nullable": False})), None, "is captured from now on"),
        (NINE, table(("c", text(9), 5, {"default_expression": "('x')"})), None, "is captured from now on"),
    ],
)
def test_what_is_not_and_why(before, after, statement, reason):
    _, rewrite = altered(before, after, [statement] if statement else [], lambda column: False)
    assert reason in rewrite.reason
    assert rewrite.constants == {}


def test_a_new_column_that_has_values_by_now_is_not_proven():
    _, rewrite = altered(ONLY, table(("c", INT, 2)), [], {"c": True}.__getitem__)
    assert rewrite.reason == "column 'c' is captured from now on, and rows from before have values in it"


def test_a_name_that_a_dropped_column_had_is_remembered_until_it_comes_again():
    dropped, rewrite = altered(NINE, ONLY, [], lambda column: False)
    assert (dropped, rewrite) == (("c",), None)
    again = table(("c", text(9), 5))
    for before in (replace(ONLY, dropped=dropped), NINE):
        dropped, rewrite = altered(before, again, [], lambda column: False)
        assert (dropped, rewrite.constants) == ((), {"c": None})


def test_what_an_earlier_release_kept_has_the_numbers_that_its_instance_shows():
    known = replace(NINE, numbers=())
    assert known.numbered_as(NINE).numbers == (1, 2)
    # Its column was dropped, and added again.
    assert known.numbered_as(ONLY).numbers == (1, 0)
    assert altered(known.numbered_as(ONLY), table(("c", text(9), 5)), [], lambda column: False)[1] is not None


def test_what_the_proof_needs_is_a_small_part_of_an_offset():
    wide = table(*((f"column_{n}", text(20), n) for n in range(2, 101)))
    with_it, without = (len(json.dumps(made.to_json())) for made in (wide, replace(wide, numbers=())))
    assert with_it / without < 1.05


AGAIN = "EXEC sys.sp_cdc_enable_table 'dbo', '{0}', '{0}_2', @role_name = NULL"
ALTERED = {
    "defaults": ("ALTER TABLE dbo.defaults ADD d int NOT NULL DEFAULT 5", AGAIN, True),
    "early": ("ALTER TABLE dbo.early ADD d int NULL; UPDATE dbo.early SET d = 7 WHERE id = 2", AGAIN, True),
    "other": ("ALTER TABLE dbo.other DROP COLUMN c; ALTER TABLE dbo.other ADD c varchar(9) DEFAULT 'x'", AGAIN, True),
    "shorter": ("ALTER TABLE dbo.shorter ALTER COLUMN c varchar(3)", "", True),
    "back": ("ALTER TABLE dbo.back ALTER COLUMN n smallint; ALTER TABLE dbo.back ALTER COLUMN n int", "", True),
    "kind": ("ALTER TABLE dbo.kind ALTER COLUMN n varchar(9)", "", True),
    "longer": ("ALTER TABLE dbo.longer ALTER COLUMN c varchar(12)", "", False),
    "plain": ("ALTER TABLE dbo.plain ADD d int NULL", AGAIN, False),
    "less": ("ALTER TABLE dbo.less DROP COLUMN n", "", False),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of tables that are altered while changes wait before and behind; with the rows that came."""
    with EmulatedServer(tmp_path_factory.mktemp("server")).create_database("shop") as database:
        database.allow_type_changes()
        for name in ALTERED:
            create(database, name, "id int primary key, c varchar(9), n int", [(n, f"a{n}", n) for n in range(1, 5)])
        made = Run(database)
        made.database = database
        gates = Gates(database)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("headrace.faultpoints.reach", gates.reach)
            rows = made.all()
            for name, (statements, instance, _) in ALTERED.items():
                database.execute(f"UPDATE dbo.{name} SET c = 'b' WHERE id = 1")
                for statement in [*statements.split("; "), *([instance.format(name)] if instance else [])]:
                    database.execute(statement)
                database.execute(f"UPDATE dbo.{name} SET c = 'd' WHERE id = 3")
            database.capture()
            made.rows = made.all()
        made.held = replay([*rows, *made.rows])
        yield made


@pytest.mark.parametrize("name", ALTERED)
def test_a_table_is_read_again_where_its_rows_may_have_changed(run, name):
    own = [row for row in run.rows if row["table"] and row["table"]["name"] == name]
    assert any(row["op"] == "r" for row in own) == ALTERED[name][2]
    rows = run.database.execute(f"SELECT * FROM dbo.{name}").fetchall()
    names = [described[0] for described in run.database.execute(f"SELECT * FROM dbo.{name}").description]
    server = {
        f'["{row[0]}"]': {n: None if v is None else str(v) for n, v in zip(names, row, strict=True)} for row in rows
    }
    held = {key: row for (of, key), row in run.held.items() if of == name}
    # What came before a column was added has no value of it.
    assert {key: {n: row.get(n) for n in names} for key, row in held.items()} == server


def test_changes_from_before_a_new_type_are_read_as_the_change_table_holds_them_now(tmp_path):
    with EmulatedServer(tmp_path / "server").create_database("shop") as database:
        database.allow_type_changes()
        create(database, "t", "id int not null primary key, c int", [(1, 7)])
        run = Run(database, on_rewrite="warn")
        run.all()
        reached = run.offset.commit
        database.execute("UPDATE dbo.t SET c = 8")
        database.execute("ALTER TABLE dbo.t ALTER COLUMN c varchar(9)")
        database.execute("UPDATE dbo.t SET c = 'x'")
        database.capture()
        rows = sorted(run.all(), key=lambda row: row["position"])
        # One batch has one structure of the column.
        assert [dict(row["after"])["c"] for row in rows if row["op"] == "u"] == ["8", "x"]
        assert len({row["schema_id"] for row in rows}) == 1
        assert min(row["position"] for row in rows) >= reached


@pytest.mark.parametrize("choice", ["warn", "fail"])
def test_a_statement_is_followed_on_a_database_that_is_idle_since(tmp_path, caplog, choice):
    with EmulatedServer(tmp_path / "server").create_database("shop") as database:
        database.allow_type_changes()
        create(database, "t", "id int not null primary key, c varchar(9)", [(1, "ab")])
        run = Run(database, on_rewrite=choice)
        run.all()
        database.execute("ALTER TABLE dbo.t ALTER COLUMN c varchar(3)")
        database.mark_idle()
        if choice == "fail":
            with pytest.raises(CaptureError, match=r"column 'c' was varchar\(9\)"):
                run.all()
            return
        assert [row for row in run.all() if row["op"] == "r"] == []
        assert "headrace repair reread <pipeline> dbo.t" in caplog.text

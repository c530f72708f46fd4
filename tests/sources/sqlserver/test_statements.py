"""Rule: every statement that the source can send stands in `statements`, is one statement of T-SQL whatever tables and
columns are called, binds its values, and is sent by some scenario here."""

from __future__ import annotations

import ast
import datetime as dt
import inspect
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import sqlglot
from mssql_python.parameter_helper import detect_and_convert_parameters
from sqlglot import exp
from tests.support.sqlserver_runs import ENABLE, NOW, Run, create, rows_of
from tests.support.sqlserver_statements import _SQL, table_called, texts_of

from headrace.errors import CaptureError, DataLossError, OptionError
from headrace.sources.base import Limit
from headrace.sources.offset import Offset
from headrace.sources.signals import Signal
from headrace.sources.snapshots.select_overrides import derived
from headrace.sources.sqlserver import statements
from headrace.sources.sqlserver.connection import SqlServerConnection
from headrace.sources.table_versions import TableMove
from headrace_emulators.engine.storage import utc_now
from headrace_emulators.sqlserver import EmulatedServer

FOLDER = Path(inspect.getfile(statements)).parent
PARTS = {"quote", "table_name", "change_table", "with_all_rows"}
"""Functions of `statements` whose text is part of a statement."""
BUILDERS = {
    name
    for name, value in vars(statements).items()
    if inspect.isfunction(value)
    and value.__module__ == statements.__name__
    and not name.startswith("_")
    and name not in PARTS
}


def constants():
    """The statements that are always the same, by name."""
    found = {}
    for name, value in vars(statements).items():
        if re.fullmatch(r"[A-Z][A-Z_]*", name):
            texts = value if isinstance(value, dict) else {"": value}
            found |= {f"{name} {key}".strip(): text for key, text in texts.items()}
    return found


# One place.


@pytest.mark.parametrize("module", sorted(path.name for path in FOLDER.glob("*.py") if path.name != "statements.py"))
def test_no_other_module_holds_sql(module):
    tree = ast.parse((FOLDER / module).read_text("utf-8"))
    # What people are told begins with words of its own and ends like a sentence.
    told = [f"{line}: {text}" for line, text in texts_of(tree) if _SQL.fullmatch(text) and text.rstrip()[-1:] != "."]
    assert told == []
    if module != "connection.py":
        calls = [node.func.attr for node in ast.walk(tree) if isinstance(node, ast.Call) and hasattr(node.func, "attr")]
        assert not {"execute", "executemany", "cursor"} & set(calls)


def test_the_rule_for_sql_sees_what_it_should():
    lines = ("def f(c, n):", '    "SELECT in words"', '    c.rows(f"SELECT {n}")', '    c.rows(f"x {n} WHERE {n}")')
    tree = ast.parse("\n".join((*lines, '    c.run("SET X 1")')))
    assert [text for _, text in texts_of(tree) if _SQL.fullmatch(text)] == ["SELECT x", "x x WHERE x", "SET X 1"]


# One statement, whatever things are called.

AWKWARD = [
    "x]; DROP TABLE y--",
    "[both]",
    "a.b",
    "with blank",
    "quote'd",
    'dou"ble',
    "what?",
    "%(id)s",
    "{braces}",
    "/* comment */",
    "t\u00e4ble \u65e5\u672c",
]
VALUE = "v'; DROP TABLE z--"


def built(name):
    """What each builder gives for a table of a name: text, and how many values are bound."""
    table = table_called(name)
    key = table.chunk_key
    instance, columns = table.instance.name, [c.name for c in table.schema.columns]
    pairs = list(zip(columns, table.natives, strict=True))
    select = derived(f"SELECT * FROM {statements.quote(name)} ORDER BY 1 -- all;", "t")
    lower, upper = ("1", VALUE), ("2", None)
    yield "lock_timeout", statements.lock_timeout(10), 0
    yield "any_row", statements.any_row(table), 0
    yield "any_row", statements.any_row(table, select), 0
    yield "any_value", statements.any_value(table, columns[1]), 0
    yield "rows_of_select", statements.rows_of_select(table, select), 0
    for by_command in (True, False):
        yield "changes", statements.changes(instance, by_command, pairs), 2
        yield "changes", statements.changes(instance, by_command, pairs, skipped=(1, 2)), 2
        yield "last_change", statements.last_change(instance, by_command), 1
    yield "changed_instances", statements.changed_instances([instance, f"{instance} 2"]), 4
    for updates in (True, False):
        yield "changed_keys", statements.changed_keys(table, key, updates=updates), 2
    yield "inserted", statements.inserted(table, columns), 2
    yield "insert", statements.insert(table, columns), 3
    yield "rows_of_change", statements.rows_of_change(instance), 2
    yield "count_changes", statements.count_changes(instance), 2
    yield "lock", statements.lock(table), 0
    asked = f"{statements.quote(columns[0])} > 1 -- all"
    ranges = [
        statements.rows_in_range(table, (), None, None),
        statements.rows_in_range(table, (), None, None, locked=True),
        statements.rows_in_range(table, key, lower, upper, present=columns[:2], condition=asked, ordered=True),
        statements.rows_in_range(table, key, ("1", None), None),
    ]
    yield from (("rows_in_range", *counted(made)) for made in ranges)
    yield from (("greatest_key", *counted(statements.greatest_key(table, key, condition=c))) for c in (None, asked))
    bounds = [(None, None), (lower, asked)]
    yield from (
        ("chunk_bounds", *counted(statements.chunk_bounds(table, key, low, upper, 10, 4, condition=condition)))
        for low, condition in bounds
    )


def counted(made):
    sql, values = made
    return sql, len(values)


def parsed(sql):
    """The one statement that a text is."""
    (statement,) = sqlglot.parse(sql, dialect="tsql")
    assert not isinstance(statement, exp.Command), sql
    return statement


_LEVEL = re.compile(
    "SET TRANSACTION ISOLATION LEVEL (READ UNCOMMITTED|READ COMMITTED|REPEATABLE READ|SNAPSHOT|SERIALIZABLE)"
)
"""The whole grammar of that statement: the parser lacks two of its levels."""


@pytest.mark.parametrize("name", constants())
def test_a_statement_that_is_always_the_same_parses(name):
    sql = constants()[name]
    if not _LEVEL.fullmatch(sql):
        assert len(list(parsed(sql).find_all(exp.Placeholder))) == sql.count("?")


@pytest.mark.parametrize("name", AWKWARD)
def test_names_of_any_kind_stay_names_and_values_are_bound(name):
    made = list(built(name))
    assert {builder for builder, _, _ in made} == BUILDERS
    known = {name, f"s {name}", f"i {name}_CT", f"i {name} 2_CT", *(f"{name} {n}" for n in (1, 2, 3))}
    for builder, sql, values in made:
        statement = parsed(sql)
        quoted = {identifier.name for identifier in statement.find_all(exp.Identifier) if identifier.quoted}
        foreign = {text for text in quoted - known if not re.fullmatch(r"__\$?\w+|cdc|one", text)}
        assert not foreign, (builder, sql)
        assert quoted & known or builder == "lock_timeout", (builder, sql)
        assert {t.name for t in statement.find_all(exp.Table) if t.name} <= known, (builder, sql)
        assert len(list(statement.find_all(exp.Placeholder))) == values, (builder, sql)
        assert VALUE not in sql
        # The driver looks for placeholders of another style before it sends a text; it must find none.
        assert detect_and_convert_parameters(sql, (0,) * values) == (sql, (0,) * values)


# Every one is sent.


class Sent:
    """What goes through connections, and what the builders made."""

    def __init__(self, monkeypatch):
        self.texts = set()
        self.made = {}
        self.refused = set()
        cursor = SqlServerConnection._cursor

        def recording(connection, sql, *args, **named):
            self.texts.add(sql)
            if sql in self.refused:
                raise CaptureError("The EXECUTE permission was denied.")
            return cursor(connection, sql, *args, **named)

        monkeypatch.setattr(SqlServerConnection, "_cursor", recording)
        for name in BUILDERS:
            monkeypatch.setattr(statements, name, self.noting(name, getattr(statements, name)))

    def noting(self, name, build):
        def noted(*args, **named):
            made = build(*args, **named)
            self.made.setdefault(name, set()).add(made if isinstance(made, str) else made[0])
            return made

        return noted


@pytest.fixture
def sent(monkeypatch):
    return Sent(monkeypatch)


@pytest.fixture
def server(tmp_path):
    return EmulatedServer(tmp_path / "server")


def snapshots(database):
    create(database, "t", "id int not null primary key, v int, note nvarchar(max)", [(n, n, "x") for n in range(5)])
    create(database, "log", "a int", [(1,)])
    database.execute("ALTER DATABASE shop SET ALLOW_SNAPSHOT_ISOLATION ON")
    for mode in statements.ISOLATION:
        Run(database, tables="dbo.t", snapshot_isolation_mode=mode, snapshot_chunk_rows=2).all()
    with database.capture_job(poll=0.05, idle=0.1):
        Run(database, snapshot_chunk_rows=2).all()
    Run(database, tables="dbo.t", **{"snapshot.select.statement.overrides.dbo.t": "SELECT * FROM dbo.t"}).all()


def streams(database):
    runs = [
        Run(database, snapshot_mode="no_data", tables="dbo.t,dbo.log", **more)
        for more in (
            {"commits_per_slice": 1},
            {"commit_time": "begin", "max_commits_per_trigger": 0, "skipped_operations": "d"},
            {"provide_transaction_metadata": "true"},
        )
    ]
    for run in runs:
        run.batch()
    for n in range(10, 14):
        database.execute("INSERT INTO dbo.t VALUES (?, 1, NULL)", (n,))
    database.capture()
    for run in runs:
        assert run.all()
    # Time passes in which nothing is changed.
    database.mark_idle()
    assert runs[0].all() == []
    # A second schema, by an alteration and by a second instance.
    database.execute("ALTER TABLE dbo.t DROP COLUMN v")
    database.execute("INSERT INTO dbo.t VALUES (20, NULL)")
    database.capture()
    assert runs[0].all()
    database.execute("ALTER TABLE dbo.t ADD w int NULL")
    database.execute(f"{ENABLE.format('t')}, @capture_instance = N't_2'")
    database.execute("INSERT INTO dbo.t VALUES (21, NULL, 1)")
    database.capture()
    assert runs[0].all()
    assert runs[0].source.head()
    # The clock is set back.
    run = Run(database, snapshot_mode="no_data", tables="dbo.log", server_timezone="Europe/Vienna")
    run.batch()
    for minute in (50, 10):
        database.clock = lambda minute=minute: dt.datetime(2026, 10, 25, 2, minute)
        database.execute("INSERT INTO dbo.log VALUES (3)")
        database.capture()
    database.clock = utc_now
    assert run.all()
    # The clean-up deletes what one of them still needs.
    database.execute("INSERT INTO dbo.log VALUES (2)")
    database.capture()
    database.cleanup("dbo_t", low_lsn=database.max_lsn())
    with pytest.raises(DataLossError):
        runs[2].all()


def signals(database):
    create(database, "signals", "id varchar(42) not null primary key, type varchar(32), data varchar(2048)")
    run = Run(database, signal_data_collection="dbo.signals", tables="dbo.t,dbo.signals", snapshot_mode="no_data")
    run.batch()
    run.source.signal(Signal("s1", "execute-snapshot", '{"data-collections": ["dbo.t"]}'))
    database.capture()
    end = run.source.advance(run.offset, Limit(), NOW)
    database.execute("UPDATE dbo.t SET w = 2 WHERE id = 1")
    with database.capture_job(poll=0.05, idle=0.1):
        assert rows_of(run.source, run.offset, end)


def moves(database):
    run = Run(database, snapshot_mode="no_data", tables="dbo.t")
    run.batch()
    database.execute("UPDATE dbo.t SET w = 3 WHERE id = 1")
    database.capture()
    assert run.source.move(TableMove("dbo.t", "skip", "now"), run.offset)
    with pytest.raises(OptionError, match="delivered"):
        run.source.move(
            TableMove("dbo.t", "skip", f"{dt.datetime.now(dt.UTC) - dt.timedelta(seconds=1):%Y-%m-%dT%H:%M:%SZ}"),
            run.offset,
        )


def health(server, database, sent):
    run = Run(database, snapshot_mode="no_data", tables="dbo.log")
    run.batch()
    database.execute("INSERT INTO dbo.log VALUES (3)")
    database.capture()
    server.set_agent(running=False)
    run.source.health(run.offset)
    # A login that is not db_owner, which the emulator lets in all the same.
    sent.refused.add(statements.JOBS)
    Run(database, tables="dbo.log").source.health(Offset.nothing())


def permissions(database):
    run = Run(database, signal_data_collection="dbo.signals", snapshot_isolation_mode="snapshot", user="cdc")
    assert run.source.missing_permissions() == []
    assert run.source.unlogged() == []
    execute = database.session.storage.sqlite.execute
    execute("UPDATE \"sys.columns\" SET is_masked = 1 WHERE name = 'note'")
    number = database.execute("SELECT OBJECT_ID('dbo.t')").fetchval()
    execute('INSERT INTO "sys.security_policies" VALUES (?, 1, 1)', ("tenants",))
    execute('INSERT INTO "sys.security_predicates" VALUES (1, ?, 0)', (number,))
    assert [found.table for found in run.source.restricted_reads()] == ["dbo.t", "dbo.t"]


def test_every_statement_is_sent_and_no_other(server, sent):
    with server.create_database("shop") as database:
        snapshots(database)
        streams(database)
        signals(database)
        moves(database)
        health(server, database, sent)
        permissions(database)
    assert {name for name, sql in constants().items() if sql not in sent.texts} == set()
    assert {name for name in BUILDERS if not sent.made.get(name, set()) & sent.texts} == set()
    listed = set(constants().values()).union(*sent.made.values())
    assert sent.texts - listed == set()


def test_the_history_of_a_temporal_table_is_not_among_the_tables() -> None:
    # The emulator has no temporal tables; SQLite runs this statement as it is.
    with closing(sqlite3.connect(":memory:")) as database:
        for schema in ("sys", "cdc"):
            database.execute(f"ATTACH ':memory:' AS {schema}")
        database.executescript(
            """
            CREATE TABLE sys.schemas (schema_id, name); INSERT INTO sys.schemas VALUES (1, 'dbo');
            CREATE TABLE cdc.change_tables (source_object_id); INSERT INTO cdc.change_tables VALUES (11), (13);
            CREATE TABLE sys.tables (object_id, schema_id, name, is_ms_shipped, temporal_type);
            INSERT INTO sys.tables VALUES (11, 1, 'orders', 0, 2), (12, 1, 'orders_history', 0, 1);
            INSERT INTO sys.tables VALUES (13, 1, 'plain', 0, 0);
            """
        )
        found = database.execute(statements.TABLES).fetchall()
    assert found == [("dbo", "orders", 11, 1), ("dbo", "plain", 13, 1)]

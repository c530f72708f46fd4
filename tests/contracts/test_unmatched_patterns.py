"""Rule: a name or pattern of an option that protects or chooses data and stands for nothing stops the run before the
first row; and one that stood for a column of a table and does for none any more stops it before the first row of the
table's new schema. The same for every source, on the emulated databases."""

from __future__ import annotations

import datetime as dt
import re

import pytest
from tests.support.captured_shop import Db2Database, OracleDatabase, SqlServerDatabase, closing

from headrace.errors import HeadraceError, OptionError
from headrace.sources.base import Limit
from headrace.sources.databases import Databases, Offsets
from headrace.sources.reader import source_named
from headrace.testing.captured_database import data

KINDS = [SqlServerDatabase, Db2Database, OracleDatabase]
NOW = dt.datetime(2026, 11, 21, 12, 0, tzinfo=dt.UTC)
COLUMNS = "id int not null primary key, email varchar(40), note varchar(20)"
ROWS = [(1, "ann@x.org", "a")]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.source)
def database(request, tmp_path):
    with closing(request.param(tmp_path / "server")) as made:
        yield made


def databases(database, **options):
    given = {**database.options, **{name: str(value) for name, value in options.items()}}
    return Databases(source_named(database.source, given))


# At the start.

MASK = "column.mask.with.3.chars"
MISSPELT = [
    ({MASK: "{s}.t.emial"}, f"No captured column matches '{{s}}.t.emial' of option '{MASK}'."),
    ({"column.truncate.to.3.chars": "{s}.t.emial"}, "of option 'column.truncate.to.3.chars'."),
    ({"column.mask.hash.v2.SHA-256.with.salt.S1": "{s}.tt.email"}, "'{s}.tt.email' of option 'column.mask.hash."),
    ({"column_exclude_list": "{s}.t.email,{s}.t.nope"}, "'{s}.t.nope' of option 'column_exclude_list'."),
    ({"column_include_list": "{s}.t.email,{s}.t.nope"}, "'{s}.t.nope' of option 'column_include_list'."),
    ({"message_key_columns": "{s}.t:nope"}, "of option 'message_key_columns'."),
    ({"message_key_columns": "{s}.t:note,nope"}, "of option 'message_key_columns'."),
    ({"snapshot_include_collection_list": "{s}.t,{s}.tt"}, "No table matches '{s}.tt' of option 'snapshot_include"),
    ({"tables_excluded": "{s}.secret"}, "No table matches '{s}.secret' of option 'tables_excluded'."),
    ({"snapshot.select.statement.overrides.{s}.tt": "SELECT 1 AS id"}, "No table matches '{s}.tt' of option 'snapsh"),
    ({"snapshot_select_statement_overrides": '{{"{s}.tt": "SELECT 1"}}'}, "No table matches '{s}.tt' of option 'snap"),
]


def filled(text, database):
    return text.replace("{{", "{").replace("}}", "}").replace("{s}", database.schema)


@pytest.mark.parametrize(("options", "sentence"), MISSPELT)
def test_what_stands_for_nothing_stops_the_run_before_the_first_row(database, options, sentence):
    database.create("t", COLUMNS, ROWS)
    given = {filled(name, database): filled(value, database) for name, value in options.items()}
    # Whoever looks first: `check`, `plan` and a pipeline ask for the tables, a plain reader just begins.
    for look in (lambda d: d.tables(), lambda d: d.advance(Offsets(), Limit(), NOW)):
        with pytest.raises(OptionError, match=re.escape(filled(sentence, database))):
            look(databases(database, **given))


def test_the_remedy_names_what_may_be_meant(database):
    database.create("t", COLUMNS, ROWS)
    with pytest.raises(OptionError) as error:
        databases(database, column_exclude_list=rf"{database.schema}\.t\.emial").tables()
    name = "EMAIL" if database.capitals else "email"
    assert error.value.remedy == (
        f"Did you mean '{database.named('t')}.{name}'? Correct it, put 'optional:' before it, or set "
        "'unmatched_patterns' to warn."
    )


def test_a_new_process_looks_at_its_own_options(database):
    database.create("t", COLUMNS, ROWS)
    run = database.run()
    run.all()
    name, source = next(iter(Databases(run.source).sources.items()))
    assert source is run.source
    changed = databases(database, column_exclude_list=f"{database.schema}.t.nope")
    with pytest.raises(OptionError, match="nope"):
        changed.advance(Offsets({name: run.offset}), Limit(), NOW)


@pytest.mark.parametrize(
    "options",
    [
        {MASK: "optional:{s}.t.emial"},
        {"column_exclude_list": "optional:{s}.later.secret,{s}.t.email"},
        {"message_key_columns": "optional:{s}.later:nope"},
        {"tables_excluded": "optional:{s}.later"},
        {"snapshot_select_statement_overrides": '{{"optional:{s}.later": "SELECT 1 AS id"}}'},
        {"tables": "{s}.t,optional:{s}.later"},
        {MASK: "{s}.t.emial", "unmatched_patterns": "warn"},
    ],
)
def test_what_is_optional_or_only_warned_of_stops_nothing(database, options):
    database.create("t", COLUMNS, ROWS)
    given = {name: filled(value, database) for name, value in options.items()}
    assert [schema.id.name.lower() for schema in databases(database, **given).tables()] == ["t"]
    databases(database, **given).advance(Offsets(), Limit(), NOW)


def test_an_optional_mask_masks_what_comes_later(database):
    database.create("a", "id int not null primary key")
    run = database.run(**{MASK: f"optional:{database.schema}.t.email"})
    run.all()
    database.create("t", COLUMNS, ROWS)
    run.restarted()
    assert [image for _, _, image in data(run.all())] == [{"id": "1", "email": "***", "note": "a"}]


def test_a_table_that_is_gone_keeps_its_patterns_from_stopping_the_others(database):
    database.create("a", "id int not null primary key", [(1,)])
    database.create("t", COLUMNS, ROWS)
    given = {"column_exclude_list": f"{database.schema}.t.note", MASK: f"{database.schema}.t.email"}
    run = database.run(**given)
    run.all()
    name = next(iter(Databases(run.source).sources))
    database.disable("t")
    database.capture()
    databases(database, **given).advance(Offsets({name: run.offset}), Limit(), NOW)


def test_with_several_databases_a_pattern_needs_a_table_in_one_of_them(tmp_path):
    from headrace_emulators.sqlserver import EmulatedServer

    server = EmulatedServer(tmp_path)
    for name, table in (("shop", "t"), ("store", "u")):
        with server.create_database(name) as made:
            made.execute(f"CREATE TABLE dbo.{table} (id int not null primary key, email varchar(10))")
            made.execute(
                f"EXEC sys.sp_cdc_enable_table @source_schema=N'dbo', @source_name=N'{table}', @role_name=NULL"
            )
            made.capture()
            settings = {"driver": "emulator", **made.settings, "database": "shop,store"}
    both = settings | {"column_exclude_list": r"shop\.dbo\.t\.email,store\.dbo\.u\.email", "tables": "dbo.t,dbo.u"}
    assert len(Databases(source_named("sqlserver", both)).tables()) == 2
    for option, value in (("tables", "dbo.t,dbo.u,dbo.v"), ("column_exclude_list", r"shop\.dbo\.u\.email")):
        with pytest.raises(OptionError, match=f"of option '{option}'"):
            Databases(source_named("sqlserver", both | {option: value})).tables()


# At a new schema.


def rename(database):
    """Column `email` is called `mail` from now on, as far as the emulator of the kind can."""
    if database.source == "oracle":
        database.execute(f"ALTER TABLE {database.schema}.t RENAME COLUMN EMAIL TO MAIL")
        return
    database.execute(f"ALTER TABLE {database.schema}.t DROP COLUMN email")
    database.execute(f"ALTER TABLE {database.schema}.t ADD mail varchar(40)")
    if database.source == "sqlserver":
        database.execute(
            "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N't', @role_name = NULL, "
            "@capture_instance = N't_2'"
        )
    else:
        database.disable("t")
        database.enable("t")
    database.capture()


# What LogMiner prints of a table that was altered since needs the dictionary in the log.
READS_OLD = {"oracle": {"log_mining_strategy": "redo_log_catalog"}, "db2": {}, "sqlserver": {}}
GONE = [
    {MASK: "{s}.t.email"},
    {MASK: ".*email"},
    {"column_exclude_list": r".*\.email"},
    {"column_exclude_list": "{s}.t.(email|note)"},
    {"column_include_list": "{s}.t.email,{s}.t.note"},
]


@pytest.mark.parametrize("options", GONE)
@pytest.mark.parametrize("restarted", [False, True])
def test_a_pattern_whose_column_is_renamed_stops_before_the_first_row_of_the_new_schema(database, options, restarted):
    database.create("t", COLUMNS, ROWS)
    # Another table has a column of the name, so that the pattern still stands for something.
    database.create("other", COLUMNS, ROWS)
    run = database.run(
        **{name: filled(value, database) for name, value in options.items()}, **READS_OLD[database.source]
    )
    run.all()
    rename(database)
    database.execute(f"INSERT INTO {database.schema}.t (id, mail) VALUES (2, 'bob@x.org')")
    database.capture()
    for _ in range(2):
        if restarted:
            run.restarted()
        with pytest.raises(HeadraceError) as error:
            run.all()
        name = "EMAIL" if database.capitals else "email"
        assert f"Table '{database.named('t')}' has no column '{name}' any more" in str(error.value)
        assert "'optional:'" in str(error.value)


def test_with_the_new_name_added_the_run_goes_on_and_leaks_nothing(database):
    database.create("t", COLUMNS, ROWS)
    run = database.run(**{MASK: f"{database.schema}.t.email"}, **READS_OLD[database.source])
    run.all()
    database.insert("t", 2, "old@x.org", "b")
    database.capture()
    rename(database)
    with pytest.raises(OptionError):
        run.all()
    # Only the new name: a change from before would come in clear. A table of Db2 is read again here.
    if database.source != "db2":
        with pytest.raises(OptionError, match="changes from before may hold it"):
            run.restarted(**{MASK: f"{database.schema}.t.mail"}).all()
    run.restarted(**{MASK: f"{database.schema}.t.mail,optional:{database.schema}.t.email"})
    rows = run.all()
    database.execute(f"INSERT INTO {database.schema}.t (id, mail) VALUES (3, 'new@x.org')")
    database.capture()
    rows += run.all()
    assert "@x.org" not in str(rows)
    assert "***" in str([image for op, _, image in data(rows) if op == "c" and image["id"] == "3"])
